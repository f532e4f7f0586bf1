//! `PageValues` decodes the values of a page (plain, dictionary, byte stream split or delta) to float32 values, int32 gene numbers, or the float64
//! and integer numbers of obs.

use parquet::basic::{ConvertedType, Encoding, LogicalType, Type as Physical};
use parquet::schema::types::ColumnDescriptor;

use crate::matrix::dtype::{Dtype, DtypeKind, Element};
use crate::parquet::error::{EncodingError, PageError};
use crate::parquet::levels::{HybridRun, HybridRuns, unpack_groups, unpack_one};

/// Decoder of the values of a page, from first to last.
pub(crate) enum PageValues<'a, T> {
    /// Encoding `PLAIN`.
    Plain { numeric: NumericType, bytes: &'a [u8] },
    /// Dictionary encoding.
    Dictionary(DictionaryIndices<'a, T>),
    /// Encoding `BYTE_STREAM_SPLIT`: all first bytes, then all second bytes, and so on (Encodings.md).
    Split { numeric: NumericType, bytes: &'a [u8], at: usize },
    /// Values of an encoding that can only be decoded as a whole.
    Decoded { values: Vec<T>, at: usize },
}

impl<'a, T: NumericElement> PageValues<'a, T> {
    /// The decoder for a page of at most `count` values; `dictionary` is that of its column chunk.
    pub fn new(
        encoding: Encoding,
        numeric: NumericType,
        bytes: &'a [u8],
        count: usize,
        dictionary: Option<&'a [T]>,
    ) -> Result<Self, PageError> {
        match encoding {
            Encoding::PLAIN => Ok(Self::Plain { numeric, bytes }),
            Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY => {
                let table = dictionary.ok_or(PageError::NoDictionary)?;
                Ok(Self::Dictionary(DictionaryIndices::new(bytes, table)?))
            }
            Encoding::BYTE_STREAM_SPLIT => Ok(Self::Split { numeric, bytes, at: 0 }),
            Encoding::DELTA_BINARY_PACKED => Ok(Self::Decoded { values: decode_delta(numeric, bytes, count)?, at: 0 }),
            encoding => Err(PageError::ValueEncoding { encoding }),
        }
    }

    /// Decodes the next values into `out`.
    #[inline]
    pub fn read(&mut self, out: &mut [T]) -> Result<(), EncodingError> {
        match self {
            Self::Plain { numeric, bytes } => {
                let (these, rest) =
                    bytes.split_at_checked(out.len() * numeric.bytes()).ok_or(EncodingError::CutShort)?;
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
                out.copy_from_slice(values.get(*at..*at + out.len()).ok_or(EncodingError::CutShort)?);
                *at += out.len();
                Ok(())
            }
        }
    }

    /// Decodes the next values and appends them to `out`, which grows only by values that are really there.
    pub fn append(&mut self, count: usize, out: &mut Vec<T>) -> Result<(), EncodingError> {
        /// Values for which memory is allocated at once.
        const AT_ONCE: usize = 1 << 14;
        let end = out.len() + count;
        while out.len() < end {
            let start = out.len();
            out.resize((start + AT_ONCE).min(end), T::default());
            self.read(&mut out[start..])?;
        }
        Ok(())
    }

    /// Skips values.
    pub fn skip(&mut self, count: usize) -> Result<(), EncodingError> {
        match self {
            Self::Plain { numeric, bytes } => {
                *bytes = count
                    .checked_mul(numeric.bytes())
                    .and_then(|skip| bytes.get(skip..))
                    .ok_or(EncodingError::CutShort)?;
            }
            Self::Dictionary(indices) => indices.skip(count)?,
            Self::Split { at, .. } | Self::Decoded { at, .. } => {
                *at = at.checked_add(count).ok_or(EncodingError::CutShort)?
            }
        }
        Ok(())
    }
}

fn read_split<T: NumericElement>(
    numeric: NumericType,
    bytes: &[u8],
    first: usize,
    out: &mut [T],
) -> Result<(), EncodingError> {
    const BLOCK: usize = 256;
    let width = numeric.bytes();
    let stream = bytes.len() / width;
    if first.checked_add(out.len()).is_none_or(|end| end > stream) {
        return Err(EncodingError::CutShort);
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

/// Decoder of dictionary indices.
pub(crate) struct DictionaryIndices<'a, T> {
    runs: HybridRuns<'a>,
    table: &'a [T],
    run: CurrentRun<'a, T>,
}

/// The rest of a run.
enum CurrentRun<'a, T> {
    None,
    Repeat { value: T, left: usize },
    Packed { bytes: &'a [u8], at: usize, count: usize },
}

impl<'a, T: Copy> DictionaryIndices<'a, T> {
    /// `bytes` are those of a page after its levels.
    pub fn new(bytes: &'a [u8], table: &'a [T]) -> Result<Self, EncodingError> {
        // A page without values may be empty.
        let (width, bytes) = bytes.split_first().unwrap_or((&0, &[]));
        Ok(Self { runs: HybridRuns::new(bytes, u32::from(*width))?, table, run: CurrentRun::None })
    }

    #[inline]
    fn next_run(&mut self) -> Result<(), EncodingError> {
        self.run = match self.runs.next()? {
            HybridRun::Repeat { value, count } => CurrentRun::Repeat {
                value: *self.table.get(value as usize).ok_or(EncodingError::NotInDictionary)?,
                left: count,
            },
            HybridRun::Packed { bytes, count } => CurrentRun::Packed { bytes, at: 0, count },
        };
        Ok(())
    }

    pub fn read(&mut self, mut out: &mut [T]) -> Result<(), EncodingError> {
        while !out.is_empty() {
            let take = match &mut self.run {
                CurrentRun::Repeat { value, left } if *left > 0 => {
                    let take = out.len().min(*left);
                    out[..take].fill(*value);
                    *left -= take;
                    take
                }
                CurrentRun::Packed { bytes, at, count } if *at < *count => {
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

    fn skip(&mut self, mut count: usize) -> Result<(), EncodingError> {
        while count > 0 {
            count -= match &mut self.run {
                CurrentRun::Repeat { left, .. } if *left > 0 => {
                    let take = count.min(*left);
                    *left -= take;
                    take
                }
                CurrentRun::Packed { at, count: all, .. } if *at < *all => {
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

/// Looks up bit-packed indices from number `at` on.
#[inline]
fn read_packed<T: Copy>(bytes: &[u8], width: u32, at: usize, table: &[T], out: &mut [T]) -> Result<(), EncodingError> {
    let one =
        |at: usize| table.get(unpack_one(bytes, width, at) as usize).copied().ok_or(EncodingError::NotInDictionary);
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
            return Err(EncodingError::NotInDictionary);
        }
        for (index, out) in indices.iter().zip(&mut whole[group * 8..][..8]) {
            // SAFETY: none of the eight indices is beyond the end of the table.
            *out = unsafe { *table.get_unchecked(*index as usize) };
        }
        Ok(())
    })?;
    for (i, out) in tail.iter_mut().enumerate() {
        *out = one(at + groups * 8 + i)?;
    }
    Ok(())
}

/// Integers in encoding `DELTA_BINARY_PACKED` (Encodings.md), at most `most` of them.
fn decode_delta<T: NumericElement>(
    numeric: NumericType,
    mut bytes: &[u8],
    most: usize,
) -> Result<Vec<T>, EncodingError> {
    if numeric.is_float() {
        return Err(EncodingError::DeltaType);
    }
    let block = varint(&mut bytes)?;
    let miniblocks = varint(&mut bytes)?;
    let total = usize::try_from(varint(&mut bytes)?).ok().filter(|total| *total <= most);
    let total = total.ok_or(EncodingError::TooManyValues)?;
    let mut value = zigzag(&mut bytes)?;
    if block == 0 || block > 1 << 20 || miniblocks == 0 || block % miniblocks != 0 || block / miniblocks % 32 != 0 {
        return Err(EncodingError::DeltaBlock);
    }
    let (miniblocks, of_miniblock) = (miniblocks as usize, (block / miniblocks) as usize);
    let mut values = Vec::new();
    values.try_reserve_exact(total).map_err(|_| EncodingError::NoMemory)?;
    if total > 0 {
        push_value(numeric, value, &mut values)?;
    }
    while values.len() < total {
        let least = zigzag(&mut bytes)?;
        let (widths, rest) = bytes.split_at_checked(miniblocks).ok_or(EncodingError::CutShort)?;
        bytes = rest;
        for width in widths {
            if values.len() == total {
                break;
            }
            let width = u32::from(*width);
            if width > 64 {
                return Err(EncodingError::DeltaWidth);
            }
            // The last miniblock may end after its last value.
            let len = (of_miniblock / 8 * width as usize).min(bytes.len());
            let (packed, rest) = bytes.split_at(len);
            bytes = rest;
            let count = of_miniblock.min(total - values.len());
            if packed.len() * 8 < count * width as usize {
                return Err(EncodingError::CutShort);
            }
            for i in 0..count {
                value = value.wrapping_add(least).wrapping_add(unpack_wide(packed, width, i) as i64);
                if numeric.bytes() == 4 {
                    value = i64::from(value as i32);
                }
                push_value(numeric, value, &mut values)?;
            }
        }
    }
    Ok(values)
}

fn push_value<T: NumericElement>(numeric: NumericType, value: i64, values: &mut Vec<T>) -> Result<(), EncodingError> {
    let mut out = [T::default()];
    T::convert(numeric, &value.to_le_bytes()[..numeric.bytes()], &mut out)?;
    values.extend(out);
    Ok(())
}

/// Bit-packed value number `at`, of at most 64 bits.
fn unpack_wide(bytes: &[u8], width: u32, at: usize) -> u64 {
    if width <= 32 {
        return u64::from(unpack_one(bytes, width, at));
    }
    let bit = at * width as usize;
    let rest = &bytes[bit / 8..];
    let mut word = [0; 16];
    let len = rest.len().min(16);
    word[..len].copy_from_slice(&rest[..len]);
    ((u128::from_le_bytes(word) >> (bit % 8)) & ((1_u128 << width) - 1)) as u64
}

fn varint(bytes: &mut &[u8]) -> Result<u64, EncodingError> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or(EncodingError::CutShort)?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(EncodingError::LongNumber)
}

fn zigzag(bytes: &mut &[u8]) -> Result<i64, EncodingError> {
    let value = varint(bytes)?;
    Ok((value >> 1) as i64 ^ -((value & 1) as i64))
}

/// Numeric type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NumericType {
    F16,
    F32,
    F64,
    I32,
    U32,
    I64,
    U64,
}

impl NumericType {
    /// Type of a column; `None` if it has no plain numbers (dates, decimals, strings).
    pub fn of(column: &ColumnDescriptor) -> Option<Self> {
        if column.logical_type_ref() == Some(&LogicalType::Float16) {
            return (column.physical_type() == Physical::FIXED_LEN_BYTE_ARRAY && column.type_length() == 2)
                .then_some(Self::F16);
        }
        let unsigned = match column.logical_type_ref() {
            Some(LogicalType::Integer(integer)) => !integer.is_signed,
            Some(_) => return None,
            None => match column.converted_type() {
                ConvertedType::NONE
                | ConvertedType::INT_8
                | ConvertedType::INT_16
                | ConvertedType::INT_32
                | ConvertedType::INT_64 => false,
                ConvertedType::UINT_8 | ConvertedType::UINT_16 | ConvertedType::UINT_32 | ConvertedType::UINT_64 => {
                    true
                }
                _ => return None,
            },
        };
        Some(match (column.physical_type(), unsigned) {
            (Physical::FLOAT, _) => Self::F32,
            (Physical::DOUBLE, _) => Self::F64,
            (Physical::INT32, false) => Self::I32,
            (Physical::INT32, true) => Self::U32,
            (Physical::INT64, false) => Self::I64,
            (Physical::INT64, true) => Self::U64,
            _ => return None,
        })
    }

    /// Size of a value in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 => 8,
        }
    }

    pub const fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::F32 | Self::F64)
    }
}

/// Type of decoded numbers.
pub(crate) trait NumericElement: bytemuck::Pod + Default + PartialOrd {
    /// Converts as many little-endian values of type `from` as `out` has; `bytes` has as many.
    ///
    /// # Errors
    /// A value does not fit.
    fn convert(from: NumericType, bytes: &[u8], out: &mut [Self]) -> Result<(), EncodingError>;
}

macro_rules! each {
    ($type:ty, $bytes:expr, $out:expr, $convert:expr) => {
        for (from, out) in $bytes.chunks_exact(size_of::<$type>()).zip($out.iter_mut()) {
            let mut value = [0; size_of::<$type>()];
            value.copy_from_slice(from);
            *out = $convert(<$type>::from_le_bytes(value));
        }
    };
}

/// float16 as parquet stores it.
const HALF: Dtype = Dtype { kind: DtypeKind::F16, big_endian: false };

/// The bytes unchanged.
fn copy_values<T: NumericElement>(bytes: &[u8], out: &mut [T]) {
    let out: &mut [u8] = bytemuck::cast_slice_mut(out);
    out.copy_from_slice(&bytes[..out.len()]);
}

/// Values of the matrix: rounded to the nearest float32.
impl NumericElement for f32 {
    fn convert(from: NumericType, bytes: &[u8], out: &mut [Self]) -> Result<(), EncodingError> {
        match from {
            NumericType::F16 => <Self as Element>::convert(HALF, bytes, out),
            NumericType::F32 => copy_values(bytes, out),
            NumericType::F64 => each!(f64, bytes, out, |value| value as Self),
            NumericType::I32 => each!(i32, bytes, out, |value| value as Self),
            NumericType::U32 => each!(u32, bytes, out, |value| value as Self),
            NumericType::I64 => each!(i64, bytes, out, |value| value as Self),
            NumericType::U64 => each!(u64, bytes, out, |value| value as Self),
        }
        Ok(())
    }
}

/// Numbers of obs.
impl NumericElement for f64 {
    fn convert(from: NumericType, bytes: &[u8], out: &mut [Self]) -> Result<(), EncodingError> {
        match from {
            NumericType::F16 => <Self as Element>::convert(HALF, bytes, out),
            NumericType::F32 => each!(f32, bytes, out, Self::from),
            NumericType::F64 => copy_values(bytes, out),
            NumericType::I32 => each!(i32, bytes, out, Self::from),
            NumericType::U32 => each!(u32, bytes, out, Self::from),
            NumericType::I64 => each!(i64, bytes, out, |value| value as Self),
            NumericType::U64 => each!(u64, bytes, out, |value| value as Self),
        }
        Ok(())
    }
}

/// Integers of obs, exact.
impl NumericElement for i128 {
    fn convert(from: NumericType, bytes: &[u8], out: &mut [Self]) -> Result<(), EncodingError> {
        match from {
            NumericType::I32 => each!(i32, bytes, out, Self::from),
            NumericType::U32 => each!(u32, bytes, out, Self::from),
            NumericType::I64 => each!(i64, bytes, out, Self::from),
            NumericType::U64 => each!(u64, bytes, out, Self::from),
            NumericType::F16 | NumericType::F32 | NumericType::F64 => return Err(EncodingError::NotIntegers),
        }
        Ok(())
    }
}

/// Gene numbers: -1, which is no gene, if the number does not fit into int32.
impl NumericElement for i32 {
    fn convert(from: NumericType, bytes: &[u8], out: &mut [Self]) -> Result<(), EncodingError> {
        match from {
            NumericType::I32 => copy_values(bytes, out),
            NumericType::U32 => each!(u32, bytes, out, |value| Self::try_from(value).unwrap_or(-1)),
            NumericType::I64 => each!(i64, bytes, out, |value| Self::try_from(value).unwrap_or(-1)),
            NumericType::U64 => each!(u64, bytes, out, |value| Self::try_from(value).unwrap_or(-1)),
            NumericType::F16 | NumericType::F32 | NumericType::F64 => return Err(EncodingError::NotIntegers),
        }
        Ok(())
    }
}
