//! The samples of a data set of a graph: `Triples` chooses their perturbed genes, `SampleLabels` draws labels and p-values, and `SampleGenes` is the
//! file from which genes are read without the records.

use std::collections::HashMap;
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use crate::graph::dataset::Dataset;
use crate::graph::networks::GeneNames;
use crate::graph::recipe::Samples;
use crate::random::{Bijection, RandomStream};
use crate::{Damage, DatasetError, RequestError};

/// Perturbed genes of a sample.
pub const GENES_PER_SAMPLE: usize = 3;

/// The design of the study: pairs of query genes (double mutants), each crossed with an array of other genes.
///
/// Invariant: query genes and array genes are apart, so each cell of the grid is another set of three distinct genes.
pub struct Triples {
    query: Vec<u32>,
    array: Vec<u32>,
    pairs: Bijection,
    num_pairs: u64,
    cells: Bijection,
}

/// Share of the genes that are on the array; about 1,200 of 6,607 in the study.
const ARRAY_SHARE: (u64, u64) = (2, 11);

impl Triples {
    /// The grid of a data set; `published` samples fit into it at full scale, with some to spare.
    pub fn new(genes: &GeneNames, published: u64, seed: u64, scale: f64) -> Self {
        let mut stream = RandomStream::new(seed, scale, "samples");
        let all: Vec<u32> = (0..genes.len() as u32).collect();
        // The strains of the study are real; generated genes are used only where there is hardly anything else.
        let pool = if genes.real * 2 >= genes.len() { &genes.real_positions } else { &all };
        let shuffled: Vec<u32> = stream.permutation(pool.len() as u64).into_iter().map(|k| pool[k as usize]).collect();
        let on_array = (shuffled.len() as u64 * ARRAY_SHARE.0 / ARRAY_SHARE.1).max(1).min(shuffled.len() as u64);
        let (array, query) = shuffled.split_at(on_array as usize);
        let possible = query.len() as u64 * (query.len() as u64).saturating_sub(1) / 2;
        let wanted = (published + published / 12).div_ceil(on_array.max(1));
        let num_pairs = wanted.min(possible);
        Self {
            pairs: stream.bijection(possible),
            cells: stream.bijection(num_pairs * on_array),
            query: query.to_vec(),
            array: array.to_vec(),
            num_pairs,
        }
    }

    /// The most distinct samples.
    pub fn capacity(&self) -> u64 {
        self.num_pairs * self.array.len() as u64
    }

    /// Fail where `samples` do not fit.
    pub fn check(&self, samples: u64, scale: f64) -> Result<(), DatasetError> {
        if samples <= self.capacity() {
            return Ok(());
        }
        Err(RequestError::DistinctSamples { samples, scale, max: self.capacity() }.into())
    }

    /// Genes of sample `index`, which is below [`Self::capacity`], ascending.
    pub fn at(&self, index: u64) -> [u32; GENES_PER_SAMPLE] {
        let cell = self.cells.at(index);
        let (pair, column) = (cell % self.num_pairs, cell / self.num_pairs);
        let (a, b) = unrank(self.pairs.at(pair));
        let mut genes = [self.query[a as usize], self.query[b as usize], self.array[column as usize]];
        genes.sort_unstable();
        genes
    }
}

/// The `rank`-th pair (a, b) with b < a, in the order (1,0) (2,0) (2,1) (3,0) …
fn unrank(rank: u64) -> (u64, u64) {
    // Positive root of a(a-1)/2 = rank, put right where the square root of a large number was rounded.
    let mut a = ((1.0 + (1.0 + 8.0 * rank as f64).sqrt()) / 2.0) as u64;
    while a * (a - 1) / 2 > rank {
        a -= 1;
    }
    while (a + 1) * a / 2 <= rank {
        a += 1;
    }
    (a, rank - a * (a - 1) / 2)
}

/// Label and p-value of each sample.
pub struct SampleLabels {
    pub values: Vec<f64>,
    pub p_values: Vec<f64>,
}

/// From this many samples on, the smallest and the largest published label are among them.
const EXTREMES_FROM: u64 = 10_000;
/// Half-width of the standard distribution before it is fitted.
const CUT: f64 = 30.0;

