//! What Slurm is asked for. Invariant: one array job asks for one set of resources.

use expctl_record::{JobRecord, Trial};

use crate::exit::{Exit, Failure};

/// What each array task of a job asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resources {
    pub ranks: u32,
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
}

impl Resources {
    fn of(trial: &Trial) -> Self {
        let slurm = trial.settings.slurm.clone();
        Self {
            ranks: trial.settings.launch.ranks,
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
        }
    }

    /// The same by config key, as shown to the user.
    fn by_key(&self) -> [(&'static str, String); 14] {
        let text = |t: &str| format!("\"{t}\"");
        [
            ("launch.ranks", self.ranks.to_string()),
            ("slurm.cpus_per_rank", self.cpus_per_rank.to_string()),
            ("slurm.memory_mib", self.memory_mib.to_string()),
            ("slurm.time_min", self.time_min.to_string()),
            ("slurm.partition", text(&self.partition)),
            ("slurm.account", text(&self.account)),
            ("slurm.throttle", self.throttle.to_string()),
            ("slurm.profile", text(&self.profile)),
            ("slurm.qos", text(&self.qos)),
            ("slurm.constraint", text(&self.constraint)),
            ("slurm.exclusive", self.exclusive.to_string()),
            ("slurm.gpus_per_rank", self.gpus_per_rank.to_string()),
            ("slurm.gpu_type", text(&self.gpu_type)),
            ("slurm.image", text(&self.image)),
        ]
    }

    /// What `--gres` takes for a task with all its ranks; none without GPUs.
    pub fn gres(&self) -> Option<String> {
        let gpus = u64::from(self.gpus_per_rank) * u64::from(self.ranks);
        match (gpus, self.gpu_type.as_str()) {
            (0, _) => None,
            (n, "") => Some(format!("gpu:{n}")),
            (n, kind) => Some(format!("gpu:{kind}:{n}")),
        }
    }

    /// The one set of resources that all trials of a job need.
    pub fn common(job: &JobRecord) -> Result<Self, Failure> {
        let all: Vec<Self> = job.trials.iter().map(Self::of).collect();
        let Some(first) = all.first() else {
            return Err(Failure::new(Exit::Config, "the job has no trials"));
        };
        let mut differing = Vec::new();
        for (key, (name, _)) in first.by_key().iter().enumerate() {
            let mut values: Vec<String> = Vec::new();
            for resources in &all {
                let (_, value) = &resources.by_key()[key];
                if !values.contains(value) {
                    values.push(value.clone());
                }
            }
            if values.len() > 1 {
                differing.push(format!("{name} ({})", values.join(", ")));
            }
        }
        if differing.is_empty() {
            return Ok(first.clone());
        }
        Err(Failure::new(
            Exit::Config,
            format!(
                "the trials of one Slurm job must ask for the same resources, but differ in {}",
                differing.join(" and ")
            ),
        )
        .hint("submit the variants one by one: --only NAME"))
    }
}
