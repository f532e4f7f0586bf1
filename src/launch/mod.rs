//! Launching: trials run on Slurm or on this machine, as `expctl-worker` or as a program of the user, with the same
//! ledger.

mod attempt;
mod backend;
pub mod command;
pub mod local;
mod programs;
mod remedy;
pub mod slurm;
pub mod status;

pub use attempt::{ProcessEnd, conclude, started};
pub use backend::{Backend, SubmitOrder, backend_for_job, backend_from_name};
pub use programs::{Programs, libtorch_folder, libtorch_version, needed_worker, worker_binary, worker_version};
pub use remedy::{Remedy, remedy};
