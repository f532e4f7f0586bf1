//! `[profile]` and `[trace]`. Invariant: a profile that a config asks for is recorded whole, or the config is refused.

use expctl_settings::{Launch, Measure, Profile, ProfileWindow, TraceAt, Worker};

use super::Judge;
use crate::config::Values;
use crate::problem::Problem;

impl Judge<'_> {
    /// Windows of the profiler against the steps and the ranks of the trial.
    pub fn profiler(&self, values: &Values, problems: &mut Vec<Problem>) {
        let (active, at_step) = (values.get(Profile::ACTIVE), values.get(TraceAt::AT_STEP));
        let (Some(active), Some(at_step)) = (active, at_step) else { return };
        if active == 0 && at_step == 0 {
            return self.profiler_is_off(values, problems);
        }
        let key = if at_step > 0 { TraceAt::AT_STEP } else { Profile::ACTIVE };
        if values.runs_command() {
            let message = format!("`{key}` profiles expctl's own worker, but `{}` runs in its place", Worker::COMMAND);
            let problem = Problem::new(self.at(values, &key), message, "not possible");
            problems.push(problem.help("profile within the program, or leave it out"));
            return;
        }
        if active > 0 && at_step > 0 {
            let message = format!("`{}` and `{}` both say which steps are recorded", TraceAt::AT_STEP, Profile::ACTIVE);
            let problem = Problem::new(self.at(values, &key), message, "only one of them can");
            problems.push(problem.help("leave one out"));
            return;
        }
        self.profiled_ranks(values, problems);
        let (Some(profile), Some(warmup), Some(steps)) =
            (schedule(values, active), values.get(Measure::WARMUP), values.get(Measure::STEPS))
        else {
            return;
        };
        let all = warmup.saturating_add(steps);
        let Some(last) = profile.windows(TraceAt { at_step }, warmup).pop().filter(|window| window.end > all) else {
            return;
        };
        let message = format!(
            "the profiler would record {}, but the last of {all} steps ({warmup} of warm-up) is step {}",
            recorded_steps(last),
            all.saturating_sub(1)
        );
        let help = match at_step {
            0 => "record fewer steps or cycles, wait less, or set measure.steps higher".to_owned(),
            _ => format!("set at_step to at most {}", all.saturating_sub(1)),
        };
        problems.push(self.conflict(values, &key, &Measure::STEPS, message, "beyond the end").help(help));
    }

    /// A profiler that never runs. Texts may keep settings of it for `--set` to turn on, so only a schedule without a word on whether it is on is
    /// reported.
    fn profiler_is_off(&self, values: &Values, problems: &mut Vec<Problem>) {
        // A config that keeps its schedule ready, with active = 0, says so itself.
        if values.at(&Profile::ACTIVE).is_some() || values.at(&TraceAt::AT_STEP).is_some() {
            return;
        }
        let schedule = [Profile::WAIT.name(), Profile::WARMUP.name(), Profile::REPEAT.name(), Profile::RANKS.name()];
        if let Some(at) = schedule.iter().find_map(|key| values.at(key)) {
            let problem = Problem::new(at, "`[profile]` is set, but records no step", "would have no effect");
            problems.push(problem.help("set profile.active to the number of steps to record"));
        }
    }

    /// Ranks that record exist, and are named once.
    fn profiled_ranks(&self, values: &Values, problems: &mut Vec<Problem>) {
        let key = Profile::RANKS;
        let (Some(all), Some(ranks)) = (values.get(Launch::RANKS), values.get(key)) else { return };
        for (i, rank) in ranks.iter().enumerate() {
            let at = self.item_at(values, &key, i);
            if *rank >= all {
                let message = format!("`{key}` names rank {rank}, but there are {all} ranks, counted from 0");
                let help = "ranks that record: those below launch.ranks; empty is all";
                problems.push(Problem::new(at, message, "no such rank").help(help));
            } else if ranks[..i].contains(rank) {
                problems.push(Problem::new(at, format!("`{key}` names rank {rank} twice"), "each rank once"));
            }
        }
    }

    /// Operations are timed inside expctl's own worker.
    pub fn operations(&self, values: &Values, problems: &mut Vec<Problem>) {
        let key = Profile::OPERATIONS;
        if values.get(key) != Some(true) || !values.runs_command() {
            return;
        }
        let message = format!("`{key}` is of expctl's own worker, but `{}` runs in its place", Worker::COMMAND);
        problems.push(Problem::new(self.at(values, &key), message, "not possible").help("leave it out"));
    }
}

/// The cycles of the profiler.
fn schedule(values: &Values, active: u64) -> Option<Profile> {
    Some(Profile {
        wait: values.get(Profile::WAIT)?,
        warmup: values.get(Profile::WARMUP)?,
        active,
        repeat: values.get(Profile::REPEAT)?,
        ..Profile::default()
    })
}

/// `step 50`, `steps 50 to 52`.
fn recorded_steps(window: ProfileWindow) -> String {
    match window.end.saturating_sub(1) {
        last if last == window.first => format!("step {last}"),
        last => format!("steps {} to {last}", window.first),
    }
}
