use super::cautions::{cautions, grouped};
use super::figures::{Breakdown, Closure, all_rates, completed_steps, measured};
use super::format;
use super::worlds::{crowded, scaled};
use crate::ledger::{MeasuredJob, Run};

/// What a reader must know before believing a job's figures, one sentence each.
pub fn warnings(job: &MeasuredJob) -> Vec<String> {
    let mut all = Vec::new();
    if let Some(name) = job.baseline_not_run() {
        all.push(format!("the baseline `{name}` was not run, so there are no ratios"));
    }
    let runs_of = job.by_label();
    let with = |n: usize| {
        let labels = runs_of.iter().filter(|(_, runs)| all_rates(runs).len() == n);
        labels.map(|(label, _)| label.as_str()).collect::<Vec<_>>().join(", ")
    };
    let (none, one) = (with(0), with(1));
    if !none.is_empty() {
        all.push(format!("{none}: no completed run, so no figures"));
    }
    if !one.is_empty() {
        all.push(format!("{one}: n = 1, so nothing can be said of the spread and no verdict is given"));
    }
    let profiled: Vec<&str> = runs_of
        .iter()
        .filter(|(_, runs)| runs.iter().any(|run| run.trial.settings.profiles()))
        .map(|(label, _)| label.as_str())
        .collect();
    if !profiled.is_empty() {
        let labels = profiled.join(", ");
        all.push(format!("{labels}: profiled, and what the profiler costs is in these times: they are in no ratio"));
    }
    all.extend(grouped(runs_of.iter().map(|(label, runs)| (label.clone(), cautions(runs)))));
    for (label, runs) in runs_of {
        for run in runs.iter().filter(|r| r.completed()) {
            all.extend(short(&label, run));
        }
        match Breakdown::of(completed_steps(&runs)).map(|breakdown| breakdown.closure()) {
            Some(Closure::Open(share)) => {
                let share = format::percent(share);
                all.push(format!("{label}: the stages do not close, {share} of the step is unattributed"));
            }
            Some(Closure::Overlap(sum)) => {
                let sum = format::percent(sum);
                all.push(format!("{label}: stages overlap or were counted twice: they add up to {sum} of the step"));
            }
            Some(Closure::Closed) | None => {}
        }
    }
    for scaled in scaled(job) {
        for crowd in scaled.worlds.iter().filter_map(|world| crowded(job, &world.runs)) {
            let label = &scaled.label;
            all.push(format!(
                "{label}: {crowd}: how it scales says nothing of a machine with a processor for each rank"
            ));
        }
    }
    for run in job.runs.iter().filter(|r| r.attempts > 1) {
        all.push(format!("trial {} took {} attempts; the last one counts", run.trial.id, run.attempts));
    }
    for run in job.incomplete() {
        all.push(format!("trial {} is not counted, {}", run.trial.id, run.state.words()));
    }
    all
}

/// Ranks of a run that measured fewer steps than asked for.
fn short(label: &str, run: &Run) -> Vec<String> {
    let wanted = run.trial.settings.measure.steps as usize;
    let repeat = run.trial.repeat;
    let steps = run.ranks.iter().map(|steps| measured(steps).count()).enumerate();
    // Training that stopped early did all that it set out to do.
    steps
        .filter(|(_, steps)| *steps < wanted && run.stopped_after().is_none())
        .map(|(rank, steps)| format!("{label}, repeat {repeat}, rank {rank}: {steps} of {wanted} measured steps"))
        .collect()
}
