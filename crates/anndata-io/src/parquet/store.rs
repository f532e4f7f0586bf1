//! `ParquetStore`: the `ArrayStore` of one parquet file. Its readers share the footer and the page directories.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::in_parallel::{in_parallel, opening_threads};
use crate::names::{MissingName, NameLists};
use crate::parquet::error::ParquetError;
use crate::parquet::file::ParquetFile;
use crate::parquet::obs::{obs_labels, obs_numbers};
use crate::parquet::page_directory::PageDirectory;
use crate::parquet::reader::ParquetReader;
use crate::parquet::schema::{MatrixColumn, ObsColumn, ParquetMatrixLayout, ParquetSchema, read_schema};
use crate::source::local_file::allow_open_files;
use crate::{AnnDataError, Annotation, ArrayStore, Form, Labels, ReadRows};

/// A parquet file. Its matrix is the first of these that exists:
///
/// - `X`, or the only list column: the values of all genes in each row;
/// - `indices` and `values`: lists of ascending gene numbers, and of values;
/// - a column for each gene: the columns that `expctl.genes` names, else the numeric columns of the most frequent type without
///   those of `expctl.obs`. Without either key, a warning names the columns.
///
/// Values have any numeric type; float64 and integers are rounded to the nearest float32. All other columns with one value a
/// row are obs. Optional key-value metadata: `expctl.genes` (JSON list: gene names), `expctl.columns` (number of genes),
/// `expctl.categories` (JSON object: category names of obs columns, in order), `expctl.obs` (JSON list: numeric columns that
/// are not genes).
#[derive(Debug)]
pub struct ParquetStore {
    pub(crate) file: ParquetFile,
    pub(crate) layout: ParquetMatrixLayout,
    pub(crate) genes: Arc<[String]>,
    /// First row of each row group, and the end of the last one.
    pub(crate) starts: Vec<u64>,
    obs: BTreeMap<String, ObsColumn>,
    categories: BTreeMap<String, Vec<String>>,
    /// Page directories of list columns by row group, built when part of a row group is read for the first time.
    directories: Vec<[Known; 2]>,
}

/// A page directory that is built on first use.
#[derive(Debug, Default)]
struct Known {
    directory: OnceLock<PageDirectory>,
    /// Held while the directory is built: without a page index that may read the whole column chunk, so it is done once.
    search: Mutex<()>,
}

impl ParquetStore {
    /// Opens a file: reads its footer and finds the matrix.
    ///
    /// # Errors
    /// The file cannot be read, is not parquet, has no matrix, or has an unsupported compression; a gene or column name occurs
    /// twice.
    pub fn open(path: &Path) -> Result<Self, AnnDataError> {
        let file = ParquetFile::open(path)?;
        let found = read_schema(&file.metadata).map_err(|error| AnnDataError::damaged(path, error))?;
        if let Some(guess) = &found.guess {
            tracing::warn!("{}: {guess}", path.display());
        }
        let columns = match &found.layout {
            ParquetMatrixLayout::Dense(leaf) => vec![leaf.column],
            ParquetMatrixLayout::Sparse { indices, values } => vec![indices.column, values.column],
            ParquetMatrixLayout::Wide(leaves) => leaves.iter().map(|leaf| leaf.column).collect(),
        };
        for column in &columns {
            file.check_compression(*column)?;
        }
        let file =
            if matches!(found.layout, ParquetMatrixLayout::Wide(_)) { file } else { file.with_page_index(&columns)? };
        let rows = file.metadata.row_groups().iter().scan(0, |end, group| {
            *end += group.num_rows() as u64;
            Some(*end)
        });
        let starts = std::iter::once(0).chain(rows).collect();
        let directories = file.metadata.row_groups().iter().map(|_| Default::default()).collect();
        let ParquetSchema { layout, genes, obs, categories, .. } = found;
        Ok(Self { file, layout, genes: genes.into(), starts, obs, categories, directories })
    }

    /// Opens several files; equal lists of genes are shared.
    ///
    /// # Errors
    /// As [`Self::open`]; the process may not open so many files.
    pub fn open_all(files: &[PathBuf]) -> Result<Vec<Self>, AnnDataError> {
        allow_open_files(files.len())?;
        let lists = NameLists::default();
        in_parallel(opening_threads(files.len()), files.len(), "opening files", |file| {
            let mut store = Self::open(&files[file])?;
            store.genes = lists.shared(store.genes);
            Ok(store)
        })
    }

    /// Number of rows of a row group.
    pub(crate) fn rows_of(&self, group: usize) -> u64 {
        self.starts[group + 1] - self.starts[group]
    }

