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
/// Layout: the number `n` of samples (uint32, little-endian), the offsets of all samples and of the end of the last one (uint32
/// `[n + 1]`, from the start of the shard), the columns as JSON, and the samples.
#[derive(Debug)]
pub(crate) struct Shard {
    /// Number of its file in the source.
    pub file: usize,
    /// Address of its first byte in the source.
    pub start: u64,
    pub body: ShardBody,
    indexed: IndexedShard,
}

/// Encoding of the file of a shard.
#[derive(Debug)]
pub(crate) enum ShardBody {
    /// Uncompressed: `[samples + 1]`, offsets of the samples.
    Raw(Box<[u32]>),
    /// Compressed as a whole.
    Packed(ShardCodec),
}

/// Size of the number of samples in bytes.
const SAMPLE_COUNT_BYTES: usize = 4;

impl Shard {
    /// Opens the shard in file `file` of `source`, which is the compressed one if `is_packed`.
    ///
    /// # Errors
    /// The file contradicts the index.
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

    /// Offsets of a sample in an uncompressed shard.
    pub fn sample(offsets: &[u32], sample: usize) -> Range<u64> {
        offsets[sample].into()..offsets[sample + 1].into()
    }

    /// Offsets of a sample in a decompressed shard.
    pub fn sample_in(data: &[u8], sample: usize) -> Range<usize> {
        let at = |number: usize| {
            let bytes = data.get(SAMPLE_COUNT_BYTES + 4 * number..).and_then(|rest| rest.first_chunk::<4>());
            bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize)
        };
        at(sample)..at(sample + 1)
    }

    /// Reads the whole file.
    ///
    /// # Errors
    /// The file cannot be read; there is not enough memory.
    pub fn read_packed(&self, source: &ByteSource) -> Result<Vec<u8>, AnnDataError> {
        let range = source.file_range(self.file);
        source.read_vec(range.start, (range.end - range.start) as usize)
    }

    /// Decompresses `packed`, the content of the file, into `out`, and compares the result with the index.
    ///
    /// # Errors
    /// The file is damaged, or contradicts the index.
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
        // One hash is enough: correct compressed bytes decompress to correct bytes.
        if indexed.zip_data.as_ref().is_none_or(|zip| zip.hashes.is_empty() || hashes_are_unknown(&zip.hashes)) {
            check_hashes(out, &indexed.raw_data.hashes)?;
        }
        check_samples(*out.first_chunk().ok_or(MdsError::CutShort)?, indexed)?;
        let end = SAMPLE_COUNT_BYTES + 4 * (indexed.samples as usize + 1);
        let offsets = out.get(SAMPLE_COUNT_BYTES..end).ok_or(MdsError::CutShort)?;
        let offsets: Vec<u32> = offsets.as_chunks::<4>().0.iter().map(|at| u32::from_le_bytes(*at)).collect();
        check_offsets(&offsets, indexed)?;
        indexed.check_config(&out[end..offsets[0] as usize])
    }
}

/// Checks that the length of a file is that in the index.
fn check_length(range: &Range<u64>, indexed: &FileNote) -> Result<(), MdsError> {
    let bytes = range.end - range.start;
    if bytes == indexed.bytes {
        return Ok(());
    }
    Err(MdsError::Length { found: bytes, expected: indexed.bytes })
}

/// Checks that the size in the index is plausible for a compressed file, and that it starts with the number of samples.
fn check_packed(
    source: &ByteSource,
    range: &Range<u64>,
    codec: ShardCodec,
    indexed: &IndexedShard,
) -> Result<(), MdsError> {
    codec.check_ratio(range.end - range.start, indexed.raw_data.bytes)?;
    let reader = io::BufReader::new(source.reader(range.clone()));
    let first = codec.first::<4>(reader).map_err(MdsError::Start)?;
    first.map_or(Ok(()), |samples| check_samples(samples, indexed))
}

/// Reads the offsets of the samples of an uncompressed shard.
fn read_offsets(source: &ByteSource, file: usize, indexed: &IndexedShard) -> Result<Box<[u32]>, AnnDataError> {
    // The index was checked to leave space for them.
    let samples = indexed.samples as usize;
    let first = source.file_range(file).start;
    let mut head = source.read_vec(first, SAMPLE_COUNT_BYTES + 4 * (samples + 1))?;
    let check = |head: &[u8]| -> Result<Box<[u32]>, MdsError> {
        check_samples(*head.first_chunk().ok_or(MdsError::CutShort)?, indexed)?;
        let offsets = head[SAMPLE_COUNT_BYTES..].as_chunks::<4>().0.iter().map(|at| u32::from_le_bytes(*at));
        let offsets: Box<[u32]> = offsets.collect();
        check_offsets(&offsets, indexed)?;
        Ok(offsets)
    };
    let offsets = check(&head).map_err(|error| source.file_damaged(file, error))?;
    let (start, end) = (head.len(), offsets[0] as usize);
    head.clear();
    source.append_to(first + start as u64, end - start, &mut head)?;
    indexed.check_config(&head).map_err(|error| source.file_damaged(file, error))?;
    Ok(offsets)
}

