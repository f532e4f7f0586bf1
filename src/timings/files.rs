//! Reading batch times from parquet and CSV files.

use std::cell::Cell;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::rc::Rc;

use expctl_ledger::without_panics;
use parquet::basic::{ConvertedType, LogicalType};
use parquet::column::reader::ColumnReader;
use parquet::data_type::{ByteArray, FixedLenByteArray};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::schema::types::{ColumnDescPtr, ColumnDescriptor};

use super::batch_times::BatchTimes;
use super::source::{
    ALL_ROWS, CellProblem, ColumnIndices, FileProblem, TimeUnit, TimingsClass, TimingsColumns, TimingsError,
    TimingsSource, batch_in_range, described, seconds,
};

/// Rows that are decoded at a time.
const BLOCK_ROWS: usize = 1 << 16;

/// Key of a file's metadata for the class of its times; `generated` for those that nobody measured.
pub const CLASS_KEY: &str = "expctl.class";

/// Label of rows that have no method or epoch: a null of a parquet file, an empty field of a CSV file. They are a group of their own.
const NO_LABEL: &str = "null";

/// Read a parquet or CSV file, which its first bytes tell apart.
///
/// # Errors
/// [`TimingsError`] if the file cannot be read, lacks a column, has a value that is no time or batch number, or has no rows.
pub fn read_file(path: &Path, columns: &TimingsColumns) -> Result<(TimingsSource, BatchTimes), TimingsError> {
    let unreadable = |e: std::io::Error| TimingsError::Read { path: path.to_owned(), reason: FileProblem::Io(e) };
    let mut first = Vec::new();
    std::fs::File::open(path).map_err(unreadable)?.take(4).read_to_end(&mut first).map_err(unreadable)?;
    let (source, store) = if first == *b"PAR1" { read_parquet(path, columns)? } else { read_csv(path, columns)? };
    if store.series().is_empty() {
        return Err(TimingsError::Empty { path: path.to_owned() });
    }
    Ok((source, store))
}

/// Maximum bytes of a record of a CSV file, beside those that are buffered.
const MAX_RECORD: u64 = 1 << 20;

/// A file whose records have at most [`MAX_RECORD`] bytes. Without it, a file without line ends, or one with a quote that nothing closes,
/// would be read into memory whole.
struct BoundedRecords {
    file: File,
    /// Bytes that were read since the last whole record.
    since_record: Rc<Cell<u64>>,
}

impl Read for BoundedRecords {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.since_record.get() > MAX_RECORD {
            let problem = "a line, or a field in quotes, has more than 1 MiB";
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, problem));
        }
        let bytes = self.file.read(buffer)?;
        self.since_record.update(|since| since + bytes as u64);
        Ok(bytes)
    }
}

/// Read the times of a CSV file with a header, a line at a time.
///
/// # Errors
/// [`TimingsError`] with the line, if the file cannot be read, lacks a column, or has a value that is no time or batch number.
fn read_csv(path: &Path, columns: &TimingsColumns) -> Result<(TimingsSource, BatchTimes), TimingsError> {
    let fail = |e: csv::Error| {
        let line = e.position().map_or(0, csv::Position::line);
        let reason = match e.kind() {
            csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
                FileProblem::FieldCount { line, fields: *len, expected: *expected_len }
            }
            csv::ErrorKind::Utf8 { .. } => FileProblem::NotText { line },
            _ => FileProblem::Csv(e),
        };
        TimingsError::Read { path: path.to_owned(), reason }
    };
    let file = File::open(path).map_err(|e| fail(e.into()))?;
    let since_record = Rc::new(Cell::new(0));
    let bounded = BoundedRecords { file, since_record: Rc::clone(&since_record) };
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(bounded);
    let names: Vec<String> = reader.headers().map_err(fail)?.iter().map(str::to_owned).collect();
    let places = columns.find(path, &names)?;
    let mut store = BatchTimes::new(path);
    let mut record = csv::StringRecord::new();
    let mut last: Option<(String, String, u32, u32)> = None;
    while reader.read_record(&mut record).map_err(fail)? {
        since_record.set(0);
        let text = |place: usize| record.get(place).unwrap_or_default();
        let label = |place: usize| Some(text(place)).filter(|label| !label.is_empty()).unwrap_or(NO_LABEL);
        let wrong = |place: usize, problem: CellProblem| TimingsError::Cell {
            path: path.to_owned(),
            location: format!("line {}", record.position().map_or(0, csv::Position::line)),
            column: names[place].clone(),
            problem,
        };
        let method = places.method.map_or(ALL_ROWS, label);
        let epoch = places.epoch.map_or(ALL_ROWS, label);
        let (method, epoch) = match &last {
            Some((m, e, m_id, e_id)) if m == method && e == epoch => (*m_id, *e_id),
            _ => {
                let ids = (store.method_id(method), store.epoch_id(epoch));
                last = Some((method.to_owned(), epoch.to_owned(), ids.0, ids.1));
                ids
            }
        };
        let batch = match places.batch {
            None => None,
            Some(place) => {
                let not_a_number = |_| CellProblem::NotABatchNumber { value: format!("'{}'", text(place)) };
                let number = text(place).parse::<u64>().map_err(not_a_number);
                Some(number.and_then(batch_in_range).map_err(|problem| wrong(place, problem))?)
            }
        };
        let value = text(places.time);
        let value = match value.parse::<f64>() {
            Ok(value) => seconds(value, columns.unit),
            Err(_) => Err(CellProblem::NotANumber { text: value.to_owned() }),
        };
        let value = value.map_err(|problem| wrong(places.time, problem))?;
        store.push(method, epoch, batch, value)?;
    }
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    Ok((
        TimingsSource { name, class: TimingsClass::Imported, columns: described(&names, &places, columns.unit) },
        store,
    ))
}

