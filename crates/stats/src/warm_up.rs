use serde::Serialize;

use super::parts::{differ, means_of_periods, means_of_steps};
use super::{MIN_PERIODS_FOR_SHAPE, Periods, mean, median};

/// Steps below which no shape is judged.
pub const MIN_STEPS_FOR_SHAPE: usize = 20;
/// Level at which the first steps differ from the rest. Far below 0.05, because every rank of every run is looked at, and where to
/// cut was chosen so that they differ most.
const LEVEL: f64 = 1e-4;
/// Change of the mean step time, as a share, below which a warm-up does no harm.
const HARM: f64 = 0.02;
/// Whole periods below which their means are not compared: fewer do not tell their spread well enough for the level.
const MIN_WHOLE_PERIODS: usize = 8;
/// Share of the difference of the means that that of the medians of the steps must be: one slow step is none.
const STEADY: f64 = 0.3;

/// The first steps of a run that are not like the rest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WarmUp {
    /// How many there are.
    pub steps: usize,
    /// Their mean time over that of the rest; below 1 where they are faster, as batches that lay ready are.
    pub ratio: f64,
    /// Mean time with them over the one without, less 1: what they do to the figure.
    pub harm: f64,
    /// Steps after which the series repeats itself, not always a whole number: what is left out should be whole periods.
    pub period: Option<f64>,
}

/// Steps at the start of a series that should not be measured; none if it starts as it goes on, or has fewer than
/// [`MIN_STEPS_FOR_SHAPE`] values.
///
/// Where to cut is MSER-5's choice: means of 5 steps, cut where the standard error of what is left is smallest. That
/// always cuts somewhere, so the part is only called a warm-up if it differs from the rest (t test with the rest's long-run
/// variance, level 10⁻⁴), changes the mean by 2 % or more, and differs in the median, too.
///
/// Where the series has `periods` (known ones, or [those that it shows](Periods::find)), that is done with what is left when each step's
/// usual time within its period is taken off, and, from eight whole periods on, with the means of these. Below three periods
/// nobody can tell a warm-up from a slow step that each period has, and none is reported.
///
/// Source: K. P. White, *An effective truncation heuristic for bias reduction in simulation output*, Simulation 69 (1997) 323–334;
/// K. P. White, M. J. Cobb, S. C. Spratt, *A comparison of five steady-state truncation heuristics*, WSC 2000, 755–760.
pub fn warm_up(times: &[f64], periods: Option<&Periods>) -> Option<WarmUp> {
    if times.len() < MIN_STEPS_FOR_SHAPE {
        return None;
    }
    // Of the second half, which a warm-up does not reach, where the whole series shows none.
    let found = || {
        let half = times.len() / 2;
        let late = Periods::find(&times[half..])?;
        Periods::new(late.length(), &[(half as f64).rem_euclid(late.length()) - late.length()], times.len())
    };
    let found = if periods.is_none() { Periods::find(times).or_else(found) } else { None };
    match periods.or(found.as_ref()) {
        None => of_steps(times),
        Some(periods) if periods.count() < MIN_PERIODS_FOR_SHAPE as f64 => None,
        Some(periods) => {
            let both = [within_periods(times, periods), of_periods(times, periods)];
            both.into_iter().flatten().max_by(|a, b| a.harm.abs().total_cmp(&b.harm.abs()))
        }
    }
}

/// Of a series without a period.
fn of_steps(times: &[f64]) -> Option<WarmUp> {
    let (means, group) = means_of_steps(times);
    let cut = cut(&means)?;
    let (first, rest) = (times.get(..cut * group)?, times.get(cut * group..)?);
    let (slow, usual) = (mean(first)?, mean(rest)?);
    let apart = (median(first)? - median(rest)?) / (slow - usual) >= STEADY;
    let found = WarmUp { steps: first.len(), ratio: slow / usual, harm: mean(times)? / usual - 1.0, period: None };
    (apart && found.harms(usual) && stands_out(&means, cut)).then_some(found)
}

/// Of the steps, without what is usual in their period.
fn within_periods(times: &[f64], periods: &Periods) -> Option<WarmUp> {
    let adjusted = periods.adjusted(times)?;
    let (means, group) = means_of_steps(&adjusted.rest);
    let cut = cut(&means)?;
    let steps = cut * group;
    let ratios: Vec<f64> = times.iter().zip(&adjusted.usual).map(|(time, usual)| time / usual).collect();
    // A median, because the slow step of a period may come beside its usual place.
    let ratio = median(ratios.get(..steps)?)? / median(ratios.get(steps..)?)?;
    let usual: f64 = adjusted.usual[..steps].iter().sum();
    let more = usual * (ratio - 1.0);
    let total: f64 = times.iter().sum();
    let found = WarmUp { steps, ratio, harm: more / (total - more), period: Some(periods.length()) };
    (found.harms(total) && stands_out(&means, cut)).then_some(found)
}

/// Of the means of whole periods, which know their slow steps, too.
fn of_periods(times: &[f64], periods: &Periods) -> Option<WarmUp> {
    let (means, borders) = means_of_periods(times, periods, MIN_WHOLE_PERIODS)?;
    let cut = cut(&means)?;
    let steps = *borders.get(cut)?;
    let whole = times.get(*borders.first()?..*borders.last()?)?;
    let (slow, usual) = (mean(&means[..cut])?, mean(&means[cut..])?);
    let harm = mean(whole)? / usual - 1.0;
    let found = WarmUp { steps, ratio: slow / usual, harm, period: Some(periods.length()) };
    (found.harms(usual) && stands_out(&means, cut)).then_some(found)
}

/// Whether the first `cut` means differ from the others.
fn stands_out(means: &[f64], cut: usize) -> bool {
    let (first, rest) = means.split_at(cut);
    differ(first, rest, rest, 0, LEVEL)
}

impl WarmUp {
    fn harms(&self, usual: f64) -> bool {
        usual > 0.0 && self.harm.abs() >= HARM
    }
}

/// How many means to cut; none if it is best to cut none, or half of them or more: then the series never settles, and its halves
/// differ ([`drift`](super::drift())).
fn cut(means: &[f64]) -> Option<usize> {
    let n = means.len();
    let (mut sum, mut squares) = (0.0, 0.0);
    let mut best = (f64::INFINITY, 0);
    let origin = mean(means)?;
    for start in (0..n).rev() {
        let value = means[start] - origin;
        (sum, squares) = (sum + value, squares + value * value);
        let left = (n - start) as f64;
        let error = (squares - sum * sum / left).max(0.0) / (left * left);
        // Of equal ones the one that cuts less.
        if 2 * start <= n && error <= best.0 {
            best = (error, start);
        }
    }
    (best.1 > 0 && 2 * best.1 + 1 < n).then_some(best.1)
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
}
