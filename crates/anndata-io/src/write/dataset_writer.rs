//! `DatasetWriter` writes one HDF5 data set and compresses its chunks on several threads, outside of the lock of libhdf5.
//! Invariant: chunk sizes and filters are those that h5py would store.

use std::path::{Path, PathBuf};

use bytemuck::Pod;
use hdf5_metno::filters::Filter;
use hdf5_metno::{Dataset, Group, H5Type, SimpleExtents};
use hdf5_metno_sys::h5d::H5Dwrite_chunk;
use hdf5_metno_sys::h5p::H5P_DEFAULT;
use libdeflater::{CompressionLvl, Compressor};

use crate::AnnDataError;
use crate::h5ad::filters::register_hdf5_filters;
use crate::write::ann_data_writer::write_error;
use crate::write::{WriteError, encode_chunks};

/// Bytes of chunks that are buffered for each thread before they are compressed and written.
const COLLECTED_BYTES: usize = 2 << 20;

/// Layout of a data set in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Contiguous; the number of values must be known in advance.
    Contiguous,
    /// Chunked.
    Chunked {
        /// Values of a chunk (rows, for a dense matrix); `None` is the choice of h5py.
        chunk: Option<usize>,
        /// Compression of the chunks.
        compression: Compression,
    },
}

/// Writes a data set from start to end: `[len]`, or `[len, width]`.
pub(crate) struct DatasetWriter<T> {
    path: PathBuf,
    dataset: Dataset,
    width: Option<usize>,
    /// Rows of a chunk; `None` for a contiguous data set.
    chunk: Option<usize>,
    encoders: Vec<Encoder>,
    pending: Vec<T>,
    /// Rows that were written, and rows of the extent of the data set.
    written: usize,
    room: usize,
}

impl<T: H5Type + Pod + Sync> DatasetWriter<T> {
    /// Creates a data set in `group` for `len` rows of one value or of `width` values; `len` may be an estimate for a chunked
    /// data set.
    pub fn create(
        path: &Path,
        group: &Group,
        name: &str,
        (len, width): (u64, Option<usize>),
        layout: Layout,
        threads: usize,
    ) -> Result<Self, AnnDataError> {
        let failed = write_error(path);
        let len = len as usize;
        let row = width.unwrap_or(1) * size_of::<T>();
        let compression = match layout {
            Layout::Contiguous => Compression::None,
            Layout::Chunked { compression, .. } => compression,
        };
        let encoders = (0..threads.max(1)).map(|_| compression.encoder(path)).collect::<Result<_, _>>()?;
        let (builder, chunk) = match layout {
            Layout::Contiguous => (group.new_dataset::<T>().no_chunk(), None),
            Layout::Chunked { chunk, compression } => {
                let chunk = chunk.unwrap_or_else(|| match width {
                    None => guessed_chunk_len(len as u64, row),
                    Some(_) => ((1 << 20) / row.max(1)).max(1),
                });
                let chunk = chunk.max(1);
                let filters = compression.filters(chunk * row);
                register_hdf5_filters()?;
                let builder = group.new_dataset::<T>().set_filters(&filters);
                (builder.chunk(dims(chunk, width)), Some(chunk))
            }
        };
        let extents: SimpleExtents = match (chunk, width) {
            (None, _) => SimpleExtents::from(dims(len, width)),
            (Some(_), None) => SimpleExtents::from((len..,)),
            (Some(_), Some(width)) => SimpleExtents::from((len.., width)),
        };
        let dataset = builder.obj_track_times(false).shape(extents).create(name).map_err(&failed)?;
        let path = path.to_owned();
        Ok(Self { path, dataset, width, chunk, encoders, pending: Vec::new(), written: 0, room: len })
    }

    /// The data set.
    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// Appends rows.
    pub fn push(&mut self, values: &[T]) -> Result<(), AnnDataError> {
        self.pending.extend_from_slice(values);
        let collected = COLLECTED_BYTES * self.encoders.len();
        if self.pending.len() * size_of::<T>() < collected {
            return Ok(());
        }
        self.flush(false)
    }

    /// Writes the rest. Returns the data set and its number of rows.
    pub fn finish(mut self) -> Result<(Dataset, u64), AnnDataError> {
        self.flush(true)?;
        if self.written != self.room {
            if self.chunk.is_none() {
                let problem = WriteError::Entries { expected: self.room, found: self.written };
                return Err(AnnDataError::write(&self.path, problem));
            }
            self.dataset.resize(dims(self.written, self.width)).map_err(write_error(&self.path))?;
        }
        Ok((self.dataset, self.written as u64))
    }

