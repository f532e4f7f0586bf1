//! The fault matrix: every fault befalls a real job of real ranks on a real Slurm, driven through `expctl` as its user would.
//!
//! In each case `status` is right while and after it, `retry` (or Slurm's own requeue) finishes the job, its ledger holds every
//! step exactly once, and the parameters are those of an undisturbed run. `tests/faults/run` prints the table.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

#[path = "faults/bench.rs"]
mod bench;
#[path = "faults/case.rs"]
mod case;
#[path = "slurm/cluster.rs"]
#[allow(dead_code, reason = "shared with the tests of the Slurm backend")]
mod cluster;
mod common;
#[path = "faults/matrix.rs"]
mod matrix;
#[path = "faults/nodes.rs"]
mod nodes;
#[path = "faults/processes.rs"]
mod processes;
#[path = "faults/storage.rs"]
mod storage;
#[path = "faults/tasks.rs"]
mod tasks;
