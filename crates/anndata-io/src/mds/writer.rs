//! `MdsWriter` writes a folder of MDS shards: sparse rows, obs columns and gene names.
//! Invariant: the index is written last, so a folder that is not complete cannot be opened; equal rows and options give equal bytes.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::ser::Formatter;
use serde_json::{Serializer, Value, json};

use crate::annotation::coded_column::BOOL_NAMES;
use crate::mds::index::INDEX_FILE;
use crate::mds::shard::{WRITTEN_HASH, hash};
use crate::mds::store::{check_gene_names, write_gene_names};
use crate::write::WriteError;
use crate::write::frame_writer::{ColumnCells, ColumnKind, ColumnSpec, Frame};
use crate::{AnnDataError, CsrView};

/// Compression of shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MdsCompression {
    /// None, so that single rows can be read.
    None,
    /// Zstandard with this level; a shard is compressed as a whole.
    Zstd(i32),
}

/// Options of [`MdsWriter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MdsOptions {
    /// Compression of shards.
    pub compression: MdsCompression,
    /// Maximum size of an uncompressed shard in bytes (a larger row gets a shard of its own).
    pub shard_bytes: u32,
}

impl Default for MdsOptions {
    /// The defaults of the streaming package.
    fn default() -> Self {
        Self { compression: MdsCompression::None, shard_bytes: 1 << 26 }
    }
}

/// Columns of the matrix, int32 and float32 of any length.
const INDICES: (&str, &str) = ("indices", "ndarray:int32");
const VALUES: (&str, &str) = ("values", "ndarray:float32");

/// The integer that is a missing value.
const NO_INTEGER: i64 = i64::MIN;

/// Writes MDS shards that MosaicML's streaming and [`crate::MdsStore`] read; the bytes are those of streaming's own writer. A
/// row is `indices` and `values`; obs columns are one number a sample, or `str`. Classes are int32 codes, -1 for a missing
/// value, with their names in the index (`expctl.categories`); a missing integer is the smallest int64 (`expctl.missing`). Gene
/// names are in `genes.txt`.
///
/// Memory holds one shard. The folder is complete only after [`Self::finish`], which writes the index.
pub struct MdsWriter {
    folder: PathBuf,
    genes: Vec<String>,
    /// Sorted by name.
    columns: Vec<WrittenColumn>,
    options: MdsOptions,
    /// The header with the columns, which is in every shard.
    config: Value,
    config_bytes: Vec<u8>,
    /// Samples of the next shard, and the end of each.
    samples: Vec<u8>,
    ends: Vec<u32>,
    shards: Vec<Value>,
    rows: usize,
}

/// A column of the shards.
struct WrittenColumn {
    name: String,
    /// Values, for a column of obs.
    obs: Option<(ColumnKind, ColumnCells)>,
    encoding: &'static str,
    /// Size of a value in bytes, if it is constant.
    size: Option<u32>,
}

impl WrittenColumn {
    #[cold]
    fn length_error(&self, cells: &ColumnCells, rows: usize) -> WriteError {
        WriteError::ColumnLength { column: self.name.clone(), found: cells.len(), rows }
    }
}

