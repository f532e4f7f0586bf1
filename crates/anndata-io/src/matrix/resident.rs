use super::matrix_file::{check_range, check_row, sparse};
use crate::AnnDataError;
use crate::source::Source;
use crate::{CsrRows, ReadRows, Rows, Wanted};

/// Hands out rows that are in memory.
pub(crate) struct ResidentReader<'a> {
    pub(crate) source: &'a Source,
    pub(crate) rows: &'a CsrRows,
}

impl ReadRows for ResidentReader<'_> {
    fn fetch(&mut self, wanted: &Wanted<'_>, out: &mut Rows) -> Result<u64, AnnDataError> {
        let (all, out) = (self.rows.len() as u64, sparse(out)?);
        let mut copy = |range: std::ops::Range<usize>| {
            let starts = &self.rows.indptr[range.start..=range.end];
            let values = starts[0] as usize..starts[starts.len() - 1] as usize;
            let end = out.indices.len() as u64;
            out.indptr.extend(starts[1..].iter().map(|start| end + (start - starts[0])));
            out.indices.extend_from_slice(&self.rows.indices[values.clone()]);
            out.data.extend_from_slice(&self.rows.data[values]);
        };
        match wanted {
            Wanted::Range(range) => {
                check_range(self.source, range, all)?;
                copy(range.start as usize..range.end as usize);
            }
            Wanted::Rows(wanted) => {
                for row in *wanted {
                    check_row(self.source, *row, all)?;
                }
                wanted.iter().for_each(|row| copy(*row as usize..*row as usize + 1));
            }
        }
        // Nothing was read.
        Ok(0)
    }

    fn decode(&mut self, _: &mut Rows) -> Result<(), AnnDataError> {
        Ok(())
    }

    fn unchanged(&self) -> Result<(), AnnDataError> {
        self.source.unchanged()
    }
}
