//! The columns of a step table: their names, and the cell that a step has in each. Tables of the ledger and exports of others have the same ones.
//!
//! Invariant: columns of the device stand in tables of ranks that had one, and in no other. Columns of operations stand in tables of trials that
//! time them.

use std::sync::Arc;

use crate::{Operation, OperationTime, Stage, StepRecord};

type Get = fn(&StepRecord) -> u64;
type Set = fn(&mut StepRecord, u64);

/// Integer columns before the stage columns.
pub(crate) const COUNTERS: [(&str, Get, Set); 8] = [
    ("step", |r| r.step, |r, v| r.step = v),
    ("epoch", |r| r.epoch, |r, v| r.epoch = v),
    ("start_ns", |r| r.start_ns, |r, v| r.start_ns = v),
    ("wall_ns", |r| r.wall_ns, |r, v| r.wall_ns = v),
    ("samples", |r| r.samples, |r, v| r.samples = v),
    ("bytes_read", |r| r.bytes_read, |r, v| r.bytes_read = v),
    ("bytes_batch", |r| r.bytes_batch, |r, v| r.bytes_batch = v),
    ("bytes_to_device", |r| r.bytes_to_device, |r, v| r.bytes_to_device = v),
];

/// Column that says whether a step counts.
pub(crate) const MEASURED: &str = "measured";

/// Column of the loss; null in data mode.
pub(crate) const LOSS: &str = "loss";

/// Column of the time for which the device copied the batch; null in a row without one.
pub(crate) const COPY: &str = "copy_device_ns";

/// The column with the exposed time of a stage.
pub(crate) fn exposed_column(stage: Stage) -> String {
    format!("{stage}_exposed_ns")
}

/// The column with the busy time of a stage.
pub(crate) fn busy_column(stage: Stage) -> String {
    format!("{stage}_busy_ns")
}

/// The column with the time of a stage on the device, which is null in a row without such times.
pub(crate) fn device_column(stage: Stage) -> String {
    format!("{stage}_device_ns")
}

/// The column with the times of one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OperationColumn {
    pub stage: Stage,
    pub operation: Operation,
    pub operand: Arc<str>,
}

impl OperationColumn {
    const PREFIX: &str = "operation_";
    const SUFFIX: &str = "_ns";

    /// The column that a time belongs to.
    fn from_time(time: &OperationTime) -> Self {
        Self { stage: time.stage, operation: time.operation, operand: Arc::clone(&time.operand) }
    }

    fn has(&self, time: &OperationTime) -> bool {
        (self.stage, self.operation) == (time.stage, time.operation) && self.operand == time.operand
    }

    /// `operation_mask_fill_physical_ns`.
    pub fn name(&self) -> String {
        let Self { stage, operation, operand } = self;
        format!("{}{stage}_{operation}_{operand}{}", Self::PREFIX, Self::SUFFIX)
    }

    /// The column of this name. `None`: the name is not that of an operation. Neither stages nor operations have an underscore.
    pub fn parse(name: &str) -> Option<Self> {
        let (stage, rest) = name.strip_prefix(Self::PREFIX)?.strip_suffix(Self::SUFFIX)?.split_once('_')?;
        let (operation, operand) = rest.split_once('_')?;
        Some(Self {
            stage: Stage::ALL.into_iter().find(|known| known.name() == stage)?,
            operation: Operation::ALL.into_iter().find(|known| known.name() == operation)?,
            operand: operand.into(),
        })
    }
}

/// A column of a step table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepColumn {
    name: String,
    content: StepContent,
}

/// Content of a column of a step table.
#[derive(Clone, Debug, PartialEq, Eq)]
enum StepContent {
    /// One of [`COUNTERS`].
    Counter(usize),
    Measured,
    Loss,
    Exposed(Stage),
    Busy(Stage),
    Device(Stage),
    Copy,
    /// The times of an operation, and where it mostly stands among those of a step.
    Operation(OperationColumn, usize),
}

/// Type of a column of a step table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepColumnType {
    /// An integer in every row.
    Integer,
    /// An integer or null.
    OptionalInteger,
    /// A truth value in every row.
    Boolean,
    /// A real number or null.
    OptionalReal,
}

/// A cell of a step table that is not null.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StepCell {
    /// A count, or a time in nanoseconds.
    Integer(u64),
    /// Whether the step counts.
    Boolean(bool),
    /// The loss.
    Real(f64),
}

impl StepCell {
    /// The integer; `None` for other cells.
    pub const fn integer(self) -> Option<u64> {
        match self {
            Self::Integer(value) => Some(value),
            Self::Boolean(_) | Self::Real(_) => None,
        }
    }
}

impl StepColumn {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its type.
    pub const fn column_type(&self) -> StepColumnType {
        match self.content {
            StepContent::Counter(_) | StepContent::Exposed(_) | StepContent::Busy(_) => StepColumnType::Integer,
            StepContent::Measured => StepColumnType::Boolean,
            StepContent::Loss => StepColumnType::OptionalReal,
            StepContent::Device(_) | StepContent::Copy | StepContent::Operation(..) => StepColumnType::OptionalInteger,
        }
    }

