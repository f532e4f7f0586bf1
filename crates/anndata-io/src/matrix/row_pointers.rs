//! `RowPointers` says where the rows of a CSR matrix begin in `indices` and `data`. The pointers are in memory, or, where they would take too
//! much of it, in the file: then those of each fetch are read with its rows.
//! Invariant: a pointer is checked before it is used. A row has 0 to `columns` values, and all of them lie inside the arrays.

use std::ops::Range;
use std::sync::OnceLock;

use crate::error::DamageKind;
use crate::matrix::array_reader::ArrayReader;
use crate::matrix::matrix_file::{MatrixError, check_range};
use crate::matrix::shared_chunks::SharedChunks;
use crate::matrix::stored_array::StoredArray;
use crate::source::byte_source::ByteSource;
use crate::{AnnDataError, RowLocation};

/// Memory for the row pointers of all files that are opened together, in bytes: enough for 8 million rows. With more rows than that, all
/// of them stay in the files, unless these are remote, and the memory is for decompressed chunks of them.
pub(crate) const ROW_POINTER_BYTES: u64 = 64 << 20;

/// The array `indptr` of a matrix, `[rows + 1]`.
#[derive(Debug)]
pub(crate) struct RowPointers {
    stored: StoredArray,
    rows: u64,
    /// Values of a row, at most.
    columns: u64,
    /// Name and length of the array of values.
    data: String,
    values: u64,
    /// All pointers, once [`Self::load`] has read them.
    loaded: OnceLock<Vec<u64>>,
    /// Decompressed chunks of pointers that stay in the file.
    shared: OnceLock<SharedChunks>,
}

