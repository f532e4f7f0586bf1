//! Signs in the step times of a variant's runs that a mean does not describe them, and what to do.

use expctl_record::{Run, RunPart, StepRecord};

use super::figures::{measured, periods, run_rates};
use super::format;
use super::warning::{Cause, Caution};
use crate::stats::{
    Drift, MIN_PERIODS_FOR_INTERVAL, Outliers, Periods, WarmUp, drift, mean, outlying, slow_outliers, warm_up,
};

/// Share of the outliers that must be the first steps of epochs for these to be named as the reason.
const MOSTLY: f64 = 0.8;

/// What the steps of one rank of a run look like.
struct Shape<'a> {
    run: &'a Run,
    /// What the run is called among those that it stands with.
    of: String,
    rank: usize,
    warm_up: Option<WarmUp>,
    /// Of the steps behind the warm-up.
    drift: Option<Drift>,
    outliers: Option<Outliers>,
    /// Blocks of rows that the rank read in all its measured steps, by its settings.
    periods: Option<Periods>,
    /// The steps behind the warm-up.
    steps: Vec<&'a StepRecord>,
}

impl<'a> Shape<'a> {
    fn of(run: &'a Run, of: String, rank: usize) -> Self {
        let steps: Vec<&StepRecord> = measured(&run.ranks[rank]).collect();
        let times = |steps: &[&StepRecord]| steps.iter().map(|step| step.wall_ns as f64).collect::<Vec<f64>>();
        let periods = periods(run, &run.ranks[rank]);
        let warm_up = warm_up(&times(&steps), periods.as_ref());
        let cut = warm_up.map_or(0, |found| found.steps);
        let steps = steps[cut..].to_vec();
        let rest = times(&steps);
        let behind = periods.as_ref().map(|periods| periods.behind(cut));
        let (drift, outliers) = (drift(&rest, behind.as_ref()), slow_outliers(&rest, behind.as_ref()));
        Self { run, of, rank, warm_up, drift, outliers, periods, steps }
    }

    fn name(&self) -> String {
        format!("{}, rank {}", self.of, self.rank)
    }
}

/// What a run is called: by its job too, where there are runs of several, for each of these counts its repeats from 1.
fn name(run: &Run, among: &[&Run]) -> String {
    let repeat = format!("repeat {}", run.trial.repeat);
    if among.iter().any(|other| other.job != run.job) { format!("job {}, {repeat}", run.job) } else { repeat }
}

/// What to say of the completed runs of one variant, a sentence for each sign, of the rank that has it most.
pub fn shape(runs: &[&Run]) -> Vec<Caution> {
    let completed: Vec<&Run> = runs.iter().copied().filter(|run| run.completed()).collect();
    let ranks = completed.iter().flat_map(|run| (0..run.ranks.len()).map(move |rank| (*run, rank)));
    let shapes: Vec<Shape<'_>> = ranks.map(|(run, rank)| Shape::of(run, name(run, &completed), rank)).collect();
    let mut all = Vec::new();
    all.extend(on_blocks(&shapes));
    all.extend(on_warm_up(&shapes, completed.len()));
    all.extend(on_drift(&shapes, completed.len()));
    all.extend(on_outliers(&shapes, completed.len()));
    all.extend(on_runs(&completed));
    all
}

/// The shape that has a sign most, and in how many of the runs it is.
fn worst<'a, 'b>(
    shapes: &'b [Shape<'a>],
    runs: usize,
    how_much: impl Fn(&Shape<'a>) -> Option<f64>,
) -> Option<(&'b Shape<'a>, String)> {
    let with = || shapes.iter().filter_map(|shape| Some((how_much(shape)?, shape)));
    let (_, worst) = with().max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    // All ranks of a run stand together.
    let mut which: Vec<&Run> = with().map(|(_, shape)| shape.run).collect();
    which.dedup_by(|a, b| std::ptr::eq(*a, *b));
    let of = if runs > 1 { format!(" in {} of {runs} runs", which.len()) } else { String::new() };
    Some((worst, of))
}

