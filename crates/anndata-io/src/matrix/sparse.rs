use std::ops::Range;

use super::array_reader::ArrayReader;
use super::csr::Csr;
use super::matrix_file::{check_range, check_row, sparse};
use crate::AnnDataError;
use crate::source::Source;
use crate::source::remote::Ahead;
use crate::{CsrRows, ReadRows, Rows, Wanted};

/// Reads rows of a CSR matrix.
pub(crate) struct SparseReader<'a> {
    source: &'a Source,
    csr: &'a Csr,
    indices: ArrayReader<'a, i32>,
    data: ArrayReader<'a, f32>,
    /// Rows that `out` had before what was fetched last.
    before: usize,
    /// Where the values of each row that was fetched last are in `out`, if they were to be in given places.
    placed: Option<Vec<Range<usize>>>,
    /// A row that is put in order.
    unsorted: Vec<(i32, f32)>,
}

impl<'a> SparseReader<'a> {
    pub(crate) fn new(source: &'a Source, csr: &'a Csr) -> Self {
        let (indices, data) = (ArrayReader::new(&csr.indices, source), ArrayReader::new(&csr.data, source));
        Self { source, csr, indices, data, before: 0, placed: None, unsorted: Vec::new() }
    }

    /// As [`ReadRows::fetch`].
    pub(crate) fn fetch_rows(&mut self, wanted: &Wanted<'_>, out: &mut CsrRows) -> Result<u64, AnnDataError> {
        let rows = self.csr.rows();
        let starts = &self.csr.starts;
        self.before = out.len();
        self.placed = None;
        self.indices.begin(out.indices.len());
        self.data.begin(out.data.len());
        let mut end = out.indices.len() as u64;
        match wanted {
            Wanted::Range(range) => {
                check_range(self.source, range, rows)?;
                let starts = &starts[range.start as usize..=range.end as usize];
                let (first, last) = (starts[0], starts[starts.len() - 1]);
                out.indptr.extend(starts[1..].iter().map(|start| end + (start - first)));
                self.indices.want(first, last - first);
                self.data.want(first, last - first);
            }
            Wanted::Rows(wanted) => {
                for row in *wanted {
                    let row = check_row(self.source, *row, rows)?;
                    let (first, count) = (starts[row], starts[row + 1] - starts[row]);
                    end += count;
                    out.indptr.push(end);
                    self.indices.want(first, count);
                    self.data.want(first, count);
                }
            }
        }
        // Both are asked for before one is waited for.
        let bytes = self.indices.fetch(&mut out.indices)? + self.data.fetch(&mut out.data)?;
        self.indices.finish(&mut out.indices)?;
        self.data.finish(&mut out.data)?;
        Ok(bytes)
    }

    /// As [`ReadRows::fetch_to`].
    fn fetch_placed(&mut self, wanted: &[u64], places: &[u64], out: &mut CsrRows) -> Result<u64, AnnDataError> {
        let (rows, starts) = (self.csr.rows(), &self.csr.starts);
        if !self.csr.can_be_placed() || wanted.len() != places.len() {
            return Err(AnnDataError::Invalid("rows of this matrix cannot be read to given places".to_owned()));
        }
        let placed = self.placed.get_or_insert_default();
        placed.clear();
        self.indices.begin_placed();
        self.data.begin_placed();
        let length = out.indices.len().min(out.data.len()) as u64;
        for (row, place) in wanted.iter().zip(places) {
            let row = check_row(self.source, *row, rows)?;
            let (first, count) = (starts[row], starts[row + 1] - starts[row]);
            let end = place.saturating_add(count);
            if end > length {
                return Err(AnnDataError::Invalid(format!("place {place} of a row is beyond {length} values")));
            }
            self.indices.want_at(first, count, *place as usize);
            self.data.want_at(first, count, *place as usize);
            placed.push(*place as usize..end as usize);
        }
        let bytes = self.indices.fetch(&mut out.indices)? + self.data.fetch(&mut out.data)?;
        self.indices.finish(&mut out.indices)?;
        self.data.finish(&mut out.data)?;
        Ok(bytes)
    }

