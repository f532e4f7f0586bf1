//! `rank-<r>.parquet`: the steps of a rank, one row a step, flat columns, readable by pandas, polars and DuckDB. Which columns it has is in
//! [`StepColumns`].

use std::path::Path;
use std::sync::Arc;

use expctl_settings::Trial;

use crate::step_columns::{
    COPY, COUNTERS, LOSS, MEASURED, OperationColumn, busy_column, device_column, exposed_column,
};
use crate::table::{ColumnValues, TableColumn, TableReader, write_table};
use crate::{
    AttemptDir, LedgerError, OperationTime, Stage, StepCell, StepColumn, StepColumnType, StepColumns, StepRecord,
    StepTotals, TableError, read_journal,
};

/// Version of the columns; stored in the file under `expctl.schema`.
pub const STEPS_SCHEMA_VERSION: u32 = 1;

/// A step table with the entries of its metadata.
#[derive(Clone, Debug, PartialEq)]
pub struct StepsTable {
    /// Trial that the rank belonged to.
    pub trial: String,
    /// Rank.
    pub rank: u32,
    /// Number of ranks.
    pub world_size: u32,
    /// The steps, in order.
    pub steps: Vec<StepRecord>,
}

/// Write a rank's steps as one parquet file, complete or not at all.
///
/// # Errors
/// The file cannot be written.
pub fn write_steps(path: &Path, table: &StepsTable) -> Result<(), LedgerError> {
    let steps = &table.steps;
    // Nanoseconds and bytes stay far below 2^63.
    let integer = |column: &StepColumn, step: &StepRecord| {
        column.cell(step).and_then(StepCell::integer).map(|value| value as i64)
    };
    let table_column = |column: &StepColumn| {
        let cells = match column.column_type() {
            StepColumnType::Integer => {
                ColumnValues::Integers(steps.iter().map(|step| integer(column, step).unwrap_or_default()).collect())
            }
            StepColumnType::OptionalInteger => {
                ColumnValues::OptionalIntegers(steps.iter().map(|step| integer(column, step)).collect())
            }
            StepColumnType::Boolean => ColumnValues::Booleans(steps.iter().map(|step| step.measured).collect()),
            StepColumnType::OptionalReal => ColumnValues::OptionalReals(steps.iter().map(|step| step.loss).collect()),
        };
        TableColumn { name: column.name().to_owned(), cells }
    };
    let columns: Vec<TableColumn> = StepColumns::from_steps(steps).list().iter().map(table_column).collect();
    let entries = [
        ("trial", table.trial.clone()),
        ("rank", table.rank.to_string()),
        ("world_size", table.world_size.to_string()),
    ];
    write_table(path, "step", STEPS_SCHEMA_VERSION, &entries, &columns)
}

/// Read the totals of a step table, and for that four columns alone.
pub(crate) fn read_table_totals(path: &Path) -> Result<StepTotals, LedgerError> {
    let table = TableReader::open(path, STEPS_SCHEMA_VERSION)?;
    let columns = table.columns(|name| ["step", "measured", "wall_ns", "samples"].contains(&name))?;
    let missing = |name: &str| table.error(TableError::NoColumn { name: name.to_owned() });
    let integers = |name| columns.integers(name).ok_or_else(|| missing(name));
    let (step, wall, samples) = (integers("step")?, integers("wall_ns")?, integers("samples")?);
    let measured = columns.booleans("measured").ok_or_else(|| missing("measured"))?;
    let mut totals = StepTotals::default();
    for (((step, measured), wall), samples) in step.iter().zip(measured).zip(wall).zip(samples) {
        totals.add(*step as u64, *measured, *wall as u64, *samples as u64);
    }
    Ok(totals)
}

