//! What Slurm is asked for.

use expctl_record::Trial;

/// What the trials of one array ask for, each. Invariant: trials that differ in it are in different arrays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resources {
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
    /// Times that the script puts its task back into the queue at the time limit; none if a second run would begin anew.
    pub requeues: Option<u32>,
}

impl Resources {
    pub fn of(trial: &Trial) -> Self {
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

    /// `--mem` is per node.
    pub const fn memory_per_node_mib(&self) -> u64 {
        self.memory_mib.div_ceil(self.nodes as u64)
    }

    /// What `--gres` takes: per node, for all the ranks there; none without GPUs.
    pub fn gres(&self) -> Option<String> {
        let gpus = u64::from(self.gpus_per_rank) * u64::from(self.ranks_per_node());
        match (gpus, self.gpu_type.as_str()) {
            (0, _) => None,
            (n, "") => Some(format!("gpu:{n}")),
            (n, kind) => Some(format!("gpu:{kind}:{n}")),
        }
    }
}
