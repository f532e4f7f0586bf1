//! The sections of a note, each made from the ledger alone.

pub mod breakdowns;
pub mod configuration;
pub mod epochs;
pub mod estimated;
pub mod isolation;
mod isolation_summary;
pub mod profiler;
pub mod provenance;
pub mod ranks;
pub mod results;
pub mod stages;
pub mod usage;

/// Most rows of a table of a note, and most tables of one kind: nobody reads more of them, and `expctl compare` and `expctl export` have all.
pub const MAX_ROWS: usize = 100;
/// The same of tables with a row for each run.
pub const MAX_RUN_ROWS: usize = 400;

/// A table under a heading, with a sentence below it.
#[derive(Clone, Debug)]
pub struct TitledTable {
    /// The heading.
    pub label: String,
    /// Markdown.
    pub table: String,
    /// What to take from it; may be empty.
    pub sentence: String,
}
