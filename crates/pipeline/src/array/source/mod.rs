//! Bytes that stores are made of.
//!
//! Invariants: bytes are read at positions, by any number of threads at a time; what was read is what was opened, or an error
//! says that it is not, which [`Source::unchanged`] has to be asked for after a batch was read.

mod folder;
mod late;
mod local;
mod part;
mod piece;
pub mod remote;
mod source_type;

pub(in crate::array) use folder::Folder;
pub(in crate::array) use late::Late;
pub(in crate::array) use part::url_of;
pub(in crate::array) use piece::Piece;
pub(in crate::array) use source_type::{Source, as_uninit};
