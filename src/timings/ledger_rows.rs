use expctl_record::StepRecord;

use super::{Class, Source, Store, TimingsError};
use crate::ledger::{MeasuredJob, Run};

/// The measured steps of one rank of a job: a method for each variant (and repeat, where there are several), an epoch for each
/// epoch of a trial that has them, and one else.
///
/// # Errors
/// No run has steps of that rank; a temporary file that cannot be written.
pub fn read_job(job: &MeasuredJob, rank: u32) -> Result<(Source, Store), TimingsError> {
    let name = format!("{}, job {}", job.record.config, job.record.job);
    let mut store = Store::new(&name);
    for (label, runs) in job.by_label() {
        let several = runs.len() > 1;
        for run in runs.into_iter().filter(|run| run.completed()) {
            let method = if several { format!("{label}, repeat {}", run.trial.repeat) } else { label.clone() };
            let method = store.method_id(&method);
            add(&mut store, method, run, rank)?;
        }
    }
    if store.series().is_empty() {
        return Err(TimingsError::Empty { path: name.into() });
    }
    let columns = format!("measured steps of completed trials, rank {rank}; wall time of each step");
    Ok((Source { name, class: Class::Measured, columns }, store))
}

fn add(store: &mut Store, method: u32, run: &Run, rank: u32) -> Result<(), TimingsError> {
    let Some(steps) = run.ranks.get(rank as usize) else { return Ok(()) };
    // Without epochs of training, those of the sampler come by as often as the data are few, and mean nothing.
    let has_epochs = !run.learning.is_empty();
    let epoch_of = |step: &StepRecord| if has_epochs { step.epoch } else { 0 };
    let mut first: Option<(u64, u64)> = None;
    for step in steps.iter().filter(|step| step.measured) {
        let epoch = epoch_of(step);
        let begun = match first {
            Some((current, begun)) if current == epoch => begun,
            _ => step.step,
        };
        first = Some((epoch, begun));
        let epoch = store.epoch_id(&epoch.to_string());
        store.push(method, epoch, Some(step.step.saturating_sub(begun)), step.wall_ns as f64 / 1e9)?;
    }
    Ok(())
}
