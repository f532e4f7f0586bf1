//! The bytes of one MDS sample: `SampleLayout` finds the columns, `parse_array` reads a column with an array.
//! Invariant: a sample is accepted only if the sizes of its columns add up to its length.

use std::ops::Range;

use crate::mds::encoding::{ColumnEncoding, MdsDtype};
use crate::mds::error::SampleError;

/// Finds the columns in a sample. A sample begins with the lengths (uint32) of the columns whose length varies; the values of all
/// columns follow, in the order of the columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SampleLayout {
    /// Bytes of each column, where all samples have as many.
    sizes: Vec<Option<u32>>,
    /// Bytes of the lengths.
    head: usize,
}

impl SampleLayout {
    pub fn new(sizes: Vec<Option<u32>>) -> Self {
        let head = 4 * sizes.iter().filter(|size| size.is_none()).count();
        Self { sizes, head }
    }

    /// Bytes of the lengths that a sample begins with.
    pub const fn head(&self) -> usize {
        self.head
    }

    /// The range of a column in a sample of `len` bytes. `head` are its first bytes: the lengths, or more.
    pub fn cell(&self, head: &[u8], len: u64, wanted: usize) -> Result<Range<u64>, SampleError> {
        let mut found = 0..0;
        self.walk(head, len, |column, cell| {
            if column == wanted {
                found = cell;
            }
        })?;
        Ok(found)
    }

    /// The bytes of two columns of a sample.
    pub fn cells<'a>(&self, sample: &'a [u8], wanted: [usize; 2]) -> Result<[&'a [u8]; 2], SampleError> {
        let mut found: [Range<u64>; 2] = [0..0, 0..0];
        self.walk(sample, sample.len() as u64, |column, cell| {
            for (wanted, found) in wanted.iter().zip(&mut found) {
                if *wanted == column {
                    *found = cell.clone();
                }
            }
        })?;
        // All cells are inside: the walk has compared their sum with the length.
        Ok(found.map(|cell| sample.get(cell.start as usize..cell.end as usize).unwrap_or_default()))
    }

    /// Passes the range of each column to `say`, and compares the sum of their sizes with the length of the sample.
    #[inline]
    fn walk(&self, head: &[u8], len: u64, mut say: impl FnMut(usize, Range<u64>)) -> Result<(), SampleError> {
        let lengths = head.get(..self.head).ok_or(SampleError::CutShort)?;
        let mut lengths = lengths.as_chunks::<4>().0.iter().map(|length| u32::from_le_bytes(*length));
        let mut at = self.head as u64;
        for (column, size) in self.sizes.iter().enumerate() {
            let size = match size {
                Some(size) => *size,
                None => lengths.next().unwrap_or(0),
            };
            let end = at + u64::from(size);
            say(column, at..end);
            at = end;
        }
        if at != len {
            return Err(SampleError::Length { bytes: len, columns: at });
        }
        Ok(())
    }
}

/// The values of an array in a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArrayCell<'a> {
    pub dtype: MdsDtype,
    pub count: usize,
    /// The bytes of `count` values.
    pub bytes: &'a [u8],
}

/// Reads the array of a sample. A `bytes` column has the dtype `raw`, because no dtype is stored with it.
///
/// What the encoding does not say precedes the values: a byte for the dtype; a byte `ndim << 2 | w` and the shape, each length in
/// `1 << w` bytes. An array of which several lengths are above 1 is no row.
#[inline]
pub(crate) fn parse_array<'a>(
    encoding: &ColumnEncoding,
    raw: MdsDtype,
    cell: &'a [u8],
) -> Result<ArrayCell<'a>, SampleError> {
    let mut rest = cell;
    let (dtype, shape) = match encoding {
        ColumnEncoding::Bytes => {
            let count = cell.len() / raw.size();
            if !cell.len().is_multiple_of(raw.size()) {
                return Err(SampleError::RawBytes { bytes: cell.len(), dtype: raw });
            }
            return Ok(ArrayCell { dtype: raw, count, bytes: cell });
        }
        ColumnEncoding::Array { dtype, shape } => (*dtype, shape.as_deref()),
        _ => return Err(SampleError::NotArray),
    };
    let dtype = match dtype {
        Some(dtype) => dtype,
        None => {
            let number = take_byte(&mut rest)?;
            MdsDtype::numbered(number).ok_or(SampleError::DtypeNumber { number })?
        }
    };
    let count = match shape {
        Some(shape) => flat_length(shape.iter().copied())?,
        None => {
            let head = take_byte(&mut rest)?;
            let (sides, width) = (usize::from(head >> 2), 1_usize << (head & 3));
            let (shape, values) = rest.split_at_checked(sides * width).ok_or(SampleError::ShortArray)?;
            rest = values;
            if sides == 0 {
                return Err(SampleError::NoAxis);
            }
            flat_length(shape.chunks_exact(width).map(|side| {
                let mut wide = [0; 8];
                wide[..width].copy_from_slice(side);
                u64::from_le_bytes(wide)
            }))?
        }
    };
    if (rest.len() as u64) != count.saturating_mul(dtype.size() as u64) {
        return Err(SampleError::ArrayBytes { count, dtype, bytes: rest.len() });
    }
    Ok(ArrayCell { dtype, count: count as usize, bytes: rest })
}

