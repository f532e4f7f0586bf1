use std::sync::Arc;

use expctl_pipeline::collate::Assembler;
use expctl_pipeline::dataset::Dataset;
use expctl_pipeline::graph::CellGraph;
use expctl_pipeline::loader::{BatchBuilder, DatasetRecords, Loader, LoaderOptions};
use expctl_pipeline::sampler::{DistributedSampler, Schedule, Selection};
use expctl_record::{AttemptDir, Mode, Select, Settings, Split, write_json};

use crate::data_read::data_read;
use crate::hardware::free_memory;
use crate::rank_env::RankEnv;
use crate::stop::Stop;
use crate::training::Share;

/// What makes the batches of this rank.
pub struct Loading<'a> {
    settings: &'a Settings,
    env: RankEnv,
    dataset: &'a Dataset,
    records: Arc<DatasetRecords>,
    schedule: Arc<Schedule>,
    assembler: Assembler,
    buffer_bytes: u64,
}

impl<'a> Loading<'a> {
    /// Open the store and select; rank 0 writes down what is read.
    ///
    /// # Errors
    /// The store or the selection cannot be read, or no batch can be filled from it.
    pub fn new(
        attempt: &AttemptDir,
        settings: &'a Settings,
        env: RankEnv,
        dataset: &'a Dataset,
        graph: Arc<CellGraph>,
    ) -> Result<Self, Stop> {
        let options = &settings.loader;
        let records = DatasetRecords::open(dataset, &settings.pipeline)?;
        let selection = Selection::of(dataset, &settings.select)?;
        let samples = selection.len();
        let sampler = DistributedSampler {
            len: samples,
            world_size: env.world_size,
            rank: env.rank,
            shuffle: options.shuffle,
            seed: options.seed,
            drop_last: options.drop_last,
        };
        let buffer_bytes = match options.buffer_mib {
            0 => free_memory() / 10 * 6 / u64::from((env.world_size / settings.launch.nodes.max(1)).max(1)),
            mib => mib.saturating_mul(1 << 20),
        };
        // The loader of the training batches stays while the one of the validation works: each has its half.
        let train = &settings.train;
        let validates = train.mode == Mode::Train && train.epochs > 0 && train.validate_every > 0;
        let buffer_bytes = if validates { buffer_bytes / 2 } else { buffer_bytes };
        if env.rank == 0 {
            let read = data_read(dataset, settings, records.len(), samples, buffer_bytes)?;
            write_json(&attempt.data_path(), &read)?;
        }
        let schedule = Schedule::of(selection, sampler, options.batch_size).ok_or_else(|| {
            let (ranks, batch) = (env.world_size, options.batch_size);
            Stop::Invalid(format!("{samples} selected samples do not fill a batch of {batch} on each of {ranks} ranks"))
        })?;
        let (records, schedule) = (Arc::new(records), Arc::new(schedule));
        let assembler = Assembler::new(&settings.pipeline, graph)?;
        Ok(Self { settings, env, dataset, records, schedule, assembler, buffer_bytes })
    }

    /// Batches of an epoch, on each rank.
    pub fn batches_per_epoch(&self) -> u64 {
        self.schedule.batches_per_epoch()
    }

    /// Start loading the batches of the steps from `first` on; in front of step 0 the schedule has `offset` others.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(&self, first: u64, offset: u64) -> Result<Loader, Stop> {
        let loader = &self.settings.loader;
        let builder = BatchBuilder::new(self.records.clone(), Arc::clone(&self.schedule), self.assembler.clone());
        let steps = self.settings.measure.warmup + self.settings.measure.steps;
        // The threads stay as busy during the last steps as they are in the middle of an epoch: without this the last
        // batches would be built with ever fewer threads competing, and the rate would be flattered.
        let ahead = u64::from(loader.workers) * u64::from(loader.prefetch_factor.max(1));
        Ok(Loader::start(builder, self.options(offset + first, offset + steps + ahead))?)
    }

    /// This rank's share of the split `val`, of the same candidates and the same share of the subset, in order.
    ///
    /// # Errors
    /// The selection cannot be read, or is empty.
    pub fn validation(&self) -> Result<Option<Share>, Stop> {
        let select = Select { split: Split::Val, ..self.settings.select };
        let selection = Selection::of(self.dataset, &select)?;
        if selection.is_empty() {
            let message =
                "the split `val` has no samples to validate on: set train.validate_every to 0, or more samples";
            return Err(Stop::Invalid(message.to_owned()));
        }
        // A rank deals its own share to itself alone: a sampler of all ranks would fill them up with repeated samples.
        let share = selection.share(self.env.rank, self.env.world_size);
        let sampler =
            DistributedSampler { len: share.len(), world_size: 1, rank: 0, shuffle: false, seed: 0, drop_last: false };
        let schedule = Schedule::of(share, sampler, self.settings.loader.batch_size);
        Ok(schedule.map(|schedule| {
            let options = self.options(0, schedule.batches_per_epoch());
            let builder = BatchBuilder::new(self.records.clone(), Arc::new(schedule), self.assembler.clone());
            Share { builder, options }
        }))
    }

    fn options(&self, first: u64, steps: u64) -> LoaderOptions {
        let (workers, prefetch_factor) = (self.settings.loader.workers, self.settings.loader.prefetch_factor);
        LoaderOptions { workers, prefetch_factor, first, steps, buffer_bytes: self.buffer_bytes }
    }
}
