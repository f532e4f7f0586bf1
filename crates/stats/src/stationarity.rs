//! Whether a series of step times goes on as it starts: warm-up at its beginning, drift in its course.

use serde::Serialize;

use crate::block_bootstrap::BlockBootstrap;
use crate::student::two_sided;
use crate::{MIN_PERIODS_FOR_SHAPE, Periods, mean, median};

/// Steps below which no shape is judged.
pub const MIN_STEPS_FOR_SHAPE: usize = 20;
/// Steps whose mean is one value (the 5 of MSER-5), where there are enough of them.
const STEPS_PER_MEAN: usize = 5;
/// Means that a series should have, even if each is then of fewer steps.
const MIN_MEANS: usize = 20;
/// Least ratio of the difference of the medians to that of the means: a few slow steps are outliers, not another pace.
const STEADY: f64 = 0.3;

/// Level at which the first steps differ from the rest. Far below 0.05, because every rank of every run is tested, and where to cut was
/// chosen so that they differ most.
const WARM_UP_LEVEL: f64 = 1e-4;
/// Change of the mean step time, as a share, below which a warm-up is not reported.
const WARM_UP_MIN_EFFECT: f64 = 0.02;
/// Whole periods below which their means are not compared: fewer do not tell their spread well enough for the level.
const WARM_UP_MIN_PERIODS: usize = 8;

/// Level at which the halves differ. Below 0.05, because every rank of every run is tested.
const DRIFT_LEVEL: f64 = 5e-4;
/// Difference of the halves, as a share, below which a drift is not reported.
const DRIFT_MIN_EFFECT: f64 = 0.05;
/// Whole periods below which their means are not compared: beside a line in each half, fewer leave too few residuals to tell a spread.
const DRIFT_MIN_PERIODS: usize = 16;
/// Parameters of a line in each half beyond the mean of the series: two slopes and one mean.
const DRIFT_PARAMETERS: usize = 3;

/// The first steps of a run that are not like the rest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WarmUp {
    /// Number of these steps.
    pub steps: usize,
    /// Mean time of these steps over that of the rest; below 1 where they are faster, because their batches were prefetched.
    pub ratio: f64,
    /// Mean time with these steps over the mean time without, minus 1: their effect on the figure.
    pub harm: f64,
    /// Steps after which the series repeats itself, not always a whole number: whole periods should be left out.
    pub period: Option<f64>,
}

/// Change of step times in the course of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Drift {
    /// Mean time of a step in the second half over that in the first.
    pub ratio: f64,
}

/// Steps at the start of a series that should not be measured; `None` if it starts as it goes on, or has fewer than
/// [`MIN_STEPS_FOR_SHAPE`] values. `times` are in order, in any unit.
///
/// MSER-5 chooses the cut: of the means of 5 steps each, cut the first d so that Σ (x − x̄)² / (n − d)² over the rest is smallest. It always
/// cuts somewhere, so the first part is only called a warm-up if its mean differs from that of the rest (t test with the rest's long-run
/// variance, level 10⁻⁴), its median does as well, and it changes the mean of all by 2 % or more.
///
/// Where the series has `periods` (known ones, or [those found in it](Periods::find)), each step's usual time within its period is
/// subtracted first; from eight whole periods on, the means of these are tested, too. Below three periods nothing tells a warm-up from a
/// slow step that each period has, and none is reported.
///
/// Source: K. P. White, *An effective truncation heuristic for bias reduction in simulation output*, Simulation 69 (1997) 323–334;
/// K. P. White, M. J. Cobb, S. C. Spratt, *A comparison of five steady-state truncation heuristics*, WSC 2000, 755–760.
pub fn warm_up(times: &[f64], periods: Option<&Periods>) -> Option<WarmUp> {
    if times.len() < MIN_STEPS_FOR_SHAPE {
        return None;
    }
    // A long warm-up may hide the periods of the whole series; the second half still shows them.
    let of_second_half = || {
        let half = times.len() / 2;
        let late = Periods::find(&times[half..])?;
        Periods::new(late.length(), &[(half as f64).rem_euclid(late.length()) - late.length()], times.len())
    };
    let found = if periods.is_none() { Periods::find(times).or_else(of_second_half) } else { None };
    match periods.or(found.as_ref()) {
        None => warm_up_of_steps(times),
        Some(periods) if periods.count() < MIN_PERIODS_FOR_SHAPE as f64 => None,
        Some(periods) => {
            let both = [warm_up_within_periods(times, periods), warm_up_of_periods(times, periods)];
            both.into_iter().flatten().max_by(|a, b| a.harm.abs().total_cmp(&b.harm.abs()))
        }
    }
}

