//! `ParquetWriter` and its options: it checks rows and obs, and collects them until they fill a row group. `column_writer` encodes them.

use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::data_type::{FloatType, Int32Type};
use parquet::errors::ParquetError;
use parquet::file::writer::SerializedFileWriter;

use crate::names::{check_count, check_unique};
use crate::parquet::column_writer::{PendingObs, file_schema, write_dense, write_lists, write_obs, writer_properties};
use crate::parquet::schema::{DENSE_COLUMN, INDICES_COLUMN, VALUES_COLUMN};
use crate::write::WriteError;
use crate::{AnnDataError, CsrRows, CsrView, RowsView};

/// How the matrix is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ParquetLayout {
    /// One list column `X` with a value for each gene in each row, as NVIDIA Merlin reads it.
    #[default]
    Dense,
    /// Two list columns of the same lengths, `indices` (int32) and `values` (float32).
    Sparse,
}

/// Compression of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParquetCompression {
    /// None.
    None,
    /// Snappy, the default of most writers.
    Snappy,
    /// Zstandard with this level.
    Zstd(i32),
}

/// Options of [`ParquetWriter`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParquetOptions {
    /// How the matrix is stored.
    pub layout: ParquetLayout,
    /// Rows of a row group.
    pub row_group_rows: usize,
    /// Maximum rows of a page of the matrix: a reader decodes a whole page to get one row.
    pub page_rows: usize,
    /// Compression of pages.
    pub compression: ParquetCompression,
}

impl Default for ParquetOptions {
    fn default() -> Self {
        Self {
            layout: ParquetLayout::Dense,
            row_group_rows: 1024,
            page_rows: 16,
            compression: ParquetCompression::Snappy,
        }
    }
}

/// Type of a column of obs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParquetObsKind {
    /// Classes with these names; written as strings with a dictionary.
    Labels(Vec<String>),
    /// float64.
    Numbers,
    /// Nullable int64.
    Integers,
    /// Booleans.
    Bools,
}

/// Name and type of a column of obs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParquetObsColumn {
    /// Name.
    pub name: String,
    /// Type.
    pub kind: ParquetObsKind,
}

impl ParquetObsColumn {
    /// Fails if the name is that of a column of the matrix.
    fn check(&self) -> Result<(), WriteError> {
        if [DENSE_COLUMN, INDICES_COLUMN, VALUES_COLUMN].contains(&self.name.as_str()) {
            return Err(WriteError::ReservedColumn { column: self.name.clone() });
        }
        Ok(())
    }
}