impl RowPointers {
    /// Pointers of `rows` rows of at most `columns` values each into the array `data`. Nothing is read.
    ///
    /// # Errors
    /// The array has another length.
    pub fn new(stored: StoredArray, (rows, columns): (u64, u64), data: &StoredArray) -> Result<Self, MatrixError> {
        if Some(stored.len) != rows.checked_add(1) {
            return Err(MatrixError::IndptrLength { entries: stored.len, rows });
        }
        let (loaded, shared) = (OnceLock::new(), OnceLock::new());
        Ok(Self { stored, rows, columns, data: data.name.clone(), values: data.len, loaded, shared })
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes of memory of all pointers.
    pub fn bytes(&self) -> u64 {
        self.stored.len.saturating_mul(size_of::<u64>() as u64)
    }

    /// All pointers, if they are in memory.
    pub fn loaded(&self) -> Option<&[u64]> {
        self.loaded.get().map(Vec::as_slice)
    }

    /// All pointers, read into memory and checked by the first call.
    ///
    /// # Errors
    /// They cannot be read; they do not ascend from 0 to the number of values, or a row has too many values.
    pub fn load(&self, source: &ByteSource) -> Result<&[u64], AnnDataError> {
        if let Some(loaded) = self.loaded() {
            return Ok(loaded);
        }
        let pointers: Vec<u64> = self.stored.read_whole(source)?;
        self.check_rows(0, &pointers).map_err(|error| self.wrong(source, error))?;
        self.check_first_and_last(&pointers).map_err(|error| self.wrong(source, error))?;
        Ok(self.loaded.get_or_init(|| pointers))
    }

    /// Reads only the first and the last pointer, and checks them. All others are checked when their rows are read. Chunks that are decompressed
    /// for that, now or later, go to `shared`: rows that are near each other find theirs there.
    ///
    /// # Errors
    /// They cannot be read, or are not 0 and the number of values.
    pub fn check_ends(&self, source: &ByteSource, shared: SharedChunks) -> Result<(), AnnDataError> {
        let _ = self.shared.set(shared);
        let mut reader = RowPointerReader::new(self, source);
        reader.read([(0, 1), (self.rows, 1)].into_iter())?;
        self.check_first_and_last(&reader.found).map_err(|error| self.wrong(source, error))
    }

    /// Appends to `out` where the values of rows lie, which are below the number of rows. Returns the number of bytes that were read.
    ///
    /// # Errors
    /// The pointers of a row cannot be read, or are wrong.
    pub fn locate(&self, source: &ByteSource, rows: &[u64], out: &mut Vec<RowLocation>) -> Result<u64, AnnDataError> {
        let mut reader = RowPointerReader::new(self, source);
        let ranges = rows.iter().map(|row| *row..*row + 1);
        let bytes = reader.find(ranges.clone())?;
        out.extend(ranges.enumerate().map(|(index, range)| {
            let (first, values) = reader.values(index, range);
            RowLocation { first, values }
        }));
        Ok(bytes)
    }

    fn check_first_and_last(&self, pointers: &[u64]) -> Result<(), MatrixError> {
        // There is an entry: one more than there are rows.
        match (pointers.first().copied().unwrap_or(0), pointers.last().copied().unwrap_or(0)) {
            (0, last) if last == self.values => Ok(()),
            (first, last) => {
                Err(MatrixError::IndptrEnds { first, last, entries: self.values, data: self.data.clone() })
            }
        }
    }

    /// Checks the pointers of consecutive rows from `first` on.
    fn check_rows(&self, first: u64, pointers: &[u64]) -> Result<(), MatrixError> {
        let wrong = |pair: &[u64]| pair[1] < pair[0] || pair[1] - pair[0] > self.columns;
        match pointers.windows(2).position(wrong) {
            None => Ok(()),
            Some(at) => Err(self.row_length(first + at as u64, pointers[at], pointers[at + 1])),
        }
    }

    /// Checks the pointers to the start and to the end of these rows, and that their values are there.
    fn check_bounds(&self, rows: &Range<u64>, start: u64, end: u64) -> Result<(), MatrixError> {
        if end < start || end - start > self.columns.saturating_mul(rows.end - rows.start) {
            return Err(self.row_length(rows.start, start, end));
        }
        if end > self.values {
            let (row, data, entries) = (rows.start, self.data.clone(), self.values);
            return Err(MatrixError::RowBeyondData { row, to: end, data, entries });
        }
        Ok(())
    }

    fn row_length(&self, row: u64, from: u64, to: u64) -> MatrixError {
        // A negative number was stored, if one is too large.
        MatrixError::RowLength { row, from: from as i64, to: to as i64, columns: self.columns }
    }

    #[cold]
    fn wrong(&self, source: &ByteSource, error: MatrixError) -> AnnDataError {
        source.damaged(DamageKind::inside(&self.stored.name, error))
    }
}

/// Finds the values of rows, for one thread.
pub(crate) struct RowPointerReader<'a> {
    pointers: &'a RowPointers,
    source: &'a ByteSource,
    array: ArrayReader<'a, u64>,
    /// Pointers that were read last.
    found: Vec<u64>,
}

impl<'a> RowPointerReader<'a> {
    /// A reader without allocated memory.
    pub fn new(pointers: &'a RowPointers, source: &'a ByteSource) -> Self {
        let array = ArrayReader::with_shared(&pointers.stored, source, pointers.shared.get());
        Self { pointers, source, array, found: Vec::new() }
    }

    /// Makes the values of these ranges of rows known to [`Self::values`]; no range goes beyond the end. Returns the number of bytes that
    /// were read, all in flight together; 0 if the pointers are in memory.
    ///
    /// # Errors
    /// The pointers of a range cannot be read, or are wrong.
    pub fn find(&mut self, ranges: impl Iterator<Item = Range<u64>> + Clone) -> Result<u64, AnnDataError> {
        if self.pointers.loaded().is_some() {
            return Ok(0);
        }
        let bytes = self.read(ranges.clone().flat_map(|range| [(range.start, 1), (range.end, 1)]))?;
        for (range, pair) in ranges.zip(self.found.chunks_exact(2)) {
            let checked = self.pointers.check_bounds(&range, pair[0], pair[1]);
            checked.map_err(|error| self.pointers.wrong(self.source, error))?;
        }
        Ok(bytes)
    }

