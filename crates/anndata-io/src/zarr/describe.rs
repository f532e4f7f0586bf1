use super::array_meta::ArrayMeta;
use super::data_type::DataType;
use crate::matrix::chunk_table::{Chunk, ChunkTable};
use crate::matrix::number::{Kind, Number};
use crate::matrix::runs;
use crate::matrix::stored::{Chunks, Grid, LARGEST_CHUNK, Place, Stored};
use crate::source::Source;

/// Objects that an array can have: each is a file that is looked for.
const MOST_OBJECTS: u64 = 1 << 20;

/// Bytes that an array that is read as a whole may have without having been written.
const MOST_HOLES: u64 = 1 << 28;

/// An array and the objects that its metadata says it has.
pub(super) struct Array {
    /// Its name in the folder.
    pub(super) name: String,
    pub(super) meta: ArrayMeta,
    /// Objects of each dimension.
    across: Vec<u64>,
}

impl Array {
    /// `Err` says why it has no objects that could be looked for.
    pub(super) fn new(name: &str, meta: ArrayMeta) -> Result<Self, String> {
        let across: Vec<u64> = meta.shape.iter().zip(&meta.object).map(|(len, of)| len.div_ceil(*of)).collect();
        let all = across.iter().try_fold(1u64, |all, n| all.checked_mul(*n)).filter(|all| *all <= MOST_OBJECTS);
        if all.is_none() {
            return Err(format!(
                "has a shape of {:?} in files of {:?}; more than {MOST_OBJECTS} files are not supported: write it with larger \
                 chunks, or with shards",
                meta.shape, meta.object
            ));
        }
        Ok(Self { name: name.to_owned(), meta, across })
    }

    /// Keys of all objects, row by row.
    pub(super) fn keys(&self) -> Vec<String> {
        let all: u64 = self.across.iter().product();
        (0..all).map(|number| format!("{}/{}", self.name, self.meta.keys.key(&self.place(number)))).collect()
    }

    /// Place of an object in each dimension.
    fn place(&self, mut number: u64) -> Vec<u64> {
        let mut place = vec![0; self.across.len()];
        for (place, across) in place.iter_mut().zip(&self.across).rev() {
            (*place, number) = (number % across, number / across);
        }
        place
    }

    /// Where the chunks lie: `parts[i]` is which part of the source the i-th of [`Self::keys`] is. `Err` says what is wrong.
    pub(super) fn table(&self, source: &Source, parts: &[Option<usize>]) -> Result<(Grid, ChunkTable), String> {
        let meta = &self.meta;
        let grid = Grid::of(&meta.shape, &meta.chunk)
            .ok_or_else(|| format!("has {} dimensions instead of one or two", meta.shape.len()))?;
        let size = meta.data_type.size().unwrap_or(1).max(1) as u64;
        let bytes = meta.chunk.iter().try_fold(size, |bytes, length| bytes.checked_mul(*length));
        if bytes.is_none_or(|bytes| bytes > LARGEST_CHUNK) {
            return Err(format!("has chunks of {:?}: more than {LARGEST_CHUNK} bytes are not supported", meta.chunk));
        }
        if meta.shape.contains(&0) {
            return Ok((grid, ChunkTable::default()));
        }
        let all = grid.chunks().ok_or("has more chunks than can be counted")?;
        let mut found = Vec::new();
        for (object, part) in parts.iter().enumerate() {
            let Some(part) = part else { continue };
            let place = self.place(object as u64);
            self.of_object(source, source.part(*part), &place, &mut found)
                .map_err(|reason| format!("{} {reason}", meta.keys.key(&place)))?;
        }
        let total: u64 = found.iter().map(|(_, chunk): &(u64, Chunk)| u64::from(chunk.bytes)).sum();
        if total > source.bytes() {
            return Err(format!("has chunks of {total} bytes in files of {}", source.bytes()));
        }
        Ok((grid, ChunkTable::new(found, all)?))
    }

