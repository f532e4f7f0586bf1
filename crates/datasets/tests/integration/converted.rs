//! Data sets and stores to test on.

use std::ops::ControlFlow;
use std::path::Path;

use expctl_datasets::graph::{Conversion, Dataset, Recipe, StoreManifest, build};
use expctl_datasets::{BuildProgress, DatasetError};
use expctl_settings::{Data, LabelSource, Networks, Pipeline, Processor, StoreKind};

/// All kinds but the base store.
pub const MADE: [StoreKind; 4] = [StoreKind::Compressed, StoreKind::FullMasks, StoreKind::PackedMasks, StoreKind::Ids];

/// Progress that nobody follows.
pub fn quiet(_: BuildProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// The data set that ships, built under `parent`.
pub fn built(parent: &Path, samples: u64, scale: f64) -> Dataset {
    let recipe = Recipe::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/006-kuzmin-tmi")).unwrap();
    let data = Data {
        set: "006-kuzmin-tmi".to_owned(),
        samples,
        scale,
        networks: Networks::Completed,
        seed: 7,
        labels: LabelSource::Random,
        files: 1,
        genes: 0,
    };
    let folder = parent.join(data.folder_name());
    build(&recipe, &data, &folder, &mut quiet).unwrap();
    Dataset::open(&folder).unwrap()
}

/// Make a store.
pub fn convert(dataset: &Dataset, kind: StoreKind, jobs: usize) -> Result<StoreManifest, DatasetError> {
    Conversion::new(dataset, kind)?.run(jobs, &mut quiet)
}

/// Settings of a trial that reads it.
pub fn pipeline(store: StoreKind, edge_types: &[&str], metabolism: bool) -> Pipeline {
    let edge_types = edge_types.iter().map(|name| (*name).to_owned()).collect();
    Pipeline { store, metabolism, ..Pipeline::new(Processor::Lazy, edge_types) }
}