/// Values of a column of obs for some rows.
#[derive(Clone, Copy, Debug)]
pub enum ParquetObsValues<'a> {
    /// int32 `[rows]`: class; -1 is a missing value.
    Labels(&'a [i32]),
    /// float64 `[rows]`; NaN is a missing value.
    Numbers(&'a [f64]),
    /// int64 `[rows]`.
    Integers(&'a [Option<i64>]),
    /// Booleans `[rows]`.
    Bools(&'a [bool]),
}

/// Writes a parquet file that pyarrow, pandas and [`crate::ParquetStore`] read.
///
/// Memory holds the rows (CSR) and the pages of one row group. The file is complete only after [`Self::finish`]; a caller that
/// must not leave an incomplete file writes to another name and renames it.
pub struct ParquetWriter {
    path: PathBuf,
    writer: SerializedFileWriter<File>,
    genes: usize,
    obs: Vec<ParquetObsColumn>,
    options: ParquetOptions,
    /// Rows of the next row group.
    rows: CsrRows,
    held: Vec<PendingObs>,
    written: u64,
}

impl ParquetWriter {
    /// Creates or replaces the file at `path`. `genes` are the names of the columns.
    ///
    /// # Errors
    /// A name of a gene, an obs column or a class occurs twice, or an obs column has the name of a column of the matrix; there
    /// are more genes than int32 counts; the file cannot be written.
    pub fn create(
        path: &Path,
        genes: &[String],
        obs: &[ParquetObsColumn],
        options: &ParquetOptions,
    ) -> Result<Self, AnnDataError> {
        check_names(genes, obs, options).map_err(|problem| AnnDataError::write(path, problem))?;
        let failed = |e| library_error(path, e);
        let schema = file_schema(obs, options.layout).map_err(failed)?;
        let properties = writer_properties(genes, obs, options).map_err(failed)?;
        let file = File::create(path).map_err(AnnDataError::io("create", path))?;
        let writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).map_err(failed)?;
        let held = obs.iter().map(|column| match column.kind {
            ParquetObsKind::Labels(_) => PendingObs::Labels(Vec::new()),
            ParquetObsKind::Numbers => PendingObs::Numbers(Vec::new()),
            ParquetObsKind::Integers => PendingObs::Integers(Vec::new()),
            ParquetObsKind::Bools => PendingObs::Bools(Vec::new()),
        });
        Ok(Self {
            path: path.to_owned(),
            writer,
            genes: genes.len(),
            held: held.collect(),
            obs: obs.to_vec(),
            options: options.clone(),
            rows: CsrRows::default(),
            written: 0,
        })
    }

    /// Appends rows, and their values of all obs columns in the order of [`Self::create`].
    ///
    /// # Errors
    /// The number of values is not that of the rows, or their type is not that of the column; a code is not that of a class; a
    /// column index of a row is too large, or they do not ascend; the disk is full.
    pub fn write_rows(&mut self, rows: &RowsView<'_>, obs: &[ParquetObsValues<'_>]) -> Result<(), AnnDataError> {
        let count = match rows {
            RowsView::Sparse(rows) => rows.indptr.len().saturating_sub(1),
            RowsView::Dense { data, .. } => data.len().checked_div(self.genes).unwrap_or(0),
        };
        let checked = self.check_rows(rows).and_then(|()| self.check_obs(count, obs));
        checked.map_err(|problem| AnnDataError::write(&self.path, problem))?;
        let mut done = 0;
        while done < count {
            let take = (count - done).min(self.options.row_group_rows - self.rows.len());
            match rows {
                RowsView::Sparse(rows) => self.hold_sparse(rows, done, take),
                RowsView::Dense { data, .. } => self.hold_dense(&data[done * self.genes..(done + take) * self.genes]),
            }
            for (held, values) in self.held.iter_mut().zip(obs) {
                match (held, values) {
                    (PendingObs::Labels(held), ParquetObsValues::Labels(values)) => {
                        held.extend(&values[done..done + take])
                    }
                    (PendingObs::Numbers(held), ParquetObsValues::Numbers(values)) => {
                        held.extend(&values[done..done + take])
                    }
                    (PendingObs::Integers(held), ParquetObsValues::Integers(values)) => {
                        held.extend(&values[done..done + take]);
                    }
                    (PendingObs::Bools(held), ParquetObsValues::Bools(values)) => {
                        held.extend(&values[done..done + take])
                    }
                    // `check_obs` has rejected it.
                    _ => {}
                }
            }
            done += take;
            if self.rows.len() == self.options.row_group_rows {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Writes the rest and the footer; returns the number of rows in the file.
    ///
    /// # Errors
    /// The disk is full.
    pub fn finish(mut self) -> Result<u64, AnnDataError> {
        if !self.rows.is_empty() {
            self.flush()?;
        }
        let path = self.path;
        let file = self.writer.into_inner().map_err(|e| library_error(&path, e))?;
        file.sync_all().map_err(AnnDataError::io("write", &path))?;
        Ok(self.written)
    }

    fn check_rows(&self, rows: &RowsView<'_>) -> Result<(), WriteError> {
        match rows {
            RowsView::Dense { columns, data } if *columns != self.genes || data.len() % (*columns).max(1) != 0 => {
                Err(WriteError::RowLength { found: *columns, columns: self.genes })
            }
            RowsView::Sparse(rows) if !rows.ascends_within(self.genes as u64) => {
                Err(WriteError::Indices { columns: self.genes as u64 })
            }
            _ => Ok(()),
        }
    }

    fn check_obs(&self, count: usize, obs: &[ParquetObsValues<'_>]) -> Result<(), WriteError> {
        if obs.len() != self.obs.len() {
            return Err(WriteError::ColumnCount { columns: self.obs.len(), values: obs.len() });
        }
        for (column, values) in self.obs.iter().zip(obs) {
            let name = || column.name.clone();
            let (len, fits) = match (&column.kind, values) {
                (ParquetObsKind::Labels(names), ParquetObsValues::Labels(codes)) => {
                    let classes = -1..names.len() as i64;
                    (codes.len(), codes.iter().all(|code| classes.contains(&i64::from(*code))))
                }
                (ParquetObsKind::Numbers, ParquetObsValues::Numbers(values)) => (values.len(), true),
                (ParquetObsKind::Integers, ParquetObsValues::Integers(values)) => (values.len(), true),
                (ParquetObsKind::Bools, ParquetObsValues::Bools(values)) => (values.len(), true),
                _ => return Err(WriteError::ColumnType { column: name() }),
            };
            if len != count {
                return Err(WriteError::ColumnLength { column: name(), found: len, rows: count });
            }
            if let (false, ParquetObsKind::Labels(classes)) = (fits, &column.kind) {
                return Err(WriteError::UnknownClass { column: name(), classes: classes.len() });
            }
        }
        Ok(())
    }

    fn hold_sparse(&mut self, rows: &CsrView<'_>, first: usize, count: usize) {
        let range = rows.indptr[first] as usize..rows.indptr[first + count] as usize;
        let shift = self.rows.indices.len() as u64;
        let ends = &rows.indptr[first + 1..=first + count];
        self.rows.indptr.extend(ends.iter().map(|end| end - range.start as u64 + shift));
        self.rows.indices.extend(&rows.indices[range.clone()]);
        self.rows.data.extend(&rows.data[range]);
    }

    fn hold_dense(&mut self, data: &[f32]) {
        for row in data.chunks_exact(self.genes) {
            self.rows.push_dense(row);
        }
    }

    /// Writes a row group with the buffered rows.
    fn flush(&mut self) -> Result<(), AnnDataError> {
        let path = &self.path;
        let mut write = || -> Result<(), ParquetError> {
            let mut group = self.writer.next_row_group()?;
            match self.options.layout {
                ParquetLayout::Dense => write_dense(&mut group, &self.rows, self.genes)?,
                ParquetLayout::Sparse => {
                    write_lists::<Int32Type>(&mut group, &self.rows.indptr, &self.rows.indices)?;
                    write_lists::<FloatType>(&mut group, &self.rows.indptr, &self.rows.data)?;
                }
            }
            for (column, held) in self.obs.iter().zip(&self.held) {
                write_obs(&mut group, column, held)?;
            }
            group.close()?;
            Ok(())
        };
        write().map_err(|e| library_error(path, e))?;
        self.written += self.rows.len() as u64;
        self.rows.clear();
        for held in &mut self.held {
            match held {
                PendingObs::Labels(codes) => codes.clear(),
                PendingObs::Numbers(values) => values.clear(),
                PendingObs::Integers(values) => values.clear(),
                PendingObs::Bools(values) => values.clear(),
            }
        }
        Ok(())
    }
}

#[cold]
fn library_error(path: &Path, error: ParquetError) -> AnnDataError {
    AnnDataError::write(path, WriteError::Library(error.into()))
}

fn check_names(genes: &[String], obs: &[ParquetObsColumn], options: &ParquetOptions) -> Result<(), WriteError> {
    if genes.is_empty() {
        return Err(WriteError::NoGenes);
    }
    check_count(genes.len() as u64)?;
    check_unique(genes)?;
    if options.row_group_rows == 0 || options.page_rows == 0 {
        return Err(WriteError::NoGroupRows);
    }
    let mut names = HashSet::new();
    for column in obs {
        column.check()?;
        if !names.insert(&column.name) {
            return Err(WriteError::RepeatedColumn { column: column.name.clone() });
        }
        if let ParquetObsKind::Labels(classes) = &column.kind {
            let different: HashSet<_> = classes.iter().collect();
            if different.len() != classes.len() {
                return Err(WriteError::RepeatedClass { column: column.name.clone() });
            }
        }
    }
    Ok(())
}
