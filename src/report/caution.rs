//! Cautions: what makes the rates of a variant doubtful. A caution comes from what the loader did other than its settings say, or from signs in
//! the step times that a mean does not describe them.

use expctl_ledger::{Run, RunPart, Stage, StepRecord};
use expctl_settings::{Settings, model_remarks};
use expctl_stats::{
    Drift, MIN_PERIODS_FOR_INTERVAL, MIN_SECONDS_FOR_VERDICT, Outliers, Periods, WarmUp, drift, mean, outlying,
    slow_outliers, warm_up,
};
use expctl_text::format;
use serde::{Serialize, Serializer};

use super::bottleneck::Oversubscription;
use super::breakdown::Breakdown;
use super::rates::{block_periods, completed_steps, measured_s, measured_steps, run_rates};
use super::side_by_side::beside_others;

/// Cause for which figures are doubtful, or other than the settings say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The baseline that the config names was not run.
    BaselineNotRun,
    /// A variant has no completed run.
    NoRun,
    /// A variant has one completed run.
    OneRun,
    /// A run was measured for too short a time.
    ShortMeasurement,
    /// A profiler ran along.
    Profiled,
    /// A trial did not complete.
    NotCounted,
    /// A rank has fewer measured steps than asked for.
    MissingSteps,
    /// A trial took several attempts.
    Attempts,
    /// The loader had less memory than its settings ask for.
    LessMemory,
    /// The data set has fewer samples than asked for.
    FewerSamples,
    /// Not all that steps read came from the disk, though the page cache was to be cold.
    NotCold,
    /// Other trials ran at the same time.
    SideBySide,
    /// The measurement ended before the batches that were loaded ahead were used up.
    Burst,
    /// The first measured steps are not like the rest.
    WarmUp,
    /// Step times change in the course of a run.
    Drift,
    /// A few slow steps make a mean what it is.
    SlowSteps,
    /// The rate of a run lies apart from those of the others.
    RunApart,
    /// The stages do not make up the step.
    Unattributed,
    /// The stages make up more than the step.
    Overlap,
    /// Fewer blocks of rows were measured than tell what one costs.
    FewBlocks,
    /// Masks leave out some of the edges that their samples remove.
    ApproximateMasks,
    /// More ranks than processors, where ranks were swept.
    MoreRanksThanProcessors,
    /// More threads than processors.
    MoreThreadsThanProcessors,
    /// The model computes another function of a sample than on the whole graph with masks, or does not read what the step makes for it.
    OtherFunction,
}

impl Cause {
    /// In words: `slow steps`.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::BaselineNotRun => "baseline not run",
            Self::NoRun => "no run",
            Self::OneRun => "one run",
            Self::ShortMeasurement => "short measurement",
            Self::Profiled => "profiler",
            Self::NotCounted => "runs not counted",
            Self::MissingSteps => "missing steps",
            Self::Attempts => "several attempts",
            Self::LessMemory => "less memory",
            Self::FewerSamples => "fewer samples",
            Self::NotCold => "page cache not cold",
            Self::SideBySide => "side by side",
            Self::Burst => "batches loaded ahead",
            Self::WarmUp => "warm-up",
            Self::Drift => "drift",
            Self::SlowSteps => "slow steps",
            Self::RunApart => "a run apart",
            Self::Unattributed => "unattributed time",
            Self::Overlap => "overlapping stages",
            Self::FewBlocks => "few blocks",
            Self::ApproximateMasks => "approximate masks",
            Self::MoreRanksThanProcessors => "more ranks than processors",
            Self::MoreThreadsThanProcessors => "more threads than processors",
            Self::OtherFunction => "another function",
        }
    }

    /// Its meaning for verdicts if its effect on the rate is not known.
    pub(crate) const fn bearing(self) -> Bearing {
        match self {
            Self::BaselineNotRun | Self::NoRun | Self::OneRun | Self::ShortMeasurement | Self::Profiled => {
                Bearing::ForbidsVerdict
            }
            Self::FewerSamples
            | Self::Unattributed
            | Self::Overlap
            | Self::FewBlocks
            | Self::MoreThreadsThanProcessors
            | Self::OtherFunction => Bearing::ChangesNoVerdict,
            _ => Bearing::Unknown,
        }
    }

    /// Whether each different sentence is a warning of its own, instead of one for the worst case.
    pub(crate) const fn by_sentence(self) -> bool {
        matches!(
            self,
            Self::BaselineNotRun
                | Self::NotCounted
                | Self::Attempts
                | Self::FewerSamples
                | Self::OtherFunction
                | Self::NotCold
        )
    }
}