    fn flush(&mut self, all: bool) -> Result<(), AnnDataError> {
        let width = self.width.unwrap_or(1);
        let Some(chunk) = self.chunk else { return self.flush_contiguous(width) };
        let values = chunk * width;
        let whole = self.pending.len() / values;
        let rest = self.pending.len() % values;
        let chunks = whole + usize::from(all && rest > 0);
        let last = self.written + if all { self.pending.len() / width.max(1) } else { whole * chunk };
        if last > self.room {
            self.dataset.resize(dims(last, self.width)).map_err(write_error(&self.path))?;
            self.room = last;
        }
        if all && rest > 0 {
            // The last chunk is padded; its padding is never read.
            self.pending.resize(chunks * values, T::zeroed());
        }
        let pieces: Vec<&[T]> = self.pending[..chunks * values].chunks_exact(values).collect();
        let path = &self.path;
        let encoded = encode_chunks(&pieces, &mut self.encoders, |encoder, chunk| {
            let bytes = bytemuck::cast_slice(chunk);
            encoder.encode(bytes, size_of::<T>()).map_err(AnnDataError::io("compress", path))
        })?;
        for (index, (bytes, mask)) in encoded.iter().enumerate() {
            write_chunk(&self.dataset, self.width, self.written + index * chunk, bytes, *mask)
                .map_err(write_error(&self.path))?;
        }
        self.written = last;
        self.pending.drain(..chunks * values);
        Ok(())
    }

    fn flush_contiguous(&mut self, width: usize) -> Result<(), AnnDataError> {
        let end = self.written + self.pending.len() / width.max(1);
        if end > self.room {
            return Err(AnnDataError::write(&self.path, WriteError::Entries { expected: self.room, found: end }));
        }
        if end > self.written && width > 0 {
            let rows = self.written..end;
            let written = match self.width {
                None => self.dataset.write_slice(&self.pending[..], rows),
                Some(width) => {
                    let view = ndarray::ArrayView2::from_shape((rows.len(), width), &self.pending[..]);
                    let view = view.map_err(|e| AnnDataError::write(&self.path, WriteError::Library(e.into())))?;
                    self.dataset.write_slice(view, (rows, ..))
                }
            };
            written.map_err(write_error(&self.path))?;
        }
        self.written = end;
        self.pending.clear();
        Ok(())
    }
}

fn dims(len: usize, width: Option<usize>) -> Vec<usize> {
    std::iter::once(len).chain(width).collect()
}

/// Writes a compressed chunk directly: the filters of libhdf5 would run on one thread, under its lock.
fn write_chunk(dataset: &Dataset, width: Option<usize>, row: usize, bytes: &[u8], mask: u32) -> hdf5_metno::Result<()> {
    let offset: Vec<u64> = std::iter::once(row as u64).chain(width.map(|_| 0)).collect();
    hdf5_metno::sync::sync(|| {
        let (id, at, from) = (dataset.id(), offset.as_ptr(), bytes.as_ptr().cast());
        // SAFETY: `offset` has one entry for each dimension of the data set, `bytes` has the given length; both outlive the
        // call.
        hdf5_metno::h5check(unsafe { H5Dwrite_chunk(id, H5P_DEFAULT, mask, at, bytes.len(), from) })
    })?;
    Ok(())
}

/// Registered filter: LZF, as in h5py.
const LZF: i32 = 32000;
/// Registered filter: Zstandard.
const ZSTD: i32 = 32015;
/// Parameters that h5py stores for LZF: versions of the filter and of liblzf; the size of a chunk follows.
const LZF_VERSIONS: [u32; 2] = [4, 0x0105];

/// Compression of chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// None.
    #[default]
    None,
    /// Deflate, `gzip` in h5py.
    Gzip {
        /// Level, 0 to 9.
        level: u8,
        /// Whether bytes are shuffled first.
        shuffle: bool,
    },
    /// LZF, `lzf` in h5py.
    Lzf,
    /// Zstandard, `hdf5plugin.Zstd`.
    Zstd {
        /// Level, 1 to 22.
        level: u8,
    },
}

impl Compression {
    /// The filters of a data set with chunks of this size.
    pub(crate) fn filters(self, chunk_bytes: usize) -> Vec<Filter> {
        match self {
            Self::None => Vec::new(),
            Self::Gzip { level, shuffle: false } => vec![Filter::deflate(level)],
            Self::Gzip { level, shuffle: true } => vec![Filter::shuffle(), Filter::deflate(level)],
            Self::Lzf => vec![Filter::user(LZF, &[LZF_VERSIONS[0], LZF_VERSIONS[1], chunk_bytes as u32])],
            Self::Zstd { level } => vec![Filter::user(ZSTD, &[u32::from(level)])],
        }
    }

