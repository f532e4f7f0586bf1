//! The parts of a note, each made of the ledger alone.

mod attempts;
mod breakdown;
mod configuration;
mod data_read;
mod epochs;
mod estimated;
mod isolation;
mod learning;
mod operations;
mod profile;
mod provenance;
mod published;
mod ranks;
mod results;
mod scaling;
mod shuffle;
mod slurm;
mod straggler;
mod tree;
mod usage;

pub use attempts::attempts;
pub use breakdown::breakdowns;
pub use configuration::{common, variant_differences};
pub use data_read::data_read;
pub use epochs::epochs;
pub use estimated::estimated;
pub use isolation::isolation;
pub use learning::{Learned, learned, learning};
pub use operations::operations;
pub use profile::profile;
pub use provenance::{provenance, trials};
pub use published::published;
pub use ranks::ranks;
pub use results::{Results, mixed_modes};
pub use scaling::scaling;
pub use shuffle::shuffle;
pub use slurm::slurm;
pub use usage::{peak_in_use, usage};

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
