//! `ArrayReader` reads ranges of a stored array: it plans reads, fetches bytes, decodes chunks and converts elements. The readers of rows have
//! one for each array (data, indices).
//! Invariant: elements come in the order in which their ranges were added, or at the indices that were given; nothing else of `out` changes.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;

use crate::codec::filter_chain::FilterBuffers;
use crate::error::DamageKind;
use crate::lru_cache::LruCache;
use crate::matrix::dtype::Element;
use crate::matrix::matrix_file::MatrixError;
use crate::matrix::shared_chunks::SharedChunks;
use crate::matrix::stored_array::{ArrayLayout, ChunkPart, ChunkedLayout, StoredArray, as_bytes};
use crate::source::byte_source::{ByteSource, PendingReads, ReadRange};
use crate::source::coalesce::Coalescer;
use crate::{AnnDataError, Prefetch};

/// Limits of the cache of decompressed chunks: neighbours in a range share a chunk, and few chunks are needed again within a
/// batch.
const MAX_CACHED_BYTES: usize = 1 << 20;
const MAX_CACHED_CHUNKS: usize = 64;

/// Chunks with at most this gap in the file are read together.
const MAX_GAP: u64 = 4096;

/// Reads ranges of one array, for one thread, as elements of type `T`.
///
/// The order of calls: [`Self::begin`], [`Self::add`] for each range, [`Self::fetch`], [`Self::finish`], [`Self::decode`]. Then
/// the ranges are in `out`, one after another. With [`Self::begin_placed`] and [`Self::add_at`] instead, each range is at its
/// own index of `out`, and nothing else of `out` is changed.
pub(crate) struct ArrayReader<'a, T> {
    array: &'a StoredArray,
    source: &'a ByteSource,
    /// Length of `out` before the ranges.
    base: usize,
    /// Whether each range has its own index in `out`, which has its final length.
    placed: bool,
    /// Number of elements of all ranges; for placed ranges, the end of the last range in `out`.
    end: usize,
    reads: Vec<ReadRange>,
    pending: PendingReads,
    /// Unwritten elements, as byte ranges of the buffer.
    unwritten: Vec<Range<usize>>,
    /// Bytes that were read and must be decoded.
    raw: Vec<u8>,
    /// Plan of the reads of a chunked array.
    plan: ChunkPlan,
    /// Decompressed chunks, unless they are shared.
    cache: LruCache<u64, Vec<u8>>,
    shared: Option<&'a SharedChunks>,
    /// The last chunk that was decompressed partially, and its buffer.
    last_partial: Option<u64>,
    partial: Vec<u8>,
    filter_buffers: FilterBuffers,
    element: std::marker::PhantomData<T>,
}

impl<'a, T: Element> ArrayReader<'a, T> {
    /// A reader without allocated memory.
    pub fn new(array: &'a StoredArray, source: &'a ByteSource) -> Self {
        Self::with_shared(array, source, None)
    }

    /// The same, which keeps decompressed chunks where other readers find them.
    pub fn with_shared(array: &'a StoredArray, source: &'a ByteSource, shared: Option<&'a SharedChunks>) -> Self {
        Self {
            array,
            source,
            base: 0,
            placed: false,
            end: 0,
            reads: Vec::new(),
            pending: PendingReads::default(),
            unwritten: Vec::new(),
            raw: Vec::new(),
            plan: ChunkPlan::default(),
            cache: LruCache::new(MAX_CACHED_CHUNKS, MAX_CACHED_BYTES),
            shared,
            last_partial: None,
            partial: Vec::new(),
            filter_buffers: FilterBuffers::default(),
            element: std::marker::PhantomData,
        }
    }

    /// Begins a list of ranges; `out` has `base` elements already.
    pub fn begin(&mut self, base: usize) {
        (self.base, self.placed, self.end) = (base, false, 0);
        self.reads.clear();
        self.unwritten.clear();
        self.plan.clear();
        self.raw.clear();
    }

