use super::cautions::{cautions, grouped};
use super::figures::{Breakdown, all_rates, completed_steps, measured};
use super::format;
use super::resumed::on_attempts;
use super::worlds::{crowded, scaled};
use crate::ledger::{MeasuredJob, Run};

/// Share of a step that may stay unattributed before it is said.
const CLOSURE_LIMIT: f64 = 0.05;

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
        all.push(format!("{none}: no completed run with measured steps, so no figures"));
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
        if let Some(b) = Breakdown::of(completed_steps(&runs))
            && b.open_share().abs() > CLOSURE_LIMIT
        {
            let share = format::percent(b.open_share());
            all.push(format!("{label}: the stages do not close, {share} of the step is unattributed"));
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
    all.extend(job.runs.iter().flat_map(on_attempts));
    for run in job.incomplete() {
        all.push(format!("trial {} is not counted, {}", run.trial.id, run.state.words()));
    }
    all
}

/// Ranks of a run that measured fewer steps than asked for.
fn short(label: &str, run: &Run) -> Vec<String> {
    let wanted = run.trial.settings.measure.steps as usize;
    let repeat = run.trial.repeat;
    // Training that stopped early did all that it set out to do.
    if run.stopped_after().is_some() {
        return Vec::new();
    }
    let steps = run.ranks.iter().map(|steps| measured(steps).count()).enumerate();
    let said = steps.filter(|(_, steps)| *steps < wanted).map(|(rank, steps)| {
        let words = format!("{steps} of {wanted} measured steps");
        let warm_up = run.warm_up_after_checkpoints(rank);
        if warm_up == 0 {
            return (rank, words);
        }
        let after = format::count(run.parts.len() as u64 - 1, "checkpoint");
        let among = if steps + warm_up == wanted { "" } else { "among others, " };
        (rank, format!("{words}: {among}{} after {after} are warm-up", format::count(warm_up as u64, "step")))
    });
    let said: Vec<(usize, String)> = said.collect();
    let name = format!("{label}, repeat {repeat}");
    match said.first() {
        // A checkpoint is of all ranks, so most often they say the same.
        Some((_, words)) if said.len() == run.ranks.len() && said.iter().all(|(_, other)| other == words) => {
            vec![format!("{name}, every rank: {words}")]
        }
        _ => said.iter().map(|(rank, words)| format!("{name}, rank {rank}: {words}")).collect(),
    }
}
