//! Changes in the level of a series of rates, as of the same trial in one job after another: where they are, how large, and how sure.

use std::ops::Range;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::Serialize;

use crate::Ratio;
use crate::permutation::seed;
use crate::student::{ALPHA, Interval, NO_SPREAD, Student};

/// Level of the test that each change passes. It is stricter than [`ALPHA`], because a series is looked at again after every new rate.
pub const CHANGE_ALPHA: f64 = 0.01;

/// Rates below which nothing is said of changes.
pub const MIN_RATES_FOR_CHANGE: usize = 5;

/// Rates that a level has at least: one alone may be chance, however far away it is.
pub const MIN_RATES_AT_LEVEL: usize = 2;

/// Rates from which arrangements of the rates themselves are drawn. Fewer have too few arrangements for small p values, so normal
/// deviates are drawn in their place.
const PERMUTE_FROM: usize = 15;
/// Series drawn for a p value.
const DRAWS: usize = 999;
/// Share of the length of an interval that the next shorter ones have.
const DECAY: f64 = std::f64::consts::FRAC_1_SQRT_2;
/// Rounds in which changes find their places between their neighbours.
const ROUNDS: usize = 3;
/// Relative difference below which two statistics count as equal.
const TIE: f64 = 1e-9;

/// A stretch of a series between two changes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RateLevel {
    /// Its rates, by their place in the series.
    pub rates: Range<usize>,
    /// Their geometric mean.
    pub value: f64,
    /// 95 % interval of it; `None` where no rate differs from its level.
    pub interval: Option<Interval>,
}

/// A change from one level to the next.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LevelChange {
    /// Place of the first rate behind it.
    pub at: usize,
    /// The level behind it over the one before it, with its 95 % interval. Its p value is that of the test by which it was found.
    pub ratio: Ratio,
}

/// A series as levels and the changes between them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RateLevels {
    /// The levels, one more than there are changes.
    pub levels: Vec<RateLevel>,
    /// The changes, in order.
    pub changes: Vec<LevelChange>,
    /// Standard deviation of the log rates about their levels, so about their relative spread; `None` below two rates more than levels.
    pub spread: Option<f64>,
}

/// Levels of a series of rates, one for each job, in order; `None` without a rate, or if one is not positive. Below
/// [`MIN_RATES_FOR_CHANGE`] rates there is one level.
///
/// *Where.* On intervals of many lengths and places (seeded binary segmentation) each split in two is tried. The statistic of a split is
/// (mean of the log rates on the one side − that on the other)² · a·b/(a + b) with a and b rates on its sides, at least two each. The split
/// with the largest one of all is a change if its p value is at most [`CHANGE_ALPHA`]; then the search goes on with the stretches on its
/// sides, one change at a time. Short intervals see what lasted for a few rates only, which cancels in the whole series. In the end each
/// change takes the best place between its neighbours.
///
/// *How sure.* p is the share of 999 drawn series (and the observed one) whose largest statistic is at least as large. From 15 rates on these
/// are arrangements of the rates within their stretches, so nothing is taken for granted but that their order means nothing: not their
/// distribution, nor that all have the same noise. Below 15 they are normal deviates, in units of the standard deviation within the
/// stretches. In a series without any change one is found with probability 0.01 at most.
///
/// *How large.* exp(d ± t·s·√(1/a + 1/b)) with d the difference of the mean log rates of the two levels, s the standard deviation of all log
/// rates about their levels and t the 97.5 % quantile of Student's t with as many degrees of freedom as there are rates more than levels.
///
/// A slow drift, or rates that hang together over many jobs, look like changes: their order does mean something.
///
/// Sources: S. Kovács, P. Bühlmann, H. Li, A. Munk, *Seeded binary segmentation*, Biometrika 110 (2023) 249–256; D. S. Matteson, N. A.
/// James, *A nonparametric approach for multiple change point analysis of multivariate data*, JASA 109 (2014) 334–345 (arrangements within
/// the stretches, one change at a time); D. Daly et al., *The use of change point detection to identify software performance regressions in a
/// continuous integration system*, ICPE 2020, 67–75.
pub fn rate_levels(rates: &[f64]) -> Option<RateLevels> {
    if rates.is_empty() || rates.iter().any(|rate| !rate.is_finite() || *rate <= 0.0) {
        return None;
    }
    let logs: Vec<f64> = rates.iter().map(|rate| rate.ln()).collect();
    let found = if logs.len() < MIN_RATES_FOR_CHANGE { Vec::new() } else { find(&logs) };
    let stretches = Stretches::new(&found, logs.len());
    let freedom = logs.len() as f64 - stretches.0.len() as f64;
    let spread = (freedom > 0.0).then(|| (stretches.squares(&logs) / freedom).sqrt());
    let student = |value: f64, share: f64| {
        let of = |spread: f64| Student { value, error: spread * share.sqrt(), freedom };
        spread.map(of).and_then(Student::with_spread)
    };
    let interval = |student: Student| Interval::from_log(student.value, student.half_width(ALPHA));
    let means: Vec<(f64, f64)> = stretches.0.iter().map(|range| mean_and_size(&logs[range.clone()])).collect();
    let level = |(rates, (mean, n)): (&Range<usize>, &(f64, f64))| RateLevel {
        rates: rates.clone(),
        value: mean.exp(),
        interval: student(*mean, 1.0 / n).map(interval),
    };
    let change = |((at, p), pair): (&(usize, f64), &[(f64, f64)])| {
        let [(before, a), (behind, b)] = [pair[0], pair[1]];
        let interval = student(behind - before, 1.0 / a + 1.0 / b).map(interval);
        LevelChange { at: *at, ratio: Ratio { value: (behind - before).exp(), interval, p: Some(*p) } }
    };
    Some(RateLevels {
        levels: stretches.0.iter().zip(&means).map(level).collect(),
        changes: found.iter().zip(means.windows(2)).map(change).collect(),
        spread,
    })
}

