//! What is particular to a cluster: `slurm/profiles/NAME.toml`, of the project, of the user, or compiled in, the first one wins.
//!
//! Invariant: everything but `setup`, which is shell code on purpose, is data: the batch script quotes it.

use std::path::PathBuf;

use expctl_settings::{KEYS, KeySpec, Slurm, ValueType, find as find_key, looks_secret};
use serde_json::Value as Json;

use crate::config::Values;
use crate::layer::{Layer, Scope, Setting, accept, read_settings, table_of, text_of};
use crate::node::{Node, NodeKey, NodeTable, NodeValue, ValueOrigin};
use crate::problem::{ConfErrors, Problem};
use crate::project_files::ProjectFolders;
use crate::reader::Reader;
use crate::ssh_settings::SshSettings;
use crate::suggest::closest;
use crate::user::{UserDefaults, unknown_key};

const TOP: [&str; 13] = [
    "description",
    "backend",
    "needs",
    "ssh",
    "slurm",
    "container",
    "environment",
    "modules",
    "setup",
    "scratch",
    "max_array_size",
    "max_submit",
    "extra",
];
const CONTAINER: [&str; 3] = ["runtime", "binds", "nv"];
const RUNTIME: ValueType = ValueType::Choice { words: &["apptainer", "singularity", PYXIS], aliases: &[] };
/// The runtime that is a plugin of Slurm.
pub const PYXIS: &str = "pyxis";
const BACKEND: ValueType = ValueType::Choice { words: &["slurm", "slurmrest", "local"], aliases: &[] };
const ARRAY_SIZE: ValueType = ValueType::Integer { min: 1, max: 4_000_001 };
const SUBMIT: ValueType = ValueType::Integer { min: 1, max: i64::MAX };
/// Options of sbatch that neither the script nor a key sets.
const EXTRA: [&str; 23] = [
    "comment",
    "contiguous",
    "core-spec",
    "cores-per-socket",
    "cpu-freq",
    "distribution",
    "exclude",
    "gres-flags",
    "hint",
    "licenses",
    "mail-type",
    "mail-user",
    "mem-bind",
    "network",
    "nice",
    "nodelist",
    "prefer",
    "reservation",
    "sockets-per-node",
    "spread-job",
    "switches",
    "threads-per-core",
    "tmp",
];
/// Variables that the script and the ranks rely on.
const RESERVED: [&str; 5] = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"];

/// How the ranks are put into a container; its image is `slurm.image`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// The program `apptainer` or `singularity`, or Slurm's plugin `pyxis`.
    pub runtime: String,
    /// Folders that it shows: `FOLDER`, or `FOLDER:INSIDE` with `:ro` if need be.
    pub binds: Vec<String>,
    /// With the machine's NVIDIA driver.
    pub nv: bool,
}

impl Default for Container {
    fn default() -> Self {
        Self { runtime: "apptainer".to_owned(), binds: Vec::new(), nv: false }
    }
}

/// A cluster's particulars.
#[derive(Clone, Debug, Default)]
pub struct ClusterProfile {
    /// Its name.
    pub name: String,
    /// One line on what it is for.
    pub description: String,
    /// Backend of its jobs, unless the user names another: `slurm` or `local`; none leaves it open.
    pub backend: Option<String>,
    /// Its file, or `compiled in`.
    pub found: String,
    /// `[slurm]`: what a config need not say.
    pub settings: Layer,
    /// Keys of `[slurm]` that a user has to set, because nobody else can know them.
    pub needs: Vec<&'static str>,
    /// Loaded with `module load`, in order.
    pub modules: Vec<String>,
    /// How ranks are put into a container; none leaves them outside, unless there is an image.
    pub container: Option<Container>,
    /// Environment of the ranks, in the order of the file.
    pub environment: Vec<(String, String)>,
    /// Shell code, run as it is before the ranks.
    pub setup: Vec<String>,
    /// Folder on the nodes for temporary files.
    pub scratch: Option<String>,
    /// Slurm's MaxArraySize: the highest index of an array task is one less.
    pub max_array_size: Option<u64>,
    /// Array tasks that a user may have in the queue at once.
    pub max_submit: Option<u64>,
    /// Other options of sbatch; none is an option without a value.
    pub extra: Vec<(String, Option<String>)>,
    /// `[ssh]`: how a machine outside gets to the cluster.
    pub ssh: Option<SshSettings>,
}

