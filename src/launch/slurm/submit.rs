//! Submission. Invariant: a job runs only after its folder stands in the ledger under the job's own number.

use std::path::Path;

use expctl_record::{JobDir, JobRecord, write_atomic, write_json};

use super::path_text;
use super::script::render;
use super::submitted::Submitted;
use super::tools::{Programs, Slurm, inherited};
use crate::console::say;
use crate::exit::{Exit, Failure};
use crate::project::Project;

impl Slurm {
    /// Submit `job` (whose own number is not known yet) and return the number that Slurm gave it.
    ///
    /// The job is queued on hold, its folder is put into the ledger under its number, and only then is it released: no
    /// rank ever looks for a folder that is not there. If anything fails on the way, the job is cancelled and its folder
    /// removed.
    ///
    /// # Errors
    /// Exit 3 if the trials need different resources; exit 4, with Slurm's own words, if the cluster cannot be reached or
    /// refuses the job; exit 70 if the ledger cannot be written.
    pub fn submit(&self, project: &Project, mut job: JobRecord, programs: &Programs) -> Result<u64, Failure> {
        "slurm".clone_into(&mut job.backend);
        let script = render(project, &job, programs)?;
        let variables = inherited();
        if !variables.is_empty() {
            say(format_args!("note: not used, since they would override the config: {}", variables.join(", ")));
        }
        std::fs::create_dir_all(project.runs()).map_err(|e| not_made(project.runs(), &e))?;
        // Removed when dropped, on every way out but the last.
        let staged = tempfile::Builder::new()
            .prefix(".staged-")
            .permissions(folder_permissions())
            .tempdir_in(project.runs())
            .map_err(|e| not_made(project.runs(), &e))?;
        let folder = JobDir::new(staged.path());
        write_json(&folder.record_path(), &job)?;
        let script_path = folder.path().join("batch.sh");
        write_atomic(&script_path, script.as_bytes())?;

        let answer = self.run("sbatch", ["--parsable", "--hold", path_text(&script_path)?])?;
        let Some(submitted) = Submitted::parse(&answer) else {
            return Err(Failure::new(
                Exit::Cluster,
                format!("sbatch answered {:?}, which is not a job id", answer.trim()),
            ));
        };
        job.job = submitted.id;
        let placed = submitted.save(&folder).and_then(|()| self.place(project, &job, folder.path()));
        let released = placed.and_then(|()| {
            // The folder is the job's own now, and no longer ours to remove.
            let _ = staged.keep();
            self.run("scontrol", submitted.arguments(Some("release"))).map_err(|e| {
                let _ = std::fs::remove_dir_all(project.job(job.job).path());
                Failure::from(e)
            })
        });
        match released {
            Ok(_) => Ok(job.job),
            Err(failure) => Err(self.withdraw(&submitted, failure)),
        }
    }

    /// Give the staged folder its number.
    fn place(&self, project: &Project, job: &JobRecord, staged: &Path) -> Result<(), Failure> {
        write_json(&JobDir::new(staged).record_path(), job)?;
        let folder = project.job(job.job);
        // A rename would quietly replace an empty folder, so look first.
        if folder.path().exists() {
            return Err(Failure::new(
                Exit::Cluster,
                format!("Slurm gave the job number {}, but {} exists already", job.job, folder.path().display()),
            )
            .hint("it may be a job of this machine (--backend local counts from 1), of another cluster, or of a Slurm that counts anew")
            .hint("set EXPCTL_RUNS to a folder of this cluster's own, or start the development cluster with a higher --first-job-id"));
        }
        std::fs::rename(staged, folder.path()).map_err(|e| not_made(folder.path(), &e))
    }

    /// Cancel a job that cannot run; what made it so stays the failure that is shown.
    pub(super) fn withdraw(&self, submitted: &Submitted, failure: Failure) -> Failure {
        match self.run("scancel", submitted.arguments(None)) {
            Ok(_) => failure.hint(format_args!("job {} was cancelled again", submitted.id)),
            Err(e) => failure.hint(format_args!("job {} is left on hold ({e}); cancel it: scancel {0}", submitted.id)),
        }
    }
}

fn not_made(folder: &Path, e: &std::io::Error) -> Failure {
    Failure::internal(format!("cannot write to the ledger at {}: {e}", folder.display()))
}

/// Readable by all before the umask, like the rest of the ledger.
fn folder_permissions() -> std::fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    std::fs::Permissions::from_mode(0o777)
}
