//! Single filters and codecs: LZF, LZ4, Blosc, shuffle and checksums. `FilterChain` calls them, and so does libhdf5 for obs and var.
//! Invariant: any input gives bytes, `None` or an error; damaged input never leads to a read or write outside of the buffers.

use std::ffi::c_int;

use crate::codec::CodecError;

/// Decompresses LZF (Marc Lehmann's liblzf, h5py's own filter); returns the number of bytes; `None` if the data is damaged or
/// does not fit.
///
/// A control byte below 32 is followed by that many literals and one more; any other has the length of a match in its upper 3
/// bits, and the upper 5 bits of the distance in its lower bits.
pub(crate) fn lzf_decompress(mut src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let mut at = 0;
    while let Some((&control, rest)) = src.split_first() {
        src = rest;
        if control < 32 {
            let literals = usize::from(control) + 1;
            let (copied, rest) = src.split_at_checked(literals)?;
            dst.get_mut(at..at + literals)?.copy_from_slice(copied);
            (src, at) = (rest, at + literals);
            continue;
        }
        let mut len = usize::from(control >> 5);
        if len == 7 {
            let (&more, rest) = src.split_first()?;
            (len, src) = (len + usize::from(more), rest);
        }
        let (&low, rest) = src.split_first()?;
        src = rest;
        let back = (usize::from(control & 31) << 8 | usize::from(low)) + 1;
        let from = at.checked_sub(back)?;
        len += 2;
        let place = dst.get_mut(from..at + len)?;
        if back >= len {
            place.copy_within(..len, back);
        } else {
            // A match may overlap its own output, and repeats then.
            for i in back..back + len {
                place[i] = place[i - back];
            }
        }
        at += len;
    }
    Some(at)
}

