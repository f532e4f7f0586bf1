//! `MdsStore`: the `ArrayStore` of a folder of MDS shards; and `genes.txt`, the gene names beside the index.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::mds::encoding::{ColumnEncoding, MdsDtype};
use crate::mds::error::{MdsError, SampleError};
use crate::mds::index::{
    INDEX_FILE, Index, IndexNotes, IndexedShard, MdsMatrixLayout, RAW_INDICES, RAW_VALUES, SampleColumns, find_layout,
    obs_columns,
};
use crate::mds::obs::{first_cell, obs_labels, obs_numbers};
use crate::mds::reader::MdsReader;
use crate::mds::sample::parse_array;
use crate::mds::shard::{Shard, ShardBody};
use crate::names::{MissingName, NameLists, check_count, check_unique, numbered_genes};
use crate::source::byte_source::ByteSource;
use crate::source::folder::Folder;
use crate::source::local_file::allow_open_files;
use crate::write::WriteError;
use crate::{AnnDataError, Annotation, ArrayStore, Form, Labels, ReadRows};

/// MDS shards of a folder. A row is a sample with these columns:
///
/// - `x` (or `X`, or the only array): the values of all genes;
/// - or `indices` and `values` (or `data`; or an array of integers and one of floats): gene numbers, and their values.
///
/// They are `ndarray` with any numeric dtype, or `bytes`, which are int32 gene numbers and float32 values. Values are rounded
/// to the nearest float32. All other columns with one number or string a sample are obs. `genes.txt` beside the index has the
/// gene names, one a line. The index may have the additional keys that [`crate::MdsWriter`] writes.
#[derive(Debug)]
pub struct MdsStore {
    path: PathBuf,
    /// The files of all shards.
    pub(crate) source: ByteSource,
    pub(crate) shards: Vec<Shard>,
    /// First row of each shard, and the end of the last.
    pub(crate) starts: Vec<u64>,
    pub(crate) columns: SampleColumns,
    pub(crate) layout: MdsMatrixLayout,
    pub(crate) genes: Arc<[String]>,
    pub(crate) notes: IndexNotes,
    obs: BTreeMap<String, usize>,
}

impl MdsStore {
    /// Opens a folder, or the URL of one: reads its index, and the offsets of the samples of uncompressed shards (4 bytes of
    /// memory a row).
    ///
    /// # Errors
    /// The folder has no index; the columns of the matrix or the number of genes are ambiguous; a shard is missing, contradicts
    /// the index, or has an unsupported compression; the process may not open so many files.
    pub fn open(folder: &Path) -> Result<Self, AnnDataError> {
        Self::open_beside(folder, 0)
    }

    /// As [`Self::open`], in a process with `open_files` other open files.
    fn open_beside(path: &Path, open_files: usize) -> Result<Self, AnnDataError> {
        let folder = Folder::open(path)?;
        let Index { shards, columns, notes } = Index::read(&folder)?;
        let layout = find_layout(&columns, &notes).map_err(|error| index_damaged(path, error))?;
        allow_open_files(open_files + shards.len())?;
        let names: Vec<Vec<&str>> = shards.iter().map(IndexedShard::file_names).collect();
        let (source, chosen) = folder.source_of_first(&names)?;
        let shards = shards.into_iter().zip(chosen).enumerate();
        let shards = shards.map(|(file, (indexed, name))| Shard::open(&source, file, name > 0, indexed));
        let shards: Vec<Shard> = shards.collect::<Result<_, _>>()?;
        let ends = shards.iter().scan(0, |end, shard| {
            *end += shard.samples();
            Some(*end)
        });
        let starts = std::iter::once(0).chain(ends).collect();
        let obs = obs_columns(&columns);
        let path = path.to_owned();
        let mut store = Self { path, source, shards, starts, columns, layout, genes: [].into(), notes, obs };
        store.genes = store.gene_names(&folder)?.into();
        Ok(store)
    }

