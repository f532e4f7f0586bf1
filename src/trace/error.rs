use std::path::PathBuf;

use crate::exit::{Exit, Failure};

/// Why there is no trace to show.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// No profiler ran.
    #[error("job {job} was not profiled: no trial of it records a step")]
    NotProfiled {
        /// The job.
        job: u64,
    },
    /// The trial was to be profiled, but left no trace.
    #[error("trial {trial} left no trace: {state}")]
    Missing {
        /// The trial.
        trial: String,
        /// How its last attempt stands.
        state: String,
    },
    /// A file is no trace, or damaged.
    #[error("cannot read the trace {}: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A file was written by a newer expctl.
    #[error("{} has schema version {found}; this expctl reads up to version {known}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version that can be read.
        known: u32,
    },
}

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Self {
        let keys = "set profile.active to a number of steps, or trace.at_step to one step: \
                    `expctl submit CONF --set trace.at_step=50`";
        let failure = |exit| Self::new(exit, &error);
        match &error {
            TraceError::NotProfiled { .. } => failure(Exit::Refused).hint(keys),
            TraceError::Missing { .. } => failure(Exit::Incomplete).hint("`expctl status` and `expctl logs` say more"),
            TraceError::Unreadable { .. } => {
                failure(Exit::Incomplete).hint("remove the file to go on without it, or run the job again")
            }
            TraceError::Newer { .. } => failure(Exit::Incomplete),
        }
    }
}
