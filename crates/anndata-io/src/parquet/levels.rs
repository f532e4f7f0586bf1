//! Repetition and definition levels say which values of a page are missing and where rows begin. Levels and dictionary indices share one encoding,
//! a hybrid of run lengths and bit-packing, which `HybridRuns` reads.

use crate::parquet::error::{EncodingError, PageError};
use crate::parquet::schema::MatrixColumn;

/// Number of bits of levels up to `max`.
pub(crate) fn level_width(max: i16) -> u32 {
    u16::BITS - (max.max(0) as u16).leading_zeros()
}

/// Converts `count` levels of `width` bits of the deprecated encoding `BIT_PACKED`, which begins with the highest bit of a byte, to one
/// bit-packed run of `RLE`, which begins with the lowest (Encodings.md). `packed` has them all.
pub(crate) fn hybrid_of_bit_packed(packed: &[u8], width: u32, count: usize, out: &mut Vec<u8>) {
    out.clear();
    let groups = count.div_ceil(8);
    let mut header = (groups << 1 | 1) as u64;
    while header >= 0x80 {
        out.push(header as u8 | 0x80);
        header >>= 7;
    }
    out.push(header as u8);
    let first = out.len();
    out.resize(first + groups * width as usize, 0);
    let width = width as usize;
    for bit in 0..count * width {
        // Within a level the lowest bit comes last.
        let to = bit / width * width + (width - 1 - bit % width);
        let is_set = packed[bit / 8] >> (7 - bit % 8) & 1;
        out[first + to / 8] |= is_set << (to % 8);
    }
}

/// Calls `each` with every run of `count` levels: the number of levels before it, its value and its length. Bit-packed levels
/// are split into runs of at most eight equal levels.
fn for_runs(
    bytes: &[u8],
    width: u32,
    count: usize,
    mut each: impl FnMut(usize, u32, usize) -> Result<(), EncodingError>,
) -> Result<(), EncodingError> {
    let mut runs = HybridRuns::new(bytes, width)?;
    let mut at = 0;
    while at < count {
        match runs.next()? {
            HybridRun::Repeat { value, count: n } => {
                let n = n.min(count - at);
                each(at, value, n)?;
                at += n;
            }
            HybridRun::Packed { bytes, count: n } => {
                let n = n.min(count - at);
                if width == 1 {
                    // Groups of eight equal levels are common: they begin and end the runs of rows.
                    for (i, byte) in bytes.iter().enumerate().take(n.div_ceil(8)) {
                        let n = (n - i * 8).min(8);
                        if *byte == 0xff {
                            each(at + i * 8, 1, n)?;
                        } else {
                            for bit in 0..n {
                                each(at + i * 8 + bit, u32::from(byte >> bit) & 1, 1)?;
                            }
                        }
                    }
                } else {
                    for i in 0..n {
                        each(at + i, unpack_one(bytes, width, i), 1)?;
                    }
                }
                at += n;
            }
        }
    }
    Ok(())
}

/// Whether all of `count` definition levels are `max`, so that no value is missing.
pub(crate) fn all_defined(bytes: &[u8], max: i16, count: usize) -> Result<bool, EncodingError> {
    let (max_level, mut all) = (max as u32, true);
    for_runs(bytes, level_width(max), count, |_, level, _| {
        all &= level == max_level;
        Ok(())
    })?;
    Ok(all)
}

/// For each of `count` values, whether it is present, which means that its definition level is `max`.
pub(crate) fn defined_values(bytes: &[u8], max: i16, count: usize) -> Result<Vec<bool>, EncodingError> {
    let mut defined = Vec::with_capacity(count);
    for_runs(bytes, level_width(max), count, |_, level, n| {
        defined.resize(defined.len() + n, level == max as u32);
        Ok(())
    })?;
    Ok(defined)
}

/// Checks that `count` repetition levels, the first of which is that of value number `first` of the row group, begin a row at
/// every multiple of `genes` and nowhere else.
pub(crate) fn check_row_starts(bytes: &[u8], first: u64, count: usize, genes: u64) -> Result<(), RaggedRows> {
    let mut ragged = None;
    for_runs(bytes, 1, count, |at, level, n| {
        let at = first + at as u64;
        let next_row = at.next_multiple_of(genes);
        let fits = if level == 0 { at == next_row && (n == 1 || genes == 1) } else { next_row >= at + n as u64 };
        if !fits {
            ragged.get_or_insert(at / genes);
        }
        Ok(())
    })
    .map_err(RaggedRows::Damaged)?;
    ragged.map_or(Ok(()), |row| Err(RaggedRows::Row(row)))
}

