//! What `[worker]` goes with. Invariant: a setting of a variant that its program could not see the meaning of is refused, not
//! passed on in silence.

use serde_json::Value as Json;

use super::array_rules::reads_array;
use super::keys::{KEYS, KeySpec};
use super::layer::Layer;
use super::problem::Problem;
use super::semantics::Judge;
use super::values::Values;
use crate::program::find_program;

/// The data set of a program that brings its own data: nothing is built.
pub const NO_DATA_SET: &str = "none";

/// Sections that say what `expctl-worker` does, and of them what a program is told all the same: what its step does, which
/// decides what it is compared with, and which store is built.
const OF_OWN_WORKER: [&str; 4] = ["pipeline", "model", "train", "checkpoint"];
const OF_BOTH: [&str; 2] = ["train.mode", "pipeline.store"];
/// Keys of other sections that say what `expctl-worker` does.
const KEYS_OF_OWN_WORKER: [&str; 2] = ["launch.device", "launch.backend"];

/// Whether a program of the user's runs as the ranks.
pub(super) fn runs_command(values: &Values) -> bool {
    values.texts("worker.command").is_some_and(|command| !command.is_empty())
}

/// Fill in what follows from `worker.command`: no processor has to be named, and no data set is built where nothing is said of
/// data.
pub(super) fn derive_command(values: &mut Values) {
    if !runs_command(values) {
        return;
    }
    let array = reads_array(values);
    if !array && !values.has("pipeline.processor") {
        values.derive("pipeline.processor", Some(Json::from("ids")));
    }
    let said = |spec: &&KeySpec| matches!(spec.section(), "data" | "select") && values.at(spec.key).is_some();
    if !array && !values.has("data.set") && !KEYS.iter().any(|spec| said(&spec)) {
        values.derive("data.set", Some(Json::from(NO_DATA_SET)));
    }
}

/// Report what a variant, `--set variant.NAME` or a sweep (`own`) say to a program that it would not hear of.
pub(super) fn refuse_meaningless<'a>(
    values: &Values,
    own: impl Iterator<Item = &'a Layer>,
    problems: &mut Vec<Problem>,
) {
    if !runs_command(values) {
        return;
    }
    for (key, setting) in own.flatten() {
        let section = key.split_once('.').map_or(*key, |(section, _)| section);
        let of_own_worker = OF_OWN_WORKER.contains(&section) && !OF_BOTH.contains(key);
        let Some(at) = setting.at.filter(|_| of_own_worker || KEYS_OF_OWN_WORKER.contains(key)) else { continue };
        let message = format!("`{key}` is of expctl's own worker, but `worker.command` runs in its place");
        let mut problem = Problem::new(at, message, "would have no effect");
        if let Some(command) = values.at("worker.command") {
            problem = problem.also(command, "`worker.command`");
        }
        let help = "what the program does is up to its arguments: say it in worker.command, or leave it out";
        let problem = problem.help(help);
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }
}

impl Judge<'_> {
    /// `[worker]` itself.
    pub(super) fn command(&self, values: &Values, problems: &mut Vec<Problem>) {
        const KEY: &str = "worker.command";
        let Some(command) = values.texts(KEY) else { return };
        let [program, arguments @ ..] = command.as_slice() else {
            if let Some(at) = values
                .at("worker.starts_ranks")
                .filter(|_| values.get("worker.starts_ranks") == Some(&Json::Bool(true)))
            {
                let message = "`worker.starts_ranks` is set, but there is no `worker.command`";
                problems.push(
                    Problem::new(at, message, "would have no effect").help("set worker.command, or leave it out"),
                );
            }
            return;
        };
        let mut report = |i: usize, message: String, label: &str, help: String| {
            let at = values.item_at(KEY, i).unwrap_or_else(|| self.at(values, KEY));
            problems.push(Problem::new(at, message, label).help(help));
        };
        for (i, _) in command.iter().enumerate().filter(|(_, word)| word.contains('\0')) {
            let help = "no program can be given one".to_owned();
            report(i, format!("`{KEY}` holds a NUL byte"), "here", help);
        }
        // What a container or the set-up of a cluster brings is not here to be looked for.
        let elsewhere = values.text("slurm.image").is_none_or(|image| !image.is_empty())
            || (!program.contains('/') && values.text("slurm.profile").is_none_or(|profile| !profile.is_empty()));
        if program.contains('\0') || elsewhere {
            return;
        }
        if let Err(reason) = find_program(self.root(), program) {
            let help = match arguments.is_empty() && program.contains(' ') {
                true => {
                    let words: Vec<String> = program.split_whitespace().map(|word| format!("{word:?}")).collect();
                    format!("no shell takes it apart: write [{}]", words.join(", "))
                }
                false => "a name is looked for in PATH, a path starts at the project folder".to_owned(),
            };
            report(0, format!("`{KEY}`: {reason}"), "no such program", help);
        }
    }

    /// What a program reads, as far as it is of this project.
    pub(super) fn data_of_command(&mut self, values: &mut Values, problems: &mut Vec<Problem>) {
        if values.text("data.set") == Some(NO_DATA_SET) {
            if values.at("experiment.study").is_none() {
                let message = "`experiment.study` is not set, and there is no data set to take it from";
                let problem = Problem::new(self.at(values, "experiment.study"), message, "needs `study`");
                problems.push(problem.help("name a folder in experiments/"));
            }
            if !values.has("data.samples") {
                values.derive("data.samples", Some(Json::from(0)));
            }
        } else if reads_array(values) {
            self.files_and_sampler(values, problems);
            self.rows_of_array(values, problems);
        } else {
            let recipe = self.recipe(values, problems);
            if !values.has("data.samples") {
                values.derive("data.samples", recipe.as_ref().map(|recipe| Json::from(recipe.samples.count)));
            }
            if let Some(recipe) = &recipe {
                self.samples(values, recipe, problems);
            }
        }
        for key in ["pipeline.edge_types", "model.edge_types"] {
            if !values.has(key) {
                values.derive(key, Some(Json::Array(Vec::new())));
            }
        }
        self.model_sizes(values);
        self.nodes(values, problems);
        if values.number("train.epochs").is_some_and(|epochs| epochs > 0) {
            let message = "`train.epochs` trains with expctl's own worker, but `worker.command` runs in its place";
            let problem = Problem::new(self.at(values, "train.epochs"), message, "not possible");
            problems.push(problem.help("measure.epochs or measure.steps say how long a program is measured"));
        }
    }
}
