//! The models a trial can train.

pub mod array;
pub mod dango;
mod edge_list;
mod error;
mod hyper_sagnn;
mod inputs;
#[cfg(test)]
mod layer_cases;
pub mod lazy;
mod linear;
mod model_batch;
mod network;
mod parameters;
mod place;
pub mod torchscript;
mod wide;

pub use edge_list::EdgeList;
pub use error::ModelError;
pub use inputs::{EdgeInputs, GraphInputs, Inputs, NodeGenes, RemovedInputs};
pub use model_batch::{ModelBatch, ModelInputs};
pub use network::{Network, Output};
pub use parameters::{named_parameters, named_variables, parameters_digest};
pub(crate) use place::sent;
pub use place::{Direct, Place};