/// Meaning of a warning for the verdicts, gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bearing {
    /// There can be no verdict.
    ForbidsVerdict,
    /// Without its effect a ratio's interval would exclude 1 that now does not, or the other way round.
    ChangesVerdict,
    /// How far it moves the rate is not known.
    Unknown,
    /// The verdicts are the same without its effect.
    ChangesNoVerdict,
}

/// A setting that removes a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// Key of the config.
    pub key: &'static str,
    /// The smallest value that helps.
    pub at_least: u64,
}

/// A cause at one variant.
#[derive(Clone, Debug, PartialEq)]
pub struct Caution {
    /// The cause.
    pub cause: Cause,
    /// Its meaning for verdicts, if `rate_without` is not known.
    pub bearing: Bearing,
    /// Factor by which the rate of the variant would change without the cause (1.25: a quarter more); `None` if not known.
    pub rate_without: Option<f64>,
    /// How bad it is among the variants with the same cause; larger is worse.
    pub severity: f64,
    /// The setting that removes it, if there is one.
    pub advice: Option<Advice>,
    /// Finding and advice, without the name of the variant.
    pub sentence: String,
}

impl Caution {
    /// A cause whose effect on the rate is not known.
    pub fn new(cause: Cause, severity: f64, sentence: String) -> Self {
        Self { cause, bearing: cause.bearing(), rate_without: None, severity, advice: None, sentence }
    }

    /// A cause without which the rate would be `rate_without` times what it is.
    pub fn with_effect(cause: Cause, rate_without: f64, sentence: String) -> Self {
        let severity = rate_without.ln().abs();
        Self { rate_without: Some(rate_without), ..Self::new(cause, severity, sentence) }
    }

    /// Add the setting that removes it.
    pub fn advise(self, key: &'static str, at_least: u64) -> Self {
        Self { advice: Some(Advice { key, at_least }), ..self }
    }
}

/// Serialize cautions as their sentences.
pub fn sentences<S: Serializer>(cautions: &[Caution], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(cautions.iter().map(|caution| &caution.sentence))
}

/// Factor of the shortest sufficient measurement that is advised.
const ENOUGH: f64 = 1.2;

/// Share of the bytes in the page cache up to which it counts as cold.
const COLD: f64 = 0.01;

/// All cautions of the completed runs of one variant; `on_slurm`: its job ran on Slurm.
pub fn cautions(runs: &[&Run], on_slurm: bool) -> Vec<Caution> {
    let completed: Vec<&Run> = runs.iter().copied().filter(|run| run.completed()).collect();
    // If the runs differ, the one with the least memory counts.
    let least =
        completed.iter().filter_map(|run| Some((buffer_capacity(run)?, *run))).min_by_key(|(batches, _)| *batches);
    let mut all = Vec::new();
    all.extend(short_measurement(&completed));
    all.extend(least.and_then(|(batches, run)| less_memory(batches, run)));
    all.extend(completed.iter().find_map(|run| fewer_samples(run)));
    all.extend(completed.iter().find_map(|run| stayed_in_cache(run)));
    all.extend(completed.iter().find_map(|run| read_again(run)));
    all.extend(completed.iter().find_map(|run| approximate_masks(run)));
    all.extend(beside_others(&completed));
    all.extend(completed.iter().find_map(|run| burst(run)));
    all.extend(shape_cautions(&completed));
    all.extend(oversubscribed(&completed, on_slurm));
    let settings = completed.first().map(|run| &run.trial.settings);
    let of_model = settings.into_iter().flat_map(model_remarks);
    all.extend(of_model.map(|said| Caution::new(Cause::OtherFunction, 0.0, said)));
    all
}

