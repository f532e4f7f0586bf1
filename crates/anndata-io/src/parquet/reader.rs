use std::ops::Range;

use super::layout::{Layout, Leaf};
use super::selection::{Piece, Selection};
use super::store::ParquetStore;
use super::work::{GroupWork, Segment, Work};
use super::{dense, sparse, wide};
use crate::AnnDataError;
use crate::source::Piece as FilePiece;
use crate::source::remote::Ahead;
use crate::{CsrRows, ReadRows, Rows, Wanted};

/// Segments that are no farther apart in the file are read in one call.
const GAP: u64 = 1 << 16;
/// A row group of columns that has no more bytes when it is decoded is kept: rows cannot be had without decoding all of
/// it.
const KEPT_BYTES: u64 = 1 << 28;

/// Reads rows of a [`ParquetStore`].
pub(super) struct ParquetReader<'a> {
    store: &'a ParquetStore,
    selection: Selection,
    segments: Vec<Segment>,
    /// What they are read as.
    pieces: Vec<FilePiece>,
    /// What was fetched; longer than it is, so that it is not cleared for every batch.
    bytes: Vec<u8>,
    work: Work,
    /// Rows in the order of the file.
    scratch: CsrRows,
    /// The row group decoded last, where a column is a gene.
    kept: Option<usize>,
    kept_rows: Vec<f32>,
}

impl<'a> ParquetReader<'a> {
    pub(super) fn new(store: &'a ParquetStore) -> Self {
        Self {
            store,
            selection: Selection::default(),
            segments: Vec::new(),
            pieces: Vec::new(),
            bytes: Vec::new(),
            work: Work::new(),
            scratch: CsrRows::default(),
            kept: None,
            kept_rows: Vec::new(),
        }
    }

