use std::collections::BTreeMap;

use expctl_record::{LabelMixing, ShuffleQuality};

use super::{RowSampler, expected_entropy};
use crate::array::Labels;

/// Measures how well the rows of an epoch are shuffled, batch by batch. Some nanoseconds and one bit a row.
#[derive(Clone, Debug)]
pub struct ShuffleMeter<'l> {
    population: u64,
    /// Rows of the epoch.
    expected: u64,
    rows: u64,
    batches: u64,
    duplicates: u64,
    /// A bit for each row that was drawn.
    met: Vec<u64>,
    distance: f64,
    last: Option<f64>,
    pairs: Pairs,
    labels: Option<Mixing<'l>>,
}

impl<'l> ShuffleMeter<'l> {
    /// For an epoch of `expected` rows out of `population`. `labels` are of each row of the population, with what they are
    /// called.
    pub fn new(population: u64, expected: u64, labels: Option<(&str, &'l Labels)>) -> Self {
        Self {
            population,
            expected,
            rows: 0,
            batches: 0,
            duplicates: 0,
            met: vec![0; population.div_ceil(64) as usize],
            distance: 0.0,
            last: None,
            pairs: Pairs::default(),
            labels: labels.map(|(column, labels)| Mixing::new(column, labels)),
        }
    }

    /// Measure one epoch of a sampler.
    pub fn epoch(
        sampler: &RowSampler,
        population: u64,
        labels: Option<(&str, &'l Labels)>,
        epoch: u64,
    ) -> ShuffleQuality {
        let mut meter = Self::new(population, sampler.rows_per_epoch(), labels);
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
        let (n, len) = (self.population.max(1) as f64, self.expected.max(1) as f64);
        for &row in rows {
            let Some(word) = self.met.get_mut((row / 64) as usize) else { continue };
            let bit = 1 << (row % 64);
            self.duplicates += u64::from(*word & bit != 0);
            *word |= bit;
            let (source, place) = (row as f64 / n, self.rows as f64 / len);
            self.distance += (source - place).abs();
            if let Some(last) = self.last.replace(source - 0.5) {
                self.pairs.add(last, source - 0.5);
            }
            self.rows += 1;
        }
        if let Some(labels) = &mut self.labels {
            labels.add(rows);
        }
    }

    /// What it comes to.
    pub fn finish(self) -> ShuffleQuality {
        ShuffleQuality {
            rows: self.rows,
            batches: self.batches,
            duplicates: self.duplicates,
            neighbour_correlation: self.pairs.correlation(),
            mean_distance: self.distance / self.rows.max(1) as f64,
            labels: self.labels.map(|labels| labels.finish(self.batches)),
        }
    }
}

/// Sums over pairs of neighbours.
#[derive(Clone, Debug, Default)]
struct Pairs {
    count: f64,
    sums: [f64; 2],
    squares: [f64; 2],
    product: f64,
}

impl Pairs {
    fn add(&mut self, a: f64, b: f64) {
        self.count += 1.0;
        self.sums = [self.sums[0] + a, self.sums[1] + b];
        self.squares = [self.squares[0] + a * a, self.squares[1] + b * b];
        self.product += a * b;
    }

    /// Pearson's; none where one side is constant.
    fn correlation(&self) -> Option<f64> {
        let variance = |i: usize| self.squares[i] * self.count - self.sums[i] * self.sums[i];
        let covariance = self.product * self.count - self.sums[0] * self.sums[1];
        let scale = (variance(0) * variance(1)).sqrt();
        (scale > 0.0).then(|| (covariance / scale).clamp(-1.0, 1.0))
    }
}

/// How the classes of a label are mixed. Rows without a class are one of their own.
#[derive(Clone, Debug)]
struct Mixing<'l> {
    column: String,
    codes: &'l [i32],
    in_batch: Vec<u32>,
    in_epoch: Vec<u64>,
    /// c log2 c.
    terms: Vec<f64>,
    entropy: f64,
    /// Batches of each size.
    sizes: BTreeMap<u64, u64>,
}

impl<'l> Mixing<'l> {
    fn new(column: &str, labels: &'l Labels) -> Self {
        let classes = labels.categories.len() + 1;
        Self {
            column: column.into(),
            codes: &labels.codes,
            in_batch: vec![0; classes],
            in_epoch: vec![0; classes],
            terms: vec![0.0],
            entropy: 0.0,
            sizes: BTreeMap::new(),
        }
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
            self.in_epoch[class] += 1;
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
        let ideal: f64 =
            self.sizes.iter().map(|(size, batches)| *batches as f64 * expected_entropy(&self.in_epoch, *size)).sum();
        LabelMixing {
            column: self.column,
            classes: self.in_epoch.iter().filter(|count| **count > 0).count() as u64,
            entropy: self.entropy / batches.max(1) as f64,
            ideal_entropy: ideal / batches.max(1) as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(codes: Vec<i32>) -> Labels {
        Labels { categories: vec!["a".into(), "b".into()], codes, ..Labels::default() }
    }

    fn measured(population: u64, order: &[u64], batch: usize, labels: &Labels) -> ShuffleQuality {
        let mut meter = ShuffleMeter::new(population, order.len() as u64, Some(("kind", labels)));
        order.chunks(batch).for_each(|rows| meter.add(rows));
        meter.finish()
    }

    #[test]
    fn as_they_are_is_no_shuffle() {
        let labels = labels((0..100).map(|row| i32::from(row >= 50)).collect());
        let quality = measured(100, &(0..100).collect::<Vec<_>>(), 10, &labels);
        assert_eq!((quality.rows, quality.batches, quality.duplicates, quality.mean_distance), (100, 10, 0, 0.0));
        assert!(quality.neighbour_correlation.unwrap() > 0.999);
        let mixing = quality.labels.unwrap();
        assert_eq!((mixing.classes, mixing.entropy), (2, 0.0));
        assert!(mixing.ideal_entropy > 0.9 && mixing.ideal_entropy < 1.0);
    }

    #[test]
    fn classes_in_turn_are_better_mixed_than_by_chance() {
        let labels = labels((0..8).map(|row| row % 2).collect());
        let quality = measured(8, &[0, 1, 6, 7, 2, 3, 3, 5], 4, &labels);
        assert_eq!(quality.duplicates, 1);
        let distances = [0, 0, 4, 4, 2, 2, 3, 2].iter().sum::<i32>();
        assert!((quality.mean_distance - f64::from(distances) / 64.0).abs() < 1e-12);
        // Two of each; then one of one and three of the other.
        let expected = (1.0 - (0.25f64 * 0.25f64.log2() + 0.75 * 0.75f64.log2())) / 2.0;
        assert!((quality.labels.unwrap().entropy - expected).abs() < 1e-12);
    }

    #[test]
    fn rows_without_a_class_are_one_and_an_order_of_one_row_has_no_correlation() {
        let quality = measured(4, &[0, 1, 2, 3], 4, &labels(vec![-1, -1, 0, 0]));
        assert_eq!(quality.labels.map(|mixing| (mixing.classes, mixing.entropy)), Some((2, 1.0)));
        assert_eq!(measured(4, &[2, 2, 2], 4, &labels(vec![0; 4])).neighbour_correlation, None);
    }
}