/// Read the times of a parquet file, row group by row group. Columns that are not needed are not read.
///
/// # Errors
/// [`TimingsError`] if the file is no parquet, lacks a column, or has a value that is no time or batch number.
fn read_parquet(path: &Path, columns: &TimingsColumns) -> Result<(TimingsSource, BatchTimes), TimingsError> {
    let fail = |reason: FileProblem| TimingsError::Read { path: path.to_owned(), reason };
    let file = File::open(path).map_err(|e| fail(FileProblem::Io(e)))?;
    let reader = without_panics(|| SerializedFileReader::new(file)).map_err(|e| fail(FileProblem::Parquet(e)))?;
    let metadata = reader.metadata().file_metadata();
    let schema = metadata.schema_descr();
    let leaves: Vec<ColumnDescPtr> = schema.columns().to_vec();
    // Nested columns have a dotted path, and not one value per row.
    let names: Vec<String> = leaves.iter().map(|leaf| leaf.path().string()).collect();
    let places = columns.find(path, &names)?;
    let generated = metadata
        .key_value_metadata()
        .and_then(|all| all.iter().find(|entry| entry.key == CLASS_KEY))
        .is_some_and(|entry| entry.value.as_deref() == Some(TimingsClass::Generated.name()));
    let mut rows = RowReader {
        path,
        unit: columns.unit,
        leaves: &leaves,
        store: BatchTimes::new(path),
        row: 0,
        method: LabelIds::default(),
        epoch: LabelIds::default(),
    };
    for g in 0..reader.num_row_groups() {
        let group = reader.get_row_group(g).map_err(|e| fail(FileProblem::Parquet(e)))?;
        let added = without_panics(|| Ok::<_, ParquetError>(rows.add_group(group.as_ref(), &places)));
        added.map_err(|e| fail(FileProblem::Parquet(e)))??;
    }
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let class = if generated { TimingsClass::Generated } else { TimingsClass::Imported };
    Ok((TimingsSource { name, class, columns: described(&names, &places, columns.unit) }, rows.store))
}

/// Reads row groups into a store.
struct RowReader<'a> {
    path: &'a Path,
    unit: TimeUnit,
    leaves: &'a [ColumnDescPtr],
    store: BatchTimes,
    row: u64,
    method: LabelIds,
    epoch: LabelIds,
}

/// A column that is being read.
struct OpenColumn {
    index: usize,
    reader: ColumnReader,
}

