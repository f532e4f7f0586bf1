use std::ops::Range;
use std::path::Path;

use expctl_record::ArrayFormat;

use super::columns::each_column;
use super::rows::RowsSeen;
use super::transfer::{each_row, seen, stored};
use crate::PipelineError;
use crate::array::write::{AnnDataSpec, AnnDataWriter, Cells, Column, ColumnKind, Compression, Layout, Matrix};
use crate::array::{
    ArrayStore, CsrView, H5adStore, MdsCompression, MdsOptions, MdsWriter, ParquetLayout, ParquetObsColumn,
    ParquetObsKind, ParquetObsValues, ParquetOptions, ParquetWriter, RowsView, ZarrWriter,
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
        ArrayFormat::None
        | ArrayFormat::Parquet
        | ArrayFormat::ParquetSparse
        | ArrayFormat::Mds
        | ArrayFormat::MdsZstd
        | ArrayFormat::Zarr => return None,
    })
}

/// Bytes that files of a format take at most, about, for so many rows, columns and values that are not 0.
pub(super) fn most_bytes(format: ArrayFormat, rows: u64, columns: u64, values: u64) -> u64 {
    // What no number can hold fits on no disk.
    let annotations = rows.saturating_mul(100).saturating_add(columns.saturating_mul(100)).saturating_add(1 << 20);
    let matrix = match format {
        ArrayFormat::H5adDense => rows.saturating_mul(columns).saturating_mul(4),
        _ => values.saturating_mul(8).saturating_add(rows.saturating_mul(8)),
    };
    matrix.saturating_add(annotations)
}

impl FileConversion<'_> {
    /// Write a hidden file, read it back, and name it `target` once it is complete and checked. `done` of `rows` in all are
    /// done before.
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
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        // Of the same extension, which says how it is read back.
        let hidden = target.with_file_name(format!(".unchecked-{name}"));
        // What a process that was killed has left.
        if hidden.is_dir() {
            std::fs::remove_dir_all(&hidden).map_err(PipelineError::io("remove", &hidden))?;
        }
        let written = self.write_and_check(&hidden, (done, rows), to).and_then(|written| {
            std::fs::rename(&hidden, target).map_err(PipelineError::io("rename to", target))?;
            Ok(written)
        });
        if written.is_err() {
            // A file, or a folder.
            let _ = std::fs::remove_file(&hidden).or_else(|_| std::fs::remove_dir_all(&hidden));
        }
        written
    }

    fn write_and_check(
        &self,
        target: &Path,
        (done, rows): (u64, u64),
        to: &mut Report<'_>,
    ) -> Result<RowsSeen, PipelineError> {
        let mut written = RowsSeen::default();
        match layout(self.format) {
            Some((matrix, layout)) => self.ann_data(target, matrix, layout, &mut written, (done, rows), to)?,
            None => match self.format.extension() {
                "mds" => self.mds(target, &mut written, (done, rows), to)?,
                "zarr" => self.zarr(target, &mut written, (done, rows), to)?,
                _ => self.parquet(target, &mut written, (done, rows), to)?,
            },
        }
        let back = open(target)?;
        let found = seen(back.as_ref(), self.jobs, |n| report(to, "check", done + n, rows))?;
        if found.digest() != written.digest() {
            let reason = format!("reads back as other rows than {} has; it is removed", self.source.name());
            return Err(PipelineError::damaged(target, reason));
        }
        Ok(written)
    }

    /// Hand all rows to `push`, in order and in pieces, with their numbers.
    fn each_row(
        &self,
        written: &mut RowsSeen,
        (done, rows): (u64, u64),
        to: &mut Report<'_>,
        mut push: impl FnMut(CsrView<'_>, Range<usize>) -> Result<(), PipelineError>,
    ) -> Result<(), PipelineError> {
        each_row(self.source, self.jobs, |piece| {
            let start = written.rows as usize;
            push(piece.view(), start..start + piece.len())?;
            written.add(piece.view());
            report(to, "rows", done + written.rows, rows)
        })
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
            let take = |view: CsrView<'_>, _| Ok(writer.push(view)?);
            each_column(store, self.jobs, take, |piece, first| {
                if first {
                    written.add(piece.view());
                }
                reading = if reading + piece.len() as u64 > store.len() { 0 } else { reading } + piece.len() as u64;
                report(to, "rows", done + reading, rows)
            })?;
        } else {
            self.each_row(written, (done, rows), to, |piece, _| Ok(writer.push(piece)?))?;
        }
        writer.finish()?;
        Ok(())
    }

    fn zarr(
        &self,
        target: &Path,
        written: &mut RowsSeen,
        at: (u64, u64),
        to: &mut Report<'_>,
    ) -> Result<(), PipelineError> {
        let store = self.source;
        let mut writer = ZarrWriter::create(target, store.genes().len() as u64, stored(store), self.jobs)?;
        writer.copy_annotations(store.path())?;
        self.each_row(written, at, to, |piece, _| Ok(writer.push(piece)?))?;
        Ok(writer.finish()?)
    }

    fn parquet(
        &self,
        target: &Path,
        written: &mut RowsSeen,
        at: (u64, u64),
        to: &mut Report<'_>,
    ) -> Result<(), PipelineError> {
        let store = self.source;
        let obs = ParquetObs::of(store)?;
        let options = parquet_options(self.format, self.row_group);
        let mut writer = ParquetWriter::create(target, store.genes(), &obs.columns, &options)?;
        self.each_row(written, at, to, |piece, range| {
            Ok(writer.write_rows(&RowsView::Sparse(piece), &obs.of_rows(range))?)
        })?;
        writer.finish()?;
        Ok(())
    }

    fn mds(
        &self,
        target: &Path,
        written: &mut RowsSeen,
        at: (u64, u64),
        to: &mut Report<'_>,
    ) -> Result<(), PipelineError> {
        let (columns, frame) = self.source.table()?;
        let compression = match self.format {
            ArrayFormat::MdsZstd => MdsCompression::Zstd(3),
            _ => MdsCompression::None,
        };
        let options = MdsOptions { compression, ..MdsOptions::default() };
        let mut writer = MdsWriter::create(target, self.source.genes(), columns, frame, options)?;
        self.each_row(written, at, to, |piece, _| Ok(writer.write_rows(piece)?))?;
        writer.finish()?;
        Ok(())
    }
}

