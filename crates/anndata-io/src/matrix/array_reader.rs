use std::mem::MaybeUninit;
use std::ops::Range;

use crate::codec::filter_chain::FilterBuffers;
use crate::matrix::dtype::Element;
use crate::matrix::stored_array::{ArrayLayout, ChunkPart, ChunkedLayout, StoredArray, as_bytes};
use crate::source::byte_source::{ByteSource, PendingReads, ReadRange};
use crate::{Ahead, AnnDataError};

/// Decompressed chunks that are kept: neighbours in a range share one, and few are asked for again within a batch.
const KEPT_BYTES: usize = 1 << 20;

/// Reads parts of one data set, for one thread. The order of calls: [`Self::begin`], [`Self::want`] for each part,
/// [`Self::fetch`], [`Self::finish`], [`Self::decode`]; then the parts are in `out`, one after another. With
/// [`Self::begin_placed`] and [`Self::want_at`] instead, each part is in its place in `out`, and nothing else of it is changed.
pub(crate) struct ArrayReader<'a, T> {
    stored: &'a StoredArray,
    source: &'a ByteSource,
    /// Numbers that `out` had before.
    base: usize,
    /// Each part has its place in `out`, which is as long as it is to be.
    placed: bool,
    /// Numbers that were asked for; where parts have places, the end of the last one.
    wanted: usize,
    /// What to read.
    pieces: Vec<ReadRange>,
    late: PendingReads,
    /// Numbers that were never written, in bytes of the buffer.
    holes: Vec<Range<usize>>,
    raw: Vec<u8>,
    /// Of a data set in chunks.
    plan: ChunkPlan,
    kept: Vec<Kept>,
    next_kept: usize,
    /// The chunk of which a part was decompressed last, and the place for it.
    parted: Option<u64>,
    part: Vec<u8>,
    work: FilterBuffers,
    element: std::marker::PhantomData<T>,
}

/// A decompressed chunk.
struct Kept {
    chunk: Option<u64>,
    data: Vec<u8>,
}

impl<'a, T: Element> ArrayReader<'a, T> {
    /// A reader that holds no memory yet.
    pub fn new(stored: &'a StoredArray, source: &'a ByteSource) -> Self {
        Self {
            stored,
            source,
            base: 0,
            placed: false,
            wanted: 0,
            pieces: Vec::new(),
            late: PendingReads::default(),
            holes: Vec::new(),
            raw: Vec::new(),
            plan: ChunkPlan::default(),
            kept: Vec::new(),
            next_kept: 0,
            parted: None,
            part: Vec::new(),
            work: FilterBuffers::default(),
            element: std::marker::PhantomData,
        }
    }

    /// Start; `base` numbers are in `out` already.
    pub fn begin(&mut self, base: usize) {
        (self.base, self.placed, self.wanted) = (base, false, 0);
        self.pieces.clear();
        self.holes.clear();
        self.plan.clear();
        self.raw.clear();
    }

    /// Start with parts that have places, which is for data sets of which [`StoredArray::can_be_placed`].
    pub fn begin_placed(&mut self) {
        self.begin(0);
        self.placed = true;
    }

    /// Ask for `count` numbers from `start` on, which are to be in `out` from `place` on; both have them.
    pub fn want_at(&mut self, start: u64, count: u64, place: usize) {
        self.wanted = place;
        self.want(start, count);
    }

    /// Ask for `count` numbers from `start` on; the data set has them.
    pub fn want(&mut self, mut start: u64, mut count: u64) {
        debug_assert!(start + count <= self.stored.len, "checked by the caller");
        match &self.stored.place {
            ArrayLayout::Memory(data) => {
                let size = self.stored.number.size();
                self.raw.extend_from_slice(&data[start as usize * size..(start + count) as usize * size]);
                self.wanted += count as usize;
            }
            ArrayLayout::Plain(runs) => {
                let size = self.stored.number.size();
                let mut i = if runs.len() > 1 { runs.partition_point(|run| run.end <= start) } else { 0 };
                while count > 0 {
                    let run = runs[i];
                    let here = count.min(run.end - start);
                    let (at, len) = (self.wanted * size, here as usize * size);
                    match run.zero {
                        // Checked when the runs were made.
                        Some(zero) => {
                            self.read(ReadRange { offset: (zero + (start * size as u64) as i64) as u64, at, len })
                        }
                        None => self.holes.push(at..at + len),
                    }
                    (start, count, i) = (start + here, count - here, i + 1);
                    self.wanted += here as usize;
                }
            }
            ArrayLayout::ChunkedLayout(chunks) => {
                while count > 0 {
                    let of = chunks.grid.first(start, count);
                    self.plan.parts.push(WantedPart { of, to: self.wanted });
                    (start, count) = (start + u64::from(of.count), count - u64::from(of.count));
                    self.wanted += of.count as usize;
                }
            }
        }
    }

