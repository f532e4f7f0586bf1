//! Writing around the caches. A plain store first reads the line that it writes to; where a batch is far larger than the
//! caches that is half as much traffic again, and it drives out what the next stage needs.

/// Outputs of fewer elements stay in the caches, where a plain store is faster: 4 MiB.
const FEW: usize = 4 << 17;

/// `out[i] = nodes[i] + shift`, for slices of one length.
pub(super) type Shift = fn(&[i64], i64, &mut [i64]);

/// The way to write an output of `len` elements in all. After its last use call [`finish`].
pub(super) fn shift_for(len: usize) -> Shift {
    #[cfg(target_arch = "x86_64")]
    if len >= FEW && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return |nodes, shift, out| unsafe { around(nodes, shift, out) };
    }
    let _ = len;
    plain
}

/// Make what was written around the caches visible to other threads, as any other write is.
pub(super) fn finish() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has SSE.
    #[allow(unused_unsafe, reason = "safe from some compiler version on")]
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

fn plain(nodes: &[i64], shift: i64, out: &mut [i64]) {
    for (to, from) in out.iter_mut().zip(nodes) {
        *to = from + shift;
    }
}

/// As [`plain`], by non-temporal stores of whole vectors; the ends, which are not aligned, by plain ones.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn around(nodes: &[i64], shift: i64, out: &mut [i64]) {
    use std::arch::x86_64::{__m256i, _mm256_add_epi64, _mm256_loadu_si256, _mm256_set1_epi64x, _mm256_stream_si256};
    debug_assert_eq!(nodes.len(), out.len());
    // SAFETY: every bit pattern is both an i64 and a part of a __m256i.
    let (head, lines, tail) = unsafe { out.align_to_mut::<__m256i>() };
    let (first, rest) = nodes.split_at(head.len());
    let (middle, last) = rest.split_at(4 * lines.len());
    plain(first, shift, head);
    let shifts = _mm256_set1_epi64x(shift);
    for (line, from) in lines.iter_mut().zip(middle.as_chunks::<4>().0) {
        // SAFETY: `from` is 32 readable bytes, and `line` 32 aligned ones that nothing else refers to.
        unsafe {
            let nodes = _mm256_loadu_si256(from.as_ptr().cast());
            _mm256_stream_si256(line, _mm256_add_epi64(nodes, shifts));
        }
    }
    plain(last, shift, tail);
}
