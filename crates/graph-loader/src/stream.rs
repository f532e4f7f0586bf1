//! Non-temporal writes of large index tensors. A plain store first reads the cache line that it writes to. For a batch far
//! larger than the caches that is half as much traffic again, and it evicts what the next stage needs.

/// Outputs of fewer elements stay in the caches, where a plain store is faster: 4 MiB.
const FEW: usize = 4 << 17;

/// `out[i] = nodes[i] + shift`, for slices of one length.
type ShiftFn = fn(&[i64], i64, &mut [i64]);
/// `out[i] = nodes[i] + shift` from 32-bit nodes.
pub type WidenFn = fn(&[u32], i64, &mut [i64]);
/// `out[i]` = the new number of `nodes[i]`, for slices of one length.
pub type RenumberFn = fn(&[i64], NodeNumbers<'_>, &mut [i64]);

/// New numbers of nodes after some of them are removed.
#[derive(Clone, Copy, Debug)]
pub struct NodeNumbers<'a> {
    /// Removed nodes; a handful, because each is compared with each node.
    pub removed: &'a [i64],
    /// Number of the first node.
    pub shift: i64,
}

impl NodeNumbers<'_> {
    fn number(self, node: i64) -> i64 {
        self.removed.iter().fold(node + self.shift, |number, removed| number - i64::from(node > *removed))
    }
}

/// The function that writes an output of `len` elements in all. After its last use call [`finish`].
fn shift_for(len: usize) -> ShiftFn {
    #[cfg(target_arch = "x86_64")]
    if around_caches(len) {
        // SAFETY: the processor has AVX2.
        return |nodes, shift, out| unsafe { avx2::shift(nodes, shift, out) };
    }
    let _ = len;
    |nodes, shift, out| write_each(nodes, out, |node| node + shift)
}

/// As [`shift_for`].
pub fn widen_for(len: usize) -> WidenFn {
    #[cfg(target_arch = "x86_64")]
    if around_caches(len) {
        // SAFETY: the processor has AVX2.
        return |nodes, shift, out| unsafe { avx2::widen(nodes, shift, out) };
    }
    let _ = len;
    |nodes, shift, out| write_each(nodes, out, |node| i64::from(node) + shift)
}

/// As [`shift_for`].
pub fn renumber_for(len: usize) -> RenumberFn {
    #[cfg(target_arch = "x86_64")]
    if around_caches(len) {
        // SAFETY: the processor has AVX2.
        return |nodes, numbers, out| unsafe { avx2::renumber(nodes, numbers, out) };
    }
    let _ = len;
    |nodes, numbers, out| write_each(nodes, out, |node| numbers.number(node))
}

/// Make what was written around the caches visible to other threads, as any other write is.
pub fn finish() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has SSE.
    #[allow(unused_unsafe, reason = "safe from some compiler version on")]
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

#[cfg(target_arch = "x86_64")]
fn around_caches(len: usize) -> bool {
    len >= FEW && std::arch::is_x86_feature_detected!("avx2")
}

fn write_each<T: Copy>(nodes: &[T], out: &mut [i64], of: impl Fn(T) -> i64) {
    for (to, from) in out.iter_mut().zip(nodes) {
        *to = of(*from);
    }
}

/// Non-temporal stores of whole vectors; the ends of `out`, which are not aligned, by plain ones.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{NodeNumbers, write_each};
    use std::arch::x86_64::{
        __m128i, __m256i, _mm_loadu_si128, _mm256_add_epi64, _mm256_cmpgt_epi64, _mm256_cvtepu32_epi64,
        _mm256_loadu_si256, _mm256_set1_epi64x, _mm256_stream_si256,
    };

    /// Split `nodes` and `out` where `out` is aligned; vectors of four elements between.
    fn split<'a, T>(nodes: &'a [T], out: &'a mut [i64]) -> [(&'a [T], &'a mut [i64]); 3] {
        debug_assert_eq!(nodes.len(), out.len());
        let head = out.as_ptr().align_offset(align_of::<__m256i>()).min(out.len());
        let whole = (out.len() - head) / 4 * 4;
        let (first, out) = out.split_at_mut(head);
        let (middle, last) = out.split_at_mut(whole);
        let (nodes_first, nodes) = nodes.split_at(head);
        let (nodes_middle, nodes_last) = nodes.split_at(whole);
        [(nodes_first, first), (nodes_middle, middle), (nodes_last, last)]
    }

    #[target_feature(enable = "avx2")]
    pub fn shift(nodes: &[i64], shift: i64, out: &mut [i64]) {
        let [head, (nodes, out), tail] = split(nodes, out);
        let shifts = _mm256_set1_epi64x(shift);
        for (to, from) in out.as_chunks_mut::<4>().0.iter_mut().zip(nodes.as_chunks::<4>().0) {
            // SAFETY: `from` is 32 readable bytes; `to` is 32 bytes that are ours, aligned by `split`.
            unsafe {
                let nodes = _mm256_loadu_si256(from.as_ptr().cast::<__m256i>());
                _mm256_stream_si256(to.as_mut_ptr().cast(), _mm256_add_epi64(nodes, shifts));
            }
        }
        [head, tail].into_iter().for_each(|(nodes, out)| write_each(nodes, out, |node| node + shift));
    }

    #[target_feature(enable = "avx2")]
    pub fn widen(nodes: &[u32], shift: i64, out: &mut [i64]) {
        let [head, (nodes, out), tail] = split(nodes, out);
        let shifts = _mm256_set1_epi64x(shift);
        for (to, from) in out.as_chunks_mut::<4>().0.iter_mut().zip(nodes.as_chunks::<4>().0) {
            // SAFETY: `from` is 16 readable bytes; `to` is 32 bytes that are ours, aligned by `split`.
            unsafe {
                let nodes = _mm256_cvtepu32_epi64(_mm_loadu_si128(from.as_ptr().cast::<__m128i>()));
                _mm256_stream_si256(to.as_mut_ptr().cast(), _mm256_add_epi64(nodes, shifts));
            }
        }
        [head, tail].into_iter().for_each(|(nodes, out)| write_each(nodes, out, |node| i64::from(node) + shift));
    }

    #[target_feature(enable = "avx2")]
    pub fn renumber(nodes: &[i64], numbers: NodeNumbers<'_>, out: &mut [i64]) {
        let [head, (nodes, out), tail] = split(nodes, out);
        let shifts = _mm256_set1_epi64x(numbers.shift);
        for (to, from) in out.as_chunks_mut::<4>().0.iter_mut().zip(nodes.as_chunks::<4>().0) {
            // SAFETY: `from` is 32 readable bytes.
            let nodes = unsafe { _mm256_loadu_si256(from.as_ptr().cast::<__m256i>()) };
            let mut number = _mm256_add_epi64(nodes, shifts);
            for removed in numbers.removed {
                // True is -1.
                number = _mm256_add_epi64(number, _mm256_cmpgt_epi64(nodes, _mm256_set1_epi64x(*removed)));
            }
            // SAFETY: `to` is 32 bytes that are ours, aligned by `split`.
            unsafe { _mm256_stream_si256(to.as_mut_ptr().cast(), number) };
        }
        [head, tail].into_iter().for_each(|(nodes, out)| write_each(nodes, out, |node| numbers.number(node)));
    }
}

