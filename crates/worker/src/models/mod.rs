//! The models a trial can train.

pub mod dango;
mod edge_list;
mod error;
mod inputs;
mod network;
mod parameters;
pub mod torchscript;

pub use edge_list::EdgeList;
pub use error::ModelError;
pub use inputs::{EdgeInputs, GraphInputs, Inputs};
pub use network::{Network, Output};
pub use parameters::{named_parameters, named_variables, parameters_digest};
