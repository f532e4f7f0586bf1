//! Writing AnnData files.
//!
//! Invariants: a file has its name only once all of it is written; what is written needs memory for some chunks and for
//! eight bytes a row, however many values there are; other programs read it as they read AnnData's own.

pub(crate) mod ann_data_writer;
pub(crate) mod dataset_writer;
pub(crate) mod frame_writer;
#[cfg(test)]
mod tests;

pub use crate::write::ann_data_writer::{AnnDataSpec, AnnDataWriter, Matrix};
pub use crate::write::dataset_writer::{Compression, Layout};
pub use crate::write::frame_writer::{Cells, Column, ColumnKind, Frame, FrameSpec};
