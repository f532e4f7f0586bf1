use crate::parquet::schema::MatrixColumn;

/// Number of bits of levels up to `max`.
fn level_width(max: i16) -> u32 {
    u16::BITS - (max.max(0) as u16).leading_zeros()
}

/// Call `each` with every run of `count` levels: how many come before it, its value and its length. Packed levels come
/// as runs of eight or fewer equal ones.
fn for_runs(
    bytes: &[u8],
    width: u32,
    count: usize,
    mut each: impl FnMut(usize, u32, usize) -> Result<(), &'static str>,
) -> Result<(), &'static str> {
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
                    // Eight ones are common: they begin and end the runs of rows.
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

/// Whether all of `count` definition levels are `max`: nothing is missing.
pub(crate) fn all_defined(bytes: &[u8], max: i16, count: usize) -> Result<bool, &'static str> {
    let (max_level, mut all) = (max as u32, true);
    for_runs(bytes, level_width(max), count, |_, level, _| {
        all &= level == max_level;
        Ok(())
    })?;
    Ok(all)
}

/// Which of `count` values are there: those whose definition level is `max`.
pub(crate) fn defined_values(bytes: &[u8], max: i16, count: usize) -> Result<Vec<bool>, &'static str> {
    let mut defined = Vec::with_capacity(count);
    for_runs(bytes, level_width(max), count, |_, level, n| {
        defined.resize(defined.len() + n, level == max as u32);
        Ok(())
    })?;
    Ok(defined)
}

/// Check that a row begins at every multiple of `genes` and nowhere else, in `count` repetition levels of which the
/// first is that of value number `first` of the row group.
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

/// Why rows are not of equal length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RaggedRows {
    /// The levels cannot be read.
    Damaged(&'static str),
    /// This row of the row group has another length.
    Row(u64),
}

/// How the values of a page are parts of rows.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ListLengths {
    /// Values that belong to the last row of the page before.
    pub lead: usize,
    /// Values of each row that begins here.
    pub lens: Vec<u32>,
}

/// What lists of a page can be at most. A page says in a few bytes that it has billions of equal levels; nobody makes
/// room for more than these.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListLimit {
    /// Rows of its row group.
    pub rows: u64,
    /// How many of them begin before the page.
    pub begun: u64,
    /// Values of a row.
    pub genes: usize,
    /// Values and empty lists of its column chunk, as the footer says.
    pub values: u64,
}

impl ListLimit {
    /// An error where a page cannot have `count` values and empty lists.
    pub fn check(&self, count: usize) -> Result<(), String> {
        let most = self.values.min(self.rows.saturating_mul(self.genes.max(1) as u64));
        if count as u64 > most {
            return Err(format!("a page says that it has {count} values, there can be {most}"));
        }
        Ok(())
    }
}

const TOO_MANY_LISTS: &str = "there are more lists than rows";
pub(crate) const ROW_TOO_LONG: &str = "a row has more values than there are genes";

impl ListLengths {
    /// Rows begin: as many as `lens` has, with so many values of their first one.
    fn begin(&mut self, lens: impl ExactSizeIterator<Item = u32>, most: ListLimit) -> Result<(), &'static str> {
        if most.begun + (self.lens.len() + lens.len()) as u64 > most.rows {
            return Err(TOO_MANY_LISTS);
        }
        self.lens.extend(lens);
        Ok(())
    }

    /// The last row goes on by `n` values.
    fn go_on(&mut self, n: usize, most: ListLimit) -> Result<(), &'static str> {
        let before = self.lens.last().map_or(self.lead, |len| *len as usize);
        if before + n > most.genes {
            return Err(ROW_TOO_LONG);
        }
        match self.lens.last_mut() {
            Some(len) => *len += n as u32,
            None => self.lead += n,
        }
        Ok(())
    }
}

