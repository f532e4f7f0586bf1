use serde_json::Value as Json;

use super::array_meta::{ArrayMeta, Keys};
use super::codecs::{Codecs, ToBytes};
use super::data_type::DataType;
use super::json::{Object, lengths, named, text};
use crate::matrix::filters::Chain;

/// An array by its `zarr.json`.
pub(super) fn parse(metadata: &Object, attributes: Object) -> Result<ArrayMeta, String> {
    let shape = lengths(metadata, "shape")?;
    let data_type = DataType::of_v3(metadata.get("data_type").unwrap_or(&Json::Null))?;
    let (grid, configuration) = named(metadata.get("chunk_grid").unwrap_or(&Json::Null))?;
    if grid != "regular" {
        return Err(format!("has chunks in a grid {grid:?}; regular ones can be read"));
    }
    let object = lengths(&configuration, "chunk_shape")?;
    if metadata.get("storage_transformers").and_then(Json::as_array).is_some_and(|list| !list.is_empty()) {
        return Err("has storage transformers, which are not supported".to_owned());
    }
    let keys = match named(metadata.get("chunk_key_encoding").unwrap_or(&Json::Null))? {
        ("default", of) => Keys { prefix: true, separator: Keys::separated(text(&of, "separator"), '/')? },
        ("v2", of) => Keys { prefix: false, separator: Keys::separated(text(&of, "separator"), '.')? },
        (other, _) => return Err(format!("has keys of the encoding {other:?}; default and v2 can be read")),
    };
    let codecs = Codecs::of(metadata.get("codecs"), shape.len(), data_type.size().unwrap_or(1))?;
    let (chunk, index, codecs) = match codecs.to_bytes {
        ToBytes::Shards(shards) => (shards.chunk, Some(shards.index), shards.codecs),
        _ => (object.clone(), None, codecs),
    };
    let data_type = match (data_type, codecs.to_bytes) {
        (DataType::Text, ToBytes::Text) => DataType::Text,
        (DataType::Text, _) | (_, ToBytes::Text) => {
            return Err("has codecs that do not go with its type".to_owned());
        }
        (of, ToBytes::Numbers { big_endian }) => of.ordered(big_endian),
        (_, ToBytes::Shards(_)) => return Err("has shards in shards, which is not supported".to_owned()),
    };
    let fill = data_type.fill(metadata.get("fill_value").unwrap_or(&Json::Null))?;
    let chain = Chain::of(codecs.filters)?;
    ArrayMeta { shape, data_type, object, chunk, index, keys, chain, fill, attributes }.checked()
}
