use std::collections::HashMap;
use std::fs::File;

use parquet::column::reader::ColumnReader;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};

use crate::operation::OperationColumn;

/// How the names of columns of device times end.
pub(crate) const DEVICE_SUFFIX: &str = "_device_ns";

/// Columns of a step table in memory, by name.
///
/// Invariant: those that were asked for and are in the file; all of them have `rows` values.
#[derive(Default)]
pub(crate) struct Columns {
    /// Rows of the table.
    pub rows: usize,
    /// `measured`.
    pub measured: Vec<bool>,
    /// `loss`, none where it is null.
    pub loss: Vec<Option<f64>>,
    integers: HashMap<String, Vec<i64>>,
    /// Integers of the device, none where they are null.
    device: HashMap<String, Vec<Option<i64>>>,
    /// Times of operations, `None` for null, in the order of the file.
    operations: Vec<(OperationColumn, Vec<Option<i64>>)>,
}

impl Columns {
    /// Read the columns whose names are `wanted`; those of other types are left out, and so are nullable ones that are not known.
    pub fn load(reader: &SerializedFileReader<File>, wanted: impl Fn(&str) -> bool) -> Result<Self, ParquetError> {
        let mut all = Self::default();
        for g in 0..reader.num_row_groups() {
            let group = reader.get_row_group(g)?;
            let rows = group.metadata().num_rows() as usize;
            all.rows += rows;
            for c in 0..group.num_columns() {
                let chunk = group.metadata().column(c);
                let (name, nullable) =
                    (chunk.column_descr().name().to_owned(), chunk.column_descr().max_def_level() > 0);
                if !wanted(&name) {
                    continue;
                }
                let operation = OperationColumn::parse(&name).filter(|_| nullable);
                match group.get_column_reader(c)? {
                    ColumnReader::Int64ColumnReader(mut column) if operation.is_some() => {
                        let (mut present, mut values) = (Vec::new(), Vec::new());
                        column.read_records(rows, Some(&mut present), None, &mut values)?;
                        all.add_operation(operation, cells(&present, values));
                    }
                    ColumnReader::Int64ColumnReader(mut column) if name.ends_with(DEVICE_SUFFIX) => {
                        let (mut present, mut values) = (Vec::new(), Vec::new());
                        column.read_records(rows, Some(&mut present), None, &mut values)?;
                        all.device.entry(name).or_default().extend(cells(&present, values));
                    }
                    ColumnReader::Int64ColumnReader(mut column) if !nullable => {
                        column.read_records(rows, None, None, all.integers.entry(name).or_default())?;
                    }
                    ColumnReader::BoolColumnReader(mut column) if name == "measured" => {
                        column.read_records(rows, None, None, &mut all.measured)?;
                    }
                    ColumnReader::DoubleColumnReader(mut column) if name == "loss" => {
                        let (mut present, mut values) = (Vec::new(), Vec::new());
                        column.read_records(rows, Some(&mut present), None, &mut values)?;
                        all.loss.extend(cells(&present, values));
                    }
                    _ => {}
                }
            }
        }
        Ok(all)
    }

    /// Add the next cells of an operation's column.
    fn add_operation(&mut self, column: Option<OperationColumn>, cells: impl Iterator<Item = Option<i64>>) {
        let Some(column) = column else { return };
        match self.operations.iter_mut().find(|(known, _)| *known == column) {
            Some((_, times)) => times.extend(cells),
            None => self.operations.push((column, cells.collect())),
        }
    }

    /// An integer column; none where the file does not have it.
    pub fn integers(&self, name: &str) -> Option<&Vec<i64>> {
        self.integers.get(name)
    }

    /// The columns of operations, in the order of the file.
    pub fn operations(&self) -> &[(OperationColumn, Vec<Option<i64>>)] {
        &self.operations
    }

    /// A column of device times; empty where the file does not have it.
    pub fn device(&self, name: &str) -> &[Option<i64>] {
        self.device.get(name).map_or(&[], Vec::as_slice)
    }
}

/// A value for each row that has one.
fn cells<T>(present: &[i16], values: Vec<T>) -> impl Iterator<Item = Option<T>> {
    let mut values = values.into_iter();
    present.iter().map(move |p| if *p == 1 { values.next() } else { None })
}
