//! One rank of a trial: connects to its peers, loads batches, steps the model, times every stage.

mod activity;
pub mod checkpoint;
mod checkpoints;
mod connect;
mod data_read;
mod device;
pub mod device_masks;
mod environment;
mod hang;
pub mod losses;
mod meeting_place;
mod memory;
pub mod metrics;
pub mod models;
mod monitor;
pub mod optimizer;
mod profile;
mod run;
pub mod schedule;
mod session;
mod source;
mod steps;
mod stop;
pub mod trainer;
mod training;

pub use activity::Activity;
pub use device::DeviceError;
pub use expctl_record::{RankEnv, RankEnvError};
pub use memory::keep_freed_memory;
pub use run::{Signals, run};
