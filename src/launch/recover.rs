//! [`recover`]: finishes or withdraws a submission that was killed midway.

use std::io::ErrorKind;

use expctl_ledger::{JobDir, JobRecord};

use super::backend::{Backend, submission_of};
use super::local::{Launcher, LauncherState, LocalBackend};
use super::slurm::SlurmBackend;
use crate::exit::{Exit, Failure};
use crate::project::Project;

/// Finish what a submission with this token began, or withdraw it. Returns its job; `None`: there is none, so it may submit as if for the first
/// time. Nobody else may submit under the token meanwhile.
///
/// # Errors
/// Exit 4 if Slurm does not answer: what waits in its queue is not known then. Exit 6 if the ledger cannot be read or written.
pub fn recover(project: &Project, token: &str) -> Result<Option<u64>, Failure> {
    let entries = match std::fs::read_dir(project.runs()) {
        Ok(entries) => entries,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => {
            let message = format!("cannot read the ledger {}: {e}", project.runs().display());
            return Err(Failure::new(Exit::Incomplete, message));
        }
    };
    let paths = entries.flatten().map(|entry| entry.path());
    for path in paths.filter(|path| submission_of(path).as_deref() == Some(token)) {
        let folder = JobDir::new(&path);
        if folder.name().parse::<u64>().is_err() {
            // Staged: it has no number yet. Slurm may have its first arrays. The record is written before one is queued.
            let backend = folder.record().map(|record| record.backend);
            backend
                .map_or_else(|_| Ok(SlurmBackend::default()), |name| SlurmBackend::for_job(&name))?
                .cancel_jobs_in(&path)?;
        } else if folder.record_path().exists() {
            let record = folder.record()?;
            if !record.on_slurm() {
                // A launcher that has ended leaves attempts. Of two launchers of a job, the second finds nothing to run.
                let runs = Launcher::load(&folder)?.is_some_and(|launcher| launcher.state() != LauncherState::Gone);
                if !runs && !has_attempt(&folder, &record)? {
                    LocalBackend.detach(project, &record)?;
                }
                return Ok(Some(record.job));
            }
            let backend = SlurmBackend::for_job(&record.backend)?;
            if backend.finish_submission(&folder, &record)? {
                return Ok(Some(record.job));
            }
            // What the ledger does not know yet: the job that builds the data.
            backend.cancel_jobs_in(&path)?;
        }
        std::fs::remove_dir_all(&path)
            .map_err(|e| Failure::new(Exit::Incomplete, format!("cannot remove {}: {e}", path.display())))?;
    }
    Ok(None)
}

/// Whether a trial of a job has begun.
fn has_attempt(folder: &JobDir, record: &JobRecord) -> Result<bool, Failure> {
    for trial in &record.trials {
        if !folder.attempts(&trial.id)?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_got_no_record_is_removed() {
        let root = tempfile::tempdir().unwrap();
        let project = Project::find(Some(root.path()), None).unwrap();
        assert_eq!(recover(&project, "a").unwrap(), None);
        for (job, token) in [("1", "a"), ("2", "b")] {
            let folder = project.runs().join(job);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("submission"), token).unwrap();
        }
        assert_eq!(recover(&project, "a").unwrap(), None);
        assert!(!project.runs().join("1").exists() && project.runs().join("2").exists());
    }
}
