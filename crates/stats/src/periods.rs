//! Periods of a series of step times: blocks of rows that are read together, loader threads that deliver in turn.

use std::fmt;
use std::sync::Arc;

use realfft::{ComplexToReal, FftNum, RealFftPlanner, RealToComplex};

use crate::block_bootstrap::centred;
use crate::{mean, median, modified_z};

/// Steps at the start of a series in which a period is looked for.
const SEARCHED_STEPS: usize = 1 << 18;
/// Repetitions that a series must have before they are called a period.
const MIN_REPETITIONS: usize = 8;
/// Correlation over one period, and over two, below which there is none.
const PERIODIC: (f64, f64) = (0.3, 0.15);
/// Height of the peak of the correlation at a period above the lag before.
const PEAK: f64 = 0.2;
/// Period from which slow steps may slip by a step.
const MAY_SLIP: usize = 32;
/// Correlation of the slowest steps over one period, and over two, a step earlier or later, below which there is none.
const RECURS: (f64, f64) = (0.5, 0.35);
/// Share of the steps that may be slow ones.
const FEW: f64 = 0.05;
/// Distance of the borders of a period from its slowest step, which may come a step earlier or later, as a share of the period.
const CLEAR_OF_PEAK: f64 = 0.125;
/// Robust standard deviations at which residuals from the usual period are clipped.
const CLIP: f64 = 3.5;

/// Periods from which on the median over periods tells the usual time at a phase: with three, no single one decides.
pub const MIN_PERIODS_FOR_SHAPE: usize = 3;

/// Periods of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct Periods {
    /// Steps of a period; at least 2, not always a whole number.
    length: f64,
    /// Start of each, in steps of the series, in order. The first one may lie before the series.
    starts: Vec<f64>,
    /// Steps of the series.
    steps: usize,
}

/// A series without its periodic component.
pub struct Adjusted {
    /// Usual time of each step: the median over the periods at its phase.
    pub usual: Vec<f64>,
    /// Mean usual time plus each step's residual from its usual time; outliers are clipped.
    pub rest: Vec<f64>,
}

impl Periods {
    /// Periods of `length` steps in a series of `steps`, beginning anew at each of `origins` (the starts of epochs, in steps of the
    /// series, in order; the first one at or before 0). `None` where a period is shorter than 2 steps.
    pub fn new(length: f64, origins: &[f64], steps: usize) -> Option<Self> {
        if !length.is_finite() || length < 2.0 {
            return None;
        }
        let mut starts = Vec::new();
        for (i, origin) in origins.iter().enumerate() {
            let end = origins.get(i + 1).copied().unwrap_or(steps as f64).min(steps as f64);
            // Periods that end before the series are skipped.
            let first = (-origin / length).floor().max(0.0);
            let here = (0..).map(|k| origin + (first + f64::from(k)) * length).take_while(|start| *start < end);
            starts.extend(here);
        }
        (!starts.is_empty()).then_some(Self { length, starts, steps })
    }

    /// Periods found in the series itself; `None` if it shows none.
    ///
    /// The shortest lag p, up to an eighth of the series, at which the autocorrelation r has a peak (r(p) > 0.3, r(p) > r(p − 1) + 0.2, r(p) ≥
    /// r(p + 1)) that occurs again at 2p (r > 0.15). Where there is none, the same is looked for in the slowest steps alone, which may come a
    /// step early or late. The peaks at 2p, 4p, … make p exact to a fraction of a step.
    pub fn find(series: &[f64]) -> Option<Self> {
        let seen = &series[..series.len().min(SEARCHED_STEPS)];
        let longest = seen.len() / MIN_REPETITIONS;
        if longest < 2 {
            return None;
        }
        let all = || {
            let r = correlation(seen)?;
            let peaks = |p: usize| r[p] > PERIODIC.0 && r[p] > r[p - 1] + PEAK && r[p] >= r[p + 1];
            let lag = (2..=longest).find(|p| peaks(*p) && r[2 * *p] > PERIODIC.1)?;
            Some(refine(lag, &r))
        };
        let slowest = || {
            let r = correlation(&slow_scores(seen)?)?;
            // Summed over two lags on either side, because each of two slow steps may be a step off.
            let near: Vec<f64> =
                (0..r.len()).map(|p| r[p.saturating_sub(2)..(p + 3).min(r.len())].iter().sum()).collect();
            let clear = |p: usize| near[p] > RECURS.0 && near[2 * p] > RECURS.1;
            let first = (MAY_SLIP..=longest).find(|p| clear(*p))?;
            let lag = (first..(first + 5).min(near.len())).max_by(|a, b| near[*a].total_cmp(&near[*b]))?;
            Some(refine(lag, &near))
        };
        Self::new(all().or_else(slowest)?, &[0.0], series.len())
    }

