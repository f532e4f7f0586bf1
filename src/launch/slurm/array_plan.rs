//! [`ArrayPlan`]: how the trials of a job are spread over arrays and their tasks, and what each asks for.

use std::collections::BTreeMap;

use expctl_ledger::JobRecord;
use expctl_settings::Trial;

/// Resources that each trial of an array asks for. Invariant: trials that differ in it are in different arrays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resources {
    pub ranks: u32,
    pub nodes: u32,
    pub cpus_per_rank: u32,
    pub memory_mib: u64,
    pub time_min: u64,
    pub partition: String,
    pub account: String,
    pub throttle: u32,
    pub profile: String,
    pub qos: String,
    pub constraint: String,
    pub exclusive: bool,
    pub gpus_per_rank: u32,
    pub gpu_type: String,
    pub image: String,
    /// Nodes to stay away from.
    pub exclude: Vec<String>,
    /// How often the script requeues its task at the time limit; `None` if a second run would begin anew.
    pub requeues: Option<u32>,
}

impl Resources {
    pub fn from_trial(trial: &Trial) -> Self {
        let slurm = trial.settings.slurm.clone();
        Self {
            ranks: trial.settings.launch.ranks,
            nodes: trial.settings.launch.nodes,
            cpus_per_rank: slurm.cpus_per_rank,
            memory_mib: slurm.memory_mib,
            time_min: slurm.time_min,
            partition: slurm.partition,
            account: slurm.account,
            throttle: slurm.throttle,
            profile: slurm.profile,
            qos: slurm.qos,
            constraint: slurm.constraint,
            exclusive: slurm.exclusive,
            gpus_per_rank: slurm.gpus_per_rank,
            gpu_type: slurm.gpu_type,
            image: slurm.image,
            exclude: Vec::new(),
            requeues: trial.settings.can_resume().then_some(slurm.requeues),
        }
    }

    pub const fn ranks_per_node(&self) -> u32 {
        self.ranks.div_ceil(self.nodes)
    }

    /// Value of `--mem`: memory per node.
    pub const fn memory_per_node_mib(&self) -> u64 {
        self.memory_mib.div_ceil(self.nodes as u64)
    }

    /// Value of `--gres`: the GPUs of all ranks of a node; `None` without GPUs.
    pub fn gres(&self) -> Option<String> {
        let gpus = u64::from(self.gpus_per_rank) * u64::from(self.ranks_per_node());
        match (gpus, self.gpu_type.as_str()) {
            (0, _) => None,
            (n, "") => Some(format!("gpu:{n}")),
            (n, kind) => Some(format!("gpu:{kind}:{n}")),
        }
    }
}

/// Limits of a cluster. `None`: no limit is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// MaxArraySize: one more than the highest index of a task.
    pub array_size: Option<u64>,
    /// Tasks that a user may have in the queue at once.
    pub submit: Option<u64>,
}

/// An array to submit: trials that ask for the same resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayPlan {
    pub resources: Resources,
    /// Indices in the job of the trials of each task, in the order in which it runs them.
    pub tasks: BTreeMap<u32, Vec<u32>>,
}

impl ArrayPlan {
    /// Number of trials of the longest task.
    pub fn max_trials_per_task(&self) -> u64 {
        self.tasks.values().map(|trials| trials.len() as u64).max().unwrap_or(1)
    }

    /// The indices of the tasks as `--array` takes them: `0-11`, `1,3,5-9`.
    pub fn indices(&self) -> String {
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

/// The arrays that run the trials `which` (indices in the job). `adjust` may change what a trial asks for.
///
/// A task runs one trial, unless the job is interleaved (then one task runs all trials that ask for the same) or the
/// cluster does not take as many tasks. Where it fits, the index of a task is that of its trial in the job.
pub fn plan_arrays(
    job: &JobRecord,
    which: &[u32],
    limits: Limits,
    adjust: &dyn Fn(u32, Resources) -> Resources,
) -> Vec<ArrayPlan> {
    let interleave = job.trials.iter().any(|trial| trial.settings.measure.interleave);
    let commands = job.trials.iter().any(|trial| trial.settings.runs_command());
    let mut groups: Vec<(Resources, Vec<u32>)> = Vec::new();
    for index in which {
        let Some(trial) = job.trials.get(*index as usize) else { continue };
        let mut resources = adjust(*index, Resources::from_trial(trial));
        if interleave && commands {
            // Programs keep no checkpoints: a task that runs one beside other trials is not requeued.
            resources.requeues = None;
        }
        match groups.iter_mut().find(|(group, _)| *group == resources) {
            Some((_, trials)) => trials.push(*index),
            None => groups.push((resources, vec![*index])),
        }
    }
    // Rounded up for each group, the sum may exceed the limit by the number of groups; a job has few.
    let per_task = match limits.submit {
        Some(limit) => (which.len() as u64).div_ceil(limit.max(1)).max(1),
        None => 1,
    };
    let max_tasks = limits.array_size.unwrap_or(u64::MAX).max(1);
    let mut plans = Vec::new();
    for (resources, trials) in groups {
        let per_task = if interleave { trials.len() } else { usize::try_from(per_task).unwrap_or(usize::MAX) };
        let tasks: Vec<&[u32]> = trials.chunks(per_task.max(1)).collect();
        for chunk in tasks.chunks(usize::try_from(max_tasks).unwrap_or(usize::MAX)) {
            let fits = chunk.iter().all(|trials| u64::from(trials[0]) < max_tasks);
            let numbered =
                (0..).zip(chunk).map(|(position, trials)| (if fits { trials[0] } else { position }, trials.to_vec()));
            plans.push(ArrayPlan { resources: resources.clone(), tasks: numbered.collect() });
        }
    }
    plans
}
