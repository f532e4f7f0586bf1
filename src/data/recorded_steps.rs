//! The step times of a recorded job, for steps that emulate them.

use expctl_ledger::{LedgerError, MeasuredJob, Run, Stage, StepRecord};
use expctl_settings::Trial;

use crate::project::Project;

/// Maximum number of step times that a trial has. More are replaced by this many that have the same mean.
const MAX_TIMES: usize = 1000;

/// The stages that an accelerator computes. The exchange of gradients is not in them: emulated ranks have one of their own.
const COMPUTED: [Stage; 4] = [Stage::Forward, Stage::Backward, Stage::Clip, Stage::Optimizer];

/// Why a job has no step times to emulate.
#[derive(Debug, thiserror::Error)]
pub enum StepTimesError {
    /// It is no number, or no number and a name.
    #[error("\"{name}\" is not JOB or JOB/NAME")]
    NotAJob {
        /// What was named.
        name: String,
    },
    /// There is no such job here.
    #[error("there is no job {job} in {runs}")]
    NoJob {
        /// Its number.
        job: u64,
        /// Folder of the jobs.
        runs: String,
    },
    /// Its record cannot be read.
    #[error("{0}")]
    Unreadable(#[from] LedgerError),
    /// No trial of the job has that name.
    #[error("job {job} has no variant or trial `{name}`; it has {}", variants.join(", "))]
    NoVariant {
        /// The job.
        job: u64,
        /// What was named.
        name: String,
        /// The variants that there are.
        variants: Vec<String>,
    },
    /// Several variants, whose steps differ, and none is named.
    #[error("job {job} has several variants: name one, as \"{job}/{}\"", variants.first().map_or("", String::as_str))]
    SeveralVariants {
        /// The job.
        job: u64,
        /// Its variants, with their swept settings.
        variants: Vec<String>,
    },
    /// No trial completed.
    #[error("no trial of {name} completed")]
    NotCompleted {
        /// What was named.
        name: String,
    },
    /// The steps only loaded data.
    #[error("the steps of {name} computed nothing (train.mode = \"{mode}\")")]
    NothingComputed {
        /// What was named.
        name: String,
        /// Mode of the steps.
        mode: &'static str,
    },
}

/// The step times of the measured steps of `named` (`JOB` or `JOB/NAME`, the name of a variant, a label or a trial), ms, ascending; never
/// empty. The time of a step is what a rank waited for its own forward pass, backward pass, clipping and optimizer.
///
/// # Errors
/// There is no such job or variant, it has several, or none of its steps computed anything.
pub fn step_times(project: &Project, named: &str) -> Result<Vec<f64>, StepTimesError> {
    let (job, of) = named.split_once('/').map_or((named, None), |(job, of)| (job, Some(of.trim())));
    let job: u64 = job.trim().parse().map_err(|_| StepTimesError::NotAJob { name: named.to_owned() })?;
    let dir = project.job(job);
    if !dir.record_path().exists() {
        return Err(StepTimesError::NoJob { job, runs: project.runs().display().to_string() });
    }
    let measured = MeasuredJob::load(&dir)?;
    let groups = measured.by_label();
    let labels = || groups.iter().map(|(label, _)| label.clone()).collect();
    let chosen: Vec<&Run> = match of {
        None if groups.len() > 1 => return Err(StepTimesError::SeveralVariants { job, variants: labels() }),
        None => measured.runs.iter().collect(),
        Some(name) => {
            let is_named = |trial: &Trial| trial.variant == name || trial.id == name || trial.label() == name;
            measured.runs.iter().filter(|run| is_named(&run.trial)).collect()
        }
    };
    let Some(first) = chosen.first() else {
        let name = of.unwrap_or_default().to_owned();
        return Err(StepTimesError::NoVariant { job, name, variants: labels() });
    };
    let mode = first.trial.settings.train.mode.name();
    let completed: Vec<&Run> = chosen.into_iter().filter(|run| run.completed()).collect();
    if completed.is_empty() {
        return Err(StepTimesError::NotCompleted { name: named.to_owned() });
    }
    let steps = completed.iter().flat_map(|run| run.ranks.iter().flatten()).filter(|step| step.measured);
    let mut times: Vec<u64> = steps.map(computed_ns).collect();
    if times.iter().all(|ns| *ns == 0) {
        return Err(StepTimesError::NothingComputed { name: named.to_owned(), mode });
    }
    times.sort_unstable();
    Ok(condensed(&times, MAX_TIMES))
}

/// What a step waited for its own computing, ns.
fn computed_ns(step: &StepRecord) -> u64 {
    COMPUTED.iter().map(|stage| step.exposed[*stage]).sum()
}

/// At most `max` times, ms, that stand for sorted `times`, ns: the means of as many groups of neighbours, which have the same mean together
/// where the groups are equally large.
fn condensed(times: &[u64], max: usize) -> Vec<f64> {
    let groups = times.len().min(max);
    let mean_ms = |group: usize| {
        let of_group = &times[group * times.len() / groups..(group + 1) * times.len() / groups];
        let sum: u64 = of_group.iter().sum();
        // Whole nanoseconds: records stay short.
        (sum as f64 / of_group.len() as f64).round() / 1e6
    };
    (0..groups).map(mean_ms).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_times_become_the_means_of_neighbours() {
        assert_eq!(condensed(&[1_000_000, 2_500_000], 4), [1.0, 2.5]);
        let times: Vec<u64> = (0..5000).map(|i| i * 1_000_000).collect();
        let all = condensed(&times, 1000);
        assert_eq!((all.len(), all[0], all[999]), (1000, 2.0, 4997.0));
        assert_eq!(all.iter().sum::<f64>() / 1000.0, 2499.5);
        assert_eq!(condensed(&[], 10), Vec::<f64>::new());
    }

    #[test]
    fn a_step_time_is_what_the_rank_computed() {
        let mut step = StepRecord::default();
        let exposed = [(Stage::Collate, 7), (Stage::Transfer, 5), (Stage::Forward, 10), (Stage::Backward, 20)];
        exposed.into_iter().for_each(|(stage, ns)| step.exposed[stage] = ns);
        (step.exposed[Stage::Allreduce], step.exposed[Stage::Clip], step.exposed[Stage::Optimizer]) = (100, 1, 4);
        assert_eq!(computed_ns(&step), 35);
    }
}
