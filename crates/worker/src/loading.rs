use std::sync::Arc;

use expctl_pipeline::collate::Assembler;
use expctl_pipeline::dataset::Dataset;
use expctl_pipeline::graph::CellGraph;
use expctl_pipeline::loader::{BatchBuilder, DatasetRecords, Loader, LoaderOptions};
use expctl_pipeline::sampler::{DistributedSampler, Schedule, Selection};
use expctl_record::{AttemptDir, Settings, write_json};

use crate::data_read::data_read;
use crate::hardware::free_memory;
use crate::rank_env::RankEnv;
use crate::stop::Stop;

/// Start loading the batches of this rank from step `first` on; rank 0 writes down what is read. Returns the batches of an
/// epoch as well.
///
/// # Errors
/// The store or the selection cannot be read, or no batch can be filled from it.
pub fn start_loader(
    attempt: &AttemptDir,
    settings: &Settings,
    env: RankEnv,
    dataset: &Dataset,
    graph: Arc<CellGraph>,
    first: u64,
) -> Result<(Loader, u64), Stop> {
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
    if env.rank == 0 {
        let read = data_read(dataset, settings, records.len(), samples, buffer_bytes)?;
        write_json(&attempt.data_path(), &read)?;
    }
    let schedule = Schedule::of(selection, sampler, options.batch_size).ok_or_else(|| {
        let (ranks, batch) = (env.world_size, options.batch_size);
        Stop::Invalid(format!("{samples} selected samples do not fill a batch of {batch} on each of {ranks} ranks"))
    })?;
    let epoch_batches = schedule.batches_per_epoch();
    let assembler = Assembler::new(&settings.pipeline, graph)?;
    let builder = BatchBuilder::new(Arc::new(records), Arc::new(schedule), assembler);
    let steps = settings.measure.warmup + settings.measure.steps;
    // The threads stay as busy during the last steps as they are in the middle of an epoch: without this the last
    // batches would be built with ever fewer threads competing, and the rate would be flattered.
    let ahead = u64::from(options.workers) * u64::from(options.prefetch_factor.max(1));
    let (workers, prefetch_factor) = (options.workers, options.prefetch_factor);
    let options = LoaderOptions { workers, prefetch_factor, first, steps: steps + ahead, buffer_bytes };
    Ok((Loader::start(builder, options)?, epoch_batches))
}
