use super::numeric::{Element, Numeric};
use super::runs::unpack_one;

const SHORT: &str = "values are cut short";

/// Integers as packed differences (Encodings.md, *Delta Encoding*), `most` of them at most.
pub(super) fn decode<T: Element>(numeric: Numeric, mut bytes: &[u8], most: usize) -> Result<Vec<T>, &'static str> {
    if numeric.is_float() {
        return Err("values that are no integers are encoded as differences");
    }
    let block = varint(&mut bytes)?;
    let miniblocks = varint(&mut bytes)?;
    let total =
        usize::try_from(varint(&mut bytes)?).ok().filter(|total| *total <= most).ok_or("there are too many values")?;
    let mut value = zigzag(&mut bytes)?;
    if block == 0 || block > 1 << 20 || miniblocks == 0 || block % miniblocks != 0 || block / miniblocks % 32 != 0 {
        return Err("blocks of differences have a wrong size");
    }
    let (miniblocks, of_miniblock) = (miniblocks as usize, (block / miniblocks) as usize);
    let mut values = Vec::new();
    values.try_reserve_exact(total).map_err(|_| "there is no memory for so many values")?;
    if total > 0 {
        push(numeric, value, &mut values)?;
    }
    while values.len() < total {
        let least = zigzag(&mut bytes)?;
        let (widths, rest) = bytes.split_at_checked(miniblocks).ok_or(SHORT)?;
        bytes = rest;
        for width in widths {
            if values.len() == total {
                break;
            }
            let width = u32::from(*width);
            if width > 64 {
                return Err("differences have more than 64 bits");
            }
            // The last miniblock may be cut after the values that it has.
            let len = (of_miniblock / 8 * width as usize).min(bytes.len());
            let (packed, rest) = bytes.split_at(len);
            bytes = rest;
            let count = of_miniblock.min(total - values.len());
            if packed.len() * 8 < count * width as usize {
                return Err(SHORT);
            }
            for i in 0..count {
                value = value.wrapping_add(least).wrapping_add(unpack_wide(packed, width, i) as i64);
                if numeric.bytes() == 4 {
                    value = i64::from(value as i32);
                }
                push(numeric, value, &mut values)?;
            }
        }
    }
    Ok(values)
}

fn push<T: Element>(numeric: Numeric, value: i64, values: &mut Vec<T>) -> Result<(), &'static str> {
    let mut out = [T::default()];
    T::convert(numeric, &value.to_le_bytes()[..numeric.bytes()], &mut out)?;
    values.extend(out);
    Ok(())
}

/// Value number `at` of those of up to 64 bits.
fn unpack_wide(bytes: &[u8], width: u32, at: usize) -> u64 {
    if width <= 32 {
        return u64::from(unpack_one(bytes, width, at));
    }
    let bit = at * width as usize;
    let rest = &bytes[bit / 8..];
    let mut word = [0; 16];
    let len = rest.len().min(16);
    word[..len].copy_from_slice(&rest[..len]);
    ((u128::from_le_bytes(word) >> (bit % 8)) & ((1_u128 << width) - 1)) as u64
}

fn varint(bytes: &mut &[u8]) -> Result<u64, &'static str> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or(SHORT)?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err("a number has too many bytes")
}

fn zigzag(bytes: &mut &[u8]) -> Result<i64, &'static str> {
    let value = varint(bytes)?;
    Ok((value >> 1) as i64 ^ -((value & 1) as i64))
}
