/// Bytes of a checksum.
const BYTES: usize = 4;

/// The data without the checksum behind it (of Castagnoli's polynomial, least significant byte first); `None` if it is
/// another one.
pub(crate) fn verified(data: &[u8]) -> Option<&[u8]> {
    let (data, stored) = data.split_last_chunk::<BYTES>()?;
    (crc32c::crc32c(data) == u32::from_le_bytes(*stored)).then_some(data)
}
