//! `ParquetReader` reads selected rows: it groups them by row group, fetches the pages that have them, and decodes each row group once.
//! Invariant: rows come in the order of the selection; a row that is selected twice is decoded once and copied.

use std::ops::Range;

use crate::lru_cache::LruCache;
use crate::parquet::decode::{
    DecodeBuffers, PageSegment, RowGroupRead, decode_dense_lists, decode_gene_columns, decode_sparse_lists,
};
use crate::parquet::error::ParquetError;
use crate::parquet::schema::{MatrixColumn, ParquetMatrixLayout};
use crate::source::byte_source::{ReadRange, as_uninit};
use crate::source::coalesce::Coalescer;
use crate::{
    AnnDataError, ArrayStore, CsrRows, Form, ParquetStore, Prefetch, ReadRows, RequestError, RowSelection, Rows,
};

/// Segments with at most this gap are read in one call.
const MAX_GAP: u64 = 1 << 16;
/// A decoded row group with a column for each gene is cached up to this size: single rows cannot be decoded.
const MAX_CACHED_BYTES: u64 = 1 << 28;

/// Reads rows of a [`ParquetStore`].
pub(crate) struct ParquetReader<'a> {
    store: &'a ParquetStore,
    selection: SortedRows,
    segments: Vec<PageSegment>,
    reads: Vec<ReadRange>,
    /// The fetch buffer; it does not shrink, so that it is not zeroed for every batch.
    bytes: Vec<u8>,
    work: DecodeBuffers,
    /// The selected rows in file order.
    scratch: CsrRows,
    /// The row group that was decoded last, if there is a column for each gene.
    decoded: LruCache<usize, Vec<f32>>,
}

impl<'a> ParquetReader<'a> {
    pub fn new(store: &'a ParquetStore) -> Self {
        Self {
            store,
            selection: SortedRows::default(),
            segments: Vec::new(),
            reads: Vec::new(),
            bytes: Vec::new(),
            work: DecodeBuffers::new(),
            scratch: CsrRows::default(),
            decoded: LruCache::new(1, MAX_CACHED_BYTES as usize),
        }
    }

    /// Adds the segments of list column `leaf`; returns the number of bytes that were read to find them.
    fn want_lists(&mut self, number: usize, leaf: &MatrixColumn) -> Result<u64, AnnDataError> {
        let mut searched = 0;
        let store = self.store;
        let is_dense = matches!(store.layout, ParquetMatrixLayout::Dense(_));
        for (group_number, (group, pieces)) in self.selection.groups.iter().enumerate() {
            let chunk = store.file.chunk(*group, leaf.column)?;
            let (rows, genes) = (store.rows_of(*group), store.genes.len() as u64);
            if is_dense && chunk.values != rows * genes {
                let error = ParquetError::RowGroupValues { values: chunk.values, rows, genes };
                return Err(store.damaged(*group, error));
            }
            let segment = |bytes: &Range<u64>, rows: [u64; 2], values: [u64; 2], has_rows: bool| PageSegment {
                offset: bytes.start,
                len: (bytes.end - bytes.start) as usize,
                at: 0,
                first_row: rows[0],
                first_value: values[0],
                end_row: has_rows.then_some(rows[1]),
                end_value: has_rows.then_some(values[1]),
                leaf: number,
                group: group_number,
                values: chunk.values,
                compression: chunk.compression,
            };
            let pieces = &self.selection.pieces[pieces.clone()];
            if pieces.iter().map(|piece| piece.rows).sum::<u64>() == rows {
                self.segments.push(segment(&chunk.bytes, [0, rows], [0, rows * genes], true));
                continue;
            }
            let (directory, bytes) = store.directory(*group, number, leaf)?;
            searched += bytes;
            if !directory.dictionary.is_empty() {
                self.segments.push(segment(&directory.dictionary, [0; 2], [0; 2], false));
            }
            let mut end = 0;
            for piece in pieces {
                let rows = piece.row..piece.row + piece.rows;
                let pages = match is_dense {
                    true => directory.pages_of_values(rows.start * genes..rows.end * genes),
                    false => directory.pages_of(rows),
                };
                for page in pages.iter().filter(|page| page.bytes.start >= end) {
                    let (rows, values) = ([page.first_row, page.end_row], [page.first_value, page.end_value]);
                    self.segments.push(segment(&page.bytes, rows, values, true));
                }
                end = pages.last().map_or(end, |page| page.bytes.end.max(end));
            }
        }
        Ok(searched)
    }

