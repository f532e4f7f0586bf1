/// Runs of the hybrid of run lengths and packed bits that levels and dictionary indices are in (Encodings.md, *RLE*).
#[derive(Clone, Copy, Debug)]
pub(super) struct Runs<'a> {
    bytes: &'a [u8],
    width: u32,
}

/// One of [`Runs`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Run<'a> {
    /// The same value again and again.
    Repeat { value: u32, count: usize },
    /// `count` values of as many bits as the width is, the first in the lowest; the last of all runs may have more than
    /// were written.
    Packed { bytes: &'a [u8], count: usize },
}

impl<'a> Runs<'a> {
    /// Of values of `width` bits, 32 at most.
    pub(super) fn new(bytes: &'a [u8], width: u32) -> Result<Self, &'static str> {
        if width > 32 { Err("values have more than 32 bits") } else { Ok(Self { bytes, width }) }
    }

    pub(super) fn width(&self) -> u32 {
        self.width
    }

    /// The next run; it has one value or more.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Run<'a>, &'static str> {
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
            return Ok(Run::Repeat { value, count });
        }
        if self.width == 0 {
            return Ok(Run::Repeat { value: 0, count: count * 8 });
        }
        // Some writers leave out the last bytes of the last group.
        let bytes = (count * self.width as usize).min(self.bytes.len());
        let (packed, rest) = self.bytes.split_at(bytes);
        self.bytes = rest;
        let count = (count * 8).min(bytes * 8 / self.width as usize);
        if count == 0 { Err(SHORT) } else { Ok(Run::Packed { bytes: packed, count }) }
    }
}

/// Value number `at` of packed ones; 0 where there are no bytes.
#[inline]
pub(super) fn unpack_one(bytes: &[u8], width: u32, at: usize) -> u32 {
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
pub(super) fn unpack_groups<E>(
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
