//! Traces of libtorch's profiler: found, merged over ranks, summed up, and compared.
//!
//! Invariants: what encloses what is decided by nesting on a thread, never by parts of names; every figure of a summary says
//! whether it was measured or derived.

mod collectives;
mod comparison;
mod comparison_text;
mod device;
mod error;
mod find;
mod json;
mod ledger_steps;
mod longest;
mod markdown;
mod merge;
mod nesting;
mod operations;
mod rank_trace;
mod side;
mod slice;
mod stages;
mod step_figures;
mod summary;
mod tensorboard;

pub use comparison::{ComparedTime, TimeVerdict, TraceComparison, pairs};
pub use error::TraceError;
pub use find::{Found, find};
pub use longest::{CallKind, LongestCall, longest_of_all};
pub use merge::{Merged, merge};
pub use nesting::{Forest, nest};
pub use operations::{NO_OPERATION, Operation};
pub use rank_trace::RankTrace;
pub use side::Side;
pub use slice::Slice;
pub use stages::{StepTimes, step_times};
pub use step_figures::{CallTime, StepFigures};
pub use summary::Summary;
pub use tensorboard::write_for_tensorboard;
