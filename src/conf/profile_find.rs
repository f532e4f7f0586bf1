//! Where profiles come from: the project, the user, and those compiled in, the first one wins.

use std::path::PathBuf;

use super::files::Reader;
use super::layer::Layer;
use super::problem::{ConfErrors, Problem};
use super::profile::Profile;
use super::source::Origin;
use super::suggest::closest;
use super::user::UserDefaults;
use super::values::Values;
use crate::project::Project;

macro_rules! shipped {
    ($($name:literal),*) => {
        [$(($name, include_str!(concat!("../../slurm/profiles/", $name, ".toml")))),*]
    };
}

/// The profiles that come with expctl, name and text.
pub const SHIPPED_PROFILES: [(&str, &str); 6] = shipped!["cabbi", "delta", "dev-cluster", "gilahyper", "local", "mmli"];

/// The profile with this name.
///
/// # Errors
/// There is none, or it is wrong: all problems, with places.
pub fn profile(project: &Project, name: &str) -> Result<Profile, ConfErrors> {
    let mut reader = Reader::new();
    let at = Origin::new(reader.sources.add("profile", name), 0..name.len());
    let found = find(project, name, at, &mut reader);
    match found {
        Some(profile) if reader.problems.is_empty() => Ok(profile),
        _ => Err(ConfErrors::new(format!("profile {name}"), reader.problems, reader.sources)),
    }
}

/// The same with problems left in `reader`; `at` is where the profile was asked for.
fn find(project: &Project, name: &str, at: Origin, reader: &mut Reader) -> Option<Profile> {
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    for path in folders(project).into_iter().filter(|_| is_name).map(|f| f.join(format!("{name}.toml"))) {
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                let found = path.display().to_string();
                let tree = reader.text(found.clone(), text)?;
                return Some(Profile::read(name, &found, &tree, &mut reader.problems));
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
        return Some(Profile::read(name, "compiled in", &tree, &mut reader.problems));
    }
    let names = names(project);
    let problem = Problem::new(at, format!("there is no profile `{name}`"), "no such profile");
    reader.problems.push(match closest(name, names.iter().map(String::as_str)) {
        Some(near) => problem.help(format!("did you mean \"{near}\"?")),
        None => problem.help(format!("profiles are {}", names.join(", "))),
    });
    None
}

fn folders(project: &Project) -> Vec<PathBuf> {
    let own = project.root().join("slurm").join("profiles");
    std::iter::once(own).chain(project.config_home().map(|home| home.join("profiles"))).collect()
}

/// Names of all profiles, sorted.
fn names(project: &Project) -> Vec<String> {
    let files = folders(project).into_iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let stems = files.filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".toml").map(str::to_owned));
    let mut names: Vec<String> = stems.chain(SHIPPED_PROFILES.iter().map(|(name, _)| (*name).to_owned())).collect();
    names.sort();
    names.dedup();
    names
}

/// What lies under a config: the user's `[slurm]`, the profile that it names (or `--set`, or the user), and the user's
/// own word on that profile.
#[derive(Debug, Default)]
pub(super) struct Ground {
    /// Settings, below those of the config.
    pub settings: Layer,
    profile: Option<(Profile, Origin)>,
}

impl Ground {
    /// Lay it for a config that sets `settings`.
    pub fn lay(project: &Project, settings: [&Layer; 2], reader: &mut Reader) -> Self {
        let UserDefaults { settings: mut ground, mut profiles, .. } = UserDefaults::read(project, reader);
        let chosen = settings.into_iter().chain([&ground]).find_map(|layer| layer.get("slurm.profile"));
        let name = chosen.and_then(|s| Some((s.value.as_ref()?.as_str()?.to_owned(), s.at?)));
        let Some((name, at)) = name.filter(|(name, _)| !name.is_empty()) else {
            return Self { settings: ground, profile: None };
        };
        let profile = find(project, &name, at, reader);
        ground.extend(profile.iter().flat_map(|p| p.settings.clone()));
        ground.extend(profiles.remove(&name).unwrap_or_default());
        Self { settings: ground, profile: profile.map(|p| (p, at)) }
    }

    /// Report what the profile needs and nobody set.
    pub fn check(&self, values: &Values, problems: &mut Vec<Problem>) {
        let Some((profile, at)) = &self.profile else { return };
        for key in &profile.needs {
            let missing = values.get(key).is_some_and(|v| matches!(v.as_str(), Some("")) || v.as_u64() == Some(0));
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
