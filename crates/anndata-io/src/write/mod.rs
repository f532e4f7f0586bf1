//! Writer of AnnData files in HDF5 (.h5ad).
//!
//! Invariants: a file gets its name only when it is complete; memory is bounded by a few chunks and eight bytes a row, whatever
//! the number of values; other programs read the result like AnnData's own files.

pub(crate) mod ann_data_writer;
pub(crate) mod dataset_writer;
pub(crate) mod frame_writer;
#[cfg(test)]
mod tests;

pub use crate::write::ann_data_writer::{AnnDataSpec, AnnDataWriter, Matrix};
pub use crate::write::dataset_writer::{Compression, Layout};
pub use crate::write::frame_writer::{Cells, Column, ColumnKind, Frame, FrameSpec};
