//! MDS shards, as MosaicML's streaming 0.13 writes and reads them: a folder with `index.json` and `shard.00000.mds` …, each
//! as it is or compressed as a whole.
//!
//! Invariants: a shard is what the index says (length, samples, columns) before a sample of it is handed out; a compressed
//! one is decompressed as a whole, and its hashes are compared, before; no more memory is taken than the files have bytes
//! for. Formats follow the package's own `format/mds/writer.py`, `encodings.py` and `format/base/writer.py`.

mod array;
mod codec;
mod dtype;
mod encoding;
mod genes;
mod hashes;
mod index;
mod kept;
mod layout;
mod obs;
mod obs_values;
mod options;
mod python_json;
mod reader;
mod sample;
mod shard;
mod source;
mod store;
mod writer;

pub use index::INDEX_FILE;
pub use options::{MdsCompression, MdsOptions};
pub use store::MdsStore;
pub use writer::MdsWriter;