fn take_byte(rest: &mut &[u8]) -> Result<u8, SampleError> {
    let (first, others) = rest.split_first().ok_or(SampleError::ShortArray)?;
    *rest = others;
    Ok(*first)
}

/// Number of values of a shape in which at most one length is not 1.
fn flat_length(sides: impl Iterator<Item = u64>) -> Result<u64, SampleError> {
    let mut count = 1;
    for side in sides {
        if side != 1 && count != 1 {
            return Err(SampleError::Shape { rows: count, columns: side });
        }
        if side != 1 {
            count = side;
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_behind_the_lengths() {
        let shape = SampleLayout::new(vec![None, Some(2), None]);
        let sample = [3, 0, 0, 0, 1, 0, 0, 0, 10, 11, 12, 20, 21, 30];
        assert_eq!(shape.cells(&sample, [0, 2]), Ok([&[10, 11, 12][..], &[30][..]]));
        assert_eq!(shape.cells(&sample, [1, 1]), Ok([&[20, 21][..]; 2]));
        assert_eq!(shape.cell(&sample[..8], 14, 2), Ok(13..14));
        assert!(shape.cells(&sample[..13], [0, 2]).unwrap_err().to_string().contains("13 bytes, its columns 14"));
        assert!(shape.cells(&sample[..7], [0, 2]).unwrap_err().to_string().contains("cut short"));
    }

    fn read(encoding: &str, cell: &[u8]) -> Result<(MdsDtype, usize), SampleError> {
        parse_array(&ColumnEncoding::parse(encoding).unwrap(), MdsDtype::I32, cell).map(|cell| (cell.dtype, cell.count))
    }

    #[test]
    fn shapes_and_types_are_where_the_encoding_leaves_them() {
        assert_eq!(read("ndarray:uint8:3", &[1, 2, 3]), Ok((MdsDtype::U8, 3)));
        assert_eq!(read("ndarray:uint8", &[4, 2, 1, 2]), Ok((MdsDtype::U8, 2)));
        assert_eq!(read("ndarray", &[17, 5, 2, 0, 1, 2, 3, 4]), Ok((MdsDtype::I16, 2)));
        assert_eq!(read("ndarray:uint8", &[8, 1, 2, 9, 9]), Ok((MdsDtype::U8, 2)));
        // What the package cannot write, but reads: no value at all.
        assert_eq!(read("ndarray:float32", &[4, 0]), Ok((MdsDtype::F32, 0)));
        assert_eq!(read("bytes", &[0; 8]), Ok((MdsDtype::I32, 2)));
        for (encoding, cell, reason) in [
            ("ndarray:uint8", &[][..], "cut short"),
            ("ndarray:uint8", &[4], "cut short"),
            ("ndarray:uint8", &[4, 3, 1, 2], "3 values of uint8 has 2 bytes"),
            ("ndarray:uint8", &[8, 2, 2, 1, 2, 3, 4], "2 × 2"),
            ("ndarray:uint8", &[0, 1], "no axis"),
            ("ndarray:uint8", &[7, 255, 255, 255, 255, 255, 255, 255, 255], "has 0 bytes"),
            ("ndarray", &[3, 4, 0], "of type 3"),
            ("bytes", &[0; 7], "no values of int32"),
            ("str", &[0; 7], "no array"),
        ] {
            let found = read(encoding, cell).unwrap_err().to_string();
            assert!(found.contains(reason), "{found}");
        }
    }
}
