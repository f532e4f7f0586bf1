//! Flat parquet tables of the ledger: a schema version and further entries in the metadata of the file, columns found by name.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, Repetition, Type as PhysicalType};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{BoolType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{ChunkReader, FileReader, Length, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;

use crate::{LedgerError, TableError, without_panics, write_atomic};

/// Key of the schema version.
const SCHEMA: &str = "schema";

/// A column of a table, in memory.
#[derive(Debug)]
pub(crate) struct TableColumn {
    pub name: String,
    pub cells: ColumnValues,
}

/// Values of a column, a cell for each row.
#[derive(Debug)]
pub(crate) enum ColumnValues {
    Integers(Vec<i64>),
    Booleans(Vec<bool>),
    OptionalIntegers(OptionalCells<i64>),
    OptionalReals(OptionalCells<f64>),
}

/// Rows up to which a table is written without dictionaries, compression and statistics. Reports read thousands of such tables, each as a whole,
/// and these cost more to read than so few values.
const SHORT_ROWS: usize = 256;

impl ColumnValues {
    /// Number of cells.
    const fn len(&self) -> usize {
        match self {
            Self::Integers(values) => values.len(),
            Self::Booleans(values) => values.len(),
            Self::OptionalIntegers(cells) => cells.present.len(),
            Self::OptionalReals(cells) => cells.present.len(),
        }
    }

    const fn physical_type(&self) -> PhysicalType {
        match self {
            Self::Integers(_) | Self::OptionalIntegers(_) => PhysicalType::INT64,
            Self::Booleans(_) => PhysicalType::BOOLEAN,
            Self::OptionalReals(_) => PhysicalType::DOUBLE,
        }
    }

    const fn repetition(&self) -> Repetition {
        match self {
            Self::Integers(_) | Self::Booleans(_) => Repetition::REQUIRED,
            Self::OptionalIntegers(_) | Self::OptionalReals(_) => Repetition::OPTIONAL,
        }
    }
}

/// Values of a column with nulls.
#[derive(Debug)]
pub(crate) struct OptionalCells<T> {
    /// 1 for a row with a value, 0 for null.
    present: Vec<i16>,
    /// Values of the rows that have one.
    values: Vec<T>,
}

impl<T> Default for OptionalCells<T> {
    fn default() -> Self {
        Self { present: Vec::new(), values: Vec::new() }
    }
}

impl<T: Copy> OptionalCells<T> {
    /// A cell for each row.
    pub fn iter(&self) -> impl Iterator<Item = Option<T>> {
        let mut values = self.values.iter().copied();
        self.present.iter().map(move |present| if *present == 1 { values.next() } else { None })
    }
}

impl<T> FromIterator<Option<T>> for OptionalCells<T> {
    fn from_iter<I: IntoIterator<Item = Option<T>>>(cells: I) -> Self {
        let mut all = Self::default();
        for cell in cells {
            all.present.push(i16::from(cell.is_some()));
            all.values.extend(cell);
        }
        all
    }
}

/// Write a table, complete or not at all. `entries` stand in the metadata beside the schema version, each as `expctl.<key>`.
pub(crate) fn write_table(
    path: &Path,
    row: &str,
    schema_version: u32,
    entries: &[(&str, String)],
    columns: &[TableColumn],
) -> Result<(), LedgerError> {
    let mut buffer = Vec::new();
    encode(&mut buffer, row, schema_version, entries, columns).map_err(|e| LedgerError::table(path, e))?;
    write_atomic(path, &buffer)
}