    /// As [`ReadRows::decode`].
    pub(crate) fn decode_rows(&mut self, out: &mut CsrRows) -> Result<(), AnnDataError> {
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

    /// Columns of a row are in order, or are put in order.
    fn check(&mut self, range: Range<usize>, out: &mut CsrRows) -> Result<(), AnnDataError> {
        let (indices, data) = (&mut out.indices[range.clone()], &mut out.data[range]);
        if ascend(indices, self.csr.columns as i32) { Ok(()) } else { self.sort(indices, data) }
    }

    /// Put a row in order; an error if that cannot be done.
    #[cold]
    fn sort(&mut self, indices: &mut [i32], data: &mut [f32]) -> Result<(), AnnDataError> {
        let (name, columns) = (&self.csr.indices.name, self.csr.columns);
        let wrong = |reason: String| Err(self.source.damaged(format!("{name}: {reason}")));
        if indices.iter().any(|column| *column < 0 || i64::from(*column) >= columns as i64) {
            return wrong(format!("has an index that is not in 0 to {}", columns.saturating_sub(1)));
        }
        self.unsorted.clear();
        self.unsorted.extend(indices.iter().copied().zip(data.iter().copied()));
        self.unsorted.sort_by_key(|(column, _)| *column);
        for ((index, value), sorted) in indices.iter_mut().zip(data).zip(&self.unsorted) {
            (*index, *value) = *sorted;
        }
        match indices.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(twice) => {
                wrong(format!("has index {} twice in a row; sum_duplicates() of scipy puts that right", twice[0]))
            }
            None => Ok(()),
        }
    }
}

/// Indices ascend and are in 0 to `columns` - 1: so they do if each is less than the next, the first is not negative and the
/// last is less than `columns`. Without branches, so that the compiler compares many at a time.
fn ascend(indices: &[i32], columns: i32) -> bool {
    let (Some(first), Some(last)) = (indices.first(), indices.last()) else { return true };
    let descents = indices.iter().zip(&indices[1..]).fold(0, |descents, (a, b)| descents | i32::from(a >= b));
    descents == 0 && *first >= 0 && *last < columns
}

impl ReadRows for SparseReader<'_> {
    fn fetch(&mut self, wanted: &Wanted<'_>, out: &mut Rows) -> Result<u64, AnnDataError> {
        let out = sparse(out)?;
        let (rows, values) = (out.indptr.len(), (out.indices.len(), out.data.len()));
        self.fetch_rows(wanted, out).inspect_err(|_| {
            out.indptr.truncate(rows);
            out.indices.truncate(values.0);
            out.data.truncate(values.1);
        })
    }

    fn fetch_to(&mut self, rows: &[u64], places: &[u64], out: &mut Rows) -> Result<u64, AnnDataError> {
        self.fetch_placed(rows, places, sparse(out)?)
    }

    fn will_need(&mut self, ranges: &[Range<u64>]) -> Result<Ahead, AnnDataError> {
        let mut ahead = Ahead::default();
        if self.source.is_remote() {
            for range in ranges {
                check_range(self.source, range, self.csr.rows())?;
                let (first, last) = (self.csr.starts[range.start as usize], self.csr.starts[range.end as usize]);
                ahead.add(self.indices.will_need(first, last - first)?);
                ahead.add(self.data.will_need(first, last - first)?);
            }
        }
        Ok(ahead)
    }

    fn decode(&mut self, out: &mut Rows) -> Result<(), AnnDataError> {
        let out = sparse(out)?;
        let placed = self.placed.is_some();
        self.decode_rows(out).inspect_err(|_| {
            if placed {
                return;
            }
            out.indptr.truncate(self.before + 1);
            let values = out.indptr.last().map_or(0, |end| *end as usize);
            out.indices.truncate(values);
            out.data.truncate(values);
        })
    }

    fn unchanged(&self) -> Result<(), AnnDataError> {
        self.source.unchanged()
    }

    fn work_bytes(&self) -> u64 {
        let placed = self.placed.as_ref().map_or(0, Vec::capacity) * size_of::<Range<usize>>();
        let unsorted = self.unsorted.capacity() * size_of::<(i32, f32)>();
        self.indices.work_bytes() + self.data.work_bytes() + (placed + unsorted) as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::ascend;

    proptest! {
        #[test]
        fn ascends_as_defined(indices in proptest::collection::vec(-2i32..40, 0..12), columns in 0i32..40) {
            let strict = indices.windows(2).all(|pair| pair[0] < pair[1]);
            let inside = indices.iter().all(|index| (0..columns).contains(index));
            prop_assert_eq!(ascend(&indices, columns), strict && inside);
        }
    }
}