    /// Steps of a period; not always a whole number.
    pub const fn length(&self) -> f64 {
        self.length
    }

    /// Steps of the series.
    pub const fn steps(&self) -> usize {
        self.steps
    }

    /// Number of periods of the series, incomplete ones included.
    pub fn count(&self) -> f64 {
        self.steps as f64 / self.length
    }

    /// The periods of the series without its first `steps`.
    pub fn behind(&self, steps: usize) -> Self {
        let starts: Vec<f64> = self.starts.iter().map(|start| start - steps as f64).collect();
        let first = starts.partition_point(|start| *start <= 0.0).saturating_sub(1);
        Self { length: self.length, starts: starts[first..].to_vec(), steps: self.steps.saturating_sub(steps) }
    }

    /// The phase of each step: its whole steps behind the start of its period.
    fn phases(&self) -> Vec<usize> {
        let last = (self.length.floor() as usize).max(1) - 1;
        let mut next = 0;
        (0..self.steps)
            .map(|step| {
                while self.starts.get(next + 1).is_some_and(|start| *start <= step as f64) {
                    next += 1;
                }
                // Before the first start lies the end of a period.
                let behind = (step as f64 - self.starts[next]).rem_euclid(self.length);
                (behind as usize).min(last)
            })
            .collect()
    }

    /// The usual time at each phase: the median over the periods; `None` at a phase without a step.
    fn profile(&self, times: &[f64], phases: &[usize]) -> Vec<Option<f64>> {
        let mut at: Vec<Vec<f64>> = vec![Vec::new(); phases.iter().max().map_or(0, |last| last + 1)];
        phases.iter().zip(times).for_each(|(phase, time)| at[*phase].push(*time));
        at.iter().map(|times| median(times)).collect()
    }

    /// Steps at which a period ends and the next begins, away from the slowest steps. The pieces before the first and behind the last are
    /// not whole periods. Fewer than two borders where there is no whole period.
    pub fn borders(&self, times: &[f64]) -> Vec<usize> {
        let profile = self.profile(times, &self.phases());
        let slowest = profile.iter().enumerate().max_by(|a, b| a.1.unwrap_or(0.0).total_cmp(&b.1.unwrap_or(0.0)));
        let peak = slowest.map_or(0.0, |(phase, _)| phase as f64);
        let clear = CLEAR_OF_PEAK * self.length;
        let near = peak < clear || peak > self.length - clear;
        let offset = if near { (peak + clear) % self.length } else { 0.0 };
        let mut borders: Vec<usize> = Vec::new();
        let first = self.starts.first().map_or(0.0, |start| start - self.length);
        for start in std::iter::once(first).chain(self.starts.iter().copied()) {
            let border = (start + offset).ceil();
            // An incomplete period at the end of an epoch belongs to the one before.
            let apart = borders.last().is_none_or(|last| border - *last as f64 >= self.length / 2.0);
            if (0.0..=self.steps as f64).contains(&border) && apart {
                borders.push(border as usize);
            }
        }
        let end = borders.last().map_or(0.0, |last| *last as f64 + self.length);
        if (end - self.steps as f64).abs() < 0.5 {
            borders.push(self.steps);
        }
        borders
    }

    /// Steps and summed time of each whole period. The pieces before the first border and behind the last are one more where they make
    /// up a whole one, with each phase once.
    pub fn sums(&self, times: &[f64]) -> Vec<(f64, f64)> {
        let borders = self.borders(times);
        let whole = |piece: &[f64]| (piece.len() as f64, piece.iter().sum::<f64>());
        let mut sums: Vec<(f64, f64)> = borders.windows(2).map(|two| whole(&times[two[0]..two[1]])).collect();
        if let (Some(first), Some(last)) = (borders.first(), borders.last()) {
            let (lead, trail) = (&times[..*first], &times[*last..]);
            let missing = (self.length.round() as usize).saturating_sub(trail.len());
            if missing <= lead.len() && missing + trail.len() > 0 && !trail.is_empty() {
                let (a, b) = (whole(&lead[lead.len() - missing..]), whole(trail));
                sums.push((a.0 + b.0, a.1 + b.1));
            }
        }
        sums
    }

