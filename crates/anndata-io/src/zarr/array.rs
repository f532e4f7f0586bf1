//! `ZarrArray`: an array and the objects (files) that have its chunks. It becomes a `StoredArray` for the matrix; columns of obs and var are read as
//! a whole here.
//! Invariant: the number of objects, of unwritten elements and of bytes of strings is bounded before they are looked up or allocated.

use crate::annotation::column::ColumnValues;
use crate::annotation::frame::FrameError;
use crate::matrix::dtype::{Dtype, DtypeKind, Element};
use crate::matrix::stored_array::{
    ArrayLayout, ChunkGrid, ChunkTable, ChunkedLayout, LayoutError, StoredArray, StoredChunk,
};
use crate::source::byte_source::ByteSource;
use crate::zarr::data_type::DataType;
use crate::zarr::hierarchy::Hierarchy;
use crate::zarr::metadata::{ArrayMetadata, ZarrError};

/// Maximum number of objects of an array; each is looked up as a file.
pub(crate) const MAX_OBJECTS: u64 = 1 << 20;

/// Maximum size of the unwritten part of an array that is read as a whole, in bytes.
const MAX_UNWRITTEN_BYTES: u64 = 1 << 28;

/// An array with the objects that its metadata describes.
pub(crate) struct ZarrArray {
    /// Name in the folder.
    pub name: String,
    pub meta: ArrayMetadata,
    /// Number of objects along each dimension.
    across: Vec<u64>,
}

impl ZarrArray {
    /// # Errors
    /// There are too many objects to look up.
    pub fn new(name: &str, meta: ArrayMetadata) -> Result<Self, ZarrError> {
        let across: Vec<u64> = meta.shape.iter().zip(&meta.object).map(|(len, of)| len.div_ceil(*of)).collect();
        let all = across.iter().try_fold(1u64, |all, n| all.checked_mul(*n)).filter(|all| *all <= MAX_OBJECTS);
        if all.is_none() {
            return Err(ZarrError::TooManyObjects { shape: meta.shape, object: meta.object });
        }
        Ok(Self { name: name.to_owned(), meta, across })
    }

    /// Keys of all objects, row-major.
    pub fn keys(&self) -> Vec<String> {
        let all: u64 = self.across.iter().product();
        (0..all).map(|number| format!("{}/{}", self.name, self.meta.keys.key(&self.place(number)))).collect()
    }

    /// Position of an object along each dimension.
    fn place(&self, mut number: u64) -> Vec<u64> {
        let mut place = vec![0; self.across.len()];
        for (place, across) in place.iter_mut().zip(&self.across).rev() {
            (*place, number) = (number % across, number / across);
        }
        place
    }

    /// The chunk table: `parts[i]` is the part of the source that has the object of the i-th of [`Self::keys`].
    pub fn table(&self, source: &ByteSource, parts: &[Option<usize>]) -> Result<(ChunkGrid, ChunkTable), ZarrError> {
        let meta = &self.meta;
        let grid = ChunkGrid::new(&meta.shape, &meta.chunk, meta.data_type.size().unwrap_or(1).max(1) as u64)?;
        if meta.shape.contains(&0) {
            return Ok((grid, ChunkTable::default()));
        }
        let all = grid.chunks()?;
        let mut found = Vec::new();
        for (object, part) in parts.iter().enumerate() {
            let Some(part) = part else { continue };
            let place = self.place(object as u64);
            self.of_object(source, source.file_range(*part), &place, &mut found)
                .map_err(|error| ZarrError::Object { key: meta.keys.key(&place), error: Box::new(error) })?;
        }
        let total: u64 = found.iter().map(|(_, chunk): &(u64, StoredChunk)| u64::from(chunk.bytes)).sum();
        if total > source.bytes() {
            return Err(LayoutError::TooLarge { bytes: total, file_bytes: source.bytes() }.into());
        }
        Ok((grid, ChunkTable::new(found, all)?))
    }

