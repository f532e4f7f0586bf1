use std::mem::MaybeUninit;

use crate::AnnDataError;
use crate::codec::filter_chain::FilterChain;
use crate::matrix::array_reader::ArrayReader;
use crate::matrix::dtype::{Dtype, Element};
use crate::source::byte_source::ByteSource;

/// Larger chunks are of no use to anybody, and a reason to allocate much memory.
pub(crate) const MAX_CHUNK_BYTES: u64 = 1 << 30;

/// Where the numbers of a data set of one or two dimensions lie in the file, row by row.
#[derive(Clone, Debug)]
pub(crate) struct StoredArray {
    /// Its name in the file.
    pub name: String,
    pub number: Dtype,
    /// How many.
    pub len: u64,
    /// Bytes of the number that was never written.
    pub fill: Vec<u8>,
    /// That number is as good as one that was written: zarr leaves out chunks that hold nothing else.
    pub fill_counts: bool,
    /// Bytes in the file.
    pub stored_bytes: u64,
    pub place: ArrayLayout,
}

/// How they lie.
#[derive(Clone, Debug)]
pub(crate) enum ArrayLayout {
    /// In the header of the data set (HDF5's compact layout).
    Memory(Vec<u8>),
    /// As they are.
    Plain(Vec<ContiguousRun>),
    /// In chunks that a row has several of, or that are compressed.
    ChunkedLayout(ChunkedLayout),
}

/// Numbers that lie together, uncompressed. Runs follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContiguousRun {
    /// Number behind the last of them.
    pub end: u64,
    /// Where number 0 would lie, were the run as long; `None` if they were never written.
    pub zero: Option<i64>,
}

/// Chunks of a grid.
#[derive(Clone, Debug)]
pub(crate) struct ChunkedLayout {
    pub grid: ChunkGrid,
    pub table: ChunkTable,
    pub chain: FilterChain,
    /// HDF5 may leave chunks at the edge uncompressed.
    pub plain_edge: bool,
}

/// A grid of chunks over rows and columns. What has one dimension, and what has chunks as wide as its rows, is one long row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkGrid {
    pub rows: u64,
    pub columns: u64,
    pub chunk_rows: u64,
    pub chunk_columns: u64,
}

/// A part of a chunk that lies together in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkPart {
    /// Number of the chunk.
    pub chunk: u64,
    /// First number in the chunk.
    pub within: u32,
    /// Numbers.
    pub count: u32,
}

impl ChunkGrid {
    /// Of an array of one or two dimensions with chunks of these lengths, of which no chunk has more than 2^32 numbers; `None`
    /// of another number of dimensions.
    pub fn of(shape: &[u64], chunk: &[u64]) -> Option<Self> {
        Some(match (shape, chunk) {
            (&[len], &[chunk]) => Self { rows: 1, columns: len, chunk_rows: 1, chunk_columns: chunk },
            (&[rows, columns], &[chunk_rows, chunk_columns]) if columns == chunk_columns => {
                Self { rows: 1, columns: rows * columns, chunk_rows: 1, chunk_columns: chunk_rows * chunk_columns }
            }
            (&[rows, columns], &[chunk_rows, chunk_columns]) => Self { rows, columns, chunk_rows, chunk_columns },
            _ => return None,
        })
    }

    /// Chunks beside each other.
    pub const fn across(&self) -> u64 {
        self.columns.div_ceil(self.chunk_columns)
    }

    /// Chunks of the grid; `None` if that is beyond all reason.
    pub const fn chunks(&self) -> Option<u64> {
        self.rows.div_ceil(self.chunk_rows).checked_mul(self.across())
    }

    /// Numbers of a chunk.
    pub const fn chunk_len(&self) -> u64 {
        self.chunk_rows * self.chunk_columns
    }

    /// The first part of the `count` numbers from `start` on.
    pub fn first(&self, start: u64, count: u64) -> ChunkPart {
        let (row, column) = (start / self.columns, start % self.columns);
        let chunk = row / self.chunk_rows * self.across() + column / self.chunk_columns;
        let within_column = column % self.chunk_columns;
        let within = row % self.chunk_rows * self.chunk_columns + within_column;
        let count = count.min(self.columns - column).min(self.chunk_columns - within_column);
        // A chunk has fewer than 2^32 numbers.
        ChunkPart { chunk, within: within as u32, count: count as u32 }
    }

    /// The chunk reaches over the edge.
    pub fn is_edge(&self, chunk: u64) -> bool {
        let (down, right) = (chunk / self.across(), chunk % self.across());
        (down + 1) * self.chunk_rows > self.rows || (right + 1) * self.chunk_columns > self.columns
    }
}

