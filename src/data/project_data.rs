//! [`ProjectData`]: answers to what configs and programs ask about the data of a project: recipes, the user's files and their rows.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anndata_io::remote::check_url;
use anndata_io::{ArrayStore, MDS_INDEX_FILE, MatrixFile, MdsStore, ParquetStore, zarr};
use expctl_config::{ArrayRefusal, GraphDataSet, ProjectFiles, ProjectFolders, Reason};
use expctl_datasets::array::{ArrayDataset, ArrayRecipe, Refusal, rehearse};
use expctl_datasets::graph::{Dataset, Recipe};
use expctl_settings::{Array, Settings, Trial, is_url};

use crate::data::recorded_steps::step_times;
use crate::exit::Failure;
use crate::launch::command::TrialFiles;
use crate::project::Project;

/// A project with its data.
#[derive(Clone, Copy, Debug)]
pub struct ProjectData<'a>(pub &'a Project);

impl ProjectFiles for ProjectData<'_> {
    fn folders(&self) -> &dyn ProjectFolders {
        self.0
    }

    fn graph_data_set(&self, folder: &Path) -> Result<GraphDataSet, Reason> {
        let recipe = Recipe::load(folder)?;
        Ok(GraphDataSet {
            networks: recipe.network.into_iter().map(|network| network.name).collect(),
            samples: recipe.samples.count,
            genes: recipe.genes,
            genes_per_sample: recipe.samples.genes_per_sample,
        })
    }

    fn array_data_set(&self, folder: &Path) -> Result<u64, Reason> {
        Ok(ArrayRecipe::load(folder)?.rows)
    }

    fn array_files(&self, named: &str) -> Result<Vec<PathBuf>, Reason> {
        matching(self.0.root(), named)
    }

    fn is_zarr(&self, path: &Path) -> bool {
        zarr::is_zarr(path)
    }

    fn rows(&self, file: &Path, layer: &str) -> Result<u64, Reason> {
        count_rows(file, layer)
    }

    fn array_refusals(&self, settings: &Settings) -> Vec<ArrayRefusal> {
        let array = &settings.array;
        let files = if array.files.is_empty() {
            let dataset = ArrayDataset::open(&self.0.data_dir(&settings.data));
            let files = dataset.and_then(|dataset| dataset.store_files_of(array.format, array.file_count));
            let Ok(files) = files else { return Vec::new() };
            files
        } else if array.files.iter().any(|named| is_url(named)) {
            return Vec::new();
        } else {
            array.files.iter().flat_map(|named| matching(self.0.root(), named).unwrap_or_default()).collect()
        };
        let mut refusals = rehearse(settings, &files);
        // Damage of a data set that expctl built is no matter of the config: `submit` and `data verify` name it.
        refusals.retain(|refusal| !(array.files.is_empty() && refusal.key == Array::FILES.name()));
        let of_config = |Refusal { key, problem }: Refusal| {
            let text = problem.to_string();
            let message = text.strip_prefix(key).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&text);
            ArrayRefusal { key, message: message.to_owned() }
        };
        refusals.into_iter().map(of_config).collect()
    }

    fn step_times(&self, named: &str) -> Result<Vec<f64>, Reason> {
        Ok(step_times(self.0, named)?)
    }
}

impl TrialFiles for ProjectData<'_> {
    fn array_files(&self, trial: &Trial) -> Result<Vec<PathBuf>, Failure> {
        let array = &trial.settings.array;
        let dataset = ArrayDataset::open(&trial.data_dir).map_err(Failure::internal)?;
        dataset.store_files_of(array.format, array.file_count).map_err(Failure::internal)
    }

    fn graph_store(&self, trial: &Trial) -> Result<PathBuf, Failure> {
        let dataset = Dataset::open(&trial.data_dir).map_err(Failure::internal)?;
        Ok(dataset.store_file(trial.settings.pipeline.store))
    }
}

/// Genes of the graphs that recipes make; each recipe is read once.
pub struct RecipeGenes<'a> {
    project: &'a Project,
    /// By name; none for a recipe that cannot be read.
    read: BTreeMap<String, Option<Recipe>>,
}

impl<'a> RecipeGenes<'a> {
    /// Of the recipes of a project; none is read yet.
    pub const fn new(project: &'a Project) -> Self {
        Self { project, read: BTreeMap::new() }
    }

    /// Genes of the graph that a trial with these settings reads; none of an array, and without a recipe.
    pub fn of(&mut self, settings: &Settings) -> Option<u64> {
        if settings.reads_array() {
            return None;
        }
        let (project, set) = (self.project, &settings.data.set);
        let recipe = self.read.entry(set.clone()).or_insert_with(|| Recipe::load(&project.study(set)).ok());
        recipe.as_ref().map(|recipe| recipe.genes_at(settings.data.scale))
    }
}

