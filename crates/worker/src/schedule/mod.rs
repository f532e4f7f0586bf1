//! How the learning rate changes. Invariant: a rate is a function of the settings, the epoch and the validations before it.

mod any;
mod cosine;
mod plateau;

pub use any::{Schedule, ScheduleError};
pub use cosine::CosineRestarts;
pub use plateau::Plateau;
