//! What there is of the data that trials read, before anything is built.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use expctl_datasets::array::{ArrayDataset, ArrayRecipe};
use expctl_datasets::graph::{Dataset, Recipe, StoreManifest};
use expctl_datasets::{Damage, DatasetError, SettingError};
use expctl_settings::{Advice, Array, ArrayFormat, Data, NO_DATA_SET, Settings, StoreKind, Trial};

use crate::project::Project;

/// How a data set or a store stands.
#[derive(Debug)]
pub enum DataState<T = ()> {
    /// It is there.
    There(T),
    /// It is not there: it would be built.
    Missing,
    /// Something else is in its place, which building refuses: it is damaged, or was made from something else.
    Refused(DatasetError),
}

/// The form in which a trial reads a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StoredForm {
    /// Records of a graph, from a store of this kind.
    Graph(StoreKind),
    /// Rows of an array, from files of this format.
    Array(ArrayFormat),
}

impl StoredForm {
    /// What a trial reads; `None` if it reads files of its own, or brings its own data.
    pub fn from_settings(settings: &Settings) -> Option<Self> {
        if settings.data.set == NO_DATA_SET {
            return None;
        }
        match settings.reads_array() {
            true => settings.array.files.is_empty().then_some(Self::Array(settings.array.format)),
            false => Some(Self::Graph(settings.pipeline.store)),
        }
    }

    /// The word used in configs and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Graph(kind) => kind.name(),
            Self::Array(format) => format.name(),
        }
    }
}

/// Every folder that `trials` read records from, with how it stands: data sets, and the stores that were made from them.
pub fn data_states(project: &Project, trials: &[Trial]) -> BTreeMap<PathBuf, DataState> {
    let mut all = BTreeMap::new();
    // Files of an array that trials ask for, by folder; 0 where none asks for a number.
    let mut asked: BTreeMap<PathBuf, u32> = BTreeMap::new();
    for trial in trials {
        let (folder, data) = (&trial.data_dir, &trial.settings.data);
        let Some(form) = StoredForm::from_settings(&trial.settings) else { continue };
        if !all.contains_key(folder) {
            let found = match form {
                StoredForm::Graph(_) => graph_there(project, folder, data),
                StoredForm::Array(_) => array_there(project, folder, data),
            };
            all.insert(folder.clone(), base_state(found));
        }
        let kind = match form {
            StoredForm::Graph(kind) => kind,
            StoredForm::Array(format) => {
                let (files, count) = (ArrayDataset::store_folder_in(folder, format), trial.settings.array.file_count);
                let before = asked.get(&files).copied().unwrap_or(0);
                asked.insert(files.clone(), before.max(count));
                if before > 0 && count > 0 && before != count {
                    let problem = SettingError::FileCounts { first: before, second: count, folder: files.clone() };
                    let key = Array::FILE_COUNT.name();
                    all.insert(files, DataState::Refused(DatasetError::Setting { key, problem }));
                } else if format != ArrayFormat::H5ad && (count > before || !all.contains_key(&files)) {
                    all.insert(files, array_files_state(folder, format, count));
                }
                continue;
            }
        };
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

/// Whether the base store is there, built from the recipe as it is.
fn graph_there(project: &Project, folder: &Path, data: &Data) -> Result<(), DatasetError> {
    let dataset = Dataset::open(folder)?;
    same_recipe(folder, &dataset.manifest().recipe_blake3, &Recipe::load(&project.study(&data.set))?.digest(data)?)
}

/// Whether the base files of an array are there, built from the recipe as it is.
fn array_there(project: &Project, folder: &Path, data: &Data) -> Result<(), DatasetError> {
    let dataset = ArrayDataset::open(folder)?;
    let digest = ArrayRecipe::load(&project.study(&data.set))?.digest(data)?;
    same_recipe(folder, &dataset.manifest().recipe_blake3, &digest)?;
    dataset.store_files(ArrayFormat::H5ad).map(drop)
}

fn same_recipe(folder: &Path, built: &str, now: &str) -> Result<(), DatasetError> {
    if built == now {
        return Ok(());
    }
    Err(DatasetError::Damaged { path: folder.to_owned(), damage: Damage::OtherRecipe })
}

/// Files of another format, made from the base files; `count` of them, where that is not 0.
fn array_files_state(folder: &Path, format: ArrayFormat, count: u32) -> DataState {
    let path = ArrayDataset::store_folder_in(folder, format);
    match ArrayDataset::open(folder).map(|dataset| dataset.converted_of(format, count)) {
        Ok(Ok(Some(_))) => DataState::There(()),
        Ok(Ok(None)) if path.exists() => {
            let damage = Damage::NoManifest { contents: "holds no converted files" };
            DataState::Refused(DatasetError::Damaged { path, damage }.and(Advice::Remove))
        }
        Ok(Err(e)) => DataState::Refused(e),
        Ok(Ok(None)) | Err(_) => DataState::Missing,
    }
}

/// How a data set stands that was looked for.
fn base_state(found: Result<(), DatasetError>) -> DataState {
    match found {
        Ok(()) => DataState::There(()),
        Err(DatasetError::NotBuilt { path }) if path.exists() => {
            let damage = Damage::NoManifest { contents: "is no data set" };
            DataState::Refused(DatasetError::Damaged { path, damage }.and(Advice::Remove))
        }
        Err(e) if matches!(e.cause(), DatasetError::Damaged { .. }) => DataState::Refused(e),
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
            let problem = DatasetError::Damaged { path, damage: Damage::NoManifest { contents: "is no store" } };
            DataState::Refused(problem.advise(dataset.folder(), &dataset.manifest().data))
        }
        Ok(None) => DataState::Missing,
        Err(e) => DataState::Refused(e),
    }
}
