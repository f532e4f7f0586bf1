use std::ffi::c_int;

/// Decompresses Blosc (version 1); `Err` is the reason.
pub(crate) fn blosc_decompress(src: &[u8], dst: &mut [u8]) -> Result<usize, String> {
    if blosc_length(src)? > dst.len() {
        return Err("longer than a chunk".to_owned());
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
) -> Option<Result<(), String>> {
    /// Size of the header, which has, after four single bytes, the sizes of the data, of a block, and of the buffer.
    const HEADER: usize = 16;
    let header: &[u8; HEADER] = src.first_chunk()?;
    let block = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
    let inside = start.checked_add(count)?.checked_mul(element).is_some_and(|end| end <= whole);
    if !inside || dst.len() != count * element || usize::from(header[3]) != element || block == 0 || block >= whole {
        return None;
    }
    // If the sizes do not match, the general path reports the error.
    if blosc_length(src) != Ok(whole) || whole > i32::MAX as usize {
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
pub(crate) fn blosc_length(src: &[u8]) -> Result<usize, String> {
    let mut bytes = 0;
    // SAFETY: it reads at most `src.len()` bytes and writes to `bytes`.
    match unsafe { blosc_src::blosc_cbuffer_validate(src.as_ptr().cast(), src.len(), &raw mut bytes) } {
        0 => Ok(bytes),
        _ => Err("damaged blosc data".to_owned()),
    }
}

/// The codec is in the upper three bits of the third byte.
fn refused(src: &[u8]) -> String {
    match src.get(2).map(|flags| flags >> 5) {
        Some(2) => "compressed with blosc's snappy, which is not built in: write it again with lz4 or zstd".to_owned(),
        _ => "damaged blosc data".to_owned(),
    }
}

/// Compresses with LZ4 and shuffle, for elements of this size, like annbatch.
pub(crate) fn blosc_compress(src: &[u8], element: usize) -> Result<Vec<u8>, String> {
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
        _ => Err(format!("blosc cannot compress {} bytes", src.len())),
    }
}

/// Compression level of [`blosc_compress`], of 0 to 9.
pub(crate) const BLOSC_LEVEL: c_int = 3;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
                prop_assert_eq!(decompress_elements(&packed, bytes.len(), 4, (start, count), &mut out), Some(Ok(())));
                prop_assert_eq!(&out, &bytes[start * 4..(start + count) * 4]);
                prop_assert!(decompress_elements(&packed, bytes.len(), 4, (data.len(), 1), &mut out[..4]).is_none());
                prop_assert!(decompress_elements(&packed, bytes.len() - 4, 4, (start, count), &mut out).is_none());
            }
        }
    }
}
