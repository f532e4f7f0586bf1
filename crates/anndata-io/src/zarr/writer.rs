//! Writer of AnnData folders in zarr (version 3).
//!
//! Invariants: a folder gets its name only when it is complete; memory is bounded by a few chunks, eight bytes a row, and one
//! array of annotations; other programs read the result like that of annbatch.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json, json};

use crate::codec::filters::{BLOSC_LEVEL, blosc_compress};
use crate::h5ad::export::{ExportedArray, ExportedValues, export_parts};
use crate::write::{Staged, WriteError};
use crate::zarr::sharded_writer::ShardedWriter;
use crate::{AnnDataError, CsrView};

/// Elements of a chunk: few enough that a single row is cheap to decompress, many enough for LZ4 to find repetitions.
const CHUNK_VALUES: usize = 1 << 14;

/// Maximum elements of a shard: 512 MiB of float32.
const MAX_SHARD_VALUES: u64 = 1 << 27;

/// Writes an AnnData folder in zarr (version 3) from start to end.
///
/// X is `csr_matrix` in shards of chunks that are compressed with Blosc (LZ4, shuffle), as annbatch writes it; indices are
/// uint16 if that suffices. The folder grows under a temporary name and gets its own with [`ZarrWriter::finish`]; a writer that
/// is dropped before that removes it.
pub struct ZarrWriter {
    staged: Staged,
    nodes: NodeWriter,
    columns: u64,
    data: ShardedWriter<f32>,
    indices: IndexWriter,
    indptr: Vec<u64>,
}

enum IndexWriter {
    Short(ShardedWriter<u16>),
    Long(ShardedWriter<i32>),
}

/// Members of obs and var that are copied, and dictionaries that every AnnData has.
const ANNOTATION_PARTS: [&str; 7] = ["obs", "var", "obsm", "obsp", "uns", "varm", "varp"];

impl ZarrWriter {
    /// Creates a folder for a matrix with so many columns and about so many values. The caller adds obs and var with
    /// [`ZarrWriter::copy_annotations`].
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn create(path: &Path, columns: u64, values: u64, threads: usize) -> Result<Self, AnnDataError> {
        let staged = Staged::new(path);
        let nodes = NodeWriter::create(staged.path())?;
        let chunks = (values.clamp(1, MAX_SHARD_VALUES).div_ceil(CHUNK_VALUES as u64)) as usize;
        let data = ShardedWriter::create(&nodes, "X/data", CHUNK_VALUES, chunks, threads)?;
        let indices = match columns <= 1 << 16 {
            true => IndexWriter::Short(ShardedWriter::create(&nodes, "X/indices", CHUNK_VALUES, chunks, threads)?),
            false => IndexWriter::Long(ShardedWriter::create(&nodes, "X/indices", CHUNK_VALUES, chunks, threads)?),
        };
        Ok(Self { staged, nodes, columns, data, indices, indptr: vec![0] })
    }

    /// Copies annotations from an .h5ad file with the same rows and columns: obs, var, obsm, obsp, uns, varm and varp. A node
    /// of a type that zarr does not have (records in uns) is skipped with a warning.
    ///
    /// # Errors
    /// The file is older than AnnData 0.8, or cannot be read.
    pub fn copy_annotations(&mut self, other: &Path) -> Result<(), AnnDataError> {
        let nodes = &mut self.nodes;
        export_parts(other, &ANNOTATION_PARTS, &mut |name, part| match part.array {
            None => nodes.group(name, part.attributes),
            Some(array) => put_array(nodes, name, &array, part.attributes),
        })
    }

    /// Appends rows of the matrix.
    ///
    /// # Errors
    /// An index is not below the number of columns, or indices do not ascend; the folder cannot be written.
    pub fn push(&mut self, view: CsrView<'_>) -> Result<(), AnnDataError> {
        if !view.ascends_within(self.columns) {
            return Err(AnnDataError::write(self.staged.target(), WriteError::Indices { columns: self.columns }));
        }
        let (Some(&first), Some(&last)) = (view.indptr.first(), view.indptr.last()) else { return Ok(()) };
        let from = self.indptr.last().copied().unwrap_or_default();
        self.indptr.extend(view.indptr[1..].iter().map(|at| at - first + from));
        let range = first as usize..last as usize;
        self.data.push(&view.data[range.clone()])?;
        match &mut self.indices {
            IndexWriter::Long(indices) => indices.push(&view.indices[range]),
            // Checked above: less than the number of columns.
            IndexWriter::Short(indices) => {
                indices.push(&view.indices[range].iter().map(|index| *index as u16).collect::<Vec<_>>())
            }
        }
    }

