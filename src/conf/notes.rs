//! `[notes]`: where notes go and how they look, in `expctl.toml` at the project's root and in the user's file.

use std::path::{Path, PathBuf};

use expctl_text::{NoteName, NoteNameError};

use super::files::Reader;
use super::kind::Kind;
use super::layer::{table_of, text_of};
use super::node::Node;
use super::problem::{ConfErrors, Problem};
use super::user::{UserDefaults, folder, unknown_key};
use crate::project::Project;

/// A job, to try a pattern of names before there is one.
const NAMED: NoteName<'_> = NoteName { study: "study", config: "config", job: 1, submitted: 0 };

const KEYS: [&str; 5] = ["folder", "name", "template", "links", "vault"];
const LINKS: Kind = Kind::Choice { words: &["markdown", "dendron"], aliases: &[("wiki", "dendron")] };

/// How one note links another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LinkStyle {
    /// `[Title](file.md)`, relative
    #[default]
    Markdown,
    /// `[[Title|name]]`, or with a vault `[[Title|dendron://vault/name]]`
    Dendron,
}

/// Where notes go and how they look; what is not set is none.
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
    /// Those of the project, and below them those of the user.
    ///
    /// # Errors
    /// All that is wrong with either file, with places.
    pub fn load(project: &Project) -> Result<Self, ConfErrors> {
        let user = UserDefaults::load(project)?.notes;
        let path = project.root().join("expctl.toml");
        let mut reader = Reader::new();
        let mut own = Self::default();
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                let tree = reader.text(path.display().to_string(), text).unwrap_or_default();
                for (key, node) in &tree {
                    match key.name.as_str() {
                        "notes" => own = Self::read(node, Some(project.root()), &mut reader.problems),
                        unknown => reader.problems.push(unknown_key(unknown, key, &["notes"])),
                    }
                }
            }
            Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {}
            Err(e) => reader.unreadable(&path, &e),
        }
        if reader.problems.is_empty() {
            let there = |path: PathBuf| path.is_file().then_some(path);
            own.template = own.template.or_else(|| there(project.root().join("templates").join("note.md.j2")));
            let mut all = own.over(user);
            all.template = all.template.or_else(|| there(project.config_home()?.join("note.md.j2")));
            return Ok(all);
        }
        Err(ConfErrors::new(path.display().to_string(), reader.problems, reader.sources))
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
    pub(super) fn read(node: &Node, base: Option<&Path>, problems: &mut Vec<Problem>) -> Self {
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
                    if let Some(Err(wrong)) = settings.name.as_deref().map(|name| NAMED.fill(name)) {
                        let help = match wrong {
                            NoteNameError::UnknownPlaceholder { .. } => format!("known are {}", NoteName::PLACEHOLDERS),
                            NoteNameError::NoFileName { .. } => {
                                "--notes names the folder, --name only the file in it".to_owned()
                            }
                            _ => String::new(),
                        };
                        problems.push(Problem::new(node.at, wrong.to_string(), "no name").help(help));
                    }
                }
                "vault" => settings.vault = text_of("`notes.vault`", node, problems),
                "links" => match LINKS.accept("notes.links", node) {
                    Ok(word) if word == "dendron" => settings.links = Some(LinkStyle::Dendron),
                    Ok(_) => settings.links = Some(LinkStyle::Markdown),
                    Err(problem) => problems.push(*problem),
                },
                unknown => problems.push(unknown_key(unknown, key, &KEYS)),
            }
        }
        settings
    }
}
