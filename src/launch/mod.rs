//! Launching: the same trial on this machine or on Slurm, with the same ledger.

mod conclude;
pub mod slurm;

pub use conclude::{ProcessEnd, conclude};
