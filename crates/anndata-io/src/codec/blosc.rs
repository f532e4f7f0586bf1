use std::ffi::c_int;

/// Decompress Blosc (version 1); `Err` says what is wrong.
pub(crate) fn blosc_decompress(src: &[u8], dst: &mut [u8]) -> Result<usize, String> {
    if blosc_length(src)? > dst.len() {
        return Err("longer than a chunk".to_owned());
    }
    // SAFETY: `blosc_length` has asked blosc whether it is safe to decompress these bytes; it writes `dst.len()` bytes at most.
    let n: c_int =
        unsafe { blosc_src::blosc_decompress_ctx(src.as_ptr().cast(), dst.as_mut_ptr().cast(), dst.len(), 1) };
    match usize::try_from(n) {
        Ok(n) if n > 0 || dst.is_empty() => Ok(n),
        _ => Err(refused(src)),
    }
}

/// Decompress `count` elements of `element` bytes from `start` on, of what is `whole` bytes: of the blocks that Blosc parts its
/// data in, only those that have some of them. `None` if that would be all of them, or if elements have another size there.
pub(crate) fn decompress_elements(
    src: &[u8],
    whole: usize,
    element: usize,
    (start, count): (usize, usize),
    dst: &mut [u8],
) -> Option<Result<(), String>> {
    /// Bytes of the header, in which are, after four single bytes, those of the data, of a block, and of all of this.
    const HEADER: usize = 16;
    let header: &[u8; HEADER] = src.first_chunk()?;
    let block = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
    let inside = start.checked_add(count)?.checked_mul(element).is_some_and(|end| end <= whole);
    if !inside || dst.len() != count * element || usize::from(header[3]) != element || block == 0 || block >= whole {
        return None;
    }
    // As many bytes as there are, or the general way says what is wrong.
    if blosc_length(src) != Ok(whole) || whole > i32::MAX as usize {
        return None;
    }
    // SAFETY: the header says what is true of the lengths of `src` and of the data (checked above); elements are of the size that
    // it says, so that `dst` is as long as what is written; what it says of blocks is checked against `src` by the library.
    let n: c_int = unsafe {
        blosc_src::blosc_getitem(src.as_ptr().cast(), start as c_int, count as c_int, dst.as_mut_ptr().cast())
    };
    Some(if usize::try_from(n) == Ok(dst.len()) { Ok(()) } else { Err(refused(src)) })
}

/// Bytes that it will be.
pub(crate) fn blosc_length(src: &[u8]) -> Result<usize, String> {
    let mut bytes = 0;
    // SAFETY: it reads `src.len()` bytes at most and writes to `bytes`.
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

/// Compress with LZ4, bytes sorted by their place in elements of so many bytes, as annbatch does.
pub(crate) fn blosc_compress(src: &[u8], element: usize) -> Result<Vec<u8>, String> {
    /// Bytes that what cannot be compressed is longer by.
    const OVERHEAD: usize = blosc_src::BLOSC_MAX_OVERHEAD as usize;
    let mut out: Vec<u8> = Vec::with_capacity(src.len() + OVERHEAD);
    // SAFETY: it reads `src.len()` bytes, writes as many as `out` has place for at most, and the name ends in NUL.
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

/// Level of [`blosc_compress`], of 0 to 9.
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
                // Whatever is in it, nothing is read or written beyond the buffers.
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
