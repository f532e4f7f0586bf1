//! The ledger's steps as batch times, and the stages that make the slow ones slow.

use expctl_ledger::{MeasuredJob, Run, StepRecord};
use serde::Serialize;

use super::batch_times::BatchTimes;
use super::source::{TimingsClass, TimingsError, TimingsSource};
use crate::report::breakdown::Breakdown;
use crate::report::epoch_time::{EpochSteps, epoch_batches, epochs_of};
use crate::report::rates::measured_steps;

/// The ledger's steps of the rows of a store.
///
/// Invariant: `series[i]` has the steps of series `i` of the store, in the order in which they were added.
#[derive(Debug, Default)]
pub struct LedgerSteps<'a> {
    series: Vec<SeriesSteps<'a>>,
    /// Batches of an epoch by id of the method; `None` where they are not known.
    epoch_batches: Vec<Option<u64>>,
}

/// The steps of one method and epoch.
#[derive(Debug)]
struct SeriesSteps<'a> {
    method: u32,
    epoch: u32,
    steps: Vec<&'a StepRecord>,
    whole: bool,
}

impl<'a> LedgerSteps<'a> {
    /// The steps of a series, in the order in which its rows were added.
    pub fn steps(&self, series: usize) -> &[&'a StepRecord] {
        self.series.get(series).map(|series| series.steps.as_slice()).unwrap_or_default()
    }

    /// True if a series is an epoch of which every step was measured.
    pub fn whole(&self, series: usize) -> bool {
        self.series.get(series).is_some_and(|series| series.whole)
    }

    /// Batches of an epoch of a method; `None` where they are not known.
    pub fn epoch_batches(&self, method: usize) -> Option<u64> {
        self.epoch_batches.get(method).copied().flatten()
    }

    fn add(&mut self, method: u32, epoch: u32, steps: Vec<&'a StepRecord>, whole: bool) {
        match self.series.iter_mut().find(|series| (series.method, series.epoch) == (method, epoch)) {
            // Two runs of one epoch are not one whole epoch.
            Some(series) => {
                series.steps.extend(steps);
                series.whole = false;
            }
            None => self.series.push(SeriesSteps { method, epoch, steps, whole }),
        }
    }
}

/// Read the measured steps of one rank of some jobs: a method for each variant (and repeat, and job, where there are several), an epoch for
/// each epoch of a run that counts epochs, else one. Batches count from 0 at the first measured step of the epoch.
///
/// # Errors
/// [`TimingsError::Empty`] if no run has steps of that rank, [`TimingsError::Spool`] if the temporary file cannot be written.
pub fn read_jobs(
    jobs: &[MeasuredJob],
    rank: u32,
) -> Result<(TimingsSource, BatchTimes, LedgerSteps<'_>), TimingsError> {
    let name = jobs_name(jobs);
    let (mut store, mut steps) = (BatchTimes::new(&name), LedgerSteps::default());
    for job in jobs {
        for (label, runs) in job.by_label() {
            let several = runs.len() > 1;
            for run in runs.into_iter().filter(|run| run.completed()) {
                let of_job = if jobs.len() > 1 { format!("job {}: ", job.record.job) } else { String::new() };
                let repeat = if several { format!(", repeat {}", run.trial.repeat) } else { String::new() };
                let method = store.method_id(&format!("{of_job}{label}{repeat}"));
                add_run(&mut store, &mut steps, method, run, rank)?;
            }
        }
    }
    if store.series().is_empty() {
        return Err(TimingsError::Empty { path: name.into() });
    }
    let columns = format!("measured steps of completed trials, rank {rank}; wall time of each step");
    Ok((TimingsSource { name, class: TimingsClass::Measured, columns }, store, steps))
}

/// `arrayloader_fig1, job 12`, `arrayloader_fig1, jobs 12, 13`; without the config where jobs are of several.
fn jobs_name(jobs: &[MeasuredJob]) -> String {
    let numbers = jobs.iter().map(|job| job.record.job.to_string()).collect::<Vec<_>>().join(", ");
    match jobs {
        [job] => format!("{}, job {numbers}", job.record.config),
        [first, rest @ ..] if rest.iter().all(|job| job.record.config == first.record.config) => {
            format!("{}, jobs {numbers}", first.record.config)
        }
        _ => format!("jobs {numbers}"),
    }
}

