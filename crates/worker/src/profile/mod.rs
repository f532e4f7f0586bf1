//! The profiler of a rank: which steps it records, and what is added to its trace. Invariants: a trace is whole or not there;
//! what starting and writing it takes is in no step; without a profile nothing here costs time.

mod clock;
mod offset;
mod rows;
mod step_profiler;
mod trace_file;

pub(crate) use step_profiler::StepProfiler;
