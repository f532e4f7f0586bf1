//! [`Shard`]: one file of an MDS folder. How it is opened, compared with the folder's `index.json`, and decompressed.
//!
//! A shard is *raw* (uncompressed; `raw_data` in the index) or *packed* (compressed as a whole; `zip_data` in the index).

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, Read};
use std::ops::Range;

use flate2::read::MultiGzDecoder;
use sha1::{Digest, Sha1};
use sha2::{Sha224, Sha256, Sha384, Sha512};
use twox_hash::{XxHash3_64, XxHash3_128, XxHash32, XxHash64};

use crate::AnnDataError;
use crate::mds::error::MdsError;
use crate::mds::index::{FileNote, IndexedShard};
use crate::source::byte_source::ByteSource;

/// A shard, as one file of a [`ByteSource`].
///
/// Layout of the file when it is not compressed; integers are little-endian:
///
/// 1. uint32: the number `n` of samples;
/// 2. uint32 `[n + 1]`: the offset of each sample, and of the end of the last one, in bytes from the start of the file;
/// 3. names, encodings and sizes of the columns, as JSON;
/// 4. the samples, one after another.
///
/// 1 and 2 are the header.
#[derive(Debug)]
pub(crate) struct Shard {
    /// Index of its file in the source.
    pub file: usize,
    /// Address of its first byte in the source, which joins all files in one address space.
    pub start: u64,
    pub body: ShardBody,
    /// Its entry in `index.json`.
    indexed: IndexedShard,
}

/// Encoding of the file of a shard.
#[derive(Debug)]
pub(crate) enum ShardBody {
    /// Uncompressed. `[samples + 1]`: the offsets in its header.
    Raw(Box<[u32]>),
    /// Compressed as a whole. The offsets are known once it is decompressed.
    Packed(ShardCodec),
}

/// Size in bytes of the number of samples, with which a shard starts.
const SAMPLE_COUNT_BYTES: usize = 4;

impl Shard {
    /// Opens the shard in file `file` of `source`: the compressed file if `is_packed`, else the uncompressed one.
    ///
    /// # Errors
    /// The file cannot be read, or contradicts the index in its length, number of samples, offsets or columns; its
    /// compression is not supported. Of a compressed file, offsets and columns are compared when it is decompressed.
    pub fn open(
        source: &ByteSource,
        file: usize,
        is_packed: bool,
        indexed: IndexedShard,
    ) -> Result<Self, AnnDataError> {
        let range = source.file_range(file);
        let start = range.start;
        let damaged = |error: MdsError| source.file_damaged(file, error);
        match (&indexed.zip_data, &indexed.compression) {
            (Some(packed), Some(compression)) if is_packed => {
                let codec = ShardCodec::named(compression).map_err(damaged)?;
                check_length(&range, packed).map_err(damaged)?;
                check_packed(source, &range, codec, &indexed).map_err(damaged)?;
                Ok(Self { file, start, body: ShardBody::Packed(codec), indexed })
            }
            _ => {
                check_length(&range, &indexed.raw_data).map_err(damaged)?;
                let offsets = read_offsets(source, file, &indexed)?;
                Ok(Self { file, start, body: ShardBody::Raw(offsets), indexed })
            }
        }
    }

    /// Number of samples.
    pub const fn samples(&self) -> u64 {
        self.indexed.samples
    }

    /// Size of the uncompressed shard in bytes.
    pub const fn raw_bytes(&self) -> u64 {
        self.indexed.raw_data.bytes
    }

    /// Byte range of a sample in an uncompressed shard with these `offsets`, from the start of the shard.
    pub fn sample(offsets: &[u32], sample: usize) -> Range<u64> {
        offsets[sample].into()..offsets[sample + 1].into()
    }

