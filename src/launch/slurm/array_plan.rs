//! [`ArrayPlan`]: how the trials of a job are spread over arrays and their tasks, and what each asks for.

use std::collections::BTreeMap;

use expctl_ledger::JobRecord;
use expctl_settings::{PackGpu, Trial};

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
    /// Trials that run side by side in a task, which asks for the resources of all of them.
    pub pack: u32,
    pub pack_gpu: PackGpu,
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
            pack: slurm.pack,
            pack_gpu: slurm.pack_gpu,
            image: slurm.image,
            exclude: Vec::new(),
            requeues: trial.settings.can_resume().then_some(slurm.requeues),
        }
    }

    pub const fn ranks_per_node(&self) -> u32 {
        self.ranks.div_ceil(self.nodes)
    }

    /// Ranks of a task: those of all trials that run side by side.
    pub const fn task_ranks(&self) -> u32 {
        self.ranks.saturating_mul(self.pack)
    }

    /// Memory of a trial per node.
    pub const fn memory_per_node_mib(&self) -> u64 {
        self.memory_mib.div_ceil(self.nodes as u64)
    }

    /// Value of `--mem` of a task: memory per node of all trials that run side by side.
    pub fn task_memory_per_node_mib(&self) -> u64 {
        self.memory_per_node_mib().saturating_mul(u64::from(self.pack))
    }

    /// Whether the trials of a task use the same GPUs.
    pub fn shares_gpus(&self) -> bool {
        self.pack > 1 && self.pack_gpu == PackGpu::Shared && self.gpus_per_rank > 0
    }

    /// Value of `--gres` of a trial: the GPUs of all its ranks of a node; `None` without GPUs.
    pub fn gres(&self) -> Option<String> {
        self.gres_of(1)
    }

    /// The same of a task: of all trials that run side by side, unless they share the GPUs of one.
    pub fn task_gres(&self) -> Option<String> {
        self.gres_of(if self.shares_gpus() { 1 } else { self.pack })
    }

    fn gres_of(&self, trials: u32) -> Option<String> {
        let gpus = u64::from(self.gpus_per_rank) * u64::from(self.ranks_per_node()) * u64::from(trials);
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
    /// Indices in the job of the trials of each task, in the order in which it runs them. Of those that run side by side, each lane of a task
    /// takes every `pack`-th one.
    pub tasks: BTreeMap<u32, Vec<u32>>,
}