    /// Add to what is read; what lies together is read together.
    fn read(&mut self, piece: ReadRange) {
        if let Some(last) = self.pieces.last_mut()
            && last.offset + last.len as u64 == piece.offset
            && last.at + last.len == piece.at
        {
            last.len += piece.len;
        } else {
            self.pieces.push(piece);
        }
    }

    /// Numbers need no conversion: they are read to where they belong.
    fn is_direct(&self) -> bool {
        self.stored.is_direct::<T>()
    }

    /// The part of `out` that direct numbers go to.
    fn direct_place<'o>(&self, out: &'o mut Vec<T>) -> &'o mut [MaybeUninit<u8>] {
        if self.placed {
            // SAFETY: the same memory, as long; only numbers are written to it, here and by the system.
            let out = unsafe { std::slice::from_raw_parts_mut(out.as_mut_ptr().cast::<MaybeUninit<T>>(), out.len()) };
            as_bytes(out)
        } else {
            as_bytes(&mut out.spare_capacity_mut()[..self.wanted])
        }
    }

    /// Read what the system has in memory and have it get the rest; returns how many bytes there are to read.
    pub fn fetch(&mut self, out: &mut Vec<T>) -> Result<u64, AnnDataError> {
        if let ArrayLayout::ChunkedLayout(chunks) = &self.stored.place {
            self.make_plan(chunks);
        }
        let bytes: usize = self.pieces.iter().map(|piece| piece.len).sum();
        if matches!(self.stored.place, ArrayLayout::Memory(_)) {
            return Ok(0);
        }
        let into = if self.is_direct() {
            if !self.placed {
                reserve(out, self.wanted)?;
            }
            self.direct_place(out)
        } else {
            let raw = match self.stored.place {
                ArrayLayout::Plain(_) => self.wanted * self.stored.number.size(),
                _ => bytes,
            };
            reserve(&mut self.raw, raw)?;
            &mut self.raw.spare_capacity_mut()[..raw]
        };
        for hole in &self.holes {
            into[hole.clone()].iter_mut().zip(self.stored.fill.iter().cycle()).for_each(|(byte, fill)| {
                byte.write(*fill);
            });
        }
        self.source.read_cached(&self.pieces, into, &mut self.late)?;
        Ok(bytes as u64)
    }

    /// Have what `count` numbers from `start` on are read from asked for, if that is remote. What was begun is forgotten.
    pub fn will_need(&mut self, start: u64, count: u64) -> Result<Ahead, AnnDataError> {
        self.begin(0);
        self.want(start, count);
        if let ArrayLayout::ChunkedLayout(chunks) = &self.stored.place {
            self.make_plan(chunks);
        }
        let ahead = self.source.will_need(&self.pieces);
        self.begin(0);
        ahead
    }

    /// Wait for the rest.
    pub fn finish(&mut self, out: &mut Vec<T>) -> Result<(), AnnDataError> {
        if matches!(self.stored.place, ArrayLayout::Memory(_)) {
            return Ok(());
        }
        if self.is_direct() {
            let mut late = std::mem::take(&mut self.late);
            self.source.read_late(&mut late, self.direct_place(out))?;
            self.late = late;
            if !self.placed {
                // SAFETY: pieces and holes cover all numbers that were asked for; all were read or filled, here and in `fetch`.
                unsafe { out.set_len(self.base + self.wanted) };
            }
        } else {
            let bytes = match self.stored.place {
                ArrayLayout::Plain(_) => self.wanted * self.stored.number.size(),
                _ => self.pieces.iter().map(|piece| piece.len).sum(),
            };
            self.source.read_late(&mut self.late, &mut self.raw.spare_capacity_mut()[..bytes])?;
            // SAFETY: as above; of chunks, the pieces follow each other in the buffer without a gap.
            unsafe { self.raw.set_len(bytes) };
        }
        Ok(())
    }

    fn make_plan(&mut self, chunks: &ChunkedLayout) {
        let kept = |chunk: u64| self.kept.iter().position(|kept| kept.chunk == Some(chunk));
        self.plan.make(chunks, self.stored.number.size() as u64, kept, &mut self.pieces);
    }

    /// Decompress and convert.
    pub fn decode(&mut self, out: &mut Vec<T>) -> Result<(), AnnDataError> {
        if self.is_direct() {
            return Ok(());
        }
        let number = self.stored.number;
        if !self.placed {
            reserve(out, self.wanted)?;
            out.resize(self.base + self.wanted, T::default());
        }
        let out = &mut out[self.base..];
        let ArrayLayout::ChunkedLayout(chunks) = &self.stored.place else {
            T::convert(number, &self.raw, out);
            return Ok(());
        };
        if chunks.chain.is_empty() {
            for need in &self.plan.needs {
                for part in &self.plan.parts[need.parts.clone()] {
                    let out = &mut out[part.to..part.to + part.of.count as usize];
                    match &need.from {
                        ChunkSource::Raw { bytes, .. } => T::convert(number, &self.raw[bytes.clone()], out),
                        _ => out.fill(self.filled()),
                    }
                }
            }
            return Ok(());
        }
        // What is kept first: what is decompressed takes its place.
        for need in &self.plan.needs {
            match need.from {
                ChunkSource::Kept(kept) => self.scatter(need, &self.kept[kept].data, out),
                ChunkSource::Nowhere => {
                    for part in &self.plan.parts[need.parts.clone()] {
                        out[part.to..part.to + part.of.count as usize].fill(self.filled());
                    }
                }
                ChunkSource::Raw { .. } => {}
            }
        }
        let chunk_bytes = chunks.grid.chunk_len() as usize * number.size();
        for i in 0..self.plan.needs.len() {
            let need = &self.plan.needs[i];
            let ChunkSource::Raw { bytes, mask } = &need.from else { continue };
            let (raw, chunk, mask) = (&self.raw[bytes.clone()], need.chunk, *mask);
            let wrong = |reason| self.source.damaged(format!("{}: chunk {chunk} {reason}", self.stored.name));
            // A whole chunk of numbers that need no conversion goes where it belongs.
            if let [part] = self.plan.parts[need.parts.clone()]
                && u64::from(part.of.count) == chunks.grid.chunk_len()
                && T::is(number)
            {
                let out = bytemuck::cast_slice_mut(&mut out[part.to..part.to + part.of.count as usize]);
                chunks.chain.undo(raw, mask, out, &mut self.work).map_err(wrong)?;
                continue;
            }
            // Of a chunk that is asked for once and for little, only what is needed. Asked for again, it is kept.
            if let [part] = self.plan.parts[need.parts.clone()]
                && mask == 0
                && self.parted != Some(chunk)
                && u64::from(part.of.count) * 4 < chunks.grid.chunk_len()
            {
                let (size, count) = (number.size(), part.of.count as usize);
                self.part.resize(count * size, 0);
                let range = (part.of.within as usize, count);
                if let Some(done) = chunks.chain.undo_some(raw, chunk_bytes, size, range, &mut self.part) {
                    done.map_err(wrong)?;
                    T::convert(number, &self.part, &mut out[part.to..part.to + count]);
                    self.parted = Some(chunk);
                    continue;
                }
            }
            let place = self.next_kept;
            let most = (KEPT_BYTES / chunk_bytes.max(1)).clamp(1, 64);
            self.next_kept = (place + 1) % most;
            if self.kept.len() <= place {
                self.kept.push(Kept { chunk: None, data: Vec::new() });
            }
            let kept = &mut self.kept[place];
            kept.chunk = None;
            if kept.data.is_empty() {
                reserve(&mut kept.data, chunk_bytes)?;
                kept.data.resize(chunk_bytes, 0);
            }
            chunks.chain.undo(raw, mask, &mut kept.data, &mut self.work).map_err(wrong)?;
            kept.chunk = Some(chunk);
            self.scatter(&self.plan.needs[i], &self.kept[place].data, out);
        }
        Ok(())
    }

    /// Convert the parts of one chunk.
    fn scatter(&self, need: &PlannedChunk, chunk: &[u8], out: &mut [T]) {
        let size = self.stored.number.size();
        for WantedPart { of, to } in &self.plan.parts[need.parts.clone()] {
            let (within, count) = (of.within as usize, of.count as usize);
            let raw = &chunk[within * size..(within + count) * size];
            T::convert(self.stored.number, raw, &mut out[*to..to + count]);
        }
    }

    /// The number that was never written.
    fn filled(&self) -> T {
        let mut one = [T::default()];
        T::convert(self.stored.number, &self.stored.fill, &mut one);
        one[0]
    }

    /// Bytes that it keeps.
    pub fn work_bytes(&self) -> u64 {
        let kept: usize = self.kept.iter().map(|kept| kept.data.capacity()).sum();
        let lists = self.pieces.capacity() * size_of::<ReadRange>() + self.late.capacity_bytes() + self.plan.bytes();
        (self.raw.capacity() + self.part.capacity() + kept + lists) as u64 + self.work.bytes()
    }
}

