use std::sync::Arc;
use std::time::Instant;

use expctl_record::{OPERANDS, Operation, OperationTime, Stage};

//@DOC marks.rs
//@ Clock readings inside the stages *mask* and *collate*, which say how long each operation took on each edge type.
//@
//@ Stages call [`Marker::mark`] behind each operation. With [`Unmarked`] the calls are nothing, and the code is that without marks;
//@ with [`Marks`] a call reads the clock once. Stages go through a batch edge type by edge type and, within one, sample by sample,
//@ so an operation on an edge type is one reading for the whole batch. The neighborhood alone goes sample by sample, because it
//@ searches the genes of each sample once for all edge types.

/// What an operation works on.
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
    /// Index of its name among those of [`OPERANDS`] and the edge types behind them.
    const fn index(self) -> usize {
        match self {
            Self::Labels => 0,
            Self::Genes => 1,
            Self::Metabolism => 2,
            Self::EdgeType(index) => OPERANDS.len() + index,
        }
    }
}

/// Is told when an operation is over.
pub trait Marker {
    /// What was done since the last mark was `operation` on `operand`.
    fn mark(&mut self, operation: Operation, operand: Operand);
}

/// Marks nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unmarked;

impl Marker for Unmarked {
    #[inline(always)]
    fn mark(&mut self, _: Operation, _: Operand) {}
}

/// When a loader thread worked on an operation of one batch, in ns of the loader's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationInterval {
    /// The stage that it is inside.
    pub stage: Stage,
    /// The operation.
    pub operation: Operation,
    /// What it worked on.
    pub operand: Operand,
    /// Start.
    pub start: u64,
    /// End.
    pub end: u64,
}

/// The operations of one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchOperations {
    /// Names of operands, by [`Operand::index`].
    names: Arc<[Arc<str>]>,
    intervals: Vec<OperationInterval>,
}

impl BatchOperations {
    /// When the thread worked on what, in order, each with the name of its operand.
    pub fn intervals(&self) -> impl Iterator<Item = (&OperationInterval, &str)> {
        self.intervals.iter().map(|interval| (interval, &*self.names[interval.operand.index()]))
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
            let operand = Arc::clone(&self.names[of.operand.index()]);
            OperationTime { stage: of.stage, operation: of.operation, operand, ns }
        };
        found.into_iter().map(time).collect()
    }
}

/// Reads the clock at each mark.
#[derive(Clone, Debug)]
pub struct Marks {
    clock: Instant,
    names: Arc<[Arc<str>]>,
    stage: Stage,
    last: u64,
    intervals: Vec<OperationInterval>,
}

impl Marks {
    /// Marks of batches of a graph with these edge types, in its order. `clock` is the start of the loader's clock.
    pub fn new<'a>(clock: Instant, edge_types: impl IntoIterator<Item = &'a str>) -> Self {
        let names = OPERANDS.into_iter().chain(edge_types).map(Arc::<str>::from).collect();
        Self { clock, names, stage: Stage::Mask, last: 0, intervals: Vec::new() }
    }

    /// The operations that follow are inside `stage`; the first begins now.
    pub fn begin(&mut self, stage: Stage) {
        self.stage = stage;
        self.last = self.clock.elapsed().as_nanos() as u64;
    }

    /// What was marked since the last call: the operations of one batch.
    pub fn finish(&mut self) -> BatchOperations {
        // The next batch has as many.
        let empty = Vec::with_capacity(self.intervals.len());
        BatchOperations { names: Arc::clone(&self.names), intervals: std::mem::replace(&mut self.intervals, empty) }
    }
}

impl Marker for Marks {
    fn mark(&mut self, operation: Operation, operand: Operand) {
        let (start, stage) = (self.last, self.stage);
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
        marks.mark(Operation::Lookup, Operand::EdgeType(1));
        marks.mark(Operation::Fill, Operand::EdgeType(1));
        marks.mark(Operation::Fill, Operand::EdgeType(1));
        marks.begin(Stage::Collate);
        marks.mark(Operation::Fill, Operand::EdgeType(1));
        marks.mark(Operation::Copy, Operand::Labels);
        marks.mark(Operation::Fill, Operand::EdgeType(1));
        let operations = marks.finish();
        let found: Vec<_> = operations.intervals().map(|(of, name)| (of.stage, of.operation, name)).collect();
        let (mask, collate) = (Stage::Mask, Stage::Collate);
        let expected = [
            (mask, Operation::Lookup, "tflink"),
            (mask, Operation::Fill, "tflink"),
            (collate, Operation::Fill, "tflink"),
            (collate, Operation::Copy, "labels"),
            (collate, Operation::Fill, "tflink"),
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
        operands.iter().for_each(|operand| marks.mark(Operation::Fill, *operand));
        let operations = marks.finish();
        let names: Vec<&str> = operations.intervals().map(|(_, name)| name).collect();
        assert_eq!(names, ["labels", "genes", "metabolism", "physical"]);
        assert_eq!(names[..3], OPERANDS);
    }
}
