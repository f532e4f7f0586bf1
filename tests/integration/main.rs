//! Tests of the programs as a user runs them: one executable, a module for each part.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod architecture;
mod attempts;
mod benches;
mod common;
mod compare;
mod completions;
mod conf;
mod data;
mod data_arrays;
mod data_damage;
mod devices;
mod docs;
mod emulation;
mod export;
mod figures;
mod first_lines;
#[path = "../../examples/timings_generated/batch_times.rs"]
#[allow(dead_code, reason = "the example writes files of any size")]
mod generated_times;
mod gpu;
mod history;
mod import;
mod init;
mod isolate;
mod job_cache;
mod notes;
mod on_end;
mod origin;
mod pack;
mod parquet_testing;
mod predict;
mod profiles;
mod ranks;
mod ratios;
mod release_0_1;
mod remote;
mod report;
mod search;
mod sections;
mod security;
mod site;
mod slow;
mod slurm;
mod snapshot;
mod statistics;
mod timings;
