//! `StoredArray` says where the elements of an array lie in a file: inline, contiguous, or in the chunks of a grid. The readers of h5ad and zarr
//! metadata make it; `ArrayReader` reads it.
//! Invariant: each chunk lies inside the file and has enough bytes to decode to its size; this is checked once, when the array is opened.

use std::mem::MaybeUninit;

use crate::AnnDataError;
use crate::codec::filter_chain::FilterChain;
use crate::matrix::array_reader::ArrayReader;
use crate::matrix::dtype::{Dtype, Element};
use crate::source::byte_source::ByteSource;

/// Bytes of a decompressed chunk, at most: a larger one is taken for damage, and no memory is allocated for it.
pub(crate) const MAX_CHUNK_BYTES: u64 = 1 << 30;

/// Where the elements of an array of one or two dimensions lie in a file, row by row.
#[derive(Clone, Debug)]
pub(crate) struct StoredArray {
    /// The array's name in the file.
    pub name: String,
    pub dtype: Dtype,
    /// Number of elements.
    pub len: u64,
    /// Bytes of the element that stands for elements that were never written.
    pub fill_value: Vec<u8>,
    /// Whether the file may leave elements unwritten: zarr leaves out chunks that hold the fill value only.
    pub may_be_unwritten: bool,
    /// Bytes in the file.
    pub stored_bytes: u64,
    pub layout: ArrayLayout,
}

/// How the elements of an array lie in a file.
#[derive(Clone, Debug)]
pub(crate) enum ArrayLayout {
    /// In the header of the data set (HDF5's compact layout): their bytes.
    Inline(Vec<u8>),
    /// Uncompressed, in runs that follow each other.
    Contiguous(Vec<ContiguousRun>),
    /// In chunks that are compressed, or that do not span whole rows.
    Chunked(ChunkedLayout),
}

/// Elements that lie together, uncompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContiguousRun {
    /// Index behind the run's last element.
    pub end: u64,
    /// File offset of element 0, extrapolated from this run: element `i` is at `base_offset + i × size`. `None`: the elements were
    /// never written and have the fill value.
    pub base_offset: Option<i64>,
}

/// The chunks of an array.
#[derive(Clone, Debug)]
pub(crate) struct ChunkedLayout {
    pub grid: ChunkGrid,
    pub table: ChunkTable,
    pub filters: FilterChain,
    /// Chunks at the edge of the array are uncompressed, an option of HDF5.
    pub plain_edge: bool,
}

/// A grid of chunks over rows and columns. An array of one dimension, and one whose chunks span whole rows, is one long row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkGrid {
    pub rows: u64,
    pub columns: u64,
    pub chunk_rows: u64,
    pub chunk_columns: u64,
}

/// Elements that lie together in one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkPart {
    /// Number of the chunk in the grid.
    pub chunk: u64,
    /// Index of the first element in the chunk.
    pub within: u32,
    /// Number of elements.
    pub count: u32,
}

/// Why the chunks of an array cannot be read. The texts are predicates of the array.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    #[error("has a shape of {shape:?}, which no file can hold")]
    Shape { shape: Vec<u64> },
    #[error("has {dimensions} dimensions instead of one or two")]
    Dimensions { dimensions: usize },
    #[error("has a shape of {shape:?} and chunks of {chunk:?}")]
    ChunkDimensions { shape: Vec<u64>, chunk: Vec<u64> },
    #[error("has chunks of {chunk:?}: more than {MAX_CHUNK_BYTES} bytes are not supported")]
    ChunkBytes { chunk: Vec<u64> },
    #[error("has more chunks than can be counted")]
    TooManyChunks,
    #[error("has chunk {chunk} twice")]
    RepeatedChunk { chunk: u64 },
    #[error("has a chunk {chunk} of {chunks}")]
    ChunkBeyondGrid { chunk: u64, chunks: u64 },
    #[error("reaches beyond the end of the file: {bytes} bytes at {offset} of {file_bytes} (is it cut short?)")]
    BeyondEnd { offset: u64, bytes: u64, file_bytes: u64 },
    #[error("chunk {chunk} {error}")]
    Chunk { chunk: u64, error: Box<LayoutError> },
    #[error("has {stored} bytes in the file and cannot be of {bytes}")]
    StoredBytes { stored: u64, bytes: u64 },
    #[error("has chunks of {bytes} bytes in a file of {file_bytes}")]
    TooLarge { bytes: u64, file_bytes: u64 },
}

