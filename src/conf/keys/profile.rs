use crate::conf::kind::Kind;

use super::spec::Preset::Value;
use super::spec::{COUNT32, KeySpec, MANY, NATURAL, NATURAL32, key, key_also};

/// `[profile]` and `[trace]`.
pub(super) const KEYS: &[KeySpec] = &[
    key_also(
        "profile.wait",
        NATURAL,
        Value("0"),
        "Measured steps in front of the profiler's warm-up, in each cycle, as of `torch.profiler.schedule`",
        &["skip_first"],
    ),
    key("profile.warmup", NATURAL32, Value("1"), "Steps between its set-up and the first one that is recorded"),
    key_also(
        "profile.active",
        NATURAL32,
        Value("0"),
        "Steps that are recorded; 0 runs no profiler. Trials with one have no ratios; see [profiling.md](profiling.md)",
        &["steps", "record"],
    ),
    key("profile.repeat", COUNT32, Value("1"), "Cycles of waiting, warm-up and recorded steps, a trace for each"),
    key("profile.ranks", Kind::NumberList { max: MANY }, Value("[]"), "Ranks that record; empty is all"),
    key_also(
        "profile.record_shapes",
        Kind::Bool,
        Value("false"),
        "Also shapes and types of the arguments of each operation",
        &["shapes"],
    ),
    key_also(
        "profile.memory",
        Kind::Bool,
        Value("false"),
        "Also what each operation allocates and frees",
        &["profile_memory"],
    ),
    key_also(
        "profile.stack",
        Kind::Bool,
        Value("false"),
        "Also where in a TorchScript module an operation was called",
        &["with_stack"],
    ),
    key_also(
        "profile.operations",
        Kind::Bool,
        Value("false"),
        "Time the operations inside *mask* and *collate* of samples of a graph, by edge type, in every step; needs no profiler, and takes part in ratios. See [profiling.md](profiling.md#inside-mask-and-collate)",
        &["marks", "sub_stages"],
    ),
    key_also(
        "trace.at_step",
        NATURAL,
        Value("0"),
        "Short form: record this one step, counted from 0 with the warm-up, as the ledger counts; 0 is none",
        &["step", "at"],
    ),
];
