//! [`TableWriter`]: a table written row by row as CSV, JSON lines or parquet.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as PhysicalType};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

/// Rows that are held until they are written as a row group.
const ROW_GROUP: usize = 1 << 15;

/// Form of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableFormat {
    /// Comma-separated values, a header first.
    Csv,
    /// A JSON object a line, null where a cell is missing.
    Jsonl,
    /// Parquet, with Snappy.
    Parquet,
}

/// Type of a column. Every cell may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// Text.
    Text,
    /// 64 bits with a sign.
    Integer,
    /// A double.
    Real,
    /// True or false.
    Boolean,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type.
    pub column_type: ColumnType,
}

impl Column {
    /// A column.
    pub fn new(name: impl Into<String>, column_type: ColumnType) -> Self {
        Self { name: name.into(), column_type }
    }
}

/// A cell. In a column of another type it is missing, but for an integer in a column of reals.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Text.
    Text(Arc<str>),
    /// An integer.
    Integer(i64),
    /// A real number.
    Real(f64),
    /// A truth value.
    Boolean(bool),
    /// Nothing is known.
    Missing,
}

impl Cell {
    /// A text.
    pub fn text(text: &str) -> Self {
        Self::Text(text.into())
    }

    /// A cell of a value that may be missing.
    pub fn or_missing<T>(value: Option<T>, cell: impl FnOnce(T) -> Self) -> Self {
        value.map_or(Self::Missing, cell)
    }
}

/// Why a table cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum TableWriteError {
    /// The system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Parquet cannot be encoded, or the system refused.
    #[error(transparent)]
    Parquet(#[from] ParquetError),
}

impl From<csv::Error> for TableWriteError {
    fn from(error: csv::Error) -> Self {
        Self::Io(error.into())
    }
}

/// Writes a table.
pub struct TableWriter<W: Write + Send> {
    columns: Vec<Column>,
    form: TableForm<W>,
}

enum TableForm<W: Write + Send> {
    Csv(Box<csv::Writer<W>>),
    Jsonl(BufWriter<W>),
    Parquet(Box<ParquetRows<W>>),
}

impl<W: Write + Send> TableWriter<W> {
    /// Begin a table. `entries` are facts of the table as a whole, which parquet alone has a place for.
    ///
    /// # Errors
    /// The beginning cannot be written.
    pub fn new(
        format: TableFormat,
        to: W,
        columns: Vec<Column>,
        entries: &[(&str, String)],
    ) -> Result<Self, TableWriteError> {
        let form = match format {
            TableFormat::Csv => {
                let mut writer = csv::Writer::from_writer(to);
                writer.write_record(columns.iter().map(|column| column.name.as_str()))?;
                TableForm::Csv(Box::new(writer))
            }
            TableFormat::Jsonl => TableForm::Jsonl(BufWriter::new(to)),
            TableFormat::Parquet => TableForm::Parquet(Box::new(ParquetRows::new(to, &columns, entries)?)),
        };
        Ok(Self { columns, form })
    }

    /// Write a row: a cell for each column.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn row(&mut self, cells: &[Cell]) -> Result<(), TableWriteError> {
        match &mut self.form {
            TableForm::Csv(writer) => {
                for cell in cells {
                    match cell {
                        Cell::Text(text) => writer.write_field(&**text)?,
                        Cell::Integer(value) => writer.write_field(value.to_string())?,
                        Cell::Real(value) => writer.write_field(value.to_string())?,
                        Cell::Boolean(value) => writer.write_field(if *value { "true" } else { "false" })?,
                        Cell::Missing => writer.write_field("")?,
                    }
                }
                writer.write_record(None::<&[u8]>)?;
            }
            TableForm::Jsonl(writer) => {
                let mut before = b"{";
                for (column, cell) in self.columns.iter().zip(cells) {
                    writer.write_all(before)?;
                    before = b",";
                    serde_json::to_writer(&mut *writer, &column.name).map_err(io::Error::from)?;
                    writer.write_all(b":")?;
                    write_json_cell(&mut *writer, cell)?;
                }
                writer.write_all(b"}\n")?;
            }
            TableForm::Parquet(rows) => rows.row(cells)?,
        }
        Ok(())
    }

    /// End the table.
    ///
    /// # Errors
    /// The rest cannot be written.
    pub fn finish(self) -> Result<(), TableWriteError> {
        match self.form {
            TableForm::Csv(mut writer) => writer.flush()?,
            TableForm::Jsonl(mut writer) => writer.flush()?,
            TableForm::Parquet(rows) => rows.finish()?,
        }
        Ok(())
    }
}

