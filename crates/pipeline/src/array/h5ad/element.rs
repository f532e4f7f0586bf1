use half::f16;
use half::slice::HalfFloatSliceExt;

use super::number::{Kind, Number};

/// What numbers of a file become.
pub(super) trait Element: bytemuck::Pod + Default {
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