    /// Byte range of a sample in `data`, a decompressed shard; empty if `data` has no such offset.
    pub fn sample_in(data: &[u8], sample: usize) -> Range<usize> {
        let offset = |index: usize| {
            let bytes = data.get(SAMPLE_COUNT_BYTES + 4 * index..).and_then(|rest| rest.first_chunk::<4>());
            bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize)
        };
        offset(sample)..offset(sample + 1)
    }

    /// Reads the whole compressed file, for [`Self::unpack`].
    ///
    /// # Errors
    /// The file cannot be read; there is not enough memory.
    pub fn read_packed(&self, source: &ByteSource) -> Result<Vec<u8>, AnnDataError> {
        let range = source.file_range(self.file);
        source.read_vec(range.start, (range.end - range.start) as usize)
    }

    /// Decompresses `packed`, the content of the file, into `out`, whose former content is lost. Compares hashes, length,
    /// number of samples, offsets and columns with the index.
    ///
    /// # Errors
    /// The file is damaged, or contradicts the index; there is not enough memory.
    pub fn unpack(
        &self,
        source: &ByteSource,
        codec: ShardCodec,
        packed: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), AnnDataError> {
        self.unpack_checked(codec, packed, out).map_err(|error| source.file_damaged(self.file, error))
    }

    fn unpack_checked(&self, codec: ShardCodec, packed: &[u8], out: &mut Vec<u8>) -> Result<(), MdsError> {
        let indexed = &self.indexed;
        if let Some(zip) = &indexed.zip_data {
            check_hashes(packed, &zip.hashes)?;
        }
        codec.unpack(packed, indexed.raw_data.bytes, out)?;
        // The hash of the decompressed bytes is needed only where no hash of the compressed ones could be compared: correct
        // compressed bytes decompress to correct bytes.
        if indexed.zip_data.as_ref().is_none_or(|zip| zip.hashes.is_empty() || hashes_are_unknown(&zip.hashes)) {
            check_hashes(out, &indexed.raw_data.hashes)?;
        }
        let offsets = parse_header(out, indexed)?;
        indexed.check_config(&out[header_bytes(indexed)..offsets[0] as usize])
    }
}

/// Size in bytes of the header of a shard: the number of samples and the offsets. The index was checked to leave space for
/// it.
const fn header_bytes(indexed: &IndexedShard) -> usize {
    SAMPLE_COUNT_BYTES + 4 * (indexed.samples as usize + 1)
}

/// Compares the header at the start of `data` with the index. Returns `[samples + 1]`, its offsets.
fn parse_header(data: &[u8], indexed: &IndexedShard) -> Result<Box<[u32]>, MdsError> {
    check_sample_count(*data.first_chunk().ok_or(MdsError::CutShort)?, indexed)?;
    let offsets = data.get(SAMPLE_COUNT_BYTES..header_bytes(indexed)).ok_or(MdsError::CutShort)?;
    let offsets: Box<[u32]> = offsets.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
    check_offsets(&offsets, indexed)?;
    Ok(offsets)
}

/// Checks that `range`, the addresses of a file, is as long as the index says.
fn check_length(range: &Range<u64>, indexed: &FileNote) -> Result<(), MdsError> {
    let bytes = range.end - range.start;
    if bytes == indexed.bytes {
        return Ok(());
    }
    Err(MdsError::Length { found: bytes, expected: indexed.bytes })
}

/// Checks a compressed file without decompressing all of it: that the decompressed size in the index is possible, and,
/// except for Snappy, that the first bytes are the number of samples.
fn check_packed(
    source: &ByteSource,
    range: &Range<u64>,
    codec: ShardCodec,
    indexed: &IndexedShard,
) -> Result<(), MdsError> {
    codec.check_ratio(range.end - range.start, indexed.raw_data.bytes)?;
    let reader = io::BufReader::new(source.reader(range.clone()));
    let first = codec.first::<4>(reader).map_err(MdsError::Start)?;
    first.map_or(Ok(()), |count| check_sample_count(count, indexed))
}

/// Reads the offsets of the samples of an uncompressed shard, and compares its columns with the index.
fn read_offsets(source: &ByteSource, file: usize, indexed: &IndexedShard) -> Result<Box<[u32]>, AnnDataError> {
    let first = source.file_range(file).start;
    let mut bytes = source.read_vec(first, header_bytes(indexed))?;
    let offsets = parse_header(&bytes, indexed).map_err(|error| source.file_damaged(file, error))?;
    // The columns lie between the header and the first sample.
    let (start, end) = (bytes.len(), offsets[0] as usize);
    bytes.clear();
    source.append_to(first + start as u64, end - start, &mut bytes)?;
    indexed.check_config(&bytes).map_err(|error| source.file_damaged(file, error))?;
    Ok(offsets)
}

/// Compares the first bytes of a shard, its number of samples, with the index.
fn check_sample_count(bytes: [u8; SAMPLE_COUNT_BYTES], indexed: &IndexedShard) -> Result<(), MdsError> {
    let found = u64::from(u32::from_le_bytes(bytes));
    if found == indexed.samples {
        return Ok(());
    }
    Err(MdsError::Samples { found, expected: indexed.samples })
}

