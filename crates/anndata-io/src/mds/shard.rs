use std::collections::BTreeMap;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use flate2::read::MultiGzDecoder;
use sha1::{Digest, Sha1};
use sha2::{Sha224, Sha256, Sha384, Sha512};
use twox_hash::{XxHash3_64, XxHash3_128, XxHash32, XxHash64};

use crate::AnnDataError;
use crate::mds::index::{FileNote, IndexedShard};
use crate::mds::source::MdsFile;

/// A shard whose file is open.
///
/// A shard is the number of its samples `n` (uint32, little-endian), where each begins and the last ends (uint32
/// `[n + 1]`, from the beginning of the shard), its columns as JSON, and its samples.
#[derive(Debug)]
pub(crate) struct Shard {
    pub source: MdsFile,
    pub body: ShardBody,
    noted: IndexedShard,
}

/// How a shard lies in its file.
#[derive(Debug)]
pub(crate) enum ShardBody {
    /// As it is: `[samples + 1]`, where each begins.
    Raw(Box<[u32]>),
    /// Compressed.
    Packed(ShardCodec),
}

/// Bytes before the numbers of where samples begin.
const SAMPLE_COUNT_BYTES: usize = 4;

impl Shard {
    /// Open the file of a shard of `folder`: the one that is not compressed, if it is there.
    ///
    /// # Errors
    /// It is missing, or not what the index says.
    pub fn open(folder: &Path, noted: IndexedShard) -> Result<Self, AnnDataError> {
        let raw = folder.join(&noted.raw_data.basename);
        match (&noted.zip_data, &noted.compression) {
            (Some(packed), Some(compression)) if !raw.exists() => {
                let path = folder.join(&packed.basename);
                let codec = ShardCodec::named(compression).map_err(|reason| AnnDataError::damaged(&path, reason))?;
                let source = open_sized(&path, packed)?;
                Self::check_packed(&source, codec, &noted).map_err(|reason| source.damaged(reason))?;
                Ok(Self { source, body: ShardBody::Packed(codec), noted })
            }
            _ => {
                let source = open_sized(&raw, &noted.raw_data)?;
                let offsets = Self::offsets(&source, &noted)?;
                Ok(Self { source, body: ShardBody::Raw(offsets), noted })
            }
        }
    }

    /// Samples.
    pub const fn samples(&self) -> u64 {
        self.noted.samples
    }

    /// Its bytes when it is not compressed.
    pub const fn raw_bytes(&self) -> u64 {
        self.noted.raw_data.bytes
    }

    /// Where a sample is in it, of a shard that is not compressed.
    pub fn sample(offsets: &[u32], sample: usize) -> Range<u64> {
        offsets[sample].into()..offsets[sample + 1].into()
    }

