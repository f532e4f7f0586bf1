use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::record::Source;
use super::source_diff::SourceDiff;
use crate::project::Project;

/// A project's working tree, with what differs from its commit.
pub(super) struct SourceTree {
    pub source: Source,
    /// Content of `source.diff`; none if nothing differs.
    pub diff: Option<SourceDiff>,
}

impl SourceTree {
    /// Look at it, writing nothing. None outside a repository, without a commit or without git.
    pub fn of(project: &Project) -> Option<Self> {
        let commit = line(&git(project.root(), &["rev-parse", "HEAD"])?);
        let top = PathBuf::from(line(&git(project.root(), &["rev-parse", "--show-toplevel"])?));
        let branch = git(&top, &["symbolic-ref", "--quiet", "--short", "HEAD"]).map(|name| line(&name));
        let places = pathspec(&top, &own_folders(project));
        let places: Vec<&str> = places.iter().map(String::as_str).collect();
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
        let changed = git(&top, &[&plain, places.as_slice()].concat())?;
        let others =
            git(&top, &[&["ls-files", "--others", "--exclude-standard", "-z", "--"], places.as_slice()].concat())?;
        let others: Vec<PathBuf> =
            others.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(as_path).collect();
        let diff = SourceDiff::new(&top, &String::from_utf8_lossy(&changed), &others);
        let source = Source {
            commit,
            branch,
            dirty: !changed.is_empty(),
            untracked: others.len(),
            hash: diff.as_ref().map(|diff| diff.hash.clone()),
        };
        Some(Self { source, diff })
    }
}

impl Source {
    /// The commit in short, marked if tracked files differ from it.
    pub fn short(&self) -> String {
        let head = self.commit.get(..12).unwrap_or(&self.commit);
        if self.dirty { format!("{head}-dirty") } else { head.to_owned() }
    }
}

/// Where expctl itself writes: a new note does not change the code that made it.
fn own_folders(project: &Project) -> Vec<PathBuf> {
    vec![project.results(), project.runs().to_owned(), project.data().to_owned()]
}

/// Everything but `without`, as git wants to be told.
fn pathspec(top: &Path, without: &[PathBuf]) -> Vec<String> {
    let mut places = vec![":/".to_owned()];
    for folder in without {
        // git knows its top by the real path.
        let real = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.clone());
        let inside = [real.strip_prefix(top), folder.strip_prefix(top)].into_iter().find_map(Result::ok);
        if let Some(inside) = inside.and_then(Path::to_str).filter(|inside| !inside.is_empty()) {
            places.push(format!(":(top,exclude,literal){inside}"));
        }
    }
    places
}

/// What git answers; none if it fails.
fn git(folder: &Path, arguments: &[&str]) -> Option<Vec<u8>> {
    let output = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(["-c", "core.quotepath=off", "-c", "core.fsmonitor=false"])
        .args(arguments)
        // Looking must not write, not even git's own index.
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

fn as_path(name: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(std::ffi::OsStr::from_bytes(name))
}
