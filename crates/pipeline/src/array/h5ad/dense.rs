use super::array_reader::ArrayReader;
use super::matrix::{check_range, check_row, dense};
use super::source::Source;
use super::stored::Stored;
use crate::PipelineError;
use crate::array::{ReadRows, Rows, Wanted};

/// A matrix with a value for every column in a file.
#[derive(Debug)]
pub(super) struct Dense {
    pub(super) rows: u64,
    pub(super) columns: u64,
    pub(super) data: Stored,
}

/// Reads rows of it.
pub(super) struct DenseReader<'a> {
    source: &'a Source,
    matrix: &'a Dense,
    data: ArrayReader<'a, f32>,
}

impl<'a> DenseReader<'a> {
    pub(super) fn new(source: &'a Source, matrix: &'a Dense) -> Self {
        Self { source, matrix, data: ArrayReader::new(&matrix.data, source) }
    }
}

impl ReadRows for DenseReader<'_> {
    fn fetch(&mut self, wanted: &Wanted<'_>, out: &mut Rows) -> Result<u64, PipelineError> {
        let (rows, columns) = (self.matrix.rows, self.matrix.columns);
        let out = dense(out, columns)?;
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

    fn decode(&mut self, out: &mut Rows) -> Result<(), PipelineError> {
        self.data.decode(dense(out, self.matrix.columns)?)
    }

    fn unchanged(&self) -> Result<(), PipelineError> {
        self.source.unchanged()
    }

    fn work_bytes(&self) -> u64 {
        self.data.work_bytes()
    }
}
