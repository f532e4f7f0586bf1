//! Data sets: the recipe, how it is built, what was built.

mod recipe;

pub use recipe::{Bipartite, Network, NetworkSource, Recipe, Samples};
