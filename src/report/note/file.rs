//! The file of a note: how it is found again, its name, and links between notes.

use std::io::Read;
use std::path::{Path, PathBuf};

use expctl_ledger::JobRecord;
use expctl_text::{NoteName, NoteNameError};

use super::NoteLinks;
use crate::exit::{Exit, Failure};

/// Bytes at the start of a note that must contain its identity line.
pub const HEAD_BYTES: u64 = 16 * 1024;
const IDENTITY: &str = "<!-- expctl: job ";

/// The identity line of a note, which no markdown reader shows: the submission that it is of.
///
/// The job number alone is not unique: a new clone and another ledger both start at 1.
pub fn identity(record: &JobRecord) -> String {
    format!("<!-- expctl: {} -->", submission(record))
}

/// The submission in words.
pub fn submission(record: &JobRecord) -> String {
    format!("job {}, submitted {}, config {}", record.job, record.submitted, record.config)
}

/// A note with an identity line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownNote {
    /// The file.
    pub path: PathBuf,
    /// Job number.
    pub job: u64,
    /// Time of submission, s since the epoch.
    pub submitted: i64,
    /// Name of the config.
    pub config: String,
    /// Title in the frontmatter; the file's name if it has none.
    pub title: String,
}

/// The file of the note of a submission.
pub struct NoteFile {
    /// The file.
    pub path: PathBuf,
    /// A file that is not its note and has the preferred name.
    pub taken: Option<PathBuf>,
}

impl NoteFile {
    /// Find the existing note of a submission, whatever its name; else a free name: `<pattern>.md`, or `…-2.md` and so on if that is the
    /// note of another submission or no note of ours.
    ///
    /// # Errors
    /// A pattern that makes no file name; an existing file that cannot be read, because it may be another note.
    pub fn find(folder: &Path, pattern: Option<&str>, record: &JobRecord) -> Result<Self, Failure> {
        let name = file_name(pattern.unwrap_or(NoteName::DEFAULT), record)?;
        let first = folder.join(format!("{name}.md"));
        let mut names: Vec<PathBuf> = vec![first.clone()];
        let mut free = None;
        // Removed notes leave gaps in the numbers.
        let last = numbers(folder, &name).into_iter().max().unwrap_or(1) + 1;
        names.extend((2..=last).map(|n| folder.join(format!("{name}-{n}.md"))));
        let identity = identity(record);
        for path in names {
            match std::fs::read(&path) {
                Ok(text) if String::from_utf8_lossy(&text).lines().any(|line| line == identity) => {
                    let taken = (path != first).then_some(first);
                    return Ok(Self { path, taken });
                }
                Ok(_) => {}
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => free = free.or(Some(path)),
                Err(e) => return Err(Failure::internal(format!("cannot read {}: {e}", path.display()))),
            }
        }
        // Writers rename notes, and other notes link to their ids.
        let same = |note: &KnownNote| {
            (note.job, note.submitted, note.config.as_str()) == (record.job, record.submitted, record.config.as_str())
        };
        if let Some(renamed) = known_notes(folder).into_iter().find(same) {
            return Ok(Self { path: renamed.path, taken: None });
        }
        // The last name is above every number in the folder, so one is free.
        let path = free.unwrap_or_else(|| folder.join(format!("{name}-{last}.md")));
        let taken = (path != first).then_some(first);
        Ok(Self { path, taken })
    }
}

/// The file name of the note of a submission, without `.md`.
fn file_name(pattern: &str, record: &JobRecord) -> Result<String, Failure> {
    let name = NoteName { study: &record.study, config: &record.config, job: record.job, submitted: record.submitted };
    name.fill(pattern).map_err(|error| match error {
        NoteNameError::Time { .. } => Failure::internal(error),
        NoteNameError::Unclosed { .. } => Failure::new(Exit::Usage, error),
        NoteNameError::UnknownPlaceholder { .. } => {
            Failure::new(Exit::Usage, error).hint(format!("known are {}", NoteName::PLACEHOLDERS))
        }
        NoteNameError::NoFileName { .. } => {
            Failure::new(Exit::Usage, error).hint("--notes names the folder, --name only the file in it")
        }
    })
}

/// The notes of a folder with an identity line, by file name. Files that cannot be read are skipped.
pub fn known_notes(folder: &Path) -> Vec<KnownNote> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "md")).collect();
    paths.sort();
    paths.into_iter().filter_map(known).collect()
}

