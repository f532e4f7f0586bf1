//! `SampleMask` is one mask of one sample, whatever it comes from: genes, random draws, a list, the record of a store. It is written as bytes, as
//! bits, or as a list of the False positions. Invariant: all three say the same.

use crate::incidence::{GeneMasks, Incidence};
use crate::mask_sources::EdgeDraws;
use crate::records::MaskForm;

/// One mask of one sample, by what it is made from.
#[derive(Clone, Copy, Debug)]
pub enum SampleMask<'a> {
    /// The edges of one type at these genes.
    Genes(&'a Incidence, &'a [i64]),
    /// The edges of one type at these genes, from the masks of the genes.
    GeneMasks(&'a GeneMasks, &'a [i64]),
    /// The edges of one type at these genes that are drawn.
    Sampled(&'a Incidence, &'a [i64], EdgeDraws),
    /// The False positions, ascending, each once.
    Removed(&'a [u32]),
    /// The mask as a store holds it.
    Stored(StoredMask<'a>),
}

impl SampleMask<'_> {
    /// A byte per entry, 1 = kept.
    ///
    /// Floor: one write of `mask.len()` bytes; the positions set to 0 are a thousandth of them.
    ///
    /// # Panics
    /// If a stored mask is not of `mask.len()` entries, which decoding has checked.
    pub fn to_bytes(self, mask: &mut [u8]) {
        if let Self::Stored(stored) = self {
            return stored.to_bytes(mask);
        }
        mask.fill(1);
        match self {
            Self::Genes(incidence, genes) => genes.iter().for_each(|gene| clear_bytes(incidence.of(*gene), mask)),
            Self::GeneMasks(masks, genes) => {
                // Nearly all words are 0, and are only read.
                for (at, word) in genes.iter().flat_map(|gene| masks.of(*gene).iter().enumerate()) {
                    ones(*word).for_each(|bit| mask[64 * at + bit] = 0);
                }
            }
            Self::Sampled(incidence, genes, draws) => {
                for position in genes.iter().flat_map(|gene| incidence.of(*gene)) {
                    mask[*position as usize] &= u8::from(!draws.masks(*position));
                }
            }
            Self::Removed(positions) => clear_bytes(positions, mask),
            Self::Stored(_) => {}
        }
    }

    /// A bit per entry, 1 = kept: bit i of word w is entry 64·w + i; the bits behind the last of `entries` are 0.
    ///
    /// Floor: one write of an eighth of the bytes of [`SampleMask::to_bytes`], which stays in the second-level cache.
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
            Self::GeneMasks(masks, genes) => {
                for gene in genes {
                    mask.iter_mut().zip(masks.of(*gene)).for_each(|(kept, removed)| *kept &= !removed);
                }
            }
            Self::Sampled(incidence, genes, draws) => {
                let positions = genes.iter().flat_map(|gene| incidence.of(*gene));
                for position in positions.filter(|position| draws.masks(**position)) {
                    clear_bits(std::slice::from_ref(position), mask);
                }
            }
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
    pub fn append_removed(self, entries: usize, union: &mut SortedUnion, out: &mut Vec<i32>) {
        match self {
            Self::Genes(incidence, genes) => union.append(incidence, genes, out),
            Self::GeneMasks(masks, genes) => {
                for at in 0..entries.div_ceil(64) {
                    out.extend(ones(masks.removed_by(genes, at)).map(|bit| (64 * at + bit) as i32));
                }
            }
            Self::Sampled(incidence, genes, draws) => {
                let start = out.len();
                union.append(incidence, genes, out);
                let mut end = start;
                for at in start..out.len() {
                    let position = out[at];
                    out[end] = position;
                    end += usize::from(draws.masks(position as u32));
                }
                out.truncate(end);
            }
            Self::Removed(positions) => out.extend(positions.iter().map(|p| *p as i32)),
            Self::Stored(stored) => stored.append_removed(entries, out),
        }
    }
}

/// Positions of the ones of a word, ascending.
fn ones(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let position = word.trailing_zeros() as usize;
        // Clears the lowest one; 0 has 64 trailing zeros and stays 0.
        word &= word.wrapping_sub(1);
        (position < 64).then_some(position)
    })
}

