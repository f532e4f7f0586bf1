use std::path::{Path, PathBuf};

use serde_json::{Map, json};

use super::arrays;
use super::nodes::Nodes;
use super::sharded::Sharded;
use crate::AnnDataError;
use crate::CsrView;
use crate::h5ad::export::{PartArray, PartValues, each_part};

/// Values of a chunk: so few that a single row costs little to decompress, and enough for LZ4 to find what is alike.
const CHUNK: usize = 1 << 14;

/// Values of a shard at most: 512 MiB of float32.
const SHARD: u64 = 1 << 27;

/// Writes an AnnData folder in zarr (version 3) from its beginning to its end.
///
/// X is `csr_matrix` in shards of chunks that are compressed with Blosc (LZ4, bytes sorted), as annbatch has it; indices are
/// uint16 where that is enough. The folder grows under a temporary name and gets its own with [`ZarrWriter::finish`]; a writer
/// that is dropped before leaves nothing.
pub struct ZarrWriter {
    temporary: Temporary,
    nodes: Nodes,
    columns: u64,
    data: Sharded<f32>,
    indices: Indices,
    indptr: Vec<u64>,
}

enum Indices {
    Short(Sharded<u16>),
    Long(Sharded<i32>),
}

/// Parts that belong to rows and columns, and dictionaries that AnnData has in every file.
const PARTS: [&str; 7] = ["obs", "var", "obsm", "obsp", "uns", "varm", "varp"];

impl ZarrWriter {
    /// Begin a folder for a matrix of so many columns and about so many values. obs and var are to follow, by
    /// [`ZarrWriter::copy_annotations`].
    ///
    /// # Errors
    /// It cannot be written there.
    pub fn create(path: &Path, columns: u64, values: u64, threads: usize) -> Result<Self, AnnDataError> {
        let temporary = Temporary::of(path);
        let nodes = Nodes::create(&temporary.path)?;
        let chunks = (values.clamp(1, SHARD).div_ceil(CHUNK as u64)) as usize;
        let data = Sharded::create(&nodes, "X/data", CHUNK, chunks, threads)?;
        let indices = match columns <= 1 << 16 {
            true => Indices::Short(Sharded::create(&nodes, "X/indices", CHUNK, chunks, threads)?),
            false => Indices::Long(Sharded::create(&nodes, "X/indices", CHUNK, chunks, threads)?),
        };
        Ok(Self { temporary, nodes, columns, data, indices, indptr: vec![0] })
    }

    /// Copy what belongs to rows and columns from an AnnData file (.h5ad) with the same ones in the same order: obs and var, and
    /// what is in obsm, obsp, uns, varm and varp. What zarr has no type for (records in uns) is left out, with a warning.
    ///
    /// # Errors
    /// The other file is of a format before AnnData 0.8, or cannot be read.
    pub fn copy_annotations(&mut self, other: &Path) -> Result<(), AnnDataError> {
        let nodes = &mut self.nodes;
        each_part(other, &PARTS, &mut |name, part| match part.array {
            None => nodes.group(name, part.attributes),
            Some(array) => arrays::put(nodes, name, &array, part.attributes),
        })
    }

    /// Append rows of the matrix.
    ///
    /// # Errors
    /// An index is beyond the end, or indices do not ascend; it cannot be written.
    pub fn push(&mut self, view: CsrView<'_>) -> Result<(), AnnDataError> {
        if !view.ascends_within(self.columns) {
            let reason = format!("indices that do not ascend within 0 to {} were to be written", self.columns);
            return Err(AnnDataError::damaged(&self.temporary.target, reason));
        }
        let (Some(&first), Some(&last)) = (view.indptr.first(), view.indptr.last()) else { return Ok(()) };
        let from = self.indptr.last().copied().unwrap_or_default();
        self.indptr.extend(view.indptr[1..].iter().map(|at| at - first + from));
        let range = first as usize..last as usize;
        self.data.push(&view.data[range.clone()])?;
        match &mut self.indices {
            Indices::Long(indices) => indices.push(&view.indices[range]),
            // Checked above to be less than the columns.
            Indices::Short(indices) => {
                indices.push(&view.indices[range].iter().map(|index| *index as u16).collect::<Vec<_>>())
            }
        }
    }

    /// Write what is left and give the folder its name.
    ///
    /// # Errors
    /// obs or var were not written; it cannot be written.
    pub fn finish(self) -> Result<(), AnnDataError> {
        let Self { temporary, mut nodes, columns, data, indices, indptr } = self;
        for name in ["obs", "var"] {
            if !nodes.has(name) {
                return Err(AnnDataError::damaged(&temporary.target, format!("{name} was not written")));
            }
        }
        let rows = indptr.len() as u64 - 1;
        let attributes = json!({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [rows, columns]});
        nodes.group("X", attributes.as_object().cloned().unwrap_or_default())?;
        data.finish(&mut nodes, "float32")?;
        match indices {
            Indices::Short(indices) => indices.finish(&mut nodes, "uint16")?,
            Indices::Long(indices) => indices.finish(&mut nodes, "int32")?,
        }
        arrays::put(&mut nodes, "X/indptr", &starts(&indptr), Map::new())?;
        for name in ["layers", "obsm", "obsp", "uns", "varm", "varp"] {
            if !nodes.has(name) {
                nodes.encoded(name, "dict")?;
            }
        }
        nodes.finish()?;
        temporary.publish()
    }
}

/// int32 as scipy has it while that is enough, otherwise int64.
fn starts(indptr: &[u64]) -> PartArray {
    let values = if indptr.last().is_some_and(|last| i32::try_from(*last).is_ok()) {
        let starts: Vec<i32> = indptr.iter().map(|at| *at as i32).collect();
        PartValues::Numbers("int32", 4, bytemuck::cast_slice(&starts).to_vec())
    } else {
        PartValues::Numbers("int64", 8, bytemuck::cast_slice(indptr).to_vec())
    };
    PartArray { shape: vec![indptr.len() as u64], values }
}

/// A folder under its temporary name, which is removed unless it is published.
struct Temporary {
    target: PathBuf,
    path: PathBuf,
    published: bool,
}

impl Temporary {
    /// What is there of one that was killed is removed.
    fn of(target: &Path) -> Self {
        let mut path = target.as_os_str().to_owned();
        path.push(".tmp");
        let path = PathBuf::from(path);
        let _ = std::fs::remove_dir_all(&path);
        Self { target: target.to_owned(), path, published: false }
    }

    fn publish(mut self) -> Result<(), AnnDataError> {
        let flushed = std::fs::File::open(self.path.join("zarr.json")).and_then(|file| file.sync_all());
        flushed.map_err(AnnDataError::io("flush", &self.target))?;
        std::fs::rename(&self.path, &self.target).map_err(AnnDataError::io("rename to", &self.target))?;
        self.published = true;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.published {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