/// Measured for too short a time for a verdict.
fn short_measurement(completed: &[&Run]) -> Option<Caution> {
    let timed = completed.iter().filter_map(|run| Some((measured_s(run)?, *run)));
    let (seconds, run) = timed.min_by(|a, b| a.0.total_cmp(&b.0)).filter(|(s, _)| *s < MIN_SECONDS_FOR_VERDICT)?;
    let steps = run.ranks.iter().map(|steps| measured_steps(steps).count()).min().filter(|steps| *steps > 0)?;
    // More than needed, because the next run may be faster.
    let needed = ENOUGH * MIN_SECONDS_FOR_VERDICT / seconds * steps as f64;
    let magnitude = 10f64.powf(needed.log10().floor() - 1.0).max(1.0);
    let needed = ((needed / magnitude).ceil() * magnitude) as u64;
    let lead = format!(
        "measured for {} per run, and a verdict needs {} or more",
        format::seconds(seconds),
        format::seconds(MIN_SECONDS_FOR_VERDICT)
    );
    let severity = MIN_SECONDS_FOR_VERDICT / seconds;
    let measure = &run.trial.settings.measure;
    Some(if measure.epochs > 0 {
        let said = format!("{lead}: measure more epochs (measure.epochs, now {})", measure.epochs);
        Caution::new(Cause::ShortMeasurement, severity, said)
    } else {
        let said = format!("{lead}: set measure.steps to {needed} (now {})", measure.steps);
        Caution::new(Cause::ShortMeasurement, severity, said).advise("measure.steps", needed)
    })
}

/// More threads than processors, with the cost if it shows in the stages.
fn oversubscribed(completed: &[&Run], on_slurm: bool) -> Option<Caution> {
    let found = completed.iter().filter_map(|run| Oversubscription::from_run(run, on_slurm));
    let found = found.max_by(|a, b| a.ratio().total_cmp(&b.ratio()))?;
    let other = Breakdown::from_steps(completed_steps(completed)).and_then(|breakdown| {
        let (stage, ns) = breakdown.most_exposed()?;
        (stage == Stage::Other).then(|| format::share(ns, breakdown.wall))
    });
    let lead = found.words();
    let said = match &other {
        Some(share) => format!(
            "{lead}: threads wait for each other, and *other* is the longest wait of a step ({share}); set loader.workers or launch.ranks lower, or use more processors"
        ),
        None => lead,
    };
    let caution = Caution::new(Cause::MoreThreadsThanProcessors, found.ratio(), said);
    let bearing = if other.is_some() { Bearing::Unknown } else { caution.bearing };
    Some(Caution { bearing, ..caution })
}

/// Number of batches that loader threads may be ahead of the step by the settings.
fn prefetch_limit(run: &Run) -> u64 {
    let loader = &run.trial.settings.loader;
    u64::from(loader.workers) * u64::from(loader.prefetch_factor.max(1))
}

/// Bytes of the largest batch; `None` if no step has its size.
fn max_batch_bytes(run: &Run) -> Option<u64> {
    let steps = run.ranks.iter().flatten();
    steps.map(|step: &StepRecord| step.bytes_batch).max().filter(|bytes| *bytes > 0)
}

/// Number of batches that fit into the memory of the loader, which reserves the size of the largest batch for each, and always for one. Work
/// buffers of threads are not recorded, so it may have been fewer. `None` without a limit.
fn buffer_capacity(run: &Run) -> Option<u64> {
    let limits = run.parts.iter().filter_map(|part| part.data.as_ref()).map(|data| data.buffer_bytes);
    // Attempts may have had memory of different sizes.
    let limit = limits.filter(|bytes| *bytes > 0).min()?;
    Some((limit / max_batch_bytes(run)?).max(1))
}

fn less_memory(batches: u64, run: &Run) -> Option<Caution> {
    let loader = &run.trial.settings.loader;
    // One more is in the step.
    let wanted = prefetch_limit(run) + 1;
    // Without threads there is never more than one.
    if loader.workers == 0 || batches >= wanted {
        return None;
    }
    let what =
        if batches <= u64::from(loader.workers) { "fewer threads work at once" } else { "fewer are loaded ahead" };
    let said = format!(
        "memory for {} of {} MiB, where {} × prefetch factor {} would hold {wanted}: {what} than the settings say",
        if batches == 1 { "1 batch".to_owned() } else { format!("{batches} batches") },
        format::mebibytes(max_batch_bytes(run)? as f64),
        format::count(loader.workers.into(), "worker"),
        loader.prefetch_factor.max(1),
    );
    Some(Caution::new(Cause::LessMemory, wanted as f64 / batches as f64, said))
}

