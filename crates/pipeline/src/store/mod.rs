//! Where records are read from.
//!
//! The base store is LMDB: key = index of the sample as decimal text, value = UTF-8 JSON list with one
//! `{experiment, experiment_reference}`. It is written once, in bulk, and read-only afterwards.
//!
//! Stores that are made from it have the same keys and hold what the published pickles held: every mask as the positions of
//! its False entries, a byte or a bit an entry, each record an NPZ archive; or genes and label alone.

mod decoder;
mod encoder;
mod ids;
mod lmdb;
mod lmdb_file;
mod lmdb_meta;
mod lmdb_tree;
mod mask_decoder;
mod mask_encoder;
mod mask_fields;
mod npz;
mod npz_walk;
mod page_set;
mod sample;
mod store_decoder;
mod value_size;
mod writer;

pub use decoder::RecordDecoder;
pub(crate) use encoder::StoreEncoder;
pub use lmdb::{LmdbReader, LmdbStore};
pub use mask_fields::MaskSizes;
pub use sample::{MaskForm, Sample, StoredMasks};
pub use store_decoder::StoreDecoder;
pub(crate) use value_size::value_bytes;
pub(crate) use writer::{LmdbWriter, text_order};
