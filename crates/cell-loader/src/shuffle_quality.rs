//! `ShuffleMeter` measures how well a `RowSampler` shuffles: distances, correlation of neighbours, and mixing of classes. It needs row indices
//! and class codes alone, and reads no rows.

use std::collections::BTreeMap;

use anndata_io::Labels;

use crate::sampler::RowSampler;

/// How well the rows of an epoch of one rank are shuffled, or those of its first batches.
#[derive(Clone, Debug, PartialEq)]
pub struct ShuffleQuality {
    /// Rows of the rank's epoch.
    pub epoch_rows: u64,
    /// Rows that were measured: the first of the epoch.
    pub metered_rows: u64,
    /// Batches that were measured.
    pub metered_batches: u64,
    /// Measured rows that had been drawn before.
    pub duplicates: u64,
    /// Correlation of the positions in the files of consecutive rows: 0 of a perfect shuffle, 1 of none. `None` if there are
    /// fewer than two different rows.
    pub neighbour_correlation: Option<f64>,
    /// Mean of |position in the files − position in the epoch of all ranks|, both as fractions: 0 of no shuffle.
    pub mean_distance: f64,
    /// `mean_distance` of a perfect shuffle: 1/3 of whole epochs.
    pub expected_distance: f64,
    /// How the classes of a label are mixed, if there is a label.
    pub labels: Option<LabelMixing>,
}

/// How the classes of a label are mixed.
#[derive(Clone, Debug, PartialEq)]
pub struct LabelMixing {
    /// The column of obs.
    pub column: String,
    /// Classes among the measured rows; no class counts as one.
    pub classes: u64,
    /// Mean entropy of a batch's classes, bits.
    pub entropy: f64,
    /// The same of batches drawn at random, bits: from all rows; of a draw with replacement from the measured ones.
    pub ideal_entropy: f64,
}

/// Measures how well the rows of an epoch are shuffled, batch by batch. Some nanoseconds and one bit a row.
///
/// A row at fraction u of the files that comes at fraction v of the epoch has the distance |u − v|. If u is uniform, its mean is
/// v² − v + ½.
#[derive(Clone, Debug)]
pub struct ShuffleMeter<'l> {
    sampler: &'l RowSampler,
    population: u64,
    rows: u64,
    batches: u64,
    duplicates: u64,
    /// A bit for each row: it was drawn.
    drawn: Vec<u64>,
    distance: f64,
    expected_distance: f64,
    last: Option<f64>,
    pairs: NeighbourPairs,
    labels: Option<ClassMixing<'l>>,
}

impl<'l> ShuffleMeter<'l> {
    /// A meter for the batches of an epoch of `sampler`, in order from the first, of rows out of `population`. `labels` are the
    /// name and the codes of a label column.
    pub fn new(sampler: &'l RowSampler, population: u64, labels: Option<(&str, &'l Labels)>) -> Self {
        Self {
            sampler,
            population,
            rows: 0,
            batches: 0,
            duplicates: 0,
            drawn: vec![0; population.div_ceil(64) as usize],
            distance: 0.0,
            expected_distance: 0.0,
            last: None,
            pairs: NeighbourPairs::default(),
            labels: labels.map(|(column, labels)| ClassMixing::new(column, labels, sampler.replaces())),
        }
    }

    /// Measure one epoch of a sampler.
    pub fn epoch(
        sampler: &'l RowSampler,
        population: u64,
        labels: Option<(&str, &'l Labels)>,
        epoch: u64,
    ) -> ShuffleQuality {
        let mut meter = Self::new(sampler, population, labels);
        let batches = sampler.batches_per_epoch();
        let mut rows = Vec::new();
        for step in epoch * batches..(epoch + 1) * batches {
            rows.clear();
            sampler.batch(step, &mut rows);
            meter.add(&rows);
        }
        meter.finish()
    }

    /// The next batch. Rows beyond the population are left out.
    pub fn add(&mut self, rows: &[u64]) {
        self.batches += 1;
        let n = self.population.max(1) as f64;
        for &row in rows {
            let Some(word) = self.drawn.get_mut((row / 64) as usize) else { continue };
            let bit = 1 << (row % 64);
            self.duplicates += u64::from(*word & bit != 0);
            *word |= bit;
            let (source, position) = (row as f64 / n, self.sampler.epoch_fraction(self.rows));
            self.distance += (source - position).abs();
            self.expected_distance += position * position - position + 0.5;
            if let Some(last) = self.last.replace(source - 0.5) {
                self.pairs.add(last, source - 0.5);
            }
            self.rows += 1;
        }
        if let Some(labels) = &mut self.labels {
            labels.add(rows);
        }
    }

    /// The measurements.
    pub fn finish(self) -> ShuffleQuality {
        ShuffleQuality {
            epoch_rows: self.sampler.rows_per_epoch(),
            metered_rows: self.rows,
            metered_batches: self.batches,
            duplicates: self.duplicates,
            neighbour_correlation: self.pairs.correlation(),
            mean_distance: self.distance / self.rows.max(1) as f64,
            expected_distance: self.expected_distance / self.rows.max(1) as f64,
            labels: self.labels.map(|labels| labels.finish(self.batches)),
        }
    }
}