/// Read when the steps of a table were made, how long they took and how many samples they had; all else of a step is left at its default.
/// Where nobody asks for stages, this is a small part of a table.
pub(crate) fn read_step_times(path: &Path) -> Result<Vec<StepRecord>, LedgerError> {
    const TIMES: [&str; 5] = ["step", "epoch", "start_ns", "wall_ns", "samples"];
    let table = TableReader::open(path, STEPS_SCHEMA_VERSION)?;
    let columns = table.columns(|name| name == "measured" || TIMES.contains(&name))?;
    let missing = |name: &str| table.error(TableError::NoColumn { name: name.to_owned() });
    let mut steps = vec![StepRecord::default(); columns.rows];
    for (name, _, set) in COUNTERS.iter().filter(|(name, ..)| TIMES.contains(name)) {
        for (record, v) in steps.iter_mut().zip(columns.integers(name).ok_or_else(|| missing(name))?) {
            set(record, *v as u64);
        }
    }
    let measured = columns.booleans("measured").ok_or_else(|| missing("measured"))?;
    steps.iter_mut().zip(measured).for_each(|(record, v)| record.measured = *v);
    Ok(steps)
}

/// Read a step table. A table without columns of device times is of a rank without a device.
///
/// # Errors
/// The file cannot be read, has another schema version, or lacks a column.
pub fn read_steps(path: &Path) -> Result<StepsTable, LedgerError> {
    let table = TableReader::open(path, STEPS_SCHEMA_VERSION)?;
    let columns = table.columns(|_| true)?;
    let integers =
        |name: &str| columns.integers(name).ok_or_else(|| table.error(TableError::NoColumn { name: name.to_owned() }));
    let mut steps = vec![StepRecord::default(); columns.rows];
    for (name, _, set) in COUNTERS {
        for (record, v) in steps.iter_mut().zip(integers(name)?) {
            set(record, *v as u64);
        }
    }
    for (record, v) in steps.iter_mut().zip(columns.booleans(MEASURED).into_iter().flatten()) {
        record.measured = *v;
    }
    for (record, v) in steps.iter_mut().zip(columns.optional_reals(LOSS).into_iter().flat_map(|c| c.iter())) {
        record.loss = v;
    }
    for stage in Stage::ALL {
        for (record, v) in steps.iter_mut().zip(integers(&exposed_column(stage))?) {
            record.exposed[stage] = *v as u64;
        }
        for (record, v) in steps.iter_mut().zip(integers(&busy_column(stage))?) {
            record.busy[stage] = *v as u64;
        }
    }
    let device = |name: &str| columns.optional_integers(name).into_iter().flat_map(|cells| cells.iter());
    for stage in Stage::ALL {
        for (record, v) in steps.iter_mut().zip(device(&device_column(stage))) {
            if let Some(v) = v {
                record.device.get_or_insert_default()[stage] = v as u64;
            }
        }
    }
    for (record, v) in steps.iter_mut().zip(device(COPY)) {
        record.copy_ns = v.map(|v| v as u64);
    }
    for column in columns.iter() {
        let (Some(of), ColumnValues::OptionalIntegers(times)) = (OperationColumn::parse(&column.name), &column.cells)
        else {
            continue;
        };
        for (record, ns) in steps.iter_mut().zip(times.iter()).filter_map(|(record, ns)| Some((record, ns?))) {
            let operand = Arc::clone(&of.operand);
            record.operations.push(OperationTime { stage: of.stage, operation: of.operation, operand, ns: ns as u64 });
        }
    }
    let (rank, world_size) = (table.number("rank")?, table.number("world_size")?);
    Ok(StepsTable { trial: table.entry("trial")?, rank, world_size, steps })
}

