//! Bytes that stores are made of.
//!
//! Invariants: bytes are read at positions, by any number of threads at a time; what was read is what was opened, or an error
//! says that it is not, which `ByteSource::unchanged` has to be asked for after a batch was read.

pub mod byte_source;
pub mod coalesce;
pub mod folder;
pub mod local_file;
pub mod remote;