/// Set these entries of a byte mask to 0.
fn clear_bytes(positions: &[u32], mask: &mut [u8]) {
    for &position in positions {
        mask[position as usize] = 0;
    }
}

/// Set these entries of a bit mask to 0.
fn clear_bits(positions: &[u32], mask: &mut [u64]) {
    for &position in positions {
        mask[position as usize / 64] &= !(1 << (position % 64));
    }
}

/// Gene masks of one sample, a byte per gene: `kept` and its complement `perturbed`.
pub fn fill_gene_masks(genes: &[i64], kept: &mut [u8], perturbed: &mut [u8]) {
    kept.fill(1);
    perturbed.fill(0);
    for &gene in genes {
        kept[gene as usize] = 0;
        perturbed[gene as usize] = 1;
    }
}

/// A mask as a store holds it, still in the bytes of its record.
#[derive(Clone, Copy, Debug)]
pub struct StoredMask<'a> {
    /// Encoding of the bytes; never [`MaskForm::None`].
    pub form: MaskForm,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl StoredMask<'_> {
    /// Positions of the False entries. Records have no alignment, so these are read byte-wise.
    fn positions(&self) -> impl Iterator<Item = usize> {
        self.bytes.as_chunks::<8>().0.iter().map(|p| i64::from_le_bytes(*p) as usize)
    }

    fn to_bytes(self, mask: &mut [u8]) {
        match self.form {
            MaskForm::None | MaskForm::FalsePositions => {
                mask.fill(1);
                self.positions().for_each(|p| mask[p] = 0);
            }
            MaskForm::Bytes => mask.copy_from_slice(self.bytes),
            MaskForm::Bits => {
                assert_eq!(self.bytes.len(), mask.len().div_ceil(8), "decoding checks the length");
                let (chunks, rest) = mask.as_chunks_mut::<8>();
                let (full, last) = self.bytes.split_at(chunks.len());
                for (chunk, bits) in chunks.iter_mut().zip(full) {
                    *chunk = expand(*bits).to_le_bytes();
                }
                if let [bits] = last {
                    rest.copy_from_slice(&expand(*bits).to_le_bytes()[..rest.len()]);
                }
            }
        }
    }

    fn to_bits(self, entries: usize, mask: &mut [u64]) {
        match self.form {
            MaskForm::None | MaskForm::FalsePositions => {
                mask.fill(u64::MAX);
                if let (Some(last), used @ 1..) = (mask.last_mut(), entries % 64) {
                    *last = (1 << used) - 1;
                }
                self.positions().for_each(|p| mask[p / 64] &= !(1 << (p % 64)));
            }
            MaskForm::Bytes => {
                assert_eq!(self.bytes.len(), entries, "decoding checks the length");
                for (word, bytes) in mask.iter_mut().zip(self.bytes.chunks(64)) {
                    let (chunks, rest) = bytes.as_chunks::<8>();
                    let bits = |at: usize, bytes: [u8; 8]| u64::from(pack(u64::from_le_bytes(bytes))) << (8 * at);
                    *word = chunks.iter().enumerate().fold(0, |word, (at, chunk)| word | bits(at, *chunk));
                    if !rest.is_empty() {
                        let mut last = [0; 8];
                        last[..rest.len()].copy_from_slice(rest);
                        *word |= bits(chunks.len(), last);
                    }
                }
            }
            MaskForm::Bits => {
                assert_eq!(self.bytes.len(), entries.div_ceil(8), "decoding checks the length");
                for (word, bytes) in mask.iter_mut().zip(self.bytes.chunks(8)) {
                    let mut whole = [0; 8];
                    whole[..bytes.len()].copy_from_slice(bytes);
                    *word = u64::from_le_bytes(whole);
                }
                if let (Some(last), used @ 1..) = (mask.last_mut(), entries % 64) {
                    *last &= (1 << used) - 1;
                }
            }
        }
    }

    fn append_removed(self, entries: usize, out: &mut Vec<i32>) {
        match self.form {
            MaskForm::None | MaskForm::FalsePositions => out.extend(self.positions().map(|p| p as i32)),
            MaskForm::Bytes => {
                assert_eq!(self.bytes.len(), entries, "decoding checks the length");
                // Eight entries at a time: nearly all of them are kept.
                for (at, bytes) in self.bytes.chunks(8).enumerate() {
                    if !bytes.iter().all(|kept| *kept == 1) {
                        let gone = bytes.iter().enumerate().filter(|(_, kept)| **kept == 0);
                        out.extend(gone.map(|(i, _)| (8 * at + i) as i32));
                    }
                }
            }
            MaskForm::Bits => {
                assert_eq!(self.bytes.len(), entries.div_ceil(8), "decoding checks the length");
                for (at, bytes) in self.bytes.chunks(8).enumerate() {
                    let mut whole = [0xff; 8];
                    whole[..bytes.len()].copy_from_slice(bytes);
                    let mut gone = !u64::from_le_bytes(whole);
                    while gone != 0 {
                        let position = 64 * at + gone.trailing_zeros() as usize;
                        // The bits behind the last entry are 0, and no entries.
                        if position < entries {
                            out.push(position as i32);
                        }
                        gone &= gone - 1;
                    }
                }
            }
        }
    }
}