    /// Chunks of one object: one, or those of a shard.
    fn of_object(
        &self,
        source: &ByteSource,
        addresses: std::ops::Range<u64>,
        place: &[u64],
        found: &mut Vec<(u64, StoredChunk)>,
    ) -> Result<(), ZarrError> {
        let (meta, long) = (&self.meta, addresses.end - addresses.start);
        // Chunks along each dimension, of an object and of the whole array.
        let inner: Vec<u64> = meta.object.iter().zip(&meta.chunk).map(|(object, chunk)| object / chunk).collect();
        let grid: Vec<u64> = meta.shape.iter().zip(&meta.chunk).map(|(len, chunk)| len.div_ceil(*chunk)).collect();
        let Some(index) = meta.index else {
            let bytes = u32::try_from(long).map_err(|_| ZarrError::LargeObject { bytes: long })?;
            found.push((chunk_number(place, &grid), StoredChunk { offset: addresses.start, bytes, mask: 0 }));
            return Ok(());
        };
        let count = inner.iter().try_fold(1u64, |all, n| all.checked_mul(*n)).ok_or(LayoutError::TooManyChunks)?;
        for (i, chunk) in index.read(source, &addresses, count)?.into_iter().enumerate() {
            let Some((offset, bytes)) = chunk else { continue };
            let mut rest = i as u64;
            let mut at = vec![0; inner.len()];
            for (d, at) in at.iter_mut().enumerate().rev() {
                *at = place[d] * inner[d] + rest % inner[d];
                rest /= inner[d];
            }
            // The index also has entries beyond the edge of the array.
            if at.iter().zip(&grid).all(|(at, across)| at < across) {
                found.push((chunk_number(&at, &grid), StoredChunk { offset, bytes, mask: 0 }));
            }
        }
        Ok(())
    }

    /// The array as `ArrayReader` reads it, with the dtype of the file. Strings of a fixed length are uint8 elements.
    pub fn stored(&self, source: &ByteSource, parts: &[Option<usize>]) -> Result<StoredArray, ZarrError> {
        let (grid, table) = self.table(source, parts)?;
        let ArrayMetadata { shape, data_type, filters, .. } = &self.meta;
        let (dtype, each) = match *data_type {
            DataType::Number(dtype) => (dtype, 1),
            DataType::Bool => (Dtype { kind: DtypeKind::U8, big_endian: false }, 1),
            DataType::Text => return Err(ZarrError::Strings),
            DataType::Bytes(_) | DataType::Letters { .. } => {
                (Dtype { kind: DtypeKind::U8, big_endian: false }, data_type.size().unwrap_or(1).max(1) as u64)
            }
        };
        let len: u64 = shape.iter().product::<u64>() * each;
        let grid = ChunkGrid { columns: grid.columns * each, chunk_columns: grid.chunk_columns * each, ..grid };
        let (layout, stored_bytes) = if len == 0 {
            (ArrayLayout::Contiguous(Vec::new()), 0)
        } else {
            let chunks = ChunkedLayout { grid, table, filters: filters.clone(), plain_edge: false };
            chunks.checked(dtype.size() as u64, source.bytes())?
        };
        let fill_value = self.meta.fill_value[..dtype.size().min(self.meta.fill_value.len())].to_vec();
        let fill_value = if fill_value.is_empty() { vec![0; dtype.size()] } else { fill_value };
        Ok(StoredArray {
            name: self.name.clone(),
            dtype,
            len,
            fill_value,
            may_be_unwritten: true,
            stored_bytes,
            layout,
        })
    }
}

/// Fails if the unwritten part of an array that is read as a whole is too large.
pub(crate) fn check_unwritten(stored: &StoredArray) -> Result<(), ZarrError> {
    let values = match &stored.layout {
        ArrayLayout::Inline(_) => 0,
        ArrayLayout::Contiguous(runs) => {
            let starts = std::iter::once(0).chain(runs.iter().map(|run| run.end));
            runs.iter()
                .zip(starts)
                .filter(|(run, _)| run.base_offset.is_none())
                .map(|(run, start)| run.end - start)
                .sum()
        }
        ArrayLayout::Chunked(chunks) => {
            let written = chunks.table.written().len() as u64;
            stored.len.saturating_sub(written.saturating_mul(chunks.grid.chunk_len()))
        }
    };
    check_unwritten_values(values, stored.dtype.size() as u64)
}

/// Fails if so many unwritten values of this size are too large.
fn check_unwritten_values(values: u64, size: u64) -> Result<(), ZarrError> {
    if values.saturating_mul(size) <= MAX_UNWRITTEN_BYTES {
        return Ok(());
    }
    Err(ZarrError::Unwritten { values })
}

/// Row-major number of a chunk. For chunks that are as wide as the array these numbers run along its one long row.
fn chunk_number(place: &[u64], across: &[u64]) -> u64 {
    place.iter().zip(across).fold(0, |number, (place, across)| number * across + place)
}

/// Maximum size of the strings of one chunk in bytes.
const MAX_TEXT_BYTES: usize = 1 << 28;

/// Reads all of a one-dimensional array, at most `most` values.
///
/// # Errors
/// The array is larger or has more dimensions; it is damaged; its type is not supported.
pub(crate) fn read_values(
    tree: &Hierarchy,
    name: &str,
    meta: ArrayMetadata,
    most: u64,
) -> Result<ColumnValues, FrameError> {
    let [len] = meta.shape[..] else { return Err(FrameError::Dimensions { shape: meta.shape }) };
    if len > most {
        return Err(FrameError::TooManyValues { values: len, max_values: most });
    }
    let array = ZarrArray::new(name, meta)?;
    let (source, parts) = tree.source(&[&array])?;
    let values = values_of(&array, &source, &parts[0], len)?;
    source.at_path()?;
    Ok(values)
}

