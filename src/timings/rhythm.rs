use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::Serialize;

use super::period::Track;

/// Most stretches of a series whose phase is kept.
const STRETCHES: usize = 32;

/// The slow batches of a period in one series, followed through it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Rhythm {
    /// Batches from one to the next.
    pub period: usize,
    /// How many there are.
    pub beats: u64,
    /// Share of all batches.
    pub batch_share: f64,
    /// Share of the time; of a second line, of what is left without the first.
    pub time_share: f64,
    /// Their median over that of the other batches.
    pub slower: Option<f64>,
    /// Their mean over that of the other batches.
    pub slower_mean: Option<f64>,
    /// Median of them, s.
    pub median_s: f64,
    /// Share of them that are slower than three quarters of the other batches.
    pub hit_share: f64,
    /// Places where the distance to the next is not the period.
    pub slips: u64,
    /// By how many batches they come late, less early, per 100 batches.
    pub drift_per_100: f64,
    /// Batch number modulo the period at which most come, in up to 32 stretches of equal length.
    pub phases: Vec<usize>,
}

/// Follows a period through the windows of a series.
#[derive(Debug)]
pub(super) struct Follower {
    period: usize,
    track: Track,
    rows: u64,
    seen: u64,
    on: Vec<f32>,
    off: Vec<f32>,
    /// Of every so many batches, one is kept for the medians. Drawn at random, as each count has periods of its own.
    thin: u64,
    random: Pcg64,
    on_time: f64,
    time: f64,
    beats: u64,
    slips: u64,
    drift: i64,
    counts: Vec<Vec<u32>>,
}

impl Follower {
    /// For a series of `rows` batches.
    pub fn new(period: usize, rows: u64) -> Self {
        let stretches = STRETCHES.min((rows as usize / (10 * period)).max(1));
        Self {
            period,
            track: Track::new(period),
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

    /// The next window; gives back the places in it that belong to the period.
    pub fn window(&mut self, times: &[f64]) -> Vec<usize> {
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

    /// What came of it.
    pub fn result(mut self) -> Rhythm {
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
        Rhythm {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_long_series_know_batches_on_and_off_the_beat() {
        let rows = (1 << 22) + 100_000;
        for period in [2, 4] {
            let mut follower = Follower::new(period, rows);
            let window: Vec<f64> = (0..4096).map(|i| if i % period == 0 { 5.0 } else { 1.0 }).collect();
            (0..rows / 4096).for_each(|_| {
                follower.window(&window);
            });
            let found = follower.result();
            assert_eq!((found.slower, found.hit_share), (Some(5.0), 1.0), "period {period}");
        }
    }
}
