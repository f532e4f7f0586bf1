//! How the times of batches are distributed: quantiles, curves of sorted batches, and points of scatter plots.

use serde::Serialize;

/// Quantiles that are reported.
const QUANTILES: [f64; 7] = [0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99];

/// Maximum number of epochs of a method in a picture.
pub const MAX_EPOCHS: usize = 5;

/// Number of points of a reduced curve, about.
const POINTS: usize = 200;

/// How many points the curves of sorted batches have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum CurveDetail {
    /// Some hundred, closer at both ends
    #[default]
    Reduced,
    /// One for each batch
    Full,
}

/// How the times of some batches are distributed, and what share of the total the slow ones have.
#[derive(Clone, Debug, Serialize)]
pub struct Distribution {
    /// Number of batches.
    pub batches: u64,
    /// Sum of their times, s.
    pub total_s: f64,
    /// Mean, s.
    pub mean_s: f64,
    /// Shortest, s.
    pub min_s: f64,
    /// At 1, 5, 25, 50, 75, 95 and 99 %, s; linear between order statistics.
    pub quantiles_s: [f64; 7],
    /// Longest, s.
    pub max_s: f64,
    /// Share of the time of the slowest 1 % of batches; `None` where that is less than half a batch.
    pub slowest_1_percent: Option<f64>,
    /// Share of the time of the slowest 10 % of batches; `None` where that is less than half a batch.
    pub slowest_10_percent: Option<f64>,
    /// Mean of the slower half over that of the faster half.
    pub halves_ratio: Option<f64>,
    /// The cut at which the mean of the slower over that of the faster batches is smallest.
    pub lowest_ratio: Option<CurvePoint>,
    /// The cut at which it is largest, among cuts with at least 1 % of the batches on each side.
    pub highest_ratio: Option<CurvePoint>,
    /// True if the times were sorted; else quantiles are off by less than 0.1 %, and curves are exact where they have a point.
    pub exact: bool,
    /// Cumulative times of the batches sorted by time.
    pub curve: Vec<CurvePoint>,
}

/// The fastest batches up to a rank beside all batches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CurvePoint {
    /// Number of these batches.
    pub batches: u64,
    /// Share of all batches.
    pub batch_share: f64,
    /// Sum of their times, s.
    pub time_s: f64,
    /// Share of the time.
    pub time_share: f64,
    /// Mean time of the slower batches over that of these; `None` at the last point.
    pub ratio: Option<f64>,
}

impl Distribution {
    /// The distribution of times, s, which are sorted in place; `None` if there are none.
    pub fn from_times(times: &mut [f64]) -> Option<Self> {
        Self::with_curve(times, CurveDetail::Reduced)
    }

    /// [`Distribution::from_times`] with all or some points of the curve.
    pub fn with_curve(times: &mut [f64], curve: CurveDetail) -> Option<Self> {
        times.sort_unstable_by(f64::total_cmp);
        let (last, n) = (times.len().checked_sub(1)?, times.len());
        let quantile = |p: f64| {
            let position = p * last as f64;
            let below = position.floor() as usize;
            times[below] + (position - below as f64) * (times[(below + 1).min(last)] - times[below])
        };
        let wanted = match curve {
            CurveDetail::Reduced => ranks(n as u64),
            CurveDetail::Full => (1..=n as u64).collect(),
        };
        let mut sums = Vec::with_capacity(wanted.len());
        let (mut sum, mut next) = (0.0, wanted.iter().peekable());
        for (i, time) in times.iter().enumerate() {
            sum += time;
            if next.next_if(|rank| **rank == i as u64 + 1).is_some() {
                sums.push((i as u64 + 1, sum));
            }
        }
        Some(Self::from_sums(n as u64, (times[0], times[last]), QUANTILES.map(quantile), &sums, true))
    }

