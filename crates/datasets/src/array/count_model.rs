//! `CountModel`: the distribution of generated rows (cells): negative binomial counts with the density, cell types and donors of a recipe.

use cell_loader::AliasTable;
use expctl_settings::Data;

use crate::array::recipe::{ArrayRecipe, Treatments};
use crate::random::{RandomStream, logarithmic_below, normal, poisson};

/// The distribution of the counts.
///
/// A cell of type t and size L has for gene g a count of the negative binomial distribution with mean L m and variance
/// L m (1 + m / r), where m is the gene's mean in the type and r the recipe's `dispersion_shape`: a Poisson number whose rate
/// is a gamma number of shape L r. It is 0 with probability (1 + m / r)^(-L r).
///
/// It is drawn as an equal distribution (Quenouille 1949): a Poisson number of bursts, L r ln(1 + m / r) on average, each of a
/// size of the logarithmic distribution with p = m / (m + r). Bursts of all genes are drawn together, then dealt to the genes
/// in proportion, so that a cell costs as much as it has bursts and not as there are genes.
///
/// Means are log-normal over the genes, sizes over the cells and donors. All means are scaled so that the share of values
/// that are not 0 is [`ArrayRecipe::density_of`] on average over the donors.
///
/// Donors come in turn, `run_rows` rows each, and differ in how frequent the types are, as files of real collections do:
/// rows that lie together are of one donor. Over all donors the types have the shares of the recipe.
///
/// Every row has a stream of random numbers of its own: it follows from the recipe, seed, number of genes and its number alone.
pub struct CountModel {
    seed: u64,
    scale: f64,
    cell_log_sd: f64,
    age_missing: f64,
    types: Vec<TypeModel>,
    /// Rows of a donor that come one after the other.
    run_rows: u64,
    donors: Vec<Donor>,
    treatments: Option<Treatments>,
    /// Expected count of each gene in a cell of average size, over the types.
    pub means: Vec<f64>,
}

/// The parameters that the cells of a donor share.
struct Donor {
    /// Size of its average cell.
    depth: f64,
    age: i64,
    /// Cumulative shares of the types.
    type_shares: Vec<f64>,
}

/// Genes of a type.
struct TypeModel {
    /// Bursts of a cell of size 1.
    bursts: f64,
    which: AliasTable,
    sizes: Vec<BurstSize>,
}

/// Burst size of a gene.
#[derive(Clone, Copy)]
struct BurstSize {
    /// p, in units of 2^-32.
    p: u32,
    /// ln(1 - p).
    log_q: f32,
}

/// The annotations of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DrawnCell {
    pub cell_type: u32,
    pub donor: u32,
    /// Counted over the samples of all donors; 0 in a recipe without treatments.
    pub sample: u32,
    pub age: Option<i64>,
}

/// Memory to draw a row in.
pub struct Scratch {
    counts: Vec<u32>,
    met: Vec<u64>,
}

/// Ages of donors, in years.
const AGES: std::ops::Range<i64> = 20..80;
/// Sizes that a share is averaged over: so many standard deviations to each side, in steps of a half.
const SIDE: i32 = 10;
/// Rounds in which the types' shares by donor are fitted: with shares as different as the recipe allows, more than enough.
const FITS: u32 = 100;

impl CountModel {
    pub fn new(recipe: &ArrayRecipe, data: &Data) -> Self {
        let genes = recipe.genes_of(data) as usize;
        let stream = |purpose: &str| RandomStream::new(data.seed, data.scale, purpose);
        let mut of_genes = stream("genes");
        let base: Vec<f64> = (0..genes).map(|_| libm::exp(recipe.gene_log_sd * normal(&mut of_genes))).collect();
        let kinds = &recipe.cell_types;
        let means: Vec<Vec<f64>> = (0..kinds.count)
            .map(|kind| {
                let mut of_type = stream(&format!("cell type {kind}"));
                let factor = |mean: &f64| match of_type.unit() < kinds.markers {
                    true => mean * libm::exp(kinds.marker_log_sd * normal(&mut of_type)),
                    false => *mean,
                };
                base.iter().map(factor).collect()
            })
            .collect();
        let mut of_donors = stream("donors");
        let depths_and_ages: Vec<(f64, i64)> = (0..recipe.donors.count)
            .map(|_| {
                let depth = libm::exp(recipe.donors.log_sd * normal(&mut of_donors));
                (depth, AGES.start + of_donors.below((AGES.end - AGES.start) as u64) as i64)
            })
            .collect();
        let shares = type_shares(kinds.count, kinds.skew);
        let of_donor = donor_shares(&shares, depths_and_ages.len(), recipe.donors.type_log_sd, &mut of_donors);
        let depths: Vec<f64> = depths_and_ages.iter().map(|(depth, _)| *depth).collect();
        let zeros = ZeroShare::of_types(recipe.cell_log_sd, &depths, &of_donor);
        let shape = recipe.dispersion_shape;
        let factor = calibrated(&means, &shares, shape, recipe.density_of(data), &zeros);
        let scaled: Vec<Vec<f64>> = means.iter().map(|of| of.iter().map(|mean| mean * factor).collect()).collect();
        let overall = (0..genes).map(|gene| scaled.iter().zip(&shares).map(|(of, share)| of[gene] * share).sum());
        let overall = overall.collect();
        let donor =
            |((depth, age), shares): ((f64, i64), Vec<f64>)| Donor { depth, age, type_shares: cumulated(&shares) };
        Self {
            seed: data.seed,
            scale: data.scale,
            cell_log_sd: recipe.cell_log_sd,
            age_missing: recipe.donors.age_missing,
            types: scaled.iter().map(|means| TypeModel::new(means, shape)).collect(),
            run_rows: recipe.donors.run_rows,
            donors: depths_and_ages.into_iter().zip(of_donor).map(donor).collect(),
            treatments: recipe.treatments,
            means: overall,
        }
    }

