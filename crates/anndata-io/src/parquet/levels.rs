use super::layout::Leaf;
use super::runs::{Run, Runs, unpack_one};

/// Number of bits of levels up to `max`.
pub(super) fn width(max: i16) -> u32 {
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
    let mut runs = Runs::new(bytes, width)?;
    let mut at = 0;
    while at < count {
        match runs.next()? {
            Run::Repeat { value, count: n } => {
                let n = n.min(count - at);
                each(at, value, n)?;
                at += n;
            }
            Run::Packed { bytes, count: n } => {
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
pub(super) fn all_defined(bytes: &[u8], max: i16, count: usize) -> Result<bool, &'static str> {
    let (max_level, mut all) = (max as u32, true);
    for_runs(bytes, width(max), count, |_, level, _| {
        all &= level == max_level;
        Ok(())
    })?;
    Ok(all)
}

/// Which of `count` values are there: those whose definition level is `max`.
pub(super) fn defined(bytes: &[u8], max: i16, count: usize) -> Result<Vec<bool>, &'static str> {
    let mut defined = Vec::with_capacity(count);
    for_runs(bytes, width(max), count, |_, level, n| {
        defined.resize(defined.len() + n, level == max as u32);
        Ok(())
    })?;
    Ok(defined)
}

/// Check that a row begins at every multiple of `genes` and nowhere else, in `count` repetition levels of which the
/// first is that of value number `first` of the row group.
pub(super) fn check_rows(bytes: &[u8], first: u64, count: usize, genes: u64) -> Result<(), Ragged> {
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
    .map_err(Ragged::Damaged)?;
    ragged.map_or(Ok(()), |row| Err(Ragged::Row(row)))
}

/// Why rows are not of equal length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ragged {
    /// The levels cannot be read.
    Damaged(&'static str),
    /// This row of the row group has another length.
    Row(u64),
}

/// How the values of a page are parts of rows.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Lists {
    /// Values that belong to the last row of the page before.
    pub(super) lead: usize,
    /// Values of each row that begins here.
    pub(super) lens: Vec<u32>,
}

/// What lists of a page can be at most. A page says in a few bytes that it has billions of equal levels; nobody makes
/// room for more than these.
#[derive(Clone, Copy, Debug)]
pub(super) struct Most {
    /// Rows of its row group.
    pub(super) rows: u64,
    /// How many of them begin before the page.
    pub(super) begun: u64,
    /// Values of a row.
    pub(super) genes: usize,
    /// Values and empty lists of its column chunk, as the footer says.
    pub(super) values: u64,
}

impl Most {
    /// An error where a page cannot have `count` values and empty lists.
    pub(super) fn check(&self, count: usize) -> Result<(), String> {
        let most = self.values.min(self.rows.saturating_mul(self.genes.max(1) as u64));
        if count as u64 > most {
            return Err(format!("a page says that it has {count} values, there can be {most}"));
        }
        Ok(())
    }
}

const TOO_MANY_LISTS: &str = "there are more lists than rows";
pub(super) const TOO_LONG: &str = "a row has more values than there are genes";

impl Lists {
    /// Rows begin: as many as `lens` has, with so many values of their first one.
    fn begin(&mut self, lens: impl ExactSizeIterator<Item = u32>, most: Most) -> Result<(), &'static str> {
        if most.begun + (self.lens.len() + lens.len()) as u64 > most.rows {
            return Err(TOO_MANY_LISTS);
        }
        self.lens.extend(lens);
        Ok(())
    }

    /// The last row goes on by `n` values.
    fn go_on(&mut self, n: usize, most: Most) -> Result<(), &'static str> {
        let before = self.lens.last().map_or(self.lead, |len| *len as usize);
        if before + n > most.genes {
            return Err(TOO_LONG);
        }
        match self.lens.last_mut() {
            Some(len) => *len += n as u32,
            None => self.lead += n,
        }
        Ok(())
    }
}

/// Levels of list column `leaf`, `count` of them, which [`Most::check`] has allowed: repetition 0 begins a row;
/// definition says whether there is a value, or a list without one.
pub(super) fn lists(
    repetition: &[u8],
    definition: &[u8],
    count: usize,
    leaf: &Leaf,
    most: Most,
    lists: &mut Lists,
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
    for_runs(definition, width(max), count, |_, level, n| {
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
