use std::ffi::c_int;

/// Decompress Blosc (version 1); `Err` says what is wrong.
pub(in crate::array) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<usize, String> {
    if length(src)? > dst.len() {
        return Err("longer than a chunk".to_owned());
    }
    // SAFETY: `length` has asked blosc whether it is safe to decompress these bytes; it writes `dst.len()` bytes at most.
    let n: c_int =
        unsafe { blosc_src::blosc_decompress_ctx(src.as_ptr().cast(), dst.as_mut_ptr().cast(), dst.len(), 1) };
    match usize::try_from(n) {
        Ok(n) if n > 0 || dst.is_empty() => Ok(n),
        _ => Err(refused(src)),
    }
}

/// Bytes that it will be.
pub(in crate::array) fn length(src: &[u8]) -> Result<usize, String> {
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
pub(in crate::array) fn compress(src: &[u8], element: usize) -> Result<Vec<u8>, String> {
    /// Bytes that what cannot be compressed is longer by.
    const OVERHEAD: usize = blosc_src::BLOSC_MAX_OVERHEAD as usize;
    let mut out: Vec<u8> = Vec::with_capacity(src.len() + OVERHEAD);
    // SAFETY: it reads `src.len()` bytes, writes as many as `out` has place for at most, and the name ends in NUL.
    let n: c_int = unsafe {
        blosc_src::blosc_compress_ctx(
            LEVEL,
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

/// Level of [`compress`], of 0 to 9.
pub(in crate::array) const LEVEL: c_int = 3;