    /// Where a sample is in a shard that was decompressed and checked.
    pub fn sample_in(data: &[u8], sample: usize) -> Range<usize> {
        let at = |number: usize| {
            let bytes = data.get(SAMPLE_COUNT_BYTES + 4 * number..).and_then(|rest| rest.first_chunk::<4>());
            bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize)
        };
        at(sample)..at(sample + 1)
    }

    fn check_packed(source: &MdsFile, codec: ShardCodec, noted: &IndexedShard) -> Result<(), String> {
        codec.check_ratio(source.bytes(), noted.raw_data.bytes)?;
        let first = codec.first::<4>(io::BufReader::new(source.stream())).map_err(|e| format!("is damaged: {e}"))?;
        first.map_or(Ok(()), |samples| check_samples(samples, noted))
    }

    /// Read where the samples of a shard that is not compressed begin.
    fn offsets(source: &MdsFile, noted: &IndexedShard) -> Result<Box<[u32]>, AnnDataError> {
        // The index has been found to leave as many bytes.
        let samples = noted.samples as usize;
        let mut head = Vec::new();
        source.append(0, SAMPLE_COUNT_BYTES + 4 * (samples + 1), &mut head)?;
        let check = |head: &[u8]| -> Result<Box<[u32]>, String> {
            check_samples(*head.first_chunk().ok_or("it is cut short")?, noted)?;
            let offsets = head[SAMPLE_COUNT_BYTES..].as_chunks::<4>().0.iter().map(|at| u32::from_le_bytes(*at));
            let offsets: Box<[u32]> = offsets.collect();
            check_offsets(&offsets, noted)?;
            Ok(offsets)
        };
        let offsets = check(&head).map_err(|reason| source.damaged(reason))?;
        let (start, end) = (head.len(), offsets[0] as usize);
        head.clear();
        source.append(start as u64, end - start, &mut head)?;
        noted.check_config(&head).map_err(|reason| source.damaged(reason))?;
        Ok(offsets)
    }

    /// Decompress what was read of its file into `out`, and compare it with the index.
    pub fn unpack(&self, codec: ShardCodec, packed: &[u8], out: &mut Vec<u8>) -> Result<(), AnnDataError> {
        self.unpack_checked(codec, packed, out).map_err(|reason| self.source.damaged(reason))
    }

    fn unpack_checked(&self, codec: ShardCodec, packed: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let noted = &self.noted;
        if let Some(zip) = &noted.zip_data {
            check_hashes(packed, &zip.hashes)?;
        }
        codec.unpack(packed, noted.raw_data.bytes, out)?;
        // What was compressed is as it was, if the hash of what came of it is: once is enough.
        if noted.zip_data.as_ref().is_none_or(|zip| zip.hashes.is_empty() || hashes_are_unknown(&zip.hashes)) {
            check_hashes(out, &noted.raw_data.hashes)?;
        }
        check_samples(*out.first_chunk().ok_or("it is cut short")?, noted)?;
        let end = SAMPLE_COUNT_BYTES + 4 * (noted.samples as usize + 1);
        let offsets = out.get(SAMPLE_COUNT_BYTES..end).ok_or("it is cut short")?;
        let offsets: Vec<u32> = offsets.as_chunks::<4>().0.iter().map(|at| u32::from_le_bytes(*at)).collect();
        check_offsets(&offsets, noted)?;
        noted.check_config(&out[end..offsets[0] as usize])
    }
}

/// Open a file that is as long as the index says.
fn open_sized(path: &Path, noted: &FileNote) -> Result<MdsFile, AnnDataError> {
    let source = MdsFile::open(path)?;
    if source.bytes() != noted.bytes {
        return Err(source.damaged(format!("has {} bytes, the index says {}", source.bytes(), noted.bytes)));
    }
    Ok(source)
}

fn check_samples(found: [u8; 4], noted: &IndexedShard) -> Result<(), String> {
    let found = u64::from(u32::from_le_bytes(found));
    if found == noted.samples {
        return Ok(());
    }
    Err(format!("has {found} samples, the index says {}", noted.samples))
}

/// Samples begin behind the head, one after another, and the last ends with the shard.
fn check_offsets(offsets: &[u32], noted: &IndexedShard) -> Result<(), String> {
    let head = (SAMPLE_COUNT_BYTES + 4 * offsets.len()) as u64;
    let ascend = offsets.iter().zip(&offsets[1..]).fold(true, |ascend, (a, b)| ascend & (a <= b));
    let ends = offsets.last().is_some_and(|end| u64::from(*end) == noted.raw_data.bytes);
    if !ascend || !ends || u64::from(offsets[0]) < head {
        return Err("its samples are not where it says".to_owned());
    }
    Ok(())
}

/// How a shard is compressed, as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShardCodec {
    Zstd,
    Gzip,
    Snappy,
}

/// No data becomes smaller with Snappy: 64 bytes take three.
const SNAPPY_RATIO: u64 = 22;

impl ShardCodec {
    /// Of what an index says: `zstd`, `zstd:7`, …
    ///
    /// # Errors
    /// It is not read here.
    pub fn named(compression: &str) -> Result<Self, String> {
        match compression.split(':').next().unwrap_or_default() {
            "zstd" => Ok(Self::Zstd),
            "gz" => Ok(Self::Gzip),
            "snappy" => Ok(Self::Snappy),
            _ => Err(format!(
                "shards are compressed with \"{compression}\", which is not read here: decompress them, or write them with \
                 zstd, gz or snappy"
            )),
        }
    }

    /// The first bytes of what is compressed, as far as they can be had without all of it.
    pub fn first<const N: usize>(self, packed: impl Read) -> io::Result<Option<[u8; N]>> {
        let mut first = [0; N];
        match self {
            Self::Zstd => zstd::stream::read::Decoder::new(packed)?.read_exact(&mut first)?,
            Self::Gzip => MultiGzDecoder::new(packed).read_exact(&mut first)?,
            Self::Snappy => return Ok(None),
        }
        Ok(Some(first))
    }

