use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

use super::directory::Directory;
use super::file::ParquetFile;
use super::layout::{self, Layout, Leaf, ObsLeaf};
use super::obs;
use super::reader::ParquetReader;
use crate::PipelineError;
use crate::array::{ArrayStore, Form, Labels, ReadRows};

/// Rows of a parquet file. The matrix is, whichever the file has:
///
/// - `X`, or the only list column: a list of all genes' values for each row;
/// - `indices` and `values`: lists of gene numbers, ascending, and of values;
/// - a column for each gene: of the columns of numbers those of the most frequent type.
///
/// Values are of any type of numbers; float64 and integers become the nearest float32. All other columns with one value a row are
/// obs. The key-value metadata may say more: `expctl.genes` (JSON list: names of the genes), `expctl.columns` (their number),
/// `expctl.categories` (JSON object: names of the classes of obs columns, in order), `expctl.obs` (JSON list: columns of numbers
/// that are no genes).
#[derive(Debug)]
pub struct ParquetStore {
    pub(super) file: ParquetFile,
    pub(super) layout: Layout,
    pub(super) genes: Vec<String>,
    /// First row of each row group, and the end of the last.
    pub(super) starts: Vec<u64>,
    obs: BTreeMap<String, ObsLeaf>,
    categories: BTreeMap<String, Vec<String>>,
    /// Where the pages of each list column are, by row group; found when rows are wanted that are not all of it.
    directories: Vec<[OnceLock<Directory>; 2]>,
}

impl ParquetStore {
    /// Open a file: read its footer and find the matrix.
    ///
    /// # Errors
    /// It cannot be read, is no parquet file, has no matrix, or is compressed in a way that is not known here.
    pub fn open(path: &Path) -> Result<Self, PipelineError> {
        let file = ParquetFile::open(path)?;
        let found = layout::find(&file.metadata).map_err(|reason| PipelineError::damaged(path, reason))?;
        let columns = match &found.layout {
            Layout::Dense(leaf) => vec![leaf.column],
            Layout::Sparse { indices, values } => vec![indices.column, values.column],
            Layout::Wide(leaves) => leaves.iter().map(|leaf| leaf.column).collect(),
        };
        for column in &columns {
            file.check_compression(*column)?;
        }
        let file = if matches!(found.layout, Layout::Wide(_)) { file } else { file.with_page_index(&columns)? };
        let rows = file.metadata.row_groups().iter().scan(0, |end, group| {
            *end += group.num_rows() as u64;
            Some(*end)
        });
        let starts = std::iter::once(0).chain(rows).collect();
        let directories = file.metadata.row_groups().iter().map(|_| Default::default()).collect();
        let layout::Found { layout, genes, obs, categories } = found;
        Ok(Self { file, layout, genes, starts, obs, categories, directories })
    }

    /// Rows of a row group.
    pub(super) fn rows_of(&self, group: usize) -> u64 {
        self.starts[group + 1] - self.starts[group]
    }

    /// What is wrong with a row group.
    pub(super) fn damaged(&self, group: usize, reason: &str) -> PipelineError {
        self.file.damaged(format!("row group {group}: {reason}"))
    }

    /// Where the pages of list column `leaf`, number `number` of the matrix, are.
    pub(super) fn directory(&self, group: usize, number: usize, leaf: &Leaf) -> Result<&Directory, PipelineError> {
        let slot = &self.directories[group][number];
        if let Some(directory) = slot.get() {
            return Ok(directory);
        }
        let genes = matches!(self.layout, Layout::Dense(_)).then_some(self.genes.len() as u64);
        let directory = Directory::of(&self.file, group, leaf, genes)?;
        Ok(slot.get_or_init(|| directory))
    }

    fn obs_column(&self, name: &str) -> Result<ObsLeaf, PipelineError> {
        self.obs.get(name).copied().ok_or_else(|| {
            let names: Vec<&str> = self.obs.keys().map(String::as_str).collect();
            let have = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            PipelineError::damaged(self.file.path(), format!("there is no obs column '{name}'; there are: {have}"))
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
            Layout::Sparse { .. } => Form::Sparse,
            Layout::Dense(_) | Layout::Wide(_) => Form::Dense,
        }
    }

    fn run_rows(&self) -> u64 {
        self.starts.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(1).max(1)
    }

    fn stored_bytes(&self) -> u64 {
        self.file.bytes()
    }

    fn labels(&self, column: &str) -> Result<Labels, PipelineError> {
        let leaf = self.obs_column(column)?;
        obs::labels(&self.file, leaf, self.categories.get(column))
            .map_err(|reason| self.file.damaged(format!("obs column '{column}': {reason}")))
    }

    fn numbers(&self, column: &str) -> Result<Vec<f64>, PipelineError> {
        let leaf = self.obs_column(column)?;
        obs::numbers(&self.file, leaf).map_err(|reason| self.file.damaged(format!("obs column '{column}': {reason}")))
    }

    fn reader(&self) -> Result<Box<dyn ReadRows + '_>, PipelineError> {
        Ok(Box::new(ParquetReader::new(self)))
    }
}