    /// The compressor of a thread, for chunks of a data set in `path`.
    fn encoder(self, path: &Path) -> Result<Encoder, AnnDataError> {
        let kind = match self {
            Self::None => EncoderKind::None,
            Self::Gzip { level, shuffle } => {
                let valid = CompressionLvl::new(i32::from(level)).ok().filter(|_| level <= 9);
                let level = valid.ok_or_else(|| AnnDataError::write(path, WriteError::GzipLevel { level }))?;
                EncoderKind::Gzip { deflate: Compressor::new(level), shuffle }
            }
            Self::Lzf => EncoderKind::Lzf,
            Self::Zstd { level } => {
                let made = zstd::bulk::Compressor::new(i32::from(level));
                EncoderKind::Zstd(made.map_err(|e| AnnDataError::write(path, WriteError::Library(e.into())))?)
            }
        };
        Ok(Encoder { kind, shuffled: Vec::new() })
    }
}

/// Compresses chunks.
pub(crate) struct Encoder {
    kind: EncoderKind,
    shuffled: Vec<u8>,
}

enum EncoderKind {
    None,
    Gzip { deflate: Compressor, shuffle: bool },
    Lzf,
    Zstd(zstd::bulk::Compressor<'static>),
}

impl Encoder {
    /// Compresses a chunk of values of `size` bytes. Returns its bytes, and HDF5's mask of the filters that were skipped.
    fn encode(&mut self, chunk: &[u8], size: usize) -> std::io::Result<(Vec<u8>, u32)> {
        match &mut self.kind {
            EncoderKind::None => Ok((chunk.to_vec(), 0)),
            EncoderKind::Gzip { deflate, shuffle } => {
                let chunk = if *shuffle {
                    shuffle_bytes(chunk, size, &mut self.shuffled);
                    &self.shuffled
                } else {
                    chunk
                };
                let mut out = vec![0; deflate.zlib_compress_bound(chunk.len())];
                let n = deflate.zlib_compress(chunk, &mut out).map_err(|e| std::io::Error::other(e.to_string()))?;
                out.truncate(n);
                Ok((out, 0))
            }
            // A chunk that LZF cannot make smaller is stored as it is, like in h5py.
            EncoderKind::Lzf => Ok(lzf::compress(chunk).map_or_else(|_| (chunk.to_vec(), 1), |out| (out, 0))),
            EncoderKind::Zstd(zstd) => Ok((zstd.compress(chunk)?, 0)),
        }
    }
}

/// HDF5's filter `shuffle`: all first bytes, then all second bytes, and so on.
fn shuffle_bytes(values: &[u8], size: usize, out: &mut Vec<u8>) {
    out.resize(values.len(), 0);
    let count = values.len() / size;
    for (index, value) in values.chunks_exact(size).enumerate() {
        for (byte, &b) in value.iter().enumerate() {
            out[byte * count + index] = b;
        }
    }
}

/// Base, minimum and maximum of the chunk size of h5py in bytes.
const BASE_BYTES: f64 = 16.0 * 1024.0;
const MIN_BYTES: f64 = 8.0 * 1024.0;
const MAX_BYTES: f64 = 1024.0 * 1024.0;

/// Values of a chunk of a one-dimensional data set of `len` values of `size` bytes: the default of h5py (`guess_chunk` in
/// `h5py/_hl/filters.py`), so that files have the chunks of those that AnnData writes.
fn guessed_chunk_len(len: u64, size: usize) -> usize {
    let (len, size) = (if len == 0 { 1024.0 } else { len as f64 }, size as f64);
    let target = (BASE_BYTES * (len * size / MAX_BYTES).log10().exp2()).clamp(MIN_BYTES, MAX_BYTES);
    let mut chunk = len;
    loop {
        let bytes = chunk * size;
        let near = bytes < target || (bytes - target).abs() / target < 0.5;
        if (near && bytes < MAX_BYTES) || chunk <= 1.0 {
            return chunk as usize;
        }
        chunk = (chunk / 2.0).ceil();
    }
}

#[cfg(test)]
mod chunk_rows_tests {
    use super::*;

    /// Values of files that h5py 3.15 wrote.
    #[test]
    fn chunks_are_those_of_h5py() {
        assert_eq!(guessed_chunk_len(0, 4), 1024);
        assert_eq!(guessed_chunk_len(700, 4), 700);
        assert_eq!(guessed_chunk_len(1_000_000, 4), H5PY_MILLION);
        assert_eq!(guessed_chunk_len(30_884_864, 4), 15_081);
        assert_eq!(guessed_chunk_len(30_884_864, 8), H5PY_EIGHT);
    }

    const H5PY_MILLION: usize = 7_813;
    const H5PY_EIGHT: usize = 15_081;
}