/// Fails if a range is not within a file of `file_bytes` bytes.
pub(crate) fn check_inside(offset: u64, bytes: u64, file_bytes: u64) -> Result<(), LayoutError> {
    match offset.checked_add(bytes) {
        Some(end) if end <= file_bytes => Ok(()),
        _ => Err(LayoutError::BeyondEnd { offset, bytes, file_bytes }),
    }
}

impl ChunkGrid {
    /// The grid of an array of one or two dimensions with chunks of shape `chunk`, whose elements have `size` bytes.
    ///
    /// # Errors
    /// The array has another number of dimensions; a chunk is empty, or larger than [`MAX_CHUNK_BYTES`].
    pub fn new(shape: &[u64], chunk: &[u64], size: u64) -> Result<Self, LayoutError> {
        if !(1..=2).contains(&shape.len()) {
            return Err(LayoutError::Dimensions { dimensions: shape.len() });
        }
        let bytes = chunk.iter().try_fold(size, |bytes, length| bytes.checked_mul(*length));
        if bytes.is_none_or(|bytes| !(1..=MAX_CHUNK_BYTES).contains(&bytes)) {
            return Err(LayoutError::ChunkBytes { chunk: chunk.to_vec() });
        }
        Ok(match (shape, chunk) {
            (&[len], &[chunk]) => Self { rows: 1, columns: len, chunk_rows: 1, chunk_columns: chunk },
            (&[rows, columns], &[chunk_rows, chunk_columns]) if columns == chunk_columns => {
                Self { rows: 1, columns: rows * columns, chunk_rows: 1, chunk_columns: chunk_rows * chunk_columns }
            }
            (&[rows, columns], &[chunk_rows, chunk_columns]) => Self { rows, columns, chunk_rows, chunk_columns },
            _ => return Err(LayoutError::ChunkDimensions { shape: shape.to_vec(), chunk: chunk.to_vec() }),
        })
    }

    /// Chunks of a row.
    pub const fn across(&self) -> u64 {
        self.columns.div_ceil(self.chunk_columns)
    }

    /// Chunks of the grid.
    ///
    /// # Errors
    /// They are more than 2^64.
    pub fn chunks(&self) -> Result<u64, LayoutError> {
        self.rows.div_ceil(self.chunk_rows).checked_mul(self.across()).ok_or(LayoutError::TooManyChunks)
    }

    /// Elements of a chunk.
    pub const fn chunk_len(&self) -> u64 {
        self.chunk_rows * self.chunk_columns
    }

    /// The first of the `count` elements from `start` on: as many as lie together in one row of one chunk.
    pub fn first(&self, start: u64, count: u64) -> ChunkPart {
        let (row, column) = (start / self.columns, start % self.columns);
        let chunk = row / self.chunk_rows * self.across() + column / self.chunk_columns;
        let within_column = column % self.chunk_columns;
        let within = row % self.chunk_rows * self.chunk_columns + within_column;
        let count = count.min(self.columns - column).min(self.chunk_columns - within_column);
        // A chunk has fewer than 2^32 elements.
        ChunkPart { chunk, within: within as u32, count: count as u32 }
    }

    /// Whether the chunk reaches over the edge of the array.
    pub fn is_edge(&self, chunk: u64) -> bool {
        let (down, right) = (chunk / self.across(), chunk % self.across());
        (down + 1) * self.chunk_rows > self.rows || (right + 1) * self.chunk_columns > self.columns
    }
}

