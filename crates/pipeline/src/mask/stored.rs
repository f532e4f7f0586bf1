use crate::store::MaskForm;

/// A mask as a store holds it, still in the bytes of its record.
#[derive(Clone, Copy, Debug)]
pub struct StoredMask<'a> {
    /// How the bytes are to be read; never [`MaskForm::None`].
    pub form: MaskForm,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl StoredMask<'_> {
    /// Positions of the False entries. Records have no alignment, so these are read byte-wise.
    fn positions(&self) -> impl Iterator<Item = usize> {
        self.bytes.as_chunks::<8>().0.iter().map(|p| i64::from_le_bytes(*p) as usize)
    }

    pub(super) fn to_bytes(self, mask: &mut [u8]) {
        match self.form {
            MaskForm::None | MaskForm::FalsePositions => {
                mask.fill(1);
                self.positions().for_each(|p| mask[p] = 0);
            }
            MaskForm::Bytes => mask.copy_from_slice(self.bytes),
            MaskForm::Bits => {
                assert_eq!(self.bytes.len(), mask.len().div_ceil(8), "decoding checks the length");
                let (chunks, rest) = mask.as_chunks_mut::<8>();
                let (full, last) = self.bytes.split_at(chunks.len());
                for (chunk, bits) in chunks.iter_mut().zip(full) {
                    *chunk = expand(*bits).to_le_bytes();
                }
                if let [bits] = last {
                    rest.copy_from_slice(&expand(*bits).to_le_bytes()[..rest.len()]);
                }
            }
        }
    }

    pub(super) fn to_bits(self, entries: usize, mask: &mut [u64]) {
        match self.form {
            MaskForm::None | MaskForm::FalsePositions => {
                mask.fill(u64::MAX);
                if let (Some(last), used @ 1..) = (mask.last_mut(), entries % 64) {
                    *last = (1 << used) - 1;
                }
                self.positions().for_each(|p| mask[p / 64] &= !(1 << (p % 64)));
            }
            MaskForm::Bytes => {
                assert_eq!(self.bytes.len(), entries, "decoding checks the length");
                for (word, bytes) in mask.iter_mut().zip(self.bytes.chunks(64)) {
                    let (chunks, rest) = bytes.as_chunks::<8>();
                    let bits = |at: usize, bytes: [u8; 8]| u64::from(pack(u64::from_le_bytes(bytes))) << (8 * at);
                    *word = chunks.iter().enumerate().fold(0, |word, (at, chunk)| word | bits(at, *chunk));
                    if !rest.is_empty() {
                        let mut last = [0; 8];
                        last[..rest.len()].copy_from_slice(rest);
                        *word |= bits(chunks.len(), last);
                    }
                }
            }
            MaskForm::Bits => {
                assert_eq!(self.bytes.len(), entries.div_ceil(8), "decoding checks the length");
                for (word, bytes) in mask.iter_mut().zip(self.bytes.chunks(8)) {
                    let mut whole = [0; 8];
                    whole[..bytes.len()].copy_from_slice(bytes);
                    *word = u64::from_le_bytes(whole);
                }
                if let (Some(last), used @ 1..) = (mask.last_mut(), entries % 64) {
                    *last &= (1 << used) - 1;
                }
            }
        }
    }

    pub(super) fn append_removed(self, entries: usize, out: &mut Vec<i32>) {
        match self.form {
            MaskForm::None | MaskForm::FalsePositions => out.extend(self.positions().map(|p| p as i32)),
            MaskForm::Bytes => {
                assert_eq!(self.bytes.len(), entries, "decoding checks the length");
                // Eight entries at a time: nearly all of them are kept.
                for (at, bytes) in self.bytes.chunks(8).enumerate() {
                    if !bytes.iter().all(|kept| *kept == 1) {
                        let gone = bytes.iter().enumerate().filter(|(_, kept)| **kept == 0);
                        out.extend(gone.map(|(i, _)| (8 * at + i) as i32));
                    }
                }
            }
            MaskForm::Bits => {
                assert_eq!(self.bytes.len(), entries.div_ceil(8), "decoding checks the length");
                for (at, bytes) in self.bytes.chunks(8).enumerate() {
                    let mut whole = [0xff; 8];
                    whole[..bytes.len()].copy_from_slice(bytes);
                    let mut gone = !u64::from_le_bytes(whole);
                    while gone != 0 {
                        let position = 64 * at + gone.trailing_zeros() as usize;
                        // The bits behind the last entry are 0, and no entries.
                        if position < entries {
                            out.push(position as i32);
                        }
                        gone &= gone - 1;
                    }
                }
            }
        }
    }
}

/// Bit i of `bits` to byte i, 0 or 1, without a table.
const fn expand(bits: u8) -> u64 {
    // Byte i keeps bit i alone; adding 127 carries whatever is there into the byte's highest bit, and not beyond.
    let spread = (bits as u64).wrapping_mul(0x0101_0101_0101_0101) & 0x8040_2010_0804_0201;
    ((spread + 0x7f7f_7f7f_7f7f_7f7f) >> 7) & 0x0101_0101_0101_0101
}

/// Byte i, 0 or 1, to bit i: the inverse of [`expand`].
const fn pack(bytes: u64) -> u8 {
    // Byte i times 2^(56 - 7i) lands on bit 56 + i; no two products meet.
    (bytes.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_and_bytes_are_inverse() {
        for bits in 0..=u8::MAX {
            let bytes = expand(bits).to_le_bytes();
            for (i, byte) in bytes.iter().enumerate() {
                assert_eq!(*byte, bits >> i & 1, "{bits:#b}");
            }
            assert_eq!(pack(u64::from_le_bytes(bytes)), bits);
        }
    }
}