/// Sums over pairs of consecutive rows.
#[derive(Clone, Debug, Default)]
struct NeighbourPairs {
    count: f64,
    sums: [f64; 2],
    squares: [f64; 2],
    product: f64,
}

impl NeighbourPairs {
    fn add(&mut self, a: f64, b: f64) {
        self.count += 1.0;
        self.sums = [self.sums[0] + a, self.sums[1] + b];
        self.squares = [self.squares[0] + a * a, self.squares[1] + b * b];
        self.product += a * b;
    }

    /// Pearson's correlation; `None` if one side is constant.
    fn correlation(&self) -> Option<f64> {
        let variance = |i: usize| self.squares[i] * self.count - self.sums[i] * self.sums[i];
        let covariance = self.product * self.count - self.sums[0] * self.sums[1];
        let scale = (variance(0) * variance(1)).sqrt();
        (scale > 0.0).then(|| (covariance / scale).clamp(-1.0, 1.0))
    }
}

/// Entropy of the classes of a label. Rows without a class are a class of their own.
#[derive(Clone, Debug)]
struct ClassMixing<'l> {
    column: String,
    codes: &'l [i32],
    in_batch: Vec<u32>,
    /// Measured rows of each class.
    measured: Vec<u64>,
    /// All rows of each class; `None` if the measured ones are to be compared with.
    all: Option<Vec<u64>>,
    /// c log2 c.
    terms: Vec<f64>,
    entropy: f64,
    /// Batches of each size.
    sizes: BTreeMap<u64, u64>,
}

impl<'l> ClassMixing<'l> {
    /// `replaces`: rows are drawn with replacement.
    fn new(column: &str, labels: &'l Labels, replaces: bool) -> Self {
        let classes = labels.categories.len() + 1;
        let mut mixing = Self {
            column: column.into(),
            codes: &labels.codes,
            in_batch: vec![0; classes],
            measured: vec![0; classes],
            all: None,
            terms: vec![0.0],
            entropy: 0.0,
            sizes: BTreeMap::new(),
        };
        if !replaces {
            let mut all = vec![0; classes];
            (0..labels.codes.len() as u64).for_each(|row| all[mixing.class(row)] += 1);
            mixing.all = Some(all);
        }
        mixing
    }

    fn class(&self, row: u64) -> usize {
        let none = self.in_batch.len() - 1;
        self.codes.get(row as usize).map_or(none, |code| usize::try_from(*code).map_or(none, |class| class.min(none)))
    }

    fn add(&mut self, rows: &[u64]) {
        while self.terms.len() <= rows.len() {
            let count = self.terms.len() as f64;
            self.terms.push(count * count.log2());
        }
        for &row in rows {
            let class = self.class(row);
            self.in_batch[class] += 1;
            self.measured[class] += 1;
        }
        let mut sum = 0.0;
        for &row in rows {
            let class = self.class(row);
            sum += self.terms[std::mem::take(&mut self.in_batch[class]) as usize];
        }
        if !rows.is_empty() {
            let size = rows.len() as f64;
            self.entropy += (size.log2() - sum / size).max(0.0);
            *self.sizes.entry(rows.len() as u64).or_default() += 1;
        }
    }

