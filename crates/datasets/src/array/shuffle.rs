//! `Shuffle` writes the rows of several .h5ad files to shards in random order, in bounded memory.
//! Invariant: the shards have exactly the rows and obs of the files: a sum of hashes of all rows is compared after the shards were read back.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anndata_io::write::{
    AnnDataSpec, AnnDataWriter, ColumnCells, ColumnKind, ColumnSpec, Compression, Frame, Layout, Matrix,
};
use anndata_io::{ArrayStore, CsrRows, H5adStore};

use crate::array::rows::{RowsSeen, each_row, seen, stored};
use crate::build_folder::{Report, report};
use crate::random::RandomStream;
use crate::{Damage, DatasetError, RequestError};

/// Bytes of rows that are put in order in memory at a time, about; the buckets of rows are as many as that needs.
const BUCKET: u64 = 128 << 20;
const MAX_BUCKETS: u64 = 512;
/// Rows that are handed to the writer at a time.
const PIECE_ROWS: usize = 1024;

/// The shards that shuffled rows are written to.
pub struct Shards<'a> {
    pub folder: &'a Path,
    /// Rows of a shard; the last one may have fewer.
    pub rows: u64,
    pub seed: u64,
    pub jobs: usize,
}

/// Puts the rows of several files into random order, all orders alike likely, in bounded memory (Rao 1961, Sandelius 1962):
/// each row goes into a bucket that is drawn for it, the rows of each bucket are put into random order in memory, and the
/// buckets follow one another.
pub struct Shuffle<'a> {
    sources: &'a [H5adStore],
    shards: &'a Shards<'a>,
    columns: Vec<ColumnSpec>,
    buckets: u64,
}

/// A sum over rows that does not depend on their order.
type Multiset = u128;

impl<'a> Shuffle<'a> {
    /// # Errors
    /// The files differ in their genes or in the kinds of their columns of obs.
    pub fn new(sources: &'a [H5adStore], shards: &'a Shards<'a>) -> Result<Self, DatasetError> {
        let Some(first) = sources.first() else {
            return Err(RequestError::NoFiles.into());
        };
        if shards.rows == 0 {
            return Err(RequestError::EmptyShard.into());
        }
        let mut columns: Option<Vec<ColumnSpec>> = None;
        for source in sources {
            if source.genes() != first.genes() {
                let damage = Damage::OtherGenes { first: first.path().to_owned() };
                return Err(DatasetError::damaged(source.path(), damage));
            }
            let (own, _) = source.table()?;
            columns = Some(match columns {
                None => own,
                Some(known) => joined(known, own, first.path(), source.path())?,
            });
        }
        let bytes: u64 = sources.iter().map(|source| stored(source) * 8 + source.len() * 100).sum();
        let buckets = bytes.div_ceil(BUCKET).clamp(1, MAX_BUCKETS);
        Ok(Self { sources, shards, columns: columns.unwrap_or_default(), buckets })
    }

    /// Write shards of these names and read them back. Returns what is in each.
    ///
    /// # Errors
    /// They cannot be read or written; what was written reads back as other rows.
    pub fn run(&self, names: &[String], to: &mut Report<'_>) -> Result<Vec<RowsSeen>, DatasetError> {
        let rows: u64 = self.sources.iter().map(|source| source.len()).sum();
        let spill = tempfile::Builder::new().prefix(".buckets-").tempdir_in(self.shards.folder);
        let spill = spill.map_err(DatasetError::io("create a folder in", self.shards.folder))?;
        let dealt = self.deal(spill.path(), rows, to)?;
        let written = self.gather(spill.path(), names, rows, to)?;
        let (mut found, mut done) = (0, 0);
        for (name, written) in names.iter().zip(&written) {
            let path = self.shards.folder.join(name);
            let store = H5adStore::open(&path, "")?;
            let back = self.pass(&store, done, rows, "check", to, |_, _| Ok(()))?;
            let again = seen(&store, self.shards.jobs, |_| Ok(()))?;
            if again.digest() != written.digest() {
                return Err(DatasetError::damaged(&path, Damage::ReadBack));
            }
            found = Multiset::wrapping_add(found, back);
            done += store.len();
        }
        if found != dealt {
            return Err(DatasetError::damaged(self.shards.folder, Damage::OtherShuffledRows));
        }
        Ok(written)
    }

