//! The working tree of a project: its commit, and the differences from it.

use std::fmt::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use expctl_ledger::SourceState;

use super::origin::file_hash;
use super::secrets::Secrets;
use crate::project::Project;

/// The commit of a project and whether the code differs from it. `None`: there is no repository, no commit or no git.
pub fn source_state(project: &Project) -> Option<SourceState> {
    SourceTree::read(project).map(|tree| tree.source)
}

/// The working tree of a project, with the differences from its commit.
pub(crate) struct SourceTree {
    pub source: SourceState,
    /// Content of `source.diff`; none if nothing differs.
    pub diff: Option<SourceDiff>,
}

impl SourceTree {
    /// Read it; nothing is written. `None`: there is no repository, no commit or no git.
    pub fn read(project: &Project) -> Option<Self> {
        let commit = line(&git(project.root(), &["rev-parse", "HEAD"])?);
        let top = PathBuf::from(line(&git(project.root(), &["rev-parse", "--show-toplevel"])?));
        let branch = git(&top, &["symbolic-ref", "--quiet", "--short", "HEAD"]).map(|name| line(&name));
        let pathspec = pathspec(&top, &own_folders(project));
        let pathspec: Vec<&str> = pathspec.iter().map(String::as_str).collect();
        let plain = [
            "diff",
            "--no-ext-diff",
            "--no-textconv",
            "--no-color",
            "--full-index",
            "--src-prefix=a/",
            "--dst-prefix=b/",
            "HEAD",
            "--",
        ];
        let changed = git(&top, &[&plain, pathspec.as_slice()].concat())?;
        let others =
            git(&top, &[&["ls-files", "--others", "--exclude-standard", "-z", "--"], pathspec.as_slice()].concat())?;
        let others: Vec<PathBuf> = split_names(&others).collect();
        let diff = SourceDiff::new(&top, &String::from_utf8_lossy(&changed), &others);
        let source = SourceState {
            commit,
            branch,
            dirty: !changed.is_empty(),
            untracked: others.len(),
            hash: diff.as_ref().map(|diff| diff.hash.clone()),
        };
        Some(Self { source, diff })
    }
}

/// Folders that expctl writes to: a new note does not change the code that wrote it.
pub(crate) fn own_folders(project: &Project) -> Vec<PathBuf> {
    vec![project.results(), project.runs().to_owned(), project.data().to_owned()]
}

/// A pathspec of git for everything but the folders `without`.
fn pathspec(top: &Path, without: &[PathBuf]) -> Vec<String> {
    let mut specs = vec![":/".to_owned()];
    for folder in without {
        // The top folder of git is a real path.
        let real = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.clone());
        let inside = [real.strip_prefix(top), folder.strip_prefix(top)].into_iter().find_map(Result::ok);
        if let Some(inside) = inside.and_then(Path::to_str).filter(|inside| !inside.is_empty()) {
            specs.push(format!(":(top,exclude,literal){inside}"));
        }
    }
    specs
}

/// Output of git. `None`: it fails.
pub(crate) fn git(folder: &Path, arguments: &[&str]) -> Option<Vec<u8>> {
    let output = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(["-c", "core.quotepath=off", "-c", "core.fsmonitor=false"])
        .args(arguments)
        // Reading must not write, not even git's own index.
        .env("GIT_OPTIONAL_LOCKS", "0")
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .ok()?;
    output.status.success().then_some(output.stdout)
}

fn line(answer: &[u8]) -> String {
    String::from_utf8_lossy(answer).trim_end_matches('\n').to_owned()
}

/// Paths that git separates by NUL bytes.
pub(crate) fn split_names(listed: &[u8]) -> impl Iterator<Item = PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let names = listed.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| PathBuf::from(std::ffi::OsStr::from_bytes(name)))
}

/// Maximum size of a diff, bytes: a generated file that is tracked must not fill the ledger.
const MAX_DIFF: usize = 1 << 20;
/// Maximum number of untracked files that are listed one by one.
const MAX_LISTED: usize = 500;
/// Larger untracked files are listed by size alone: data that was left beside the code is not code.
const MAX_HASHED_FILE: u64 = 16 << 20;

