//! The traces of two sides compared stage by stage and operation by operation.

use std::collections::BTreeMap;

use expctl_ledger::Stage;
use expctl_stats::{
    ComparedSteps, MIN_RUNS_FOR_VERDICT, MIN_SECONDS_FOR_VERDICT, RatioOfRuns, Verdict, compare_steps, judge, mean,
};
use serde::{Serialize, Serializer};

use super::longest_calls::{LongestCall, longest_of_all};
use super::step_times::{CallTime, StepFigures};
use super::summary::Summary;

/// One side of a comparison of traces: the recorded steps of a variant of a job, or of one trial of it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TraceSide {
    /// The job.
    pub job: u64,
    /// Its variant.
    pub variant: String,
    /// Name of the side within its job: the variant with its swept settings, or the id of the one trial.
    pub label: String,
    /// Display name of the variant in the config.
    pub method: String,
    /// Ids of the trials that the steps are of.
    pub trials: Vec<String>,
    /// The recorded steps, in the order of trials and of steps; in JSON their number.
    #[serde(serialize_with = "serialize_len")]
    pub steps: Vec<StepFigures>,
    /// The stage that has most of the own time of each operation, by name of the operation; empty for none.
    #[serde(skip)]
    pub stage_of: BTreeMap<String, String>,
    /// The longest single call whose time is all work of its own.
    pub longest: Option<LongestCall>,
}

fn serialize_len<S: Serializer>(steps: &[StepFigures], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(steps.len() as u64)
}

impl TraceSide {
    /// Add the traces of one trial.
    pub fn add(&mut self, trial: &str, summary: &Summary) {
        self.trials.push(trial.to_owned());
        self.steps.extend(summary.step_figures.iter().cloned());
        for operation in &summary.operations {
            self.stage_of.entry(operation.name.clone()).or_insert_with(|| operation.stage().to_owned());
        }
        let longest = longest_of_all(&summary.longest);
        if let Some(call) = longest.filter(|call| self.longest.as_ref().is_none_or(|known| call.ns > known.ns)) {
            self.longest = Some(call.clone());
        }
    }

    /// Its name in a sentence: `job 20 lazy`.
    pub fn name(&self) -> String {
        format!("job {} {}", self.job, self.label)
    }

    /// Seconds that were recorded: the summed length of the steps.
    pub fn recorded_s(&self) -> f64 {
        self.steps.iter().map(|step| step.wall).sum::<f64>() / 1e9
    }

    /// A figure of each step, in order.
    fn series(&self, of: impl Fn(&StepFigures) -> f64) -> Vec<f64> {
        self.steps.iter().map(of).collect()
    }
}

/// Verdict on a time of one side against that of the other, for the recorded windows alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeVerdict {
    /// It takes less time, and the p value, corrected for the table, is below 0.05.
    Faster,
    /// It takes more time, and the p value, corrected for the table, is below 0.05.
    Slower,
    /// The corrected p value is not below 0.05.
    NoDifferenceShown,
    /// Fewer than three steps were recorded on a side.
    TooFewSteps,
    /// Less than a second was recorded on a side.
    TooShort,
    /// No step differs from another on either side, so that no test is possible.
    NoSpread,
}

impl TimeVerdict {
    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::NoDifferenceShown => "no difference shown",
            Self::TooFewSteps => "too few steps",
            Self::TooShort => "recorded too briefly",
            Self::NoSpread => "no test possible",
        }
    }

    /// The verdict on a ratio, in words for steps.
    const fn from_verdict(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Faster => Self::Faster,
            Verdict::Slower => Self::Slower,
            Verdict::NoDifferenceShown => Self::NoDifferenceShown,
            Verdict::TooFewRuns => Self::TooFewSteps,
            Verdict::TooShort => Self::TooShort,
            Verdict::NoSpread => Self::NoSpread,
        }
    }
}

/// A stage or an operation on both sides, ns per step: means over the recorded steps, of each step over its ranks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedTime {
    /// Name of the stage or operation; `unattributed` and `whole step` beside the stages.
    pub name: String,
    /// The stage that has most of an operation's own time; `None` for stages, and for operations outside of stages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// Time in the baseline, ns: exposed time of a stage, own time of an operation; `None` where it did not happen.
    pub base_ns: Option<f64>,
    /// Time in the other side, ns.
    pub side_ns: Option<f64>,
    /// Busy time of a stage in the baseline and in the other side, ns; `None` for all else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy_ns: Option<[f64; 2]>,
    /// Calls of an operation per step in the baseline and in the other side; `None` for stages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<[f64; 2]>,
    /// Difference (side minus baseline, ns) and ratio (baseline over side: how many times as fast) with their intervals; `None` without
    /// recorded steps.
    pub compared: Option<ComparedSteps>,
    /// Verdict on the ratio; `None` without one.
    pub verdict: Option<TimeVerdict>,
    /// p value of the ratio, corrected by Holm over the table; `None` without a verdict that rests on one.
    pub p_holm: Option<f64>,
}

