//! What is done to the values of a row before it is part of a batch: scaling, ln(1 + x), the choice of genes.

use std::collections::HashMap;

use multiversion::multiversion;

use crate::CellError;

/// Normalization of the values of a row: scaling to a sum, then ln(1 + x).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transform {
    /// Scale the row to this sum, over all genes of the store; 0 leaves it.
    target: f64,
    log1p: bool,
}

impl Transform {
    /// Scaling to a sum of `target`, 0 being none, then ln(1 + x).
    ///
    /// # Errors
    /// [`CellError::ScaleTarget`]: the sum is negative, infinite or NaN.
    pub fn new(target: f64, log1p: bool) -> Result<Self, CellError> {
        if !(target.is_finite() && target >= 0.0) {
            return Err(CellError::ScaleTarget { target });
        }
        Ok(Self { target, log1p })
    }

    /// Whether values stay as they are.
    pub fn is_none(&self) -> bool {
        self.target == 0.0 && !self.log1p
    }

    /// The factor by which the values of a row are multiplied, as in `scanpy.pp.normalize_total`. `row` has the values of
    /// *all* genes, before any are left out; the factor is 1 if their sum is 0. The sum is taken in float64.
    pub fn scale(&self, row: &[f32]) -> f32 {
        if self.target == 0.0 {
            return 1.0;
        }
        let sum = sum(row);
        if sum == 0.0 { 1.0 } else { (self.target / sum) as f32 }
    }

    /// Multiply values, which may be some of the row, by `scale`, and take ln(1 + x).
    pub fn apply(&self, scale: f32, values: &mut [f32]) {
        if self.target != 0.0 {
            values.iter_mut().for_each(|value| *value *= scale);
        }
        if self.log1p {
            log1p(values);
        }
    }
}

/// Sum in float64. Several sums side by side, so that additions do not wait for each other.
fn sum(values: &[f32]) -> f64 {
    let (chunks, rest) = values.as_chunks::<16>();
    let mut sums = [0.0f64; 16];
    for chunk in chunks {
        for (sum, value) in sums.iter_mut().zip(chunk) {
            *sum += f64::from(*value);
        }
    }
    sums.iter().sum::<f64>() + rest.iter().map(|value| f64::from(*value)).sum::<f64>()
}

/// The genes of a store that a batch has, and their columns in both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneMap {
    /// Column of the batch for each column of the store; -1 is none.
    to_batch: Vec<i32>,
    /// Column of the store for each column of the batch.
    to_store: Vec<u32>,
    ascending: bool,
}

impl GeneMap {
    /// The genes `wanted`, in their order, out of `genes`. `None` if all are wanted, which an empty list says.
    ///
    /// # Errors
    /// [`CellError::UnknownGene`], [`CellError::RepeatedGene`] or [`CellError::AmbiguousGene`].
    pub fn new(genes: &[String], wanted: &[String]) -> Result<Option<Self>, CellError> {
        if wanted.is_empty() || wanted == genes {
            return Ok(None);
        }
        let mut column_of: HashMap<&str, (usize, bool)> = HashMap::with_capacity(genes.len());
        for (column, gene) in genes.iter().enumerate() {
            column_of.entry(gene).and_modify(|(_, twice)| *twice = true).or_insert((column, false));
        }
        let mut to_batch = vec![-1; genes.len()];
        let mut to_store = Vec::with_capacity(wanted.len());
        for (column, gene) in wanted.iter().enumerate() {
            match column_of.get(gene.as_str()) {
                None => {
                    let first = genes.iter().take(3).cloned().collect();
                    return Err(CellError::UnknownGene { gene: gene.clone(), genes: genes.len(), first });
                }
                Some((_, true)) => return Err(CellError::AmbiguousGene { gene: gene.clone() }),
                Some((stored, false)) if to_batch[*stored] >= 0 => {
                    return Err(CellError::RepeatedGene { gene: gene.clone() });
                }
                Some((stored, false)) => {
                    to_batch[*stored] = column as i32;
                    to_store.push(*stored as u32);
                }
            }
        }
        let ascending = to_store.is_sorted();
        Ok(Some(Self { to_batch, to_store, ascending }))
    }

    /// Genes of a batch.
    pub fn len(&self) -> usize {
        self.to_store.len()
    }

    /// No genes.
    pub fn is_empty(&self) -> bool {
        self.to_store.is_empty()
    }

    /// Column of the batch for each column of the store; -1 is none.
    pub fn to_batch(&self) -> &[i32] {
        &self.to_batch
    }

    /// Column of the store for each column of the batch.
    pub fn to_store(&self) -> &[u32] {
        &self.to_store
    }

    /// Whether the genes come in the order of the store, so that ascending columns stay ascending.
    pub fn is_ascending(&self) -> bool {
        self.ascending
    }
}

// ln(1 + x) of many values at once. Source: `s_log1pf.c` of FreeBSD's msun (Sun Microsystems, 1993): error below 1 ulp.

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
    // The rounding error of 1 + x.
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

    #[test]
    fn rows_get_the_sum_and_empty_ones_stay() {
        let transform = Transform::new(1e4, false).unwrap();
        let mut row: Vec<f32> = (0..37).map(|value| value as f32).collect();
        let scale = transform.scale(&row);
        transform.apply(scale, &mut row);
        assert!((sum(&row) - 1e4).abs() < 1e-2);
        assert_eq!((transform.scale(&[0.0; 20]), transform.scale(&[])), (1.0, 1.0));
        assert!(Transform::new(0.0, false).unwrap().is_none());
    }

    #[test]
    fn a_sum_that_rows_cannot_have_is_an_error() {
        for target in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(matches!(Transform::new(target, true), Err(CellError::ScaleTarget { .. })));
        }
    }

    fn names(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn both_ways_and_whether_in_order() {
        let genes = names("a b c d");
        assert_eq!(GeneMap::new(&genes, &[]).unwrap(), None);
        assert_eq!(GeneMap::new(&genes, &genes).unwrap(), None);
        let map = GeneMap::new(&genes, &names("d b")).unwrap().unwrap();
        assert_eq!((map.to_batch(), map.to_store(), map.is_ascending()), (&[-1, 1, -1, 0][..], &[3, 1][..], false));
        assert!(GeneMap::new(&genes, &names("b d")).unwrap().unwrap().is_ascending());
    }

    #[test]
    fn genes_that_name_no_column_are_errors() {
        for (wanted, expected) in [
            ("x", "\"x\" is none of the 4 genes of the data (a, b, c …)"),
            ("a a", "\"a\" is listed twice"),
            ("c", "\"c\" stands more than once in the data, so it names no column"),
        ] {
            assert_eq!(GeneMap::new(&names("a b c c"), &names(wanted)).unwrap_err().to_string(), expected);
        }
    }

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
