//! `Dtype`: the dtype of a stored array. `Element`: a dtype in memory, to which numbers of any stored dtype and byte order are converted.
//! Invariant: a number that does not fit becomes one that a later check rejects: a column index becomes negative, a row pointer too large.

use std::fmt;

use half::f16;
use half::slice::HalfFloatSliceExt;

/// A numeric dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dtype {
    pub kind: DtypeKind,
    /// Big-endian.
    pub big_endian: bool,
}

/// Kind of numbers. Booleans, which HDF5 stores as an enumeration of a byte, are numbers of that byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DtypeKind {
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F16,
    F32,
    F64,
}

impl Dtype {
    /// Size in bytes.
    pub const fn size(self) -> usize {
        match self.kind {
            DtypeKind::I8 | DtypeKind::U8 => 1,
            DtypeKind::I16 | DtypeKind::U16 | DtypeKind::F16 => 2,
            DtypeKind::I32 | DtypeKind::U32 | DtypeKind::F32 => 4,
            DtypeKind::I64 | DtypeKind::U64 | DtypeKind::F64 => 8,
        }
    }

    /// Whether it is an integer.
    pub const fn is_integer(self) -> bool {
        !matches!(self.kind, DtypeKind::F16 | DtypeKind::F32 | DtypeKind::F64)
    }

    /// Whether it has a sign.
    pub const fn is_signed(self) -> bool {
        !matches!(self.kind, DtypeKind::U8 | DtypeKind::U16 | DtypeKind::U32 | DtypeKind::U64)
    }

    /// Whether it has the byte order of this machine.
    const fn is_native_endian(self) -> bool {
        self.size() == 1 || self.big_endian == cfg!(target_endian = "big")
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.kind {
            DtypeKind::I8 => "int8",
            DtypeKind::U8 => "uint8",
            DtypeKind::I16 => "int16",
            DtypeKind::U16 => "uint16",
            DtypeKind::I32 => "int32",
            DtypeKind::U32 => "uint32",
            DtypeKind::I64 => "int64",
            DtypeKind::U64 => "uint64",
            DtypeKind::F16 => "float16",
            DtypeKind::F32 => "float32",
            DtypeKind::F64 => "float64",
        };
        f.write_str(name)
    }
}

/// A dtype in memory, to which stored numbers are converted.
pub(crate) trait Element: bytemuck::Pod + Default {
    /// Whether the stored bytes are the same in memory.
    fn is(dtype: Dtype) -> bool;

    /// Converts stored numbers; `raw` has as many as `out`.
    fn convert(dtype: Dtype, raw: &[u8], out: &mut [Self]);
}

/// Converts with `$as`, from either byte order.
macro_rules! numbers {
    ($raw:ident, $out:ident, $dtype:ident, $type:ty, $as:expr) => {{
        let (raw, _) = $raw.as_chunks::<{ size_of::<$type>() }>();
        if $dtype.big_endian {
            $out.iter_mut().zip(raw).for_each(|(out, raw)| *out = $as(<$type>::from_be_bytes(*raw)));
        } else {
            $out.iter_mut().zip(raw).for_each(|(out, raw)| *out = $as(<$type>::from_le_bytes(*raw)));
        }
    }};
}

/// Values: those with more than 24 significant bits (float64, large integers) are rounded to the nearest float32.
impl Element for f32 {
    fn is(dtype: Dtype) -> bool {
        dtype.kind == DtypeKind::F32 && dtype.is_native_endian()
    }

    fn convert(dtype: Dtype, raw: &[u8], out: &mut [Self]) {
        match dtype.kind {
            DtypeKind::I8 => numbers!(raw, out, dtype, i8, f32::from),
            DtypeKind::U8 => numbers!(raw, out, dtype, u8, f32::from),
            DtypeKind::I16 => numbers!(raw, out, dtype, i16, f32::from),
            DtypeKind::U16 => numbers!(raw, out, dtype, u16, f32::from),
            DtypeKind::I32 => numbers!(raw, out, dtype, i32, |v| v as f32),
            DtypeKind::U32 => numbers!(raw, out, dtype, u32, |v| v as f32),
            DtypeKind::I64 => numbers!(raw, out, dtype, i64, |v| v as f32),
            DtypeKind::U64 => numbers!(raw, out, dtype, u64, |v| v as f32),
            DtypeKind::F16 => halves(dtype, raw, out),
            DtypeKind::F32 => numbers!(raw, out, dtype, f32, |v| v),
            DtypeKind::F64 => numbers!(raw, out, dtype, f64, |v| v as f32),
        }
    }
}

/// Converts float16 with the instruction of the processor if it has one, in blocks that stay in the cache.
fn halves(dtype: Dtype, raw: &[u8], out: &mut [f32]) {
    const SOME: usize = 256;
    let mut some = [f16::ZERO; SOME];
    for (out, raw) in out.chunks_mut(SOME).zip(raw.chunks(SOME * 2)) {
        let some = &mut some[..out.len()];
        numbers!(raw, some, dtype, u16, f16::from_bits);
        some.convert_to_f32_slice(out);
    }
}

/// Column indices: a number that does not fit into int32 becomes -1, which the check of indices rejects.
impl Element for i32 {
    fn is(dtype: Dtype) -> bool {
        // A uint32 that does not fit into int32 becomes negative.
        matches!(dtype.kind, DtypeKind::I32 | DtypeKind::U32) && dtype.is_native_endian()
    }

