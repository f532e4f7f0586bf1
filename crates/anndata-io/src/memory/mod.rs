//! Rows in memory, with the narrowest dtypes that lose nothing, on huge pages.

pub mod memory_store;
pub mod narrow_rows;