/// Maximum number of bytes of untracked files that are hashed; further files are identified by size and date. Results that git was not told to
/// ignore must not make every status slow.
const MAX_HASHED_TOTAL: u64 = 64 << 20;

/// Differences from a commit: content of `source.diff`.
pub(crate) struct SourceDiff {
    /// Text as it is written: without secrets, perhaps cut off.
    pub text: String,
    /// Hash over the whole diff.
    pub hash: String,
}

impl SourceDiff {
    /// From git's diff of tracked files, and the untracked files below `top`. `None`: there is neither.
    pub fn new(top: &Path, changed: &str, untracked: &[PathBuf]) -> Option<Self> {
        if changed.is_empty() && untracked.is_empty() {
            return None;
        }
        let mut list = String::new();
        let mut hashed = 0;
        for name in untracked.iter().take(MAX_LISTED) {
            let path = top.join(name);
            let what = match std::fs::symlink_metadata(&path) {
                Ok(meta)
                    if meta.is_file() && meta.len() <= MAX_HASHED_FILE && hashed + meta.len() <= MAX_HASHED_TOTAL =>
                {
                    hashed += meta.len();
                    file_hash(&path).unwrap_or_else(|| "cannot be read".to_owned())
                }
                Ok(meta) if meta.is_file() => format!("{} bytes of {}, not hashed", meta.len(), meta.mtime()),
                Ok(_) => "no regular file".to_owned(),
                Err(_) => "gone".to_owned(),
            };
            // A name may hold anything, a line break too.
            let _ = writeln!(list, "# untracked: {name:?} {what}");
        }
        if untracked.len() > MAX_LISTED {
            let _ = writeln!(list, "# untracked: {} more files, not listed", untracked.len() - MAX_LISTED);
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(changed.as_bytes()).update(list.as_bytes());
        let changed = Secrets::from_environment().cleaned_diff(changed);
        let (kept, cut) = cut(&changed);
        let mut text = list;
        if cut > 0 {
            let _ = writeln!(text, "# the diff is cut off: {cut} bytes more");
        }
        text.push_str(kept);
        Some(Self { text, hash: hasher.finalize().to_hex().to_string() })
    }
}

/// Split a diff that is too long: its first whole lines, and the number of bytes that are cut off.
fn cut(diff: &str) -> (&str, usize) {
    let Some(head) = diff.as_bytes().get(..MAX_DIFF) else { return (diff, 0) };
    let end = head.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let kept = diff.get(..end).unwrap_or_default();
    (kept, diff.len() - kept.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_diff_is_cut_at_a_line_and_hashed_whole() {
        let line = format!("+{}\n", "x".repeat(99));
        let long = line.repeat(MAX_DIFF / line.len() + 100);
        let of = |diff: &str| SourceDiff::new(Path::new("/"), diff, &[]).unwrap();
        let kept = of(&long);
        assert!(kept.text.len() <= MAX_DIFF + 100 && kept.text.ends_with(&line));
        assert!(kept.text.starts_with("# the diff is cut off: "), "{}", &kept.text[..60]);
        assert_ne!(kept.hash, of(&format!("{long}+y\n")).hash);
        assert!(SourceDiff::new(Path::new("/"), "", &[]).is_none());
    }

    #[test]
    fn untracked_files_are_listed_by_their_content() {
        let folder = tempfile::tempdir().unwrap();
        let name = PathBuf::from("a\nb");
        let of = |content: &str| {
            std::fs::write(folder.path().join(&name), content).unwrap();
            SourceDiff::new(folder.path(), "", std::slice::from_ref(&name)).unwrap()
        };
        let first = of("1");
        assert_eq!(first.text.lines().count(), 1, "{}", first.text);
        assert!(first.text.starts_with("# untracked: \"a\\nb\" "), "{}", first.text);
        assert_ne!(first.hash, of("2").hash);
    }
}
