//! What the edge index of each sample costs in batches of `lazy`.

use expctl_ledger::{Operation, Run, Stage, StepRecord};
use expctl_settings::{Collation, Processor, Settings};

/// Bytes of an edge in an edge index: source and target, int64.
const INDEX_BYTES: f64 = 16.0;
/// Bytes of an edge in a mask, bool.
const MASK_BYTES: f64 = 1.0;
/// Share of the edge index in the bytes of a batch. Genes and labels are not counted: a graph has hundreds of edges for each gene.
pub const BYTE_SHARE: f64 = INDEX_BYTES / (INDEX_BYTES + MASK_BYTES);

/// The edge index that a batch repeats for each of its samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RepeatedEdgeIndex {
    /// Share of *collate* that writes it, in [0, 1].
    pub share: f64,
    /// Whether the operations inside *collate* were timed. Otherwise it is taken for all of it: masks are written in the stage *mask*, and
    /// genes and labels are few bytes.
    pub measured: bool,
    /// Whether a setting leaves it out: the steps compute no model that reads it.
    pub is_setting: bool,
}

impl RepeatedEdgeIndex {
    /// Of completed runs with these settings; `None` if their batches repeat no edge index.
    pub fn from_runs(settings: &Settings, runs: &[&Run]) -> Option<Self> {
        let pipeline = &settings.pipeline;
        if settings.runs_command()
            || pipeline.processor != Processor::Lazy
            || pipeline.collation == Collation::SharedIndex
        {
            return None;
        }
        let measured = measured_share(runs.iter().flat_map(|run| run.ranks.iter().flatten()));
        Some(Self {
            share: measured.unwrap_or(1.0),
            measured: measured.is_some(),
            is_setting: !settings.train.mode.computes_model(),
        })
    }
}

/// Time of copies over that of *collate*, in measured steps. `None`: operations were not timed.
fn measured_share<'a>(steps: impl Iterator<Item = &'a StepRecord>) -> Option<f64> {
    let (mut copies, mut collate) = (0, 0);
    for step in steps.filter(|step| step.measured) {
        let is_copy = |stage, operation| stage == Stage::Collate && operation == Operation::Copy;
        let of_step = step.operations.iter().filter(|time| is_copy(time.stage, time.operation));
        copies += of_step.map(|time| time.ns).sum::<u64>();
        collate += step.busy[Stage::Collate];
    }
    (copies > 0 && collate > 0).then(|| (copies as f64 / collate as f64).min(1.0))
}

#[cfg(test)]
mod tests {
    use expctl_ledger::OperationTime;

    use super::*;

    #[test]
    fn timed_copies_say_which_share_of_collation_they_are() {
        let mut step = StepRecord { measured: true, ..StepRecord::default() };
        step.busy[Stage::Collate] = 1000;
        assert_eq!(measured_share([&step].into_iter()), None);
        let time = |operation, ns| OperationTime { stage: Stage::Collate, operation, operand: "physical".into(), ns };
        step.operations = vec![time(Operation::Copy, 600), time(Operation::Allocate, 100), time(Operation::Copy, 150)];
        assert_eq!(measured_share([&step].into_iter()), Some(0.75));
    }
}
