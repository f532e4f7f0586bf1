use super::genes::Genes;
use super::rng::{Bijection, Stream};
use crate::PipelineError;

/// Perturbed genes of a sample.
pub(crate) const GENES_PER_SAMPLE: usize = 3;

/// The design of the study: pairs of query genes (double mutants), each crossed with an array of other genes.
///
/// Invariant: query genes and array genes are apart, so each cell of the grid is another set of three distinct genes.
pub(crate) struct Triples {
    query: Vec<u32>,
    array: Vec<u32>,
    pairs: Bijection,
    num_pairs: u64,
    cells: Bijection,
}

/// Share of the genes that are on the array; about 1,200 of 6,607 in the study.
const ARRAY_SHARE: (u64, u64) = (2, 11);

impl Triples {
    /// The grid of a data set; `published` samples fit into it at full scale, with some to spare.
    pub(crate) fn new(genes: &Genes, published: u64, seed: u64, scale: f64) -> Self {
        let mut stream = Stream::new(seed, scale, "samples");
        let all: Vec<u32> = (0..genes.len() as u32).collect();
        // The strains of the study are real; generated genes are used only where there is hardly anything else.
        let pool = if genes.real * 2 >= genes.len() { &genes.real_positions } else { &all };
        let shuffled: Vec<u32> = stream.permutation(pool.len() as u64).into_iter().map(|k| pool[k as usize]).collect();
        let on_array = (shuffled.len() as u64 * ARRAY_SHARE.0 / ARRAY_SHARE.1).max(1).min(shuffled.len() as u64);
        let (array, query) = shuffled.split_at(on_array as usize);
        let possible = query.len() as u64 * (query.len() as u64).saturating_sub(1) / 2;
        let wanted = (published + published / 12).div_ceil(on_array.max(1));
        let num_pairs = wanted.min(possible);
        Self {
            pairs: stream.bijection(possible),
            cells: stream.bijection(num_pairs * on_array),
            query: query.to_vec(),
            array: array.to_vec(),
            num_pairs,
        }
    }

    /// The most distinct samples.
    pub(crate) fn capacity(&self) -> u64 {
        self.num_pairs * self.array.len() as u64
    }

    /// Fail where `samples` do not fit.
    pub(crate) fn check(&self, samples: u64, scale: f64) -> Result<(), PipelineError> {
        if samples <= self.capacity() {
            return Ok(());
        }
        Err(PipelineError::Invalid(format!(
            "{samples} distinct samples cannot be made from the genes at scale {scale}: {} at most",
            self.capacity()
        )))
    }

    /// Genes of sample `index`, which is below [`Self::capacity`], ascending.
    pub(crate) fn at(&self, index: u64) -> [u32; GENES_PER_SAMPLE] {
        let cell = self.cells.at(index);
        let (pair, column) = (cell % self.num_pairs, cell / self.num_pairs);
        let (a, b) = unrank(self.pairs.at(pair));
        let mut genes = [self.query[a as usize], self.query[b as usize], self.array[column as usize]];
        genes.sort_unstable();
        genes
    }
}

/// The `rank`-th pair (a, b) with b < a, in the order (1,0) (2,0) (2,1) (3,0) …
fn unrank(rank: u64) -> (u64, u64) {
    // Positive root of a(a-1)/2 = rank, put right where the square root of a large number was rounded.
    let mut a = ((1.0 + (1.0 + 8.0 * rank as f64).sqrt()) / 2.0) as u64;
    while a * (a - 1) / 2 > rank {
        a -= 1;
    }
    while (a + 1) * a / 2 <= rank {
        a += 1;
    }
    (a, rank - a * (a - 1) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_and_pairs_correspond() {
        let mut rank = 0;
        for a in 1..60 {
            for b in 0..a {
                assert_eq!(unrank(rank), (a, b));
                rank += 1;
            }
        }
    }

    #[test]
    fn samples_are_distinct_sets_of_three_distinct_genes() {
        let n = 300;
        let genes = Genes {
            names: (0..n).map(|k| format!("Y{k:04}")).collect(),
            real: n,
            position_of_row: Vec::new(),
            real_positions: (0..n as u32).collect(),
        };
        let triples = Triples::new(&genes, 20_000, 5, 1.0);
        assert!(triples.capacity() >= 20_000);
        assert!(triples.check(triples.capacity(), 1.0).is_ok());
        assert!(triples.check(triples.capacity() + 1, 1.0).is_err());
        let mut all: Vec<_> = (0..triples.capacity()).map(|index| triples.at(index)).collect();
        assert!(all.iter().all(|[a, b, c]| a < b && b < c && *c < n as u32));
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
