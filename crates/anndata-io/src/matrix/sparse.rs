//! `CsrMatrix` and its reader, and the transposition of a CSC matrix in memory.
//! Invariant: row pointers are checked before they are used, and column indices when rows are decoded: they ascend below `columns`.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::DamageKind;
use crate::matrix::array_reader::ArrayReader;
use crate::matrix::matrix_file::{MatrixError, check_location, check_range, check_row};
use crate::matrix::row_pointers::{RowPointerReader, RowPointers};
use crate::matrix::stored_array::StoredArray;
use crate::rows::RowsEnd;
use crate::source::byte_source::ByteSource;
use crate::{AnnDataError, CsrRows, Prefetch, ReadRows, RequestError, RowLocation, RowSelection, Rows};

/// A CSR matrix in a file.
///
/// Invariant: `indices` and `data` have the same length, and `indptr` has an entry more than there are rows.
#[derive(Debug)]
pub(crate) struct CsrMatrix {
    /// Row pointers. They are to be loaded, or their ends checked, before rows are read.
    pub pointers: RowPointers,
    pub indices: StoredArray,
    pub data: StoredArray,
    pub columns: u64,
}

impl CsrMatrix {
    /// Compares the arrays with each other, and reads none; `rows` and `columns` are the shape in the metadata. `across` names what a row
    /// consists of in messages: columns, or the rows of a CSC matrix.
    pub fn new(
        source: &ByteSource,
        indptr: StoredArray,
        indices: StoredArray,
        data: StoredArray,
        (rows, columns): (u64, u64),
        across: &'static str,
    ) -> Result<Self, AnnDataError> {
        let wrong = |name: &str, error: MatrixError| Err(source.damaged(DamageKind::inside(name, error)));
        for stored in [&indptr, &indices] {
            if !stored.dtype.is_integer() {
                return wrong(&stored.name, MatrixError::NotIntegers { dtype: stored.dtype });
            }
            if stored.is_unfinished() {
                return wrong(&stored.name, MatrixError::Unfinished);
            }
        }
        if i32::try_from(columns).is_err() {
            return wrong(&indices.name, MatrixError::TooMany { count: columns, of: across });
        }
        let name = indptr.name.clone();
        let pointers = match RowPointers::new(indptr, (rows, columns), &data) {
            Ok(pointers) => pointers,
            Err(error) => return wrong(&name, error),
        };
        if indices.len != data.len {
            let (other, other_entries) = (data.name.clone(), data.len);
            return wrong(&indices.name, MatrixError::Lengths { entries: indices.len, other, other_entries });
        }
        Ok(Self { pointers, indices, data, columns })
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        self.pointers.rows()
    }

    /// Whether rows can be read to any positions of a buffer that other readers fill, too.
    pub fn can_be_placed(&self) -> bool {
        self.indices.can_be_placed::<i32>() && self.data.can_be_placed::<f32>()
    }

    /// Number of stored values.
    pub fn nnz(&self) -> u64 {
        self.data.len
    }
}

/// Reads rows of a [`CsrMatrix`].
pub(crate) struct SparseReader<'a> {
    source: &'a ByteSource,
    csr: &'a CsrMatrix,
    pointers: RowPointerReader<'a>,
    indices: ArrayReader<'a, i32>,
    data: ArrayReader<'a, f32>,
    /// Number of rows in `out` before the last fetch.
    before: usize,
    /// Ranges in `out` of the rows of the last fetch, if they had given positions.
    placed: Option<Vec<Range<usize>>>,
    /// Scratch memory for a row that is sorted.
    unsorted: Vec<(i32, f32)>,
}

impl<'a> SparseReader<'a> {
    pub fn new(source: &'a ByteSource, csr: &'a CsrMatrix) -> Self {
        let (indices, data) = (ArrayReader::new(&csr.indices, source), ArrayReader::new(&csr.data, source));
        let pointers = RowPointerReader::new(&csr.pointers, source);
        Self { source, csr, pointers, indices, data, before: 0, placed: None, unsorted: Vec::new() }
    }