    /// The distribution of a histogram; `None` if it is empty.
    pub fn from_histogram(histogram: &Histogram) -> Option<Self> {
        let n = histogram.count;
        let smallest = histogram.smallest?;
        let wanted = ranks(n);
        let positions = QUANTILES.map(|p| p * (n - 1) as f64);
        // The order statistics on both sides of each quantile, which are the next two ranks.
        let mut beside = [[None; 2]; 7];
        let mut sums = Vec::new();
        let (mut count, mut sum, mut next) = (0, 0.0, 0);
        for bin in histogram.bins() {
            let before = (count, sum);
            count += bin.count;
            sum += bin.sum;
            for (position, values) in positions.iter().zip(&mut beside) {
                for (rank, value) in (*position as u64..).zip(values) {
                    if rank < count {
                        value.get_or_insert(bin.sum / bin.count as f64);
                    }
                }
            }
            // A point at both ends of a bin with a rank, so that all batches between two points have about the same time.
            if next < wanted.len() && wanted[next] <= count {
                if before.0 > 0 && sums.last().is_none_or(|last: &(u64, f64)| last.0 < before.0) {
                    sums.push(before);
                }
                sums.push((count, sum));
                while next < wanted.len() && wanted[next] <= count {
                    next += 1;
                }
            }
        }
        let mut quantiles = [histogram.largest; 7];
        for ((quantile, position), [below, above]) in quantiles.iter_mut().zip(positions).zip(beside) {
            let below = below.unwrap_or(histogram.largest);
            *quantile = below + position.fract() * (above.unwrap_or(below) - below);
        }
        Some(Self::from_sums(n, (smallest, histogram.largest), quantiles, &sums, false))
    }

    /// From the cumulative sums (batches, s) at the points of the curve.
    fn from_sums(n: u64, (min_s, max_s): (f64, f64), quantiles_s: [f64; 7], sums: &[(u64, f64)], exact: bool) -> Self {
        let total_s = sums.last().map_or(0.0, |(_, sum)| *sum);
        let curve: Vec<CurvePoint> =
            sums.iter().map(|(count, sum)| CurvePoint::new(*count, n, *sum, total_s)).collect();
        // Time of the `cut` fastest batches.
        let time_of = |cut: u64| {
            // Between points of the curve the sum grows evenly, since the times there are about equal.
            let above = curve.partition_point(|point| point.batches < cut).min(curve.len().saturating_sub(1));
            let (a, b) = (above.checked_sub(1).map(|i| curve[i]), curve.get(above));
            let (a_batches, a_time) = a.map_or((0, 0.0), |a| (a.batches, a.time_s));
            b.map_or(0.0, |b| {
                let part = (cut - a_batches) as f64 / (b.batches - a_batches).max(1) as f64;
                a_time + part * (b.time_s - a_time)
            })
        };
        let slowest = |share: f64| {
            let slow = (n as f64 * share).round() as u64;
            (slow > 0).then(|| if total_s > 0.0 { 1.0 - time_of(n - slow) / total_s } else { 0.0 })
        };
        let inner = || curve.iter().filter(|p| (0.01..=0.99).contains(&p.batch_share) && p.ratio.is_some()).copied();
        let by_ratio = |a: &CurvePoint, b: &CurvePoint| a.ratio.unwrap_or(0.0).total_cmp(&b.ratio.unwrap_or(0.0));
        let half = (n > 1).then(|| CurvePoint::new(n / 2, n, time_of(n / 2), total_s));
        Self {
            batches: n,
            total_s,
            mean_s: total_s / n as f64,
            min_s,
            quantiles_s,
            max_s,
            slowest_1_percent: slowest(0.01),
            slowest_10_percent: slowest(0.1),
            halves_ratio: half.and_then(|point| point.ratio),
            lowest_ratio: inner().min_by(by_ratio),
            highest_ratio: inner().max_by(by_ratio),
            exact,
            curve,
        }
    }
}

impl CurvePoint {
    fn new(count: u64, n: u64, time_s: f64, total_s: f64) -> Self {
        let batch_share = count as f64 / n as f64;
        let time_share = if total_s > 0.0 { time_s / total_s } else { 0.0 };
        // Mean of the rest over mean of these, as in the notebook of the array-loader benchmarks.
        let ratio =
            (count < n && time_s > 0.0).then(|| (total_s - time_s) / (n - count) as f64 / (time_s / count as f64));
        Self { batches: count, batch_share, time_s, time_share, ratio }
    }
}

