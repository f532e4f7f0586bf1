//! Launching: trials run on Slurm or on this machine, as `expctl-worker` or as a program of the user, with the same ledger.

pub mod attempt;
pub mod command;
pub mod local;
pub mod programs;
mod remedy;
pub mod slurm;
pub mod status;

pub use remedy::{Remedy, remedy};
