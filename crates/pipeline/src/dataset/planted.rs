//! Labels that a model can find: the product of the strengths of the perturbed genes, and noise.

use super::labels::statistics;
use super::rng::Stream;
use super::triples::GENES_PER_SAMPLE;

/// Strengths are uniform between these: a third of the genes turns the sign, and what a sum over genes can explain is
/// a seventh of the variance of their products.
const STRENGTHS: (f64, f64) = (-1.0, 2.0);
/// Standard deviation of the noise over that of the products.
const NOISE: f64 = 0.2;

/// Labels of samples with these genes (indices below `num_genes`), before they are fitted to published statistics.
pub(super) fn values(
    samples: impl Iterator<Item = [u32; GENES_PER_SAMPLE]>,
    num_genes: u64,
    seed: u64,
    scale: f64,
) -> Vec<f64> {
    let strengths = strengths(num_genes, seed, scale);
    let product = |genes: [u32; GENES_PER_SAMPLE]| genes.iter().map(|gene| strengths[*gene as usize]).product();
    let mut values: Vec<f64> = samples.map(product).collect();
    let (_, sd) = statistics(&values);
    let mut stream = Stream::new(seed, scale, "planted noise");
    values.iter_mut().for_each(|value| *value += NOISE * sd * bell(&mut stream));
    values
}

fn strengths(num_genes: u64, seed: u64, scale: f64) -> Vec<f64> {
    let mut stream = Stream::new(seed, scale, "planted strengths");
    let (low, high) = STRENGTHS;
    (0..num_genes).map(|_| low + (high - low) * stream.unit()).collect()
}

/// Nearly normal with mean 0 and standard deviation 1, by additions alone: the sum of twelve uniform numbers, less 6.
fn bell(stream: &mut Stream) -> f64 {
    (0..12).map(|_| stream.unit()).sum::<f64>() - 6.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const GENES: u64 = 330;
    const SCALE: f64 = 0.05;

    /// 20,000 samples of the grid that a data set at scale 0.05 has, with their labels.
    fn planted() -> (Vec<[u32; 3]>, Vec<f64>) {
        use crate::dataset::genes::Genes;
        use crate::dataset::triples::Triples;
        let genes = Genes {
            names: (0..GENES).map(|k| format!("Y{k:04}")).collect(),
            real: GENES,
            position_of_row: Vec::new(),
            real_positions: (0..GENES as u32).collect(),
        };
        let triples = Triples::new(&genes, 332_313, 42, SCALE);
        let samples: Vec<_> = (0..20_000).map(|index| triples.at(index)).collect();
        let values = values(samples.iter().copied(), GENES, 42, SCALE);
        (samples, values)
    }

    fn pearson(a: &[f64], b: &[f64]) -> f64 {
        let ((mean_a, sd_a), (mean_b, sd_b)) = (statistics(a), statistics(b));
        a.iter().zip(b).map(|(a, b)| (a - mean_a) * (b - mean_b)).sum::<f64>() / (a.len() as f64 * sd_a * sd_b)
    }

    /// The best sum of one number per gene: least squares on the samples themselves, gene by gene (Gauss–Seidel) until
    /// nothing changes.
    fn additive(samples: &[[u32; 3]], values: &[f64]) -> Vec<f64> {
        let mut with = vec![Vec::new(); GENES as usize];
        for (i, genes) in samples.iter().enumerate() {
            genes.iter().for_each(|gene| with[*gene as usize].push(i));
        }
        let mut rest = values.to_vec();
        for _ in 0..300 {
            for of in with.iter().filter(|of| !of.is_empty()) {
                let change = of.iter().map(|i| rest[*i]).sum::<f64>() / of.len() as f64;
                of.iter().for_each(|i| rest[*i] -= change);
            }
        }
        values.iter().zip(&rest).map(|(value, rest)| value - rest).collect()
    }

    #[test]
    fn no_sum_over_genes_explains_planted_labels_and_the_product_does() {
        let (samples, values) = planted();
        let strengths = strengths(GENES, 42, SCALE);
        let truth: Vec<f64> =
            samples.iter().map(|genes| genes.iter().map(|g| strengths[*g as usize]).product()).collect();
        let (ceiling, sum) = (pearson(&truth, &values), pearson(&additive(&samples, &values), &values));
        // In docs/datasets.md. The noise leaves 1 / √(1 + 0.2²) = 0.981.
        assert!((ceiling - 0.981).abs() < 0.002, "{ceiling}");
        assert!(sum < 0.36, "{sum}");
    }

    #[test]
    fn strengths_depend_on_seed_and_scale_and_fill_their_range() {
        let all = strengths(6607, 42, 1.0);
        assert!(all.iter().all(|s| (-1.0..2.0).contains(s)));
        let (mean, sd) = statistics(&all);
        assert!((mean - 0.5).abs() < 0.05 && (sd - 0.75f64.sqrt()).abs() < 0.05, "{mean} {sd}");
        assert_ne!(all[..100], strengths(100, 43, 1.0));
        assert_ne!(all[..100], strengths(100, 42, 0.5));
    }
}
