//! `ColumnEncoding`: the encoding of an MDS column (`ndarray:int32`, `str`, `float64`, …), and the conversion of its little-endian bytes to
//! float32 values, int32 gene numbers and numbers of obs.

use half::f16;

use crate::mds::error::{MdsError, SampleError};

/// Encoding of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ColumnEncoding {
    /// `ndarray`, `ndarray:DTYPE`, `ndarray:DTYPE:SHAPE`; a dtype or shape that is not given is in each sample.
    Array { dtype: Option<MdsDtype>, shape: Option<Vec<u64>> },
    /// `bytes`.
    Bytes,
    /// `int`, `uint8` … `float64`.
    Scalar(MdsDtype),
    /// `str`.
    Text,
    /// `str_int`: digits.
    TextInteger,
    /// `str_float` and `str_decimal`.
    TextFloat,
    /// Any other encoding, which is skipped.
    Other,
}

impl ColumnEncoding {
    /// # Errors
    /// The dtype of an array is unknown, or its shape is invalid.
    pub fn parse(text: &str) -> Result<Self, MdsError> {
        let wrong = || MdsError::Encoding { encoding: text.to_owned() };
        let array = match text.split_once(':') {
            None if text == "ndarray" => "",
            Some(("ndarray", rest)) => rest,
            _ => {
                return Ok(match text {
                    "bytes" => Self::Bytes,
                    "str" => Self::Text,
                    "str_int" => Self::TextInteger,
                    "str_float" | "str_decimal" => Self::TextFloat,
                    "int" => Self::Scalar(MdsDtype::I64),
                    other => MdsDtype::named(other).map_or(Self::Other, Self::Scalar),
                });
            }
        };
        if array.is_empty() {
            return Ok(Self::Array { dtype: None, shape: None });
        }
        let (dtype, shape) = match array.split_once(':') {
            None => (array, None),
            Some((dtype, shape)) => (dtype, Some(shape)),
        };
        let dtype = MdsDtype::named(dtype).ok_or_else(wrong)?;
        let sides = |shape: &str| -> Option<Vec<u64>> {
            shape.split(',').map(|side| side.trim().parse().ok().filter(|side| *side > 0)).collect()
        };
        let shape = shape.map(|shape| sides(shape).ok_or_else(wrong)).transpose()?;
        let encoding = Self::Array { dtype: Some(dtype), shape };
        if encoding.is_too_large() {
            return Err(wrong());
        }
        Ok(encoding)
    }

    fn is_too_large(&self) -> bool {
        matches!(self, Self::Array { shape: Some(_), .. }) && self.size().flatten().is_none()
    }

    /// Size of a value in bytes: `Some(None)` if it varies; `None` for an unknown encoding.
    pub fn size(&self) -> Option<Option<u32>> {
        Some(match self {
            Self::Array { dtype: Some(dtype), shape: Some(shape) } => {
                let count = shape.iter().try_fold(1_u64, |count, side| count.checked_mul(*side));
                count.and_then(|count| count.checked_mul(dtype.size() as u64)).and_then(|bytes| bytes.try_into().ok())
            }
            Self::Scalar(dtype) => Some(dtype.size() as u32),
            Self::Other => return None,
            _ => None,
        })
    }

    /// Whether a column of this encoding may hold a row, or a part of it.
    pub const fn is_array(&self) -> bool {
        matches!(self, Self::Array { .. } | Self::Bytes)
    }
}

/// Dtype of an array, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MdsDtype {
    U8,
    I8,
    U16,
    I16,
    F16,
    U32,
    I32,
    F32,
    U64,
    I64,
    F64,
}

impl MdsDtype {
    /// All dtypes, with NumPy's names and their numbers in samples.
    const ALL: [(Self, &'static str, u8); 11] = [
        (Self::U8, "uint8", 8),
        (Self::I8, "int8", 9),
        (Self::U16, "uint16", 16),
        (Self::I16, "int16", 17),
        (Self::F16, "float16", 18),
        (Self::U32, "uint32", 32),
        (Self::I32, "int32", 33),
        (Self::F32, "float32", 34),
        (Self::U64, "uint64", 64),
        (Self::I64, "int64", 65),
        (Self::F64, "float64", 66),
    ];

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, of, _)| *of == name).map(|(dtype, ..)| dtype)
    }

    /// The dtype with this number.
    pub fn numbered(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|(.., of)| *of == number).map(|(dtype, ..)| dtype)
    }

    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(dtype, ..)| *dtype == self).map_or("", |(_, name, _)| name)
    }

    /// Size of a value in bytes.
    pub const fn size(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    pub const fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::F32 | Self::F64)
    }
}

/// Converts the values in `bytes`, of type `$from`, with `$turn`.
macro_rules! turned {
    ($bytes:expr, $from:ty, $turn:expr) => {
        $bytes.as_chunks::<{ size_of::<$from>() }>().0.iter().map(|value| ($turn)(<$from>::from_le_bytes(*value)))
    };
}