impl StoredArray {
    /// All numbers.
    pub fn read_whole<T: Element>(&self, source: &ByteSource) -> Result<Vec<T>, AnnDataError> {
        let mut out = Vec::new();
        let mut reader = ArrayReader::new(self, source);
        reader.begin(out.len());
        reader.want(0, self.len);
        reader.fetch(&mut out)?;
        reader.finish(&mut out)?;
        reader.decode(&mut out)?;
        Ok(out)
    }

    /// Numbers that are decompressed together; 1 where any can be read by itself.
    pub fn decoded_together(&self) -> u64 {
        match &self.place {
            ArrayLayout::ChunkedLayout(chunks) if !chunks.chain.is_empty() => chunks.grid.chunk_len(),
            _ => 1,
        }
    }

    /// They lie in the file as they are needed: they can be read to where they belong.
    pub fn is_direct<T: Element>(&self) -> bool {
        T::is(self.number) && matches!(self.place, ArrayLayout::Plain(_))
    }

    /// Parts can be read to any places of a buffer that others fill too.
    pub fn can_be_placed<T: Element>(&self) -> bool {
        self.is_direct::<T>() || matches!(self.place, ArrayLayout::ChunkedLayout(_))
    }

    /// Some number was never written, and should have been.
    pub fn is_unfinished(&self) -> bool {
        !self.fill_counts && self.has_holes()
    }

    /// Some number was never written.
    fn has_holes(&self) -> bool {
        match &self.place {
            ArrayLayout::Memory(_) => false,
            ArrayLayout::Plain(runs) => runs.iter().any(|run| run.zero.is_none()),
            ArrayLayout::ChunkedLayout(chunks) => chunks.grid.chunks() != Some(chunks.table.written().len() as u64),
        }
    }
}

/// Memory of numbers as bytes.
pub(crate) fn as_bytes<T: Element>(numbers: &mut [MaybeUninit<T>]) -> &mut [MaybeUninit<u8>] {
    // SAFETY: the same memory, as long; what is not initialised stays so; any bytes are a `T` (it is `Pod`).
    unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), size_of_val(numbers)) }
}

/// Where a chunk of a data set lies in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredChunk {
    /// First byte in the file.
    pub offset: u64,
    /// Bytes in the file.
    pub bytes: u32,
    /// Bit i: filter i was skipped.
    pub mask: u32,
}

/// The chunks of a data set that were written, by their number in the grid.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChunkTable {
    /// Ascending; empty if all were written.
    numbers: Vec<u64>,
    chunks: Vec<StoredChunk>,
}

impl ChunkTable {
    /// Of a grid of `all` chunks; `Err` says what is wrong with them.
    pub fn new(mut found: Vec<(u64, StoredChunk)>, all: u64) -> Result<Self, String> {
        found.sort_unstable_by_key(|(number, _)| *number);
        if let Some(twice) = found.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(format!("has chunk {} twice", twice[0].0));
        }
        if let Some((beyond, _)) = found.last().filter(|(number, _)| *number >= all) {
            return Err(format!("has a chunk {beyond} of {all}"));
        }
        let chunks = found.iter().map(|(_, chunk)| *chunk).collect();
        let numbers = if found.len() as u64 == all { Vec::new() } else { found.iter().map(|(n, _)| *n).collect() };
        Ok(Self { numbers, chunks })
    }

    /// A chunk; `None` if it was never written.
    pub fn get(&self, number: u64) -> Option<StoredChunk> {
        let at = if self.numbers.is_empty() { number as usize } else { self.numbers.binary_search(&number).ok()? };
        self.chunks.get(at).copied()
    }

    /// Those that were written.
    pub fn written(&self) -> &[StoredChunk] {
        &self.chunks
    }

    /// Those that were written, with their numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u64, StoredChunk)> + '_ {
        let number = |at: usize| self.numbers.get(at).copied().unwrap_or(at as u64);
        self.chunks.iter().enumerate().map(move |(at, chunk)| (number(at), *chunk))
    }
}

/// Chunks of one long row that lie behind each other are one run.
pub(crate) fn contiguous_runs(table: &ChunkTable, grid: &ChunkGrid, size: u64) -> Vec<ContiguousRun> {
    let mut runs: Vec<ContiguousRun> = Vec::new();
    let mut end = 0;
    let mut push = |start: u64, run: ContiguousRun| match runs.last_mut() {
        Some(last) if last.zero == run.zero && last.end == start => last.end = run.end,
        _ => runs.push(run),
    };
    for (number, chunk) in table.iter() {
        let start = number * grid.chunk_columns;
        if start > end {
            push(end, ContiguousRun { end: start, zero: None });
        }
        let next = (start + grid.chunk_columns).min(grid.columns);
        // Both are less than 2^63: offsets are inside the file, and the whole array has fewer bytes.
        push(start, ContiguousRun { end: next, zero: Some(chunk.offset as i64 - (start * size) as i64) });
        end = next;
    }
    if end < grid.columns {
        push(end, ContiguousRun { end: grid.columns, zero: None });
    }
    runs
}

#[cfg(test)]
mod tests {
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