    /// Begins a list of ranges with their own indices in `out`, for an array with [`StoredArray::can_be_placed`].
    pub fn begin_placed(&mut self) {
        self.begin(0);
        self.placed = true;
    }

    /// Adds `count` elements from `start` on, which go to `out[index..]`. The array and `out` have these elements.
    pub fn add_at(&mut self, start: u64, count: u64, index: usize) {
        self.end = index;
        self.add(start, count);
    }

    /// Adds `count` elements from `start` on; the array has them.
    pub fn add(&mut self, mut start: u64, mut count: u64) {
        debug_assert!(start + count <= self.array.len, "checked by the caller");
        match &self.array.layout {
            ArrayLayout::Inline(data) => {
                let size = self.array.dtype.size();
                self.raw.extend_from_slice(&data[start as usize * size..(start + count) as usize * size]);
                self.end += count as usize;
            }
            ArrayLayout::Contiguous(runs) => {
                let size = self.array.dtype.size();
                let mut i = if runs.len() > 1 { runs.partition_point(|run| run.end <= start) } else { 0 };
                while count > 0 {
                    let run = runs[i];
                    let here = count.min(run.end - start);
                    let (at, len) = (self.end * size, here as usize * size);
                    match run.base_offset {
                        // When the runs were made, they were checked to be within the file.
                        Some(base) => {
                            self.read(ReadRange { offset: (base + (start * size as u64) as i64) as u64, at, len })
                        }
                        None => self.unwritten.push(at..at + len),
                    }
                    (start, count, i) = (start + here, count - here, i + 1);
                    self.end += here as usize;
                }
            }
            ArrayLayout::Chunked(chunks) => {
                while count > 0 {
                    let part = chunks.grid.first(start, count);
                    self.plan.parts.push(PlannedPart { part, to: self.end });
                    (start, count) = (start + u64::from(part.count), count - u64::from(part.count));
                    self.end += part.count as usize;
                }
            }
        }
    }

    /// Adds a read; reads that are adjacent in the file and in the buffer are joined.
    fn read(&mut self, range: ReadRange) {
        if let Some(last) = self.reads.last_mut()
            && last.offset + last.len as u64 == range.offset
            && last.buffer_end() == range.at
        {
            last.len += range.len;
        } else {
            self.reads.push(range);
        }
    }

    /// Whether elements need no conversion and are read straight to `out`.
    fn is_direct(&self) -> bool {
        self.array.is_direct::<T>()
    }

