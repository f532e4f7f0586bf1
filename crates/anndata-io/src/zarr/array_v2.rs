use serde_json::Value as Json;

use super::array_meta::{ArrayMeta, Keys};
use super::codecs::{compressor, unknown};
use super::data_type::DataType;
use super::json::{Object, lengths, text};
use crate::matrix::filters::{Chain, Filter};

/// An array by its `.zarray` and `.zattrs`.
pub(super) fn parse(metadata: &Object, attributes: Object) -> Result<ArrayMeta, String> {
    let shape = lengths(metadata, "shape")?;
    let object = lengths(metadata, "chunks")?;
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
        let name = text(filter, "id").ok_or("its metadata has a filter without id")?;
        chain.push(compressor(name, filter, size)?.ok_or_else(|| unknown(name))?);
    }
    if vlen && data_type != DataType::Text {
        return Err("has a filter for strings and holds none".to_owned());
    }
    // Of one dimension, and of chunks of one row or column, both orders are the same.
    let trivial = object.iter().filter(|length| **length > 1).count() < 2;
    if text(metadata, "order") == Some("F") && !trivial {
        return Err("is written column by column (order F); write it again in C order".to_owned());
    }
    let keys = Keys { prefix: false, separator: Keys::separated(text(metadata, "dimension_separator"), '.')? };
    let fill = data_type.fill(metadata.get("fill_value").unwrap_or(&Json::Null))?;
    let chain = Chain::of(chain)?;
    ArrayMeta { shape, data_type, chunk: object.clone(), object, index: None, keys, chain, fill, attributes }.checked()
}
