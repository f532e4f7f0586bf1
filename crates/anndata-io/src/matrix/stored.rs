use std::mem::MaybeUninit;

use super::array_reader::ArrayReader;
use super::chunk_table::ChunkTable;
use super::element::Element;
use super::filters::Chain;
use super::number::Number;
use crate::AnnDataError;
use crate::source::Source;

/// Larger chunks are of no use to anybody, and a reason to allocate much memory.
pub(crate) const LARGEST_CHUNK: u64 = 1 << 30;

/// Where the numbers of a data set of one or two dimensions lie in the file, row by row.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    /// Its name in the file.
    pub(crate) name: String,
    pub(crate) number: Number,
    /// How many.
    pub(crate) len: u64,
    /// Bytes of the number that was never written.
    pub(crate) fill: Vec<u8>,
    /// That number is as good as one that was written: zarr leaves out chunks that hold nothing else.
    pub(crate) fill_counts: bool,
    /// Bytes in the file.
    pub(crate) stored_bytes: u64,
    pub(crate) place: Place,
}

/// How they lie.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// In the header of the data set (HDF5's compact layout).
    Memory(Vec<u8>),
    /// As they are.
    Plain(Vec<Run>),
    /// In chunks that a row has several of, or that are compressed.
    Chunks(Chunks),
}

/// Numbers that lie together, uncompressed. Runs follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Number behind the last of them.
    pub(crate) end: u64,
    /// Where number 0 would lie, were the run as long; `None` if they were never written.
    pub(crate) zero: Option<i64>,
}

/// Chunks of a grid.
#[derive(Clone, Debug)]
pub(crate) struct Chunks {
    pub(crate) grid: Grid,
    pub(crate) table: ChunkTable,
    pub(crate) chain: Chain,
    /// HDF5 may leave chunks at the edge uncompressed.
    pub(crate) plain_edge: bool,
}

/// A grid of chunks over rows and columns. What has one dimension, and what has chunks as wide as its rows, is one long row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    pub(crate) rows: u64,
    pub(crate) columns: u64,
    pub(crate) chunk_rows: u64,
    pub(crate) chunk_columns: u64,
}

/// A part of a chunk that lies together in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InChunk {
    /// Number of the chunk.
    pub(crate) chunk: u64,
    /// First number in the chunk.
    pub(crate) within: u32,
    /// Numbers.
    pub(crate) count: u32,
}

impl Grid {
    /// Of an array of one or two dimensions with chunks of these lengths, of which no chunk has more than 2^32 numbers; `None`
    /// of another number of dimensions.
    pub(crate) fn of(shape: &[u64], chunk: &[u64]) -> Option<Self> {
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
    pub(crate) const fn across(&self) -> u64 {
        self.columns.div_ceil(self.chunk_columns)
    }

    /// Chunks of the grid; `None` if that is beyond all reason.
    pub(crate) const fn chunks(&self) -> Option<u64> {
        self.rows.div_ceil(self.chunk_rows).checked_mul(self.across())
    }

    /// Numbers of a chunk.
    pub(crate) const fn chunk_len(&self) -> u64 {
        self.chunk_rows * self.chunk_columns
    }

    /// The first part of the `count` numbers from `start` on.
    pub(crate) fn first(&self, start: u64, count: u64) -> InChunk {
        let (row, column) = (start / self.columns, start % self.columns);
        let chunk = row / self.chunk_rows * self.across() + column / self.chunk_columns;
        let within_column = column % self.chunk_columns;
        let within = row % self.chunk_rows * self.chunk_columns + within_column;
        let count = count.min(self.columns - column).min(self.chunk_columns - within_column);
        // A chunk has fewer than 2^32 numbers.
        InChunk { chunk, within: within as u32, count: count as u32 }
    }

    /// The chunk reaches over the edge.
    pub(crate) fn is_edge(&self, chunk: u64) -> bool {
        let (down, right) = (chunk / self.across(), chunk % self.across());
        (down + 1) * self.chunk_rows > self.rows || (right + 1) * self.chunk_columns > self.columns
    }
}

impl Stored {
    /// All numbers.
    pub(crate) fn read_whole<T: Element>(&self, source: &Source) -> Result<Vec<T>, AnnDataError> {
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
    pub(crate) fn decoded_together(&self) -> u64 {
        match &self.place {
            Place::Chunks(chunks) if !chunks.chain.is_empty() => chunks.grid.chunk_len(),
            _ => 1,
        }
    }

    /// They lie in the file as they are needed: they can be read to where they belong.
    pub(crate) fn is_direct<T: Element>(&self) -> bool {
        T::is(self.number) && matches!(self.place, Place::Plain(_))
    }

    /// Parts can be read to any places of a buffer that others fill too.
    pub(crate) fn can_be_placed<T: Element>(&self) -> bool {
        self.is_direct::<T>() || matches!(self.place, Place::Chunks(_))
    }

    /// Some number was never written, and should have been.
    pub(crate) fn is_unfinished(&self) -> bool {
        !self.fill_counts && self.has_holes()
    }

    /// Some number was never written.
    pub(crate) fn has_holes(&self) -> bool {
        match &self.place {
            Place::Memory(_) => false,
            Place::Plain(runs) => runs.iter().any(|run| run.zero.is_none()),
            Place::Chunks(chunks) => chunks.grid.chunks() != Some(chunks.table.written().len() as u64),
        }
    }
}

/// Memory of numbers as bytes.
pub(crate) fn as_bytes<T: Element>(numbers: &mut [MaybeUninit<T>]) -> &mut [MaybeUninit<u8>] {
    // SAFETY: the same memory, as long; what is not initialised stays so; any bytes are a `T` (it is `Pod`).
    unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), size_of_val(numbers)) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Grid;

    proptest! {
        /// The parts of any stretch are its numbers, each where a plain count over rows, columns and chunks says.
        #[test]
        fn parts_are_where_they_are(
            (rows, columns, chunk_rows, chunk_columns) in (1u64..9, 1u64..9, 1u64..5, 1u64..12),
            (start, len) in (0u64..80, 0u64..80),
        ) {
            let grid = Grid { rows, columns, chunk_rows, chunk_columns };
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
