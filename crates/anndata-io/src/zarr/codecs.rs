use serde_json::Value as Json;

use super::json::{Object, lengths, named, text};
use super::shard_index::ShardIndex;
use crate::matrix::filters::Filter;

/// Codecs of version 3, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Codecs {
    /// How values become bytes.
    pub(super) to_bytes: ToBytes,
    /// What bytes become after that, in the order of writing.
    pub(super) filters: Vec<Filter>,
}

/// How values become bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ToBytes {
    /// One after another.
    Numbers { big_endian: bool },
    /// Strings with their lengths.
    Text,
    /// Several chunks with an index in one object.
    Shards(Box<Shards>),
}

/// What one object of a sharded array holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shards {
    /// Lengths of the chunks in it.
    pub(super) chunk: Vec<u64>,
    /// Where the index is, and what it looks like.
    pub(super) index: ShardIndex,
    /// What chunks are made with.
    pub(super) codecs: Codecs,
}

impl Codecs {
    /// Of a list in metadata, of an array of so many dimensions with values of so many bytes.
    pub(super) fn of(list: Option<&Json>, dimensions: usize, size: usize) -> Result<Self, String> {
        Self::within(list, dimensions, size, false)
    }

    fn within(list: Option<&Json>, dimensions: usize, size: usize, sharded: bool) -> Result<Self, String> {
        let list = list.and_then(Json::as_array).ok_or("its metadata has no list of codecs")?;
        let (mut to_bytes, mut filters) = (None, Vec::new());
        for codec in list {
            let (name, configuration) = named(codec)?;
            if let Some(filter) = filter(name, &configuration, size)? {
                if to_bytes.is_none() {
                    return Err(format!("has the codec {name:?} before one that makes bytes"));
                }
                filters.push(filter);
                continue;
            }
            let bytes = match name {
                "transpose" if is_identity(&configuration, dimensions) => continue,
                "transpose" if to_bytes.is_none() => {
                    return Err(
                        "is written with its dimensions in another order (codec transpose); write it again in C order"
                            .to_owned(),
                    );
                }
                "bytes" => ToBytes::Numbers { big_endian: big_endian(&configuration)? },
                "vlen-utf8" => ToBytes::Text,
                "sharding_indexed" if sharded => {
                    return Err("has shards in shards, which is not supported".to_owned());
                }
                "sharding_indexed" => ToBytes::Shards(Box::new(shards(&configuration, dimensions, size)?)),
                other => return Err(unknown(other)),
            };
            if to_bytes.replace(bytes).is_some() {
                return Err("has two codecs that make bytes".to_owned());
            }
        }
        let to_bytes = to_bytes.ok_or("has no codec that makes bytes")?;
        if matches!(to_bytes, ToBytes::Shards(_)) && !filters.is_empty() {
            return Err("has whole shards compressed, which is not supported; compress the chunks in them".to_owned());
        }
        Ok(Self { to_bytes, filters })
    }
}

/// The error for a codec or filter that is not one of those that are read.
pub(super) fn unknown(name: &str) -> String {
    let advice = match name {
        "delta" | "numcodecs.delta" | "fixedscaleoffset" | "quantize" | "bitround" | "packbits" => {
            " (a filter on values)"
        }
        _ => "",
    };
    format!(
        "is written with the codec {name:?}{advice}; those that can be read are blosc, zstd, gzip, zlib, lz4, shuffle, crc32c \
         and sharding_indexed: write it again with one of them"
    )
}

/// A codec from bytes to bytes of version 3; those of numcodecs have its prefix.
fn filter(name: &str, configuration: &Object, size: usize) -> Result<Option<Filter>, String> {
    Ok(Some(match name {
        "blosc" | "zstd" | "gzip" => return compressor(name, configuration, size),
        "crc32c" => Filter::Crc32c,
        other => match other.strip_prefix("numcodecs.") {
            Some(name) => return compressor(name, configuration, size),
            None => return Ok(None),
        },
    }))
}

/// A compressor or filter by its name in numcodecs, of values of so many bytes.
pub(super) fn compressor(name: &str, configuration: &Object, size: usize) -> Result<Option<Filter>, String> {
    Ok(Some(match name {
        "blosc" => Filter::Blosc,
        "zstd" => Filter::Zstd,
        "gzip" => Filter::Gzip,
        "zlib" => Filter::Deflate,
        "lz4" => Filter::PlainLz4,
        "shuffle" => {
            let element = configuration.get("elementsize").map_or(Some(size as u64), Json::as_u64);
            let element = element.filter(|bytes| (1..=256).contains(bytes));
            Filter::Shuffle(element.ok_or("has a shuffle of elements of no size")? as usize)
        }
        _ => return Ok(None),
    }))
}

fn is_identity(configuration: &Object, dimensions: usize) -> bool {
    match configuration.get("order") {
        Some(Json::String(order)) => order == "C" || dimensions < 2,
        _ => lengths(configuration, "order").is_ok_and(|order| order.into_iter().eq(0..dimensions as u64)),
    }
}

fn big_endian(configuration: &Object) -> Result<bool, String> {
    match text(configuration, "endian") {
        None | Some("little") => Ok(false),
        Some("big") => Ok(true),
        Some(other) => Err(format!("has bytes in the order {other:?}")),
    }
}

fn shards(configuration: &Object, dimensions: usize, size: usize) -> Result<Shards, String> {
    let chunk = lengths(configuration, "chunk_shape")?;
    let index = Codecs::within(configuration.get("index_codecs"), dimensions + 1, 8, true)
        .map_err(|reason| format!("the index of its shards {reason}"))?;
    let (ToBytes::Numbers { big_endian }, sum) = (&index.to_bytes, &index.filters[..]) else {
        return Err("has indices of shards that are no numbers".to_owned());
    };
    if !matches!(sum, [] | [Filter::Crc32c]) {
        return Err("has compressed indices of shards, which is not supported".to_owned());
    }
    let at_end = match text(configuration, "index_location") {
        None | Some("end") => true,
        Some("start") => false,
        Some(other) => return Err(format!("has the indices of its shards at {other:?}")),
    };
    let index = ShardIndex { at_end, big_endian: *big_endian, sum: !sum.is_empty() };
    let codecs = Codecs::within(configuration.get("codecs"), dimensions, size, true)?;
    Ok(Shards { chunk, index, codecs })
}