impl RowReader<'_> {
    fn add_group(&mut self, group: &dyn RowGroupReader, places: &ColumnIndices) -> Result<(), TimingsError> {
        let mut left = group.metadata().num_rows() as usize;
        let open = |index: usize| {
            let reader = group.get_column_reader(index).map_err(|e| self.unreadable(e))?;
            Ok::<OpenColumn, TimingsError>(OpenColumn { index, reader })
        };
        let mut method = places.method.map(open).transpose()?;
        let mut epoch = places.epoch.map(open).transpose()?;
        let mut batch = places.batch.map(open).transpose()?;
        let mut time = open(places.time)?;
        while left > 0 {
            let rows = left.min(BLOCK_ROWS);
            let methods = method.as_mut().map(|open| self.cells(open, rows)).transpose()?;
            let epochs = epoch.as_mut().map(|open| self.cells(open, rows)).transpose()?;
            let batches = batch.as_mut().map(|open| self.numbers(open, rows)).transpose()?;
            let times = self.numbers(&mut time, rows)?;
            for row in 0..times.len() {
                let method = self.method.id(methods.as_ref().and_then(|m| m.get(row)), |n| self.store.method_id(n));
                let epoch = self.epoch.id(epochs.as_ref().and_then(|e| e.get(row)), |n| self.store.epoch_id(n));
                let batch = match batches.as_ref().and_then(|b| b.get(row)) {
                    None => None,
                    Some(cell) => Some(
                        batch_number(cell).map_err(|problem| self.wrong(places.batch.unwrap_or_default(), problem))?,
                    ),
                };
                let value = match times.get(row) {
                    Some(ColumnCell::Integer(value)) => Ok(value as f64),
                    Some(ColumnCell::Real(value)) => Ok(value),
                    _ => Err(CellProblem::Text),
                };
                let value = value.and_then(|value| seconds(value, self.unit));
                let value = value.map_err(|problem| self.wrong(places.time, problem))?;
                self.store.push(method, epoch, batch, value)?;
                self.row += 1;
            }
            left -= rows;
        }
        Ok(())
    }

    /// Values of a column in which every row has one.
    fn numbers(&self, open: &mut OpenColumn, rows: usize) -> Result<ColumnCells, TimingsError> {
        let cells = self.cells(open, rows)?;
        match cells.value_of_row.as_ref().and_then(|values| values.iter().position(Option::is_none)) {
            Some(row) => {
                let location = format!("row {} (from 0)", self.row + row as u64);
                Err(self.cell_error(open.index, location, CellProblem::Null))
            }
            None => Ok(cells),
        }
    }

    fn cells(&self, open: &mut OpenColumn, rows: usize) -> Result<ColumnCells, TimingsError> {
        read_cells(&mut open.reader, &self.leaves[open.index], rows).map_err(|e| match e {
            CellsError::Parquet(e) => self.unreadable(e),
            CellsError::Type(kind) => {
                self.cell_error(open.index, "schema".into(), CellProblem::UnsupportedType { kind })
            }
        })
    }

    fn wrong(&self, column: usize, problem: CellProblem) -> TimingsError {
        self.cell_error(column, format!("row {} (from 0)", self.row), problem)
    }

    fn cell_error(&self, column: usize, location: String, problem: CellProblem) -> TimingsError {
        let column = self.leaves[column].name().to_owned();
        TimingsError::Cell { path: self.path.to_owned(), location, column, problem }
    }

    fn unreadable(&self, e: ParquetError) -> TimingsError {
        TimingsError::Read { path: self.path.to_owned(), reason: FileProblem::Parquet(e) }
    }
}

fn batch_number(cell: ColumnCell<'_>) -> Result<u64, CellProblem> {
    let wrong = |value: String| CellProblem::NotABatchNumber { value };
    match cell {
        ColumnCell::Integer(value) => {
            u64::try_from(value).map_err(|_| wrong(value.to_string())).and_then(batch_in_range)
        }
        // pandas turns integers with gaps into reals.
        ColumnCell::Real(value) if value >= 0.0 && value.fract() == 0.0 => batch_in_range(value as u64),
        ColumnCell::Real(value) => Err(wrong(value.to_string())),
        ColumnCell::Text(text) => Err(wrong(format!("'{}'", String::from_utf8_lossy(text)))),
        ColumnCell::Null => Err(CellProblem::Null),
    }
}

/// Ids of the labels of a column. Keeps the last one, which most rows share with the row before.
#[derive(Default)]
struct LabelIds {
    last: Option<(LabelKey, u32)>,
}

/// A label as it was read.
enum LabelKey {
    None,
    Null,
    Integer(i64),
    Real(f64),
    Text(Vec<u8>),
}

impl LabelIds {
    fn id(&mut self, cell: Option<ColumnCell<'_>>, id: impl FnOnce(&str) -> u32) -> u32 {
        if let Some((key, last)) = &self.last {
            let same = match (key, &cell) {
                (LabelKey::None, None) | (LabelKey::Null, Some(ColumnCell::Null)) => true,
                (LabelKey::Integer(a), Some(ColumnCell::Integer(b))) => a == b,
                (LabelKey::Real(a), Some(ColumnCell::Real(b))) => a == b,
                (LabelKey::Text(a), Some(ColumnCell::Text(b))) => a == b,
                _ => false,
            };
            if same {
                return *last;
            }
        }
        let (key, name) = match cell {
            None => (LabelKey::None, ALL_ROWS.to_owned()),
            Some(ColumnCell::Null) => (LabelKey::Null, NO_LABEL.to_owned()),
            Some(ColumnCell::Integer(value)) => (LabelKey::Integer(value), value.to_string()),
            Some(ColumnCell::Real(value)) => (LabelKey::Real(value), value.to_string()),
            Some(ColumnCell::Text(text)) => (LabelKey::Text(text.to_vec()), String::from_utf8_lossy(text).into_owned()),
        };
        let id = id(&name);
        self.last = Some((key, id));
        id
    }
}

