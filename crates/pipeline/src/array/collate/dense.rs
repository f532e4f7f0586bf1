//! Rows of dense batches, written a segment at a time: cleared and scattered into while it is in the nearest cache, so that the
//! scattering costs next to nothing beside the clearing. A batch that the caches hold is written in place. A larger one is
//! written around them, from a segment that stays there: a plain store would first read the line that it writes to.

use anndata_io::nontemporal;

/// Values of a batch that the caches are taken to hold: 32 MiB.
const FEW: usize = 8 << 20;
/// Values of a segment: 8 KiB.
const SEGMENT: usize = 2048;

/// Whether a batch of `len` values in all is written around the caches. After its last row call [`nontemporal::fence`].
pub(super) fn goes_around(len: usize) -> bool {
    len >= FEW
}

/// Write a row that has these values in these columns, which ascend, and 0 in all others; the error is a column that is not
/// there, or not in order.
pub(super) fn write_sparse(cols: &[i32], values: &[f32], out: &mut [f32], around: bool) -> Result<(), i32> {
    if around { write::<true>(cols, values, out) } else { write::<false>(cols, values, out) }
}

/// Write a row as it is.
pub(super) fn write_dense(values: &[f32], out: &mut [f32], around: bool) {
    if around { nontemporal::copy(values, out) } else { out.copy_from_slice(values) }
}

fn write<const AROUND: bool>(cols: &[i32], values: &[f32], out: &mut [f32]) -> Result<(), i32> {
    let mut space = [0.0; SEGMENT];
    let mut pairs = cols.iter().zip(values).peekable();
    // The first segment ends where lines begin, so that the others are of whole lines.
    let (mut start, mut rest) = (0, out);
    let mut len = if AROUND { rest.as_ptr().align_offset(64) } else { SEGMENT };
    while !rest.is_empty() {
        let (part, behind) = rest.split_at_mut(len.min(rest.len()));
        let end = start + part.len();
        let segment = if AROUND { &mut space[..part.len()] } else { &mut *part };
        segment.fill(0.0);
        while let Some((column, value)) = pairs.next_if(|(column, _)| (**column as usize) < end) {
            match segment.get_mut((*column as usize).wrapping_sub(start)) {
                Some(to) => *to = *value,
                None => return Err(*column),
            }
        }
        if AROUND {
            nontemporal::copy(&space[..part.len()], part);
        }
        (start, rest, len) = (end, behind, SEGMENT);
    }
    pairs.next().map_or(Ok(()), |(column, _)| Err(*column))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Outputs of every alignment and of lengths around those of lines and segments.
    #[test]
    fn both_ways_write_the_same() {
        for len in [1, 15, 16, 17, 100, SEGMENT - 1, SEGMENT, SEGMENT + 1, 3 * SEGMENT + 5] {
            let cols: Vec<i32> = (0..len as i32).filter(|column| column % 3 == 0).collect();
            let values: Vec<f32> = cols.iter().map(|column| *column as f32 + 0.5).collect();
            let expected = |place: usize| if place.is_multiple_of(3) { place as f32 + 0.5 } else { 0.0 };
            for start in 0..17 {
                let places = start..start + len;
                for around in [false, true] {
                    let mut out = vec![-1.0; len + 17];
                    write_sparse(&cols, &values, &mut out[places.clone()], around).unwrap();
                    nontemporal::fence();
                    assert!(out[places.clone()].iter().enumerate().all(|(place, value)| *value == expected(place)));
                    assert!(out[..start].iter().chain(&out[start + len..]).all(|value| *value == -1.0));
                    let mut again = vec![-1.0; len + 17];
                    write_dense(&out[places.clone()], &mut again[places.clone()], around);
                    nontemporal::fence();
                    assert_eq!(again, out);
                }
            }
        }
    }

    #[test]
    fn columns_that_are_not_there_or_not_in_order_are_found() {
        for around in [false, true] {
            let mut out = [0.0; 3 * SEGMENT];
            let mut error = |cols: &[i32]| write_sparse(cols, &[1.0, 2.0], &mut out, around).unwrap_err();
            assert_eq!(error(&[1, 3 * SEGMENT as i32]), 3 * SEGMENT as i32);
            assert_eq!(error(&[-1, 5]), -1);
            assert_eq!(error(&[2 * SEGMENT as i32, 5]), 5);
            nontemporal::fence();
        }
    }
}
