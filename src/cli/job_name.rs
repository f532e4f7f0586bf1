use std::str::FromStr;

use expctl_record::JobRecord;

use crate::exit::{Exit, Failure};

/// A job, or one trial of it: `12`, `12_3` (the array task), `12_lazy-r1-0123abcd` (the trial).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JobName {
    pub(super) job: u64,
    pub(super) task: Option<String>,
}

impl FromStr for JobName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (job, task) = match text.split_once('_') {
            Some((job, task)) => (job, Some(task.to_owned())),
            None => (text, None),
        };
        match job.parse() {
            Ok(job) if task.as_deref() != Some("") => Ok(Self { job, task }),
            _ => Err("a job's number is expected, or JOB_TASK, for example 12 or 12_0".to_owned()),
        }
    }
}

impl JobName {
    /// Place of the named trial in the job; none if the whole job is meant.
    pub(super) fn index(&self, record: &JobRecord) -> Result<Option<usize>, Failure> {
        let Some(task) = &self.task else { return Ok(None) };
        let by_number = task.parse().ok().filter(|index| *index < record.trials.len());
        let found = by_number.or_else(|| record.trials.iter().position(|trial| trial.id == *task));
        found.map(Some).ok_or_else(|| {
            let trials: Vec<String> =
                record.trials.iter().enumerate().map(|(i, trial)| format!("{i} ({})", trial.id)).collect();
            Failure::new(Exit::Usage, format!("job {} has no trial {task}", self.job))
                .hint(format!("it has {}", trials.join(", ")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_jobs_and_trials() {
        let name = |text: &str| text.parse::<JobName>().ok().map(|n| (n.job, n.task));
        assert_eq!(name("12"), Some((12, None)));
        assert_eq!(name("12_3"), Some((12, Some("3".to_owned()))));
        assert_eq!(name("12_big_ids-r1-ab"), Some((12, Some("big_ids-r1-ab".to_owned()))));
        assert!(["", "x", "_3", "12_", "x_3"].iter().all(|text| name(text).is_none()));
    }
}
