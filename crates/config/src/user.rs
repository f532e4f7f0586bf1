//! What a user wants everywhere: `~/.config/expctl/config.toml`. Everything in it can be overridden by a config, an
//! environment variable or an argument.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::files::Reader;
use super::kind::Kind;
use super::layer::{Layer, Scope, read_settings, table_of, text_of};
use super::node::{Key, Node};
use super::notes::NotesSettings;
use super::problem::{ConfErrors, Problem};
use super::suggest::closest;
use crate::project::Project;

const TOP: [&str; 6] = ["backend", "data", "runs", "slurm", "profile", "notes"];
const BACKEND: Kind = Kind::Choice { words: &["auto", "slurm", "slurmrest", "local"], aliases: &[] };

/// A user's defaults. Without a file, all are empty.
#[derive(Clone, Debug, Default)]
pub struct UserDefaults {
    /// Where jobs run.
    pub backend: Option<String>,
    /// Folder of the data sets.
    pub data: Option<PathBuf>,
    /// The ledger.
    pub runs: Option<PathBuf>,
    /// `[slurm]`: below a profile.
    pub settings: Layer,
    /// `[profile.NAME]`: above the profile of that name.
    pub profiles: BTreeMap<String, Layer>,
    /// `[notes]`: where notes go, and how they look.
    pub notes: NotesSettings,
}

impl UserDefaults {
    /// Read the user's file, if there is one.
    ///
    /// # Errors
    /// All that is wrong with it, with places.
    pub fn load(project: &Project) -> Result<Self, ConfErrors> {
        let mut reader = Reader::new();
        let defaults = Self::read(project, &mut reader);
        if reader.problems.is_empty() {
            return Ok(defaults);
        }
        let shown = path(project).map_or_else(String::new, |p| p.display().to_string());
        Err(ConfErrors::new(shown, reader.problems, reader.sources))
    }

    /// The same with problems left in `reader`.
    pub(super) fn read(project: &Project, reader: &mut Reader) -> Self {
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
            defaults.read_key(key, node, &mut reader.problems);
        }
        defaults
    }

    fn read_key(&mut self, key: &Key, node: &Node, problems: &mut Vec<Problem>) {
        match key.name.as_str() {
            "backend" => match BACKEND.accept("backend", node) {
                Ok(word) => self.backend = word.as_str().map(str::to_owned),
                Err(problem) => problems.push(*problem),
            },
            "data" => self.data = folder("`data`", node, problems),
            "runs" => self.runs = folder("`runs`", node, problems),
            "notes" => self.notes = NotesSettings::read(node, None, problems),
            "slurm" => {
                if let Some(table) = table_of("`slurm`", node, problems) {
                    self.settings = read_settings("slurm", table, Scope::Config, problems);
                }
            }
            "profile" => {
                for (name, node) in table_of("`profile`", node, problems).into_iter().flatten() {
                    if let Some(table) = table_of(&format!("profile `{}`", name.name), node, problems) {
                        let mut layer = read_settings("slurm", table, Scope::Config, problems);
                        super::profile::refuse_profile(&mut layer, problems);
                        self.profiles.insert(name.name.clone(), layer);
                    }
                }
            }
            unknown => problems.push(unknown_key(unknown, key, &TOP)),
        }
    }
}

/// Where the user's file is, whether it exists or not.
pub fn path(project: &Project) -> Option<PathBuf> {
    Some(project.config_home()?.join("config.toml"))
}

/// A key that is none of `known`.
pub(super) fn unknown_key(name: &str, key: &Key, known: &[&str]) -> Problem {
    let problem = Problem::new(key.at, format!("unknown key `{name}`"), "no such key");
    match closest(name, known.iter().copied()) {
        Some(near) => problem.help(format!("did you mean `{near}`?")),
        None => problem.help(format!("known are {}", known.join(", "))),
    }
}

/// An absolute folder; `~/` is the user's home.
pub(super) fn folder(what: &str, node: &Node, problems: &mut Vec<Problem>) -> Option<PathBuf> {
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