fn mean_and_size(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    (values.iter().sum::<f64>() / n, n)
}

/// Ratio of the rate of a new job to a level of the jobs before it; `None` if a job has no run, a rate is not positive, or there is no such
/// level. `job` and `earlier` have the rates of the runs of each job, `levels` are those of the earlier jobs and `reference` is one of them.
///
/// exp(d ± t·e) with d the mean log rate of the job minus that of the level. e² = s²·(1 + 1/m) with s the standard deviation of the mean log
/// rates of jobs about their levels and m the jobs of the level: the interval is about one job, whose own chance is in it, and not about a
/// mean of many. If the job has fewer runs than the others, σ²·(1/n − mean of 1/nᵢ) is added, with σ the standard deviation of runs within
/// their jobs; degrees of freedom are Satterthwaite's. There is no interval where there are no more jobs than levels, or no spread.
///
/// Source: G. J. Hahn, W. Q. Meeker, *Statistical intervals* (1991), section 4.7: prediction intervals.
pub fn ratio_to_level(job: &[f64], earlier: &[Vec<f64>], levels: &[RateLevel], reference: usize) -> Option<Ratio> {
    let all = || earlier.iter().map(Vec::as_slice).chain([job]);
    if all().any(|runs| runs.is_empty() || runs.iter().any(|rate| !rate.is_finite() || *rate <= 0.0)) {
        return None;
    }
    let logs = |runs: &[f64]| runs.iter().map(|rate| rate.ln()).collect::<Vec<f64>>();
    let means: Vec<f64> = earlier.iter().map(|runs| mean_and_size(&logs(runs)).0).collect();
    let stretches = Stretches(levels.iter().map(|level| level.rates.clone()).collect());
    let (level, jobs) = mean_and_size(means.get(levels.get(reference)?.rates.clone())?);
    let (newest, runs) = mean_and_size(&logs(job));
    let difference = newest - level;
    let freedom = means.len() as f64 - levels.len() as f64;
    if freedom < 1.0 {
        return Some(Ratio { value: difference.exp(), interval: None, p: None });
    }
    let between = stretches.squares(&means) / freedom * (1.0 + 1.0 / jobs);
    let usual = earlier.iter().map(|runs| 1.0 / runs.len() as f64).sum::<f64>() / earlier.len() as f64;
    let within_freedom = all().map(|runs| runs.len() as f64 - 1.0).sum::<f64>();
    let within: f64 = all().map(|runs| Stretches::new(&[], runs.len()).squares(&logs(runs))).sum();
    let fewer = match within_freedom > 0.0 {
        true => within / within_freedom * (1.0 / runs - usual).max(0.0),
        false => 0.0,
    };
    let student = Student::difference(difference, (between, freedom), (fewer, within_freedom.max(1.0))).with_spread();
    Some(Ratio {
        value: difference.exp(),
        interval: student.map(|student| Interval::from_log(difference, student.half_width(ALPHA))),
        p: student.map(|student| student.p()),
    })
}

/// The parts of a series between its changes.
struct Stretches(Vec<Range<usize>>);

impl Stretches {
    fn new(changes: &[(usize, f64)], n: usize) -> Self {
        let starts = std::iter::once(0).chain(changes.iter().map(|(at, _)| *at));
        let ends = changes.iter().map(|(at, _)| *at).chain([n]);
        Self(starts.zip(ends).map(|(start, end)| start..end).collect())
    }

    /// Sum of squares about the means of the stretches.
    fn squares(&self, values: &[f64]) -> f64 {
        let of = |range: &Range<usize>| {
            let values = values.get(range.clone()).unwrap_or_default();
            let (mean, _) = mean_and_size(values);
            values.iter().map(|value| (value - mean).powi(2)).sum::<f64>()
        };
        self.0.iter().map(of).sum()
    }