impl ArrayPlan {
    /// Number of trials that the longest task runs one after another.
    pub fn max_turns(&self) -> u64 {
        let pack = u64::from(self.resources.pack.max(1));
        self.tasks.values().map(|trials| (trials.len() as u64).div_ceil(pack)).max().unwrap_or(1)
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
/// A task runs one trial, unless repeats of a trial run side by side (then as many as do), the job is interleaved (then one task runs all
/// trials that ask for the same) or the cluster does not take as many tasks. Where it fits, the index of a task is that of its trial in the job.
pub fn plan_arrays(
    job: &JobRecord,
    which: &[u32],
    limits: Limits,
    adjust: &dyn Fn(u32, Resources) -> Resources,
) -> Vec<ArrayPlan> {
    let interleave = job.trials.iter().any(|trial| trial.settings.measure.interleave);
    let has_packs = job.trials.iter().any(|trial| trial.settings.slurm.pack > 1);
    let commands = job.trials.iter().any(|trial| trial.settings.runs_command());
    let mut groups: Vec<(Resources, Vec<u32>)> = Vec::new();
    for index in which {
        let Some(trial) = job.trials.get(*index as usize) else { continue };
        let mut resources = adjust(*index, Resources::from_trial(trial));
        if interleave && commands {
            // Programs keep no checkpoints: a task that runs one beside other trials is not requeued.
            resources.requeues = None;
        }
        if has_packs && resources.pack < 2 && !resources.exclusive {
            // The trials that show what one does alone are not to meet on a node either.
            resources.throttle = 1;
        }
        match groups.iter_mut().find(|(group, _)| *group == resources) {
            Some((_, trials)) => trials.push(*index),
            None => groups.push((resources, vec![*index])),
        }
    }
    let groups: Vec<(Resources, Vec<Vec<u32>>)> = groups
        .into_iter()
        .map(|(resources, trials)| {
            let packs = packs_of(job, trials, resources.pack);
            (resources, packs)
        })
        .collect();
    let all_packs: usize = groups.iter().map(|(_, packs)| packs.len()).sum();
    // Rounded up for each group, the sum may exceed the limit by the number of groups; a job has few.
    let per_task = match limits.submit {
        Some(limit) => (all_packs as u64).div_ceil(limit.max(1)).max(1),
        None => 1,
    };
    let per_task = usize::try_from(per_task).unwrap_or(usize::MAX);
    let max_tasks = limits.array_size.unwrap_or(u64::MAX).max(1);
    let mut plans = Vec::new();
    for (resources, packs) in groups {
        let per_task = if interleave { packs.len() } else { per_task };
        let tasks: Vec<Vec<u32>> = packs.chunks(per_task.max(1)).map(|packs| packs.concat()).collect();
        for chunk in tasks.chunks(usize::try_from(max_tasks).unwrap_or(usize::MAX)) {
            let fits = chunk.iter().all(|trials| u64::from(trials[0]) < max_tasks);
            let numbered =
                (0..).zip(chunk).map(|(position, trials)| (if fits { trials[0] } else { position }, trials.clone()));
            plans.push(ArrayPlan { resources: resources.clone(), tasks: numbered.collect() });
        }
    }
    plans
}

/// Trials by `pack`: those of a pack are repeats of one variant at one point, so that they are the load that a rate beside them is of. Where a
/// row has fewer trials than fill its packs, the last one has fewer. Whole packs come first: in a task of several, the lanes take the
/// trials of one at the same time.
fn packs_of(job: &JobRecord, trials: Vec<u32>, pack: u32) -> Vec<Vec<u32>> {
    if pack < 2 {
        return trials.into_iter().map(|trial| vec![trial]).collect();
    }
    let pack = pack as usize;
    let mut rows: BTreeMap<&str, usize> = BTreeMap::new();
    // The last pack of each row is open.
    let mut packs: Vec<Vec<u32>> = Vec::new();
    for index in trials {
        let row = job.trials.get(index as usize).map_or("", Trial::settings_hash);
        match rows.get(row).and_then(|at| packs.get_mut(*at)).filter(|open| open.len() < pack) {
            Some(open) => open.push(index),
            None => {
                rows.insert(row, packs.len());
                packs.push(vec![index]);
            }
        }
    }
    packs.sort_by_key(|trials| trials.len() < pack);
    packs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A job of `n` trials that run `pack` at a time.
    fn job(n: u32, pack: u32) -> JobRecord {
        let text = include_str!("../../../tests/samples/release_0_1/runs/1/ids-r1-5ed22a3a/attempt-1/trial.json");
        let record = include_str!("../../../tests/samples/release_0_1/runs/1/job.json");
        let mut trial: Trial = serde_json::from_str(text).unwrap();
        let mut job: JobRecord = serde_json::from_str(record).unwrap();
        trial.settings.measure.interleave = false;
        trial.settings.slurm.pack = pack;
        job.trials = (0..n).map(|_| trial.clone()).collect();
        job
    }

    /// The trials of each task of the only array.
    fn tasks(job: &JobRecord, limits: Limits) -> Vec<Vec<u32>> {
        let all: Vec<u32> = (0..).take(job.trials.len()).collect();
        let plans = plan_arrays(job, &all, limits, &|_, resources| resources);
        assert_eq!(plans.len(), 1);
        plans[0].tasks.values().cloned().collect()
    }

    #[test]
    fn a_task_has_the_trials_that_run_side_by_side() {
        assert_eq!(tasks(&job(5, 2), Limits::default()), [vec![0, 1], vec![2, 3], vec![4]]);
        assert_eq!(tasks(&job(3, 1), Limits::default()), [vec![0], vec![1], vec![2]]);
        // Where a cluster takes two tasks, each lane of a task has two trials in turn.
        let few = Limits { submit: Some(2), ..Limits::default() };
        let plan = plan_arrays(&job(7, 2), &[0, 1, 2, 3, 4, 5, 6], few, &|_, resources| resources).remove(0);
        assert_eq!(plan.tasks.values().map(Vec::len).collect::<Vec<_>>(), [4, 3]);
        assert_eq!(plan.max_turns(), 2);
    }

    #[test]
    fn repeats_of_one_variant_run_side_by_side() {
        let mut two = job(6, 2);
        for (trial, id) in two.trials.iter_mut().zip(["a-r1-11", "b-r1-22", "a-r2-11", "b-r2-22", "a-r3-11", "b-r3-22"])
        {
            id.clone_into(&mut trial.id);
        }
        assert_eq!(tasks(&two, Limits::default()), [vec![0, 2], vec![1, 3], vec![4], vec![5]]);
        // Packs that are not whole come last.
        let few = Limits { submit: Some(2), ..Limits::default() };
        assert_eq!(tasks(&two, few), [vec![0, 2, 1, 3], vec![4, 5]]);
    }

    #[test]
    fn a_trial_that_runs_alone_is_in_another_array() {
        let mut mixed = job(4, 2);
        mixed.trials[1].settings.slurm.pack = 1;
        let plans = plan_arrays(&mixed, &[0, 1, 2, 3], Limits::default(), &|_, resources| resources);
        let shown: Vec<Vec<&Vec<u32>>> = plans.iter().map(|plan| plan.tasks.values().collect()).collect();
        assert_eq!(shown, [vec![&vec![0, 2], &vec![3]], vec![&vec![1]]]);
        let at_once: Vec<u32> = plans.iter().map(|plan| plan.resources.throttle).collect();
        assert_eq!(at_once, [mixed.trials[0].settings.slurm.throttle, 1]);
    }

    #[test]
    fn a_task_asks_for_what_its_trials_need_together() {
        let mut one = job(1, 3).trials.remove(0);
        (one.settings.launch.ranks, one.settings.launch.nodes) = (2, 1);
        let slurm = &mut one.settings.slurm;
        (slurm.memory_mib, slurm.gpus_per_rank) = (1000, 1);
        let own = Resources::from_trial(&one);
        assert_eq!((own.task_ranks(), own.task_memory_per_node_mib()), (6, 3000));
        assert_eq!((own.gres().as_deref(), own.task_gres().as_deref()), (Some("gpu:2"), Some("gpu:6")));
        one.settings.slurm.pack_gpu = PackGpu::Shared;
        let shared = Resources::from_trial(&one);
        assert!(shared.shares_gpus() && !own.shares_gpus());
        assert_eq!(shared.task_gres().as_deref(), Some("gpu:2"));
    }
}