    /// The part of `out` to which direct elements are read.
    fn direct_buffer<'o>(&self, out: &'o mut Vec<T>) -> &'o mut [MaybeUninit<u8>] {
        if self.placed {
            // SAFETY: the same memory with the same length; only elements are written to it, here and by the system.
            let out = unsafe { std::slice::from_raw_parts_mut(out.as_mut_ptr().cast::<MaybeUninit<T>>(), out.len()) };
            as_bytes(out)
        } else {
            as_bytes(&mut out.spare_capacity_mut()[..self.end])
        }
    }

    /// Reads what the system has cached and requests the rest; returns the number of bytes of both.
    pub fn fetch(&mut self, out: &mut Vec<T>) -> Result<u64, AnnDataError> {
        if let ArrayLayout::Chunked(chunks) = &self.array.layout {
            self.plan_chunks(chunks);
        }
        let bytes: usize = self.reads.iter().map(|read| read.len).sum();
        if matches!(self.array.layout, ArrayLayout::Inline(_)) {
            return Ok(0);
        }
        let into = if self.is_direct() {
            if !self.placed {
                reserve(out, self.end)?;
            }
            self.direct_buffer(out)
        } else {
            let raw = match self.array.layout {
                ArrayLayout::Contiguous(_) => self.end * self.array.dtype.size(),
                _ => bytes,
            };
            reserve(&mut self.raw, raw)?;
            &mut self.raw.spare_capacity_mut()[..raw]
        };
        for range in &self.unwritten {
            into[range.clone()].iter_mut().zip(self.array.fill_value.iter().cycle()).for_each(|(byte, fill)| {
                byte.write(*fill);
            });
        }
        self.source.read_cached(&self.reads, into, &mut self.pending)?;
        Ok(bytes as u64)
    }

    /// Requests the bytes of `count` elements from `start` on, if they are remote. Discards the added ranges.
    pub fn will_need(&mut self, start: u64, count: u64) -> Result<Prefetch, AnnDataError> {
        self.begin(0);
        self.add(start, count);
        if let ArrayLayout::Chunked(chunks) = &self.array.layout {
            self.plan_chunks(chunks);
        }
        let ahead = self.source.will_need(&self.reads);
        self.begin(0);
        ahead
    }

    /// Waits for the bytes that [`Self::fetch`] requested.
    pub fn finish(&mut self, out: &mut Vec<T>) -> Result<(), AnnDataError> {
        if matches!(self.array.layout, ArrayLayout::Inline(_)) {
            return Ok(());
        }
        if self.is_direct() {
            let mut pending = std::mem::take(&mut self.pending);
            self.source.read_pending(&mut pending, self.direct_buffer(out))?;
            self.pending = pending;
            if !self.placed {
                // SAFETY: reads and unwritten ranges cover all elements that were added; all of them were read or filled, here
                // and in `fetch`.
                unsafe { out.set_len(self.base + self.end) };
            }
        } else {
            let bytes = match self.array.layout {
                ArrayLayout::Contiguous(_) => self.end * self.array.dtype.size(),
                _ => self.reads.iter().map(|read| read.len).sum(),
            };
            self.source.read_pending(&mut self.pending, &mut self.raw.spare_capacity_mut()[..bytes])?;
            // SAFETY: as above; the reads of chunks follow each other in the buffer without a gap.
            unsafe { self.raw.set_len(bytes) };
        }
        Ok(())
    }

    fn plan_chunks(&mut self, chunks: &ChunkedLayout) {
        let (cache, shared) = (&self.cache, self.shared);
        let cached = |chunk: u64| match cache.find(&chunk) {
            Some(at) => Some(ChunkSource::Cached(at)),
            None => shared.and_then(|shared| shared.get(chunk)).map(ChunkSource::Shared),
        };
        self.plan.make(chunks, self.array.dtype.size() as u64, cached, &mut self.reads);
    }

    /// Decompresses and converts the ranges.
    pub fn decode(&mut self, out: &mut Vec<T>) -> Result<(), AnnDataError> {
        if self.is_direct() {
            return Ok(());
        }
        let dtype = self.array.dtype;
        if !self.placed {
            reserve(out, self.end)?;
            out.resize(self.base + self.end, T::default());
        }
        let out = &mut out[self.base..];
        let ArrayLayout::Chunked(chunks) = &self.array.layout else {
            T::convert(dtype, &self.raw, out);
            return Ok(());
        };
        if chunks.filters.is_empty() {
            for chunk in &self.plan.chunks {
                for planned in &self.plan.parts[chunk.parts.clone()] {
                    let out = &mut out[planned.range()];
                    match &chunk.from {
                        ChunkSource::Read { bytes, .. } => T::convert(dtype, &self.raw[bytes.clone()], out),
                        _ => out.fill(self.fill_value()),
                    }
                }
            }
            return Ok(());
        }
        // Cached chunks come first, because those that are decompressed below evict them.
        for chunk in &self.plan.chunks {
            match &chunk.from {
                ChunkSource::Cached(at) => self.scatter(chunk, self.cache.value(*at), out),
                ChunkSource::Shared(decoded) => self.scatter(chunk, decoded, out),
                ChunkSource::FillValue => {
                    for planned in &self.plan.parts[chunk.parts.clone()] {
                        out[planned.range()].fill(self.fill_value());
                    }
                }
                ChunkSource::Read { .. } => {}
            }
        }
        let chunk_bytes = chunks.grid.chunk_len() as usize * dtype.size();
        for i in 0..self.plan.chunks.len() {
            let planned_chunk = &self.plan.chunks[i];
            let ChunkSource::Read { bytes, mask } = &planned_chunk.from else { continue };
            let (raw, chunk, mask) = (&self.raw[bytes.clone()], planned_chunk.chunk, *mask);
            let wrong = |error| {
                let error = MatrixError::Chunk { chunk, error };
                self.source.damaged(DamageKind::inside(&self.array.name, error))
            };
            // A whole chunk that needs no conversion is decompressed straight to `out`.
            if let [planned] = self.plan.parts[planned_chunk.parts.clone()]
                && u64::from(planned.part.count) == chunks.grid.chunk_len()
                && T::is(dtype)
            {
                let out = bytemuck::cast_slice_mut(&mut out[planned.range()]);
                chunks.filters.undo(raw, mask, out, &mut self.filter_buffers).map_err(wrong)?;
                continue;
            }
            // If few elements of a chunk are needed once, only these are decompressed; a chunk that is needed again is cached.
            if let [planned] = self.plan.parts[planned_chunk.parts.clone()]
                && mask == 0
                && self.last_partial != Some(chunk)
                && u64::from(planned.part.count) * 4 < chunks.grid.chunk_len()
            {
                let (size, count) = (dtype.size(), planned.part.count as usize);
                self.partial.resize(count * size, 0);
                let range = (planned.part.within as usize, count);
                if let Some(done) = chunks.filters.undo_some(raw, chunk_bytes, size, range, &mut self.partial) {
                    done.map_err(wrong)?;
                    T::convert(dtype, &self.partial, &mut out[planned.range()]);
                    self.last_partial = Some(chunk);
                    continue;
                }
            }
            if let Some(shared) = self.shared {
                let mut decoded: Vec<u8> = Vec::new();
                reserve(&mut decoded, chunk_bytes)?;
                decoded.resize(chunk_bytes, 0);
                chunks.filters.undo(raw, mask, &mut decoded, &mut self.filter_buffers).map_err(wrong)?;
                let decoded = Arc::new(decoded);
                shared.insert(chunk, Arc::clone(&decoded));
                self.scatter(&self.plan.chunks[i], &decoded, out);
                continue;
            }
            let mut decoded = self.cache.make_room(chunk_bytes).unwrap_or_default();
            if decoded.is_empty() {
                reserve(&mut decoded, chunk_bytes)?;
                decoded.resize(chunk_bytes, 0);
            }
            chunks.filters.undo(raw, mask, &mut decoded, &mut self.filter_buffers).map_err(wrong)?;
            let at = self.cache.insert(chunk, decoded);
            self.scatter(&self.plan.chunks[i], self.cache.value(at), out);
        }
        Ok(())
    }

    /// Converts the needed parts of a decompressed chunk.
    fn scatter(&self, chunk: &PlannedChunk, decoded: &[u8], out: &mut [T]) {
        let size = self.array.dtype.size();
        for planned in &self.plan.parts[chunk.parts.clone()] {
            let (within, count) = (planned.part.within as usize, planned.part.count as usize);
            let raw = &decoded[within * size..(within + count) * size];
            T::convert(self.array.dtype, raw, &mut out[planned.range()]);
        }
    }

    /// The fill value.
    fn fill_value(&self) -> T {
        let mut one = [T::default()];
        T::convert(self.array.dtype, &self.array.fill_value, &mut one);
        one[0]
    }

    /// Bytes of memory that are kept between calls.
    pub fn work_bytes(&self) -> u64 {
        let lists =
            self.reads.capacity() * size_of::<ReadRange>() + self.pending.capacity_bytes() + self.plan.memory_bytes();
        (self.raw.capacity() + self.partial.capacity() + self.cache.bytes() + lists) as u64
            + self.filter_buffers.bytes()
    }
}

