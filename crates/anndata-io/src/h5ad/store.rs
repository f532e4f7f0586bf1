use std::path::Path;

use super::frame::{Frame, var_location};
use super::frame_file::FrameFile;
use crate::AnnDataError;
use crate::ann_data::{AnnDataStore, Container, check_shape, gene_names};
use crate::annotation::FrameColumns;
use crate::matrix::MatrixFile;

/// One matrix of one AnnData file.
pub type H5adStore = AnnDataStore<Hdf5>;

/// A file in HDF5.
#[derive(Debug)]
pub struct Hdf5;

impl Container for Hdf5 {
    fn open(path: &Path, layer: &str, csc_bytes: u64) -> Result<(MatrixFile, Vec<String>), AnnDataError> {
        let mut genes = Vec::new();
        let matrix = MatrixFile::open_checked(path, layer, csc_bytes, |rows, columns| {
            let file = FrameFile::open(path)?;
            let var = Frame::open(&file, var_location(file.root(), layer))?;
            check_shape(layer, (rows, columns), &Frame::open(&file, "obs")?, &var)?;
            genes = gene_names(&var)?;
            Ok(())
        })?;
        matrix.unchanged()?;
        Ok((matrix, genes))
    }

    fn obs<T>(path: &Path, read: impl FnOnce(&dyn FrameColumns) -> Result<T, AnnDataError>) -> Result<T, AnnDataError> {
        let file = FrameFile::open(path)?;
        read(&Frame::open(&file, "obs")?)
    }
}