/// JSON has no word for numbers that are none: these are null.
fn write_json_cell(mut to: impl Write, cell: &Cell) -> io::Result<()> {
    match cell {
        Cell::Text(text) => serde_json::to_writer(to, &**text)?,
        Cell::Integer(value) => serde_json::to_writer(to, value)?,
        Cell::Real(value) => serde_json::to_writer(to, value)?,
        Cell::Boolean(value) => serde_json::to_writer(to, value)?,
        Cell::Missing => to.write_all(b"null")?,
    }
    Ok(())
}

/// Rows on their way into a parquet file. Invariant: all columns have the same number of cells.
struct ParquetRows<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    columns: Vec<PendingCells>,
    rows: usize,
}

/// Cells of a column that are not written yet.
struct PendingCells {
    /// 1 for a row with a value, 0 for null.
    present: Vec<i16>,
    values: PendingValues,
}

enum PendingValues {
    Text(Vec<ByteArray>),
    Integers(Vec<i64>),
    Reals(Vec<f64>),
    Booleans(Vec<bool>),
}

impl PendingCells {
    fn new(column_type: ColumnType) -> Self {
        let values = match column_type {
            ColumnType::Text => PendingValues::Text(Vec::new()),
            ColumnType::Integer => PendingValues::Integers(Vec::new()),
            ColumnType::Real => PendingValues::Reals(Vec::new()),
            ColumnType::Boolean => PendingValues::Booleans(Vec::new()),
        };
        Self { present: Vec::new(), values }
    }

    fn push(&mut self, cell: &Cell) {
        let present = match (&mut self.values, cell) {
            (PendingValues::Text(values), Cell::Text(text)) => {
                values.push(text.as_bytes().to_vec().into());
                true
            }
            (PendingValues::Integers(values), Cell::Integer(value)) => {
                values.push(*value);
                true
            }
            (PendingValues::Reals(values), Cell::Real(value)) => {
                values.push(*value);
                true
            }
            (PendingValues::Reals(values), Cell::Integer(value)) => {
                values.push(*value as f64);
                true
            }
            (PendingValues::Booleans(values), Cell::Boolean(value)) => {
                values.push(*value);
                true
            }
            _ => false,
        };
        self.present.push(i16::from(present));
    }

    /// Write the cells, and forget them.
    fn write(&mut self, to: &mut ColumnWriter<'_>) -> Result<(), ParquetError> {
        let present = Some(self.present.as_slice());
        match (&mut self.values, to) {
            (PendingValues::Text(values), ColumnWriter::ByteArrayColumnWriter(writer)) => {
                writer.write_batch(values, present, None)?;
                values.clear();
            }
            (PendingValues::Integers(values), ColumnWriter::Int64ColumnWriter(writer)) => {
                writer.write_batch(values, present, None)?;
                values.clear();
            }
            (PendingValues::Reals(values), ColumnWriter::DoubleColumnWriter(writer)) => {
                writer.write_batch(values, present, None)?;
                values.clear();
            }
            (PendingValues::Booleans(values), ColumnWriter::BoolColumnWriter(writer)) => {
                writer.write_batch(values, present, None)?;
                values.clear();
            }
            _ => return Err(ParquetError::General("a column has another type than its cells".to_owned())),
        }
        self.present.clear();
        Ok(())
    }
}