    /// Number of genes.
    pub fn genes(&self) -> usize {
        self.means.len()
    }

    pub fn scratch(&self) -> Scratch {
        Scratch { counts: vec![0; self.genes()], met: vec![0; self.genes().div_ceil(64)] }
    }

    fn stream(&self, row: u64) -> RandomStream {
        RandomStream::new(self.seed, self.scale, &format!("row {row}"))
    }

    /// The annotations of a row, without its counts.
    pub fn cell(&self, row: u64) -> DrawnCell {
        self.describe(row, &mut self.stream(row))
    }

    fn describe(&self, row: u64, stream: &mut RandomStream) -> DrawnCell {
        let number = (row / self.run_rows) % self.donors.len() as u64;
        let donor = &self.donors[number as usize];
        let place = stream.unit() * donor.type_shares.last().copied().unwrap_or(1.0);
        let cell_type = donor.type_shares.partition_point(|reached| *reached <= place).min(self.types.len() - 1);
        let age = (stream.unit() >= self.age_missing).then_some(donor.age);
        let (number, within) = (number as u32, row % self.run_rows);
        let sample = self.treatments.map_or(0, |treatments| treatments.sample_of(number, within, self.run_rows));
        DrawnCell { cell_type: cell_type as u32, donor: number, sample, age }
    }

    /// Draw a row and append its genes and counts. Returns what it is and the sum of the counts.
    pub fn draw(
        &self,
        row: u64,
        scratch: &mut Scratch,
        indices: &mut Vec<i32>,
        data: &mut Vec<f32>,
    ) -> (DrawnCell, u64) {
        let mut stream = self.stream(row);
        let cell = self.describe(row, &mut stream);
        let size = self.donors[cell.donor as usize].depth * libm::exp(self.cell_log_sd * normal(&mut stream));
        let total = self.types[cell.cell_type as usize].draw(size, &mut stream, scratch, indices, data);
        (cell, total)
    }
}

impl TypeModel {
    fn new(means: &[f64], shape: f64) -> Self {
        let bursts: Vec<f64> = means.iter().map(|mean| shape * libm::log1p(mean / shape)).collect();
        let sizes = means.iter().map(|mean| BurstSize {
            p: (mean / (mean + shape) * 4_294_967_296.0) as u32,
            log_q: libm::log(shape / (mean + shape)) as f32,
        });
        Self { bursts: bursts.iter().sum(), which: AliasTable::from_checked(bursts), sizes: sizes.collect() }
    }

    fn draw(
        &self,
        size: f64,
        stream: &mut RandomStream,
        scratch: &mut Scratch,
        indices: &mut Vec<i32>,
        data: &mut Vec<f32>,
    ) -> u64 {
        let Scratch { counts, met } = scratch;
        for _ in 0..poisson(stream, size * self.bursts) {
            let word = stream.next();
            let gene = self.which.draw_short((word >> 32) as u32);
            let (low, of) = (word as u32, self.sizes[gene as usize]);
            let burst = match low < of.p {
                true => {
                    let u = (f64::from(low) + 0.5) / 4_294_967_296.0;
                    logarithmic_below(stream, u, f64::from(of.log_q))
                }
                false => 1,
            };
            let count = &mut counts[gene as usize];
            *count = count.saturating_add(burst);
            met[gene as usize / 64] |= 1 << (gene % 64);
        }
        let mut total = 0;
        for (at, word) in met.iter_mut().enumerate() {
            while *word != 0 {
                let gene = at * 64 + word.trailing_zeros() as usize;
                *word &= *word - 1;
                let count = std::mem::take(&mut counts[gene]);
                total += u64::from(count);
                indices.push(gene as i32);
                data.push(count as f32);
            }
        }
        total
    }
}