/// Reserves memory, or fails.
fn reserve<T>(out: &mut Vec<T>, count: usize) -> Result<(), AnnDataError> {
    out.try_reserve(count).map_err(|_| AnnDataError::no_memory(count.saturating_mul(size_of::<T>()), "an array"))
}

/// The chunks that are needed for a list of ranges, and their reads.
#[derive(Default)]
struct ChunkPlan {
    parts: Vec<PlannedPart>,
    /// Chunks of the parts, after [`Self::make`].
    chunks: Vec<PlannedChunk>,
    /// Offset, size and index in `chunks` of each chunk that is read.
    reads: Vec<(u64, u64, usize)>,
}

/// A needed part of a chunk, and the index of its first element in `out`.
#[derive(Clone, Copy)]
struct PlannedPart {
    part: ChunkPart,
    to: usize,
}

impl PlannedPart {
    /// Range in `out`.
    fn range(&self) -> Range<usize> {
        self.to..self.to + self.part.count as usize
    }
}

/// A needed chunk.
struct PlannedChunk {
    chunk: u64,
    /// Its range in [`ChunkPlan::parts`].
    parts: Range<usize>,
    from: ChunkSource,
}

/// Source of the elements of a chunk.
enum ChunkSource {
    /// The cache, at this index.
    Cached(usize),
    /// The shared cache: the decompressed chunk.
    Shared(Arc<Vec<u8>>),
    /// A range of the buffer, and the mask of skipped filters.
    Read { bytes: Range<usize>, mask: u32 },
    /// The chunk was never written.
    FillValue,
}