    /// An error if so many bytes cannot become as many as `bytes`.
    fn check_ratio(self, packed: u64, bytes: u64) -> Result<(), String> {
        if self == Self::Snappy && bytes > packed.saturating_mul(SNAPPY_RATIO) {
            return Err(format!("{packed} bytes of Snappy are never {bytes}"));
        }
        Ok(())
    }

    /// What is compressed: exactly `bytes` bytes, into `out`, which grows with them and not before.
    pub fn unpack(self, packed: &[u8], bytes: u64, out: &mut Vec<u8>) -> Result<(), String> {
        /// Room that is made before anything is known, for each byte.
        const USUAL: u64 = 16;
        self.check_ratio(packed.len() as u64, bytes)?;
        let failed = |e: &dyn std::fmt::Display| format!("cannot be decompressed: {e}");
        out.clear();
        let room = match self {
            Self::Snappy => bytes,
            _ => bytes.min(packed.len() as u64 * USUAL),
        };
        out.try_reserve_exact(room as usize).map_err(|e| failed(&e))?;
        // One byte more shows that there are more.
        let most = bytes.saturating_add(1);
        match self {
            Self::Zstd => {
                let decoder = zstd::stream::read::Decoder::with_buffer(packed).map_err(|e| failed(&e))?;
                decoder.take(most).read_to_end(out).map_err(|e| failed(&e))?;
            }
            Self::Gzip => {
                MultiGzDecoder::new(packed).take(most).read_to_end(out).map_err(|e| failed(&e))?;
            }
            Self::Snappy => {
                let says = snap::raw::decompress_len(packed).map_err(|e| failed(&e))?;
                if says as u64 != bytes {
                    return Err(other_length(bytes));
                }
                out.resize(says, 0);
                snap::raw::Decoder::new().decompress(packed, out).map_err(|e| failed(&e))?;
            }
        }
        if out.len() as u64 != bytes {
            return Err(other_length(bytes));
        }
        Ok(())
    }
}

fn other_length(bytes: u64) -> String {
    format!("is not {bytes} bytes when it is decompressed, as the index says")
}

/// Compare `data` with the hashes that are given for it, by the names that the package has for them: SHA-1, SHA-2 and the
/// xxHashes. The others of Python's hashlib are not looked at.
fn check_hashes(data: &[u8], hashes: &BTreeMap<String, String>) -> Result<(), String> {
    for (name, expected) in hashes {
        if let Some(found) = hash(name, data).filter(|found| !found.eq_ignore_ascii_case(expected)) {
            return Err(format!("its {name} is {found}, the index says {expected}"));
        }
    }
    Ok(())
}

/// Whether none of these can be compared.
pub(crate) fn hashes_are_unknown(hashes: &BTreeMap<String, String>) -> bool {
    !hashes.is_empty() && hashes.keys().all(|name| hash(name, &[]).is_none())
}

/// The hash that is written for shards.
pub(crate) const WRITTEN_HASH: &str = "xxh64";

/// As hexadecimal digits; `None` of an unknown name.
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
                let reason = codec.unpack(&packed, bytes, &mut out).unwrap_err();
                assert!(reason.contains("bytes"), "{codec:?}: {reason}");
                assert!(out.capacity() <= data.len() * 16, "{codec:?}: {}", out.capacity());
            }
            assert!(codec.unpack(&packed[..packed.len() / 2], data.len() as u64, &mut out).is_err());
            let first = codec.first::<4>(&packed[..]).unwrap();
            assert!(first.is_none_or(|first| first == data[..4]));
        }
        assert!(ShardCodec::named("br:3").unwrap_err().contains("\"br:3\""));
        assert_eq!(ShardCodec::named("gz:9"), Ok(ShardCodec::Gzip));
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
            assert_eq!(check_hashes(b"abc", &hashes), Ok(()));
            assert!(check_hashes(b"abd", &hashes).unwrap_err().contains(name));
        }
        let unknown = BTreeMap::from([("blake2b".to_owned(), String::new())]);
        assert!(hashes_are_unknown(&unknown) && check_hashes(b"abc", &unknown).is_ok());
    }
}