    /// Opens several folders; equal lists of genes are shared.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_all(folders: &[PathBuf]) -> Result<Vec<Self>, AnnDataError> {
        let lists = NameLists::default();
        let mut open_files = 0;
        let open = |folder: &PathBuf| {
            let mut store = Self::open_beside(folder, open_files)?;
            open_files += store.shards.len();
            store.genes = lists.shared(store.genes);
            Ok(store)
        };
        folders.iter().map(open).collect()
    }

    /// Number of rows of a folder, from its index.
    ///
    /// # Errors
    /// The folder has no index, or a damaged one.
    pub fn rows(folder: &Path) -> Result<u64, AnnDataError> {
        Ok(Index::read(&Folder::open(folder)?)?.shards.iter().map(|shard| shard.samples).sum())
    }

    fn gene_names(&self, folder: &Folder) -> Result<Vec<String>, AnnDataError> {
        if let Some(names) = read_gene_names(folder)? {
            return Ok(names);
        }
        let count = match (self.notes.columns, self.layout) {
            (Some(columns), _) => columns,
            (None, MdsMatrixLayout::Dense(column)) => self.row_length(column)?,
            (None, MdsMatrixLayout::Sparse { .. }) => {
                return Err(index_damaged(&self.path, MdsError::NoGeneCount));
            }
        };
        numbered_genes(count).map_err(|error| index_damaged(&self.path, error.into()))
    }

    /// Number of values of a dense row, from the encoding or the first sample.
    fn row_length(&self, column: usize) -> Result<u64, AnnDataError> {
        let encoding = &self.columns.encodings[column];
        if let ColumnEncoding::Array { dtype: Some(dtype), .. } = encoding
            && let Some(Some(bytes)) = encoding.size()
        {
            return Ok(u64::from(bytes) / dtype.size() as u64);
        }
        let Some(number) = self.shards.iter().position(|shard| shard.samples() > 0) else { return Ok(0) };
        let mut found = Ok(0);
        first_cell(self, number, column, |cell| {
            found = parse_array(encoding, RAW_VALUES, cell).map(|cell| cell.count as u64);
        })?;
        found.map_err(|error| self.damaged(number, 0, error))
    }

    /// Path of the folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// An error for a sample of a shard.
    #[cold]
    pub(crate) fn damaged(&self, shard: usize, sample: u64, error: SampleError) -> AnnDataError {
        self.source.file_damaged(self.shards[shard].file, MdsError::Sample { sample, error })
    }

    /// Number and encoding of a column of obs.
    fn column_of(&self, name: &str) -> Result<usize, AnnDataError> {
        self.obs.get(name).copied().ok_or_else(|| {
            let what = format!("there is no obs column '{name}'");
            let names = self.obs.keys().map(String::as_str);
            let missing = MdsError::MissingColumn(MissingName::new(what, "obs columns", name, names));
            AnnDataError::damaged(&self.path, missing)
        })
    }

    fn is_packed(&self) -> bool {
        self.shards.iter().any(|shard| matches!(shard.body, ShardBody::Packed(_)))
    }

    /// Minimum size of a value in a sample in bytes.
    fn value_bytes(&self) -> u64 {
        let of = |column: usize, raw: MdsDtype| match &self.columns.encodings[column] {
            ColumnEncoding::Array { dtype: Some(dtype), .. } => dtype.size() as u64,
            ColumnEncoding::Array { dtype: None, .. } => 1,
            _ => raw.size() as u64,
        };
        match self.layout {
            MdsMatrixLayout::Dense(x) => of(x, RAW_VALUES),
            MdsMatrixLayout::Sparse { indices, values } => of(indices, RAW_INDICES) + of(values, RAW_VALUES),
        }
    }
}

