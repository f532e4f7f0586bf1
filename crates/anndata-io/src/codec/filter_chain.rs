//! `FilterChain` decodes a chunk: it undoes the filters of an HDF5 data set, or the codecs of a zarr array, last one first.
//! Invariant: at most one filter of a chain compresses, so the sizes between the filters follow from the size of the chunk.

use std::io::Read;

use libdeflater::Decompressor;

use crate::codec::CodecError;
use crate::codec::filters::{
    CHECKSUM_BYTES, blosc_decompress, blosc_length, crc32c_verified, decompress_elements, fletcher32_verified,
    lz4_decompress, lz4_length, lzf_decompress, plain_lz4_decompress, plain_lz4_length, unshuffle,
};

/// The filters of a data set, or the codecs of an array, in the order of encoding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FilterChain {
    filters: Vec<Filter>,
}

/// A filter; the numbers are those registered with the HDF Group, the names those of zarr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    /// 1, zlib (deflate).
    Deflate,
    /// gzip.
    Gzip,
    /// 2: shuffle, for elements of this size.
    Shuffle(usize),
    /// 3: fletcher32, a checksum.
    Fletcher32,
    /// crc32c, a checksum.
    Crc32c,
    /// 32000, lzf.
    Lzf,
    /// 32001, blosc.
    Blosc,
    /// 32004, lz4.
    Lz4,
    /// lz4 of zarr, which has another header.
    PlainLz4,
    /// 32015, zstd.
    Zstd,
}

/// Decompressors and buffers of one thread, made when they are needed.
#[derive(Default)]
pub(crate) struct FilterBuffers {
    inflate: Option<Decompressor>,
    zstd: Option<zstd::bulk::Decompressor<'static>>,
    /// Intermediate data between two filters.
    between: [Vec<u8>; 2],
}

impl FilterBuffers {
    /// Allocated bytes.
    pub fn bytes(&self) -> u64 {
        self.between.iter().map(|buffer| buffer.capacity() as u64).sum()
    }
}

/// Buffer that has the data while filters are undone.
#[derive(Clone, Copy)]
enum Location {
    Source,
    Between(usize),
    Out,
}

impl FilterChain {
    /// Parses filters by number and parameters (`cd_values`), for elements of this size.
    pub fn new(filters: &[(i32, Vec<u32>)], element: usize) -> Result<Self, CodecError> {
        let filters: Vec<Filter> = filters
            .iter()
            .map(|(number, values)| match number {
                1 => Ok(Filter::Deflate),
                2 => Ok(Filter::Shuffle(values.first().map_or(element, |bytes| *bytes as usize))),
                3 => Ok(Filter::Fletcher32),
                32000 => Ok(Filter::Lzf),
                32001 => Ok(Filter::Blosc),
                32004 => Ok(Filter::Lz4),
                32015 => Ok(Filter::Zstd),
                number => Err(CodecError::UnknownFilter { number: *number }),
            })
            .collect::<Result<_, _>>()?;
        Self::from_filters(filters)
    }

    /// A chain of these filters.
    pub fn from_filters(filters: Vec<Filter>) -> Result<Self, CodecError> {
        // The intermediate size between two compressors is not stored anywhere.
        if filters.iter().filter(|filter| filter.ratio() > 1).count() > 1 {
            return Err(CodecError::CompressedTwice);
        }
        Ok(Self { filters })
    }

    /// The filters.
    pub fn filters(&self) -> &[Filter] {
        &self.filters
    }

