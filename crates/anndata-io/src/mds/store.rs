use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::mds::encoding::ColumnEncoding;
use crate::mds::index::{
    INDEX_FILE, Index, IndexNotes, MdsMatrixLayout, RAW_INDICES, RAW_VALUES, SampleColumns, find_layout, obs_columns,
};
use crate::mds::obs::{first_cell, obs_labels, obs_numbers};
use crate::mds::reader::MdsReader;
use crate::mds::sample::parse_array;
use crate::mds::shard::{Shard, ShardBody};
use crate::names::{all_different, not_there, shared};
use crate::source::local_file::allow_open_files;
use crate::{AnnDataError, ArrayStore, Form, Labels, ReadRows};

/// Rows of the MDS shards of a folder. A row is a sample, whose columns are:
///
/// - `x` (or `X`, or the only array): values of all genes;
/// - or `indices` and `values` (or `data`; or an array of integers and one of floats): numbers of genes, and their values.
///
/// Both are `ndarray` of any types of numbers, or `bytes`, which are int32 numbers of genes and float32 values. Values
/// become the nearest float32. All other columns of one number or one text a sample are obs. `genes.txt` beside the index
/// has the names of the genes, one a line. The index may say more: see docs/arrays.md.
#[derive(Debug)]
pub struct MdsStore {
    folder: PathBuf,
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
    /// Open a folder: read its index, and of shards that are not compressed where their samples begin (4 bytes of memory a
    /// row).
    ///
    /// # Errors
    /// It has no index; it is not clear which columns rows are made of, or how many genes there are; a shard is missing,
    /// not what the index says, or compressed in a way that is not known here; this process may not hold as many files
    /// open.
    pub fn open(folder: &Path) -> Result<Self, AnnDataError> {
        Self::open_beside(folder, 0)
    }

    /// As [`Self::open`], where so many files are open already.
    fn open_beside(folder: &Path, others: usize) -> Result<Self, AnnDataError> {
        let Index { shards, columns, notes } = Index::read(folder)?;
        let of_index = |reason: String| AnnDataError::damaged(&folder.join(INDEX_FILE), reason);
        let layout = find_layout(&columns, &notes).map_err(of_index)?;
        allow_open_files(others + shards.len())?;
        let shards: Vec<Shard> =
            shards.into_iter().map(|noted| Shard::open(folder, noted)).collect::<Result<_, _>>()?;
        let ends = shards.iter().scan(0, |end, shard| {
            *end += shard.samples();
            Some(*end)
        });
        let starts = std::iter::once(0).chain(ends).collect();
        let obs = obs_columns(&columns);
        let folder = folder.to_owned();
        let mut store = Self { folder, shards, starts, columns, layout, genes: [].into(), notes, obs };
        store.genes = store.names_of_genes()?.into();
        Ok(store)
    }

