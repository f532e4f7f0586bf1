use std::path::{Path, PathBuf};
use std::thread;

use bytemuck::Pod;
use hdf5_metno::{Dataset, Group, H5Type, SimpleExtents};
use hdf5_metno_sys::h5d::H5Dwrite_chunk;
use hdf5_metno_sys::h5p::H5P_DEFAULT;

use super::attributes::refused;
use super::chunk_rows;
use super::compression::{Compression, Encoder};
use crate::AnnDataError;
use crate::h5ad::register;

/// Chunks that are collected for each thread, in bytes, before they are compressed and written.
const COLLECTED: usize = 2 << 20;

/// How a data set lies in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// In one piece. How many values there are must be known before.
    Contiguous,
    /// In chunks.
    Chunked {
        /// Values of a chunk (of a dense matrix: rows); `None` takes what h5py takes.
        chunk: Option<usize>,
        /// How chunks are compressed.
        compression: Compression,
    },
}

/// A data set that is written from its beginning to its end: `[len]`, or `[len, width]`.
pub(super) struct Series<T> {
    path: PathBuf,
    dataset: Dataset,
    width: Option<usize>,
    /// Rows of a chunk; `None` of a contiguous one.
    chunk: Option<usize>,
    encoders: Vec<Encoder>,
    pending: Vec<T>,
    /// Rows on the disk, and rows that the data set has room for.
    written: usize,
    room: usize,
}

impl<T: H5Type + Pod + Sync> Series<T> {
    /// A data set in `group` for `len` rows, of one value or of `width` of them; of a chunked one `len` may be a guess.
    pub(super) fn create(
        path: &Path,
        group: &Group,
        name: &str,
        (len, width): (u64, Option<usize>),
        layout: Layout,
        threads: usize,
    ) -> Result<Self, AnnDataError> {
        let failed = refused(path);
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
                    None => chunk_rows::guessed(len as u64, row),
                    Some(_) => ((1 << 20) / row.max(1)).max(1),
                });
                let chunk = chunk.max(1);
                let filters = compression.filters(chunk * row);
                register()?;
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
    pub(super) fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// Append rows.
    pub(super) fn push(&mut self, values: &[T]) -> Result<(), AnnDataError> {
        self.pending.extend_from_slice(values);
        let collected = COLLECTED * self.encoders.len();
        if self.pending.len() * size_of::<T>() < collected {
            return Ok(());
        }
        self.flush(false)
    }

    /// Write what is left. Returns how many rows there are.
    pub(super) fn finish(mut self) -> Result<(Dataset, u64), AnnDataError> {
        self.flush(true)?;
        if self.written != self.room {
            if self.chunk.is_none() {
                let reason = format!("{} entries were announced, but {} came", self.room, self.written);
                return Err(AnnDataError::damaged(&self.path, reason));
            }
            self.dataset.resize(dims(self.written, self.width)).map_err(refused(&self.path))?;
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
            self.dataset.resize(dims(last, self.width)).map_err(refused(&self.path))?;
            self.room = last;
        }
        if all && rest > 0 {
            // The last chunk is whole on the disk; what is beyond the end is never read.
            self.pending.resize(chunks * values, T::zeroed());
        }
        let pieces: Vec<&[T]> = self.pending[..chunks * values].chunks_exact(values).collect();
        let encoded = encode(&pieces, &mut self.encoders).map_err(AnnDataError::io("compress", &self.path))?;
        for (index, (bytes, mask)) in encoded.iter().enumerate() {
            write_chunk(&self.dataset, self.width, self.written + index * chunk, bytes, *mask)
                .map_err(refused(&self.path))?;
        }
        self.written = last;
        self.pending.drain(..chunks * values);
        Ok(())
    }

    fn flush_contiguous(&mut self, width: usize) -> Result<(), AnnDataError> {
        let end = self.written + self.pending.len() / width.max(1);
        if end > self.room {
            let reason = format!("{} entries were announced, but more came", self.room);
            return Err(AnnDataError::damaged(&self.path, reason));
        }
        if end > self.written && width > 0 {
            let rows = self.written..end;
            let written = match self.width {
                None => self.dataset.write_slice(&self.pending[..], rows),
                Some(width) => {
                    let view = ndarray::ArrayView2::from_shape((rows.len(), width), &self.pending[..]);
                    let view = view.map_err(|e| AnnDataError::Invalid(e.to_string()))?;
                    self.dataset.write_slice(view, (rows, ..))
                }
            };
            written.map_err(refused(&self.path))?;
        }
        self.written = end;
        self.pending.clear();
        Ok(())
    }
}

fn dims(len: usize, width: Option<usize>) -> Vec<usize> {
    std::iter::once(len).chain(width).collect()
}

/// Compress chunks, each thread a part of them.
fn encode<T: Pod + Sync>(chunks: &[&[T]], encoders: &mut [Encoder]) -> std::io::Result<Vec<(Vec<u8>, u32)>> {
    let part = |chunks: &[&[T]], encoder: &mut Encoder| {
        let bytes = |chunk: &&[T]| encoder.encode(bytemuck::cast_slice(chunk), size_of::<T>());
        chunks.iter().map(bytes).collect::<std::io::Result<Vec<_>>>()
    };
    let of_thread = chunks.len().div_ceil(encoders.len()).max(1);
    if encoders.len() == 1 || chunks.len() < 2 {
        return part(chunks, &mut encoders[0]);
    }
    thread::scope(|scope| {
        let threads: Vec<_> = chunks
            .chunks(of_thread)
            .zip(encoders)
            .map(|(chunks, encoder)| scope.spawn(move || part(chunks, encoder)))
            .collect();
        let mut all = Vec::with_capacity(chunks.len());
        for thread in threads {
            let panicked = |_| std::io::Error::other("a thread that compresses has panicked");
            all.extend(thread.join().map_err(panicked)??);
        }
        Ok(all)
    })
}

/// Write one chunk as it will lie in the file, past the library's filters: they would run on one thread and under its lock.
fn write_chunk(dataset: &Dataset, width: Option<usize>, row: usize, bytes: &[u8], mask: u32) -> hdf5_metno::Result<()> {
    let offset: Vec<u64> = std::iter::once(row as u64).chain(width.map(|_| 0)).collect();
    hdf5_metno::sync::sync(|| {
        let (id, at, from) = (dataset.id(), offset.as_ptr(), bytes.as_ptr().cast());
        // SAFETY: `offset` has one entry for each dimension of the data set, `bytes` are as many as is said; both outlive
        // the call.
        hdf5_metno::h5check(unsafe { H5Dwrite_chunk(id, H5P_DEFAULT, mask, at, bytes.len(), from) })
    })?;
    Ok(())
}
