//! `Codecs`: the codecs of an array of version 3, parsed to the filters of a `FilterChain`. `ShardIndex` reads where the chunks of a shard lie.

use std::ops::Range;

use serde_json::Value as Json;

use crate::codec::filter_chain::Filter;
use crate::codec::filters::crc32c_verified;
use crate::source::byte_source::ByteSource;
use crate::zarr::metadata::{JsonObject, ZarrError, json_lengths, json_named, json_text};

/// Codecs of an array of version 3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Codecs {
    /// Array-to-bytes codec.
    pub to_bytes: ArrayToBytes,
    /// Bytes-to-bytes codecs, in the order of encoding.
    pub filters: Vec<Filter>,
}

/// Array-to-bytes codec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ArrayToBytes {
    /// Elements in order.
    Numbers { big_endian: bool },
    /// Strings with their lengths (`vlen-utf8`).
    Text,
    /// Several chunks with an index in one object (`sharding_indexed`).
    Shards(Box<ShardingCodec>),
}

/// Configuration of `sharding_indexed`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShardingCodec {
    /// Shape of an inner chunk.
    pub chunk: Vec<u64>,
    /// Position and encoding of the index.
    pub index: ShardIndex,
    /// Codecs of the inner chunks.
    pub codecs: Codecs,
}

impl Codecs {
    /// Parses a list of codecs, for an array with so many dimensions and elements of this size.
    pub fn of(list: Option<&Json>, dimensions: usize, size: usize) -> Result<Self, ZarrError> {
        Self::within(list, dimensions, size, false)
    }

    fn within(list: Option<&Json>, dimensions: usize, size: usize, sharded: bool) -> Result<Self, ZarrError> {
        let list = list.and_then(Json::as_array).ok_or(ZarrError::NoCodecs)?;
        let (mut to_bytes, mut filters) = (None, Vec::new());
        for codec in list {
            let (name, configuration) = json_named(codec)?;
            if let Some(filter) = bytes_codec(name, &configuration, size)? {
                if to_bytes.is_none() {
                    return Err(ZarrError::CodecOrder { codec: name.to_owned() });
                }
                filters.push(filter);
                continue;
            }
            let bytes = match name {
                "transpose" if is_identity(&configuration, dimensions) => continue,
                "transpose" if to_bytes.is_none() => return Err(ZarrError::Transposed),
                "bytes" => ArrayToBytes::Numbers { big_endian: big_endian(&configuration)? },
                "vlen-utf8" => ArrayToBytes::Text,
                "sharding_indexed" if sharded => return Err(ZarrError::NestedShards),
                "sharding_indexed" => ArrayToBytes::Shards(Box::new(sharding_codec(&configuration, dimensions, size)?)),
                other => return Err(ZarrError::UnknownCodec { codec: other.to_owned() }),
            };
            if to_bytes.replace(bytes).is_some() {
                return Err(ZarrError::TwoArrayCodecs);
            }
        }
        let to_bytes = to_bytes.ok_or(ZarrError::NoArrayCodec)?;
        if matches!(to_bytes, ArrayToBytes::Shards(_)) && !filters.is_empty() {
            return Err(ZarrError::CompressedShards);
        }
        Ok(Self { to_bytes, filters })
    }
}

/// A bytes-to-bytes codec of version 3; those of numcodecs have a prefix.
fn bytes_codec(name: &str, configuration: &JsonObject, size: usize) -> Result<Option<Filter>, ZarrError> {
    Ok(Some(match name {
        "blosc" | "zstd" | "gzip" => return compressor(name, configuration, size),
        "crc32c" => Filter::Crc32c,
        other => match other.strip_prefix("numcodecs.") {
            Some(name) => return compressor(name, configuration, size),
            None => return Ok(None),
        },
    }))
}

/// A compressor or filter of numcodecs, for elements of this size.
pub(crate) fn compressor(name: &str, configuration: &JsonObject, size: usize) -> Result<Option<Filter>, ZarrError> {
    Ok(Some(match name {
        "blosc" => Filter::Blosc,
        "zstd" => Filter::Zstd,
        "gzip" => Filter::Gzip,
        "zlib" => Filter::Deflate,
        "lz4" => Filter::PlainLz4,
        "shuffle" => {
            let element = configuration.get("elementsize").map_or(Some(size as u64), Json::as_u64);
            let element = element.filter(|bytes| (1..=256).contains(bytes));
            Filter::Shuffle(element.ok_or(ZarrError::ShuffleSize)? as usize)
        }
        _ => return Ok(None),
    }))
}

