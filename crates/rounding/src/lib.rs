//! For tests: how far float32 results may lie from the exact ones, whatever the processor.
//!
//! The order in which a sum is computed, and whether a product is fused into it, differ between AVX-512, AVX2 and the base
//! instructions, between libtorch's own kernels and MKL's, and between numbers of threads. A constant that fits the errors of
//! one processor therefore fails on the next. The bounds here follow from float32 arithmetic instead, in one of two ways.
//!
//! 1. A sum that is short enough to write down: the error is at most [`gamma`]\(n\) times the sum of the *absolute* terms,
//!    where n counts the roundings that a term goes through. This holds for every order of summation and with fused products
//!    (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., sections 3.1 and 4.2).
//! 2. A longer computation: [`assert_rounding`] compares its error with that of a *peer*, another float32 computation of the
//!    same function, both measured from the same function in double precision. The peer runs at [`NEIGHBOURS`] neighbouring
//!    points ([`nudged`]), because a single error may be small by chance. Where a function cannot run in double precision, the
//!    distance between its float32 results at neighbouring points stands for the peer's error: to round an operand is to move
//!    it by a unit.
//!
//! A bound of the second kind is [`RATIO`] × (root mean square of the peer's errors) + [`floor`].

use tch::nn::VarStore;
use tch::{Kind, Tensor};

/// Unit roundoff of float32, 2⁻²⁴: the largest relative error of one rounding to the nearest.
pub const UNIT: f64 = f32::EPSILON as f64 / 2.0;

/// How many times as large as the peer's an error may be.
///
/// Rounding errors of a sum of n terms grow like √n where terms are added one by one, and hardly at all where they are added
/// in pairs (Higham and Mary, A New Approach to Probabilistic Rounding Error Analysis, 2019): the two orders differ by up to
/// √n, which is 10 for the hundred terms that the tests' sums have. A wrong formula is off by 10⁵ errors and more.
pub const RATIO: f64 = 10.0;

/// Points at which the peer runs. The root mean square of eight errors is within a factor of 2 of the one of many in 99 of 100
/// cases (χ² with 8 degrees of freedom), which [`RATIO`] covers.
pub const NEIGHBOURS: u32 = 8;

/// γₙ = n u / (1 − n u): a bound of the relative error that `roundings` roundings leave in a product, or in a sum of terms of
/// one sign.
pub fn gamma(roundings: u32) -> f64 {
    let error = f64::from(roundings) * UNIT;
    error / (1.0 - error)
}

/// √n u ‖exact‖: the rounding errors that a result has if each of its entries is a sum of `terms` terms of one sign. No
/// computation that keeps its result in float32 can promise less than u ‖exact‖, so a peer that hits the exact value by chance
/// does not make the bound 0.
pub fn floor(exact: &[f64], terms: usize) -> f64 {
    (terms as f64).sqrt() * UNIT * norm(exact)
}

/// Euclidean norm.
pub fn norm(values: &[f64]) -> f64 {
    values.iter().map(|value| value * value).sum::<f64>().sqrt()
}

/// Euclidean distance.
///
/// # Panics
/// The two have different lengths.
#[track_caller]
pub fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len(), "values that are compared");
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt()
}

/// All entries, row by row, of a tensor of any dtype; exact for floats of up to 64 bits.
///
/// # Panics
/// libtorch refuses.
#[track_caller]
#[expect(clippy::expect_used, reason = "for tests")]
pub fn values(tensor: &Tensor) -> Vec<f64> {
    let flat = tensor.detach().to_kind(Kind::Double).reshape([-1]);
    Vec::try_from(flat).expect("a flat tensor of doubles")
}

/// Neighbour number `neighbour` of a float32 tensor: each entry moves by up to ε = 2 u of itself, so that it is the float32
/// number before, the same or the next one. The factors are no random numbers: libtorch draws others with other instructions.
pub fn nudged(tensor: &Tensor, neighbour: u32) -> Tensor {
    let exact = tensor.detach().to_kind(Kind::Double);
    let places = Tensor::arange(exact.numel() as i64, (Kind::Double, exact.device())).reshape(exact.size());
    // The golden ratio spreads the multiples evenly over [0, 1).
    let spread = ((places + 1.0) * (0.618_033_988_749_895 * f64::from(2 * neighbour + 1))).frac();
    let moved: Tensor = &exact + &exact * (spread * 2.0 - 1.0) * f64::from(f32::EPSILON);
    moved.to_kind(Kind::Float)
}

