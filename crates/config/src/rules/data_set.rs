//! Data sets: the study and the recipe that a config names, and what of the recipe it asks for.

use std::path::PathBuf;
use std::sync::Arc;

use expctl_settings::{Data, Experiment, Model, Pipeline};

use super::Judge;
use crate::config::Values;
use crate::problem::Problem;
use crate::project_files::{GraphDataSet, Reason};
use crate::suggest::closest;

impl Judge<'_> {
    /// The study is a folder; without one it is that of the data set.
    pub fn study(&self, values: &mut Values, problems: &mut Vec<Problem>) {
        values.derive_missing(Experiment::STUDY, values.get(Data::SET));
        let Some(study) = values.get(Experiment::STUDY) else { return };
        // Without a study of its own, the data set says what is missing.
        let Some(at) = values.at(&Experiment::STUDY) else { return };
        if study.is_empty() || !self.project.folders().studies().join(&study).is_dir() {
            let problem =
                Problem::new(at, format!("there is no study `{study}`"), format!("no folder experiments/{study}"));
            problems.push(problem.help(study_help(&study, &self.folders(false))));
        }
    }

    /// Folders in experiments/, or only those with a recipe.
    fn folders(&self, with_recipe: bool) -> Vec<String> {
        let entries = std::fs::read_dir(self.project.folders().studies()).into_iter().flatten().flatten();
        let chosen = entries.filter(|entry| match with_recipe {
            true => entry.path().join("dataset.toml").is_file(),
            false => entry.path().is_dir(),
        });
        let mut names: Vec<String> = chosen.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// The data set of graphs; a data set that cannot be read is reported wherever it is named.
    pub fn graph_data_set(&mut self, values: &Values, problems: &mut Vec<Problem>) -> Option<Arc<GraphDataSet>> {
        let set = values.get(Data::SET)?;
        if let Some(known) = self.graph_data_sets.get(&set) {
            return Some(Arc::clone(known));
        }
        let folder = self.recipe_folder(values, &set, problems)?;
        let read = self.project.graph_data_set(&folder);
        let data_set = Arc::new(self.readable(values, &set, read, problems)?);
        self.graph_data_sets.insert(set, Arc::clone(&data_set));
        Some(data_set)
    }

    /// Rows of the data set of arrays; a data set that cannot be read is reported wherever it is named.
    pub fn array_data_set(&mut self, values: &Values, problems: &mut Vec<Problem>) -> Option<u64> {
        let set = values.get(Data::SET)?;
        if let Some(known) = self.array_data_sets.get(&set) {
            return Some(*known);
        }
        let folder = self.recipe_folder(values, &set, problems)?;
        let read = self.project.array_data_set(&folder);
        let rows = self.readable(values, &set, read, problems)?;
        self.array_data_sets.insert(set, rows);
        Some(rows)
    }

    /// The folder of a data set that has a recipe.
    fn recipe_folder(&self, values: &Values, set: &str, problems: &mut Vec<Problem>) -> Option<PathBuf> {
        let folder = self.project.folders().studies().join(set);
        if !set.is_empty() && folder.join("dataset.toml").is_file() {
            return Some(folder);
        }
        let label = format!("no experiments/{set}/dataset.toml");
        let problem = Problem::new(self.at(values, &Data::SET), format!("there is no data set `{set}`"), label);
        let help = if values.at(&Data::SET).is_none() && !values.reads_array() {
            "a config reads graphs unless it says otherwise: set [data] set, [array] files for your own .h5ad, or \
             worker.command for your own program"
                .to_owned()
        } else {
            choose(set, &self.folders(true))
        };
        problems.push(problem.help(help));
        None
    }

    /// A recipe that was read; reports why it could not be.
    fn readable<R>(
        &self,
        values: &Values,
        set: &str,
        read: Result<R, Reason>,
        problems: &mut Vec<Problem>,
    ) -> Option<R> {
        let reported = read.map_err(|reason| {
            let message = format!("the recipe of data set `{set}` cannot be read");
            problems.push(Problem::new(self.at(values, &Data::SET), message, "this one").help(reason));
        });
        reported.ok()
    }

    /// Edge types and samples are all that the data set has, unless a config says less.
    pub fn derive_from_graph(&self, values: &mut Values, data_set: Option<&GraphDataSet>) {
        values.derive_missing(Pipeline::EDGE_TYPES, data_set.map(|data_set| data_set.networks.clone()));
        values.derive_missing(Data::SAMPLES, data_set.map(|data_set| data_set.samples));
    }

    /// A recipe has so many samples.
    pub fn samples(&self, values: &Values, data_set: &GraphDataSet, problems: &mut Vec<Problem>) {
        let (Some(samples), Some(set)) = (values.get(Data::SAMPLES), values.get(Data::SET)) else { return };
        let count = data_set.samples;
        if samples > count {
            let message = format!("{samples} samples asked for, but data set `{set}` has {count}");
            let problem = Problem::new(self.at(values, &Data::SAMPLES), message, "too many");
            problems.push(problem.help(format!("set data.samples to at most {count}")));
        }
    }

    /// The scale leaves enough genes for a sample.
    pub fn genes(&self, values: &Values, data_set: &GraphDataSet, problems: &mut Vec<Problem>) {
        let Some(scale) = values.get(Data::SCALE) else { return };
        let (genes, needed) = (data_set.genes as f64 * scale, data_set.genes_per_sample);
        if genes < f64::from(needed) {
            let message = format!("a scale of {scale} leaves less than the {needed} genes that a sample perturbs");
            let problem = Problem::new(self.at(values, &Data::SCALE), message, "too small");
            problems.push(problem.help(format!("all {} genes are scale 1.0", data_set.genes)));
        }
    }

    /// Edge types of the graph and of the model are those of the data set.
    pub fn edge_types(&self, values: &Values, data_set: &GraphDataSet, problems: &mut Vec<Problem>) {
        let networks = &data_set.networks;
        for key in [Pipeline::EDGE_TYPES, Model::EDGE_TYPES] {
            let Some(names) = values.get(key) else { continue };
            let mut known = networks.clone();
            if *key == *Model::EDGE_TYPES {
                // Models read the types of the graph, merged ones too.
                let types = super::pipeline::types_of_graph(values).unwrap_or_default();
                let merged = types.into_iter().filter(|merged| merged.members.len() > 1).map(|merged| merged.name);
                known.extend(merged.filter(|name| !networks.contains(name)));
            }
            if names.is_empty() {
                let problem = Problem::new(self.at(values, &key), format!("`{key}` is empty"), "needs at least one");
                problems.push(problem.help(choose("", &known)));
            }
            for (i, name) in names.iter().enumerate() {
                let at = self.item_at(values, &key, i);
                if !known.contains(name) {
                    let set = values.get(Data::SET).unwrap_or_default();
                    let message = format!("data set `{set}` has no edge type `{name}`");
                    problems.push(Problem::new(at, message, "not there").help(choose(name, &known)));
                } else if names[..i].contains(name) {
                    problems.push(Problem::new(at, format!("`{key}` names `{name}` twice"), "each type once"));
                }
            }
        }
    }
}

/// Help for an unknown study: one that was probably meant, and how to make it.
fn study_help(study: &str, known: &[String]) -> String {
    if study.is_empty() {
        return choose(study, known);
    }
    match closest(study, known.iter().map(String::as_str)) {
        Some(near) => format!("did you mean \"{near}\"? `mkdir -p experiments/{study}` makes a new one"),
        None if known.is_empty() => format!("`mkdir -p experiments/{study}` makes it"),
        None => format!("`mkdir -p experiments/{study}` makes it; there are {}", known.join(", ")),
    }
}

/// Help for an unknown `word`: the name that was probably meant, else all names.
fn choose(word: &str, known: &[String]) -> String {
    match closest(word, known.iter().map(String::as_str)) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None if known.is_empty() => "there is none; is this the right project folder (--root)?".to_owned(),
        None => format!("there are {}", known.join(", ")),
    }
}