/// Some rows of one column.
struct ColumnCells {
    values: CellValues,
    /// The value of each row, by its place in `values`; none: every row has one, in order.
    value_of_row: Option<Vec<Option<usize>>>,
}

impl ColumnCells {
    fn len(&self) -> usize {
        self.value_of_row.as_ref().map_or_else(|| self.values.len(), Vec::len)
    }

    fn get(&self, row: usize) -> Option<ColumnCell<'_>> {
        match &self.value_of_row {
            None => self.values.get(row),
            Some(values) => match values.get(row)? {
                Some(value) => self.values.get(*value),
                None => Some(ColumnCell::Null),
            },
        }
    }
}

/// The values of a column, nulls left out.
enum CellValues {
    Integers(Vec<i64>),
    Reals(Vec<f64>),
    Texts(Vec<ByteArray>),
}

/// A value of a column.
#[derive(Clone, Copy, PartialEq)]
enum ColumnCell<'a> {
    Integer(i64),
    Real(f64),
    Text(&'a [u8]),
    Null,
}

impl CellValues {
    fn len(&self) -> usize {
        match self {
            Self::Integers(values) => values.len(),
            Self::Reals(values) => values.len(),
            Self::Texts(values) => values.len(),
        }
    }

    fn get(&self, row: usize) -> Option<ColumnCell<'_>> {
        match self {
            Self::Integers(values) => values.get(row).copied().map(ColumnCell::Integer),
            Self::Reals(values) => values.get(row).copied().map(ColumnCell::Real),
            Self::Texts(values) => values.get(row).map(|text| ColumnCell::Text(text.data())),
        }
    }
}

/// Why the values of a column cannot be read.
enum CellsError {
    Parquet(ParquetError),
    /// A type that is not read.
    Type(&'static str),
}

impl From<ParquetError> for CellsError {
    fn from(e: ParquetError) -> Self {
        Self::Parquet(e)
    }
}

/// The next `rows` values of a column.
fn read_cells(reader: &mut ColumnReader, column: &ColumnDescriptor, rows: usize) -> Result<ColumnCells, CellsError> {
    let mut present = Vec::new();
    macro_rules! values {
        ($reader:expr) => {{
            let mut values = Vec::new();
            let mut read = 0;
            while read < rows {
                let (records, ..) = $reader.read_records(rows - read, Some(&mut present), None, &mut values)?;
                if records == 0 {
                    return Err(ParquetError::EOF(format!("column {} ends early", column.name())).into());
                }
                read += records;
            }
            values
        }};
    }
    let scale = scale(column).map(|scale| 10f64.powi(scale));
    let whole = |values: Vec<i64>| match scale {
        Some(scale) => CellValues::Reals(values.into_iter().map(|v| v as f64 / scale).collect()),
        None => CellValues::Integers(values),
    };
    let values = match reader {
        ColumnReader::BoolColumnReader(r) => CellValues::Integers(values!(r).into_iter().map(i64::from).collect()),
        ColumnReader::Int32ColumnReader(r) => {
            let values: Vec<i32> = values!(r);
            let unsigned = is_unsigned(column);
            whole(values.into_iter().map(|v| if unsigned { i64::from(v as u32) } else { i64::from(v) }).collect())
        }
        ColumnReader::Int64ColumnReader(r) => whole(values!(r)),
        ColumnReader::FloatColumnReader(r) => CellValues::Reals(values!(r).into_iter().map(f64::from).collect()),
        ColumnReader::DoubleColumnReader(r) => CellValues::Reals(values!(r)),
        ColumnReader::ByteArrayColumnReader(r) => match scale {
            Some(scale) => {
                let values: Vec<ByteArray> = values!(r);
                CellValues::Reals(values.iter().map(|v| big_endian(v.data()) / scale).collect())
            }
            None => CellValues::Texts(values!(r)),
        },
        ColumnReader::FixedLenByteArrayColumnReader(r) => {
            let values: Vec<FixedLenByteArray> = values!(r);
            match (scale, column.logical_type_ref()) {
                (Some(scale), _) => CellValues::Reals(values.iter().map(|v| big_endian(v.data()) / scale).collect()),
                (None, Some(LogicalType::Float16)) => {
                    CellValues::Reals(values.iter().map(|v| half(v.data())).collect())
                }
                _ => return Err(CellsError::Type("bytes of fixed length")),
            }
        }
        ColumnReader::Int96ColumnReader(_) => return Err(CellsError::Type("a moment (INT96)")),
    };
    // Required columns have no levels.
    let value_of_row = present.iter().any(|level| *level < column.max_def_level()).then(|| {
        let mut next = 0..;
        present.iter().map(|level| if *level < column.max_def_level() { None } else { next.next() }).collect()
    });
    Ok(ColumnCells { values, value_of_row })
}

/// Digits behind the point of a decimal column.
fn scale(column: &ColumnDescriptor) -> Option<i32> {
    match column.logical_type_ref() {
        Some(LogicalType::Decimal(decimal)) => Some(decimal.scale),
        _ => (column.converted_type() == ConvertedType::DECIMAL).then(|| column.type_scale()),
    }
}

fn is_unsigned(column: &ColumnDescriptor) -> bool {
    matches!(column.converted_type(), ConvertedType::UINT_8 | ConvertedType::UINT_16 | ConvertedType::UINT_32)
}

/// A two's complement integer of any length.
fn big_endian(bytes: &[u8]) -> f64 {
    let negative = bytes.first().is_some_and(|b| *b >= 0x80);
    let value = bytes.iter().fold(0.0, |value, byte| value * 256.0 + f64::from(*byte));
    if negative { value - 256f64.powi(bytes.len() as i32) } else { value }
}

/// An IEEE half, little-endian.
fn half(bytes: &[u8]) -> f64 {
    let bits = u16::from_le_bytes([bytes.first().copied().unwrap_or(0), bytes.get(1).copied().unwrap_or(0)]);
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, mantissa) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    sign * match exponent {
        0 => mantissa * 2f64.powi(-24),
        31 if mantissa == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + mantissa) * 2f64.powi(exponent - 25),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::data_type::{ByteArrayType, DoubleType};
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;