/// A file of any format, open.
pub(super) fn open(path: &Path) -> Result<Box<dyn ArrayStore>, PipelineError> {
    Ok(match path.extension().and_then(|extension| extension.to_str()) {
        Some("parquet") => Box::new(crate::array::ParquetStore::open(path)?),
        Some("mds") => Box::new(crate::array::MdsStore::open(path)?),
        Some("zarr") => Box::new(crate::array::ZarrStore::open(path, "")?),
        _ => Box::new(H5adStore::open(path, "")?),
    })
}

/// How parquet files of a format are written, in row groups of so many rows.
pub(super) fn parquet_options(format: ArrayFormat, row_group: u64) -> ParquetOptions {
    let layout = match format {
        ArrayFormat::ParquetSparse => ParquetLayout::Sparse,
        _ => ParquetLayout::Dense,
    };
    let row_group_rows = usize::try_from(row_group).unwrap_or(usize::MAX);
    ParquetOptions { layout, row_group_rows, ..ParquetOptions::default() }
}

/// obs of an AnnData file as parquet files have it: the columns, and the values of each.
pub(super) struct ParquetObs {
    pub(super) columns: Vec<ParquetObsColumn>,
    cells: Vec<ParquetCells>,
}

impl ParquetObs {
    /// # Errors
    /// obs cannot be read.
    pub(super) fn of(store: &H5adStore) -> Result<Self, PipelineError> {
        let (columns, frame) = store.table()?;
        let (columns, cells) = columns.into_iter().zip(frame.columns).map(|(c, cells)| parquet_obs(c, cells)).unzip();
        Ok(Self { columns, cells })
    }

    /// The values of some rows, column by column.
    pub(super) fn of_rows(&self, rows: Range<usize>) -> Vec<ParquetObsValues<'_>> {
        self.cells.iter().map(|cells| cells.of(rows.clone())).collect()
    }
}

enum ParquetCells {
    Labels(Vec<i32>),
    Numbers(Vec<f64>),
    Integers(Vec<Option<i64>>),
    Bools(Vec<bool>),
}

impl ParquetCells {
    fn of(&self, rows: Range<usize>) -> ParquetObsValues<'_> {
        match self {
            Self::Labels(values) => ParquetObsValues::Labels(&values[rows]),
            Self::Numbers(values) => ParquetObsValues::Numbers(&values[rows]),
            Self::Integers(values) => ParquetObsValues::Integers(&values[rows]),
            Self::Bools(values) => ParquetObsValues::Bools(&values[rows]),
        }
    }
}

fn parquet_obs(column: Column, cells: Cells) -> (ParquetObsColumn, ParquetCells) {
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

/// Different texts, ascending as [`crate::array::Labels`] have them, and which of them each row has.
fn distinct(values: Vec<String>) -> (Vec<String>, Vec<i32>) {
    let names: Vec<String> = std::collections::BTreeSet::from_iter(values.iter()).into_iter().cloned().collect();
    let numbers: std::collections::HashMap<&str, i32> = names.iter().map(String::as_str).zip(0..).collect();
    let codes = values.iter().map(|value| numbers[value.as_str()]).collect();
    (names, codes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_classes_in_ascending_order() {
        let (names, codes) = distinct(["b", "a", "c", "b"].map(str::to_owned).to_vec());
        assert_eq!((names.join(" "), codes), ("a b c".to_owned(), vec![1, 0, 2, 1]));
    }
}
