//! Files that AnnData, zarr, pyarrow and streaming write are read as Python reads them, and the other way round.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod h5ad_anndata;
mod h5ad_matrix;
mod matrix_cases;
mod mds;
mod parquet;
mod support;
mod truth;
mod zarr_matrix;
