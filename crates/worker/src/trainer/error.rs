use expctl_dist::DistError;

use crate::device::DeviceError;
use crate::losses::LossError;
use crate::models::ModelError;
use crate::schedule::ScheduleError;

/// What to try where training runs out of numbers.
pub const ADVICE: &str =
    "Try a smaller train.learning_rate, train.precision = \"float32\", or look at the labels of its samples";

/// Gradients are the mean over the ranks: a NaN may be another one's, whose loss says more.
fn elsewhere(norm: f64) -> &'static str {
    if norm.is_nan() { "This rank's loss was finite: look at the other ranks' messages first. " } else { "" }
}

/// Why a model cannot be set up or stepped.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The model refused.
    #[error("{0}")]
    Model(ModelError),
    /// A collective, or an operation around it, failed: mostly another rank is gone.
    #[error("{0}")]
    Dist(#[from] DistError),
    /// An operation that no other rank takes part in failed.
    #[error("{0}")]
    Device(#[from] DeviceError),
    /// An operation of libtorch failed.
    #[error("{0}")]
    Torch(#[from] tch::TchError),
    /// The learning rate cannot change as asked.
    #[error("{0}")]
    Schedule(#[from] ScheduleError),
    /// The gradient is infinite or NaN. No parameter has changed.
    #[error(
        "the gradient of step {step} is not finite (norm {norm}): no parameter has changed by it. {}{ADVICE}",
        elsewhere(*norm)
    )]
    Gradient {
        /// The step.
        step: u64,
        /// Norm of all gradients together.
        norm: f64,
    },
    /// A tensor that was to be kept has values that are infinite or NaN.
    #[error(
        "{name} has values that are not finite, and is not kept: try a smaller train.learning_rate, or clip gradients \
         with train.clip_norm"
    )]
    NotFinite {
        /// Name of the tensor in the state.
        name: String,
    },
}

impl From<ModelError> for TrainError {
    fn from(error: ModelError) -> Self {
        Self::Model(error)
    }
}

impl From<LossError> for TrainError {
    fn from(error: LossError) -> Self {
        match error {
            LossError::Dist(error) => Self::Dist(error),
            LossError::Torch(error) => Self::Torch(error),
        }
    }
}
