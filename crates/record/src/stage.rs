use std::ops::{Index, IndexMut};

use serde::{Deserialize, Serialize};

/// A timed part of a step, in the order in which a sample passes through them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Choosing the indices of the batch.
    Sample,
    /// Bytes out of the store.
    Read,
    /// Bytes to typed values.
    Decode,
    /// What a perturbation removes from the graph.
    Mask,
    /// Samples to one batch.
    Collate,
    /// Copy into page-locked memory.
    Pin,
    /// Copy to the device.
    Transfer,
    /// Model, up to and including the loss.
    Forward,
    /// Gradients.
    Backward,
    /// Averaging of gradients over the ranks.
    Allreduce,
    /// Gradient clipping.
    Clip,
    /// Parameter update.
    Optimizer,
    /// Measured, but none of the above.
    Other,
}

impl Stage {
    /// All stages, in order.
    pub const ALL: [Self; 13] = [
        Self::Sample,
        Self::Read,
        Self::Decode,
        Self::Mask,
        Self::Collate,
        Self::Pin,
        Self::Transfer,
        Self::Forward,
        Self::Backward,
        Self::Allreduce,
        Self::Clip,
        Self::Optimizer,
        Self::Other,
    ];

    /// Stages that loader threads work on, beside the step.
    pub const LOADER: [Self; 6] = [Self::Sample, Self::Read, Self::Decode, Self::Mask, Self::Collate, Self::Pin];

    /// The name used in columns, tables and documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sample => "sample",
            Self::Read => "read",
            Self::Decode => "decode",
            Self::Mask => "mask",
            Self::Collate => "collate",
            Self::Pin => "pin",
            Self::Transfer => "transfer",
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Allreduce => "allreduce",
            Self::Clip => "clip",
            Self::Optimizer => "optimizer",
            Self::Other => "other",
        }
    }
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// One value per stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PerStage<T>([T; 13]);

impl<T> PerStage<T> {
    /// Stages with their values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Stage, &T)> {
        Stage::ALL.into_iter().zip(&self.0)
    }
}

impl PerStage<u64> {
    /// Sum over all stages.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl<T> Index<Stage> for PerStage<T> {
    type Output = T;
    fn index(&self, stage: Stage) -> &T {
        &self.0[stage as usize]
    }
}

impl<T> IndexMut<Stage> for PerStage<T> {
    fn index_mut(&mut self, stage: Stage) -> &mut T {
        &mut self.0[stage as usize]
    }
}
