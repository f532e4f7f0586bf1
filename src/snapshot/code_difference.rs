//! [`CodeDifference`]: the files in which the code of two jobs differs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use expctl_ledger::{CodeSnapshot, LiveReason, SnapshotContent};
use serde::Serialize;
use similar::{ChangeTag, TextDiff};

use super::error::SnapshotError;
use super::store::Store;

/// Time for the shortest diff of a file; after it a longer one does.
const DIFF_TIME: Duration = Duration::from_secs(2);
/// Lines around a change.
const CONTEXT: usize = 3;

/// How a file differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileChange {
    /// Only the second job has it.
    Added,
    /// Only the first job has it.
    Removed,
    /// Its content differs, or what a link names.
    Changed,
    /// It may be run in one of them alone.
    Mode,
}

impl FileChange {
    /// Its word in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Changed => "changed",
            Self::Mode => "mode",
        }
    }
}

/// A file that is not the same in both jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileDifference {
    /// Its path, with bytes that are not UTF-8 as `snapshot.json` has them.
    pub path: String,
    /// How it differs.
    pub change: FileChange,
    /// Lines that only the second job has. `None`: it is no text.
    pub added_lines: Option<usize>,
    /// Lines that only the first job has.
    pub removed_lines: Option<usize>,
    /// The unified diff, as `patch -p1` takes it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hunks: String,
}

/// The differences between the code of two jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CodeDifference {
    /// Files that differ, by path.
    pub files: Vec<FileDifference>,
    /// Files that a snapshot left in the project: nothing is known of their contents then.
    pub not_compared: Vec<String>,
}

impl CodeDifference {
    /// Compare two snapshots of the ledger `runs`.
    ///
    /// # Errors
    /// The content of a file that differs cannot be read.
    pub fn new(runs: &Path, old: &CodeSnapshot, new: &CodeSnapshot) -> Result<Self, SnapshotError> {
        let (was, is) = (by_path(old), by_path(new));
        let stores = [Store::named(runs, &old.store), Store::named(runs, &new.store)];
        let paths: BTreeSet<&String> = was.keys().chain(is.keys()).collect();
        let mut files = Vec::new();
        for path in paths {
            let sides = (was.get(path).copied(), is.get(path).copied());
            if sides.0 != sides.1 {
                files.push(difference(path, sides, &stores)?);
            }
        }
        let is_live = |content: &SnapshotContent| matches!(content, SnapshotContent::Live { reason, .. } if *reason != LiveReason::Ignored);
        let live = old.entries.iter().chain(&new.entries).filter(|entry| is_live(&entry.content));
        let not_compared: BTreeSet<String> = live.map(|entry| entry.path.encoded()).collect();
        Ok(Self { files, not_compared: not_compared.into_iter().collect() })
    }

    /// The whole unified diff.
    pub fn patch(&self) -> String {
        self.files.iter().map(|file| file.hunks.as_str()).collect()
    }
}

fn by_path(snapshot: &CodeSnapshot) -> BTreeMap<String, &SnapshotContent> {
    snapshot.copied().map(|entry| (entry.path.encoded(), &entry.content)).collect()
}

/// The text, or bytes, that stand for an entry, and the mode that git would give it.
fn side(content: Option<&SnapshotContent>, store: &Store) -> Result<(Vec<u8>, &'static str), SnapshotError> {
    Ok(match content {
        Some(SnapshotContent::File { mode, hash, .. }) => {
            (store.read(hash)?, if mode & 0o111 == 0 { "100644" } else { "100755" })
        }
        Some(SnapshotContent::Link { target }) => (target.encoded().into_bytes(), "120000"),
        _ => (Vec::new(), "000000"),
    })
}

