use expctl_record::{MeasuredJob, Run, StepRecord};

use super::{Class, Source, Store, TimingsError};
use crate::report::epoch_time::{EpochSteps, epoch_batches, epochs_of};
use crate::report::rates::measured_steps;

/// The steps behind the rows of a store: what a ledger says of a batch beside its time.
///
/// Invariant: the steps of series `i` of the store are in `series[i]`, in the order in which they were added.
#[derive(Debug, Default)]
pub struct LedgerSteps<'a> {
    series: Vec<SeriesSteps<'a>>,
    /// Batches of an epoch by number of the method, where they are known.
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
    pub(super) fn steps(&self, series: usize) -> &[&'a StepRecord] {
        self.series.get(series).map(|series| series.steps.as_slice()).unwrap_or_default()
    }

    /// True if a series is an epoch of which every step was measured.
    pub(super) fn whole(&self, series: usize) -> bool {
        self.series.get(series).is_some_and(|series| series.whole)
    }

    /// Batches of an epoch of a method; none where they are not known.
    pub(super) fn epoch_batches(&self, method: usize) -> Option<u64> {
        self.epoch_batches.get(method).copied().flatten()
    }

    fn add(&mut self, method: u32, epoch: u32, steps: Vec<&'a StepRecord>, whole: bool) {
        match self.series.iter_mut().find(|series| (series.method, series.epoch) == (method, epoch)) {
            // An epoch that came twice is no whole one.
            Some(series) => {
                series.steps.extend(steps);
                series.whole = false;
            }
            None => self.series.push(SeriesSteps { method, epoch, steps, whole }),
        }
    }
}

/// The measured steps of one rank of some jobs: a method for each variant (and repeat, and job, where there are several), an epoch for
/// each epoch of a run that `measure.epochs` or `train.epochs` divides into epochs, and one else. Batches count from 0 at the first measured
/// step of the epoch.
///
/// # Errors
/// No run has steps of that rank; a temporary file that cannot be written.
pub fn read_jobs(jobs: &[MeasuredJob], rank: u32) -> Result<(Source, Store, LedgerSteps<'_>), TimingsError> {
    let name = name(jobs);
    let (mut store, mut steps) = (Store::new(&name), LedgerSteps::default());
    for job in jobs {
        for (label, runs) in job.by_label() {
            let several = runs.len() > 1;
            for run in runs.into_iter().filter(|run| run.completed()) {
                let of_job = if jobs.len() > 1 { format!("job {}: ", job.record.job) } else { String::new() };
                let repeat = if several { format!(", repeat {}", run.trial.repeat) } else { String::new() };
                let method = store.method_id(&format!("{of_job}{label}{repeat}"));
                add(&mut store, &mut steps, method, run, rank)?;
            }
        }
    }
    if store.series().is_empty() {
        return Err(TimingsError::Empty { path: name.into() });
    }
    let columns = format!("measured steps of completed trials, rank {rank}; wall time of each step");
    Ok((Source { name, class: Class::Measured, columns }, store, steps))
}

/// `arrayloader_fig1, job 12`, `arrayloader_fig1, jobs 12, 13`; without the config where jobs are of several.
fn name(jobs: &[MeasuredJob]) -> String {
    let numbers = jobs.iter().map(|job| job.record.job.to_string()).collect::<Vec<_>>().join(", ");
    match jobs {
        [job] => format!("{}, job {numbers}", job.record.config),
        [first, rest @ ..] if rest.iter().all(|job| job.record.config == first.record.config) => {
            format!("{}, jobs {numbers}", first.record.config)
        }
        _ => format!("jobs {numbers}"),
    }
}

fn add<'a>(
    store: &mut Store,
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
    // Of a run that counts steps, the epochs of the sampler come by as often as the data are few, and mean nothing.
    let in_epochs = settings.measure.epochs > 0 || settings.train.epochs > 0 || !run.learning.is_empty();
    let epochs = if in_epochs { epochs_of(steps, batches) } else { vec![EpochSteps { epoch: 0, steps, whole: false }] };
    for EpochSteps { epoch, steps, whole } in epochs {
        let timed: Vec<&StepRecord> = measured_steps(steps).collect();
        let Some(begun) = timed.first().map(|step| step.step) else { continue };
        let epoch = store.epoch_id(&epoch.to_string());
        for step in &timed {
            store.push(method, epoch, Some(step.step.saturating_sub(begun)), step.wall_ns as f64 / 1e9)?;
        }
        ledger.add(method, epoch, timed, whole);
    }
    Ok(())
}
