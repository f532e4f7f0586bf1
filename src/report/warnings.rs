use super::cautions::cautions;
use super::compare::Line;
use super::figures::{Breakdown, Closure, all_rates, completed_steps, measured};
use super::format;
use super::resumed::on_attempts;
use super::warning::{Bearing, Cause, Caution, RatioInterval, Warning, merged, rank};
use super::worlds::{crowded, scaled};
use expctl_record::{MeasuredJob, Run};

/// What a reader must know before believing a job's figures: one warning for each cause, those that forbid or change a verdict
/// first. `lines` are the job's rows with their verdicts.
pub fn warnings<'a>(job: &MeasuredJob, lines: impl Iterator<Item = &'a Line>) -> Vec<Warning> {
    let ratios: Vec<RatioInterval> =
        lines.filter_map(|line| RatioInterval::of(line, |row| row.label.clone())).collect();
    let mut found: Vec<(String, Caution)> = Vec::new();
    for (label, runs) in job.by_label() {
        let of_variant = of_variant(&runs).into_iter().chain(cautions(&runs, job.record.on_slurm()));
        found.extend(of_variant.map(|caution| (label.clone(), caution)));
    }
    for scaled in scaled(job) {
        let crowds = scaled.worlds.iter().filter_map(|world| crowded(job, &world.runs));
        found.extend(crowds.map(|crowd| {
            let said = format!("{crowd}: how it scales says nothing of a machine with a processor for each rank");
            (scaled.label.clone(), Caution::new(Cause::MoreRanksThanProcessors, 0.0, said))
        }));
    }
    let mut all = of_job(job);
    all.extend(merged(found, &ratios));
    rank(&mut all);
    all
}

/// What is to be said of trials and of the job.
fn of_job(job: &MeasuredJob) -> Vec<Warning> {
    let mut all = Vec::new();
    if let Some(name) = job.baseline_not_run() {
        let said = format!("the baseline `{name}` was not run, so there are no ratios");
        all.push(Warning::of_job(Cause::BaselineNotRun, said));
    }
    all.extend(job.runs.iter().flat_map(on_attempts).map(|said| Warning::of_job(Cause::Attempts, said)));
    // Trials that are missing for the same reason share a sentence.
    let mut missing: Vec<(String, Vec<&str>)> = Vec::new();
    for run in job.incomplete() {
        let (words, id) = (run.state.words(), run.trial.id.as_str());
        match missing.iter_mut().find(|(known, _)| *known == words) {
            Some((_, trials)) => trials.push(id),
            None => missing.push((words, vec![id])),
        }
    }
    all.extend(missing.into_iter().map(|(words, trials)| {
        let said = match trials[..] {
            [trial] => format!("trial {trial} is not counted, {words}"),
            _ => format!("{} trials are not counted, {words}: {}", trials.len(), trials.join(", ")),
        };
        Warning::of_job(Cause::NotCounted, said)
    }));
    all
}

/// What is to be said of the runs of a variant besides the signs in their steps.
fn of_variant(runs: &[&Run]) -> Vec<Caution> {
    let mut all = Vec::new();
    match all_rates(runs).len() {
        0 => {
            all.push(Caution::new(Cause::NoRun, 0.0, "no completed run with measured steps, so no figures".to_owned()))
        }
        1 => {
            let said = "n = 1, so nothing can be said of the spread and no verdict is given";
            all.push(Caution::new(Cause::OneRun, 0.0, said.to_owned()));
        }
        _ => {}
    }
    if runs.iter().any(|run| run.trial.settings.profiles()) {
        let said = "profiled, and what the profiler costs is in these times: they are in no ratio";
        all.push(Caution::new(Cause::Profiled, 0.0, said.to_owned()));
    }
    all.extend(missing_steps(runs));
    all.extend(unattributed(runs));
    all
}

/// The rank that misses most of the measured steps that were asked for, and how many others do.
fn missing_steps(runs: &[&Run]) -> Option<Caution> {
    // Training that stopped early did all that it set out to do.
    let runs = runs.iter().copied().filter(|run| run.completed() && run.stopped_after().is_none());
    let short: Vec<(&Run, usize, usize)> = runs.flat_map(short_ranks).collect();
    let (run, rank, steps) = *short.iter().min_by(|a, b| share_measured(a).total_cmp(&share_measured(b)))?;
    let alike = short.iter().filter(|other| std::ptr::eq(other.0, run) && other.2 == steps).count();
    // A checkpoint is of all ranks, so most often they miss the same.
    let (who, told) = if alike == run.ranks.len() && alike > 1 {
        ("every rank".to_owned(), alike)
    } else {
        (format!("rank {rank}"), 1)
    };
    let others = match short.len() - told {
        0 => String::new(),
        n => format!(" (and {} with fewer than asked for)", format::count(n as u64, "other rank")),
    };
    let asked = run.trial.settings.measure.steps;
    let warm_up = run.warm_up_after_checkpoints(rank);
    let reason = if warm_up == 0 {
        String::new()
    } else {
        let after = format::count(run.parts.len() as u64 - 1, "checkpoint");
        let among = if steps + warm_up == asked as usize { "" } else { "among others, " };
        format!(": {among}{} after {after} are warm-up", format::count(warm_up as u64, "step"))
    };
    let said = format!("repeat {}, {who}: {steps} of {asked} measured steps{reason}{others}", run.trial.repeat);
    Some(Caution::new(Cause::MissingSteps, 1.0 - share_measured(&(run, rank, steps)), said))
}

/// Ranks of a run that measured fewer steps than asked for, with the number of those that they measured.
fn short_ranks(run: &Run) -> Vec<(&Run, usize, usize)> {
    let asked = run.trial.settings.measure.steps as usize;
    let counted = run.ranks.iter().map(|steps| measured(steps).count()).enumerate();
    counted.filter(|(_, steps)| *steps < asked).map(|(rank, steps)| (run, rank, steps)).collect()
}

fn share_measured((run, _, steps): &(&Run, usize, usize)) -> f64 {
    *steps as f64 / run.trial.settings.measure.steps as f64
}

/// Stages that do not make up the step, or make up more than the step. Shown where what is missing or too much is more than any stage
/// takes: the longest wait is not known then.
fn unattributed(runs: &[&Run]) -> Option<Caution> {
    let breakdown = Breakdown::of(completed_steps(runs))?;
    let (cause, said) = match breakdown.closure() {
        Closure::Closed => return None,
        Closure::Open(share) => {
            let share = format::percent(share);
            (Cause::Unattributed, format!("the stages do not close, {share} of the step is unattributed"))
        }
        Closure::Overlap(sum) => {
            let sum = format::percent(sum);
            (Cause::Overlap, format!("stages overlap or were counted twice: they add up to {sum} of the step"))
        }
    };
    let caution = Caution::new(cause, breakdown.open_share().abs(), said);
    let hidden = breakdown.most_exposed().is_none_or(|(_, ns)| breakdown.unattributed.abs() > ns);
    let bearing = if hidden { Bearing::Unknown } else { caution.bearing };
    Some(Caution { bearing, ..caution })
}
