/// Bytes of a checksum.
pub(super) const BYTES: usize = 4;

/// The data without the checksum behind it; `None` if it is another one.
pub(super) fn verified(data: &[u8]) -> Option<&[u8]> {
    let (data, stored) = data.split_last_chunk::<BYTES>()?;
    let (sum, stored) = (checksum(data), u32::from_le_bytes(*stored));
    // HDF5 before 1.6.3 wrote the bytes of each half the other way round.
    let old = (sum & 0x00ff_00ff) << 8 | (sum & 0xff00_ff00) >> 8;
    (stored == sum || stored == old).then_some(data)
}

/// Fletcher's checksum as HDF5 has it (H5checksum.c): of 16-bit words, most significant byte first.
pub(super) fn checksum(data: &[u8]) -> u32 {
    // So many words do not overflow 32 bits.
    const BLOCK: usize = 360;
    let fold = |sum: u32| (sum & 0xffff) + (sum >> 16);
    let (mut first, mut second) = (0u32, 0u32);
    let (words, odd) = data.as_chunks::<2>();
    for block in words.chunks(BLOCK) {
        for word in block {
            first += u32::from(u16::from_be_bytes(*word));
            second += first;
        }
        (first, second) = (fold(first), fold(second));
    }
    if let [last] = odd {
        first += u32::from(*last) << 8;
        second += first;
        (first, second) = (fold(first), fold(second));
    }
    fold(second) << 16 | fold(first)
}