fn values_of(
    array: &ZarrArray,
    source: &ByteSource,
    parts: &[Option<usize>],
    len: u64,
) -> Result<ColumnValues, FrameError> {
    Ok(match array.meta.data_type {
        DataType::Text => ColumnValues::Text(read_texts(array, source, parts, len)?),
        DataType::Bytes(bytes) => {
            ColumnValues::Text(fixed_length_strings(read_numbers(array, source, parts)?, len, bytes, |bytes| {
                String::from_utf8(bytes.to_vec()).ok()
            })?)
        }
        DataType::Letters { letters, big_endian } => {
            let letter = |bytes: &[u8; 4]| {
                let code = if big_endian { u32::from_be_bytes(*bytes) } else { u32::from_le_bytes(*bytes) };
                char::from_u32(code)
            };
            let text = |bytes: &[u8]| bytes.as_chunks::<4>().0.iter().map(letter).collect::<Option<String>>();
            ColumnValues::Text(fixed_length_strings(read_numbers(array, source, parts)?, len, letters * 4, text)?)
        }
        DataType::Bool => {
            let bytes: Vec<u8> = read_numbers(array, source, parts)?;
            let truth = |byte: u8| match byte {
                0 => Ok(false),
                1 => Ok(true),
                value => Err(FrameError::Bool { value }),
            };
            ColumnValues::Bool(bytes.into_iter().map(truth).collect::<Result<_, _>>()?)
        }
        DataType::Number(dtype) if !dtype.is_integer() && dtype.size() <= 4 => {
            ColumnValues::Single(read_numbers(array, source, parts)?)
        }
        DataType::Number(dtype) if !dtype.is_integer() => ColumnValues::Double(read_numbers(array, source, parts)?),
        DataType::Number(dtype) => {
            let bits: Vec<u64> = read_numbers(array, source, parts)?;
            match dtype.is_signed() {
                // Signed integers were read as unsigned ones of the same bits.
                true => ColumnValues::Signed(bits.into_iter().map(|value| value as i64).collect()),
                false => ColumnValues::Unsigned(bits),
            }
        }
    })
}

/// Reads all numbers.
fn read_numbers<T: Element>(
    array: &ZarrArray,
    source: &ByteSource,
    parts: &[Option<usize>],
) -> Result<Vec<T>, FrameError> {
    let stored = array.stored(source, parts)?;
    check_unwritten(&stored)?;
    Ok(stored.read_whole(source)?)
}

/// Strings of `size` bytes each, padded with zeros.
fn fixed_length_strings(
    all: Vec<u8>,
    len: u64,
    size: usize,
    text: impl Fn(&[u8]) -> Option<String>,
) -> Result<Vec<String>, FrameError> {
    if size == 0 {
        return Ok(vec![String::new(); len as usize]);
    }
    all.chunks_exact(size)
        .enumerate()
        .map(|(i, bytes)| {
            let text = text(bytes).ok_or(FrameError::Text { index: i })?;
            Ok(text.trim_end_matches('\0').to_owned())
        })
        .collect()
}

/// Strings of variable length: each chunk has the number of its strings, then the length in bytes and the UTF-8 bytes of each;
/// integers are little-endian with 4 bytes.
///
/// Source: numcodecs' vlen.pyx.
fn read_texts(
    array: &ZarrArray,
    source: &ByteSource,
    parts: &[Option<usize>],
    len: u64,
) -> Result<Vec<String>, FrameError> {
    let (grid, table) = array.table(source, parts)?;
    let mut all: Vec<String> = Vec::new();
    let filled = |to: u64, all: &mut Vec<String>| {
        check_unwritten_values(to.saturating_sub(all.len() as u64), size_of::<String>() as u64)?;
        all.resize(to as usize, String::new());
        Ok::<_, FrameError>(())
    };
    for (number, chunk) in table.iter() {
        let start = number.saturating_mul(grid.chunk_columns);
        filled(start.min(len), &mut all)?;
        let raw = source.read_vec(chunk.offset, chunk.bytes as usize)?;
        let data = array.meta.filters.undo_all(&raw, MAX_TEXT_BYTES);
        let data = data.map_err(|error| FrameError::Chunk { chunk: number, error })?;
        let wanted = (len - start).min(grid.chunk_columns);
        chunk_texts(&data, wanted, &mut all).ok_or(FrameError::Strings { chunk: number, strings: wanted })?;
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
    // Each string takes at least the 4 bytes of its length.
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