    /// As [`ReadRows::fetch`].
    fn fetch_rows(&mut self, wanted: &RowSelection<'_>, out: &mut CsrRows) -> Result<u64, AnnDataError> {
        self.before = out.len();
        self.placed = None;
        self.indices.begin(out.indices.len());
        self.data.begin(out.data.len());
        let mut end = out.indices.len() as u64;
        let of_pointers = match wanted {
            RowSelection::Range(range) => {
                let (starts, bytes) = self.pointers.all_of(range)?;
                let (first, last) = (starts[0], starts[starts.len() - 1]);
                out.indptr.extend(starts[1..].iter().map(|start| end + (start - first)));
                self.indices.add(first, last - first);
                self.data.add(first, last - first);
                bytes
            }
            RowSelection::Rows(wanted) => {
                let bytes = self.find_rows(wanted)?;
                for (index, row) in wanted.iter().enumerate() {
                    let (first, count) = self.pointers.values(index, *row..*row + 1);
                    end += count;
                    out.indptr.push(end);
                    self.indices.add(first, count);
                    self.data.add(first, count);
                }
                bytes
            }
        };
        // Both arrays are requested before one of them is waited for.
        let bytes = of_pointers + self.indices.fetch(&mut out.indices)? + self.data.fetch(&mut out.data)?;
        self.indices.finish(&mut out.indices)?;
        self.data.finish(&mut out.data)?;
        Ok(bytes)
    }

    /// Finds the values of single rows; returns the number of bytes that were read.
    fn find_rows(&mut self, wanted: &[u64]) -> Result<u64, AnnDataError> {
        for row in wanted {
            check_row(self.source, *row, self.csr.rows())?;
        }
        self.pointers.find(wanted.iter().map(|row| *row..*row + 1))
    }

    /// As [`ReadRows::fetch_to`].
    fn fetch_placed(&mut self, wanted: &[RowLocation], places: &[u64], out: &mut CsrRows) -> Result<u64, AnnDataError> {
        if !self.csr.can_be_placed() || wanted.len() != places.len() {
            return Err(RequestError::NoPlaces.into());
        }
        let placed = self.placed.get_or_insert_default();
        placed.clear();
        self.indices.begin_placed();
        self.data.begin_placed();
        let length = out.indices.len().min(out.data.len());
        for (row, place) in wanted.iter().zip(places) {
            check_location(self.source, row, *place, self.csr.nnz(), length)?;
            self.indices.add_at(row.first, row.values, *place as usize);
            self.data.add_at(row.first, row.values, *place as usize);
            placed.push(*place as usize..(*place + row.values) as usize);
        }
        let bytes = self.indices.fetch(&mut out.indices)? + self.data.fetch(&mut out.data)?;
        self.indices.finish(&mut out.indices)?;
        self.data.finish(&mut out.data)?;
        Ok(bytes)
    }

    /// As [`ReadRows::decode`].
    pub fn decode_rows(&mut self, out: &mut CsrRows) -> Result<(), AnnDataError> {
        self.indices.decode(&mut out.indices)?;
        self.data.decode(&mut out.data)?;
        if let Some(placed) = self.placed.take() {
            let result = placed.iter().try_for_each(|range| self.check(range.clone(), out));
            self.placed = Some(placed);
            return result;
        }
        (self.before..out.len()).try_for_each(|row| {
            let range = out.indptr[row] as usize..out.indptr[row + 1] as usize;
            self.check(range, out)
        })
    }

    /// Checks that the indices of a row ascend, or sorts them.
    fn check(&mut self, range: Range<usize>, out: &mut CsrRows) -> Result<(), AnnDataError> {
        let (indices, data) = (&mut out.indices[range.clone()], &mut out.data[range]);
        if ascend(indices, self.csr.columns as i32) { Ok(()) } else { self.sort(indices, data) }
    }

