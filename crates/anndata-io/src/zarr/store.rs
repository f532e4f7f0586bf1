use std::path::Path;

use super::frame::Frame;
use super::matrix::open_checked;
use super::tree::Tree;
use crate::AnnDataError;
use crate::ann_data::{AnnDataStore, Container, check_shape, gene_names};
use crate::annotation::FrameColumns;
use crate::matrix::MatrixFile;

/// One matrix of one AnnData folder in zarr.
pub type ZarrStore = AnnDataStore<Zarr>;

/// A folder in zarr.
#[derive(Debug)]
pub struct Zarr;

impl Container for Zarr {
    fn open(path: &Path, layer: &str, csc_bytes: u64) -> Result<(MatrixFile, Vec<String>), AnnDataError> {
        let tree = Tree::open(path)?;
        let mut genes = Vec::new();
        let var = if matches!(layer, "raw" | "raw/X") { "raw/var" } else { "var" };
        let matrix = open_checked(&tree, layer, csc_bytes, |rows, columns| {
            let var = Frame::open(&tree, var)?;
            check_shape(layer, (rows, columns), &Frame::open(&tree, "obs")?, &var)?;
            genes = gene_names(&var)?;
            Ok(())
        })?;
        Ok((matrix, genes))
    }

    fn obs<T>(path: &Path, read: impl FnOnce(&dyn FrameColumns) -> Result<T, AnnDataError>) -> Result<T, AnnDataError> {
        let tree = Tree::open(path)?;
        let values = read(&Frame::open(&tree, "obs")?)?;
        tree.unchanged()?;
        Ok(values)
    }
}
