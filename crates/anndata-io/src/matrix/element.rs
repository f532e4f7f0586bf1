use half::f16;
use half::slice::HalfFloatSliceExt;

use super::number::{Kind, Number};

/// What numbers of a file become.
pub(crate) trait Element: bytemuck::Pod + Default {
    /// The file has it bit for bit.
    fn is(number: Number) -> bool;

    /// Convert numbers of a file; there are as many in `raw` as there is place in `out`.
    fn convert(number: Number, raw: &[u8], out: &mut [Self]);
}

/// Convert with `$as`, from either order of bytes.
macro_rules! numbers {
    ($raw:ident, $out:ident, $number:ident, $type:ty, $as:expr) => {{
        let (raw, _) = $raw.as_chunks::<{ size_of::<$type>() }>();
        if $number.big_endian {
            $out.iter_mut().zip(raw).for_each(|(out, raw)| *out = $as(<$type>::from_be_bytes(*raw)));
        } else {
            $out.iter_mut().zip(raw).for_each(|(out, raw)| *out = $as(<$type>::from_le_bytes(*raw)));
        }
    }};
}

/// Values: what has more than 24 significant bits (float64, large integers) is rounded to the nearest float32.
impl Element for f32 {
    fn is(number: Number) -> bool {
        number.kind == Kind::F32 && number.is_native_endian()
    }

    fn convert(number: Number, raw: &[u8], out: &mut [Self]) {
        match number.kind {
            Kind::I8 => numbers!(raw, out, number, i8, f32::from),
            Kind::U8 => numbers!(raw, out, number, u8, f32::from),
            Kind::I16 => numbers!(raw, out, number, i16, f32::from),
            Kind::U16 => numbers!(raw, out, number, u16, f32::from),
            Kind::I32 => numbers!(raw, out, number, i32, |v| v as f32),
            Kind::U32 => numbers!(raw, out, number, u32, |v| v as f32),
            Kind::I64 => numbers!(raw, out, number, i64, |v| v as f32),
            Kind::U64 => numbers!(raw, out, number, u64, |v| v as f32),
            Kind::F16 => halves(number, raw, out),
            Kind::F32 => numbers!(raw, out, number, f32, |v| v),
            Kind::F64 => numbers!(raw, out, number, f64, |v| v as f32),
        }
    }
}

/// float16 by the processor's own instruction where it has one, some at a time so that they stay in the cache.
fn halves(number: Number, raw: &[u8], out: &mut [f32]) {
    const SOME: usize = 256;
    let mut some = [f16::ZERO; SOME];
    for (out, raw) in out.chunks_mut(SOME).zip(raw.chunks(SOME * 2)) {
        let some = &mut some[..out.len()];
        numbers!(raw, some, number, u16, f16::from_bits);
        some.convert_to_f32_slice(out);
    }
}

/// Column numbers: what is no int32 becomes -1, which the check of the columns refuses.
impl Element for i32 {
    fn is(number: Number) -> bool {
        // An uint32 that is no int32 is a negative number so.
        matches!(number.kind, Kind::I32 | Kind::U32) && number.is_native_endian()
    }

    fn convert(number: Number, raw: &[u8], out: &mut [Self]) {
        match number.kind {
            Kind::I8 => numbers!(raw, out, number, i8, i32::from),
            Kind::U8 => numbers!(raw, out, number, u8, i32::from),
            Kind::I16 => numbers!(raw, out, number, i16, i32::from),
            Kind::U16 => numbers!(raw, out, number, u16, i32::from),
            Kind::I32 => numbers!(raw, out, number, i32, |v| v),
            Kind::U32 => numbers!(raw, out, number, u32, |v| v as i32),
            Kind::I64 => numbers!(raw, out, number, i64, |v| if v as i32 as i64 == v { v as i32 } else { -1 }),
            Kind::U64 => numbers!(raw, out, number, u64, |v| if v <= i32::MAX as u64 { v as i32 } else { -1 }),
            Kind::F16 | Kind::F32 | Kind::F64 => out.fill(-1),
        }
    }
}

/// Starts of rows: what is negative becomes too large, which their check refuses.
impl Element for u64 {
    fn is(number: Number) -> bool {
        matches!(number.kind, Kind::I64 | Kind::U64) && number.is_native_endian()
    }

    fn convert(number: Number, raw: &[u8], out: &mut [Self]) {
        match number.kind {
            Kind::I8 => numbers!(raw, out, number, i8, |v| v as u64),
            Kind::U8 => numbers!(raw, out, number, u8, u64::from),
            Kind::I16 => numbers!(raw, out, number, i16, |v| v as u64),
            Kind::U16 => numbers!(raw, out, number, u16, u64::from),
            Kind::I32 => numbers!(raw, out, number, i32, |v| v as u64),
            Kind::U32 => numbers!(raw, out, number, u32, u64::from),
            Kind::I64 => numbers!(raw, out, number, i64, |v| v as u64),
            Kind::U64 => numbers!(raw, out, number, u64, |v| v),
            Kind::F16 | Kind::F32 | Kind::F64 => out.fill(u64::MAX),
        }
    }
}

/// float64, as they are; other numbers become the nearest.
impl Element for f64 {
    fn is(number: Number) -> bool {
        number.kind == Kind::F64 && number.is_native_endian()
    }

    fn convert(number: Number, raw: &[u8], out: &mut [Self]) {
        match number.kind {
            Kind::I8 => numbers!(raw, out, number, i8, f64::from),
            Kind::U8 => numbers!(raw, out, number, u8, f64::from),
            Kind::I16 => numbers!(raw, out, number, i16, f64::from),
            Kind::U16 => numbers!(raw, out, number, u16, f64::from),
            Kind::I32 => numbers!(raw, out, number, i32, f64::from),
            Kind::U32 => numbers!(raw, out, number, u32, f64::from),
            Kind::I64 => numbers!(raw, out, number, i64, |v| v as f64),
            Kind::U64 => numbers!(raw, out, number, u64, |v| v as f64),
            Kind::F16 => numbers!(raw, out, number, u16, |v| f64::from(f16::from_bits(v))),
            Kind::F32 => numbers!(raw, out, number, f32, f64::from),
            Kind::F64 => numbers!(raw, out, number, f64, |v| v),
        }
    }
}

/// Bytes as they are, of what is bytes.
impl Element for u8 {
    fn is(number: Number) -> bool {
        number.kind == Kind::U8
    }

    fn convert(_: Number, raw: &[u8], out: &mut [Self]) {
        out.iter_mut().zip(raw).for_each(|(out, raw)| *out = *raw);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_that_are_none_are_negative() {
        let convert = |kind, raw: &[u8]| {
            let mut out = [7];
            i32::convert(Number { kind, big_endian: false }, raw, &mut out);
            out[0]
        };
        assert_eq!(convert(Kind::I64, &(1i64 << 31).to_le_bytes()), -1);
        assert_eq!(convert(Kind::I64, &(1i64 << 32).to_le_bytes()), -1);
        assert_eq!(convert(Kind::U64, &u64::MAX.to_le_bytes()), -1);
        assert!(convert(Kind::U32, &u32::MAX.to_le_bytes()) < 0);
        assert_eq!(convert(Kind::I64, &i64::from(i32::MAX).to_le_bytes()), i32::MAX);
        assert_eq!(convert(Kind::U8, &[200]), 200);
    }

    #[test]
    fn halves_are_as_defined() {
        let raw: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_be_bytes).collect();
        let mut out = vec![0.0; 1 << 16];
        f32::convert(Number { kind: Kind::F16, big_endian: true }, &raw, &mut out);
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