    /// Whether there are no filters.
    pub fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }

    /// Decompresses some elements of a chunk of `whole` bytes without the rest of it; `None` if these filters do not support
    /// that.
    pub fn undo_some(
        &self,
        src: &[u8],
        whole: usize,
        element: usize,
        range: (usize, usize),
        out: &mut [u8],
    ) -> Option<Result<(), CodecError>> {
        match self.filters[..] {
            [Filter::Blosc] => decompress_elements(src, whole, element, range, out),
            _ => None,
        }
    }

    /// Upper bound of the decoded size of `stored` bytes: a larger size is damage, and not a reason to allocate memory.
    pub fn max_decoded_bytes(&self, stored: u64) -> u64 {
        // The best possible ratio, without the headers.
        const SLACK: u64 = 1 << 17;
        self.filters.iter().fold(stored, |bytes, filter| match filter.ratio() {
            1 => bytes,
            ratio => bytes.saturating_mul(ratio).saturating_add(SLACK),
        })
    }

    /// Undoes the filters that `mask` does not name (bit i: filter i was skipped), and fills `out`.
    pub fn undo(&self, src: &[u8], mask: u32, out: &mut [u8], work: &mut FilterBuffers) -> Result<(), CodecError> {
        let skipped = |i: usize| mask.checked_shr(i as u32).unwrap_or(0) & 1 == 1;
        let Some(first) = (0..self.filters.len()).find(|i| !skipped(*i)) else {
            return copy(src, out);
        };
        let FilterBuffers { inflate, zstd, between } = work;
        let (mut held, mut len) = (Location::Source, src.len());
        for i in (first..self.filters.len()).rev().filter(|i| !skipped(*i)) {
            let filter = self.filters[i];
            if filter.is_sum() {
                let data = match held {
                    Location::Source => &src[..len],
                    Location::Between(which) => &between[which][..len],
                    Location::Out => &out[..len],
                };
                len = filter.verified(data)?.len();
                continue;
            }
            // Input size of filter i when the chunk was written: checksums before it made it longer.
            let sums = (first..i).filter(|i| !skipped(*i) && self.filters[*i].is_sum()).count();
            let given = match filter {
                Filter::Shuffle(_) => len,
                _ => out.len() + sums * CHECKSUM_BYTES,
            };
            let to = if i == first {
                Location::Out
            } else {
                Location::Between(usize::from(matches!(held, Location::Between(0))))
            };
            let [zero, one] = between;
            let (data, to_place): (&[u8], &mut [u8]) = match (held, to) {
                (Location::Source, Location::Out) => (&src[..len], &mut *out),
                (Location::Source, _) => (&src[..len], resized(zero, given)),
                (Location::Between(0), Location::Out) => (&zero[..len], &mut *out),
                (Location::Between(_), Location::Out) => (&one[..len], &mut *out),
                (Location::Between(0), _) => (&zero[..len], resized(one, given)),
                (Location::Between(_) | Location::Out, _) => (&one[..len], resized(zero, given)),
            };
            let done = match filter {
                Filter::Shuffle(element) => {
                    if data.len() != to_place.len() {
                        return Err(wrong_length(data.len(), to_place.len()));
                    }
                    unshuffle(element, data, to_place);
                    data.len()
                }
                Filter::Deflate => {
                    let inflate = inflate.get_or_insert_with(Decompressor::new);
                    inflate.zlib_decompress(data, to_place).map_err(|_| damaged("gzip"))?
                }
                Filter::Gzip => {
                    let inflate = inflate.get_or_insert_with(Decompressor::new);
                    inflate.gzip_decompress(data, to_place).map_err(|_| damaged("gzip"))?
                }
                Filter::Lzf => lzf_decompress(data, to_place).ok_or_else(|| damaged("lzf"))?,
                Filter::Lz4 => lz4_decompress(data, to_place).ok_or_else(|| damaged("lz4"))?,
                Filter::PlainLz4 => plain_lz4_decompress(data, to_place).ok_or_else(|| damaged("lz4"))?,
                Filter::Blosc => blosc_decompress(data, to_place)?,
                Filter::Zstd => {
                    let zstd = match zstd {
                        Some(zstd) => zstd,
                        None => zstd.insert(zstd::bulk::Decompressor::new().map_err(no_zstd)?),
                    };
                    zstd.decompress_to_buffer(data, to_place)
                        .map_err(|source| CodecError::Decoder { codec: "zstd", source })?
                }
                // Handled above.
                Filter::Fletcher32 | Filter::Crc32c => data.len(),
            };
            if done != to_place.len() {
                return Err(wrong_length(done, to_place.len()));
            }
            (held, len) = (to, done);
        }
        match held {
            Location::Out if len == out.len() => Ok(()),
            Location::Out => Err(wrong_length(len, out.len())),
            Location::Source => copy(&src[..len], out),
            Location::Between(which) => copy(&between[which][..len], out),
        }
    }
}

impl Filter {
    /// Whether the filter only adds a checksum.
    const fn is_sum(self) -> bool {
        matches!(self, Self::Fletcher32 | Self::Crc32c)
    }

    /// Checks the checksum, and returns the data without it.
    fn verified(self, data: &[u8]) -> Result<&[u8], CodecError> {
        match self {
            Self::Fletcher32 => fletcher32_verified(data).ok_or(CodecError::Checksum { checksum: "fletcher32" }),
            Self::Crc32c => crc32c_verified(data).ok_or(CodecError::Checksum { checksum: "crc32c" }),
            _ => Ok(data),
        }
    }

