//! Writing AnnData in zarr (version 3).
//!
//! Invariants: a folder has its name only once all of it is written; what is written needs memory for some chunks and for eight
//! bytes a row, and for one array of annotations; other programs read it as they read what annbatch writes.

mod ann_data;
mod arrays;
mod nodes;
mod sharded;

pub use ann_data::ZarrWriter;
