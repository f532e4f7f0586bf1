//! Optimizers whose state can be kept and put back.

mod adamw;
mod any;
mod clip;

pub use adamw::AdamW;
pub use any::Optimizer;
pub use clip::clip_grad_norm;
