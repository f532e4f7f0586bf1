use super::pages::Pages;
use super::prefetch::{LINE, prefetch};
use super::widen::widen;
use crate::PipelineError;
use crate::array::CsrView;

/// Rows in CSR with columns of 16 bits where they fit, and values of 8 or 16 bits where all are whole numbers that fit: counts,
/// 3 bytes a value in place of 8. Whoever takes rows out gets int32 and float32 again, bit for bit.
///
/// In one piece of memory: where rows start, then columns, then values.
#[derive(Debug)]
pub struct NarrowRows {
    memory: Pages,
    rows: usize,
    nnz: usize,
    /// Where columns and values begin.
    columns_at: usize,
    values_at: usize,
    columns: ColumnWidth,
    values: ValueWidth,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ColumnWidth {
    U16,
    I32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueWidth {
    U8,
    U16,
    F32,
}

/// Columns and values of one row, where they lie; of one length.
#[derive(Clone, Copy, Debug)]
pub struct NarrowRow<'a> {
    columns: Columns<'a>,
    values: Numbers<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Columns<'a> {
    U16(&'a [u16]),
    I32(&'a [i32]),
}

#[derive(Clone, Copy, Debug)]
enum Numbers<'a> {
    U8(&'a [u8]),
    U16(&'a [u16]),
    F32(&'a [f32]),
}

impl NarrowRows {
    /// Bytes that a value takes at least, with its column.
    pub const LEAST_BYTES: u64 = 3;

    /// Take rows over.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(rows: CsrView<'_>) -> Result<Self, PipelineError> {
        let (columns, values) = (ColumnWidth::of(rows.indices), ValueWidth::of(rows.data));
        let nnz = rows.data.len();
        let columns_at = size_of_val(rows.indptr).next_multiple_of(LINE);
        let values_at = (columns_at + nnz * columns.bytes()).next_multiple_of(LINE);
        let no_memory = |e| PipelineError::Invalid(format!("there is no memory for {nnz} values of rows: {e}"));
        let mut memory = Pages::new(values_at + nnz * values.bytes()).map_err(no_memory)?;
        let (starts, rest) = memory.bytes_mut().split_at_mut(columns_at);
        let (to_columns, to_values) = rest.split_at_mut(values_at - columns_at);
        bytemuck::cast_slice_mut(&mut starts[..size_of_val(rows.indptr)]).copy_from_slice(rows.indptr);
        let to_columns = &mut to_columns[..nnz * columns.bytes()];
        match columns {
            ColumnWidth::U16 => fill(bytemuck::cast_slice_mut(to_columns), rows.indices, |column| column as u16),
            ColumnWidth::I32 => fill(bytemuck::cast_slice_mut(to_columns), rows.indices, |column| column),
        }
        match values {
            ValueWidth::U8 => fill(bytemuck::cast_slice_mut(to_values), rows.data, |value| value as u8),
            ValueWidth::U16 => fill(bytemuck::cast_slice_mut(to_values), rows.data, |value| value as u16),
            ValueWidth::F32 => fill(bytemuck::cast_slice_mut(to_values), rows.data, |value| value),
        }
        Ok(Self { memory, rows: rows.indptr.len() - 1, nnz, columns_at, values_at, columns, values })
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// No rows.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Number of values.
    pub fn nnz(&self) -> usize {
        self.nnz
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        self.memory.bytes().len() as u64
    }

    fn starts(&self) -> &[u64] {
        bytemuck::cast_slice(&self.memory.bytes()[..(self.rows + 1) * 8])
    }

    /// One of the rows, below their number.
    pub fn row(&self, row: usize) -> NarrowRow<'_> {
        let starts = self.starts();
        let (start, end) = (starts[row] as usize, starts[row + 1] as usize);
        let bytes = self.memory.bytes();
        let of = |at: usize, width: usize| &bytes[at + start * width..at + end * width];
        let columns = of(self.columns_at, self.columns.bytes());
        let values = of(self.values_at, self.values.bytes());
        NarrowRow {
            columns: match self.columns {
                ColumnWidth::U16 => Columns::U16(bytemuck::cast_slice(columns)),
                ColumnWidth::I32 => Columns::I32(bytemuck::cast_slice(columns)),
            },
            values: match self.values {
                ValueWidth::U8 => Numbers::U8(values),
                ValueWidth::U16 => Numbers::U16(bytemuck::cast_slice(values)),
                ValueWidth::F32 => Numbers::F32(bytemuck::cast_slice(values)),
            },
        }
    }

    /// Begin to bring a row into the caches; of a row that is not there, nothing.
    pub fn prefetch(&self, row: usize) {
        let starts = self.starts();
        let (Some(start), Some(end)) = (starts.get(row), starts.get(row + 1)) else { return };
        let bytes = self.memory.bytes();
        for (at, width) in [(self.columns_at, self.columns.bytes()), (self.values_at, self.values.bytes())] {
            prefetch(&bytes[at + *start as usize * width..at + *end as usize * width]);
        }
    }

    /// Begin to bring into the caches where a row starts.
    pub fn prefetch_start(&self, row: usize) {
        if let Some(start) = self.starts().get(row) {
            prefetch(bytemuck::bytes_of(start));
        }
    }
}

impl NarrowRow<'_> {
    /// Append columns and values.
    pub fn widen(&self, columns: &mut Vec<i32>, values: &mut Vec<f32>) {
        match self.columns {
            Columns::U16(row) => widen(row, columns),
            Columns::I32(row) => columns.extend_from_slice(row),
        }
        match self.values {
            Numbers::U8(row) => widen(row, values),
            Numbers::U16(row) => widen(row, values),
            Numbers::F32(row) => values.extend_from_slice(row),
        }
    }
}

impl ColumnWidth {
    fn of(columns: &[i32]) -> Self {
        // A negative one has its highest bit set.
        let bits = columns.iter().fold(0, |bits, column| bits | *column as u32);
        if bits <= u32::from(u16::MAX) { Self::U16 } else { Self::I32 }
    }

    fn bytes(self) -> usize {
        match self {
            Self::U16 => 2,
            Self::I32 => 4,
        }
    }
}

impl ValueWidth {
    fn of(values: &[f32]) -> Self {
        // By bits: -0 is no whole number here, since its sign would be lost.
        let (mut bits, mut whole) = (0, true);
        for value in values {
            let number = *value as u16;
            bits |= number;
            whole &= f32::from(number).to_bits() == value.to_bits();
        }
        match (whole, bits <= u16::from(u8::MAX)) {
            (true, true) => Self::U8,
            (true, false) => Self::U16,
            (false, _) => Self::F32,
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::U16 => 2,
            Self::F32 => 4,
        }
    }
}

fn fill<W: Copy, N>(from: &mut [N], wide: &[W], narrow: impl Fn(W) -> N) {
    for (to, value) in from.iter_mut().zip(wide) {
        *to = narrow(*value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::CsrRows;

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
                    narrow.prefetch(row);
                    narrow.row(row).widen(&mut all_columns, &mut all_values);
                    assert_eq!(all_values.len() as u64, rows.indptr[row + 1]);
                }
                assert_eq!(all_columns, columns);
                let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&all_values), bits(values));
                narrow.prefetch(3);
            }
        }
    }

    #[test]
    fn no_rows() {
        let narrow = NarrowRows::new(CsrRows::default().view()).unwrap();
        assert!(narrow.is_empty());
        narrow.prefetch(0);
    }
}
