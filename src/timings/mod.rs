//! Times of single batches: consistency, distribution, the share of slow batches, and the period with which they come.
//!
//! Invariant: rows are read once, in order, into a store that keeps them on disk beyond a fixed number; everything after that
//! holds one series, or a window of it, at a time.

mod analysis;
mod batch_check;
mod columns;
mod csv_rows;
mod distribution;
mod dots;
mod error;
pub mod generated;
mod histogram;
mod ledger_rows;
mod markdown;
mod note;
mod page;
mod parquet_cells;
mod parquet_rows;
pub mod period;
mod pictures;
mod rhythm;
mod slow_stages;
mod source;
mod store;
mod words;

pub use analysis::{Analysis, FirstEpoch, MethodTimings, SeriesTimings, Settings};
pub use batch_check::BatchCheck;
pub use columns::{Columns, Unit};
pub use csv_rows::read_csv;
pub use distribution::{Curve, CurvePoint, Distribution};
pub use dots::Dots;
pub use error::TimingsError;
pub use ledger_rows::{LedgerSteps, read_jobs};
pub use markdown::markdown;
pub use note::{PictureFiles, write_note};
pub use page::write_page;
pub use parquet_rows::read_parquet;
pub use pictures::{charts, page_charts};
pub use rhythm::Rhythm;
pub use slow_stages::{SlowBatches, SlowStage, SlowStages};
pub use source::{Class, Source, read_file};
pub use store::{EXACT_ROWS, Store};
