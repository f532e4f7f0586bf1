use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anndata_io::{MatrixFile, MdsStore, zarr};
use expctl_datasets::DatasetError;
use expctl_datasets::array::ArrayRecipe;
use expctl_datasets::graph::Recipe;
use expctl_record::GraphType;
use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::Value as Json;

use super::array_rules::reads_array;
use super::mask_rules::types_of_graph;
use super::problem::Problem;
use super::resolve::Place;
use super::source::Origin;
use super::suggest::closest;
use super::values::Values;
use super::worker_rules::{NO_DATA_SET, runs_command};
use crate::project::Project;

/// Judges whole settings against each other and against what is on disk, and fills in what is derived.
pub(super) struct Judge<'a> {
    project: &'a Project,
    place: &'a Place,
    /// None for a recipe that could not be read.
    recipes: BTreeMap<String, Option<Arc<Recipe>>>,
    array_recipes: BTreeMap<String, Option<Arc<ArrayRecipe>>>,
    /// Rows of own files, by file and layer.
    file_rows: BTreeMap<(PathBuf, String), Result<u64, String>>,
}

/// Steps of warm-up where nothing calls for more.
const USUAL_WARM_UP: u64 = 10;

impl<'a> Judge<'a> {
    pub fn new(project: &'a Project, place: &'a Place) -> Self {
        Self { project, place, recipes: BTreeMap::new(), array_recipes: BTreeMap::new(), file_rows: BTreeMap::new() }
    }

    /// Complete `values` and report what is wrong with them. The same problem of several runs is reported once, because
    /// equal problems are.
    pub fn judge(&mut self, values: &mut Values, problems: &mut Vec<Problem>) {
        if !values.has("experiment.study") {
            values.derive("experiment.study", values.get("data.set").cloned());
        }
        self.study(values, problems);
        self.family(values, problems);
        self.command(values, problems);
        if runs_command(values) {
            self.data_of_command(values, problems);
        } else if reads_array(values) {
            self.data_of_array(values, problems);
        } else {
            self.data_of_graph(values, problems);
        }
        if !runs_command(values) {
            self.device(values, problems);
        }
        self.batches(values, problems);
        self.warm_up(values, problems);
        self.sampling(values, problems);
        self.cold_cache(values, problems);
        self.epochs(values, problems);
        self.schedule(values, problems);
        self.profiler(values, problems);
        self.operations(values, problems);
    }

    /// The array, and what reads it.
    fn data_of_array(&mut self, values: &mut Values, problems: &mut Vec<Problem>) {
        self.array(values, problems);
        self.rows_of_array(values, problems);
        self.model_sizes(values);
        self.heads(values, problems);
        self.nodes(values, problems);
        self.existing_file(values, "train.start_from", problems);
    }

    /// How many rows the array has.
    pub(super) fn rows_of_array(&mut self, values: &mut Values, problems: &mut Vec<Problem>) {
        if values.texts("array.files").is_some_and(|files| files.is_empty()) {
            let recipe = self.array_recipe(values, problems);
            if !values.has("data.samples") {
                values.derive("data.samples", recipe.as_ref().map(|recipe| Json::from(recipe.rows)));
            }
            if let (Some(rows), Some(files)) = (values.number("data.samples"), values.number("data.files"))
                && files > rows
            {
                let message = format!("{rows} rows cannot be in {files} files");
                let problem = Problem::new(self.at(values, "data.files"), message, "too many");
                problems.push(problem.help("set data.files to at most data.samples"));
            }
            let share = values.get("data.scale").and_then(Json::as_f64).filter(|scale| *scale != 1.0);
            if let (Some(genes), Some(share)) = (values.number("data.genes").filter(|genes| *genes > 0), share) {
                let message = format!("{genes} genes and a share of {share} of them are asked for");
                let problem = Problem::new(self.at(values, "data.genes"), message, "which of the two?");
                let problem = match values.at("data.scale") {
                    Some(at) => problem.also(at, "`data.scale`"),
                    None => problem,
                };
                problems.push(problem.help("set data.genes or data.scale"));
            }
        }
    }

