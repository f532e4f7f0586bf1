//! What makes the rates of a variant doubtful: what its loader did other than its settings say, and signs in its step times.

use expctl_record::{Run, Settings, Stage, StepRecord};

use super::figures::{Breakdown, completed_steps, measured, measured_s};
use super::format;
use super::oversubscription::Oversubscription;
use super::shape::shape;
use super::warning::{Bearing, Cause, Caution};
use crate::conf::model_remarks;
use crate::stats::MIN_SECONDS_FOR_VERDICT;

/// How many times the shortest measurement that is enough is advised.
const ENOUGH: f64 = 1.2;

/// Share of the bytes in the page cache up to which it counts as cold.
const COLD: f64 = 0.01;

/// The cautions of the completed runs of one variant; `on_slurm` where its job ran there.
pub fn cautions(runs: &[&Run], on_slurm: bool) -> Vec<Caution> {
    let completed: Vec<&Run> = runs.iter().copied().filter(|run| run.completed()).collect();
    // Where the runs are not alike, the one that had the least room says it.
    let least = completed.iter().filter_map(|run| Some((capacity(run)?, *run))).min_by_key(|(batches, _)| *batches);
    let mut all = Vec::new();
    all.extend(short_measurement(&completed));
    all.extend(least.and_then(|(batches, run)| less_memory(batches, run)));
    all.extend(completed.iter().find_map(|run| fewer_samples(run)));
    all.extend(completed.iter().find_map(|run| stayed_in_cache(run)));
    all.extend(completed.iter().find_map(|run| read_again(run)));
    all.extend(completed.iter().find_map(|run| approximate_masks(run)));
    all.extend(completed.iter().find_map(|run| burst(run)));
    all.extend(shape(&completed));
    all.extend(oversubscribed(&completed, on_slurm));
    let settings = completed.first().map(|run| &run.trial.settings);
    let of_model = settings.into_iter().flat_map(model_remarks);
    all.extend(of_model.map(|said| Caution::new(Cause::OtherFunction, 0.0, said)));
    all
}

/// Runs whose measured steps took too short a time for a verdict.
fn short_measurement(completed: &[&Run]) -> Option<Caution> {
    let timed = completed.iter().filter_map(|run| Some((measured_s(run)?, *run)));
    let (seconds, run) = timed.min_by(|a, b| a.0.total_cmp(&b.0)).filter(|(s, _)| *s < MIN_SECONDS_FOR_VERDICT)?;
    let steps = run.ranks.iter().map(|steps| measured(steps).count()).min().filter(|steps| *steps > 0)?;
    // A fifth more than is needed, because the next run may be faster.
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

/// More threads than processors, with what that costs where it shows.
fn oversubscribed(completed: &[&Run], on_slurm: bool) -> Option<Caution> {
    let found = completed.iter().filter_map(|run| Oversubscription::of(run, on_slurm));
    let found = found.max_by(|a, b| a.ratio().total_cmp(&b.ratio()))?;
    let other = Breakdown::of(completed_steps(completed)).and_then(|breakdown| {
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

/// Batches that loader threads may be ahead of the step, whatever the memory.
fn ahead(run: &Run) -> u64 {
    let loader = &run.trial.settings.loader;
    u64::from(loader.workers) * u64::from(loader.prefetch_factor.max(1))
}

/// Bytes of the largest batch; none where no step says.
fn largest(run: &Run) -> Option<u64> {
    let steps = run.ranks.iter().flatten();
    steps.map(|step: &StepRecord| step.bytes_batch).max().filter(|bytes| *bytes > 0)
}

/// Batches that there was memory for: the loader makes room for all of them as if each were as large as the largest, and for
/// one in any case. What its threads work with beside them is in no record, so it may have been fewer. None where nothing
/// limited it.
fn capacity(run: &Run) -> Option<u64> {
    let limits = run.parts.iter().filter_map(|part| part.data.as_ref()).map(|data| data.buffer_bytes);
    // Attempts may have had memory of different sizes.
    let limit = limits.filter(|bytes| *bytes > 0).min()?;
    Some((limit / largest(run)?).max(1))
}

fn less_memory(batches: u64, run: &Run) -> Option<Caution> {
    let loader = &run.trial.settings.loader;
    // One more is in the step.
    let wanted = ahead(run) + 1;
    // Without threads there is never more than one.
    if loader.workers == 0 || batches >= wanted {
        return None;
    }
    let what =
        if batches <= u64::from(loader.workers) { "fewer threads work at once" } else { "fewer are loaded ahead" };
    let said = format!(
        "memory for {} of {} MiB, where {} × prefetch factor {} would hold {wanted}: {what} than the settings say",
        if batches == 1 { "1 batch".to_owned() } else { format!("{batches} batches") },
        format::mebibytes(largest(run)? as f64),
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

/// Files that were to be read from the disk, and were in the page cache all the same.
fn stayed_in_cache(run: &Run) -> Option<Caution> {
    let share = run.dropped()?.cached_share().filter(|share| *share > COLD)?;
    let said = format!(
        "{} of the bytes stayed in the page cache, which was to be cold: they lie in memory (tmpfs), or another process uses them",
        format::percent(share)
    );
    Some(Caution::new(Cause::NotCold, share, said))
}

/// Steps that go through the data more than once find it in the page cache from the second time on.
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

/// Batches of masks that are not those of their samples: what a model makes of them is another result.
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

/// Batches that lie ready cost a step nothing: a measurement that ends before they are used up is of them alone.
fn burst(run: &Run) -> Option<Caution> {
    let steps = run.trial.settings.measure.steps;
    let ahead = capacity(run).map_or(u64::MAX, |batches| batches - 1).min(ahead(run));
    (steps < ahead).then(|| {
        let (asked, are) = (format::count(steps, "measured step"), if steps == 1 { "is" } else { "are" });
        let said =
            format!("{asked} {are} fewer than the {ahead} batches that are loaded ahead: rates are those of a burst");
        Caution::new(Cause::Burst, ahead as f64 / steps.max(1) as f64, said).advise("measure.steps", ahead)
    })
}
