//! `select_samples` decides which samples of a data set a trial uses: the split, the candidates by their genes, and the subset.

use std::collections::BTreeMap;

use expctl_settings::{SampleSet, Select, Split};
use graph_loader::{Catalysis, Selection};

use crate::DatasetError;
use crate::graph::dataset::Dataset;
use crate::graph::samples::SampleGenes;
use crate::random::RandomStream;

/// Sizes of train, val and test for `n` samples: a tenth each, cut off, for val and test; what is left trains.
pub const fn split_sizes(n: u64) -> [u64; 3] {
    [Split::Train.size(n), Split::Val.size(n), Split::Test.size(n)]
}

/// Number of samples that `select` asks for; `None` if it takes all.
pub const fn selected_count(select: &Select) -> Option<u64> {
    if select.subset == 0 { None } else { Some(select.split.size(select.subset)) }
}

/// The samples of a built data set that a trial uses.
///
/// Invariant: the selection is a function of the data set and of [`Select`] alone, so all ranks and machines have the same. The
/// published lists cannot be reproduced: they came from Python's generator and the order of its sets.
///
/// # Errors
/// The genes of the samples, or the reactions, cannot be read.
pub fn select_samples(dataset: &Dataset, select: &Select) -> Result<Selection, DatasetError> {
    if *select == (Select { seed: select.seed, ..Select::default() }) {
        return Ok(Selection::all(dataset.manifest().samples.count));
    }
    let graph = match select.samples {
        SampleSet::All => None,
        SampleSet::Metabolic => Some(dataset.graph(&[], true)?),
    };
    let catalysis =
        graph.and_then(|graph| graph.metabolism.as_ref().map(|all| Catalysis::build(all, graph.num_genes())));
    let is_metabolic = |gene| catalysis.as_ref().is_some_and(|catalysis| catalysis.is_metabolic(gene));
    Ok(choose_samples(&dataset.sample_genes()?, select, is_metabolic))
}

/// Choose a split of all samples, from it the candidates by their genes, and from these a subset.
///
/// As in the published data modules: the whole data set is split first, so a sample is in the same split whatever the
/// candidates and the subset are, and each split has its share of the subset. Fewer candidates than the share are all
/// taken, and the log says so.
pub fn choose_samples(samples: &SampleGenes, select: &Select, is_metabolic: impl Fn(i64) -> bool) -> Selection {
    let mut chosen: Vec<u64> = (0..samples.len()).collect();
    if select.split != Split::All {
        chosen = split(&chosen, select.split, select.seed);
    }
    if select.samples == SampleSet::Metabolic {
        chosen.retain(|index| samples.of(*index).iter().any(|gene| is_metabolic(i64::from(*gene))));
    }
    let candidates = chosen.len() as u64;
    match selected_count(select) {
        Some(wanted) if wanted > candidates => tracing::warn!(
            "select.subset and select.split ask for {wanted} samples, but there are {candidates}: all are used"
        ),
        Some(wanted) => chosen = subset(samples, &chosen, wanted as usize, select.seed),
        None => {}
    }
    Selection::from_records(chosen)
}

/// `size` of `candidates`, drawn at random for each number of perturbed genes, ascending. As in the published data
/// module, samples of one gene come first, all of them if they fit, and the other numbers share what is left equally as
/// far as they reach.
fn subset(samples: &SampleGenes, candidates: &[u64], size: usize, seed: u64) -> Vec<u64> {
    let mut levels: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
    for &index in candidates {
        levels.entry(samples.of(index).len()).or_default().push(index);
    }
    let mut chosen = Vec::with_capacity(size);
    // The last of each level is drawn first.
    for (genes, level) in &mut levels {
        shuffle(level, seed, &format!("subset of {genes}"));
    }
    if let Some(mut singles) = levels.remove(&1) {
        chosen.extend(singles.drain(singles.len() - singles.len().min(size)..));
    }
    let mut levels: Vec<Vec<u64>> = levels.into_values().collect();
    while chosen.len() < size && !levels.is_empty() {
        let share = ((size - chosen.len()) / levels.len()).max(1);
        for level in &mut levels {
            let taken = share.min(level.len()).min(size - chosen.len());
            chosen.extend(level.drain(level.len() - taken..));
        }
        levels.retain(|level| !level.is_empty());
    }
    chosen.sort_unstable();
    chosen
}