fn check_samples(found: [u8; 4], indexed: &IndexedShard) -> Result<(), MdsError> {
    let found = u64::from(u32::from_le_bytes(found));
    if found == indexed.samples {
        return Ok(());
    }
    Err(MdsError::Samples { found, expected: indexed.samples })
}

/// Checks that samples follow the header without gaps, and that the last one ends with the shard.
fn check_offsets(offsets: &[u32], indexed: &IndexedShard) -> Result<(), MdsError> {
    let head = (SAMPLE_COUNT_BYTES + 4 * offsets.len()) as u64;
    let ascend = offsets.iter().zip(&offsets[1..]).fold(true, |ascend, (a, b)| ascend & (a <= b));
    let ends = offsets.last().is_some_and(|end| u64::from(*end) == indexed.raw_data.bytes);
    if !ascend || !ends || u64::from(offsets[0]) < head {
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

/// Snappy's best ratio: 64 bytes take three.
const SNAPPY_RATIO: u64 = 22;

impl ShardCodec {
    /// Parses a compression of an index: `zstd`, `zstd:7`, …
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

    /// Decompresses the first bytes of `packed`, without all of it.
    pub fn first<const N: usize>(self, packed: impl Read) -> io::Result<Option<[u8; N]>> {
        let mut first = [0; N];
        match self {
            Self::Zstd => zstd::stream::read::Decoder::new(packed)?.read_exact(&mut first)?,
            Self::Gzip => MultiGzDecoder::new(packed).read_exact(&mut first)?,
            Self::Snappy => return Ok(None),
        }
        Ok(Some(first))
    }

    /// Fails if so many compressed bytes cannot become `bytes` bytes.
    fn check_ratio(self, packed: u64, bytes: u64) -> Result<(), MdsError> {
        if self == Self::Snappy && bytes > packed.saturating_mul(SNAPPY_RATIO) {
            return Err(MdsError::Ratio { packed, bytes });
        }
        Ok(())
    }

    /// Decompresses to exactly `bytes` bytes in `out`, which grows with the data.
    pub fn unpack(self, packed: &[u8], bytes: u64, out: &mut Vec<u8>) -> Result<(), MdsError> {
        /// Bytes that are reserved in advance for each compressed byte.
        const USUAL: u64 = 16;
        self.check_ratio(packed.len() as u64, bytes)?;
        out.clear();
        let room = match self {
            Self::Snappy => bytes,
            _ => bytes.min(packed.len() as u64 * USUAL),
        };
        out.try_reserve_exact(room as usize).map_err(undecodable)?;
        // One byte more, to detect data that is too long.
        let most = bytes.saturating_add(1);
        match self {
            Self::Zstd => {
                let decoder = zstd::stream::read::Decoder::with_buffer(packed).map_err(undecodable)?;
                decoder.take(most).read_to_end(out).map_err(undecodable)?;
            }
            Self::Gzip => {
                MultiGzDecoder::new(packed).take(most).read_to_end(out).map_err(undecodable)?;
            }
            Self::Snappy => {
                let says = snap::raw::decompress_len(packed).map_err(undecodable)?;
                if says as u64 != bytes {
                    return Err(MdsError::DecompressedLength { bytes });
                }
                out.resize(says, 0);
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

/// Compares `data` with its hashes, which have the names of the streaming package: SHA-1, SHA-2 and the xxHashes. Other hashes
/// of Python's hashlib are ignored.
fn check_hashes(data: &[u8], hashes: &BTreeMap<String, String>) -> Result<(), MdsError> {
    for (name, expected) in hashes {
        if let Some(found) = hash(name, data).filter(|found| !found.eq_ignore_ascii_case(expected)) {
            return Err(MdsError::Hash { name: name.clone(), found, expected: expected.clone() });
        }
    }
    Ok(())
}

/// Whether none of the hashes is supported.
pub(crate) fn hashes_are_unknown(hashes: &BTreeMap<String, String>) -> bool {
    !hashes.is_empty() && hashes.keys().all(|name| hash(name, &[]).is_none())
}

/// Name of the hash that the writer uses.
pub(crate) const WRITTEN_HASH: &str = "xxh64";

/// A hash in hexadecimal; `None` for an unsupported name.
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
