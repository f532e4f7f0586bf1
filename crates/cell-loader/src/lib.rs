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
//! A program that iterates over batches, `examples/outside/src/bin/cell_batches.rs`:
//!
//! ```no_run
#![doc = include_str!("../../../examples/outside/src/bin/cell_batches.rs")]
//! ```

mod batch;
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

pub use batch::{CellBatch, CellValues};
pub use chunks::LoadRequest;
pub use collator::Collator;
pub use error::{CellError, WeightsProblem};
pub use loader::{CellBatchOptions, CellBatcher, CellDataset, Fetch, Output};
pub use loader_core::{Loader, LoaderError, LoaderOptions};
pub use permutation::Permutation;
pub use sampler::{DEFAULT_CHUNK_ROWS, Draw, RowSampler, Sharding};
pub use shuffle_quality::{LabelMixing, ShuffleMeter, ShuffleQuality, expected_entropy};
pub use transform::{GeneMap, Transform, log1p};
pub use weighted::{AliasTable, ClassTable};
