//! `rank-<r>.parquet`: one row per step, flat columns, readable by pandas, polars and DuckDB.
//!
//! Invariant: columns of the device stand in the tables of ranks that had one, and in no other; so do columns of operations in the
//! tables of trials that time them.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, Repetition, Type as Physical};
use parquet::data_type::{BoolType, DoubleType, Int64Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;

use crate::operation::{OperationColumn, OperationTime};
use crate::steps_columns::{Columns, DEVICE_SUFFIX};
use crate::{PerStage, RecordError, Stage, StepRecord, StepTotals};

/// Version of the columns; stored in the file under `expctl.schema`.
pub const STEPS_SCHEMA_VERSION: u32 = 1;

/// A step table with what its metadata says.
#[derive(Clone, Debug, PartialEq)]
pub struct StepsFile {
    /// Trial that the rank belonged to.
    pub trial: String,
    /// Rank.
    pub rank: u32,
    /// Number of ranks.
    pub world_size: u32,
    /// The steps, in order.
    pub steps: Vec<StepRecord>,
}

type Get = fn(&StepRecord) -> u64;
type Set = fn(&mut StepRecord, u64);

/// Integer columns in front of the stage columns.
const COUNTERS: [(&str, Get, Set); 8] = [
    ("step", |r| r.step, |r, v| r.step = v),
    ("epoch", |r| r.epoch, |r, v| r.epoch = v),
    ("start_ns", |r| r.start_ns, |r, v| r.start_ns = v),
    ("wall_ns", |r| r.wall_ns, |r, v| r.wall_ns = v),
    ("samples", |r| r.samples, |r, v| r.samples = v),
    ("bytes_read", |r| r.bytes_read, |r, v| r.bytes_read = v),
    ("bytes_batch", |r| r.bytes_batch, |r, v| r.bytes_batch = v),
    ("bytes_to_device", |r| r.bytes_to_device, |r, v| r.bytes_to_device = v),
];

fn stage_columns() -> impl Iterator<Item = (String, Stage, bool)> {
    Stage::ALL.into_iter().flat_map(|s| [(format!("{s}_exposed_ns"), s, false), (format!("{s}_busy_ns"), s, true)])
}

fn stage_value(record: &StepRecord, stage: Stage, busy: bool) -> u64 {
    if busy { record.busy[stage] } else { record.exposed[stage] }
}

/// Columns of device times, which are null in a row without them.
fn device_columns() -> impl Iterator<Item = (String, Stage)> {
    Stage::ALL.into_iter().map(|s| (format!("{s}{DEVICE_SUFFIX}"), s))
}

/// The column of the time for which the device copied the batch, null in a row without one.
const COPY: &str = "copy_device_ns";

/// Times of operations, a value for each step that has one; columns are in the order in which steps first name them.
fn operation_columns(steps: &[StepRecord]) -> Vec<(OperationColumn, Vec<Option<u64>>)> {
    let mut indices: HashMap<OperationColumn, usize> = HashMap::new();
    let mut columns: Vec<(OperationColumn, Vec<Option<u64>>)> = Vec::new();
    for (row, step) in steps.iter().enumerate() {
        for time in &step.operations {
            let column = OperationColumn::of(time);
            let index = *indices.entry(column.clone()).or_insert_with(|| {
                columns.push((column, vec![None; steps.len()]));
                columns.len() - 1
            });
            columns[index].1[row] = Some(time.ns);
        }
    }
    columns
}

fn schema(
    with_device: bool,
    with_copy: bool,
    operations: &[(OperationColumn, Vec<Option<u64>>)],
) -> Result<Arc<Type>, parquet::errors::ParquetError> {
    let column = |name: &str, kind, repetition| {
        Type::primitive_type_builder(name, kind).with_repetition(repetition).build().map(Arc::new)
    };
    let mut fields = Vec::new();
    for (name, ..) in COUNTERS {
        fields.push(column(name, Physical::INT64, Repetition::REQUIRED)?);
    }
    fields.push(column("measured", Physical::BOOLEAN, Repetition::REQUIRED)?);
    fields.push(column("loss", Physical::DOUBLE, Repetition::OPTIONAL)?);
    for (name, ..) in stage_columns() {
        fields.push(column(&name, Physical::INT64, Repetition::REQUIRED)?);
    }
    for (name, _) in device_columns().filter(|_| with_device) {
        fields.push(column(&name, Physical::INT64, Repetition::OPTIONAL)?);
    }
    if with_copy {
        fields.push(column(COPY, Physical::INT64, Repetition::OPTIONAL)?);
    }
    for (operation, _) in operations {
        fields.push(column(&operation.name(), Physical::INT64, Repetition::OPTIONAL)?);
    }
    Type::group_type_builder("step").with_fields(fields).build().map(Arc::new)
}

/// Write a rank's steps as one parquet file, complete or not at all.
pub fn write_steps(path: &Path, table: &StepsFile) -> Result<(), RecordError> {
    let mut buffer = Vec::new();
    encode(&mut buffer, table).map_err(|e| RecordError::parquet(path, e))?;
    crate::write_atomic(path, &buffer)
}

fn encode(buffer: &mut Vec<u8>, table: &StepsFile) -> Result<(), parquet::errors::ParquetError> {
    let entry = |k: &str, v: String| KeyValue::new(format!("expctl.{k}"), v);
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(format!("expctl {}", env!("CARGO_PKG_VERSION")))
        .set_key_value_metadata(Some(vec![
            entry("schema", STEPS_SCHEMA_VERSION.to_string()),
            entry("trial", table.trial.clone()),
            entry("rank", table.rank.to_string()),
            entry("world_size", table.world_size.to_string()),
        ]))
        .build();
    let steps = &table.steps;
    let with_device = steps.iter().any(|r| r.device.is_some());
    let with_copy = steps.iter().any(|r| r.copy_ns.is_some());
    let operations = operation_columns(steps);
    let schema = schema(with_device, with_copy, &operations)?;
    let mut writer = SerializedFileWriter::new(buffer, schema, Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for (_, get, _) in COUNTERS {
        write_integers(&mut group, steps.iter().map(get))?;
    }
    if let Some(mut column) = group.next_column()? {
        let values: Vec<bool> = steps.iter().map(|r| r.measured).collect();
        column.typed::<BoolType>().write_batch(&values, None, None)?;
        column.close()?;
    }
    if let Some(mut column) = group.next_column()? {
        let values: Vec<f64> = steps.iter().filter_map(|r| r.loss).collect();
        let present: Vec<i16> = steps.iter().map(|r| i16::from(r.loss.is_some())).collect();
        column.typed::<DoubleType>().write_batch(&values, Some(&present), None)?;
        column.close()?;
    }
    for (_, stage, busy) in stage_columns() {
        write_integers(&mut group, steps.iter().map(|r| stage_value(r, stage, busy)))?;
    }
    for (_, stage) in device_columns().filter(|_| with_device) {
        write_optional(&mut group, steps.iter().map(|r| Some(r.device?[stage])))?;
    }
    if with_copy {
        write_optional(&mut group, steps.iter().map(|r| r.copy_ns))?;
    }
    for (_, times) in &operations {
        write_optional(&mut group, times.iter().copied())?;
    }
    group.close()?;
    writer.close()?;
    Ok(())
}

fn write_integers<W: std::io::Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: impl Iterator<Item = u64>,
) -> Result<(), parquet::errors::ParquetError> {
    if let Some(mut column) = group.next_column()? {
        // Nanoseconds and bytes stay far below 2^63.
        let values: Vec<i64> = values.map(|v| v as i64).collect();
        column.typed::<Int64Type>().write_batch(&values, None, None)?;
        column.close()?;
    }
    Ok(())
}

fn write_optional<W: std::io::Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: impl Iterator<Item = Option<u64>> + Clone,
) -> Result<(), parquet::errors::ParquetError> {
    if let Some(mut column) = group.next_column()? {
        let present: Vec<i16> = values.clone().map(|v| i16::from(v.is_some())).collect();
        let values: Vec<i64> = values.flatten().map(|v| v as i64).collect();
        column.typed::<Int64Type>().write_batch(&values, Some(&present), None)?;
        column.close()?;
    }
    Ok(())
}

