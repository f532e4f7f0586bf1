//! Many stores as one: row numbers run through all of them, columns are joined by name.
//!
//! Invariant: a row of a collection is a row of one of its stores, with its columns renumbered; what columns map to is worked
//! out once for each list of genes, and costs nothing where they stay what they are.

mod column_map;
mod join;
mod part;
mod reader;
mod reader_set;
mod store;
#[cfg(test)]
mod tests;

pub use join::Join;
pub use store::Collection;
