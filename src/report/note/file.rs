use std::io::Read;
use std::path::{Path, PathBuf};

use expctl_record::JobRecord;

use super::name::{PATTERN, file_name};
use crate::exit::Failure;

/// How far into a note the line that says what it is of is looked for, bytes.
pub(super) const HEAD: u64 = 16 * 1024;
const IDENTITY: &str = "<!-- expctl: job ";

/// Which submission a note is of, as a line that no markdown reader shows.
///
/// The job number alone would not do: a fresh clone and another ledger both start again at 1.
pub(super) fn identity(record: &JobRecord) -> String {
    format!("<!-- expctl: {} -->", submission(record))
}

/// The same in words.
pub(in crate::report) fn submission(record: &JobRecord) -> String {
    format!("job {}, submitted {}, config {}", record.job, record.submitted, record.config)
}

/// A note of this program in a folder of notes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// The file.
    pub path: PathBuf,
    /// Job number.
    pub job: u64,
    /// When it was submitted, s since the epoch.
    pub submitted: i64,
    /// Name of the config.
    pub config: String,
    /// Title in the frontmatter; the file's name where it has none.
    pub title: String,
}

/// Where the note of a submission goes.
pub(super) struct NoteFile {
    /// The file.
    pub path: PathBuf,
    /// The note of something else that has the name it would have had.
    pub taken: Option<PathBuf>,
}

impl NoteFile {
    /// The note of this submission, whatever its name is now; else `<pattern>.md`, or `…-2.md` and so on where that is
    /// the note of another submission, or no note of ours.
    ///
    /// # Errors
    /// A pattern that makes no name; a note that is there and cannot be read: it might be another's.
    pub fn of(folder: &Path, pattern: Option<&str>, record: &JobRecord) -> Result<Self, Failure> {
        let name = file_name(pattern.unwrap_or(PATTERN), record)?;
        let first = folder.join(format!("{name}.md"));
        let mut names: Vec<PathBuf> = vec![first.clone()];
        let mut free = None;
        // A note that was removed leaves a gap: what comes after it may still be this submission's.
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
        // Writers rename notes; links to its id must stay good.
        let same = |note: &Known| {
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

/// The notes of a folder that say of which submission they are, by file name. What cannot be read is none.
pub(super) fn known_notes(folder: &Path) -> Vec<Known> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "md")).collect();
    paths.sort();
    paths.into_iter().filter_map(known).collect()
}

fn known(path: PathBuf) -> Option<Known> {
    let text = head(&path)?;
    let line = text.lines().find(|line| line.starts_with(IDENTITY))?;
    let fields = line.strip_prefix(IDENTITY)?.strip_suffix(" -->")?;
    let (job, rest) = fields.split_once(", submitted ")?;
    let (submitted, config) = rest.split_once(", config ")?;
    let title = title(&text).or_else(|| Some(path.file_stem()?.to_string_lossy().into_owned()))?;
    let (job, submitted) = (job.parse().ok()?, submitted.parse().ok()?);
    Some(Known { path, job, submitted, config: config.to_owned(), title })
}

/// The title of the note at `path`, if it is there and has one.
pub(super) fn title_of(path: &Path) -> Option<String> {
    title(&head(path)?)
}

fn head(path: &Path) -> Option<String> {
    let mut text = Vec::new();
    std::fs::File::open(path).ok()?.take(HEAD).read_to_end(&mut text).ok()?;
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
