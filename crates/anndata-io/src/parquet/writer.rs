use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::data_type::{FloatType, Int32Type};
use parquet::errors::ParquetError;
use parquet::file::writer::SerializedFileWriter;

use super::write_columns::{Held, properties, schema, write_dense, write_lists, write_obs};
use super::{ParquetLayout, ParquetObsColumn, ParquetObsKind, ParquetObsValues, ParquetOptions};
use crate::AnnDataError;
use crate::names::all_different;
use crate::{CsrRows, CsrView, RowsView};

/// Writes rows to a parquet file that pyarrow, pandas and [`super::ParquetStore`] read.
///
/// Holds the rows of one row group (CSR) and its pages in memory. The file is complete after [`Self::finish`] only; who
/// wants it to be there complete or not at all gives another name first and renames.
pub struct ParquetWriter {
    path: PathBuf,
    writer: SerializedFileWriter<File>,
    genes: usize,
    obs: Vec<ParquetObsColumn>,
    options: ParquetOptions,
    /// Rows of the next row group.
    rows: CsrRows,
    held: Vec<Held>,
    written: u64,
}

impl ParquetWriter {
    /// Make `path`, or replace it. `genes` are the names of the columns.
    ///
    /// # Errors
    /// Two genes or two columns of obs have one name, or that of a column of the matrix; two classes have one name; there are more
    /// genes than int32 counts; the file cannot be written.
    pub fn create(
        path: &Path,
        genes: &[String],
        obs: &[ParquetObsColumn],
        options: &ParquetOptions,
    ) -> Result<Self, AnnDataError> {
        check(genes, obs, options).map_err(|reason| AnnDataError::damaged(path, reason))?;
        let failed = |e: ParquetError| AnnDataError::damaged(path, e);
        let schema = schema(obs, options.layout).map_err(failed)?;
        let properties = properties(genes, obs, options).map_err(failed)?;
        let file = File::create(path).map_err(AnnDataError::io("create", path))?;
        let writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).map_err(failed)?;
        let held = obs.iter().map(|column| match column.kind {
            ParquetObsKind::Labels(_) => Held::Labels(Vec::new()),
            ParquetObsKind::Numbers => Held::Numbers(Vec::new()),
            ParquetObsKind::Integers => Held::Integers(Vec::new()),
            ParquetObsKind::Bools => Held::Bools(Vec::new()),
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

    /// Append rows, and their values of all columns of obs, in the order given to [`Self::create`].
    ///
    /// # Errors
    /// The values are not as many as there are rows, not of the column's kind, or of no class; a row has other columns
    /// than there are genes, or they do not ascend; the disk is full.
    pub fn write_rows(&mut self, rows: &RowsView<'_>, obs: &[ParquetObsValues<'_>]) -> Result<(), AnnDataError> {
        let count = match rows {
            RowsView::Sparse(rows) => rows.indptr.len().saturating_sub(1),
            RowsView::Dense { data, .. } => data.len().checked_div(self.genes).unwrap_or(0),
        };
        self.check_rows(rows).and_then(|()| self.check_obs(count, obs)).map_err(|e| self.refused(e))?;
        let mut done = 0;
        while done < count {
            let take = (count - done).min(self.options.row_group_rows - self.rows.len());
            match rows {
                RowsView::Sparse(rows) => self.hold_sparse(rows, done, take),
                RowsView::Dense { data, .. } => self.hold_dense(&data[done * self.genes..(done + take) * self.genes]),
            }
            for (held, values) in self.held.iter_mut().zip(obs) {
                match (held, values) {
                    (Held::Labels(held), ParquetObsValues::Labels(values)) => held.extend(&values[done..done + take]),
                    (Held::Numbers(held), ParquetObsValues::Numbers(values)) => held.extend(&values[done..done + take]),
                    (Held::Integers(held), ParquetObsValues::Integers(values)) => {
                        held.extend(&values[done..done + take]);
                    }
                    (Held::Bools(held), ParquetObsValues::Bools(values)) => held.extend(&values[done..done + take]),
                    // `check_obs` has refused it.
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

    /// Write what is left and the footer; returns the number of rows of the file.
    ///
    /// # Errors
    /// The disk is full.
    pub fn finish(mut self) -> Result<u64, AnnDataError> {
        if !self.rows.is_empty() {
            self.flush()?;
        }
        let path = self.path;
        let file = self.writer.into_inner().map_err(|e| AnnDataError::damaged(&path, e))?;
        file.sync_all().map_err(AnnDataError::io("write", &path))?;
        Ok(self.written)
    }

    fn refused(&self, reason: String) -> AnnDataError {
        AnnDataError::Invalid(format!("cannot write rows to {}: {reason}", self.path.display()))
    }

    fn check_rows(&self, rows: &RowsView<'_>) -> Result<(), String> {
        match rows {
            RowsView::Dense { columns, data } if *columns != self.genes || data.len() % (*columns).max(1) != 0 => {
                Err(format!("rows of {columns} values, the file has {} genes", self.genes))
            }
            RowsView::Dense { .. } => Ok(()),
            RowsView::Sparse(rows) => {
                for row in 0..rows.indptr.len().saturating_sub(1) {
                    let (columns, _) = rows.row(row);
                    let last = columns.last().map_or(0, |last| *last as i64);
                    if columns.first().is_some_and(|first| *first < 0)
                        || (!columns.is_empty() && last >= self.genes as i64)
                        || columns.windows(2).any(|pair| pair[0] >= pair[1])
                    {
                        return Err(format!("columns of row {row} do not ascend within 0..{}", self.genes));
                    }
                }
                Ok(())
            }
        }
    }

    fn check_obs(&self, count: usize, obs: &[ParquetObsValues<'_>]) -> Result<(), String> {
        if obs.len() != self.obs.len() {
            return Err(format!("{} columns of obs, the file has {}", obs.len(), self.obs.len()));
        }
        for (column, values) in self.obs.iter().zip(obs) {
            let (len, fits) = match (&column.kind, values) {
                (ParquetObsKind::Labels(names), ParquetObsValues::Labels(codes)) => {
                    let classes = -1..names.len() as i64;
                    (codes.len(), codes.iter().all(|code| classes.contains(&i64::from(*code))))
                }
                (ParquetObsKind::Numbers, ParquetObsValues::Numbers(values)) => (values.len(), true),
                (ParquetObsKind::Integers, ParquetObsValues::Integers(values)) => (values.len(), true),
                (ParquetObsKind::Bools, ParquetObsValues::Bools(values)) => (values.len(), true),
                _ => return Err(format!("the values of obs column '{}' are of another kind", column.name)),
            };
            if len != count {
                return Err(format!("{len} values of obs column '{}' for {count} rows", column.name));
            }
            if !fits {
                return Err(format!("a code of obs column '{}' is of no class", column.name));
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

    /// Write a row group of the rows that are held.
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
        write().map_err(|e| AnnDataError::damaged(path, e))?;
        self.written += self.rows.len() as u64;
        self.rows.clear();
        for held in &mut self.held {
            match held {
                Held::Labels(codes) => codes.clear(),
                Held::Numbers(values) => values.clear(),
                Held::Integers(values) => values.clear(),
                Held::Bools(values) => values.clear(),
            }
        }
        Ok(())
    }
}

fn check(genes: &[String], obs: &[ParquetObsColumn], options: &ParquetOptions) -> Result<(), String> {
    if genes.is_empty() || i32::try_from(genes.len()).is_err() {
        return Err(format!("cannot write rows of {} genes", genes.len()));
    }
    all_different(genes)?;
    if options.row_group_rows == 0 || options.page_rows == 0 {
        return Err("row groups and pages have 1 row or more".to_owned());
    }
    let mut names = HashSet::new();
    for column in obs {
        column.check()?;
        if !names.insert(&column.name) {
            return Err(format!("two obs columns have the name '{}'", column.name));
        }
        if let ParquetObsKind::Labels(classes) = &column.kind {
            let different: HashSet<_> = classes.iter().collect();
            if different.len() != classes.len() {
                return Err(format!("two classes of obs column '{}' have one name", column.name));
            }
        }
    }
    Ok(())
}