/// Shares of the types, the most frequent first.
fn type_shares(count: u32, skew: f64) -> Vec<f64> {
    let weights: Vec<f64> = (1..=count).map(|n| libm::pow(f64::from(n), -skew)).collect();
    let total: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / total).collect()
}

/// Shares of the types in each donor: those in all, times a log-normal factor, fitted so that their mean over the donors is
/// `shares` again (iterative proportional fitting, Deming and Stephan 1940).
fn donor_shares(shares: &[f64], donors: usize, log_sd: f64, stream: &mut RandomStream) -> Vec<Vec<f64>> {
    let factor = |share: &f64| share * libm::exp(log_sd * normal(stream));
    let drawn: Vec<f64> = std::iter::repeat_n(shares, donors).flatten().map(factor).collect();
    let mut of_donor: Vec<Vec<f64>> = drawn.chunks(shares.len()).map(<[f64]>::to_vec).collect();
    for _ in 0..FITS {
        for (kind, share) in shares.iter().enumerate() {
            let mean = of_donor.iter().map(|of| of[kind]).sum::<f64>() / donors as f64;
            of_donor.iter_mut().for_each(|of| of[kind] *= share / mean);
        }
        for of in &mut of_donor {
            let total: f64 = of.iter().sum();
            of.iter_mut().for_each(|part| *part /= total);
        }
    }
    of_donor
}

/// The sum up to each.
fn cumulated(shares: &[f64]) -> Vec<f64> {
    let add = |reached: &mut f64, share: &f64| {
        *reached += share;
        Some(*reached)
    };
    shares.iter().scan(0.0, add).collect()
}

/// For genes with so many bursts in a cell of size 1: the share of a type's cells that have one, over sizes and donors.
struct ZeroShare {
    /// Values at the logarithms from [`ZeroShare::FROM`] in steps of [`ZeroShare::STEP`].
    table: Vec<f64>,
}

impl ZeroShare {
    const FROM: f64 = -30.0;
    const STEP: f64 = 0.01;
    const ENTRIES: usize = 4501;

    /// One for each type. `of_donor` are the types' shares in each donor, all of whom have as many cells.
    fn of_types(cell_log_sd: f64, depths: &[f64], of_donor: &[Vec<f64>]) -> Vec<Self> {
        let tables: Vec<Vec<f64>> = depths.iter().map(|depth| Self::of_depth(cell_log_sd, *depth)).collect();
        let kinds = of_donor.first().map_or(0, Vec::len);
        let of_type = |kind: usize| {
            let total: f64 = of_donor.iter().map(|of| of[kind]).sum();
            let at = |entry: usize| tables.iter().zip(of_donor).map(|(table, of)| table[entry] * of[kind]).sum::<f64>();
            Self { table: (0..Self::ENTRIES).map(|entry| at(entry) / total).collect() }
        };
        (0..kinds).map(of_type).collect()
    }

    /// The table of one donor.
    fn of_depth(cell_log_sd: f64, depth: f64) -> Vec<f64> {
        let nodes: Vec<(f64, f64)> = (-SIDE..=SIDE)
            .map(|step| f64::from(step) / 2.0)
            .map(|z| (depth * libm::exp(cell_log_sd * z), libm::exp(-z * z / 2.0)))
            .collect();
        let total: f64 = nodes.iter().map(|(_, weight)| weight).sum();
        let share = |bursts: f64| -> f64 {
            nodes.iter().map(|(size, weight)| -libm::expm1(-size * bursts) * weight).sum::<f64>() / total
        };
        (0..Self::ENTRIES).map(|i| share(libm::exp(Self::FROM + i as f64 * Self::STEP))).collect()
    }

    fn at(&self, bursts: f64) -> f64 {
        let place = ((libm::log(bursts) - Self::FROM) / Self::STEP).clamp(0.0, (Self::ENTRIES - 2) as f64);
        let (low, part) = (place as usize, place.fract());
        self.table[low] + (self.table[low + 1] - self.table[low]) * part
    }
}

/// The factor of all means with which the share of values that are not 0 is `density`, by bisection.
fn calibrated(means: &[Vec<f64>], shares: &[f64], shape: f64, density: f64, zeros: &[ZeroShare]) -> f64 {
    let reached = |factor: f64| -> f64 {
        let of_type = |(means, zeros): (&Vec<f64>, &ZeroShare)| {
            let shares = means.iter().map(|mean| zeros.at(shape * libm::log1p(mean * factor / shape)));
            shares.sum::<f64>() / means.len() as f64
        };
        means.iter().zip(zeros).map(of_type).zip(shares).map(|(of_type, share)| of_type * share).sum()
    };
    let (mut low, mut high) = (-25.0, 15.0);
    for _ in 0..40 {
        let middle = (low + high) / 2.0;
        if reached(libm::exp(middle)) < density { low = middle } else { high = middle }
    }
    libm::exp((low + high) / 2.0)
}

#[cfg(test)]
#[path = "count_model_tests.rs"]
mod tests;
