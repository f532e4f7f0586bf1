/// Bytes of an entry in the file.
pub(super) const ENTRY: usize = 64;

/// Where in an entry is said when it was used last: it is written by itself.
pub(super) const USED: u64 = 40;

/// What a slot has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// As [`super::name_of`] has it.
    pub(super) name: [u8; 16],
    /// Number of the block in its object.
    pub(super) block: u64,
    /// Bytes; those of the last block of an object are fewer.
    pub(super) len: u32,
    /// CRC-32 of the bytes.
    pub(super) sum: u32,
    /// When it was used last, ms since 1970. Not under the checksum of the entry: it orders slots and no more.
    pub(super) used: u64,
}

impl Entry {
    /// As bytes: name, block, length, checksum of the block, checksum of these, 4 unused, time; the rest is 0.
    pub(super) fn written(&self) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        bytes[..16].copy_from_slice(&self.name);
        bytes[16..24].copy_from_slice(&self.block.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.len.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.sum.to_le_bytes());
        let sum = crc32fast::hash(&bytes[..32]);
        bytes[32..36].copy_from_slice(&sum.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.used.to_le_bytes());
        bytes
    }

    /// `None` for an empty slot, and one that is being written.
    pub(super) fn read(bytes: &[u8; ENTRY]) -> Option<Self> {
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        // Of zeros it is none.
        if crc32fast::hash(&bytes[..32]) != u32_at(32) || u32_at(24) == 0 {
            return None;
        }
        let mut name = [0; 16];
        name.copy_from_slice(&bytes[..16]);
        Some(Self { name, block: u64_at(16), len: u32_at(24), sum: u32_at(28), used: u64_at(USED as usize) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_back_or_is_none() {
        let entry = Entry { name: [3; 16], block: 1 << 40, len: 77, sum: 0xdead_beef, used: 1 << 50 };
        let bytes = entry.written();
        assert_eq!(Entry::read(&bytes), Some(entry));
        assert_eq!(Entry::read(&[0; ENTRY]), None);
        for at in 0..36 {
            let mut torn = bytes;
            torn[at] ^= 1;
            assert_eq!(Entry::read(&torn), None, "byte {at}");
        }
    }
}