impl ArrayStore for MdsStore {
    fn len(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    fn genes(&self) -> &[String] {
        &self.genes
    }

    fn form(&self) -> Form {
        match self.layout {
            MdsMatrixLayout::Dense(_) => Form::Dense,
            MdsMatrixLayout::Sparse { .. } => Form::Sparse,
        }
    }

    /// Samples of a compressed shard, which is decompressed as a whole.
    fn run_rows(&self) -> u64 {
        if !self.is_packed() {
            return 1;
        }
        self.shards.iter().map(Shard::samples).max().unwrap_or(1).max(1)
    }

    fn starts(&self) -> Vec<u64> {
        let filled = self.starts.windows(2).filter(|pair| pair[0] < pair[1]).map(|pair| pair[0]);
        let starts: Vec<u64> = filled.collect();
        if starts.is_empty() { vec![0] } else { starts }
    }

    fn stored_bytes(&self) -> u64 {
        self.source.bytes()
    }

    fn max_values(&self) -> Option<u64> {
        match self.layout {
            MdsMatrixLayout::Dense(_) => self.len().checked_mul(self.genes.len() as u64),
            MdsMatrixLayout::Sparse { .. } => {
                Some(self.shards.iter().map(Shard::raw_bytes).sum::<u64>() / self.value_bytes())
            }
        }
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Reads all samples, up to the end of the column.
    fn labels(&self, column: &str) -> Result<Labels, AnnDataError> {
        obs_labels(self, column, self.column_of(column)?)
    }

    /// Reads all samples, up to the end of the column.
    fn numbers(&self, column: &str) -> Result<Vec<f64>, AnnDataError> {
        obs_numbers(self, column, self.column_of(column)?)
    }

    fn columns(&self) -> Result<Vec<String>, AnnDataError> {
        Ok(self.obs.keys().cloned().collect())
    }

    fn annotation(&self, column: &str) -> Result<Annotation, AnnDataError> {
        let encoding = &self.columns.encodings[self.column_of(column)?];
        if *encoding == ColumnEncoding::Text || self.notes.categories.contains_key(column) {
            return self.labels(column).map(Annotation::Classes);
        }
        let integers = match encoding {
            ColumnEncoding::Scalar(dtype) => !dtype.is_float(),
            other => *other == ColumnEncoding::TextInteger,
        };
        Ok(Annotation::Numbers { values: self.numbers(column)?, integers })
    }

    fn reader(&self) -> Result<Box<dyn ReadRows + '_>, AnnDataError> {
        Ok(Box::new(MdsReader::new(self)))
    }
}

/// An error for the index.
#[cold]
fn index_damaged(folder: &Path, error: MdsError) -> AnnDataError {
    AnnDataError::damaged(&folder.join(INDEX_FILE), error)
}

/// Name of the file beside the index with the gene names, one a line, in the order of their numbers.
pub(crate) const GENES_FILE: &str = "genes.txt";

/// Maximum size of this file in bytes.
const MAX_GENES_BYTES: u64 = 1 << 30;

/// The gene names beside the index of `folder`; `None` if there is no such file.
fn read_gene_names(folder: &Folder) -> Result<Option<Vec<String>>, AnnDataError> {
    let path = folder.path().join(GENES_FILE);
    let Some(bytes) = folder.get(GENES_FILE, MAX_GENES_BYTES)? else { return Ok(None) };
    let text = String::from_utf8(bytes).map_err(|_| AnnDataError::damaged(&path, MdsError::NotUtf8))?;
    let genes: Vec<String> = text.lines().map(str::to_owned).collect();
    if let Some(line) = genes.iter().position(String::is_empty) {
        return Err(AnnDataError::damaged(&path, MdsError::EmptyLine { line: line + 1 }));
    }
    let checked = check_unique(&genes).and_then(|()| check_count(genes.len() as u64));
    checked.map_err(|names| AnnDataError::damaged(&path, names))?;
    Ok(Some(genes))
}

/// Writes the gene names beside the index.
pub(crate) fn write_gene_names(folder: &Path, genes: &[String]) -> Result<PathBuf, AnnDataError> {
    let path = folder.join(GENES_FILE);
    let mut text = String::new();
    for gene in genes {
        let _ = writeln!(text, "{gene}");
    }
    std::fs::write(&path, text).map_err(AnnDataError::io("write", &path))?;
    Ok(path)
}

/// Fails if a name cannot be a line of a file.
pub(crate) fn check_gene_names(genes: &[String]) -> Result<(), WriteError> {
    if genes.is_empty() {
        return Err(WriteError::NoGenes);
    }
    check_count(genes.len() as u64)?;
    check_unique(genes)?;
    match genes.iter().find(|gene| gene.is_empty() || gene.contains(['\n', '\r'])) {
        Some(gene) => Err(WriteError::GeneLine { gene: gene.clone(), file: GENES_FILE }),
        None => Ok(()),
    }
}