/// Make room, or say that there is none.
fn reserve<T>(out: &mut Vec<T>, count: usize) -> Result<(), AnnDataError> {
    out.try_reserve(count).map_err(|_| {
        AnnDataError::Invalid(format!("no memory for {} bytes of an array", count.saturating_mul(size_of::<T>())))
    })
}

/// Parts of a file that are no further apart are read in one go.
const MAX_GAP: u64 = 4096;

/// Parts of chunks that are wanted, and what has to be read for them.
#[derive(Default)]
struct ChunkPlan {
    pub parts: Vec<WantedPart>,
    /// Chunks that the parts are of, once [`Self::make`] was called.
    pub needs: Vec<PlannedChunk>,
    /// First byte, bytes and number of each of them that has to be read.
    reads: Vec<(u64, u64, usize)>,
}

/// A part of a chunk, and which number of those that were asked for it starts at.
#[derive(Clone, Copy)]
struct WantedPart {
    pub of: ChunkPart,
    pub to: usize,
}

/// A chunk that is needed.
struct PlannedChunk {
    pub chunk: u64,
    /// Which of [`ChunkPlan::parts`].
    pub parts: Range<usize>,
    pub from: ChunkSource,
}

/// Where it comes from.
enum ChunkSource {
    /// It has been decompressed.
    Kept(usize),
    /// Bytes that were read, and filters that were skipped.
    Raw { bytes: Range<usize>, mask: u32 },
    /// It was never written.
    Nowhere,
}