    /// Open several folders; lists of genes that are the same are one in memory.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_all(folders: &[PathBuf]) -> Result<Vec<Self>, AnnDataError> {
        let mut known = Vec::new();
        let mut files = 0;
        let open = |folder: &PathBuf| {
            let mut store = Self::open_beside(folder, files)?;
            files += store.shards.len();
            store.genes = shared(store.genes, &mut known);
            Ok(store)
        };
        folders.iter().map(open).collect()
    }

    /// Rows of a folder, as its index says.
    ///
    /// # Errors
    /// It has no index, or a damaged one.
    pub fn rows(folder: &Path) -> Result<u64, AnnDataError> {
        Ok(Index::read(folder)?.shards.iter().map(|shard| shard.samples).sum())
    }

    fn names_of_genes(&self) -> Result<Vec<String>, AnnDataError> {
        if let Some(names) = read_gene_names(&self.folder)? {
            return Ok(names);
        }
        let of_index = |reason: String| AnnDataError::damaged(&self.folder.join(INDEX_FILE), reason);
        let count = match (self.notes.columns, self.layout) {
            (Some(columns), _) => columns,
            (None, MdsMatrixLayout::Dense(column)) => self.row_length(column)?,
            (None, MdsMatrixLayout::Sparse { .. }) => {
                return Err(of_index(format!(
                    "nothing says how many genes there are: there is no {} (their names, one a line) beside it, and it has no \
                     \"expctl.columns\" (their number)",
                    GENES_FILE
                )));
            }
        };
        numbered_genes(count).map_err(of_index)
    }

    /// Values of a dense row: what the encoding says, or the first sample.
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
        found.map_err(|reason| self.damaged(number, 0, &reason))
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        &self.folder
    }

    /// What is wrong with a sample of a shard.
    pub(crate) fn damaged(&self, shard: usize, sample: u64, reason: &str) -> AnnDataError {
        self.shards[shard].source.damaged(format!("sample {sample}: {reason}"))
    }

    /// Number and encoding of a column of obs.
    fn column_of(&self, name: &str) -> Result<usize, AnnDataError> {
        self.obs.get(name).copied().ok_or_else(|| {
            let what = format!("there is no obs column '{name}'");
            let names = self.obs.keys().map(String::as_str);
            AnnDataError::damaged(&self.folder, not_there(&what, "obs columns", name, names))
        })
    }

    fn is_packed(&self) -> bool {
        self.shards.iter().any(|shard| matches!(shard.body, ShardBody::Packed(_)))
    }

    /// Bytes of a value in a sample, at least.
    fn value_bytes(&self) -> u64 {
        let of = |column: usize, raw: crate::mds::encoding::MdsDtype| match &self.columns.encodings[column] {
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

    /// Samples of a compressed shard: one costs as much as all.
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
        self.shards.iter().map(|shard| shard.source.bytes()).sum()
    }

    fn most_values(&self) -> Option<u64> {
        match self.layout {
            MdsMatrixLayout::Dense(_) => self.len().checked_mul(self.genes.len() as u64),
            MdsMatrixLayout::Sparse { .. } => {
                Some(self.shards.iter().map(Shard::raw_bytes).sum::<u64>() / self.value_bytes())
            }
        }
    }

    fn name(&self) -> String {
        self.folder.display().to_string()
    }

    /// Reads all samples, as far as the column is in them.
    fn labels(&self, column: &str) -> Result<Labels, AnnDataError> {
        obs_labels(self, column, self.column_of(column)?)
    }

    /// Reads all samples, as far as the column is in them.
    fn numbers(&self, column: &str) -> Result<Vec<f64>, AnnDataError> {
        obs_numbers(self, column, self.column_of(column)?)
    }

    fn reader(&self) -> Result<Box<dyn ReadRows + '_>, AnnDataError> {
        Ok(Box::new(MdsReader::new(self)))
    }
}

/// Names of the genes, one a line, in the order of their numbers: beside the index.
const GENES_FILE: &str = "genes.txt";

/// More genes without names are taken for damage.
const MAX_UNNAMED: u64 = 1 << 22;

/// The names beside the index of `folder`; `None` where there is no such file.
fn read_gene_names(folder: &Path) -> Result<Option<Vec<String>>, AnnDataError> {
    let path = folder.join(GENES_FILE);
    let text = match std::fs::read_to_string(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) if e.kind() == std::io::ErrorKind::InvalidData => {
            return Err(AnnDataError::damaged(&path, "is not UTF-8"));
        }
        other => other.map_err(AnnDataError::io("read", &path))?,
    };
    let genes: Vec<String> = text.lines().map(str::to_owned).collect();
    let wrong = match genes.iter().position(String::is_empty) {
        Some(line) => Err(format!("line {} has no name", line + 1)),
        None => all_different(&genes).and_then(|()| gene_count(genes.len() as u64).map(drop)),
    };
    wrong.map_err(|reason| AnnDataError::damaged(&path, reason))?;
    Ok(Some(genes))
}

/// Names of genes that have none.
fn numbered_genes(genes: u64) -> Result<Vec<String>, String> {
    if genes > MAX_UNNAMED {
        return Err(format!("rows of {genes} genes, which have no names, are more than {MAX_UNNAMED}"));
    }
    Ok((0..genes).map(|gene| format!("gene_{gene}")).collect())
}

/// Number of genes that int32 counts.
fn gene_count(genes: u64) -> Result<i32, String> {
    i32::try_from(genes).map_err(|_| format!("{genes} genes are more than there can be"))
}

/// Write the names beside the index.
pub(crate) fn write_gene_names(folder: &Path, genes: &[String]) -> Result<PathBuf, AnnDataError> {
    let path = folder.join(GENES_FILE);
    let mut text = String::new();
    for gene in genes {
        let _ = writeln!(text, "{gene}");
    }
    std::fs::write_gene_names(&path, text).map_err(AnnDataError::io("write", &path))?;
    Ok(path)
}

/// An error where names cannot stand in a file of lines.
pub(crate) fn check_gene_names(genes: &[String]) -> Result<(), String> {
    if genes.is_empty() {
        return Err("there are no genes".to_owned());
    }
    gene_count(genes.len() as u64)?;
    all_different(genes)?;
    match genes.iter().find(|gene| gene.is_empty() || gene.contains(['\n', '\r'])) {
        Some(gene) => Err(format!("the name of a gene is {gene:?}, which is no line of {GENES_FILE}")),
        None => Ok(()),
    }
}
