//! The fault matrix: every fault befalls a real job of real ranks on a real Slurm, driven through `expctl` as its user would.
//!
//! In each case `status` is right while and after it, `retry` (or Slurm's own requeue) finishes the job, its ledger holds every
//! step exactly once, and the parameters are those of an undisturbed run. `tests/faults/run` prints the table.

#![allow(clippy::print_stdout, reason = "figures are read from the output")]

mod bench;
mod case;
mod matrix;
mod nodes;
mod processes;
mod storage;
mod tasks;