    #[test]
    fn rows_without_a_label_are_a_group_and_rows_without_a_time_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let columns = TimingsColumns {
            method: Some("uri".into()),
            epoch: None,
            batch: None,
            time: Some("elapsed".into()),
            unit: TimeUnit::S,
        };
        let csv = folder.path().join("times.csv");
        std::fs::write(&csv, "uri,elapsed\na,1\n,2\na,3\n").unwrap();
        assert_eq!(read_file(&csv, &columns).unwrap().1.methods(), ["a", NO_LABEL]);

        let write = |name: &str, times: &[f64], present: &[i16]| {
            let path = folder.path().join(name);
            let message = "message times { optional binary uri (UTF8); optional double elapsed; }";
            let schema = Arc::new(parse_message_type(message).unwrap());
            let mut writer = SerializedFileWriter::new(File::create(&path).unwrap(), schema, Arc::default()).unwrap();
            let mut group = writer.next_row_group().unwrap();
            let mut column = group.next_column().unwrap().unwrap();
            let labels = [ByteArray::from("a"), ByteArray::from("b")];
            column.typed::<ByteArrayType>().write_batch(&labels, Some(&[0, 1, 0, 1]), None).unwrap();
            column.close().unwrap();
            let mut column = group.next_column().unwrap().unwrap();
            column.typed::<DoubleType>().write_batch(times, Some(present), None).unwrap();
            column.close().unwrap();
            group.close().unwrap();
            writer.close().unwrap();
            path
        };
        let whole = read_file(&write("whole.parquet", &[1.0, 2.0, 3.0, 4.0], &[1, 1, 1, 1]), &columns).unwrap();
        assert_eq!(whole.1.methods(), [NO_LABEL, "a", "b"]);
        let gap = read_file(&write("gap.parquet", &[1.0, 2.0, 4.0], &[1, 1, 0, 1]), &columns).unwrap_err();
        assert!(gap.to_string().contains("row 2 (from 0)") && gap.to_string().contains("no value (null)"), "{gap}");
    }

    #[test]
    fn halves_and_decimals_are_those_of_numpy() {
        // numpy.float16([1.5, -2, 6e-8, 65504]).tobytes()
        let halves: [([u8; 2], f64); 4] =
            [([0, 0x3e], 1.5), ([0, 0xc0], -2.0), ([1, 0], 5.960464477539063e-8), ([0xff, 0x7b], 65504.0)];
        halves.iter().for_each(|(bytes, value)| assert!(half(bytes) == *value));
        assert!(big_endian(&[0x01, 0x00]) == 256.0 && big_endian(&[0xff, 0xfe]) == -2.0);
    }
}