    fn finish(self, batches: u64) -> LabelMixing {
        let from = self.all.as_ref().unwrap_or(&self.measured);
        let ideal: f64 = self.sizes.iter().map(|(size, batches)| *batches as f64 * expected_entropy(from, *size)).sum();
        LabelMixing {
            column: self.column,
            classes: self.measured.iter().filter(|count| **count > 0).count() as u64,
            entropy: self.entropy / batches.max(1) as f64,
            ideal_entropy: ideal / batches.max(1) as f64,
        }
    }
}

/// Mean entropy, in bits, of the classes of `size` rows that are taken at random, without replacement, from rows of which
/// `counts` are of each class.
///
/// Exact: how often a class comes is hypergeometric, and the entropy is a sum over classes, so its mean is one of means.
pub fn expected_entropy(counts: &[u64], size: u64) -> f64 {
    let all: u64 = counts.iter().sum();
    let size = size.min(all);
    if size == 0 {
        return 0.0;
    }
    counts.iter().filter(|count| **count > 0).map(|&count| expected_term(all, count, size)).sum()
}

/// Mean of −(k/size) log2(k/size), k hypergeometric: of `size` rows taken from `all`, of which `count` are of the class.
fn expected_term(all: u64, count: u64, size: u64) -> f64 {
    let [n, c, b] = [all, count, size].map(|number| number as f64);
    let (lowest, highest) = ((size + count).saturating_sub(all), size.min(count));
    let term = |k: u64| {
        let share = k as f64 / b;
        if k == 0 { 0.0 } else { -share * share.log2() }
    };
    // From the mode to both sides, by the ratio of neighbours; normalised at the end. Nothing under- or overflows.
    let mode = (((b + 1.0) * (c + 1.0) / (n + 2.0)) as u64).clamp(lowest, highest);
    let (mut total, mut mean) = (1.0, term(mode));
    let mut chance = 1.0;
    for k in mode + 1..=highest {
        let k_f = k as f64;
        chance *= (c - k_f + 1.0) * (b - k_f + 1.0) / (k_f * (n - c - b + k_f));
        total += chance;
        mean += chance * term(k);
        if chance < 1e-20 {
            break;
        }
    }
    chance = 1.0;
    for k in (lowest..mode).rev() {
        let k_f = k as f64;
        chance *= (k_f + 1.0) * (n - c - b + k_f + 1.0) / ((c - k_f) * (b - k_f));
        total += chance;
        mean += chance * term(k);
        if chance < 1e-20 {
            break;
        }
    }
    mean / total
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Over all ways to take `size` of the rows.
    fn by_listing(counts: &[u64], size: u32) -> f64 {
        let classes: Vec<usize> = counts.iter().enumerate().flat_map(|(c, n)| vec![c; *n as usize]).collect();
        let taken = (0u32..1 << classes.len()).filter(|set| set.count_ones() == size);
        let entropies: Vec<f64> = taken
            .map(|set| {
                let mut met = vec![0.0; counts.len()];
                (0..classes.len()).filter(|row| set >> row & 1 == 1).for_each(|row| met[classes[row]] += 1.0);
                met.iter().map(|k| k / f64::from(size)).filter(|share| *share > 0.0).map(|s| -s * s.log2()).sum()
            })
            .collect();
        entropies.iter().sum::<f64>() / entropies.len() as f64
    }

    #[test]
    fn the_mean_over_all_batches() {
        for (counts, size) in
            [(&[4, 3, 5][..], 4), (&[1, 11], 3), (&[12], 5), (&[2, 2, 2, 2, 2, 2], 12), (&[0, 7, 2], 1)]
        {
            let (exact, listed) = (expected_entropy(counts, size.into()), by_listing(counts, size));
            assert!((exact - listed).abs() < 1e-12, "{counts:?} {size}: {exact} {listed}");
        }
    }

    #[test]
    fn large_numbers_and_none() {
        // Far from small samples it is the entropy of the shares.
        let entropy = expected_entropy(&[10_000_000, 10_000_000, 20_000_000], 1_000_000);
        assert!((entropy - 1.5).abs() < 1e-5, "{entropy}");
        assert_eq!(
            (expected_entropy(&[], 4), expected_entropy(&[3], 0), expected_entropy(&[0, 0], 3)),
            (0.0, 0.0, 0.0)
        );
    }
}
