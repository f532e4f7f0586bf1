use std::path::PathBuf;

use expctl_dist::ProcessGroup;
use expctl_record::AttemptDir;
use loader_core::{Batcher, Loader};
use tch::{Device, Tensor};

use crate::device::Pinning;
use crate::device_masks::DeviceMaskError;
use crate::models::ModelBatch;
use crate::stop::Stop;
use crate::trainer::{TrainError, Trainer};
use crate::training::Validator;
use expctl_record::RankEnv;

/// Makes masks where a batch is used.
pub(crate) type StepMasks<B> = Box<dyn Fn(&B) -> Result<Vec<Tensor>, DeviceMaskError>>;

/// What a trial reads.
pub(crate) trait Source {
    /// What makes batches of it.
    type Batches<'a>: Batches
    where
        Self: 'a;

    /// Files of this machine, or folders of them, that steps read.
    fn files(&self) -> Vec<PathBuf>;

    /// The model of the trial, on `device`; all ranks of `group` together.
    ///
    /// # Errors
    /// As [`Trainer::new`].
    fn trainer(&self, group: &ProcessGroup, device: Device) -> Result<Trainer, TrainError>;

    /// All that batches of this rank, for `device`, are made from; rank 0 writes down what is read.
    ///
    /// # Errors
    /// It cannot be read, or no batch can be filled from it.
    fn batches(&self, attempt: &AttemptDir, env: RankEnv, device: Device) -> Result<Self::Batches<'_>, Stop>;
}

/// The batches of a rank.
pub(crate) trait Batches {
    /// What builds them, without what a device wants beside.
    type Builder: Batcher<Batch: ModelBatch, Error: Into<Stop>>;

    /// Batches of an epoch, on each rank.
    fn per_epoch(&self) -> u64;

    /// Start loading the batches of the steps from `first` on; in front of step 0 the schedule has `offset` others.
    ///
    /// # Errors
    /// A thread cannot be started.
    fn start(&self, first: u64, offset: u64) -> Result<Loader<Pinning<Self::Builder>>, Stop>;

    /// What the step makes itself; none where the loader makes all masks.
    fn step_masks(&self) -> Option<StepMasks<<Self::Builder as Batcher>::Batch>>;

    /// What validates an epoch.
    ///
    /// # Errors
    /// There is nothing to validate on.
    fn validator(&self) -> Result<Validator, Stop>;
}
