//! Stores of rows: zarr, parquet and MDS.

use std::path::Path;

use anndata_io::{
    AnnDataError, ArrayStore, CsrRows, DenseRows, Form, MdsStore, ParquetStore, RowSelection, Rows, ZarrStore,
};

use super::Digest;
use crate::Outcome;

/// Rows that are read at once.
const PIECE_ROWS: u64 = 1000;
/// A dense matrix may have any number of rows that were never written.
const MAX_ROWS: u64 = 20_000;
/// Columns of obs that seeds have.
const OBS: [&str; 12] =
    ["cell_type", "donor", "weight", "text", "batch", "small", "wide", "score", "half", "digits", "decimal", "kind"];

/// A folder in zarr.
pub fn zarr(path: &Path) -> Outcome<u64> {
    let store = ZarrStore::open(path, "")?;
    store.row_names()?;
    for column in store.columns()? {
        store.labels(&column)?;
    }
    Ok(rows(&store)?)
}

/// A file of parquet.
pub fn parquet(path: &Path) -> Outcome<u64> {
    Ok(rows(&ParquetStore::open(path)?)?)
}

/// A folder of MDS shards.
pub fn mds(path: &Path) -> Outcome<u64> {
    Ok(rows(&MdsStore::open(path)?)?)
}

/// Some rows one by one from the end, columns of obs, and all rows.
fn rows(store: &dyn ArrayStore) -> Result<u64, AnnDataError> {
    let mut out = match store.form() {
        Form::Sparse => Rows::Sparse(CsrRows::default()),
        Form::Dense => Rows::Dense(DenseRows { columns: store.genes().len(), data: Vec::new() }),
    };
    let mut reader = store.reader()?;
    for row in (0..store.len()).rev().take(5) {
        out.clear();
        reader.fetch(&RowSelection::Rows(&[row]), &mut out)?;
        reader.decode(&mut out)?;
    }
    for column in OBS {
        // Most seeds have few of them; an error is as good as an answer.
        let _ = (store.labels(column), store.numbers(column));
    }
    let mut digest = Digest::new();
    let mut start = 0;
    while start < store.len().min(MAX_ROWS) {
        let end = (start + PIECE_ROWS).min(store.len());
        out.clear();
        reader.fetch(&RowSelection::Range(start..end), &mut out)?;
        reader.decode(&mut out)?;
        match &out {
            Rows::Dense(rows) => rows.data.iter().for_each(|value| digest.add(u64::from(value.to_bits()))),
            Rows::Sparse(rows) => {
                rows.indptr.iter().for_each(|start| digest.add(*start));
                rows.indices.iter().for_each(|column| digest.add(*column as u64));
                rows.data.iter().for_each(|value| digest.add(u64::from(value.to_bits())));
            }
        }
        start = end;
    }
    reader.unchanged()?;
    Ok(digest.value())
}