/// One split of `chosen`, ascending. The splits have no sample in common and are together all of them.
fn split(chosen: &[u64], which: Split, seed: u64) -> Vec<u64> {
    let mut shuffled = chosen.to_vec();
    shuffle(&mut shuffled, seed, "split");
    let [train, val, _] = split_sizes(chosen.len() as u64).map(|size| size as usize);
    let mut split = match which {
        Split::All => shuffled,
        Split::Train => shuffled[..train].to_vec(),
        Split::Val => shuffled[train..train + val].to_vec(),
        Split::Test => shuffled[train + val..].to_vec(),
    };
    split.sort_unstable();
    split
}

fn shuffle(list: &mut Vec<u64>, seed: u64, purpose: &str) {
    // A selection does not depend on the scale of the graph.
    let order = RandomStream::new(seed, 1.0, purpose).permutation(list.len() as u64);
    *list = order.into_iter().map(|at| list[at as usize]).collect();
}

#[cfg(test)]
mod tests {
    use graph_loader::{DistributedSampler, Schedule};
    use proptest::prelude::*;

    use super::*;

    fn triples(n: i32) -> SampleGenes {
        let genes: Vec<[i32; 3]> = (0..n).map(|i| [i % 50, 50 + i % 7, 60 + i % 11]).collect();
        SampleGenes::new(genes.iter().map(<[i32; 3]>::as_slice))
    }

    fn select(subset: u64, split: Split) -> Select {
        Select { subset, split, ..Select::default() }
    }

    fn records(selection: &Selection) -> Vec<u64> {
        let mut all: Vec<u64> = (0..selection.len()).collect();
        selection.to_records(&mut all);
        all
    }

    #[test]
    fn sizes_are_the_published_ones() {
        assert_eq!(split_sizes(10_000), [8_000, 1_000, 1_000]);
        assert_eq!(split_sizes(332_313), [265_851, 33_231, 33_231]);
        assert_eq!(split_sizes(9), [9, 0, 0]);
    }

    const SPLITS: [Split; 3] = [Split::Train, Split::Val, Split::Test];

    #[test]
    fn splits_are_disjoint_and_together_all_samples() {
        let samples = triples(2_000);
        let of = |split| records(&choose_samples(&samples, &select(0, split), |_| false));
        let parts = SPLITS.map(of);
        assert_eq!(parts.each_ref().map(Vec::len), [1_600, 200, 200]);
        let mut together = parts.concat();
        together.sort_unstable();
        assert_eq!(together, (0..2_000).collect::<Vec<_>>());
    }

    #[test]
    fn a_subset_is_drawn_from_everywhere() {
        let samples = triples(2_000);
        let of = |seed| records(&choose_samples(&samples, &Select { seed, ..select(500, Split::All) }, |_| false));
        let whole = of(42);
        assert_eq!(whole.len(), 500);
        assert!(whole.windows(2).all(|pair| pair[0] < pair[1]), "ascending, each once");
        // Neither the first ones nor every fourth.
        assert!(whole[0] < 100 && whole[499] > 1_900);
        assert_ne!(of(1), whole);
    }

    /// What a model was validated on must not be what a smaller run trains on.
    #[test]
    fn a_sample_stays_in_its_split_whatever_else_is_selected() {
        let samples = triples(20_000);
        let metabolic = |gene: i64| gene < 25;
        let of = |samples_of, subset, split| {
            let select = Select { samples: samples_of, ..select(subset, split) };
            records(&choose_samples(&samples, &select, metabolic))
        };
        for (split, size) in SPLITS.into_iter().zip([8_000, 1_000, 1_000]) {
            let all = of(SampleSet::All, 0, split);
            let candidates = of(SampleSet::Metabolic, 0, split);
            // Half of the samples, as those of each split.
            assert!(candidates.len() * 3 > all.len() && candidates.len() * 3 < 2 * all.len());
            let subset = of(SampleSet::All, 10_000, split);
            assert_eq!(subset.len(), size);
            let both = of(SampleSet::Metabolic, 1_000, split);
            assert_eq!(both.len(), size / 10);
            for (part, whole) in [(&candidates, &all), (&subset, &all), (&both, &candidates)] {
                assert!(part.iter().all(|index| whole.binary_search(index).is_ok()));
            }
        }
    }

    /// Other machines must find the same.
    #[test]
    fn the_selection_is_known() {
        let chosen = choose_samples(&triples(100), &select(20, Split::Val), |_| false);
        assert_eq!(records(&chosen), KNOWN);
    }

