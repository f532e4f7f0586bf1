//! Zarr: our array reader against `zarrs`, on CSR in shards, as our writer writes it, and in chunks that are files.
//!
//! Every side decodes on one thread: a loader has a reader for each of its threads.

use std::fs::File;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use anndata_io::{CsrRows, ZarrStore};
use serde_json::Value;
use zarrs::array::chunk_cache::{ChunkCache, ChunkCacheDecodedLruChunkLimit};
use zarrs::array::{
    Array, ArrayBytes, ArrayShardedReadableExt, ArrayShardedReadableExtCache, ArraySubset, ArrayToBytesCodecTraits,
    CodecChain, CodecOptions, ElementOwned,
};
use zarrs::filesystem::{FilesystemStore, FilesystemStoreOptions};
use zarrs::metadata::v3::MetadataV3;
use zarrs::storage::ReadableStorageTraits;
use zarrs::storage::byte_range::ByteRange;

use crate::harness::{Case, Check, Clock, Context, Hash, Outcome, Pass, RunPass};
use crate::ours;
use crate::work::{Draw, Request};

/// Rows of a block: the default of the loader's chunked draws.
const BLOCK_ROWS: u64 = 64;
/// Batches of single rows of a pass.
const BATCHES: u64 = 20;
/// Decoded chunks that are kept: 1 MiB of float32, as our reader keeps.
const KEPT_CHUNKS: usize = 16;
/// Files that zarrs keeps open.
const OPEN_FILES: usize = 2048;

type Readable = dyn ReadableStorageTraits;

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (draw, name) in [
        (Draw::InOrder(1024), "CSR in shards, in order"),
        (Draw::Blocks(BLOCK_ROWS), "CSR in shards, random blocks of 64"),
        (Draw::Single(BATCHES), "CSR in shards, single rows"),
    ] {
        cases.push(
            case(name, "sharded.zarr", draw)
                .side("zarrs, subsets", theirs("sharded.zarr", How::Subsets, draw))
                .side("zarrs, subsets, shard index cached", theirs("sharded.zarr", How::IndexedSubsets, draw))
                .side("zarrs, subchunks, decoded ones cached", theirs("sharded.zarr", How::Subchunks, draw))
                .side("zarrs, subchunk_byte_range and codecs", theirs("sharded.zarr", How::ByteRanges, draw)),
        );
    }
    for (draw, name) in [
        (Draw::InOrder(1024), "CSR in files, in order"),
        (Draw::Blocks(BLOCK_ROWS), "CSR in files, random blocks of 64"),
        (Draw::Single(BATCHES), "CSR in files, single rows"),
    ] {
        cases.push(
            case(name, "chunked.zarr", draw)
                .side("zarrs, subsets", theirs("chunked.zarr", How::Subsets, draw))
                .side("zarrs, its chunk cache", theirs("chunked.zarr", How::ChunkCache, draw))
                .side("zarrs, chunks, decoded ones cached", theirs("chunked.zarr", How::Subchunks, draw)),
        );
    }
    cases
}

fn case(name: &'static str, folder: &'static str, draw: Draw) -> Case {
    Case::new("zarr", name, "rows/s")
        .side("ours", move |context| ours::passes(ZarrStore::open(&context.folder.join(folder), "X")?, draw))
}

fn theirs(folder: &'static str, how: How, draw: Draw) -> impl Fn(&Context) -> Outcome<RunPass> {
    move |context| passes(&context.folder.join(folder), how, draw)
}

/// Which of zarrs' interfaces reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// `retrieve_array_subset_opt`.
    Subsets,
    /// `retrieve_array_subset_sharded_opt`, with its cache of shard indices.
    IndexedSubsets,
    /// `ChunkCacheDecodedLruChunkLimit`.
    ChunkCache,
    /// `retrieve_subchunk_opt`, each chunk once a batch; the last decoded ones are kept.
    Subchunks,
    /// `subchunk_byte_range` of all chunks at the start, reads at positions, and the codecs of zarrs; the last decoded ones are kept.
    ByteRanges,
}

/// Values that are read to a position of the output.
struct Run {
    first: u64,
    end: u64,
    to: usize,
}

/// A one-dimensional array.
struct Column<T> {
    array: Array<Readable>,
    how: How,
    options: CodecOptions,
    index: ArrayShardedReadableExtCache,
    chunks: Option<ChunkCacheDecodedLruChunkLimit>,
    /// Values of a chunk, or of a chunk in a shard.
    chunk: u64,
    ranges: Option<ByteRanges>,
    /// The chunks that were used last, the latest at the end.
    kept: Vec<(u64, Vec<T>)>,
}

/// Where each chunk lies, and what decodes it.
struct ByteRanges {
    shards: Vec<File>,
    chunks: Vec<Option<(usize, u64, usize)>>,
    codecs: CodecChain,
    bytes: Vec<u8>,
}

