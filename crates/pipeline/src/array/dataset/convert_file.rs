use std::path::Path;

use expctl_record::ArrayFormat;

use super::columns::each_column;
use super::rows::RowsSeen;
use super::transfer::{each_row, seen, stored};
use crate::PipelineError;
use crate::array::write::{AnnDataSpec, AnnDataWriter, Cells, Column, ColumnKind, Compression, Layout, Matrix};
use crate::array::{
    ArrayStore, H5adStore, ParquetLayout, ParquetObsColumn, ParquetObsKind, ParquetObsValues, ParquetOptions,
    ParquetWriter, RowsView,
};
use crate::dataset::files::{Report, report};

/// Makes a file of another format from an AnnData file, row for row.
pub(super) struct FileConversion<'a> {
    pub(super) format: ArrayFormat,
    /// Rows of a parquet row group.
    pub(super) row_group: u64,
    pub(super) jobs: usize,
    pub(super) source: &'a H5adStore,
}

/// Chunks as h5py makes them.
const fn chunked(compression: Compression) -> Layout {
    Layout::Chunked { chunk: None, compression }
}

/// How the matrix of an AnnData file of this format lies in it; `None` of other files.
pub(super) fn layout(format: ArrayFormat) -> Option<(Matrix, Layout)> {
    Some(match format {
        ArrayFormat::H5ad | ArrayFormat::H5adShuffled => (Matrix::Csr, chunked(Compression::None)),
        ArrayFormat::H5adGzip => (Matrix::Csr, chunked(Compression::Gzip { level: 4, shuffle: false })),
        ArrayFormat::H5adLzf => (Matrix::Csr, chunked(Compression::Lzf)),
        ArrayFormat::H5adZstd => (Matrix::Csr, chunked(Compression::Zstd { level: 3 })),
        ArrayFormat::H5adContiguous => (Matrix::Csr, Layout::Contiguous),
        ArrayFormat::H5adDense => (Matrix::Dense, Layout::Contiguous),
        ArrayFormat::H5adCsc => (Matrix::Csc, chunked(Compression::None)),
        ArrayFormat::None | ArrayFormat::Parquet | ArrayFormat::ParquetSparse => return None,
    })
}

/// Bytes that files of a format take at most, about, for so many rows, columns and values that are not 0.
pub(super) fn most_bytes(format: ArrayFormat, rows: u64, columns: u64, values: u64) -> u64 {
    let annotations = rows * 100 + columns * 100 + (1 << 20);
    match format {
        ArrayFormat::H5adDense => rows * columns * 4 + annotations,
        _ => values * 8 + rows * 8 + annotations,
    }
}

impl FileConversion<'_> {
    /// Write `target`, which is complete once it has this name, and read it back. `passed` of `rows` in all are done before.
    ///
    /// # Errors
    /// It cannot be read or written; what was written reads back as something else.
    pub(super) fn run(
        &self,
        target: &Path,
        done: u64,
        rows: u64,
        to: &mut Report<'_>,
    ) -> Result<RowsSeen, PipelineError> {
        let mut written = RowsSeen::default();
        match layout(self.format) {
            Some((matrix, layout)) => self.ann_data(target, matrix, layout, &mut written, (done, rows), to)?,
            None => self.parquet(target, &mut written, (done, rows), to)?,
        }
        let back = open(target)?;
        let found = seen(back.as_ref(), self.jobs, |n| report(to, "check", done + n, rows))?;
        if found.digest() != written.digest() {
            let _ = std::fs::remove_file(target);
            let reason = format!("reads back as other rows than {} has; it was removed", self.source.name());
            return Err(PipelineError::damaged(target, reason));
        }
        Ok(written)
    }

    fn ann_data(
        &self,
        target: &Path,
        matrix: Matrix,
        layout: Layout,
        written: &mut RowsSeen,
        (done, rows): (u64, u64),
        to: &mut Report<'_>,
    ) -> Result<(), PipelineError> {
        let store = self.source;
        let values = match layout {
            // The exact number is needed, and zeros that a file stores are left out.
            Layout::Contiguous if matrix == Matrix::Csr => {
                seen(store, self.jobs, |n| report(to, "count", done + n, rows))?.nnz
            }
            _ => stored(store),
        };
        let columns = store.genes().len() as u64;
        let spec = AnnDataSpec { rows: store.len(), columns, values, matrix, layout, threads: self.jobs };
        let mut writer = AnnDataWriter::create(target, &spec)?;
        writer.copy_annotations(store.path())?;
        if matrix == Matrix::Csc {
            let mut reading = 0;
            let take = |view: crate::array::CsrView<'_>, _| writer.push(view);
            each_column(store, self.jobs, take, |piece, first| {
                if first {
                    written.add(piece.view());
                }
                reading = if reading + piece.len() as u64 > store.len() { 0 } else { reading } + piece.len() as u64;
                report(to, "rows", done + reading, rows)
            })?;
        } else {
            each_row(store, self.jobs, |piece| {
                written.add(piece.view());
                writer.push(piece.view())?;
                report(to, "rows", done + written.rows, rows)
            })?;
        }
        writer.finish().map(drop)
    }

    fn parquet(
        &self,
        target: &Path,
        written: &mut RowsSeen,
        (done, rows): (u64, u64),
        to: &mut Report<'_>,
    ) -> Result<(), PipelineError> {
        let store = self.source;
        let (columns, frame) = store.table()?;
        let obs: Vec<ParquetObs> =
            columns.into_iter().zip(frame.columns).map(|(c, cells)| parquet_obs(c, cells)).collect();
        let announced: Vec<ParquetObsColumn> = obs.iter().map(|(column, _)| column.clone()).collect();
        let layout = match self.format {
            ArrayFormat::ParquetSparse => ParquetLayout::Sparse,
            _ => ParquetLayout::Dense,
        };
        let row_group_rows = usize::try_from(self.row_group).unwrap_or(usize::MAX);
        let options = ParquetOptions { layout, row_group_rows, ..ParquetOptions::default() };
        let mut temporary = target.as_os_str().to_owned();
        temporary.push(".tmp");
        let temporary = std::path::PathBuf::from(temporary);
        let mut writer = ParquetWriter::create(&temporary, store.genes(), &announced, &options)?;
        let put = each_row(store, self.jobs, |piece| {
            let range = written.rows as usize..written.rows as usize + piece.len();
            let values: Vec<ParquetObsValues<'_>> = obs.iter().map(|(_, values)| values.of(range.clone())).collect();
            writer.write_rows(&RowsView::Sparse(piece.view()), &values)?;
            written.add(piece.view());
            report(to, "rows", done + written.rows, rows)
        });
        let put = put.and_then(|()| writer.finish().map(drop));
        if put.is_err() {
            let _ = std::fs::remove_file(&temporary);
            return put;
        }
        std::fs::rename(&temporary, target).map_err(PipelineError::io("rename to", target))
    }
}