    /// Adds the segments of all columns, unless the row group is cached.
    fn want_columns(&mut self, leaves: &[MatrixColumn]) -> Result<(), AnnDataError> {
        for (group_number, (group, _)) in self.selection.groups.iter().enumerate() {
            if self.decoded.find(group).is_some() {
                continue;
            }
            for (number, leaf) in leaves.iter().enumerate() {
                let chunk = self.store.file.chunk(*group, leaf.column)?;
                if chunk.values != self.store.rows_of(*group) {
                    let error = ParquetError::GeneValues { gene: number, values: chunk.values };
                    return Err(self.store.damaged(*group, error));
                }
                self.segments.push(PageSegment {
                    offset: chunk.bytes.start,
                    len: (chunk.bytes.end - chunk.bytes.start) as usize,
                    at: 0,
                    first_row: 0,
                    first_value: 0,
                    end_row: None,
                    end_value: None,
                    leaf: number,
                    group: group_number,
                    values: chunk.values,
                    compression: chunk.compression,
                });
            }
        }
        Ok(())
    }

    /// Adds the segments of the selected rows; returns the number of bytes that were read to find them.
    fn want(&mut self, wanted: &RowSelection<'_>) -> Result<u64, AnnDataError> {
        let store = self.store;
        self.segments.clear();
        self.selection = SortedRows::default();
        self.selection = SortedRows::new(wanted, &store.starts).map_err(|row| RequestError::RowBeyondEnd {
            row,
            store: store.name(),
            rows: store.len(),
        })?;
        match &store.layout {
            ParquetMatrixLayout::Dense(leaf) => self.want_lists(0, leaf),
            ParquetMatrixLayout::Sparse { indices, values } => {
                let searched = self.want_lists(0, indices)? + self.want_lists(1, values)?;
                // Segments were added column by column; the sort keeps the pages of each column in order.
                self.segments.sort_by_key(|segment| segment.group);
                Ok(searched)
            }
            ParquetMatrixLayout::Wide(leaves) => self.want_columns(leaves).map(|()| 0),
        }
    }

    /// Coalesces the segments into reads, and sets their offsets in the fetch buffer.
    fn plan_reads(&mut self) {
        let mut order: Vec<usize> = (0..self.segments.len()).collect();
        order.sort_unstable_by_key(|segment| self.segments[*segment].offset);
        self.reads.clear();
        let mut coalescer = Coalescer::new(&mut self.reads, MAX_GAP);
        for segment in order {
            let segment = &mut self.segments[segment];
            segment.at = coalescer.add(segment.offset, segment.len as u64);
        }
    }

    /// Reads all segments; returns the number of bytes.
    fn read(&mut self) -> Result<u64, AnnDataError> {
        self.plan_reads();
        let used = self.reads.last().map_or(0, ReadRange::buffer_end);
        if self.bytes.len() < used {
            self.bytes.resize(used, 0);
        }
        self.store.file.source.read_all(&self.reads, as_uninit(&mut self.bytes[..used]))?;
        Ok(used as u64)
    }

