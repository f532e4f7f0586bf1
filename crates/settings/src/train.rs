//! `[train]` and `[checkpoint]`: what a step does, and what a training run does around its steps.

use expctl_settings_derive::{Words, section};
use serde::{Deserialize, Serialize};

use crate::{AcceleratorPreset, StepMs};

/// The work of a step after the batch has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Words)]
pub enum Mode {
    /// Nothing.
    #[word(alias = "dataloader_profiling")]
    Data,
    /// No model, but a full step on a loss that is 0 whatever the parameters are: what the published data-only runs did.
    ZeroLoss,
    /// Model and loss.
    Forward,
    /// Model, loss and gradients.
    #[word(alias = "model_profiling")]
    ForwardBackward,
    /// A full training step.
    #[word(alias = "training")]
    Train,
    /// No model: wait as long as an accelerator would compute, then for the other ranks. Batches reach the device as in training.
    Emulate,
}

impl Mode {
    /// Whether steps change parameters.
    pub const fn steps_parameters(self) -> bool {
        matches!(self, Self::ZeroLoss | Self::Train)
    }

    /// Whether steps compute anything of a model.
    pub const fn computes_model(self) -> bool {
        !matches!(self, Self::Data | Self::Emulate)
    }
}

/// The optimizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Words)]
pub enum Optimizer {
    /// AdamW (decoupled weight decay).
    Adamw,
    /// Plain stochastic gradient descent.
    Sgd,
}

/// Weight of DANGO's reconstruction loss against the loss of its predictions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Words)]
pub enum Reconstruction {
    /// 1.0 falling to 0.5 over ten epochs, as published.
    LinearUntilUniform,
    /// 1.0 for ten epochs, then 0: first the graphs alone, then the interactions alone.
    PreThenPost,
    /// 1.0 falling to 0 over ten epochs.
    LinearUntilFlipped,
    /// 0.5 throughout.
    Uniform,
    /// Predictions only.
    Off,
}

/// Loss of the predictions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Words)]
pub enum Loss {
    /// Mean of ln cosh of the differences.
    #[default]
    LogCosh,
    /// Mean of their squares.
    Mse,
    /// Mean of their squares, and the Sinkhorn divergence between predictions and labels, earlier batches included.
    MseSinkhorn,
    /// Cross entropy over classes; rows without a class are left out.
    CrossEntropy,
}

/// Whether the Sinkhorn divergence sees the predictions of all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Words)]
pub enum Gather {
    /// A rank's own alone.
    #[default]
    Off,
    /// All, those of the rank itself with a gradient.
    Joined,
    /// All without a gradient, as published: with more than one rank the term then trains nothing.
    Detached,
}

/// Numbers that the forward pass computes with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Words)]
pub enum Precision {
    /// float32 throughout.
    #[default]
    Float32,
    /// libtorch's autocast to bfloat16; parameters, gradients and sparse products stay float32.
    Bf16Mixed,
}

/// How the learning rate changes from epoch to epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Words)]
pub enum LearningSchedule {
    /// Not at all.
    #[default]
    Constant,
    /// Cosine annealing with warm restarts and a linear warm-up, stepped once an epoch.
    CosineRestarts,
    /// Lower when the monitored figure no longer gets better.
    Plateau,
}

/// The figure that decides which epoch is the best one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Words)]
pub enum Monitored {
    /// Loss of the predictions over the validation set; the smallest.
    #[default]
    Loss,
    /// Pearson's correlation over the validation set; the largest.
    Pearson,
}

/// dtype that gradients are sent between ranks as: each bucket is converted, reduced and converted back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Words)]
pub enum GradientCompression {
    /// Unchanged, float32.
    #[default]
    None,
    /// float16: half the bytes, 11 significant bits, at most 65,504.
    Fp16,
    /// bfloat16: half the bytes, 8 significant bits, the range of float32.
    Bf16,
}

