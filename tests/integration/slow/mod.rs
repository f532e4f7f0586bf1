//! Tests that `make check` leaves out: they start clusters, train, open a browser or simulate.

mod arrays;
mod checkpoint;
mod cluster;
mod command_workers;
mod damaged_input;
mod emulation;
mod faults;
mod gpu_script;
mod hardware;
mod html;
mod life;
mod load;
mod local;
mod nodes;
mod other_user;
mod predict;
mod python_loaders;
mod rest;
mod slurm;
mod state;
mod timings_period;
mod trace;
mod training;
mod watch;
mod ways;
mod wheels;