    /// The cell of a step; `None` is null.
    pub fn cell(&self, step: &StepRecord) -> Option<StepCell> {
        let integer = match &self.content {
            StepContent::Measured => return Some(StepCell::Boolean(step.measured)),
            StepContent::Loss => return step.loss.map(StepCell::Real),
            StepContent::Counter(index) => Some(COUNTERS[*index].1(step)),
            StepContent::Exposed(stage) => Some(step.exposed[*stage]),
            StepContent::Busy(stage) => Some(step.busy[*stage]),
            StepContent::Device(stage) => step.device.map(|times| times[*stage]),
            StepContent::Copy => step.copy_ns,
            StepContent::Operation(column, index) => {
                // Steps mostly have their operations in the same order.
                let first = step.operations.get(*index).filter(|time| column.has(time));
                first.or_else(|| step.operations.iter().find(|time| column.has(time))).map(|time| time.ns)
            }
        };
        integer.map(StepCell::Integer)
    }
}

/// Which columns some steps need, beside those that every table has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepColumns {
    device: bool,
    copy: bool,
    /// In the order in which steps first name them.
    operations: Vec<OperationColumn>,
}

impl StepColumns {
    /// The columns of these steps.
    pub fn from_steps<'a>(steps: impl IntoIterator<Item = &'a StepRecord>) -> Self {
        let mut columns = Self::default();
        steps.into_iter().for_each(|step| columns.add(step));
        columns
    }

    /// Add the columns that another step needs.
    pub fn add(&mut self, step: &StepRecord) {
        self.device |= step.device.is_some();
        self.copy |= step.copy_ns.is_some();
        for (index, time) in step.operations.iter().enumerate() {
            if !self.has(index, time) {
                self.operations.push(OperationColumn::from_time(time));
            }
        }
    }

    /// Whether all that is known of a step has a column.
    pub fn cover(&self, step: &StepRecord) -> bool {
        (self.device || step.device.is_none())
            && (self.copy || step.copy_ns.is_none())
            && step.operations.iter().enumerate().all(|(index, time)| self.has(index, time))
    }

    fn has(&self, index: usize, time: &OperationTime) -> bool {
        self.operations.get(index).is_some_and(|known| known.has(time))
            || self.operations.iter().any(|known| known.has(time))
    }

    /// The columns in the order of the table.
    pub fn list(&self) -> Vec<StepColumn> {
        let mut all: Vec<(String, StepContent)> = Vec::new();
        all.extend(COUNTERS.iter().enumerate().map(|(i, (name, ..))| ((*name).to_owned(), StepContent::Counter(i))));
        all.push((MEASURED.to_owned(), StepContent::Measured));
        all.push((LOSS.to_owned(), StepContent::Loss));
        for stage in Stage::ALL {
            all.push((exposed_column(stage), StepContent::Exposed(stage)));
            all.push((busy_column(stage), StepContent::Busy(stage)));
        }
        if self.device {
            all.extend(Stage::ALL.map(|stage| (device_column(stage), StepContent::Device(stage))));
        }
        if self.copy {
            all.push((COPY.to_owned(), StepContent::Copy));
        }
        for (index, operation) in self.operations.iter().enumerate() {
            all.push((operation.name(), StepContent::Operation(operation.clone(), index)));
        }
        all.into_iter().map(|(name, content)| StepColumn { name, content }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_those_that_the_steps_need() {
        let plain = StepRecord { step: 3, measured: true, loss: Some(0.5), ..StepRecord::default() };
        let columns = StepColumns::from_steps([&plain]);
        let names: Vec<String> = columns.list().iter().map(|column| column.name().to_owned()).collect();
        assert_eq!(names.len(), COUNTERS.len() + 2 + 2 * Stage::ALL.len());
        assert_eq!(names[8..12], ["measured", "loss", "sample_exposed_ns", "sample_busy_ns"]);
        let time = |operand: &str, ns| OperationTime {
            stage: Stage::Mask,
            operation: Operation::Fill,
            operand: operand.into(),
            ns,
        };
        let timed = StepRecord { operations: vec![time("a", 1), time("b", 2)], copy_ns: Some(9), ..plain.clone() };
        assert!(columns.cover(&plain) && !columns.cover(&timed));
        let both = StepColumns::from_steps([&plain, &timed]);
        assert!(both.cover(&timed) && both.cover(&plain));
        let other = StepRecord { operations: vec![time("b", 7)], ..plain.clone() };
        let cells = |step: &StepRecord| -> Vec<Option<u64>> {
            both.list()[names.len()..].iter().map(|column| column.cell(step).and_then(StepCell::integer)).collect()
        };
        assert_eq!(cells(&timed), [Some(9), Some(1), Some(2)]);
        // In another place among the operations of its step.
        assert_eq!((cells(&other), cells(&plain)), (vec![None, None, Some(7)], vec![None; 3]));
        let first = &both.list()[0];
        assert_eq!((first.name(), first.cell(&plain)), ("step", Some(StepCell::Integer(3))));
    }

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
}