fn encode(
    buffer: &mut Vec<u8>,
    row: &str,
    schema_version: u32,
    entries: &[(&str, String)],
    columns: &[TableColumn],
) -> Result<(), ParquetError> {
    let entry = |key: &str, value: &str| KeyValue::new(format!("expctl.{key}"), value.to_owned());
    let mut metadata = vec![entry(SCHEMA, &schema_version.to_string())];
    metadata.extend(entries.iter().map(|(key, value)| entry(key, value)));
    let properties = WriterProperties::builder()
        .set_created_by(format!("expctl {}", env!("CARGO_PKG_VERSION")))
        .set_key_value_metadata(Some(metadata));
    let properties = if columns.iter().all(|column| column.cells.len() <= SHORT_ROWS) {
        let plain = properties.set_dictionary_enabled(false).set_compression(Compression::UNCOMPRESSED);
        plain.set_statistics_enabled(EnabledStatistics::None).set_offset_index_disabled(true)
    } else {
        properties.set_compression(Compression::SNAPPY)
    };
    let field = |column: &TableColumn| {
        Type::primitive_type_builder(&column.name, column.cells.physical_type())
            .with_repetition(column.cells.repetition())
            .build()
            .map(Arc::new)
    };
    let fields = columns.iter().map(field).collect::<Result<Vec<_>, _>>()?;
    let schema = Arc::new(Type::group_type_builder(row).with_fields(fields).build()?);
    let mut writer = SerializedFileWriter::new(buffer, schema, Arc::new(properties.build()))?;
    let mut group = writer.next_row_group()?;
    for column in columns {
        match &column.cells {
            ColumnValues::Integers(values) => write_column::<Int64Type, _>(&mut group, values, None)?,
            ColumnValues::Booleans(values) => write_column::<BoolType, _>(&mut group, values, None)?,
            ColumnValues::OptionalIntegers(cells) => {
                write_column::<Int64Type, _>(&mut group, &cells.values, Some(&cells.present))?;
            }
            ColumnValues::OptionalReals(cells) => {
                write_column::<DoubleType, _>(&mut group, &cells.values, Some(&cells.present))?;
            }
        }
    }
    group.close()?;
    writer.close()?;
    Ok(())
}

fn write_column<T: DataType, W: std::io::Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
    present: Option<&[i16]>,
) -> Result<(), ParquetError> {
    if let Some(mut column) = group.next_column()? {
        column.typed::<T>().write_batch(values, present, None)?;
        column.close()?;
    }
    Ok(())
}

/// Size up to which a file is read at once, bytes. The parquet reader asks a file for each page of each column by itself, six system calls a
/// page; most tables are smaller than that costs. Of longer ones only the pages of the wanted columns are read.
pub(crate) const MAX_WHOLE: u64 = 1 << 20;

/// The bytes of a table.
enum TableFile {
    /// All of them.
    Whole(Bytes),
    /// To be read page by page.
    Paged(File),
}

impl TableFile {
    fn open(path: &Path) -> std::io::Result<Self> {
        let mut file = File::open(path)?;
        if file.metadata()?.len() > MAX_WHOLE {
            return Ok(Self::Paged(file));
        }
        let mut all = Vec::new();
        file.read_to_end(&mut all)?;
        Ok(Self::Whole(all.into()))
    }
}

impl Length for TableFile {
    fn len(&self) -> u64 {
        match self {
            Self::Whole(bytes) => Length::len(bytes),
            Self::Paged(file) => Length::len(file),
        }
    }
}

impl ChunkReader for TableFile {
    type T = Box<dyn Read>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        match self {
            Self::Whole(bytes) => Ok(Box::new(bytes.get_read(start)?)),
            Self::Paged(file) => Ok(Box::new(file.get_read(start)?)),
        }
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        match self {
            Self::Whole(bytes) => bytes.get_bytes(start, length),
            Self::Paged(file) => file.get_bytes(start, length),
        }
    }
}

/// A table that is open and of the version that this expctl reads.
pub(crate) struct TableReader {
    path: PathBuf,
    reader: SerializedFileReader<TableFile>,
}

impl TableReader {
    /// # Errors
    /// The file cannot be read, or its schema has another version.
    pub fn open(path: &Path, schema_version: u32) -> Result<Self, LedgerError> {
        let file = TableFile::open(path).map_err(LedgerError::io("read", path))?;
        let reader = without_panics(|| SerializedFileReader::new(file)).map_err(|e| LedgerError::table(path, e))?;
        let table = Self { path: path.to_owned(), reader };
        let found = table.number(SCHEMA)?;
        if found != schema_version {
            return Err(table.error(TableError::Schema { found, known: schema_version }));
        }
        Ok(table)
    }

    /// The same error as one of this file.
    pub fn error(&self, error: TableError) -> LedgerError {
        LedgerError::table(&self.path, error)
    }

    /// An entry of the metadata.
    pub fn entry(&self, key: &'static str) -> Result<String, LedgerError> {
        let entries = self.reader.metadata().file_metadata().key_value_metadata();
        entries
            .and_then(|entries| entries.iter().find(|entry| entry.key == format!("expctl.{key}")))
            .and_then(|entry| entry.value.clone())
            .ok_or_else(|| self.error(TableError::NoEntry { key }))
    }

    /// An entry of the metadata that is a number.
    pub fn number(&self, key: &'static str) -> Result<u32, LedgerError> {
        self.entry(key)?.parse().map_err(|source| self.error(TableError::NoNumber { key, source }))
    }

