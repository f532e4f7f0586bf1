/// Append numbers in a wider type, as many at once as the processor can.
pub fn widen<N: Copy, W: From<N>>(narrow: &[N], wide: &mut Vec<W>) {
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512f") && std::arch::is_x86_feature_detected!("avx512bw") {
            // SAFETY: the processor has AVX-512 F and BW.
            return unsafe { avx512(narrow, wide) };
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2.
            return unsafe { avx2(narrow, wide) };
        }
    }
    each(narrow, wide);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx2")]
fn avx512<N: Copy, W: From<N>>(narrow: &[N], wide: &mut Vec<W>) {
    each(narrow, wide);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2<N: Copy, W: From<N>>(narrow: &[N], wide: &mut Vec<W>) {
    each(narrow, wide);
}

#[inline(always)]
fn each<N: Copy, W: From<N>>(narrow: &[N], wide: &mut Vec<W>) {
    wide.reserve(narrow.len());
    let len = wide.len() + narrow.len();
    for (to, from) in wide.spare_capacity_mut().iter_mut().zip(narrow) {
        to.write(W::from(*from));
    }
    // SAFETY: there was room for `narrow`, and as many places behind the old end have been written.
    unsafe { wide.set_len(len) };
}
