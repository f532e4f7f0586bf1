//! A client of the [Slurm](https://slurm.schedmd.com) workload manager: submits batch scripts, asks for the states of
//! array tasks, reads what the accounting measured, and cancels.
//!
//! [`Slurm`] speaks through Slurm's own commands (`sbatch`, `squeue`, `sacct`, `scontrol`, `scancel`), or, after
//! [`Slurm::with_rest`], over HTTP through slurmrestd. All calls block. Answers of Slurm 22.05 to 26.05 are read.
//!
//! ```no_run
//! use slurm_client::{Slurm, SlurmError, SubmitOptions};
//!
//! # fn main() -> Result<(), SlurmError> {
//! let slurm = Slurm::from_environment();
//! // `array.sh` has an `#SBATCH --array` line.
//! let job = slurm.submit("array.sh".as_ref(), &SubmitOptions::default())?;
//! for ((_, index), task) in slurm.queued(&[job])? {
//!     println!("task {index}: {task}"); // task 0: PENDING (Resources)
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Some parsers also work alone: [`TaskState`] for the meaning of Slurm's words, [`process_exits`] for what `srun`
//! prints about ranks that ended badly.

mod client;
mod error;
mod poll;
mod queue;
mod rest;
mod srun_log;
mod task;
mod task_run;

pub use client::{Availability, Slurm, SubmitOptions, sbatch_variables};
pub use error::{SetupError, SlurmError};
pub use poll::PollInterval;
pub use rest::{Rest, RestOptions};
pub use srun_log::{ProcessExit, process_exits};
pub use task::{JobId, Queue, Task, TaskState};
pub use task_run::{JobStep, LastRun, TaskRun, TaskRuns};

// The examples of the README are compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