    /// Decodes the selected rows and appends them to `out`.
    fn decode_dense(&mut self, out: &mut Vec<f32>) -> Result<(), AnnDataError> {
        let store = self.store;
        let genes = store.genes.len();
        let base = out.len();
        let end = base + self.selection.rows as usize * genes;
        let reserved = out.try_reserve_exact(end - base);
        reserved.map_err(|_| AnnDataError::no_memory((end - base).saturating_mul(4), "rows"))?;
        // The cached row group comes first, because decoding the others evicts it.
        let mut order: Vec<usize> = (0..self.selection.groups.len()).collect();
        order.sort_by_key(|group| self.decoded.find(&self.selection.groups[*group].0).is_none());
        for number in order {
            let (group, pieces) = &self.selection.groups[number];
            let pieces = &self.selection.pieces[pieces.clone()];
            let from = self.segments.partition_point(|segment| segment.group < number);
            let to = self.segments.partition_point(|segment| segment.group <= number);
            let rows = store.rows_of(*group);
            let work = RowGroupRead { rows, genes, pieces, segments: &self.segments[from..to], bytes: &self.bytes };
            let result = match &store.layout {
                ParquetMatrixLayout::Dense(leaf) => decode_dense_lists(&work, leaf, &mut self.work, out, base),
                ParquetMatrixLayout::Wide(leaves) if rows * genes as u64 * 4 > MAX_CACHED_BYTES => {
                    out.resize(end, 0.0);
                    decode_gene_columns(&work, leaves, &mut self.work, &mut out[base..])
                }
                ParquetMatrixLayout::Wide(leaves) => {
                    let at = match self.decoded.find(group) {
                        Some(at) => at,
                        None => {
                            let count = rows as usize * genes;
                            let mut decoded = self.decoded.make_room(count * 4).unwrap_or_default();
                            decoded.resize(count, 0.0);
                            let all = [RowRun { row: 0, rows, slot: 0 }];
                            let work = RowGroupRead { pieces: &all, ..work };
                            decode_gene_columns(&work, leaves, &mut self.work, &mut decoded)
                                .map_err(|error| store.damaged(*group, error))?;
                            self.decoded.insert(*group, decoded)
                        }
                    };
                    let decoded = self.decoded.value(at);
                    out.resize(end, 0.0);
                    let out = &mut out[base..];
                    for piece in pieces {
                        let (from, to, len) = (piece.row as usize, piece.slot as usize, piece.rows as usize);
                        out[to * genes..(to + len) * genes]
                            .copy_from_slice(&decoded[from * genes..(from + len) * genes]);
                    }
                    Ok(())
                }
                ParquetMatrixLayout::Sparse { .. } => {
                    return Err(RequestError::OtherForm { form: Form::Sparse }.into());
                }
            };
            result.map_err(|error| store.damaged(*group, error))?;
        }
        out.resize(end, 0.0);
        for (from, to) in &self.selection.copies {
            let (from, to) = (base + *from as usize * genes, base + *to as usize * genes);
            out.copy_within(from..from + genes, to);
        }
        Ok(())
    }

    /// Decodes the selected rows in file order.
    fn decode_sparse(
        &mut self,
        indices: &MatrixColumn,
        values: &MatrixColumn,
        out: &mut CsrRows,
    ) -> Result<(), AnnDataError> {
        for (number, (group, pieces)) in self.selection.groups.iter().enumerate() {
            let from = self.segments.partition_point(|segment| segment.group < number);
            let to = self.segments.partition_point(|segment| segment.group <= number);
            let work = RowGroupRead {
                rows: self.store.rows_of(*group),
                genes: self.store.genes.len(),
                pieces: &self.selection.pieces[pieces.clone()],
                segments: &self.segments[from..to],
                bytes: &self.bytes,
            };
            decode_sparse_lists(&work, indices, values, &mut self.work, out)
                .map_err(|error| self.store.damaged(*group, error))?;
        }
        Ok(())
    }

