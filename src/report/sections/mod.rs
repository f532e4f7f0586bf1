//! The parts of a note, each made of the ledger alone.

mod attempts;
mod breakdown;
mod configuration;
mod provenance;
mod ranks;
mod results;
mod slurm;

pub use attempts::attempts;
pub use breakdown::breakdowns;
pub use configuration::{common, variant_differences};
pub use provenance::{provenance, trials};
pub use ranks::ranks;
pub use results::{mixed_modes, results, verdicts};
pub use slurm::slurm;

/// A table under a heading, with a sentence below it.
#[derive(Clone, Debug)]
pub struct Titled {
    /// The heading.
    pub label: String,
    /// Markdown.
    pub table: String,
    /// What to take from it; may be empty.
    pub sentence: String,
}
