//! The files that are read, as our writers write them.

use std::path::Path;

use anndata_io::write::{AnnDataSpec, AnnDataWriter, Compression, Frame, Layout, Matrix};
use anndata_io::{
    CsrRows, CsrView, ParquetCompression, ParquetLayout, ParquetOptions, ParquetWriter, RowsView, ZarrWriter,
};
use graph_loader::{LmdbWriter, text_order};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::harness::{Context, Outcome};

/// Rows of the sparse files.
const ROWS: u64 = 50_000;
/// Rows of the dense file.
const DENSE_ROWS: u64 = 10_000;
/// Genes of all files.
pub const GENES: u64 = 2_000;
/// Rows of a parquet row group, as `expctl data convert` makes them.
pub const ROW_GROUP: u64 = 1024;
/// Rows that are generated at once.
const PIECE_ROWS: u64 = 1000;
/// Records of the store of small records, and their mean length: JSON records of a perturbation.
pub const SMALL_RECORDS: (u64, usize) = (100_000, 400);
/// Records of the store of large records, and their mean length: masks as bytes.
pub const LARGE_RECORDS: (u64, usize) = (6_000, 30_000);

/// Writes what is missing in the folder.
pub fn build(context: &Context) -> Outcome<()> {
    let folder = &context.folder;
    let missing = |name: &str| !folder.join(name).exists();
    let (rows, dense) = (context.scaled(ROWS), context.scaled(DENSE_ROWS));
    if missing("sparse.parquet") {
        parquet(&folder.join("sparse.parquet"), ParquetLayout::Sparse, rows)?;
    }
    if missing("dense.parquet") {
        parquet(&folder.join("dense.parquet"), ParquetLayout::Dense, dense)?;
    }
    if missing("sharded.zarr") {
        zarr(folder, rows)?;
    }
    if missing("chunked.zarr") {
        crate::zarr::without_shards(&folder.join("sharded.zarr"), &folder.join("chunked.zarr"))?;
    }
    for (name, (records, bytes)) in [("small.lmdb", SMALL_RECORDS), ("large.lmdb", LARGE_RECORDS)] {
        if missing(name) {
            lmdb(&folder.join(name), context.scaled(records), bytes)?;
        }
    }
    Ok(())
}

/// Hands rows to `push`: counts of a tenth of the genes, most of them 1, some genes in most rows and most in few.
fn each_piece(rows: u64, mut push: impl FnMut(CsrView<'_>) -> Outcome<()>) -> Outcome<()> {
    let mut random = Pcg64Mcg::seed_from_u64(1);
    // Quadratic: mean 0.1, largest 0.3.
    let shares: Vec<f64> = (0..GENES).map(|_| 0.3 * random.random::<f64>().powi(2)).collect();
    let mut piece = CsrRows::default();
    let mut first = 0;
    while first < rows {
        piece.clear();
        for _ in first..(first + PIECE_ROWS).min(rows) {
            for (gene, share) in shares.iter().enumerate() {
                if random.random::<f64>() < *share {
                    // Geometric: 1 with probability 0.6.
                    let mut count = 1.0;
                    while random.random::<f32>() > 0.6 {
                        count += 1.0;
                    }
                    piece.indices.push(gene as i32);
                    piece.data.push(count);
                }
            }
            piece.indptr.push(piece.indices.len() as u64);
        }
        push(piece.view())?;
        first += PIECE_ROWS;
    }
    Ok(())
}

fn genes() -> Vec<String> {
    (0..GENES).map(|gene| format!("gene_{gene}")).collect()
}

fn parquet(path: &Path, layout: ParquetLayout, rows: u64) -> Outcome<()> {
    let options = ParquetOptions {
        layout,
        row_group_rows: ROW_GROUP as usize,
        compression: ParquetCompression::Snappy,
        ..ParquetOptions::default()
    };
    let mut writer = ParquetWriter::create(path, &genes(), &[], &options)?;
    each_piece(rows, |piece| Ok(writer.write_rows(&RowsView::Sparse(piece), &[])?))?;
    writer.finish()?;
    Ok(())
}

fn zarr(folder: &Path, rows: u64) -> Outcome<()> {
    // Annotations are copied from an .h5ad file.
    let annotated = folder.join("annotations.h5ad");
    let layout = Layout::Chunked { chunk: None, compression: Compression::None };
    let spec = AnnDataSpec { rows, columns: GENES, values: 0, matrix: Matrix::Csr, layout, threads: 1 };
    let mut writer = AnnDataWriter::create(&annotated, &spec)?;
    writer.put_var(&[], &Frame { index: genes(), columns: Vec::new() })?;
    writer.begin_obs(rows, &[])?;
    writer.push(CsrView { indptr: &vec![0; rows as usize + 1], indices: &[], data: &[] })?;
    writer.push_obs(&Frame { index: (0..rows).map(|row| format!("cell_{row}")).collect(), columns: Vec::new() })?;
    writer.finish()?;
    let mut writer = ZarrWriter::create(&folder.join("sharded.zarr"), GENES, rows * GENES / 10, 2)?;
    writer.copy_annotations(&annotated)?;
    each_piece(rows, |piece| Ok(writer.push(piece)?))?;
    writer.finish()?;
    Ok(())
}

fn lmdb(folder: &Path, records: u64, mean_bytes: usize) -> Outcome<()> {
    let writer = LmdbWriter::open(folder, 2 * records * mean_bytes as u64 + (64 << 20))?;
    let mut random = Pcg64Mcg::seed_from_u64(2);
    for indices in text_order(records).chunks(1000) {
        writer.append(indices, |_, out| {
            let (start, bytes) = (out.len(), random.random_range(mean_bytes / 2..mean_bytes * 3 / 2));
            out.resize(start + bytes, 0);
            random.fill_bytes(&mut out[start..]);
        })?;
    }
    Ok(writer.finish()?)
}
