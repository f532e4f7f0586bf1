//! Rows in memory, as narrow as they go without loss, on huge pages.

pub mod memory_store;
pub mod narrow_rows;
