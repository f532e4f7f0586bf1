//! Following the slow batches of a known period through a series, where their phase slips.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::Serialize;

use super::period::RankScores;

/// Maximum number of stretches of a series whose phase is reported.
const MAX_STRETCHES: usize = 32;

/// The beats of a series: the slow batches of a period, followed through it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct BeatSummary {
    /// Batches from one to the next.
    pub period: usize,
    /// How many there are.
    pub beats: u64,
    /// Share of all batches.
    pub batch_share: f64,
    /// Share of the time; for a second period, of the time of the batches that are on no beat of the first.
    pub time_share: f64,
    /// Their median over that of the other batches; `None` where that is 0.
    pub slower: Option<f64>,
    /// Their mean over that of the other batches; `None` where that is 0.
    pub slower_mean: Option<f64>,
    /// Their median, s.
    pub median_s: f64,
    /// Share of them that are slower than three quarters of the other batches.
    pub hit_share: f64,
    /// Beats whose distance to the next is not the period.
    pub slips: u64,
    /// By how many batches they come late, minus early, per 100 batches.
    pub drift_per_100: f64,
    /// Batch number modulo the period of most beats, in each of up to 32 stretches of equal length.
    pub phases: Vec<usize>,
}

/// Follows a period through the windows of a series.
#[derive(Debug)]
pub struct BeatFollower {
    period: usize,
    track: BeatTracker,
    rows: u64,
    seen: u64,
    on: Vec<f32>,
    off: Vec<f32>,
    /// One in `thin` batches counts for the medians. Drawn at random, since every fixed step has periods of its own.
    thin: u64,
    random: Pcg64,
    on_time: f64,
    time: f64,
    beats: u64,
    slips: u64,
    drift: i64,
    counts: Vec<Vec<u32>>,
}

impl BeatFollower {
    /// A follower for a series of `rows` batches.
    pub fn new(period: usize, rows: u64) -> Self {
        let stretches = MAX_STRETCHES.min((rows as usize / (10 * period)).max(1));
        Self {
            period,
            track: BeatTracker::new(period),
            rows,
            seen: 0,
            on: Vec::new(),
            off: Vec::new(),
            thin: rows.div_ceil(1 << 22).max(1),
            random: Pcg64::seed_from_u64(rows),
            on_time: 0.0,
            time: 0.0,
            beats: 0,
            slips: 0,
            drift: 0,
            counts: vec![vec![0; period]; stretches],
        }
    }

    /// Add the next window; returns the indices of its beats.
    pub fn add_window(&mut self, times: &[f64]) -> Vec<usize> {
        let beats = self.track.beats(times);
        for pair in beats.windows(2) {
            let distance = pair[1] - pair[0];
            self.slips += u64::from(distance != self.period);
            self.drift += distance as i64 - self.period as i64;
        }
        let mut next = beats.iter().peekable();
        for (i, time) in times.iter().enumerate() {
            let batch = self.seen + i as u64;
            let is_beat = next.next_if(|beat| **beat == i).is_some();
            self.time += time;
            if is_beat {
                self.on_time += time;
                self.beats += 1;
                let stretch = (batch * self.counts.len() as u64 / self.rows.max(1)) as usize;
                if let Some(counts) = self.counts.get_mut(stretch) {
                    counts[(batch % self.period as u64) as usize] += 1;
                }
            }
            if self.thin == 1 || self.random.random_range(0..self.thin) == 0 {
                if is_beat { &mut self.on } else { &mut self.off }.push(*time as f32);
            }
        }
        self.seen += times.len() as u64;
        beats
    }

