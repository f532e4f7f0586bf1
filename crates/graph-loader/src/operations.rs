//! Clock readings inside the stages *mask* and *collate*, which give the time of each operation on each edge type.
//!
//! Stages call [`Marker::mark`] after each operation. [`Unmarked`] compiles to nothing; [`Marks`] reads the clock once a call.
//! Stages go through a batch edge type by edge type and, within one, sample by sample, so an operation on an edge type is one
//! reading for the whole batch. The neighborhood alone goes sample by sample, because it searches the genes of each sample
//! once for all edge types.

use std::sync::Arc;
use std::time::Instant;

use loader_core::{BatchOperations, OperationInterval, Stage, StageOperation};

/// Names of the operands that are no edge types; those of the edge types come after them.
const OPERANDS: [&str; 3] = ["labels", "genes", "metabolism"];

/// The tensors that an operation works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// Gene ids, labels, p-values and their coordinates.
    Labels,
    /// Masks, numbers and samples of genes.
    Genes,
    /// Reactions, metabolites and the edges gpr and rmr.
    Metabolism,
    /// The edge type with this index in the graph.
    EdgeType(usize),
}

impl Operand {
    /// Index of its name among [`OPERANDS`] and the edge types after them.
    const fn index(self) -> usize {
        match self {
            Self::Labels => 0,
            Self::Genes => 1,
            Self::Metabolism => 2,
            Self::EdgeType(index) => OPERANDS.len() + index,
        }
    }
}

/// Is called after each operation.
pub trait Marker {
    /// The time since the last mark was spent on `operation` on `operand`.
    fn mark(&mut self, operation: StageOperation, operand: Operand);
}

/// Times nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unmarked;

impl Marker for Unmarked {
    #[inline(always)]
    fn mark(&mut self, _: StageOperation, _: Operand) {}
}

/// Reads the clock at each mark.
#[derive(Clone, Debug)]
pub struct Marks {
    clock: Instant,
    operands: Arc<[Arc<str>]>,
    stage: Stage,
    last: u64,
    intervals: Vec<OperationInterval>,
}

impl Marks {
    /// Marks for batches of a graph with these edge types, in its order. `clock` is time 0 of the loader's clock.
    pub fn new<'a>(clock: Instant, edge_types: impl IntoIterator<Item = &'a str>) -> Self {
        let operands = OPERANDS.into_iter().chain(edge_types).map(Arc::<str>::from).collect();
        Self { clock, operands, stage: Stage::Mask, last: 0, intervals: Vec::new() }
    }

    /// The operations that follow are inside `stage`; the first begins now.
    pub fn begin(&mut self, stage: Stage) {
        self.stage = stage;
        self.last = self.clock.elapsed().as_nanos() as u64;
    }

    /// The operations that were marked since the last call: those of one batch.
    pub fn finish(&mut self) -> BatchOperations {
        // The next batch has as many.
        let empty = Vec::with_capacity(self.intervals.len());
        BatchOperations::new(Arc::clone(&self.operands), std::mem::replace(&mut self.intervals, empty))
    }
}

impl Marker for Marks {
    fn mark(&mut self, operation: StageOperation, operand: Operand) {
        let (start, stage, operand) = (self.last, self.stage, operand.index());
        let end = self.clock.elapsed().as_nanos() as u64;
        self.last = end;
        match self.intervals.last_mut() {
            // Operations that follow each other on the same operand are one.
            Some(before)
                if (before.stage, before.operation, before.operand) == (stage, operation, operand)
                    && before.end == start =>
            {
                before.end = end;
            }
            _ => self.intervals.push(OperationInterval { stage, operation, operand, start, end }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_has_the_time_since_the_mark_before_it() {
        let mut marks = Marks::new(Instant::now(), ["physical", "tflink"]);
        marks.begin(Stage::Mask);
        marks.mark(StageOperation::Lookup, Operand::EdgeType(1));
        marks.mark(StageOperation::Fill, Operand::EdgeType(1));
        marks.mark(StageOperation::Fill, Operand::EdgeType(1));
        marks.begin(Stage::Collate);
        marks.mark(StageOperation::Fill, Operand::EdgeType(1));
        marks.mark(StageOperation::Copy, Operand::Labels);
        marks.mark(StageOperation::Fill, Operand::EdgeType(1));
        let operations = marks.finish();
        let found: Vec<_> = operations.intervals().map(|(of, name)| (of.stage, of.operation, name)).collect();
        let (mask, collate) = (Stage::Mask, Stage::Collate);
        let expected = [
            (mask, StageOperation::Lookup, "tflink"),
            (mask, StageOperation::Fill, "tflink"),
            (collate, StageOperation::Fill, "tflink"),
            (collate, StageOperation::Copy, "labels"),
            (collate, StageOperation::Fill, "tflink"),
        ];
        assert_eq!(found, expected);
        let intervals: Vec<OperationInterval> = operations.intervals().map(|(of, _)| *of).collect();
        assert!(intervals.iter().all(|of| of.start <= of.end), "{intervals:?}");
        assert!(intervals.windows(2).all(|two| two[0].end <= two[1].start), "{intervals:?}");
        assert!(intervals[0].end == intervals[1].start && intervals[2].end == intervals[3].start, "{intervals:?}");
        // Each once; what came twice is summed up.
        let times = operations.times();
        let named: Vec<_> = times.iter().map(|time| (time.stage, time.operation, &*time.operand)).collect();
        assert_eq!(named, expected[..4]);
        let sum = |of: &OperationInterval| of.end - of.start;
        assert_eq!(times[2].ns, sum(&intervals[2]) + sum(&intervals[4]));
        assert_eq!(times.iter().map(|time| time.ns).sum::<u64>(), intervals.iter().map(sum).sum::<u64>());
        assert_eq!(marks.finish().intervals().count(), 0);
    }

    #[test]
    fn operands_have_the_names_of_the_ledger() {
        let operands = [Operand::Labels, Operand::Genes, Operand::Metabolism, Operand::EdgeType(0)];
        let mut marks = Marks::new(Instant::now(), ["physical"]);
        operands.iter().for_each(|operand| marks.mark(StageOperation::Fill, *operand));
        let operations = marks.finish();
        let names: Vec<&str> = operations.intervals().map(|(_, name)| name).collect();
        assert_eq!(names, ["labels", "genes", "metabolism", "physical"]);
    }
}
