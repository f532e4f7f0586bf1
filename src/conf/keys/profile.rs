use crate::conf::kind::Kind;

use super::spec::Preset::Value;
use super::spec::{COUNT32, KeySpec, MANY, NATURAL, NATURAL32, key};

/// `[profile]` and `[trace]`.
pub(super) const KEYS: &[KeySpec] = &[
    key(
        "profile.wait",
        NATURAL,
        Value("0"),
        "Measured steps in front of the profiler's warm-up, in each cycle, as of `torch.profiler.schedule`",
    ),
    key("profile.warmup", NATURAL32, Value("1"), "Steps between its set-up and the first one that is recorded"),
    key(
        "profile.active",
        NATURAL32,
        Value("0"),
        "Steps that are recorded; 0 runs no profiler. Trials with one have no ratios; see [profiling.md](profiling.md)",
    ),
    key("profile.repeat", COUNT32, Value("1"), "Cycles of waiting, warm-up and recorded steps, a trace for each"),
    key("profile.ranks", Kind::NumberList { max: MANY }, Value("[]"), "Ranks that record; empty is all"),
    key(
        "profile.record_shapes",
        Kind::Bool,
        Value("false"),
        "Also shapes and types of the arguments of each operation",
    ),
    key("profile.memory", Kind::Bool, Value("false"), "Also what each operation allocates and frees"),
    key("profile.stack", Kind::Bool, Value("false"), "Also where in a TorchScript module an operation was called"),
    key(
        "profile.operations",
        Kind::Bool,
        Value("false"),
        "Time the operations inside *mask* and *collate* of samples of a graph, by edge type, in every step; needs no profiler, and takes part in ratios. See [profiling.md](profiling.md#inside-mask-and-collate)",
    ),
    key(
        "trace.at_step",
        NATURAL,
        Value("0"),
        "Short form: record this one step, counted from 0 with the warm-up, as the ledger counts; 0 is none",
    ),
];