impl ChunkPlan {
    /// Nothing is wanted.
    pub fn clear(&mut self) {
        self.parts.clear();
        self.needs.clear();
    }

    /// Which chunks, or parts of them, are read, and where to: `pieces` follow each other in the buffer. Numbers have `size` bytes;
    /// `kept` says which of the decompressed chunks one is.
    pub fn make(
        &mut self,
        chunks: &ChunkedLayout,
        size: u64,
        kept: impl Fn(u64) -> Option<usize>,
        pieces: &mut Vec<ReadRange>,
    ) {
        let order = |part: &WantedPart| (part.of.chunk, part.of.within);
        if !self.parts.is_sorted_by_key(order) {
            self.parts.sort_unstable_by_key(order);
        }
        self.reads.clear();
        let whole = !chunks.chain.is_empty();
        let mut start = 0;
        while let Some(part) = self.parts.get(start).copied() {
            let chunk = part.of.chunk;
            // Of an uncompressed chunk only what is wanted is read.
            let same = |other: &WantedPart| other.of.chunk == chunk && (whole || other.of.within == part.of.within);
            let end = start + self.parts[start..].iter().take_while(|other| same(other)).count();
            let from = match (chunks.table.get(chunk), kept(chunk)) {
                (_, Some(kept)) => ChunkSource::Kept(kept),
                (None, None) => ChunkSource::Nowhere,
                (Some(found), None) => {
                    let (offset, len) = if whole {
                        (found.offset, u64::from(found.bytes))
                    } else {
                        let most = self.parts[start..end].iter().map(|part| part.of.count).max().unwrap_or(0);
                        (found.offset + u64::from(part.of.within) * size, u64::from(most) * size)
                    };
                    self.reads.push((offset, len, self.needs.len()));
                    let plain = chunks.plain_edge && chunks.grid.is_edge(chunk);
                    ChunkSource::Raw { bytes: 0..0, mask: if plain { u32::MAX } else { found.mask } }
                }
            };
            self.needs.push(PlannedChunk { chunk, parts: start..end, from });
            start = end;
        }
        self.reads.sort_unstable();
        for (offset, len, need) in self.reads.drain(..) {
            let at = pieces.last().map_or(0, |last| last.at + last.len);
            let at = match pieces.last_mut() {
                Some(last) if offset >= last.offset && offset <= last.offset + last.len as u64 + MAX_GAP => {
                    let end = (offset + len).max(last.offset + last.len as u64);
                    last.len = (end - last.offset) as usize;
                    last.at + (offset - last.offset) as usize
                }
                _ => {
                    pieces.push(ReadRange { offset, at, len: len as usize });
                    at
                }
            };
            if let ChunkSource::Raw { bytes, .. } = &mut self.needs[need].from {
                *bytes = at..at + len as usize;
            }
        }
    }

    /// Bytes that its lists keep.
    pub fn bytes(&self) -> usize {
        self.parts.capacity() * size_of::<WantedPart>()
            + self.needs.capacity() * size_of::<PlannedChunk>()
            + self.reads.capacity() * size_of::<(u64, u64, usize)>()
    }
}
