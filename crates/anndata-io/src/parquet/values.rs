use parquet::basic::Encoding;

use super::delta;
use super::numeric::{Element, Numeric};
use super::runs::{Run, Runs, unpack_groups, unpack_one};

const SHORT: &str = "values are cut short";
const NOT_IN_DICTIONARY: &str = "a value is not in the dictionary";

/// The values of a page, taken from first to last.
pub(super) enum Values<'a, T> {
    /// One after another.
    Plain { numeric: Numeric, bytes: &'a [u8] },
    /// Numbers of values of the dictionary.
    Dictionary(Indices<'a, T>),
    /// All first bytes, then all second ones, and so on (Encodings.md, *Byte Stream Split*).
    Split { numeric: Numeric, bytes: &'a [u8], at: usize },
    /// They had to be decoded all at once.
    Decoded { values: Vec<T>, at: usize },
}

impl<'a, T: Element> Values<'a, T> {
    /// Of a page of `count` values at most; `dictionary` is that of its column chunk.
    pub(super) fn new(
        encoding: Encoding,
        numeric: Numeric,
        bytes: &'a [u8],
        count: usize,
        dictionary: Option<&'a [T]>,
    ) -> Result<Self, String> {
        match encoding {
            Encoding::PLAIN => Ok(Self::Plain { numeric, bytes }),
            Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY => {
                let table = dictionary.ok_or("a page needs a dictionary, there is none")?;
                Ok(Self::Dictionary(Indices::new(bytes, table)?))
            }
            Encoding::BYTE_STREAM_SPLIT => Ok(Self::Split { numeric, bytes, at: 0 }),
            Encoding::DELTA_BINARY_PACKED => Ok(Self::Decoded { values: delta::decode(numeric, bytes, count)?, at: 0 }),
            other => Err(format!(
                "values are encoded as {other}, which is not read here: write the file with plain or dictionary \
                 encoding"
            )),
        }
    }

    /// The next values.
    #[inline]
    pub(super) fn read(&mut self, out: &mut [T]) -> Result<(), &'static str> {
        match self {
            Self::Plain { numeric, bytes } => {
                let (these, rest) = bytes.split_at_checked(out.len() * numeric.bytes()).ok_or(SHORT)?;
                *bytes = rest;
                T::convert(*numeric, these, out)
            }
            Self::Dictionary(indices) => indices.read(out),
            Self::Split { numeric, bytes, at } => {
                read_split(*numeric, bytes, *at, out)?;
                *at += out.len();
                Ok(())
            }
            Self::Decoded { values, at } => {
                out.copy_from_slice(values.get(*at..*at + out.len()).ok_or(SHORT)?);
                *at += out.len();
                Ok(())
            }
        }
    }

    /// Append the next values to `out`, which grows no farther than there are some.
    pub(super) fn append(&mut self, count: usize, out: &mut Vec<T>) -> Result<(), &'static str> {
        /// Values that are made room for at once.
        const AT_ONCE: usize = 1 << 14;
        let end = out.len() + count;
        while out.len() < end {
            let start = out.len();
            out.resize((start + AT_ONCE).min(end), T::default());
            self.read(&mut out[start..])?;
        }
        Ok(())
    }

    /// Leave values out.
    pub(super) fn skip(&mut self, count: usize) -> Result<(), &'static str> {
        match self {
            Self::Plain { numeric, bytes } => {
                *bytes = count.checked_mul(numeric.bytes()).and_then(|skip| bytes.get(skip..)).ok_or(SHORT)?;
            }
            Self::Dictionary(indices) => indices.skip(count)?,
            Self::Split { at, .. } | Self::Decoded { at, .. } => *at = at.checked_add(count).ok_or(SHORT)?,
        }
        Ok(())
    }
}

fn read_split<T: Element>(numeric: Numeric, bytes: &[u8], first: usize, out: &mut [T]) -> Result<(), &'static str> {
    const BLOCK: usize = 256;
    let width = numeric.bytes();
    let stream = bytes.len() / width;
    if first.checked_add(out.len()).is_none_or(|end| end > stream) {
        return Err(SHORT);
    }
    let mut whole = [0; BLOCK * 8];
    let mut at = first;
    for out in out.chunks_mut(BLOCK) {
        for byte in 0..width {
            let from = &bytes[byte * stream + at..][..out.len()];
            from.iter().zip(whole[byte..].iter_mut().step_by(width)).for_each(|(from, to)| *to = *from);
        }
        T::convert(numeric, &whole[..out.len() * width], out)?;
        at += out.len();
    }
    Ok(())
}