impl<W: Write + Send> ParquetRows<W> {
    fn new(to: W, columns: &[Column], entries: &[(&str, String)]) -> Result<Self, ParquetError> {
        let entry = |(key, value): &(&str, String)| KeyValue::new(format!("expctl.{key}"), value.clone());
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(format!("expctl {}", env!("CARGO_PKG_VERSION")))
            .set_key_value_metadata(Some(entries.iter().map(entry).collect()))
            .build();
        let field = |column: &Column| {
            let (physical, logical) = match column.column_type {
                ColumnType::Text => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
                ColumnType::Integer => (PhysicalType::INT64, None),
                ColumnType::Real => (PhysicalType::DOUBLE, None),
                ColumnType::Boolean => (PhysicalType::BOOLEAN, None),
            };
            Type::primitive_type_builder(&column.name, physical)
                .with_repetition(Repetition::OPTIONAL)
                .with_logical_type(logical)
                .build()
                .map(Arc::new)
        };
        let fields = columns.iter().map(field).collect::<Result<Vec<_>, _>>()?;
        let schema = Arc::new(Type::group_type_builder("row").with_fields(fields).build()?);
        let writer = SerializedFileWriter::new(to, schema, Arc::new(properties))?;
        let columns = columns.iter().map(|column| PendingCells::new(column.column_type)).collect();
        Ok(Self { writer, columns, rows: 0 })
    }

    fn row(&mut self, cells: &[Cell]) -> Result<(), ParquetError> {
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            column.push(cell);
        }
        self.rows += 1;
        if self.rows == ROW_GROUP { self.write_group() } else { Ok(()) }
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        for cells in &mut self.columns {
            if let Some(mut column) = group.next_column()? {
                cells.write(column.untyped())?;
                column.close()?;
            }
        }
        group.close()?;
        self.rows = 0;
        Ok(())
    }

    fn finish(mut self) -> Result<(), ParquetError> {
        if self.rows > 0 {
            self.write_group()?;
        }
        self.writer.close()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Bytes that can be read after the writer has taken them.
    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn written(format: TableFormat) -> Vec<u8> {
        let columns = vec![
            Column::new("trial", ColumnType::Text),
            Column::new("step", ColumnType::Integer),
            Column::new("loss", ColumnType::Real),
            Column::new("measured", ColumnType::Boolean),
        ];
        let to = Shared::default();
        let mut table = TableWriter::new(format, to.clone(), columns, &[("job", "12".to_owned())]).unwrap();
        table.row(&[Cell::text("a, \"b\""), Cell::Integer(7), Cell::Real(0.1), Cell::Boolean(true)]).unwrap();
        table.row(&[Cell::Missing, Cell::Integer(8), Cell::Real(f64::NAN), Cell::Missing]).unwrap();
        table.finish().unwrap();
        let bytes = to.0.lock().unwrap();
        bytes.clone()
    }

    #[test]
    fn missing_cells_are_empty_and_null() {
        let csv = String::from_utf8(written(TableFormat::Csv)).unwrap();
        assert_eq!(csv, "trial,step,loss,measured\n\"a, \"\"b\"\"\",7,0.1,true\n,8,NaN,\n");
        let jsonl = String::from_utf8(written(TableFormat::Jsonl)).unwrap();
        assert_eq!(
            jsonl,
            "{\"trial\":\"a, \\\"b\\\"\",\"step\":7,\"loss\":0.1,\"measured\":true}\n\
             {\"trial\":null,\"step\":8,\"loss\":null,\"measured\":null}\n"
        );
    }

    #[test]
    fn parquet_has_as_many_rows_in_groups_that_memory_holds() {
        use parquet::file::reader::{FileReader, SerializedFileReader};

        let small = SerializedFileReader::new(bytes_of(written(TableFormat::Parquet))).unwrap();
        assert_eq!(small.metadata().file_metadata().num_rows(), 2);
        let rows: Vec<String> = small.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect();
        assert_eq!(rows[0], "{trial: \"a, \"b\"\", step: 7, loss: 0.1, measured: true}");
        assert_eq!(rows[1], "{trial: null, step: 8, loss: NaN, measured: null}");

        let to = Shared::default();
        let columns = vec![Column::new("step", ColumnType::Integer)];
        let mut table = TableWriter::new(TableFormat::Parquet, to.clone(), columns, &[]).unwrap();
        for step in 0..ROW_GROUP as i64 + 3 {
            table.row(&[Cell::Integer(step)]).unwrap();
        }
        table.finish().unwrap();
        let bytes = to.0.lock().unwrap().clone();
        let large = SerializedFileReader::new(bytes_of(bytes)).unwrap();
        assert_eq!(large.num_row_groups(), 2);
        assert_eq!(large.metadata().row_group(1).num_rows(), 3);
    }

    /// A file of these bytes, which the reader wants.
    fn bytes_of(bytes: Vec<u8>) -> std::fs::File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        file
    }
}