/// Appends values, rounded to the nearest float32.
pub(crate) fn append_f32(dtype: MdsDtype, bytes: &[u8], out: &mut Vec<f32>) {
    match dtype {
        MdsDtype::F32 => out.extend(turned!(bytes, f32, |value| value)),
        MdsDtype::F64 => out.extend(turned!(bytes, f64, |value| value as f32)),
        MdsDtype::F16 => out.extend(turned!(bytes, f16, f16::to_f32)),
        MdsDtype::U8 => out.extend(turned!(bytes, u8, f32::from)),
        MdsDtype::I8 => out.extend(turned!(bytes, i8, f32::from)),
        MdsDtype::U16 => out.extend(turned!(bytes, u16, f32::from)),
        MdsDtype::I16 => out.extend(turned!(bytes, i16, f32::from)),
        MdsDtype::U32 => out.extend(turned!(bytes, u32, |value| value as f32)),
        MdsDtype::I32 => out.extend(turned!(bytes, i32, |value| value as f32)),
        MdsDtype::U64 => out.extend(turned!(bytes, u64, |value| value as f32)),
        MdsDtype::I64 => out.extend(turned!(bytes, i64, |value| value as f32)),
    }
}

/// Appends integers as int32; -1, which is no gene, stands for an integer that does not fit. Floats are rejected.
pub(crate) fn append_i32(dtype: MdsDtype, bytes: &[u8], out: &mut Vec<i32>) -> Result<(), SampleError> {
    match dtype {
        MdsDtype::I32 => out.extend(turned!(bytes, i32, |value| value)),
        MdsDtype::U8 => out.extend(turned!(bytes, u8, i32::from)),
        MdsDtype::I8 => out.extend(turned!(bytes, i8, i32::from)),
        MdsDtype::U16 => out.extend(turned!(bytes, u16, i32::from)),
        MdsDtype::I16 => out.extend(turned!(bytes, i16, i32::from)),
        MdsDtype::U32 => out.extend(turned!(bytes, u32, |value| i32::try_from(value).unwrap_or(-1))),
        MdsDtype::U64 => out.extend(turned!(bytes, u64, |value| i32::try_from(value).unwrap_or(-1))),
        MdsDtype::I64 => out.extend(turned!(bytes, i64, |value| i32::try_from(value).unwrap_or(-1))),
        MdsDtype::F16 | MdsDtype::F32 | MdsDtype::F64 => return Err(SampleError::IndexType { dtype }),
    }
    Ok(())
}

/// A number of an obs column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ObsNumber {
    Integer(i128),
    Float(f64),
}

/// Converts `bytes`, which are one value.
pub(crate) fn scalar(dtype: MdsDtype, bytes: &[u8]) -> Option<ObsNumber> {
    let integer = |value: Option<i128>| value.map(ObsNumber::Integer);
    let float = |value: Option<f64>| value.map(ObsNumber::Float);
    match dtype {
        MdsDtype::U8 => integer(turned!(bytes, u8, i128::from).next()),
        MdsDtype::I8 => integer(turned!(bytes, i8, i128::from).next()),
        MdsDtype::U16 => integer(turned!(bytes, u16, i128::from).next()),
        MdsDtype::I16 => integer(turned!(bytes, i16, i128::from).next()),
        MdsDtype::U32 => integer(turned!(bytes, u32, i128::from).next()),
        MdsDtype::I32 => integer(turned!(bytes, i32, i128::from).next()),
        MdsDtype::U64 => integer(turned!(bytes, u64, i128::from).next()),
        MdsDtype::I64 => integer(turned!(bytes, i64, i128::from).next()),
        MdsDtype::F16 => float(turned!(bytes, f16, f64::from).next()),
        MdsDtype::F32 => float(turned!(bytes, f32, f64::from).next()),
        MdsDtype::F64 => float(turned!(bytes, f64, |value| value).next()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_are_those_of_the_package() {
        let size = |text: &str| ColumnEncoding::parse(text).unwrap().size();
        assert_eq!(size("ndarray"), Some(None));
        assert_eq!(size("ndarray:float32"), Some(None));
        assert_eq!(size("ndarray:int16:3,4"), Some(Some(24)));
        assert_eq!(size("int"), Some(Some(8)));
        assert_eq!(size("float16"), Some(Some(2)));
        assert_eq!(size("str"), Some(None));
        assert_eq!(size("jpeg"), None);
        for wrong in ["ndarray:float8", "ndarray:float32:", "ndarray:float32:0", "ndarray:int8:99999999,99999999"] {
            assert!(ColumnEncoding::parse(wrong).unwrap_err().to_string().contains(wrong));
        }
    }

    #[test]
    fn values_are_converted_as_numpy_does() {
        let mut out = Vec::new();
        append_f32(MdsDtype::F64, &0.1_f64.to_le_bytes(), &mut out);
        append_f32(MdsDtype::F16, &0x3c00_u16.to_le_bytes(), &mut out);
        append_f32(MdsDtype::U64, &u64::MAX.to_le_bytes(), &mut out);
        append_f32(MdsDtype::F32, &(-0.0_f32).to_le_bytes(), &mut out);
        assert_eq!(out, [0.1_f32, 1.0, 18_446_744_073_709_551_615.0, -0.0]);
        assert!(out[3].is_sign_negative());
        let mut columns = Vec::new();
        append_i32(MdsDtype::U16, &[1, 0, 255, 255], &mut columns).unwrap();
        append_i32(MdsDtype::I64, &(1_i64 << 40).to_le_bytes(), &mut columns).unwrap();
        assert_eq!(columns, [1, 65_535, -1]);
        assert!(append_i32(MdsDtype::F32, &[0; 4], &mut columns).is_err());
        assert_eq!(scalar(MdsDtype::I8, &[255]), Some(ObsNumber::Integer(-1)));
        assert_eq!(scalar(MdsDtype::I16, &[255]), None);
    }
}
