use parquet::basic::{ConvertedType, LogicalType};
use parquet::column::reader::ColumnReader;
use parquet::data_type::{ByteArray, FixedLenByteArray};
use parquet::errors::ParquetError;
use parquet::schema::types::ColumnDescriptor;

/// Values of some rows of one column.
pub(super) enum Cells {
    Integers(Vec<i64>),
    Reals(Vec<f64>),
    Texts(Vec<ByteArray>),
}

/// A value of a column, as far as it is of use here.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Cell<'a> {
    Integer(i64),
    Real(f64),
    Text(&'a [u8]),
}

impl Cells {
    pub fn len(&self) -> usize {
        match self {
            Self::Integers(values) => values.len(),
            Self::Reals(values) => values.len(),
            Self::Texts(values) => values.len(),
        }
    }

    pub fn get(&self, row: usize) -> Option<Cell<'_>> {
        match self {
            Self::Integers(values) => values.get(row).copied().map(Cell::Integer),
            Self::Reals(values) => values.get(row).copied().map(Cell::Real),
            Self::Texts(values) => values.get(row).map(|text| Cell::Text(text.data())),
        }
    }
}

/// Why a column's values could not be had.
pub(super) enum CellsError {
    Parquet(ParquetError),
    /// The first row, of those asked for, without a value.
    Null(usize),
    /// A type that is of no use here.
    Type(String),
}

impl From<ParquetError> for CellsError {
    fn from(e: ParquetError) -> Self {
        Self::Parquet(e)
    }
}

/// The next `rows` values of a column.
pub(super) fn read_cells(
    reader: &mut ColumnReader,
    column: &ColumnDescriptor,
    rows: usize,
) -> Result<Cells, CellsError> {
    macro_rules! values {
        ($reader:expr) => {{
            let (mut present, mut values) = (Vec::new(), Vec::new());
            let mut read = 0;
            while read < rows {
                let (records, ..) = $reader.read_records(rows - read, Some(&mut present), None, &mut values)?;
                if records == 0 {
                    return Err(ParquetError::EOF(format!("column {} ends early", column.name())).into());
                }
                read += records;
            }
            // Required columns have no levels.
            if let Some(row) = present.iter().position(|level| *level < column.max_def_level()) {
                return Err(CellsError::Null(row));
            }
            values
        }};
    }
    let scale = scale(column).map(|scale| 10f64.powi(scale));
    let whole = |values: Vec<i64>| match scale {
        Some(scale) => Cells::Reals(values.into_iter().map(|v| v as f64 / scale).collect()),
        None => Cells::Integers(values),
    };
    Ok(match reader {
        ColumnReader::BoolColumnReader(r) => Cells::Integers(values!(r).into_iter().map(i64::from).collect()),
        ColumnReader::Int32ColumnReader(r) => {
            let values: Vec<i32> = values!(r);
            let unsigned = is_unsigned(column);
            whole(values.into_iter().map(|v| if unsigned { i64::from(v as u32) } else { i64::from(v) }).collect())
        }
        ColumnReader::Int64ColumnReader(r) => whole(values!(r)),
        ColumnReader::FloatColumnReader(r) => Cells::Reals(values!(r).into_iter().map(f64::from).collect()),
        ColumnReader::DoubleColumnReader(r) => Cells::Reals(values!(r)),
        ColumnReader::ByteArrayColumnReader(r) => match scale {
            Some(scale) => {
                let values: Vec<ByteArray> = values!(r);
                Cells::Reals(values.iter().map(|v| big_endian(v.data()) / scale).collect())
            }
            None => Cells::Texts(values!(r)),
        },
        ColumnReader::FixedLenByteArrayColumnReader(r) => {
            let values: Vec<FixedLenByteArray> = values!(r);
            match (scale, column.logical_type_ref()) {
                (Some(scale), _) => Cells::Reals(values.iter().map(|v| big_endian(v.data()) / scale).collect()),
                (None, Some(LogicalType::Float16)) => Cells::Reals(values.iter().map(|v| half(v.data())).collect()),
                _ => return Err(CellsError::Type("bytes of fixed length".into())),
            }
        }
        ColumnReader::Int96ColumnReader(_) => return Err(CellsError::Type("a moment (INT96)".into())),
    })
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
    use super::*;

    #[test]
    fn halves_and_decimals_are_those_of_numpy() {
        // numpy.float16([1.5, -2, 6e-8, 65504]).tobytes()
        let halves: [([u8; 2], f64); 4] =
            [([0, 0x3e], 1.5), ([0, 0xc0], -2.0), ([1, 0], 5.960464477539063e-8), ([0xff, 0x7b], 65504.0)];
        halves.iter().for_each(|(bytes, value)| assert!(half(bytes) == *value));
        assert!(big_endian(&[0x01, 0x00]) == 256.0 && big_endian(&[0xff, 0xfe]) == -2.0);
    }
}
