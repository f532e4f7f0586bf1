//! The one table of keys. Checking, defaults, `--set`, suggestions and the reference in docs/config.md all read it.

use super::kind::Kind;

/// Sections of a config, in the order of the reference.
pub const SECTIONS: [&str; 11] = [
    "experiment",
    "data",
    "select",
    "pipeline",
    "loader",
    "model",
    "train",
    "measure",
    "checkpoint",
    "launch",
    "slurm",
];

/// What a key is when nothing sets it.
#[derive(Clone, Copy, Debug)]
pub enum Preset {
    /// It has to be set.
    Required,
    /// A TOML value.
    Value(&'static str),
    /// Taken from something else; the text says from what.
    Derived(&'static str),
}

/// One key of the language.
#[derive(Clone, Copy, Debug)]
pub struct KeySpec {
    /// The dotted key, `section.name`.
    pub key: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// What it is when nothing sets it.
    pub preset: Preset,
    /// What it means, one line.
    pub help: &'static str,
    /// Names that other tools use for it; only for "did you mean".
    pub also: &'static [&'static str],
}

impl KeySpec {
    /// The part before the dot.
    pub fn section(&self) -> &'static str {
        self.key.split_once('.').map_or("", |(section, _)| section)
    }

    /// The part after the dot.
    pub fn leaf(&self) -> &'static str {
        self.key.split_once('.').map_or(self.key, |(_, leaf)| leaf)
    }

    /// Whether the key holds for the whole job, so that variants and sweeps cannot change it: one job has one note, and
    /// runs on one cluster.
    pub fn per_job(&self) -> bool {
        self.section() == "experiment" || matches!(self.key, "measure.interleave" | "slurm.profile" | "slurm.throttle")
    }
}

/// The key with this dotted name.
pub fn find(key: &str) -> Option<&'static KeySpec> {
    KEYS.iter().find(|spec| spec.key == key)
}

use Preset::{Derived, Required, Value};

const COUNT: Kind = Kind::Integer { min: 1, max: i64::MAX };
/// Far beyond any use, and safe in 32 bits.
const MANY: i64 = 1_000_000;
const COUNT32: Kind = Kind::Integer { min: 1, max: MANY };
const NATURAL: Kind = Kind::Integer { min: 0, max: i64::MAX };
const NATURAL32: Kind = Kind::Integer { min: 0, max: MANY };
const NOT_NEGATIVE: Kind = Kind::Number { min: 0.0, from: true, max: f64::MAX };

const fn words(words: &'static [&'static str]) -> Kind {
    Kind::Choice { words, aliases: &[] }
}

const fn key(key: &'static str, kind: Kind, preset: Preset, help: &'static str) -> KeySpec {
    KeySpec { key, kind, preset, help, also: &[] }
}

const fn key_also(
    key: &'static str,
    kind: Kind,
    preset: Preset,
    help: &'static str,
    also: &'static [&'static str],
) -> KeySpec {
    KeySpec { key, kind, preset, help, also }
}

