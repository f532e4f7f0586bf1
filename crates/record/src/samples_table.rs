//! `rank-<r>.samples.parquet`: one row per hardware sample; `rank-<r>.samples.jsonl`: the same while the rank runs.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, Repetition, Type as Physical};
use parquet::column::reader::ColumnReader;
use parquet::data_type::{DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use crate::{HardwareSample, RecordError};

/// Version of the columns; stored in the file under `expctl.schema`.
pub const SAMPLES_SCHEMA_VERSION: u32 = 1;

type Whole = (&'static str, fn(&HardwareSample) -> Option<i64>, fn(&mut HardwareSample, Option<i64>));
type Real = (&'static str, fn(&HardwareSample) -> Option<f64>, fn(&mut HardwareSample, Option<f64>));

/// Columns of counts and bytes, which stay far below 2^63.
macro_rules! counts {
    ($($name:ident),+) => {
        [$((stringify!($name), |s| s.$name.map(|v| v as i64), |s, v| s.$name = v.map(|v| v as u64))),+]
    };
}
macro_rules! reals {
    ($($name:ident),+) => {
        [$((stringify!($name), |s| s.$name, |s, v| s.$name = v)),+]
    };
}

static CLOCKS: [Whole; 2] = [
    ("clock_ns", |s| Some(s.clock_ns as i64), |s, v| s.clock_ns = v.unwrap_or_default() as u64),
    ("at_ns", |s| s.at_ns, |s, v| s.at_ns = v),
];
static COUNTS: [Whole; 22] = counts![
    processes,
    rss_bytes,
    rss_anon_bytes,
    rss_file_bytes,
    rss_shmem_bytes,
    pss_bytes,
    pss_anon_bytes,
    pss_shmem_bytes,
    disk_read_bytes,
    disk_written_bytes,
    call_read_bytes,
    call_written_bytes,
    network_received_bytes,
    network_sent_bytes,
    loopback_bytes,
    cgroup_memory_bytes,
    cgroup_memory_limit_bytes,
    gpu_memory_bytes,
    gpu_sm_mhz,
    gpu_memory_mhz,
    gpu_pcie_received_bytes_per_s,
    gpu_pcie_sent_bytes_per_s
];
static REALS: [Real; 3] = reals![cpu_percent, gpu_percent, gpu_power_w];

fn whole() -> impl Iterator<Item = &'static Whole> {
    CLOCKS.iter().chain(&COUNTS)
}

/// Write the samples of a rank as one parquet file, complete or not at all.
///
/// # Errors
/// The file cannot be written.
pub fn write_samples(path: &Path, samples: &[HardwareSample]) -> Result<(), RecordError> {
    let mut buffer = Vec::new();
    encode(&mut buffer, samples).map_err(|e| RecordError::parquet(path, e))?;
    crate::write_atomic(path, &buffer)
}

fn encode(buffer: &mut Vec<u8>, samples: &[HardwareSample]) -> Result<(), ParquetError> {
    let column = |name: &str, kind| {
        Type::primitive_type_builder(name, kind).with_repetition(Repetition::OPTIONAL).build().map(Arc::new)
    };
    let mut fields = Vec::new();
    for (name, ..) in whole() {
        fields.push(column(name, Physical::INT64)?);
    }
    for (name, ..) in &REALS {
        fields.push(column(name, Physical::DOUBLE)?);
    }
    let schema = Arc::new(Type::group_type_builder("sample").with_fields(fields).build()?);
    let version = KeyValue::new("expctl.schema".to_owned(), SAMPLES_SCHEMA_VERSION.to_string());
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(format!("expctl {}", env!("CARGO_PKG_VERSION")))
        .set_key_value_metadata(Some(vec![version]))
        .build();
    let mut writer = SerializedFileWriter::new(buffer, schema, Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for (_, get, _) in whole() {
        if let Some(mut column) = group.next_column()? {
            let (present, values) = cells(samples, get);
            column.typed::<Int64Type>().write_batch(&values, Some(&present), None)?;
            column.close()?;
        }
    }
    for (_, get, _) in &REALS {
        if let Some(mut column) = group.next_column()? {
            let (present, values) = cells(samples, get);
            column.typed::<DoubleType>().write_batch(&values, Some(&present), None)?;
            column.close()?;
        }
    }
    group.close()?;
    writer.close()?;
    Ok(())
}

/// Which rows have a value, and the values of those.
fn cells<T>(samples: &[HardwareSample], get: &fn(&HardwareSample) -> Option<T>) -> (Vec<i16>, Vec<T>) {
    let present = samples.iter().map(|sample| i16::from(get(sample).is_some())).collect();
    (present, samples.iter().filter_map(get).collect())
}

/// Read a table of samples, columns found by name; one that the file does not have is none in every row.
///
/// # Errors
/// The file cannot be read, or is of another version.
pub fn read_samples(path: &Path) -> Result<Vec<HardwareSample>, RecordError> {
    let file = File::open(path).map_err(RecordError::io("read", path))?;
    let reader = SerializedFileReader::new(file).map_err(|e| RecordError::parquet(path, e))?;
    let entries = reader.metadata().file_metadata().key_value_metadata();
    let version = entries.and_then(|all| all.iter().find(|entry| entry.key == "expctl.schema")?.value.clone());
    if version.as_deref() != Some(SAMPLES_SCHEMA_VERSION.to_string().as_str()) {
        let found = version.unwrap_or_else(|| "none".to_owned());
        let reason = format!("schema version {found}; this expctl reads version {SAMPLES_SCHEMA_VERSION}");
        return Err(RecordError::parquet(path, reason));
    }
    decode(&reader).map_err(|e| RecordError::parquet(path, e))
}

fn decode(reader: &SerializedFileReader<File>) -> Result<Vec<HardwareSample>, ParquetError> {
    let mut all = Vec::new();
    for g in 0..reader.num_row_groups() {
        let group = reader.get_row_group(g)?;
        let rows = group.metadata().num_rows() as usize;
        let mut samples = vec![HardwareSample::default(); rows];
        for c in 0..group.num_columns() {
            let name = group.metadata().column(c).column_descr().name().to_owned();
            let mut present = Vec::new();
            match group.get_column_reader(c)? {
                ColumnReader::Int64ColumnReader(mut column) => {
                    let mut values = Vec::new();
                    column.read_records(rows, Some(&mut present), None, &mut values)?;
                    if let Some((_, _, set)) = whole().find(|(known, ..)| *known == name) {
                        spread(&mut samples, &present, values, set);
                    }
                }
                ColumnReader::DoubleColumnReader(mut column) => {
                    let mut values = Vec::new();
                    column.read_records(rows, Some(&mut present), None, &mut values)?;
                    if let Some((_, _, set)) = REALS.iter().find(|(known, ..)| *known == name) {
                        spread(&mut samples, &present, values, set);
                    }
                }
                _ => {}
            }
        }
        all.append(&mut samples);
    }
    Ok(all)
}

/// Give each row its value, if it has one.
fn spread<T>(
    samples: &mut [HardwareSample],
    present: &[i16],
    values: Vec<T>,
    set: &fn(&mut HardwareSample, Option<T>),
) {
    let mut values = values.into_iter();
    for (sample, present) in samples.iter_mut().zip(present) {
        set(sample, if *present > 0 { values.next() } else { None });
    }
}

/// The samples of a rank that still runs or was killed, up to the first damaged line. All rows are put on the clock of the
/// steps as the last one knows it.
///
/// # Errors
/// The file cannot be read at all.
pub fn read_sample_journal(path: &Path) -> Result<Vec<HardwareSample>, RecordError> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(RecordError::io("read", path)(e)),
    };
    // What is behind the last line end was cut off by a kill.
    let whole = text.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
    let lines = text[..whole].split(|byte| *byte == b'\n');
    let mut samples: Vec<HardwareSample> = lines.map_while(|line| serde_json::from_slice(line).ok()).collect();
    let last = samples.iter().rev().find_map(|sample| Some(sample.clock_ns as i64 - sample.at_ns?));
    for sample in &mut samples {
        sample.at_ns = last.map(|origin| sample.clock_ns as i64 - origin);
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(clock_ns: u64, at_ns: Option<i64>) -> HardwareSample {
        HardwareSample { clock_ns, at_ns, rss_bytes: Some(clock_ns * 2), ..HardwareSample::default() }
    }

    #[test]
    fn what_is_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.samples.parquet");
        let mut samples: Vec<HardwareSample> = (0..5).map(|i| sample(i, (i > 2).then_some(i as i64 - 3))).collect();
        // Every column has a value of its own in one row, and none in the others.
        for (i, (_, _, set)) in whole().enumerate() {
            set(&mut samples[4], Some(1 + i as i64));
        }
        for (i, (_, _, set)) in REALS.iter().enumerate() {
            set(&mut samples[4], Some(0.5 + i as f64));
        }
        samples[4].at_ns = Some(-7);
        write_samples(&path, &samples).unwrap();
        assert_eq!(read_samples(&path).unwrap(), samples);
        let none = serde_json::to_value(HardwareSample::default()).unwrap();
        assert_eq!(none, serde_json::json!({ "clock_ns": 0 }));
        // Each field of the row is a column.
        let all = serde_json::to_value(&samples[4]).unwrap();
        assert_eq!(all.as_object().unwrap().len(), whole().count() + REALS.len());
        write_samples(&path, &[]).unwrap();
        assert_eq!(read_samples(&path).unwrap(), []);
    }

    #[test]
    fn a_journal_is_read_up_to_where_it_was_cut_off_and_put_on_the_clock_of_the_steps() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.samples.jsonl");
        assert_eq!(read_sample_journal(&path).unwrap(), []);
        let rows = [sample(100, None), sample(200, Some(30)), sample(300, Some(120))];
        let mut text: String = rows.iter().map(|s| serde_json::to_string(s).unwrap() + "\n").collect();
        text += "{\"clock_ns\": 40";
        std::fs::write(&path, &text).unwrap();
        let at: Vec<_> = read_sample_journal(&path).unwrap().iter().map(|s| (s.clock_ns, s.at_ns)).collect();
        assert_eq!(at, [(100, Some(-80)), (200, Some(20)), (300, Some(120))]);
        std::fs::write(&path, "no line\n").unwrap();
        assert_eq!(read_sample_journal(&path).unwrap(), []);
    }

    #[test]
    fn a_damaged_table_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.samples.parquet");
        std::fs::write(&path, b"PAR1 nothing").unwrap();
        assert!(read_samples(&path).unwrap_err().to_string().contains("rank-0.samples.parquet"));
    }
}
