use expctl_record::{Mode, Settings};
use loader_core::LoaderOptions;
use tch::Device;

use crate::device::{Gpu, PinOptions};
use crate::models::Network;
use expctl_record::RankEnv;
use expctl_record::free_memory;

/// So many MiB in bytes; of 0 a rank's share of six tenths of the memory that is free on its node.
fn bytes_of(mib: u64, settings: &Settings, env: RankEnv) -> u64 {
    match mib {
        0 => free_memory() / 10 * 6 / u64::from((env.world_size / settings.launch.nodes.max(1)).max(1)),
        mib => mib.saturating_mul(1 << 20),
    }
}

/// The most bytes that masks of single genes may take in a rank.
pub(super) fn gene_mask_bytes(settings: &Settings, env: RankEnv) -> u64 {
    bytes_of(settings.pipeline.gene_masks_mib, settings, env)
}

/// The most bytes that batches of a rank may take.
pub(super) fn buffer_bytes(settings: &Settings, env: RankEnv) -> u64 {
    let bytes = bytes_of(settings.loader.buffer_mib, settings, env);
    // The loader of the training batches stays while the one of the validation works: each has its half.
    let train = &settings.train;
    let validates = train.mode == Mode::Train && train.epochs > 0 && train.validate_every > 0;
    if validates { bytes / 2 } else { bytes }
}

/// A loader of the batches from `first` to the one in front of `steps`.
pub(super) fn options(settings: &Settings, buffer_bytes: u64, first: u64, steps: u64) -> LoaderOptions {
    let (workers, prefetch_factor) = (settings.loader.workers, settings.loader.prefetch_factor);
    LoaderOptions { workers, prefetch_factor, first, steps, buffer_bytes, buffer_name: "loader.buffer_mib" }
}

/// A loader for all steps of the trial from `first` on; in front of step 0 the schedule has `offset` batches.
pub(super) fn options_of_steps(settings: &Settings, buffer_bytes: u64, first: u64, offset: u64) -> LoaderOptions {
    let (loader, steps) = (&settings.loader, settings.measure.warmup + settings.measure.steps);
    // The threads stay as busy during the last steps as they are in the middle of an epoch: without this the last
    // batches would be built with ever fewer threads competing, and the rate would be flattered.
    let ahead = u64::from(loader.workers) * u64::from(loader.prefetch_factor.max(1));
    options(settings, buffer_bytes, offset + first, offset + steps + ahead)
}

/// What loader threads copy into page-locked memory; none where nothing is.
pub(super) fn pinned(settings: &Settings, device: Device) -> Option<PinOptions> {
    let gpu = Gpu::of(device).filter(|_| settings.loader.pin_memory && settings.train.mode != Mode::Data)?;
    Some(PinOptions { gpu, with_graphs: Network::reads_graphs(settings) })
}