/// Ranks, from 1, at which a curve of `n` batches gets a point: evenly over all, and closer and closer towards both ends.
fn ranks(n: u64) -> Vec<u64> {
    let even = (1..=POINTS as u64).map(|i| n * i / POINTS as u64);
    let near = (0..40).map(|i| (n as f64 * 0.01 * 0.8f64.powi(i)).ceil() as u64);
    // The ranks of `slowest_1_percent` and `slowest_10_percent`.
    let exact = [0.01, 0.1].map(|share| n - (n as f64 * share).round() as u64);
    let mut ranks: Vec<u64> = even.chain(near.clone()).chain(near.map(|k| n - k.min(n))).chain(exact).collect();
    ranks.retain(|rank| *rank > 0);
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

/// Bins per octave: values of one bin differ by less than 0.1 %.
const BINS: usize = 1024;
/// Bits of a double below those that choose the bin.
const SHIFT: u32 = 52 - BINS.trailing_zeros();

/// Counts and exact sums of times in bins less than 0.1 % wide, for series too long to be sorted.
#[derive(Debug, Default)]
pub struct Histogram {
    /// Bins by the exponent of their values.
    octaves: std::collections::BTreeMap<u64, Box<[Bin; BINS]>>,
    pub count: u64,
    pub smallest: Option<f64>,
    pub largest: f64,
}

/// Values of one bin.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bin {
    pub count: u64,
    pub sum: f64,
}

impl Histogram {
    /// Count values, which must not be negative.
    pub fn add(&mut self, values: &[f64]) {
        for value in values {
            let bin = (value.to_bits() >> SHIFT) as usize;
            let octave = self.octaves.entry((bin / BINS) as u64).or_insert_with(|| Box::new([Bin::default(); BINS]));
            let bin = &mut octave[bin % BINS];
            bin.count += 1;
            bin.sum += value;
            self.smallest = Some(self.smallest.map_or(*value, |s| s.min(*value)));
            self.largest = self.largest.max(*value);
        }
        self.count += values.len() as u64;
    }

    /// Bins with values, in the order of their values.
    pub fn bins(&self) -> impl Iterator<Item = Bin> + '_ {
        self.octaves.values().flat_map(|octave| octave.iter().copied()).filter(|bin| bin.count > 0)
    }
}

/// Single batches of a series for scatter plots: the slowest, and an even selection of the others.
#[derive(Clone, Debug, Default)]
pub struct ScatterPoints {
    /// Batch number and time in s, of the whole series.
    pub whole: Vec<(u64, f64)>,
    /// Batch number and time in s, of a range of batches.
    pub detail: Vec<(u64, f64)>,
    /// How many of `whole` were selected as the slowest.
    pub slowest: usize,
}

/// Maximum number of points of a series that are selected as its slowest.
const MAX_SLOWEST: usize = 2000;
/// Number of other points of a series, about.
const OTHERS: u64 = 700;
/// Maximum number of points of a range.
const MAX_DETAIL: usize = 5000;

/// Selects the points of a scatter plot, window by window.
#[derive(Debug)]
pub struct ScatterSelector {
    rows: u64,
    range: std::ops::Range<u64>,
    seen: u64,
    /// Bits of the time, and the batch. Bits of positive numbers have the order of the numbers.
    slowest: std::collections::BinaryHeap<std::cmp::Reverse<(u64, u64)>>,
    others: Vec<(u64, f64)>,
    detail: Vec<(u64, f64)>,
}

impl ScatterSelector {
    /// A selector for a series of `rows` batches, with all batches of `range`.
    pub fn new(rows: u64, range: std::ops::Range<u64>) -> Self {
        Self {
            rows,
            range,
            seen: 0,
            slowest: std::collections::BinaryHeap::new(),
            others: Vec::new(),
            detail: Vec::new(),
        }
    }

    /// Add the next times of the series, s.
    pub fn add(&mut self, times: &[f64]) {
        // At most a fifth of the batches count as slow.
        let max_slowest = MAX_SLOWEST.min((self.rows as usize).div_ceil(5));
        let strata = OTHERS.min(self.rows);
        for (batch, time) in (self.seen..).zip(times) {
            if self.range.contains(&batch) && self.detail.len() < MAX_DETAIL {
                self.detail.push((batch, *time));
            }
            let key = std::cmp::Reverse((time.to_bits(), batch));
            if self.slowest.len() < max_slowest {
                self.slowest.push(key);
            } else if self.slowest.peek().is_some_and(|fastest| key < *fastest) {
                self.slowest.pop();
                self.slowest.push(key);
            }
            // One of each stratum, at an offset (multiples of the golden ratio) that is in step with no period.
            let stratum = batch * strata / self.rows.max(1);
            let (from, to) = ((stratum * self.rows).div_ceil(strata), ((stratum + 1) * self.rows).div_ceil(strata));
            let selected = from + ((to - from) as f64 * (stratum as f64 * 0.618_033_988_749_895).fract()) as u64;
            if batch == selected {
                self.others.push((batch, *time));
            }
        }
        self.seen += times.len() as u64;
    }

