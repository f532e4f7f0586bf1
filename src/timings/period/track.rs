use super::scores::Scores;

/// What a slip of one batch must gain in scores to be believed.
const SLIP: f32 = 2.0;

/// Most that the distance of two slow batches may differ from the period, in batches.
const WIDEST: usize = 4;

/// Follows the slow batches of a known period through a window, slips included.
///
/// Dynamic programming over chains of batches about one period apart: the chain with the largest sum of scores less what its
/// slips cost, as Ellis (2007, "Beat tracking by dynamic programming") follows a beat in music.
#[derive(Debug)]
pub struct Track {
    period: usize,
    scores: Scores,
    totals: Vec<f32>,
    before: Vec<u32>,
}

/// Stands for no batch before.
const NONE: u32 = u32::MAX;

impl Track {
    /// For a period of at least 2 batches.
    pub fn new(period: usize) -> Self {
        Self { period: period.max(2), scores: Scores::default(), totals: Vec::new(), before: Vec::new() }
    }

    /// Places of the periodic batches of a window, in order; none where all times are equal or the window is too short.
    pub fn beats(&mut self, times: &[f64]) -> Vec<usize> {
        let (n, period) = (times.len(), self.period);
        if n < 2 * period {
            return Vec::new();
        }
        let Some(scores) = self.scores.slowness(times) else { return Vec::new() };
        let reach = (period / 4).clamp(usize::from(period > 2), WIDEST);
        self.totals.clear();
        self.before.clear();
        for (at, score) in scores.iter().enumerate() {
            let mut best = (0.0, NONE);
            // A chain may begin in the first period only, and later ones have no other choice than to go on.
            if at >= period {
                best.0 = f32::NEG_INFINITY;
                for gap in period - reach..=(period + reach).min(at) {
                    let from = at - gap;
                    let total = self.totals[from] - SLIP * gap.abs_diff(period) as f32;
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