    /// All rows of a file with their obs as bytes; returns their sum.
    fn pass(
        &self,
        store: &H5adStore,
        done: u64,
        rows: u64,
        phase: &'static str,
        to: &mut Report<'_>,
        mut take: impl FnMut(&[u8], usize) -> Result<(), DatasetError>,
    ) -> Result<Multiset, DatasetError> {
        let (own, frame) = store.table()?;
        let codec = Codec::new(&self.columns, &own, &frame);
        let (mut row, mut sum, mut record) = (0, 0, Vec::new());
        each_row(store, self.shards.jobs, |piece| {
            for at in 0..piece.len() {
                let (indices, data) = piece.view().row(at);
                record.clear();
                record.extend((indices.len() as u32).to_le_bytes());
                record.extend_from_slice(bytemuck::cast_slice(indices));
                record.extend_from_slice(bytemuck::cast_slice(data));
                codec.encode(row, &mut record);
                let hash = blake3::hash(&record);
                let mut low = [0; 16];
                low.copy_from_slice(&hash.as_bytes()[..16]);
                sum = Multiset::wrapping_add(sum, Multiset::from_le_bytes(low));
                take(&record, row)?;
                row += 1;
            }
            report(to, phase, done + row as u64, rows)
        })?;
        Ok(sum)
    }

    /// Deal all rows to buckets.
    fn deal(&self, spill: &Path, rows: u64, to: &mut Report<'_>) -> Result<Multiset, DatasetError> {
        let mut buckets = (0..self.buckets)
            .map(|bucket| {
                let path = bucket_path(spill, bucket);
                let file = File::create(&path).map_err(DatasetError::io("create", &path))?;
                Ok((BufWriter::with_capacity(1 << 18, file), path))
            })
            .collect::<Result<Vec<_>, DatasetError>>()?;
        let mut stream = RandomStream::new(self.shards.seed, 1.0, "buckets");
        let (mut sum, mut done) = (0, 0);
        for source in self.sources {
            let part = self.pass(source, done, rows, "deal", to, |record, _| {
                let (file, path) = &mut buckets[stream.below(self.buckets) as usize];
                let length = (record.len() as u32).to_le_bytes();
                file.write_all(&length).and_then(|()| file.write_all(record)).map_err(DatasetError::io("write", path))
            })?;
            sum = Multiset::wrapping_add(sum, part);
            done += source.len();
        }
        for (mut file, path) in buckets {
            file.flush().map_err(DatasetError::io("write", &path))?;
        }
        Ok(sum)
    }

    /// Put the rows of each bucket in order and write them to the shards.
    fn gather(
        &self,
        spill: &Path,
        names: &[String],
        rows: u64,
        to: &mut Report<'_>,
    ) -> Result<Vec<RowsSeen>, DatasetError> {
        let mut open = OpenShards::new(self, names, rows);
        for bucket in 0..self.buckets {
            let path = bucket_path(spill, bucket);
            let bytes = std::fs::read(&path).map_err(DatasetError::io("read", &path))?;
            let cut = || DatasetError::damaged(&path, Damage::CutShort);
            let (mut records, mut rest) = (Vec::new(), &bytes[..]);
            while !rest.is_empty() {
                let (length, after) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
                let (record, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(cut)?;
                records.push(record);
                rest = after;
            }
            let order =
                RandomStream::new(self.shards.seed, 1.0, &format!("bucket {bucket}")).permutation(records.len() as u64);
            for at in order {
                open.push(records[at as usize]).ok_or_else(cut)??;
                if open.pending.len() >= PIECE_ROWS {
                    open.flush()?;
                    report(to, "rows", open.done, rows)?;
                }
            }
            let _ = std::fs::remove_file(&path);
        }
        open.flush()?;
        report(to, "rows", open.done, rows)?;
        Ok(open.written)
    }
}

fn bucket_path(spill: &Path, bucket: u64) -> PathBuf {
    spill.join(format!("bucket-{bucket:04}"))
}

/// The shards that are being written, one after another.
struct OpenShards<'a> {
    shuffle: &'a Shuffle<'a>,
    names: &'a [String],
    rows: u64,
    writer: Option<AnnDataWriter>,
    seen: RowsSeen,
    pending: CsrRows,
    obs: Frame,
    done: u64,
    written: Vec<RowsSeen>,
}

impl<'a> OpenShards<'a> {
    fn new(shuffle: &'a Shuffle<'a>, names: &'a [String], rows: u64) -> Self {
        let obs = empty(&shuffle.columns);
        let (pending, seen) = (CsrRows::default(), RowsSeen::default());
        Self { shuffle, names, rows, writer: None, seen, pending, obs, done: 0, written: Vec::new() }
    }