impl ClusterProfile {
    /// Read a tree and report all that is wrong with it.
    pub fn read(name: &str, found: &str, tree: &NodeTable, problems: &mut Vec<Problem>) -> Self {
        let mut profile = Self { name: name.to_owned(), found: found.to_owned(), ..Self::default() };
        for (key, node) in tree {
            profile.read_key(key, node, problems);
        }
        if profile.container.is_some() && !profile.settings.contains_key(Slurm::IMAGE.name()) {
            profile.needs.push(Slurm::IMAGE.name());
        }
        profile
    }

    fn read_key(&mut self, key: &NodeKey, node: &Node, problems: &mut Vec<Problem>) {
        match key.name.as_str() {
            "description" => self.description = text_of("`description`", node, problems).unwrap_or_default(),
            "backend" => match accept(&BACKEND, "backend", node) {
                Ok(word) => self.backend = word.as_str().map(str::to_owned),
                Err(problem) => problems.push(*problem),
            },
            "needs" => self.needs = read_needs(node, problems),
            "ssh" => self.ssh = SshSettings::read("ssh", node, problems),
            "slurm" => {
                if let Some(table) = table_of("`slurm`", node, problems) {
                    self.settings = read_settings("slurm", table, Scope::Config, problems);
                    refuse_profile(&mut self.settings, problems);
                }
            }
            "container" => self.container = Some(read_container(node, problems)),
            "environment" => self.environment = read_environment(node, problems),
            "modules" => self.modules = words("modules", node, problems),
            "setup" => self.setup = texts("setup", node, problems),
            "scratch" => {
                self.scratch = text_of("`scratch`", node, problems);
                if self.scratch.as_ref().is_some_and(|s| !s.starts_with('/') || s.contains([',', ':'])) {
                    let problem =
                        Problem::new(node.at, "`scratch` is an absolute path without `,` and `:`", "not this");
                    problems.push(problem);
                }
            }
            "max_array_size" => match accept(&ARRAY_SIZE, "max_array_size", node) {
                Ok(size) => self.max_array_size = size.as_u64(),
                Err(problem) => problems.push(*problem),
            },
            "max_submit" => match accept(&SUBMIT, "max_submit", node) {
                Ok(tasks) => self.max_submit = tasks.as_u64(),
                Err(problem) => problems.push(*problem),
            },
            "extra" => self.extra = read_extra(node, problems),
            unknown => problems.push(unknown_key(unknown, key, &TOP)),
        }
    }
}

/// A profile does not choose a profile.
pub fn refuse_profile(layer: &mut Layer, problems: &mut Vec<Problem>) {
    if let Some(at) = layer.remove(Slurm::PROFILE.name()).and_then(|setting| setting.at) {
        problems.push(Problem::new(at, "a profile cannot name another profile", "not here"));
    }
}

fn texts(what: &str, node: &Node, problems: &mut Vec<Problem>) -> Vec<String> {
    match accept(&ValueType::TextList, what, node) {
        Ok(list) => {
            let texts = list.as_array().into_iter().flatten().filter_map(Json::as_str);
            texts.filter(|text| fits_in_a_script(text, node.at, problems)).map(str::to_owned).collect()
        }
        Err(problem) => {
            problems.push(*problem);
            Vec::new()
        }
    }
}

/// Texts that become arguments of a program, and must not pass for its options.
fn words(what: &str, node: &Node, problems: &mut Vec<Problem>) -> Vec<String> {
    let found = texts(what, node, problems);
    if let Some(bad) = found.iter().find(|word| word.is_empty() || word.starts_with('-')) {
        problems.push(Problem::new(node.at, format!("`{what}` cannot hold {bad:?}"), "empty, or an option"));
    }
    found
}

