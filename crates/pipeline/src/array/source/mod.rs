//! Bytes that stores are made of.
//!
//! Invariants: bytes are read at positions, by any number of threads at a time; what was read is what was opened, or an error
//! says that it is not, which [`Source::unchanged`] has to be asked for after a batch was read.

mod folder;
mod local;
mod piece;
mod source_type;

pub(in crate::array) use folder::Folder;
pub(in crate::array) use piece::Piece;
pub(in crate::array) use source_type::Source;
