//! MDS shards of MosaicML's streaming 0.13: a folder with `index.json` and `shard.00000.mds` …, each shard compressed as a
//! whole or not at all.
//!
//! Invariants: a shard is compared with the index (length, samples, columns) before a sample is read; a compressed shard is
//! decompressed as a whole, and its hash is checked first; no more memory is allocated than the files have bytes for. The
//! format follows `format/mds/writer.py`, `encodings.py` and `format/base/writer.py` of the package.

pub mod encoding;
pub mod error;
pub mod index;
pub mod obs;
pub mod reader;
pub mod sample;
pub mod shard;
pub mod store;
pub mod writer;
