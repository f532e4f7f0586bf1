/// Decompress what HDF5's LZ4 filter writes; `None` if it is damaged or does not fit.
///
/// Source: the plugin's own documentation (github.com/nexusformat/HDF5-External-Filter-Plugins, LZ4): length of the data (8
/// bytes, most significant first), length of a block (4 bytes), then of each block its compressed length (4 bytes) and its
/// bytes; a block that did not get smaller is as it was.
pub(crate) fn decompress(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let total = length(src)?;
    let (block, mut src) = src.get(8..)?.split_first_chunk::<4>()?;
    let block = u32::from_be_bytes(*block) as usize;
    let dst = dst.get_mut(..total)?;
    if total == 0 {
        return Some(0);
    }
    if block == 0 {
        return None;
    }
    for dst in dst.chunks_mut(block) {
        let (bytes, rest) = src.split_first_chunk::<4>()?;
        let (packed, rest) = rest.split_at_checked(u32::from_be_bytes(*bytes) as usize)?;
        src = rest;
        if packed.len() == dst.len() {
            dst.copy_from_slice(packed);
        } else if lz4_flex::block::decompress_into(packed, dst).ok()? != dst.len() {
            return None;
        }
    }
    Some(total)
}

/// Bytes that it will be.
pub(crate) fn length(src: &[u8]) -> Option<usize> {
    usize::try_from(u64::from_be_bytes(*src.first_chunk()?)).ok()
}

/// Decompress what zarr's `lz4` writes; `None` if it is damaged or does not fit.
///
/// Source: numcodecs' lz4.pyx: length of the data (4 bytes, least significant first), then one block of LZ4.
pub(super) fn decompress_plain(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let total = plain_length(src)?;
    let dst = dst.get_mut(..total)?;
    (lz4_flex::block::decompress_into(src.get(4..)?, dst).ok()? == total).then_some(total)
}

/// Bytes that it will be.
pub(super) fn plain_length(src: &[u8]) -> Option<usize> {
    usize::try_from(u32::from_le_bytes(*src.first_chunk()?)).ok()
}