fn fewer_samples(run: &Run) -> Option<Caution> {
    let data = run.data()?;
    let asked = data.asked.filter(|asked| *asked > data.selected)?;
    let [selected, asked] = [data.selected, asked].map(format::thousands);
    let said = format!("{selected} samples, where select asks for {asked}: there are no more");
    Some(Caution::new(Cause::FewerSamples, 0.0, said))
}

/// Files in the page cache that was to be cold.
fn stayed_in_cache(run: &Run) -> Option<Caution> {
    let share = run.dropped()?.cached_share().filter(|share| *share > COLD)?;
    let said = format!(
        "{} of the bytes stayed in the page cache, which was to be cold: they lie in memory (tmpfs), or another process uses them",
        format::percent(share)
    );
    Some(Caution::new(Cause::NotCold, share, said))
}

/// More than one pass through the data: from the second on it is in the page cache.
fn read_again(run: &Run) -> Option<Caution> {
    let Settings { measure, loader, launch, .. } = &run.trial.settings;
    let samples = run.data()?.selected;
    let taken = (measure.warmup + measure.steps).saturating_mul(loader.batch_size * u64::from(launch.ranks));
    (measure.cold_cache && samples > 0 && taken > samples).then(|| {
        let times = taken as f64 / samples as f64;
        let said = format!(
            "the page cache is cold for the first time through the data alone, and the steps go through it {} times: set measure.steps and measure.warmup to less",
            format::round(times, 1)
        );
        Caution::new(Cause::NotCold, times, said)
    })
}

/// Approximate masks, with which a model computes another result.
fn approximate_masks(run: &Run) -> Option<Caution> {
    let settings = &run.trial.settings;
    let pipeline = &settings.pipeline;
    if settings.reads_array() || settings.runs_command() || !pipeline.is_approximate() {
        return None;
    }
    let said = format!(
        "masks are approximate: an edge that a sample removes was masked with probability {} (pipeline.mask_fraction), so its batches are \
         not those of the exact masks",
        pipeline.mask_fraction
    );
    Some(Caution::new(Cause::ApproximateMasks, 1.0 - pipeline.mask_fraction, said))
}

/// A measurement that ends before the prefetched batches are used up.
fn burst(run: &Run) -> Option<Caution> {
    let steps = run.trial.settings.measure.steps;
    let ahead = buffer_capacity(run).map_or(u64::MAX, |batches| batches - 1).min(prefetch_limit(run));
    (steps < ahead).then(|| {
        let (asked, are) = (format::count(steps, "measured step"), if steps == 1 { "is" } else { "are" });
        let said =
            format!("{asked} {are} fewer than the {ahead} batches that are loaded ahead: rates are those of a burst");
        Caution::new(Cause::Burst, ahead as f64 / steps.max(1) as f64, said).advise("measure.steps", ahead)
    })
}

/// Share of first steps of epochs among the outliers from which epochs are named as the reason.
const MOSTLY: f64 = 0.8;

/// Warm-up, drift and outliers of the steps of one rank of a run.
struct StepShape<'a> {
    run: &'a Run,
    /// Name of the run.
    run_name: String,
    rank: usize,
    warm_up: Option<WarmUp>,
    /// Drift of the steps after the warm-up.
    drift: Option<Drift>,
    outliers: Option<Outliers>,
    /// Blocks of rows in all measured steps.
    periods: Option<Periods>,
    /// The steps after the warm-up.
    steps: Vec<&'a StepRecord>,
}

impl<'a> StepShape<'a> {
    fn new(run: &'a Run, run_name: String, rank: usize) -> Self {
        let steps: Vec<&StepRecord> = measured_steps(&run.ranks[rank]).collect();
        let times = |steps: &[&StepRecord]| steps.iter().map(|step| step.wall_ns as f64).collect::<Vec<f64>>();
        let periods = block_periods(run, &run.ranks[rank]);
        let warm_up = warm_up(&times(&steps), periods.as_ref());
        let cut = warm_up.map_or(0, |found| found.steps);
        let steps = steps[cut..].to_vec();
        let rest = times(&steps);
        let behind = periods.as_ref().map(|periods| periods.behind(cut));
        let (drift, outliers) = (drift(&rest, behind.as_ref()), slow_outliers(&rest, behind.as_ref()));
        Self { run, run_name, rank, warm_up, drift, outliers, periods, steps }
    }

    fn name(&self) -> String {
        format!("{}, rank {}", self.run_name, self.rank)
    }
}

