//! What runs, and what it reads: rows of an array, samples of a graph, or a program of the user's; and how its ranks are spread.
//!
//! Invariant: a setting of a variant that its program could not see the meaning of is refused, not passed on in silence.

use expctl_settings::{
    Array, BackendChoice, Data, DeviceChoice, Experiment, KEYS, KeySpec, Launch, Loader, Loss, Model, ModelKind,
    NO_DATA_SET, Networks, Pipeline, Processor, Profile, Sampler, Section, Select, Slurm, TraceAt, Train, Worker,
    Workload, find,
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

/// Fills in what follows from `worker.command`: no processor has to be named, and no data set is built where nothing is said of data. Neither
/// is known of a command that could not be read, and neither is asked for.
pub fn derive_command(values: &mut Values) {
    let is_readable = values.get(Worker::COMMAND).is_some();
    let is_set = values.at(&Worker::COMMAND).is_some();
    if values.reads_array() || !(values.runs_command() || is_set && !is_readable) {
        return;
    }
    values.derive_missing(Pipeline::PROCESSOR, is_readable.then_some(Processor::Ids));
    let says_data =
        |spec: &KeySpec| [Data::NAME, Select::NAME].contains(&spec.section()) && values.at(spec.key).is_some();
    if !KEYS.iter().any(says_data) {
        values.derive_missing(Data::SET, is_readable.then(|| NO_DATA_SET.to_owned()));
    }
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
                let message = format!("`{}` only applies to graph data", spec.key);
                let is_shuffle = spec.key == Loader::SHUFFLE.name();
                (message, if is_shuffle { "remove it; for arrays use sampler.draw" } else { "remove it" })
            } else {
                let message = format!("`{}` only applies to arrays", spec.key);
                (message, "set array.format, for example to \"h5ad\"")
            };
            let problem = self.conflict(values, spec.key, &Array::FORMAT, message, "would have no effect");
            problems.push(problem.help(help));
        }
        let processor = values.get(Pipeline::PROCESSOR);
        if processor.is_some_and(|processor| array != (processor == Processor::Rows)) {
            let (message, help) = match array {
                true => ("rows of an array have no processor but \"rows\"", "leave it out"),
                false => ("processor `rows` only applies to arrays", "set array.format"),
            };
            let at = self.at(values, &Pipeline::PROCESSOR);
            problems.push(Problem::new(at, message, "does not fit").help(help));
        }
    }

    /// Ranks are spread evenly over nodes.
    pub fn nodes(&self, values: &Values, problems: &mut Vec<Problem>) {
        let (Some(ranks), Some(nodes)) = (values.get(Launch::RANKS), values.get(Launch::NODES)) else { return };
        if ranks % nodes == 0 {
            return;
        }
        let message = format!("{ranks} ranks cannot be spread evenly over {nodes} nodes");
        let problem = self.conflict(values, &Launch::NODES, &Launch::RANKS, message, "not a divisor of the ranks");
        problems.push(problem.help("set launch.ranks to a multiple of launch.nodes"));
    }

    /// A backend that the device has. Which GPUs there are is not known here.
    pub fn device(&self, values: &Values, problems: &mut Vec<Problem>) {
        let (device, backend) = (values.get(Launch::DEVICE), values.get(Launch::BACKEND));
        if (device, backend) != (Some(DeviceChoice::Cpu), Some(BackendChoice::Nccl)) {
            return;
        }
        let message = format!(
            "`{}` = \"nccl\" exchanges what is on GPUs, but `{}` = \"cpu\" uses none",
            Launch::BACKEND,
            Launch::DEVICE
        );
        let problem = self.conflict(values, &Launch::BACKEND, &Launch::DEVICE, message, "does not fit");
        problems.push(problem.help("set launch.backend to \"gloo\", or launch.device to \"cuda\""));
    }

    /// The program of the user's.
    pub fn command(&self, values: &Values, problems: &mut Vec<Problem>) {
        let key = Worker::COMMAND;
        let Some(command) = values.get(key) else { return };
        let [program, arguments @ ..] = command.as_slice() else {
            let starts_ranks = Worker::STARTS_RANKS;
            if let Some(at) = values.at(&starts_ranks).filter(|_| values.get(starts_ranks) == Some(true)) {
                let message = format!("`{starts_ranks}` is set, but there is no `{key}`");
                let problem = Problem::new(at, message, "would have no effect");
                problems.push(problem.help("set worker.command, or leave it out"));
            }
            return;
        };
        let mut report = |i: usize, message: String, label: &str, help: &str| {
            problems.push(Problem::new(self.item_at(values, &key, i), message, label).help(help));
        };
        for (i, _) in command.iter().enumerate().filter(|(_, word)| word.contains('\0')) {
            report(i, format!("`{key}` holds a NUL byte"), "here", "no program can be given one");
        }
        // A program inside a container, or one that the set-up of a cluster adds to PATH, cannot be found from here.
        let is_set = |key| values.get(key).is_none_or(|text: String| !text.is_empty());
        let elsewhere = is_set(Slurm::IMAGE) || (!program.contains('/') && is_set(Slurm::PROFILE));
        if program.contains('\0') || elsewhere {
            return;
        }
        if let Err(reason) = self.project.folders().find_program(program) {
            let help = match arguments.is_empty() && program.contains(' ') {
                true => {
                    let words: Vec<String> = program.split_whitespace().map(|word| format!("{word:?}")).collect();
                    format!("no shell takes it apart: write [{}]", words.join(", "))
                }
                false => "a name is looked for in PATH, a path starts at the project folder".to_owned(),
            };
            report(0, format!("`{key}`: {reason}"), "no such program", &help);
        }
    }

    /// The data of a program, as far as it is of this project.
    pub fn data_of_command(&mut self, values: &mut Values, problems: &mut Vec<Problem>) {
        if values.get(Data::SET).as_deref() == Some(NO_DATA_SET) {
            if values.at(&Experiment::STUDY).is_none() {
                let message = format!("`{}` is not set, and there is no data set to take it from", Experiment::STUDY);
                let problem = Problem::new(self.at(values, &Experiment::STUDY), message, "needs `study`");
                problems.push(problem.help(
                    "give it a name, for example study = \"mine\", and make its folder: mkdir -p experiments/mine",
                ));
            }
            values.derive_missing(Data::SAMPLES, Some(0));
        } else if values.reads_array() {
            self.files_and_sampler(values, problems);
            self.rows_of_array(values, problems);
        } else {
            let data_set = self.graph_data_set(values, problems);
            values.derive_missing(Data::SAMPLES, data_set.as_ref().map(|data_set| data_set.samples));
            if let Some(data_set) = &data_set {
                self.samples(values, data_set, problems);
            }
        }
        for key in [Pipeline::EDGE_TYPES, Model::EDGE_TYPES] {
            values.derive_missing(key, Some(Vec::new()));
        }
        self.model_sizes(values);
        self.nodes(values, problems);
        if values.get(Train::EPOCHS).is_some_and(|epochs| epochs > 0) {
            let message = format!(
                "`{}` trains with expctl's own worker, but `{}` runs in its place",
                Train::EPOCHS,
                Worker::COMMAND
            );
            let problem = Problem::new(self.at(values, &Train::EPOCHS), message, "not possible");
            problems.push(problem.help("measure.epochs or measure.steps say how long a program is measured"));
        }
    }
}
