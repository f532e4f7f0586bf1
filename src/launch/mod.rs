//! Launching: the same trial on this machine or on Slurm, with the same ledger, whatever runs as its ranks.

pub mod command;
mod conclude;
mod libtorch;
pub mod life;
pub mod local;
mod remedy;
pub mod slurm;
mod worker_binary;

pub use conclude::{ProcessEnd, conclude};
pub use libtorch::{libtorch_folder, libtorch_version};
pub use remedy::{Remedy, remedy};
use slurm::started;
pub use worker_binary::{needed_worker, worker_binary, worker_version};
