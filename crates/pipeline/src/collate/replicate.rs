use super::stream;

/// Source elements of a block, which stays in the first-level cache while all its copies are written: 16 KiB.
const BLOCK: usize = 2048;

/// Write `copies` copies of `nodes` one after another into `out`, the i-th shifted by `i · stride`.
///
/// Floor: one write of `copies · nodes.len() · 8` bytes. The source is taken in blocks, so it is read from memory once and
/// not once per copy; large outputs are written around the caches, so that memory is not read before it is overwritten.
///
/// # Panics
/// If `out` has another length than `copies · nodes.len()`.
pub fn replicate_shifted(nodes: &[i64], copies: usize, stride: i64, out: &mut [i64]) {
    assert_eq!(out.len(), copies * nodes.len(), "the caller sizes the output");
    let shift = stream::shift_for(out.len());
    for (b, block) in nodes.chunks(BLOCK).enumerate() {
        for copy in 0..copies {
            let start = copy * nodes.len() + b * BLOCK;
            shift(block, copy as i64 * stride, &mut out[start..start + block.len()]);
        }
    }
    stream::finish();
}

/// `copies` copies of `values` one after another, in the buffer of `out`.
pub(super) fn replicate<T: Copy>(values: &[T], copies: usize, out: &mut Vec<T>) {
    out.clear();
    for _ in 0..copies {
        out.extend_from_slice(values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