/// A table that is open, and known to be of this version.
struct Opened<'a> {
    path: &'a Path,
    reader: SerializedFileReader<File>,
}

impl<'a> Opened<'a> {
    fn new(path: &'a Path) -> Result<Self, RecordError> {
        let file = File::open(path).map_err(RecordError::io("read", path))?;
        let reader = SerializedFileReader::new(file).map_err(|e| RecordError::parquet(path, e))?;
        let opened = Self { path, reader };
        let version = opened.number("schema")?;
        if version != STEPS_SCHEMA_VERSION {
            let reason = format!("schema version {version}; this expctl reads version {STEPS_SCHEMA_VERSION}");
            return Err(RecordError::parquet(path, reason));
        }
        Ok(opened)
    }

    fn entry(&self, key: &str) -> Result<String, RecordError> {
        let all = self.reader.metadata().file_metadata().key_value_metadata();
        all.and_then(|all| all.iter().find(|kv| kv.key == format!("expctl.{key}")))
            .and_then(|kv| kv.value.clone())
            .ok_or_else(|| RecordError::parquet(self.path, format!("metadata expctl.{key} is missing")))
    }

    fn number(&self, key: &str) -> Result<u32, RecordError> {
        let text = self.entry(key)?;
        text.parse().map_err(|e| RecordError::parquet(self.path, format!("metadata expctl.{key}: {e}")))
    }

    fn columns(&self, wanted: impl Fn(&str) -> bool) -> Result<Columns, RecordError> {
        Columns::load(&self.reader, wanted).map_err(|e| RecordError::parquet(self.path, e))
    }
}