impl<T: ElementOwned + Copy + 'static> Column<T> {
    fn open(folder: &Path, name: &str, how: How) -> Outcome<Self> {
        let mut options = FilesystemStoreOptions::default();
        options.file_handle_cache_size(OPEN_FILES);
        let store: Arc<Readable> = Arc::new(FilesystemStore::new_with_options(folder, options)?);
        let array = Array::open(store.clone(), &format!("/{name}"))?;
        let index = ArrayShardedReadableExtCache::new(&array);
        let metadata: Value = serde_json::from_slice(&std::fs::read(folder.join(name).join("zarr.json"))?)?;
        let object = metadata["chunk_grid"]["configuration"]["chunk_shape"][0].as_u64().ok_or("no chunk shape")?;
        let sharding = &metadata["codecs"][0]["configuration"];
        let chunk = sharding["chunk_shape"][0].as_u64().unwrap_or(object);
        let chunks = match how {
            How::ChunkCache => {
                let array = Arc::new(Array::open(store, &format!("/{name}"))?);
                Some(ChunkCacheDecodedLruChunkLimit::new(array, KEPT_CHUNKS as u64))
            }
            _ => None,
        };
        let ranges = match how {
            How::ByteRanges => Some(ByteRanges::new(folder, name, &array, &index, sharding, object / chunk, chunk)?),
            _ => None,
        };
        let options = CodecOptions::default().with_concurrent_target(1);
        Ok(Self { array, how, options, index, chunks, chunk, ranges, kept: Vec::new() })
    }

    fn all(&self) -> Outcome<Vec<T>> {
        Ok(self.array.retrieve_array_subset_opt::<Vec<T>>(&self.array.subset_all(), &self.options)?)
    }

    /// Hands the values of `runs`, which ascend, to `put` with their position.
    fn read(&mut self, runs: &[Run], mut put: impl FnMut(usize, &[T])) -> Outcome<()> {
        for run in runs.iter().filter(|run| run.first < run.end) {
            let subset = || ArraySubset::new_with_ranges(&[run.first..run.end]);
            match self.how {
                How::Subsets => put(run.to, &self.array.retrieve_array_subset_opt::<Vec<T>>(&subset(), &self.options)?),
                How::IndexedSubsets => put(
                    run.to,
                    &self.array.retrieve_array_subset_sharded_opt::<Vec<T>>(&self.index, &subset(), &self.options)?,
                ),
                How::ChunkCache => {
                    let chunks = self.chunks.as_ref().ok_or("no chunk cache")?;
                    put(run.to, &chunks.retrieve_array_subset::<Vec<T>>(&subset(), &self.options)?);
                }
                How::Subchunks | How::ByteRanges => {
                    let mut first = run.first;
                    while first < run.end {
                        let number = first / self.chunk;
                        let end = run.end.min((number + 1) * self.chunk);
                        let in_chunk = (first % self.chunk) as usize;
                        let (to, count) = (run.to + (first - run.first) as usize, (end - first) as usize);
                        put(to, &self.chunk(number)?[in_chunk..in_chunk + count]);
                        first = end;
                    }
                }
            }
        }
        Ok(())
    }

    /// A decoded chunk.
    fn chunk(&mut self, number: u64) -> Outcome<&[T]> {
        if let Some(at) = self.kept.iter().rposition(|(kept, _)| *kept == number) {
            let found = self.kept.remove(at);
            self.kept.push(found);
        } else {
            let values = match &mut self.ranges {
                None => self.array.retrieve_subchunk_opt::<Vec<T>>(&self.index, &[number], &self.options)?,
                Some(ranges) => ranges.decode(&self.array, number, self.chunk, &self.options)?,
            };
            if self.kept.len() == KEPT_CHUNKS {
                self.kept.remove(0);
            }
            self.kept.push((number, values));
        }
        Ok(&self.kept[self.kept.len() - 1].1)
    }
}

impl ByteRanges {
    fn new(
        folder: &Path,
        name: &str,
        array: &Array<Readable>,
        index: &ArrayShardedReadableExtCache,
        sharding: &Value,
        per_shard: u64,
        chunk: u64,
    ) -> Outcome<Self> {
        let values = array.shape()[0];
        let open = |shard| File::open(folder.join(name).join("c").join(format!("{shard}")));
        let shards = (0..values.div_ceil(per_shard * chunk)).map(open).collect::<Result<_, _>>()?;
        let mut chunks = Vec::new();
        for number in 0..values.div_ceil(chunk) {
            let range = array.subchunk_byte_range(index, &[number])?;
            chunks.push(range.and_then(|range| match range {
                ByteRange::FromStart(offset, Some(bytes)) => {
                    Some(((number / per_shard) as usize, offset, bytes as usize))
                }
                _ => None,
            }));
        }
        let codecs: Vec<MetadataV3> = serde_json::from_value(sharding["codecs"].clone())?;
        Ok(Self { shards, chunks, codecs: CodecChain::from_metadata(&codecs)?, bytes: Vec::new() })
    }