/// `[train]`
#[section("train", workloads(Graph, Array))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Train {
    /// What a step does after the batch has arrived.
    #[setting(default = Mode::Data, workloads(Graph, Array, Program))]
    pub mode: Mode,
    /// With `emulate`: the published step of a workload, for its batch size (docs/guide/emulate.md).
    #[setting(default = AcceleratorPreset::None, added)]
    pub emulate: AcceleratorPreset,
    /// With `emulate`: time of a step in milliseconds; of several, steps take one after the other, and start again.
    #[setting(derived = "that of `emulate`", added = StepMs::NONE, min = 0.0, max = 600_000.0)]
    pub step_ms: StepMs,
    /// With `emulate`: a job, or a variant or trial of it, `"JOB/NAME"`: each step of each rank takes one of its recorded step times, drawn with
    /// `loader.seed`. A step time is what forward, backward, clipping and optimizer took.
    #[setting(default = "", added)]
    pub step_times_of: String,
    /// With `emulate`: bytes that the ranks sum up after each step, as float32; 0 is a barrier alone.
    #[setting(default = 0, added)]
    pub allreduce_bytes: u64,
    /// The optimizer.
    #[setting(default = Optimizer::Adamw)]
    pub optimizer: Optimizer,
    /// Its learning rate.
    #[setting(default = 1e-5, above = 0.0)]
    pub learning_rate: f64,
    /// Its weight decay.
    #[setting(default = 1e-6, min = 0.0)]
    pub weight_decay: f64,
    /// Largest norm of the gradient; 0 leaves it alone.
    #[setting(default = 0.0, min = 0.0)]
    pub clip_norm: f64,
    /// With `dango`: weight of the reconstruction loss.
    #[setting(default = Reconstruction::LinearUntilUniform, workloads(Graph))]
    pub reconstruction: Reconstruction,
    /// Loss of the predictions; classes have `cross_entropy`, and nothing else.
    #[setting(derived = "`log_cosh`; `cross_entropy` with `array.format`", added = Loss::LogCosh)]
    pub loss: Loss,
    /// Shift and scale labels to mean 0 and standard deviation 1 over all samples.
    #[setting(default = false, added, workloads(Graph))]
    pub standardise_labels: bool,
    /// With `mse_sinkhorn`: weight of the Sinkhorn divergence.
    #[setting(default = 0.1, added, min = 0.0, workloads(Graph))]
    pub sinkhorn_weight: f64,
    /// With `mse_sinkhorn`: predictions of earlier batches that it sees; until there are as many, it is 0.
    #[setting(default = 224, added, min = 1, workloads(Graph))]
    pub sinkhorn_buffer: u64,
    /// With `mse_sinkhorn`: predictions of a rank alone, of all ranks, or of all without a gradient, as published.
    #[setting(default = Gather::Off, added, workloads(Graph))]
    pub sinkhorn_gather: Gather,
    /// Numbers that the forward pass computes with.
    #[setting(default = Precision::Float32, added)]
    pub precision: Precision,
    /// Numbers that gradients are sent between ranks as: each bucket is converted, reduced and converted back; half the bytes of `none`,
    /// which sends float32.
    #[setting(default = GradientCompression::None, added)]
    pub gradient_compression: GradientCompression,
    /// Batches whose gradients make one step of the optimizer: `"EPOCH:BATCHES"`, from that epoch on.
    #[setting(default = [], added)]
    pub accumulation: Vec<String>,
    /// How the learning rate changes from epoch to epoch; `learning_rate` is where it starts, with `cosine_restarts` its peak.
    #[setting(default = LearningSchedule::Constant, added)]
    pub schedule: LearningSchedule,
    /// With `cosine_restarts`: epochs of the first cycle.
    #[setting(default = 300, added, min = 1)]
    pub schedule_epochs: u64,
    /// With `cosine_restarts`: length of a cycle over that of the one before it.
    #[setting(default = 1.0, added, above = 0.0)]
    pub schedule_stretch: f64,
    /// With `cosine_restarts`: epochs at the start of a cycle in which the rate rises.
    #[setting(default = 0, added)]
    pub schedule_warmup: u64,
    /// With `cosine_restarts` and `plateau`: smallest learning rate.
    #[setting(default = 0.0, added, min = 0.0)]
    pub schedule_min: f64,
    /// With `cosine_restarts`: peak of a cycle over that of the one before it; with `plateau`: what the rate is multiplied by.
    #[setting(default = 0.5, added, above = 0.0, max = 1.0)]
    pub schedule_factor: f64,
    /// With `plateau`: validations without a better figure before the rate falls.
    #[setting(default = 10, added)]
    pub schedule_patience: u64,
    /// Epochs of the run, after each of which it may be validated; 0 runs `measure.warmup` + `measure.steps` steps.
    #[setting(default = 0, added)]
    pub epochs: u64,
    /// With `epochs`: epochs from one validation to the next, on the split `val`; 0 never validates, as arrays have to.
    #[setting(derived = "1; 0 with `array.format`", added = 1)]
    pub validate_every: u64,
    /// What decides which epoch is the best.
    #[setting(default = Monitored::Loss, added, workloads(Graph))]
    pub monitor: Monitored,
    /// Validations without a better figure after which training ends; 0 goes on.
    #[setting(default = 0, added, workloads(Graph))]
    pub patience: u64,
    /// Weights to start from (`best.safetensors`), or a run to go on with (`last.safetensors`), from the project folder.
    ///
    /// In a trial: an absolute path.
    #[setting(default = "", added)]
    pub start_from: String,
}