impl SampleLabels {
    /// `count` labels: Student's t with two degrees of freedom (cut off at ±30), shifted and scaled so that mean and
    /// population standard deviation over these `count` samples are the published ones.
    pub fn new(published: &Samples, count: u64, seed: u64, scale: f64) -> Self {
        let mut stream = RandomStream::new(seed, scale, "labels");
        let values: Vec<f64> = (0..count).map(|_| student_t2(&mut stream)).collect();
        let mut fixed = None;
        if count >= EXTREMES_FROM {
            let low = stream.below(count);
            let high = (low + 1 + stream.below(count - 1)) % count;
            fixed = Some([(low as usize, published.label_min), (high as usize, published.label_max)]);
        }
        Self::fitted(values, published, fixed, &mut stream)
    }

    /// These values with the published mean and population standard deviation: labels that follow from the genes. None is
    /// set to a published extreme, which would not follow from anything.
    pub fn planted(values: Vec<f64>, published: &Samples, seed: u64, scale: f64) -> Self {
        Self::fitted(values, published, None, &mut RandomStream::new(seed, scale, "planted p-values"))
    }

    fn fitted(
        mut values: Vec<f64>,
        published: &Samples,
        fixed: Option<[(usize, f64); 2]>,
        stream: &mut RandomStream,
    ) -> Self {
        fit(&mut values, published, fixed);
        let p_value = |value: &f64| {
            let z = (value - published.label_mean) / published.label_sd;
            stream.unit() / (1.0 + z * z)
        };
        let p_values = values.iter().map(p_value).collect();
        Self { values, p_values }
    }
}

/// Quantile of Student's t with two degrees of freedom, which needs no more than a square root, at a random level.
fn student_t2(stream: &mut RandomStream) -> f64 {
    loop {
        let u = stream.unit();
        let t = (2.0 * u - 1.0) / (2.0 * u * (1.0 - u)).sqrt();
        if t.abs() <= CUT {
            return t;
        }
    }
}

/// Mean and population standard deviation.
pub fn statistics(values: &[f64]) -> (f64, f64) {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / n;
    (mean, variance.sqrt())
}

/// Shift and scale the values, but for those that are fixed, until all together have the published mean and standard
/// deviation and lie within the published range. Too few or equal values keep what spread they have.
fn fit(values: &mut [f64], published: &Samples, fixed: Option<[(usize, f64); 2]>) {
    let n = values.len() as f64;
    let fixed = fixed.as_ref().map_or(&[][..], |pair| &pair[..]);
    let free = n - fixed.len() as f64;
    // Sum that the free values must have, around the published mean.
    let sum = -fixed.iter().map(|(_, value)| value - published.label_mean).sum::<f64>();
    let squares = n * published.label_sd * published.label_sd
        - fixed.iter().map(|(_, value)| (value - published.label_mean) * (value - published.label_mean)).sum::<f64>();
    let mean = sum / free;
    let sd = (squares / free - mean * mean).max(0.0).sqrt();
    // A second round removes what rounding left; more are needed only where an outlier had to be pulled in.
    for round in 0..200 {
        for &(index, _) in fixed {
            // Stands in for the free mean, so that the fixed ones do not disturb the statistics of the others.
            values[index] = 0.0;
        }
        let total: f64 = values.iter().sum();
        let centre = total / free;
        let spread = (values.iter().map(|v| (v - centre) * (v - centre)).sum::<f64>()
            - fixed.len() as f64 * centre * centre)
            .max(0.0)
            / free;
        let factor = if spread > 0.0 { sd / spread.sqrt() } else { 0.0 };
        let mut outside = false;
        for value in &mut *values {
            *value = published.label_mean + mean + (*value - centre) * factor;
            let inside = value.clamp(published.label_min * 0.99, published.label_max * 0.99);
            outside |= inside != *value;
            *value = inside;
        }
        if !outside && round > 0 {
            break;
        }
    }
    for &(index, value) in fixed {
        values[index] = value;
    }
}

// Labels that a model can learn: the product of the strengths of the perturbed genes, and noise.

/// Strengths are uniform between these: a third of the genes turns the sign, and what a sum over genes can explain is
/// a seventh of the variance of their products.
const STRENGTHS: (f64, f64) = (-1.0, 2.0);
/// Standard deviation of the noise over that of the products.
const NOISE: f64 = 0.2;

/// Labels of samples with these genes (indices below `num_genes`), before they are fitted to published statistics.
pub fn values(
    samples: impl Iterator<Item = [u32; GENES_PER_SAMPLE]>,
    num_genes: u64,
    seed: u64,
    scale: f64,
) -> Vec<f64> {
    let strengths = strengths(num_genes, seed, scale);
    let product = |genes: [u32; GENES_PER_SAMPLE]| genes.iter().map(|gene| strengths[*gene as usize]).product();
    let mut values: Vec<f64> = samples.map(product).collect();
    let (_, sd) = statistics(&values);
    let mut stream = RandomStream::new(seed, scale, "planted noise");
    values.iter_mut().for_each(|value| *value += NOISE * sd * bell(&mut stream));
    values
}

