use std::ops::Range;

/// Where the values of each column are in a sample: the lengths of those that differ in length (uint32), then all values,
/// in the order of the columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SampleShape {
    /// Bytes of each column, where all samples have as many.
    sizes: Vec<Option<u32>>,
    /// Bytes of the lengths.
    head: usize,
}

impl SampleShape {
    pub(super) fn new(sizes: Vec<Option<u32>>) -> Self {
        let head = 4 * sizes.iter().filter(|size| size.is_none()).count();
        Self { sizes, head }
    }

    /// Bytes of the lengths that a sample begins with.
    pub(super) const fn head(&self) -> usize {
        self.head
    }

    /// Where a column is in a sample of `len` bytes, of which `head` are the first; they can be more than the lengths.
    pub(super) fn cell(&self, head: &[u8], len: u64, wanted: usize) -> Result<Range<u64>, String> {
        let mut found = 0..0;
        self.walk(head, len, |column, cell| {
            if column == wanted {
                found = cell;
            }
        })?;
        Ok(found)
    }

    /// Where two columns are in a sample.
    pub(super) fn cells<'a>(&self, sample: &'a [u8], wanted: [usize; 2]) -> Result<[&'a [u8]; 2], String> {
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

    /// Say where each column is, and compare what they are together with the length of the sample.
    #[inline]
    fn walk(&self, head: &[u8], len: u64, mut say: impl FnMut(usize, Range<u64>)) -> Result<(), String> {
        let lengths = head.get(..self.head).ok_or("a sample is cut short")?;
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
            return Err(format!("a sample has {len} bytes, its columns {at}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_behind_the_lengths() {
        let shape = SampleShape::new(vec![None, Some(2), None]);
        let sample = [3, 0, 0, 0, 1, 0, 0, 0, 10, 11, 12, 20, 21, 30];
        assert_eq!(shape.cells(&sample, [0, 2]), Ok([&[10, 11, 12][..], &[30][..]]));
        assert_eq!(shape.cells(&sample, [1, 1]), Ok([&[20, 21][..]; 2]));
        assert_eq!(shape.cell(&sample[..8], 14, 2), Ok(13..14));
        assert!(shape.cells(&sample[..13], [0, 2]).unwrap_err().contains("13 bytes, its columns 14"));
        assert!(shape.cells(&sample[..7], [0, 2]).unwrap_err().contains("cut short"));
    }
}
