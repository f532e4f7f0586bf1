//! A small lazy model, and batches for it.

use std::sync::Arc;

use expctl_settings::Implementation;
use expctl_worker::models::lazy::{Lazy, LazyConfig};
use expctl_worker::models::{EdgeList, SampleInputs};
use graph_loader::{Assembler, Batch, CellGraph, EdgeType, Edges, GraphBatchOptions, Layout, Processor, Sample};
use tch::{Device, nn};

use crate::support::generator;

/// The published edge types.
pub const TYPES: [&str; 9] = [
    "physical",
    "regulatory",
    "tflink",
    "string12_0_neighborhood",
    "string12_0_fusion",
    "string12_0_cooccurence",
    "string12_0_coexpression",
    "string12_0_experimental",
    "string12_0_database",
];

/// Edge types of the small graph.
const FEW: usize = 3;

/// A small model.
pub const SMALL: LazyConfig =
    LazyConfig { hidden: 8, layers: 2, convolution_layers: 3, heads: 2, ..LazyConfig::published(30) };

/// A graph of 30 genes with self-loops, some edges listed twice, and genes without others.
pub fn graph() -> Arc<CellGraph> {
    let genes = SMALL.num_genes;
    let edge_types = (0..FEW as i64).map(|t| {
        let sources = (0..90).map(|i| (i * i + t) % (genes - 2)).chain(0..genes);
        let targets = (0..90).map(|i| (i * 7 + t * 3) % (genes - 2)).chain(0..genes);
        EdgeType { name: TYPES[t as usize].to_owned(), edge_index: sources.chain(targets).collect() }
    });
    let genes = (0..genes).map(|gene| format!("G{gene:02}")).collect();
    Arc::new(CellGraph { genes, edge_types: edge_types.collect(), metabolism: None })
}

/// The model of `config` over the small graph, as published.
pub fn build(config: &LazyConfig, seed: i64) -> (nn::VarStore, Lazy) {
    build_as(Implementation::Replicated, config, seed)
}

/// The same in any implementation.
pub fn build_as(implementation: Implementation, config: &LazyConfig, seed: i64) -> (nn::VarStore, Lazy) {
    let _alone = generator();
    tch::manual_seed(seed);
    let vs = nn::VarStore::new(Device::Cpu);
    let graph = graph();
    let lists = graph.edge_types.iter();
    let lists: Vec<EdgeList> =
        lists.map(|e| EdgeList { name: &e.name, sources: e.sources(), targets: e.targets() }).collect();
    let model = Lazy::new(&vs.root(), config, implementation, &lists, &[0, 1, 2]).unwrap();
    (vs, model)
}

/// A batch as the loader makes it.
pub struct Case {
    /// The batch.
    pub batch: Batch,
}

impl Case {
    /// Samples with these perturbed genes, with a graph each.
    pub fn new(samples: &[&[i64]]) -> Self {
        Self::with_processor(Processor::Lazy, samples)
    }

    /// The same from any processor.
    pub fn with_processor(processor: Processor, samples: &[&[i64]]) -> Self {
        let samples: Vec<Sample> =
            samples.iter().map(|genes| Sample { genes: genes.to_vec(), ..Sample::default() }).collect();
        let graph = graph();
        let mut assembler = Assembler::new(&GraphBatchOptions::new(processor), graph).unwrap();
        let mut batch = assembler.empty();
        assembler.mask(&samples, &[], &mut batch);
        assembler.collate(&samples, &mut batch);
        Self { batch }
    }

    /// The inputs of the model.
    pub fn inputs(&self) -> SampleInputs<'_> {
        SampleInputs::new(&self.batch, &[], true, Device::Cpu).unwrap()
    }

    /// One of its edge types.
    pub fn edges(&mut self, edge_type: usize) -> &mut Edges {
        let Layout::Graphs(graphs) = &mut self.batch.layout else { unreachable!() };
        &mut graphs.edges[edge_type]
    }
}