fn read_needs(node: &Node, problems: &mut Vec<Problem>) -> Vec<&'static str> {
    let known: Vec<&str> = KEYS.iter().filter(|spec| spec.section() == "slurm").map(KeySpec::leaf).collect();
    let mut needs = Vec::new();
    for name in texts("needs", node, problems) {
        match find_key(&format!("slurm.{name}")) {
            Some(spec) => needs.push(spec.key),
            None => problems.push(unknown_key(&name, &NodeKey { name: name.clone(), at: node.at }, &known)),
        }
    }
    needs
}

fn read_container(node: &Node, problems: &mut Vec<Problem>) -> Container {
    let mut container = Container::default();
    for (key, node) in table_of("`container`", node, problems).into_iter().flatten() {
        match key.name.as_str() {
            "runtime" => match accept(&RUNTIME, "container.runtime", node) {
                Ok(word) => word.as_str().unwrap_or_default().clone_into(&mut container.runtime),
                Err(problem) => problems.push(*problem),
            },
            "binds" => {
                container.binds = words("container.binds", node, problems);
                if let Some(bad) = container.binds.iter().find(|bind| bind.contains(',')) {
                    let problem = Problem::new(node.at, format!("`container.binds` cannot hold {bad:?}"), "a comma");
                    problems.push(problem.help("write one folder per text"));
                }
            }
            "nv" => match accept(&ValueType::Bool, "container.nv", node) {
                Ok(flag) => container.nv = flag == Json::Bool(true),
                Err(problem) => problems.push(*problem),
            },
            "image" => {
                let problem = Problem::new(key.at, "unknown key `container.image`", "no such key");
                problems.push(problem.help("the image is `image` in [slurm]: a config may choose another"));
            }
            unknown => problems.push(unknown_key(unknown, key, &CONTAINER)),
        }
    }
    if container.runtime == PYXIS
        && let Some(bad) = container.binds.iter().find(|bind| !is_mount_of_pyxis(bind))
    {
        let problem = Problem::new(node.at, format!("`container.binds` cannot hold {bad:?} with pyxis"), "not this");
        problems.push(problem.help("paths begin with / or ./, without spaces, quotes, `$` and `\\`"));
    }
    if container.nv && container.runtime == PYXIS {
        let problem = Problem::new(node.at, "`container.nv` is for apptainer and singularity", "with pyxis");
        problems.push(problem.help("enroot shows a GPU's driver by itself: leave `nv` out"));
    }
    container
}

/// Whether Pyxis takes a text for one mount: a path, or a path and where it is inside. Both go through a line of fstab in a shell script of enroot.
pub fn is_mount_of_pyxis(text: &str) -> bool {
    let mut parts = text.split(':');
    let source = parts.next().unwrap_or_default();
    let is_path = |path: &str| path.starts_with(['/', '.']);
    let is_special = |c: char| c.is_whitespace() || c == ',' || matches!(c, '"' | '$' | '`' | '\\');
    (is_path(source) || ["tmpfs", "umount"].contains(&source))
        && is_path(parts.next().unwrap_or(source))
        && !text.contains(is_special)
}

fn read_environment(node: &Node, problems: &mut Vec<Problem>) -> Vec<(String, String)> {
    let mut environment = Vec::new();
    for (key, node) in table_of("`environment`", node, problems).into_iter().flatten() {
        let name = &key.name;
        let first = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !(first && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')) {
            let problem = Problem::new(key.at, format!("`{name}` cannot name a variable"), "not a name for the shell");
            problems.push(problem.help("use letters, digits and `_`, the first no digit"));
        } else if RESERVED.contains(&name.as_str()) || name.starts_with("SLURM_") {
            problems.push(Problem::new(
                key.at,
                format!("`{name}` is not for a profile to set"),
                "the ranks rely on it",
            ));
        } else if looks_secret(name) {
            let problem = Problem::new(key.at, format!("`{name}` looks like a secret"), "would end up in the ledger");
            problems.push(problem.help(
                "the script that a profile makes is kept; export it in `setup`, from a file that only you can read",
            ));
        } else if let Some(text) = text_of(&format!("`environment.{name}`"), node, problems)
            && fits_in_a_script(&text, node.at, problems)
        {
            environment.push((name.clone(), text));
        }
    }
    environment
}

