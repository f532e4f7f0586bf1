//! One rank of a trial: connects to its peers, loads batches, steps the model, and times every stage.
//!
//! [`run`] is the whole of it. The other public modules are the model side: [`models`] computes [`losses`] that a [`trainer`] minimises with an
//! [`optimizer`] and a [`schedule`].

mod activity;
mod checkpoint;
mod device;
pub mod device_masks;
mod emulation;
mod error;
pub mod losses;
pub mod metrics;
pub mod models;
mod monitor;
pub mod optimizer;
mod profile;
mod progress;
mod rank;
pub mod schedule;
mod session;
mod source;
pub mod state;
mod step_loop;
#[cfg(test)]
mod tests;
pub mod trainer;
mod training_run;

pub use activity::{Activity, ActivitySnapshot};
pub use device::DeviceError;
pub use rank::run;
pub use session::Signals;
