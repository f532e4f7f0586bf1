//! The note of a job, or of batch timings, as one page for a browser: tables that sort, pictures that zoom, nothing from outside.
//!
//! Invariant: what comes from a config or a ledger is words here, never markup, and the page may fetch nothing.

mod content;
mod page;
mod plot;
mod write;

pub use plot::PageChart;
pub use write::{write_markdown_page, write_page};
