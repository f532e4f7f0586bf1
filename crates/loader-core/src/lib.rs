//! Threads that build batches ahead of a training step and deliver them in order.
//!
//! Three traits describe what is loaded. A [`Dataset`] opens a reader for each thread. A [`Sampler`] draws the items of each
//! batch. A [`Batcher`] reads the items of one step and collates them into a batch. A [`Loader`] runs clones of the batcher on
//! its threads.
//!
//! Guarantees: batches arrive in the order of their steps. No more batches are ahead of the step than threads × prefetch
//! factor, and of large ones no more than fit into a limit in bytes (but one for each thread and one more). No more are held
//! than fit into the memory limit (but one always is). An error arrives at the step that it
//! belongs to. Dropping the loader ends its threads. Buffers of batches that are given back are used again.
//!
//! Each batch carries what it cost: the [`Interval`]s in which its thread worked on each [`Stage`], and the part of the step's
//! wait that each stage explains ([`Loaded::exposed`]).
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Instant;
//!
//! use loader_core::{Batcher, Dataset, Loaded, Loader, LoaderError, LoaderOptions, Reader, Stage, StageClock};
//!
//! /// Numbers in memory; files would be opened in `reader`.
//! struct Numbers(Vec<f32>);
//!
//! impl Dataset for Numbers {
//!     type Reader<'a> = &'a [f32];
//!     type Error = LoaderError;
//!
//!     fn reader(&self) -> Result<&[f32], LoaderError> {
//!         Ok(&self.0)
//!     }
//! }
//!
//! /// Batches of four consecutive numbers.
//! #[derive(Clone)]
//! struct FourNumbers {
//!     numbers: Arc<Numbers>,
//!     clock: Instant,
//! }
//!
//! impl Batcher for FourNumbers {
//!     type Dataset = Numbers;
//!     type Batch = Vec<f32>;
//!     type Error = LoaderError;
//!
//!     fn dataset(&self) -> Arc<Numbers> {
//!         Arc::clone(&self.numbers)
//!     }
//!
//!     fn empty(&self) -> Vec<f32> {
//!         Vec::new()
//!     }
//!
//!     fn clock(&self) -> Instant {
//!         self.clock
//!     }
//!
//!     fn bytes(batch: &Vec<f32>) -> u64 {
//!         batch.len() as u64 * 4
//!     }
//!
//!     fn build(
//!         &mut self,
//!         reader: &mut Reader<'_, Self>,
//!         step: u64,
//!         mut batch: Vec<f32>,
//!     ) -> Result<Loaded<Vec<f32>>, LoaderError> {
//!         let mut clock = StageClock::start(self.clock);
//!         batch.clear();
//!         batch.extend_from_slice(&reader[step as usize * 4..step as usize * 4 + 4]);
//!         clock.worked(Stage::Read);
//!         Ok(Loaded { bytes_read: 16, intervals: clock.intervals(), ..Loaded::new(batch, step, 0) })
//!     }
//! }
//!
//! let numbers = Arc::new(Numbers((0..12).map(|n| n as f32).collect()));
//! let batcher = FourNumbers { numbers, clock: Instant::now() };
//! let options = LoaderOptions { workers: 2, prefetch_factor: 2, steps: 3, ..LoaderOptions::default() };
//! let mut loader = Loader::start(batcher, options)?;
//! let mut sum = 0.0;
//! while let Some(loaded) = loader.next_batch() {
//!     let loaded = loaded?;
//!     sum += loaded.batch.iter().sum::<f32>();
//!     loader.recycle(loaded.batch);
//! }
//! assert_eq!(sum, 66.0);
//! # Ok::<(), LoaderError>(())
//! ```

mod batcher;
mod loader;
mod memory_budget;
mod timing;

pub use batcher::{Batcher, Dataset, Loaded, Reader, Sampler, samples_per_rank};
pub use loader::{Loader, LoaderError, LoaderOptions, NextBatch, Recycler};
pub use timing::{
    BatchOperations, BatchTimes, Interval, OperationInterval, OperationTime, Stage, StageClock, StageOperation,
    StageTimes, exposed_wait,
};

// The examples of the README are compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
