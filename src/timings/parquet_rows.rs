use std::fs::File;
use std::path::Path;

use parquet::column::reader::ColumnReader;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::schema::types::ColumnDescPtr;

use super::columns::{Places, batch_in_range, seconds};
use super::parquet_cells::{Cell, Cells, CellsError, read_cells};
use super::source::described;
use super::{Class, Columns, Source, Store, TimingsError};

/// Rows that are decoded at a time.
const BLOCK: usize = 1 << 16;

/// Key of a file's metadata that says what its times are; `generated` for those that nobody measured.
pub(super) const CLASS_KEY: &str = "expctl.class";

/// Read the times of a parquet file, row group by row group; other columns than those named are not looked at.
///
/// # Errors
/// A file that is no parquet, a column that is missing, a value that is no time or batch number.
pub fn read_parquet(path: &Path, columns: &Columns) -> Result<(Source, Store), TimingsError> {
    let fail = |reason: String| TimingsError::Read { path: path.to_owned(), reason };
    let file = File::open(path).map_err(|e| fail(e.to_string()))?;
    let reader = SerializedFileReader::new(file).map_err(|e| fail(e.to_string()))?;
    let metadata = reader.metadata().file_metadata();
    let schema = metadata.schema_descr();
    let leaves: Vec<ColumnDescPtr> = schema.columns().to_vec();
    // Nested columns have a dotted path, and no single value a row.
    let names: Vec<String> = leaves.iter().map(|leaf| leaf.path().string()).collect();
    let places = columns.find(path, &names)?;
    let generated = metadata
        .key_value_metadata()
        .and_then(|all| all.iter().find(|entry| entry.key == CLASS_KEY))
        .is_some_and(|entry| entry.value.as_deref() == Some(Class::Generated.name()));
    let mut rows = Rows {
        path,
        unit: columns.unit,
        leaves: &leaves,
        store: Store::new(path),
        row: 0,
        method: Label::default(),
        epoch: Label::default(),
    };
    for g in 0..reader.num_row_groups() {
        let group = reader.get_row_group(g).map_err(|e| fail(e.to_string()))?;
        rows.add_group(group.as_ref(), &places)?;
    }
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let class = if generated { Class::Generated } else { Class::Imported };
    Ok((Source { name, class, columns: described(&names, &places, columns.unit) }, rows.store))
}

/// The rows so far.
struct Rows<'a> {
    path: &'a Path,
    unit: super::Unit,
    leaves: &'a [ColumnDescPtr],
    store: Store,
    row: u64,
    method: Label,
    epoch: Label,
}

/// A column that is being read.
struct Open {
    place: usize,
    reader: ColumnReader,
}