    /// Rows of the shard that is being written.
    fn shard_rows(&self) -> u64 {
        let before = self.written.len() as u64 * self.shuffle.shards.rows;
        self.shuffle.shards.rows.min(self.rows - before)
    }

    /// Append a row; `None` if the record is not one.
    fn push(&mut self, record: &[u8]) -> Option<Result<(), DatasetError>> {
        let (count, rest) = record.split_first_chunk::<4>()?;
        let count = u32::from_le_bytes(*count) as usize;
        let (indices, rest) = rest.split_at_checked(count * 4)?;
        let (data, rest) = rest.split_at_checked(count * 4)?;
        self.pending.indices.extend(indices.as_chunks::<4>().0.iter().map(|word| i32::from_le_bytes(*word)));
        self.pending.data.extend(data.as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word)));
        self.pending.indptr.push(self.pending.indices.len() as u64);
        decode(rest, &mut self.obs)?;
        if self.seen.rows + self.pending.len() as u64 == self.shard_rows() { Some(self.flush()) } else { Some(Ok(())) }
    }

    /// Write what has come, and end the shard if it is full.
    fn flush(&mut self) -> Result<(), DatasetError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let rows = self.shard_rows();
        let mut writer = match self.writer.take() {
            Some(writer) => writer,
            None => self.begin(rows)?,
        };
        writer.push(self.pending.view())?;
        writer.push_obs(&self.obs)?;
        self.seen.add(self.pending.view());
        self.done += self.pending.len() as u64;
        self.pending.clear();
        self.obs = empty(&self.shuffle.columns);
        if self.seen.rows == rows {
            writer.finish()?;
            self.written.push(std::mem::take(&mut self.seen));
        } else {
            self.writer = Some(writer);
        }
        Ok(())
    }

    fn begin(&self, rows: u64) -> Result<AnnDataWriter, DatasetError> {
        let sources = self.shuffle.sources;
        let values: u64 = sources.iter().map(|source| stored(source)).sum();
        let genes = sources[0].genes();
        let name = self.names.get(self.written.len()).map(String::as_str).unwrap_or_default();
        let spec = AnnDataSpec {
            rows,
            columns: genes.len() as u64,
            values: (values as f64 * rows as f64 / self.rows.max(1) as f64) as u64,
            matrix: Matrix::Csr,
            layout: Layout::Chunked { chunk: None, compression: Compression::None },
            threads: 1,
        };
        let mut writer = AnnDataWriter::create(&self.shuffle.shards.folder.join(name), &spec)?;
        writer.copy_var(sources[0].path())?;
        writer.begin_obs(rows, &self.shuffle.columns)?;
        Ok(writer)
    }
}

/// The columns that hold what both the columns `known`, of the file `first`, and those of the file `source` have.
fn joined(
    known: Vec<ColumnSpec>,
    other: Vec<ColumnSpec>,
    first: &Path,
    source: &Path,
) -> Result<Vec<ColumnSpec>, DatasetError> {
    if known.len() != other.len() || known.iter().zip(&other).any(|(a, b)| a.name != b.name) {
        let names = |columns: Vec<ColumnSpec>| columns.into_iter().map(|column| column.name).collect();
        let (found, expected, first) = (names(other), names(known), first.to_owned());
        return Err(DatasetError::damaged(source, Damage::ColumnNames { found, expected, first }));
    }
    let both = known.into_iter().zip(other).map(|(known, other)| {
        let kind = match (known.kind, other.kind) {
            (a, b) if a == b => a,
            (
                ColumnKind::Categorical { mut categories, ordered },
                ColumnKind::Categorical { categories: more, ordered: too },
            ) => {
                let new: Vec<String> = more.into_iter().filter(|name| !categories.contains(name)).collect();
                let ordered = ordered && too && new.is_empty();
                categories.extend(new);
                ColumnKind::Categorical { categories, ordered }
            }
            (ColumnKind::Int64 | ColumnKind::NullableInt64, ColumnKind::Int64 | ColumnKind::NullableInt64) => {
                ColumnKind::NullableInt64
            }
            (a, b) => {
                let (column, first) = (known.name, first.to_owned());
                let damage = Damage::ColumnKind { column, found: b.name(), expected: a.name(), first };
                return Err(DatasetError::damaged(source, damage));
            }
        };
        Ok(ColumnSpec { name: known.name, kind })
    });
    both.collect()
}