fn is_identity(configuration: &JsonObject, dimensions: usize) -> bool {
    match configuration.get("order") {
        Some(Json::String(order)) => order == "C" || dimensions < 2,
        _ => json_lengths(configuration, "order").is_ok_and(|order| order.into_iter().eq(0..dimensions as u64)),
    }
}

fn big_endian(configuration: &JsonObject) -> Result<bool, ZarrError> {
    match json_text(configuration, "endian") {
        None | Some("little") => Ok(false),
        Some("big") => Ok(true),
        Some(other) => Err(ZarrError::Endian { order: other.to_owned() }),
    }
}

fn sharding_codec(configuration: &JsonObject, dimensions: usize, size: usize) -> Result<ShardingCodec, ZarrError> {
    let chunk = json_lengths(configuration, "chunk_shape")?;
    let index = Codecs::within(configuration.get("index_codecs"), dimensions + 1, 8, true)
        .map_err(|error| ZarrError::Index(Box::new(error)))?;
    let (ArrayToBytes::Numbers { big_endian }, sum) = (&index.to_bytes, &index.filters[..]) else {
        return Err(ZarrError::IndexType);
    };
    if !matches!(sum, [] | [Filter::Crc32c]) {
        return Err(ZarrError::CompressedIndex);
    }
    let at_end = match json_text(configuration, "index_location") {
        None | Some("end") => true,
        Some("start") => false,
        Some(other) => return Err(ZarrError::IndexLocation { location: other.to_owned() }),
    };
    let index = ShardIndex { at_end, big_endian: *big_endian, sum: !sum.is_empty() };
    let codecs = Codecs::within(configuration.get("codecs"), dimensions, size, true)?;
    Ok(ShardingCodec { chunk, index, codecs })
}

/// The index of a shard: offset and size of each chunk, 64 bits each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShardIndex {
    /// Whether it is at the end of the shard, or at the start.
    at_end: bool,
    pub big_endian: bool,
    /// Whether a crc32c checksum follows it.
    pub sum: bool,
}

/// Size of an entry in bytes.
const INDEX_ENTRY_BYTES: u64 = 16;

impl ShardIndex {
    /// Reads the index of the shard at `range`: offset and size of each of `count` chunks; `None` for a chunk that was never
    /// written.
    pub fn read(
        self,
        source: &ByteSource,
        shard: &Range<u64>,
        count: u64,
    ) -> Result<Vec<Option<(u64, u32)>>, ZarrError> {
        let long = shard.end - shard.start;
        let bytes =
            count.checked_mul(INDEX_ENTRY_BYTES).and_then(|bytes| bytes.checked_add(if self.sum { 4 } else { 0 }));
        let Some(bytes) = bytes.filter(|bytes| *bytes <= long) else {
            return Err(ZarrError::ShortShard { bytes: long, chunks: count });
        };
        let offset = if self.at_end { shard.end - bytes } else { shard.start };
        let index = source.read_vec(offset, bytes as usize).map_err(|e| ZarrError::Read(Box::new(e)))?;
        let index = match self.sum {
            true => crc32c_verified(&index).ok_or(ZarrError::IndexChecksum)?,
            false => &index,
        };
        let (words, _) = index.as_chunks::<8>();
        let word = |word: &[u8; 8]| if self.big_endian { u64::from_be_bytes(*word) } else { u64::from_le_bytes(*word) };
        words
            .chunks_exact(2)
            .enumerate()
            .map(|(i, entry)| {
                let (first, bytes) = (word(&entry[0]), word(&entry[1]));
                if (first, bytes) == (u64::MAX, u64::MAX) {
                    return Ok(None);
                }
                match (first.checked_add(bytes), u32::try_from(bytes)) {
                    (Some(end), Ok(bytes)) if end <= long => Ok(Some((shard.start + first, bytes))),
                    _ => Err(ZarrError::IndexEntry { bytes: long, chunk: i, offset: first, len: bytes }),
                }
            })
            .collect()
    }
}
