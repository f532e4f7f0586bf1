//! `FileConversion` writes one file in another format, row for row. `Regroup` distributes the rows of all base files to a given number of
//! parquet files.
//! Invariant: rows pass in pieces, so memory does not grow with the file; the digest of the rows that are read back is that of the rows written.

use std::ops::Range;
use std::path::Path;

use anndata_io::write::{
    AnnDataSpec, AnnDataWriter, ColumnCells, ColumnKind, ColumnSpec, Compression, Frame, Layout, Matrix,
};
use anndata_io::{
    ArrayStore, CsrView, H5adStore, MdsCompression, MdsOptions, MdsWriter, ParquetLayout, ParquetObsColumn,
    ParquetObsKind, ParquetObsValues, ParquetOptions, ParquetWriter, RowsView, ZarrWriter,
};
use expctl_settings::ArrayFormat;

use crate::array::build::{Finished, file_range};
use crate::array::convert::{check_base, describe};
use crate::array::dataset::{ArrayFile, part};
use crate::array::rows::{RowsSeen, each_column, each_row, each_row_of, seen, stored};
use crate::array::source_file::{SourceFile, open_any};
use crate::build_folder::{Report, report};
use crate::{Damage, DatasetError, RequestError};

/// Makes a file of another format, row for row.
pub struct FileConversion<'a> {
    pub format: ArrayFormat,
    /// Rows of a parquet row group.
    pub row_group: u64,
    pub jobs: usize,
    pub source: &'a SourceFile,
}

/// Chunks as h5py makes them.
const fn chunked(compression: Compression) -> Layout {
    Layout::Chunked { chunk: None, compression }
}

