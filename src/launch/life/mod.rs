//! The life of a job: where its trials stand now, whichever backend runs them.
//!
//! Invariant: looking never writes, and a trial is called running only if something that runs it was seen.

mod had;
mod look;
mod state;

pub use had::Had;
pub use look::{Look, look};
pub use state::{JobStatus, State, TrialStatus};
