use super::array_meta::ArrayMeta;
use super::data_type::DataType;
use super::describe::{Array, bounded_holes, few_holes};
use super::shard_index;
use super::tree::Tree;
use crate::AnnDataError;
use crate::annotation::Values;
use crate::matrix::element::Element;
use crate::source::Source;

/// Bytes that the strings of one chunk take at most.
const MOST_TEXT: usize = 1 << 28;

/// All of an array of one dimension, of `most` values at most.
///
/// # Errors
/// It is larger or has more dimensions; it is damaged, or of a type that is not read.
pub(super) fn read_values(tree: &Tree, name: &str, meta: ArrayMeta, most: u64) -> Result<Values, String> {
    let &[len] = &meta.shape[..] else {
        return Err(format!("it has the shape {:?} where one dimension is expected", meta.shape));
    };
    if len > most {
        return Err(format!("it has {len} values where there can be {most} at most"));
    }
    let array = Array::new(name, meta).map_err(|reason| format!("it {reason}"))?;
    let (source, parts) = tree.source(&[&array]).map_err(inner)?;
    let values = values(&array, &source, &parts[0], len)?;
    source.at_path().map_err(inner)?;
    Ok(values)
}

fn values(array: &Array, source: &Source, parts: &[Option<usize>], len: u64) -> Result<Values, String> {
    Ok(match array.meta.data_type {
        DataType::Text => Values::Text(texts(array, source, parts, len)?),
        DataType::Bytes(bytes) => Values::Text(fixed(numbers(array, source, parts)?, len, bytes, |bytes| {
            String::from_utf8(bytes.to_vec()).ok()
        })?),
        DataType::Letters { letters, big_endian } => {
            let letter = |bytes: &[u8; 4]| {
                let code = if big_endian { u32::from_be_bytes(*bytes) } else { u32::from_le_bytes(*bytes) };
                char::from_u32(code)
            };
            let text = |bytes: &[u8]| bytes.as_chunks::<4>().0.iter().map(letter).collect::<Option<String>>();
            Values::Text(fixed(numbers(array, source, parts)?, len, letters * 4, text)?)
        }
        DataType::Bool => {
            let bytes: Vec<u8> = numbers(array, source, parts)?;
            let truth = |byte: u8| match byte {
                0 => Ok(false),
                1 => Ok(true),
                other => Err(format!("it has the value {other} where True and False are 1 and 0")),
            };
            Values::Bool(bytes.into_iter().map(truth).collect::<Result<_, _>>()?)
        }
        DataType::Number(number) if !number.is_integer() && number.size() <= 4 => {
            Values::Single(numbers(array, source, parts)?)
        }
        DataType::Number(number) if !number.is_integer() => Values::Double(numbers(array, source, parts)?),
        DataType::Number(number) => {
            let bits: Vec<u64> = numbers(array, source, parts)?;
            match number.is_signed() {
                // Signed ones became those of the same bits.
                true => Values::Signed(bits.into_iter().map(|value| value as i64).collect()),
                false => Values::Unsigned(bits),
            }
        }
    })
}

/// All numbers.
fn numbers<T: Element>(array: &Array, source: &Source, parts: &[Option<usize>]) -> Result<Vec<T>, String> {
    let stored = array.stored(source, parts).map_err(|reason| format!("it {reason}"))?;
    few_holes(&stored).map_err(|reason| format!("it {reason}"))?;
    stored.read_whole(source).map_err(inner)
}

/// Strings of `size` bytes each with zeros behind them.
fn fixed(all: Vec<u8>, len: u64, size: usize, text: impl Fn(&[u8]) -> Option<String>) -> Result<Vec<String>, String> {
    if size == 0 {
        return Ok(vec![String::new(); len as usize]);
    }
    all.chunks_exact(size)
        .enumerate()
        .map(|(i, bytes)| {
            let text = text(bytes).ok_or_else(|| format!("string {i} of it is no text"))?;
            Ok(text.trim_end_matches('\0').to_owned())
        })
        .collect()
}

/// Strings of any length: of each chunk their number, and of each its length in bytes and its bytes in UTF-8; numbers have 4
/// bytes, least significant first.
///
/// Source: numcodecs' vlen.pyx.
fn texts(array: &Array, source: &Source, parts: &[Option<usize>], len: u64) -> Result<Vec<String>, String> {
    let (grid, table) = array.table(source, parts).map_err(|reason| format!("it {reason}"))?;
    let mut all: Vec<String> = Vec::new();
    let filled = |to: u64, all: &mut Vec<String>| {
        bounded_holes(to.saturating_sub(all.len() as u64), size_of::<String>() as u64)
            .map_err(|reason| format!("it {reason}"))?;
        all.resize(to as usize, String::new());
        Ok::<_, String>(())
    };
    for (number, chunk) in table.iter() {
        let start = number.saturating_mul(grid.chunk_columns);
        filled(start.min(len), &mut all)?;
        let raw = shard_index::read(source, chunk.offset, chunk.bytes as usize)?;
        let data =
            array.meta.chain.undo_all(&raw, MOST_TEXT).map_err(|reason| format!("chunk {number} of it {reason}"))?;
        let wanted = (len - start).min(grid.chunk_columns);
        chunk_texts(&data, wanted, &mut all)
            .ok_or_else(|| format!("chunk {number} of it holds no {wanted} strings"))?;
    }
    filled(len, &mut all)?;
    Ok(all)
}

/// The first `wanted` strings of a chunk.
fn chunk_texts(data: &[u8], wanted: u64, all: &mut Vec<String>) -> Option<()> {
    let number = |data: &mut &[u8]| {
        let (number, rest) = data.split_first_chunk::<4>()?;
        *data = rest;
        Some(u32::from_le_bytes(*number))
    };
    let mut data = data;
    // Each has at least its length.
    if u64::from(number(&mut data)?) < wanted || wanted > data.len() as u64 / 4 {
        return None;
    }
    for _ in 0..wanted {
        let bytes = number(&mut data)? as usize;
        let (text, rest) = data.split_at_checked(bytes)?;
        all.push(str::from_utf8(text).ok()?.to_owned());
        data = rest;
    }
    Some(())
}

fn inner(e: AnnDataError) -> String {
    e.to_string()
}
