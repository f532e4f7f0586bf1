//! Samples of a graph as the data of a trial.

use std::path::PathBuf;
use std::sync::Arc;

use expctl_datasets::graph::{Dataset, DatasetRecords, select_samples, selected_count};
use expctl_datasets::{DatasetError, graph_batch_options};
use expctl_ledger::{AttemptDir, DataRead, FileSize, LedgerError, RankEnv, write_json};
use expctl_settings::{Select, Settings, Split, StoreKind, Trial};
use graph_loader::{Assembler, Batch, CellGraph, DistributedSampler, GraphBatchOptions, GraphBatcher, Schedule};
use loader_core::Loader;
use tch::Device;
use torch_dist::ProcessGroup;

use super::{
    RankBatches, StepMasks, TrialData, loader_options, max_buffer_bytes, memory_budget, pin_memory, step_loader_options,
};
use crate::device::{PinMemory, PinningBuilder};
use crate::device_masks::DeviceMaskMaker;
use crate::error::RankError;
use crate::trainer::{TrainError, Trainer};
use crate::training_run::{ValidationShare, Validator};

/// Samples of a graph.
pub struct GraphData<'a> {
    settings: &'a Settings,
    dataset: Dataset,
    graph: Arc<CellGraph>,
}

impl<'a> GraphData<'a> {
    /// Open the data set of `trial`.
    ///
    /// # Errors
    /// The data set is missing or damaged.
    pub fn open(trial: &'a Trial) -> Result<Self, RankError> {
        let settings = &trial.settings;
        let dataset = Dataset::open(&trial.data_dir).map_err(|e| e.advise(&trial.data_dir, &settings.data))?;
        let graph = Arc::new(dataset.graph_of(&settings.pipeline)?);
        Ok(Self { settings, dataset, graph })
    }
}

impl<'a> TrialData for GraphData<'a> {
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

    fn batches(&self, attempt: &AttemptDir, env: RankEnv, device: Device) -> Result<GraphBatches<'_>, RankError> {
        let Self { settings, dataset, graph } = self;
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
        // Before the buffers: the tables that masks are made from take of the memory that the buffers share.
        let assembler = assembler(settings, env, graph)?;
        let buffer_bytes = max_buffer_bytes(settings, env);
        if env.rank == 0 {
            let read = data_read(dataset, settings, records.len(), samples, buffer_bytes)?;
            write_json(&attempt.data_path(), &read)?;
        }
        let (ranks, batch) = (env.world_size, options.batch_size);
        let too_few = RankError::TooFewSamples { samples, batch, ranks };
        let schedule = Schedule::of_selection(selection, sampler, batch).ok_or(too_few)?;
        let (records, schedule) = (Arc::new(records), Arc::new(schedule));
        let pin_memory = pin_memory(settings, device);
        Ok(GraphBatches { settings, env, dataset, records, schedule, assembler, masks, buffer_bytes, pin_memory })
    }
}

/// The batches of samples of a rank.
pub struct GraphBatches<'a> {
    settings: &'a Settings,
    env: RankEnv,
    dataset: &'a Dataset,
    records: Arc<DatasetRecords>,
    schedule: Arc<Schedule>,
    assembler: Assembler,
    masks: Option<Arc<DeviceMaskMaker>>,
    buffer_bytes: u64,
    pin_memory: PinMemory,
}

impl GraphBatches<'_> {
    /// This rank's share of the split `val`, with the other settings of `select` as in training, in order.
    fn validation_share(&self) -> Result<Option<ValidationShare>, RankError> {
        let select = Select { split: Split::Val, ..self.settings.select };
        let selection = select_samples(self.dataset, &select)?;
        if selection.is_empty() {
            return Err(RankError::EmptyValidationSplit);
        }
        // A sampler of this rank's share alone: one of all ranks would fill them up with repeated samples.
        let share = selection.share(self.env.rank, self.env.world_size);
        let sampler =
            DistributedSampler { len: share.len(), world_size: 1, rank: 0, shuffle: false, seed: 0, drop_last: false };
        let schedule = Schedule::of_selection(share, sampler, self.settings.loader.batch_size);
        Ok(schedule.map(|schedule| {
            let options = loader_options(self.settings, self.buffer_bytes, 0, schedule.batches_per_epoch());
            let builder = GraphBatcher::new(self.records.clone(), Arc::new(schedule), self.assembler.clone());
            ValidationShare { builder, options }
        }))
    }
}

/// The assembler of batches of `graph`, within the memory that the settings allow for gene masks.
fn assembler(settings: &Settings, env: RankEnv, graph: &Arc<CellGraph>) -> Result<Assembler, DatasetError> {
    let gene_mask_bytes = memory_budget(settings.pipeline.gene_masks_mib, settings, env);
    let options = GraphBatchOptions { gene_mask_bytes, ..graph_batch_options(&settings.pipeline)? };
    Ok(Assembler::new(&options, Arc::clone(graph))?)
}

impl RankBatches for GraphBatches<'_> {
    type Builder = GraphBatcher;

    fn per_epoch(&self) -> u64 {
        self.schedule.batches_per_epoch()
    }

    fn start(&self, first: u64, offset: u64) -> Result<Loader<PinningBuilder<GraphBatcher>>, RankError> {
        let builder = GraphBatcher::new(self.records.clone(), Arc::clone(&self.schedule), self.assembler.clone());
        let builder = if self.settings.profile.operations { builder.timing_operations() } else { builder };
        Ok(Loader::start(
            PinningBuilder::new(builder, self.pin_memory),
            step_loader_options(self.settings, self.buffer_bytes, first, offset),
        )?)
    }

    fn step_masks(&self) -> Option<StepMasks<Batch>> {
        let masks = Arc::clone(self.masks.as_ref()?);
        Some(Box::new(move |batch: &Batch| masks.make(&batch.common)))
    }

    fn validator(&self) -> Result<Validator, RankError> {
        Ok(Validator::new(self.validation_share()?, self.masks.clone()))
    }
}

/// Record of the data that this attempt reads: `selected` of the `records` of a store; batches take at most `buffer_bytes` together.
fn data_read(
    dataset: &Dataset,
    settings: &Settings,
    records: u64,
    selected: u64,
    buffer_bytes: u64,
) -> Result<DataRead, LedgerError> {
    let base = dataset.store_file(StoreKind::Json);
    let store = settings.pipeline.store;
    Ok(DataRead {
        store: Some(store),
        records,
        selected,
        asked: selected_count(&settings.select),
        buffer_bytes,
        size: FileSize::from_path(&dataset.store_file(store))?,
        // A data set may have been copied here without it.
        base_size: if base.is_file() { Some(FileSize::from_path(&base)?) } else { None },
        array: None,
    })
}