    /// Writes the rest and gives the folder its name.
    ///
    /// # Errors
    /// obs or var are missing; the folder cannot be written.
    pub fn finish(self) -> Result<(), AnnDataError> {
        let Self { staged, mut nodes, columns, data, indices, indptr } = self;
        for part in ["obs", "var"] {
            if !nodes.has(part) {
                return Err(AnnDataError::write(staged.target(), WriteError::MissingPart { part }));
            }
        }
        let rows = indptr.len() as u64 - 1;
        let attributes = json!({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [rows, columns]});
        nodes.group("X", attributes.as_object().cloned().unwrap_or_default())?;
        data.finish(&mut nodes, "float32")?;
        match indices {
            IndexWriter::Short(indices) => indices.finish(&mut nodes, "uint16")?,
            IndexWriter::Long(indices) => indices.finish(&mut nodes, "int32")?,
        }
        put_array(&mut nodes, "X/indptr", &indptr_array(&indptr), Map::new())?;
        for name in ["layers", "obsm", "obsp", "uns", "varm", "varp"] {
            if !nodes.has(name) {
                nodes.encoded(name, "dict")?;
            }
        }
        nodes.finish()?;
        let root = staged.path().join("zarr.json");
        staged.publish(&root)
    }
}

/// int32 as in SciPy if that suffices, else int64.
fn indptr_array(indptr: &[u64]) -> ExportedArray {
    let values = if indptr.last().is_some_and(|last| i32::try_from(*last).is_ok()) {
        let starts: Vec<i32> = indptr.iter().map(|at| *at as i32).collect();
        ExportedValues::Numbers("int32", 4, bytemuck::cast_slice(&starts).to_vec())
    } else {
        ExportedValues::Numbers("int64", 8, bytemuck::cast_slice(indptr).to_vec())
    };
    ExportedArray { shape: vec![indptr.len() as u64], values }
}

/// Groups and arrays of a folder that is being written.
pub(crate) struct NodeWriter {
    folder: PathBuf,
    all: BTreeMap<String, Json>,
}

impl NodeWriter {
    /// Creates the folder.
    ///
    /// # Errors
    /// The folder exists, or cannot be created.
    pub fn create(folder: &Path) -> Result<Self, AnnDataError> {
        std::fs::create_dir(folder).map_err(AnnDataError::io("create", folder))?;
        Ok(Self { folder: folder.to_owned(), all: BTreeMap::new() })
    }

