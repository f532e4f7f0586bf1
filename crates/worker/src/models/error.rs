use expctl_dist::DistError;

use crate::device::DeviceError;

/// Why a model cannot be built or run.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A size is not possible.
    #[error("impossible model size: {0}")]
    Size(String),
    /// An edge list does not fit the genes.
    #[error("edge type {name}: {reason}")]
    Edges {
        /// The edge type.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The batch does not have what the model reads.
    #[error("the batch does not have what the model reads: {0}")]
    Inputs(String),
    /// A TorchScript module cannot be read, or does not do what a model has to.
    #[error("TorchScript module {path}: {reason}")]
    Module {
        /// Its file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An operation of libtorch failed.
    #[error("model: {0}")]
    Tensor(#[from] tch::TchError),
    /// The sparse product failed.
    #[error("model: {0}")]
    Sparse(#[from] DistError),
    /// The page-locked copy of a batch does not have what the model reads.
    #[error("the page-locked copy of a batch does not have what the model reads: {0}")]
    Locked(String),
    /// The batch cannot be brought to the device.
    #[error("{0}")]
    Device(#[from] DeviceError),
}
