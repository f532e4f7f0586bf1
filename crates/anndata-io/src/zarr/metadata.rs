//! `ArrayMetadata`: shape, chunks, codecs and fill value of an array, parsed from `.zarray` (version 2) or `zarr.json` (version 3).
//! Invariant: no chunk length is 0, chunks divide their shards, and the bytes of an array can be counted in an i64.

use serde_json::{Map, Value as Json};

use crate::AnnDataError;
use crate::codec::CodecError;
use crate::codec::filter_chain::{Filter, FilterChain};
use crate::matrix::stored_array::LayoutError;
use crate::zarr::array::MAX_OBJECTS;
use crate::zarr::codecs::{ArrayToBytes, Codecs, ShardIndex, compressor};
use crate::zarr::data_type::DataType;

/// Why a folder is no zarr, or an array or group of it cannot be read. The texts are predicates of the node.
#[derive(Debug, thiserror::Error)]
pub enum ZarrError {
    #[error("is no zarr folder: it has neither zarr.json nor .zgroup")]
    NoRoot,
    #[error("is one array, where AnnData has a group")]
    RootIsArray,
    #[error("is no JSON object: {0}")]
    Json(serde_json::Error),
    #[error("has metadata that is no object")]
    NotObject,
    #[error("does not say which version of zarr it is (zarr_format)")]
    NoVersion,
    #[error("is of version {found} of zarr where {expected} is expected")]
    Version { found: Json, expected: u64 },
    #[error("does not say whether it is a group or an array (node_type)")]
    NoNodeType,
    #[error("is of the type {node_type:?} instead of a group")]
    NodeType { node_type: String },
    #[error(
        "has no matrix {location}; it is a collection of annbatch, whose parts are given by name: {folder}/dataset_*"
    )]
    AnnbatchCollection { location: String, folder: String },

    #[error("its metadata has no list of lengths {key}")]
    NoLengths { key: String },
    #[error("something in its metadata has no name")]
    Unnamed,
    #[error("something in its metadata is neither a name nor an object")]
    NotExtension,
    #[error("has a shape of {shape:?} and chunks of {object:?} and {chunk:?}")]
    ChunkDimensions { shape: Vec<u64>, object: Vec<u64>, chunk: Vec<u64> },
    #[error("has chunks of {chunk:?} in objects of {object:?}")]
    ChunkShape { object: Vec<u64>, chunk: Vec<u64> },
    #[error("has chunks in a grid {grid:?}; regular ones can be read")]
    Grid { grid: String },
    #[error("has keys of the encoding {encoding:?}; default and v2 can be read")]
    KeyEncoding { encoding: String },
    #[error("has keys with {separator:?} between numbers")]
    Separator { separator: String },
    #[error("has storage transformers, which are not supported")]
    Transformers,
    #[error("is written column by column (order F); write it again in C order")]
    ColumnOrder,
    #[error("has the type {name:?}; numbers of up to 64 bits, bool and strings can be read")]
    Type { name: String },
    #[error("has the type {of}; records cannot be read")]
    Records { of: Json },
    #[error("holds objects that are no strings (no filter vlen-utf8)")]
    Objects,
    #[error("has a filter for strings and holds none")]
    NoStrings,
    #[error("has the fill value {value}, which is none of its type")]
    FillValue { value: Json },

    #[error("its metadata has filters that are no list")]
    FilterList,
    #[error("its metadata has a filter that is no object, or has no id")]
    Filter,
    #[error("its metadata has no list of codecs")]
    NoCodecs,
    #[error(
        "is written with the codec {codec:?}{}; those that can be read are blosc, zstd, gzip, zlib, lz4, shuffle, crc32c and \
         sharding_indexed: write it again with one of them",
        if is_value_filter(codec) { " (a filter on values)" } else { "" }
    )]
    UnknownCodec { codec: String },
    #[error("has the codec {codec:?} before one that makes bytes")]
    CodecOrder { codec: String },
    #[error("has no codec that makes bytes")]
    NoArrayCodec,
    #[error("has two codecs that make bytes")]
    TwoArrayCodecs,
    #[error("is written with its dimensions in another order (codec transpose); write it again in C order")]
    Transposed,
    #[error("has codecs that do not go with its type")]
    CodecType,
    #[error("has a shuffle of elements of no size")]
    ShuffleSize,
    #[error("has bytes in the order {order:?}")]
    Endian { order: String },
    #[error("has shards in shards, which is not supported")]
    NestedShards,
    #[error("has whole shards compressed, which is not supported; compress the chunks in them")]
    CompressedShards,
    #[error("the index of its shards {0}")]
    Index(Box<ZarrError>),
    #[error("has indices of shards that are no numbers")]
    IndexType,
    #[error("has compressed indices of shards, which is not supported")]
    CompressedIndex,
    #[error("has the indices of its shards at {location:?}")]
    IndexLocation { location: String },

    #[error(
        "has a shape of {shape:?} in files of {object:?}; more than {MAX_OBJECTS} files are not supported: write it with larger \
         chunks, or with shards"
    )]
    TooManyObjects { shape: Vec<u64>, object: Vec<u64> },
    /// The object with this key has the error.
    #[error("{key} {error}")]
    Object { key: String, error: Box<ZarrError> },
    #[error("has {bytes} bytes, more than are supported")]
    LargeObject { bytes: u64 },
    #[error("has {bytes} bytes, too few for the index of its {chunks} chunks (is it cut short?)")]
    ShortShard { bytes: u64, chunks: u64 },
    #[error("has a damaged index: its checksum (crc32c) is another one")]
    IndexChecksum,
    #[error("has {bytes} bytes, and chunk {chunk} in it is said to have {len} at {offset}")]
    IndexEntry { bytes: u64, chunk: usize, offset: u64, len: u64 },
    #[error("holds strings instead of numbers")]
    Strings,
    #[error("says that it has {values} values that were not written, more than can be read at once")]
    Unwritten { values: u64 },

    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// An object cannot be read.
    #[error("cannot be read: {0}")]
    Read(Box<AnnDataError>),
}

