//! The files of a project that are its code: those that git tracks or does not ignore; without git, all but data, results and what
//! `.expctlignore` names.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use glob::{MatchOptions, Pattern};

use super::error::SnapshotError;
use crate::project::Project;
use crate::provenance::{git, own_folders, split_names};

/// Name of the file with patterns.
const IGNORE_FILE: &str = ".expctlignore";

/// The files and links of a project's code, relative to its folder, in order.
///
/// # Errors
/// The project's folder or `.expctlignore` cannot be read.
pub(crate) fn code_files(project: &Project) -> Result<Vec<PathBuf>, SnapshotError> {
    let root = project.root();
    let ignored = IgnorePatterns::read(root)?;
    let own: Vec<PathBuf> = own_folders(project).iter().filter_map(|folder| below(root, folder)).collect();
    let is_left_out = |path: &Path| own.iter().any(|own| path.starts_with(own)) || is_made_by_python(path);
    let files = match git_files(root) {
        // A repository that ignores the whole project says nothing of it.
        Some(files) if !files.is_empty() => files,
        _ => {
            let mut files = Vec::new();
            walk(root, Path::new(""), &|path| is_left_out(path) || ignored.has_folder(path), &mut files)?;
            files
        }
    };
    let environments = environments(&files);
    let is_code = |path: &PathBuf| {
        !is_left_out(path) && !ignored.has(path) && !environments.iter().any(|folder| path.starts_with(folder))
    };
    let files: BTreeSet<PathBuf> = files.into_iter().filter(is_code).collect();
    Ok(files.into_iter().collect())
}

/// A path relative to `root`; `None` outside of it.
fn below(root: &Path, path: &Path) -> Option<PathBuf> {
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let relative = path.strip_prefix(root).map(Path::to_owned);
    let relative = relative.or_else(|_| real(path).strip_prefix(real(root)).map(Path::to_owned)).ok()?;
    // The project may lie in its own folder of data.
    (!relative.as_os_str().is_empty()).then_some(relative)
}

/// Python's compiled modules: it makes them again, beside the copies.
pub(crate) fn is_made_by_python(path: &Path) -> bool {
    path.extension() == Some(OsStr::new("pyc")) || path.components().any(|part| part.as_os_str() == "__pycache__")
}

/// Files on disk that git tracks or does not ignore. `None`: no repository, or no git.
fn git_files(folder: &Path) -> Option<Vec<PathBuf>> {
    let listed = git(folder, &["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "."])?;
    let mut files = Vec::new();
    for path in split_names(&listed) {
        let whole = folder.join(&path);
        match std::fs::symlink_metadata(&whole) {
            // A submodule, or another repository that lies in this one.
            Ok(found) if found.is_dir() => {
                if whole.join(".git").exists() {
                    files.extend(git_files(&whole).into_iter().flatten().map(|inside| path.join(inside)));
                }
            }
            Ok(_) => files.push(path),
            // Deleted, and still tracked.
            Err(_) => {}
        }
    }
    Some(files)
}

/// All files below `folder` of the project `root`, without hidden folders and those that are `left_out`.
fn walk(
    root: &Path,
    folder: &Path,
    left_out: &dyn Fn(&Path) -> bool,
    files: &mut Vec<PathBuf>,
) -> Result<(), SnapshotError> {
    let whole = root.join(folder);
    let entries = match std::fs::read_dir(&whole) {
        Ok(entries) => entries,
        // One that cannot be listed stays in the project, as an ignored one.
        Err(_) if !folder.as_os_str().is_empty() => return Ok(()),
        Err(e) => return Err(SnapshotError::io("list", &whole)(e)),
    };
    let mut folders = Vec::new();
    for entry in entries {
        let entry = entry.map_err(SnapshotError::io("list", &whole))?;
        let path = folder.join(entry.file_name());
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => folders.push(path),
            Ok(_) => files.push(path),
            Err(_) => {}
        }
    }
    let is_hidden = |path: &Path| path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"."));
    for folder in folders.into_iter().filter(|folder| !is_hidden(folder) && !left_out(folder)) {
        walk(root, &folder, left_out, files)?;
    }
    Ok(())
}

