//! `sinkhorn` is the distribution loss of the published model: it compares the predictions of a batch with its labels as two sets of numbers,
//! whatever their order. The replay buffer adds earlier batches to both sets.

use tch::{Kind, TchError, Tensor};

/// Distance below which points count as equal, in the units of the points: the published value.
const BLUR: f64 = 0.05;
/// Ratio of successive widths: the published value.
const SCALING: f64 = 0.9;

/// Debiased Sinkhorn divergence between two sets of numbers, all of one weight, scalar; `x` float32 `[n]`, `y` float32 `[m]`. Gradients flow
/// into `x` alone.
///
/// With the cost C(x, y) = ½ |x − y|² and ε = blur² it is
///
///   S = OT(x, y) − ½ OT(x, x) − ½ OT(y, y) = Σ_i (f_i − p_i) / n + Σ_j (g_j − q_j) / m,
///
/// where f, g are the dual potentials of OT(x, y), and p, q those of OT(x, x) and OT(y, y). They are fixed points of
///
///   f_i = softmin_j (C(x_i, y_j) − g_j) = −ε ln Σ_j exp((g_j − C(x_i, y_j)) / ε) / m,
///
/// and so on. All four are updated at once, each to the mean of its old and its new value, while √ε falls from the
/// diameter of both sets to the blur. A last update, of the potentials held fixed on its right side, carries the gradient,
/// which by the envelope theorem is that of S.
///
/// Source: Feydy et al., Interpolating between Optimal Transport and MMD using Sinkhorn Divergences, AISTATS 2019,
/// algorithm 1 and section 3.3; sequence of ε and order of updates as in the authors' package geomloss. Where both sets lie
/// closer together than the blur, geomloss starts at their diameter, which fails if it is 0; here it starts at the blur.
///
/// # Errors
/// libtorch fails.
pub fn sinkhorn(x: &Tensor, y: &Tensor) -> Result<Tensor, TchError> {
    divergence(x, y, BLUR, SCALING)
}

fn divergence(x: &Tensor, y: &Tensor, blur: f64, scaling: f64) -> Result<Tensor, TchError> {
    let (x, y) = (x.f_to_kind(Kind::Float)?, y.f_to_kind(Kind::Float)?.f_detach()?);
    let fixed = x.f_detach()?;
    // Rows depend on x, columns do not: the update of a potential moves its own points alone.
    let costs = [cost(&x, &y)?, cost(&y, &fixed)?, cost(&x, &fixed)?, cost(&y, &y)?];
    let detached = costs.each_ref().map(Tensor::detach);
    let widths = widths(diameter(&fixed, &y)?, blur, scaling);
    let potentials = tch::no_grad(|| potentials(&detached, &widths))?;
    let [f, g, p, q] = update(&costs, &potentials, blur * blur)?;
    (f - p).f_mean(Kind::Float)?.f_add(&(g - q).f_mean(Kind::Float)?)
}

/// ½ |a_i − b_j|², `[n, m]`.
fn cost(a: &Tensor, b: &Tensor) -> Result<Tensor, TchError> {
    a.f_unsqueeze(1)?.f_sub(&b.f_unsqueeze(0)?)?.f_square()?.f_mul_scalar(0.5)
}

/// Length of the smallest interval that contains both sets.
fn diameter(x: &Tensor, y: &Tensor) -> Result<f64, TchError> {
    let all = Tensor::f_cat(&[x, y], 0)?;
    all.f_max()?.f_sub(&all.f_min()?)?.f_double_value(&[])
}

/// √ε of each round: the diameter twice, from there down by a factor each, and the blur.
fn widths(diameter: f64, blur: f64, scaling: f64) -> Vec<f64> {
    // Points that are not finite lead to a loss that is not, which the step reports.
    let start = if diameter.is_finite() { diameter.max(blur) } else { blur };
    let mut widths = vec![start];
    let mut width = start;
    while width > blur {
        widths.push(width);
        width *= scaling;
    }
    widths.push(blur);
    widths
}

/// The potentials f, g, p, q at the last width.
fn potentials(costs: &[Tensor; 4], widths: &[f64]) -> Result<[Tensor; 4], TchError> {
    let first = widths.first().copied().unwrap_or(1.0);
    let zeros = [1, 0, 2, 3].map(|other: usize| costs[other].size()[0]);
    let [a, b, c, d] = zeros.map(|n| Tensor::f_zeros([n], (Kind::Float, costs[0].device())));
    // The update of f reads g, and so on: each array of zeros has the length of its own potential.
    let mut now = update(costs, &[b?, a?, c?, d?], first * first)?;
    for width in widths {
        let new = update(costs, &now, width * width)?;
        for (now, new) in now.iter_mut().zip(new) {
            *now = now.f_add(&new)?.f_mul_scalar(0.5)?;
        }
    }
    Ok(now)
}

