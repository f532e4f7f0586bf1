use serde_json::{Map, Value as Json};

use crate::codec::filter_chain::{Filter, FilterChain};
use crate::zarr::codecs::{ArrayToBytes, Codecs, ShardIndex, compressor, unknown_codec};
use crate::zarr::data_type::DataType;

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
    fn separated(separator: Option<&str>, default: char) -> Result<char, String> {
        match separator {
            None => Ok(default),
            Some(".") => Ok('.'),
            Some("/") => Ok('/'),
            Some(other) => Err(format!("has keys with {other:?} between numbers")),
        }
    }
}

impl ArrayMetadata {
    /// Checks that the lengths fit each other; `Err` names those that do not.
    pub fn checked(self) -> Result<Self, String> {
        let Self { shape, object, chunk, .. } = &self;
        if object.len() != shape.len() || chunk.len() != shape.len() {
            return Err(format!("has a shape of {shape:?} and chunks of {object:?} and {chunk:?}"));
        }
        let fits = |(object, chunk): (&u64, &u64)| *chunk > 0 && *object > 0 && object % chunk == 0;
        if !object.iter().zip(chunk).all(fits) {
            return Err(format!("has chunks of {chunk:?} in objects of {object:?}"));
        }
        let size = self.data_type.size().unwrap_or(1).max(1) as u64;
        for lengths in [shape, object] {
            let bytes = lengths.iter().try_fold(size, |bytes, length| bytes.checked_mul(*length));
            if bytes.is_none_or(|bytes| bytes > i64::MAX as u64) {
                return Err(format!("has lengths of {lengths:?}, which no file can hold"));
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
pub(crate) fn parse_v2(metadata: &JsonObject, attributes: JsonObject) -> Result<ArrayMetadata, String> {
    let shape = json_lengths(metadata, "shape")?;
    let object = json_lengths(metadata, "chunks")?;
    let none = Vec::new();
    let filters = match metadata.get("filters") {
        None | Some(Json::Null) => &none,
        Some(Json::Array(filters)) => filters,
        Some(_) => return Err("its metadata has filters that are no list".to_owned()),
    };
    let is_vlen = |filter: &Json| filter.get("id").and_then(Json::as_str) == Some("vlen-utf8");
    let vlen = filters.first().is_some_and(is_vlen);
    let data_type = DataType::of_v2(metadata.get("dtype").unwrap_or(&Json::Null), vlen)?;
    let size = data_type.size().unwrap_or(1);
    let mut chain: Vec<Filter> = Vec::new();
    let compression = metadata.get("compressor").filter(|compressor| !compressor.is_null());
    for filter in filters.iter().skip(usize::from(vlen)).chain(compression) {
        let Some(filter) = filter.as_object() else {
            return Err("its metadata has a filter that is no object".to_owned());
        };
        let name = json_text(filter, "id").ok_or("its metadata has a filter without id")?;
        chain.push(compressor(name, filter, size)?.ok_or_else(|| unknown_codec(name))?);
    }
    if vlen && data_type != DataType::Text {
        return Err("has a filter for strings and holds none".to_owned());
    }
    // For one dimension, and for chunks of one row or column, both orders are the same.
    let trivial = object.iter().filter(|length| **length > 1).count() < 2;
    if json_text(metadata, "order") == Some("F") && !trivial {
        return Err("is written column by column (order F); write it again in C order".to_owned());
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
pub(crate) fn parse_v3(metadata: &JsonObject, attributes: JsonObject) -> Result<ArrayMetadata, String> {
    let shape = json_lengths(metadata, "shape")?;
    let data_type = DataType::of_v3(metadata.get("data_type").unwrap_or(&Json::Null))?;
    let (grid, configuration) = json_named(metadata.get("chunk_grid").unwrap_or(&Json::Null))?;
    if grid != "regular" {
        return Err(format!("has chunks in a grid {grid:?}; regular ones can be read"));
    }
    let object = json_lengths(&configuration, "chunk_shape")?;
    if metadata.get("storage_transformers").and_then(Json::as_array).is_some_and(|list| !list.is_empty()) {
        return Err("has storage transformers, which are not supported".to_owned());
    }
    let keys = match json_named(metadata.get("chunk_key_encoding").unwrap_or(&Json::Null))? {
        ("default", of) => {
            ChunkKeys { prefix: true, separator: ChunkKeys::separated(json_text(&of, "separator"), '/')? }
        }
        ("v2", of) => ChunkKeys { prefix: false, separator: ChunkKeys::separated(json_text(&of, "separator"), '.')? },
        (other, _) => return Err(format!("has keys of the encoding {other:?}; default and v2 can be read")),
    };
    let codecs = Codecs::of(metadata.get("codecs"), shape.len(), data_type.size().unwrap_or(1))?;
    let (chunk, index, codecs) = match codecs.to_bytes {
        ArrayToBytes::Shards(shards) => (shards.chunk, Some(shards.index), shards.codecs),
        _ => (object.clone(), None, codecs),
    };
    let data_type = match (data_type, codecs.to_bytes) {
        (DataType::Text, ArrayToBytes::Text) => DataType::Text,
        (DataType::Text, _) | (_, ArrayToBytes::Text) => {
            return Err("has codecs that do not go with its type".to_owned());
        }
        (of, ArrayToBytes::Numbers { big_endian }) => of.ordered(big_endian),
        (_, ArrayToBytes::Shards(_)) => return Err("has shards in shards, which is not supported".to_owned()),
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
pub(crate) fn json_lengths(of: &JsonObject, name: &str) -> Result<Vec<u64>, String> {
    let list = of.get(name).and_then(Json::as_array);
    let lengths = list.and_then(|list| list.iter().map(Json::as_u64).collect::<Option<Vec<u64>>>());
    lengths.ok_or_else(|| format!("its metadata has no list of lengths {name}"))
}

/// Name and configuration of an extension of version 3: an object with both, or the name alone.
pub(crate) fn json_named(of: &Json) -> Result<(&str, JsonObject), String> {
    match of {
        Json::String(name) => Ok((name, JsonObject::new())),
        Json::Object(object) => {
            let name = json_text(object, "name").ok_or("something in its metadata has no name")?;
            let configuration = object.get("configuration").and_then(Json::as_object);
            Ok((name, configuration.cloned().unwrap_or_default()))
        }
        _ => Err("something in its metadata is neither a name nor an object".to_owned()),
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
