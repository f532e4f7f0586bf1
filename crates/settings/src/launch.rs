//! `[worker]`, `[launch]` and `[slurm]`: what runs as the ranks of a trial, on what, and what Slurm is asked for.

use expctl_settings_derive::{Words, section};
use serde::{Deserialize, Serialize};

/// `[worker]`
#[section("worker")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worker {
    /// A program and its arguments that run as the ranks in the place of `expctl-worker`, without a shell, in a copy of the project folder; see
    /// [command-workers.md](../guide/command-workers.md).
    #[setting(default = [], added)]
    pub command: Vec<String>,
    /// The program starts the ranks of its node itself (torchrun, mp.spawn, accelerate), and is started once a node.
    #[setting(default = false, added)]
    pub starts_ranks: bool,
}

/// The device that ranks compute on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Words)]
pub enum DeviceChoice {
    /// A GPU if there is one that libtorch can use, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// A GPU; without one that libtorch can use the trial fails.
    Cuda,
}

/// The library that ranks exchange tensors with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Words)]
pub enum BackendChoice {
    /// NCCL if each of several ranks has a GPU of its own, else Gloo.
    #[default]
    Auto,
    /// Gloo, over TCP.
    Gloo,
    /// NCCL, between GPUs.
    Nccl,
}

/// The GPUs of trials that run side by side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Words)]
pub enum PackGpu {
    /// Each trial has GPUs of its own.
    #[default]
    Own,
    /// All trials of a task use the GPUs of one.
    Shared,
}

/// Who may read what a job leaves in the ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Words)]
pub enum Readers {
    /// The user who submitted it.
    #[default]
    User,
    /// The group of its folder, as well.
    Group,
    /// All users of the machine.
    All,
}

/// `[launch]`
#[section("launch")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// Processes of a trial.
    #[setting(default = 1, min = 1)]
    pub ranks: u32,
    /// On Slurm: nodes that they are spread over, the same number on each.
    #[setting(default = 1, added, min = 1)]
    pub nodes: u32,
    /// Threads of libtorch inside one operation, per rank.
    #[setting(default = 1, min = 1)]
    pub threads: u32,
    /// What the ranks compute on: the host, or GPUs; `auto` takes a GPU where there is one that libtorch can use.
    #[setting(default = DeviceChoice::Auto, added, workloads(Graph, Array))]
    pub device: DeviceChoice,
    /// What the ranks exchange gradients with; `auto` is `nccl` where each of several ranks has a GPU of its own, else `gloo`.
    #[setting(default = BackendChoice::Auto, added, workloads(Graph, Array))]
    pub backend: BackendChoice,
    /// Seconds for all ranks to appear.
    #[setting(default = 120, min = 1, not_run)]
    pub rendezvous_timeout_s: u64,
    /// Seconds without a sign of life after which a rank counts as lost.
    #[setting(default = 5, min = 1, not_run)]
    pub heartbeat_timeout_s: u64,
    /// Seconds in one step after which a rank counts as stuck; 0 does not watch for that.
    #[setting(default = 600, added, not_run)]
    pub hang_timeout_s: u64,
    /// Who may read the job's folder in the ledger, with its records, logs and checkpoints: the `user` who submitted it, the `group` of
    /// the folder as well, or `all` users of the machine. Files in it have the permissions that the umask leaves.
    #[setting(default = Readers::User, added, per_job, not_run)]
    pub readers: Readers,
}

/// `[slurm]`
#[section("slurm")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slurm {
    /// Cluster profile: what a cluster wants, for the keys below and more.
    #[setting(default = "", added, per_job, not_run)]
    pub profile: String,
    /// Partition; empty leaves it to the cluster.
    #[setting(default = "", not_run)]
    pub partition: String,
    /// Account; empty leaves it to the cluster.
    #[setting(default = "", not_run)]
    pub account: String,
    /// Quality of service; empty leaves it to the cluster.
    #[setting(default = "", added, not_run)]
    pub qos: String,
    /// Features that a node must have; empty asks for none.
    #[setting(default = "", added, not_run)]
    pub constraint: String,
    /// Whole nodes, shared with no other job.
    #[setting(default = false, added, not_run)]
    pub exclusive: bool,
    /// GPUs per rank; 0 asks for none.
    #[setting(default = 0, added, not_run)]
    pub gpus_per_rank: u32,
    /// Type of the GPUs; empty takes any.
    #[setting(default = "", added, not_run)]
    pub gpu_type: String,
    /// Container image that the ranks run in; empty runs them outside.
    #[setting(default = "", added, not_run)]
    pub image: String,
    /// Processors per rank.
    #[setting(default = 1, min = 1)]
    pub cpus_per_rank: u32,
    /// Memory of a trial with all its ranks in MiB; 0 leaves it to the cluster.
    #[setting(default = 0, not_run)]
    pub memory_mib: u64,
    /// Time limit in minutes; 0 leaves it to the partition.
    #[setting(default = 0, not_run)]
    pub time_min: u64,
    /// Tasks of the array that may run at once; 0 is no limit.
    #[setting(default = 0, per_job, not_run)]
    pub throttle: u32,
    /// How often a trial that keeps checkpoints goes back into the queue at its time limit, to go on from there.
    #[setting(default = 0, added, not_run)]
    pub requeues: u32,
    /// Repeats of a trial that run at the same time, [side by side](../guide/slurm.md#side-by-side): on Slurm in one task, which asks for the
    /// processors, the memory and the GPUs of all of them; also on this machine. Their rates are a class of their own.
    #[setting(default = 1, added, min = 1, max = 64)]
    pub pack: u32,
    /// The GPUs of trials that run side by side on Slurm: each has its `own`, or all use those of one (`shared`), and share the processors of
    /// the task as well.
    #[setting(default = PackGpu::Own, added)]
    pub pack_gpu: PackGpu,
    /// Where trials run side by side, also run the baseline alone, as often as it is repeated, so that the note says what running side by side
    /// costs a trial.
    #[setting(default = true, added, per_job, not_run)]
    pub pack_calibrate: bool,
}
