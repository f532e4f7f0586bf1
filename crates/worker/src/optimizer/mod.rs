//! Optimizers whose state can be kept and put back.

mod adamw;
mod any;

pub use adamw::AdamW;
pub use any::Optimizer;
