use std::path::PathBuf;
use std::sync::Arc;

use anndata_io::{ArrayStore, Labels};
use cell_loader::{CellBatcher, RowSampler, Sharding, ShuffleMeter};
use expctl_datasets::array::{ArrayDataset, open};
use expctl_datasets::{DatasetError, cell_batch_options, ledger_shuffle, row_draw};
use expctl_dist::ProcessGroup;
use expctl_record::{
    ArrayRead, AttemptDir, DataRead, Draw, FileSize, RankEnv, Settings, ShuffleQuality, Trial, is_url, write_json,
};
use loader_core::Loader;
use tch::Device;

use super::options::{buffer_bytes, options_of_steps, pinned};
use super::row_builder::RowBuilder;
use super::{Batches, Source, StepMasks};
use crate::device::{PinOptions, Pinning};
use crate::models::Network;
use crate::models::array::RowBatch;
use crate::stop::Stop;
use crate::trainer::{TrainError, Trainer};
use crate::training::Validator;
use host_metrics::free_memory;

/// Rows of the first epoch that the quality of its shuffling is taken from, at most.
const METERED_ROWS: u64 = 1_000_000;

/// Rows of an array.
pub(crate) struct ArraySource<'a> {
    settings: &'a Settings,
    files: Vec<PathBuf>,
    store: Arc<dyn ArrayStore>,
    /// Those of `array.labels`, in its order.
    labels: Arc<Vec<Labels>>,
}

impl<'a> ArraySource<'a> {
    /// Open the files of `trial`: its own, or those of its data set; read them into memory where it says so.
    ///
    /// # Errors
    /// They are not there, damaged, or do not fit together; a label column is missing; they do not fit into memory.
    pub(crate) fn open(trial: &'a Trial, env: RankEnv) -> Result<Self, Stop> {
        let settings = &trial.settings;
        let array = &settings.array;
        let files = match array.files.as_slice() {
            [] => {
                let dataset =
                    ArrayDataset::open(&trial.data_dir).map_err(|e| e.advise(&trial.data_dir, &settings.data))?;
                dataset.store_files_of(array.format, array.file_count)?
            }
            own => own.iter().map(PathBuf::from).collect(),
        };
        let ranks_here = (env.world_size / settings.launch.nodes.max(1)).max(1) as usize;
        let threads = std::thread::available_parallelism().map_or(1, usize::from).div_ceil(ranks_here);
        let store = open(array, &files, threads, free_memory() / ranks_here as u64)?;
        let remote = array.files.iter().any(|file| is_url(file));
        if remote && store.len() != settings.data.samples {
            let (said, rows) = (settings.data.samples, store.len());
            let reason = format!("array.files have {rows} rows, and data.samples says {said}: set it to {rows}");
            return Err(DatasetError::Invalid(reason).into());
        }
        let labels = Labels::from_store(store.as_ref(), &array.labels)?;
        Ok(Self { settings, files, store, labels })
    }

    /// Values of a row of a batch.
    fn columns(&self) -> u64 {
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

    /// What this attempt reads, in batches of together at most `buffer_bytes`.
    fn read(&self, buffer_bytes: u64) -> Result<DataRead, Stop> {
        let array = &self.settings.array;
        let rows = self.store.len();
        Ok(DataRead {
            store: None,
            records: rows,
            selected: rows,
            asked: None,
            buffer_bytes,
            size: self.size()?,
            base_size: None,
            array: Some(ArrayRead {
                format: array.format,
                files: self.files.len() as u64,
                genes: self.columns(),
                classes: self.labels.iter().map(|labels| labels.categories.len() as u64).collect(),
                resident_bytes: self.store.resident().map(|rows| rows.bytes()),
            }),
        })
    }

    /// Size of the files; of remote ones that of their matrices, which takes nothing of a disk here.
    fn size(&self) -> Result<FileSize, Stop> {
        if self.settings.array.files.iter().any(|file| is_url(file)) {
            return Ok(FileSize { apparent_bytes: self.store.stored_bytes(), allocated_bytes: 0 });
        }
        Ok(FileSize::from_paths(self.files.iter().map(PathBuf::as_path))?)
    }

    /// How well the first epoch of this rank is shuffled, or its first batches where it is a long one.
    fn shuffle(&self, sampler: &RowSampler) -> ShuffleQuality {
        let labels = self.settings.array.labels.first().map(String::as_str).zip(self.labels.first());
        let batches = (METERED_ROWS / sampler.batch_size().max(1)).clamp(1, sampler.batches_per_epoch());
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

impl<'a> Source for ArraySource<'a> {
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
        Trainer::of_array(self.settings, self.columns(), classes, group, device)
    }

    fn batches(&self, attempt: &AttemptDir, env: RankEnv, device: Device) -> Result<ArrayBatches<'_>, Stop> {
        let settings = self.settings;
        let known = settings.array.labels.iter().position(|column| *column == settings.sampler.by);
        let classes = known.and_then(|column| self.labels.get(column));
        let sampler = RowSampler::new(&row_draw(&settings.sampler)?, self.store.as_ref(), self.sharding(env), classes)?;
        let sampler = Arc::new(sampler);
        if settings.sampler.draw == Draw::Balanced && sampler.left_out() > 0 && env.rank == 0 {
            let (column, rows) = (&settings.sampler.by, sampler.left_out());
            tracing::warn!("{rows} rows have no class in {column}: they are never drawn");
        }
        let builder = CellBatcher::new(
            Arc::clone(&self.store),
            Arc::clone(&sampler),
            &cell_batch_options(&settings.array),
            Arc::clone(&self.labels),
        )?;
        let builder = RowBuilder::new(builder, Network::token_limit(settings));
        let buffer_bytes = buffer_bytes(settings, env);
        if env.rank == 0 {
            write_json(&attempt.data_path(), &self.read(buffer_bytes)?)?;
            write_json(&attempt.shuffle_path(), &self.shuffle(&sampler))?;
        }
        Ok(ArrayBatches { settings, sampler, builder, buffer_bytes, pinned: pinned(settings, device) })
    }
}

/// What makes the batches of this rank.
pub(crate) struct ArrayBatches<'a> {
    settings: &'a Settings,
    sampler: Arc<RowSampler>,
    builder: RowBuilder,
    buffer_bytes: u64,
    /// As [`Pinning`] takes it.
    pinned: Option<PinOptions>,
}

impl Batches for ArrayBatches<'_> {
    type Builder = RowBuilder;

    fn per_epoch(&self) -> u64 {
        self.sampler.batches_per_epoch()
    }

    fn start(&self, first: u64, offset: u64) -> Result<Loader<Pinning<RowBuilder>>, Stop> {
        let options = options_of_steps(self.settings, self.buffer_bytes, first, offset);
        Ok(Loader::start(Pinning::new(self.builder.clone(), self.pinned), options)?)
    }

    fn step_masks(&self) -> Option<StepMasks<RowBatch>> {
        None
    }

    fn validator(&self) -> Result<Validator, Stop> {
        Err(Stop::Invalid("rows of an array have no split to validate on: set train.validate_every to 0".to_owned()))
    }
}