fn empty(columns: &[ColumnSpec]) -> Frame {
    let cells = columns.iter().map(|column| match column.kind {
        ColumnKind::Categorical { .. } => ColumnCells::Codes(Vec::new()),
        ColumnKind::Strings => ColumnCells::Strings(Vec::new()),
        ColumnKind::Float64 => ColumnCells::Float64(Vec::new()),
        ColumnKind::Float32 => ColumnCells::Float32(Vec::new()),
        ColumnKind::Int64 => ColumnCells::Int64(Vec::new()),
        ColumnKind::NullableInt64 => ColumnCells::NullableInt64(Vec::new()),
        ColumnKind::Bool => ColumnCells::Bool(Vec::new()),
    });
    Frame { index: Vec::new(), columns: cells.collect() }
}

/// Rows of the obs of one file as bytes, in the classes of all files.
struct Codec<'a> {
    frame: &'a Frame,
    columns: &'a [ColumnSpec],
    /// For each categorical column: the code among the classes of all files of each class of this file.
    classes: Vec<Vec<i32>>,
}

impl<'a> Codec<'a> {
    /// For rows of `frame`, whose columns are `own`, as `columns`.
    pub fn new(columns: &'a [ColumnSpec], own: &[ColumnSpec], frame: &'a Frame) -> Self {
        let classes = columns.iter().zip(own).map(|(all, own)| match (&all.kind, &own.kind) {
            (ColumnKind::Categorical { categories: all, .. }, ColumnKind::Categorical { categories: own, .. }) => {
                let places: HashMap<&String, i32> = all.iter().zip(0..).collect();
                own.iter().map(|name| places.get(name).copied().unwrap_or(-1)).collect()
            }
            _ => Vec::new(),
        });
        Self { frame, columns, classes: classes.collect() }
    }

    /// Append a row.
    pub fn encode(&self, row: usize, out: &mut Vec<u8>) {
        let text = |out: &mut Vec<u8>, text: &str| {
            out.extend((text.len() as u32).to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        };
        text(out, &self.frame.index[row]);
        for ((cells, column), classes) in self.frame.columns.iter().zip(self.columns).zip(&self.classes) {
            match cells {
                ColumnCells::Codes(values) => {
                    let code = usize::try_from(values[row]).map_or(-1, |code| classes[code]);
                    out.extend(code.to_le_bytes());
                }
                ColumnCells::Strings(values) => text(out, &values[row]),
                ColumnCells::Float64(values) => out.extend(values[row].to_le_bytes()),
                ColumnCells::Float32(values) => out.extend(values[row].to_le_bytes()),
                ColumnCells::Int64(values) => {
                    if column.kind == ColumnKind::NullableInt64 {
                        out.push(1);
                    }
                    out.extend(values[row].to_le_bytes());
                }
                ColumnCells::NullableInt64(values) => {
                    out.push(u8::from(values[row].is_some()));
                    out.extend(values[row].unwrap_or_default().to_le_bytes());
                }
                ColumnCells::Bool(values) => out.push(u8::from(values[row])),
            }
        }
    }
}

/// Append the row that [`Codec::encode`] made of it; `None` if it is none.
pub fn decode(mut bytes: &[u8], frame: &mut Frame) -> Option<()> {
    fn take<'b, const N: usize>(bytes: &mut &'b [u8]) -> Option<&'b [u8; N]> {
        let (head, rest) = bytes.split_first_chunk::<N>()?;
        *bytes = rest;
        Some(head)
    }
    fn text(bytes: &mut &[u8]) -> Option<String> {
        let length = u32::from_le_bytes(*take(bytes)?) as usize;
        let (head, rest) = bytes.split_at_checked(length)?;
        *bytes = rest;
        String::from_utf8(head.to_vec()).ok()
    }
    let bytes = &mut bytes;
    frame.index.push(text(bytes)?);
    for cells in &mut frame.columns {
        match cells {
            ColumnCells::Codes(values) => values.push(i32::from_le_bytes(*take(bytes)?)),
            ColumnCells::Strings(values) => values.push(text(bytes)?),
            ColumnCells::Float64(values) => values.push(f64::from_le_bytes(*take(bytes)?)),
            ColumnCells::Float32(values) => values.push(f32::from_le_bytes(*take(bytes)?)),
            ColumnCells::Int64(values) => values.push(i64::from_le_bytes(*take(bytes)?)),
            ColumnCells::NullableInt64(values) => {
                let [known] = *take(bytes)?;
                let value = i64::from_le_bytes(*take(bytes)?);
                values.push((known == 1).then_some(value));
            }
            ColumnCells::Bool(values) => values.push(take::<1>(bytes)?[0] == 1),
        }
    }
    bytes.is_empty().then_some(())
}