/// The warm-up of a series without a period.
fn warm_up_of_steps(times: &[f64]) -> Option<WarmUp> {
    let (means, group) = means_of_steps(times);
    let cut = mser_cut(&means)?;
    let (first, rest) = (times.get(..cut * group)?, times.get(cut * group..)?);
    let (slow, usual) = (mean(first)?, mean(rest)?);
    let apart = (median(first)? - median(rest)?) / (slow - usual) >= STEADY;
    let found = WarmUp { steps: first.len(), ratio: slow / usual, harm: mean(times)? / usual - 1.0, period: None };
    (apart && found.matters(usual) && stands_out(&means, cut)).then_some(found)
}

/// The warm-up of the steps, without what is usual in their period.
fn warm_up_within_periods(times: &[f64], periods: &Periods) -> Option<WarmUp> {
    let adjusted = periods.adjusted(times)?;
    let (means, group) = means_of_steps(&adjusted.rest);
    let cut = mser_cut(&means)?;
    let steps = cut * group;
    let ratios: Vec<f64> = times.iter().zip(&adjusted.usual).map(|(time, usual)| time / usual).collect();
    // A median, because the slow step of a period may come beside its usual phase.
    let ratio = median(ratios.get(..steps)?)? / median(ratios.get(steps..)?)?;
    let usual: f64 = adjusted.usual[..steps].iter().sum();
    let more = usual * (ratio - 1.0);
    let total: f64 = times.iter().sum();
    let found = WarmUp { steps, ratio, harm: more / (total - more), period: Some(periods.length()) };
    (found.matters(total) && stands_out(&means, cut)).then_some(found)
}

/// The warm-up of the means of whole periods, which contain their slow steps.
fn warm_up_of_periods(times: &[f64], periods: &Periods) -> Option<WarmUp> {
    let (means, borders) = means_of_periods(times, periods, WARM_UP_MIN_PERIODS)?;
    let cut = mser_cut(&means)?;
    let steps = *borders.get(cut)?;
    let whole = times.get(*borders.first()?..*borders.last()?)?;
    let (slow, usual) = (mean(&means[..cut])?, mean(&means[cut..])?);
    let harm = mean(whole)? / usual - 1.0;
    let found = WarmUp { steps, ratio: slow / usual, harm, period: Some(periods.length()) };
    (found.matters(usual) && stands_out(&means, cut)).then_some(found)
}

/// Whether the first `cut` means differ from the others.
fn stands_out(means: &[f64], cut: usize) -> bool {
    let (first, rest) = means.split_at(cut);
    differ(first, rest, rest, 0, WARM_UP_LEVEL)
}

impl WarmUp {
    fn matters(&self, usual: f64) -> bool {
        usual > 0.0 && self.harm.abs() >= WARM_UP_MIN_EFFECT
    }
}

/// Number of means to cut by MSER; `None` if the best cut is none, or half of them or more: then the series never settles, and its halves
/// differ ([`drift`]).
fn mser_cut(means: &[f64]) -> Option<usize> {
    let n = means.len();
    let (mut sum, mut squares) = (0.0, 0.0);
    let mut best = (f64::INFINITY, 0);
    let origin = mean(means)?;
    for start in (0..n).rev() {
        let value = means[start] - origin;
        (sum, squares) = (sum + value, squares + value * value);
        let left = (n - start) as f64;
        let error = (squares - sum * sum / left).max(0.0) / (left * left);
        // Among equal ones, the one that cuts less.
        if 2 * start <= n && error <= best.0 {
            best = (error, start);
        }
    }
    (best.1 > 0 && 2 * best.1 + 1 < n).then_some(best.1)
}

