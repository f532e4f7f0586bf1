use crate::conf::kind::Kind;

use super::spec::Preset::{Derived, Value};
use super::spec::{COUNT, KeySpec, NATURAL, NOT_NEGATIVE, key, words};

/// `[train]`.
pub(super) const KEYS: &[KeySpec] = &[
    key(
        "train.mode",
        Kind::Choice {
            words: &["data", "zero_loss", "forward", "forward_backward", "train"],
            aliases: &[
                ("dataloader_profiling", "data"),
                ("model_profiling", "forward_backward"),
                ("training", "train"),
            ],
        },
        Value("\"data\""),
        "What a step does after the batch has arrived",
    ),
    key("train.optimizer", words(&["adamw", "sgd"]), Value("\"adamw\""), "The optimizer"),
    key(
        "train.learning_rate",
        Kind::Number { min: 0.0, from: false, max: f64::MAX },
        Value("1e-5"),
        "Its learning rate",
    ),
    key("train.weight_decay", NOT_NEGATIVE, Value("1e-6"), "Its weight decay"),
    key("train.clip_norm", NOT_NEGATIVE, Value("0.0"), "Largest norm of the gradient; 0 leaves it alone"),
    key(
        "train.reconstruction",
        words(&["linear_until_uniform", "pre_then_post", "linear_until_flipped", "uniform", "off"]),
        Value("\"linear_until_uniform\""),
        "With `dango`: weight of the reconstruction loss",
    ),
    key(
        "train.loss",
        words(&["log_cosh", "mse", "mse_sinkhorn", "cross_entropy"]),
        Derived("`log_cosh`; `cross_entropy` with `array.format`"),
        "Loss of the predictions; classes have `cross_entropy`, and nothing else",
    ),
    key(
        "train.standardise_labels",
        Kind::Bool,
        Value("false"),
        "Shift and scale labels to mean 0 and standard deviation 1 over all samples",
    ),
    key("train.sinkhorn_weight", NOT_NEGATIVE, Value("0.1"), "With `mse_sinkhorn`: weight of the Sinkhorn divergence"),
    key(
        "train.sinkhorn_buffer",
        COUNT,
        Value("224"),
        "With `mse_sinkhorn`: predictions of earlier batches that it sees; until there are as many, it is 0",
    ),
    key(
        "train.sinkhorn_gather",
        words(&["off", "joined", "detached"]),
        Value("\"off\""),
        "With `mse_sinkhorn`: predictions of a rank alone, of all ranks, or of all without a gradient, as published",
    ),
    key(
        "train.precision",
        words(&["float32", "bf16_mixed"]),
        Value("\"float32\""),
        "Numbers that the forward pass computes with",
    ),
    key(
        "train.gradient_compression",
        words(&["none", "fp16", "bf16"]),
        Value("\"none\""),
        "Numbers that gradients are sent between ranks as: each bucket is converted, reduced and converted back; half the bytes of `none`, which sends float32",
    ),
    key(
        "train.accumulation",
        Kind::TextList,
        Value("[]"),
        "Batches whose gradients make one step of the optimizer: `\"EPOCH:BATCHES\"`, from that epoch on",
    ),
    key(
        "train.schedule",
        words(&["constant", "cosine_restarts", "plateau"]),
        Value("\"constant\""),
        "How the learning rate changes from epoch to epoch; `learning_rate` is where it starts, with `cosine_restarts` its peak",
    ),
    key("train.schedule_epochs", COUNT, Value("300"), "With `cosine_restarts`: epochs of the first cycle"),
    key(
        "train.schedule_stretch",
        Kind::Number { min: 0.0, from: false, max: f64::MAX },
        Value("1.0"),
        "With `cosine_restarts`: length of a cycle over that of the one before it",
    ),
    key(
        "train.schedule_warmup",
        NATURAL,
        Value("0"),
        "With `cosine_restarts`: epochs at the start of a cycle in which the rate rises",
    ),
    key(
        "train.schedule_min",
        NOT_NEGATIVE,
        Value("0.0"),
        "With `cosine_restarts` and `plateau`: smallest learning rate",
    ),
    key(
        "train.schedule_factor",
        Kind::Number { min: 0.0, from: false, max: 1.0 },
        Value("0.5"),
        "With `cosine_restarts`: peak of a cycle over that of the one before it; with `plateau`: what the rate is multiplied by",
    ),
    key(
        "train.schedule_patience",
        NATURAL,
        Value("10"),
        "With `plateau`: validations without a better figure before the rate falls",
    ),
    key(
        "train.epochs",
        NATURAL,
        Value("0"),
        "Epochs of the run, after each of which it may be validated; 0 runs `measure.warmup` + `measure.steps` steps",
    ),
    key(
        "train.validate_every",
        NATURAL,
        Derived("1; 0 with `array.format`"),
        "With `epochs`: epochs from one validation to the next, on the split `val`; 0 never validates, as arrays have to",
    ),
    key("train.monitor", words(&["loss", "pearson"]), Value("\"loss\""), "What decides which epoch is the best"),
    key(
        "train.patience",
        NATURAL,
        Value("0"),
        "Validations without a better figure after which training ends; 0 goes on",
    ),
    key(
        "train.start_from",
        Kind::Text,
        Value("\"\""),
        "Weights to start from (`best.safetensors`), or a run to go on with (`last.safetensors`), from the project folder",
    ),
];
