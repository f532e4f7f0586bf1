/// How shards are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MdsCompression {
    /// Not at all: single rows can be read.
    None,
    /// Zstandard of this level, a shard as a whole.
    Zstd(i32),
}

/// How shards are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MdsOptions {
    /// How shards are compressed.
    pub compression: MdsCompression,
    /// Bytes of a shard at most, before it is compressed (one row more than that has a shard of its own).
    pub shard_bytes: u32,
}

impl Default for MdsOptions {
    /// As the package's writer.
    fn default() -> Self {
        Self { compression: MdsCompression::None, shard_bytes: 1 << 26 }
    }
}