    /// Appends the decoded rows to `out` in the order of the selection.
    fn place(&self, out: &mut CsrRows) {
        let mut rows = vec![0; self.selection.rows as usize];
        let mut row = 0;
        for piece in &self.selection.pieces {
            for slot in piece.slot..piece.slot + piece.rows {
                rows[slot as usize] = row;
                row += 1;
            }
        }
        for (from, to) in &self.selection.copies {
            rows[*to as usize] = rows[*from as usize];
        }
        let from = self.scratch.view();
        for row in rows {
            let (columns, values) = from.row(row);
            out.indices.extend_from_slice(columns);
            out.data.extend_from_slice(values);
            out.indptr.push(out.indices.len() as u64);
        }
    }
}

impl ReadRows for ParquetReader<'_> {
    fn fetch(&mut self, wanted: &RowSelection<'_>, _: &mut Rows) -> Result<u64, AnnDataError> {
        Ok(self.want(wanted)? + self.read()?)
    }

    fn will_need(&mut self, ranges: &[Range<u64>]) -> Result<Prefetch, AnnDataError> {
        let mut ahead = Prefetch::default();
        if self.store.file.source.is_remote() {
            for range in ranges {
                self.want(&RowSelection::Range(range.clone()))?;
                self.plan_reads();
                ahead.add(self.store.file.source.will_need(&self.reads)?);
            }
            self.segments.clear();
            self.selection = SortedRows::default();
        }
        Ok(ahead)
    }

    fn decode(&mut self, out: &mut Rows) -> Result<(), AnnDataError> {
        let ParquetMatrixLayout::Sparse { indices, values } = &self.store.layout else {
            let out = &mut out.dense(self.store.genes.len())?.data;
            let before = out.len();
            return self.decode_dense(out).inspect_err(|_| out.truncate(before));
        };
        let out = out.sparse()?;
        let before = out.end();
        let in_order = self.selection.copies.is_empty()
            && self.selection.pieces.windows(2).all(|pair| pair[0].slot + pair[0].rows == pair[1].slot);
        let result = if in_order {
            self.decode_sparse(indices, values, out)
        } else {
            let mut scratch = std::mem::take(&mut self.scratch);
            scratch.clear();
            let result = self.decode_sparse(indices, values, &mut scratch);
            self.scratch = scratch;
            result.map(|()| self.place(out))
        };
        result.inspect_err(|_| out.truncate(before))
    }

    fn unchanged(&self) -> Result<(), AnnDataError> {
        self.store.file.source.unchanged()
    }

    fn work_bytes(&self) -> u64 {
        self.bytes.capacity() as u64 + self.work.bytes() + self.scratch.capacity_bytes() + self.decoded.bytes() as u64
    }
}

/// Consecutive rows of a row group that go to consecutive positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowRun {
    /// First row, counted within the row group.
    pub row: u64,
    /// Number of rows.
    pub rows: u64,
    /// Position of the first row in the selection.
    pub slot: u64,
}

/// The selected rows in file order.
#[derive(Debug, Default, PartialEq, Eq)]
struct SortedRows {
    /// Row groups, ascending, with the range of their pieces.
    groups: Vec<(usize, Range<usize>)>,
    /// Pieces, ascending within each row group; no row occurs twice.
    pieces: Vec<RowRun>,
    /// Positions of rows that were selected again: the one in a piece, and the other.
    copies: Vec<(u64, u64)>,
    /// Number of selected rows.
    rows: u64,
}