    /// Sorts a row; fails if it has an invalid index or an index twice.
    #[cold]
    fn sort(&mut self, indices: &mut [i32], data: &mut [f32]) -> Result<(), AnnDataError> {
        let (name, columns) = (&self.csr.indices.name, self.csr.columns);
        let wrong = |error: MatrixError| Err(self.source.damaged(DamageKind::inside(name, error)));
        if indices.iter().any(|column| *column < 0 || i64::from(*column) >= columns as i64) {
            return wrong(MatrixError::Index { columns });
        }
        self.unsorted.clear();
        self.unsorted.extend(indices.iter().copied().zip(data.iter().copied()));
        self.unsorted.sort_by_key(|(column, _)| *column);
        for ((index, value), sorted) in indices.iter_mut().zip(data).zip(&self.unsorted) {
            (*index, *value) = *sorted;
        }
        match indices.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(twice) => wrong(MatrixError::RepeatedIndex { index: twice[0] }),
            None => Ok(()),
        }
    }
}

/// Whether indices ascend and are in 0 to `columns` - 1, which is the case if each is less than the next, the first is not
/// negative and the last is less than `columns`. Without branches, so that the loop is vectorised.
fn ascend(indices: &[i32], columns: i32) -> bool {
    let (Some(first), Some(last)) = (indices.first(), indices.last()) else { return true };
    let descents = indices.iter().zip(&indices[1..]).fold(0, |descents, (a, b)| descents | i32::from(a >= b));
    descents == 0 && *first >= 0 && *last < columns
}

impl ReadRows for SparseReader<'_> {
    fn fetch(&mut self, wanted: &RowSelection<'_>, out: &mut Rows) -> Result<u64, AnnDataError> {
        let out = out.sparse()?;
        let end = out.end();
        self.fetch_rows(wanted, out).inspect_err(|_| out.truncate(end))
    }

    fn fetch_to(&mut self, rows: &[RowLocation], places: &[u64], out: &mut Rows) -> Result<u64, AnnDataError> {
        self.fetch_placed(rows, places, out.sparse()?)
    }

    fn will_need(&mut self, ranges: &[Range<u64>]) -> Result<Prefetch, AnnDataError> {
        let mut ahead = Prefetch::default();
        if self.source.is_remote() {
            for range in ranges {
                check_range(self.source, range, self.csr.rows())?;
            }
            self.pointers.find(ranges.iter().cloned())?;
            for (index, range) in ranges.iter().enumerate() {
                let (first, count) = self.pointers.values(index, range.clone());
                ahead.add(self.indices.will_need(first, count)?);
                ahead.add(self.data.will_need(first, count)?);
            }
        }
        Ok(ahead)
    }

    fn decode(&mut self, out: &mut Rows) -> Result<(), AnnDataError> {
        let out = out.sparse()?;
        let placed = self.placed.is_some();
        self.decode_rows(out).inspect_err(|_| {
            if !placed {
                out.truncate(RowsEnd { rows: self.before, values: out.indptr[self.before] as usize });
            }
        })
    }

    fn unchanged(&self) -> Result<(), AnnDataError> {
        self.source.unchanged()
    }

    fn work_bytes(&self) -> u64 {
        let placed = self.placed.as_ref().map_or(0, Vec::capacity) * size_of::<Range<usize>>();
        let unsorted = self.unsorted.capacity() * size_of::<(i32, f32)>();
        self.pointers.work_bytes() + self.indices.work_bytes() + self.data.work_bytes() + (placed + unsorted) as u64
    }
}

/// Values that are read at once for the transposition.
const VALUES_AT_A_TIME: u64 = 1 << 20;

/// Size of a CSR matrix with so many values and rows, in bytes.
pub(crate) const fn csr_bytes(values: u64, rows: u64) -> u64 {
    values.saturating_add(rows).saturating_add(1).saturating_mul(8)
}

