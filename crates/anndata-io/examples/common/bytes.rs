//! Damage to bytes, of any format.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// One kind of damage at a place in `bytes`, which are not empty: bits, bytes, numbers that are often wrong, zeros, bytes of another
/// place; seldom another length, which most formats refuse at once.
pub fn damage_at(bytes: &mut Vec<u8>, at: usize, rng: &mut Pcg64Mcg) {
    let len = bytes.len();
    let some = rng.random_range(1..=64).min(len - at);
    match rng.random_range(0..100) {
        0..37 => bytes[at] ^= 1 << rng.random_range(0..8),
        37..57 => bytes[at] = rng.random_range(0..=255),
        57..77 => {
            let values =
                [0, 1, 0x7f, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX, u64::MAX - 1, 1 << 40, len as u64];
            let width = [1, 2, 4, 8][rng.random_range(0..4)].min(len - at);
            let value = values[rng.random_range(0..values.len())].to_le_bytes();
            bytes[at..at + width].copy_from_slice(&value[..width]);
        }
        77..87 => bytes[at..at + some].fill(0),
        87..97 => {
            let from = rng.random_range(0..=len - some);
            bytes.copy_within(from..from + some, at);
        }
        97 => bytes.truncate(at),
        98 => bytes.extend(std::iter::repeat_n(0, some * 50)),
        _ => {
            let part = bytes[at..at + some].to_vec();
            bytes.splice(at..at, part);
        }
    }
}
