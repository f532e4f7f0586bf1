//! Notes and comparison tables.
