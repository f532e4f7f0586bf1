use super::stored::StoredMask;
use super::{Union, clear_bits, clear_bytes};
use crate::graph::Incidence;

/// What one mask of one sample is made from.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// The edges of one type at these genes.
    Genes(&'a Incidence, &'a [i64]),
    /// The False positions, ascending, each once.
    Removed(&'a [u32]),
    /// The mask as a store holds it.
    Stored(StoredMask<'a>),
}

impl Source<'_> {
    /// A byte per entry, 1 = kept.
    ///
    /// Floor: one write of `mask.len()` bytes; the positions set to 0 are a thousandth of them.
    ///
    /// # Panics
    /// If a stored mask is not of `mask.len()` entries, which decoding has checked.
    pub fn to_bytes(self, mask: &mut [u8]) {
        match self {
            Self::Genes(incidence, genes) => {
                mask.fill(1);
                genes.iter().for_each(|gene| clear_bytes(incidence.of(*gene), mask));
            }
            Self::Removed(positions) => {
                mask.fill(1);
                clear_bytes(positions, mask);
            }
            Self::Stored(stored) => stored.to_bytes(mask),
        }
    }

    /// A bit per entry, 1 = kept: bit i of word w is entry 64·w + i; the bits behind the last of `entries` are 0.
    ///
    /// Floor: one write of an eighth of the bytes of [`Source::to_bytes`], which stays in the second-level cache.
    ///
    /// # Panics
    /// If `mask` has not `ceil(entries / 64)` words, or a stored mask other entries.
    pub fn to_bits(self, entries: usize, mask: &mut [u64]) {
        assert_eq!(mask.len(), entries.div_ceil(64), "the caller sizes the mask");
        if let Self::Stored(stored) = self {
            return stored.to_bits(entries, mask);
        }
        mask.fill(u64::MAX);
        if let (Some(last), used @ 1..) = (mask.last_mut(), entries % 64) {
            *last = (1 << used) - 1;
        }
        match self {
            Self::Genes(incidence, genes) => genes.iter().for_each(|gene| clear_bits(incidence.of(*gene), mask)),
            Self::Removed(positions) => clear_bits(positions, mask),
            Self::Stored(_) => {}
        }
    }

    /// Append the False positions of a mask of `entries` to `out`, ascending, each once.
    ///
    /// Positions are below 2³¹: an edge index of more would not fit the lists' int32.
    ///
    /// # Panics
    /// If a stored mask has other entries.
    pub fn append_removed(self, entries: usize, union: &mut Union, out: &mut Vec<i32>) {
        match self {
            Self::Genes(incidence, genes) => union.append(incidence, genes, out),
            Self::Removed(positions) => out.extend(positions.iter().map(|p| *p as i32)),
            Self::Stored(stored) => stored.append_removed(entries, out),
        }
    }
}