    fn decode<T: ElementOwned>(
        &mut self,
        array: &Array<Readable>,
        number: u64,
        chunk: u64,
        options: &CodecOptions,
    ) -> Outcome<Vec<T>> {
        let (shard, offset, bytes) = self.chunks[number as usize].ok_or("a chunk is missing")?;
        self.bytes.resize(bytes, 0);
        self.shards[shard].read_exact_at(&mut self.bytes, offset)?;
        let shape = [NonZeroU64::new(chunk).ok_or("an empty chunk")?];
        let encoded = self.bytes.as_slice().into();
        let decoded: ArrayBytes<'_> =
            self.codecs.decode(encoded, &shape, array.data_type(), array.fill_value(), options)?;
        Ok(T::from_array_bytes(array.data_type(), decoded)?)
    }
}

fn passes(folder: &Path, how: How, draw: Draw) -> Outcome<RunPass> {
    let indptr: Vec<u64> = {
        let column = Column::<i32>::open(folder, "X/indptr", How::Subsets)?;
        column.all()?.into_iter().map(|start| start as u64).collect()
    };
    let mut indices = Column::<u16>::open(folder, "X/indices", how)?;
    let mut data = Column::<f32>::open(folder, "X/data", how)?;
    let requests = draw.requests(indptr.len() as u64 - 1);
    let mut out = CsrRows::default();
    let mut runs = Vec::new();
    Ok(Box::new(move |check| {
        let (mut clock, mut hash, mut units) = (Clock::default(), Hash::default(), 0);
        for request in &requests {
            out.clear();
            clock.time(|| -> Outcome<()> {
                plan(&indptr, request, &mut runs, &mut out);
                let values = out.indptr[out.indptr.len() - 1] as usize;
                out.indices.resize(values, 0);
                out.data.resize(values, 0.0);
                indices.read(&runs, |to, from| {
                    let to = &mut out.indices[to..to + from.len()];
                    to.iter_mut().zip(from).for_each(|(to, from)| *to = i32::from(*from));
                })?;
                data.read(&runs, |to, from| out.data[to..to + from.len()].copy_from_slice(from))
            })?;
            units += request.len();
            if check {
                hash.csr(&out.indptr, &out.indices, &out.data);
            }
        }
        Ok(Pass { units, time: clock.0, check: Check::Same(hash.0) })
    }))
}

/// The values of a request, in file order, and the row pointers of the output.
fn plan(indptr: &[u64], request: &Request, runs: &mut Vec<Run>, out: &mut CsrRows) {
    runs.clear();
    match request {
        Request::Range(range) => {
            let starts = &indptr[range.start as usize..=range.end as usize];
            out.indptr.extend(starts[1..].iter().map(|start| start - starts[0]));
            runs.push(Run { first: starts[0], end: starts[starts.len() - 1], to: 0 });
        }
        Request::Rows(rows) => {
            let mut to = 0;
            for row in rows {
                let (first, end) = (indptr[*row as usize], indptr[*row as usize + 1]);
                runs.push(Run { first, end, to });
                to += (end - first) as usize;
                out.indptr.push(to as u64);
            }
            runs.sort_unstable_by_key(|run| run.first);
        }
    }
}

/// Copies a folder, with a file for each chunk of indices and data instead of shards; chunks and codecs stay the same.
pub fn without_shards(from: &Path, to: &Path) -> Outcome<()> {
    copy(from, to)?;
    let edit = |path: &Path, change: &dyn Fn(&mut Value)| -> Outcome<()> {
        let mut metadata: Value = serde_json::from_slice(&std::fs::read(path)?)?;
        change(&mut metadata);
        Ok(std::fs::write(path, serde_json::to_vec_pretty(&metadata)?)?)
    };
    let unsharded = |metadata: &mut Value| {
        let sharding = metadata["codecs"][0]["configuration"].clone();
        metadata["chunk_grid"]["configuration"]["chunk_shape"] = sharding["chunk_shape"].clone();
        metadata["codecs"] = sharding["codecs"].clone();
    };
    edit(&to.join("zarr.json"), &|root| {
        for name in ["X/data", "X/indices"] {
            unsharded(&mut root["consolidated_metadata"]["metadata"][name]);
        }
    })?;
    rewrite::<f32>(from, to, "X/data", &|metadata| edit(metadata, &unsharded))?;
    rewrite::<u16>(from, to, "X/indices", &|metadata| edit(metadata, &unsharded))
}

fn rewrite<T: ElementOwned + Copy + Default + 'static>(
    from: &Path,
    to: &Path,
    name: &str,
    edit: &dyn Fn(&Path) -> Outcome<()>,
) -> Outcome<()> {
    let folder = to.join(name);
    let mut column = Column::<T>::open(from, name, How::Subchunks)?;
    std::fs::remove_dir_all(folder.join("c"))?;
    edit(&folder.join("zarr.json"))?;
    let array = Array::open(Arc::new(FilesystemStore::new(to)?), &format!("/{name}"))?;
    for number in 0..array.shape()[0].div_ceil(column.chunk) {
        array.store_chunk(&[number], column.chunk(number)?)?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Outcome<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &target)?,
            false => std::fs::copy(entry.path(), &target).map(|_| ())?,
        }
    }
    Ok(())
}