    /// Intervals of many lengths and places within the stretches, each long enough for two levels.
    fn intervals(&self) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        for stretch in &self.0 {
            let n = stretch.len() as f64;
            let mut length = n;
            while length >= (2 * MIN_RATES_AT_LEVEL) as f64 {
                let count = 2.0 * (n / length).ceil() - 1.0;
                let shift = if count > 1.0 { (n - length) / (count - 1.0) } else { 0.0 };
                for i in 0..count as usize {
                    let from = i as f64 * shift;
                    let end = ((from + length).ceil() as usize).min(stretch.len());
                    found.push(stretch.start + from as usize..stretch.start + end);
                }
                length *= DECAY;
            }
        }
        found
    }
}

/// A split of an interval in two.
#[derive(Clone, Copy, Debug)]
struct Split {
    /// Place of the first value behind it.
    at: usize,
    /// Its statistic.
    value: f64,
}

/// The split with the largest statistic in any of these intervals; `None` if none is long enough. `sums` has the sum of all values before
/// each place.
fn best_split(sums: &[f64], intervals: &[Range<usize>]) -> Option<Split> {
    let mut best: Option<Split> = None;
    for interval in intervals {
        let (start, end) = (sums[interval.start], sums[interval.end]);
        let last = interval.end.saturating_sub(MIN_RATES_AT_LEVEL);
        for (at, sum) in sums.iter().enumerate().take(last + 1).skip(interval.start + MIN_RATES_AT_LEVEL) {
            let (a, b) = ((at - interval.start) as f64, (interval.end - at) as f64);
            let difference = (sum - start) / a - (end - sum) / b;
            let value = difference * difference * a * b / (a + b);
            if best.is_none_or(|best| value > best.value) {
                best = Some(Split { at, value });
            }
        }
    }
    best
}

/// Sums of all values before each place, about the mean of all of them.
fn sums(values: &[f64]) -> Vec<f64> {
    let (mean, _) = mean_and_size(values);
    let mut sum = 0.0;
    let behind = values.iter().map(|value| {
        sum += value - mean;
        sum
    });
    std::iter::once(0.0).chain(behind).collect()
}

/// The changes in order, each with its p value.
fn find(logs: &[f64]) -> Vec<(usize, f64)> {
    let mut random = Pcg64::seed_from_u64(seed(logs));
    let sums_of_logs = sums(logs);
    let mut found: Vec<(usize, f64)> = Vec::new();
    loop {
        let stretches = Stretches::new(&found, logs.len());
        let intervals = stretches.intervals();
        let squares = stretches.squares(logs);
        let Some(split) = best_split(&sums_of_logs, &intervals) else { break };
        // What is left is rounding.
        if squares.sqrt() < NO_SPREAD {
            break;
        }
        let observed = split.value / squares * (1.0 - TIE);
        let drawn = |values: &[f64]| {
            let value = best_split(&sums(values), &intervals).map_or(0.0, |split| split.value);
            value / stretches.squares(values)
        };
        let mut values = logs.to_vec();
        let mut extreme = 0;
        let p = |extreme: usize| (extreme + 1) as f64 / (DRAWS + 1) as f64;
        for _ in 0..DRAWS {
            // Whatever is drawn from here on, it is no change.
            if p(extreme) > CHANGE_ALPHA {
                break;
            }
            if logs.len() >= PERMUTE_FROM {
                stretches.0.iter().for_each(|range| shuffle(&mut values[range.clone()], &mut random));
            } else {
                values.iter_mut().for_each(|value| *value = normal(&mut random));
            }
            extreme += usize::from(drawn(&values) >= observed);
        }
        if p(extreme) > CHANGE_ALPHA {
            break;
        }
        let place = found.partition_point(|(at, _)| *at < split.at);
        found.insert(place, (split.at, p(extreme)));
    }
    settle(&mut found, &sums_of_logs);
    found
}

/// Move each change to the best place between its neighbours.
fn settle(found: &mut [(usize, f64)], sums: &[f64]) {
    let n = sums.len() - 1;
    for _ in 0..ROUNDS {
        let before = found.to_vec();
        for i in 0..found.len() {
            let start = if i == 0 { 0 } else { found[i - 1].0 };
            let end = found.get(i + 1).map_or(n, |(at, _)| *at);
            if let Some(split) = best_split(sums, std::slice::from_ref(&(start..end))) {
                found[i].0 = split.at;
            }
        }
        if found == before {
            break;
        }
    }
}

fn shuffle(values: &mut [f64], random: &mut Pcg64) {
    for i in 1..values.len() {
        values.swap(i, random.random_range(0..=i));
    }
}

/// A standard normal deviate (G. E. P. Box, M. E. Muller, Annals of Mathematical Statistics 29 (1958) 610–611).
fn normal(random: &mut Pcg64) -> f64 {
    let (radius, angle): (f64, f64) = (1.0 - random.random::<f64>(), random.random());
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

#[cfg(test)]
mod tests;