/// Rows of a file; nothing of its values is read.
fn count_rows(file: &Path, layer: &str) -> Result<u64, Reason> {
    let layer = if layer.is_empty() { "X" } else { layer };
    if zarr::is_zarr(file) {
        return Ok(zarr::size(file, layer)?.0);
    }
    if file.is_dir() {
        return Ok(MdsStore::rows(file)?);
    }
    if file.extension().is_some_and(|extension| extension == "parquet") {
        return Ok(ParquetStore::open(file)?.len());
    }
    Ok(MatrixFile::size(file, layer)?.0)
}

/// The files that `named` stands for, below `root`: itself, or, where there is no such file and it has `*`, `?` or `[…]`, all
/// that fit, sorted by name. A folder in zarr, or with MDS shards, is one, too. A URL is itself: whether there is such an object
/// is seen when it is read.
///
/// # Errors
/// There is none, or it is no pattern; the message says which.
fn matching(root: &Path, named: &str) -> Result<Vec<PathBuf>, Reason> {
    if is_url(named) {
        return check_object(named).map(|()| vec![PathBuf::from(named)]);
    }
    let path = root.join(named);
    if is_file(&path) {
        return Ok(vec![path]);
    }
    if !named.contains(['*', '?', '[']) {
        return Err(format!("there is no file {named}").into());
    }
    // The root's own name is not a pattern.
    let pattern = if Path::new(named).is_absolute() {
        named.to_owned()
    } else {
        format!("{}/{named}", glob::Pattern::escape(&root.to_string_lossy()))
    };
    let found = glob::glob(&pattern).map_err(|e| format!("`{named}` is no pattern: {e}"))?;
    let mut files = found.collect::<Result<Vec<PathBuf>, _>>()?;
    files.retain(|file| is_file(file));
    files.sort();
    if files.is_empty() { Err(format!("no file matches {named}").into()) } else { Ok(files) }
}

/// A file, or a folder that is read as one.
fn is_file(path: &Path) -> bool {
    path.is_file() || zarr::is_zarr(path) || path.join(MDS_INDEX_FILE).is_file()
}

/// A URL that can be read without looking at it: one object, and no secret in it.
fn check_object(named: &str) -> Result<(), Reason> {
    check_url(named)?;
    match named.contains(['*', '?', '[']) {
        true => Err(format!("{named}: patterns are for local files; objects are named one by one").into()),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_expanded_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("a[b]");
        std::fs::create_dir_all(root.join("data/c.h5ad")).unwrap();
        for name in ["data/b.h5ad", "data/a.h5ad", "data/a.txt", "data/[x].h5ad"] {
            std::fs::write(root.join(name), "").unwrap();
        }
        std::fs::create_dir_all(root.join("shards/b")).unwrap();
        std::fs::create_dir_all(root.join("shards/a/raw")).unwrap();
        std::fs::write(root.join("shards/b/index.json"), "").unwrap();
        let matching = |named: &str| matching(&root, named).map_err(|reason| reason.to_string());
        let names = |named: &str| -> Result<Vec<String>, String> {
            let files = matching(named)?;
            Ok(files.iter().map(|f| f.file_name().unwrap().to_string_lossy().into_owned()).collect::<Vec<_>>())
        };
        assert_eq!(names("data/*.h5ad"), Ok(vec!["[x].h5ad".to_owned(), "a.h5ad".to_owned(), "b.h5ad".to_owned()]));
        assert_eq!(names("data/[x].h5ad").unwrap(), ["[x].h5ad"]);
        assert_eq!(
            (names("shards/*").unwrap(), names("shards/b").unwrap()),
            (vec!["b".to_owned()], vec!["b".to_owned()])
        );
        assert!(names("data/d.h5ad").unwrap_err().contains("there is no file"));
        assert!(names("data/*.zarr").unwrap_err().contains("no file matches"));
        for (folder, name) in
            [("x.zarr", "zarr.json"), ("x.zarr/dataset_0", "zarr.json"), ("y.zarr", ".zgroup"), ("z.zarr", "z")]
        {
            std::fs::create_dir_all(root.join("data").join(folder)).unwrap();
            std::fs::write(root.join("data").join(folder).join(name), "").unwrap();
        }
        assert_eq!(names("data/*.zarr").unwrap(), ["x.zarr", "y.zarr"]);
        assert_eq!(names("data/x.zarr/dataset_*").unwrap(), ["dataset_0"]);
        assert_eq!(names("data/y.zarr").unwrap(), ["y.zarr"]);
        assert!(names("data/[.h5ad").unwrap_err().contains("is no pattern"));
        assert_eq!(matching("s3://b/c.h5ad"), Ok(vec![PathBuf::from("s3://b/c.h5ad")]));
        assert!(matching("s3://b/*.h5ad").unwrap_err().contains("one by one"));
        assert!(!matching("https://u:hunter2@h/c.h5ad").unwrap_err().contains("hunter2"));
    }
}