/// Bit i of `bits` to byte i, 0 or 1, without a table.
const fn expand(bits: u8) -> u64 {
    // Byte i keeps bit i alone; adding 127 carries whatever is there into the byte's highest bit, and not beyond.
    let spread = (bits as u64).wrapping_mul(0x0101_0101_0101_0101) & 0x8040_2010_0804_0201;
    ((spread + 0x7f7f_7f7f_7f7f_7f7f) >> 7) & 0x0101_0101_0101_0101
}

/// Byte i, 0 or 1, to bit i: the inverse of [`expand`].
const fn pack(bytes: u64) -> u8 {
    // Byte i times 2^(56 - 7i) lands on bit 56 + i; no two products meet.
    (bytes.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

/// The union of ascending lists, ascending. Its buffer is used again for each sample.
#[derive(Clone, Debug, Default)]
pub struct SortedUnion {
    merged: Vec<i32>,
    spare: Vec<i32>,
}

impl SortedUnion {
    /// Append the removed edges of one sample in one edge type to `out`, ascending, each once.
    ///
    /// The lists of the incidence are sorted, so merging them finds the edges between two perturbed genes, which stand
    /// in both lists, without a set and without looking at the edges. The last merge writes to `out` itself.
    pub fn append(&mut self, incidence: &Incidence, genes: &[i64], out: &mut Vec<i32>) {
        let whole = |gene: i64| incidence.of(gene).iter().map(|position| *position as i32);
        match genes {
            [] => {}
            &[gene] => out.extend(whole(gene)),
            &[first, ref middle @ .., last] => {
                self.merged.clear();
                self.merged.extend(whole(first));
                for &gene in middle {
                    self.spare.clear();
                    merge(&self.merged, incidence.of(gene), &mut self.spare);
                    std::mem::swap(&mut self.merged, &mut self.spare);
                }
                merge(&self.merged, incidence.of(last), out);
            }
        }
    }
}

/// Append the union of two ascending lists, each without duplicates, to `out`.
///
/// Each step waits for the comparison of the last, so the lists are merged from both ends at once, which are two
/// independent chains: half of the steps each, whatever the values are. What stands in both lists, an edge between two
/// perturbed genes, is rare and removed afterwards.
fn merge(a: &[i32], b: &[u32], out: &mut Vec<i32>) {
    let start = out.len();
    let all = a.len() + b.len();
    out.resize(start + all, 0);
    let (front, back) = out[start..].split_at_mut(all / 2);
    let (mut i, mut j) = (0, 0);
    let (mut k, mut l) = (a.len(), b.len());
    let (middle, back) = back.split_at_mut(all % 2);
    for (low, high) in front.iter_mut().zip(back.iter_mut().rev()) {
        // A list that is used up never has the next entry.
        let (x, y) = (a.get(i).map_or(i32::MAX, |x| *x), b.get(j).map_or(i32::MAX, |y| *y as i32));
        *low = x.min(y);
        // Branch-free: which list is ahead is as good as random.
        i += usize::from(x <= y);
        j += usize::from(x > y);
        let x = a.get(k.wrapping_sub(1)).map_or(-1, |x| *x);
        let y = b.get(l.wrapping_sub(1)).map_or(-1, |y| *y as i32);
        *high = x.max(y);
        k -= usize::from(x > y);
        l -= usize::from(x <= y);
    }
    if let [last] = middle {
        *last = if i < k { a[i] } else { b[j] as i32 };
    }
    let merged = &mut out[start..];
    // Counting them all takes whole vectors, stopping at the first would not.
    if merged.iter().zip(merged.iter().skip(1)).filter(|(x, y)| x == y).count() > 0 {
        let mut kept = 1;
        for at in 1..merged.len() {
            if merged[at] != merged[at - 1] {
                merged[kept] = merged[at];
                kept += 1;
            }
        }
        out.truncate(start + kept);
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    use super::*;
    use crate::cell_graph::EdgeType;
    use crate::mask_sources::EdgeSampling;

    /// The three forms of one mask, each as the positions of its False entries.
    fn forms(source: SampleMask<'_>, entries: usize) -> [Vec<usize>; 3] {
        let mut bytes = vec![7; entries];
        source.to_bytes(&mut bytes);
        let mut bits = vec![0x5555; entries.div_ceil(64)];
        source.to_bits(entries, &mut bits);
        let mut lists = vec![-7];
        source.append_removed(entries, &mut SortedUnion::default(), &mut lists);
        assert!(bytes.iter().all(|byte| *byte <= 1) && lists[0] == -7);
        assert!((entries..64 * bits.len()).all(|at| bits[at / 64] >> (at % 64) & 1 == 0), "behind the last entry");
        let of_bits = (0..entries).filter(|at| bits[at / 64] >> (at % 64) & 1 == 0);
        let of_list = lists[1..].iter().map(|position| *position as usize);
        [(0..entries).filter(|at| bytes[*at] == 0).collect(), of_bits.collect(), of_list.collect()]
    }

    proptest! {
        /// Lists, masks of genes, and draws of which all or some count, against the definition.
        #[test]
        fn every_source_makes_the_mask_that_its_definition_says(
            pairs in vec((0i64..12, 0i64..12), 0..300),
            genes in btree_set(0i64..12, 0..=5),
            seed in any::<u64>(),
        ) {
            let ends = pairs.iter().map(|pair| pair.0).chain(pairs.iter().map(|pair| pair.1));
            let edges = EdgeType { name: "e".into(), edge_index: ends.collect() };
            let genes: Vec<i64> = genes.into_iter().collect();
            let removed = |(source, target): &(i64, i64)| genes.contains(source) || genes.contains(target);
            let all: Vec<usize> = (0..pairs.len()).filter(|at| removed(&pairs[*at])).collect();
            let incidence = Incidence::build(&edges, 12);
            let masks = GeneMasks::build(&incidence);
            for source in [SampleMask::Genes(&incidence, &genes), SampleMask::GeneMasks(&masks, &genes)] {
                for found in forms(source, pairs.len()) {
                    prop_assert_eq!(&found, &all);
                }
            }
            for fraction in [1e-3, 0.4, 0.999] {
                let draws = EdgeSampling::new(fraction, seed).unwrap().draws(&genes, 3);
                let some: Vec<usize> = all.iter().copied().filter(|at| draws.masks(*at as u32)).collect();
                for found in forms(SampleMask::Sampled(&incidence, &genes, draws), pairs.len()) {
                    prop_assert_eq!(&found, &some);
                }
            }
        }
    }

    #[test]
    fn bits_and_bytes_are_inverse() {
        for bits in 0..=u8::MAX {
            let bytes = expand(bits).to_le_bytes();
            for (i, byte) in bytes.iter().enumerate() {
                assert_eq!(*byte, bits >> i & 1, "{bits:#b}");
            }
            assert_eq!(pack(u64::from_le_bytes(bytes)), bits);
        }
    }

    proptest! {
        #[test]
        fn merging_is_the_union(a: BTreeSet<u16>, b: BTreeSet<u16>) {
            let list = |s: &BTreeSet<u16>| s.iter().map(|v| i32::from(*v)).collect::<Vec<_>>();
            let other: Vec<u32> = b.iter().map(|v| u32::from(*v)).collect();
            let mut out = vec![-7];
            merge(&list(&a), &other, &mut out);
            prop_assert_eq!(&out[1..], &list(&(&a | &b))[..]);
            prop_assert_eq!(out[0], -7);
        }
    }
}
