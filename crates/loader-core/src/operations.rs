use std::sync::Arc;

use crate::Stage;

/// What is done inside a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
    /// The word for it in tables and traces.
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

/// When a loader thread worked on an operation of one batch, in ns of the loader's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationInterval {
    /// The stage that the operation is inside.
    pub stage: Stage,
    /// The operation.
    pub operation: Operation,
    /// What it worked on: an index among the names of the batch's operands.
    pub operand: usize,
    /// Start.
    pub start: u64,
    /// End.
    pub end: u64,
}

/// Time worked on one operation for one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationTime {
    /// The stage that the operation is inside.
    pub stage: Stage,
    /// The operation.
    pub operation: Operation,
    /// Name of what it worked on.
    pub operand: Arc<str>,
    /// Time worked, in ns.
    pub ns: u64,
}

/// The operations of one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchOperations {
    operands: Arc<[Arc<str>]>,
    intervals: Vec<OperationInterval>,
}

impl BatchOperations {
    /// Operations on operands of these names. Each interval's operand is an index into the names.
    pub fn new(operands: Arc<[Arc<str>]>, intervals: Vec<OperationInterval>) -> Self {
        Self { operands, intervals }
    }

    /// All intervals in order, each with the name of its operand.
    pub fn intervals(&self) -> impl Iterator<Item = (&OperationInterval, &str)> {
        self.intervals.iter().map(|interval| (interval, &*self.operands[interval.operand]))
    }

    /// Time worked on each operation, each once, in the order in which they came.
    pub fn times(&self) -> Vec<OperationTime> {
        let mut found: Vec<(&OperationInterval, u64)> = Vec::new();
        for interval in &self.intervals {
            let same = |(of, _): &&mut (&OperationInterval, u64)| {
                (of.stage, of.operation, of.operand) == (interval.stage, interval.operation, interval.operand)
            };
            let ns = interval.end - interval.start;
            match found.iter_mut().find(same) {
                Some((_, sum)) => *sum += ns,
                None => found.push((interval, ns)),
            }
        }
        let time = |(of, ns): (&OperationInterval, u64)| {
            let operand = Arc::clone(&self.operands[of.operand]);
            OperationTime { stage: of.stage, operation: of.operation, operand, ns }
        };
        found.into_iter().map(time).collect()
    }
}
