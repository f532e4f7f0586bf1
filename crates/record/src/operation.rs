//! Operations inside the stages *mask* and *collate* of samples of a graph, timed with `profile.operations`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::Stage;

/// What is done inside a stage.
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

    /// The word used in columns, tables and documents.
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
    /// What it works on: the name of an edge type, or one of [`OPERANDS`](crate::OPERANDS).
    #[serde(with = "shared_text")]
    pub operand: Arc<str>,
    /// Time worked, ns of the monotonic clock.
    pub ns: u64,
}

/// A column of a step table that has the times of one operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OperationColumn {
    pub stage: Stage,
    pub operation: Operation,
    pub operand: Arc<str>,
}

impl OperationColumn {
    const PREFIX: &str = "operation_";
    const SUFFIX: &str = "_ns";

    /// The column of a time.
    pub(crate) fn of(time: &OperationTime) -> Self {
        Self { stage: time.stage, operation: time.operation, operand: Arc::clone(&time.operand) }
    }

    /// `operation_mask_fill_physical_ns`.
    pub(crate) fn name(&self) -> String {
        let Self { stage, operation, operand } = self;
        format!("{}{stage}_{operation}_{operand}{}", Self::PREFIX, Self::SUFFIX)
    }

    /// The column of this name; none of any other column. Neither stages nor operations have an underscore.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (stage, rest) = name.strip_prefix(Self::PREFIX)?.strip_suffix(Self::SUFFIX)?.split_once('_')?;
        let (operation, operand) = rest.split_once('_')?;
        Some(Self {
            stage: Stage::ALL.into_iter().find(|known| known.name() == stage)?,
            operation: Operation::ALL.into_iter().find(|known| known.name() == operation)?,
            operand: operand.into(),
        })
    }
}

/// A shared text as a string: serde has `Arc<str>` only with a feature that nothing else needs.
mod shared_text {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(text: &Arc<str>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<str>, D::Error> {
        Ok(String::deserialize(from)?.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_has_one_name_whatever_the_edge_type_is_called() {
        for stage in [Stage::Mask, Stage::Collate] {
            for operation in Operation::ALL {
                for operand in ["physical", "string12_0_fusion", "_ns", "a_ns", "genes"] {
                    let column = OperationColumn { stage, operation, operand: operand.into() };
                    assert_eq!(OperationColumn::parse(&column.name()), Some(column));
                }
            }
        }
        let column = OperationColumn { stage: Stage::Mask, operation: Operation::Fill, operand: "physical".into() };
        assert_eq!(column.name(), "operation_mask_fill_physical_ns");
        for other in ["mask_busy_ns", "operation_mask_fill_physical", "operation_mask_ns", "operation_mask_sort_x_ns"] {
            assert_eq!(OperationColumn::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_time_is_written_with_its_names() {
        let time = OperationTime { stage: Stage::Collate, operation: Operation::Copy, operand: "tflink".into(), ns: 7 };
        let text = r#"{"stage":"collate","operation":"copy","operand":"tflink","ns":7}"#;
        assert_eq!(serde_json::to_string(&time).unwrap(), text);
        assert_eq!(serde_json::from_str::<OperationTime>(text).unwrap(), time);
    }
}
