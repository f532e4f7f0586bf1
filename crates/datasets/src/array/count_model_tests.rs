//! Drawn rows have the distribution of the model: moments, density, classes, donors. One test compares a digest, which every machine must find.

use expctl_settings::{LabelSource, Networks};
use proptest::prelude::*;

use super::*;
use crate::array::{CellTypes, Donors, Treatments};
use crate::manifest::Family;

fn recipe() -> ArrayRecipe {
    ArrayRecipe {
        family: Family::Array,
        title: "test".to_owned(),
        rows: 10,
        genes: 2000,
        density: 0.0616,
        dispersion_shape: 2.0,
        gene_log_sd: 2.0,
        cell_log_sd: 0.4,
        cell_types: CellTypes {
            column: "cell_type".to_owned(),
            count: 5,
            skew: 1.0,
            markers: 0.05,
            marker_log_sd: 1.5,
        },
        donors: Donors {
            column: "donor".to_owned(),
            count: 4,
            run_rows: 500,
            type_log_sd: 1.5,
            log_sd: 0.2,
            age_missing: 0.1,
        },
        treatments: None,
        folder: "test".into(),
    }
}

fn data() -> Data {
    Data {
        set: "test".to_owned(),
        samples: 10,
        scale: 1.0,
        networks: Networks::None,
        seed: 5,
        labels: LabelSource::Random,
        files: 1,
        genes: 0,
    }
}

/// Counts of cells of one size: mean, variance and share of zeros of each gene are those of the negative binomial
/// distribution that the model states.
#[test]
fn counts_are_negative_binomial() {
    let shape = 2.0;
    for size in [0.5, 1.0, 2.5] {
        let means = [0.01, 0.1, 0.5, 2.0, 20.0, 300.0];
        let model = TypeModel::new(&means, shape);
        let mut stream = RandomStream::new(3, size, "cells");
        let mut scratch = Scratch { counts: vec![0; means.len()], met: vec![0; 1] };
        let n = 200_000;
        let (mut sums, mut squares, mut zeros) = ([0.0; 6], [0.0; 6], [n as f64; 6]);
        for _ in 0..n {
            let (mut indices, mut values) = (Vec::new(), Vec::new());
            model.draw(size, &mut stream, &mut scratch, &mut indices, &mut values);
            assert!(indices.is_sorted_by(|a, b| a < b) && values.iter().all(|value| *value >= 1.0));
            for (gene, value) in indices.iter().zip(&values) {
                let (gene, value) = (*gene as usize, f64::from(*value));
                sums[gene] += value;
                squares[gene] += value * value;
                zeros[gene] -= 1.0;
            }
        }
        let n = n as f64;
        for (gene, m) in means.iter().enumerate() {
            let (mean, variance) = (size * m, size * m * (1.0 + m / shape));
            let found = sums[gene] / n;
            assert!((found - mean).abs() < 5.0 * (variance / n).sqrt(), "size {size}, mean {m}: {found}");
            let spread = squares[gene] / n - found * found;
            assert!((spread / variance - 1.0).abs() < 0.1, "size {size}, mean {m}: variance {spread}, not {variance}");
            let zero = libm::pow(1.0 + m / shape, -size * shape);
            let limit = 5.0 * (zero * (1.0 - zero) / n).sqrt() + 5.0 / n;
            let share = zeros[gene] / n;
            assert!((share - zero).abs() < limit, "size {size}, mean {m}: {share} zeros, not {zero}");
        }
    }
}

#[test]
fn density_and_classes_are_those_of_the_recipe() {
    let model = CountModel::new(&recipe(), &data());
    let mut scratch = model.scratch();
    let (mut indices, mut values) = (Vec::new(), Vec::new());
    let (mut types, mut unknown) = ([0.0; 5], 0.0);
    let rows = 20_000;
    for row in 0..rows {
        let (cell, _) = model.draw(row, &mut scratch, &mut indices, &mut values);
        assert_eq!(cell, model.cell(row));
        types[cell.cell_type as usize] += 1.0;
        unknown += if cell.age.is_none() { 1.0 } else { 0.0 };
    }
    let density = indices.len() as f64 / (rows * 2000) as f64;
    assert!((density / 0.0616 - 1.0).abs() < 0.02, "{density}");
    for (found, share) in types.iter().zip(type_shares(5, 1.0)) {
        assert!((found / rows as f64 - share).abs() < 5.0 * (share / rows as f64).sqrt(), "{found} of {share}");
    }
    assert!((unknown / rows as f64 - 0.1f64).abs() < 0.012, "{unknown}");
}

/// With more genes than the recipe has a row has as many values, and with fewer its share of them.
#[test]
fn genes_beyond_the_recipes_are_rare() {
    let per_row = |genes: u64| {
        let model = CountModel::new(&recipe(), &Data { genes, ..data() });
        let (mut scratch, mut indices, mut values) = (model.scratch(), Vec::new(), Vec::new());
        let rows = 8_000;
        for row in 0..rows {
            model.draw(row, &mut scratch, &mut indices, &mut values);
        }
        assert!(indices.iter().all(|gene| (0..genes as i32).contains(gene)));
        indices.len() as f64 / rows as f64
    };
    for (genes, expected) in [(2000, 0.0616 * 2000.0), (6000, 0.0616 * 2000.0), (500, 0.0616 * 500.0)] {
        let found = per_row(genes);
        assert!((found / expected - 1.0).abs() < 0.05, "{genes}: {found}, not {expected}");
    }
    // A number of genes that is the recipe's gives the rows of scale 1.
    let row = |data: &Data| {
        let model = CountModel::new(&recipe(), data);
        let (mut indices, mut values) = (Vec::new(), Vec::new());
        model.draw(7, &mut model.scratch(), &mut indices, &mut values);
        (indices, values)
    };
    assert_eq!(row(&Data { genes: 2000, ..data() }), row(&data()));
}

