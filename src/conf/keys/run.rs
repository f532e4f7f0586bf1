use crate::conf::kind::Kind;

use super::spec::Preset::{Derived, Value};
use super::spec::{COUNT, COUNT32, KeySpec, NATURAL, NATURAL32, NOT_NEGATIVE, key, words};

/// `[measure]`, `[checkpoint]`, `[worker]`, `[launch]` and `[slurm]`.
pub(super) const KEYS: &[KeySpec] = &[
    key(
        "measure.warmup",
        NATURAL,
        Derived("10, or the batches that are loaded ahead, if more"),
        "Steps before the measured ones; recorded, never counted",
    ),
    key(
        "measure.steps",
        COUNT,
        Derived("100; with epochs what these have, less the warm-up"),
        "Steps that are measured",
    ),
    key(
        "measure.epochs",
        NATURAL,
        Value("0"),
        "Epochs that are measured, the warm-up included, in place of `steps`; 0 goes by the steps. Training runs have `train.epochs`",
    ),
    key("measure.repeats", COUNT32, Value("3"), "Runs of each variant; with one there is no verdict"),
    key(
        "measure.interleave",
        Kind::Bool,
        Value("false"),
        "On Slurm: run all trials one after another in one allocation, A B A B …, so that variants share their nodes",
    ),
    key(
        "measure.sample_every_s",
        NOT_NEGATIVE,
        Value("1.0"),
        "Seconds from one hardware sample of a rank (processor time, memory, disk, GPU) to the next, 0.1 or more; 0 takes none",
    ),
    key(
        "measure.cold_cache",
        Kind::Bool,
        Value("false"),
        "Drop the files of the store, or of the array, from the page cache of each node before the first step of each run, so that they are read from the disk ([what that can do](reading-results.md#cold-page-cache))",
    ),
    key(
        "checkpoint.every_steps",
        NATURAL,
        Value("0"),
        "Keep the state of training after every so many steps; 0 is never",
    ),
    key("checkpoint.every_min", NATURAL32, Value("0"), "Keep it after every so many minutes; 0 is never"),
    key("checkpoint.on_signal", Kind::Bool, Value("true"), "Keep it when the ranks are told to stop (TERM)"),
    key(
        "worker.command",
        Kind::TextList,
        Value("[]"),
        "A program and its arguments that run as the ranks in the place of `expctl-worker`, without a shell, in the project folder; see [command-workers.md](command-workers.md)",
    ),
    key(
        "worker.starts_ranks",
        Kind::Bool,
        Value("false"),
        "The program starts the ranks of its node itself (torchrun, mp.spawn, accelerate), and is started once a node",
    ),
    key("launch.ranks", COUNT32, Value("1"), "Processes of a trial"),
    key("launch.nodes", COUNT32, Value("1"), "On Slurm: nodes that they are spread over, the same number on each"),
    key("launch.threads", COUNT32, Value("1"), "Threads of libtorch inside one operation, per rank"),
    key(
        "launch.device",
        words(&["auto", "cpu", "cuda"]),
        Value("\"auto\""),
        "What the ranks compute on: the host, or GPUs; `auto` takes a GPU where there is one that libtorch can use",
    ),
    key(
        "launch.backend",
        words(&["auto", "gloo", "nccl"]),
        Value("\"auto\""),
        "What the ranks exchange gradients with; `auto` is `nccl` where each of several ranks has a GPU of its own, else `gloo`",
    ),
    key("launch.rendezvous_timeout_s", COUNT, Value("120"), "Seconds for all ranks to appear"),
    key(
        "launch.heartbeat_timeout_s",
        COUNT,
        Value("5"),
        "Seconds without a sign of life after which a rank counts as lost",
    ),
    key(
        "launch.hang_timeout_s",
        NATURAL,
        Value("600"),
        "Seconds in one step after which a rank counts as stuck; 0 does not watch for that",
    ),
    key(
        "slurm.profile",
        Kind::Text,
        Value("\"\""),
        "Cluster profile: what a cluster wants, for the keys below and more",
    ),
    key("slurm.partition", Kind::Text, Value("\"\""), "Partition; empty leaves it to the cluster"),
    key("slurm.account", Kind::Text, Value("\"\""), "Account; empty leaves it to the cluster"),
    key("slurm.qos", Kind::Text, Value("\"\""), "Quality of service; empty leaves it to the cluster"),
    key("slurm.constraint", Kind::Text, Value("\"\""), "Features that a node must have; empty asks for none"),
    key("slurm.exclusive", Kind::Bool, Value("false"), "Whole nodes, shared with no other job"),
    key("slurm.gpus_per_rank", NATURAL32, Value("0"), "GPUs per rank; 0 asks for none"),
    key("slurm.gpu_type", Kind::Text, Value("\"\""), "Type of the GPUs; empty takes any"),
    key("slurm.image", Kind::Text, Value("\"\""), "Container image that the ranks run in; empty runs them outside"),
    key("slurm.cpus_per_rank", COUNT32, Value("1"), "Processors per rank"),
    key(
        "slurm.memory_mib",
        NATURAL,
        Value("0"),
        "Memory of a trial with all its ranks in MiB; 0 leaves it to the cluster",
    ),
    key("slurm.time_min", NATURAL, Value("0"), "Time limit in minutes; 0 leaves it to the partition"),
    key("slurm.throttle", NATURAL32, Value("0"), "Tasks of the array that may run at once; 0 is no limit"),
    key(
        "slurm.requeues",
        NATURAL32,
        Value("0"),
        "How often a trial that keeps checkpoints goes back into the queue at its time limit, to go on from there",
    ),
];
