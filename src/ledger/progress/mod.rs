//! Rates from the text of progress bars: what tqdm and Lightning printed into a log.
//!
//! Invariant: what a log says stays apart by how it was read. The mean that the published script took, the last rate
//! printed, and steps over time are rows of their own, all of class imported.

mod bars;
mod file;
mod print;
mod segments;

pub use bars::{BarKind, LogReading};
pub use file::{ImportedLog, LogRow, import_log};
