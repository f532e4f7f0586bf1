use serde_json::{Map, Value as Json, json};

use super::nodes::{Nodes, number_codecs};
use crate::AnnDataError;
use crate::h5ad::export::{PartArray, PartValues};
use crate::matrix::filters::blosc;

/// Bytes of a chunk, about.
const CHUNK_BYTES: u64 = 4 << 20;
/// Strings of a chunk.
const CHUNK_TEXTS: u64 = 1 << 16;
/// Level of zstd.
const LEVEL: i32 = 3;

/// Write an array that is in memory, in chunks of whole rows.
pub(super) fn put(
    nodes: &mut Nodes,
    name: &str,
    array: &PartArray,
    attributes: Map<String, Json>,
) -> Result<(), AnnDataError> {
    let shape = &array.shape;
    let row: u64 = shape.iter().skip(1).product();
    let fitting = |each: u64, most: u64| (most / (row * each).max(1)).max(1);
    let (special, rows) = match &array.values {
        PartValues::Numbers(kind, size, _) => {
            let fill = if kind.starts_with("float") { json!(0.0) } else { json!(0) };
            let codecs = number_codecs(*size);
            (json!({"data_type": kind, "fill_value": fill, "codecs": codecs}), fitting(*size as u64, CHUNK_BYTES))
        }
        PartValues::Bools(_) => {
            let codecs = number_codecs(1);
            (json!({"data_type": "bool", "fill_value": false, "codecs": codecs}), fitting(1, CHUNK_BYTES))
        }
        PartValues::Texts(_) => {
            let zstd = json!({"name": "zstd", "configuration": {"level": LEVEL, "checksum": false}});
            let codecs = json!([{"name": "vlen-utf8", "configuration": {}}, zstd]);
            (json!({"data_type": "string", "fill_value": "", "codecs": codecs}), fitting(1, CHUNK_TEXTS))
        }
    };
    let all = shape.first().copied().unwrap_or(1);
    let rows = rows.min(all).max(1);
    let mut chunk: Vec<u64> = shape.iter().map(|length| (*length).max(1)).collect();
    if let Some(first) = chunk.first_mut() {
        *first = rows;
    }
    nodes.array(name, shape, &chunk, special, attributes)?;
    if shape.contains(&0) {
        return Ok(());
    }
    let folder = nodes.folder(name);
    let chunk_values = (rows * row) as usize;
    for number in 0..all.div_ceil(rows) {
        let mut path = folder.join("c");
        if !shape.is_empty() {
            path.push(number.to_string());
            // Chunks are as wide as the array.
            path.extend(shape.iter().skip(1).map(|_| "0"));
        }
        let bytes = encoded(&array.values, number as usize * chunk_values, chunk_values)
            .map_err(|reason| AnnDataError::damaged(&path, reason))?;
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(AnnDataError::io("create", parent))?;
        }
        std::fs::write(&path, bytes).map_err(AnnDataError::io("write", &path))?;
    }
    Ok(())
}

/// A chunk of `count` values from `start` on; what is beyond the end is 0.
fn encoded(values: &PartValues, start: usize, count: usize) -> Result<Vec<u8>, String> {
    let padded = |bytes: &[u8], size: usize| {
        let end = ((start + count) * size).min(bytes.len());
        let mut chunk = bytes[start * size..end].to_vec();
        chunk.resize(count * size, 0);
        chunk
    };
    match values {
        PartValues::Numbers(_, size, bytes) => blosc::compress(&padded(bytes, *size), *size),
        PartValues::Bools(values) => {
            let bytes: Vec<u8> = values.iter().map(|value| u8::from(*value)).collect();
            blosc::compress(&padded(&bytes, 1), 1)
        }
        PartValues::Texts(values) => {
            let long = |len: usize| u32::try_from(len).map_err(|_| "a string of 4 GiB cannot be written".to_owned());
            let mut chunk = long(count)?.to_le_bytes().to_vec();
            let of_chunk = &values[start..(start + count).min(values.len())];
            for text in of_chunk {
                chunk.extend(long(text.len())?.to_le_bytes());
                chunk.extend(text.as_bytes());
            }
            chunk.resize(chunk.len() + (count - of_chunk.len()) * 4, 0);
            zstd::bulk::compress(&chunk, LEVEL).map_err(|e| e.to_string())
        }
    }
}
