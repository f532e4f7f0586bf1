/// Write `copies` copies of `nodes` one after another into `out`, the i-th shifted by `i · stride`.
///
/// Floor: one write of `copies · nodes.len() · 8` bytes. The source is taken in blocks that stay in the first-level
/// cache while all copies of a block are written, so it is read from memory once and not once per copy.
///
/// # Panics
/// If `out` has another length than `copies · nodes.len()`.
pub fn replicate_shifted(nodes: &[i64], copies: usize, stride: i64, out: &mut [i64]) {
    /// 16 KiB of source.
    const BLOCK: usize = 2048;
    assert_eq!(out.len(), copies * nodes.len(), "the caller sizes the output");
    for (b, block) in nodes.chunks(BLOCK).enumerate() {
        for copy in 0..copies {
            let start = copy * nodes.len() + b * BLOCK;
            let shift = copy as i64 * stride;
            for (to, from) in out[start..start + block.len()].iter_mut().zip(block) {
                *to = from + shift;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_shifted() {
        for n in [0, 1, 2047, 2048, 5000] {
            let nodes: Vec<i64> = (0..n).map(|i| i * 7 % 13).collect();
            let mut out = vec![-1; nodes.len() * 3];
            replicate_shifted(&nodes, 3, 100, &mut out);
            let expected: Vec<i64> = (0..3).flat_map(|c| nodes.iter().map(move |v| v + 100 * c)).collect();
            assert_eq!(out, expected);
        }
    }
}
