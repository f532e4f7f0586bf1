use std::collections::HashSet;

use super::Bipartite;
use super::edges::Hubs;
use super::rng::Stream;

/// The generated bipartite graph of metabolism: genes catalyse reactions (gpr), reactions turn metabolites (rmr).
pub(crate) struct Metabolism {
    pub reactions: u64,
    pub reactions_with_genes: u64,
    pub metabolites: u64,
    /// int64 `[2, E]`: gene, reaction; ascending by reaction.
    pub gpr: Vec<i64>,
    /// int64 `[2, E]`: reaction, metabolite; ascending by reaction.
    pub rmr: Vec<i64>,
    /// float32 `[E]` of rmr: reactants negative, products positive.
    pub stoichiometry: Vec<f32>,
}

/// Numbers of nodes and edges of the metabolism.
pub(crate) struct Sizes {
    pub reactions: u64,
    pub with_genes: u64,
    pub metabolites: u64,
    pub gpr: u64,
    pub rmr: u64,
}

impl Sizes {
    /// The published ones, in proportion to the `share` of the genes that there are.
    pub(crate) fn of(published: &Bipartite, genes: u64, share: f64) -> Self {
        let scaled = |n: u64| ((n as f64 * share).round() as u64).max(1);
        let (reactions, metabolites) = (scaled(published.reactions), scaled(published.metabolites));
        let with_genes = scaled(published.reactions_with_genes).min(reactions);
        Self {
            reactions,
            with_genes,
            metabolites,
            // No pair stands twice.
            gpr: scaled(published.gpr).min(with_genes * genes),
            rmr: scaled(published.rmr).min(reactions * metabolites),
        }
    }
}

impl Metabolism {
    /// The graph for `genes` genes. With fewer genes than the recipe has, all sizes shrink in proportion.
    pub(crate) fn new(published: &Bipartite, genes: u64, share: f64, seed: u64, scale: f64) -> Self {
        let Sizes { reactions, with_genes, metabolites, gpr, rmr } = Sizes::of(published, genes, share);
        let mut stream = Stream::new(seed, scale, "gpr");
        // Reactions with genes come first, as in a model that lists its exchange reactions at the end.
        let gpr = pairs(with_genes, genes, gpr, &mut stream);
        let mut stream = Stream::new(seed, scale, "rmr");
        let rmr = pairs(reactions, metabolites, rmr, &mut stream);
        let mut stoichiometry = Vec::with_capacity(rmr.len());
        let mut first_of_reaction = 0;
        for (k, &(reaction, _)) in rmr.iter().enumerate() {
            if rmr[first_of_reaction].0 != reaction {
                first_of_reaction = k;
            }
            let coefficient = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 3.0][stream.below(8) as usize];
            // Reactants and products alternate, so that each reaction with two metabolites has both.
            stoichiometry.push(if (k - first_of_reaction).is_multiple_of(2) { -coefficient } else { coefficient });
        }
        let gpr: Vec<(u64, u64)> = gpr.into_iter().map(|(reaction, gene)| (gene, reaction)).collect();
        Self {
            reactions,
            reactions_with_genes: with_genes,
            metabolites,
            gpr: index(&gpr),
            rmr: index(&rmr),
            stoichiometry,
        }
    }
}

/// `count` distinct pairs (left, right), at most as many as there are; each left has at least one where `count` allows it, and
/// the right sides are heavy-tailed. Ascending.
fn pairs(left: u64, right: u64, count: u64, stream: &mut Stream) -> Vec<(u64, u64)> {
    let hubs = Hubs::new(right, count, stream);
    let mut pairs: HashSet<(u64, u64)> = HashSet::with_capacity(count as usize);
    pairs.extend((0..left.min(count)).map(|l| (l, hubs.draw(stream))));
    let mut tries = 20 * count;
    while (pairs.len() as u64) < count {
        let r = if tries > 0 { hubs.draw(stream) } else { stream.below(right) };
        pairs.insert((stream.below(left), r));
        tries = tries.saturating_sub(1);
    }
    let mut pairs: Vec<_> = pairs.into_iter().collect();
    pairs.sort_unstable();
    pairs
}

fn index(pairs: &[(u64, u64)]) -> Vec<i64> {
    pairs.iter().map(|pair| pair.0 as i64).chain(pairs.iter().map(|pair| pair.1 as i64)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_the_published_ones_and_pairs_distinct() {
        let published =
            Bipartite { reactions: 7122, reactions_with_genes: 4881, metabolites: 2806, gpr: 5450, rmr: 26325 };
        let built = Metabolism::new(&published, 6607, 1.0, 0, 1.0);
        for (index, edges, left, right) in [(&built.gpr, 5450, 6607, 4881), (&built.rmr, 26325, 7122, 2806)] {
            assert_eq!(index.len(), 2 * edges);
            let (sources, targets) = index.split_at(edges);
            assert!(sources.iter().all(|s| (0..left).contains(s)) && targets.iter().all(|t| (0..right).contains(t)));
            let distinct: HashSet<_> = sources.iter().zip(targets).collect();
            assert_eq!(distinct.len(), edges);
        }
        let with_genes: HashSet<_> = built.gpr[5450..].iter().collect();
        assert_eq!(with_genes.len(), 4881);
        assert_eq!(built.stoichiometry.len(), 26325);
        assert!(built.stoichiometry.iter().any(|s| *s < 0.0) && built.stoichiometry.iter().any(|s| *s > 0.0));
    }
}
