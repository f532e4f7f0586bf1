//! The model side of a step. Invariants: the data mode owns no model and costs nothing here; between groups of batches,
//! everything that later steps depend on is in the state.

mod accumulation;
mod clock;
mod core;
mod error;
mod evaluate;
mod finite;
mod learning;
mod state;
mod step;

pub use accumulation::{Accumulation, Part};
pub use core::Trainer;
pub use error::{ADVICE, TrainError};
pub use finite::all_finite;
pub use step::StepResult;
