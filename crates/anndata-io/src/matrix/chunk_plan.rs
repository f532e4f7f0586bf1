use std::ops::Range;

use super::stored::{Chunks, InChunk};
use crate::source::Piece;

/// Parts of a file that are no further apart are read in one go.
const GAP: u64 = 4096;

/// Parts of chunks that are wanted, and what has to be read for them.
#[derive(Default)]
pub(super) struct ChunkPlan {
    pub(super) parts: Vec<Part>,
    /// Chunks that the parts are of, once [`Self::make`] was called.
    pub(super) needs: Vec<Need>,
    /// First byte, bytes and number of each of them that has to be read.
    reads: Vec<(u64, u64, usize)>,
}

/// A part of a chunk, and which number of those that were asked for it starts at.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) of: InChunk,
    pub(super) to: usize,
}

/// A chunk that is needed.
pub(super) struct Need {
    pub(super) chunk: u64,
    /// Which of [`ChunkPlan::parts`].
    pub(super) parts: Range<usize>,
    pub(super) from: From,
}

/// Where it comes from.
pub(super) enum From {
    /// It has been decompressed.
    Kept(usize),
    /// Bytes that were read, and filters that were skipped.
    Raw { bytes: Range<usize>, mask: u32 },
    /// It was never written.
    Nowhere,
}

impl ChunkPlan {
    /// Nothing is wanted.
    pub(super) fn clear(&mut self) {
        self.parts.clear();
        self.needs.clear();
    }

    /// Which chunks, or parts of them, are read, and where to: `pieces` follow each other in the buffer. Numbers have `size` bytes;
    /// `kept` says which of the decompressed chunks one is.
    pub(super) fn make(
        &mut self,
        chunks: &Chunks,
        size: u64,
        kept: impl Fn(u64) -> Option<usize>,
        pieces: &mut Vec<Piece>,
    ) {
        let order = |part: &Part| (part.of.chunk, part.of.within);
        if !self.parts.is_sorted_by_key(order) {
            self.parts.sort_unstable_by_key(order);
        }
        self.reads.clear();
        let whole = !chunks.chain.is_empty();
        let mut start = 0;
        while let Some(part) = self.parts.get(start).copied() {
            let chunk = part.of.chunk;
            // Of an uncompressed chunk only what is wanted is read.
            let same = |other: &Part| other.of.chunk == chunk && (whole || other.of.within == part.of.within);
            let end = start + self.parts[start..].iter().take_while(|other| same(other)).count();
            let from = match (chunks.table.get(chunk), kept(chunk)) {
                (_, Some(kept)) => From::Kept(kept),
                (None, None) => From::Nowhere,
                (Some(found), None) => {
                    let (offset, len) = if whole {
                        (found.offset, u64::from(found.bytes))
                    } else {
                        let most = self.parts[start..end].iter().map(|part| part.of.count).max().unwrap_or(0);
                        (found.offset + u64::from(part.of.within) * size, u64::from(most) * size)
                    };
                    self.reads.push((offset, len, self.needs.len()));
                    let plain = chunks.plain_edge && chunks.grid.is_edge(chunk);
                    From::Raw { bytes: 0..0, mask: if plain { u32::MAX } else { found.mask } }
                }
            };
            self.needs.push(Need { chunk, parts: start..end, from });
            start = end;
        }
        self.reads.sort_unstable();
        for (offset, len, need) in self.reads.drain(..) {
            let at = pieces.last().map_or(0, |last| last.at + last.len);
            let at = match pieces.last_mut() {
                Some(last) if offset >= last.offset && offset <= last.offset + last.len as u64 + GAP => {
                    let end = (offset + len).max(last.offset + last.len as u64);
                    last.len = (end - last.offset) as usize;
                    last.at + (offset - last.offset) as usize
                }
                _ => {
                    pieces.push(Piece { offset, at, len: len as usize });
                    at
                }
            };
            if let From::Raw { bytes, .. } = &mut self.needs[need].from {
                *bytes = at..at + len as usize;
            }
        }
    }

    /// Bytes that its lists keep.
    pub(super) fn bytes(&self) -> usize {
        self.parts.capacity() * size_of::<Part>()
            + self.needs.capacity() * size_of::<Need>()
            + self.reads.capacity() * size_of::<(u64, u64, usize)>()
    }
}