/// The traces of two sides, stage by stage and operation by operation.
#[derive(Clone, Debug, Serialize)]
pub struct TraceComparison<'a> {
    /// The side that ratios refer to.
    pub base: &'a TraceSide,
    /// The other side.
    pub side: &'a TraceSide,
    /// Exposed and busy times of the stages, then what is unattributed; the whole step last.
    pub stages: Vec<ComparedTime>,
    /// Operations of the host by own time, the longer one of both sides first.
    pub operations: Vec<ComparedTime>,
    /// Operations of devices, likewise.
    pub device_operations: Vec<ComparedTime>,
}

/// Name of the time of the whole step.
pub const WHOLE_STEP: &str = "whole step";

impl<'a> TraceComparison<'a> {
    /// Compare `side` with `base`. Each recorded step is one observation; the p values of each of the three tables are corrected
    /// together.
    pub fn new(base: &'a TraceSide, side: &'a TraceSide) -> Self {
        let mut comparison = Self {
            base,
            side,
            stages: stages(base, side),
            operations: operations(base, side, |step| &step.operations),
            device_operations: operations(base, side, |step| &step.device_operations),
        };
        let short = comparison.too_short().is_some();
        for times in [&mut comparison.stages, &mut comparison.operations, &mut comparison.device_operations] {
            judge_together(times, short);
        }
        comparison
    }

    /// Recorded steps of the two sides, the baseline's first.
    pub fn steps(&self) -> [usize; 2] {
        [self.base.steps.len(), self.side.steps.len()]
    }

    /// The side of which less was recorded, if that is too little for a verdict.
    pub fn too_short(&self) -> Option<&'a TraceSide> {
        let shorter = if self.side.recorded_s() < self.base.recorded_s() { self.side } else { self.base };
        (shorter.recorded_s() < MIN_SECONDS_FOR_VERDICT).then_some(shorter)
    }

    /// The side with the fewest steps, if these are too few for a verdict.
    pub fn too_few(&self) -> Option<&'a TraceSide> {
        let fewer = if self.side.steps.len() < self.base.steps.len() { self.side } else { self.base };
        (fewer.steps.len() < MIN_RUNS_FOR_VERDICT).then_some(fewer)
    }
}

/// The sides to compare, each pair with the baseline first. Sides of other jobs are compared with the same variant of the first side's job, where
/// that has it, else with its baseline: the variant `baseline`, or the first side. So are the sides of that job with which no other is
/// compared.
pub fn pairs(sides: &[TraceSide], baseline: Option<&str>) -> Vec<(usize, usize)> {
    let Some(job) = sides.first().map(|side| side.job) else { return Vec::new() };
    let of_first = |at: &usize| sides[*at].job == job;
    let all = 0..sides.len();
    let base = all.clone().filter(of_first).find(|at| baseline == Some(sides[*at].variant.as_str())).unwrap_or(0);
    let same =
        |side: &TraceSide| all.clone().filter(of_first).find(|at| sides[*at].label == side.label).unwrap_or(base);
    let mut found: Vec<(usize, usize)> =
        all.clone().filter(|at| !of_first(at)).map(|at| (same(&sides[at]), at)).collect();
    let alone = |at: &usize| *at != base && found.iter().all(|(with, _)| with != at);
    let rest: Vec<(usize, usize)> = all.clone().filter(of_first).filter(alone).map(|at| (base, at)).collect();
    found.extend(rest);
    found
}

fn stages(base: &TraceSide, side: &TraceSide) -> Vec<ComparedTime> {
    let happened =
        |of: &TraceSide, stage: Stage| of.steps.iter().any(|s| s.exposed[stage] > 0.0 || s.busy[stage] > 0.0);
    let mut found = Vec::new();
    for stage in Stage::ALL {
        let on = [happened(base, stage), happened(side, stage)];
        if on == [false, false] {
            continue;
        }
        let mut time = time_of(stage.name(), base, side, on, |step| step.exposed[stage]);
        let busy = |of: &TraceSide| mean(&of.series(|step| step.busy[stage])).unwrap_or_default();
        time.busy_ns = Some([busy(base), busy(side)]);
        found.push(time);
    }
    let exposed = |step: &StepFigures| step.exposed.iter().map(|(_, ns)| ns).sum::<f64>();
    found.push(time_of("unattributed", base, side, [true, true], |step| step.wall - exposed(step)));
    found.push(time_of(WHOLE_STEP, base, side, [true, true], |step| step.wall));
    found
}

