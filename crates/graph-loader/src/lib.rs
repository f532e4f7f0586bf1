//! Batches of perturbed copies of one graph.
//!
//! A sample perturbs some genes of a [`CellGraph`] that all samples share. An [`Assembler`] removes the perturbed genes' edges
//! and collates samples into the tensors that PyTorch Geometric would make, or into smaller ones: masks of a bit per edge,
//! lists of removed edges. A [`GraphBatcher`] reads records from a store and runs the assembler on the threads of a
//! [`loader_core::Loader`].
//!
//! Nothing here needs libtorch: tensors are vectors of the documented dtype and shape.
//!
//! ```
//! use std::ops::Range;
//! use std::sync::Arc;
//!
//! use graph_loader::{
//!     Assembler, CellGraph, DistributedSampler, EdgeType, GraphBatchOptions, GraphBatcher, GraphError, Layout, Processor,
//!     ReadRecord, Records, Sample, Schedule,
//! };
//! use loader_core::{Loader, LoaderOptions};
//!
//! /// Record i perturbs gene i. Files would be read with `LmdbStore` and decoded with `StoreDecoder`.
//! struct OneGeneEach;
//!
//! impl Records for OneGeneEach {
//!     fn reader(&self) -> Result<Box<dyn ReadRecord + '_>, GraphError> {
//!         Ok(Box::new(OneGeneEach))
//!     }
//!
//!     fn decode(&self, _: u64, bytes: &[u8], range: Range<usize>, sample: &mut Sample) -> Result<(), GraphError> {
//!         sample.genes = vec![i64::from(bytes[range.start])];
//!         Ok(())
//!     }
//! }
//!
//! impl ReadRecord for OneGeneEach {
//!     fn read(&mut self, index: u64, out: &mut Vec<u8>) -> Result<usize, GraphError> {
//!         out.push(index as u8);
//!         Ok(1)
//!     }
//! }
//!
//! // Three genes in a ring.
//! let ring = EdgeType { name: "ring".into(), edge_index: vec![0, 1, 2, /* to */ 1, 2, 0] };
//! let genes = ["a", "b", "c"].map(str::to_owned).to_vec();
//! let graph = Arc::new(CellGraph { genes, edge_types: vec![ring], metabolism: None });
//! let assembler = Assembler::new(&GraphBatchOptions::new(Processor::Lazy), graph)?;
//!
//! let sampler = DistributedSampler { len: 3, world_size: 1, rank: 0, shuffle: false, seed: 0, drop_last: false };
//! let schedule = Schedule::new(sampler, 3).expect("three samples fill a batch of three");
//! let batcher = GraphBatcher::new(Arc::new(OneGeneEach), Arc::new(schedule), assembler);
//! let options = LoaderOptions { workers: 1, steps: 1, ..LoaderOptions::default() };
//! let mut loader = Loader::start(batcher, options)?;
//! let batch = loader.next_batch().expect("one step")?.batch;
//! let Layout::Graphs(graphs) = batch.layout else { panic!("of another processor") };
//! // Of the edges 0→1, 1→2 and 2→0 each sample keeps the one that its gene is not an end of.
//! assert_eq!(graphs.edges[0].mask, [0, 1, 0, 0, 0, 1, 1, 0, 0]);
//! # Ok::<(), GraphError>(())
//! ```

mod assembler;
mod batch;
mod cell_graph;
mod error;
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
pub use incidence::{Catalysis, GeneMasks, Incidence, RemovedMetabolism};
pub use lmdb::{LmdbReader, LmdbStore};
pub use lmdb_writer::{LmdbWriter, text_order};
pub use loader::{GraphBatcher, ReadRecord, Records};
pub use mask::{SampleMask, SortedUnion, StoredMask, fill_gene_masks};
pub use mask_records::{MaskSizes, value_bytes};
pub use mask_sources::{EdgeDraws, EdgeSampling, MaskSources};
pub use neighborhood::{Adjacency, Neighbours, Visited};
pub use operations::{Marker, Marks, Operand, Unmarked};
pub use options::{Collation, GraphBatchOptions, MaskSource, OptionsError, Processor, RecordFormat, Walk};
pub use records::{MaskForm, RecordDecoder, Sample, StoreDecoder, StoreEncoder, StoredMasks};
pub use sampler::{BatchIndices, DistributedSampler, Schedule, Selection};
pub use stream::replicate_shifted;