/// Levels of list column `leaf`, `count` of them, which [`ListLimit::check`] has allowed: repetition 0 begins a row;
/// definition says whether there is a value, or a list without one.
pub(crate) fn read_lists(
    repetition: &[u8],
    definition: &[u8],
    count: usize,
    leaf: &MatrixColumn,
    most: ListLimit,
    lists: &mut ListLengths,
) -> Result<(), &'static str> {
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
        return Err("values are missing (null)");
    }
    for_runs(repetition, 1, count, |at, level, n| {
        if level == 0 {
            return lists.begin(defined[at..at + n].iter().map(|defined| u32::from(*defined)), most);
        }
        if !defined[at..at + n].iter().all(|defined| *defined) {
            return Err("a list that is empty goes on");
        }
        if lists.lens.last() == Some(&0) {
            return Err("a list that is empty goes on");
        }
        lists.go_on(n, most)
    })
}

/// Runs of the hybrid of run lengths and packed bits that levels and dictionary indices are in (Encodings.md, *RLE*).
#[derive(Clone, Copy, Debug)]
pub(crate) struct HybridRuns<'a> {
    bytes: &'a [u8],
    width: u32,
}

/// One of [`HybridRuns`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum HybridRun<'a> {
    /// The same value again and again.
    Repeat { value: u32, count: usize },
    /// `count` values of as many bits as the width is, the first in the lowest; the last of all runs may have more than
    /// were written.
    Packed { bytes: &'a [u8], count: usize },
}

impl<'a> HybridRuns<'a> {
    /// Of values of `width` bits, 32 at most.
    pub fn new(bytes: &'a [u8], width: u32) -> Result<Self, &'static str> {
        if width > 32 { Err("values have more than 32 bits") } else { Ok(Self { bytes, width }) }
    }

    pub fn width(&self) -> u32 {
        self.width
    }

    /// The next run; it has one value or more.
    #[inline]
    pub fn next(&mut self) -> Result<HybridRun<'a>, &'static str> {
        const SHORT: &str = "values are cut short";
        let (mut header, mut shift) = (0_u64, 0);
        loop {
            let (byte, rest) = self.bytes.split_first().ok_or(SHORT)?;
            self.bytes = rest;
            header |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
            shift += 7;
            if shift > 28 {
                return Err("a run is too long");
            }
        }
        let count = (header >> 1) as usize;
        if count == 0 {
            return Err("a run of no values");
        }
        if header & 1 == 0 {
            let (value, rest) = self.bytes.split_at_checked(self.width.div_ceil(8) as usize).ok_or(SHORT)?;
            self.bytes = rest;
            let value = value.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte));
            return Ok(HybridRun::Repeat { value, count });
        }
        if self.width == 0 {
            return Ok(HybridRun::Repeat { value: 0, count: count * 8 });
        }
        // Some writers leave out the last bytes of the last group.
        let bytes = (count * self.width as usize).min(self.bytes.len());
        let (packed, rest) = self.bytes.split_at(bytes);
        self.bytes = rest;
        let count = (count * 8).min(bytes * 8 / self.width as usize);
        if count == 0 { Err(SHORT) } else { Ok(HybridRun::Packed { bytes: packed, count }) }
    }
}

/// Value number `at` of packed ones; 0 where there are no bytes.
#[inline]
pub(crate) fn unpack_one(bytes: &[u8], width: u32, at: usize) -> u32 {
    let bit = at * width as usize;
    let rest = bytes.get(bit / 8..).unwrap_or_default();
    let mut word = [0; 8];
    let len = rest.len().min(8);
    word[..len].copy_from_slice(&rest[..len]);
    ((u64::from_le_bytes(word) >> (bit % 8)) & ((1_u64 << width) - 1)) as u32
}

/// Hand out packed values eight at a time: `groups` of them, the first in `bytes[0]`, to `each` with the group's
/// number.
///
/// # Errors
/// What `each` returns.
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

/// [`unpack_groups`] of a width that the compiler knows, of 24 bits at most: each value is in the four bytes from its
/// first on.
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
