use std::path::Path;

use super::{hdf5_source, locate};
use crate::AnnDataError;
use crate::matrix::{CSC_BYTES, MatrixFile};

/// Matrices of AnnData files: X, raw/X, or a layer.
///
/// Encodings: `csr_matrix`, `csc_matrix` and `array` of AnnData 0.7 and later, `h5sparse_format` of earlier versions, data
/// sets without a word. Compression: gzip, shuffle, fletcher32, lzf, blosc, lz4, zstd.
impl MatrixFile {
    /// Open the matrix at `location`: `X`, `raw` (or `raw/X`) or `layers/NAME`. Of a matrix that is stored by columns (CSC) all
    /// of it is turned into rows in memory, if that takes no more than [`CSC_BYTES`].
    ///
    /// # Errors
    /// There is no such file or matrix (the error lists the layers that there are), it is damaged or cut short, or written in
    /// a way that cannot be read.
    pub fn open(path: &Path, location: &str) -> Result<Self, AnnDataError> {
        Self::open_within(path, location, CSC_BYTES)
    }

    /// Rows, columns and stored values of the matrix at `location`, which is not opened for that.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn size(path: &Path, location: &str) -> Result<(u64, u64, u64), AnnDataError> {
        let described = locate::describe(&hdf5_source::open(path)?, location)?;
        Ok((described.rows, described.columns, described.values()))
    }

    /// As [`Self::open`], with another bound on the bytes of memory that a matrix by columns may take.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_within(path: &Path, location: &str, csc_bytes: u64) -> Result<Self, AnnDataError> {
        Self::open_checked(path, location, csc_bytes, |_, _| Ok(()))
    }

    /// As [`Self::open_within`], if `check` finds the rows and columns right, which the file only says so far.
    pub(crate) fn open_checked(
        path: &Path,
        location: &str,
        csc_bytes: u64,
        check: impl FnOnce(u64, u64) -> Result<(), AnnDataError>,
    ) -> Result<Self, AnnDataError> {
        let source = hdf5_source::open(path)?;
        let described = locate::describe(&source, location)?;
        check(described.rows, described.columns)?;
        // What was described lies in the file that is read.
        source.at_path()?;
        Self::new(source, described, csc_bytes)
    }
}