/// Decompresses the data of HDF5's LZ4 filter; `None` if it is damaged or does not fit.
///
/// Source: the documentation of the plugin (github.com/nexusformat/HDF5-External-Filter-Plugins, LZ4): size of the data (8
/// bytes, big-endian), size of a block (4 bytes), then for each block its compressed size (4 bytes) and its bytes; a block that
/// did not get smaller is stored uncompressed.
pub(crate) fn lz4_decompress(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let total = lz4_length(src)?;
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

/// Decompressed size in bytes.
pub(crate) fn lz4_length(src: &[u8]) -> Option<usize> {
    usize::try_from(u64::from_be_bytes(*src.first_chunk()?)).ok()
}

/// Decompresses the data of zarr's `lz4`; `None` if it is damaged or does not fit.
///
/// Source: numcodecs' lz4.pyx: size of the data (4 bytes, little-endian), then one block of LZ4.
pub(crate) fn plain_lz4_decompress(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let total = plain_lz4_length(src)?;
    let dst = dst.get_mut(..total)?;
    (lz4_flex::block::decompress_into(src.get(4..)?, dst).ok()? == total).then_some(total)
}

/// Decompressed size in bytes.
pub(crate) fn plain_lz4_length(src: &[u8]) -> Option<usize> {
    usize::try_from(u32::from_le_bytes(*src.first_chunk()?)).ok()
}

/// Undoes the shuffle filter: `src` has the first bytes of all elements, then all second bytes, and so on; an incomplete
/// element at the end is unchanged. Both slices have the same length.
pub(crate) fn unshuffle(element: usize, src: &[u8], dst: &mut [u8]) {
    let elements = src.len().checked_div(element).unwrap_or(0);
    if element <= 1 || elements <= 1 {
        dst.copy_from_slice(src);
        return;
    }
    let (planes, rest) = src.split_at(elements * element);
    let (whole, end) = dst.split_at_mut(elements * element);
    end.copy_from_slice(rest);
    match element {
        2 => unshuffle_fixed::<2>(elements, planes, whole),
        4 => unshuffle_fixed::<4>(elements, planes, whole),
        8 => unshuffle_fixed::<8>(elements, planes, whole),
        _ => {
            for (i, plane) in planes.chunks_exact(elements).enumerate() {
                whole.iter_mut().skip(i).step_by(element).zip(plane).for_each(|(dst, src)| *dst = *src);
            }
        }
    }
}

/// Common element sizes, in one pass over `dst`.
fn unshuffle_fixed<const N: usize>(elements: usize, planes: &[u8], whole: &mut [u8]) {
    let mut each = planes.chunks_exact(elements);
    let planes: [&[u8]; N] = std::array::from_fn(|_| each.next().unwrap_or_default());
    // Asserted once, so that the loop has no bounds checks.
    if planes.iter().any(|plane| plane.len() != elements) {
        return;
    }
    let (whole, _) = whole.as_chunks_mut::<N>();
    for (i, out) in whole.iter_mut().enumerate().take(elements) {
        for (byte, plane) in out.iter_mut().zip(&planes) {
            *byte = plane[i];
        }
    }
}

/// Size of a checksum, of either kind, in bytes.
pub(crate) const CHECKSUM_BYTES: usize = 4;

/// Checks fletcher32, and returns the data without it; `None` if it does not match.
pub(crate) fn fletcher32_verified(data: &[u8]) -> Option<&[u8]> {
    let (data, stored) = data.split_last_chunk::<CHECKSUM_BYTES>()?;
    let (sum, stored) = (fletcher32(data), u32::from_le_bytes(*stored));
    // HDF5 before 1.6.3 wrote the bytes of each half in the other order.
    let old = (sum & 0x00ff_00ff) << 8 | (sum & 0xff00_ff00) >> 8;
    (stored == sum || stored == old).then_some(data)
}

/// Fletcher's checksum as in HDF5 (H5checksum.c): of 16-bit words, big-endian.
pub(crate) fn fletcher32(data: &[u8]) -> u32 {
    // This many words cannot overflow 32 bits.
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

/// Checks crc32c (polynomial of Castagnoli, little-endian), and returns the data without it; `None` if it does not match.
pub(crate) fn crc32c_verified(data: &[u8]) -> Option<&[u8]> {
    let (data, stored) = data.split_last_chunk::<CHECKSUM_BYTES>()?;
    (crc32c::crc32c(data) == u32::from_le_bytes(*stored)).then_some(data)
}

/// Decompresses Blosc (version 1); returns the number of bytes.
pub(crate) fn blosc_decompress(src: &[u8], dst: &mut [u8]) -> Result<usize, CodecError> {
    let length = blosc_length(src)?;
    if length > dst.len() {
        return Err(CodecError::Length { found: length, expected: dst.len() });
    }
    // SAFETY: `blosc_length` has validated these bytes with blosc; it writes at most `dst.len()` bytes.
    let n: c_int =
        unsafe { blosc_src::blosc_decompress_ctx(src.as_ptr().cast(), dst.as_mut_ptr().cast(), dst.len(), 1) };
    match usize::try_from(n) {
        Ok(n) if n > 0 || dst.is_empty() => Ok(n),
        _ => Err(refused(src)),
    }
}

/// Decompresses `count` elements of `element` bytes from `start` on, of a buffer with `whole` bytes: only the Blosc blocks that
/// have some of them. `None` if that would be all blocks, or if the elements have another size in the buffer.
pub(crate) fn decompress_elements(
    src: &[u8],
    whole: usize,
    element: usize,
    (start, count): (usize, usize),
    dst: &mut [u8],
) -> Option<Result<(), CodecError>> {
    /// Size of the header, which has, after four single bytes, the sizes of the data, of a block, and of the buffer.
    const HEADER: usize = 16;
    let header: &[u8; HEADER] = src.first_chunk()?;
    let block = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
    let inside = start.checked_add(count)?.checked_mul(element).is_some_and(|end| end <= whole);
    if !inside || dst.len() != count * element || usize::from(header[3]) != element || block == 0 || block >= whole {
        return None;
    }
    // If the sizes do not match, the general path reports the error.
    if blosc_length(src).ok() != Some(whole) || whole > i32::MAX as usize {
        return None;
    }
    // SAFETY: the sizes of `src` and of the data in the header were checked above; elements have the size in the header, so
    // that `dst` has the length that is written; the library checks the offsets of blocks against `src`.
    let n: c_int = unsafe {
        blosc_src::blosc_getitem(src.as_ptr().cast(), start as c_int, count as c_int, dst.as_mut_ptr().cast())
    };
    Some(if usize::try_from(n) == Ok(dst.len()) { Ok(()) } else { Err(refused(src)) })
}

/// Decompressed size in bytes.
pub(crate) fn blosc_length(src: &[u8]) -> Result<usize, CodecError> {
    let mut bytes = 0;
    // SAFETY: it reads at most `src.len()` bytes and writes to `bytes`.
    match unsafe { blosc_src::blosc_cbuffer_validate(src.as_ptr().cast(), src.len(), &raw mut bytes) } {
        0 => Ok(bytes),
        _ => Err(CodecError::Damaged { codec: "blosc" }),
    }
}

/// The codec is in the upper three bits of the third byte.
#[cold]
fn refused(src: &[u8]) -> CodecError {
    match src.get(2).map(|flags| flags >> 5) {
        Some(2) => CodecError::BloscSnappy,
        _ => CodecError::Damaged { codec: "blosc" },
    }
}

/// Compresses with LZ4 and shuffle, for elements of this size, like annbatch.
pub(crate) fn blosc_compress(src: &[u8], element: usize) -> Result<Vec<u8>, CodecError> {
    /// Maximum growth of incompressible data in bytes.
    const OVERHEAD: usize = blosc_src::BLOSC_MAX_OVERHEAD as usize;
    let mut out: Vec<u8> = Vec::with_capacity(src.len() + OVERHEAD);
    // SAFETY: it reads `src.len()` bytes and writes at most the capacity of `out`; the name ends with NUL.
    let n: c_int = unsafe {
        blosc_src::blosc_compress_ctx(
            BLOSC_LEVEL,
            1,
            element,
            src.len(),
            src.as_ptr().cast(),
            out.as_mut_ptr().cast(),
            out.capacity(),
            c"lz4".as_ptr(),
            0,
            1,
        )
    };
    match usize::try_from(n) {
        Ok(n) if n > 0 && n <= out.capacity() => {
            // SAFETY: so many bytes were written.
            unsafe { out.set_len(n) };
            Ok(out)
        }
        _ => Err(CodecError::NotCompressed { codec: "blosc", bytes: src.len() }),
    }
}

/// Compression level of [`blosc_compress`], of 0 to 9.
pub(crate) const BLOSC_LEVEL: c_int = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn overlapping_and_long_matches() {
        for data in [
            vec![7; 4000],
            b"abcabcabcabcabcabcabcabcabcabcabc".repeat(20),
            (0..9000u32).flat_map(u32::to_le_bytes).collect(),
        ] {
            let packed = lzf::compress(&data).unwrap();
            let mut out = vec![0; data.len()];
            assert_eq!(lzf_decompress(&packed, &mut out), Some(data.len()));
            assert_eq!(out, data);
            assert_eq!(lzf_decompress(&packed, &mut out[..data.len() - 1]), None, "too small");
        }
    }

    proptest! {
        #[test]
        fn as_the_reference_does(data in proptest::collection::vec(0u8..6, 1..3000)) {
            if let Ok(packed) = lzf::compress(&data) {
                let mut out = vec![0; data.len()];
                prop_assert_eq!(lzf_decompress(&packed, &mut out), Some(data.len()));
                prop_assert_eq!(out, data);
            }
        }

        #[test]
        fn any_bytes_are_no_panic(data in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut out = [0; 500];
            let ours = lzf_decompress(&data, &mut out);
            // The reference must agree where both say that it is good.
            if let (Some(n), Ok(theirs)) = (ours, lzf::decompress(&data, ours.unwrap_or_default())) {
                prop_assert_eq!(&out[..n], &theirs[..]);
            }
        }
    }

    proptest! {
        #[test]
        fn undoes_a_shuffle(data in proptest::collection::vec(any::<u8>(), 0..400), element in 0usize..20) {
            let elements = data.len().checked_div(element).unwrap_or(0);
            let mut shuffled = Vec::new();
            for byte in 0..element {
                shuffled.extend((0..elements).map(|i| data[i * element + byte]));
            }
            shuffled.extend(&data[elements * element..]);
            let mut out = vec![0; data.len()];
            unshuffle(element, &shuffled, &mut out);
            prop_assert_eq!(out, data);
        }
    }

    proptest! {
        #[test]
        fn some_are_those_of_all(
            data in proptest::collection::vec(0u32..5000, 200_000..220_000),
            (start, count) in (0usize..200_000, 1usize..3000),
            damage in proptest::option::of((any::<proptest::sample::Index>(), 1u8..)),
        ) {
            let bytes: &[u8] = bytemuck::cast_slice(&data);
            let mut packed = blosc_compress(bytes, 4).unwrap();
            let count = count.min(data.len() - start);
            let mut out = vec![0; count * 4];
            if let Some((at, flip)) = damage {
                // Corrupt input must not cause reads or writes outside of the buffers.
                let at = at.index(packed.len());
                packed[at] ^= flip;
                let _ = decompress_elements(&packed, bytes.len(), 4, (start, count), &mut out);
            } else {
                prop_assert!(matches!(decompress_elements(&packed, bytes.len(), 4, (start, count), &mut out), Some(Ok(()))));
                prop_assert_eq!(&out, &bytes[start * 4..(start + count) * 4]);
                prop_assert!(decompress_elements(&packed, bytes.len(), 4, (data.len(), 1), &mut out[..4]).is_none());
                prop_assert!(decompress_elements(&packed, bytes.len() - 4, 4, (start, count), &mut out).is_none());
            }
        }
    }
}