    /// The first value of the rows of a range, and the number of their values. The range is number `index` of the last [`Self::find`].
    #[inline]
    pub fn values(&self, index: usize, range: Range<u64>) -> (u64, u64) {
        let (start, end) = match self.pointers.loaded() {
            Some(all) => (all[range.start as usize], all[range.end as usize]),
            None => (self.found[2 * index], self.found[2 * index + 1]),
        };
        (start, end - start)
    }

    /// All pointers of a range of rows, `[range.end - range.start + 1]`, and the number of bytes that were read.
    ///
    /// # Errors
    /// The range is beyond the end; the pointers cannot be read, or are wrong.
    pub fn all_of(&mut self, range: &Range<u64>) -> Result<(&[u64], u64), AnnDataError> {
        let pointers = self.pointers;
        check_range(self.source, range, pointers.rows)?;
        if let Some(all) = pointers.loaded() {
            return Ok((&all[range.start as usize..=range.end as usize], 0));
        }
        let bytes = self.read(std::iter::once((range.start, range.end - range.start + 1)))?;
        let (start, end) = (self.found[0], self.found[self.found.len() - 1]);
        let checked = pointers.check_rows(range.start, &self.found).and(pointers.check_bounds(range, start, end));
        checked.map_err(|error| pointers.wrong(self.source, error))?;
        Ok((&self.found[..], bytes))
    }

    /// Reads stretches of the array, each from an entry on, one after another to `found`.
    fn read(&mut self, stretches: impl Iterator<Item = (u64, u64)>) -> Result<u64, AnnDataError> {
        self.found.clear();
        self.array.begin(0);
        stretches.for_each(|(start, count)| self.array.add(start, count));
        let bytes = self.array.fetch(&mut self.found)?;
        self.array.finish(&mut self.found)?;
        self.array.decode(&mut self.found)?;
        // Lets go of shared chunks.
        self.array.begin(0);
        Ok(bytes)
    }

