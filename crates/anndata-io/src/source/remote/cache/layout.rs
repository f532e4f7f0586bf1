use super::BLOCK;
use super::entry::ENTRY;

/// Slots that a block may be in: the one that was not used for longest is given up.
pub(super) const WAYS: u64 = 8;

/// Bytes before the first entry.
pub(super) const HEADER: u64 = 4096;

/// Where things are in the file of a cache: a header, the entries of all slots, set by set, then the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) sets: u64,
    /// First byte of the first slot.
    data: u64,
}

impl Layout {
    /// As many sets as fit into `bytes`; `None` where that is none.
    pub(super) fn of(bytes: u64) -> Option<Self> {
        let sets = bytes.checked_sub(2 * HEADER)? / (WAYS * (BLOCK + ENTRY as u64));
        let data = (HEADER + sets * WAYS * ENTRY as u64).next_multiple_of(HEADER);
        (sets > 0).then_some(Self { sets, data })
    }

    /// Bytes of the whole file.
    pub(super) fn bytes(&self) -> u64 {
        self.data + self.sets * WAYS * BLOCK
    }

    /// Set of a block. Blocks of one object are in one set after another, so that an object that fits has room for all of it.
    pub(super) fn set(&self, name: &[u8; 16], block: u64) -> u64 {
        let mut first = [0; 8];
        first.copy_from_slice(&name[..8]);
        (u64::from_le_bytes(first) % self.sets + block % self.sets) % self.sets
    }

    /// First byte of the entries of a set.
    pub(super) fn entries(&self, set: u64) -> u64 {
        HEADER + set * WAYS * ENTRY as u64
    }

    /// First byte of a slot.
    pub(super) fn slot(&self, set: u64, way: u64) -> u64 {
        self.data + (set * WAYS + way) * BLOCK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_no_larger_than_it_may_be_and_an_object_that_fits_has_room() {
        for mib in [3u64, 4, 64, 1000] {
            let layout = Layout::of(mib << 20).unwrap();
            assert!(layout.bytes() <= mib << 20 && layout.bytes() + WAYS * (BLOCK + 64) + 2 * HEADER > mib << 20);
            let mut filled = vec![0u64; layout.sets as usize];
            for block in 0..layout.sets * WAYS {
                filled[layout.set(&[7; 16], block) as usize] += 1;
            }
            assert!(filled.iter().all(|n| *n == WAYS));
        }
        assert_eq!(Layout::of(1 << 20), None);
    }
}