impl MdsWriter {
    /// Creates `folder`, which must not exist. `obs` has values of all `columns` for every row that will be written.
    ///
    /// # Errors
    /// A gene or column name occurs twice, or a column has the name of one of the matrix; a gene name contains a line break;
    /// columns have different lengths; the folder cannot be created.
    pub fn create(
        folder: &Path,
        genes: &[String],
        columns: Vec<ColumnSpec>,
        obs: Frame,
        options: MdsOptions,
    ) -> Result<Self, AnnDataError> {
        let written = written_columns(columns, obs).and_then(|columns| check_gene_names(genes).map(|()| columns));
        let columns = written.map_err(|problem| AnnDataError::write(folder, problem))?;
        std::fs::create_dir(folder).map_err(AnnDataError::io("create", folder))?;
        let compression = match options.compression {
            MdsCompression::None => Value::Null,
            MdsCompression::Zstd(level) => format!("zstd:{level}").into(),
        };
        let config = json!({
            "version": 2,
            "format": "mds",
            "compression": compression,
            "hashes": [WRITTEN_HASH],
            "size_limit": options.shard_bytes,
            "column_names": columns.iter().map(|column| &column.name[..]).collect::<Vec<_>>(),
            "column_encodings": columns.iter().map(|column| column.encoding).collect::<Vec<_>>(),
            "column_sizes": columns.iter().map(|column| column.size).collect::<Vec<_>>(),
        });
        Ok(Self {
            folder: folder.to_owned(),
            genes: genes.to_vec(),
            columns,
            options,
            config_bytes: python_json(&config),
            config,
            samples: Vec::new(),
            ends: Vec::new(),
            shards: Vec::new(),
            rows: 0,
        })
    }

    /// Appends rows.
    ///
    /// # Errors
    /// Column indices do not ascend below the number of genes; obs has no values for these rows; the disk is full.
    pub fn write_rows(&mut self, rows: CsrView<'_>) -> Result<(), AnnDataError> {
        for row in 0..rows.indptr.len().saturating_sub(1) {
            let (indices, values) = rows.row(row);
            let start = self.samples.len();
            self.sample(indices, values).map_err(|problem| {
                AnnDataError::write(&self.folder, WriteError::Row { row: self.rows, problem: Box::new(problem) })
            })?;
            // Like the streaming package: one more sample would exceed the limit.
            if !self.ends.is_empty() && self.shard_bytes() > self.options.shard_bytes as usize {
                let sample = self.samples.split_off(start);
                self.flush()?;
                self.samples = sample;
            }
            if u32::try_from(self.shard_bytes()).is_err() {
                return Err(AnnDataError::write(&self.folder, WriteError::LongRow { row: self.rows }));
            }
            self.ends.push(self.samples.len() as u32);
            self.rows += 1;
        }
        Ok(())
    }

    /// Writes the rest, the gene names and the index; returns the number of rows.
    ///
    /// # Errors
    /// obs has more rows than were written; the disk is full.
    pub fn finish(mut self) -> Result<u64, AnnDataError> {
        if !self.ends.is_empty() || self.shards.is_empty() {
            self.flush()?;
        }
        for column in &self.columns {
            if let Some((_, cells)) = &column.obs
                && cells.len() != self.rows
            {
                return Err(AnnDataError::write(&self.folder, column.length_error(cells, self.rows)));
            }
        }
        let genes = write_gene_names(&self.folder, &self.genes)?;
        let (mut categories, mut missing) = (serde_json::Map::new(), serde_json::Map::new());
        for column in &self.columns {
            match &column.obs {
                Some((ColumnKind::Categorical { categories: names, .. }, _)) => {
                    categories.insert(column.name.clone(), json!(names));
                }
                Some((ColumnKind::Bool, _)) => {
                    categories.insert(column.name.clone(), json!(BOOL_NAMES));
                }
                Some((_, ColumnCells::NullableInt64(values))) if values.contains(&None) => {
                    missing.insert(column.name.clone(), json!(NO_INTEGER));
                }
                _ => {}
            }
        }
        let index = json!({
            "version": 2,
            "shards": self.shards,
            "expctl.categories": categories,
            "expctl.columns": self.genes.len(),
            "expctl.missing": missing,
        });
        write_file(&self.folder.join(INDEX_FILE), &python_json(&index))?;
        File::open(&genes).and_then(|file| file.sync_all()).map_err(AnnDataError::io("write", &genes))?;
        Ok(self.rows as u64)
    }

    /// Size of a shard with all buffered samples; the last of them has no end yet.
    fn shard_bytes(&self) -> usize {
        8 + 4 * (self.ends.len() + 1) + self.config_bytes.len() + self.samples.len()
    }