/// The drift of a series whose halves differ; `None` if they do not, or below [`MIN_STEPS_FOR_SHAPE`] values. `times` are in order, in any
/// unit.
///
/// Student's t compares the means of the halves with the long-run variance about a straight line in each (level 0.0005); their medians
/// must differ as well, and their means by 5 % or more. A steady trend shows so, and a change of pace within the run, too.
///
/// Where the series has `periods` (known ones, or [those found in it](Periods::find)), each step's usual time within its period is
/// subtracted first; from sixteen whole periods on, the means of these are tested, too. Below three periods no drift is reported: the
/// halves do not have the same share of slow steps.
pub fn drift(times: &[f64], periods: Option<&Periods>) -> Option<Drift> {
    if times.len() < MIN_STEPS_FOR_SHAPE {
        return None;
    }
    let found = if periods.is_none() { Periods::find(times) } else { None };
    match periods.or(found.as_ref()) {
        None => drift_of_means(&means_of_steps(times).0),
        Some(periods) if periods.count() < MIN_PERIODS_FOR_SHAPE as f64 => None,
        Some(periods) => {
            let adjusted = periods.adjusted(times)?;
            let of_periods = || drift_of_means(&means_of_periods(times, periods, DRIFT_MIN_PERIODS)?.0);
            drift_of_means(&means_of_steps(&adjusted.rest).0).or_else(of_periods)
        }
    }
}

fn drift_of_means(means: &[f64]) -> Option<Drift> {
    let (first, second) = means.split_at(means.len() / 2);
    let (before, after) = (mean(first)?, mean(second)?);
    let residuals = [line_residuals(first), line_residuals(second)].concat();
    let ratio = after / before;
    let matters = before > 0.0 && ratio.ln().abs() >= DRIFT_MIN_EFFECT.ln_1p();
    (matters && differ(first, second, &residuals, DRIFT_PARAMETERS, DRIFT_LEVEL)).then_some(Drift { ratio })
}

/// Residuals of values about their straight line of least squares.
fn line_residuals(values: &[f64]) -> Vec<f64> {
    let centre = (values.len() as f64 - 1.0) / 2.0;
    let middle = mean(values).unwrap_or_default();
    let points = || values.iter().enumerate().map(|(i, value)| (i as f64 - centre, value - middle));
    let squares: f64 = points().map(|(x, _)| x * x).sum();
    let slope = if squares > 0.0 { points().map(|(x, y)| x * y).sum::<f64>() / squares } else { 0.0 };
    points().map(|(x, y)| y - slope * x).collect()
}

/// Means of a few steps each, and of how many.
fn means_of_steps(times: &[f64]) -> (Vec<f64>, usize) {
    let group = (times.len() / MIN_MEANS).clamp(1, STEPS_PER_MEAN);
    (times.chunks_exact(group).map(|steps| steps.iter().sum::<f64>() / group as f64).collect(), group)
}

/// Means of whole periods, and the steps at which these begin and end; `None` below `min` of them.
fn means_of_periods(times: &[f64], periods: &Periods, min: usize) -> Option<(Vec<f64>, Vec<usize>)> {
    let borders = periods.borders(times);
    let means: Vec<f64> = borders.windows(2).filter_map(|two| mean(&times[two[0]..two[1]])).collect();
    (means.len() >= min).then_some((means, borders))
}

