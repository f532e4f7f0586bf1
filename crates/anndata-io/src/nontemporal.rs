//! Copies with non-temporal stores, which bypass the processor's caches: for data that is read much later. An ordinary store
//! would first read the cache line that it writes to.

/// Copies values with non-temporal stores if the processor has AVX. The caller calls [`fence`] after the last copy.
///
/// # Panics
/// The slices differ in length.
#[inline]
pub fn copy(from: &[f32], to: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: the processor has AVX.
        return unsafe { copy_avx(from, to) };
    }
    to.copy_from_slice(from);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
fn copy_avx(from: &[f32], to: &mut [f32]) {
    use std::arch::x86_64::_mm256_loadu_ps;
    use std::arch::x86_64::_mm256_stream_ps;

    let head = to.as_ptr().align_offset(64).min(to.len());
    let (from_head, from) = from.split_at(head);
    let (to_head, to) = to.split_at_mut(head);
    to_head.copy_from_slice(from_head);
    let ((from, from_tail), (to, to_tail)) = (from.as_chunks::<16>(), to.as_chunks_mut::<16>());
    for (from, to) in from.iter().zip(to) {
        // A cache line at a time.
        for half in [0, 8] {
            // SAFETY: both arrays have 16 values; `to` is borrowed exclusively, and aligned to 64 bytes by the split above.
            unsafe { _mm256_stream_ps(to.as_mut_ptr().add(half), _mm256_loadu_ps(from.as_ptr().add(half))) };
        }
    }
    to_tail.copy_from_slice(from_tail);
}

/// Orders the stores of [`copy`] before later stores, so that other threads see them like any other write.
#[inline]
pub fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has SSE.
    #[allow(unused_unsafe, reason = "safe from some compiler version on")]
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}