/// Rows that lie together are of one donor, whose cells are of fewer types than those of all.
#[test]
fn donors_come_in_turn_and_differ_in_their_types() {
    let model = CountModel::new(&recipe(), &data());
    let cells: Vec<DrawnCell> = (0..20_000).map(|row| model.cell(row)).collect();
    for (row, cell) in cells.iter().enumerate() {
        assert_eq!(u64::from(cell.donor), row as u64 / 500 % 4);
    }
    let entropy = |cells: &[DrawnCell]| -> f64 {
        let mut counts = [0.0f64; 5];
        cells.iter().for_each(|cell| counts[cell.cell_type as usize] += 1.0);
        let shares = counts.iter().map(|count| count / cells.len() as f64);
        shares.filter(|share| *share > 0.0).map(|share| -share * share.log2()).sum()
    };
    let runs = cells.chunks(500).map(entropy).sum::<f64>() / 40.0;
    assert!(runs < 0.85 * entropy(&cells), "{runs} of {}", entropy(&cells));
}

/// Samples of a donor come in turn within its rows, each with one drug, and change nothing else of a row.
#[test]
fn samples_lie_together_within_a_donor() {
    // 500 rows of a donor in 3 samples: 167, 167 and 166 rows.
    let treatments = Treatments { samples: 3, drugs: 5 };
    let model = CountModel::new(&ArrayRecipe { treatments: Some(treatments), ..recipe() }, &data());
    let sample = |row| model.cell(row).sample;
    let runs = |first: u64| [first, first + 166, first + 167, first + 333, first + 334, first + 499].map(sample);
    assert_eq!(runs(0), [0, 0, 1, 1, 2, 2]);
    assert_eq!(runs(1500), [9, 9, 10, 10, 11, 11]);
    // After the last donor the first one comes again, with its samples.
    assert_eq!(runs(2000), runs(0));
    assert_eq!([4, 5, 11].map(|sample| treatments.drug_of(sample)), [4, 0, 1]);
    let without = CountModel::new(&recipe(), &data());
    for row in [0, 700, 1999] {
        assert_eq!(DrawnCell { sample: 0, ..model.cell(row) }, without.cell(row));
        let counts = |model: &CountModel| {
            let (mut indices, mut values) = (Vec::new(), Vec::new());
            model.draw(row, &mut model.scratch(), &mut indices, &mut values);
            (indices, values)
        };
        assert_eq!(counts(&model), counts(&without));
    }
}

proptest! {
    /// Every donor's shares are shares, and their mean over the donors is that of all.
    #[test]
    fn shares_by_donor_come_to_those_of_all(
        kinds in 1u32..40, skew in 0.0f64..2.0, donors in 1usize..20, log_sd in 0.0f64..2.0, seed in 0u64..100,
    ) {
        let shares = type_shares(kinds, skew);
        let of_donor = donor_shares(&shares, donors, log_sd, &mut RandomStream::new(seed, 1.0, "donors"));
        for of in &of_donor {
            prop_assert!((of.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            prop_assert!(of.iter().all(|share| (0.0..=1.0).contains(share)));
        }
        for (kind, share) in shares.iter().enumerate() {
            let mean = of_donor.iter().map(|of| of[kind]).sum::<f64>() / donors as f64;
            prop_assert!((mean / share - 1.0).abs() < 1e-3, "{mean}, not {share}");
        }
    }
}

/// The classes can be told apart: the nearest of the types' mean profiles is the right one for nearly all cells.
#[test]
fn types_can_be_learned() {
    let model = CountModel::new(&recipe(), &data());
    let mut scratch = model.scratch();
    let mut drawn = |row| {
        let (mut indices, mut values) = (Vec::new(), Vec::new());
        let (cell, total) = model.draw(row, &mut scratch, &mut indices, &mut values);
        (cell.cell_type as usize, total as f64, indices, values)
    };
    let mut profiles = vec![vec![1e-4; 2000]; 5];
    for row in 0..4000 {
        let (kind, total, indices, values) = drawn(row);
        for (gene, value) in indices.iter().zip(&values) {
            profiles[kind][*gene as usize] += f64::from(*value) / total;
        }
    }
    for profile in &mut profiles {
        let sum: f64 = profile.iter().sum();
        profile.iter_mut().for_each(|share| *share /= sum);
    }
    let mut right = 0;
    for row in 4000..4500 {
        let (kind, _, indices, values) = drawn(row);
        let likely = |profile: &Vec<f64>| -> f64 {
            indices.iter().zip(&values).map(|(gene, value)| f64::from(*value) * profile[*gene as usize].ln()).sum()
        };
        let best = (0..5).max_by(|a, b| likely(&profiles[*a]).total_cmp(&likely(&profiles[*b])));
        right += u32::from(best == Some(kind));
    }
    assert!(right > 400, "{right} of 500");
}

/// The values themselves: other machines must find the same.
#[test]
fn a_row_follows_from_its_number() {
    let model = CountModel::new(&recipe(), &data());
    let mut scratch = model.scratch();
    let mut seen = super::super::rows::RowsSeen::default();
    for row in [0, 1, 999_999_999] {
        let mut rows = anndata_io::CsrRows::default();
        model.draw(row, &mut scratch, &mut rows.indices, &mut rows.data);
        rows.indptr.push(rows.indices.len() as u64);
        seen.add(rows.view());
    }
    assert_eq!(seen.digest(), DIGEST);
}

const DIGEST: &str = "96f4105c5050fc679f93ebece29716970b62ab1f34a6c69fcf65c7b10c776b9d";
