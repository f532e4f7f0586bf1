//! The mean steps of all variants by stage: exposed and busy times, a row per variant and a column per stage.

use std::collections::BTreeMap;

use expctl_ledger::{MeasuredJob, RunTotals, Stage, StageSeconds};
use expctl_text::Table;
use expctl_text::format::{self, MISSING, missing};
use serde::Serialize;

use super::MAX_ROWS;
use crate::report::breakdown::Breakdown;
use crate::report::rates::completed_steps;

/// Tables of the stages, as markdown.
#[derive(Clone, Debug, Serialize)]
pub struct StageTables {
    /// Exposed time of each stage, with its share of the step.
    pub exposed: String,
    /// Busy time of each stage, for a step and for a sample.
    pub busy: String,
    /// Time on the device; `None` without a device.
    pub device: Option<String>,
    /// Exposed seconds in all steps of a rank, warm-up included.
    pub seconds: String,
}

/// A variant with its mean step.
struct VariantSteps {
    label: String,
    breakdown: Breakdown,
    totals: Option<RunTotals>,
}

/// The tables of all variants with a completed run, in the order of `labels`. `None` without such a variant.
pub fn stage_tables(job: &MeasuredJob, labels: &[&str]) -> Option<StageTables> {
    let steps = job.by_label().into_iter().filter_map(|(label, runs)| {
        let breakdown = Breakdown::from_steps(completed_steps(&runs))?;
        Some(VariantSteps { label, breakdown, totals: RunTotals::from_runs(&runs) })
    });
    let mut all: Vec<VariantSteps> = steps.collect();
    let index_by_label: BTreeMap<&str, usize> = labels.iter().copied().zip(0..).collect();
    all.sort_by_key(|variant| index_by_label.get(variant.label.as_str()).copied());
    let device = all.iter().any(|variant| variant.breakdown.device.is_some());
    (!all.is_empty()).then(|| StageTables {
        exposed: exposed(&all).at_most(MAX_ROWS).markdown(),
        busy: busy(&all).at_most(MAX_ROWS).markdown(),
        device: device.then(|| on_device(&all).at_most(MAX_ROWS).markdown()),
        seconds: seconds(&all).at_most(MAX_ROWS).markdown(),
    })
}

/// Times by stage, as a breakdown has them.
type StageTimes = [(Stage, Option<f64>)];

/// The time of a stage; `None` if it did not happen.
fn of_stage(times: &StageTimes, stage: Stage) -> Option<f64> {
    times.iter().find(|(other, _)| *other == stage).and_then(|(_, ns)| *ns)
}

/// The stages for which some variant has a time.
fn happened<'a>(all: &'a [VariantSteps], times: impl Fn(&'a Breakdown) -> Option<&'a StageTimes>) -> Vec<Stage> {
    let has = |stage: &Stage| {
        all.iter().any(|variant| times(&variant.breakdown).is_some_and(|times| of_stage(times, *stage).is_some()))
    };
    Stage::ALL.into_iter().filter(has).collect()
}

/// A table with a column for each stage between the variant and `ends`.
fn table(stages: &[Stage], ends: &[&str]) -> Table {
    let names = stages.iter().map(|stage| stage.name());
    let header: Vec<&str> = std::iter::once("Variant").chain(names).chain(ends.iter().copied()).collect();
    let columns = header.len();
    Table::new(header).right(1..columns)
}

fn exposed(all: &[VariantSteps]) -> Table {
    let stages = happened(all, |breakdown| Some(breakdown.exposed.as_slice()));
    let mut table = table(&stages, &["unattributed", "all loading", "step"]);
    for VariantSteps { label, breakdown, .. } in all {
        let cell = |ns: f64| format!("{} ({})", format::milliseconds_in_column(ns), format::share(ns, breakdown.wall));
        let shown = |ns: Option<f64>| ns.map_or_else(missing, cell);
        let of_stages = stages.iter().map(|stage| shown(of_stage(&breakdown.exposed, *stage)));
        let ends = [cell(breakdown.unattributed), shown(breakdown.exposed_in(&Stage::LOADER))];
        let step = format::milliseconds_in_column(breakdown.wall);
        table.row(std::iter::once(label.clone()).chain(of_stages).chain(ends).chain([step]));
    }
    table
}

fn busy(all: &[VariantSteps]) -> Table {
    let stages = happened(all, |breakdown| Some(breakdown.busy.as_slice()));
    let mut table = table(&stages, &["all loading", "steps"]);
    for VariantSteps { label, breakdown, .. } in all {
        let per_sample =
            |ns: f64| breakdown.per_sample(ns).map_or_else(|| MISSING.to_owned(), format::milliseconds_in_column);
        let cell = |ns: f64| format!("{} ({})", format::milliseconds_in_column(ns), per_sample(ns));
        let shown = |ns: Option<f64>| ns.map_or_else(missing, cell);
        let of_stages = stages.iter().map(|stage| shown(of_stage(&breakdown.busy, *stage)));
        let ends = [shown(breakdown.busy_in(&Stage::LOADER)), format::thousands(breakdown.steps)];
        table.row(std::iter::once(label.clone()).chain(of_stages).chain(ends));
    }
    table
}

fn on_device(all: &[VariantSteps]) -> Table {
    let stages = happened(all, |breakdown| breakdown.device.as_deref());
    let mut table = table(&stages, &["all"]);
    for VariantSteps { label, breakdown, .. } in all {
        let shown = |ns: Option<f64>| ns.map_or_else(missing, format::milliseconds_in_column);
        let times = breakdown.device.as_deref().unwrap_or_default();
        let of_stages = stages.iter().map(|stage| shown(of_stage(times, *stage)));
        let sum = times.iter().filter_map(|(_, ns)| *ns).reduce(|sum, ns| sum + ns);
        table.row(std::iter::once(label.clone()).chain(of_stages).chain([shown(sum)]));
    }
    table
}

fn seconds(all: &[VariantSteps]) -> Table {
    let run = |variant: &VariantSteps| variant.totals.as_ref().map(|totals| totals.run.clone());
    let waited = |stage: &Stage| {
        let has = |variant: &VariantSteps| run(variant).is_some_and(|run| exposed_s(&run.stages, *stage).is_some());
        all.iter().any(has)
    };
    let stages: Vec<Stage> = Stage::ALL.into_iter().filter(waited).collect();
    // The table of trials has the number of steps.
    let mut table = table(&stages, &["all"]);
    for variant in all {
        let run = run(variant);
        let times = |stage: &Stage| run.as_ref().and_then(|run| exposed_s(&run.stages, *stage));
        let of_stages = stages.iter().map(|stage| times(stage).map_or_else(missing, format::seconds));
        let wall = run.as_ref().map_or_else(missing, |run| format::seconds(run.wall_s));
        table.row(std::iter::once(variant.label.clone()).chain(of_stages).chain([wall]));
    }
    table
}

/// Seconds that steps waited for a stage; `None` if they did not.
fn exposed_s(stages: &[StageSeconds], stage: Stage) -> Option<f64> {
    stages.iter().find(|of| of.stage == stage).map(|of| of.exposed_s).filter(|s| *s > 0.0)
}