/// Folders that are Python environments: thousands of files that were installed, not written.
fn environments(files: &[PathBuf]) -> Vec<PathBuf> {
    let of = |file: &PathBuf| {
        let folder = match file.file_name()?.to_str()? {
            "pyvenv.cfg" => file.parent()?,
            "history" if file.parent()?.file_name() == Some(OsStr::new("conda-meta")) => file.parent()?.parent()?,
            _ => return None,
        };
        (!folder.as_os_str().is_empty()).then(|| folder.to_owned())
    };
    files.iter().filter_map(of).collect()
}

/// The patterns of `.expctlignore`.
#[derive(Default)]
struct IgnorePatterns(Vec<IgnorePattern>);

/// One of them.
struct IgnorePattern {
    pattern: Pattern,
    /// It has a `/` in front of its end: it is a path from the project's folder, not a name at any depth.
    is_path: bool,
    /// It ends with `/`: it is of folders alone.
    is_folder: bool,
}

impl IgnorePatterns {
    fn read(root: &Path) -> Result<Self, SnapshotError> {
        let path = root.join(IGNORE_FILE);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(e) => return Err(SnapshotError::io("read", &path)(e)),
        };
        let mut patterns = Vec::new();
        for (line, text) in (1..).zip(text.lines().map(str::trim)) {
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let wrong = |reason: String| {
                let (path, pattern) = (path.clone(), text.to_owned());
                SnapshotError::Pattern { path, line, pattern, reason }
            };
            if text.starts_with('!') {
                return Err(wrong("what is left out cannot be taken back in".to_owned()));
            }
            let bare = text.trim_end_matches('/');
            let pattern = Pattern::new(bare.trim_start_matches('/')).map_err(|e| wrong(e.to_string()))?;
            patterns.push(IgnorePattern { pattern, is_path: bare.contains('/'), is_folder: text.ends_with('/') });
        }
        Ok(Self(patterns))
    }

    /// Whether a file, or a folder above it, is ignored.
    fn has(&self, file: &Path) -> bool {
        self.0.iter().any(|pattern| !pattern.is_folder && pattern.matches(file))
            || file.ancestors().skip(1).any(|folder| self.has_folder(folder))
    }

    fn has_folder(&self, folder: &Path) -> bool {
        !folder.as_os_str().is_empty() && self.0.iter().any(|pattern| pattern.matches(folder))
    }
}

impl IgnorePattern {
    fn matches(&self, path: &Path) -> bool {
        let options = MatchOptions { require_literal_separator: true, ..MatchOptions::new() };
        if self.is_path {
            return self.pattern.matches_path_with(path, options);
        }
        path.file_name().is_some_and(|name| self.pattern.matches_path_with(Path::new(name), options))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project(files: &[&str]) -> (tempfile::TempDir, Project) {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let project = Project::find(Some(folder.path()), None).unwrap();
        (folder, project)
    }

    fn names(project: &Project) -> Vec<String> {
        code_files(project).unwrap().iter().map(|path| path.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn without_git_data_results_environments_and_hidden_folders_are_no_code() {
        let (folder, project) = project(&[
            "train.py",
            ".hidden",
            ".git-like/x",
            "data/x",
            "results/note.md",
            "pkg/data/table.csv",
            "pkg/__pycache__/m.pyc",
            "pkg/m.py",
            "pkg/old.pyc",
            "venv/pyvenv.cfg",
            "venv/lib/x.py",
            "env/conda-meta/history",
            "env/lib/y.py",
        ]);
        std::os::unix::fs::symlink("data", folder.path().join("link")).unwrap();
        assert_eq!(names(&project), [".hidden", "link", "pkg/data/table.csv", "pkg/m.py", "train.py"]);
    }

    #[test]
    fn patterns_leave_out_names_paths_and_folders() {
        let (folder, project) =
            project(&["a.ipynb", "x/b.ipynb", "out/1", "x/out/2", "raw/a/1", "raw/b.txt", "x/raw/3", "tmp"]);
        std::fs::write(folder.path().join(IGNORE_FILE), "# notebooks\n*.ipynb\nout/\n/raw/**/1\ntmp/\n\n").unwrap();
        assert_eq!(names(&project), [".expctlignore", "raw/b.txt", "tmp", "x/raw/3"]);
        for (line, reason) in [("!a", "cannot be taken back in"), ("[", "is no pattern")] {
            std::fs::write(folder.path().join(IGNORE_FILE), format!("\n{line}\n")).unwrap();
            let error = code_files(&project).unwrap_err().to_string();
            assert!(error.contains(".expctlignore:2: ") && error.contains(reason), "{error}");
        }
    }
}
