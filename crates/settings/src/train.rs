//! `[train]`: what a step does, and what a training run does around its steps.

use serde::{Deserialize, Serialize};

use crate::GradientCompression;

/// What a step does after the batch has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Nothing.
    Data,
    /// No model, but a full step on a loss that is 0 whatever the parameters are: what the published data-only runs did.
    ZeroLoss,
    /// Model and loss.
    Forward,
    /// Model, loss and gradients.
    ForwardBackward,
    /// A full training step.
    Train,
}

impl Mode {
    /// The word used in configs and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::ZeroLoss => "zero_loss",
            Self::Forward => "forward",
            Self::ForwardBackward => "forward_backward",
            Self::Train => "train",
        }
    }

    /// Whether steps change parameters.
    pub const fn steps_parameters(self) -> bool {
        matches!(self, Self::ZeroLoss | Self::Train)
    }
}

/// The optimizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Optimizer {
    /// AdamW (decoupled weight decay).
    Adamw,
    /// Plain stochastic gradient descent.
    Sgd,
}

/// Weight of DANGO's reconstruction loss against the loss of its predictions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// float32 throughout.
    #[default]
    Float32,
    /// libtorch's autocast to bfloat16; parameters, gradients and sparse products stay float32.
    Bf16Mixed,
}

/// How the learning rate changes from epoch to epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LearningSchedule {
    /// Not at all.
    #[default]
    Constant,
    /// Cosine annealing with warm restarts and a linear warm-up, stepped once an epoch.
    CosineRestarts,
    /// Lower when the monitored figure no longer gets better.
    Plateau,
}

/// What decides which epoch is the best one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Monitored {
    /// Loss of the predictions over the validation set; the smallest.
    #[default]
    Loss,
    /// Pearson's correlation over the validation set; the largest.
    Pearson,
}

impl Monitored {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Loss, Self::Pearson];

    /// As a config spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Pearson => "pearson",
        }
    }
}

/// `[train]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Train {
    /// What a step does.
    pub mode: Mode,
    /// The optimizer.
    pub optimizer: Optimizer,
    /// Its learning rate.
    pub learning_rate: f64,
    /// Its weight decay.
    pub weight_decay: f64,
    /// Largest norm of the gradient; 0 leaves it alone.
    pub clip_norm: f64,
    /// Weight of the reconstruction loss.
    pub reconstruction: Reconstruction,
    /// Loss of the predictions.
    #[serde(default)]
    pub loss: Loss,
    /// Whether labels are shifted and scaled to mean 0 and standard deviation 1 over all samples.
    #[serde(default)]
    pub standardise_labels: bool,
    /// Weight of the Sinkhorn divergence.
    #[serde(default = "tenth")]
    pub sinkhorn_weight: f64,
    /// Predictions and labels of earlier batches that it sees; until there are as many, its term is 0.
    #[serde(default = "published_buffer")]
    pub sinkhorn_buffer: u64,
    /// Whether it sees those of all ranks.
    #[serde(default)]
    pub sinkhorn_gather: Gather,
    /// Numbers that the forward pass computes with.
    #[serde(default)]
    pub precision: Precision,
    /// Numbers that gradients are sent between ranks as.
    #[serde(default)]
    pub gradient_compression: GradientCompression,
    /// Batches whose gradients are added up for one step of the optimizer, `EPOCH:BATCHES` from that epoch on.
    #[serde(default)]
    pub accumulation: Vec<String>,
    /// How the learning rate changes.
    #[serde(default)]
    pub schedule: LearningSchedule,
    /// With cosine restarts: epochs of the first cycle.
    #[serde(default = "published_cycle")]
    pub schedule_epochs: u64,
    /// With cosine restarts: length of a cycle over that of the one before it.
    #[serde(default = "one")]
    pub schedule_stretch: f64,
    /// With cosine restarts: epochs at the start of each cycle in which the rate rises.
    #[serde(default)]
    pub schedule_warmup: u64,
    /// With cosine restarts: smallest learning rate. With plateau: as well.
    #[serde(default)]
    pub schedule_min: f64,
    /// With cosine restarts: peak of a cycle over that of the one before it. With plateau: what the rate is multiplied by.
    #[serde(default = "half")]
    pub schedule_factor: f64,
    /// With plateau: epochs without a better figure before the rate falls.
    #[serde(default = "ten")]
    pub schedule_patience: u64,
    /// Epochs of the run; 0 runs the steps of `[measure]`.
    #[serde(default)]
    pub epochs: u64,
    /// Epochs from one validation to the next; 0 never validates.
    #[serde(default = "one_epoch")]
    pub validate_every: u64,
    /// What decides which epoch is the best.
    #[serde(default)]
    pub monitor: Monitored,
    /// Validations without a better figure after which training ends; 0 goes on.
    #[serde(default)]
    pub patience: u64,
    /// Weights to start from, or a state of training to go on from; absolute, empty starts anew.
    #[serde(default)]
    pub start_from: String,
}

impl Train {
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

const fn tenth() -> f64 {
    0.1
}

const fn half() -> f64 {
    0.5
}

const fn one() -> f64 {
    1.0
}

const fn ten() -> u64 {
    10
}

const fn one_epoch() -> u64 {
    1
}

const fn published_buffer() -> u64 {
    224
}

const fn published_cycle() -> u64 {
    300
}