    /// Path of a node.
    pub fn folder(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Whether there is a node of this name.
    pub fn has(&self, name: &str) -> bool {
        self.all.contains_key(name)
    }

    /// Adds a group.
    pub fn group(&mut self, name: &str, attributes: Map<String, Json>) -> Result<(), AnnDataError> {
        self.add(name, json!({"zarr_format": 3, "node_type": "group", "attributes": attributes}))
    }

    /// Adds a group with an encoding of AnnData.
    pub fn encoded(&mut self, name: &str, encoding: &str) -> Result<(), AnnDataError> {
        let attributes = json!({"encoding-type": encoding, "encoding-version": "0.1.0"});
        self.group(name, attributes.as_object().cloned().unwrap_or_default())
    }

    /// Adds the metadata of an array whose chunks are written elsewhere; `special` has its data type, fill value and codecs.
    pub fn array(
        &mut self,
        name: &str,
        shape: &[u64],
        chunk: &[u64],
        special: Json,
        attributes: Map<String, Json>,
    ) -> Result<(), AnnDataError> {
        let mut node = json!({
            "zarr_format": 3,
            "node_type": "array",
            "shape": shape,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "attributes": attributes,
            "storage_transformers": [],
        });
        if let (Some(node), Json::Object(special)) = (node.as_object_mut(), special) {
            node.extend(special);
        }
        self.add(name, node)
    }

    fn add(&mut self, name: &str, node: Json) -> Result<(), AnnDataError> {
        let folder = self.folder.join(name);
        std::fs::create_dir_all(&folder).map_err(AnnDataError::io("create", &folder))?;
        write_node(&folder, &node)?;
        self.all.insert(name.to_owned(), node);
        Ok(())
    }

    /// Writes the root with the consolidated metadata.
    pub fn finish(self) -> Result<(), AnnDataError> {
        let root = json!({
            "zarr_format": 3,
            "node_type": "group",
            "attributes": {"encoding-type": "anndata", "encoding-version": "0.1.0"},
            "consolidated_metadata": {"kind": "inline", "must_understand": false, "metadata": self.all},
        });
        write_node(&self.folder, &root)
    }
}

fn write_node(folder: &Path, node: &Json) -> Result<(), AnnDataError> {
    let path = folder.join("zarr.json");
    let text = serde_json::to_vec_pretty(node).map_err(|e| AnnDataError::io("write", &path)(e.into()))?;
    std::fs::write(&path, text).map_err(AnnDataError::io("write", &path))
}

/// The codec `bytes` in the byte order of this machine, and the compressor.
pub(crate) fn number_codecs(element: usize) -> Json {
    let endian = if cfg!(target_endian = "big") { "big" } else { "little" };
    json!([
        {"name": "bytes", "configuration": {"endian": endian}},
        {"name": "blosc", "configuration": {
            "typesize": element,
            "cname": "lz4",
            "clevel": BLOSC_LEVEL,
            "shuffle": "shuffle",
            "blocksize": 0,
        }},
    ])
}

/// Approximate size of a chunk in bytes.
const CHUNK_BYTES: u64 = 4 << 20;
/// Strings of a chunk.
const CHUNK_TEXTS: u64 = 1 << 16;
/// Level of zstd.
const ZSTD_LEVEL: i32 = 3;

/// Writes an array from memory, in chunks of whole rows.
fn put_array(
    nodes: &mut NodeWriter,
    name: &str,
    array: &ExportedArray,
    attributes: Map<String, Json>,
) -> Result<(), AnnDataError> {
    let shape = &array.shape;
    let row: u64 = shape.iter().skip(1).product();
    let fitting = |each: u64, most: u64| (most / (row * each).max(1)).max(1);
    let (special, rows) = match &array.values {
        ExportedValues::Numbers(kind, size, _) => {
            let fill = if kind.starts_with("float") { json!(0.0) } else { json!(0) };
            let codecs = number_codecs(*size);
            (json!({"data_type": kind, "fill_value": fill, "codecs": codecs}), fitting(*size as u64, CHUNK_BYTES))
        }
        ExportedValues::Bools(_) => {
            let codecs = number_codecs(1);
            (json!({"data_type": "bool", "fill_value": false, "codecs": codecs}), fitting(1, CHUNK_BYTES))
        }
        ExportedValues::Texts(_) => {
            let zstd = json!({"name": "zstd", "configuration": {"level": ZSTD_LEVEL, "checksum": false}});
            let codecs = json!([{"name": "vlen-utf8", "configuration": {}}, zstd]);
            (json!({"data_type": "string", "fill_value": "", "codecs": codecs}), fitting(1, CHUNK_TEXTS))
        }
    };
    let all = shape.first().copied().unwrap_or(1);
    let rows = rows.min(all).max(1);
    let mut chunk: Vec<u64> = shape.iter().map(|length| (*length).max(1)).collect();
    if let Some(first) = chunk.first_mut() {
        *first = rows;
    }
    nodes.array(name, shape, &chunk, special, attributes)?;
    if shape.contains(&0) {
        return Ok(());
    }
    let folder = nodes.folder(name);
    let chunk_values = (rows * row) as usize;
    for number in 0..all.div_ceil(rows) {
        let mut path = folder.join("c");
        if !shape.is_empty() {
            path.push(number.to_string());
            // Chunks are as wide as the array.
            path.extend(shape.iter().skip(1).map(|_| "0"));
        }
        let bytes = encode_chunk(&path, &array.values, number as usize * chunk_values, chunk_values)?;
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(AnnDataError::io("create", parent))?;
        }
        std::fs::write(&path, bytes).map_err(AnnDataError::io("write", &path))?;
    }
    Ok(())
}

/// A chunk of `count` elements from `start` on, padded with 0, for the object at `path`.
fn encode_chunk(path: &Path, values: &ExportedValues, start: usize, count: usize) -> Result<Vec<u8>, AnnDataError> {
    let padded = |bytes: &[u8], size: usize| {
        let end = ((start + count) * size).min(bytes.len());
        let mut chunk = bytes[start * size..end].to_vec();
        chunk.resize(count * size, 0);
        chunk
    };
    let packed = |bytes: &[u8], size| blosc_compress(bytes, size).map_err(|error| AnnDataError::damaged(path, error));
    match values {
        ExportedValues::Numbers(_, size, bytes) => packed(&padded(bytes, *size), *size),
        ExportedValues::Bools(values) => {
            let bytes: Vec<u8> = values.iter().map(|value| u8::from(*value)).collect();
            packed(&padded(&bytes, 1), 1)
        }
        ExportedValues::Texts(values) => {
            let long = |len: usize| u32::try_from(len).map_err(|_| AnnDataError::write(path, WriteError::LongText));
            let mut chunk = long(count)?.to_le_bytes().to_vec();
            let of_chunk = &values[start..(start + count).min(values.len())];
            for text in of_chunk {
                chunk.extend(long(text.len())?.to_le_bytes());
                chunk.extend(text.as_bytes());
            }
            chunk.resize(chunk.len() + (count - of_chunk.len()) * 4, 0);
            zstd::bulk::compress(&chunk, ZSTD_LEVEL).map_err(AnnDataError::io("compress", path))
        }
    }
}
