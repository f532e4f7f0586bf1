//! The command line, a file per verb. Data goes to stdout, everything else to stderr.

mod build_bar;
mod cancel;
mod check;
mod compare;
mod completions;
mod conclude;
mod data;
mod data_convert;
mod data_convert_array;
mod data_info;
mod data_info_array;
mod data_set;
mod data_verify;
mod doctor;
mod import;
mod isolate;
mod job_name;
mod logs;
mod plan;
mod rehearse;
mod report;
mod retry;
mod run_command;
mod run_local;
mod stage_attempt;
mod status;
mod step;
mod submit;
mod tail;
mod timings;
mod trace;
mod verbs;
mod watch;

pub use verbs::{Cli, main};

use crate::console::{out, say};
