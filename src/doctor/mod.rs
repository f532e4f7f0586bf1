//! What stands in the way of running jobs here, and what to do about it.

mod check;
mod cluster;
mod places;

pub use check::{Check, State};
pub use cluster::cluster;
pub use places::{folder, worker};
