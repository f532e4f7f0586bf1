//! [`ProgramFolder`]: where a program of the user's runs: in its job's copy of the code, or in the project's folder.
//!
//! Invariant: in a copy, no path that expctl hands to the program leads to a file of the project that was copied.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use expctl_ledger::{AttemptDir, CodeSnapshot, JobDir};

use crate::exit::{Exit, Failure};
use crate::program::find_program;
use crate::snapshot::code_folder;

/// Variables with lists of folders in which programs and modules are looked for.
pub const SEARCHED: [&str; 2] = ["PATH", "PYTHONPATH"];

/// The working directory of a program.
#[derive(Clone, Debug)]
pub struct ProgramFolder {
    path: PathBuf,
    project: PathBuf,
    /// The real path of the copy, if it is one.
    copy: Option<PathBuf>,
}

impl ProgramFolder {
    /// That of an attempt in the ledger of `project`.
    ///
    /// # Errors
    /// The job has a snapshot, and the copy of it is not there.
    pub fn new(project: &Path, attempt: &AttemptDir) -> Result<Self, Failure> {
        let project = project.to_owned();
        let job = attempt.path().parent().and_then(Path::parent).map(JobDir::new);
        let Some(job) = job.filter(|job| CodeSnapshot::path(job).exists()) else {
            return Ok(Self { path: project.clone(), project, copy: None });
        };
        let path = code_folder(&job);
        let copy = path.canonicalize().map_err(|e| {
            Failure::new(Exit::Incomplete, format!("the code of the job is not in {}: {e}", path.display()))
                .hint(format!("expctl retry {} unpacks it again", job.name()))
        })?;
        Ok(Self { path, project, copy: Some(copy) })
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is a copy.
    pub fn is_copy(&self) -> bool {
        self.copy.is_some()
    }

    /// Folder of the project.
    pub fn project(&self) -> &Path {
        &self.project
    }

    /// The file of a program, by its name in `worker.command`.
    ///
    /// # Errors
    /// There is none that may be run.
    pub fn program(&self, name: &str) -> Result<PathBuf, String> {
        let found = find_program(&self.path, name)?;
        Ok(self.copied(&found).unwrap_or(found))
    }

    /// An argument of the program: a path of the project that was copied becomes that of the copy, also behind `--name=`.
    pub fn argument(&self, word: &str) -> OsString {
        let (name, path) = match word.split_once('=') {
            Some((name, path)) if !name.contains('/') => (format!("{name}="), path),
            _ => (String::new(), word),
        };
        let Some(there) = self.copied(Path::new(path)) else { return word.into() };
        let mut argument = OsString::from(name);
        argument.push(there);
        argument
    }

    /// The value of a variable of [`SEARCHED`], with the folders of the copy in the place of those of the project. `None`: it stays as it is.
    pub fn searched(&self, value: &OsString) -> Option<OsString> {
        let folders: Vec<PathBuf> = std::env::split_paths(value).collect();
        let there: Vec<PathBuf> =
            folders.iter().map(|folder| self.copied(folder).unwrap_or_else(|| folder.clone())).collect();
        if there == folders { None } else { std::env::join_paths(there).ok() }
    }

    /// The copy of a file or folder that an absolute path names. `None`: it was not copied.
    fn copied(&self, path: &Path) -> Option<PathBuf> {
        let copy = self.copy.as_ref().filter(|_| path.is_absolute())?;
        let real = || path.strip_prefix(self.project.canonicalize().ok()?).ok();
        let inside = path.strip_prefix(&self.project).ok().or_else(real)?;
        let there = self.path.join(inside);
        // Behind a link it is what the project has.
        there.canonicalize().is_ok_and(|found| found.starts_with(copy)).then_some(there)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn paths_of_the_project_become_those_of_the_copy_where_there_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path().join("project");
        let attempt = project.join("results/runs/1/a-r1-0/attempt-1");
        let code = project.join("results/runs/1/code");
        std::fs::create_dir_all(&attempt).unwrap();
        std::fs::create_dir_all(project.join("data")).unwrap();
        std::fs::create_dir_all(code.join("src")).unwrap();
        for root in [&project, &code] {
            std::fs::write(root.join("run.sh"), "").unwrap();
            std::fs::set_permissions(root.join("run.sh"), PermissionsExt::from_mode(0o755)).unwrap();
        }
        symlink(project.join("data"), code.join("data")).unwrap();
        let attempt = AttemptDir::open(&attempt);
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let (script, data) = (text(&project.join("run.sh")), text(&project.join("data")));

        let live = ProgramFolder::new(&project, &attempt).unwrap();
        assert_eq!((live.path(), live.argument(&script)), (project.as_path(), script.clone().into()));
        assert_eq!(live.program("./run.sh").unwrap(), project.join("./run.sh"));

        std::fs::write(project.join("results/runs/1/snapshot.json"), "{}").unwrap();
        let copy = ProgramFolder::new(&project, &attempt).unwrap();
        assert_eq!((copy.path(), copy.project()), (code.as_path(), project.as_path()));
        assert_eq!(copy.program("./run.sh").unwrap(), code.join("./run.sh"));
        assert_eq!(copy.program(&script).unwrap(), code.join("run.sh"));
        assert_eq!(copy.argument(&script), code.join("run.sh"));
        assert_eq!(copy.argument(&format!("--file={script}")), *format!("--file={}", text(&code.join("run.sh"))));
        assert_eq!(
            [copy.argument(&data), copy.argument("run.sh"), copy.argument("--lr")],
            [data.as_str(), "run.sh", "--lr"]
        );
        let value = OsString::from(format!("/usr/bin:{0}/src:{0}/data", text(&project)));
        let expected = format!("/usr/bin:{}:{}", text(&code.join("src")), data);
        assert_eq!(copy.searched(&value).unwrap(), OsString::from(expected));
        assert_eq!((copy.searched(&"/usr/bin".into()), live.searched(&value)), (None, None));

        std::fs::remove_dir_all(&code).unwrap();
        let failure = ProgramFolder::new(&project, &attempt).unwrap_err();
        assert!(failure.hints[0].starts_with("expctl retry 1 "), "{failure}");
    }
}