/// A file of any format, open.
pub(super) fn open(path: &Path) -> Result<Box<dyn ArrayStore>, PipelineError> {
    Ok(match path.extension().is_some_and(|extension| extension == "parquet") {
        true => Box::new(crate::array::ParquetStore::open(path)?),
        false => Box::new(H5adStore::open(path, "")?),
    })
}

/// A column of obs with its values, as parquet files have it.
type ParquetObs = (ParquetObsColumn, ParquetCells);

enum ParquetCells {
    Labels(Vec<i32>),
    Numbers(Vec<f64>),
    Integers(Vec<Option<i64>>),
    Bools(Vec<bool>),
}

impl ParquetCells {
    fn of(&self, rows: std::ops::Range<usize>) -> ParquetObsValues<'_> {
        match self {
            Self::Labels(values) => ParquetObsValues::Labels(&values[rows]),
            Self::Numbers(values) => ParquetObsValues::Numbers(&values[rows]),
            Self::Integers(values) => ParquetObsValues::Integers(&values[rows]),
            Self::Bools(values) => ParquetObsValues::Bools(&values[rows]),
        }
    }
}

fn parquet_obs(column: Column, cells: Cells) -> ParquetObs {
    let (kind, cells) = match (column.kind, cells) {
        (ColumnKind::Categorical { categories, .. }, Cells::Codes(codes)) => {
            (ParquetObsKind::Labels(categories), ParquetCells::Labels(codes))
        }
        (_, Cells::Strings(values)) => {
            let labels = distinct(values);
            (ParquetObsKind::Labels(labels.0), ParquetCells::Labels(labels.1))
        }
        (_, Cells::Codes(codes)) => integers(codes.into_iter().map(|code| Some(code.into()))),
        (_, Cells::Int64(values)) => integers(values.into_iter().map(Some)),
        (_, Cells::NullableInt64(values)) => integers(values.into_iter()),
        (_, Cells::Bool(values)) => (ParquetObsKind::Bools, ParquetCells::Bools(values)),
        (_, Cells::Float64(values)) => (ParquetObsKind::Numbers, ParquetCells::Numbers(values)),
        (_, Cells::Float32(values)) => {
            (ParquetObsKind::Numbers, ParquetCells::Numbers(values.into_iter().map(f64::from).collect()))
        }
    };
    (ParquetObsColumn { name: column.name, kind }, cells)
}

fn integers(values: impl Iterator<Item = Option<i64>>) -> (ParquetObsKind, ParquetCells) {
    (ParquetObsKind::Integers, ParquetCells::Integers(values.collect()))
}

/// Different texts in the order in which they come, and which of them each row has.
fn distinct(values: Vec<String>) -> (Vec<String>, Vec<i32>) {
    let mut known = std::collections::HashMap::new();
    let mut names = Vec::new();
    let codes = values.into_iter().map(|value| {
        *known.entry(value).or_insert_with_key(|value| {
            names.push(value.clone());
            names.len() as i32 - 1
        })
    });
    let codes = codes.collect();
    (names, codes)
}
