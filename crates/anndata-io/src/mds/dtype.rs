use half::f16;

/// Type of the values of an array, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dtype {
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

impl Dtype {
    /// All of them, with NumPy's names and the numbers that samples have for them.
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

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, of, _)| *of == name).map(|(dtype, ..)| dtype)
    }

    /// Of its number in a sample.
    pub(super) fn numbered(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|(.., of)| *of == number).map(|(dtype, ..)| dtype)
    }

    pub(super) fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(dtype, ..)| *dtype == self).map_or("", |(_, name, _)| name)
    }

    /// Bytes of a value.
    pub(super) const fn size(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    pub(super) const fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::F32 | Self::F64)
    }
}

/// The values in `bytes`, as `$from` has them, each through `$turn`.
macro_rules! turned {
    ($bytes:expr, $from:ty, $turn:expr) => {
        $bytes.as_chunks::<{ size_of::<$from>() }>().0.iter().map(|value| ($turn)(<$from>::from_le_bytes(*value)))
    };
}

/// Append values as float32, each the nearest to what it was.
pub(super) fn append_f32(dtype: Dtype, bytes: &[u8], out: &mut Vec<f32>) {
    match dtype {
        Dtype::F32 => out.extend(turned!(bytes, f32, |value| value)),
        Dtype::F64 => out.extend(turned!(bytes, f64, |value| value as f32)),
        Dtype::F16 => out.extend(turned!(bytes, f16, f16::to_f32)),
        Dtype::U8 => out.extend(turned!(bytes, u8, f32::from)),
        Dtype::I8 => out.extend(turned!(bytes, i8, f32::from)),
        Dtype::U16 => out.extend(turned!(bytes, u16, f32::from)),
        Dtype::I16 => out.extend(turned!(bytes, i16, f32::from)),
        Dtype::U32 => out.extend(turned!(bytes, u32, |value| value as f32)),
        Dtype::I32 => out.extend(turned!(bytes, i32, |value| value as f32)),
        Dtype::U64 => out.extend(turned!(bytes, u64, |value| value as f32)),
        Dtype::I64 => out.extend(turned!(bytes, i64, |value| value as f32)),
    }
}

/// Append integers as int32; -1 is what does not fit, which no number of a gene is. Floats are none.
pub(super) fn append_i32(dtype: Dtype, bytes: &[u8], out: &mut Vec<i32>) -> Result<(), String> {
    match dtype {
        Dtype::I32 => out.extend(turned!(bytes, i32, |value| value)),
        Dtype::U8 => out.extend(turned!(bytes, u8, i32::from)),
        Dtype::I8 => out.extend(turned!(bytes, i8, i32::from)),
        Dtype::U16 => out.extend(turned!(bytes, u16, i32::from)),
        Dtype::I16 => out.extend(turned!(bytes, i16, i32::from)),
        Dtype::U32 => out.extend(turned!(bytes, u32, |value| i32::try_from(value).unwrap_or(-1))),
        Dtype::U64 => out.extend(turned!(bytes, u64, |value| i32::try_from(value).unwrap_or(-1))),
        Dtype::I64 => out.extend(turned!(bytes, i64, |value| i32::try_from(value).unwrap_or(-1))),
        Dtype::F16 | Dtype::F32 | Dtype::F64 => return Err(format!("numbers of genes are {}", dtype.name())),
    }
    Ok(())
}

/// A number of a column of obs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    Integer(i128),
    Float(f64),
}

/// The one value that `bytes` are.
pub(super) fn scalar(dtype: Dtype, bytes: &[u8]) -> Option<Number> {
    let integer = |value: Option<i128>| value.map(Number::Integer);
    let float = |value: Option<f64>| value.map(Number::Float);
    match dtype {
        Dtype::U8 => integer(turned!(bytes, u8, i128::from).next()),
        Dtype::I8 => integer(turned!(bytes, i8, i128::from).next()),
        Dtype::U16 => integer(turned!(bytes, u16, i128::from).next()),
        Dtype::I16 => integer(turned!(bytes, i16, i128::from).next()),
        Dtype::U32 => integer(turned!(bytes, u32, i128::from).next()),
        Dtype::I32 => integer(turned!(bytes, i32, i128::from).next()),
        Dtype::U64 => integer(turned!(bytes, u64, i128::from).next()),
        Dtype::I64 => integer(turned!(bytes, i64, i128::from).next()),
        Dtype::F16 => float(turned!(bytes, f16, f64::from).next()),
        Dtype::F32 => float(turned!(bytes, f32, f64::from).next()),
        Dtype::F64 => float(turned!(bytes, f64, |value| value).next()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_converted_as_numpy_does() {
        let mut out = Vec::new();
        append_f32(Dtype::F64, &0.1_f64.to_le_bytes(), &mut out);
        append_f32(Dtype::F16, &0x3c00_u16.to_le_bytes(), &mut out);
        append_f32(Dtype::U64, &u64::MAX.to_le_bytes(), &mut out);
        append_f32(Dtype::F32, &(-0.0_f32).to_le_bytes(), &mut out);
        assert_eq!(out, [0.1_f32, 1.0, 18_446_744_073_709_551_615.0, -0.0]);
        assert!(out[3].is_sign_negative());
        let mut columns = Vec::new();
        append_i32(Dtype::U16, &[1, 0, 255, 255], &mut columns).unwrap();
        append_i32(Dtype::I64, &(1_i64 << 40).to_le_bytes(), &mut columns).unwrap();
        assert_eq!(columns, [1, 65_535, -1]);
        assert!(append_i32(Dtype::F32, &[0; 4], &mut columns).is_err());
        assert_eq!(scalar(Dtype::I8, &[255]), Some(Number::Integer(-1)));
        assert_eq!(scalar(Dtype::I16, &[255]), None);
    }
}
