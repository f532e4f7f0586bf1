//! `rank-<r>.samples.parquet`: the hardware samples of a rank, one row a sample; `rank-<r>.samples.jsonl`: the same while the rank runs.

use std::path::Path;

use host_metrics::{HardwareSample, SampleColumn};

use crate::table::{ColumnValues, TableColumn, TableReader, write_table};
use crate::{AttemptDir, LedgerError};

/// Version of the columns; stored in the file under `expctl.schema`.
pub const SAMPLES_SCHEMA_VERSION: u32 = 1;

/// Write the samples of a rank as one parquet file, complete or not at all.
///
/// # Errors
/// The file cannot be written.
pub fn write_samples(path: &Path, samples: &[HardwareSample]) -> Result<(), LedgerError> {
    let column = |column: &SampleColumn| {
        let cells = match column {
            SampleColumn::Integer { get, .. } => ColumnValues::OptionalIntegers(samples.iter().map(get).collect()),
            SampleColumn::Real { get, .. } => ColumnValues::OptionalReals(samples.iter().map(get).collect()),
        };
        TableColumn { name: column.name().to_owned(), cells }
    };
    let is_real = |column: &&SampleColumn| matches!(column, SampleColumn::Real { .. });
    let (reals, integers): (Vec<_>, Vec<_>) = HardwareSample::COLUMNS.iter().partition(is_real);
    let columns: Vec<TableColumn> = integers.into_iter().chain(reals).map(column).collect();
    write_table(path, "sample", SAMPLES_SCHEMA_VERSION, &[], &columns)
}

/// Read a table of samples. A column that the file does not have is `None` in every row.
///
/// # Errors
/// The file cannot be read, or has another schema version.
pub fn read_samples(path: &Path) -> Result<Vec<HardwareSample>, LedgerError> {
    let table = TableReader::open(path, SAMPLES_SCHEMA_VERSION)?;
    let columns = table.columns(|_| true)?;
    let mut samples = vec![HardwareSample::default(); columns.rows];
    for column in HardwareSample::COLUMNS {
        match column {
            SampleColumn::Integer { name, set, .. } => {
                let cells = columns.optional_integers(name).into_iter().flat_map(|cells| cells.iter());
                samples.iter_mut().zip(cells).for_each(|(sample, value)| set(sample, value));
            }
            SampleColumn::Real { name, set, .. } => {
                let cells = columns.optional_reals(name).into_iter().flat_map(|cells| cells.iter());
                samples.iter_mut().zip(cells).for_each(|(sample, value)| set(sample, value));
            }
        }
    }
    Ok(samples)
}

/// Read the samples of a rank that still runs or was killed, up to the first damaged line. All rows are put on the step clock as the last one
/// knows it.
///
/// # Errors
/// The file exists and cannot be read.
pub fn read_sample_journal(path: &Path) -> Result<Vec<HardwareSample>, LedgerError> {
    host_metrics::read_sample_journal(path).map_err(LedgerError::io("read", path))
}

/// Replace the journal of a rank's samples by their table. Nothing happens without a journal, or where the table exists.
///
/// # Errors
/// The journal cannot be read, or the table not written; the journal stays then.
pub fn close_sample_journal(attempt: &AttemptDir, rank: u32) -> Result<(), LedgerError> {
    let (journal, table) = (attempt.sample_journal_path(rank), attempt.samples_path(rank));
    if !journal.exists() || table.exists() {
        return Ok(());
    }
    write_samples(&table, &read_sample_journal(&journal)?)?;
    // The table holds all of it; a journal that stays is only clutter.
    let _ = std::fs::remove_file(&journal);
    Ok(())
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
        for (i, column) in HardwareSample::COLUMNS.iter().enumerate() {
            match column {
                SampleColumn::Integer { set, .. } => set(&mut samples[4], Some(1 + i as i64)),
                SampleColumn::Real { set, .. } => set(&mut samples[4], Some(0.5 + i as f64)),
            }
        }
        samples[4].at_ns = Some(-7);
        write_samples(&path, &samples).unwrap();
        assert_eq!(read_samples(&path).unwrap(), samples);
        let none = serde_json::to_value(HardwareSample::default()).unwrap();
        assert_eq!(none, serde_json::json!({ "clock_ns": 0 }));
        // Each field of the row is a column.
        let all = serde_json::to_value(&samples[4]).unwrap();
        assert_eq!(all.as_object().unwrap().len(), HardwareSample::COLUMNS.len());
        write_samples(&path, &[]).unwrap();
        assert_eq!(read_samples(&path).unwrap(), []);
    }

    #[test]
    fn a_damaged_table_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.samples.parquet");
        std::fs::write(&path, b"PAR1 nothing").unwrap();
        assert!(read_samples(&path).unwrap_err().to_string().contains("rank-0.samples.parquet"));
    }
}
