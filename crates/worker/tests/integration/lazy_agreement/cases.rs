use std::sync::Arc;

use expctl_settings::{Aggregation, LocalHead, Norm};
use expctl_worker::models::lazy::LazyConfig;
use graph_loader::{Assembler, Batch, CellGraph, EdgeType, GraphBatchOptions, Processor, Sample};
use rand::SeedableRng;
use rand::rand_core::Rng;
use rand_pcg::Pcg64;

/// A model, a graph and a batch for it, all drawn from `seed`.
pub struct Case {
    pub name: String,
    pub config: LazyConfig,
    pub seed: u64,
    pub graph: Arc<CellGraph>,
    pub samples: Vec<Sample>,
}

fn below(random: &mut Pcg64, n: usize) -> usize {
    (random.next_u64() % n as u64) as usize
}

/// Edge types with self-loops, edges that are there twice, genes without edges; one of them may have none at all.
fn graph(random: &mut Pcg64, genes: usize, types: usize) -> Arc<CellGraph> {
    let edge_types = (0..types).map(|t| {
        let count = below(random, 5 * genes);
        let mut sources: Vec<i64> = (0..count).map(|_| below(random, genes - 1) as i64).collect();
        let mut targets: Vec<i64> = (0..count).map(|_| below(random, genes - 2) as i64).collect();
        for i in 0..count / 8 {
            (sources[i], targets[i]) = (sources[count - 1 - i], targets[count - 1 - i]);
        }
        targets[..count / 6].copy_from_slice(&sources[..count / 6]);
        EdgeType { name: format!("type{t}"), edge_index: [sources, targets].concat() }
    });
    let edge_types = edge_types.collect();
    Arc::new(CellGraph { genes: (0..genes).map(|i| format!("g{i:03}")).collect(), edge_types, metabolism: None })
}

/// Samples with 0 to 5 genes each; some genes are in several.
fn samples(random: &mut Pcg64, genes: usize, count: usize) -> Vec<Sample> {
    let one = |i: usize| {
        let count = (i + 1 + below(random, 2)) % 6;
        let mut own: Vec<i64> = Vec::new();
        while own.len() < count {
            let gene = below(random, genes) as i64;
            if !own.contains(&gene) {
                own.push(gene);
            }
        }
        own.sort_unstable();
        Sample { genes: own, ..Sample::default() }
    };
    (0..count).map(one).collect()
}

/// A batch of samples on this graph, as the loader makes it.
pub fn collate(processor: Processor, graph: &Arc<CellGraph>, samples: &[Sample]) -> Batch {
    let mut assembler = Assembler::new(&GraphBatchOptions::new(processor), Arc::clone(graph)).unwrap();
    let mut batch = assembler.empty();
    assembler.mask(samples, &[], &mut batch);
    assembler.collate(samples, &mut batch);
    batch
}

impl Case {
    fn new(name: String, config: LazyConfig, seed: u64, batch: usize, types: usize) -> Self {
        let mut random = Pcg64::seed_from_u64(seed);
        let genes = config.num_genes as usize;
        let graph = graph(&mut random, genes, types);
        Self { name, config, seed, samples: samples(&mut random, genes, batch), graph }
    }

    /// Both norms of encoder and preprocessor, and all aggregations.
    pub fn norms_and_aggregations() -> Vec<Self> {
        let mut cases = Vec::new();
        for norm in [Norm::Graph, Norm::Node] {
            for preprocessor_norm in [Norm::Graph, Norm::Node] {
                for (aggregation, aggregation_norm) in [
                    (Aggregation::PairwiseInteraction, true),
                    (Aggregation::PairwiseInteraction, false),
                    (Aggregation::Sum, true),
                    (Aggregation::Mean, true),
                ] {
                    let seed = 1 + cases.len() as u64;
                    let (genes, batch) = (20 + seed as i64 * 7 % 40, 1 + (seed as usize * 5) % 9);
                    let local_head = LocalHead::None;
                    let config = LazyConfig { norm, preprocessor_norm, aggregation, aggregation_norm, ..small(genes) };
                    let name = format!("{norm:?}, {preprocessor_norm:?}, {aggregation:?}, {aggregation_norm}");
                    cases.push(Self::new(name, LazyConfig { local_head, ..config }, seed, batch, 3));
                }
            }
        }
        cases
    }

    /// All aggregations and local heads with norms of single nodes: a node that is left out then changes no other one.
    pub fn of_single_nodes() -> Vec<Self> {
        let mut cases = Self::norms_and_aggregations();
        cases.extend(Self::local_heads());
        for case in &mut cases {
            (case.config.norm, case.config.preprocessor_norm) = (Norm::Node, Norm::Node);
            case.name.push_str(", of single nodes");
        }
        cases
    }

    /// All local heads with both norms.
    pub fn local_heads() -> Vec<Self> {
        let heads = [LocalHead::Full, LocalHead::Pooled, LocalHead::Zero, LocalHead::None];
        let with = |local_head| {
            [Norm::Graph, Norm::Node].map(|norm| {
                let config = LazyConfig { local_head, norm, ..small(23) };
                Self::new(format!("{local_head:?}, {norm:?}"), config, 77, 6, 2)
            })
        };
        heads.into_iter().flat_map(with).collect()
    }

    /// More rows than a block has, channels that fill no tile, one layer, one type, one sample.
    pub fn sizes() -> Vec<Self> {
        let mut cases = Vec::new();
        for (name, hidden, layers, convolution_layers, genes, batch, types) in [
            ("odd channels", 6, 2, 2, 31, 5, 2),
            ("one layer", 8, 1, 3, 20, 9, 3),
            ("one linear", 8, 3, 1, 20, 4, 1),
            ("one sample", 16, 3, 4, 200, 1, 4),
            ("many rows", 16, 3, 2, 150, 12, 5),
        ] {
            let config = LazyConfig { hidden, layers, convolution_layers, ..small(genes) };
            cases.extend((100..103).map(|seed| Self::new(format!("{name}, {seed}"), config, seed, batch, types)));
        }
        cases
    }
}

fn small(genes: i64) -> LazyConfig {
    LazyConfig { hidden: 8, heads: 2, ..LazyConfig::published(genes) }
}