/// Add the steps of one rank of a run.
fn add_run<'a>(
    store: &mut BatchTimes,
    ledger: &mut LedgerSteps<'a>,
    method: u32,
    run: &'a Run,
    rank: u32,
) -> Result<(), TimingsError> {
    let batches = epoch_batches(run);
    let methods = ledger.epoch_batches.len().max(method as usize + 1);
    ledger.epoch_batches.resize(methods, None);
    ledger.epoch_batches[method as usize] = batches;
    let Some(steps) = run.ranks.get(rank as usize) else { return Ok(()) };
    let settings = &run.trial.settings;
    // In a run that counts steps, the sampler's epochs only reflect how few samples the data have.
    let in_epochs = settings.measure.epochs > 0 || settings.train.epochs > 0 || !run.learning.is_empty();
    let epochs = if in_epochs { epochs_of(steps, batches) } else { vec![EpochSteps { epoch: 0, steps, whole: false }] };
    for EpochSteps { epoch, steps, whole } in epochs {
        let timed: Vec<&StepRecord> = measured_steps(steps).collect();
        let Some(first) = timed.first().map(|step| step.step) else { continue };
        let epoch = store.epoch_id(&epoch.to_string());
        for step in &timed {
            store.push(method, epoch, Some(step.step.saturating_sub(first)), step.wall_ns as f64 / 1e9)?;
        }
        ledger.add(method, epoch, timed, whole);
    }
    Ok(())
}

/// Steps below which the slowest tenth is not analysed.
const MIN_STEPS: usize = 10;

/// The batches that count as slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SlowBatches {
    /// The beats of the period that was followed.
    OnBeat {
        /// Batches from one to the next.
        period: usize,
    },
    /// The slowest tenth, where there is no period.
    SlowestTenth,
}

/// Mean times of the stages in the slow batches of a method and in the others, by the ledger's steps: why the slow ones are slow.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SlowStages {
    /// The batches that count as slow.
    pub slow: SlowBatches,
    /// Number of slow batches.
    pub batches: u64,
    /// Number of other batches.
    pub others: u64,
    /// Mean wall time of a slow batch, s.
    pub slow_s: f64,
    /// Mean wall time of another batch, s.
    pub others_s: f64,
    /// Stages that happened, in their order, and unattributed time last.
    pub stages: Vec<SlowStage>,
}

/// One stage of the slow batches and of the others; means per step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SlowStage {
    /// Its name; `unattributed` for the time of no stage.
    pub stage: &'static str,
    /// Exposed time of a slow batch, s.
    pub exposed_slow_s: f64,
    /// Exposed time of another batch, s.
    pub exposed_others_s: f64,
    /// Difference of the exposed times over that of the wall times; below 0 where slow batches wait less.
    pub share: f64,
    /// Busy time of a slow batch, summed over threads, s; `None` for unattributed time.
    pub busy_slow_s: Option<f64>,
    /// Busy time of another batch, s; `None` for unattributed time.
    pub busy_others_s: Option<f64>,
}

impl SlowStages {
    /// Compare the slow batches of the series of a method (`indices`) with the others; `beats` is the period that was followed, with the rows of
    /// its beats by series. `None` where the slow batches are no slower in the mean, and where rows are out of order.
    pub fn new(
        store: &BatchTimes,
        steps: &LedgerSteps<'_>,
        indices: &[usize],
        beats: Option<(usize, Vec<Vec<usize>>)>,
    ) -> Option<Self> {
        // Steps are found by row, and rows out of order were sorted.
        if !indices.iter().all(|index| store.series()[*index].check().is_some_and(|check| check.in_order)) {
            return None;
        }
        let (slow, [on, off]) = match beats {
            Some((period, beats)) => (SlowBatches::OnBeat { period }, on_and_off(steps, indices, &beats)),
            None => (SlowBatches::SlowestTenth, slowest_tenth(steps, indices)?),
        };
        Self::between(slow, &on, &off)
    }

    fn between(slow: SlowBatches, on: &[&StepRecord], off: &[&StepRecord]) -> Option<Self> {
        let (on, off) = (Breakdown::from_steps(on.iter().copied())?, Breakdown::from_steps(off.iter().copied())?);
        let more = on.wall - off.wall;
        if more.is_nan() || more <= 0.0 {
            return None;
        }
        let seconds = |ns: Option<f64>| ns.unwrap_or(0.0) / 1e9;
        let exposed = on.exposed.iter().zip(&off.exposed);
        let busy = on.busy.iter().zip(&off.busy);
        let mut stages = Vec::new();
        for (((stage, waited), (_, waited_others)), ((_, busy_slow), (_, busy_others))) in exposed.zip(busy) {
            // A stage that happens on one side only takes no time on the other.
            if waited.is_none() && waited_others.is_none() {
                continue;
            }
            stages.push(SlowStage {
                stage: stage.name(),
                exposed_slow_s: seconds(*waited),
                exposed_others_s: seconds(*waited_others),
                share: (waited.unwrap_or(0.0) - waited_others.unwrap_or(0.0)) / more,
                busy_slow_s: Some(seconds(*busy_slow)),
                busy_others_s: Some(seconds(*busy_others)),
            });
        }
        stages.push(SlowStage {
            stage: "unattributed",
            exposed_slow_s: on.unattributed / 1e9,
            exposed_others_s: off.unattributed / 1e9,
            share: (on.unattributed - off.unattributed) / more,
            busy_slow_s: None,
            busy_others_s: None,
        });
        let (slow_s, others_s) = (on.wall / 1e9, off.wall / 1e9);
        Some(Self { slow, batches: on.steps, others: off.steps, slow_s, others_s, stages })
    }