impl StoredArray {
    /// Reads all elements.
    pub fn read_whole<T: Element>(&self, source: &ByteSource) -> Result<Vec<T>, AnnDataError> {
        let mut out = Vec::new();
        let mut reader = ArrayReader::new(self, source);
        reader.begin(out.len());
        reader.add(0, self.len);
        reader.fetch(&mut out)?;
        reader.finish(&mut out)?;
        reader.decode(&mut out)?;
        Ok(out)
    }

    /// Elements that are decompressed together; 1 if any element can be read by itself.
    pub fn decoded_together(&self) -> u64 {
        match &self.layout {
            ArrayLayout::Chunked(chunks) if !chunks.filters.is_empty() => chunks.grid.chunk_len(),
            _ => 1,
        }
    }

    /// Whether elements lie in the file as they are needed in memory, so that they can be read straight to their destination.
    pub fn is_direct<T: Element>(&self) -> bool {
        T::is(self.dtype) && matches!(self.layout, ArrayLayout::Contiguous(_))
    }

    /// Whether ranges can be read to any indices of a buffer that other readers fill too.
    pub fn can_be_placed<T: Element>(&self) -> bool {
        self.is_direct::<T>() || matches!(self.layout, ArrayLayout::Chunked(_))
    }

    /// Whether an element was never written that should have been.
    pub fn is_unfinished(&self) -> bool {
        !self.may_be_unwritten && self.has_unwritten()
    }

    /// Whether an element was never written.
    fn has_unwritten(&self) -> bool {
        match &self.layout {
            ArrayLayout::Inline(_) => false,
            ArrayLayout::Contiguous(runs) => runs.iter().any(|run| run.base_offset.is_none()),
            ArrayLayout::Chunked(chunks) => {
                !chunks.grid.chunks().is_ok_and(|count| count == chunks.table.written().len() as u64)
            }
        }
    }
}

impl ChunkedLayout {
    /// Compares the chunks with the file of `file_bytes` bytes, and returns the layout of their array and their size in the file.
    /// Elements have `size` bytes.
    pub fn checked(self, size: u64, file_bytes: u64) -> Result<(ArrayLayout, u64), LayoutError> {
        let bytes = self.grid.chunk_len() * size;
        let mut total = 0u64;
        for (chunk, at) in self.table.iter() {
            let stored = u64::from(at.bytes);
            let plain = self.filters.is_empty() || self.plain_edge && self.grid.is_edge(chunk);
            let fits = match plain && stored != bytes || self.filters.max_decoded_bytes(stored) < bytes {
                true => Err(LayoutError::StoredBytes { stored, bytes }),
                false => Ok(()),
            };
            check_inside(at.offset, stored, file_bytes)
                .and(fits)
                .map_err(|error| LayoutError::Chunk { chunk, error: Box::new(error) })?;
            total += stored;
        }
        if total > file_bytes {
            return Err(LayoutError::TooLarge { bytes: total, file_bytes });
        }
        if self.filters.is_empty() && self.grid.rows == 1 {
            return Ok((ArrayLayout::Contiguous(contiguous_runs(&self.table, &self.grid, size)), total));
        }
        Ok((ArrayLayout::Chunked(self), total))
    }
}

/// Memory of elements as bytes.
pub(crate) fn as_bytes<T: Element>(elements: &mut [MaybeUninit<T>]) -> &mut [MaybeUninit<u8>] {
    // SAFETY: the same memory, as long; what is not initialised stays so; any bytes are a `T` (it is `Pod`).
    unsafe { std::slice::from_raw_parts_mut(elements.as_mut_ptr().cast(), size_of_val(elements)) }
}

/// Where a chunk lies in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredChunk {
    pub offset: u64,
    /// Bytes in the file.
    pub bytes: u32,
    /// Bit i: filter i was skipped.
    pub mask: u32,
}

/// The chunks of an array that were written, by their number in the grid.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChunkTable {
    /// Ascending; empty if all chunks were written.
    numbers: Vec<u64>,
    chunks: Vec<StoredChunk>,
}

