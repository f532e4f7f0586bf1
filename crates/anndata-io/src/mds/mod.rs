//! MDS shards, as MosaicML's streaming 0.13 writes and reads them: a folder with `index.json` and `shard.00000.mds` …, each
//! as it is or compressed as a whole.
//!
//! Invariants: a shard is what the index says (length, samples, columns) before a sample of it is handed out; a compressed
//! one is decompressed as a whole, and its hashes are compared, before; no more memory is taken than the files have bytes
//! for. Formats follow the package's own `format/mds/writer.py`, `encodings.py` and `format/base/writer.py`.

pub mod encoding;
pub mod index;
pub mod obs;
pub mod reader;
pub mod sample;
pub mod shard;
pub mod store;
pub mod writer;
