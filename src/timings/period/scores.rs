use statrs::distribution::{ContinuousCDF, Normal};

/// Scores by rank of a window: what the batch with the k-th smallest of n times counts for.
///
/// Normal (van der Waerden) scores keep the shape of slow drifts, so these are what the drift is estimated on. Exponential
/// (Savage) scores weigh the slow end, so these are what the period is looked for in. Both have mean 0 and variance 1.
#[derive(Debug, Default)]
pub struct Scores {
    normal: Vec<f64>,
    savage: Vec<f64>,
    order: Vec<u32>,
}

impl Scores {
    /// Exponential scores of what the batch before does not explain; none where it explains nothing, or all times are equal.
    ///
    /// Neighbours that resemble each other (an AR(1) process) make every lag look more certain than it is. Taking the
    /// previous batch's part out of each (pre-whitening; von Storch 1995), of normal scores, leaves the innovations, which are
    /// exchangeable if the process is AR(1) after some monotone map. A negative correlation is left in: that is what a period
    /// of 2 looks like.
    pub fn innovations(&mut self, times: &[f64]) -> Option<Vec<f32>> {
        self.prepare(times.len());
        let normal = self.scored(times, Self::normal)?;
        let phi = correlation_with_next(&normal).min(0.99);
        // Within what chance gives, nothing is taken out.
        if phi < 2.0 / (times.len() as f64).sqrt() {
            return None;
        }
        let mut before = 0.0;
        let innovations: Vec<f64> = normal.iter().map(|x| x - phi * std::mem::replace(&mut before, *x)).collect();
        self.scored(&innovations, Self::savage).map(narrow)
    }

    /// Exponential scores of the times as they are: large where a batch is slow.
    pub fn slowness(&mut self, times: &[f64]) -> Option<Vec<f32>> {
        self.prepare(times.len());
        self.scored(times, Self::savage).map(narrow)
    }

    fn normal(&self) -> &[f64] {
        &self.normal
    }

    fn savage(&self) -> &[f64] {
        &self.savage
    }

    fn prepare(&mut self, n: usize) {
        if self.normal.len() == n {
            return;
        }
        let standard = Normal::standard();
        self.normal = (0..n).map(|k| standard.inverse_cdf((k as f64 + 0.5) / n as f64)).collect();
        self.savage = (0..n).map(|k| -(1.0 - (k as f64 + 0.5) / n as f64).ln() - 1.0).collect();
    }

    /// The table's scores in the order of the values, equal values sharing theirs, brought to mean 0 and variance 1.
    fn scored(&mut self, values: &[f64], table: fn(&Self) -> &[f64]) -> Option<Vec<f64>> {
        let n = values.len();
        self.order.clear();
        self.order.extend(0..n as u32);
        let mut order = std::mem::take(&mut self.order);
        order.sort_unstable_by(|a, b| values[*a as usize].total_cmp(&values[*b as usize]));
        let table = table(self);
        let mut scores = vec![0.0; n];
        let mut first = 0;
        while first < n {
            let value = values[order[first] as usize];
            let last = first + order[first..].iter().take_while(|i| values[**i as usize] == value).count();
            let shared = table[first..last].iter().sum::<f64>() / (last - first) as f64;
            order[first..last].iter().for_each(|i| scores[*i as usize] = shared);
            first = last;
        }
        self.order = order;
        let mean = scores.iter().sum::<f64>() / n as f64;
        let variance = scores.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / n as f64;
        if variance < 1e-12 {
            return None;
        }
        let scale = variance.sqrt().recip();
        scores.iter_mut().for_each(|s| *s = (*s - mean) * scale);
        Some(scores)
    }
}

fn narrow(scores: Vec<f64>) -> Vec<f32> {
    scores.into_iter().map(|s| s as f32).collect()
}

/// Correlation of each value with the next one, of values with mean 0 and variance 1.
fn correlation_with_next(values: &[f64]) -> f64 {
    values.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>() / values.len() as f64
}