/// Why rows do not have the same length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RaggedRows {
    /// The levels cannot be decoded.
    Damaged(EncodingError),
    /// A row of the row group has another length.
    Row(u64),
}

/// How the values of a page are divided into rows.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ListLengths {
    /// Number of values that belong to the last row of the previous page.
    pub lead: usize,
    /// Number of values of each row that begins in this page.
    pub lens: Vec<u32>,
}

/// Limits of the lists of a page. A damaged page can claim billions of equal levels in a few bytes; no memory is allocated
/// beyond these limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListLimit {
    /// Number of rows of the row group.
    pub rows: u64,
    /// Number of rows that begin before the page.
    pub begun: u64,
    /// Maximum number of values of a row.
    pub genes: usize,
    /// Number of values and empty lists of the column chunk, from the footer.
    pub values: u64,
}

impl ListLimit {
    /// Fails if the page cannot have `count` values and empty lists.
    pub fn check(&self, count: usize) -> Result<(), PageError> {
        let most = self.values.min(self.rows.saturating_mul(self.genes.max(1) as u64));
        if count as u64 > most {
            return Err(PageError::TooManyValues { values: count, max_values: most });
        }
        Ok(())
    }
}

impl ListLengths {
    /// Appends rows that begin here to `lens`, each with so many values.
    fn begin(&mut self, lens: impl ExactSizeIterator<Item = u32>, most: ListLimit) -> Result<(), EncodingError> {
        if most.begun + (self.lens.len() + lens.len()) as u64 > most.rows {
            return Err(EncodingError::TooManyLists);
        }
        self.lens.extend(lens);
        Ok(())
    }

    /// The last row continues with `n` values.
    fn go_on(&mut self, n: usize, most: ListLimit) -> Result<(), EncodingError> {
        let before = self.lens.last().map_or(self.lead, |len| *len as usize);
        if before + n > most.genes {
            return Err(EncodingError::LongRow);
        }
        match self.lens.last_mut() {
            Some(len) => *len += n as u32,
            None => self.lead += n,
        }
        Ok(())
    }
}

/// Divides `count` levels of list column `leaf`, which passed [`ListLimit::check`], into rows. Repetition 0 begins a row;
/// definition distinguishes a value from an empty list.
pub(crate) fn read_lists(
    repetition: &[u8],
    definition: &[u8],
    count: usize,
    leaf: &MatrixColumn,
    most: ListLimit,
    lists: &mut ListLengths,
) -> Result<(), EncodingError> {
    let (max, empty) = (leaf.max_definition, leaf.empty);
    lists.lead = 0;
    lists.lens.clear();
    if all_defined(definition, max, count)? {
        return for_runs(repetition, 1, count, |_, level, n| match level {
            0 => lists.begin(std::iter::repeat_n(1, n), most),
            _ => lists.go_on(n, most),
        });
    }
    let mut defined = Vec::with_capacity(count);
    let mut missing = false;
    for_runs(definition, level_width(max), count, |_, level, n| {
        missing |= level != max as u32 && level != empty as u32;
        defined.resize(defined.len() + n, level == max as u32);
        Ok(())
    })?;
    if missing {
        return Err(EncodingError::Null);
    }
    for_runs(repetition, 1, count, |at, level, n| {
        if level == 0 {
            return lists.begin(defined[at..at + n].iter().map(|defined| u32::from(*defined)), most);
        }
        if !defined[at..at + n].iter().all(|defined| *defined) {
            return Err(EncodingError::EmptyList);
        }
        if lists.lens.last() == Some(&0) {
            return Err(EncodingError::EmptyList);
        }
        lists.go_on(n, most)
    })
}

/// Runs of the RLE/bit-packing hybrid encoding of levels and dictionary indices (Encodings.md, *RLE*).
#[derive(Clone, Copy, Debug)]
pub(crate) struct HybridRuns<'a> {
    bytes: &'a [u8],
    width: u32,
}

/// A run of [`HybridRuns`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum HybridRun<'a> {
    /// A repeated value.
    Repeat { value: u32, count: usize },
    /// `count` values of the bit width, least significant bits first; the last run may be padded.
    Packed { bytes: &'a [u8], count: usize },
}

