use crate::conf::kind::Kind;

use super::spec::Preset::{Derived, Value};
use super::spec::{COUNT, COUNT32, KeySpec, NATURAL, NATURAL32, key, key_also};

/// `[measure]`, `[checkpoint]`, `[launch]` and `[slurm]`.
pub(super) const KEYS: &[KeySpec] = &[
    key(
        "measure.warmup",
        NATURAL,
        Derived("10, or the batches that are loaded ahead, if more"),
        "Steps before the measured ones; recorded, never counted",
    ),
    key_also(
        "measure.steps",
        COUNT,
        Derived("100; with train.epochs what these have, less the warm-up"),
        "Steps that are measured",
        &["max_steps"],
    ),
    key("measure.repeats", COUNT32, Value("3"), "Runs of each variant; with one there is no verdict"),
    key_also(
        "measure.interleave",
        Kind::Bool,
        Value("false"),
        "On Slurm: run all trials one after another in one allocation, A B A B …, so that variants share their nodes",
        &["paired", "pack"],
    ),
    key_also(
        "checkpoint.every_steps",
        NATURAL,
        Value("0"),
        "Keep the state of training after every so many steps; 0 is never",
        &["save_every", "every_n_train_steps"],
    ),
    key("checkpoint.every_min", NATURAL32, Value("0"), "Keep it after every so many minutes; 0 is never"),
    key("checkpoint.on_signal", Kind::Bool, Value("true"), "Keep it when the ranks are told to stop (TERM)"),
    key_also(
        "launch.ranks",
        COUNT32,
        Value("1"),
        "Processes of a trial",
        &["devices", "world_size", "nproc_per_node", "processes"],
    ),
    key_also(
        "launch.nodes",
        COUNT32,
        Value("1"),
        "On Slurm: nodes that they are spread over, the same number on each",
        &["num_nodes", "nnodes"],
    ),
    key("launch.threads", COUNT32, Value("1"), "Threads of libtorch inside one operation, per rank"),
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
    key_also(
        "slurm.gpus_per_rank",
        NATURAL32,
        Value("0"),
        "GPUs per rank; 0 asks for none",
        &["gpus", "gpus_per_task", "gres"],
    ),
    key("slurm.gpu_type", Kind::Text, Value("\"\""), "Type of the GPUs; empty takes any"),
    key_also(
        "slurm.image",
        Kind::Text,
        Value("\"\""),
        "Container image that the ranks run in; empty runs them outside",
        &["container", "sif"],
    ),
    key_also("slurm.cpus_per_rank", COUNT32, Value("1"), "Processors per rank", &["cpus_per_task", "cpus"]),
    key_also(
        "slurm.memory_mib",
        NATURAL,
        Value("0"),
        "Memory of a trial with all its ranks in MiB; 0 leaves it to the cluster",
        &["mem", "memory"],
    ),
    key_also("slurm.time_min", NATURAL, Value("0"), "Time limit in minutes; 0 leaves it to the partition", &["time"]),
    key("slurm.throttle", NATURAL32, Value("0"), "Tasks of the array that may run at once; 0 is no limit"),
    key_also(
        "slurm.requeues",
        NATURAL32,
        Value("0"),
        "How often a trial that keeps checkpoints goes back into the queue at its time limit, to go on from there",
        &["max_requeues", "requeue"],
    ),
];