/// Too few blocks of rows to tell what one costs.
fn on_blocks(shapes: &[Shape<'_>]) -> Option<Caution> {
    let least = shapes.iter().filter_map(|shape| shape.periods.as_ref());
    let periods = least.min_by(|a, b| a.count().total_cmp(&b.count()))?;
    let enough = MIN_PERIODS_FOR_INTERVAL as f64;
    (periods.count() < enough).then(|| {
        let steps = (enough * periods.length()).ceil();
        let said = format!(
            "a block of rows lasts {} steps, and {} were measured: a loader that reads a block at once has another share of slow steps \
             in the next measurement, so there is no interval within a run; set measure.steps to {} or more ({MIN_PERIODS_FOR_INTERVAL} blocks)",
            format::figure(periods.length()),
            format::count(periods.steps() as u64, "step"),
            steps,
        );
        Caution::new(Cause::FewBlocks, enough / periods.count(), said).advise("measure.steps", steps as u64)
    })
}

fn on_warm_up(shapes: &[Shape<'_>], runs: usize) -> Option<Caution> {
    let (shape, of) = worst(shapes, runs, |shape| shape.warm_up.map(|found| found.harm.abs()))?;
    let found = shape.warm_up?;
    let measure = &shape.run.trial.settings.measure;
    let longest = shapes.iter().filter_map(|shape| shape.warm_up).map(|found| found.steps).max()?;
    let lead = format!(
        "the warm-up is too short{of}: the first {} measured steps of {} took {} the rest{}, which makes the mean step {} {}",
        found.steps,
        shape.name(),
        format::ratio(found.ratio),
        if found.ratio < 1.0 { " (batches that lay ready?)" } else { "" },
        format::percent(found.harm.abs()),
        if found.harm > 0.0 { "longer" } else { "shorter" },
    );
    let warmup = measure.warmup + longest as u64;
    // A measurement that begins inside a period has more of its quick steps, or of its slow ones.
    let (warmup, whole) = match found.period {
        Some(period) => {
            let periods = (warmup as f64 / period).ceil();
            ((periods * period).ceil() as u64, format!(", whole periods of {} steps", format::figure(period)))
        }
        None => (warmup, String::new()),
    };
    let said = format!("{lead}; set measure.warmup to {warmup} or more{whole} (now {})", measure.warmup);
    // Without its first steps the mean step is 1 + harm times shorter.
    Some(Caution::with_effect(Cause::WarmUp, 1.0 + found.harm, said).advise("measure.warmup", warmup))
}

fn on_drift(shapes: &[Shape<'_>], runs: usize) -> Option<Caution> {
    let (shape, of) = worst(shapes, runs, |shape| shape.drift.map(|found| found.ratio.ln().abs()))?;
    let found = shape.drift?;
    let why = match found.ratio > 1.0 {
        _ if shape.run.resumed() => "its steps come from several attempts",
        true => "a clock that falls, memory that fills, or others on the node",
        false => "a long warm-up, a cache that fills, or others that left the node",
    };
    let said = format!(
        "step times drift{of}: in {} the second half took {} the first ({why}); measure more steps, and set measure.interleave \
         so that all variants share it",
        shape.name(),
        format::ratio(found.ratio),
    );
    // Had all steps been as those of the second half: where the rate goes.
    Some(Caution::with_effect(Cause::Drift, f64::midpoint(1.0, found.ratio) / found.ratio, said))
}

fn on_outliers(shapes: &[Shape<'_>], runs: usize) -> Option<Caution> {
    let (shape, of) = worst(shapes, runs, |shape| shape.outliers.as_ref().map(|found| found.harm))?;
    let found = shape.outliers.as_ref()?;
    let first_of_epoch = |place: &&usize| **place > 0 && shape.steps[**place].epoch != shape.steps[**place - 1].epoch;
    let (n, firsts) = (found.places.len(), found.places.iter().filter(first_of_epoch).count());
    let largest = found.places.iter().max_by_key(|place| shape.steps[**place].wall_ns)?;
    let what = if firsts as f64 >= MOSTLY * n as f64 {
        format!(
            "{firsts} of them the first of an epoch, where the loader starts again; more measured epochs show what that costs"
        )
    } else {
        let at = shape.steps[*largest].step;
        let part = shape.run.parts.iter().find(|part| part.steps.contains(&at));
        let node = part.and_then(|part| part.environment.as_ref()?.ranks.get(shape.rank));
        let node = node.map_or_else(|| "the node".to_owned(), |hardware| hardware.host.clone());
        format!(
            "they count in the mean; look at what else {node} did at that time, and at the median step beside the mean"
        )
    };
    let said = format!(
        "a few slow steps weigh much{of}: {} of {} in {} take {} of its time beyond the median (the longest, step {}, {} the \
         median), {what}",
        format::thousands(n as u64),
        format::thousands(shape.steps.len() as u64),
        shape.name(),
        format::percent(found.harm),
        shape.steps[*largest].step,
        format::ratio(found.largest),
    );
    // Had they been as long as the median.
    Some(Caution::with_effect(Cause::SlowSteps, 1.0 / (1.0 - found.harm), said))
}

/// Runs whose rate lies apart from that of the others.
fn on_runs(completed: &[&Run]) -> Option<Caution> {
    let rated: Vec<(&Run, f64)> =
        completed.iter().filter_map(|run| Some((*run, run_rates(run)?.samples_per_s))).collect();
    let rates: Vec<f64> = rated.iter().map(|(_, rate)| *rate).collect();
    let apart = outlying(&rates);
    let others: Vec<f64> = (0..rates.len()).filter(|i| !apart.contains(i)).map(|i| rates[i]).collect();
    let usual = mean(&others)?;
    let one = |i: &usize| {
        let (run, rate) = rated[*i];
        let mut hosts: Vec<&str> = run.parts.iter().flat_map(RunPart::hosts).collect();
        hosts.dedup();
        let on = if hosts.is_empty() { String::new() } else { format!(" on {}", hosts.join(", ")) };
        format!("{}{on} ({})", name(run, completed), format::ratio(rate / usual))
    };
    (!apart.is_empty()).then(|| {
        let which: Vec<String> = apart.iter().map(one).collect();
        let runs = format::count(others.len() as u64, "other run");
        let said = format!(
            "far from the {runs} in samples/s: {}; it counts, so look for the reason before you run again",
            which.join(", ")
        );
        // Ratios are of geometric means.
        let mean_log = |rates: &[f64]| rates.iter().map(|rate| rate.ln()).sum::<f64>() / rates.len() as f64;
        Caution::with_effect(Cause::RunApart, (mean_log(&others) - mean_log(&rates)).exp(), said)
    })
}