/// Matrix and layout of an AnnData file of this format; `None` for other files.
pub fn layout(format: ArrayFormat) -> Option<(Matrix, Layout)> {
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
pub fn max_bytes(format: ArrayFormat, rows: u64, columns: u64, values: u64) -> u64 {
    // A saturated number fits on no disk.
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
    /// The source cannot be read, or the target written; the target reads back as other rows.
    pub fn run(&self, target: &Path, done: u64, rows: u64, to: &mut Report<'_>) -> Result<RowsSeen, DatasetError> {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        // The same extension: it decides how the file is read back.
        let hidden = target.with_file_name(format!(".unchecked-{name}"));
        // Left by a process that was killed.
        if hidden.is_dir() {
            std::fs::remove_dir_all(&hidden).map_err(DatasetError::io("remove", &hidden))?;
        }
        let written = self.write_and_check(&hidden, (done, rows), to).and_then(|written| {
            std::fs::rename(&hidden, target).map_err(DatasetError::io("rename to", target))?;
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
    ) -> Result<RowsSeen, DatasetError> {
        let mut written = RowsSeen::default();
        match layout(self.format) {
            Some((matrix, layout)) => self.ann_data(target, matrix, layout, &mut written, (done, rows), to)?,
            None => match self.format.extension() {
                "mds" => self.mds(target, &mut written, (done, rows), to)?,
                "zarr" => self.zarr(target, &mut written, (done, rows), to)?,
                _ => self.parquet(target, &mut written, (done, rows), to)?,
            },
        }
        let back = open_any(target)?;
        let found = seen(back.as_ref(), self.jobs, |n| report(to, "check", done + n, rows))?;
        if found.digest() != written.digest() {
            let source_file = self.source.path().display().to_string();
            return Err(DatasetError::damaged(target, Damage::OtherThanSource { source_file }));
        }
        Ok(written)
    }

    /// Copy the annotations of all rows.
    fn annotations(
        &self,
        (done, rows): (u64, u64),
        to: &mut Report<'_>,
        copy: impl FnOnce(&Path) -> Result<(), DatasetError>,
    ) -> Result<(), DatasetError> {
        report(to, "annotations", done, rows)?;
        copy(self.source.annotations())?;
        report(to, "annotations", done + self.source.store().len(), rows)
    }

    /// Hand all rows to `push`, in order and in pieces, with their numbers.
    fn each_row(
        &self,
        written: &mut RowsSeen,
        (done, rows): (u64, u64),
        to: &mut Report<'_>,
        mut push: impl FnMut(CsrView<'_>, Range<usize>) -> Result<(), DatasetError>,
    ) -> Result<(), DatasetError> {
        each_row(self.source.store(), self.jobs, |piece| {
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
    ) -> Result<(), DatasetError> {
        let store = self.source.store();
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
        self.annotations((done, rows), to, |from| Ok(writer.copy_annotations(from)?))?;
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
    ) -> Result<(), DatasetError> {
        let store = self.source.store();
        let mut writer = ZarrWriter::create(target, store.genes().len() as u64, stored(store), self.jobs)?;
        self.annotations(at, to, |from| Ok(writer.copy_annotations(from)?))?;
        self.each_row(written, at, to, |piece, _| Ok(writer.push(piece)?))?;
        Ok(writer.finish()?)
    }

    fn parquet(
        &self,
        target: &Path,
        written: &mut RowsSeen,
        at: (u64, u64),
        to: &mut Report<'_>,
    ) -> Result<(), DatasetError> {
        let store = self.source.store();
        let obs = ParquetObs::new(self.source.table()?);
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
    ) -> Result<(), DatasetError> {
        let (columns, frame) = self.source.table()?;
        let compression = match self.format {
            ArrayFormat::MdsZstd => MdsCompression::Zstd(3),
            _ => MdsCompression::None,
        };
        let options = MdsOptions { compression, ..MdsOptions::default() };
        let mut writer = MdsWriter::create(target, self.source.store().genes(), columns, frame, options)?;
        self.each_row(written, at, to, |piece, _| Ok(writer.write_rows(piece)?))?;
        writer.finish()?;
        Ok(())
    }
}

/// Options of parquet files of a format, in row groups of so many rows.
fn parquet_options(format: ArrayFormat, row_group: u64) -> ParquetOptions {
    let layout = match format {
        ArrayFormat::ParquetSparse => ParquetLayout::Sparse,
        _ => ParquetLayout::Dense,
    };
    let row_group_rows = usize::try_from(row_group).unwrap_or(usize::MAX);
    ParquetOptions { layout, row_group_rows, ..ParquetOptions::default() }
}

/// obs of an AnnData file as parquet files have it: the columns, and the values of each.
struct ParquetObs {
    pub columns: Vec<ParquetObsColumn>,
    cells: Vec<ParquetCells>,
}

impl ParquetObs {
    fn new((columns, frame): (Vec<ColumnSpec>, Frame)) -> Self {
        let (columns, cells) = columns.into_iter().zip(frame.columns).map(|(c, cells)| parquet_obs(c, cells)).unzip();
        Self { columns, cells }
    }

    /// The values of some rows, column by column.
    fn of_rows(&self, rows: Range<usize>) -> Vec<ParquetObsValues<'_>> {
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

fn parquet_obs(column: ColumnSpec, cells: ColumnCells) -> (ParquetObsColumn, ParquetCells) {
    let (kind, cells) = match (column.kind, cells) {
        (ColumnKind::Categorical { categories, .. }, ColumnCells::Codes(codes)) => {
            (ParquetObsKind::Labels(categories), ParquetCells::Labels(codes))
        }
        (_, ColumnCells::Strings(values)) => {
            let labels = distinct(values);
            (ParquetObsKind::Labels(labels.0), ParquetCells::Labels(labels.1))
        }
        (_, ColumnCells::Codes(codes)) => integers(codes.into_iter().map(|code| Some(code.into()))),
        (_, ColumnCells::Int64(values)) => integers(values.into_iter().map(Some)),
        (_, ColumnCells::NullableInt64(values)) => integers(values.into_iter()),
        (_, ColumnCells::Bool(values)) => (ParquetObsKind::Bools, ParquetCells::Bools(values)),
        (_, ColumnCells::Float64(values)) => (ParquetObsKind::Numbers, ParquetCells::Numbers(values)),
        (_, ColumnCells::Float32(values)) => {
            (ParquetObsKind::Numbers, ParquetCells::Numbers(values.into_iter().map(f64::from).collect()))
        }
    };
    (ParquetObsColumn { name: column.name, kind }, cells)
}

fn integers(values: impl Iterator<Item = Option<i64>>) -> (ParquetObsKind, ParquetCells) {
    (ParquetObsKind::Integers, ParquetCells::Integers(values.collect()))
}

/// Different texts, ascending as [`anndata_io::Labels`] have them, and which of them each row has.
fn distinct(values: Vec<String>) -> (Vec<String>, Vec<i32>) {
    let names: Vec<String> = std::collections::BTreeSet::from_iter(values.iter()).into_iter().cloned().collect();
    let numbers: std::collections::HashMap<&str, i32> = names.iter().map(String::as_str).zip(0..).collect();
    let codes = values.iter().map(|value| numbers[value.as_str()]).collect();
    (names, codes)
}

/// Puts the rows of the base files, in order, into another number of parquet files.
pub struct Regroup<'a> {
    pub sources: &'a [H5adStore],
    /// The manifest's entry of each source.
    pub base: &'a [ArrayFile],
    /// Parquet.
    pub format: ArrayFormat,
    /// Rows of a row group; not 0.
    pub row_group: u64,
    /// Number of files, at most as many as there are rows; not 0.
    pub file_count: u64,
    pub jobs: usize,
}

/// The base file that rows are read from.
struct Reading {
    source: usize,
    obs: ParquetObs,
    /// Its rows so far; none of a file that was not read from its first row on.
    seen: Option<RowsSeen>,
}

impl Regroup<'_> {
    /// Write the files into `folder`, but for those that are finished, and read each of them back.
    ///
    /// # Errors
    /// A base file cannot be read, has other rows than were built, or other columns of obs than the first one; a file cannot be
    /// written, or reads back as other rows.
    pub fn run(&self, folder: &Path, finished: &Finished, to: &mut Report<'_>) -> Result<Vec<ArrayFile>, DatasetError> {
        let Some(first) = self.sources.first() else {
            return Err(RequestError::NoFiles.into());
        };
        let columns = ParquetObs::new(first.table()?).columns;
        let options = parquet_options(self.format, self.row_group);
        let total: u64 = self.sources.iter().map(|source| source.len()).sum();
        let mut reading: Option<Reading> = None;
        let mut files = Vec::new();
        for index in 0..self.file_count {
            let (name, rows) = (part(index, self.format.extension()), file_range(total, self.file_count, index));
            if let Some(file) = finished.get(index, &name) {
                // Rows of the current source are skipped, so its digest cannot be compared with what was built.
                reading = None;
                files.push(file);
                continue;
            }
            let path = folder.join(format!(".unchecked-{name}"));
            let mut writer = ParquetWriter::create(&path, first.genes(), &columns, &options)?;
            let (mut written, mut start) = (RowsSeen::default(), 0);
            for (number, source) in self.sources.iter().enumerate() {
                let end = start + source.len();
                let own = rows.start.max(start)..rows.end.min(end);
                if own.start < own.end {
                    let local = own.start - start..own.end - start;
                    let reading = self.reading(&mut reading, number, local.start, &columns)?;
                    let mut row = local.start as usize;
                    each_row_of(source, local, self.jobs, |piece| {
                        let values = reading.obs.of_rows(row..row + piece.len());
                        writer.write_rows(&RowsView::Sparse(piece.view()), &values)?;
                        written.add(piece.view());
                        if let Some(seen) = &mut reading.seen {
                            seen.add(piece.view());
                        }
                        row += piece.len();
                        report(to, "rows", rows.start + written.rows, total)
                    })?;
                    if own.end == end
                        && let Some(seen) = &reading.seen
                    {
                        check_base(&self.base[number], seen, source.path())?;
                    }
                }
                start = end;
            }
            writer.finish()?;
            let back = open_any(&path)?;
            let found = seen(back.as_ref(), self.jobs, |n| report(to, "check", rows.start + n, total))?;
            if found.digest() != written.digest() {
                return Err(DatasetError::damaged(&path, Damage::ReadBack));
            }
            let target = folder.join(&name);
            std::fs::rename(&path, &target).map_err(DatasetError::io("rename to", &target))?;
            let file = describe(folder, name, &written, to)?;
            finished.put(index, &file)?;
            files.push(file);
        }
        Ok(files)
    }

    /// The base file of this number, from row `row` on, with the columns of obs that all have to have.
    fn reading<'r>(
        &self,
        open: &'r mut Option<Reading>,
        source: usize,
        row: u64,
        columns: &[ParquetObsColumn],
    ) -> Result<&'r mut Reading, DatasetError> {
        let known = open.take().filter(|known| known.source == source);
        let reading = match known {
            Some(known) => known,
            None => {
                let store = &self.sources[source];
                let obs = ParquetObs::new(store.table()?);
                if obs.columns != columns {
                    let damage = Damage::OtherColumns { first: self.sources[0].path().to_owned() };
                    return Err(DatasetError::damaged(store.path(), damage));
                }
                Reading { source, obs, seen: (row == 0).then(RowsSeen::default) }
            }
        };
        Ok(open.insert(reading))
    }
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
