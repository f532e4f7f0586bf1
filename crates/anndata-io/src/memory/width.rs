//! How few bytes columns and values fit into, and putting them there.

use multiversion::multiversion;

/// Bits of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnWidth {
    U16,
    I32,
}

/// Bits of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueWidth {
    U8,
    U16,
    F32,
}

impl ColumnWidth {
    pub fn bytes(self) -> usize {
        match self {
            Self::U16 => 2,
            Self::I32 => 4,
        }
    }
}

impl ValueWidth {
    pub fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::U16 => 2,
            Self::F32 => 4,
        }
    }
}

/// The least width that keeps all columns.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx2+fma", "x86_64+avx2+fma"))]
pub fn column_width(columns: &[i32]) -> ColumnWidth {
    // A negative one has its highest bit set.
    let bits = columns.iter().fold(0, |bits, column| bits | *column as u32);
    if bits <= u32::from(u16::MAX) { ColumnWidth::U16 } else { ColumnWidth::I32 }
}

/// Columns that fit.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx2+fma", "x86_64+avx2+fma"))]
pub fn columns_to_u16(columns: &[i32], out: &mut [u16]) {
    out.iter_mut().zip(columns).for_each(|(to, column)| *to = *column as u16);
}

/// 2²³: of a sum with a whole number from 0 to 2²³ − 1 the last 23 bits are that number. Any other value changes when it is
/// added and taken off again, or has higher bits set then.
const SHIFT: f32 = 8_388_608.0;

#[inline(always)]
fn shifted(value: f32) -> f32 {
    value + SHIFT
}

/// The least width that keeps every bit of all values.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx2+fma", "x86_64+avx2+fma"))]
pub fn value_width(values: &[f32]) -> ValueWidth {
    // By bits: -0 is no whole number here, since its sign would be lost. No branches, so vectors.
    let (mut bits, mut lost) = (0, 0);
    for value in values {
        bits |= shifted(*value).to_bits().wrapping_sub(SHIFT.to_bits());
        lost |= (shifted(*value) - SHIFT).to_bits() ^ value.to_bits();
    }
    match (lost, bits) {
        (0, 0..=0xff) => ValueWidth::U8,
        (0, 0x100..=0xffff) => ValueWidth::U16,
        _ => ValueWidth::F32,
    }
}

/// Values that fit.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx2+fma", "x86_64+avx2+fma"))]
pub fn values_to_u8(values: &[f32], out: &mut [u8]) {
    out.iter_mut().zip(values).for_each(|(to, value)| *to = shifted(*value).to_bits() as u8);
}

/// Values that fit.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx2+fma", "x86_64+avx2+fma"))]
pub fn values_to_u16(values: &[f32], out: &mut [u16]) {
    out.iter_mut().zip(values).for_each(|(to, value)| *to = shifted(*value).to_bits() as u16);
}
