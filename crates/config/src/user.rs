//! A user's defaults, `~/.config/expctl/config.toml`, and the settings of notes, which a project may have as well (`expctl.toml`). A config,
//! an environment variable or an argument overrides everything in them. Snapshots have their settings in both files, too
//! ([`crate::snapshot_settings`]).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use expctl_settings::ValueType;

use crate::cluster_profile::refuse_profile;
use crate::layer::{Layer, Scope, accept, read_settings, table_of, text_of};
use crate::node::{Node, NodeKey};
use crate::problem::{ConfErrors, Problem};
use crate::project_files::ProjectFolders;
use crate::reader::Reader;
use crate::snapshot_settings::SnapshotSettings;
use crate::ssh_settings::SshSettings;
use crate::suggest::closest;

const TOP: [&str; 9] = ["backend", "data", "runs", "on_end", "slurm", "profile", "ssh", "notes", "snapshot"];
/// Tables of a project's file.
const PROJECT_TABLES: [&str; 2] = ["notes", "snapshot"];
const BACKEND: ValueType = ValueType::Choice { words: &["auto", "slurm", "slurmrest", "local"], aliases: &[] };

/// A user's defaults. Without a file, all are empty.
#[derive(Clone, Debug, Default)]
pub struct UserDefaults {
    /// Backend of jobs.
    pub backend: Option<String>,
    /// Folder of the data sets.
    pub data: Option<PathBuf>,
    /// The ledger.
    pub runs: Option<PathBuf>,
    /// Shell command that runs when a job has ended.
    pub on_end: Option<String>,
    /// `[slurm]`: below a profile.
    pub settings: Layer,
    /// `[profile.NAME]`: above the profile of that name.
    pub profiles: BTreeMap<String, Layer>,
    /// `[ssh.NAME]`: how to get to the cluster of that profile.
    pub ssh: BTreeMap<String, SshSettings>,
    /// `[notes]`: where notes go, and how they look.
    pub notes: NotesSettings,
    /// `[snapshot]`: whether and how much of the code of a job is copied.
    pub snapshot: SnapshotSettings,
}

impl UserDefaults {
    /// Read the user's file, if there is one.
    ///
    /// # Errors
    /// All that is wrong with it, with places.
    pub fn load(project: &dyn ProjectFolders) -> Result<Self, ConfErrors> {
        let mut reader = Reader::new();
        let defaults = Self::read(project, &mut reader);
        if reader.problems.is_empty() {
            return Ok(defaults);
        }
        let shown = path(project).map_or_else(String::new, |p| p.display().to_string());
        Err(ConfErrors::new(shown, reader.problems, reader.sources))
    }

    /// The same with problems left in `reader`.
    pub fn read(project: &dyn ProjectFolders, reader: &mut Reader) -> Self {
        let mut defaults = Self::default();
        let Some(path) = path(project) else { return defaults };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
                return defaults;
            }
            Err(e) => {
                reader.unreadable(&path, &e);
                return defaults;
            }
        };
        let Some(tree) = reader.text(path.display().to_string(), text) else { return defaults };
        for (key, node) in &tree {
            defaults.read_key(key, node, project, &mut reader.problems);
        }
        defaults
    }

    fn read_key(&mut self, key: &NodeKey, node: &Node, project: &dyn ProjectFolders, problems: &mut Vec<Problem>) {
        match key.name.as_str() {
            "backend" => match accept(&BACKEND, "backend", node) {
                Ok(word) => self.backend = word.as_str().map(str::to_owned),
                Err(problem) => problems.push(*problem),
            },
            "data" => self.data = folder("`data`", node, problems),
            "runs" => self.runs = folder("`runs`", node, problems),
            "on_end" => self.on_end = text_of("`on_end`", node, problems),
            "notes" => self.notes = NotesSettings::read(node, None, project, problems),
            "snapshot" => self.snapshot = SnapshotSettings::read(node, problems),
            "slurm" => {
                if let Some(table) = table_of("`slurm`", node, problems) {
                    self.settings = read_settings("slurm", table, Scope::Config, problems);
                }
            }
            "ssh" => {
                for (name, node) in table_of("`ssh`", node, problems).into_iter().flatten() {
                    let settings = SshSettings::read(&format!("ssh.{}", name.name), node, problems);
                    self.ssh.extend(settings.map(|settings| (name.name.clone(), settings)));
                }
            }
            "profile" => {
                for (name, node) in table_of("`profile`", node, problems).into_iter().flatten() {
                    if let Some(table) = table_of(&format!("profile `{}`", name.name), node, problems) {
                        let mut layer = read_settings("slurm", table, Scope::Config, problems);
                        refuse_profile(&mut layer, problems);
                        self.profiles.insert(name.name.clone(), layer);
                    }
                }
            }
            unknown => problems.push(unknown_key(unknown, key, &TOP)),
        }
    }
}

/// Path of the user's file, whether it exists or not.
pub fn path(project: &dyn ProjectFolders) -> Option<PathBuf> {
    Some(project.config_home()?.join("config.toml"))
}

/// A key that is none of `known`.
pub fn unknown_key(name: &str, key: &NodeKey, known: &[&str]) -> Problem {
    let problem = Problem::new(key.at, format!("unknown key `{name}`"), "no such key");
    match closest(name, known.iter().copied()) {
        Some(near) => problem.help(format!("did you mean `{near}`?")),
        None => problem.help(format!("known are {}", known.join(", "))),
    }
}

