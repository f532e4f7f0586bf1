//! Checkpoints: when all ranks make one, and what is in it.

mod agreement;
mod state;

pub use agreement::{Agreement, Wishes};
pub use state::{read_state, write_state};