impl SortedRows {
    /// Sorts the rows of `wanted` into row groups; `starts` are the first rows of all row groups, and the end of the last.
    ///
    /// # Errors
    /// A row is beyond the end.
    fn new(wanted: &RowSelection<'_>, starts: &[u64]) -> Result<Self, u64> {
        let len = starts.last().copied().unwrap_or(0);
        let mut selection = Self::default();
        match wanted {
            RowSelection::Range(range) => {
                if range.end > len {
                    return Err(range.end.saturating_sub(1).max(range.start));
                }
                let mut row = range.start;
                while row < range.end {
                    let group = starts.partition_point(|start| *start <= row) - 1;
                    let rows = starts[group + 1].min(range.end) - row;
                    selection.push(group, RowRun { row: row - starts[group], rows, slot: row - range.start });
                    row += rows;
                }
                selection.rows = range.end.saturating_sub(range.start);
            }
            RowSelection::Rows(rows) => {
                if let Some(beyond) = rows.iter().find(|row| **row >= len) {
                    return Err(*beyond);
                }
                let mut order: Vec<(u64, u64)> = rows.iter().zip(0..).map(|(row, slot)| (*row, slot)).collect();
                order.sort_unstable();
                let (mut group, mut last) = (0, None);
                for (row, slot) in order {
                    match last {
                        Some((before, from)) if before == row => selection.copies.push((from, slot)),
                        _ => {
                            if starts[group + 1] <= row {
                                group = starts.partition_point(|start| *start <= row) - 1;
                            }
                            selection.push(group, RowRun { row: row - starts[group], rows: 1, slot });
                            last = Some((row, slot));
                        }
                    }
                }
                selection.rows = rows.len() as u64;
            }
        }
        Ok(selection)
    }

    /// Appends a piece, or extends the last one.
    fn push(&mut self, group: usize, piece: RowRun) {
        match self.groups.last_mut() {
            Some((of, pieces)) if *of == group => {
                if let Some(last) = self.pieces.last_mut()
                    && last.row + last.rows == piece.row
                    && last.slot + last.rows == piece.slot
                {
                    last.rows += piece.rows;
                    return;
                }
                pieces.end += 1;
            }
            _ => self.groups.push((group, self.pieces.len()..self.pieces.len() + 1)),
        }
        self.pieces.push(piece);
    }
}

#[cfg(test)]
mod selection_tests {
    use proptest::prelude::*;

    use super::*;

    /// Row numbers by position, as the pieces and repeats say.
    fn placed(selection: &SortedRows, starts: &[u64]) -> Vec<Option<u64>> {
        let mut places = vec![None; selection.rows as usize];
        let mut put = |slot: u64, row| assert_eq!(places[slot as usize].replace(row), None);
        for (group, pieces) in &selection.groups {
            for piece in &selection.pieces[pieces.clone()] {
                assert!(starts[*group] + piece.row + piece.rows <= starts[group + 1]);
                (0..piece.rows).for_each(|i| put(piece.slot + i, starts[*group] + piece.row + i));
            }
        }
        for (from, to) in &selection.copies {
            assert_eq!(places[*to as usize], None);
            places[*to as usize] = places[*from as usize];
        }
        places
    }

    proptest! {
        #[test]
        fn every_row_gets_to_its_place(
            groups in prop::collection::vec(0..5_u64, 1..8),
            picks in prop::collection::vec(any::<u64>(), 0..40),
        ) {
            let ends = groups.iter().scan(0, |end, n| {
                *end += n;
                Some(*end)
            });
            let starts: Vec<u64> = std::iter::once(0).chain(ends).collect();
            let len = *starts.last().unwrap();
            prop_assume!(len > 0);
            let rows: Vec<u64> = picks.iter().map(|pick| pick % len).collect();
            let selection = SortedRows::new(&RowSelection::Rows(&rows), &starts).unwrap();
            prop_assert_eq!(placed(&selection, &starts), rows.iter().copied().map(Some).collect::<Vec<_>>());
            let range = rows.first().copied().unwrap_or(0)..rows.last().map_or(len, |last| last + 1);
            let selection = SortedRows::new(&RowSelection::Range(range.clone()), &starts).unwrap();
            prop_assert_eq!(placed(&selection, &starts), range.map(Some).collect::<Vec<_>>());
        }
    }

    #[test]
    fn rows_beyond_the_end_are_refused() {
        assert_eq!(SortedRows::new(&RowSelection::Rows(&[1, 7]), &[0, 3, 7]), Err(7));
        assert_eq!(SortedRows::new(&RowSelection::Range(5..8), &[0, 3, 7]), Err(7));
        assert_eq!(SortedRows::new(&RowSelection::Rows(&[0]), &[0]), Err(0));
    }
}
