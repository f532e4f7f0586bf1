/// Decompress LZF (Marc Lehmann's liblzf, h5py's own filter); returns how many bytes it was, `None` if it is damaged or does
/// not fit.
///
/// A control byte below 32 stands before so many literals and one; any other has the length of a match in its upper 3 bits
/// and the upper 5 bits of how far back it is in its lower ones.
pub(crate) fn decompress(mut src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let mut at = 0;
    while let Some((&control, rest)) = src.split_first() {
        src = rest;
        if control < 32 {
            let literals = usize::from(control) + 1;
            let (copied, rest) = src.split_at_checked(literals)?;
            dst.get_mut(at..at + literals)?.copy_from_slice(copied);
            (src, at) = (rest, at + literals);
            continue;
        }
        let mut len = usize::from(control >> 5);
        if len == 7 {
            let (&more, rest) = src.split_first()?;
            (len, src) = (len + usize::from(more), rest);
        }
        let (&low, rest) = src.split_first()?;
        src = rest;
        let back = (usize::from(control & 31) << 8 | usize::from(low)) + 1;
        let from = at.checked_sub(back)?;
        len += 2;
        let place = dst.get_mut(from..at + len)?;
        if back >= len {
            place.copy_within(..len, back);
        } else {
            // A match may reach into itself and repeats then.
            for i in back..back + len {
                place[i] = place[i - back];
            }
        }
        at += len;
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::decompress;

    #[test]
    fn overlapping_and_long_matches() {
        for data in [
            vec![7; 4000],
            b"abcabcabcabcabcabcabcabcabcabcabc".repeat(20),
            (0..9000u32).flat_map(u32::to_le_bytes).collect(),
        ] {
            let packed = lzf::compress(&data).unwrap();
            let mut out = vec![0; data.len()];
            assert_eq!(decompress(&packed, &mut out), Some(data.len()));
            assert_eq!(out, data);
            assert_eq!(decompress(&packed, &mut out[..data.len() - 1]), None, "too small");
        }
    }

    proptest! {
        #[test]
        fn as_the_reference_does(data in proptest::collection::vec(0u8..6, 1..3000)) {
            if let Ok(packed) = lzf::compress(&data) {
                let mut out = vec![0; data.len()];
                prop_assert_eq!(decompress(&packed, &mut out), Some(data.len()));
                prop_assert_eq!(out, data);
            }
        }

        #[test]
        fn any_bytes_are_no_panic(data in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut out = [0; 500];
            let ours = decompress(&data, &mut out);
            // The reference must agree where both say that it is good.
            if let (Some(n), Ok(theirs)) = (ours, lzf::decompress(&data, ours.unwrap_or_default())) {
                prop_assert_eq!(&out[..n], &theirs[..]);
            }
        }
    }
}