/// Replace the step journal of a rank by its table. Nothing happens without a journal; a journal beside a table is only removed.
///
/// A journal with fewer than `min_steps` steps stays: another process is closing the attempt and has removed or taken it.
///
/// # Errors
/// The journal cannot be read, or the table not written; the journal stays then.
pub fn close_step_journal(attempt: &AttemptDir, trial: &Trial, rank: u32, min_steps: u64) -> Result<(), LedgerError> {
    let (journal, table) = (attempt.journal_path(rank), attempt.steps_path(rank));
    if !journal.exists() {
        return Ok(());
    }
    if !table.exists() {
        let steps = read_journal(&journal)?;
        if (steps.len() as u64) < min_steps {
            return Ok(());
        }
        let world_size = trial.settings.launch.ranks;
        write_steps(&table, &StepsTable { trial: trial.id.clone(), rank, world_size, steps })?;
    }
    // The table holds all of it; a journal that stays is only clutter.
    let _ = std::fs::remove_file(&journal);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use parquet::file::reader::{FileReader, SerializedFileReader};
    use proptest::prelude::*;

    use super::*;
    use crate::Operation;

    fn record() -> impl Strategy<Value = StepRecord> {
        let device = (proptest::option::of(any::<[u32; 13]>()), proptest::option::of(any::<u32>()));
        (any::<[u32; 8]>(), any::<bool>(), proptest::option::of(-1e6..1e6f64), any::<[u32; 26]>(), device).prop_map(
            |(counters, measured, loss, stages, (device, copy))| {
                let copy_ns = copy.map(u64::from);
                let mut r = StepRecord { measured, loss, copy_ns, ..StepRecord::default() };
                for ((_, _, set), v) in COUNTERS.iter().zip(counters) {
                    set(&mut r, u64::from(v));
                }
                for (stage, v) in Stage::ALL.into_iter().zip(stages.chunks(2)) {
                    r.busy[stage] = u64::from(v[0]);
                    r.exposed[stage] = u64::from(v[1]);
                }
                for (stage, v) in Stage::ALL.into_iter().zip(device.into_iter().flatten()) {
                    r.device.get_or_insert_default()[stage] = u64::from(v);
                }
                r
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(steps in proptest::collection::vec(record(), 0..50)) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("rank-1.parquet");
            let table = StepsTable { trial: "lazy-r1-abc".into(), rank: 1, world_size: 2, steps };
            write_steps(&path, &table).unwrap();
            prop_assert_eq!(&read_steps(&path).unwrap(), &table);
            prop_assert_eq!(read_table_totals(&path).unwrap(), StepTotals::from_steps(&table.steps));
            let times = table.steps.iter().map(|&StepRecord { step, epoch, measured, start_ns, wall_ns, samples, .. }| {
                StepRecord { step, epoch, measured, start_ns, wall_ns, samples, ..StepRecord::default() }
            });
            prop_assert_eq!(read_step_times(&path).unwrap(), times.collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_table_that_is_too_long_to_be_read_at_once_is_read_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.parquet");
        // Values that do not compress, below 2^44 so that their sum is a number.
        let value = |step: u64, column: u64| (3 * step + column).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let step = |step: u64| StepRecord {
            step,
            measured: step > 5,
            start_ns: value(step, 0),
            wall_ns: value(step, 1),
            bytes_read: value(step, 2),
            ..StepRecord::default()
        };
        let steps: Vec<StepRecord> = (0..80_000).map(step).collect();
        let table = StepsTable { trial: "t".into(), rank: 0, world_size: 1, steps };
        write_steps(&path, &table).unwrap();
        assert!(path.metadata().unwrap().len() > crate::table::MAX_WHOLE);
        assert_eq!(read_table_totals(&path).unwrap(), StepTotals::from_steps(&table.steps));
        assert!(read_steps(&path).unwrap() == table);
    }

    #[test]
    fn short_tables_and_longer_ones_say_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.parquet");
        let step = |step: u64| StepRecord {
            step,
            wall_ns: 7,
            loss: (!step.is_multiple_of(3)).then_some(0.5),
            ..StepRecord::default()
        };
        let mut bytes = Vec::new();
        for rows in [0, 1, 256, 257] {
            let steps: Vec<StepRecord> = (0..rows).map(step).collect();
            let table = StepsTable { trial: "t".into(), rank: 0, world_size: 1, steps };
            write_steps(&path, &table).unwrap();
            assert_eq!(read_steps(&path).unwrap(), table);
            let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
            let columns = reader.metadata().row_groups().iter().flat_map(|group| group.columns());
            let with_dictionary = columns.filter(|column| column.dictionary_page_offset().is_some()).count();
            assert_eq!(with_dictionary > 0, rows > 256, "{rows}");
            bytes.push(path.metadata().unwrap().len());
        }
        assert!(bytes[2] > bytes[3] && bytes[2] < 100_000, "{bytes:?}");
    }

    #[test]
    fn columns_of_the_device_are_those_of_ranks_that_had_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.parquet");
        let write = |steps: Vec<StepRecord>| {
            write_steps(&path, &StepsTable { trial: "t".into(), rank: 0, world_size: 1, steps }).unwrap();
            let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
            let columns = reader.metadata().file_metadata().schema_descr().columns().to_vec();
            let names = columns.iter().map(|column| column.name().to_owned());
            (names.filter(|name| name.ends_with("_device_ns")).collect::<Vec<_>>(), columns.len())
        };
        // As tables were before there were device times.
        let before = COUNTERS.len() + 2 + 2 * Stage::ALL.len();
        assert_eq!(write(vec![StepRecord::default(); 2]), (Vec::new(), before));
        assert!(read_steps(&path).unwrap().steps.iter().all(|step| step.device.is_none()));
        let mut timed = StepRecord { step: 1, ..StepRecord::default() };
        timed.device.get_or_insert_default()[Stage::Forward] = 7;
        let steps = vec![StepRecord::default(), timed];
        let (names, columns) = write(steps.clone());
        assert_eq!((names.len(), columns), (Stage::ALL.len(), before + Stage::ALL.len()));
        assert_eq!((names[0].as_str(), names[7].as_str()), ("sample_device_ns", "forward_device_ns"));
        let found = read_steps(&path).unwrap().steps;
        assert_eq!(found, steps);
        assert_eq!(found[1].device.map(|device| (device[Stage::Forward], device[Stage::Read])), Some((7, 0)));
        assert_eq!(read_table_totals(&path).unwrap(), StepTotals::from_steps(&steps));
    }

    #[test]
    fn operations_have_columns_where_they_were_timed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.parquet");
        let time =
            |stage, operation, operand: &str, ns| OperationTime { stage, operation, operand: operand.into(), ns };
        let timed = |step, operations: Vec<OperationTime>| StepRecord { step, operations, ..StepRecord::default() };
        let fill = |ns| time(Stage::Mask, Operation::Fill, "string12_0_fusion", ns);
        let copy = |ns| time(Stage::Collate, Operation::Copy, "physical", ns);
        // A step without operations, and one whose batch had no time in one of them.
        let steps = vec![timed(0, vec![]), timed(1, vec![fill(5), copy(7)]), timed(2, vec![fill(0)])];
        write_steps(&path, &StepsTable { trial: "t".into(), rank: 0, world_size: 1, steps: steps.clone() }).unwrap();
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        let columns = reader.metadata().file_metadata().schema_descr().columns().to_vec();
        let names = columns.iter().map(|column| column.name().to_owned());
        let names: Vec<String> = names.filter(|name| name.starts_with("operation_")).collect();
        assert_eq!(names, ["operation_mask_fill_string12_0_fusion_ns", "operation_collate_copy_physical_ns"]);
        assert_eq!(read_steps(&path).unwrap().steps, steps);
        assert_eq!(read_table_totals(&path).unwrap(), StepTotals::from_steps(&steps));
    }

    #[test]
    fn the_copy_of_a_batch_has_a_column_where_one_was_timed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.parquet");
        let timed = StepRecord { step: 1, copy_ns: Some(7), ..StepRecord::default() };
        let steps = vec![StepRecord::default(), timed];
        write_steps(&path, &StepsTable { trial: "t".into(), rank: 0, world_size: 1, steps: steps.clone() }).unwrap();
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        let columns = reader.metadata().file_metadata().schema_descr().columns().to_vec();
        assert_eq!(columns.last().map(|column| column.name()), Some("copy_device_ns"));
        assert_eq!(read_steps(&path).unwrap().steps, steps);
    }

    #[test]
    fn a_damaged_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.parquet");
        std::fs::write(&path, b"PAR1 nothing").unwrap();
        let message = read_steps(&path).unwrap_err().to_string();
        assert!(message.contains("rank-0.parquet"), "{message}");
    }
}