    fn convert(dtype: Dtype, raw: &[u8], out: &mut [Self]) {
        match dtype.kind {
            DtypeKind::I8 => numbers!(raw, out, dtype, i8, i32::from),
            DtypeKind::U8 => numbers!(raw, out, dtype, u8, i32::from),
            DtypeKind::I16 => numbers!(raw, out, dtype, i16, i32::from),
            DtypeKind::U16 => numbers!(raw, out, dtype, u16, i32::from),
            DtypeKind::I32 => numbers!(raw, out, dtype, i32, |v| v),
            DtypeKind::U32 => numbers!(raw, out, dtype, u32, |v| v as i32),
            DtypeKind::I64 => numbers!(raw, out, dtype, i64, |v| if v as i32 as i64 == v { v as i32 } else { -1 }),
            DtypeKind::U64 => numbers!(raw, out, dtype, u64, |v| if v <= i32::MAX as u64 { v as i32 } else { -1 }),
            DtypeKind::F16 | DtypeKind::F32 | DtypeKind::F64 => out.fill(-1),
        }
    }
}

/// Row pointers: a negative number becomes too large, which their check rejects.
impl Element for u64 {
    fn is(dtype: Dtype) -> bool {
        matches!(dtype.kind, DtypeKind::I64 | DtypeKind::U64) && dtype.is_native_endian()
    }

    fn convert(dtype: Dtype, raw: &[u8], out: &mut [Self]) {
        match dtype.kind {
            DtypeKind::I8 => numbers!(raw, out, dtype, i8, |v| v as u64),
            DtypeKind::U8 => numbers!(raw, out, dtype, u8, u64::from),
            DtypeKind::I16 => numbers!(raw, out, dtype, i16, |v| v as u64),
            DtypeKind::U16 => numbers!(raw, out, dtype, u16, u64::from),
            DtypeKind::I32 => numbers!(raw, out, dtype, i32, |v| v as u64),
            DtypeKind::U32 => numbers!(raw, out, dtype, u32, u64::from),
            DtypeKind::I64 => numbers!(raw, out, dtype, i64, |v| v as u64),
            DtypeKind::U64 => numbers!(raw, out, dtype, u64, |v| v),
            DtypeKind::F16 | DtypeKind::F32 | DtypeKind::F64 => out.fill(u64::MAX),
        }
    }
}

/// float64 unchanged; other numbers are rounded to the nearest.
impl Element for f64 {
    fn is(dtype: Dtype) -> bool {
        dtype.kind == DtypeKind::F64 && dtype.is_native_endian()
    }

    fn convert(dtype: Dtype, raw: &[u8], out: &mut [Self]) {
        match dtype.kind {
            DtypeKind::I8 => numbers!(raw, out, dtype, i8, f64::from),
            DtypeKind::U8 => numbers!(raw, out, dtype, u8, f64::from),
            DtypeKind::I16 => numbers!(raw, out, dtype, i16, f64::from),
            DtypeKind::U16 => numbers!(raw, out, dtype, u16, f64::from),
            DtypeKind::I32 => numbers!(raw, out, dtype, i32, f64::from),
            DtypeKind::U32 => numbers!(raw, out, dtype, u32, f64::from),
            DtypeKind::I64 => numbers!(raw, out, dtype, i64, |v| v as f64),
            DtypeKind::U64 => numbers!(raw, out, dtype, u64, |v| v as f64),
            DtypeKind::F16 => numbers!(raw, out, dtype, u16, |v| f64::from(f16::from_bits(v))),
            DtypeKind::F32 => numbers!(raw, out, dtype, f32, f64::from),
            DtypeKind::F64 => numbers!(raw, out, dtype, f64, |v| v),
        }
    }
}

/// Raw bytes.
impl Element for u8 {
    fn is(dtype: Dtype) -> bool {
        dtype.kind == DtypeKind::U8
    }

    fn convert(_: Dtype, raw: &[u8], out: &mut [Self]) {
        out.iter_mut().zip(raw).for_each(|(out, raw)| *out = *raw);
    }
}

#[cfg(test)]
mod element_tests {
    use super::*;

    #[test]
    fn indices_that_are_none_are_negative() {
        let convert = |kind, raw: &[u8]| {
            let mut out = [7];
            i32::convert(Dtype { kind, big_endian: false }, raw, &mut out);
            out[0]
        };
        assert_eq!(convert(DtypeKind::I64, &(1i64 << 31).to_le_bytes()), -1);
        assert_eq!(convert(DtypeKind::I64, &(1i64 << 32).to_le_bytes()), -1);
        assert_eq!(convert(DtypeKind::U64, &u64::MAX.to_le_bytes()), -1);
        assert!(convert(DtypeKind::U32, &u32::MAX.to_le_bytes()) < 0);
        assert_eq!(convert(DtypeKind::I64, &i64::from(i32::MAX).to_le_bytes()), i32::MAX);
        assert_eq!(convert(DtypeKind::U8, &[200]), 200);
    }

    #[test]
    fn halves_are_as_defined() {
        let raw: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_be_bytes).collect();
        let mut out = vec![0.0; 1 << 16];
        f32::convert(Dtype { kind: DtypeKind::F16, big_endian: true }, &raw, &mut out);
        for (bits, value) in (0..=u16::MAX).zip(out) {
            let (exponent, mantissa) = (i32::from(bits >> 10 & 31), f32::from(bits & 1023));
            let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
            match (exponent, mantissa) {
                (31, 0.0) => assert_eq!(value, sign * f32::INFINITY),
                (31, _) => assert!(value.is_nan()),
                (0, _) => assert_eq!(value, sign * mantissa * 2f32.powi(-24)),
                _ => assert_eq!(value, sign * (1024.0 + mantissa) * 2f32.powi(exponent - 25)),
            }
        }
    }
}