/// Whether a codec changes values, not only their bytes.
fn is_value_filter(codec: &str) -> bool {
    matches!(codec, "delta" | "numcodecs.delta" | "fixedscaleoffset" | "quantize" | "bitround" | "packbits")
}

/// Metadata of an array, of version 2 or 3.
#[derive(Clone, Debug)]
pub(crate) struct ArrayMetadata {
    pub shape: Vec<u64>,
    pub data_type: DataType,
    /// Shape of an object (a file): a chunk or a shard. No length is 0.
    pub object: Vec<u64>,
    /// Shape of a chunk, which is decoded as a whole. It divides the shape of an object.
    pub chunk: Vec<u64>,
    /// The index of a shard, for a sharded array.
    pub index: Option<ShardIndex>,
    pub keys: ChunkKeys,
    pub filters: FilterChain,
    /// The fill value as bytes.
    pub fill_value: Vec<u8>,
    pub attributes: JsonObject,
}

/// Chunk key encoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChunkKeys {
    /// Whether keys start with `c`.
    pub prefix: bool,
    /// Separator: `.` or `/`.
    pub separator: char,
}

impl ChunkKeys {
    /// Key of an object, from its position along each dimension.
    pub fn key(&self, place: &[u64]) -> String {
        let mut key = String::new();
        if self.prefix {
            key.push('c');
        }
        for (i, number) in place.iter().enumerate() {
            if i > 0 || self.prefix {
                key.push(self.separator);
            }
            key += &number.to_string();
        }
        // An array without dimensions has one object.
        if key.is_empty() { "0".to_owned() } else { key }
    }

    /// Parses a separator.
    fn separated(separator: Option<&str>, default: char) -> Result<char, ZarrError> {
        match separator {
            None => Ok(default),
            Some(".") => Ok('.'),
            Some("/") => Ok('/'),
            Some(other) => Err(ZarrError::Separator { separator: other.to_owned() }),
        }
    }
}