    /// The summary of all windows.
    pub fn result(mut self) -> BeatSummary {
        let middle = |values: &mut Vec<f32>, share: f64| {
            let place = (values.len() as f64 * share) as usize;
            (place < values.len()).then(|| f64::from(*values.select_nth_unstable_by(place, f32::total_cmp).1))
        };
        let (on, off) = (middle(&mut self.on, 0.5), middle(&mut self.off, 0.5));
        let usual = middle(&mut self.off, 0.75);
        let hits = usual.map_or(0, |usual| self.on.iter().filter(|time| f64::from(**time) > usual).count());
        let mean = |sum: f64, count: u64| (count > 0).then(|| sum / count as f64);
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let most =
            |counts: &Vec<u32>| (0..counts.len()).max_by_key(|r| (counts[*r], usize::MAX - r)).unwrap_or_default();
        BeatSummary {
            period: self.period,
            beats: self.beats,
            batch_share: share(self.beats as f64, self.seen as f64),
            time_share: share(self.on_time, self.time),
            slower: on.zip(off).filter(|(_, off)| *off > 0.0).map(|(on, off)| on / off),
            slower_mean: mean(self.on_time, self.beats)
                .zip(mean(self.time - self.on_time, self.seen - self.beats))
                .filter(|(_, off)| *off > 0.0)
                .map(|(on, off)| on / off),
            median_s: on.unwrap_or_default(),
            hit_share: share(hits as f64, self.on.len() as f64),
            slips: self.slips,
            drift_per_100: share(self.drift as f64 * 100.0, self.seen as f64),
            phases: self.counts.iter().map(most).collect(),
        }
    }
}

/// Cost of a slip of one batch, in scores.
const SLIP_COST: f32 = 2.0;

/// Maximum deviation of the distance of two beats from the period, in batches.
const MAX_SLIP: usize = 4;

/// Finds the beats of a known period in a window, slips included.
///
/// Dynamic programming over chains of batches about one period apart: the chain with the largest sum of scores minus the cost of its
/// slips, as in D. P. W. Ellis, *Beat tracking by dynamic programming*, Journal of New Music Research 36 (2007) 51–60.
#[derive(Debug)]
struct BeatTracker {
    period: usize,
    scores: RankScores,
    totals: Vec<f32>,
    before: Vec<u32>,
}

/// No beat before.
const NONE: u32 = u32::MAX;

impl BeatTracker {
    /// A tracker for a period of at least 2 batches.
    fn new(period: usize) -> Self {
        Self { period: period.max(2), scores: RankScores::default(), totals: Vec::new(), before: Vec::new() }
    }

    /// Indices of the beats of a window, in order; empty where all times are equal or the window is too short.
    fn beats(&mut self, times: &[f64]) -> Vec<usize> {
        let (n, period) = (times.len(), self.period);
        if n < 2 * period {
            return Vec::new();
        }
        let Some(scores) = self.scores.slowness(times) else { return Vec::new() };
        let reach = (period / 4).clamp(usize::from(period > 2), MAX_SLIP);
        self.totals.clear();
        self.before.clear();
        for (at, score) in scores.iter().enumerate() {
            let mut best = (0.0, NONE);
            // A chain begins in the first period; a later batch must continue one.
            if at >= period {
                best.0 = f32::NEG_INFINITY;
                for gap in period - reach..=(period + reach).min(at) {
                    let from = at - gap;
                    let total = self.totals[from] - SLIP_COST * gap.abs_diff(period) as f32;
                    if total > best.0 {
                        best = (total, from as u32);
                    }
                }
            }
            self.totals.push(best.0 + score);
            self.before.push(best.1);
        }
        let last = n - period..n;
        let Some(mut at) = last.max_by(|a, b| self.totals[*a].total_cmp(&self.totals[*b])) else { return Vec::new() };
        let mut beats = vec![at];
        while self.before[at] != NONE {
            at = self.before[at] as usize;
            beats.push(at);
        }
        beats.reverse();
        beats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_long_series_know_batches_on_and_off_the_beat() {
        let rows = (1 << 22) + 100_000;
        for period in [2, 4] {
            let mut follower = BeatFollower::new(period, rows);
            let window: Vec<f64> = (0..4096).map(|i| if i % period == 0 { 5.0 } else { 1.0 }).collect();
            (0..rows / 4096).for_each(|_| {
                follower.add_window(&window);
            });
            let found = follower.result();
            assert_eq!((found.slower, found.hit_share), (Some(5.0), 1.0), "period {period}");
        }
    }
}
