use super::csr::Csr;
use super::sparse::SparseReader;
use crate::AnnDataError;
use crate::source::Source;
use crate::{CsrRows, Wanted};

/// Values that are read at a time while it is turned.
const AT_A_TIME: u64 = 1 << 20;

/// Bytes of memory of so many values and rows.
pub(crate) const fn bytes(values: u64, rows: u64) -> u64 {
    values.saturating_add(rows).saturating_add(1).saturating_mul(8)
}

/// Turn a CSC matrix (`columns` has a "row" for each column) of `rows` rows into CSR in memory, if that takes no more than
/// `most` bytes. The file is read twice: to count, and to place.
pub(crate) fn turn(source: &Source, columns: &Csr, rows: u64, most: u64) -> Result<CsrRows, AnnDataError> {
    let nnz = columns.nnz();
    let bytes = bytes(nnz, rows);
    if bytes > most {
        return Err(AnnDataError::CscTooLarge { path: source.path().to_owned(), bytes, available: most });
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
            // Rows are checked to be in 0..rows by the reader.
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
                // A file that changed in between is found out below; until then nothing may be written beyond the end.
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

/// Read all columns, some at a time; the function gets the number of the first of them.
fn each_piece(source: &Source, columns: &Csr, mut of: impl FnMut(usize, &CsrRows)) -> Result<(), AnnDataError> {
    let mut reader = SparseReader::new(source, columns);
    let mut piece = CsrRows::default();
    let all = columns.rows();
    let mut first = 0;
    while first < all {
        let start = columns.starts[first as usize];
        let fit = columns.starts.partition_point(|end| *end <= start.saturating_add(AT_A_TIME)) as u64 - 1;
        let last = fit.clamp(first + 1, all);
        piece.clear();
        reader.fetch_rows(&Wanted::Range(first..last), &mut piece)?;
        reader.decode_rows(&mut piece)?;
        of(first as usize, &piece);
        first = last;
    }
    Ok(())
}

fn zeros<T: Clone + Default>(count: usize) -> Result<Vec<T>, AnnDataError> {
    let mut zeros = Vec::new();
    zeros.try_reserve_exact(count).map_err(|_| {
        AnnDataError::Invalid(format!("no memory for a matrix of {count} values that is stored by columns"))
    })?;
    zeros.resize(count, T::default());
    Ok(zeros)
}
