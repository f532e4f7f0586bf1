//! Rules: settings judged against each other and against the files that they name, and settings that follow from others. A file holds the
//! rules of one subject.

mod array;
mod data_set;
mod emulation;
mod model;
mod pack;
mod pipeline;
mod steps;
mod workload;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use array::BUILT_ROWS_KEYS;
pub use workload::{derive_command, derive_workload, refuse_own_worker_keys};

use crate::config::Values;
use crate::node::ValueOrigin;
use crate::problem::Problem;
use crate::project_files::{ArrayRefusal, GraphDataSet, ProjectFiles, Reason};
use crate::resolve::FallbackOrigins;

/// Judges all settings of a run, and completes them. Data sets and files that several runs name are looked at once.
pub struct Judge<'a> {
    project: &'a dyn ProjectFiles,
    fallback: &'a FallbackOrigins,
    /// Data sets whose recipe could be read, by name.
    graph_data_sets: BTreeMap<String, Arc<GraphDataSet>>,
    /// Rows of those that could be read, by name.
    array_data_sets: BTreeMap<String, u64>,
    /// Rows of the user's files, by file and layer.
    file_rows: BTreeMap<(PathBuf, String), Result<u64, Arc<Reason>>>,
    /// Recorded step times, by the name of their job.
    recorded_steps: BTreeMap<String, Result<(), Arc<Reason>>>,
    /// What ranks would refuse of array files, by the settings that it depends on, as JSON.
    array_refusals: BTreeMap<String, Vec<ArrayRefusal>>,
}

impl<'a> Judge<'a> {
    /// A judge of the runs of one config.
    pub fn new(project: &'a dyn ProjectFiles, fallback: &'a FallbackOrigins) -> Self {
        Self {
            project,
            fallback,
            graph_data_sets: BTreeMap::new(),
            array_data_sets: BTreeMap::new(),
            file_rows: BTreeMap::new(),
            recorded_steps: BTreeMap::new(),
            array_refusals: BTreeMap::new(),
        }
    }

    /// Completes `values` and reports what is wrong with them. The same problem of several runs is shown once, because equal problems are.
    pub fn judge(&mut self, values: &mut Values, problems: &mut Vec<Problem>) {
        self.study(values, problems);
        self.workload(values, problems);
        self.command(values, problems);
        let mut reads_files = false;
        if values.runs_command() {
            self.data_of_command(values, problems);
        } else if values.reads_array() {
            reads_files = self.array(values, problems);
        } else {
            self.graph(values, problems);
        }
        if !values.runs_command() {
            self.device(values, problems);
        }
        self.batches(values, problems);
        self.emulation(values, problems);
        self.warm_up(values, problems);
        self.sampling(values, problems);
        self.cold_cache(values, problems);
        self.pack(values, problems);
        self.epochs(values, problems);
        self.schedule(values, problems);
        self.profiler(values, problems);
        self.operations(values, problems);
        // All settings are complete here.
        if reads_files {
            self.array_content(values, problems);
        }
    }

    /// An array, and what reads it. Returns whether nothing is wrong with its files and its sampler, as far as the settings say.
    fn array(&mut self, values: &mut Values, problems: &mut Vec<Problem>) -> bool {
        let known = problems.len();
        self.files_and_sampler(values, problems);
        let is_sound = problems.len() == known;
        self.array_model(values, problems);
        self.array_validation(values, problems);
        self.rows_of_array(values, problems);
        self.model_sizes(values);
        self.heads(values, problems);
        self.nodes(values, problems);
        self.start_from(values, problems);
        is_sound
    }

    /// A graph and its samples, and what reads them.
    fn graph(&mut self, values: &mut Values, problems: &mut Vec<Problem>) {
        let data_set = self.graph_data_set(values, problems);
        self.derive_from_graph(values, data_set.as_deref());
        if let Some(data_set) = &data_set {
            self.samples(values, data_set, problems);
            self.genes(values, data_set, problems);
            self.edge_types(values, data_set, problems);
            self.merges(values, data_set, problems);
        }
        self.model_sizes(values);
        self.heads(values, problems);
        self.nodes(values, problems);
        self.model_edge_types(values, problems);
        self.pipeline(values, problems);
        self.masks(values, problems);
        self.followed(values, problems);
        self.selection(values, problems);
        self.graph_model(values, problems);
    }

    /// Whether the job or variant `named` has recorded step times.
    fn step_times(&mut self, named: &str) -> Result<(), Arc<Reason>> {
        let project = self.project;
        let read = || project.step_times(named).map(|_| ()).map_err(Arc::new);
        self.recorded_steps.entry(named.to_owned()).or_insert_with(read).clone()
    }

    /// The project folder.
    fn root(&self) -> &Path {
        self.project.folders().root()
    }

    /// What to do about a file that is named and not there.
    fn help_with_file(&self, named: &str) -> String {
        let project = self.project.folders();
        if !project.is_sent() {
            return format!("paths start at the project folder, {}", project.root().display());
        }
        if Path::new(named).is_absolute() {
            return "an absolute path is one of the machine that runs it; a file that travels is named from the project folder".to_owned();
        }
        "what git ignores, what is too large and what holds a secret does not travel; data/ and results/ are those of the machine that runs it"
            .to_owned()
    }

    /// The place that sets a key, or where it could be set.
    fn at(&self, values: &Values, key: &str) -> ValueOrigin {
        values.at(key).unwrap_or_else(|| self.fallback.of(key))
    }

    /// The place of item `i` of an array, else that of the array.
    fn item_at(&self, values: &Values, key: &str, i: usize) -> ValueOrigin {
        values.item_at(key, i).unwrap_or_else(|| self.at(values, key))
    }

    /// A problem at `key` that also shows where `other`, which it does not fit, is set.
    fn conflict(&self, values: &Values, key: &str, other: &str, message: impl Into<String>, label: &str) -> Problem {
        let problem = Problem::new(self.at(values, key), message.into(), label);
        match values.at(other) {
            Some(at) => problem.also(at, format!("`{other}`")),
            None => problem,
        }
    }
}
