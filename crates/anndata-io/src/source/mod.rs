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

pub(crate) use folder::Folder;
pub(crate) use late::Late;
pub(crate) use part::url_of;
pub(crate) use piece::Piece;
pub(crate) use source_type::{Source, as_uninit};
