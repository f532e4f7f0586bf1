use super::dtype::Dtype;
use super::encoding::Encoding;

/// The values of an array in a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ArrayCell<'a> {
    pub(super) dtype: Dtype,
    pub(super) count: usize,
    /// As many values.
    pub(super) bytes: &'a [u8],
}

/// What a sample has of a column of arrays; `bytes` columns are of `raw`, which nothing says.
///
/// An array has, as far as the encoding does not give it: a byte for the dtype, a byte `ndim << 2 | w`, and the shape, each
/// side in `1 << w` bytes. What is more than one-dimensional is no row.
#[inline]
pub(super) fn array<'a>(encoding: &Encoding, raw: Dtype, cell: &'a [u8]) -> Result<ArrayCell<'a>, String> {
    let mut rest = cell;
    let (dtype, shape) = match encoding {
        Encoding::Bytes => {
            let count = cell.len() / raw.size();
            if !cell.len().is_multiple_of(raw.size()) {
                return Err(format!("{} bytes are no values of {}", cell.len(), raw.name()));
            }
            return Ok(ArrayCell { dtype: raw, count, bytes: cell });
        }
        Encoding::Array { dtype, shape } => (*dtype, shape.as_deref()),
        _ => return Err("it is no array".to_owned()),
    };
    let dtype = match dtype {
        Some(dtype) => dtype,
        None => {
            let number = byte(&mut rest)?;
            Dtype::numbered(number).ok_or_else(|| format!("an array is of type {number}, which there is not"))?
        }
    };
    let count = match shape {
        Some(shape) => flat(shape.iter().copied())?,
        None => {
            let head = byte(&mut rest)?;
            let (sides, width) = (usize::from(head >> 2), 1_usize << (head & 3));
            let (shape, values) = rest.split_at_checked(sides * width).ok_or(CUT)?;
            rest = values;
            if sides == 0 {
                return Err("an array has no axis".to_owned());
            }
            flat(shape.chunks_exact(width).map(|side| {
                let mut wide = [0; 8];
                wide[..width].copy_from_slice(side);
                u64::from_le_bytes(wide)
            }))?
        }
    };
    if (rest.len() as u64) != count.saturating_mul(dtype.size() as u64) {
        let reason = format!("an array of {count} values of {} has {} bytes", dtype.name(), rest.len());
        return Err(reason);
    }
    Ok(ArrayCell { dtype, count: count as usize, bytes: rest })
}

const CUT: &str = "an array is cut short";

fn byte(rest: &mut &[u8]) -> Result<u8, String> {
    let (first, others) = rest.split_first().ok_or(CUT)?;
    *rest = others;
    Ok(*first)
}

/// Values of a shape that has no more than one side of several.
fn flat(sides: impl Iterator<Item = u64>) -> Result<u64, String> {
    let mut count = 1;
    for side in sides {
        if side != 1 && count != 1 {
            return Err(format!("an array of {count} × {side} values is no row"));
        }
        if side != 1 {
            count = side;
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(encoding: &str, cell: &[u8]) -> Result<(Dtype, usize), String> {
        array(&Encoding::parse(encoding).unwrap(), Dtype::I32, cell).map(|cell| (cell.dtype, cell.count))
    }

    #[test]
    fn shapes_and_types_are_where_the_encoding_leaves_them() {
        assert_eq!(read("ndarray:uint8:3", &[1, 2, 3]), Ok((Dtype::U8, 3)));
        assert_eq!(read("ndarray:uint8", &[4, 2, 1, 2]), Ok((Dtype::U8, 2)));
        assert_eq!(read("ndarray", &[17, 5, 2, 0, 1, 2, 3, 4]), Ok((Dtype::I16, 2)));
        assert_eq!(read("ndarray:uint8", &[8, 1, 2, 9, 9]), Ok((Dtype::U8, 2)));
        // What the package cannot write, but reads: no value at all.
        assert_eq!(read("ndarray:float32", &[4, 0]), Ok((Dtype::F32, 0)));
        assert_eq!(read("bytes", &[0; 8]), Ok((Dtype::I32, 2)));
        for (encoding, cell, reason) in [
            ("ndarray:uint8", &[][..], "cut short"),
            ("ndarray:uint8", &[4], "cut short"),
            ("ndarray:uint8", &[4, 3, 1, 2], "3 values of uint8 has 2 bytes"),
            ("ndarray:uint8", &[8, 2, 2, 1, 2, 3, 4], "2 × 2"),
            ("ndarray:uint8", &[0, 1], "no axis"),
            ("ndarray:uint8", &[7, 255, 255, 255, 255, 255, 255, 255, 255], "has 0 bytes"),
            ("ndarray", &[3, 4, 0], "of type 3"),
            ("bytes", &[0; 7], "no values of int32"),
            ("str", &[0; 7], "no array"),
        ] {
            let found = read(encoding, cell).unwrap_err();
            assert!(found.contains(reason), "{found}");
        }
    }
}