    /// Stages with longer exposed time in the slow batches, those with the largest share first.
    pub fn by_share(&self) -> Vec<&SlowStage> {
        let mut all: Vec<&SlowStage> = self.stages.iter().filter(|stage| stage.share > 0.0).collect();
        all.sort_by(|a, b| b.share.total_cmp(&a.share));
        all
    }

    /// The stage whose busy time grows most, with that of a slow batch and of another (s); `None` where none grows.
    pub fn max_busy_growth(&self) -> Option<(&'static str, f64, f64)> {
        let worked = self.stages.iter().filter_map(|of| Some((of.stage, of.busy_slow_s?, of.busy_others_s?)));
        worked.filter(|(_, slow, others)| slow > others).max_by(|a, b| (a.1 - a.2).total_cmp(&(b.1 - b.2)))
    }
}

/// The steps on the beats of each series, and all others.
fn on_and_off<'a>(steps: &LedgerSteps<'a>, indices: &[usize], beats: &[Vec<usize>]) -> [Vec<&'a StepRecord>; 2] {
    let (mut on, mut off) = (Vec::new(), Vec::new());
    for (index, beats) in indices.iter().zip(beats) {
        let mut next = beats.iter().peekable();
        for (row, step) in steps.steps(*index).iter().enumerate() {
            if next.next_if(|beat| **beat == row).is_some() { &mut on } else { &mut off }.push(*step);
        }
    }
    [on, off]
}

/// The slowest tenth of all steps, and all others; `None` below [`MIN_STEPS`].
fn slowest_tenth<'a>(steps: &LedgerSteps<'a>, indices: &[usize]) -> Option<[Vec<&'a StepRecord>; 2]> {
    let mut all: Vec<&StepRecord> = indices.iter().flat_map(|index| steps.steps(*index).iter().copied()).collect();
    if all.len() < MIN_STEPS {
        return None;
    }
    all.sort_by_key(|step| std::cmp::Reverse(step.wall_ns));
    let others = all.split_off((all.len() as f64 * 0.1).round() as usize);
    Some([all, others])
}

#[cfg(test)]
mod tests {
    use expctl_ledger::Stage;

    use super::*;

    /// A step of which `read` ms are waited for the store and `rest` for nothing that has a name.
    fn step(read: u64, rest: u64) -> StepRecord {
        let mut step = StepRecord { wall_ns: (read + rest) * 1_000_000, measured: true, ..StepRecord::default() };
        step.exposed[Stage::Read] = read * 1_000_000;
        step.busy[Stage::Read] = read * 3_000_000;
        step.busy[Stage::Decode] = 5_000_000;
        step
    }

    #[test]
    fn the_difference_of_the_steps_is_that_of_their_stages() {
        let (slow, fast) = (step(90, 20), step(10, 10));
        let slow_batches = SlowBatches::OnBeat { period: 7 };
        let found = SlowStages::between(slow_batches, &[&slow, &slow], &[&fast; 5]).unwrap();
        assert_eq!((found.batches, found.others), (2, 5));
        assert!((found.slow_s - 0.11).abs() < 1e-12 && (found.others_s - 0.02).abs() < 1e-12, "{found:?}");
        let shares: Vec<(&str, i64)> =
            found.stages.iter().map(|of| (of.stage, (of.share * 900.0).round() as i64)).collect();
        // 80 ms and 10 ms of 90 ms; decoding was waited for in neither.
        assert_eq!(shares, [("read", 800), ("decode", 0), ("unattributed", 100)]);
        assert!((found.stages.iter().map(|of| of.share).sum::<f64>() - 1.0).abs() < 1e-12);
        assert_eq!(found.by_share().iter().map(|of| of.stage).collect::<Vec<_>>(), ["read", "unattributed"]);
        let (stage, worked, before) = found.max_busy_growth().unwrap();
        assert!(stage == "read" && (worked - 0.27).abs() < 1e-12 && (before - 0.03).abs() < 1e-12);
        // What is no slower has no reason to be.
        assert_eq!(SlowStages::between(slow_batches, &[&fast], &[&slow]), None);
        assert_eq!(SlowStages::between(slow_batches, &[&fast], &[&fast]), None);
    }
}