    /// Chunks of one object: one, or those of a shard.
    fn of_object(
        &self,
        source: &Source,
        addresses: std::ops::Range<u64>,
        place: &[u64],
        found: &mut Vec<(u64, Chunk)>,
    ) -> Result<(), String> {
        let (meta, long) = (&self.meta, addresses.end - addresses.start);
        // Chunks of an object in each dimension, and of the whole array.
        let inner: Vec<u64> = meta.object.iter().zip(&meta.chunk).map(|(object, chunk)| object / chunk).collect();
        let grid: Vec<u64> = meta.shape.iter().zip(&meta.chunk).map(|(len, chunk)| len.div_ceil(*chunk)).collect();
        let Some(index) = meta.index else {
            let bytes = u32::try_from(long).map_err(|_| format!("has {long} bytes, more than are supported"))?;
            found.push((number(place, &grid), Chunk { offset: addresses.start, bytes, mask: 0 }));
            return Ok(());
        };
        let count = inner.iter().try_fold(1u64, |all, n| all.checked_mul(*n)).ok_or("has too many chunks")?;
        for (i, chunk) in index.read(source, &addresses, count)?.into_iter().enumerate() {
            let Some((offset, bytes)) = chunk else { continue };
            let mut rest = i as u64;
            let mut at = vec![0; inner.len()];
            for (d, at) in at.iter_mut().enumerate().rev() {
                *at = place[d] * inner[d] + rest % inner[d];
                rest /= inner[d];
            }
            // What is beyond the edge of the array is in the index, too.
            if at.iter().zip(&grid).all(|(at, across)| at < across) {
                found.push((number(&at, &grid), Chunk { offset, bytes, mask: 0 }));
            }
        }
        Ok(())
    }

    /// Where its numbers lie. Strings of a fixed length are bytes.
    pub(super) fn stored(&self, source: &Source, parts: &[Option<usize>]) -> Result<Stored, String> {
        let (grid, table) = self.table(source, parts)?;
        let ArrayMeta { shape, data_type, chain, .. } = &self.meta;
        let (number, each) = match *data_type {
            DataType::Number(number) => (number, 1),
            DataType::Bool => (Number { kind: Kind::U8, big_endian: false }, 1),
            DataType::Text => return Err("holds strings instead of numbers".to_owned()),
            DataType::Bytes(_) | DataType::Letters { .. } => {
                (Number { kind: Kind::U8, big_endian: false }, data_type.size().unwrap_or(1).max(1) as u64)
            }
        };
        let len: u64 = shape.iter().product::<u64>() * each;
        let grid = Grid { columns: grid.columns * each, chunk_columns: grid.chunk_columns * each, ..grid };
        let (place, stored_bytes) = place(source, grid, table, chain, number, len)?;
        let fill = self.meta.fill[..number.size().min(self.meta.fill.len())].to_vec();
        let fill = if fill.is_empty() { vec![0; number.size()] } else { fill };
        Ok(Stored { name: self.name.clone(), number, len, fill, fill_counts: true, stored_bytes, place })
    }
}

/// An error if what was never written of an array that is read as a whole takes too much memory.
pub(super) fn few_holes(stored: &Stored) -> Result<(), String> {
    let values = match &stored.place {
        Place::Memory(_) => 0,
        Place::Plain(runs) => {
            let starts = std::iter::once(0).chain(runs.iter().map(|run| run.end));
            runs.iter().zip(starts).filter(|(run, _)| run.zero.is_none()).map(|(run, start)| run.end - start).sum()
        }
        Place::Chunks(chunks) => {
            let written = chunks.table.written().len() as u64;
            stored.len.saturating_sub(written.saturating_mul(chunks.grid.chunk_len()))
        }
    };
    bounded_holes(values, stored.number.size() as u64)
}

/// An error if so many values of so many bytes, none of which was written, take too much memory.
pub(super) fn bounded_holes(values: u64, size: u64) -> Result<(), String> {
    if values.saturating_mul(size) <= MOST_HOLES {
        return Ok(());
    }
    Err(format!("says that it has {values} values that were not written, more than can be read at once"))
}

/// How the numbers lie, and their bytes in the files.
fn place(
    source: &Source,
    grid: Grid,
    table: ChunkTable,
    chain: &crate::matrix::filters::Chain,
    number: Number,
    len: u64,
) -> Result<(Place, u64), String> {
    if len == 0 {
        return Ok((Place::Plain(Vec::new()), 0));
    }
    let (size, mut total) = (number.size() as u64, 0);
    let bytes = grid.chunk_len() * size;
    for (number, chunk) in table.iter() {
        let stored = u64::from(chunk.bytes);
        if chunk.offset.checked_add(stored).is_none_or(|end| end > source.bytes()) {
            return Err(format!("chunk {number} reaches beyond the end of its file"));
        }
        if chain.is_empty() && stored != bytes || chain.most(stored) < bytes {
            return Err(format!("chunk {number} has {stored} bytes in its file and cannot be of {bytes}"));
        }
        total += stored;
    }
    if chain.is_empty() && grid.rows == 1 {
        return Ok((Place::Plain(runs(&table, &grid, size)), total));
    }
    Ok((Place::Chunks(Chunks { grid, table, chain: chain.clone(), plain_edge: false }), total))
}

/// Number of a chunk, row by row. Of chunks as wide as their rows these are the numbers along the long row.
fn number(place: &[u64], across: &[u64]) -> u64 {
    place.iter().zip(across).fold(0, |number, (place, across)| number * across + place)
}
