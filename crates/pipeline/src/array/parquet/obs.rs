use std::collections::{BTreeSet, HashMap};
use std::io::Cursor;
use std::sync::Arc;

use bytes::Bytes;
use parquet::column::reader::{ColumnReaderImpl, get_column_reader, get_typed_column_reader};
use parquet::data_type::{BoolType, ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;

use super::file::ParquetFile;
use super::layout::ObsLeaf;
use super::numeric::Numeric;
use crate::array::Labels;

/// A column of obs as classes. `categories` are the names of its classes, if the file has noted them.
pub(super) fn labels(file: &ParquetFile, leaf: ObsLeaf, categories: Option<&Vec<String>>) -> Result<Labels, String> {
    let column = leaf.column();
    match leaf {
        ObsLeaf::Text(_) => {
            let texts = values::<ByteArrayType>(file, column)?;
            let texts: Result<Vec<Option<&str>>, String> = texts
                .iter()
                .map(|text| text.as_ref().map(|text| text.as_utf8().map_err(|e| e.to_string())).transpose())
                .collect();
            classes(&texts?, |text| (*text).to_owned(), categories)
        }
        ObsLeaf::Bool(_) => {
            let name = |value: &bool| if *value { "True".to_owned() } else { "False".to_owned() };
            classes(&values::<BoolType>(file, column)?, name, categories)
        }
        ObsLeaf::Number(_, Numeric::F32 | Numeric::F64) => {
            Err("it holds numbers with fractions: they are no classes".to_owned())
        }
        ObsLeaf::Number(_, numeric) => {
            let values = integers(file, column, numeric)?;
            classes(&values, i128::to_string, categories)
        }
    }
}

/// A column of obs as numbers; NaN where there is none.
pub(super) fn numbers(file: &ParquetFile, leaf: ObsLeaf) -> Result<Vec<f64>, String> {
    fn floats<T>(values: Vec<Option<T>>, convert: impl Fn(T) -> f64) -> Vec<f64> {
        values.into_iter().map(|value| value.map_or(f64::NAN, &convert)).collect()
    }
    match leaf {
        ObsLeaf::Text(_) => Err("it holds text, not numbers".to_owned()),
        ObsLeaf::Bool(column) => Ok(floats(values::<BoolType>(file, column)?, |value| f64::from(u8::from(value)))),
        ObsLeaf::Number(column, Numeric::F32) => Ok(floats(values::<FloatType>(file, column)?, f64::from)),
        ObsLeaf::Number(column, Numeric::F64) => Ok(floats(values::<DoubleType>(file, column)?, |value| value)),
        ObsLeaf::Number(column, numeric) => Ok(floats(integers(file, column, numeric)?, |value| value as f64)),
    }
}

/// Codes of the values: the place in `categories`, or else among the different values, ascending.
fn classes<T: Ord + std::hash::Hash>(
    values: &[Option<T>],
    name: impl Fn(&T) -> String,
    categories: Option<&Vec<String>>,
) -> Result<Labels, String> {
    let different: BTreeSet<&T> = values.iter().flatten().collect();
    let names = || different.iter().map(|value| name(value)).collect();
    let categories: Vec<String> = categories.cloned().unwrap_or_else(names);
    let places: HashMap<&str, i32> = categories.iter().map(String::as_str).zip(0..).collect();
    let mut codes = HashMap::new();
    for value in different {
        let name = name(value);
        let code = places.get(name.as_str()).ok_or_else(|| format!("'{name}' is none of its categories"))?;
        codes.insert(value, *code);
    }
    let codes = values.iter().map(|value| value.as_ref().and_then(|value| codes.get(value)).map_or(-1, |code| *code));
    let codes = codes.collect();
    Ok(Labels { categories, codes })
}

fn integers(file: &ParquetFile, column: usize, numeric: Numeric) -> Result<Vec<Option<i128>>, String> {
    fn all<T>(values: Vec<Option<T>>, convert: impl Fn(T) -> i128) -> Vec<Option<i128>> {
        values.into_iter().map(|value| value.map(&convert)).collect()
    }
    Ok(match numeric {
        Numeric::I32 => all(values::<Int32Type>(file, column)?, i128::from),
        Numeric::U32 => all(values::<Int32Type>(file, column)?, |value| i128::from(value as u32)),
        Numeric::I64 => all(values::<Int64Type>(file, column)?, i128::from),
        Numeric::U64 => all(values::<Int64Type>(file, column)?, |value| i128::from(value as u64)),
        Numeric::F32 | Numeric::F64 => return Err("it holds numbers with fractions".to_owned()),
    })
}

/// All values of a column with one value a row.
fn values<T: DataType>(file: &ParquetFile, column: usize) -> Result<Vec<Option<T::T>>, String> {
    let mut all = Vec::new();
    for (number, group) in file.metadata.row_groups().iter().enumerate() {
        let chunk = file.chunk(number, column).map_err(|e| e.to_string())?;
        let rows = usize::try_from(group.num_rows()).map_err(|e| e.to_string())?;
        let mut bytes = vec![0; (chunk.bytes.end - chunk.bytes.start) as usize];
        file.read(chunk.bytes.start, &mut bytes).map_err(|e| e.to_string())?;
        let region = Arc::new(Region { start: chunk.bytes.start, bytes: bytes.into() });
        let failed = |e: ParquetError| format!("row group {number}: {e}");
        let pages = SerializedPageReader::new(region, group.column(column), rows, None).map_err(failed)?;
        let descriptor = group.column(column).column_descr_ptr();
        let max = descriptor.max_def_level();
        let mut reader: ColumnReaderImpl<T> = get_typed_column_reader(get_column_reader(descriptor, Box::new(pages)));
        let (mut values, mut levels) = (Vec::new(), Vec::new());
        let mut done = 0;
        while done < rows {
            let levels = (max > 0).then_some(&mut levels);
            let (records, ..) = reader.read_records(rows - done, levels, None, &mut values).map_err(failed)?;
            if records == 0 {
                return Err(format!("row group {number}: it has {done} values for {rows} rows"));
            }
            done += records;
        }
        if max == 0 {
            all.extend(values.into_iter().map(Some));
        } else {
            let mut values = values.into_iter();
            all.extend(levels.iter().map(|level| if *level == max { values.next() } else { None }));
        }
    }
    Ok(all)
}

/// Bytes of a file from `start` on.
struct Region {
    start: u64,
    bytes: Bytes,
}

impl Length for Region {
    fn len(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl Region {
    fn from(&self, offset: u64) -> Result<Bytes, ParquetError> {
        let at = offset.checked_sub(self.start).and_then(|at| usize::try_from(at).ok());
        let at = at.filter(|at| *at <= self.bytes.len()).ok_or_else(|| ParquetError::EOF("a page is outside its column".to_owned()))?;
        Ok(self.bytes.slice(at..))
    }
}

impl ChunkReader for Region {
    type T = Cursor<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(Cursor::new(self.from(start)?))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let from = self.from(start)?;
        if length > from.len() {
            return Err(ParquetError::EOF("a page is cut short".to_owned()));
        }
        Ok(from.slice(..length))
    }
}
