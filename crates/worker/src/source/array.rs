//! Rows of an array as the data of a trial.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anndata_io::{ArrayStore, Labels};
use cell_loader::{CellBatcher, CellError, RowSampler, Sharding, ShuffleMeter};
use expctl_datasets::array::{ArrayDataset, open};
use expctl_datasets::{DatasetError, SettingError, cell_batch_options, ledger_shuffle, row_draw};
use expctl_ledger::{ArrayRead, AttemptDir, DataRead, FileSize, RankEnv, ShuffleQuality, write_json};
use expctl_settings::{Data, Draw, Settings, Trial, is_url};
use host_metrics::free_memory;
use loader_core::{Batcher, Interval, Loaded, Loader, LoaderOptions, Reader, Stage};
use tch::Device;
use torch_dist::ProcessGroup;

use super::{RankBatches, StepMasks, TrialData, max_buffer_bytes, pin_memory, step_loader_options};
use crate::device::{PinMemory, PinningBuilder};
use crate::error::RankError;
use crate::models::Network;
use crate::models::array::RowBatch;
use crate::session::ranks_per_node;
use crate::trainer::{TrainError, Trainer};
use crate::training_run::Validator;

/// Maximum number of rows of the first epoch that the quality of its shuffling is measured on.
const MAX_METERED_ROWS: u64 = 1_000_000;

/// Rows of an array.
pub struct ArrayData<'a> {
    settings: &'a Settings,
    files: Vec<PathBuf>,
    store: Arc<dyn ArrayStore>,
    /// The columns that `array.labels` names, in its order.
    labels: Arc<Vec<Labels>>,
}

impl<'a> ArrayData<'a> {
    /// Open the files of `trial`: those that it lists, or those of its data set; read them into memory where it says so.
    ///
    /// # Errors
    /// A file is missing or damaged; files do not fit together, or into memory; a label column is missing.
    pub fn open(trial: &'a Trial, env: RankEnv) -> Result<Self, RankError> {
        let settings = &trial.settings;
        let array = &settings.array;
        let files = match array.files.as_slice() {
            [] => {
                let dataset =
                    ArrayDataset::open(&trial.data_dir).map_err(|e| e.advise(&trial.data_dir, &settings.data))?;
                dataset.store_files_of(array.format, array.file_count)?
            }
            listed => listed.iter().map(PathBuf::from).collect(),
        };
        let node_ranks = ranks_per_node(settings, env) as usize;
        let threads = std::thread::available_parallelism().map_or(1, usize::from).div_ceil(node_ranks);
        let store = open(array, &files, threads, free_memory() / node_ranks as u64)?;
        let remote = array.files.iter().any(|file| is_url(file));
        if remote && store.len() != settings.data.samples {
            let problem = SettingError::RowCount { rows: store.len(), stated: settings.data.samples };
            return Err(DatasetError::Setting { key: Data::SAMPLES.name(), problem }.into());
        }
        let labels = Labels::from_store(store.as_ref(), &array.labels)?;
        Ok(Self { settings, files, store, labels })
    }

    /// Number of values of a row of a batch.
    fn row_width(&self) -> u64 {
        match self.settings.array.genes.len() {
            0 => self.store.genes().len() as u64,
            chosen => chosen as u64,
        }
    }

    fn sharding(&self, env: RankEnv) -> Sharding {
        let options = &self.settings.loader;
        Sharding {
            seed: options.seed,
            rank: env.rank,
            world_size: env.world_size,
            batch_size: options.batch_size,
            drop_last: options.drop_last,
        }
    }

    /// Record of the data that this attempt reads; batches take at most `buffer_bytes` together.
    fn data_read(&self, buffer_bytes: u64) -> Result<DataRead, RankError> {
        let array = &self.settings.array;
        let rows = self.store.len();
        Ok(DataRead {
            store: None,
            records: rows,
            selected: rows,
            asked: None,
            buffer_bytes,
            size: self.file_size()?,
            base_size: None,
            array: Some(ArrayRead {
                format: array.format,
                files: self.files.len() as u64,
                genes: self.row_width(),
                classes: self.labels.iter().map(|labels| labels.categories.len() as u64).collect(),
                resident_bytes: self.store.resident().map(|rows| rows.bytes()),
            }),
        })
    }

    /// Size of the files; for remote files the size of their matrices, which takes no disk space here.
    fn file_size(&self) -> Result<FileSize, RankError> {
        if self.settings.array.files.iter().any(|file| is_url(file)) {
            return Ok(FileSize { apparent_bytes: self.store.stored_bytes(), allocated_bytes: 0 });
        }
        Ok(FileSize::from_paths(self.files.iter().map(PathBuf::as_path))?)
    }

    /// Quality of the shuffling of this rank's first epoch, measured on at most [`MAX_METERED_ROWS`] rows.
    fn shuffle_quality(&self, sampler: &RowSampler) -> ShuffleQuality {
        let labels = self.settings.array.labels.first().map(String::as_str).zip(self.labels.first());
        let batches = (MAX_METERED_ROWS / sampler.batch_size().max(1)).clamp(1, sampler.batches_per_epoch());
        let mut meter = ShuffleMeter::new(sampler, self.store.len(), labels);
        let mut rows = Vec::new();
        for step in 0..batches {
            rows.clear();
            sampler.batch(step, &mut rows);
            meter.add(&rows);
        }
        ledger_shuffle(meter.finish())
    }
}

