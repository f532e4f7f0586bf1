//! What is made small in training. Invariant: a loss is a scalar, the mean over the samples of a batch.

mod log_cosh;
mod objective;
mod reconstruction;

pub use log_cosh::log_cosh;
pub use objective::Objective;
pub use reconstruction::ReconstructionWeight;
