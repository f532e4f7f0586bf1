//! What `[profile]` and `[trace]` go with. Invariant: a profile that is asked for is recorded whole, or the config is refused.

use expctl_record::{Profile, ProfileWindow, TraceAt};
use serde_json::Value as Json;

use super::problem::Problem;
use super::semantics::Judge;
use super::values::Values;
use super::worker_rules::runs_command;

const AT_STEP: &str = "trace.at_step";
const ACTIVE: &str = "profile.active";

impl Judge<'_> {
    /// Windows of the profiler against the steps and the ranks of the trial.
    pub(super) fn profiler(&self, values: &Values, problems: &mut Vec<Problem>) {
        let numbers = (values.number(ACTIVE), values.number(AT_STEP));
        let (Some(active), Some(at_step)) = numbers else { return };
        if active == 0 && at_step == 0 {
            return self.profiler_is_off(values, problems);
        }
        let key = if at_step > 0 { AT_STEP } else { ACTIVE };
        let mut report = |message: String, label: &str, help: String| {
            problems.push(Problem::new(self.at(values, key), message, label).help(help));
        };
        if runs_command(values) {
            let message = format!("`{key}` profiles expctl's own worker, but `worker.command` runs in its place");
            return report(message, "not possible", "profile within the program, or leave it out".to_owned());
        }
        if active > 0 && at_step > 0 {
            let message = format!("`{AT_STEP}` and `{ACTIVE}` both say which steps are recorded");
            return report(message, "only one of them can", "leave one out".to_owned());
        }
        self.profiled_ranks(values, problems);
        let (Some(profile), Some(warmup), Some(steps)) =
            (profile(values, active), values.number("measure.warmup"), values.number("measure.steps"))
        else {
            return;
        };
        let all = warmup.saturating_add(steps);
        let Some(last) = profile.windows(TraceAt { at_step }, warmup).pop().filter(|window| window.end > all) else {
            return;
        };
        let message = format!(
            "the profiler would record {}, but the last of {all} steps ({warmup} of warm-up) is step {}",
            words(last),
            all.saturating_sub(1)
        );
        let help = match at_step {
            0 => "record fewer steps or cycles, wait less, or set measure.steps higher".to_owned(),
            _ => format!("set at_step to at most {}", all.saturating_sub(1)),
        };
        let mut problem = Problem::new(self.at(values, key), message, "beyond the end");
        if let Some(at) = values.at("measure.steps") {
            problem = problem.also(at, "`measure.steps`");
        }
        problems.push(problem.help(help));
    }

    /// What is said of a profiler that never runs. Texts may hold it for `--set` to turn on, so only what is typed for a
    /// schedule is of interest.
    fn profiler_is_off(&self, values: &Values, problems: &mut Vec<Problem>) {
        // A config that keeps its schedule ready, with active = 0, says so itself.
        if values.at(ACTIVE).is_some() || values.at(AT_STEP).is_some() {
            return;
        }
        let said = ["profile.wait", "profile.warmup", "profile.repeat", "profile.ranks"];
        if let Some(at) = said.iter().find_map(|key| values.at(key)) {
            let problem = Problem::new(at, "`[profile]` is set, but records no step", "would have no effect");
            problems.push(problem.help("set profile.active to the number of steps to record"));
        }
    }

    fn profiled_ranks(&self, values: &Values, problems: &mut Vec<Problem>) {
        const KEY: &str = "profile.ranks";
        let (Some(all), Some(ranks)) = (values.number("launch.ranks"), values.get(KEY).and_then(Json::as_array)) else {
            return;
        };
        for (i, rank) in ranks.iter().enumerate().filter_map(|(i, rank)| Some((i, rank.as_u64()?))) {
            let at = values.item_at(KEY, i).unwrap_or_else(|| self.at(values, KEY));
            if rank >= all {
                let message = format!("`{KEY}` names rank {rank}, but there are {all} ranks, counted from 0");
                let help = "ranks that record: those below launch.ranks; empty is all";
                problems.push(Problem::new(at, message, "no such rank").help(help));
            } else if ranks[..i].iter().any(|before| before.as_u64() == Some(rank)) {
                problems.push(Problem::new(at, format!("`{KEY}` names rank {rank} twice"), "each rank once"));
            }
        }
    }
}

fn profile(values: &Values, active: u64) -> Option<Profile> {
    let number = |key| values.number(key);
    Some(Profile {
        wait: number("profile.wait")?,
        warmup: number("profile.warmup")?,
        active,
        repeat: number("profile.repeat")?,
        ..Profile::default()
    })
}

/// `step 50`, `steps 50 to 52`.
fn words(window: ProfileWindow) -> String {
    match window.end.saturating_sub(1) {
        last if last == window.first => format!("step {last}"),
        last => format!("steps {} to {last}", window.first),
    }
}
