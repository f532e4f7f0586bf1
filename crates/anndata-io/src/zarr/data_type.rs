//! `DataType`: the type of an array's elements, parsed from the notation of version 2 (NumPy's) or 3, and fill values as bytes of this type.

use serde_json::Value as Json;

use crate::matrix::dtype::{Dtype, DtypeKind};
use crate::zarr::metadata::{ZarrError, json_named};

/// Data type of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataType {
    Number(Dtype),
    /// Booleans, one byte each.
    Bool,
    /// Strings of variable length in UTF-8 (codec `vlen-utf8`).
    Text,
    /// Strings of a fixed number of bytes, padded with zeros.
    Bytes(usize),
    /// Strings of a fixed number of UTF-32 code points, padded with zeros.
    Letters {
        letters: usize,
        big_endian: bool,
    },
}

/// Maximum length of strings of a fixed length.
const MAX_STRING_BYTES: usize = 1 << 20;

impl DataType {
    /// Parses a type of version 3.
    pub fn of_v3(of: &Json) -> Result<Self, ZarrError> {
        let (name, configuration) = json_named(of)?;
        let length = || {
            let bytes = configuration.get("length_bytes").and_then(Json::as_u64);
            bytes.and_then(|bytes| usize::try_from(bytes).ok()).filter(|bytes| *bytes <= MAX_STRING_BYTES)
        };
        let unknown = || ZarrError::Type { name: name.to_owned() };
        Ok(match name {
            "bool" => Self::Bool,
            "string" | "variable_length_utf8" => Self::Text,
            "null_terminated_bytes" => Self::Bytes(length().ok_or_else(unknown)?),
            "fixed_length_utf32" => Self::Letters { letters: length().ok_or_else(unknown)? / 4, big_endian: false },
            _ => Self::Number(Dtype { kind: kind_of_name(name).ok_or_else(unknown)?, big_endian: false }),
        })
    }

    /// Parses a type of version 2 in NumPy's notation; `vlen` says that a filter turns objects into strings.
    pub fn of_v2(of: &Json, vlen: bool) -> Result<Self, ZarrError> {
        let Some(name) = of.as_str() else {
            return Err(ZarrError::Records { of: of.clone() });
        };
        let unknown = || ZarrError::Type { name: name.to_owned() };
        let (order, rest) = name.split_at_checked(1).ok_or_else(unknown)?;
        let big_endian = order == ">";
        let (code, size) = rest.split_at_checked(1).ok_or_else(unknown)?;
        if code == "O" {
            return match vlen {
                true => Ok(Self::Text),
                false => Err(ZarrError::Objects),
            };
        }
        let size: usize = size.parse().ok().filter(|size| *size <= MAX_STRING_BYTES).ok_or_else(unknown)?;
        let kind = match (code, size) {
            ("b", 1) => return Ok(Self::Bool),
            ("S", bytes) => return Ok(Self::Bytes(bytes)),
            ("U", letters) => return Ok(Self::Letters { letters, big_endian }),
            ("i", 1) => DtypeKind::I8,
            ("i", 2) => DtypeKind::I16,
            ("i", 4) => DtypeKind::I32,
            ("i", 8) => DtypeKind::I64,
            ("u", 1) => DtypeKind::U8,
            ("u", 2) => DtypeKind::U16,
            ("u", 4) => DtypeKind::U32,
            ("u", 8) => DtypeKind::U64,
            ("f", 2) => DtypeKind::F16,
            ("f", 4) => DtypeKind::F32,
            ("f", 8) => DtypeKind::F64,
            _ => return Err(unknown()),
        };
        Ok(Self::Number(Dtype { kind, big_endian }))
    }

    /// The same type with the byte order of a codec.
    pub const fn ordered(self, big_endian: bool) -> Self {
        match self {
            Self::Number(Dtype { kind, .. }) => Self::Number(Dtype { kind, big_endian }),
            Self::Letters { letters, .. } => Self::Letters { letters, big_endian },
            other => other,
        }
    }

    /// Size of an element in bytes; `None` for strings of variable length.
    pub const fn size(self) -> Option<usize> {
        match self {
            Self::Number(dtype) => Some(dtype.size()),
            Self::Bool => Some(1),
            Self::Text => None,
            Self::Bytes(bytes) => Some(bytes),
            Self::Letters { letters, .. } => Some(letters * 4),
        }
    }