/// One update of all four potentials from `now`, at `epsilon`.
fn update(costs: &[Tensor; 4], now: &[Tensor; 4], epsilon: f64) -> Result<[Tensor; 4], TchError> {
    let [f, g, p, q] = now;
    Ok([
        softmin(&costs[0], g, epsilon)?,
        softmin(&costs[1], f, epsilon)?,
        softmin(&costs[2], p, epsilon)?,
        softmin(&costs[3], q, epsilon)?,
    ])
}

/// −ε ln mean_j exp((h_j − C_ij) / ε), `[n]`.
fn softmin(cost: &Tensor, potential: &Tensor, epsilon: f64) -> Result<Tensor, TchError> {
    let columns = cost.size()[1].max(1) as f64;
    let exponents = potential.f_sub(cost)?.f_mul_scalar(1.0 / epsilon)?;
    exponents.f_logsumexp([1i64].as_slice(), false)?.f_sub_scalar(columns.ln())?.f_mul_scalar(-epsilon)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expctl_rounding::{NEIGHBOURS, assert_rounding, floor, gamma, nudged, values};

    /// The formulas once more, with loops, in double precision.
    fn reference(x: &[f64], y: &[f64], blur: f64, scaling: f64) -> f64 {
        rounded_reference(x, y, blur, scaling, |value| value)
    }

    /// The same, with `round` after every operation on points and potentials.
    fn rounded_reference(x: &[f64], y: &[f64], blur: f64, scaling: f64, round: impl Fn(f64) -> f64) -> f64 {
        let sum = |terms: &[f64]| terms.iter().fold(0.0, |sum, term| round(sum + term));
        let softmin = |a: &[f64], b: &[f64], h: &[f64], epsilon: f64| -> Vec<f64> {
            let factor = round(1.0 / epsilon);
            a.iter()
                .map(|a| {
                    let cost = |b: &f64| 0.5 * round(round(a - b) * round(a - b));
                    let terms: Vec<f64> = b.iter().zip(h).map(|(b, h)| round(round(h - cost(b)) * factor)).collect();
                    let top = terms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let parts: Vec<f64> = terms.iter().map(|t| round(round(t - top).exp())).collect();
                    let logarithm = round(top + round(sum(&parts).ln()));
                    round(round(-epsilon) * round(logarithm - round((b.len() as f64).ln())))
                })
                .collect()
        };
        let all = || x.iter().chain(y).copied();
        let diameter = all().fold(f64::NEG_INFINITY, f64::max) - all().fold(f64::INFINITY, f64::min);
        // exp(e) for e in arange(2 ln diameter, 2 ln blur, 2 ln scaling)
        let rounds = ((blur.ln() - diameter.ln()) / scaling.ln()).ceil().max(0.0) as i32;
        let mut epsilons = vec![diameter * diameter];
        epsilons.extend((0..rounds).map(|k| diameter * diameter * (scaling * scaling).powi(k)));
        epsilons.push(blur * blur);
        let step = |f: &[f64], g: &[f64], p: &[f64], q: &[f64], e: f64| {
            [softmin(x, y, g, e), softmin(y, x, f, e), softmin(x, x, p, e), softmin(y, y, q, e)]
        };
        let (zx, zy) = (vec![0.0; x.len()], vec![0.0; y.len()]);
        let mut now = step(&zx, &zy, &zx, &zy, epsilons[0]);
        for e in &epsilons {
            let new = step(&now[0], &now[1], &now[2], &now[3], *e);
            for (now, new) in now.iter_mut().zip(&new) {
                now.iter_mut().zip(new).for_each(|(now, new)| *now = 0.5 * round(*now + new));
            }
        }
        let [f, g, p, q] = step(&now[0], &now[1], &now[2], &now[3], blur * blur);
        let mean = |a: &[f64], b: &[f64]| {
            let differences: Vec<f64> = a.iter().zip(b).map(|(a, b)| round(a - b)).collect();
            round(sum(&differences) / a.len() as f64)
        };
        round(mean(&f, &p) + mean(&g, &q))
    }

    /// The divergence is the function's value, but for rounding: its error is not larger than that of the loops in float32.
    #[track_caller]
    fn assert_value(x: &[f64], y: &[f64]) {
        let exact = reference(x, y, BLUR, SCALING);
        let peers: Vec<f64> = (0..NEIGHBOURS)
            .map(|neighbour| {
                let [x, y] = [x, y].map(|points| values(&nudged(&tensor(points), neighbour)));
                let single = rounded_reference(&x, &y, BLUR, SCALING, |value| f64::from(value as f32));
                single - reference(&x, &y, BLUR, SCALING)
            })
            .collect();
        let what = format!("{} and {} points", x.len(), y.len());
        // The result is a mean of differences of potentials, which are about as large as the largest cost.
        let points = || x.iter().chain(y).copied();
        let width = points().fold(f64::NEG_INFINITY, f64::max) - points().fold(f64::INFINITY, f64::min);
        assert_rounding(&what, (value(x, y, BLUR) - exact).abs(), &peers, floor(&[0.5 * width * width], 1));
    }

    fn points(n: usize, frequency: f64, shift: f64) -> Vec<f64> {
        (0..n).map(|i| f64::from((((i as f64 + 1.0) * frequency).sin() + shift) as f32)).collect()
    }

    fn tensor(values: &[f64]) -> Tensor {
        Tensor::from_slice(values).to_kind(Kind::Float)
    }

    fn value(x: &[f64], y: &[f64], blur: f64) -> f64 {
        divergence(&tensor(x), &tensor(y), blur, SCALING).unwrap().double_value(&[])
    }

    #[test]
    fn it_equals_loops_in_double_precision() {
        for (n, m, shift) in [(5, 5, 0.3), (40, 40, 1.5), (7, 12, -0.4), (2, 2, 0.0), (30, 30, 20.0)] {
            let (x, y) = (points(n, 1.7, shift), points(m, 2.9, 0.0));
            assert_value(&x, &y);
        }
    }

    #[test]
    fn with_little_blur_it_is_half_the_squared_distance_of_the_sorted_points() {
        let (mut x, mut y) = (points(24, 1.7, 0.8), points(24, 2.9, 0.0));
        x.sort_by(f64::total_cmp);
        y.sort_by(f64::total_cmp);
        let exact = x.iter().zip(&y).map(|(x, y)| 0.5 * (x - y) * (x - y)).sum::<f64>() / 24.0;
        // The difference is due to the blur: in double precision it would be the same.
        let got = value(&x, &y, 0.005);
        assert!((got - exact).abs() < 2e-3 * exact, "{got}, not {exact}");
    }

    #[test]
    fn a_shift_costs_half_its_square_and_nothing_costs_nothing() {
        let y = points(20, 2.9, 0.0);
        let moved: Vec<f64> = y.iter().map(|y| y + 2.0).collect();
        // The difference is due to the number of rounds.
        assert!((reference(&moved, &y, BLUR, SCALING) - 2.0).abs() < 1e-4);
        assert_value(&moved, &y);
        assert_value(&y, &y);
        // A single point on both sides: the diameter is 0.
        assert_eq!(value(&[0.5], &[0.5], BLUR), 0.0);
        assert!(value(&[f64::NAN, 1.0], &[0.5, 0.5], BLUR).is_nan());
        assert!(!value(&[f64::INFINITY, 1.0], &[0.5, 0.5], BLUR).is_finite());
    }

    #[test]
    fn its_gradient_is_that_of_finite_differences() {
        let (x, y) = (points(9, 1.7, 0.6), points(9, 2.9, 0.0));
        let gradient = |scaling: f64| {
            let leaf = tensor(&x).set_requires_grad(true);
            divergence(&leaf, &tensor(&y), BLUR, scaling).unwrap().backward();
            Vec::<f64>::try_from(leaf.grad().to_kind(Kind::Double)).unwrap()
        };
        // Converged: the gradient of the last update is that of the divergence only then.
        let (converged, published) = (gradient(0.995), gradient(SCALING));
        for (i, got) in converged.iter().enumerate() {
            let moved = |by: f64| {
                let mut x = x.clone();
                x[i] += by;
                reference(&x, &y, BLUR, 0.995)
            };
            let expected = (moved(1e-4) - moved(-1e-4)) / 2e-4;
            // A gradient is the mean difference of the points, weighed by exponentials of (potential − cost) / ε: the rounding
            // of what is divided by ε is the relative error of a weight. Points lie within a width of 3, potentials and costs
            // within half its square, each of some four roundings; the weights of a mean over 9 sum up to 1/9, for either set.
            let bound = gamma(4) * 2.0 * (0.5 * 3.0 * 3.0) / (BLUR * BLUR) * 3.0 * 2.0 / 9.0;
            assert!((got - expected).abs() < bound, "point {i}: {got}, not {expected}");
            // Far from converged.
            assert!((published[i] - expected).abs() < 2e-3, "point {i}: {}, not {expected}", published[i]);
        }
        assert!(converged.iter().any(|g| g.abs() > 0.02));
    }
}
