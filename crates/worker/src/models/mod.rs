//! The models a trial can train.

pub mod dango;
mod parameters;

pub use parameters::{named_parameters, parameters_digest};