/// All keys, in the order of the reference.
pub const KEYS: &[KeySpec] = &[
    key("experiment.study", Kind::Text, Derived("data.set"), "Folder in `experiments/`"),
    key("experiment.title", Kind::Text, Value("\"\""), "One line for the note"),
    key("experiment.description", Kind::Text, Value("\"\""), "What the experiment asks"),
    key("experiment.measures", Kind::TextList, Value("[]"), "What the figures contain"),
    key("experiment.does_not_measure", Kind::TextList, Value("[]"), "What they do not contain"),
    key_also(
        "data.set",
        Kind::Text,
        Value("\"006-kuzmin-tmi\""),
        "Data set: a folder in `experiments/` with a `dataset.toml`",
        &["dataset", "name"],
    ),
    key_also(
        "data.samples",
        COUNT,
        Derived("all that the recipe has"),
        "Number of samples; at most what the recipe has",
        &["size"],
    ),
    key(
        "data.scale",
        Kind::Number { min: 0.0, from: false, max: 1.0 },
        Value("1.0"),
        "Share of the genes that the graph has",
    ),
    key(
        "data.networks",
        words(&["real", "completed"]),
        Value("\"real\""),
        "STRING networks as they are, or completed with generated edges to the published counts",
    ),
    key("data.seed", NATURAL, Value("42"), "Seed of everything that is generated"),
    key_also(
        "select.samples",
        words(&["all", "metabolic"]),
        Value("\"all\""),
        "Candidates: all samples, or those that perturb a gene of a reaction",
        &["gene_subsets"],
    ),
    key_also(
        "select.subset",
        NATURAL,
        Value("0"),
        "The most samples that are taken of the candidates, drawn per number of perturbed genes; a split takes its share of it; 0 takes all",
        &["perturbation_subset_size", "is_perturbation_subset"],
    ),
    key(
        "select.split",
        words(&["all", "train", "val", "test"]),
        Value("\"all\""),
        "Part of all samples: 80 %, 10 % and 10 %, drawn at random before anything else",
    ),
    key("select.seed", NATURAL, Value("42"), "Seed of subset and split"),
    key_also(
        "pipeline.store",
        words(&["json", "compressed", "full_masks", "packed_masks", "ids"]),
        Value("\"json\""),
        "What records are read from; any but `json` is made from it first. `lazy`, `packed`, `shared` and `incidence_subgraph` take stored masks, other processors go by the genes",
        &["use_preprocessed", "use_full_masks", "storage"],
    ),
    key_also(
        "pipeline.processor",
        words(&["lazy", "subgraph", "incidence_subgraph", "neighborhood", "perturbation", "shared", "packed", "ids"]),
        Required,
        "What a worker makes of a record",
        &["graph_processor", "type"],
    ),
    key_also(
        "pipeline.hops",
        Kind::Integer { min: 1, max: 3 },
        Value("1"),
        "With `neighborhood`: how far from the perturbed genes",
        &["num_hops", "k"],
    ),
    key(
        "pipeline.walk",
        words(&["per_type", "union"]),
        Value("\"per_type\""),
        "With `neighborhood`: against the edges within each type, as published, or either way along all types",
    ),
    key_also(
        "pipeline.edge_types",
        Kind::TextList,
        Derived("all networks of the recipe, in its order"),
        "Edge types of the graph, in order",
        &["graphs"],
    ),
    key_also(
        "pipeline.metabolism",
        Kind::Bool,
        Value("false"),
        "Reactions and metabolites as well, with the edges gpr and rmr",
        &["incidence_graphs", "metabolism_bipartite"],
    ),
    key_also(
        "pipeline.collation",
        words(&["pyg", "lazy_collater", "shared_index"]),
        Value("\"pyg\""),
        "How samples become a batch: as PyTorch Geometric does, as the published collater was written, or without edge index",
        &["collate_fn", "collater"],
    ),
    key(
        "pipeline.follow_batch",
        Kind::TextList,
        Value("[\"x\", \"x_pert\", \"perturbation_indices\"]"),
        "With `pyg`: fields for which the batch names the sample of each entry; for `perturbation_indices` every batch does",
    ),
    key_also(
        "pipeline.device_masks",
        words(&["none", "looped", "vectorised"]),
        Value("\"none\""),
        "Edge masks made where the batch is used: sample by sample, or all samples at once",
        &["init_masks_on_gpu", "gpu_masks"],
    ),
    key_also("loader.batch_size", COUNT, Required, "Samples per rank and step", &["batch"]),
    key_also(
        "loader.workers",
        NATURAL32,
        Value("0"),
        "Loader threads per rank; 0 loads on the step's own thread",
        &["num_workers", "threads"],
    ),
    key_also("loader.prefetch_factor", COUNT32, Value("2"), "Batches that each thread may be ahead", &["prefetch"]),
    key_also(
        "loader.pin_memory",
        Kind::Bool,
        Value("false"),
        "Copy batches into page-locked memory, for a device to copy from; ranks run on the CPU, where there is nothing to do",
        &["pin"],
    ),
    key("loader.shuffle", Kind::Bool, Value("true"), "A new order in each epoch"),
    key(
        "loader.drop_last",
        Kind::Bool,
        Value("false"),
        "Leave out the samples that do not fill all ranks, and the last batch that is not full",
    ),
    key("loader.seed", NATURAL, Value("42"), "Seed of the order"),
    key_also(
        "loader.buffer_mib",
        NATURAL,
        Value("0"),
        "The most MiB of batches that a rank holds, in the making, ready and in the step; 0 is its share of six tenths of the free memory",
        &["memory_limit"],
    ),
    key("model.kind", words(&["dango"]), Value("\"dango\""), "Which model"),
    key_also(
        "model.hidden",
        COUNT32,
        Value("64"),
        "Channels; a multiple of `heads`",
        &["hidden_channels", "hidden_dim"],
    ),
    key_also("model.heads", COUNT32, Value("4"), "Attention heads", &["num_heads"]),
    key_also("model.layers", COUNT32, Value("2"), "Attention layers", &["num_layers"]),
    key_also(
        "model.edge_types",
        Kind::TextList,
        Derived("the `string12_0_*` types of pipeline.edge_types"),
        "Edge types that the model reads",
        &["graphs"],
    ),
    key("model.seed", NATURAL, Value("42"), "Seed of the initial parameters"),
    key_also(
        "train.mode",
        Kind::Choice {
            words: &["data", "forward", "forward_backward", "train"],
            aliases: &[
                ("dataloader_profiling", "data"),
                ("model_profiling", "forward_backward"),
                ("training", "train"),
            ],
        },
        Value("\"data\""),
        "What a step does after the batch has arrived",
        &["execution_mode"],
    ),
    key("train.optimizer", words(&["adamw", "sgd"]), Value("\"adamw\""), "The optimizer"),
    key_also(
        "train.learning_rate",
        Kind::Number { min: 0.0, from: false, max: f64::MAX },
        Value("1e-5"),
        "Its learning rate",
        &["lr"],
    ),
    key("train.weight_decay", NOT_NEGATIVE, Value("1e-6"), "Its weight decay"),
    key_also(
        "train.clip_norm",
        NOT_NEGATIVE,
        Value("0.0"),
        "Largest norm of the gradient; 0 leaves it alone",
        &["clip_grad_norm", "clip_grad_norm_max_norm"],
    ),
    key(
        "train.reconstruction",
        words(&["linear_until_uniform", "uniform", "off"]),
        Value("\"linear_until_uniform\""),
        "Weight of the reconstruction loss",
    ),
    key(
        "measure.warmup",
        NATURAL,
        Derived("10, or the batches that are loaded ahead, if more"),
        "Steps before the measured ones; recorded, never counted",
    ),
    key_also("measure.steps", COUNT, Value("100"), "Steps that are measured", &["max_steps"]),
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
