//! Launching: trials run on Slurm or on this machine, as `expctl-worker` or as a program of the user, with the same
//! ledger.

mod attempt;
mod backend;
pub mod command;
mod fault_point;
pub mod local;
mod pack;
mod recover;
pub mod slurm;
pub mod status;

pub use attempt::{Remedy, last_lines_of_program, remedy};
pub use backend::{Backend, SubmitOrder, backend_for_job, backend_from_name, read_submission, submission_of};
pub use recover::recover;
