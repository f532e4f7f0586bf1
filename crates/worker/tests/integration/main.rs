//! Models and training through the public interface of the library.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "tests")]

mod array_models;
mod arrays;
mod dango;
mod ddp;
mod device_masks;
mod lazy;
mod lazy_agreement;
mod lazy_model;
mod lazy_shared;
#[path = "../../../torch-dist/tests/integration/rank_processes.rs"]
mod rank_processes;
mod sampler;
mod store;
mod support;
mod torchscript;
mod trainer;
mod trainer_ranks;
