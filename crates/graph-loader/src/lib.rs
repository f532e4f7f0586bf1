//! Batches of perturbed copies of one graph.
//!
//! A sample perturbs some genes of a [`CellGraph`] that all samples share. An [`Assembler`] removes the perturbed genes' edges
//! and collates samples into the tensors that PyTorch Geometric would make, or into smaller ones: masks of a bit per edge,
//! lists of removed edges. A [`GraphBatcher`] reads [`Records`] and runs the assembler on the threads of a
//! [`loader_core::Loader`]. Records lie in memory, or in an [`LmdbStore`] whose values a [`StoreDecoder`] decodes.
//!
//! Nothing here needs libtorch: tensors are vectors of the documented dtype and shape.
//!
//! ```
//! use std::sync::Arc;
//!
//! use graph_loader::{
//!     Assembler, CellGraph, DistributedSampler, EdgeType, GraphBatchOptions, GraphBatcher, Layout, Processor, Sample, Schedule,
//! };
//! use loader_core::{Loader, LoaderOptions};
//!
//! // Three genes in a ring, and a sample for each of them that perturbs it. Other `Records` read samples from files.
//! let ring = EdgeType { name: "ring".into(), edge_index: vec![0, 1, 2, /* to */ 1, 2, 0] };
//! let genes = ["a", "b", "c"].map(str::to_owned).to_vec();
//! let graph = Arc::new(CellGraph { genes, edge_types: vec![ring], metabolism: None });
//! let samples: Vec<Sample> = (0..3).map(|gene| Sample { genes: vec![gene], ..Sample::default() }).collect();
//!
//! // Batches of three samples in their order, each with a mask of the edges that it keeps.
//! let assembler = Assembler::new(&GraphBatchOptions::new(Processor::Lazy), graph)?;
//! let sampler = DistributedSampler { len: 3, world_size: 1, rank: 0, shuffle: false, seed: 0, drop_last: false };
//! let schedule = Schedule::new(sampler, 3).expect("three samples fill a batch of three");
//! let batcher = GraphBatcher::new(Arc::new(samples), Arc::new(schedule), assembler);
//! let mut loader = Loader::start(batcher, LoaderOptions { workers: 1, steps: 1, ..LoaderOptions::default() })?;
//! let batch = loader.next_batch().expect("one step")?.batch;
//! let Layout::Graphs(graphs) = batch.layout else { panic!("of another processor") };
//! // Of the edges 0→1, 1→2 and 2→0 each sample keeps the one that its gene is not an end of.
//! assert_eq!(graphs.edges[0].mask, [0, 1, 0, 0, 0, 1, 1, 0, 0]);
//! # Ok::<(), graph_loader::GraphError>(())
//! ```

mod assembler;
mod batch;
mod cell_graph;
pub mod error;
mod incidence;
mod lmdb;
mod lmdb_tree;
mod lmdb_writer;
mod loader;
mod mask;
mod mask_records;
mod mask_sources;
mod neighborhood;
mod npz;
mod operations;
mod options;
mod records;
mod sample_graphs;
mod sampler;
mod stream;
mod subgraph;

pub use assembler::Assembler;
pub use batch::{
    Batch, BitMasks, Common, Edges, Followed, Graphs, Layout, MetabolicGraphs, Nodes, Phenotype, RemovedLists,
};
pub use cell_graph::{CellGraph, EdgeType, Metabolism};
pub use error::GraphError;
pub use incidence::{Catalysis, Incidence};
pub use lmdb::{LmdbReader, LmdbStore};
pub use lmdb_writer::{LmdbWriter, text_order};
pub use loader::{GraphBatcher, ReadRecord, Records};
pub use mask_records::{MaskSizes, value_bytes};
pub use operations::{Marker, Marks, Operand, Unmarked};
pub use options::{Collation, GraphBatchOptions, MaskSource, OptionsError, Processor, RecordFormat, Walk};
pub use records::{MaskForm, RecordDecoder, Sample, StoreDecoder, StoreEncoder, StoredMasks};
pub use sampler::{BatchIndices, DistributedSampler, Schedule, Selection};

/// Building blocks of batches, which benchmarks time one by one: masks of samples, neighborhoods, copies of index tensors.
pub mod kernels {
    pub use crate::incidence::{GeneMasks, RemovedMetabolism};
    pub use crate::mask::{SampleMask, SortedUnion, StoredMask, fill_gene_masks};
    pub use crate::mask_sources::{EdgeDraws, EdgeSampling, MaskSources};
    pub use crate::neighborhood::{Adjacency, Neighbours, Visited};
    pub use crate::stream::replicate_shifted;
}

// The examples of the README are compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