impl ArrayMetadata {
    /// Checks that the lengths fit each other.
    pub fn checked(self) -> Result<Self, ZarrError> {
        let Self { shape, object, chunk, .. } = &self;
        if object.len() != shape.len() || chunk.len() != shape.len() {
            let Self { shape, object, chunk, .. } = self;
            return Err(ZarrError::ChunkDimensions { shape, object, chunk });
        }
        let fits = |(object, chunk): (&u64, &u64)| *chunk > 0 && *object > 0 && object % chunk == 0;
        if !object.iter().zip(chunk).all(fits) {
            let Self { object, chunk, .. } = self;
            return Err(ZarrError::ChunkShape { object, chunk });
        }
        let size = self.data_type.size().unwrap_or(1).max(1) as u64;
        for lengths in [shape, object] {
            let bytes = lengths.iter().try_fold(size, |bytes, length| bytes.checked_mul(*length));
            if bytes.is_none_or(|bytes| bytes > i64::MAX as u64) {
                return Err(LayoutError::Shape { shape: lengths.clone() }.into());
            }
        }
        Ok(self)
    }

    /// A text attribute.
    pub fn text(&self, name: &str) -> Option<&str> {
        json_text(&self.attributes, name)
    }
}

/// Parses `.zarray` and `.zattrs`.
pub(crate) fn parse_v2(metadata: &JsonObject, attributes: JsonObject) -> Result<ArrayMetadata, ZarrError> {
    let shape = json_lengths(metadata, "shape")?;
    let object = json_lengths(metadata, "chunks")?;
    let none = Vec::new();
    let filters = match metadata.get("filters") {
        None | Some(Json::Null) => &none,
        Some(Json::Array(filters)) => filters,
        Some(_) => return Err(ZarrError::FilterList),
    };
    let is_vlen = |filter: &Json| filter.get("id").and_then(Json::as_str) == Some("vlen-utf8");
    let vlen = filters.first().is_some_and(is_vlen);
    let data_type = DataType::of_v2(metadata.get("dtype").unwrap_or(&Json::Null), vlen)?;
    let size = data_type.size().unwrap_or(1);
    let mut chain: Vec<Filter> = Vec::new();
    let compression = metadata.get("compressor").filter(|compressor| !compressor.is_null());
    for filter in filters.iter().skip(usize::from(vlen)).chain(compression) {
        let filter = filter.as_object().ok_or(ZarrError::Filter)?;
        let name = json_text(filter, "id").ok_or(ZarrError::Filter)?;
        let filter = compressor(name, filter, size)?;
        chain.push(filter.ok_or_else(|| ZarrError::UnknownCodec { codec: name.to_owned() })?);
    }
    if vlen && data_type != DataType::Text {
        return Err(ZarrError::NoStrings);
    }
    // For one dimension, and for chunks of one row or column, both orders are the same.
    let trivial = object.iter().filter(|length| **length > 1).count() < 2;
    if json_text(metadata, "order") == Some("F") && !trivial {
        return Err(ZarrError::ColumnOrder);
    }
    let keys =
        ChunkKeys { prefix: false, separator: ChunkKeys::separated(json_text(metadata, "dimension_separator"), '.')? };
    let fill_value = data_type.fill_value(metadata.get("fill_value").unwrap_or(&Json::Null))?;
    let filters = FilterChain::from_filters(chain)?;
    ArrayMetadata {
        shape,
        data_type,
        chunk: object.clone(),
        object,
        index: None,
        keys,
        filters,
        fill_value,
        attributes,
    }
    .checked()
}

