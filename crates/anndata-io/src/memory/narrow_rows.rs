//! CSR rows with narrow dtypes.

use memmap2::{Advice, MmapMut, MmapOptions};
use multiversion::multiversion;

use crate::nontemporal;
use crate::{AnnDataError, CsrView};

/// CSR rows with 16-bit column indices if they fit, and 8-bit or 16-bit values if all of them are whole numbers that fit:
/// counts take 3 bytes a value instead of 8. Reading returns the original int32 and float32, bit for bit.
///
/// One allocation holds row pointers, then columns, then values. Invariant: each of the three starts at a multiple of a cache
/// line, in memory that is aligned for any number, so that its bytes can be viewed as numbers.
#[derive(Debug)]
pub struct NarrowRows {
    memory: HugePages,
    rows: usize,
    nnz: usize,
    /// Offsets of columns and values.
    columns_at: usize,
    values_at: usize,
    columns: ColumnWidth,
    values: ValueWidth,
}

/// Columns and values of one row, of the same length.
#[derive(Clone, Copy, Debug)]
pub struct NarrowRow<'a> {
    columns: NarrowColumns<'a>,
    values: NarrowValues<'a>,
}

#[derive(Clone, Copy, Debug)]
enum NarrowColumns<'a> {
    U16(&'a [u16]),
    I32(&'a [i32]),
}

#[derive(Clone, Copy, Debug)]
enum NarrowValues<'a> {
    U8(&'a [u8]),
    U16(&'a [u16]),
    F32(&'a [f32]),
}

impl NarrowRows {
    /// Minimum size of a value with its column index in bytes.
    pub const LEAST_BYTES: u64 = 3;

    /// Copies rows.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn new(rows: CsrView<'_>) -> Result<Self, AnnDataError> {
        let (columns, values) = (column_width(rows.indices), value_width(rows.data));
        let nnz = rows.data.len();
        let columns_at = size_of_val(rows.indptr).next_multiple_of(LINE);
        let values_at = (columns_at + nnz * columns.bytes()).next_multiple_of(LINE);
        let len = values_at + nnz * values.bytes();
        let mut memory = HugePages::new(len).map_err(|_| AnnDataError::no_memory(len, "rows"))?;
        let (starts, rest) = memory.bytes_mut().split_at_mut(columns_at);
        let (to_columns, to_values) = rest.split_at_mut(values_at - columns_at);
        bytemuck::cast_slice_mut(&mut starts[..size_of_val(rows.indptr)]).copy_from_slice(rows.indptr);
        write_columns(rows.indices, columns, &mut to_columns[..nnz * columns.bytes()]);
        write_values(rows.data, values, &mut to_values[..nnz * values.bytes()]);
        nontemporal::fence();
        Ok(Self { memory, rows: rows.indptr.len() - 1, nnz, columns_at, values_at, columns, values })
    }

    /// Number of rows.
    #[inline]
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are no rows.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Number of values.
    #[inline]
    pub fn nnz(&self) -> usize {
        self.nnz
    }

    /// Allocated bytes.
    pub fn bytes(&self) -> u64 {
        self.memory.bytes().len() as u64
    }

    /// Row pointers; empty if there are no rows.
    #[inline]
    fn starts(&self) -> &[u64] {
        if self.rows == 0 {
            return &[];
        }
        bytemuck::cast_slice(&self.memory.bytes()[..(self.rows + 1) * 8])
    }

    /// Borrows a row; `row` is below [`Self::len`].
    #[inline]
    pub fn row(&self, row: usize) -> NarrowRow<'_> {
        let starts = self.starts();
        let (start, end) = (starts[row] as usize, starts[row + 1] as usize);
        let bytes = self.memory.bytes();
        let of = |at: usize, width: usize| &bytes[at + start * width..at + end * width];
        let columns = of(self.columns_at, self.columns.bytes());
        let values = of(self.values_at, self.values.bytes());
        NarrowRow::new((columns, self.columns), (values, self.values))
    }

    /// Prefetches the row pointer of a row.
    #[inline]
    pub fn prefetch_start(&self, row: usize) {
        if let Some(start) = self.starts().get(row) {
            prefetch_lines(bytemuck::bytes_of(start));
        }
    }
}

impl<'a> NarrowRow<'a> {
    /// Views what [`write_columns`] and [`write_values`] wrote in these widths, in memory that is aligned for them.
    #[inline]
    pub(crate) fn new(
        (columns, column_width): (&'a [u8], ColumnWidth),
        (values, value_width): (&'a [u8], ValueWidth),
    ) -> Self {
        Self {
            columns: match column_width {
                ColumnWidth::U16 => NarrowColumns::U16(bytemuck::cast_slice(columns)),
                ColumnWidth::I32 => NarrowColumns::I32(bytemuck::cast_slice(columns)),
            },
            values: match value_width {
                ValueWidth::U8 => NarrowValues::U8(values),
                ValueWidth::U16 => NarrowValues::U16(bytemuck::cast_slice(values)),
                ValueWidth::F32 => NarrowValues::F32(bytemuck::cast_slice(values)),
            },
        }
    }

    /// Prefetches the row.
    #[inline]
    pub fn prefetch(&self) {
        match self.columns {
            NarrowColumns::U16(row) => prefetch_lines(bytemuck::cast_slice(row)),
            NarrowColumns::I32(row) => prefetch_lines(bytemuck::cast_slice(row)),
        }
        match self.values {
            NarrowValues::U8(row) => prefetch_lines(row),
            NarrowValues::U16(row) => prefetch_lines(bytemuck::cast_slice(row)),
            NarrowValues::F32(row) => prefetch_lines(bytemuck::cast_slice(row)),
        }
    }

    /// Appends columns and values as int32 and float32.
    #[inline]
    pub fn widen(&self, columns: &mut Vec<i32>, values: &mut Vec<f32>) {
        match self.columns {
            NarrowColumns::U16(row) => widen(row, columns),
            NarrowColumns::I32(row) => columns.extend_from_slice(row),
        }
        match self.values {
            NarrowValues::U8(row) => widen(row, values),
            NarrowValues::U16(row) => widen(row, values),
            NarrowValues::F32(row) => values.extend_from_slice(row),
        }
    }
}

/// Numbers that are converted at once, within the L1 cache. Few enough that clearing their buffer costs a single row little.
const SEGMENT: usize = 1024;

/// Converts numbers and writes them with non-temporal stores: they are read much later, and an ordinary store would first read
/// the cache line.
fn convert_nontemporal<W>(wide: &[W], out: &mut [u16], convert: impl Fn(&[W], &mut [u16])) {
    // The buffer consists of words, in which it is copied.
    let mut space = [0u32; SEGMENT / 2];
    let space: &mut [u16] = bytemuck::cast_slice_mut(&mut space);
    for (wide, out) in wide.chunks(SEGMENT).zip(out.chunks_mut(SEGMENT)) {
        let even = wide.len() / 2 * 2;
        let ((wide, last), (out, last_out)) = (wide.split_at(even), out.split_at_mut(even));
        convert(wide, &mut space[..even]);
        nontemporal::copy(bytemuck::cast_slice(&space[..even]), bytemuck::cast_slice_mut(out));
        convert(last, last_out);
    }
}

/// Writes column indices, which fit into `width`, to as many bytes as they take there. The caller calls [`nontemporal::fence`] after
/// the last row. `to` is aligned for a float32.
pub fn write_columns(columns: &[i32], width: ColumnWidth, to: &mut [u8]) {
    match width {
        ColumnWidth::U16 => convert_nontemporal(columns, bytemuck::cast_slice_mut(to), columns_to_u16),
        ColumnWidth::I32 => bytemuck::cast_slice_mut(to).copy_from_slice(columns),
    }
}

/// As [`write_columns`], values.
pub fn write_values(values: &[f32], width: ValueWidth, to: &mut [u8]) {
    match width {
        ValueWidth::U8 => values_to_u8(values, to),
        ValueWidth::U16 => convert_nontemporal(values, bytemuck::cast_slice_mut(to), values_to_u16),
        ValueWidth::F32 => bytemuck::cast_slice_mut(to).copy_from_slice(values),
    }
}

/// Width of a column index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnWidth {
    U16,
    I32,
}

/// Width of a value.
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

/// The smallest width for all column indices.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx2+fma", "x86_64+avx2+fma"))]
pub fn column_width(columns: &[i32]) -> ColumnWidth {
    // The highest bit of a negative index is set.
    let bits = columns.iter().fold(0, |bits, column| bits | *column as u32);
    if bits <= u32::from(u16::MAX) { ColumnWidth::U16 } else { ColumnWidth::I32 }
}

/// Column indices that fit.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx2+fma", "x86_64+avx2+fma"))]
pub fn columns_to_u16(columns: &[i32], out: &mut [u16]) {
    out.iter_mut().zip(columns).for_each(|(to, column)| *to = *column as u16);
}

/// 2²³: the last 23 bits of its sum with a whole number from 0 to 2²³ − 1 are that number. Any other value changes when 2²³ is
/// added and subtracted, or sets higher bits.
const SHIFT: f32 = 8_388_608.0;

#[inline(always)]
fn shifted(value: f32) -> f32 {
    value + SHIFT
}

/// The smallest width that preserves every bit of all values.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx2+fma", "x86_64+avx2+fma"))]
pub fn value_width(values: &[f32]) -> ValueWidth {
    // Bits are compared, so -0 is not a whole number and its sign is kept. Without branches, so that the loop is vectorised.
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

/// Appends numbers in a wider type, with vector instructions.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx2+fma", "x86_64+avx2+fma"))]
pub fn widen<N: Copy, W: From<N>>(narrow: &[N], wide: &mut Vec<W>) {
    wide.reserve(narrow.len());
    let len = wide.len() + narrow.len();
    for (to, from) in wide.spare_capacity_mut().iter_mut().zip(narrow) {
        to.write(W::from(*from));
    }
    // SAFETY: memory for `narrow` was reserved, and as many elements behind the old end have been written.
    unsafe { wide.set_len(len) };
}

/// Size of a huge page of x86-64, or a similar size for other processors.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Zeroed memory, aligned for any number. Most of it is on huge pages, so that random rows cost few page-table walks.
#[derive(Debug)]
pub enum HugePages {
    /// Less than a huge page.
    Few(Vec<u64>),
    /// `start` is a multiple of the size of a huge page within the map, as is `start + len`.
    Many { map: MmapMut, start: usize, len: usize },
}

impl HugePages {
    /// Allocates `len` bytes or a few more.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn new(len: usize) -> std::io::Result<Self> {
        if len < HUGE_PAGE_BYTES {
            return Ok(Self::Few(vec![0; len.div_ceil(size_of::<u64>())]));
        }
        let no_memory = || std::io::Error::from(std::io::ErrorKind::OutOfMemory);
        // The map before `start` and behind the end is never touched, and so takes no memory.
        let map = MmapOptions::new().len(len.checked_add(HUGE_PAGE_BYTES).ok_or_else(no_memory)?).map_anon()?;
        let start = map.as_ptr().align_offset(HUGE_PAGE_BYTES);
        // Advice only: without huge pages it is slower. Only for pages that are used completely.
        #[cfg(target_os = "linux")]
        let _ = map.advise_range(Advice::HugePage, start, len / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES);
        Ok(Self::Many { map, start, len })
    }

    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Few(words) => bytemuck::cast_slice(words),
            Self::Many { map, start, len } => &map[*start..*start + *len],
        }
    }

    /// The bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Few(words) => bytemuck::cast_slice_mut(words),
            Self::Many { map, start, len } => &mut map[*start..*start + *len],
        }
    }
}