    /// The fill value as bytes; zeros for types without one.
    pub fn fill_value(self, value: &Json) -> Result<Vec<u8>, ZarrError> {
        let wrong = || ZarrError::FillValue { value: value.clone() };
        let dtype = match self {
            Self::Number(dtype) => dtype,
            Self::Bool => Dtype { kind: DtypeKind::U8, big_endian: false },
            _ => return Ok(vec![0; self.size().unwrap_or(0)]),
        };
        let mut bytes = match value {
            Json::Null => vec![0; dtype.size()],
            Json::Bool(value) => integer_bytes(dtype.kind, i128::from(u8::from(*value))).ok_or_else(wrong)?,
            Json::Number(value) => match (value.as_i64(), value.as_u64(), value.as_f64()) {
                (Some(value), _, _) if dtype.is_integer() => {
                    integer_bytes(dtype.kind, value.into()).ok_or_else(wrong)?
                }
                (_, Some(value), _) if dtype.is_integer() => {
                    integer_bytes(dtype.kind, value.into()).ok_or_else(wrong)?
                }
                (_, _, Some(value)) => float_bytes(dtype.kind, value).ok_or_else(wrong)?,
                _ => return Err(wrong()),
            },
            Json::String(text) => match text.as_str() {
                "NaN" => float_bytes(dtype.kind, f64::NAN).ok_or_else(wrong)?,
                "Infinity" => float_bytes(dtype.kind, f64::INFINITY).ok_or_else(wrong)?,
                "-Infinity" => float_bytes(dtype.kind, f64::NEG_INFINITY).ok_or_else(wrong)?,
                bits => {
                    let bits = bits.strip_prefix("0x").and_then(|bits| u64::from_str_radix(bits, 16).ok());
                    bits.ok_or_else(wrong)?.to_le_bytes()[..dtype.size()].to_vec()
                }
            },
            _ => return Err(wrong()),
        };
        if dtype.big_endian {
            bytes.reverse();
        }
        Ok(bytes)
    }
}

/// Little-endian bytes; `None` if the number does not fit.
fn integer_bytes(kind: DtypeKind, value: i128) -> Option<Vec<u8>> {
    Some(match kind {
        DtypeKind::I8 => i8::try_from(value).ok()?.to_le_bytes().to_vec(),
        DtypeKind::U8 => u8::try_from(value).ok()?.to_le_bytes().to_vec(),
        DtypeKind::I16 => i16::try_from(value).ok()?.to_le_bytes().to_vec(),
        DtypeKind::U16 => u16::try_from(value).ok()?.to_le_bytes().to_vec(),
        DtypeKind::I32 => i32::try_from(value).ok()?.to_le_bytes().to_vec(),
        DtypeKind::U32 => u32::try_from(value).ok()?.to_le_bytes().to_vec(),
        DtypeKind::I64 => i64::try_from(value).ok()?.to_le_bytes().to_vec(),
        DtypeKind::U64 => u64::try_from(value).ok()?.to_le_bytes().to_vec(),
        DtypeKind::F16 | DtypeKind::F32 | DtypeKind::F64 => return float_bytes(kind, value as f64),
    })
}

/// Little-endian bytes; `None` if it is not a float.
fn float_bytes(kind: DtypeKind, value: f64) -> Option<Vec<u8>> {
    Some(match kind {
        DtypeKind::F16 => half::f16::from_f64(value).to_le_bytes().to_vec(),
        DtypeKind::F32 => (value as f32).to_le_bytes().to_vec(),
        DtypeKind::F64 => value.to_le_bytes().to_vec(),
        // Version 2 may write 0.0 for integers.
        _ if value.fract() == 0.0 && value.abs() < 9e15 => return integer_bytes(kind, value as i128),
        _ => return None,
    })
}

fn kind_of_name(name: &str) -> Option<DtypeKind> {
    Some(match name {
        "int8" => DtypeKind::I8,
        "uint8" => DtypeKind::U8,
        "int16" => DtypeKind::I16,
        "uint16" => DtypeKind::U16,
        "int32" => DtypeKind::I32,
        "uint32" => DtypeKind::U32,
        "int64" => DtypeKind::I64,
        "uint64" => DtypeKind::U64,
        "float16" => DtypeKind::F16,
        "float32" => DtypeKind::F32,
        "float64" => DtypeKind::F64,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fill_values_are_of_their_type() {
        let v3 = |name: &str| DataType::of_v3(&json!(name)).unwrap();
        assert_eq!(v3("float32").fill_value(&json!("NaN")).unwrap(), f32::NAN.to_le_bytes());
        assert_eq!(v3("float32").fill_value(&json!("0x7fc00000")).unwrap(), [0, 0, 0xc0, 0x7f]);
        assert_eq!(v3("int16").fill_value(&json!(-2)).unwrap(), [0xfe, 0xff]);
        assert_eq!(v3("uint64").fill_value(&json!(u64::MAX)).unwrap(), [0xff; 8]);
        assert_eq!(v3("bool").fill_value(&json!(true)).unwrap(), [1]);
        assert!(v3("int8").fill_value(&json!(300)).is_err() && v3("uint8").fill_value(&json!(0.5)).is_err());
        assert!(v3("int8").fill_value(&json!("x")).is_err() && v3("int8").fill_value(&json!([0])).is_err());
        let v2 = |name: &str| DataType::of_v2(&json!(name), false);
        assert_eq!(v2(">i4").unwrap().fill_value(&json!(1)).unwrap(), [0, 0, 0, 1]);
        assert_eq!(v2("<f8").unwrap().fill_value(&Json::Null).unwrap(), [0; 8]);
        for name in ["|O", "<M8[ns]", "<c16", "", "<", "é", "<f16", "<U99999999"] {
            assert!(v2(name).is_err(), "{name}");
        }
        assert!(DataType::of_v3(&json!("complex64")).unwrap_err().to_string().contains("complex64"));
    }
}
