use super::sampling::Draws;
use super::stored::StoredMask;
use super::{Union, clear_bits, clear_bytes};
use crate::graph::{GeneMasks, Incidence};

/// What one mask of one sample is made from.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// The edges of one type at these genes.
    Genes(&'a Incidence, &'a [i64]),
    /// The same, from the masks of these genes.
    GeneMasks(&'a GeneMasks, &'a [i64]),
    /// Of the edges of one type at these genes those that are drawn.
    Sampled(&'a Incidence, &'a [i64], Draws),
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
        if let Self::Stored(stored) = self {
            return stored.to_bytes(mask);
        }
        mask.fill(1);
        match self {
            Self::Genes(incidence, genes) => genes.iter().for_each(|gene| clear_bytes(incidence.of(*gene), mask)),
            Self::GeneMasks(masks, genes) => {
                // Nearly all words are 0: they are only looked at.
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
    pub fn append_removed(self, entries: usize, union: &mut Union, out: &mut Vec<i32>) {
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

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    use super::super::EdgeSampling;
    use super::*;
    use crate::graph::EdgeType;

    /// The three forms of one mask, each as the positions of its False entries.
    fn forms(source: Source<'_>, entries: usize) -> [Vec<usize>; 3] {
        let mut bytes = vec![7; entries];
        source.to_bytes(&mut bytes);
        let mut bits = vec![0x5555; entries.div_ceil(64)];
        source.to_bits(entries, &mut bits);
        let mut lists = vec![-7];
        source.append_removed(entries, &mut Union::default(), &mut lists);
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
            for source in [Source::Genes(&incidence, &genes), Source::GeneMasks(&masks, &genes)] {
                for found in forms(source, pairs.len()) {
                    prop_assert_eq!(&found, &all);
                }
            }
            for fraction in [1e-3, 0.4, 0.999] {
                let draws = EdgeSampling::new(fraction, seed).unwrap().draws(&genes, 3);
                let some: Vec<usize> = all.iter().copied().filter(|at| draws.masks(*at as u32)).collect();
                for found in forms(Source::Sampled(&incidence, &genes, draws), pairs.len()) {
                    prop_assert_eq!(&found, &some);
                }
            }
        }
    }
}
