//! A client of slurmrestd, Slurm's own HTTP service: what the commands do, where there are no commands.
//!
//! Invariant: a request that could make a second job is sent once. The token is in no error, log or job.

mod answer;
mod cancel;
mod client;
mod directives;
mod environment;
mod fields;
mod listing;
mod submit;
mod token;
mod values;
mod version;

pub use client::Rest;
