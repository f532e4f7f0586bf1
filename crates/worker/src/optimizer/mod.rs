//! Optimizers whose state can be kept and put back.

mod adamw;
mod any;
mod clip;
mod clip_there;

pub use adamw::AdamW;
pub use any::Optimizer;
pub use clip::clip_grad_norm;
pub use clip_there::{Clipped, clip_there};