    /// Bytes of memory that are kept between calls.
    pub fn work_bytes(&self) -> u64 {
        self.array.work_bytes() + (self.found.capacity() * size_of::<u64>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use proptest::prelude::*;

    use super::*;
    use crate::codec::filter_chain::{Filter, FilterChain};
    use crate::matrix::dtype::{Dtype, DtypeKind};
    use crate::matrix::stored_array::{ArrayLayout, ChunkGrid, ChunkTable, ChunkedLayout, ContiguousRun, StoredChunk};

    /// An array that lies in a file of its own, from the first byte on.
    fn stored(name: &str, kind: DtypeKind, len: u64) -> StoredArray {
        let dtype = Dtype { kind, big_endian: cfg!(target_endian = "big") };
        StoredArray {
            name: name.to_owned(),
            dtype,
            len,
            fill_value: vec![0; dtype.size()],
            may_be_unwritten: false,
            stored_bytes: len * dtype.size() as u64,
            layout: ArrayLayout::Contiguous(vec![ContiguousRun { end: len, base_offset: Some(0) }]),
        }
    }

    /// Writes pointers to a file, as int32 if they are `short`; rows of at most 9 values, of `values` in all.
    fn written(folder: &Path, pointers: &[i64], short: bool, values: u64) -> (PathBuf, RowPointers) {
        let path = folder.join("indptr");
        let bytes: Vec<u8> = match short {
            true => pointers.iter().flat_map(|pointer| (*pointer as i32).to_ne_bytes()).collect(),
            false => pointers.iter().flat_map(|pointer| pointer.to_ne_bytes()).collect(),
        };
        std::fs::write(&path, bytes).unwrap();
        let kind = if short { DtypeKind::I32 } else { DtypeKind::I64 };
        let indptr = stored("X/indptr", kind, pointers.len() as u64);
        let rows = pointers.len() as u64 - 1;
        (path, RowPointers::new(indptr, (rows, 9), &stored("X/data", DtypeKind::F32, values)).unwrap())
    }

    /// Writes pointers to a file as int64, in compressed chunks of `chunk` pointers; rows of at most 9 values.
    fn compressed(folder: &Path, pointers: &[i64], chunk: usize) -> (PathBuf, RowPointers) {
        let path = folder.join("indptr");
        let (mut bytes, mut chunks) = (Vec::new(), Vec::new());
        for (number, pointers) in pointers.chunks_exact(chunk).enumerate() {
            let raw: Vec<u8> = pointers.iter().flat_map(|pointer| pointer.to_ne_bytes()).collect();
            let mut deflate = libdeflater::Compressor::new(libdeflater::CompressionLvl::default());
            let mut packed = vec![0; raw.len() + 100];
            let len = deflate.zlib_compress(&raw, &mut packed).unwrap();
            chunks.push((number as u64, StoredChunk { offset: bytes.len() as u64, bytes: len as u32, mask: 0 }));
            bytes.extend_from_slice(&packed[..len]);
        }
        std::fs::write(&path, &bytes).unwrap();
        let count = chunks.len() as u64;
        let layout = ChunkedLayout {
            grid: ChunkGrid::new(&[pointers.len() as u64], &[chunk as u64], 8).unwrap(),
            table: ChunkTable::new(chunks, count).unwrap(),
            filters: FilterChain::from_filters(vec![Filter::Deflate]).unwrap(),
            plain_edge: false,
        };
        let (layout, _) = layout.checked(8, bytes.len() as u64).unwrap();
        let indptr = StoredArray { layout, ..stored("X/indptr", DtypeKind::I64, pointers.len() as u64) };
        let (rows, values) = (pointers.len() as u64 - 1, *pointers.last().unwrap() as u64);
        (path, RowPointers::new(indptr, (rows, 9), &stored("X/data", DtypeKind::F32, values)).unwrap())
    }

    /// Rows that are near each other need their chunk once, whichever reader asks, while there is memory for it.
    #[test]
    fn decompressed_chunks_are_used_again() {
        let folder = tempfile::tempdir().unwrap();
        let pointers: Vec<i64> = (0..1000).map(|row| row * 3).collect();
        let (path, file) = compressed(folder.path(), &pointers, 100);
        let source = ByteSource::open(&path).unwrap();
        // Two chunks of 800 bytes.
        file.check_ends(&source, SharedChunks::new(2000)).unwrap();
        let bytes = |rows: &[u64]| {
            let mut found = Vec::new();
            let bytes = file.locate(&source, rows, &mut found).unwrap();
            let expected: Vec<RowLocation> = rows.iter().map(|row| RowLocation { first: row * 3, values: 3 }).collect();
            assert_eq!(found, expected);
            bytes
        };
        assert!(bytes(&[250, 210]) > 0, "chunk 2");
        assert_eq!(bytes(&[201, 298, 201]), 0);
        assert!(bytes(&[199]) > 0, "the pointers of the row are in chunks 1 and 2");
        assert_eq!(bytes(&[110, 290]), 0);
        assert!(bytes(&[510, 710]) > 0);
        assert!(bytes(&[110]) > 0, "there was no memory for chunk 1");
        let mut reader = RowPointerReader::new(&file, &source);
        assert_eq!(reader.find(std::iter::once(120..122)).unwrap(), 0);
        assert_eq!(reader.values(0, 120..122), (360, 6));
        let all: Vec<u64> = pointers.iter().map(|pointer| *pointer as u64).collect();
        assert_eq!(reader.all_of(&(0..999)).unwrap().0, all);
    }

    proptest! {
        /// Rows have the same values whether their pointers are in memory or in the file.
        #[test]
        fn pointers_in_the_file_are_those_in_memory(
            lengths in proptest::collection::vec(0i64..10, 1..60), wanted in proptest::collection::vec(any::<prop::sample::Index>(), 0..30),
            short: bool,
        ) {
            let folder = tempfile::tempdir().unwrap();
            let mut pointers = vec![0];
            pointers.extend(lengths.iter().scan(0, |end, length| { *end += length; Some(*end) }));
            let values = *pointers.last().unwrap() as u64;
            let (path, file) = written(folder.path(), &pointers, short, values);
            let (_, memory) = written(folder.path(), &pointers, short, values);
            let source = ByteSource::open(&path).unwrap();
            file.check_ends(&source, SharedChunks::new(0)).unwrap();
            prop_assert_eq!(memory.load(&source).unwrap().len() as u64 * 8, memory.bytes());
            prop_assert!(file.loaded().is_none());
            let ranges: Vec<Range<u64>> = wanted.iter().map(|index| index.index(lengths.len()) as u64).map(|row| row..row + 1).collect();
            let (mut of_file, mut of_memory) = (RowPointerReader::new(&file, &source), RowPointerReader::new(&memory, &source));
            let bytes = of_file.find(ranges.iter().cloned()).unwrap();
            prop_assert_eq!(bytes > 0, !ranges.is_empty());
            prop_assert_eq!(of_memory.find(ranges.iter().cloned()).unwrap(), 0);
            let (mut located, rows) = (Vec::new(), ranges.iter().map(|range| range.start).collect::<Vec<_>>());
            prop_assert_eq!(file.locate(&source, &rows, &mut located).unwrap(), bytes);
            prop_assert_eq!(memory.locate(&source, &rows, &mut located).unwrap(), 0);
            for (index, range) in ranges.iter().enumerate() {
                let row = range.start as usize;
                let expected = (pointers[row] as u64, lengths[row] as u64);
                for location in [located[index], located[ranges.len() + index]] {
                    prop_assert_eq!((location.first, location.values), expected);
                }
                prop_assert_eq!(of_file.values(index, range.clone()), expected);
                prop_assert_eq!(of_memory.values(index, range.clone()), expected);
            }
            let range = 0..lengths.len() as u64;
            prop_assert_eq!(of_file.all_of(&range).unwrap().0, of_memory.all_of(&range).unwrap().0);
            prop_assert!(of_file.all_of(&(1..range.end + 1)).is_err());
        }
    }

    #[test]
    fn wrong_pointers_are_found_where_their_rows_are_read() {
        let folder = tempfile::tempdir().unwrap();
        // Row 1 goes back, rows 3 and 4 are longer than 9.
        let (path, pointers) = written(folder.path(), &[0, 5, 2, 4, 14, 25, 30], false, 30);
        let source = ByteSource::open(&path).unwrap();
        pointers.check_ends(&source, SharedChunks::new(0)).unwrap();
        let mut reader = RowPointerReader::new(&pointers, &source);
        let mut say = |row: u64| reader.find(std::iter::once(row..row + 1)).map_err(|error| error.to_string());
        assert_eq!((say(0), say(2), say(5)), (Ok(16), Ok(16), Ok(16)));
        assert!(say(1).unwrap_err().ends_with("X/indptr: goes from 5 to 2 at row 1; a row has 0 to 9 values"));
        assert!(say(3).unwrap_err().ends_with("goes from 4 to 14 at row 3; a row has 0 to 9 values"));
        assert!(reader.all_of(&(2..5)).unwrap_err().to_string().contains("at row 3"));
        assert!(pointers.load(&source).unwrap_err().to_string().contains("at row 1"));
        let (path, pointers) = written(folder.path(), &[0, 5, 9, 4], false, 4);
        let source = ByteSource::open(&path).unwrap();
        pointers.check_ends(&source, SharedChunks::new(0)).unwrap();
        let mut reader = RowPointerReader::new(&pointers, &source);
        let error = reader.find(std::iter::once(1..2)).unwrap_err().to_string();
        assert!(error.ends_with("goes to 9 at row 1, and X/data has 4 entries"), "{error}");
    }

    #[test]
    fn wrong_ends_are_found_at_once() {
        let folder = tempfile::tempdir().unwrap();
        for (pointers, says) in
            [([1, 2, 3], "goes from 1 to 3"), ([0, 1, 2], "goes from 0 to 2 instead of from 0 to 3")]
        {
            let (path, pointers) = written(folder.path(), &pointers, true, 3);
            let source = ByteSource::open(&path).unwrap();
            let error = pointers.check_ends(&source, SharedChunks::new(0)).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