    /// The graph and its samples, and what reads them.
    fn data_of_graph(&mut self, values: &mut Values, problems: &mut Vec<Problem>) {
        let recipe = self.recipe(values, problems);
        if !values.has("pipeline.edge_types") {
            let all = recipe.as_ref().map(|r| r.network.iter().map(|n| Json::from(n.name.as_str())).collect());
            values.derive("pipeline.edge_types", all);
        }
        if !values.has("data.samples") {
            values.derive("data.samples", recipe.as_ref().map(|r| Json::from(r.samples.count)));
        }
        if let Some(recipe) = &recipe {
            self.samples(values, recipe, problems);
            self.genes(values, recipe, problems);
            self.edge_types(values, recipe, problems);
            self.merges(values, recipe, problems);
        }
        self.model_sizes(values);
        self.heads(values, problems);
        self.nodes(values, problems);
        self.model(values, problems);
        self.pipeline(values, problems);
        self.masks(values, problems);
        self.followed(values, problems);
        self.selection(values, problems);
        self.model_inputs(values, problems);
    }

    /// The project folder.
    pub(super) fn root(&self) -> &std::path::Path {
        self.project.root()
    }

    /// Where a key was set, or where it could be.
    pub(super) fn at(&self, values: &Values, key: &str) -> Origin {
        values.at(key).unwrap_or_else(|| self.place.of(key))
    }

    fn study(&self, values: &Values, problems: &mut Vec<Problem>) {
        let Some(study) = values.text("experiment.study") else { return };
        // Without an own study, the data set says what is missing.
        let Some(at) = values.at("experiment.study") else { return };
        if study.is_empty() || !self.project.study(study).is_dir() {
            let problem =
                Problem::new(at, format!("there is no study `{study}`"), format!("no folder experiments/{study}"));
            problems.push(problem.help(choose(study, &self.folders(false))));
        }
    }