/// Checks that the samples lie behind the header, that no sample ends before it starts, and that the last one ends with the
/// shard.
fn check_offsets(offsets: &[u32], indexed: &IndexedShard) -> Result<(), MdsError> {
    // Not `all`: without an early exit the loop is vectorised.
    let ascend = offsets.iter().zip(&offsets[1..]).fold(true, |ascend, (a, b)| ascend & (a <= b));
    let ends = offsets.last().is_some_and(|end| u64::from(*end) == indexed.raw_data.bytes);
    if !ascend || !ends || (offsets[0] as usize) < header_bytes(indexed) {
        return Err(MdsError::Offsets);
    }
    Ok(())
}

/// Compression of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShardCodec {
    Zstd,
    Gzip,
    Snappy,
}

/// Upper bound of Snappy's compression ratio: three compressed bytes become at most 64 bytes.
const SNAPPY_RATIO: u64 = 22;

impl ShardCodec {
    /// Parses a compression of an index, with or without a level: `zstd`, `zstd:7`, …
    ///
    /// # Errors
    /// The codec is not supported.
    pub fn named(compression: &str) -> Result<Self, MdsError> {
        match compression.split(':').next().unwrap_or_default() {
            "zstd" => Ok(Self::Zstd),
            "gz" => Ok(Self::Gzip),
            "snappy" => Ok(Self::Snappy),
            _ => Err(MdsError::Compression { compression: compression.to_owned() }),
        }
    }

    /// Decompresses the first `N` bytes alone. `None` with Snappy, which can only be decompressed as a whole.
    ///
    /// # Errors
    /// `packed` cannot be read or decompressed, or has fewer bytes.
    pub fn first<const N: usize>(self, packed: impl Read) -> io::Result<Option<[u8; N]>> {
        let mut first = [0; N];
        match self {
            Self::Zstd => zstd::stream::read::Decoder::new(packed)?.read_exact(&mut first)?,
            Self::Gzip => MultiGzDecoder::new(packed).read_exact(&mut first)?,
            Self::Snappy => return Ok(None),
        }
        Ok(Some(first))
    }

    /// Fails if `packed` compressed bytes cannot become `bytes` bytes, so that no memory is reserved for a wrong size. Only
    /// Snappy is checked: for the other codecs, [`Self::unpack`] lets memory grow with the data.
    fn check_ratio(self, packed: u64, bytes: u64) -> Result<(), MdsError> {
        if self == Self::Snappy && bytes > packed.saturating_mul(SNAPPY_RATIO) {
            return Err(MdsError::Ratio { packed, bytes });
        }
        Ok(())
    }

    /// Decompresses to exactly `bytes` bytes, which replace the content of `out`.
    ///
    /// # Errors
    /// `packed` is damaged, or has another length decompressed; there is not enough memory.
    pub fn unpack(self, packed: &[u8], bytes: u64, out: &mut Vec<u8>) -> Result<(), MdsError> {
        /// Memory that is reserved at first for each compressed byte, in bytes. `out` grows with data that needs more: a
        /// wrong size in the index then costs no memory that the data do not need.
        const RESERVED_RATIO: u64 = 16;
        self.check_ratio(packed.len() as u64, bytes)?;
        out.clear();
        let reserved = match self {
            Self::Snappy => bytes,
            _ => bytes.min(packed.len() as u64 * RESERVED_RATIO),
        };
        out.try_reserve_exact(reserved as usize).map_err(undecodable)?;
        // One byte more, to detect data that is too long.
        let limit = bytes.saturating_add(1);
        match self {
            Self::Zstd => {
                let decoder = zstd::stream::read::Decoder::with_buffer(packed).map_err(undecodable)?;
                decoder.take(limit).read_to_end(out).map_err(undecodable)?;
            }
            Self::Gzip => {
                MultiGzDecoder::new(packed).take(limit).read_to_end(out).map_err(undecodable)?;
            }
            Self::Snappy => {
                let found = snap::raw::decompress_len(packed).map_err(undecodable)?;
                if found as u64 != bytes {
                    return Err(MdsError::DecompressedLength { bytes });
                }
                out.resize(found, 0);
                snap::raw::Decoder::new().decompress(packed, out).map_err(undecodable)?;
            }
        }
        if out.len() as u64 != bytes {
            return Err(MdsError::DecompressedLength { bytes });
        }
        Ok(())
    }
}

#[cold]
fn undecodable(error: impl Error + Send + Sync + 'static) -> MdsError {
    MdsError::Decompression(Box::new(error))
}

