//! Whether two parts of one series differ.

use super::blocks::Blocks;
use super::student::two_sided;
use super::{Periods, mean, median};

/// Steps whose mean is one value (the 5 of MSER-5), where there are enough of them.
const STEPS_IN_A_MEAN: usize = 5;
/// Means that a series is to have, even if each is then of fewer steps.
const MIN_MEANS: usize = 20;
/// Share of the difference of the means that that of the medians must be: a few slow steps are outliers, not another pace.
const STEADY: f64 = 0.3;

/// Means of a few steps each, and of how many.
pub(super) fn means_of_steps(times: &[f64]) -> (Vec<f64>, usize) {
    let group = (times.len() / MIN_MEANS).clamp(1, STEPS_IN_A_MEAN);
    (times.chunks_exact(group).map(|steps| steps.iter().sum::<f64>() / group as f64).collect(), group)
}

/// Means of whole periods, and the steps at which these begin and end; none below `least` of them.
pub(super) fn means_of_periods(times: &[f64], periods: &Periods, least: usize) -> Option<(Vec<f64>, Vec<usize>)> {
    let borders = periods.borders(times);
    let means: Vec<f64> = borders.windows(2).filter_map(|two| mean(&times[two[0]..two[1]])).collect();
    (means.len() >= least).then_some((means, borders))
}

/// True if the mean of one part of a series is another than that of the other, and its median, too.
///
/// Student's t with the long-run variance of `quiet`, which is the series without what may be different in it; `fitted` figures were
/// taken off it besides its mean.
pub(super) fn differ(one: &[f64], other: &[f64], quiet: &[f64], fitted: usize, level: f64) -> bool {
    let (Some(a), Some(b), Some(blocks)) = (mean(one), mean(other), Blocks::of(quiet)) else { return false };
    let (Some(middle_a), Some(middle_b)) = (median(one), median(other)) else { return false };
    let n = quiet.len() as f64;
    let spread = blocks.error * n / (n - fitted as f64).max(1.0).sqrt();
    let error = spread * (1.0 / one.len() as f64 + 1.0 / other.len() as f64).sqrt();
    // Few values do not tell more of their spread than Student's t allows.
    let freedom = blocks.freedom().min((n - 1.0 - fitted as f64).max(1.0));
    let apart = if error > 0.0 { two_sided((a - b) / error, freedom) < level } else { a != b };
    apart && (middle_a - middle_b) / (a - b) >= STEADY
}