    /// The series without its periodic component; `None` below [`MIN_PERIODS_FOR_SHAPE`] periods, too few to tell what is usual.
    pub fn adjusted(&self, times: &[f64]) -> Option<Adjusted> {
        if self.count() < MIN_PERIODS_FOR_SHAPE as f64 {
            return None;
        }
        let phases = self.phases();
        let profile = self.profile(times, &phases);
        let usual: Vec<f64> = phases.iter().zip(times).map(|(phase, time)| profile[*phase].unwrap_or(*time)).collect();
        let mut rest: Vec<f64> = times.iter().zip(&usual).map(|(time, usual)| time - usual).collect();
        let (middle, scores) = (median(&rest)?, modified_z(&rest));
        let scale = rest.iter().zip(&scores).find(|(_, z)| **z != 0.0).map_or(0.0, |(r, z)| (r - middle) / z);
        let level = mean(&usual)?;
        for value in &mut rest {
            *value = level + value.clamp(middle - CLIP * scale, middle + CLIP * scale);
        }
        Some(Adjusted { usual, rest })
    }

    /// The steps of `slow` that the period does not explain: at whose phase, or beside it, less than half of the periods have a slow step.
    pub fn unexplained(&self, slow: &[usize]) -> Vec<usize> {
        let phases = self.phases();
        let phase_count = phases.iter().max().map_or(0, |last| last + 1);
        let period = |step: usize| self.starts.partition_point(|start| *start <= step as f64);
        let mut periods_at: Vec<Vec<usize>> = vec![Vec::new(); phase_count];
        slow.iter().for_each(|step| periods_at[phases[*step]].push(period(*step)));
        let reach = if self.length < 8.0 { 0 } else { (1 + (self.length / 32.0) as usize).min(phase_count / 2) };
        let explained: Vec<bool> = (0..phase_count)
            .map(|phase| {
                let around = (0..=2 * reach).map(|i| (phase + phase_count + i - reach) % phase_count);
                let mut with: Vec<usize> = around.flat_map(|near| periods_at[near].iter().copied()).collect();
                with.sort_unstable();
                with.dedup();
                2.0 * with.len() as f64 >= self.count().floor()
            })
            .collect();
        slow.iter().copied().filter(|step| !explained[phases[*step]]).collect()
    }
}

/// Autocorrelation up to half of the series; `None` for values that are all equal.
fn correlation(series: &[f64]) -> Option<Vec<f64>> {
    let products = LaggedProducts::default().compute(&centred(series), series.len() / 2 + 2);
    // The sum of squares of equal values is rounding error.
    let some = products[0] > 1e-12 * series.iter().map(|v| v * v).sum::<f64>();
    some.then(|| products.iter().map(|product| product / products[0]).collect())
}

/// The modified z score of each step beyond the bound of outliers, else 0; `None` where no step is slow, or more than 5 % are.
fn slow_scores(series: &[f64]) -> Option<Vec<f64>> {
    let scores = modified_z(series);
    let beyond: Vec<f64> = scores.iter().map(|score| (score - CLIP).max(0.0)).collect();
    let slow = beyond.iter().filter(|score| **score > 0.0).count();
    (slow > 0 && slow as f64 <= FEW * series.len() as f64).then_some(beyond)
}

/// A period to a fraction of a step, by the correlation at its multiples, up to half of the series.
fn refine(lag: usize, r: &[f64]) -> f64 {
    let (mut multiple, mut at) = (1.0, lag as f64);
    loop {
        let next = 2.0 * at;
        // Twice the lag is known to two steps, if the lag was known to one; for short periods that would be another multiple.
        let reach = (lag.saturating_sub(1) / 2).min(2);
        let near = next as usize - reach..=next as usize + reach;
        if *near.end() >= r.len() {
            return at / multiple;
        }
        let Some(best) = near.max_by(|a, b| r[*a].total_cmp(&r[*b])).filter(|best| r[*best] > PERIODIC.1 / 2.0) else {
            return at / multiple;
        };
        (multiple, at) = (2.0 * multiple, best as f64);
    }
}

/// Computes sums of lagged products, Σᵢ xᵢ·xᵢ₊ₖ, by the fast Fourier transform; keeps its tables for series of about the same length.
pub struct LaggedProducts<T: FftNum> {
    planner: RealFftPlanner<T>,
    transforms: Option<Transforms<T>>,
}

/// The forward and inverse transform of one length.
struct Transforms<T> {
    length: usize,
    forward: Arc<dyn RealToComplex<T>>,
    inverse: Arc<dyn ComplexToReal<T>>,
}

impl<T: FftNum> Default for LaggedProducts<T> {
    fn default() -> Self {
        Self { planner: RealFftPlanner::new(), transforms: None }
    }
}

