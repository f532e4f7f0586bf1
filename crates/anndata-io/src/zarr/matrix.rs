use std::path::Path;

use super::locate::Located;
use super::tree::Tree;
use crate::AnnDataError;
use crate::matrix::{CSC_BYTES, MatrixFile};

/// Open the matrix at `location` of an AnnData folder: `X`, `raw` (or `raw/X`) or `layers/NAME`. Of a matrix that is stored by
/// columns (CSC) all of it is turned into rows in memory, if that takes no more than [`CSC_BYTES`].
///
/// # Errors
/// There is no such folder or matrix (the error lists the layers that there are), it is damaged or cut short, or written in a
/// way that cannot be read.
pub fn open_matrix(path: &Path, location: &str) -> Result<MatrixFile, AnnDataError> {
    open_checked(&Tree::open(path)?, location, CSC_BYTES, |_, _| Ok(()))
}

/// Rows, columns and stored values of the matrix at `location`, which is not opened for that.
///
/// # Errors
/// As [`open_matrix`].
pub fn size(path: &Path, location: &str) -> Result<(u64, u64, u64), AnnDataError> {
    let found = Located::find(&Tree::open(path)?, location)?;
    Ok((found.rows, found.columns, found.values()))
}

/// Open a matrix if `check` finds the rows and columns right, which metadata only says so far.
pub(super) fn open_checked(
    tree: &Tree,
    location: &str,
    csc_bytes: u64,
    check: impl FnOnce(u64, u64) -> Result<(), AnnDataError>,
) -> Result<MatrixFile, AnnDataError> {
    let found = Located::find(tree, location)?;
    check(found.rows, found.columns)?;
    let (source, described) = found.describe(tree)?;
    // What was described lies in the files that are read.
    tree.unchanged()?;
    source.at_path()?;
    MatrixFile::new(source, described, csc_bytes)
}