fn known(path: PathBuf) -> Option<KnownNote> {
    let text = head(&path)?;
    let line = text.lines().find(|line| line.starts_with(IDENTITY))?;
    let fields = line.strip_prefix(IDENTITY)?.strip_suffix(" -->")?;
    let (job, rest) = fields.split_once(", submitted ")?;
    let (submitted, config) = rest.split_once(", config ")?;
    let title = title(&text).or_else(|| Some(path.file_stem()?.to_string_lossy().into_owned()))?;
    let (job, submitted) = (job.parse().ok()?, submitted.parse().ok()?);
    Some(KnownNote { path, job, submitted, config: config.to_owned(), title })
}

/// The title of the note at `path`, if it exists and has one.
pub fn title_of(path: &Path) -> Option<String> {
    title(&head(path)?)
}

fn head(path: &Path) -> Option<String> {
    let mut text = Vec::new();
    std::fs::File::open(path).ok()?.take(HEAD_BYTES).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// `title` in the frontmatter, without the quotes of YAML.
fn title(text: &str) -> Option<String> {
    let mut lines = text.lines();
    lines.next().filter(|line| line.trim_start_matches('\u{feff}') == "---")?;
    let value = lines.take_while(|line| *line != "---").find_map(|line| line.strip_prefix("title:"))?.trim();
    let plain = match value.as_bytes() {
        [b'\'', .., b'\''] => value[1..value.len() - 1].replace("''", "'"),
        [b'"', .., b'"'] => value[1..value.len() - 1].replace("\\\"", "\""),
        _ => value.to_owned(),
    };
    Some(plain).filter(|title| !title.is_empty())
}

/// The numbers n of the files `<name>-<n>.md`.
fn numbers(folder: &Path, name: &str) -> Vec<u32> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let number = |file: &str| file.strip_prefix(name)?.strip_prefix('-')?.strip_suffix(".md")?.parse().ok();
    entries.filter_map(|entry| number(entry.file_name().to_str()?)).collect()
}

/// A link to a note of the folder by its name, without `.md`.
pub fn link_to_name(folder: &Path, name: &str, links: &NoteLinks) -> String {
    let name = name.trim().strip_suffix(".md").unwrap_or(name.trim());
    // Dendron titles a note without a title by the last part of its dotted name.
    let last = name.rsplit('.').next().unwrap_or(name).replace(['-', '_'], " ");
    let title = title_of(&folder.join(format!("{name}.md"))).unwrap_or(last);
    link(&title, name, links)
}

/// A link to a note that was found in the folder.
pub fn link_to_note(note: &KnownNote, links: &NoteLinks) -> String {
    let name = note.path.file_stem().unwrap_or_default().to_string_lossy();
    link(&note.title, &name, links)
}

/// A file name as the target of a link: without what would end the target or begin a part of it.
pub fn link_target(name: &str) -> String {
    let mut target = String::new();
    for c in name.chars() {
        match c {
            ' ' | '%' | '(' | ')' | '#' | '?' => target.push_str(&format!("%{:02X}", u32::from(c))),
            c => target.push(c),
        }
    }
    target
}

fn link(title: &str, name: &str, links: &NoteLinks) -> String {
    match links {
        NoteLinks::Markdown => {
            let title = title.replace('[', "\\[").replace(']', "\\]");
            let target = link_target(name);
            format!("[{title}]({target}.md)")
        }
        NoteLinks::Dendron { vault } => {
            let title = title.replace(['|', '[', ']'], " ");
            match vault {
                Some(vault) => format!("[[{}|dendron://{vault}/{name}]]", title.trim()),
                None => format!("[[{}|{name}]]", title.trim()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_of_the_folders_kind() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.b.optimization-plan.md"), "---\nid: x\ntitle: 'The [plan]'\n---\n").unwrap();
        let markdown = NoteLinks::Markdown;
        assert_eq!(
            link_to_name(dir.path(), "a.b.optimization-plan", &markdown),
            "[The \\[plan\\]](a.b.optimization-plan.md)"
        );
        assert_eq!(link_to_name(dir.path(), "a.other-plan.md", &markdown), "[other plan](a.other-plan.md)");
        assert_eq!(link_target("mein plän %j (#1)?"), "mein%20plän%20%25j%20%28%231%29%3F");
        let dendron = NoteLinks::Dendron { vault: None };
        assert_eq!(link_to_name(dir.path(), "a.b.optimization-plan", &dendron), "[[The  plan|a.b.optimization-plan]]");
        let vault = NoteLinks::Dendron { vault: Some("torchcell".into()) };
        assert_eq!(link_to_name(dir.path(), "a.other-plan", &vault), "[[other plan|dendron://torchcell/a.other-plan]]");
    }
}
