//! What follows from the workload: rows of an array, samples of a graph, or a program.

use expctl_settings::{
    Array, Data, KEYS, Loss, Model, ModelKind, Networks, Pipeline, Processor, Profile, Sampler, Section, TraceAt,
    Train, Worker, Workload, find,
};

use super::Judge;
use crate::config::Values;
use crate::layer::Layer;
use crate::problem::Problem;

/// Fills in what follows from the data: rows of an array, or samples of a graph.
pub fn derive_workload(values: &mut Values) {
    let array = values.reads_array();
    let set = if array { "arrayloader" } else { "006-kuzmin-tmi" };
    values.derive_missing(Data::SET, Some(set.to_owned()));
    values.derive_missing(Data::NETWORKS, Some(if array { Networks::None } else { Networks::Real }));
    values.derive_missing(Model::KIND, Some(if array { ModelKind::Mlp } else { ModelKind::Dango }));
    values.derive_missing(Train::LOSS, Some(if array { Loss::CrossEntropy } else { Loss::LogCosh }));
    values.derive_missing(Train::VALIDATE_EVERY, Some(u64::from(!array)));
    if values.get(Array::FORMAT).is_none() {
        // An unknown format: it is not known what is read, and no processor is asked for.
        values.derive_missing(Pipeline::PROCESSOR, None);
    }
    if array {
        values.derive_missing(Pipeline::PROCESSOR, Some(Processor::Rows));
        values.derive_missing(Pipeline::EDGE_TYPES, Some(Vec::new()));
        values.derive_missing(Model::EDGE_TYPES, Some(Vec::new()));
    }
    let (chunk_rows, chunks) = values.get(Sampler::PRESET).unwrap_or_default().chunks();
    values.derive_missing(Sampler::CHUNK_ROWS, Some(chunk_rows));
    values.derive_missing(Sampler::CHUNKS, Some(chunks));
}

/// Reports what a variant, `--set variant.NAME` or a sweep (`own`) set for expctl's own worker where a program runs in its place, which would
/// not hear of it.
pub fn refuse_own_worker_keys<'a>(values: &Values, own: impl Iterator<Item = &'a Layer>, problems: &mut Vec<Problem>) {
    if !values.runs_command() {
        return;
    }
    for (key, setting) in own.flatten() {
        let own_worker = find(key).is_some_and(|spec| {
            // The rules of the profiler report those.
            !spec.applies_to(Workload::Program) && ![Profile::NAME, TraceAt::NAME].contains(&spec.section())
        });
        let Some(at) = setting.at.filter(|_| own_worker) else { continue };
        let message = format!("`{key}` is of expctl's own worker, but `{}` runs in its place", Worker::COMMAND);
        let mut problem = Problem::new(at, message, "would have no effect");
        if let Some(command) = values.at(&Worker::COMMAND) {
            problem = problem.also(command, format!("`{}`", Worker::COMMAND));
        }
        let help = "what the program does is up to its arguments: say it in worker.command, or leave it out";
        let problem = problem.help(help);
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }
}

impl Judge<'_> {
    /// Settings of graphs where an array is read, and the other way round.
    pub fn workload(&self, values: &Values, problems: &mut Vec<Problem>) {
        let array = values.reads_array();
        for spec in KEYS.iter().filter(|spec| !spec.applies_to(Workload::from_data(array))) {
            if values.at(spec.key).is_none() || values.json(spec.key).is_none() {
                continue;
            }
            let (message, help) = if array {
                let message = format!("`{}` is of graphs, but rows of an array are read", spec.key);
                (message, "leave it out, or array.format")
            } else {
                let message = format!("`{}` is of arrays, but samples of a graph are read", spec.key);
                (message, "set array.format, for example to \"h5ad\"")
            };
            let problem = self.conflict(values, spec.key, &Array::FORMAT, message, "would have no effect");
            problems.push(problem.help(help));
        }
        let processor = values.get(Pipeline::PROCESSOR);
        if processor.is_some_and(|processor| array != (processor == Processor::Rows)) {
            let (message, help) = match array {
                true => ("rows of an array have no processor but \"rows\"", "leave it out"),
                false => ("processor `rows` is of arrays, but samples of a graph are read", "set array.format"),
            };
            let at = self.at(values, &Pipeline::PROCESSOR);
            problems.push(Problem::new(at, message, "does not fit").help(help));
        }
    }
}
