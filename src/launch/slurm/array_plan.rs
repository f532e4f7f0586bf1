//! How the trials of a job are spread over arrays and their tasks.

use std::collections::BTreeMap;

use expctl_record::JobRecord;

use super::resources::Resources;

/// What a cluster takes. None is no limit that anybody knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Limits {
    /// Slurm's MaxArraySize: the highest index of a task is one less.
    pub array_size: Option<u64>,
    /// Tasks that a user may have in the queue at once.
    pub submit: Option<u64>,
}

/// One array: trials that ask for the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub resources: Resources,
    /// The trials of each task (their places in the job), in the order in which it runs them.
    pub tasks: BTreeMap<u32, Vec<u32>>,
}

impl Part {
    /// Trials of the longest task.
    pub fn turns(&self) -> u64 {
        self.tasks.values().map(|turns| turns.len() as u64).max().unwrap_or(1)
    }

    /// The tasks as `--array` takes them: `0-11`, `1,3,5-9`.
    pub fn array(&self) -> String {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for task in self.tasks.keys() {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == *task => *last = *task,
                _ => ranges.push((*task, *task)),
            }
        }
        let text = |(first, last): &(u32, u32)| {
            if first == last { first.to_string() } else { format!("{first}-{last}") }
        };
        ranges.iter().map(text).collect::<Vec<_>>().join(",")
    }
}

/// The arrays that run the trials `which` of a job. `adjust` may change what a trial asks for.
///
/// A task runs one trial, unless the job is interleaved (then one task runs all that ask for the same) or the cluster does
/// not take as many tasks. Where it can be, the number of a task is the place of its trial in the job.
pub(super) fn parts(
    job: &JobRecord,
    which: &[u32],
    limits: Limits,
    adjust: &dyn Fn(u32, Resources) -> Resources,
) -> Vec<Part> {
    let interleave = job.trials.iter().any(|trial| trial.settings.measure.interleave);
    let commands = job.trials.iter().any(|trial| trial.settings.runs_command());
    let mut shapes: Vec<(Resources, Vec<u32>)> = Vec::new();
    for index in which {
        let Some(trial) = job.trials.get(*index as usize) else { continue };
        let mut resources = adjust(*index, Resources::of(trial));
        if interleave && commands {
            // Programs keep no checkpoints: an allocation that they share with others is not put back into the queue.
            resources.requeues = None;
        }
        match shapes.iter_mut().find(|(shape, _)| *shape == resources) {
            Some((_, trials)) => trials.push(*index),
            None => shapes.push((resources, vec![*index])),
        }
    }
    // Rounded up for each shape, the sum may pass the limit by the number of shapes; a job has few.
    let per_task = match limits.submit {
        Some(limit) => (which.len() as u64).div_ceil(limit.max(1)).max(1),
        None => 1,
    };
    let longest = limits.array_size.unwrap_or(u64::MAX).max(1);
    let mut parts = Vec::new();
    for (resources, trials) in shapes {
        let per_task = if interleave { trials.len() } else { usize::try_from(per_task).unwrap_or(usize::MAX) };
        let tasks: Vec<&[u32]> = trials.chunks(per_task.max(1)).collect();
        for chunk in tasks.chunks(usize::try_from(longest).unwrap_or(usize::MAX)) {
            let fits = chunk.iter().all(|turns| u64::from(turns[0]) < longest);
            let numbered =
                (0..).zip(chunk).map(|(position, turns)| (if fits { turns[0] } else { position }, turns.to_vec()));
            parts.push(Part { resources: resources.clone(), tasks: numbered.collect() });
        }
    }
    parts
}