    /// Maximum compression ratio.
    const fn ratio(self) -> u64 {
        match self {
            Self::Shuffle(_) | Self::Fletcher32 | Self::Crc32c => 1,
            // A match of 258 bytes takes two bits.
            Self::Deflate | Self::Gzip => 1032,
            Self::Lzf => 264,
            Self::Lz4 | Self::PlainLz4 => 256,
            // A block of 128 KiB with one value takes 4 bytes.
            Self::Blosc | Self::Zstd => 1 << 15,
        }
    }
}

fn resized(buffer: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
    &mut buffer[..len]
}

fn copy(src: &[u8], out: &mut [u8]) -> Result<(), CodecError> {
    if src.len() != out.len() {
        return Err(wrong_length(src.len(), out.len()));
    }
    out.copy_from_slice(src);
    Ok(())
}

#[cold]
fn wrong_length(found: usize, expected: usize) -> CodecError {
    CodecError::Length { found, expected }
}

#[cold]
fn damaged(codec: &'static str) -> CodecError {
    CodecError::Damaged { codec }
}

#[cold]
fn no_zstd(source: std::io::Error) -> CodecError {
    CodecError::NoDecompressor { codec: "zstd", source }
}

/// Name of the filter in messages.
pub(crate) fn filter_name(number: i32) -> String {
    let known = match number {
        4 => "szip",
        5 => "nbit",
        6 => "scale-offset",
        305 => "lzo",
        307 => "bzip2",
        32002 => "mafisc",
        32003 => "snappy",
        32008 => "bitshuffle",
        32012 => "fci/jpegls",
        32013 => "zfp",
        32014 => "fpzip",
        32016 => "b3d",
        32017 => "sz",
        32018 => "fcidecomp",
        32023 => "granular bitround",
        32024 => "sz3",
        32026 => "blosc2",
        32027 => "blosc2 (btune)",
        32028 => "sperr",
        _ => return number.to_string(),
    };
    format!("{number} ({known})")
}

impl FilterChain {
    /// Undoes all filters of data with an unknown size of at most `most` bytes: strings of variable length.
    pub fn undo_all(&self, src: &[u8], most: usize) -> Result<Vec<u8>, CodecError> {
        let mut data = src.to_vec();
        for filter in self.filters().iter().rev() {
            let bound = usize::try_from(self.max_decoded_bytes(data.len() as u64)).unwrap_or(usize::MAX).min(most);
            data = match filter {
                Filter::Fletcher32 | Filter::Crc32c => filter.verified(&data)?.to_vec(),
                Filter::Deflate => decode_stream(flate2::read::ZlibDecoder::new(&data[..]), bound, "zlib")?,
                Filter::Gzip => decode_stream(flate2::read::MultiGzDecoder::new(&data[..]), bound, "gzip")?,
                Filter::Zstd => {
                    let decoder = zstd::stream::Decoder::new(&data[..]).map_err(no_zstd)?;
                    decode_stream(decoder, bound, "zstd")?
                }
                Filter::Shuffle(_) => undo_one(*filter, &data, data.len(), bound)?,
                Filter::Blosc => undo_one(*filter, &data, blosc_length(&data)?, bound)?,
                Filter::Lz4 => undo_one(*filter, &data, lz4_length(&data).ok_or_else(|| damaged("lz4"))?, bound)?,
                Filter::PlainLz4 => {
                    undo_one(*filter, &data, plain_lz4_length(&data).ok_or_else(|| damaged("lz4"))?, bound)?
                }
                Filter::Lzf => return Err(CodecError::UnknownLength { codec: "lzf" }),
            };
        }
        Ok(data)
    }
}

/// Reads a decoder to its end; fails above `most` bytes.
fn decode_stream(decoder: impl Read, most: usize, codec: &'static str) -> Result<Vec<u8>, CodecError> {
    let mut out = Vec::new();
    let read = decoder.take(most as u64 + 1).read_to_end(&mut out);
    let n = read.map_err(|source| CodecError::Decoder { codec, source })?;
    if n > most { Err(CodecError::TooLong { max_bytes: most }) } else { Ok(out) }
}