    /// Read the columns whose names are `wanted`, in the order of the file. Columns of other types than those of [`ColumnValues`] are left out.
    pub fn columns(&self, wanted: impl Fn(&str) -> bool) -> Result<Columns, LedgerError> {
        without_panics(|| self.decode(wanted)).map_err(|e| LedgerError::table(&self.path, e))
    }

    fn decode(&self, wanted: impl Fn(&str) -> bool) -> Result<Columns, ParquetError> {
        let mut all = Columns { rows: 0, columns: Vec::new() };
        for g in 0..self.reader.num_row_groups() {
            let group = self.reader.get_row_group(g)?;
            let rows = group.metadata().num_rows() as usize;
            all.rows += rows;
            for c in 0..group.num_columns() {
                let description = group.metadata().column(c).column_descr_ptr();
                let (name, optional) = (description.name(), description.max_def_level() > 0);
                if !wanted(name) {
                    continue;
                }
                match (group.get_column_reader(c)?, optional) {
                    (ColumnReader::Int64ColumnReader(mut reader), false) => {
                        if let ColumnValues::Integers(values) = all.cells(name, || ColumnValues::Integers(Vec::new())) {
                            reader.read_records(rows, None, None, values)?;
                        }
                    }
                    (ColumnReader::BoolColumnReader(mut reader), false) => {
                        if let ColumnValues::Booleans(values) = all.cells(name, || ColumnValues::Booleans(Vec::new())) {
                            reader.read_records(rows, None, None, values)?;
                        }
                    }
                    (ColumnReader::Int64ColumnReader(reader), true) => {
                        if let ColumnValues::OptionalIntegers(cells) =
                            all.cells(name, || ColumnValues::OptionalIntegers(OptionalCells::default()))
                        {
                            read_optional(reader, rows, cells)?;
                        }
                    }
                    (ColumnReader::DoubleColumnReader(reader), true) => {
                        if let ColumnValues::OptionalReals(cells) =
                            all.cells(name, || ColumnValues::OptionalReals(OptionalCells::default()))
                        {
                            read_optional(reader, rows, cells)?;
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok(all)
    }
}

fn read_optional<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    rows: usize,
    cells: &mut OptionalCells<T::T>,
) -> Result<(), ParquetError> {
    // Each row group appends to both vectors.
    reader.read_records(rows, Some(&mut cells.present), None, &mut cells.values)?;
    Ok(())
}

/// Columns that were read from a table.
///
/// Invariant: each has a cell for each of `rows` rows; the parquet reader refuses a file in which they differ.
pub(crate) struct Columns {
    pub rows: usize,
    columns: Vec<TableColumn>,
}

impl Columns {
    /// The cells of a column that grows while row groups are read.
    fn cells(&mut self, name: &str, empty: impl FnOnce() -> ColumnValues) -> &mut ColumnValues {
        let index = self.columns.iter().position(|column| column.name == name).unwrap_or_else(|| {
            self.columns.push(TableColumn { name: name.to_owned(), cells: empty() });
            self.columns.len() - 1
        });
        &mut self.columns[index].cells
    }

    /// All columns, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &TableColumn> {
        self.columns.iter()
    }

    fn get(&self, name: &str) -> Option<&ColumnValues> {
        self.columns.iter().find(|column| column.name == name).map(|column| &column.cells)
    }

    /// A column of integers without nulls. `None`: the file does not have it.
    pub fn integers(&self, name: &str) -> Option<&[i64]> {
        match self.get(name)? {
            ColumnValues::Integers(values) => Some(values),
            _ => None,
        }
    }

    /// A column of booleans. `None`: the file does not have it.
    pub fn booleans(&self, name: &str) -> Option<&[bool]> {
        match self.get(name)? {
            ColumnValues::Booleans(values) => Some(values),
            _ => None,
        }
    }

    /// A column of integers with nulls. `None`: the file does not have it.
    pub fn optional_integers(&self, name: &str) -> Option<&OptionalCells<i64>> {
        match self.get(name)? {
            ColumnValues::OptionalIntegers(cells) => Some(cells),
            _ => None,
        }
    }

    /// A column of reals with nulls. `None`: the file does not have it.
    pub fn optional_reals(&self, name: &str) -> Option<&OptionalCells<f64>> {
        match self.get(name)? {
            ColumnValues::OptionalReals(cells) => Some(cells),
            _ => None,
        }
    }
}