fn operations(
    base: &TraceSide,
    side: &TraceSide,
    of: impl Fn(&StepFigures) -> &BTreeMap<String, CallTime>,
) -> Vec<ComparedTime> {
    let called = |side: &TraceSide, name: &str| side.steps.iter().any(|step| of(step).contains_key(name));
    let mut names: Vec<&String> = base.steps.iter().chain(&side.steps).flat_map(|step| of(step).keys()).collect();
    names.sort_unstable();
    names.dedup();
    let in_step = |step: &StepFigures, name: &str| of(step).get(name).copied().unwrap_or_default();
    let one = |name: &String| {
        let on = [called(base, name), called(side, name)];
        let mut time = time_of(name, base, side, on, |step| in_step(step, name).ns);
        let calls = |of: &TraceSide| mean(&of.series(|step| in_step(step, name).calls)).unwrap_or_default();
        time.calls = Some([calls(base), calls(side)]);
        let stage = base.stage_of.get(name).or_else(|| side.stage_of.get(name));
        time.stage = stage.filter(|stage| !stage.is_empty()).cloned();
        time
    };
    let mut found: Vec<ComparedTime> = names.into_iter().map(one).collect();
    let longer = |time: &ComparedTime| time.base_ns.unwrap_or_default().max(time.side_ns.unwrap_or_default());
    found.sort_by(|a, b| longer(b).total_cmp(&longer(a)));
    found
}

/// A time of both sides, without busy time, calls and verdict; `on`: whether it happened, in the baseline and in the other side.
fn time_of(
    name: &str,
    base: &TraceSide,
    side: &TraceSide,
    on: [bool; 2],
    of: impl Fn(&StepFigures) -> f64,
) -> ComparedTime {
    let (of_base, of_side) = (base.series(&of), side.series(&of));
    ComparedTime {
        name: name.to_owned(),
        stage: None,
        base_ns: mean(&of_base).filter(|_| on[0]),
        side_ns: mean(&of_side).filter(|_| on[1]),
        busy_ns: None,
        calls: None,
        compared: compare_steps(&of_side, &of_base),
        verdict: None,
        p_holm: None,
    }
}

