//! DANGO: graph encoders with reconstruction, meta-embedding, hypergraph attention. Formulas and shapes: docs/dango.md.
//!
//! Invariant: with the same seed, configuration and graphs, every rank builds the same parameters in the same order.

mod config;
mod graph;
mod init;
mod meta;
mod model;
#[cfg(test)]
mod python_cases;
mod reconstruction;
mod sage;

pub use config::DangoConfig;
pub use model::Dango;
