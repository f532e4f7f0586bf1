/// Put bytes back that HDF5's shuffle filter has sorted by their place in an element: `src` has the first bytes of all
/// elements, then the second ones, …; what is less than an element is behind them as it was. Both are as long as each other.
pub(super) fn unshuffle(element: usize, src: &[u8], dst: &mut [u8]) {
    let elements = src.len().checked_div(element).unwrap_or(0);
    if element <= 1 || elements <= 1 {
        dst.copy_from_slice(src);
        return;
    }
    let (planes, rest) = src.split_at(elements * element);
    let (whole, end) = dst.split_at_mut(elements * element);
    end.copy_from_slice(rest);
    match element {
        2 => fixed::<2>(elements, planes, whole),
        4 => fixed::<4>(elements, planes, whole),
        8 => fixed::<8>(elements, planes, whole),
        _ => {
            for (i, plane) in planes.chunks_exact(elements).enumerate() {
                whole.iter_mut().skip(i).step_by(element).zip(plane).for_each(|(dst, src)| *dst = *src);
            }
        }
    }
}

/// The usual sizes, in one pass over `dst`.
fn fixed<const N: usize>(elements: usize, planes: &[u8], whole: &mut [u8]) {
    let mut each = planes.chunks_exact(elements);
    let planes: [&[u8]; N] = std::array::from_fn(|_| each.next().unwrap_or_default());
    // Asserted once, so that the loop has no checks.
    if planes.iter().any(|plane| plane.len() != elements) {
        return;
    }
    let (whole, _) = whole.as_chunks_mut::<N>();
    for (i, out) in whole.iter_mut().enumerate().take(elements) {
        for (byte, plane) in out.iter_mut().zip(&planes) {
            *byte = plane[i];
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::unshuffle;

    proptest! {
        #[test]
        fn undoes_a_shuffle(data in proptest::collection::vec(any::<u8>(), 0..400), element in 0usize..20) {
            let elements = data.len().checked_div(element).unwrap_or(0);
            let mut shuffled = Vec::new();
            for byte in 0..element {
                shuffled.extend((0..elements).map(|i| data[i * element + byte]));
            }
            shuffled.extend(&data[elements * element..]);
            let mut out = vec![0; data.len()];
            unshuffle(element, &shuffled, &mut out);
            prop_assert_eq!(out, data);
        }
    }
}
