//! Models and training through the public interface of the library.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "tests")]

mod arrays;
mod ddp;
mod device_masks;
mod lazy;
mod models;
#[path = "../../../torch-dist/tests/integration/rank_processes.rs"]
mod rank_processes;
mod slow;
mod support;
mod trainer;
mod trainer_ranks;