/// An absolute folder; `~/` is the user's home.
pub fn folder(what: &str, node: &Node, problems: &mut Vec<Problem>) -> Option<PathBuf> {
    let text = text_of(what, node, problems)?;
    let path = match (text.strip_prefix("~/"), std::env::home_dir()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => Path::new(&text).to_owned(),
    };
    if path.is_absolute() {
        return Some(path);
    }
    let problem = Problem::new(node.at, format!("{what} takes an absolute path, not {text:?}"), "relative to what?");
    problems.push(problem.help("start it with / or ~/"));
    None
}

/// A table of the project's `expctl.toml`, as `read` reads it; the default where the file or the table is missing. What is wrong with other
/// tables is said by those who read them.
///
/// # Errors
/// All that is wrong with the table, and tables that no project has, with places.
pub(crate) fn project_table<T: Default>(
    project: &dyn ProjectFolders,
    name: &str,
    read: impl Fn(&Node, &mut Vec<Problem>) -> T,
) -> Result<T, ConfErrors> {
    let path = project.root().join("expctl.toml");
    let mut reader = Reader::new();
    let mut found = T::default();
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            let tree = reader.text(path.display().to_string(), text).unwrap_or_default();
            for (key, node) in &tree {
                match key.name.as_str() {
                    table if table == name => found = read(node, &mut reader.problems),
                    table if PROJECT_TABLES.contains(&table) => {}
                    unknown => reader.problems.push(unknown_key(unknown, key, &PROJECT_TABLES)),
                }
            }
        }
        Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {}
        Err(e) => reader.unreadable(&path, &e),
    }
    if reader.problems.is_empty() {
        return Ok(found);
    }
    Err(ConfErrors::new(path.display().to_string(), reader.problems, reader.sources))
}

const NOTES_KEYS: [&str; 5] = ["folder", "name", "template", "links", "vault"];
const LINKS: ValueType = ValueType::Choice { words: &["markdown", "dendron"], aliases: &[("wiki", "dendron")] };

/// How one note links another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LinkStyle {
    /// `[Title](file.md)`, relative
    #[default]
    Markdown,
    /// `[[Title|name]]`, or with a vault `[[Title|dendron://vault/name]]`
    Dendron,
}

/// Folder, names and look of notes; settings that are not set are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotesSettings {
    /// Folder of the notes.
    pub folder: Option<PathBuf>,
    /// Pattern of a note's file name.
    pub name: Option<String>,
    /// Template of a note.
    pub template: Option<PathBuf>,
    /// How notes link each other.
    pub links: Option<LinkStyle>,
    /// Dendron vault that links name.
    pub vault: Option<String>,
}

impl NotesSettings {
    /// The settings of the project on top of those of the user.
    ///
    /// # Errors
    /// All that is wrong with either file, with places.
    pub fn load(project: &dyn ProjectFolders) -> Result<Self, ConfErrors> {
        let user = UserDefaults::load(project)?.notes;
        let own = project_table(project, "notes", |node, problems| {
            Self::read(node, Some(project.root()), project, problems)
        })?;
        let there = |path: PathBuf| path.is_file().then_some(path);
        let template = own.template.clone().or_else(|| there(project.root().join("templates").join("note.md.j2")));
        let mut all = Self { template, ..own }.over(user);
        all.template = all.template.or_else(|| there(project.config_home()?.join("note.md.j2")));
        Ok(all)
    }

    /// These, and what they leave open from `below`.
    #[must_use]
    pub fn over(self, below: Self) -> Self {
        Self {
            folder: self.folder.or(below.folder),
            name: self.name.or(below.name),
            template: self.template.or(below.template),
            links: self.links.or(below.links),
            vault: self.vault.or(below.vault),
        }
    }

    /// Read the table. Relative paths are below `base`; without one they are refused.
    fn read(node: &Node, base: Option<&Path>, project: &dyn ProjectFolders, problems: &mut Vec<Problem>) -> Self {
        let mut settings = Self::default();
        let place = |what: &str, node: &Node, problems: &mut Vec<Problem>| match base {
            Some(base) => text_of(what, node, problems).map(|text| base.join(text)),
            None => folder(what, node, problems),
        };
        for (key, node) in table_of("`notes`", node, problems).into_iter().flatten() {
            match key.name.as_str() {
                "folder" => settings.folder = place("`notes.folder`", node, problems),
                "template" => settings.template = place("`notes.template`", node, problems),
                "name" => {
                    settings.name = text_of("`notes.name`", node, problems);
                    if let Some(Err(wrong)) = settings.name.as_deref().map(|name| project.check_note_name(name)) {
                        problems.push(Problem::new(node.at, wrong.message, "no name").help(wrong.help));
                    }
                }
                "vault" => settings.vault = text_of("`notes.vault`", node, problems),
                "links" => match accept(&LINKS, "notes.links", node) {
                    Ok(word) if word == "dendron" => settings.links = Some(LinkStyle::Dendron),
                    Ok(_) => settings.links = Some(LinkStyle::Markdown),
                    Err(problem) => problems.push(*problem),
                },
                unknown => problems.push(unknown_key(unknown, key, &NOTES_KEYS)),
            }
        }
        settings
    }
}