impl ChunkPlan {
    fn clear(&mut self) {
        self.parts.clear();
        self.chunks.clear();
    }

    /// Finds the chunks, or the parts of uncompressed chunks, that must be read, and their ranges in the buffer. Elements have
    /// `size` bytes; `cached` says whether a chunk is in a cache, and in which.
    fn make(
        &mut self,
        layout: &ChunkedLayout,
        size: u64,
        cached: impl Fn(u64) -> Option<ChunkSource>,
        reads: &mut Vec<ReadRange>,
    ) {
        let order = |planned: &PlannedPart| (planned.part.chunk, planned.part.within);
        if !self.parts.is_sorted_by_key(order) {
            self.parts.sort_unstable_by_key(order);
        }
        self.reads.clear();
        let whole = !layout.filters.is_empty();
        let mut start = 0;
        while let Some(PlannedPart { part, .. }) = self.parts.get(start).copied() {
            let chunk = part.chunk;
            // Only the needed part of an uncompressed chunk is read.
            let same = |other: &PlannedPart| other.part.chunk == chunk && (whole || other.part.within == part.within);
            let end = start + self.parts[start..].iter().take_while(|other| same(other)).count();
            let from = match (layout.table.get(chunk), cached(chunk)) {
                (_, Some(cached)) => cached,
                (None, None) => ChunkSource::FillValue,
                (Some(stored), None) => {
                    let (offset, len) = if whole {
                        (stored.offset, u64::from(stored.bytes))
                    } else {
                        let count = self.parts[start..end].iter().map(|other| other.part.count).max().unwrap_or(0);
                        (stored.offset + u64::from(part.within) * size, u64::from(count) * size)
                    };
                    self.reads.push((offset, len, self.chunks.len()));
                    let plain = layout.plain_edge && layout.grid.is_edge(chunk);
                    ChunkSource::Read { bytes: 0..0, mask: if plain { u32::MAX } else { stored.mask } }
                }
            };
            self.chunks.push(PlannedChunk { chunk, parts: start..end, from });
            start = end;
        }
        self.reads.sort_unstable();
        let mut coalescer = Coalescer::new(reads, MAX_GAP);
        for (offset, len, number) in self.reads.drain(..) {
            let at = coalescer.add(offset, len);
            if let ChunkSource::Read { bytes, .. } = &mut self.chunks[number].from {
                *bytes = at..at + len as usize;
            }
        }
    }

    /// Allocated bytes.
    fn memory_bytes(&self) -> usize {
        self.parts.capacity() * size_of::<PlannedPart>()
            + self.chunks.capacity() * size_of::<PlannedChunk>()
            + self.reads.capacity() * size_of::<(u64, u64, usize)>()
    }
}