/// Values as numbers of those of a dictionary.
pub(super) struct Indices<'a, T> {
    runs: Runs<'a>,
    table: &'a [T],
    run: Taken<'a, T>,
}

/// What is left of a run.
enum Taken<'a, T> {
    None,
    Repeat { value: T, left: usize },
    Packed { bytes: &'a [u8], at: usize, count: usize },
}

impl<'a, T: Copy> Indices<'a, T> {
    /// `bytes` are those of a page behind its levels.
    pub(super) fn new(bytes: &'a [u8], table: &'a [T]) -> Result<Self, &'static str> {
        // A page without values may have nothing at all.
        let (width, bytes) = bytes.split_first().unwrap_or((&0, &[]));
        Ok(Self { runs: Runs::new(bytes, u32::from(*width))?, table, run: Taken::None })
    }

    #[inline]
    fn next_run(&mut self) -> Result<(), &'static str> {
        self.run = match self.runs.next()? {
            Run::Repeat { value, count } => {
                Taken::Repeat { value: *self.table.get(value as usize).ok_or(NOT_IN_DICTIONARY)?, left: count }
            }
            Run::Packed { bytes, count } => Taken::Packed { bytes, at: 0, count },
        };
        Ok(())
    }

    pub(super) fn read(&mut self, mut out: &mut [T]) -> Result<(), &'static str> {
        while !out.is_empty() {
            let take = match &mut self.run {
                Taken::Repeat { value, left } if *left > 0 => {
                    let take = out.len().min(*left);
                    out[..take].fill(*value);
                    *left -= take;
                    take
                }
                Taken::Packed { bytes, at, count } if *at < *count => {
                    let take = out.len().min(*count - *at);
                    read_packed(bytes, self.runs.width(), *at, self.table, &mut out[..take])?;
                    *at += take;
                    take
                }
                _ => {
                    self.next_run()?;
                    0
                }
            };
            out = &mut out[take..];
        }
        Ok(())
    }

    fn skip(&mut self, mut count: usize) -> Result<(), &'static str> {
        while count > 0 {
            count -= match &mut self.run {
                Taken::Repeat { left, .. } if *left > 0 => {
                    let take = count.min(*left);
                    *left -= take;
                    take
                }
                Taken::Packed { at, count: all, .. } if *at < *all => {
                    let take = count.min(*all - *at);
                    *at += take;
                    take
                }
                _ => {
                    self.next_run()?;
                    0
                }
            };
        }
        Ok(())
    }
}

/// Look up packed numbers from number `at` on.
#[inline]
fn read_packed<T: Copy>(bytes: &[u8], width: u32, at: usize, table: &[T], out: &mut [T]) -> Result<(), &'static str> {
    let one = |at: usize| table.get(unpack_one(bytes, width, at) as usize).copied().ok_or(NOT_IN_DICTIONARY);
    let lead = (at.wrapping_neg() % 8).min(out.len());
    let (head, rest) = out.split_at_mut(lead);
    for (i, out) in head.iter_mut().enumerate() {
        *out = one(at + i)?;
    }
    let at = at + lead;
    let groups = rest.len() / 8;
    let (whole, tail) = rest.split_at_mut(groups * 8);
    let from = bytes.get(at / 8 * width as usize..).unwrap_or_default();
    unpack_groups(from, width, groups, |group, indices| {
        if indices.iter().fold(0, |most, index| most.max(*index)) as usize >= table.len() {
            return Err(NOT_IN_DICTIONARY);
        }
        for (index, out) in indices.iter().zip(&mut whole[group * 8..][..8]) {
            // SAFETY: none of the eight is beyond the table's end.
            *out = unsafe { *table.get_unchecked(*index as usize) };
        }
        Ok(())
    })?;
    for (i, out) in tail.iter_mut().enumerate() {
        *out = one(at + groups * 8 + i)?;
    }
    Ok(())
}
