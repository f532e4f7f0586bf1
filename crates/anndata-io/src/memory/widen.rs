use multiversion::multiversion;

/// Append numbers in a wider type, as many at once as the processor can.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx2+fma", "x86_64+avx2+fma"))]
pub fn widen<N: Copy, W: From<N>>(narrow: &[N], wide: &mut Vec<W>) {
    wide.reserve(narrow.len());
    let len = wide.len() + narrow.len();
    for (to, from) in wide.spare_capacity_mut().iter_mut().zip(narrow) {
        to.write(W::from(*from));
    }
    // SAFETY: there was room for `narrow`, and as many places behind the old end have been written.
    unsafe { wide.set_len(len) };
}
