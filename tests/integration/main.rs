//! Tests of the programs as a user runs them: one executable, a module for each part.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod architecture;
mod arrays;
mod attempts;
mod checkpoint;
mod cluster;
mod command_workers;
mod common;
mod compare;
mod conf;
mod data;
mod data_arrays;
mod data_damage;
mod devices;
mod docs;
mod faults;
mod figures;
#[path = "../../examples/timings_generated/batch_times.rs"]
#[allow(dead_code, reason = "the example writes files of any size")]
mod generated_times;
mod gpu;
mod gpu_script;
mod hardware;
mod html;
mod import;
mod isolate;
mod life;
mod load;
mod local;
mod nodes;
mod notes;
mod origin;
mod profiles;
mod ranks;
mod ratios;
mod release_0_1;
mod report;
mod rest;
mod scaling;
mod sections;
mod security;
mod slurm;
mod state;
mod statistics;
mod timings;
mod timings_period;
mod trace;
mod training;
mod watch;
mod ways;
