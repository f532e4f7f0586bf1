//! `ComponentKind` names the parts of a published step time and says which measured stages they compare with. Reading, checking and comparing
//! published breakdowns all use this one mapping.

use expctl_settings::Mode;
use serde::{Deserialize, Serialize};

use crate::Stage;

/// Kind of a component of a published breakdown, in the words of published tables, with the stages that time the same work in this project.
/// This is the one mapping between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ComponentKind {
    /// The whole step.
    Total,
    /// Everything from the choice of samples to the batch on its device.
    DataPipeline,
    /// Samples out of the store.
    Fetch,
    /// Records out of the store and their bytes to typed values, where the source has one figure for both.
    Deserialization,
    /// Records to perturbed graphs.
    GraphProcessor,
    /// The masks of perturbed graphs alone.
    Mask,
    /// Samples to one batch.
    Collation,
    /// Copy of the batch to the device.
    Transfer,
    /// Forward and backward pass.
    Model,
    /// Forward pass.
    Forward,
    /// Backward pass.
    Backward,
    /// Communication between data-parallel ranks.
    Ddp,
    /// Gradient clipping and parameter update.
    Optimizer,
    /// The source's "other" or "overhead".
    Other,
    /// Use of processors over the time of the breakdown; it is in no sum of components.
    Cpu,
    /// Use of the GPU over the time of the breakdown; it is in no sum of components.
    Gpu,
}

impl ComponentKind {
    /// The word in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Total => "total",
            Self::DataPipeline => "data_pipeline",
            Self::Fetch => "fetch",
            Self::Deserialization => "deserialization",
            Self::GraphProcessor => "graph_processor",
            Self::Mask => "mask",
            Self::Collation => "collation",
            Self::Transfer => "transfer",
            Self::Model => "model",
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Ddp => "ddp",
            Self::Optimizer => "optimizer",
            Self::Other => "other",
            Self::Cpu => "cpu",
            Self::Gpu => "gpu",
        }
    }

    /// Stages that time this work. Empty for the whole step and for resources; *other* also has time that is in no stage.
    pub const fn stages(self) -> &'static [Stage] {
        match self {
            Self::Total | Self::Cpu | Self::Gpu => &[],
            Self::DataPipeline => {
                &[Stage::Sample, Stage::Read, Stage::Decode, Stage::Mask, Stage::Collate, Stage::Pin, Stage::Transfer]
            }
            Self::Fetch => &[Stage::Sample, Stage::Read],
            Self::Deserialization => &[Stage::Read, Stage::Decode],
            Self::GraphProcessor => &[Stage::Decode, Stage::Mask],
            Self::Mask => &[Stage::Mask],
            Self::Collation => &[Stage::Collate],
            Self::Transfer => &[Stage::Pin, Stage::Transfer],
            Self::Model => &[Stage::Forward, Stage::Backward],
            Self::Forward => &[Stage::Forward],
            Self::Backward => &[Stage::Backward],
            Self::Ddp => &[Stage::Allreduce],
            Self::Optimizer => &[Stage::Clip, Stage::Optimizer],
            Self::Other => &[Stage::Other],
        }
    }

    /// The component that this one belongs to. `None` at the top of a breakdown.
    pub const fn parent(self) -> Option<Self> {
        match self {
            Self::Fetch | Self::Deserialization | Self::GraphProcessor | Self::Collation | Self::Transfer => {
                Some(Self::DataPipeline)
            }
            Self::Mask => Some(Self::GraphProcessor),
            Self::Forward | Self::Backward => Some(Self::Model),
            _ => None,
        }
    }

    /// The mode with the shortest step in which the component happens.
    pub const fn shortest_mode(self) -> Mode {
        match self {
            Self::Model | Self::Forward => Mode::Forward,
            Self::Backward | Self::Ddp => Mode::ForwardBackward,
            Self::Optimizer => Mode::Train,
            _ => Mode::Data,
        }
    }

    /// Whether its share is of a resource over time and not of the time of a step.
    pub const fn is_resource(self) -> bool {
        matches!(self, Self::Cpu | Self::Gpu)
    }

    /// The stages that time it, as tables write them: `sample + read`.
    pub fn measured_as(self) -> String {
        match self {
            Self::Total => "step".to_owned(),
            Self::Other => "other, unattributed".to_owned(),
            Self::Cpu => "CPU of a rank, in a note".to_owned(),
            Self::Gpu => "GPU busy, in a note".to_owned(),
            _ => self.stages().iter().map(|stage| stage.name()).collect::<Vec<_>>().join(" + "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All kinds whose stages make up a step.
    const STEP: [ComponentKind; 5] = [
        ComponentKind::DataPipeline,
        ComponentKind::Model,
        ComponentKind::Ddp,
        ComponentKind::Optimizer,
        ComponentKind::Other,
    ];

    #[test]
    fn the_components_of_a_step_have_every_stage_once() {
        let stages: Vec<Stage> = STEP.into_iter().flat_map(|kind| kind.stages().iter().copied()).collect();
        assert_eq!(stages, Stage::ALL);
        let kinds =
            [ComponentKind::Fetch, ComponentKind::GraphProcessor, ComponentKind::Collation, ComponentKind::Transfer];
        let pipeline: Vec<Stage> = kinds.into_iter().flat_map(|kind| kind.stages().iter().copied()).collect();
        assert_eq!(pipeline, ComponentKind::DataPipeline.stages());
        assert!(kinds.into_iter().all(|kind| kind.parent() == Some(ComponentKind::DataPipeline)));
    }

    #[test]
    fn a_word_of_a_file_is_its_name() {
        for kind in [ComponentKind::GraphProcessor, ComponentKind::DataPipeline, ComponentKind::Ddp, ComponentKind::Gpu]
        {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
        assert_eq!(ComponentKind::Fetch.measured_as(), "sample + read");
        assert_eq!(ComponentKind::Other.measured_as(), "other, unattributed");
    }
}
