use parquet::basic::{ConvertedType, LogicalType, Type as Physical};
use parquet::schema::types::ColumnDescriptor;

/// Type of the numbers of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Numeric {
    F32,
    F64,
    I32,
    U32,
    I64,
    U64,
}

impl Numeric {
    /// That of a column; nothing where it holds no plain numbers (dates, decimals, text).
    pub(super) fn of(column: &ColumnDescriptor) -> Option<Self> {
        let unsigned = match column.logical_type_ref() {
            Some(LogicalType::Integer(integer)) => !integer.is_signed,
            Some(_) => return None,
            None => match column.converted_type() {
                ConvertedType::NONE
                | ConvertedType::INT_8
                | ConvertedType::INT_16
                | ConvertedType::INT_32
                | ConvertedType::INT_64 => false,
                ConvertedType::UINT_8 | ConvertedType::UINT_16 | ConvertedType::UINT_32 | ConvertedType::UINT_64 => {
                    true
                }
                _ => return None,
            },
        };
        Some(match (column.physical_type(), unsigned) {
            (Physical::FLOAT, _) => Self::F32,
            (Physical::DOUBLE, _) => Self::F64,
            (Physical::INT32, false) => Self::I32,
            (Physical::INT32, true) => Self::U32,
            (Physical::INT64, false) => Self::I64,
            (Physical::INT64, true) => Self::U64,
            _ => return None,
        })
    }

    /// Bytes of a value.
    pub(super) const fn bytes(self) -> usize {
        match self {
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 => 8,
        }
    }

    pub(super) const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }
}

/// What numbers of a file become in memory.
pub(super) trait Element: bytemuck::Pod + Default + PartialOrd {
    /// Convert little-endian values of type `from`, as many as `out` has; `bytes` has as many.
    ///
    /// # Errors
    /// A value cannot be one of these.
    fn convert(from: Numeric, bytes: &[u8], out: &mut [Self]) -> Result<(), &'static str>;
}

macro_rules! each {
    ($type:ty, $bytes:expr, $out:expr, $convert:expr) => {
        for (from, out) in $bytes.chunks_exact(size_of::<$type>()).zip($out.iter_mut()) {
            let mut value = [0; size_of::<$type>()];
            value.copy_from_slice(from);
            *out = $convert(<$type>::from_le_bytes(value));
        }
    };
}

/// The bytes as they are.
fn copy<T: Element>(bytes: &[u8], out: &mut [T]) {
    let out: &mut [u8] = bytemuck::cast_slice_mut(out);
    out.copy_from_slice(&bytes[..out.len()]);
}

/// Values: numbers that float32 does not have become the nearest one.
impl Element for f32 {
    fn convert(from: Numeric, bytes: &[u8], out: &mut [Self]) -> Result<(), &'static str> {
        match from {
            Numeric::F32 => copy(bytes, out),
            Numeric::F64 => each!(f64, bytes, out, |value| value as Self),
            Numeric::I32 => each!(i32, bytes, out, |value| value as Self),
            Numeric::U32 => each!(u32, bytes, out, |value| value as Self),
            Numeric::I64 => each!(i64, bytes, out, |value| value as Self),
            Numeric::U64 => each!(u64, bytes, out, |value| value as Self),
        }
        Ok(())
    }
}

/// Numbers of obs.
impl Element for f64 {
    fn convert(from: Numeric, bytes: &[u8], out: &mut [Self]) -> Result<(), &'static str> {
        match from {
            Numeric::F32 => each!(f32, bytes, out, Self::from),
            Numeric::F64 => copy(bytes, out),
            Numeric::I32 => each!(i32, bytes, out, Self::from),
            Numeric::U32 => each!(u32, bytes, out, Self::from),
            Numeric::I64 => each!(i64, bytes, out, |value| value as Self),
            Numeric::U64 => each!(u64, bytes, out, |value| value as Self),
        }
        Ok(())
    }
}

/// Integers of obs, all of them.
impl Element for i128 {
    fn convert(from: Numeric, bytes: &[u8], out: &mut [Self]) -> Result<(), &'static str> {
        match from {
            Numeric::I32 => each!(i32, bytes, out, Self::from),
            Numeric::U32 => each!(u32, bytes, out, Self::from),
            Numeric::I64 => each!(i64, bytes, out, Self::from),
            Numeric::U64 => each!(u64, bytes, out, Self::from),
            Numeric::F32 | Numeric::F64 => return Err("numbers are no integers"),
        }
        Ok(())
    }
}

/// Numbers of genes: what int32 does not have becomes -1, which is none.
impl Element for i32 {
    fn convert(from: Numeric, bytes: &[u8], out: &mut [Self]) -> Result<(), &'static str> {
        match from {
            Numeric::I32 => copy(bytes, out),
            Numeric::U32 => each!(u32, bytes, out, |value| Self::try_from(value).unwrap_or(-1)),
            Numeric::I64 => each!(i64, bytes, out, |value| Self::try_from(value).unwrap_or(-1)),
            Numeric::U64 => each!(u64, bytes, out, |value| Self::try_from(value).unwrap_or(-1)),
            Numeric::F32 | Numeric::F64 => return Err("numbers of genes are no integers"),
        }
        Ok(())
    }
}