fn read_extra(node: &Node, problems: &mut Vec<Problem>) -> Vec<(String, Option<String>)> {
    let mut extra = Vec::new();
    for (key, node) in table_of("`extra`", node, problems).into_iter().flatten() {
        if !EXTRA.contains(&key.name.as_str()) {
            let problem = unknown_key(&key.name, key, &EXTRA);
            problems.push(match find_key(&format!("slurm.{}", key.name.replace('-', "_"))) {
                Some(spec) => problem.help(format!("this is `{}` in [slurm]", spec.leaf())),
                None => problem,
            });
            continue;
        }
        match &node.value {
            NodeValue::Bool(true) => extra.push((key.name.clone(), None)),
            NodeValue::Text(text) if control_free(text, node.at, problems) => {
                extra.push((key.name.clone(), Some(text.clone())));
            }
            NodeValue::Text(_) => {}
            _ => {
                let message = format!("`extra.{}` takes text or true, not {}", key.name, node.describe());
                problems.push(Problem::new(node.at, message, "expected text or true"));
            }
        }
    }
    extra
}

fn control_free(text: &str, at: ValueOrigin, problems: &mut Vec<Problem>) -> bool {
    let free = !text.contains(char::is_control);
    if !free {
        problems.push(Problem::new(at, "an option of sbatch cannot hold a line break", "a control character"));
    }
    free
}

/// sbatch refuses a script with one of these in it, even inside quotes.
fn fits_in_a_script(text: &str, at: ValueOrigin, problems: &mut Vec<Problem>) -> bool {
    let fits = !text.contains("\r\n") && !text.contains('\0');
    if !fits {
        problems.push(
            Problem::new(at, "a batch script cannot hold a DOS line break or a NUL character", "not in a script")
                .help("end lines with \\n alone"),
        );
    }
    fits
}

macro_rules! shipped {
    ($($name:literal),*) => {
        [$(($name, include_str!(concat!("../../../slurm/profiles/", $name, ".toml")))),*]
    };
}

/// The profiles that come with expctl, name and text.
pub const SHIPPED_PROFILES: [(&str, &str); 6] = shipped!["cabbi", "delta", "dev-cluster", "gilahyper", "local", "mmli"];

/// The profile with this name.
///
/// # Errors
/// There is none, or it is wrong: all problems, with places.
pub fn profile(project: &dyn ProjectFolders, name: &str) -> Result<ClusterProfile, ConfErrors> {
    let mut reader = Reader::new();
    let at = ValueOrigin::new(reader.sources.add("profile", name), 0..name.len());
    let found = find(project, name, at, &mut reader);
    match found {
        Some(profile) if reader.problems.is_empty() => Ok(profile),
        _ => Err(ConfErrors::new(format!("profile {name}"), reader.problems, reader.sources)),
    }
}