impl<'a> HybridRuns<'a> {
    /// Runs of values of `width` bits, at most 32.
    pub fn new(bytes: &'a [u8], width: u32) -> Result<Self, EncodingError> {
        if width > 32 { Err(EncodingError::Width) } else { Ok(Self { bytes, width }) }
    }

    pub fn width(&self) -> u32 {
        self.width
    }

    /// The next run, which has at least one value.
    #[inline]
    pub fn next(&mut self) -> Result<HybridRun<'a>, EncodingError> {
        let (mut header, mut shift) = (0_u64, 0);
        loop {
            let (byte, rest) = self.bytes.split_first().ok_or(EncodingError::CutShort)?;
            self.bytes = rest;
            header |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
            shift += 7;
            if shift > 28 {
                return Err(EncodingError::LongRun);
            }
        }
        let count = (header >> 1) as usize;
        if count == 0 {
            return Err(EncodingError::EmptyRun);
        }
        if header & 1 == 0 {
            let (value, rest) =
                self.bytes.split_at_checked(self.width.div_ceil(8) as usize).ok_or(EncodingError::CutShort)?;
            self.bytes = rest;
            let value = value.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte));
            return Ok(HybridRun::Repeat { value, count });
        }
        if self.width == 0 {
            return Ok(HybridRun::Repeat { value: 0, count: count * 8 });
        }
        // Some writers omit the last bytes of the last group.
        let bytes = (count * self.width as usize).min(self.bytes.len());
        let (packed, rest) = self.bytes.split_at(bytes);
        self.bytes = rest;
        let count = (count * 8).min(bytes * 8 / self.width as usize);
        if count == 0 { Err(EncodingError::CutShort) } else { Ok(HybridRun::Packed { bytes: packed, count }) }
    }
}

/// The bit-packed value number `at`; 0 beyond the bytes.
#[inline]
pub(crate) fn unpack_one(bytes: &[u8], width: u32, at: usize) -> u32 {
    let bit = at * width as usize;
    let rest = bytes.get(bit / 8..).unwrap_or_default();
    let mut word = [0; 8];
    let len = rest.len().min(8);
    word[..len].copy_from_slice(&rest[..len]);
    ((u64::from_le_bytes(word) >> (bit % 8)) & ((1_u64 << width) - 1)) as u32
}

/// Unpacks `groups` groups of eight values, the first of which starts at `bytes[0]`, and calls `each` with every group and its
/// number.
///
/// # Errors
/// The error of `each`.
#[inline]
pub(crate) fn unpack_groups<E>(
    bytes: &[u8],
    width: u32,
    groups: usize,
    each: impl FnMut(usize, &[u32; 8]) -> Result<(), E>,
) -> Result<(), E> {
    macro_rules! by_width {
        ($($width:literal)*) => {
            match width {
                $($width => unpack_const::<$width, E>(bytes, groups, each),)*
                _ => unpack_any(bytes, width, groups, each),
            }
        };
    }
    by_width!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20)
}

/// [`unpack_groups`] with a constant width of at most 24 bits, so that each value is within the four bytes from its first byte
/// on.
#[inline]
fn unpack_const<const WIDTH: usize, E>(
    bytes: &[u8],
    groups: usize,
    mut each: impl FnMut(usize, &[u32; 8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut out = [0; 8];
    for group in 0..groups {
        let from = group * WIDTH;
        if let Some(block) = bytes.get(from..from + WIDTH + 4) {
            for (i, out) in out.iter_mut().enumerate() {
                let (byte, bit) = (i * WIDTH / 8, i * WIDTH % 8);
                let word = u32::from_le_bytes([block[byte], block[byte + 1], block[byte + 2], block[byte + 3]]);
                *out = (word >> bit) & ((1 << WIDTH) - 1);
            }
        } else {
            out = std::array::from_fn(|i| unpack_one(bytes, WIDTH as u32, group * 8 + i));
        }
        each(group, &out)?;
    }
    Ok(())
}

fn unpack_any<E>(
    bytes: &[u8],
    width: u32,
    groups: usize,
    mut each: impl FnMut(usize, &[u32; 8]) -> Result<(), E>,
) -> Result<(), E> {
    for group in 0..groups {
        each(group, &std::array::from_fn(|i| unpack_one(bytes, width, group * 8 + i)))?;
    }
    Ok(())
}
