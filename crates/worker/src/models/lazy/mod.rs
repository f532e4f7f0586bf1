//! The published lazy model: graph isomorphism convolutions over every edge type on the graph of each sample, pairwise
//! interaction, attentional readout, a global and a local head. Formulas and shapes: docs/lazy-model.md.
//!
//! Invariant: with the same seed, configuration and names of edge types, every rank and every implementation builds the
//! same parameters in the same order.

mod aggregation;
#[cfg(test)]
mod agreement;
mod config;
mod convolution;
mod mlp;
mod model;
mod norm;
mod parameters;
#[cfg(test)]
mod python_cases;
mod replicated;
mod shared;

pub use config::LazyConfig;
pub use model::Lazy;
