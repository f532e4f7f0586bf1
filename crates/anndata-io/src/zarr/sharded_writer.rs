//! `ShardedWriter` appends elements to a sharded array and writes each shard when it is full.
//! Invariant: memory is bounded by 16 chunks for each thread, whatever the length of the array.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use bytemuck::Pod;
use serde_json::{Map, json};

use crate::AnnDataError;
use crate::codec::filters::blosc_compress;
use crate::write::encode_chunks;
use crate::zarr::writer::{NodeWriter, number_codecs};

/// Chunks that are buffered for each thread before they are compressed and written.
const CHUNKS_PER_THREAD: usize = 16;

/// Writes a sharded one-dimensional array from start to end: chunks compressed with Blosc, and an index with a checksum at the
/// end of each shard.
pub(crate) struct ShardedWriter<T> {
    name: String,
    folder: PathBuf,
    /// Elements of a chunk, and chunks of a shard.
    chunk: usize,
    chunks: usize,
    threads: usize,
    pending: Vec<T>,
    /// Number of elements so far.
    len: u64,
    shard: Option<ShardFile>,
    /// Number of shards so far.
    shards: u64,
}

/// The shard that is being written.
struct ShardFile {
    path: PathBuf,
    file: BufWriter<File>,
    at: u64,
    /// Offset and size of each chunk in bytes.
    index: Vec<[u64; 2]>,
}

impl<T: Pod + Sync> ShardedWriter<T> {
    /// Creates an array of this name, with so many elements a chunk and chunks a shard.
    pub fn create(
        nodes: &NodeWriter,
        name: &str,
        chunk: usize,
        chunks: usize,
        threads: usize,
    ) -> Result<Self, AnnDataError> {
        let folder = nodes.folder(name).join("c");
        std::fs::create_dir_all(&folder).map_err(AnnDataError::io("create", &folder))?;
        Ok(Self {
            name: name.to_owned(),
            folder,
            chunk,
            chunks,
            threads: threads.max(1),
            pending: Vec::new(),
            len: 0,
            shard: None,
            shards: 0,
        })
    }

    /// Appends elements.
    pub fn push(&mut self, values: &[T]) -> Result<(), AnnDataError> {
        self.len += values.len() as u64;
        self.pending.extend_from_slice(values);
        if self.pending.len() < CHUNKS_PER_THREAD * self.threads * self.chunk {
            return Ok(());
        }
        self.flush()
    }

    /// Writes the buffered elements and the metadata; `kind` is the name of the data type.
    pub fn finish(mut self, nodes: &mut NodeWriter, kind: &str) -> Result<(), AnnDataError> {
        let rest = self.pending.len() % self.chunk;
        if rest > 0 {
            // The last chunk is padded; its padding is never read.
            self.pending.resize(self.pending.len() + self.chunk - rest, T::zeroed());
        }
        self.flush()?;
        if let Some(shard) = self.shard.take() {
            shard.finish(self.chunks)?;
        }
        let index = json!([{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]);
        let sharding = json!({
            "chunk_shape": [self.chunk],
            "codecs": number_codecs(size_of::<T>()),
            "index_codecs": index,
            "index_location": "end",
        });
        let special = json!({
            "data_type": kind,
            "fill_value": if kind.starts_with("float") { json!(0.0) } else { json!(0) },
            "codecs": [{"name": "sharding_indexed", "configuration": sharding}],
        });
        let shard = (self.chunk * self.chunks) as u64;
        nodes.array(&self.name, &[self.len], &[shard], special, Map::new())
    }

    fn flush(&mut self) -> Result<(), AnnDataError> {
        let whole = self.pending.len() / self.chunk * self.chunk;
        let pieces: Vec<&[T]> = self.pending[..whole].chunks_exact(self.chunk).collect();
        let folder = &self.folder;
        let compressed = encode_chunks(&pieces, &mut vec![(); self.threads], |(), chunk| {
            let packed = blosc_compress(bytemuck::cast_slice(chunk), size_of::<T>());
            packed.map_err(|error| AnnDataError::damaged(folder, error))
        })?;
        for bytes in compressed {
            let shard = match self.shard.take() {
                Some(shard) => self.shard.insert(shard),
                None => {
                    let path = self.folder.join(self.shards.to_string());
                    self.shards += 1;
                    self.shard.insert(ShardFile::create(&path)?)
                }
            };
            shard.push(&bytes)?;
            if shard.index.len() == self.chunks
                && let Some(full) = self.shard.take()
            {
                full.finish(self.chunks)?;
            }
        }
        self.pending.drain(..whole);
        Ok(())
    }
}

impl ShardFile {
    fn create(path: &Path) -> Result<Self, AnnDataError> {
        let file = File::create_new(path).map_err(AnnDataError::io("create", path))?;
        Ok(Self { path: path.to_owned(), file: BufWriter::with_capacity(1 << 20, file), at: 0, index: Vec::new() })
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), AnnDataError> {
        self.file.write_all(bytes).map_err(AnnDataError::io("write", &self.path))?;
        self.index.push([self.at, bytes.len() as u64]);
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn finish(mut self, chunks: usize) -> Result<(), AnnDataError> {
        self.index.resize(chunks, [u64::MAX; 2]);
        let index: Vec<u8> = self.index.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
        let sum = crc32c::crc32c(&index).to_le_bytes();
        let written = self.file.write_all(&index).and_then(|()| self.file.write_all(&sum));
        let file = written.and_then(|()| self.file.into_inner().map_err(|e| e.into_error()));
        file.and_then(|file| file.sync_all()).map_err(AnnDataError::io("write", &self.path))
    }
}
