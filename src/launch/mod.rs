//! Launching: the same trial on this machine or on Slurm, with the same ledger.

mod conclude;
mod libtorch;
pub mod life;
pub mod local;
mod remedy;
pub mod slurm;
mod worker_binary;

pub use conclude::{ProcessEnd, conclude};
pub use libtorch::libtorch_folder;
pub use remedy::{Remedy, remedy};
use slurm::started;
pub use worker_binary::worker_binary;
