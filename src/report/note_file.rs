use std::path::PathBuf;

use expctl_record::JobRecord;

use crate::exit::Failure;
use crate::project::Project;

/// Which submission a note is of, as a line that no markdown reader shows.
///
/// The job number alone would not do: a fresh clone and another ledger both start again at 1.
pub(super) fn identity(record: &JobRecord) -> String {
    format!("<!-- expctl: job {}, submitted {}, config {} -->", record.job, record.submitted, record.config)
}

/// Where the note of a submission goes.
pub(super) struct NoteFile {
    /// The file.
    pub path: PathBuf,
    /// The note of something else that has the name it would have had.
    pub taken: Option<PathBuf>,
}

impl NoteFile {
    /// `results/<config>_<job>.md`, or `…-2.md` and so on where that is the note of another submission, or no note of ours.
    ///
    /// # Errors
    /// A note that is there and cannot be read: it might be another's.
    pub fn of(project: &Project, record: &JobRecord) -> Result<Self, Failure> {
        let name = format!("{}_{}", record.config, record.job);
        let folder = project.results();
        let first = folder.join(format!("{name}.md"));
        let mut names: Vec<PathBuf> = vec![first.clone()];
        let mut free = None;
        // A note that was removed leaves a gap: what comes after it may still be this submission's.
        let numbered = numbers(&folder, &name);
        let last = numbered.into_iter().max().unwrap_or(1) + 1;
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
        // The last name is above every number in the folder, so one is free.
        let path = free.unwrap_or_else(|| folder.join(format!("{name}-{last}.md")));
        let taken = (path != first).then_some(first);
        Ok(Self { path, taken })
    }
}

/// The numbers n of the files `<name>-<n>.md`.
fn numbers(folder: &std::path::Path, name: &str) -> Vec<u32> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let number = |file: &str| file.strip_prefix(name)?.strip_prefix('-')?.strip_suffix(".md")?.parse().ok();
    entries.filter_map(|entry| number(entry.file_name().to_str()?)).collect()
}