/// Parses `zarr.json`.
pub(crate) fn parse_v3(metadata: &JsonObject, attributes: JsonObject) -> Result<ArrayMetadata, ZarrError> {
    let shape = json_lengths(metadata, "shape")?;
    let data_type = DataType::of_v3(metadata.get("data_type").unwrap_or(&Json::Null))?;
    let (grid, configuration) = json_named(metadata.get("chunk_grid").unwrap_or(&Json::Null))?;
    if grid != "regular" {
        return Err(ZarrError::Grid { grid: grid.to_owned() });
    }
    let object = json_lengths(&configuration, "chunk_shape")?;
    if metadata.get("storage_transformers").and_then(Json::as_array).is_some_and(|list| !list.is_empty()) {
        return Err(ZarrError::Transformers);
    }
    let keys = match json_named(metadata.get("chunk_key_encoding").unwrap_or(&Json::Null))? {
        ("default", of) => {
            ChunkKeys { prefix: true, separator: ChunkKeys::separated(json_text(&of, "separator"), '/')? }
        }
        ("v2", of) => ChunkKeys { prefix: false, separator: ChunkKeys::separated(json_text(&of, "separator"), '.')? },
        (other, _) => return Err(ZarrError::KeyEncoding { encoding: other.to_owned() }),
    };
    let codecs = Codecs::of(metadata.get("codecs"), shape.len(), data_type.size().unwrap_or(1))?;
    let (chunk, index, codecs) = match codecs.to_bytes {
        ArrayToBytes::Shards(shards) => (shards.chunk, Some(shards.index), shards.codecs),
        _ => (object.clone(), None, codecs),
    };
    let data_type = match (data_type, codecs.to_bytes) {
        (DataType::Text, ArrayToBytes::Text) => DataType::Text,
        (DataType::Text, _) | (_, ArrayToBytes::Text) => return Err(ZarrError::CodecType),
        (of, ArrayToBytes::Numbers { big_endian }) => of.ordered(big_endian),
        (_, ArrayToBytes::Shards(_)) => return Err(ZarrError::NestedShards),
    };
    let fill_value = data_type.fill_value(metadata.get("fill_value").unwrap_or(&Json::Null))?;
    let filters = FilterChain::from_filters(codecs.filters)?;
    ArrayMetadata { shape, data_type, object, chunk, index, keys, filters, fill_value, attributes }.checked()
}

/// The object at `name`, such as the attributes of a node.
pub(crate) type JsonObject = Map<String, Json>;

/// The text at `name`, if there is one.
pub(crate) fn json_text<'a>(of: &'a JsonObject, name: &str) -> Option<&'a str> {
    of.get(name).and_then(Json::as_str)
}

/// The integers at `name`, such as the lengths of dimensions.
pub(crate) fn json_lengths(of: &JsonObject, name: &str) -> Result<Vec<u64>, ZarrError> {
    let list = of.get(name).and_then(Json::as_array);
    let lengths = list.and_then(|list| list.iter().map(Json::as_u64).collect::<Option<Vec<u64>>>());
    lengths.ok_or_else(|| ZarrError::NoLengths { key: name.to_owned() })
}

/// Name and configuration of an extension of version 3: an object with both, or the name alone.
pub(crate) fn json_named(of: &Json) -> Result<(&str, JsonObject), ZarrError> {
    match of {
        Json::String(name) => Ok((name, JsonObject::new())),
        Json::Object(object) => {
            let name = json_text(object, "name").ok_or(ZarrError::Unnamed)?;
            let configuration = object.get("configuration").and_then(Json::as_object);
            Ok((name, configuration.cloned().unwrap_or_default()))
        }
        _ => Err(ZarrError::NotExtension),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_as_specified() {
        let key = |prefix, separator, place: &[u64]| ChunkKeys { prefix, separator }.key(place);
        assert_eq!(key(true, '/', &[1, 23]), "c/1/23");
        assert_eq!(key(true, '.', &[1, 23]), "c.1.23");
        assert_eq!(key(true, '/', &[]), "c");
        assert_eq!(key(false, '.', &[1, 23]), "1.23");
        assert_eq!(key(false, '/', &[0]), "0");
        assert_eq!(key(false, '.', &[]), "0");
    }
}
