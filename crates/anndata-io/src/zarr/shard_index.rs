use std::mem::MaybeUninit;
use std::ops::Range;

use crate::matrix::filters::crc32c;
use crate::source::{Piece, Source};

/// The index of a shard: for each chunk its first byte and its bytes, as 64 bits each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShardIndex {
    /// It is at the end of the shard, otherwise at its start.
    pub(super) at_end: bool,
    pub(super) big_endian: bool,
    /// A checksum (crc32c) follows it.
    pub(super) sum: bool,
}

/// Bytes of an entry.
const ENTRY: u64 = 16;

impl ShardIndex {
    /// Address and bytes of each of `count` chunks of the shard at these addresses; `None` of a chunk that was not written.
    /// `Err` says what is wrong with it.
    pub(super) fn read(
        self,
        source: &Source,
        shard: &Range<u64>,
        count: u64,
    ) -> Result<Vec<Option<(u64, u32)>>, String> {
        let long = shard.end - shard.start;
        let bytes = count.checked_mul(ENTRY).and_then(|bytes| bytes.checked_add(if self.sum { 4 } else { 0 }));
        let Some(bytes) = bytes.filter(|bytes| *bytes <= long) else {
            return Err(format!("has {long} bytes, too few for the index of its {count} chunks (is it cut short?)"));
        };
        let offset = if self.at_end { shard.end - bytes } else { shard.start };
        let index = read(source, offset, bytes as usize)?;
        let index = match self.sum {
            true => crc32c::verified(&index).ok_or("has a damaged index: its checksum (crc32c) is another one")?,
            false => &index,
        };
        let (words, _) = index.as_chunks::<8>();
        let word = |word: &[u8; 8]| if self.big_endian { u64::from_be_bytes(*word) } else { u64::from_le_bytes(*word) };
        words
            .chunks_exact(2)
            .enumerate()
            .map(|(i, entry)| {
                let (first, bytes) = (word(&entry[0]), word(&entry[1]));
                if (first, bytes) == (u64::MAX, u64::MAX) {
                    return Ok(None);
                }
                match (first.checked_add(bytes), u32::try_from(bytes)) {
                    (Some(end), Ok(bytes)) if end <= long => Ok(Some((shard.start + first, bytes))),
                    _ => Err(format!("has {long} bytes, and chunk {i} in it is said to have {bytes} at {first}")),
                }
            })
            .collect()
    }
}

/// So many bytes at an address.
pub(super) fn read(source: &Source, offset: u64, len: usize) -> Result<Vec<u8>, String> {
    let mut bytes: Vec<u8> = Vec::new();
    bytes.try_reserve_exact(len).map_err(|_| format!("there is no memory for {len} bytes of it"))?;
    let into: &mut [MaybeUninit<u8>] = &mut bytes.spare_capacity_mut()[..len];
    source.read_all(&[Piece { offset, at: 0, len }], into).map_err(|e| e.to_string())?;
    // SAFETY: all of it was read.
    unsafe { bytes.set_len(len) };
    Ok(bytes)
}