    /// Folders in experiments/, or only those with a recipe.
    fn folders(&self, with_recipe: bool) -> Vec<String> {
        let entries = std::fs::read_dir(self.project.studies()).into_iter().flatten().flatten();
        let wanted = entries.filter(|entry| match with_recipe {
            true => entry.path().join("dataset.toml").is_file(),
            false => entry.path().is_dir(),
        });
        let mut names: Vec<String> = wanted.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    pub(super) fn recipe(&mut self, values: &Values, problems: &mut Vec<Problem>) -> Option<Arc<Recipe>> {
        let set = values.text("data.set")?.to_owned();
        // One that could not be read is reported again wherever else it is named.
        if let Some(Some(known)) = self.recipes.get(&set) {
            return Some(Arc::clone(known));
        }
        let found = self.load_recipe(values, &set, problems, Recipe::load);
        self.recipes.insert(set, found.clone());
        found
    }

    fn array_recipe(&mut self, values: &Values, problems: &mut Vec<Problem>) -> Option<Arc<ArrayRecipe>> {
        let set = values.text("data.set")?.to_owned();
        if let Some(Some(known)) = self.array_recipes.get(&set) {
            return Some(Arc::clone(known));
        }
        let found = self.load_recipe(values, &set, problems, ArrayRecipe::load);
        self.array_recipes.insert(set, found.clone());
        found
    }

    fn load_recipe<R>(
        &self,
        values: &Values,
        set: &str,
        problems: &mut Vec<Problem>,
        load: impl FnOnce(&Path) -> Result<R, DatasetError>,
    ) -> Option<Arc<R>> {
        let folder = self.project.study(set);
        let at = self.at(values, "data.set");
        if set.is_empty() || !folder.join("dataset.toml").is_file() {
            let label = format!("no experiments/{set}/dataset.toml");
            let problem = Problem::new(at, format!("there is no data set `{set}`"), label);
            problems.push(problem.help(choose(set, &self.folders(true))));
            return None;
        }
        match load(&folder) {
            Ok(recipe) => Some(Arc::new(recipe)),
            Err(e) => {
                let problem = Problem::new(at, format!("the recipe of data set `{set}` cannot be read"), "this one");
                problems.push(problem.help(e));
                None
            }
        }
    }

    /// Rows of an own file.
    pub(super) fn rows_of(&mut self, file: &Path, layer: &str) -> Result<u64, String> {
        let known = self.file_rows.entry((file.to_owned(), layer.to_owned()));
        known.or_insert_with(|| count_rows(file, layer)).clone()
    }

    pub(super) fn samples(&self, values: &Values, recipe: &Recipe, problems: &mut Vec<Problem>) {
        let (Some(samples), Some(set)) = (values.number("data.samples"), values.text("data.set")) else { return };
        let count = recipe.samples.count;
        if samples > count {
            let message = format!("{samples} samples asked for, but data set `{set}` has {count}");
            let problem = Problem::new(self.at(values, "data.samples"), message, "too many");
            problems.push(problem.help(format!("set data.samples to at most {count}")));
        }
    }

    fn genes(&self, values: &Values, recipe: &Recipe, problems: &mut Vec<Problem>) {
        let Some(scale) = values.get("data.scale").and_then(Json::as_f64) else { return };
        let (genes, needed) = (recipe.genes as f64 * scale, recipe.samples.genes_per_sample);
        if genes < f64::from(needed) {
            let message = format!("a scale of {scale} leaves less than the {needed} genes that a sample perturbs");
            let problem = Problem::new(self.at(values, "data.scale"), message, "too small");
            problems.push(problem.help(format!("all {} genes are scale 1.0", recipe.genes)));
        }
    }

    fn edge_types(&self, values: &Values, recipe: &Recipe, problems: &mut Vec<Problem>) {
        let networks: Vec<String> = recipe.network.iter().map(|n| n.name.clone()).collect();
        for key in ["pipeline.edge_types", "model.edge_types"] {
            let Some(wanted) = values.texts(key) else { continue };
            // Models read the types of the graph, merged ones too.
            let of_graph = types_of_graph(values).filter(|_| key == "model.edge_types").unwrap_or_default();
            let merged = of_graph.into_iter().filter(|of| of.members.len() > 1).map(|of| of.name);
            let mut known = networks.clone();
            known.extend(merged.filter(|name| !networks.contains(name)));
            let at = self.at(values, key);
            if wanted.is_empty() {
                problems
                    .push(Problem::new(at, format!("`{key}` is empty"), "needs at least one").help(choose("", &known)));
            }
            for (i, name) in wanted.iter().enumerate() {
                let at = values.item_at(key, i).unwrap_or(at);
                if !known.iter().any(|k| k == name) {
                    let set = values.text("data.set").unwrap_or("");
                    let message = format!("data set `{set}` has no edge type `{name}`");
                    problems.push(Problem::new(at, message, "not there").help(choose(name, &known)));
                } else if wanted[..i].contains(name) {
                    problems.push(Problem::new(at, format!("`{key}` names `{name}` twice"), "each type once"));
                }
            }
        }
    }

    pub(super) fn nodes(&self, values: &Values, problems: &mut Vec<Problem>) {
        let (Some(ranks), Some(nodes)) = (values.number("launch.ranks"), values.number("launch.nodes")) else { return };
        if ranks % nodes == 0 {
            return;
        }
        let message = format!("{ranks} ranks cannot be spread evenly over {nodes} nodes");
        let mut problem = Problem::new(self.at(values, "launch.nodes"), message, "not a divisor of the ranks");
        if let Some(at) = values.at("launch.ranks") {
            problem = problem.also(at, "`launch.ranks`".to_owned());
        }
        problems.push(problem.help("set launch.ranks to a multiple of launch.nodes"));
    }

    fn heads(&self, values: &Values, problems: &mut Vec<Problem>) {
        let (Some(hidden), Some(heads)) = (values.number("model.hidden"), values.number("model.heads")) else { return };
        if hidden % heads == 0 {
            return;
        }
        let (key, also) = match values.at("model.hidden") {
            Some(_) => ("model.hidden", "model.heads"),
            None => ("model.heads", "model.hidden"),
        };
        let message = format!("`model.hidden` = {hidden} is not a multiple of `model.heads` = {heads}");
        let mut problem = Problem::new(self.at(values, key), message, "each head takes an equal share of the channels");
        if let Some(at) = values.at(also) {
            problem = problem.also(at, format!("`{also}`"));
        }
        let below = hidden - hidden % heads;
        let near = if below == 0 { heads } else { below };
        problems.push(problem.help(format!("for {heads} heads, for example hidden = {near}")));
    }

    fn model(&self, values: &mut Values, problems: &mut Vec<Problem>) {
        let Some(types) = types_of_graph(values) else {
            if !values.has("model.edge_types") {
                values.derive("model.edge_types", None);
            }
            return;
        };
        let graph: Vec<&str> = types.iter().map(|of| of.name.as_str()).collect();
        if let Some(wanted) = values.texts("model.edge_types") {
            for (i, name) in wanted.iter().enumerate().filter(|(_, name)| !graph.contains(name)) {
                let message = format!("the model reads edge type `{name}`, which is not in `pipeline.edge_types`");
                let problem = Problem::new(
                    values.item_at("model.edge_types", i).unwrap_or_else(|| self.place.of("model.edge_types")),
                    message,
                    "not in the graph",
                );
                let problem = match values.at("pipeline.edge_types") {
                    Some(at) => problem.also(at, "the graph's edge types"),
                    None => problem,
                };
                problems.push(problem.help(format!("the graph has {}", graph.join(", "))));
            }
        } else if !values.has("model.edge_types") {
            let dango = values.text("model.kind") == Some("dango");
            // Merged ones, too, if nothing else is in them.
            let is_string = |of: &GraphType| of.members.iter().all(|member| member.starts_with("string12_0_"));
            let read: Vec<&str> =
                types.iter().filter(|of| !dango || is_string(of)).map(|of| of.name.as_str()).collect();
            let uses_model = values.text("train.mode").is_some_and(|mode| mode != "data");
            if read.is_empty() && uses_model {
                let at = self.at(values, "pipeline.edge_types");
                let problem = Problem::new(at, "the model has no edge types to read", "no `string12_0_*` type here");
                problems.push(problem.help("set model.edge_types"));
            }
            let read = Json::from(read);
            values.derive("model.edge_types", Some(read));
        }
    }

    fn batches(&self, values: &Values, problems: &mut Vec<Problem>) {
        let numbers =
            (values.number("loader.batch_size"), values.number("launch.ranks"), values.number("data.samples"));
        let (Some(batch), Some(ranks), Some(samples)) = numbers else { return };
        if values.text("data.set") == Some(NO_DATA_SET) {
            return;
        }
        let together = batch.saturating_mul(ranks);
        if together > samples {
            let message = format!(
                "one step takes {batch} samples on each of {ranks} ranks, {together} in all, but there are {samples}"
            );
            let label = match values.get("loader.drop_last") {
                Some(Json::Bool(true)) => "with `drop_last` there would be no batch at all",
                _ => "no step could be full",
            };
            let key =
                ["loader.batch_size", "launch.ranks", "data.samples"].into_iter().find(|k| values.at(k).is_some());
            let at = self.at(values, key.unwrap_or("loader.batch_size"));
            problems.push(Problem::new(at, message, label).help("take a smaller batch, fewer ranks or more samples"));
        }
    }
}

impl Judge<'_> {
    /// Batches that were loaded ahead cost the step nothing: the first measured step must not be served from them.
    fn warm_up(&self, values: &mut Values, problems: &mut Vec<Problem>) {
        let (Some(workers), Some(factor)) = (values.number("loader.workers"), values.number("loader.prefetch_factor"))
        else {
            return;
        };
        let ahead = workers.saturating_mul(factor);
        if !values.has("measure.warmup") {
            values.derive("measure.warmup", Some(Json::from(ahead.max(USUAL_WARM_UP))));
        }
        let Some(warm_up) = values.number("measure.warmup").filter(|steps| *steps < ahead) else { return };
        let message = format!(
            "{workers} workers × prefetch factor {factor} load up to {ahead} batches ahead, but only {warm_up} steps are \
             warm-up"
        );
        let label = "the first measured steps would find their batches ready, and look too fast";
        let problem = Problem::new(self.at(values, "measure.warmup"), message, label);
        problems.push(problem.help(format!("set measure.warmup to at least {ahead}")));
    }
}

/// Rows of a file; nothing of its values is read.
fn count_rows(file: &Path, layer: &str) -> Result<u64, String> {
    let layer = if layer.is_empty() { "X" } else { layer };
    if zarr::is_zarr(file) {
        return Ok(zarr::size(file, layer).map_err(|e| e.to_string())?.0);
    }
    if file.is_dir() {
        return MdsStore::rows(file).map_err(|e| e.to_string());
    }
    if file.extension().is_some_and(|extension| extension == "parquet") {
        let fail = |reason: String| format!("{}: {reason}", file.display());
        let open = File::open(file).map_err(|e| fail(e.to_string()))?;
        let reader = SerializedFileReader::new(open).map_err(|e| fail(e.to_string()))?;
        return u64::try_from(reader.metadata().file_metadata().num_rows()).map_err(|e| fail(e.to_string()));
    }
    Ok(MatrixFile::size(file, layer).map_err(|e| e.to_string())?.0)
}

fn choose(word: &str, known: &[String]) -> String {
    match closest(word, known.iter().map(String::as_str)) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None if known.is_empty() => "there is none; is this the right project folder (--root)?".to_owned(),
        None => format!("there are {}", known.join(", ")),
    }
}
