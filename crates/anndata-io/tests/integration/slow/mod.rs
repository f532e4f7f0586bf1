//! Tests that `make check` leaves out: AnnData writes many files for them.

mod h5ad_anndata;