/// Size of a cache line in bytes.
const LINE: usize = 64;

/// Prefetches all cache lines of `bytes`.
#[inline]
pub(crate) fn prefetch_lines(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(LINE) {
        use std::arch::x86_64::_MM_HINT_T0;
        use std::arch::x86_64::_mm_prefetch;
        // SAFETY: every x86-64 processor has SSE; a prefetch does not access memory.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CsrRows;

    /// What went in comes out, bit for bit, in as few bytes as it can.
    #[test]
    fn all_widths_keep_every_bit() {
        let columns = [vec![0, 7, 65_535], vec![-1, 7, 65_536]];
        let values: [(usize, Vec<f32>); 6] = [
            (1, vec![0.0, 3.0, 255.0]),
            (2, vec![0.0, 256.0, 65_535.0]),
            (4, vec![1.0, 2.0, 65_536.0]),
            (4, vec![1.0, -0.0, 2.0]),
            (4, vec![0.5, f32::MIN_POSITIVE, f32::NEG_INFINITY]),
            (4, vec![f32::NAN, f32::from_bits(0x7fc1_2345), -1.0]),
        ];
        for (column_bytes, columns) in [2, 4].into_iter().zip(columns) {
            for (value_bytes, values) in &values {
                let rows = CsrRows { indptr: vec![0, 0, 2, 3], indices: columns.clone(), data: values.clone() };
                let narrow = NarrowRows::new(rows.view()).unwrap();
                assert_eq!((narrow.columns.bytes(), narrow.values.bytes()), (column_bytes, *value_bytes));
                assert_eq!((narrow.len(), narrow.nnz()), (3, 3));
                let (mut all_columns, mut all_values) = (Vec::new(), Vec::new());
                for row in 0..3 {
                    narrow.prefetch_start(row);
                    narrow.row(row).prefetch();
                    narrow.row(row).widen(&mut all_columns, &mut all_values);
                    assert_eq!(all_values.len() as u64, rows.indptr[row + 1]);
                }
                assert_eq!(all_columns, columns);
                let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&all_values), bits(values));
            }
        }
    }

    #[test]
    fn several_segments_and_an_odd_number_of_values() {
        let data: Vec<f32> = (0..3 * SEGMENT as u16 + 7).map(f32::from).collect();
        let indices: Vec<i32> = (0..data.len() as i32).collect();
        let narrow =
            NarrowRows::new(CsrView { indptr: &[0, data.len() as u64], indices: &indices, data: &data }).unwrap();
        let (mut columns, mut values) = (Vec::new(), Vec::new());
        narrow.row(0).widen(&mut columns, &mut values);
        assert_eq!((columns, values), (indices, data));
    }

    #[test]
    fn no_rows() {
        let narrow = NarrowRows::new(CsrRows::default().view()).unwrap();
        assert!(narrow.is_empty());
        narrow.prefetch_start(0);
    }

    #[test]
    fn zeros_that_any_number_can_lie_in() {
        for len in
            [0, 1, 7, 64, 4096, HUGE_PAGE_BYTES - 1, HUGE_PAGE_BYTES, HUGE_PAGE_BYTES + 1, 5 * HUGE_PAGE_BYTES - 3]
        {
            let mut pages = HugePages::new(len).unwrap();
            assert!(pages.bytes().len() >= len && pages.bytes().iter().all(|byte| *byte == 0));
            assert!((pages.bytes().as_ptr() as usize).is_multiple_of(8), "{len}");
            pages.bytes_mut().fill(1);
            assert!(pages.bytes().iter().all(|byte| *byte == 1));
        }
    }
}
