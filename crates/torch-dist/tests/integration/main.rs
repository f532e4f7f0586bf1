//! The public interface with real processes, real files and, where there is one, a real GPU.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "tests")]

mod cuda;
mod rank_processes;
mod ranks;
