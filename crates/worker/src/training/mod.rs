//! What a training run does around its steps: epochs, validation, weights, early stopping. Invariants: none of it is in the
//! time of a step; every figure is over the samples of all ranks, so all ranks decide alike; a run that was stopped and goes
//! on from a checkpoint leaves the learning curve of one that was not.

mod epoch_loss;
mod progress;
mod start_from;
mod training_run;
mod validator;
mod weights;

pub(crate) use progress::Progress;
pub(crate) use start_from::start_from;
pub(crate) use training_run::{Epochs, TrainingRun, Verdict};
pub(crate) use validator::{Share, Validator};
