//! The ledger, read back: measured jobs and published ones.
//!
//! Invariant: reading never writes, and a figure keeps its origin. What was published by others stays marked as such.

mod component_kind;
mod import;
mod measured;
mod open;
mod progress;
mod published;
mod published_breakdown;
mod published_row;
mod raw_breakdown;
mod settings;
mod verdict;

pub use component_kind::ComponentKind;
pub use import::{Imported, import};
pub use measured::{MeasuredJob, Run, RunPart, RunState};
pub use open::{Found, Job, Ledger};
pub use progress::{BarKind, ImportedLog, LogReading, LogRow, import_log};
pub use published::PublishedFile;
pub use published_breakdown::{Amount, FigureClass, PublishedBreakdown, PublishedComponent, TimeUnit};
pub use published_row::{MOST_BATCH, MOST_JOB, MOST_RANKS, Progress, PublishedRow, Reading, Source};
pub use settings::{differences_within, flatten_all, flatten_in_job, run_settings, setting_text, step_words};
pub use verdict::verdict;