fn strengths(num_genes: u64, seed: u64, scale: f64) -> Vec<f64> {
    let mut stream = RandomStream::new(seed, scale, "planted strengths");
    let (low, high) = STRENGTHS;
    (0..num_genes).map(|_| low + (high - low) * stream.unit()).collect()
}

/// Nearly normal with mean 0 and standard deviation 1, by additions alone: the sum of twelve uniform numbers, less 6.
fn bell(stream: &mut RandomStream) -> f64 {
    (0..12).map(|_| stream.unit()).sum::<f64>() - 6.0
}

// `samples.safetensors`: int32 `genes` `[Σk]`, the perturbed genes of all samples, and int64 `ptr` `[N + 1]`, where each
// sample's start.

/// File name inside a data set.
pub const SAMPLES_FILE: &str = "samples.safetensors";

/// The perturbed genes of every sample of a data set, without its records: 4 MB where those are gigabytes of JSON.
///
/// Invariant: `ptr` starts with 0, never falls, and ends with the length of `genes`; the genes of a sample ascend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampleGenes {
    genes: Vec<i32>,
    ptr: Vec<i64>,
}

impl SampleGenes {
    /// From each sample's genes, ascending.
    pub fn new<'a>(samples: impl IntoIterator<Item = &'a [i32]>) -> Self {
        let mut all = Self { genes: Vec::new(), ptr: vec![0] };
        for genes in samples {
            all.genes.extend_from_slice(genes);
            all.ptr.push(all.genes.len() as i64);
        }
        all
    }

    /// Number of samples.
    pub fn len(&self) -> u64 {
        self.ptr.len().saturating_sub(1) as u64
    }

    /// No samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Genes of sample `index`, which is below [`Self::len`], ascending.
    pub fn of(&self, index: u64) -> &[i32] {
        let index = index as usize;
        &self.genes[self.ptr[index] as usize..self.ptr[index + 1] as usize]
    }

    /// Write the file.
    pub(crate) fn write(&self, path: &Path) -> Result<(), DatasetError> {
        let genes: Vec<u8> = self.genes.iter().flat_map(|gene| gene.to_le_bytes()).collect();
        let ptr: Vec<u8> = self.ptr.iter().flat_map(|at| at.to_le_bytes()).collect();
        let view = |dtype, len, bytes| TensorView::new(dtype, vec![len], bytes);
        let bytes = view(Dtype::I32, self.genes.len(), &genes)
            .and_then(|genes| Ok([("genes", genes), ("ptr", view(Dtype::I64, self.ptr.len(), &ptr)?)]))
            .and_then(|views| {
                let about = HashMap::from([("format".to_owned(), "expctl samples 1".to_owned())]);
                safetensors::serialize(views, Some(about))
            })
            .map_err(|e| DatasetError::damaged(path, e))?;
        std::fs::write(path, bytes).map_err(DatasetError::io("write", path))
    }

    /// Read the file of a data set with this many genes.
    fn read(path: &Path, num_genes: u64) -> Result<Self, DatasetError> {
        let bytes = std::fs::read(path).map_err(DatasetError::io("read", path))?;
        let tensors = SafeTensors::deserialize(&bytes).map_err(|e| DatasetError::damaged(path, e))?;
        let refused = |damage: Damage| DatasetError::damaged(path, damage);
        let data = |name: &str, dtype| {
            let tensor =
                tensors.tensor(name).map_err(|e| refused(Damage::Tensor { name: name.to_owned(), source: e }))?;
            if tensor.dtype() != dtype || tensor.shape().len() != 1 {
                let (name, shape) = (name.to_owned(), tensor.shape().to_vec());
                let expected = format!("{dtype:?} [n]");
                return Err(refused(Damage::TensorForm { name, dtype: tensor.dtype(), shape, expected }));
            }
            Ok(tensor.data())
        };
        let genes: Vec<i32> =
            data("genes", Dtype::I32)?.as_chunks::<4>().0.iter().map(|word| i32::from_le_bytes(*word)).collect();
        let ptr: Vec<i64> =
            data("ptr", Dtype::I64)?.as_chunks::<8>().0.iter().map(|word| i64::from_le_bytes(*word)).collect();
        if ptr.first() != Some(&0) || ptr.last() != Some(&(genes.len() as i64)) || !ptr.is_sorted() {
            return Err(refused(Damage::SamplePointers));
        }
        let all = Self { genes, ptr };
        for index in 0..all.len() {
            let genes = all.of(index);
            let known = |gene: &i32| u64::try_from(*gene).is_ok_and(|gene| gene < num_genes);
            if !genes.iter().all(known) || !genes.windows(2).all(|pair| pair[0] < pair[1]) {
                return Err(refused(Damage::SampleGenes { sample: index, genes: genes.to_vec(), count: num_genes }));
            }
        }
        Ok(all)
    }
}

