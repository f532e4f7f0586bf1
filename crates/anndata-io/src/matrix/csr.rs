use super::stored::Stored;
use crate::AnnDataError;
use crate::source::Source;

/// A matrix in CSR in a file.
///
/// Invariants: `starts` begins with 0, ascends by no more than `columns` a row, and ends with the length of `indices` and of
/// `data`.
#[derive(Debug)]
pub(crate) struct Csr {
    /// `[rows + 1]`: where each row starts.
    pub(crate) starts: Vec<u64>,
    pub(crate) indices: Stored,
    pub(crate) data: Stored,
    pub(crate) columns: u64,
}

impl Csr {
    /// Check what the file says, with `rows` and `columns` as its shape says; `across` is what a row has (columns, or rows of
    /// a CSC matrix).
    pub(crate) fn new(
        source: &Source,
        indptr: &Stored,
        indices: Stored,
        data: Stored,
        (rows, columns): (u64, u64),
        across: &str,
    ) -> Result<Self, AnnDataError> {
        let wrong = |name: &str, reason: String| Err(source.damaged(format!("{name}: {reason}")));
        for stored in [indptr, &indices] {
            if !stored.number.is_integer() {
                return wrong(&stored.name, format!("holds {} instead of integers", stored.number));
            }
            if stored.is_unfinished() {
                return wrong(&stored.name, "was not written to its end".to_owned());
            }
        }
        if i32::try_from(columns).is_err() {
            return wrong(&indices.name, format!("has {columns} {across}; more than {} are not supported", i32::MAX));
        }
        if Some(indptr.len) != rows.checked_add(1) {
            return wrong(&indptr.name, format!("has {} entries for {rows} rows; it should have one more", indptr.len));
        }
        if indices.len != data.len {
            return wrong(&indices.name, format!("has {} entries, and {} has {}", indices.len, data.name, data.len));
        }
        let starts: Vec<u64> = indptr.read_whole(source)?;
        if let Some(row) = starts.windows(2).position(|pair| pair[1] < pair[0] || pair[1] - pair[0] > columns) {
            return wrong(
                &indptr.name,
                format!(
                    "goes from {} to {} at row {row}; a row has 0 to {columns} values",
                    starts[row] as i64,
                    starts[row + 1] as i64
                ),
            );
        }
        match (starts.first(), starts.last()) {
            (Some(0), Some(last)) if *last == data.len => Ok(Self { starts, indices, data, columns }),
            (Some(first), Some(last)) => wrong(
                &indptr.name,
                format!("goes from {first} to {last} instead of from 0 to {}, the length of {}", data.len, data.name),
            ),
            _ => wrong(&indptr.name, "is empty".to_owned()),
        }
    }

    /// Number of rows.
    pub(crate) fn rows(&self) -> u64 {
        self.starts.len() as u64 - 1
    }

    /// Rows can be read to any places of a buffer that others fill too.
    pub(crate) fn can_be_placed(&self) -> bool {
        self.indices.can_be_placed::<i32>() && self.data.can_be_placed::<f32>()
    }

    /// Values that are stored.
    pub(crate) fn nnz(&self) -> u64 {
        self.data.len
    }
}