    /// Note what must be read of column `leaf`, a list; returns how many bytes were read to find that out.
    fn want_lists(&mut self, number: usize, leaf: &Leaf) -> Result<u64, AnnDataError> {
        let mut searched = 0;
        let store = self.store;
        let is_dense = matches!(store.layout, Layout::Dense(_));
        for (group_number, (group, pieces)) in self.selection.groups.iter().enumerate() {
            let chunk = store.file.chunk(*group, leaf.column)?;
            let (rows, genes) = (store.rows_of(*group), store.genes.len() as u64);
            if is_dense && chunk.values != rows * genes {
                return Err(store.file.damaged(format!(
                    "row group {group} has {} values in {rows} rows; rows of {genes} were expected",
                    chunk.values
                )));
            }
            let segment = |bytes: &Range<u64>, rows: [u64; 2], values: [u64; 2], has_rows: bool| Segment {
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

    /// Note that all columns must be read, but of the row group that is there already.
    fn want_columns(&mut self, leaves: &[Leaf]) -> Result<(), AnnDataError> {
        for (group_number, (group, _)) in self.selection.groups.iter().enumerate() {
            if self.kept == Some(*group) {
                continue;
            }
            for (number, leaf) in leaves.iter().enumerate() {
                let chunk = self.store.file.chunk(*group, leaf.column)?;
                if chunk.values != self.store.rows_of(*group) {
                    let reason = format!("the column of gene {number} has {} values", chunk.values);
                    return Err(self.store.damaged(*group, &reason));
                }
                self.segments.push(Segment {
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

    /// Note what must be read for these rows; returns how many bytes were read to find that out.
    fn want(&mut self, wanted: &Wanted<'_>) -> Result<u64, AnnDataError> {
        let store = self.store;
        self.segments.clear();
        self.selection = Selection::default();
        self.selection = Selection::of(wanted, &store.starts).map_err(|row| {
            let rows = store.starts.last().copied().unwrap_or(0);
            AnnDataError::Invalid(format!("row {row} was asked for, {} has {rows} rows", store.file.path().display()))
        })?;
        match &store.layout {
            Layout::Dense(leaf) => self.want_lists(0, leaf),
            Layout::Sparse { indices, values } => {
                let searched = self.want_lists(0, indices)? + self.want_lists(1, values)?;
                // One column came after the other; pages of each stay in order.
                self.segments.sort_by_key(|segment| segment.group);
                Ok(searched)
            }
            Layout::Wide(leaves) => self.want_columns(leaves).map(|()| 0),
        }
    }

    /// Give all segments their places in the buffer; returns how many bytes it has.
    fn lay_out(&mut self) -> usize {
        let mut order: Vec<usize> = (0..self.segments.len()).collect();
        order.sort_unstable_by_key(|segment| self.segments[*segment].offset);
        self.pieces.clear();
        let mut used = 0;
        let mut next = 0;
        while next < order.len() {
            let start = self.segments[order[next]].offset;
            let mut end = start;
            while let Some(segment) = order.get(next).map(|segment| &mut self.segments[*segment]) {
                if segment.offset > end + GAP {
                    break;
                }
                segment.at = used + (segment.offset - start) as usize;
                end = end.max(segment.offset + segment.len as u64);
                next += 1;
            }
            let len = (end - start) as usize;
            self.pieces.push(FilePiece { offset: start, at: used, len });
            used += len;
        }
        used
    }

    /// Read all segments; returns how many bytes.
    fn read(&mut self) -> Result<u64, AnnDataError> {
        let used = self.lay_out();
        if self.bytes.len() < used {
            self.bytes.resize(used, 0);
        }
        self.store.file.read_all(&self.pieces, &mut self.bytes[..used])?;
        Ok(used as u64)
    }

    /// Append the rows to `out`.
    fn decode_dense(&mut self, out: &mut Vec<f32>) -> Result<(), AnnDataError> {
        let store = self.store;
        let genes = store.genes.len();
        let base = out.len();
        let end = base + self.selection.rows as usize * genes;
        out.try_reserve_exact(end - base).map_err(|_| {
            let rows = self.selection.rows;
            store.file.damaged(format!("there is no memory for {rows} rows of {genes} values"))
        })?;
        // The row group that is kept comes first: the others take its place.
        let kept = self.kept;
        let mut order: Vec<usize> = (0..self.selection.groups.len()).collect();
        order.sort_by_key(|group| kept != Some(self.selection.groups[*group].0));
        for number in order {
            let (group, pieces) = &self.selection.groups[number];
            let pieces = &self.selection.pieces[pieces.clone()];
            let from = self.segments.partition_point(|segment| segment.group < number);
            let to = self.segments.partition_point(|segment| segment.group <= number);
            let rows = store.rows_of(*group);
            let work = GroupWork { rows, genes, pieces, segments: &self.segments[from..to], bytes: &self.bytes };
            let result = match &store.layout {
                Layout::Dense(leaf) => dense::decode(&work, leaf, &mut self.work, out, base),
                Layout::Wide(leaves) if rows * genes as u64 * 4 > KEPT_BYTES => {
                    out.resize(end, 0.0);
                    wide::decode(&work, leaves, &mut self.work, &mut out[base..])
                }
                Layout::Wide(leaves) => {
                    if self.kept != Some(*group) {
                        self.kept = None;
                        self.kept_rows.resize(rows as usize * genes, 0.0);
                        let all = [Piece { row: 0, rows, slot: 0 }];
                        let work = GroupWork { pieces: &all, ..work };
                        wide::decode(&work, leaves, &mut self.work, &mut self.kept_rows)
                            .map_err(|reason| store.damaged(*group, &reason))?;
                        self.kept = Some(*group);
                    }
                    out.resize(end, 0.0);
                    let out = &mut out[base..];
                    for piece in pieces {
                        let (from, to, len) = (piece.row as usize, piece.slot as usize, piece.rows as usize);
                        out[to * genes..(to + len) * genes]
                            .copy_from_slice(&self.kept_rows[from * genes..(from + len) * genes]);
                    }
                    Ok(())
                }
                Layout::Sparse { .. } => Err("this is a sparse matrix".to_owned()),
            };
            result.map_err(|reason| store.damaged(*group, &reason))?;
        }
        out.resize(end, 0.0);
        for (from, to) in &self.selection.copies {
            let (from, to) = (base + *from as usize * genes, base + *to as usize * genes);
            out.copy_within(from..from + genes, to);
        }
        Ok(())
    }

    /// Append the rows in the order of the file.
    fn decode_sparse(&mut self, indices: &Leaf, values: &Leaf, out: &mut CsrRows) -> Result<(), AnnDataError> {
        for (number, (group, pieces)) in self.selection.groups.iter().enumerate() {
            let from = self.segments.partition_point(|segment| segment.group < number);
            let to = self.segments.partition_point(|segment| segment.group <= number);
            let work = GroupWork {
                rows: self.store.rows_of(*group),
                genes: self.store.genes.len(),
                pieces: &self.selection.pieces[pieces.clone()],
                segments: &self.segments[from..to],
                bytes: &self.bytes,
            };
            sparse::decode(&work, indices, values, &mut self.work, out)
                .map_err(|reason| self.store.damaged(*group, &reason))?;
        }
        Ok(())
    }

    /// Append the rows of the scratch to `out`, in the order that they were asked for.
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
    fn fetch(&mut self, wanted: &Wanted<'_>, _: &mut Rows) -> Result<u64, AnnDataError> {
        Ok(self.want(wanted)? + self.read()?)
    }

    fn will_need(&mut self, ranges: &[Range<u64>]) -> Result<Ahead, AnnDataError> {
        let mut ahead = Ahead::default();
        if self.store.file.is_remote() {
            for range in ranges {
                self.want(&Wanted::Range(range.clone()))?;
                self.lay_out();
                ahead.add(self.store.file.will_need(&self.pieces)?);
            }
            self.segments.clear();
            self.selection = Selection::default();
        }
        Ok(ahead)
    }

    fn decode(&mut self, out: &mut Rows) -> Result<(), AnnDataError> {
        match (&self.store.layout, out) {
            (Layout::Sparse { indices, values }, Rows::Sparse(out)) => {
                let before = (out.len(), out.indices.len(), out.data.len());
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
                if result.is_err() {
                    out.indptr.truncate(before.0 + 1);
                    out.indices.truncate(before.1);
                    out.data.truncate(before.2);
                }
                result
            }
            (Layout::Dense(_) | Layout::Wide(_), Rows::Dense(out)) => {
                let genes = self.store.genes.len();
                if out.data.is_empty() {
                    out.columns = genes;
                }
                if out.columns != genes {
                    return Err(AnnDataError::Invalid(format!(
                        "rows of {genes} values behind rows of {}",
                        out.columns
                    )));
                }
                let before = out.data.len();
                let result = self.decode_dense(&mut out.data);
                if result.is_err() {
                    out.data.truncate(before);
                }
                result
            }
            _ => Err(AnnDataError::Invalid("rows of another form than the store has".to_owned())),
        }
    }

    fn unchanged(&self) -> Result<(), AnnDataError> {
        self.store.file.unchanged()
    }

    fn work_bytes(&self) -> u64 {
        let kept = self.kept_rows.capacity() as u64 * 4;
        self.bytes.capacity() as u64 + self.work.bytes() + self.scratch.capacity_bytes() + kept
    }
}