/// The results of `run` with each neighbour of the parameters of `vs`, which are restored afterwards.
pub fn at_neighbours<T>(vs: &VarStore, mut run: impl FnMut() -> T) -> Vec<T> {
    let mut parameters: Vec<(String, Tensor)> = vs.variables().into_iter().collect();
    parameters.sort_by(|a, b| a.0.cmp(&b.0));
    let start: Vec<Tensor> = parameters.iter().map(|(_, own)| own.detach().copy()).collect();
    let mut put = |to: &dyn Fn(&Tensor) -> Tensor| {
        tch::no_grad(|| parameters.iter_mut().zip(&start).for_each(|((_, own), start)| own.copy_(&to(start))));
    };
    let found = (0..NEIGHBOURS)
        .map(|neighbour| {
            put(&|start| nudged(start, neighbour));
            run()
        })
        .collect();
    put(&Tensor::shallow_clone);
    found
}

/// Root mean square.
fn root_mean_square(errors: &[f64]) -> f64 {
    norm(errors) / (errors.len() as f64).sqrt()
}

/// Assert that `error` is at most [`RATIO`] times the root mean square of `peers`, and `floor`. Tells both on stderr.
///
/// # Panics
/// The error is larger, or a number is not finite.
#[track_caller]
#[expect(clippy::print_stderr, reason = "for tests: shown with --nocapture")]
pub fn assert_rounding(what: &str, error: f64, peers: &[f64], floor: f64) {
    let peer = root_mean_square(peers);
    let bound = RATIO * peer + floor;
    eprintln!("rounding: {:.3} of the bound, {:.3} of the peer: {what}: {error:.2e}", error / bound, error / peer);
    assert!(bound.is_finite(), "{what}: the peer's errors are {peers:?}");
    assert!(error <= bound, "{what}: an error of {error:e}, of a peer {peer:e}, {bound:e} at most ({floor:e} for any)");
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// 1/1 + 1/2 + … + 1/n, added one by one in float32.
    fn harmonic(terms: impl Iterator<Item = u32>) -> f64 {
        f64::from(terms.map(|n| 1.0 / n as f32).sum::<f32>())
    }

    #[test]
    fn sums_in_either_order_are_within_gamma() {
        let exact: f64 = (1..=10_000).map(|n| 1.0 / f64::from(n)).sum();
        let (up, down) = (harmonic(1..=10_000), harmonic((1..=10_000).rev()));
        assert!(up != down && up != exact, "they are rounded");
        for sum in [up, down] {
            // A term is divided, then added 9,999 times at most.
            assert!((sum - exact).abs() <= gamma(10_000) * exact, "{sum} {exact}");
        }
    }

    #[test]
    fn neighbours_are_next_to_their_numbers_and_differ() {
        let start: Vec<f32> = (1..200).map(|i| (i as f32 * 0.7).sin() * 1e-3).collect();
        let of = |neighbour| Vec::<f32>::try_from(nudged(&Tensor::from_slice(&start), neighbour)).unwrap();
        for neighbour in 0..NEIGHBOURS {
            let moved = of(neighbour);
            let by: Vec<i64> =
                start.iter().zip(&moved).map(|(a, b)| i64::from(a.to_bits()) - i64::from(b.to_bits())).collect();
            assert!(by.iter().all(|by| by.abs() <= 2), "{by:?}");
            assert!(by.iter().filter(|by| **by != 0).count() > by.len() / 3, "{by:?}");
            assert!(neighbour == 0 || moved != of(neighbour - 1));
        }
        assert_eq!(values(&nudged(&Tensor::from_slice(&[0f32, 0.0]), 3)), [0.0, 0.0]);
    }

    #[test]
    fn an_error_of_a_wrong_formula_is_refused() {
        let refused = |error: f64, peers: &[f64], floor: f64| {
            std::panic::catch_unwind(|| assert_rounding("made up", error, peers, floor)).is_err()
        };
        assert!(!refused(9.9e-7, &[1e-7, -1e-7], 0.0) && refused(1.1e-6, &[1e-7, -1e-7], 0.0));
        assert!(!refused(UNIT, &[0.0], floor(&[1.0], 1)) && refused(1e-5, &[0.0], floor(&[1.0], 100)));
        assert!(refused(f64::NAN, &[1e-7], 0.0) && refused(0.0, &[f64::NAN], 0.0) && refused(0.0, &[], 0.0));
        assert_eq!(distance(&[3.0, 0.0], &[0.0, 4.0]), 5.0);
    }
}