/// `repeat 2`; with the job in front if the runs are of several jobs, because each job counts its repeats from 1.
fn run_name(run: &Run, among: &[&Run]) -> String {
    let repeat = format!("repeat {}", run.trial.repeat);
    if among.iter().any(|other| other.job != run.job) { format!("job {}, {repeat}", run.job) } else { repeat }
}

/// A caution for each sign in the step times, of the rank with the strongest.
fn shape_cautions(runs: &[&Run]) -> Vec<Caution> {
    let completed: Vec<&Run> = runs.iter().copied().filter(|run| run.completed()).collect();
    let ranks = completed.iter().flat_map(|run| (0..run.ranks.len()).map(move |rank| (*run, rank)));
    let shapes: Vec<StepShape<'_>> =
        ranks.map(|(run, rank)| StepShape::new(run, run_name(run, &completed), rank)).collect();
    let mut all = Vec::new();
    all.extend(on_blocks(&shapes));
    all.extend(on_warm_up(&shapes, completed.len()));
    all.extend(on_drift(&shapes, completed.len()));
    all.extend(on_outliers(&shapes, completed.len()));
    all.extend(on_runs(&completed));
    all
}

/// The rank with the strongest sign, and in how many runs it occurs (`how_much`: strength, `None` without the sign).
fn worst<'a, 'b>(
    shapes: &'b [StepShape<'a>],
    runs: usize,
    how_much: impl Fn(&StepShape<'a>) -> Option<f64>,
) -> Option<(&'b StepShape<'a>, String)> {
    let with = || shapes.iter().filter_map(|shape| Some((how_much(shape)?, shape)));
    let (_, worst) = with().max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    // The ranks of a run are adjacent.
    let mut which: Vec<&Run> = with().map(|(_, shape)| shape.run).collect();
    which.dedup_by(|a, b| std::ptr::eq(*a, *b));
    let of = if runs > 1 { format!(" in {} of {runs} runs", which.len()) } else { String::new() };
    Some((worst, of))
}

/// Too few blocks of rows to know the cost of one.
fn on_blocks(shapes: &[StepShape<'_>]) -> Option<Caution> {
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

fn on_warm_up(shapes: &[StepShape<'_>], runs: usize) -> Option<Caution> {
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
    // A measurement that begins inside a period has too many of its quick steps, or of its slow ones.
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

fn on_drift(shapes: &[StepShape<'_>], runs: usize) -> Option<Caution> {
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
    // If all steps were as those of the second half.
    Some(Caution::with_effect(Cause::Drift, f64::midpoint(1.0, found.ratio) / found.ratio, said))
}

fn on_outliers(shapes: &[StepShape<'_>], runs: usize) -> Option<Caution> {
    let (shape, of) = worst(shapes, runs, |shape| shape.outliers.as_ref().map(|found| found.harm))?;
    let found = shape.outliers.as_ref()?;
    let first_of_epoch = |at: &&usize| **at > 0 && shape.steps[**at].epoch != shape.steps[**at - 1].epoch;
    let (n, firsts) = (found.places.len(), found.places.iter().filter(first_of_epoch).count());
    let largest = found.places.iter().max_by_key(|at| shape.steps[**at].wall_ns)?;
    let what = if firsts as f64 >= MOSTLY * n as f64 {
        format!(
            "{firsts} of them the first of an epoch, where the loader starts again; more measured epochs show what that costs"
        )
    } else {
        let at = shape.steps[*largest].step;
        let part = shape.run.parts.iter().find(|part| part.steps.contains(&at));
        let node = part.and_then(|part| part.environment.as_ref()?.ranks.get(shape.rank));
        let node = node.map_or_else(|| "the node".to_owned(), |hardware| hardware.host.clone());
        format!("they are in the mean: check what else ran on {node}, compare medians")
    };
    let said = format!(
        "outliers{of}: {} of {} steps of {} cost {} of the run (step {}: {} the median); {what}",
        format::thousands(n as u64),
        format::thousands(shape.steps.len() as u64),
        shape.name(),
        format::percent(found.harm),
        shape.steps[*largest].step,
        format::ratio(found.largest),
    );
    // If they were as long as the median.
    Some(Caution::with_effect(Cause::SlowSteps, 1.0 / (1.0 - found.harm), said))
}

/// Runs whose rate is an outlier among the runs.
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
        format!("{}{on} ({})", run_name(run, completed), format::ratio(rate / usual))
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