    /// The selected points, in the order of batches.
    pub fn result(self) -> ScatterPoints {
        let mut whole: Vec<(u64, f64)> =
            self.slowest.into_iter().map(|std::cmp::Reverse((bits, batch))| (batch, f64::from_bits(bits))).collect();
        let slowest = whole.len();
        whole.extend(self.others);
        whole.sort_by_key(|(batch, _)| *batch);
        whole.dedup_by_key(|(batch, _)| *batch);
        ScatterPoints { whole, detail: self.detail, slowest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_says_what_sorting_says_within_its_bound() {
        let times: Vec<f64> = (1..50_000).map(|i| 0.01 * (1.0 + f64::from(i * 7919 % 50_000)).powf(1.7)).collect();
        let mut histogram = Histogram::default();
        times.chunks(1000).for_each(|part| histogram.add(part));
        let exact = Distribution::from_times(&mut times.clone()).unwrap();
        let binned = Distribution::from_histogram(&histogram).unwrap();
        assert!((exact.total_s - binned.total_s).abs() < 1e-9 * exact.total_s && exact.max_s == binned.max_s);
        for (a, b) in exact.quantiles_s.iter().zip(&binned.quantiles_s) {
            assert!((a - b).abs() < 1e-3 * a, "{a} {b}");
        }
        assert!((exact.slowest_1_percent.unwrap() - binned.slowest_1_percent.unwrap()).abs() < 1e-3);
        assert!(binned.curve.len() > 100 && exact.exact && !binned.exact);
    }

    #[test]
    fn the_halves_are_cut_within_a_bin() {
        // One value has 5 to 95 % of the batches, so no edge of a bin is near one half.
        let times: Vec<f64> = (0..10_000)
            .map(|i| {
                if i < 500 {
                    0.5 + f64::from(i) * 1e-5
                } else if i < 9500 {
                    1.0
                } else {
                    2.0
                }
            })
            .collect();
        let mut histogram = Histogram::default();
        histogram.add(&times);
        let (exact, binned) =
            (Distribution::from_times(&mut times.clone()).unwrap(), Distribution::from_histogram(&histogram).unwrap());
        let (a, b) = (exact.halves_ratio.unwrap(), binned.halves_ratio.unwrap());
        assert!((a - b).abs() < 1e-3 * a, "{a} {b}");
    }

    #[test]
    fn less_than_half_a_batch_has_no_share() {
        let of = |n: u32| Distribution::from_times(&mut (0..n).map(f64::from).collect::<Vec<_>>()).unwrap();
        assert_eq!((of(49).slowest_1_percent, of(4).slowest_10_percent), (None, None));
        assert!(of(50).slowest_1_percent.is_some() && of(5).slowest_10_percent.is_some());
    }

    #[test]
    fn a_full_curve_has_a_point_for_each_batch() {
        let times: Vec<f64> = (0..5000).map(|i| 0.01 + f64::from(i * 7919 % 5000)).collect();
        let full = Distribution::with_curve(&mut times.clone(), CurveDetail::Full).unwrap();
        let reduced = Distribution::from_times(&mut times.clone()).unwrap();
        assert_eq!(full.curve.iter().map(|p| p.batches).collect::<Vec<_>>(), (1..=5000).collect::<Vec<u64>>());
        assert!(reduced.curve.len() < 400 && reduced.curve.iter().all(|point| full.curve.contains(point)));
        assert_eq!(full.quantiles_s, reduced.quantiles_s);
        let (a, b) = (full.halves_ratio.unwrap(), reduced.halves_ratio.unwrap());
        assert!((a - b).abs() < 1e-9 * b, "{a} {b}");
    }

    #[test]
    fn the_ratio_is_that_of_the_notebook() {
        let found = Distribution::from_times(&mut [4.0, 1.0, 2.0, 3.0]).unwrap();
        // batch_frac / time_frac * (1 - time_frac) / (1 - batch_frac) in pandas
        let ratios: Vec<f64> = found.curve.iter().filter_map(|p| p.ratio).collect();
        let expected = [3.0, 7.0 / 3.0, 2.0];
        assert!(ratios.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12), "{ratios:?}");
        assert_eq!((found.total_s, found.quantiles_s[3]), (10.0, 2.5));
    }
}
