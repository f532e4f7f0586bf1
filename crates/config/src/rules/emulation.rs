//! Emulated steps: exactly one setting says how long they take, and its value can be had.

use expctl_settings::{AcceleratorPreset, Launch, Loader, Mode, StepMs, Train, Worker};

use super::Judge;
use crate::config::Values;
use crate::problem::Problem;

/// How to say how long a step takes.
const WAYS: &str = "set one of train.step_ms = 60, train.emulate = \"unet3d_h100\" (a published workload) and \
                    train.step_times_of = \"JOB/VARIANT\" (the recorded steps of a job)";

impl Judge<'_> {
    /// How long emulated steps take.
    pub fn emulation(&mut self, values: &mut Values, problems: &mut Vec<Problem>) {
        let preset = values.get(Train::EMULATE).unwrap_or_default();
        if values.get(Train::MODE).is_none_or(|mode| mode != Mode::Emulate) {
            values.derive_missing(Train::STEP_MS, Some(StepMs::NONE));
            self.emulation_is_off(values, problems);
            return;
        }
        let published = preset.published();
        values.derive_missing(Train::STEP_MS, Some(published.map_or(StepMs::NONE, |step| StepMs(vec![step.ms]))));
        if values.runs_command() {
            let message = format!(
                "`{}` = \"{}\" is of expctl's own worker, but `{}` runs in its place",
                Train::MODE,
                Mode::Emulate.name(),
                Worker::COMMAND
            );
            let problem = self.conflict(values, &Train::MODE, &Worker::COMMAND, message, "not possible");
            problems.push(problem.help("have the program wait in its step, or leave one of the two out"));
            return;
        }
        let named = values.get(Train::STEP_TIMES_OF).filter(|named| !named.is_empty());
        let ways = [
            (Train::EMULATE.name(), preset != AcceleratorPreset::None),
            (Train::STEP_MS.name(), values.at(&Train::STEP_MS).is_some()),
            (Train::STEP_TIMES_OF.name(), named.is_some()),
        ];
        let given: Vec<&str> = ways.into_iter().filter(|(_, is_given)| *is_given).map(|(key, _)| key).collect();
        match given.as_slice() {
            [] => {
                let message = format!("`{}` is \"emulate\", but nothing says how long a step takes", Train::MODE);
                problems.push(Problem::new(self.at(values, &Train::MODE), message, "how long?").help(WAYS));
            }
            [_] => self.step_time(values, named.as_deref(), problems),
            [first, second, ..] => {
                let message = format!("`{first}` and `{second}` both say how long a step takes");
                let problem = self.conflict(values, second, first, message, "only one of them can");
                problems.push(problem.help("leave one out"));
            }
        }
    }

    /// The one setting that says how long steps take.
    fn step_time(&mut self, values: &Values, named: Option<&str>, problems: &mut Vec<Problem>) {
        let preset = values.get(Train::EMULATE).unwrap_or_default();
        if let Some((step, batch)) = preset.published().zip(values.get(Loader::BATCH_SIZE))
            && batch != step.batch_size
        {
            let message = format!(
                "the published step of \"{}\" is of {} samples, but a batch has {batch}",
                preset.name(),
                step.batch_size
            );
            let problem = self.conflict(values, &Train::EMULATE, &Loader::BATCH_SIZE, message, "of another batch");
            let help = format!(
                "set loader.batch_size to {}, or name the time of your own step: train.step_ms = {}",
                step.batch_size, step.ms
            );
            problems.push(problem.help(help));
        }
        if let Some(named) = named {
            if let Err(reason) = self.step_times(named) {
                let message = format!("`{}`: {reason}", Train::STEP_TIMES_OF);
                let problem = Problem::new(self.at(values, &Train::STEP_TIMES_OF), message, "no step times there");
                problems.push(problem.help(
                    "name a job of results/runs whose steps computed a model: \"12\", or \"12/NAME\" for one of its variants or trials",
                ));
            }
            return;
        }
        let Some(StepMs(times)) = values.get(Train::STEP_MS) else { return };
        let Some(longest) = times.iter().copied().reduce(f64::max) else {
            let message = format!("`{}` is empty", Train::STEP_MS);
            problems.push(Problem::new(self.at(values, &Train::STEP_MS), message, "how long?").help(WAYS));
            return;
        };
        let Some(limit) = values.get(Launch::HANG_TIMEOUT_S).filter(|limit| *limit > 0) else { return };
        if longest / 1e3 >= limit as f64 {
            let message =
                format!("a step of {longest} ms would count as stuck: `{}` is {limit}", Launch::HANG_TIMEOUT_S);
            let problem = self.conflict(values, &Train::STEP_MS, &Launch::HANG_TIMEOUT_S, message, "too long");
            problems.push(problem.help("set launch.hang_timeout_s higher, or to 0"));
        }
    }

    /// Settings of emulated steps where no setting says what a step does. A config that sets `train.mode` to another one keeps them ready.
    fn emulation_is_off(&self, values: &Values, problems: &mut Vec<Problem>) {
        if values.at(&Train::MODE).is_some() || values.runs_command() {
            return;
        }
        let is_off =
            |key: &str| key == Train::EMULATE.name() && values.get(Train::EMULATE) == Some(AcceleratorPreset::None);
        let mut set = Train::EMULATION.into_iter().filter(|key| !is_off(key));
        let Some((key, at)) = set.find_map(|key| Some((key, values.at(key)?))) else { return };
        let message = format!("`{key}` is set, but `{}` is not \"{}\"", Train::MODE, Mode::Emulate.name());
        let problem = Problem::new(at, message, "would have no effect");
        problems.push(problem.help("set train.mode = \"emulate\""));
    }
}
