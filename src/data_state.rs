//! What there is of the data that trials read, before anything is built.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use expctl_pipeline::PipelineError;
use expctl_pipeline::dataset::{Dataset, Recipe, StoreManifest};
use expctl_record::{Data, StoreKind, Trial};

use crate::project::Project;

/// How a data set or a store stands.
#[derive(Debug)]
pub enum DataState<T = ()> {
    /// It is there.
    There(T),
    /// It is not there: it would be built.
    Missing,
    /// Something else is in its place, which building refuses: it is damaged, or was made from something else.
    Refused(PipelineError),
}

/// Every folder that `trials` read records from, with how it stands: data sets, and the stores that were made from them.
pub fn data_states(project: &Project, trials: &[Trial]) -> BTreeMap<PathBuf, DataState> {
    let mut all = BTreeMap::new();
    for trial in trials {
        let (folder, data, kind) = (&trial.data_dir, &trial.settings.data, trial.settings.pipeline.store);
        if !all.contains_key(folder) {
            all.insert(folder.clone(), base_state(project, folder, data));
        }
        let store = Dataset::store_folder_in(folder, kind);
        if kind != StoreKind::Json && !all.contains_key(&store) {
            let state = match Dataset::open(folder) {
                Ok(dataset) => match store_state(&dataset, kind) {
                    DataState::There(_) => DataState::There(()),
                    DataState::Missing => DataState::Missing,
                    DataState::Refused(e) => DataState::Refused(e),
                },
                Err(_) => DataState::Missing,
            };
            all.insert(store, state);
        }
    }
    all
}

/// The base store with all that lies beside it.
fn base_state(project: &Project, folder: &Path, data: &Data) -> DataState {
    let found = Dataset::open(folder).and_then(|dataset| {
        let digest = Recipe::load(&project.study(&data.set))?.digest(data)?;
        if dataset.manifest().recipe_blake3 == digest {
            return Ok(());
        }
        let reason = "was built from another state of the recipe; remove it to build again".to_owned();
        Err(PipelineError::Damaged { path: folder.to_owned(), reason })
    });
    match found {
        Ok(()) => DataState::There(()),
        Err(PipelineError::NotBuilt { path }) if path.exists() => {
            let reason = "exists, but is no data set (it has no manifest); remove it".to_owned();
            DataState::Refused(PipelineError::Damaged { path, reason })
        }
        Err(e @ PipelineError::Damaged { .. }) => DataState::Refused(e),
        // What cannot be looked at from here is left to who builds: in a chain that is another machine.
        Err(_) => DataState::Missing,
    }
}

/// A store that was made from the base store of `dataset`.
pub fn store_state(dataset: &Dataset, kind: StoreKind) -> DataState<StoreManifest> {
    let path = dataset.store_folder(kind);
    match dataset.converted(kind) {
        Ok(Some(manifest)) => DataState::There(manifest),
        Ok(None) if path.exists() => {
            let reason = "exists, but is no store (it has no manifest); remove it".to_owned();
            DataState::Refused(PipelineError::Damaged { path, reason })
        }
        Ok(None) => DataState::Missing,
        Err(e) => DataState::Refused(e),
    }
}
