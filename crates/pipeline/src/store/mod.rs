//! Where records are read from.
//!
//! The base store is LMDB: key = index of the sample as decimal text, value = UTF-8 JSON list with one
//! `{experiment, experiment_reference}`. It is written once, in bulk, and read-only afterwards.

mod decoder;
mod lmdb;
mod sample;
mod writer;

pub use decoder::RecordDecoder;
pub use lmdb::{LmdbReader, LmdbStore};
pub use sample::{MaskForm, Sample, StoredMasks};
pub(crate) use writer::{LmdbWriter, text_order};
