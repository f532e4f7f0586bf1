//! Writing AnnData files.
//!
//! Invariants: a file has its name only once all of it is written; what is written needs memory for some chunks and for
//! eight bytes a row, however many values there are; other programs read it as they read AnnData's own.

mod ann_data;
mod attributes;
mod chunk_rows;
mod compression;
mod frame;
mod series;
#[cfg(test)]
mod tests;

pub use ann_data::{AnnDataSpec, AnnDataWriter, Matrix};
pub use compression::Compression;
pub use frame::{Cells, Column, ColumnKind, Frame, FrameSpec};
pub use series::Layout;