    const KNOWN: [u64; 2] = [22, 87];

    #[test]
    fn a_subset_beyond_the_candidates_takes_all() {
        let samples = triples(30);
        let chosen = choose_samples(&samples, &select(31, Split::All), |_| false);
        assert_eq!(records(&chosen), (0..30).collect::<Vec<_>>());
        // Of the 24 that train, those of gene 50; 8 were asked for.
        let few = Select { samples: SampleSet::Metabolic, ..select(10, Split::Train) };
        let chosen = records(&choose_samples(&samples, &few, |gene| gene == 50));
        let train = records(&choose_samples(&samples, &select(0, Split::Train), |_| false));
        let with_gene: Vec<u64> = train.into_iter().filter(|index| index % 7 == 0).collect();
        assert!(selected_count(&few).is_some_and(|count| count as usize > with_gene.len()));
        assert_eq!(chosen, with_gene);
    }

    #[test]
    fn single_genes_come_first_and_the_others_share() {
        let list: Vec<Vec<i32>> =
            [(1, 10), (2, 5), (3, 100)].iter().flat_map(|&(k, n)| vec![(0..k).collect(); n]).collect();
        let samples = SampleGenes::new(list.iter().map(Vec::as_slice));
        let counts = |size| {
            let chosen = records(&choose_samples(&samples, &select(size, Split::All), |_| false));
            [1, 2, 3].map(|k| chosen.iter().filter(|index| samples.of(**index).len() == k).count())
        };
        assert_eq!(counts(8), [8, 0, 0]);
        assert_eq!(counts(16), [10, 3, 3]);
        assert_eq!(counts(60), [10, 5, 45]);
        assert_eq!(counts(115), [10, 5, 100]);
    }

    proptest! {
        #[test]
        fn metabolic_samples_are_those_of_the_definition(
            list in proptest::collection::vec(proptest::collection::btree_set(0i32..20, 0..5), 0..60),
            metabolic in proptest::collection::btree_set(0i64..20, 0..8),
        ) {
            let list: Vec<Vec<i32>> = list.into_iter().map(|genes| genes.into_iter().collect()).collect();
            let samples = SampleGenes::new(list.iter().map(Vec::as_slice));
            let select = Select { samples: SampleSet::Metabolic, ..Select::default() };
            let chosen = records(&choose_samples(&samples, &select, |gene| metabolic.contains(&gene)));
            let mut naive = Vec::new();
            for (index, genes) in list.iter().enumerate() {
                if genes.iter().any(|gene| metabolic.contains(&i64::from(*gene))) {
                    naive.push(index as u64);
                }
            }
            prop_assert_eq!(chosen, naive);
        }

        #[test]
        fn shares_are_together_the_selection(n in 0i32..100, world_size in 1u32..6) {
            let whole = choose_samples(&triples(n), &select(0, Split::Val), |_| false);
            let mut seen: Vec<u64> = Vec::new();
            for rank in 0..world_size {
                let share = whole.share(rank, world_size);
                prop_assert!(share.len() >= whole.len() / u64::from(world_size));
                seen.extend(records(&share));
            }
            seen.sort_unstable();
            prop_assert_eq!(seen, records(&whole));
            prop_assert_eq!(records(&Selection::all(5).share(1, 2)), [1, 3]);
        }

        /// Without `drop_last` every sample is seen, and only those that fill up the last round twice.
        #[test]
        fn ranks_together_see_each_selected_sample_once(n in 1i32..300, subset in 0u64..300, world_size in 1u32..5) {
            let selection = choose_samples(&triples(n), &select(subset, Split::Train), |_| false);
            let wanted = records(&selection);
            let mut seen = Vec::new();
            for rank in 0..world_size {
                let sampler = DistributedSampler { len: 0, world_size, rank, shuffle: true, seed: 3, drop_last: false };
                let schedule = Schedule::of_selection(selection.clone(), sampler, 4).unwrap();
                for step in 0..schedule.batches_per_epoch() {
                    seen.extend_from_slice(schedule.batch(step).indices());
                }
            }
            let padding = wanted.len().next_multiple_of(world_size as usize) - wanted.len();
            prop_assert_eq!(seen.len(), wanted.len() + padding);
            seen.sort_unstable();
            seen.dedup();
            prop_assert_eq!(seen, wanted);
        }
    }
}