/// Transposes a CSC matrix (`columns` has a "row" for each column) with `rows` rows to CSR in memory, if that takes at most
/// as many bytes as are `left`, and takes them from there. The file is read twice: to count, and to copy.
pub(crate) fn transpose_csc(
    source: &ByteSource,
    columns: &CsrMatrix,
    rows: u64,
    left: &AtomicU64,
) -> Result<CsrRows, AnnDataError> {
    let nnz = columns.nnz();
    let bytes = csr_bytes(nnz, rows);
    let taken = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
    if let Err(available) = taken {
        return Err(AnnDataError::CscTooLarge { path: source.path().to_owned(), bytes, available });
    }
    tracing::warn!(
        file = %source.path().display(),
        bytes,
        "the matrix is stored by columns (CSC): all of it is transposed in memory; a file that is stored by rows needs no memory for \
         that"
    );
    let mut indptr = zeros::<u64>(rows as usize + 1)?;
    each_piece(source, columns, |_, piece| {
        for row in &piece.indices {
            // The reader has checked that indices are in 0..rows.
            indptr[*row as usize + 1] += 1;
        }
    })?;
    for row in 0..rows as usize {
        indptr[row + 1] += indptr[row];
    }
    let (mut indices, mut data) = (zeros::<i32>(nnz as usize)?, zeros::<f32>(nnz as usize)?);
    let mut next = indptr.clone();
    each_piece(source, columns, |first, piece| {
        for column in 0..piece.len() {
            let (of_rows, values) = piece.view().row(column);
            for (row, value) in of_rows.iter().zip(values) {
                let at = next[*row as usize] as usize;
                // If the file changed in between, that is detected below; until then nothing may be written beyond the end.
                if let (Some(index), Some(place)) = (indices.get_mut(at), data.get_mut(at)) {
                    (*index, *place) = ((first + column) as i32, *value);
                }
                next[*row as usize] += 1;
            }
        }
    })?;
    source.at_path()?;
    if next.iter().zip(&indptr[1..]).any(|(next, end)| next != end) {
        return Err(AnnDataError::Rewritten { path: source.path().to_owned() });
    }
    Ok(CsrRows { indptr, indices, data })
}

/// Reads all columns, some at a time, and passes them to `of` with the number of the first one.
fn each_piece(
    source: &ByteSource,
    columns: &CsrMatrix,
    mut of: impl FnMut(usize, &CsrRows),
) -> Result<(), AnnDataError> {
    let pointers = columns.pointers.load(source)?;
    let mut reader = SparseReader::new(source, columns);
    let mut piece = CsrRows::default();
    let all = columns.rows();
    let mut first = 0;
    while first < all {
        let start = pointers[first as usize];
        let fit = pointers.partition_point(|end| *end <= start.saturating_add(VALUES_AT_A_TIME)) as u64 - 1;
        let last = fit.clamp(first + 1, all);
        piece.clear();
        reader.fetch_rows(&RowSelection::Range(first..last), &mut piece)?;
        reader.decode_rows(&mut piece)?;
        of(first as usize, &piece);
        first = last;
    }
    Ok(())
}

fn zeros<T: Clone + Default>(count: usize) -> Result<Vec<T>, AnnDataError> {
    let mut zeros = Vec::new();
    zeros.try_reserve_exact(count).map_err(|_| {
        AnnDataError::no_memory(count.saturating_mul(size_of::<T>()), "a matrix that is stored by columns")
    })?;
    zeros.resize(count, T::default());
    Ok(zeros)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ascends_as_defined(indices in proptest::collection::vec(-2i32..40, 0..12), columns in 0i32..40) {
            let strict = indices.windows(2).all(|pair| pair[0] < pair[1]);
            let inside = indices.iter().all(|index| (0..columns).contains(index));
            prop_assert_eq!(ascend(&indices, columns), strict && inside);
        }
    }
}
