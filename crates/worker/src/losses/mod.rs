//! What is made small in training. Invariant: a loss is a scalar, the mean over the samples of a batch, in the units of
//! training; what it remembers of earlier batches is a state that can be kept.

mod buffer;
mod cross_entropy;
mod distribution;
mod error;
mod label_scale;
mod log_cosh;
mod objective;
mod reconstruction;
mod sinkhorn;

pub use buffer::Buffer;
pub use cross_entropy::cross_entropy;
pub use distribution::Distribution;
pub use error::LossError;
pub use label_scale::LabelScale;
pub use log_cosh::log_cosh;
pub use objective::Objective;
pub use reconstruction::ReconstructionWeight;
pub use sinkhorn::sinkhorn;