/// Compares `data` with its hashes, each in hexadecimal under its name in the streaming package. A hash that [`hash`] does
/// not know is ignored.
fn check_hashes(data: &[u8], hashes: &BTreeMap<String, String>) -> Result<(), MdsError> {
    for (name, expected) in hashes {
        if let Some(found) = hash(name, data).filter(|found| !found.eq_ignore_ascii_case(expected)) {
            return Err(MdsError::Hash { name: name.clone(), found, expected: expected.clone() });
        }
    }
    Ok(())
}

/// Whether there are hashes, and none of them is supported.
pub(crate) fn hashes_are_unknown(hashes: &BTreeMap<String, String>) -> bool {
    !hashes.is_empty() && hashes.keys().all(|name| hash(name, &[]).is_none())
}

/// Name of the hash that the writer uses.
pub(crate) const WRITTEN_HASH: &str = "xxh64";

/// A hash of `data` in hexadecimal. `name` is that of the streaming package: SHA-1, SHA-2 and the xxHashes; `None` for the
/// others (BLAKE2, SHA-3, MD5).
pub(crate) fn hash(name: &str, data: &[u8]) -> Option<String> {
    Some(match name {
        "sha1" => hex(&Sha1::digest(data)),
        "sha224" => hex(&Sha224::digest(data)),
        "sha256" => hex(&Sha256::digest(data)),
        "sha384" => hex(&Sha384::digest(data)),
        "sha512" => hex(&Sha512::digest(data)),
        "xxh32" => format!("{:08x}", XxHash32::oneshot(0, data)),
        "xxh64" => format!("{:016x}", XxHash64::oneshot(0, data)),
        "xxh3_64" => format!("{:016x}", XxHash3_64::oneshot(data)),
        "xxh3_128" | "xxh128" => format!("{:032x}", XxHash3_128::oneshot(data)),
        _ => return None,
    })
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_is_compressed_comes_back_and_no_more() {
        let data: Vec<u8> = (0..100_000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&data).unwrap();
        for (codec, packed) in [
            (ShardCodec::Zstd, zstd::bulk::compress(&data, 3).unwrap()),
            (ShardCodec::Gzip, gzip.finish().unwrap()),
            (ShardCodec::Snappy, snap::raw::Encoder::new().compress_vec(&data).unwrap()),
        ] {
            let mut out = Vec::new();
            codec.unpack(&packed, data.len() as u64, &mut out).unwrap();
            assert!(out == data, "{codec:?}");
            for bytes in [0, data.len() as u64 - 1, data.len() as u64 + 1, u64::MAX] {
                let reason = codec.unpack(&packed, bytes, &mut out).unwrap_err().to_string();
                assert!(reason.contains("bytes"), "{codec:?}: {reason}");
                assert!(out.capacity() <= data.len() * 16, "{codec:?}: {}", out.capacity());
            }
            assert!(codec.unpack(&packed[..packed.len() / 2], data.len() as u64, &mut out).is_err());
            let first = codec.first::<4>(&packed[..]).unwrap();
            assert!(first.is_none_or(|first| first == data[..4]));
        }
        assert!(ShardCodec::named("br:3").unwrap_err().to_string().contains("\"br:3\""));
        assert_eq!(ShardCodec::named("gz:9").unwrap(), ShardCodec::Gzip);
    }

    #[test]
    fn hashes_are_those_of_python() {
        // hashlib.NAME(b"abc").hexdigest(), xxhash.NAME(b"abc").hexdigest()
        for (name, expected) in [
            ("sha1", "a9993e364706816aba3e25717850c26c9cd0d89d"),
            ("sha256", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            ("xxh32", "32d153ff"),
            ("xxh64", "44bc2cf5ad770999"),
            ("xxh3_64", "78af5f94892f3950"),
            ("xxh128", "06b05ab6733a618578af5f94892f3950"),
        ] {
            assert_eq!(hash(name, b"abc").as_deref(), Some(expected), "{name}");
            let hashes = BTreeMap::from([(name.to_owned(), expected.to_uppercase())]);
            check_hashes(b"abc", &hashes).unwrap();
            assert!(check_hashes(b"abd", &hashes).unwrap_err().to_string().contains(name));
        }
        let unknown = BTreeMap::from([("blake2b".to_owned(), String::new())]);
        assert!(hashes_are_unknown(&unknown) && check_hashes(b"abc", &unknown).is_ok());
    }
}
