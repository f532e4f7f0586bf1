//! Traces of libtorch's profiler: found, merged over ranks, and summed up.
//!
//! Invariants: what encloses what is decided by nesting on a thread, never by parts of names; every figure of a summary says
//! whether it was measured or derived.

mod collectives;
mod device;
mod error;
mod find;
mod ledger_steps;
mod markdown;
mod merge;
mod nesting;
mod operations;
mod rank_trace;
mod slice;
mod stages;
mod summary;

pub use error::TraceError;
pub use find::{Found, find};
pub use merge::{Merged, merge};
pub use nesting::{Forest, nest};
pub use rank_trace::RankTrace;
pub use slice::Slice;
pub use stages::{StepTimes, step_times};
pub use summary::Summary;
