//! The data of a trial: samples of a graph, or rows of an array. Invariant: steps, records and checkpoints know the traits alone.

use std::path::PathBuf;

use expctl_ledger::{AttemptDir, RankEnv};
use expctl_settings::{Mode, Settings};
use host_metrics::free_memory;
use loader_core::{Batcher, Loader, LoaderOptions};
use tch::{Device, Tensor};
use torch_dist::ProcessGroup;

use crate::device::{Gpu, PinMemory, PinningBuilder};
use crate::device_masks::DeviceMaskError;
use crate::error::RankError;
use crate::models::{ModelBatch, Network};
use crate::session::ranks_per_node;
use crate::trainer::{TrainError, Trainer};
use crate::training_run::Validator;

mod array;
mod graph;

pub use array::ArrayData;
pub use graph::GraphData;

/// Makes the masks of a batch where it is used.
pub type StepMasks<B> = Box<dyn Fn(&B) -> Result<Vec<Tensor>, DeviceMaskError>>;

/// The data of a trial, opened.
pub trait TrialData {
    /// The batches that a rank makes of it.
    type Batches<'a>: RankBatches
    where
        Self: 'a;

    /// Files of this machine, or folders of files, that steps read.
    fn files(&self) -> Vec<PathBuf>;

    /// The trainer of the trial's model, on `device`; all ranks of `group` together.
    ///
    /// # Errors
    /// As [`Trainer::new`].
    fn trainer(&self, group: &ProcessGroup, device: Device) -> Result<Trainer, TrainError>;

    /// The batches of this rank, for `device`; rank 0 records what is read.
    ///
    /// # Errors
    /// The data cannot be read, or does not fill a batch.
    fn batches(&self, attempt: &AttemptDir, env: RankEnv, device: Device) -> Result<Self::Batches<'_>, RankError>;
}

/// The batches of a rank.
pub trait RankBatches {
    /// Builds the batches, without page-locking them.
    type Builder: Batcher<Batch: ModelBatch, Error: Into<RankError>>;

    /// Batches of an epoch, on each rank.
    fn per_epoch(&self) -> u64;

    /// Start to load the batches of the steps from `first` on; the schedule has `offset` batches before step 0.
    ///
    /// # Errors
    /// A thread cannot be started.
    fn start(&self, first: u64, offset: u64) -> Result<Loader<PinningBuilder<Self::Builder>>, RankError>;

    /// The masks that the step makes itself; `None` where the loader makes all masks.
    fn step_masks(&self) -> Option<StepMasks<<Self::Builder as Batcher>::Batch>>;

    /// The validator of an epoch.
    ///
    /// # Errors
    /// There is nothing to validate on.
    fn validator(&self) -> Result<Validator, RankError>;
}

/// `mib` in bytes; 0 is a rank's share of six tenths of the memory that is free on its node.
fn memory_budget(mib: u64, settings: &Settings, env: RankEnv) -> u64 {
    match mib {
        0 => free_memory() / 10 * 6 / u64::from(ranks_per_node(settings, env)),
        mib => mib.saturating_mul(1 << 20),
    }
}

/// Maximum memory of the batches of a rank, bytes.
fn max_buffer_bytes(settings: &Settings, env: RankEnv) -> u64 {
    let bytes = memory_budget(settings.loader.buffer_mib, settings, env);
    // The loader of the training batches stays while the loader of the validation works: each has half.
    let train = &settings.train;
    let validates = train.mode == Mode::Train && train.epochs > 0 && train.validate_every > 0;
    if validates { bytes / 2 } else { bytes }
}

/// Options of a loader of the batches from `first` to the one in front of `steps`.
fn loader_options(settings: &Settings, buffer_bytes: u64, first: u64, steps: u64) -> LoaderOptions {
    let (workers, prefetch_factor) = (settings.loader.workers, settings.loader.prefetch_factor);
    let buffer_name = "loader.buffer_mib";
    LoaderOptions { workers, prefetch_factor, first, steps, buffer_bytes, buffer_name, ..LoaderOptions::default() }
}

/// Options of a loader for all steps of the trial from `first` on; the schedule has `offset` batches before step 0.
fn step_loader_options(settings: &Settings, buffer_bytes: u64, first: u64, offset: u64) -> LoaderOptions {
    let (loader, steps) = (&settings.loader, settings.measure.warmup + settings.measure.steps);
    // The threads stay as busy during the last steps as in the middle of an epoch: without this the last batches would be built with
    // ever fewer threads competing, and the rate would be flattered.
    let ahead = u64::from(loader.workers) * u64::from(loader.prefetch_factor.max(1));
    loader_options(settings, buffer_bytes, offset + first, offset + steps + ahead)
}

/// The part of a batch that loader threads page-lock for `device`.
fn pin_memory(settings: &Settings, device: Device) -> PinMemory {
    let is_wanted = settings.loader.pin_memory && settings.train.mode != Mode::Data;
    match Gpu::from_device(device).filter(|_| is_wanted) {
        None => PinMemory::Off,
        Some(gpu) if Network::reads_graphs(settings) => PinMemory::BatchAndGraphs(gpu),
        Some(gpu) => PinMemory::Batch(gpu),
    }
}
