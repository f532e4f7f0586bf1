use std::ops::Range;

use super::array_reader::ArrayReader;
use super::matrix_file::{check_range, check_row, dense};
use super::stored::Stored;
use crate::AnnDataError;
use crate::source::Source;
use crate::source::remote::Ahead;
use crate::{ReadRows, Rows, Wanted};

/// A matrix with a value for every column in a file.
#[derive(Debug)]
pub(crate) struct Dense {
    pub(crate) rows: u64,
    pub(crate) columns: u64,
    pub(crate) data: Stored,
}

/// Reads rows of it.
pub(crate) struct DenseReader<'a> {
    source: &'a Source,
    matrix: &'a Dense,
    data: ArrayReader<'a, f32>,
    /// Values that `out` had before what was fetched last; `None` where those have given places.
    before: Option<usize>,
}

impl<'a> DenseReader<'a> {
    pub(crate) fn new(source: &'a Source, matrix: &'a Dense) -> Self {
        Self { source, matrix, data: ArrayReader::new(&matrix.data, source), before: Some(0) }
    }
}

impl ReadRows for DenseReader<'_> {
    fn fetch(&mut self, wanted: &Wanted<'_>, out: &mut Rows) -> Result<u64, AnnDataError> {
        let (rows, columns) = (self.matrix.rows, self.matrix.columns);
        let out = dense(out, columns)?;
        self.before = Some(out.len());
        self.data.begin(out.len());
        match wanted {
            Wanted::Range(range) => {
                check_range(self.source, range, rows)?;
                self.data.want(range.start * columns, (range.end - range.start) * columns);
            }
            Wanted::Rows(wanted) => {
                for row in *wanted {
                    self.data.want(check_row(self.source, *row, rows)? as u64 * columns, columns);
                }
            }
        }
        let bytes = self.data.fetch(out)?;
        self.data.finish(out)?;
        Ok(bytes)
    }

    fn fetch_to(&mut self, rows: &[u64], places: &[u64], out: &mut Rows) -> Result<u64, AnnDataError> {
        let columns = self.matrix.columns;
        let out = dense(out, columns)?;
        if !self.matrix.data.can_be_placed::<f32>() || rows.len() != places.len() {
            return Err(AnnDataError::Invalid("rows of this matrix cannot be read to given places".to_owned()));
        }
        self.before = None;
        self.data.begin_placed();
        for (row, place) in rows.iter().zip(places) {
            let row = check_row(self.source, *row, self.matrix.rows)? as u64;
            if place.saturating_add(columns) > out.len() as u64 {
                let reason = format!("place {place} of a row is beyond {} values", out.len());
                return Err(AnnDataError::Invalid(reason));
            }
            self.data.want_at(row * columns, columns, *place as usize);
        }
        let bytes = self.data.fetch(out)?;
        self.data.finish(out)?;
        Ok(bytes)
    }

    fn will_need(&mut self, ranges: &[Range<u64>]) -> Result<Ahead, AnnDataError> {
        let mut ahead = Ahead::default();
        if self.source.is_remote() {
            let columns = self.matrix.columns;
            for range in ranges {
                check_range(self.source, range, self.matrix.rows)?;
                ahead.add(self.data.will_need(range.start * columns, (range.end - range.start) * columns)?);
            }
        }
        Ok(ahead)
    }

    fn decode(&mut self, out: &mut Rows) -> Result<(), AnnDataError> {
        let out = dense(out, self.matrix.columns)?;
        self.data.decode(out).inspect_err(|_| {
            if let Some(before) = self.before {
                out.truncate(before);
            }
        })
    }

    fn unchanged(&self) -> Result<(), AnnDataError> {
        self.source.unchanged()
    }

    fn work_bytes(&self) -> u64 {
        self.data.work_bytes()
    }
}