/// Totals of a step table, of which only four columns are read.
pub(crate) fn read_table_totals(path: &Path) -> Result<StepTotals, RecordError> {
    let columns = Opened::new(path)?.columns(|name| ["step", "measured", "wall_ns", "samples"].contains(&name))?;
    let missing = |name: &str| RecordError::parquet(path, format!("column {name} is missing"));
    let integers = |name| columns.integers(name).ok_or_else(|| missing(name));
    let (step, wall, samples) = (integers("step")?, integers("wall_ns")?, integers("samples")?);
    let mut totals = StepTotals::default();
    for row in 0..columns.rows {
        // A file with columns of different lengths is refused by the reader.
        let value = |column: &Vec<i64>| column.get(row).copied().unwrap_or_default() as u64;
        let measured = columns.measured.get(row).copied().ok_or_else(|| missing("measured"))?;
        totals.add(value(step), measured, value(wall), value(samples));
    }
    Ok(totals)
}

/// Read a step table, columns found by name. One without columns of device times is of a rank without a device.
pub fn read_steps(path: &Path) -> Result<StepsFile, RecordError> {
    let opened = Opened::new(path)?;
    let columns = opened.columns(|_| true)?;
    let missing = |name: &str| RecordError::parquet(path, format!("column {name} is missing"));
    let mut steps = vec![StepRecord::default(); columns.rows];
    for (name, _, set) in COUNTERS {
        for (record, v) in steps.iter_mut().zip(columns.integers(name).ok_or_else(|| missing(name))?) {
            set(record, *v as u64);
        }
    }
    for (record, v) in steps.iter_mut().zip(&columns.measured) {
        record.measured = *v;
    }
    for (record, v) in steps.iter_mut().zip(&columns.loss) {
        record.loss = *v;
    }
    for (name, stage, busy) in stage_columns() {
        for (record, v) in steps.iter_mut().zip(columns.integers(&name).ok_or_else(|| missing(&name))?) {
            let side: &mut PerStage<u64> = if busy { &mut record.busy } else { &mut record.exposed };
            side[stage] = *v as u64;
        }
    }
    for (name, stage) in device_columns() {
        for (record, v) in steps.iter_mut().zip(columns.device(&name)) {
            if let Some(v) = v {
                record.device.get_or_insert_default()[stage] = *v as u64;
            }
        }
    }
    for (record, v) in steps.iter_mut().zip(columns.device(COPY)) {
        record.copy_ns = v.map(|v| v as u64);
    }
    for (OperationColumn { stage, operation, operand }, times) in columns.operations() {
        for (record, ns) in steps.iter_mut().zip(times).filter_map(|(record, ns)| Some((record, (*ns)?))) {
            let operand = Arc::clone(operand);
            record.operations.push(OperationTime { stage: *stage, operation: *operation, operand, ns: ns as u64 });
        }
    }
    let (rank, world_size) = (opened.number("rank")?, opened.number("world_size")?);
    Ok(StepsFile { trial: opened.entry("trial")?, rank, world_size, steps })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Operation;
    use proptest::prelude::*;

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
            let table = StepsFile { trial: "lazy-r1-abc".into(), rank: 1, world_size: 2, steps };
            write_steps(&path, &table).unwrap();
            prop_assert_eq!(&read_steps(&path).unwrap(), &table);
            prop_assert_eq!(read_table_totals(&path).unwrap(), StepTotals::of(&table.steps));
        }
    }

    #[test]
    fn columns_of_the_device_are_those_of_ranks_that_had_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.parquet");
        let write = |steps: Vec<StepRecord>| {
            write_steps(&path, &StepsFile { trial: "t".into(), rank: 0, world_size: 1, steps }).unwrap();
            let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
            let columns = reader.metadata().file_metadata().schema_descr().columns().to_vec();
            let names = columns.iter().map(|column| column.name().to_owned());
            (names.filter(|name| name.ends_with(DEVICE_SUFFIX)).collect::<Vec<_>>(), columns.len())
        };
        // As tables were before there were device times.
        let before = COUNTERS.len() + 2 + stage_columns().count();
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
        assert_eq!(read_table_totals(&path).unwrap(), StepTotals::of(&steps));
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
        write_steps(&path, &StepsFile { trial: "t".into(), rank: 0, world_size: 1, steps: steps.clone() }).unwrap();
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        let columns = reader.metadata().file_metadata().schema_descr().columns().to_vec();
        let names = columns.iter().map(|column| column.name().to_owned());
        let names: Vec<String> = names.filter(|name| name.starts_with("operation_")).collect();
        assert_eq!(names, ["operation_mask_fill_string12_0_fusion_ns", "operation_collate_copy_physical_ns"]);
        assert_eq!(read_steps(&path).unwrap().steps, steps);
        assert_eq!(read_table_totals(&path).unwrap(), StepTotals::of(&steps));
    }

    #[test]
    fn the_copy_of_a_batch_has_a_column_where_one_was_timed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.parquet");
        let timed = StepRecord { step: 1, copy_ns: Some(7), ..StepRecord::default() };
        let steps = vec![StepRecord::default(), timed];
        write_steps(&path, &StepsFile { trial: "t".into(), rank: 0, world_size: 1, steps: steps.clone() }).unwrap();
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
