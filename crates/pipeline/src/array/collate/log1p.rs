//! ln(1 + x) of many values at once. Source: `s_log1pf.c` of FreeBSD's msun (Sun Microsystems, 1993): error below 1 ulp.

use multiversion::multiversion;

/// The first 16 bits of ln 2, so that its product with an exponent is exact.
const LN2_HIGH: f32 = f32::from_bits(0x3f31_7180);
const LN2_LOW: f32 = 9.058_001e-6;
const COEFFICIENTS: [f32; 4] = [0.666_666_6, 0.400_009_72, 0.284_987_87, 0.242_790_79];

/// Values that are worked on together.
const LANES: usize = 16;

/// Take ln(1 + x) of every value, to within 2 ulp of the exact value; as `f32::ln_1p` for negative ones, infinity and NaN.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx2+fma", "x86_64+avx2+fma"))]
pub fn log1p(values: &mut [f32]) {
    each(values);
}

#[inline(always)]
fn each(values: &mut [f32]) {
    let (chunks, rest) = values.as_chunks_mut::<LANES>();
    for chunk in chunks {
        group(chunk);
    }
    let mut last = [0.0; LANES];
    last[..rest.len()].copy_from_slice(rest);
    group(&mut last);
    rest.copy_from_slice(&last[..rest.len()]);
}

#[inline(always)]
fn group(values: &mut [f32; LANES]) {
    // One bit that is set where a value is negative, infinite or NaN: no comparison of floats, which would not be vectors.
    let odd = values.iter().fold(false, |odd, value| odd | (value.to_bits() >= f32::INFINITY.to_bits()));
    if odd {
        values.iter_mut().for_each(|value| *value = value.ln_1p());
    } else {
        values.iter_mut().for_each(|value| *value = finite(*value));
    }
}

/// For 0 ≤ x < ∞, without branches.
#[inline(always)]
fn finite(x: f32) -> f32 {
    let sum = 1.0 + x;
    // 1 + x = 2^k · (1 + f) with 1 + f within √½ .. √2.
    let bits = sum.to_bits() + (0x3f80_0000 - 0x3f35_04f3);
    let exponent = (bits >> 23) as i32 - 0x7f;
    let fraction = f32::from_bits((bits & 0x007f_ffff) + 0x3f35_04f3) - 1.0;
    // What 1 + x has lost by rounding.
    let lost = if exponent >= 2 { 1.0 - (sum - x) } else { x - (sum - 1.0) } / sum;
    // Below √2 − 1 nothing is reduced, so nothing is lost.
    let near = x < 0.414_213_55;
    let (k, f, c) = if near { (0.0, x, 0.0) } else { (exponent as f32, fraction, lost) };
    let s = f / (2.0 + f);
    let z = s * s;
    let w = z * z;
    let r = z * (COEFFICIENTS[0] + w * COEFFICIENTS[2]) + w * (COEFFICIENTS[1] + w * COEFFICIENTS[3]);
    let half = 0.5 * f * f;
    s * (half + r) + (k * LN2_LOW + c) - half + f + k * LN2_HIGH
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ulps(a: f32, b: f32) -> u32 {
        a.to_bits().abs_diff(b.to_bits())
    }

    fn check(xs: &[f32]) -> u32 {
        let all = |f: &dyn Fn(&mut [f32])| {
            let mut values = xs.to_vec();
            f(&mut values);
            values.iter().zip(xs).map(|(y, x)| ulps(*y, f64::from(*x).ln_1p() as f32)).max().unwrap()
        };
        all(&log1p).max(all(&each))
    }

    /// Every 797th float from 0 to the largest, and all counts up to a million.
    #[test]
    fn within_two_ulp() {
        let all: Vec<f32> = (0..f32::INFINITY.to_bits()).step_by(797).map(f32::from_bits).collect();
        assert!(check(&all) <= 2, "{}", check(&all));
        let counts: Vec<f32> = (0..1_000_000).map(|count| count as f32).collect();
        assert!(check(&counts) <= 2, "{}", check(&counts));
    }

    #[test]
    fn what_is_no_count_is_as_of_the_standard_library() {
        let mut values = [-0.5, -1.0, f32::INFINITY, f32::NAN, -2.0, 3.0, -0.0];
        let expected = values.map(f32::ln_1p);
        log1p(&mut values);
        assert_eq!(values.map(f32::to_bits), expected.map(f32::to_bits));
    }
}
