//! Threads that prepare batches ahead of the step. Invariants: batches arrive in the order of the schedule; no more are
//! ahead of the step than loader threads × prefetch factor, and no more are held than fit into the memory limit (but one always
//! is); an error arrives at the step it belongs to; dropping the loader ends its threads.

mod buffer;
mod build;
mod builder;
mod loaded;
mod own_reader;
mod pool;
mod source;
mod timing;

pub use build::Build;
pub use builder::BatchBuilder;
pub use loaded::Loaded;
pub use pool::{Loader, LoaderOptions};
pub use source::{DatasetRecords, ReadRecord, Records};
pub(crate) use timing::Laps;
pub use timing::{BatchTimes, Interval, exposed_wait};