/// The profile with this name; its problems go to `reader`. `at` is the place that names the profile.
fn find(project: &dyn ProjectFolders, name: &str, at: ValueOrigin, reader: &mut Reader) -> Option<ClusterProfile> {
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    for path in folders(project).into_iter().filter(|_| is_name).map(|f| f.join(format!("{name}.toml"))) {
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                let found = path.display().to_string();
                let tree = reader.text(found.clone(), text)?;
                return Some(ClusterProfile::read(name, &found, &tree, &mut reader.problems));
            }
            Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {}
            Err(e) => {
                reader.unreadable(&path, &e);
                return None;
            }
        }
    }
    if let Some((_, text)) = SHIPPED_PROFILES.iter().find(|(shipped, _)| *shipped == name) {
        let tree = reader.text(format!("{name}.toml, compiled in"), (*text).to_owned())?;
        return Some(ClusterProfile::read(name, "compiled in", &tree, &mut reader.problems));
    }
    let names = profile_names(project);
    let problem = Problem::new(at, format!("there is no profile `{name}`"), "no such profile");
    reader.problems.push(match closest(name, names.iter().map(String::as_str)) {
        Some(near) => problem.help(format!("did you mean \"{near}\"?")),
        None => problem.help(format!("profiles are {}", names.join(", "))),
    });
    None
}

fn folders(project: &dyn ProjectFolders) -> Vec<PathBuf> {
    let own = project.root().join("slurm").join("profiles");
    std::iter::once(own).chain(project.config_home().map(|home| home.join("profiles"))).collect()
}

/// Whether there is a profile of this name, whatever is in it.
pub fn has_profile(project: &dyn ProjectFolders, name: &str) -> bool {
    profile_names(project).iter().any(|known| known == name)
}

/// Names of all profiles, sorted.
pub fn profile_names(project: &dyn ProjectFolders) -> Vec<String> {
    let files = folders(project).into_iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let stems = files.filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".toml").map(str::to_owned));
    let mut names: Vec<String> = stems.chain(SHIPPED_PROFILES.iter().map(|(name, _)| (*name).to_owned())).collect();
    names.sort();
    names.dedup();
    names
}

/// The settings below those of a config: the user's `[slurm]`, those of the profile that the config, `--set` or the user names, and the
/// user's own for that profile.
#[derive(Debug, Default)]
pub struct BaseSettings {
    /// The settings.
    pub settings: Layer,
    profile: Option<(ClusterProfile, ValueOrigin)>,
}

impl BaseSettings {
    /// The base of a config that sets `settings`.
    pub fn load(project: &dyn ProjectFolders, settings: [&Layer; 2], reader: &mut Reader) -> Self {
        let UserDefaults { settings: mut base, mut profiles, .. } = UserDefaults::read(project, reader);
        if let Some(name) = project.default_profile() {
            let at = ValueOrigin::new(reader.sources.add("EXPCTL_PROFILE", name), 0..name.len());
            let setting = Setting { value: Some(name.into()), at: Some(at), items: Vec::new() };
            base.entry(Slurm::PROFILE.name()).or_insert(setting);
        }
        let chosen = settings.into_iter().chain([&base]).find_map(|layer| layer.get(Slurm::PROFILE.name()));
        let name = chosen.and_then(|s| Some((s.value.as_ref()?.as_str()?.to_owned(), s.at?)));
        let Some((name, at)) = name.filter(|(name, _)| !name.is_empty()) else {
            return Self { settings: base, profile: None };
        };
        let profile = find(project, &name, at, reader);
        base.extend(profile.iter().flat_map(|p| p.settings.clone()));
        base.extend(profiles.remove(&name).unwrap_or_default());
        Self { settings: base, profile: profile.map(|p| (p, at)) }
    }

    /// Reports keys that the profile needs and nobody set.
    pub fn check(&self, values: &Values, problems: &mut Vec<Problem>) {
        let Some((profile, at)) = &self.profile else { return };
        for key in &profile.needs {
            let missing = values.json(key).is_some_and(|v| matches!(v.as_str(), Some("")) || v.as_u64() == Some(0));
            if missing {
                let leaf = key.trim_start_matches("slurm.");
                let message = format!("the profile `{}` needs `{key}`, which only you can know", profile.name);
                problems.push(Problem::new(*at, message, format!("needs `{leaf}`")).help(format!(
                    "give --set {key}=…, or write `[profile.{}]` and `{leaf} = \"…\"` into ~/.config/expctl/config.toml",
                    profile.name
                )));
            }
        }
    }
}