impl Train {
    /// Keys that say how a step is emulated.
    pub const EMULATION: [&'static str; 4] =
        [Self::EMULATE.name(), Self::STEP_MS.name(), Self::STEP_TIMES_OF.name(), Self::ALLREDUCE_BYTES.name()];

    /// `accumulation` as pairs of an epoch and the batches of one optimizer step from it on, by epoch.
    ///
    /// # Errors
    /// Which entry is wrong, and why.
    pub fn accumulation_pairs(entries: &[impl AsRef<str>]) -> Result<Vec<(u64, u64)>, (usize, String)> {
        let mut pairs: Vec<(u64, u64)> = Vec::with_capacity(entries.len());
        for (i, entry) in entries.iter().map(AsRef::as_ref).enumerate() {
            let numbers = entry.split_once(':').map(|(epoch, batches)| (epoch.trim().parse(), batches.trim().parse()));
            let Some((Ok(epoch), Ok(batches))) = numbers else {
                return Err((i, format!("`{entry}` is not EPOCH:BATCHES")));
            };
            if batches == 0 {
                return Err((i, format!("`{entry}`: a step of the optimizer takes at least one batch")));
            }
            if pairs.last().is_some_and(|(before, _)| *before >= epoch) {
                return Err((i, format!("`{entry}` does not follow the epoch before it")));
            }
            pairs.push((epoch, batches));
        }
        Ok(pairs)
    }

    /// Batches whose gradients make one step of the optimizer in `epoch`.
    pub fn accumulated(&self, epoch: u64) -> u64 {
        let pairs = Self::accumulation_pairs(&self.accumulation).unwrap_or_default();
        pairs.iter().rev().find(|(from, _)| *from <= epoch).map_or(1, |(_, batches)| *batches)
    }
}

/// `[checkpoint]`
#[section("checkpoint", workloads(Graph, Array), not_run)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Keep the state of training after every so many steps; 0 is never.
    #[setting(default = 0)]
    pub every_steps: u64,
    /// Keep it after every so many minutes; 0 is never.
    #[setting(default = 0, max = 1_000_000)]
    pub every_min: u64,
    /// Keep it when the ranks are told to stop (TERM).
    #[setting(default = true)]
    pub on_signal: bool,
}