/// Judge the ratios of a table together; those of windows that are too `short` have no verdict in words.
fn judge_together(times: &mut [ComparedTime], short: bool) {
    let tested: Vec<(usize, RatioOfRuns)> = times
        .iter()
        .enumerate()
        .filter_map(|(at, time)| time.compared.and_then(|found| Some((at, (found.ratio?, found.steps)))))
        .collect();
    let table: Vec<RatioOfRuns> = tested.iter().map(|(_, ratio)| *ratio).collect();
    for ((at, _), judgement) in tested.into_iter().zip(judge(&table)) {
        let verdict = TimeVerdict::from_verdict(judgement.verdict);
        if short && verdict != TimeVerdict::TooFewSteps {
            times[at].verdict = Some(TimeVerdict::TooShort);
        } else {
            times[at].verdict = Some(verdict);
            times[at].p_holm = judgement.p_holm;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps of so many ms, of which 10 ms are forward and the rest waits for collate; with `aten::mm` of 4 ms and what else is named.
    fn side(job: u64, label: &str, walls: &[f64], also: &[(&str, f64)]) -> TraceSide {
        let step = |(step, ms): (usize, &f64)| {
            let mut figures = StepFigures { step: step as u64, ranks: 1, wall: ms * 1e6, ..StepFigures::default() };
            figures.exposed[Stage::Forward] = 1e7;
            figures.busy[Stage::Forward] = 1e7;
            figures.exposed[Stage::Collate] = (ms - 10.0) * 1e6;
            figures.busy[Stage::Collate] = 4.0 * (ms - 10.0) * 1e6;
            let ops = std::iter::once(("aten::mm", 4.0 + (step % 3) as f64 * 0.01)).chain(also.iter().copied());
            figures.operations =
                ops.map(|(name, ms)| (name.to_owned(), CallTime { calls: 2.0, ns: ms * 1e6 })).collect();
            figures
        };
        let steps = walls.iter().enumerate().map(step).collect();
        TraceSide { job, variant: label.to_owned(), label: label.to_owned(), steps, ..TraceSide::default() }
    }

    fn time<'a>(times: &'a [ComparedTime], name: &str) -> &'a ComparedTime {
        times.iter().find(|time| time.name == name).unwrap()
    }

    #[test]
    fn stages_are_compared_step_by_step() {
        let base = side(20, "lazy", &[400.0, 404.0, 396.0, 401.0], &[]);
        let other = side(21, "lazy", &[600.0, 610.0, 596.0], &[]);
        let found = TraceComparison::new(&base, &other);
        let names: Vec<&str> = found.stages.iter().map(|time| time.name.as_str()).collect();
        assert_eq!(names, ["collate", "forward", "unattributed", WHOLE_STEP]);
        let (collate, whole) = (time(&found.stages, "collate"), time(&found.stages, WHOLE_STEP));
        assert_eq!(collate.busy_ns.map(|ns| ns[0] / collate.base_ns.unwrap()), Some(4.0));
        let compared = whole.compared.unwrap();
        let (difference, ratio) = (compared.difference, compared.ratio.unwrap());
        let want = (1806.0 / 3.0 - 1601.0 / 4.0) * 1e6;
        assert!((difference.value / want - 1.0).abs() < 1e-12, "{difference:?}");
        assert!((ratio.value - 400.25 / 602.0).abs() < 1e-12 && ratio.interval.unwrap().high < 1.0 / 1.4);
        assert_eq!((whole.verdict, compared.steps), (Some(TimeVerdict::Slower), (3, 4)));
        // All steps of both took the same there: nothing can be tested.
        assert_eq!(time(&found.stages, "forward").verdict, Some(TimeVerdict::NoSpread));
        // Nothing is left, of which there is no ratio.
        let rest = time(&found.stages, "unattributed");
        assert_eq!((rest.verdict, rest.compared.unwrap().ratio), (None, None));
    }

    #[test]
    fn operations_of_one_side_have_no_ratio() {
        let base = side(20, "lazy", &[400.0, 404.0, 396.0], &[("aten::copy_", 9.0)]);
        let other = side(21, "lazy", &[402.0, 406.0, 399.0], &[("aten::scatter_", 1.0)]);
        let found = TraceComparison::new(&base, &other);
        let names: Vec<&str> = found.operations.iter().map(|time| time.name.as_str()).collect();
        assert_eq!(names, ["aten::copy_", "aten::mm", "aten::scatter_"]);
        let (copy, scatter) = (time(&found.operations, "aten::copy_"), time(&found.operations, "aten::scatter_"));
        assert_eq!((copy.base_ns, copy.side_ns, copy.calls), (Some(9e6), None, Some([2.0, 0.0])));
        assert_eq!((scatter.base_ns, scatter.side_ns), (None, Some(1e6)));
        assert_eq!((copy.verdict, copy.compared.unwrap().ratio), (None, None));
        let mm = time(&found.operations, "aten::mm");
        assert_eq!(mm.verdict, Some(TimeVerdict::NoDifferenceShown));
    }

    #[test]
    fn one_step_and_short_windows_have_no_verdict() {
        let (one, three) = (side(20, "lazy", &[4000.0], &[]), side(21, "lazy", &[400.0, 404.0, 396.0], &[]));
        let found = TraceComparison::new(&one, &three);
        let whole = time(&found.stages, WHOLE_STEP);
        assert_eq!(whole.verdict, Some(TimeVerdict::TooFewSteps));
        assert_eq!(whole.compared.unwrap().difference.interval, None);
        assert_eq!(found.too_few().map(|side| side.job), Some(20));
        // 75 ms: less than the second below which a machine's own rhythm decides.
        let short = side(21, "lazy", &[25.0, 24.0, 26.0], &[]);
        let found = TraceComparison::new(&three, &short);
        let whole = time(&found.stages, WHOLE_STEP);
        assert_eq!((whole.verdict, whole.p_holm), (Some(TimeVerdict::TooShort), None));
        assert!(whole.compared.unwrap().difference.interval.is_some());
        assert_eq!(found.too_short().map(|side| side.job), Some(21));
    }

    #[test]
    fn sides_of_two_jobs_are_paired_by_variant() {
        let named = |names: &[(u64, &str)]| -> Vec<TraceSide> {
            names.iter().map(|(job, label)| side(*job, label, &[1.0], &[])).collect()
        };
        let two = named(&[(20, "lazy"), (20, "dango"), (21, "dango"), (21, "lazy")]);
        assert_eq!(pairs(&two, Some("lazy")), [(1, 2), (0, 3)]);
        // What the first job lacks is held against its baseline, and so is what nothing else is compared with.
        let other = named(&[(20, "lazy"), (20, "dango"), (21, "ids")]);
        assert_eq!(pairs(&other, Some("dango")), [(1, 2), (1, 0)]);
        assert_eq!(pairs(&named(&[(20, "a"), (20, "b"), (20, "c")]), Some("b")), [(1, 0), (1, 2)]);
        assert_eq!(pairs(&named(&[(20, "a"), (20, "b")]), Some("gone")), [(0, 1)]);
        assert!(pairs(&[], None).is_empty() && pairs(&named(&[(20, "a")]), None).is_empty());
    }
}
