use std::path::PathBuf;
use std::sync::Arc;

use expctl_datasets::graph::{Dataset, DatasetRecords, select_samples};
use expctl_datasets::{DatasetError, graph_batch_options};
use expctl_dist::ProcessGroup;
use expctl_record::{AttemptDir, MaskSource, Select, Settings, Split, Trial, write_json};
use graph_loader::{Assembler, Batch, CellGraph, DistributedSampler, GraphBatchOptions, GraphBatcher, Schedule};
use loader_core::Loader;
use tch::Device;

use super::options::{buffer_bytes, gene_mask_bytes, options, options_of_steps, pinned};
use super::{Batches, Source, StepMasks};
use crate::data_read::data_read;
use crate::device::{PinOptions, Pinning};
use crate::device_masks::DeviceMaskMaker;
use crate::stop::Stop;
use crate::trainer::{TrainError, Trainer};
use crate::training::{Share, Validator};
use expctl_record::RankEnv;

/// Samples of a graph.
pub(crate) struct GraphSource<'a> {
    settings: &'a Settings,
    dataset: Dataset,
    graph: Arc<CellGraph>,
}

impl<'a> GraphSource<'a> {
    /// Open the data set of `trial`.
    ///
    /// # Errors
    /// It is not there, or damaged.
    pub(crate) fn open(trial: &'a Trial) -> Result<Self, Stop> {
        let settings = &trial.settings;
        let dataset = Dataset::open(&trial.data_dir).map_err(|e| e.advise(&trial.data_dir, &settings.data))?;
        let graph = Arc::new(dataset.graph_of(&settings.pipeline)?);
        Ok(Self { settings, dataset, graph })
    }
}

impl<'a> Source for GraphSource<'a> {
    type Batches<'b>
        = GraphBatches<'b>
    where
        'a: 'b;

    fn files(&self) -> Vec<PathBuf> {
        vec![self.dataset.store_file(self.settings.pipeline.store)]
    }

    fn trainer(&self, group: &ProcessGroup, device: Device) -> Result<Trainer, TrainError> {
        let samples = &self.dataset.manifest().samples;
        Trainer::new(self.settings, &self.graph, (samples.label_mean, samples.label_sd), group, device)
    }

    fn batches(&self, attempt: &AttemptDir, env: RankEnv, device: Device) -> Result<GraphBatches<'_>, Stop> {
        GraphBatches::new(attempt, env, device, self)
    }
}

/// What makes the batches of this rank.
pub(crate) struct GraphBatches<'a> {
    settings: &'a Settings,
    env: RankEnv,
    dataset: &'a Dataset,
    records: Arc<DatasetRecords>,
    schedule: Arc<Schedule>,
    assembler: Assembler,
    masks: Option<Arc<DeviceMaskMaker>>,
    buffer_bytes: u64,
    /// As [`Pinning`] takes it.
    pinned: Option<PinOptions>,
}

impl<'a> GraphBatches<'a> {
    fn new(attempt: &AttemptDir, env: RankEnv, device: Device, source: &'a GraphSource<'_>) -> Result<Self, Stop> {
        let GraphSource { settings, dataset, graph } = source;
        let options = &settings.loader;
        let masks = DeviceMaskMaker::new(settings.pipeline.device_masks, graph, device)?.map(Arc::new);
        let records = DatasetRecords::open(dataset, &settings.pipeline)?;
        let selection = select_samples(dataset, &settings.select)?;
        let samples = selection.len();
        let sampler = DistributedSampler {
            len: samples,
            world_size: env.world_size,
            rank: env.rank,
            shuffle: options.shuffle,
            seed: options.seed,
            drop_last: options.drop_last,
        };
        // In front of the buffers: what masks are made from takes of the memory that these share.
        let assembler = assembler(settings, env, graph)?;
        let buffer_bytes = buffer_bytes(settings, env);
        if env.rank == 0 {
            let read = data_read(dataset, settings, records.len(), samples, buffer_bytes)?;
            write_json(&attempt.data_path(), &read)?;
        }
        let schedule = Schedule::of_selection(selection, sampler, options.batch_size).ok_or_else(|| {
            let (ranks, batch) = (env.world_size, options.batch_size);
            Stop::Invalid(format!("{samples} selected samples do not fill a batch of {batch} on each of {ranks} ranks"))
        })?;
        let (records, schedule) = (Arc::new(records), Arc::new(schedule));
        let pinned = pinned(settings, device);
        Ok(Self { settings, env, dataset, records, schedule, assembler, masks, buffer_bytes, pinned })
    }

    /// This rank's share of the split `val`, of the same candidates and the same share of the subset, in order.
    fn validation(&self) -> Result<Option<Share>, Stop> {
        let select = Select { split: Split::Val, ..self.settings.select };
        let selection = select_samples(self.dataset, &select)?;
        if selection.is_empty() {
            let message =
                "the split `val` has no samples to validate on: set train.validate_every to 0, or more samples";
            return Err(Stop::Invalid(message.to_owned()));
        }
        // A rank deals its own share to itself alone: a sampler of all ranks would fill them up with repeated samples.
        let share = selection.share(self.env.rank, self.env.world_size);
        let sampler =
            DistributedSampler { len: share.len(), world_size: 1, rank: 0, shuffle: false, seed: 0, drop_last: false };
        let schedule = Schedule::of_selection(share, sampler, self.settings.loader.batch_size);
        Ok(schedule.map(|schedule| {
            let options = options(self.settings, self.buffer_bytes, 0, schedule.batches_per_epoch());
            let builder = GraphBatcher::new(self.records.clone(), Arc::new(schedule), self.assembler.clone());
            Share { builder, options }
        }))
    }
}

/// What makes batches of `graph`, within the memory that the settings leave for it.
fn assembler(settings: &Settings, env: RankEnv, graph: &Arc<CellGraph>) -> Result<Assembler, DatasetError> {
    let pipeline = &settings.pipeline;
    let gene_mask_bytes = gene_mask_bytes(settings, env);
    let options = GraphBatchOptions { gene_mask_bytes, ..graph_batch_options(pipeline)? };
    let assembler = Assembler::new(&options, Arc::clone(graph)).map_err(DatasetError::from);
    if pipeline.mask_source == MaskSource::Incidence {
        return assembler;
    }
    assembler.map_err(|problem| DatasetError::Advised {
        problem: Box::new(problem),
        advice: "set pipeline.gene_masks_mib higher where there is memory, or launch.ranks lower, take fewer edge types, or leave \
                 pipeline.mask_source out"
            .to_owned(),
    })
}

impl Batches for GraphBatches<'_> {
    type Builder = GraphBatcher;

    fn per_epoch(&self) -> u64 {
        self.schedule.batches_per_epoch()
    }

    fn start(&self, first: u64, offset: u64) -> Result<Loader<Pinning<GraphBatcher>>, Stop> {
        let builder = GraphBatcher::new(self.records.clone(), Arc::clone(&self.schedule), self.assembler.clone());
        let builder = if self.settings.profile.operations { builder.timing_operations() } else { builder };
        Ok(Loader::start(
            Pinning::new(builder, self.pinned),
            options_of_steps(self.settings, self.buffer_bytes, first, offset),
        )?)
    }

    fn step_masks(&self) -> Option<StepMasks<Batch>> {
        let masks = Arc::clone(self.masks.as_ref()?);
        Some(Box::new(move |batch: &Batch| masks.make(&batch.common)))
    }

    fn validator(&self) -> Result<Validator, Stop> {
        Ok(Validator::new(self.validation()?, self.masks.clone()))
    }
}
