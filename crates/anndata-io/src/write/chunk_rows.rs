/// Bytes that h5py's guess starts from, and the least and the most of a chunk.
const BASE: f64 = 16.0 * 1024.0;
const LEAST: f64 = 8.0 * 1024.0;
const MOST: f64 = 1024.0 * 1024.0;

/// Values of a chunk of a one-dimensional data set of `len` values of `size` bytes: what h5py chooses where nothing is said
/// (`h5py/_hl/filters.py`, `guess_chunk`), so that files have the chunks of those that AnnData writes.
pub(super) fn guessed(len: u64, size: usize) -> usize {
    let (len, size) = (if len == 0 { 1024.0 } else { len as f64 }, size as f64);
    let target = (BASE * (len * size / MOST).log10().exp2()).clamp(LEAST, MOST);
    let mut chunk = len;
    loop {
        let bytes = chunk * size;
        let near = bytes < target || (bytes - target).abs() / target < 0.5;
        if (near && bytes < MOST) || chunk <= 1.0 {
            return chunk as usize;
        }
        chunk = (chunk / 2.0).ceil();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Read off files that h5py 3.15 wrote.
    #[test]
    fn chunks_are_those_of_h5py() {
        assert_eq!(guessed(0, 4), 1024);
        assert_eq!(guessed(700, 4), 700);
        assert_eq!(guessed(1_000_000, 4), H5PY_MILLION);
        assert_eq!(guessed(30_884_864, 4), 15_081);
        assert_eq!(guessed(30_884_864, 8), H5PY_EIGHT);
    }

    const H5PY_MILLION: usize = 7_813;
    const H5PY_EIGHT: usize = 15_081;
}
