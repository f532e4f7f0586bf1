//! Timed parts of a step: stages, and operations inside stages.

use std::ops::{Index, IndexMut};
use std::sync::Arc;

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
    /// Masks of the edges that a perturbation removes.
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
    /// Time that is measured, but in none of the above.
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

/// A timed part of the stages *mask* and *collate* of samples of a graph, timed with `profile.operations`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Sizing the tensors in the buffers of the batch; the first batches also take memory from the system here.
    Allocate,
    /// Finding the lists of edges of the perturbed genes, or the genes of a neighborhood.
    Lookup,
    /// Writing masks, or lists of removed edges.
    Fill,
    /// Going through the edges and choosing those that stay.
    Filter,
    /// Writing the graph of each sample; node numbers get their offset on the way.
    Copy,
}

impl Operation {
    /// All operations, in the order of the columns of a table.
    pub const ALL: [Self; 5] = [Self::Allocate, Self::Lookup, Self::Fill, Self::Filter, Self::Copy];

    /// The name used in columns, tables and documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allocate => "allocate",
            Self::Lookup => "lookup",
            Self::Fill => "fill",
            Self::Filter => "filter",
            Self::Copy => "copy",
        }
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Time worked on one operation for the batch of one step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationTime {
    /// The stage that it is inside: *mask* or *collate*.
    pub stage: Stage,
    /// The operation.
    pub operation: Operation,
    /// Operand of the operation: the name of an edge type, or one of [`OPERANDS`](expctl_settings::OPERANDS).
    #[serde(with = "shared_text")]
    pub operand: Arc<str>,
    /// Time worked, ns of the monotonic clock.
    pub ns: u64,
}

/// A shared text as a string: serde has `Arc<str>` only with a feature that nothing else needs.
mod shared_text {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(text: &Arc<str>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(text)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<str>, D::Error> {
        Ok(String::deserialize(from)?.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_with_its_names() {
        let time = OperationTime { stage: Stage::Collate, operation: Operation::Copy, operand: "tflink".into(), ns: 7 };
        let text = r#"{"stage":"collate","operation":"copy","operand":"tflink","ns":7}"#;
        assert_eq!(serde_json::to_string(&time).unwrap(), text);
        assert_eq!(serde_json::from_str::<OperationTime>(text).unwrap(), time);
    }
}