/// Undoes a filter that stores the decoded size itself.
fn undo_one(filter: Filter, data: &[u8], len: usize, most: usize) -> Result<Vec<u8>, CodecError> {
    if len > most {
        return Err(CodecError::TooLong { max_bytes: most });
    }
    let mut out = vec![0; len];
    FilterChain::from_filters(vec![filter])?.undo(data, 0, &mut out, &mut FilterBuffers::default())?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::filters::fletcher32;
    use proptest::prelude::*;

    /// What a writer does, a filter at a time.
    fn apply(filters: &[Filter], mask: u32, data: &[u8]) -> Vec<u8> {
        let mut data = data.to_vec();
        for (i, filter) in filters.iter().enumerate().filter(|(i, _)| mask >> i & 1 == 0) {
            data = match filter {
                Filter::Shuffle(element) => {
                    let elements = data.len() / element;
                    let mut out: Vec<u8> = (0..*element)
                        .flat_map(|byte| (0..elements).map(move |i| i * element + byte))
                        .map(|at| data[at])
                        .collect();
                    out.extend(&data[elements * element..]);
                    out
                }
                Filter::Fletcher32 => [&data[..], &fletcher32(&data).to_le_bytes()].concat(),
                Filter::Deflate => {
                    let mut out = vec![0; data.len() + 100];
                    let mut deflate = libdeflater::Compressor::new(libdeflater::CompressionLvl::default());
                    let len = deflate.zlib_compress(&data, &mut out).unwrap();
                    out.truncate(len);
                    out
                }
                Filter::Gzip => {
                    let mut out = vec![0; data.len() + 100];
                    let mut deflate = libdeflater::Compressor::new(libdeflater::CompressionLvl::default());
                    let len = deflate.gzip_compress(&data, &mut out).unwrap();
                    out.truncate(len);
                    out
                }
                Filter::Crc32c => [&data[..], &::crc32c::crc32c(&data).to_le_bytes()].concat(),
                Filter::PlainLz4 => {
                    [&(data.len() as u32).to_le_bytes()[..], &lz4_flex::block::compress(&data)].concat()
                }
                Filter::Zstd => zstd::bulk::compress(&data, 3).unwrap(),
                other => panic!("{other:?} is compared with Python's"),
            };
            assert!(i < 32);
        }
        data
    }

    fn filter() -> impl Strategy<Value = Filter> {
        prop_oneof![
            (1usize..9).prop_map(Filter::Shuffle),
            Just(Filter::Fletcher32),
            Just(Filter::Deflate),
            Just(Filter::Gzip),
            Just(Filter::Crc32c),
            Just(Filter::PlainLz4),
            Just(Filter::Zstd)
        ]
    }

    proptest! {
        #[test]
        fn undoes_what_was_done(
            mut filters in proptest::collection::vec(filter(), 0..6),
            mask in 0u32..64,
            data in proptest::collection::vec(0u8..9, 1..600),
            at in any::<proptest::sample::Index>(),
        ) {
            // One compression at most is supported.
            let mut compressed = false;
            filters.retain(|filter| filter.ratio() == 1 || !std::mem::replace(&mut compressed, true));
            let stored = apply(&filters, mask, &data);
            let (chain, mut work) = (FilterChain { filters }, FilterBuffers::default());
            let mut out = vec![0; data.len()];
            chain.undo(&stored, mask, &mut out, &mut work).unwrap();
            prop_assert_eq!(&out, &data);
            prop_assert!(chain.max_decoded_bytes(stored.len() as u64) >= data.len() as u64);
            // Another length is noticed, whatever the filters.
            prop_assert!(chain.undo(&stored, mask, &mut vec![0; data.len() + 1], &mut work).is_err());
            prop_assert!(chain.undo(&stored, mask, &mut out[1..], &mut work).is_err());
            prop_assert!(chain.undo(&stored[..at.index(stored.len())], mask, &mut out, &mut work).is_err());
            // Without knowing how much it will be, too.
            if mask == 0 {
                let whole = chain.undo_all(&stored, 1 << 20);
                prop_assert_eq!(&whole.unwrap(), &data);
                let is_bounded = chain.filters.iter().any(|filter| filter.ratio() > 1);
                prop_assert!(!is_bounded || chain.undo_all(&stored, data.len() - 1).is_err());
            }
        }
    }

    #[test]
    fn unknown_filters_are_named() {
        let e = FilterChain::new(&[(2, vec![4]), (32008, vec![])], 4).unwrap_err().to_string();
        assert!(e.contains("32008 (bitshuffle)"), "{e}");
        let e = FilterChain::new(&[(1, vec![4]), (32015, vec![])], 4).unwrap_err().to_string();
        assert!(e.contains("compressed twice"), "{e}");
    }
}
