//! `register_hdf5_filters` gives libhdf5 the decompressors that it lacks, for the columns of obs and var. Chunks of the matrix are decoded by
//! `codec` instead.
//! Invariant: a decompressed chunk has a bounded size, and no panic unwinds into C.

use std::ffi::{c_int, c_uint, c_void};
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;

use hdf5_metno::sync::sync;
use hdf5_metno_sys::h5::{H5allocate_memory, H5free_memory};
use hdf5_metno_sys::h5z::{H5Z_CLASS_T_VERS, H5Z_FLAG_REVERSE, H5Z_class2_t, H5Zregister};

use crate::codec::filters::{blosc_decompress, blosc_length, lz4_decompress, lz4_length, lzf_decompress};
use crate::{AnnDataError, RequestError};

/// Decompresses bytes; the second argument has the parameters of the filter.
type Decompress = fn(&[u8], &[c_uint]) -> Option<Vec<u8>>;

/// Upper bound of a decompressed chunk that libhdf5 reads itself (names, categories, small columns), bytes. Writers make chunks of about
/// 1 MiB; a file that says more would only take memory. Chunks of the matrix do not pass through here.
const MAX_CHUNK_BYTES: usize = 256 << 20;

/// Registers LZF, Blosc, LZ4 and Zstandard with libhdf5, once in a process.
///
/// # Errors
/// libhdf5 refuses a filter.
pub fn register_hdf5_filters() -> Result<(), AnnDataError> {
    static ARE_REGISTERED: LazyLock<bool> = LazyLock::new(|| {
        let classes = [
            filter_class::<Lzf>(32000, c"lzf"),
            filter_class::<Blosc>(32001, c"blosc"),
            filter_class::<Lz4>(32004, c"lz4"),
            filter_class::<Zstd>(32015, c"zstd"),
        ];
        // SAFETY: the class is valid, and libhdf5 copies it; the name is static.
        classes.iter().all(|class| sync(|| unsafe { H5Zregister((&raw const *class).cast()) }) >= 0)
    });
    if *ARE_REGISTERED { Ok(()) } else { Err(RequestError::NoFilters.into()) }
}

trait Codec {
    const DECOMPRESS: Decompress;
}

struct Lzf;
struct Blosc;
struct Lz4;
struct Zstd;

impl Codec for Lzf {
    const DECOMPRESS: Decompress = |src, values| {
        // h5py stores the size of a chunk as a parameter; other writers do not.
        let known = values.get(2).map(|bytes| *bytes as usize).filter(|bytes| *bytes > 0);
        let most = src.len().saturating_mul(264).min(MAX_CHUNK_BYTES);
        let mut len = known.unwrap_or(src.len().saturating_mul(4)).clamp(1, most.max(1));
        loop {
            let mut out = vec![0; len];
            if let Some(done) = lzf_decompress(src, &mut out) {
                out.truncate(done);
                return Some(out);
            }
            if known.is_some() || len >= most {
                return None;
            }
            len = len.saturating_mul(4).min(most);
        }
    };
}

impl Codec for Blosc {
    const DECOMPRESS: Decompress = |src, _| {
        let mut out = bounded_zeros(blosc_length(src).ok()?, src)?;
        let done = blosc_decompress(src, &mut out).ok()?;
        out.truncate(done);
        Some(out)
    };
}

impl Codec for Lz4 {
    const DECOMPRESS: Decompress = |src, _| {
        let mut out = bounded_zeros(lz4_length(src)?, src)?;
        lz4_decompress(src, &mut out)?;
        Some(out)
    };
}

impl Codec for Zstd {
    const DECOMPRESS: Decompress = |src, _| {
        let len = zstd::zstd_safe::get_frame_content_size(src).ok()?;
        if let Some(len) = len {
            let mut out = bounded_zeros(usize::try_from(len).ok()?, src)?;
            let done = zstd::bulk::decompress_to_buffer(src, &mut out).ok()?;
            return (done == out.len()).then_some(out);
        }
        // The frame does not say its size.
        let max = plausible_bytes(src);
        let mut out = Vec::new();
        zstd::stream::read::Decoder::new(src).ok()?.take(max as u64 + 1).read_to_end(&mut out).ok()?;
        (out.len() <= max).then_some(out)
    };
}

/// Upper bound of what `src` decompresses to.
fn plausible_bytes(src: &[u8]) -> usize {
    src.len().saturating_mul(1 << 15).saturating_add(1 << 17).min(MAX_CHUNK_BYTES)
}

/// Space for the decompressed size of a header, if the compressed size makes it plausible.
fn bounded_zeros(len: usize, src: &[u8]) -> Option<Vec<u8>> {
    (len <= plausible_bytes(src)).then(|| vec![0; len])
}

fn filter_class<C: Codec>(id: c_int, name: &'static std::ffi::CStr) -> H5Z_class2_t {
    H5Z_class2_t {
        version: H5Z_CLASS_T_VERS as c_int,
        id,
        // This crate writes such data sets only with chunks that are compressed already.
        encoder_present: 1,
        decoder_present: 1,
        name: name.as_ptr(),
        can_apply: None,
        set_local: None,
        filter: Some(filter::<C>),
    }
}

/// Callback of libhdf5: replaces `*buf`, which libhdf5 allocated; 0 is a failure.
///
/// # Safety
/// As for H5Z_func_t: `cd_values` has `cd_nelmts` values, `*buf` at least `nbytes` bytes.
unsafe extern "C" fn filter<C: Codec>(
    flags: c_uint,
    cd_nelmts: usize,
    cd_values: *const c_uint,
    nbytes: usize,
    buf_size: *mut usize,
    buf: *mut *mut c_void,
) -> usize {
    if flags & H5Z_FLAG_REVERSE == 0 || nbytes == 0 || cd_values.is_null() && cd_nelmts > 0 {
        return 0;
    }
    // SAFETY: promised by libhdf5, see above.
    let (src, values) = unsafe {
        let values = if cd_nelmts == 0 { &[] } else { std::slice::from_raw_parts(cd_values, cd_nelmts) };
        (std::slice::from_raw_parts((*buf).cast::<u8>(), nbytes), values)
    };
    // A panic must not unwind through C.
    let Ok(Some(out)) = catch_unwind(AssertUnwindSafe(|| (C::DECOMPRESS)(src, values))) else {
        return 0;
    };
    if out.is_empty() {
        return 0;
    }
    // SAFETY: libhdf5's own allocator; the new memory has the size of `out`; the old memory is libhdf5's and is not used after
    // this.
    unsafe {
        let place = H5allocate_memory(out.len(), 0);
        if place.is_null() {
            return 0;
        }
        std::ptr::copy_nonoverlapping(out.as_ptr(), place.cast(), out.len());
        H5free_memory(*buf);
        (*buf, *buf_size) = (place, out.len());
    }
    out.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_does_not_say_its_size_is_bounded() {
        let frame = |bytes: usize| {
            let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
            encoder.include_contentsize(false).unwrap();
            std::io::copy(&mut std::io::repeat(0).take(bytes as u64), &mut encoder).unwrap();
            encoder.finish().unwrap()
        };
        let decompressed = |src: Vec<u8>| <Zstd as Codec>::DECOMPRESS(&src, &[]).map(|out| out.len());
        assert_eq!(decompressed(frame(1 << 20)), Some(1 << 20));
        assert_eq!(decompressed(frame(MAX_CHUNK_BYTES + 1)), None);
    }
}
