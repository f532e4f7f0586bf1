use super::cautions::{cautions, grouped};
use super::figures::{Breakdown, all_rates, completed_steps, measured};
use super::format;
use crate::ledger::{MeasuredJob, Run};
use crate::stats;

/// Share of a step that may stay unattributed before it is said.
const CLOSURE_LIMIT: f64 = 0.05;
/// Change of the mean step time over a run before it is said.
const DRIFT_LIMIT: f64 = 0.10;
/// How much slower the first tenth may be than the rest.
const WARM_UP_LIMIT: f64 = 1.2;
/// Steps below which neither drift nor warm-up is judged.
const MIN_STEPS: usize = 20;

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
    all.extend(grouped(runs_of.iter().map(|(label, runs)| (label.clone(), cautions(runs)))));
    for (label, runs) in runs_of {
        for run in runs.iter().filter(|r| r.completed()) {
            all.extend(shape(&label, run));
        }
        if let Some(b) = Breakdown::of(completed_steps(&runs))
            && b.open_share().abs() > CLOSURE_LIMIT
        {
            let share = format::percent(b.open_share());
            all.push(format!("{label}: the stages do not close, {share} of the step is unattributed"));
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

/// Signs in the step times of a run that its mean does not describe it.
fn shape(label: &str, run: &Run) -> Vec<String> {
    let repeat = run.trial.repeat;
    let mut all = Vec::new();
    let wanted = run.trial.settings.measure.steps as usize;
    for (rank, steps) in run.ranks.iter().enumerate() {
        let walls: Vec<f64> = measured(steps).map(|s| s.wall_ns as f64).collect();
        // Training that stopped early did all that it set out to do.
        if walls.len() < wanted && run.stopped_after().is_none() {
            all.push(format!("{label}, repeat {repeat}, rank {rank}: {} of {wanted} measured steps", walls.len()));
        }
        if walls.len() < MIN_STEPS {
            continue;
        }
        let tenth = walls.len() / 10;
        let quarter = walls.len() / 4;
        // Loader threads deliver in bursts of up to their number, so the edges of a window may cut one off. Means, not
        // medians: in a burst most steps take no time at all.
        let burst = f64::from(run.trial.settings.loader.workers);
        let mean = |window: &[f64]| stats::mean(window).unwrap_or_default();
        let warm_up = mean(&walls[..tenth]) / mean(&walls[tenth..]).max(1.0);
        // The first tenth is left out here: a short warm-up is not a drift.
        let drift = mean(&walls[walls.len() - quarter..]) / mean(&walls[tenth..tenth + quarter]).max(1.0);
        if warm_up >= WARM_UP_LIMIT + burst / tenth as f64 {
            let ratio = format::ratio(warm_up);
            let text = "the first tenth of the measured steps took";
            all.push(format!(
                "{label}, repeat {repeat}, rank {rank}: {text} {ratio} the rest, the warm-up is too short"
            ));
        }
        if (drift - 1.0).abs() > DRIFT_LIMIT + burst / quarter as f64 {
            let ratio = format::ratio(drift);
            all.push(format!(
                "{label}, repeat {repeat}, rank {rank}: step times drift, the last quarter took {ratio} the first"
            ));
        }
    }
    all
}