impl<T: FftNum + Into<f64>> LaggedProducts<T> {
    /// Σᵢ xᵢ·xᵢ₊ₖ for the lags k = 0 … `count` − 1, by the Wiener–Khinchin theorem; in the squared unit of `values`.
    pub fn compute(&mut self, values: &[T], count: usize) -> Vec<f64> {
        // Zeros behind the values, so that the end does not meet the start.
        let length = (values.len() + count).next_power_of_two();
        let Transforms { forward, inverse, .. } = match self.transforms.take() {
            Some(transforms) if transforms.length == length => transforms,
            _ => Transforms {
                length,
                forward: self.planner.plan_fft_forward(length),
                inverse: self.planner.plan_fft_inverse(length),
            },
        };
        let mut padded = forward.make_input_vec();
        padded[..values.len()].copy_from_slice(values);
        let mut spectrum = forward.make_output_vec();
        // Both transforms fail only for buffers of another length, and all buffers come from them.
        let transformed = forward.process(&mut padded, &mut spectrum);
        debug_assert!(transformed.is_ok());
        for value in &mut spectrum {
            (value.re, value.im) = (value.re * value.re + value.im * value.im, T::zero());
        }
        let transformed = inverse.process(&mut spectrum, &mut padded);
        debug_assert!(transformed.is_ok());
        self.transforms = Some(Transforms { length, forward, inverse });
        padded[..count].iter().map(|sum| (*sum).into() / length as f64).collect()
    }
}

impl<T: FftNum> fmt::Debug for LaggedProducts<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaggedProducts").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(i: usize) -> f64 {
        1.0 + ((i * i * 7919 % 1009) as f64 - 504.0) / 5000.0
    }

    fn slow_every(period: f64, n: usize) -> Vec<f64> {
        let mut times: Vec<f64> = (0..n).map(noise).collect();
        let starts = (0..).map(|k| (f64::from(k) * period).ceil() as usize).take_while(|start| *start < n);
        starts.for_each(|start| times[start] += 50.0);
        times
    }

    #[test]
    fn a_period_is_found_whether_it_is_a_whole_number_or_not() {
        for (period, n) in [(2.0, 100), (7.0, 100), (10.0, 1000), (128.0, 1062), (163.84, 3300), (512.0, 4300)] {
            let found = Periods::find(&slow_every(period, n)).unwrap().length();
            assert!((found - period).abs() < 0.3, "{found} is not {period}");
        }
        for none in [slow_every(10.0, 60), (0..500).map(noise).collect(), vec![0.1; 500], vec![1.0], vec![]] {
            assert_eq!(Periods::find(&none), None);
        }
    }

    #[test]
    fn whole_periods_are_summed_wherever_the_series_begins() {
        for first in [0, 1, 5, 60, 99] {
            let times: Vec<f64> = (0..830).map(|i| if (i + first) % 100 == 0 { 101.0 } else { 1.0 }).collect();
            let sums = Periods::new(100.0, &[0.0], 830).unwrap().sums(&times);
            assert!(sums.len() >= 8 && sums.iter().all(|sum| *sum == (100.0, 200.0)), "{first}: {sums:?}");
        }
    }

    #[test]
    fn periods_begin_anew_with_an_epoch_and_may_have_begun_before() {
        let periods = Periods::new(4.0, &[-6.0, 7.0], 14).unwrap();
        assert_eq!(periods.starts, [-2.0, 2.0, 6.0, 7.0, 11.0]);
        assert_eq!(periods.phases(), [2, 3, 0, 1, 2, 3, 0, 0, 1, 2, 3, 0, 1, 2]);
        assert_eq!(periods.behind(3), Periods { length: 4.0, starts: vec![-1.0, 3.0, 4.0, 8.0], steps: 11 });
        assert_eq!((Periods::new(1.5, &[0.0], 9), Periods::new(f64::NAN, &[0.0], 9)), (None, None));
    }

    #[test]
    fn only_what_a_period_does_not_explain_is_left() {
        let periods = Periods::new(100.0, &[0.0], 500).unwrap();
        // One a step late, and one of another kind.
        assert_eq!(periods.unexplained(&[7, 107, 208, 307, 350, 407]), [350]);
        assert_eq!(Periods::new(400.0, &[0.0], 500).unwrap().unexplained(&[7]), [0; 0]);
    }

    #[test]
    fn lagged_products_are_those_of_the_definition() {
        let values: Vec<f64> = (0..97u32).map(|i| f64::from(i * i * 31 % 89) - 44.0).collect();
        let mut products = LaggedProducts::default();
        for count in [97, 12, 12] {
            let found = products.compute(&values, count);
            assert_eq!(found.len(), count);
            for (lag, found) in found.iter().enumerate() {
                let sum: f64 = values.iter().zip(&values[lag..]).map(|(a, b)| a * b).sum();
                assert!((found - sum).abs() < 1e-6, "lag {lag}: {found} is not {sum}");
            }
        }
    }
}