impl Dataset {
    /// The perturbed genes of every sample.
    ///
    /// # Errors
    /// The file is missing or damaged, or has another number of samples than the manifest says.
    pub fn sample_genes(&self) -> Result<SampleGenes, DatasetError> {
        let path = self.folder().join(SAMPLES_FILE);
        let all = SampleGenes::read(&path, self.manifest().genes.count).map_err(|e| self.advise(e))?;
        let expected = self.manifest().samples.count;
        if all.len() != expected {
            let known_from = "the manifest says";
            let damage = Damage::Count { found: all.len(), things: "samples", known_from, expected };
            return Err(self.advise(DatasetError::damaged(&path, damage)));
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_and_pairs_correspond() {
        let mut rank = 0;
        for a in 1..60 {
            for b in 0..a {
                assert_eq!(unrank(rank), (a, b));
                rank += 1;
            }
        }
    }

    #[test]
    fn samples_are_distinct_sets_of_three_distinct_genes() {
        let n = 300;
        let genes = GeneNames {
            names: (0..n).map(|k| format!("Y{k:04}")).collect(),
            real: n,
            position_of_row: Vec::new(),
            real_positions: (0..n as u32).collect(),
        };
        let triples = Triples::new(&genes, 20_000, 5, 1.0);
        assert!(triples.capacity() >= 20_000);
        assert!(triples.check(triples.capacity(), 1.0).is_ok());
        assert!(triples.check(triples.capacity() + 1, 1.0).is_err());
        let mut all: Vec<_> = (0..triples.capacity()).map(|index| triples.at(index)).collect();
        assert!(all.iter().all(|[a, b, c]| a < b && b < c && *c < n as u32));
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0] != pair[1]));
    }

    fn published() -> Samples {
        Samples {
            count: 332_313,
            genes_per_sample: 3,
            record: "record.json".into(),
            label_mean: -0.008024,
            label_sd: 0.063264,
            label_min: -1.0816,
            label_max: 1.128043,
        }
    }

    #[test]
    fn mean_and_deviation_are_the_published_ones_at_any_count() {
        let published = published();
        for count in [2, 3, 10, 100, 999, 1000, 10_000, 332_313] {
            for seed in 0..if count < 2000 { 20 } else { 2 } {
                let labels = SampleLabels::new(&published, count, seed, 1.0);
                let (mean, sd) = statistics(&labels.values);
                assert!((mean - published.label_mean).abs() < 1e-12, "{count}: mean {mean}");
                assert!((sd - published.label_sd).abs() < 1e-12, "{count}: sd {sd}");
                let (low, high) = labels.values.iter().fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(*v), h.max(*v)));
                assert!(low >= published.label_min && high <= published.label_max, "{count}: {low} {high}");
                if count >= EXTREMES_FROM {
                    assert_eq!((low, high), (published.label_min, published.label_max));
                }
                assert!(labels.p_values.iter().all(|p| *p > 0.0 && *p < 1.0));
            }
        }
    }

    #[test]
    fn labels_are_heavy_tailed() {
        let published = published();
        let labels = SampleLabels::new(&published, 100_000, 0, 1.0);
        let beyond = |k: f64| {
            let far = |v: &&f64| (**v - published.label_mean).abs() > k * published.label_sd;
            labels.values.iter().filter(far).count()
        };
        // A normal distribution would have 6 of 100,000 beyond four deviations.
        assert!(beyond(4.0) > 300, "{}", beyond(4.0));
    }

    const GENES: u64 = 330;
    const SCALE: f64 = 0.05;

    /// 20,000 samples of the grid that a data set at scale 0.05 has, with their labels.
    fn planted() -> (Vec<[u32; 3]>, Vec<f64>) {
        use crate::graph::networks::GeneNames;
        use Triples;
        let genes = GeneNames {
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
        // In docs/guide/datasets.md. The noise leaves 1 / √(1 + 0.2²) = 0.981.
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
