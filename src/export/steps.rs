//! The steps of all trials and ranks of a job as one table: the columns of the step tables of the ledger, behind those that say whose step it is.

use std::io::Write;
use std::sync::Arc;

use expctl_ledger::{JobDir, JobRecord, StepCell, StepColumnType, StepColumns};

use super::source::{JobVerdict, visit_runs};
use super::table::{Cell, Column, ColumnType, TableFormat, TableWriter};
use super::trials::{value_cell, value_columns};
use super::{ExportError, ExportTo};

/// Write the steps of a job: a row for each step of each rank of each trial, joined over its attempts. Gives whether all trials completed.
///
/// The job is read twice, because a table has its columns before its rows.
///
/// # Errors
/// The job cannot be read, or changed in between; the table cannot be written.
pub fn write_steps<W: Write + Send>(
    folder: &JobDir,
    record: &JobRecord,
    format: TableFormat,
    to: ExportTo<W>,
) -> Result<JobVerdict, ExportError> {
    let mut needed = StepColumns::default();
    let _ = visit_runs(folder, record, |run, _| {
        run.ranks.iter().flatten().for_each(|step| needed.add(step));
        Ok(())
    })?;
    let point = value_columns(record.trials.iter().map(|trial| &trial.point));
    let of_steps = needed.list();
    let mut columns = vec![
        Column::new("job", ColumnType::Text),
        Column::new("trial", ColumnType::Text),
        Column::new("variant", ColumnType::Text),
        Column::new("repeat", ColumnType::Integer),
    ];
    columns.extend(point.iter().cloned());
    columns.push(Column::new("rank", ColumnType::Integer));
    columns.extend(of_steps.iter().map(|column| {
        let column_type = match column.column_type() {
            StepColumnType::Integer | StepColumnType::OptionalInteger => ColumnType::Integer,
            StepColumnType::Boolean => ColumnType::Boolean,
            StepColumnType::OptionalReal => ColumnType::Real,
        };
        Column::new(column.name(), column_type)
    }));
    let entries = [("job", record.job.to_string()), ("table", "steps".to_owned())];
    let (writer, failed) = to.into_parts();
    let mut table = TableWriter::new(format, writer, columns, &entries).map_err(&failed)?;
    let job: Arc<str> = record.job.to_string().into();
    let verdict = visit_runs(folder, record, |run, _| {
        let trial = &run.trial;
        let mut row = vec![
            Cell::Text(Arc::clone(&job)),
            Cell::text(&trial.id),
            Cell::text(&trial.variant),
            Cell::Integer(trial.repeat.into()),
        ];
        row.extend(point.iter().map(|column| value_cell(column, trial.point.get(&column.name))));
        let shared = row.len();
        for (rank, steps) in (0..).zip(&run.ranks) {
            for step in steps {
                if !needed.cover(step) {
                    return Err(ExportError::Changed { job: record.job, trial: trial.id.clone() });
                }
                row.truncate(shared);
                row.push(Cell::Integer(rank));
                row.extend(of_steps.iter().map(|column| match column.cell(step) {
                    // Nanoseconds and bytes stay far below 2^63.
                    Some(StepCell::Integer(value)) => Cell::Integer(value as i64),
                    Some(StepCell::Boolean(value)) => Cell::Boolean(value),
                    Some(StepCell::Real(value)) => Cell::Real(value),
                    None => Cell::Missing,
                }));
                table.row(&row).map_err(&failed)?;
            }
        }
        Ok(())
    })?;
    table.finish().map_err(&failed)?;
    Ok(verdict)
}