/// True if the means of two parts of a series differ, and their medians as well.
///
/// Student's t with the long-run variance of `residuals`: the series without what may be different in it, with `parameters` fitted beside
/// its mean.
fn differ(one: &[f64], other: &[f64], residuals: &[f64], parameters: usize, level: f64) -> bool {
    let (Some(a), Some(b), Some(blocks)) = (mean(one), mean(other), BlockBootstrap::from_series(residuals)) else {
        return false;
    };
    let (Some(median_a), Some(median_b)) = (median(one), median(other)) else { return false };
    let n = residuals.len() as f64;
    let spread = blocks.error * n / (n - parameters as f64).max(1.0).sqrt();
    let error = spread * (1.0 / one.len() as f64 + 1.0 / other.len() as f64).sqrt();
    // Few values do not tell more of their spread than Student's t allows.
    let freedom = blocks.freedom().min((n - 1.0 - parameters as f64).max(1.0));
    let apart = if error > 0.0 { two_sided((a - b) / error, freedom) < level } else { a != b };
    apart && (median_a - median_b) / (a - b) >= STEADY
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reproducible noise of a few percent.
    fn noise(i: usize) -> f64 {
        1.0 + ((i * i * 7919 % 1009) as f64 - 504.0) / 10_000.0
    }

    #[test]
    fn a_warm_up_is_found_and_measured() {
        let times: Vec<f64> = (0..400).map(|i| noise(i) * if i < 40 { 3.0 } else { 1.0 }).collect();
        let found = warm_up(&times, None).unwrap();
        assert_eq!(found.steps, 40);
        assert!((found.ratio - 3.0).abs() < 0.05 && (found.harm - 0.2).abs() < 0.01, "{found:?}");
        // One that fades.
        let times: Vec<f64> = (0..400).map(|i| noise(i) + 2.0 * (-(i as f64) / 15.0).exp()).collect();
        let found = warm_up(&times, None).unwrap();
        assert!((30..=80).contains(&found.steps), "{found:?}");
        // Batches that lay ready.
        let times: Vec<f64> = (0..200).map(|i| noise(i) * if i < 16 { 0.1 } else { 1.0 }).collect();
        let found = warm_up(&times, None).unwrap();
        assert!(found.ratio < 0.5 && (15..=20).contains(&found.steps), "{found:?}");
    }

    #[test]
    fn a_steady_run_has_none() {
        let steady: Vec<f64> = (0..400).map(noise).collect();
        assert_eq!(warm_up(&steady, None), None);
        // A slow step early on is an outlier; every tenth slow is a period.
        let spike: Vec<f64> = (0..400).map(|i| if i == 31 { 20.0 } else { noise(i) }).collect();
        assert_eq!(warm_up(&spike, None), None);
        let periodic: Vec<f64> = (0..400).map(|i| if i % 10 == 0 { 100.0 } else { 1.0 } * noise(i)).collect();
        assert_eq!(warm_up(&periodic, None), None);
        assert_eq!((warm_up(&[1.0; 100], None), warm_up(&[2.0; 19], None)), (None, None));
    }

    fn wide_noise(i: usize) -> f64 {
        1.0 + ((i * i * 7919 % 1009) as f64 - 504.0) / 5000.0
    }

    #[test]
    fn a_trend_is_found_and_measured() {
        let rising: Vec<f64> = (0..500).map(|i| wide_noise(i) + 0.4 * i as f64 / 500.0).collect();
        let found = drift(&rising, None).unwrap();
        // 1.3 on average in the second half, 1.1 in the first.
        assert!((found.ratio - 1.3 / 1.1).abs() < 0.02, "{found:?}");
        let falling: Vec<f64> = rising.iter().rev().copied().collect();
        assert!((drift(&falling, None).unwrap().ratio * 1.3 / 1.1 - 1.0).abs() < 0.02);
        let step: Vec<f64> = (0..500).map(|i| wide_noise(i) * if i < 250 { 1.0 } else { 1.4 }).collect();
        assert!((drift(&step, None).unwrap().ratio - 1.4).abs() < 0.02);
    }

    #[test]
    fn what_only_swings_does_not_drift() {
        let steady: Vec<f64> = (0..500).map(wide_noise).collect();
        let small: Vec<f64> = (0..500).map(|i| wide_noise(i) + 0.05 * i as f64 / 500.0).collect();
        let waves: Vec<f64> = (0..500).map(|i| wide_noise(i) + 0.3 * (i as f64 / 20.0).sin()).collect();
        let periodic: Vec<f64> = (0..500).map(|i| if i % 10 == 0 { 100.0 } else { 1.0 } * wide_noise(i)).collect();
        let spike: Vec<f64> = (0..500).map(|i| if i == 400 { 100.0 } else { wide_noise(i) }).collect();
        for series in [steady, small, waves, periodic, spike, vec![1.0; 100], vec![1.0; 5]] {
            assert_eq!(drift(&series, None), None);
        }
    }
}
