//! Whether two parts of one series differ.

use super::blocks::Blocks;
use super::correlogram::period;
use super::student::two_sided;
use super::{mean, median};

/// Steps whose mean is one value (the 5 of MSER-5), where there are enough of them.
const STEPS_IN_A_MEAN: usize = 5;
/// Means that a series is to have, even if each is then of fewer steps.
const MIN_MEANS: usize = 20;
/// Share of the difference of the means that that of the medians must be: a few slow steps are outliers, not another pace.
const STEADY: f64 = 0.3;

/// Means of a few steps each, and of how many: whole periods where there is one.
pub(super) fn means_of_steps(times: &[f64]) -> (Vec<f64>, usize) {
    // Of the second half, which a warm-up does not reach.
    let period = period(&times[times.len() / 2..]).unwrap_or(1);
    let wanted = (times.len() / MIN_MEANS).clamp(1, STEPS_IN_A_MEAN);
    let group = wanted.div_ceil(period) * period;
    (times.chunks_exact(group).map(|steps| steps.iter().sum::<f64>() / group as f64).collect(), group)
}

/// True if the mean of one part of a series is another than that of the other, and its median, too.
///
/// Student's t with the long-run variance of `quiet`, which is the series without what may be different in it; `fitted` figures were
/// taken off it besides its mean.
pub(super) fn differ(one: &[f64], other: &[f64], quiet: &[f64], fitted: usize, level: f64) -> bool {
    let (Some(a), Some(b), Some(blocks)) = (mean(one), mean(other), Blocks::of(quiet, None)) else { return false };
    let (Some(middle_a), Some(middle_b)) = (median(one), median(other)) else { return false };
    let n = quiet.len() as f64;
    let spread = blocks.error * n / (n - fitted as f64).max(1.0).sqrt();
    let error = spread * (1.0 / one.len() as f64 + 1.0 / other.len() as f64).sqrt();
    let apart = if error > 0.0 { two_sided((a - b) / error, blocks.freedom()) < level } else { a != b };
    apart && (middle_a - middle_b) / (a - b) >= STEADY
}