    /// An error for a row group.
    pub(crate) fn damaged(&self, group: usize, error: impl Into<ParquetError>) -> AnnDataError {
        self.file.damaged(ParquetError::in_group(group, error))
    }

    /// The page directory of list column `leaf`, number `number` of the matrix, and the number of bytes that were read to build
    /// it.
    pub(crate) fn directory(
        &self,
        group: usize,
        number: usize,
        leaf: &MatrixColumn,
    ) -> Result<(&PageDirectory, u64), AnnDataError> {
        let known = &self.directories[group][number];
        if let Some(directory) = known.directory.get() {
            return Ok((directory, 0));
        }
        // The lock protects no value that a panic could leave half written.
        let _search = known.search.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(directory) = known.directory.get() {
            return Ok((directory, 0));
        }
        let is_dense = matches!(self.layout, ParquetMatrixLayout::Dense(_));
        let (directory, bytes) = PageDirectory::of(&self.file, group, leaf, self.genes.len(), is_dense)?;
        Ok((known.directory.get_or_init(|| directory), bytes))
    }

    fn obs_column(&self, name: &str) -> Result<ObsColumn, AnnDataError> {
        self.obs.get(name).copied().ok_or_else(|| {
            let is_gene =
                matches!(self.layout, ParquetMatrixLayout::Wide(_)) && self.genes.iter().any(|gene| gene == name);
            let error = if is_gene {
                ParquetError::GeneAsObs { column: name.to_owned() }
            } else {
                let what = format!("there is no obs column '{name}'");
                let names = self.obs.keys().map(String::as_str);
                ParquetError::MissingColumn(MissingName::new(what, "obs columns", name, names))
            };
            AnnDataError::damaged(self.file.source.path(), error)
        })
    }
}

impl ArrayStore for ParquetStore {
    fn len(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    fn genes(&self) -> &[String] {
        &self.genes
    }

    fn form(&self) -> Form {
        match self.layout {
            ParquetMatrixLayout::Sparse { .. } => Form::Sparse,
            ParquetMatrixLayout::Dense(_) | ParquetMatrixLayout::Wide(_) => Form::Dense,
        }
    }

    fn run_rows(&self) -> u64 {
        self.starts.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(1).max(1)
    }

    fn stored_bytes(&self) -> u64 {
        self.file.source.bytes()
    }

    fn max_values(&self) -> Option<u64> {
        let column = match &self.layout {
            ParquetMatrixLayout::Sparse { values, .. } => values.column,
            ParquetMatrixLayout::Dense(_) | ParquetMatrixLayout::Wide(_) => {
                return self.len().checked_mul(self.genes.len() as u64);
            }
        };
        let groups = self.file.metadata.row_groups().iter();
        groups.map(|group| u64::try_from(group.column(column).num_values()).ok()).sum()
    }

    fn min_values(&self) -> u64 {
        match self.layout {
            // An empty row counts as one value in the footer.
            ParquetMatrixLayout::Sparse { .. } => self.max_values().unwrap_or(0).saturating_sub(self.len()),
            ParquetMatrixLayout::Dense(_) | ParquetMatrixLayout::Wide(_) => 0,
        }
    }

    fn name(&self) -> String {
        self.file.source.path().display().to_string()
    }

    fn labels(&self, column: &str) -> Result<Labels, AnnDataError> {
        let leaf = self.obs_column(column)?;
        obs_labels(&self.file, leaf, self.categories.get(column))
            .map_err(|error| self.file.damaged(ParquetError::in_obs(column, error)))
    }

    fn numbers(&self, column: &str) -> Result<Vec<f64>, AnnDataError> {
        let leaf = self.obs_column(column)?;
        obs_numbers(&self.file, leaf).map_err(|error| self.file.damaged(ParquetError::in_obs(column, error)))
    }

    fn columns(&self) -> Result<Vec<String>, AnnDataError> {
        Ok(self.obs.keys().cloned().collect())
    }

    fn annotation(&self, column: &str) -> Result<Annotation, AnnDataError> {
        match self.obs_column(column)? {
            ObsColumn::Number(_, numeric) if !self.categories.contains_key(column) => {
                Ok(Annotation::Numbers { values: self.numbers(column)?, integers: !numeric.is_float() })
            }
            _ => self.labels(column).map(Annotation::Classes),
        }
    }

    fn reader(&self) -> Result<Box<dyn ReadRows + '_>, AnnDataError> {
        Ok(Box::new(ParquetReader::new(self)))
    }
}