impl<'a> TrialData for ArrayData<'a> {
    type Batches<'b>
        = ArrayBatches<'b>
    where
        'a: 'b;

    fn files(&self) -> Vec<PathBuf> {
        let local = |file: &&PathBuf| !file.to_str().is_some_and(is_url);
        self.files.iter().filter(local).cloned().collect()
    }

    fn trainer(&self, group: &ProcessGroup, device: Device) -> Result<Trainer, TrainError> {
        let classes = self.labels.first().map_or(0, |labels| labels.categories.len() as u64);
        Trainer::new_array(self.settings, self.row_width(), classes, group, device)
    }

    fn batches(&self, attempt: &AttemptDir, env: RankEnv, device: Device) -> Result<ArrayBatches<'_>, RankError> {
        let settings = self.settings;
        let column = settings.array.labels.iter().position(|column| *column == settings.sampler.by);
        let classes = column.and_then(|column| self.labels.get(column));
        let sampler = RowSampler::new(&row_draw(&settings.sampler)?, self.store.as_ref(), self.sharding(env), classes)?;
        let sampler = Arc::new(sampler);
        if settings.sampler.draw == Draw::Balanced && sampler.left_out() > 0 && env.rank == 0 {
            let (column, rows) = (&settings.sampler.by, sampler.left_out());
            tracing::warn!("{rows} rows have no class in {column}: they are never drawn");
        }
        let options = cell_batch_options(&settings.array);
        let builder =
            CellBatcher::new(Arc::clone(&self.store), Arc::clone(&sampler), &options, Arc::clone(&self.labels))?;
        let builder = RowBuilder::new(builder, Network::max_tokens(settings));
        let buffer_bytes = max_buffer_bytes(settings, env);
        if env.rank == 0 {
            write_json(&attempt.data_path(), &self.data_read(buffer_bytes)?)?;
            write_json(&attempt.shuffle_path(), &self.shuffle_quality(&sampler))?;
        }
        Ok(ArrayBatches { settings, sampler, builder, buffer_bytes, pin_memory: pin_memory(settings, device) })
    }
}

/// The batches of rows of a rank.
pub struct ArrayBatches<'a> {
    settings: &'a Settings,
    sampler: Arc<RowSampler>,
    builder: RowBuilder,
    buffer_bytes: u64,
    pin_memory: PinMemory,
}

impl RankBatches for ArrayBatches<'_> {
    type Builder = RowBuilder;

    fn per_epoch(&self) -> u64 {
        self.sampler.batches_per_epoch()
    }

    fn start(&self, first: u64, offset: u64) -> Result<Loader<PinningBuilder<RowBuilder>>, RankError> {
        let options = step_loader_options(self.settings, self.buffer_bytes, first, offset);
        Ok(Loader::start(PinningBuilder::new(self.builder.clone(), self.pin_memory), options)?)
    }

    fn step_masks(&self) -> Option<StepMasks<RowBatch>> {
        None
    }

    fn validator(&self) -> Result<Validator, RankError> {
        Err(RankError::NoValidationSplit)
    }
}

/// Builds batches of rows in the form that the model reads, tokens included, on the loader threads.
#[derive(Clone)]
pub struct RowBuilder {
    builder: CellBatcher,
    /// Maximum number of tokens of a row; `None` where the model reads all values.
    max_tokens: Option<usize>,
}

impl RowBuilder {
    /// Wrap `builder`, for a model that reads at most `max_tokens` tokens of a row, or all its values.
    fn new(builder: CellBatcher, max_tokens: Option<usize>) -> Self {
        Self { builder, max_tokens }
    }
}

impl Batcher for RowBuilder {
    type Dataset = <CellBatcher as Batcher>::Dataset;
    type Batch = RowBatch;
    type Error = CellError;

    fn dataset(&self) -> Arc<Self::Dataset> {
        self.builder.dataset()
    }

    fn empty(&self) -> RowBatch {
        RowBatch { rows: self.builder.empty(), tokens: None }
    }

    fn clock(&self) -> Instant {
        self.builder.clock()
    }

    fn bytes(batch: &RowBatch) -> u64 {
        batch.bytes()
    }

    fn starting(&mut self, options: &LoaderOptions) {
        self.builder.starting(options);
    }

    fn stop(&self, from: u64) {
        self.builder.stop(from);
    }

    fn build(
        &mut self,
        reader: &mut Reader<'_, Self>,
        step: u64,
        batch: RowBatch,
    ) -> Result<Loaded<RowBatch>, CellError> {
        let RowBatch { rows, mut tokens } = batch;
        let loaded = self.builder.build(reader, step, rows)?;
        let Loaded { batch: rows, step, epoch, thread, bytes_read, work_bytes, mut intervals, operations, exposed } =
            loaded;
        if let Some(max_tokens) = self.max_tokens {
            let start = self.now();
            tokens.get_or_insert_default().set(&rows, max_tokens);
            intervals.push(Interval { stage: Stage::Collate, start, end: self.now(), busy: true });
        }
        let batch = RowBatch { rows, tokens };
        Ok(Loaded { batch, step, epoch, thread, bytes_read, work_bytes, intervals, operations, exposed })
    }
}
