//! Traces of libtorch's profiler: found, merged over ranks, summed up, and compared.
//!
//! ```text
//! trace-<rank>-<cycle>.json.gz ─► RankTrace ─┬─► Forest ─► Summary ─► text, JSON
//!                                            │                └─► TraceSide ×2 ─► TraceComparison ─► text, JSON
//!                                            └─► MergedTrace (Perfetto), TensorBoard
//! ```
//!
//! Invariants: what encloses what is decided by nesting on a thread, never by parts of names; every figure of a summary says
//! whether it was measured or derived.

mod comparison;
mod comparison_text;
mod export;
mod forest;
mod longest_calls;
mod operations;
mod rank_trace;
mod step_times;
mod summary;
mod summary_text;

pub use comparison::{ComparedTime, TimeVerdict, TraceComparison, TraceSide, pairs};
pub use export::{MergedTrace, merge, write_for_tensorboard};
pub use forest::{Forest, Slice, nest};
pub use longest_calls::{CallKind, LongestCall, longest_of_all};
pub use operations::{HostOperation, NO_OPERATION};
pub use rank_trace::{RankTrace, TraceError, TraceFileError, TrialTraces, find};
pub use step_times::{CallTime, StepFigures, StepTimes, step_times};
pub use summary::Summary;