/// Source elements of a block, which stays in the first-level cache while all its copies are written: 16 KiB.
const COPY_BLOCK: usize = 2048;

/// Write `copies` copies of `nodes` one after another into `out`, the i-th shifted by `i · stride`.
///
/// Floor: one write of `copies · nodes.len() · 8` bytes. The source is taken in blocks, so it is read from memory once and
/// not once per copy; large outputs are written around the caches, so that memory is not read before it is overwritten.
///
/// # Panics
/// If `out` has another length than `copies · nodes.len()`.
pub fn replicate_shifted(nodes: &[i64], copies: usize, stride: i64, out: &mut [i64]) {
    assert_eq!(out.len(), copies * nodes.len(), "the caller sizes the output");
    let shift = shift_for(out.len());
    for (b, block) in nodes.chunks(COPY_BLOCK).enumerate() {
        for copy in 0..copies {
            let start = copy * nodes.len() + b * COPY_BLOCK;
            shift(block, copy as i64 * stride, &mut out[start..start + block.len()]);
        }
    }
    finish();
}

/// `copies` copies of `values` one after another, in the buffer of `out`.
pub fn replicate<T: Copy>(values: &[T], copies: usize, out: &mut Vec<T>) {
    out.clear();
    for _ in 0..copies {
        out.extend_from_slice(values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths below and above where the caches are passed by, and outputs of every alignment.
    #[test]
    fn both_ways_write_the_same() {
        let nodes: Vec<i64> = (0..1000).map(|i| i * 7 % 97).collect();
        let narrow: Vec<u32> = nodes.iter().map(|node| *node as u32).collect();
        let numbers = NodeNumbers { removed: &[0, 13, 96], shift: 500 };
        for start in 0..5 {
            for end in [start, start + 1, start + 6, 999] {
                let len = end - start;
                let both = |write: &dyn Fn(usize, &mut [i64])| {
                    let (mut few, mut many) = (vec![-1; 1000], vec![-1; 1000]);
                    write(0, &mut few[start..end]);
                    write(FEW, &mut many[start..end]);
                    finish();
                    assert_eq!(few, many);
                    few
                };
                let shifted = both(&|all, out| shift_for(all)(&nodes[..len], 9, out));
                assert!(shifted[start..end].iter().zip(&nodes).all(|(to, from)| *to == from + 9));
                assert_eq!(both(&|all, out| widen_for(all)(&narrow[..len], 9, out)), shifted);
                let numbered = both(&|all, out| renumber_for(all)(&nodes[..len], numbers, out));
                for (to, from) in numbered[start..end].iter().zip(&nodes) {
                    assert_eq!(*to, from + 500 - [0, 13, 96].iter().filter(|gone| *gone < from).count() as i64);
                }
            }
        }
    }

    #[test]
    fn copies_are_shifted() {
        // The last is large enough to be written around the caches; odd lengths give every alignment.
        for (n, copies) in [(0, 3), (1, 3), (2047, 3), (2048, 2), (5000, 3), (44_311, 29)] {
            let nodes: Vec<i64> = (0..n).map(|i| i * 7 % 13).collect();
            let mut out = vec![-1; nodes.len() * copies];
            replicate_shifted(&nodes, copies, 100, &mut out);
            let expected = (0..copies as i64).flat_map(|c| nodes.iter().map(move |v| v + 100 * c));
            assert!(out.iter().copied().eq(expected), "{n} × {copies}");
        }
    }
}