    /// Appends the sample of a row.
    fn sample(&mut self, indices: &[i32], values: &[f32]) -> Result<(), WriteError> {
        let ascend = indices.windows(2).all(|pair| pair[0] < pair[1]);
        let inside = indices.first().is_none_or(|first| *first >= 0)
            && indices.last().is_none_or(|last| (*last as usize) < self.genes.len());
        if !ascend || !inside || indices.len() != values.len() {
            return Err(WriteError::Indices { columns: self.genes.len() as u64 });
        }
        let shape = ArrayHeader::of(indices.len());
        let array_bytes = shape.bytes().len() + 4 * indices.len();
        for column in self.columns.iter().filter(|column| column.size.is_none()) {
            let bytes = match &column.obs {
                None => array_bytes,
                Some((_, ColumnCells::Strings(values))) => values.get(self.rows).map_or(0, String::len),
                Some(_) => 0,
            };
            let bytes = u32::try_from(bytes).map_err(|_| WriteError::LongText)?;
            self.samples.extend(bytes.to_le_bytes());
        }
        for column in &self.columns {
            match &column.obs {
                None => {
                    self.samples.extend(shape.bytes());
                    let values: &[u8] = match column.encoding == INDICES.1 {
                        true => bytemuck::cast_slice(indices),
                        false => bytemuck::cast_slice(values),
                    };
                    self.samples.extend_from_slice(values);
                }
                Some((_, cells)) => put_cell(cells, self.rows, &mut self.samples)
                    .ok_or_else(|| column.length_error(cells, self.rows + 1))?,
            }
        }
        Ok(())
    }

    /// Writes the buffered samples as a shard.
    fn flush(&mut self) -> Result<(), AnnDataError> {
        let number = self.shards.len();
        let head = 4 * (self.ends.len() + 2) + self.config_bytes.len();
        let count = self.ends.len() as u32;
        let mut raw = Vec::with_capacity(head + self.samples.len());
        raw.extend(count.to_le_bytes());
        raw.extend((head as u32).to_le_bytes());
        raw.extend(self.ends.iter().flat_map(|end| (end + head as u32).to_le_bytes()));
        raw.extend_from_slice(&self.config_bytes);
        raw.extend_from_slice(&self.samples);
        let note = |name: &str, data: &[u8]| json!({"basename": name, "bytes": data.len(), "hashes": {WRITTEN_HASH: hash(WRITTEN_HASH, data)}});
        let raw_name = format!("shard.{number:05}.mds");
        let mut shard = json!({"samples": count, "raw_data": note(&raw_name, &raw), "zip_data": null});
        match self.options.compression {
            MdsCompression::None => write_file(&self.folder.join(&raw_name), &raw)?,
            MdsCompression::Zstd(level) => {
                let name = format!("{raw_name}.zstd");
                let path = self.folder.join(&name);
                let packed = zstd::bulk::compress(&raw, level).map_err(AnnDataError::io("compress", &path))?;
                shard["zip_data"] = note(&name, &packed);
                write_file(&path, &packed)?;
            }
        }
        if let (Some(shard), Some(config)) = (shard.as_object_mut(), self.config.as_object()) {
            shard.extend(config.iter().map(|(key, value)| (key.clone(), value.clone())));
        }
        self.shards.push(shard);
        self.samples.clear();
        self.ends.clear();
        Ok(())
    }
}

/// Header of an array of one dimension: number of dimensions and width of the length, then the length.
struct ArrayHeader {
    bytes: [u8; 5],
    len: usize,
}

