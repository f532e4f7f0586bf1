//! Times of single batches: consistency, distribution, the share of slow batches, and the period with which they come.
//!
//! ```text
//! file ── files ────────────────┐
//! ledger ── ledger_steps ───────┴─► BatchTimes ─► Analysis ─► markdown, pictures ─► note, page
//! ```
//!
//! Invariant: rows are read once, in order, into a store that keeps them on disk beyond a fixed number; everything after that
//! holds one series, or a window of it, at a time.

mod analysis;
mod batch_check;
mod batch_times;
mod beats;
mod distribution;
mod files;
mod ledger_steps;
mod markdown;
mod note;
pub mod period;
mod pictures;
mod source;

pub use analysis::{Analysis, AnalysisOptions, FirstEpoch, MethodTimings, SeriesTimings};
pub use batch_check::BatchCheck;
pub use batch_times::{BatchTimes, EXACT_ROWS};
pub use beats::BeatSummary;
pub use distribution::{CurveDetail, CurvePoint, Distribution, ScatterPoints};
pub use files::{CLASS_KEY, read_file};
pub use ledger_steps::{LedgerSteps, SlowBatches, SlowStage, SlowStages, read_jobs};
pub use markdown::markdown;
pub use note::{PictureFiles, write_note, write_page};
pub use pictures::{charts, page_charts};
pub use source::{CellProblem, FileProblem, TimeUnit, TimingsClass, TimingsColumns, TimingsError, TimingsSource};