impl ChunkTable {
    /// The chunks that were found of a grid of `count` chunks.
    ///
    /// # Errors
    /// A chunk was found twice, or is not in the grid.
    pub fn new(mut found: Vec<(u64, StoredChunk)>, count: u64) -> Result<Self, LayoutError> {
        found.sort_unstable_by_key(|(number, _)| *number);
        if let Some(twice) = found.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(LayoutError::RepeatedChunk { chunk: twice[0].0 });
        }
        if let Some((beyond, _)) = found.last().filter(|(number, _)| *number >= count) {
            return Err(LayoutError::ChunkBeyondGrid { chunk: *beyond, chunks: count });
        }
        let chunks = found.iter().map(|(_, chunk)| *chunk).collect();
        let numbers = if found.len() as u64 == count { Vec::new() } else { found.iter().map(|(n, _)| *n).collect() };
        Ok(Self { numbers, chunks })
    }

    /// A chunk; `None` if it was never written.
    pub fn get(&self, number: u64) -> Option<StoredChunk> {
        let at = if self.numbers.is_empty() { number as usize } else { self.numbers.binary_search(&number).ok()? };
        self.chunks.get(at).copied()
    }

    /// The chunks that were written.
    pub fn written(&self) -> &[StoredChunk] {
        &self.chunks
    }

    /// The chunks that were written with their numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u64, StoredChunk)> + '_ {
        let number = |at: usize| self.numbers.get(at).copied().unwrap_or(at as u64);
        self.chunks.iter().enumerate().map(move |(at, chunk)| (number(at), *chunk))
    }
}

/// The uncompressed chunks of one long row as runs: chunks that are adjacent in the file are one run.
fn contiguous_runs(table: &ChunkTable, grid: &ChunkGrid, size: u64) -> Vec<ContiguousRun> {
    let mut runs: Vec<ContiguousRun> = Vec::new();
    let mut end = 0;
    let mut push = |start: u64, run: ContiguousRun| match runs.last_mut() {
        Some(last) if last.base_offset == run.base_offset && last.end == start => last.end = run.end,
        _ => runs.push(run),
    };
    for (number, chunk) in table.iter() {
        let start = number * grid.chunk_columns;
        if start > end {
            push(end, ContiguousRun { end: start, base_offset: None });
        }
        let next = (start + grid.chunk_columns).min(grid.columns);
        // Both are less than 2^63: offsets are inside the file, and the whole array has fewer bytes.
        push(start, ContiguousRun { end: next, base_offset: Some(chunk.offset as i64 - (start * size) as i64) });
        end = next;
    }
    if end < grid.columns {
        push(end, ContiguousRun { end: grid.columns, base_offset: None });
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The parts of any stretch are its numbers, each where a plain count over rows, columns and chunks says.
        #[test]
        fn parts_are_where_they_are(
            (rows, columns, chunk_rows, chunk_columns) in (1u64..9, 1u64..9, 1u64..5, 1u64..12),
            (start, len) in (0u64..80, 0u64..80),
        ) {
            let grid = ChunkGrid { rows, columns, chunk_rows, chunk_columns };
            let (mut at, end) = (start.min(rows * columns), (start + len).min(rows * columns));
            while at < end {
                let part = grid.first(at, end - at);
                prop_assert!(part.count > 0 && part.chunk < grid.chunks().unwrap());
                for i in 0..u64::from(part.count) {
                    let (row, column) = ((at + i) / columns, (at + i) % columns);
                    let across = columns.div_ceil(chunk_columns);
                    prop_assert_eq!(part.chunk, row / chunk_rows * across + column / chunk_columns);
                    let within = row % chunk_rows * chunk_columns + column % chunk_columns;
                    prop_assert_eq!(u64::from(part.within) + i, within);
                }
                at += u64::from(part.count);
            }
            prop_assert_eq!(at, end.max(at));
        }
    }
}