impl ArrayHeader {
    fn of(count: usize) -> Self {
        // The number of values of a row fits into int32.
        let width: usize = match count {
            0..0x100 => 1,
            0x100..0x1_0000 => 2,
            _ => 4,
        };
        let mut bytes = [0; 5];
        bytes[0] = 1 << 2 | width.ilog2() as u8;
        bytes[1..=width].copy_from_slice(&(count as u32).to_le_bytes()[..width]);
        Self { bytes, len: 1 + width }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// All columns, sorted by name like in the streaming package.
fn written_columns(columns: Vec<ColumnSpec>, obs: Frame) -> Result<Vec<WrittenColumn>, WriteError> {
    if columns.len() != obs.columns.len() {
        return Err(WriteError::ColumnCount { columns: columns.len(), values: obs.columns.len() });
    }
    let matrix = [INDICES, VALUES].map(|(name, encoding)| WrittenColumn {
        name: name.to_owned(),
        obs: None,
        encoding,
        size: None,
    });
    let mut all = Vec::from(matrix);
    for (column, cells) in columns.into_iter().zip(obs.columns) {
        let (encoding, size) = match &cells {
            ColumnCells::Codes(_) => ("int32", Some(4)),
            ColumnCells::Strings(_) => ("str", None),
            ColumnCells::Float64(_) => ("float64", Some(8)),
            ColumnCells::Float32(_) => ("float32", Some(4)),
            ColumnCells::Int64(_) => ("int64", Some(8)),
            ColumnCells::NullableInt64(values) if values.contains(&Some(NO_INTEGER)) => {
                return Err(WriteError::ReservedInteger { column: column.name, value: NO_INTEGER });
            }
            ColumnCells::NullableInt64(_) => ("int64", Some(8)),
            ColumnCells::Bool(_) => ("uint8", Some(1)),
        };
        all.push(WrittenColumn { name: column.name, obs: Some((column.kind, cells)), encoding, size });
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    let mut seen = HashSet::new();
    if let Some(twice) = all.iter().find(|column| !seen.insert(&column.name)) {
        let column = twice.name.clone();
        return Err(match [INDICES.0, VALUES.0].contains(&column.as_str()) {
            true => WriteError::ReservedColumn { column },
            false => WriteError::RepeatedColumn { column },
        });
    }
    Ok(all)
}

/// Appends the value of a row; `None` if it is missing.
fn put_cell(cells: &ColumnCells, row: usize, out: &mut Vec<u8>) -> Option<()> {
    match cells {
        ColumnCells::Codes(values) => out.extend(values.get(row)?.to_le_bytes()),
        ColumnCells::Strings(values) => out.extend_from_slice(values.get(row)?.as_bytes()),
        ColumnCells::Float64(values) => out.extend(values.get(row)?.to_le_bytes()),
        ColumnCells::Float32(values) => out.extend(values.get(row)?.to_le_bytes()),
        ColumnCells::Int64(values) => out.extend(values.get(row)?.to_le_bytes()),
        ColumnCells::NullableInt64(values) => out.extend(values.get(row)?.unwrap_or(NO_INTEGER).to_le_bytes()),
        ColumnCells::Bool(values) => out.push(u8::from(*values.get(row)?)),
    }
    Some(())
}

/// Writes a file and syncs it to the disk.
fn write_file(path: &Path, bytes: &[u8]) -> Result<(), AnnDataError> {
    let write = || -> std::io::Result<()> {
        let mut file = File::create(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(AnnDataError::io("write", path))
}

/// JSON with the spaces of Python's `json.dumps`.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { to.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { to.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        to.write_all(b": ")
    }
}

/// Like `json.dumps(value, sort_keys=True)` for ASCII names, so that the same samples give the same bytes.
fn python_json(value: &serde_json::Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Objects of `serde_json` are sorted by key; writing to a `Vec` cannot fail.
    let _ = value.serialize(&mut Serializer::with_formatter(&mut bytes, Spaced));
    bytes
}

#[cfg(test)]
mod python_json_tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn spaces_are_those_of_python() {
        let value = json!({"b": [1, null, "x"], "a": {}, "c": []});
        assert_eq!(String::from_utf8(python_json(&value)).unwrap(), r#"{"a": {}, "b": [1, null, "x"], "c": []}"#);
    }
}
