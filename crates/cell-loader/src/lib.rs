//! Batches of rows (cells) of AnnData for training.
//!
//! A [`RowSampler`] draws the rows of each batch: without replacement, by weight, balanced by class, by chunks that are
//! shuffled together, or in file order. A [`CellBatcher`] reads them from any `anndata_io::ArrayStore`, chooses genes,
//! normalizes values and collates a [`CellBatch`], on the threads of a [`loader_core::Loader`]. Between them stands the
//! [`LoadRequest`]: ranges of rows that are read together, and the order in which batches get them.
//!
//! Invariants: a batch is a function of its rows and the options alone. Buffers are used again and never larger than the
//! largest batch needed.
//!
//! `examples/outside/src/bin/cell_batches.rs` is a whole program for a real file; in short:
//!
//! ```
//! use std::sync::Arc;
//!
//! use anndata_io::{ArrayStore, H5adStore};
//! use cell_loader::{CellBatchOptions, CellBatcher, CellValues, Draw, RowSampler, Sharding};
//! use loader_core::{Loader, LoaderOptions};
//!
//! # use anndata_io::CsrView;
//! # use anndata_io::write::{AnnDataSpec, AnnDataWriter, Compression, Frame, Layout, Matrix};
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("cells.h5ad");
//! # let layout = Layout::Chunked { chunk: None, compression: Compression::None };
//! # let spec = AnnDataSpec { rows: 4, columns: 3, values: 4, matrix: Matrix::Csr, layout, threads: 1 };
//! # let mut writer = AnnDataWriter::create(&path, &spec)?;
//! # let names = |names: &[&str]| Frame { index: names.iter().map(|n| n.to_string()).collect(), columns: Vec::new() };
//! # writer.put_var(&[], &names(&["gene_0", "gene_1", "gene_2"]))?;
//! # writer.begin_obs(4, &[])?;
//! # let (indptr, indices, data) = ([0, 1, 2, 3, 4], [0, 1, 2, 0], [1.0, 2.0, 3.0, 4.0]);
//! # writer.push(CsrView { indptr: &indptr, indices: &indices, data: &data })?;
//! # writer.push_obs(&names(&["a", "b", "c", "d"]))?;
//! # writer.finish()?;
//! // A file of four cells and three genes; any `.h5ad` file does.
//! let store: Arc<dyn ArrayStore> = Arc::new(H5adStore::open(&path, "X")?);
//!
//! // Batches of two cells in random order, built by two threads.
//! let sharding = Sharding { seed: 0, rank: 0, world_size: 1, batch_size: 2, drop_last: false };
//! let sampler = Arc::new(RowSampler::new(&Draw::Uniform, store.as_ref(), sharding, None)?);
//! let steps = sampler.batches_per_epoch();
//! let batcher = CellBatcher::new(store, sampler, &CellBatchOptions::default(), Arc::default())?;
//! let mut loader = Loader::start(batcher, LoaderOptions { workers: 2, steps, ..LoaderOptions::default() })?;
//! while let Some(loaded) = loader.next_batch() {
//!     let batch = loaded?.batch;
//!     assert!(matches!(&batch.values, CellValues::Dense(values) if values.len() == 2 * 3));
//!     // Its buffers are used again.
//!     loader.recycle(batch);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod block;
mod blocks;
mod chunks;
mod collator;
mod error;
mod loader;
mod permutation;
mod sampler;
mod shuffle_quality;
mod transform;
mod weighted;

pub use chunks::LoadRequest;
pub use collator::{CellBatch, CellValues, Collator};
pub use error::{CellError, WeightsProblem};
pub use loader::{CellBatchOptions, CellBatcher, CellDataset, Fetch};
pub use loader_core::{Loader, LoaderError, LoaderOptions};
pub use sampler::{DEFAULT_CHUNK_ROWS, Draw, RowSampler, Sharding};
pub use shuffle_quality::{LabelMixing, ShuffleMeter, ShuffleQuality};
pub use transform::{GeneMap, Transform, log1p};
pub use weighted::AliasTable;

// The examples of the README are compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
