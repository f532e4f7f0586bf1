//! The launcher: reads a config, plans its trials, launches them on Slurm or on this machine, and turns the ledger they
//! leave into tables and notes.
//!
//! Invariant: it never links libtorch or CUDA, because it runs on login nodes.

pub mod cli;
pub mod console;
pub mod data;
pub mod doctor;
pub mod exit;
pub mod export;
pub mod history;
pub mod interrupt;
pub mod launch;
pub mod ledger;
pub mod plan;
pub mod predict;
pub mod program;
pub mod project;
pub mod provenance;
pub mod remote;
pub mod report;
pub mod search;
pub mod site;
pub mod snapshot;
pub mod timings;
pub mod trace;
mod watch;
