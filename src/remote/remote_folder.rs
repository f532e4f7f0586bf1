//! [`RemoteFolder`]: the folder of a project on a cluster, as it is seen there. Trees of code, one ledger and one folder of data for all of them,
//! and what became of submissions.

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use expctl_ledger::{CodeSnapshot, JobDir};

use super::error::RemoteError;
use super::once_submission::{OnceSubmission, SubmissionRoot};
use crate::launch::submission_of;
use crate::project::{Project, SENT_SOURCE};

/// Names that are the same in every tree, if the folder has them: programs find them beside the code, as in a project.
const SHARED: [&str; 3] = ["data", "results", ".venv"];

/// The folder of a project on a cluster.
#[derive(Clone, Debug)]
pub struct RemoteFolder {
    path: PathBuf,
}

impl RemoteFolder {
    /// The folder `named`, which is absolute, or starts at the home folder. It is made where it is missing.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn open(named: &str) -> Result<Self, RemoteError> {
        let home = std::env::home_dir().unwrap_or_else(|| PathBuf::from("/"));
        let folder = Self { path: from_home(home, named) };
        for plain in [folder.runs(), folder.data()] {
            std::fs::create_dir_all(&plain).map_err(RemoteError::io("create", &plain))?;
        }
        for private in [folder.trees(), folder.submissions()] {
            match DirBuilder::new().mode(0o700).create(&private) {
                Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(RemoteError::io("create", &private)(e)),
                _ => {}
            }
        }
        Ok(folder)
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The ledger.
    pub fn runs(&self) -> PathBuf {
        self.path.join("results").join("runs")
    }

    /// The data sets: `EXPCTL_DATA` there, or the folder's own.
    pub fn data(&self) -> PathBuf {
        let named = std::env::var_os("EXPCTL_DATA").map(PathBuf::from).filter(|named| named.is_absolute());
        named.unwrap_or_else(|| self.path.join("data"))
    }

    /// Where trees are, each named after its hash.
    pub fn trees(&self) -> PathBuf {
        self.path.join("trees")
    }

    /// What became of submissions, by token.
    pub fn submissions(&self) -> PathBuf {
        self.path.join("submissions")
    }

    /// A job of its ledger.
    pub fn job(&self, job: u64) -> JobDir {
        JobDir::new(self.runs().join(job.to_string()))
    }

    /// The numbers of its jobs.
    pub fn jobs(&self) -> Vec<u64> {
        let names = std::fs::read_dir(self.runs()).into_iter().flatten().flatten();
        let mut jobs: Vec<u64> = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        jobs.retain(|job| self.job(*job).record_path().exists());
        jobs.sort_unstable();
        jobs
    }

    /// The project whose code is at `root`, with the ledger and the data of this folder.
    ///
    /// # Errors
    /// The current folder is gone.
    pub fn project(&self, root: &Path) -> Result<Project, RemoteError> {
        let found = Project::find(Some(root), None).map_err(RemoteError::io("read", root))?;
        Ok(found.with_ledger(self.runs(), self.data()))
    }

    /// This program in the project whose code is at `root`.
    ///
    /// # Errors
    /// The system cannot say where this program is.
    pub fn command(&self, root: &Path) -> Result<Command, RemoteError> {
        let program = std::env::current_exe().map_err(RemoteError::io("find", Path::new("this program")))?;
        let mut command = Command::new(program);
        command.current_dir(root).arg("--root").arg(root);
        command.env("EXPCTL_RUNS", self.runs()).env("EXPCTL_DATA", self.data());
        // A repository that the folder may lie in is not that of the code.
        command.env(SENT_SOURCE, "null");
        Ok(command)
    }

    /// The folder of the code that a submission is of.
    ///
    /// # Errors
    /// There is no such tree.
    pub fn root(&self, of: &SubmissionRoot) -> Result<PathBuf, RemoteError> {
        match of {
            SubmissionRoot::Job(job) => Ok(self.root_of_job(*job)),
            SubmissionRoot::Tree(hash) => {
                let root = self.trees().join(hash);
                if is_hash(hash) && root.is_dir() {
                    return Ok(root);
                }
                Err(RemoteError::Tree { reason: format!("there is no tree {hash:?}") })
            }
        }
    }

    /// The folder of the code that a job was submitted with; this folder, if nobody knows.
    pub fn root_of_job(&self, job: u64) -> PathBuf {
        let folder = self.job(job);
        let by_token = || {
            let token = submission_of(folder.path())?;
            self.root(&OnceSubmission::new(self, &token).ok()?.order().ok()?.root).ok()
        };
        let by_snapshot = || Some(CodeSnapshot::read(&folder).ok()??.project.0);
        let is_there = |root: &PathBuf| root.is_dir();
        by_snapshot().filter(is_there).or_else(by_token).unwrap_or_else(|| self.path.clone())
    }

    /// Let programs in a tree find what all trees share. A link that cannot be made is missed by those programs alone that need it.
    pub fn link_shared(&self, tree: &Path) {
        let targets = SHARED.map(|name| (name, if name == "data" { self.data() } else { self.path.join(name) }));
        for (name, target) in targets.into_iter().filter(|(_, target)| target.exists()) {
            let link = tree.join(name);
            if link.symlink_metadata().is_err()
                && let Err(e) = std::os::unix::fs::symlink(&target, &link)
            {
                tracing::debug!("{}: {e}", link.display());
            }
        }
    }
}

/// The folder that a text names for a user with this home folder: that folder for `~`, one in it for `~/a` and `a`.
fn from_home(home: PathBuf, named: &str) -> PathBuf {
    let below = match named.strip_prefix("~/") {
        Some(below) => below.trim_start_matches('/'),
        None if named == "~" => "",
        None => named,
    };
    // Joined to nothing, it would end in `/`.
    if below.is_empty() { home } else { home.join(below) }
}

/// Whether a text is a hash: nothing in it is of a path.
pub(crate) fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_absolute_or_from_the_home_folder() {
        for (named, path) in [
            ("expctl/p", "/home/me/expctl/p"),
            ("~/expctl/p", "/home/me/expctl/p"),
            ("~//p", "/home/me/p"),
            ("~", "/home/me"),
            ("~/", "/home/me"),
            ("~you", "/home/me/~you"),
            ("/scratch/me/p", "/scratch/me/p"),
        ] {
            assert_eq!(from_home("/home/me".into(), named).as_os_str(), path, "{named}");
        }
    }
}
