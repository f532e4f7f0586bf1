use std::io;
use std::ops::Range;
use std::path::Path;

use super::codec::Codec;
use super::hashes;
use super::index::{FileNote, IndexedShard};
use super::source::Source;
use crate::AnnDataError;

/// A shard whose file is open.
///
/// A shard is the number of its samples `n` (uint32, little-endian), where each begins and the last ends (uint32
/// `[n + 1]`, from the beginning of the shard), its columns as JSON, and its samples.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) source: Source,
    pub(super) body: Body,
    noted: IndexedShard,
}

/// How a shard lies in its file.
#[derive(Debug)]
pub(super) enum Body {
    /// As it is: `[samples + 1]`, where each begins.
    Raw(Box<[u32]>),
    /// Compressed.
    Packed(Codec),
}

/// Bytes before the numbers of where samples begin.
const HEAD: usize = 4;

impl Shard {
    /// Open the file of a shard of `folder`: the one that is not compressed, if it is there.
    ///
    /// # Errors
    /// It is missing, or not what the index says.
    pub(super) fn open(folder: &Path, noted: IndexedShard) -> Result<Self, AnnDataError> {
        let raw = folder.join(&noted.raw_data.basename);
        match (&noted.zip_data, &noted.compression) {
            (Some(packed), Some(compression)) if !raw.exists() => {
                let path = folder.join(&packed.basename);
                let codec = Codec::named(compression).map_err(|reason| AnnDataError::damaged(&path, reason))?;
                let source = sized(&path, packed)?;
                Self::check_packed(&source, codec, &noted).map_err(|reason| source.damaged(reason))?;
                Ok(Self { source, body: Body::Packed(codec), noted })
            }
            _ => {
                let source = sized(&raw, &noted.raw_data)?;
                let offsets = Self::offsets(&source, &noted)?;
                Ok(Self { source, body: Body::Raw(offsets), noted })
            }
        }
    }

    /// Samples.
    pub(super) const fn samples(&self) -> u64 {
        self.noted.samples
    }

    /// Its bytes when it is not compressed.
    pub(super) const fn raw_bytes(&self) -> u64 {
        self.noted.raw_data.bytes
    }

    /// Where a sample is in it, of a shard that is not compressed.
    pub(super) fn sample(offsets: &[u32], sample: usize) -> Range<u64> {
        offsets[sample].into()..offsets[sample + 1].into()
    }

    /// Where a sample is in a shard that was decompressed and checked.
    pub(super) fn sample_in(data: &[u8], sample: usize) -> Range<usize> {
        let at = |number: usize| {
            let bytes = data.get(HEAD + 4 * number..).and_then(|rest| rest.first_chunk::<4>());
            bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize)
        };
        at(sample)..at(sample + 1)
    }

    fn check_packed(source: &Source, codec: Codec, noted: &IndexedShard) -> Result<(), String> {
        codec.check_ratio(source.bytes(), noted.raw_data.bytes)?;
        let first = codec.first::<4>(io::BufReader::new(source.stream())).map_err(|e| format!("is damaged: {e}"))?;
        first.map_or(Ok(()), |samples| check_samples(samples, noted))
    }

    /// Read where the samples of a shard that is not compressed begin.
    fn offsets(source: &Source, noted: &IndexedShard) -> Result<Box<[u32]>, AnnDataError> {
        // The index has been found to leave as many bytes.
        let samples = noted.samples as usize;
        let mut head = Vec::new();
        source.append(0, HEAD + 4 * (samples + 1), &mut head)?;
        let check = |head: &[u8]| -> Result<Box<[u32]>, String> {
            check_samples(*head.first_chunk().ok_or("it is cut short")?, noted)?;
            let offsets = head[HEAD..].as_chunks::<4>().0.iter().map(|at| u32::from_le_bytes(*at));
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
    pub(super) fn unpack(&self, codec: Codec, packed: &[u8], out: &mut Vec<u8>) -> Result<(), AnnDataError> {
        self.unpack_checked(codec, packed, out).map_err(|reason| self.source.damaged(reason))
    }

    fn unpack_checked(&self, codec: Codec, packed: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let noted = &self.noted;
        if let Some(zip) = &noted.zip_data {
            hashes::check(packed, &zip.hashes)?;
        }
        codec.unpack(packed, noted.raw_data.bytes, out)?;
        // What was compressed is as it was, if the hash of what came of it is: once is enough.
        if noted.zip_data.as_ref().is_none_or(|zip| zip.hashes.is_empty() || hashes::are_unknown(&zip.hashes)) {
            hashes::check(out, &noted.raw_data.hashes)?;
        }
        check_samples(*out.first_chunk().ok_or("it is cut short")?, noted)?;
        let end = HEAD + 4 * (noted.samples as usize + 1);
        let offsets = out.get(HEAD..end).ok_or("it is cut short")?;
        let offsets: Vec<u32> = offsets.as_chunks::<4>().0.iter().map(|at| u32::from_le_bytes(*at)).collect();
        check_offsets(&offsets, noted)?;
        noted.check_config(&out[end..offsets[0] as usize])
    }
}

/// Open a file that is as long as the index says.
fn sized(path: &Path, noted: &FileNote) -> Result<Source, AnnDataError> {
    let source = Source::open(path)?;
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
    let head = (HEAD + 4 * offsets.len()) as u64;
    let ascend = offsets.iter().zip(&offsets[1..]).fold(true, |ascend, (a, b)| ascend & (a <= b));
    let ends = offsets.last().is_some_and(|end| u64::from(*end) == noted.raw_data.bytes);
    if !ascend || !ends || u64::from(offsets[0]) < head {
        return Err("its samples are not where it says".to_owned());
    }
    Ok(())
}