impl Rows<'_> {
    fn add_group(&mut self, group: &dyn RowGroupReader, places: &Places) -> Result<(), TimingsError> {
        let mut left = group.metadata().num_rows() as usize;
        let open = |place: usize| {
            let reader = group.get_column_reader(place).map_err(|e| self.unreadable(e))?;
            Ok::<Open, TimingsError>(Open { place, reader })
        };
        let mut method = places.method.map(open).transpose()?;
        let mut epoch = places.epoch.map(open).transpose()?;
        let mut batch = places.batch.map(open).transpose()?;
        let mut time = open(places.time)?;
        while left > 0 {
            let rows = left.min(BLOCK);
            let methods = method.as_mut().map(|open| self.cells(open, rows)).transpose()?;
            let epochs = epoch.as_mut().map(|open| self.cells(open, rows)).transpose()?;
            let batches = batch.as_mut().map(|open| self.cells(open, rows)).transpose()?;
            let times = self.cells(&mut time, rows)?;
            for row in 0..times.len() {
                let method = self.method.of(methods.as_ref().and_then(|m| m.get(row)), |n| self.store.method_id(n));
                let epoch = self.epoch.of(epochs.as_ref().and_then(|e| e.get(row)), |n| self.store.epoch_id(n));
                let batch = match batches.as_ref().and_then(|b| b.get(row)) {
                    None => None,
                    Some(cell) => Some(batch_number(cell).map_err(|problem| {
                        self.wrong(
                            places.batch.unwrap_or_default(),
                            problem,
                            "--batch NAME says which column counts the batches",
                        )
                    })?),
                };
                let value = match times.get(row) {
                    Some(Cell::Integer(value)) => Ok(value as f64),
                    Some(Cell::Real(value)) => Ok(value),
                    _ => Err("text where a number is expected".to_owned()),
                };
                let value = value.and_then(|value| seconds(value, self.unit));
                let value = value.map_err(|p| self.wrong(places.time, p, "times are finite and not negative"))?;
                self.store.push(method, epoch, batch, value)?;
                self.row += 1;
            }
            left -= rows;
        }
        Ok(())
    }

    fn cells(&self, open: &mut Open, rows: usize) -> Result<Cells, TimingsError> {
        read_cells(&mut open.reader, &self.leaves[open.place], rows).map_err(|e| match e {
            CellsError::Parquet(e) => self.unreadable(e),
            CellsError::Null(row) => {
                let place = format!("row {} (from 0)", self.row + row as u64);
                self.cell_error(open.place, place, "no value (null)".into(), "leave such rows out of the file")
            }
            CellsError::Type(found) => {
                self.cell_error(open.place, "schema".into(), format!("{found} is of no use here"), "")
            }
        })
    }

    fn wrong(&self, column: usize, problem: String, hint: &'static str) -> TimingsError {
        self.cell_error(column, format!("row {} (from 0)", self.row), problem, hint)
    }

    fn cell_error(&self, column: usize, place: String, problem: String, hint: &'static str) -> TimingsError {
        let column = self.leaves[column].name().to_owned();
        TimingsError::Cell { path: self.path.to_owned(), place, column, problem, hint }
    }

    fn unreadable(&self, e: impl std::fmt::Display) -> TimingsError {
        TimingsError::Read { path: self.path.to_owned(), reason: e.to_string() }
    }
}

fn batch_number(cell: Cell<'_>) -> Result<u64, String> {
    match cell {
        Cell::Integer(value) => {
            u64::try_from(value).map_err(|_| format!("{value} is no batch number")).and_then(batch_in_range)
        }
        // pandas makes reals of integers with gaps.
        Cell::Real(value) if value >= 0.0 && value.fract() == 0.0 => batch_in_range(value as u64),
        Cell::Real(value) => Err(format!("{value} is no batch number")),
        Cell::Text(text) => Err(format!("'{}' is no batch number", String::from_utf8_lossy(text))),
    }
}

/// The last label of a column with its number: most rows have that of the row before.
#[derive(Default)]
struct Label {
    last: Option<(Key, u32)>,
}

/// A label as it was read.
enum Key {
    None,
    Integer(i64),
    Real(f64),
    Text(Vec<u8>),
}

impl Label {
    fn of(&mut self, cell: Option<Cell<'_>>, id: impl FnOnce(&str) -> u32) -> u32 {
        if let Some((key, last)) = &self.last {
            let same = match (key, &cell) {
                (Key::None, None) => true,
                (Key::Integer(a), Some(Cell::Integer(b))) => a == b,
                (Key::Real(a), Some(Cell::Real(b))) => a == b,
                (Key::Text(a), Some(Cell::Text(b))) => a == b,
                _ => false,
            };
            if same {
                return *last;
            }
        }
        let (key, name) = match cell {
            None => (Key::None, super::words::ALL.to_owned()),
            Some(Cell::Integer(value)) => (Key::Integer(value), value.to_string()),
            Some(Cell::Real(value)) => (Key::Real(value), value.to_string()),
            Some(Cell::Text(text)) => (Key::Text(text.to_vec()), String::from_utf8_lossy(text).into_owned()),
        };
        let id = id(&name);
        self.last = Some((key, id));
        id
    }
}