fn difference(
    path: &str,
    (was, is): (Option<&SnapshotContent>, Option<&SnapshotContent>),
    stores: &[Store; 2],
) -> Result<FileDifference, SnapshotError> {
    let ((old, old_mode), (new, new_mode)) = (side(was, &stores[0])?, side(is, &stores[1])?);
    let change = match (was, is) {
        (None, _) => FileChange::Added,
        (_, None) => FileChange::Removed,
        _ if old == new => FileChange::Mode,
        _ => FileChange::Changed,
    };
    let mut hunks = format!("diff --git a/{path} b/{path}\n");
    match change {
        FileChange::Added => hunks.push_str(&format!("new file mode {new_mode}\n")),
        FileChange::Removed => hunks.push_str(&format!("deleted file mode {old_mode}\n")),
        _ if old_mode != new_mode => hunks.push_str(&format!("old mode {old_mode}\nnew mode {new_mode}\n")),
        _ => {}
    }
    let name = |side: char, content: Option<_>| match content {
        Some(_) => format!("{side}/{path}"),
        None => "/dev/null".to_owned(),
    };
    let (from, to) = (name('a', was), name('b', is));
    let (added_lines, removed_lines) = match (text(&old), text(&new)) {
        (Some(old), Some(new)) => {
            let diff = TextDiff::configure().timeout(DIFF_TIME).diff_lines(old, new);
            let lines = |tag: ChangeTag| diff.iter_all_changes().filter(|change| change.tag() == tag).count();
            if old != new {
                let _ = write!(hunks, "{}", diff.unified_diff().context_radius(CONTEXT).header(&from, &to));
            }
            (Some(lines(ChangeTag::Insert)), Some(lines(ChangeTag::Delete)))
        }
        _ => {
            hunks.push_str(&format!("Binary files {from} and {to} differ\n"));
            (None, None)
        }
    };
    Ok(FileDifference { path: path.to_owned(), change, added_lines, removed_lines, hunks })
}

/// The content of a file of text.
fn text(content: &[u8]) -> Option<&str> {
    std::str::from_utf8(content).ok().filter(|text| !text.contains('\0'))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use expctl_ledger::{SnapshotEntry, SnapshotPath};

    use super::*;

    #[test]
    fn differences_are_those_that_a_patch_needs() {
        let runs = tempfile::tempdir().unwrap();
        let store = Store::of_user(runs.path());
        store.create().unwrap();
        let snapshot = |files: &[(&str, u32, &[u8])], link: &str| {
            let mut entries: Vec<SnapshotEntry> = files
                .iter()
                .map(|(path, mode, content)| {
                    let hash = store.insert(content).unwrap();
                    let content = SnapshotContent::File { mode: *mode, size: content.len() as u64, hash };
                    SnapshotEntry { path: SnapshotPath(path.into()), content }
                })
                .collect();
            let content = SnapshotContent::Link { target: SnapshotPath(link.into()) };
            entries.push(SnapshotEntry { path: SnapshotPath("link".into()), content });
            CodeSnapshot::new(store.name(), PathBuf::new(), entries)
        };
        let old = snapshot(
            &[
                ("a", 0o644, b"1\n2\n"),
                ("bin", 0o644, b"\xff"),
                ("gone", 0o644, b"x\n"),
                ("run", 0o644, b"r\n"),
                ("same", 0o644, b""),
            ],
            "a",
        );
        let new = snapshot(
            &[
                ("a", 0o644, b"1\n3\n4\n"),
                ("bin", 0o644, b"\xfe"),
                ("new", 0o755, b"y"),
                ("run", 0o755, b"r\n"),
                ("same", 0o644, b""),
            ],
            "b",
        );
        let found = CodeDifference::new(runs.path(), &old, &new).unwrap();
        let rows: Vec<_> = found
            .files
            .iter()
            .map(|file| (file.path.as_str(), file.change, file.added_lines, file.removed_lines))
            .collect();
        let expected = [
            ("a", FileChange::Changed, Some(2), Some(1)),
            ("bin", FileChange::Changed, None, None),
            ("gone", FileChange::Removed, Some(0), Some(1)),
            ("link", FileChange::Changed, Some(1), Some(1)),
            ("new", FileChange::Added, Some(1), Some(0)),
            ("run", FileChange::Mode, Some(0), Some(0)),
        ];
        assert_eq!(rows, expected);
        let patch = found.patch();
        for part in [
            "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1,2 +1,3 @@\n 1\n-2\n+3\n+4\n",
            "Binary files a/bin and b/bin differ\n",
            "deleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n",
            "new file mode 100755\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+y\n\\ No newline at end of file\n",
            "old mode 100644\nnew mode 100755\n",
        ] {
            assert!(patch.contains(part), "{part}\n{patch}");
        }
        assert!(CodeDifference::new(runs.path(), &old, &old).unwrap().files.is_empty());
    }
}
