use std::sync::Arc;

use anndata_io::Form;
use cell_loader::{RowSampler, Sharding};
use proptest::prelude::*;

use super::store::{Derived, DrawKind, DrawSettings, alone, class, drawn, row_sampler};

fn epoch(sampler: &RowSampler, epoch: u64) -> Vec<Vec<u64>> {
    let batches = sampler.batches_per_epoch();
    (epoch * batches..(epoch + 1) * batches)
        .map(|step| {
            let mut rows = Vec::new();
            assert_eq!(sampler.batch(step, &mut rows), epoch);
            rows
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    /// Over all ranks each row comes once; with padding some come once more, and with drop_last some do not come.
    #[test]
    fn each_row_once_an_epoch_over_all_ranks(
        (rows, world_size, batch_size, drop_last) in (1u64..200, 1u32..6, 1u64..20, any::<bool>()),
        (start, chunk_rows, chunks, seed) in (0u64..200, 0u64..30, 1u64..6, any::<u64>()),
        (number, draw) in (0u64..3, prop_oneof![Just(DrawKind::Sequential), Just(DrawKind::Uniform), Just(DrawKind::Chunked)]),
    ) {
        let store = Derived { starts: vec![0, start], ..Derived::new(rows, Form::Sparse) };
        let settings = DrawSettings { draw, chunk_rows, chunks, ..DrawSettings::default() };
        let mut counts = vec![0u64; rows as usize];
        let world = u64::from(world_size);
        let per_rank = if drop_last { rows / world } else { rows.div_ceil(world) };
        let expected = if drop_last { per_rank / batch_size } else { per_rank.div_ceil(batch_size) };
        for rank in 0..world_size {
            let sharding = Sharding { seed, rank, world_size, batch_size, drop_last };
            let sampler = match row_sampler(&settings, &store, sharding, None) {
                Ok(sampler) => sampler,
                Err(error) => {
                    prop_assert_eq!(expected, 0);
                    prop_assert!(error.to_string().contains("has no batch"));
                    return Ok(());
                }
            };
            prop_assert_eq!(sampler.batches_per_epoch(), expected);
            let batches = epoch(&sampler, number);
            let (last, full) = batches.split_last().unwrap();
            prop_assert!(full.iter().all(|batch| batch.len() as u64 == batch_size));
            prop_assert!(!last.is_empty() && (!drop_last || last.len() as u64 == batch_size));
            let drawn: usize = batches.iter().map(Vec::len).sum();
            prop_assert_eq!(drawn as u64, sampler.rows_per_epoch());
            batches.iter().flatten().for_each(|row| counts[*row as usize] += 1);
        }
        let drawn: u64 = counts.iter().sum();
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        if drop_last {
            prop_assert_eq!(drawn, expected * batch_size * world);
            prop_assert!(*most <= 1);
        } else {
            prop_assert_eq!(drawn, per_rank * world);
            prop_assert!(*least >= 1 && most - least <= 1);
        }
    }
}

proptest! {
    /// A list is an epoch: all ranks together have what is in it, in its order or in one of each epoch.
    #[test]
    fn listed_rows_are_dealt_to_the_ranks(
        (listed, world_size) in (proptest::collection::vec(0u64..90, 1..60), 1u32..5),
        (batch_size, shuffle, number) in (1u64..9, any::<bool>(), 0u64..3),
    ) {
        let store = Derived::new(90, Form::Sparse);
        let draw = cell_loader::Draw::Listed { rows: listed.clone().into(), shuffle };
        let ranks: Vec<Vec<u64>> = (0..world_size)
            .map(|rank| {
                let sharding = Sharding { rank, world_size, ..alone(batch_size) };
                epoch(&RowSampler::new(&draw, &store, sharding, None).unwrap(), number).concat()
            })
            .collect();
        let dealt: Vec<u64> = (0..ranks[0].len()).flat_map(|i| ranks.iter().map(move |rows| rows[i])).collect();
        prop_assert!(dealt.len() >= listed.len() && dealt.len() < listed.len() + world_size as usize);
        let (mut once, mut sorted) = (dealt[..listed.len()].to_vec(), listed.clone());
        if !shuffle {
            prop_assert_eq!(&once, &listed);
        }
        once.sort_unstable();
        sorted.sort_unstable();
        prop_assert_eq!(once, sorted);
        // What fills up is the start again.
        prop_assert_eq!(&dealt[listed.len()..], &dealt[..dealt.len() - listed.len()]);
    }
}

proptest! {
    /// Chunks of a list have each of its rows once over all ranks, and what fills up is of the list as well.
    #[test]
    fn chunks_of_a_list_have_each_row_once(
        (listed, world_size) in (proptest::collection::btree_set(0u64..90, 1..60), 1u32..5),
        (start, chunk_rows, chunks, batch_size, number) in (0u64..90, 1u64..9, 1u64..4, 1u64..9, 0u64..3),
    ) {
        let store = Derived { starts: vec![0, start], ..Derived::new(90, Form::Sparse) };
        let listed: Vec<u64> = listed.into_iter().collect();
        let draw = cell_loader::Draw::ListedChunks { rows: listed.clone().into(), chunk_rows, chunks };
        let mut all: Vec<u64> = (0..world_size)
            .flat_map(|rank| {
                let sharding = Sharding { rank, world_size, ..alone(batch_size) };
                epoch(&RowSampler::new(&draw, &store, sharding, None).unwrap(), number).concat()
            })
            .collect();
        prop_assert!(all.len() >= listed.len() && all.len() < listed.len() + world_size as usize);
        all.sort_unstable();
        all.dedup();
        prop_assert_eq!(all, listed);
    }
}

#[test]
fn listed_batches_are_taken_in_turn_and_what_is_no_row_is_named() {
    let store = Derived::new(90, Form::Sparse);
    let batches = |ends: &[u64]| cell_loader::Draw::Batches { rows: Arc::new([5, 5, 80, 1, 2, 3]), ends: ends.into() };
    let sampler = |draw: &cell_loader::Draw, rank, world_size| {
        RowSampler::new(draw, &store, Sharding { rank, world_size, ..alone(999) }, None)
    };
    let draw = batches(&[2, 3, 6]);
    assert_eq!(epoch(&sampler(&draw, 0, 1).unwrap(), 1), [vec![5, 5], vec![80], vec![1, 2, 3]]);
    assert_eq!(epoch(&sampler(&draw, 0, 2).unwrap(), 0), [vec![5, 5], vec![1, 2, 3]]);
    assert_eq!(epoch(&sampler(&draw, 1, 2).unwrap(), 0), [vec![80], vec![5, 5]]);
    for ends in [&[2, 3][..], &[3, 2, 6], &[7]] {
        let error = sampler(&batches(ends), 0, 1).unwrap_err().to_string();
        assert_eq!(error, "the ends of the listed batches do not ascend up to 6, the number of listed rows");
    }
    let beyond = cell_loader::Draw::Listed { rows: Arc::new([3, 90]), shuffle: false };
    assert_eq!(sampler(&beyond, 0, 1).unwrap_err().to_string(), "row 90 is listed, and there are 90 rows");
    let falls = cell_loader::Draw::ListedChunks { rows: Arc::new([3, 8, 8]), chunk_rows: 2, chunks: 2 };
    let error = sampler(&falls, 0, 1).unwrap_err().to_string();
    assert_eq!(error, "row 8 is listed after itself or a later row, and rows of chunks ascend");
    let none = cell_loader::Draw::Listed { rows: Arc::new([]), shuffle: true };
    assert!(sampler(&none, 0, 1).unwrap_err().to_string().contains("has no batch"));
}

#[test]
fn seeds_and_epochs_have_orders_of_their_own_and_ranks_share_one() {
    for draw in [DrawKind::Uniform, DrawKind::Weighted, DrawKind::Balanced, DrawKind::Chunked] {
        let store = Derived::new(90, Form::Sparse);
        let order = |seed, number| {
            let sharding = Sharding { seed, ..alone(10) };
            epoch(&row_sampler(&drawn(draw), &store, sharding, None).unwrap(), number).concat()
        };
        assert_eq!(order(1, 2), order(1, 2));
        assert_ne!(order(1, 2), order(2, 2));
        assert_ne!(order(1, 2), order(1, 3));
    }
}

/// The rows of a block stay together, and are in another order.
#[test]
fn blocks_of_chunks_are_shuffled_within() {
    let store = Derived::new(1000, Form::Sparse);
    let settings = DrawSettings { draw: DrawKind::Chunked, chunk_rows: 50, chunks: 4, ..DrawSettings::default() };
    let order = epoch(&row_sampler(&settings, &store, alone(200), None).unwrap(), 0);
    let mut whole_chunks = 0;
    for block in &order {
        let mut chunks: Vec<u64> = block.iter().map(|row| row / 50).collect();
        chunks.sort_unstable();
        chunks.dedup();
        whole_chunks += chunks.len();
        assert!(!block.is_sorted());
    }
    assert_eq!(whole_chunks, 20);
    let chunks: Vec<u64> = order.concat().iter().map(|row| row / 200).collect();
    assert!(!chunks.is_sorted(), "chunks are in another order too");
}

/// Statistic of counts against chances, and its degrees of freedom.
fn chi_square(counts: &[f64], chances: &[f64]) -> (f64, f64) {
    let n: f64 = counts.iter().sum();
    let cells = counts.iter().zip(chances).filter(|(_, chance)| **chance > 0.0);
    let statistic = cells.clone().map(|(count, chance)| (count - n * chance).powi(2) / (n * chance)).sum();
    (statistic, cells.count() as f64 - 1.0)
}

/// What a statistic is below with a chance of 1 − 1e-4 (Wilson and Hilferty 1931). Seeds are fixed: a test that passes once
/// passes always, and a change of the sampler meets a false alarm once in 10,000 times.
fn bound(freedom: f64) -> f64 {
    let spread = 2.0 / (9.0 * freedom);
    freedom * (1.0 - spread + 3.719 * spread.sqrt()).powi(3)
}

/// How often each row comes in some epochs of all of two ranks.
fn counts(settings: &DrawSettings, store: &Derived, epochs: u64) -> Vec<f64> {
    let mut counts = vec![0.0; store.rows as usize];
    for rank in 0..2 {
        let sharding = Sharding { world_size: 2, rank, ..alone(64) };
        let sampler = row_sampler(settings, store, sharding, None).unwrap();
        for number in 0..epochs {
            epoch(&sampler, number).iter().flatten().for_each(|row| counts[*row as usize] += 1.0);
        }
    }
    counts
}

#[test]
fn weighted_rows_come_as_often_as_they_weigh() {
    let weights: Vec<f64> = (0..300).map(|row| f64::from(row % 7) + 0.25 * f64::from(row % 3)).collect();
    let sum: f64 = weights.iter().sum();
    let store = Derived { weights: weights.clone(), ..Derived::new(300, Form::Sparse) };
    let settings = DrawSettings { rows: 20_000, ..drawn(DrawKind::Weighted) };
    let counts = counts(&settings, &store, 10);
    assert_eq!(counts.iter().sum::<f64>(), 200_000.0);
    assert!(counts.iter().zip(&weights).all(|(count, weight)| *weight > 0.0 || *count == 0.0));
    let right: Vec<f64> = weights.iter().map(|weight| weight / sum).collect();
    let (statistic, freedom) = chi_square(&counts, &right);
    assert!(statistic < bound(freedom), "{statistic} with {freedom}");
    // Weights that are a tenth off are found out.
    let wrong: Vec<f64> = weights.iter().enumerate().map(|(row, w)| w * (0.95 + 0.1 * (row % 2) as f64)).collect();
    let sum: f64 = wrong.iter().sum();
    let (statistic, freedom) = chi_square(&counts, &wrong.iter().map(|w| w / sum).collect::<Vec<_>>());
    assert!(statistic > bound(freedom), "{statistic} with {freedom}");
}

#[test]
fn classes_come_alike_often_and_so_do_the_rows_of_each() {
    // Class 3 has a tenth of the rows of class 0, and rows without a class there are too.
    let store = Derived::new(200, Form::Sparse);
    let settings = DrawSettings { rows: 20_000, ..drawn(DrawKind::Balanced) };
    let sampler = row_sampler(&settings, &store, alone(64), None).unwrap();
    assert_eq!(sampler.left_out(), 40);
    let counts = counts(&settings, &store, 10);
    let chances: Vec<f64> = (0..200).map(|row| if class(row) < 0 { 0.0 } else { 1.0 / 160.0 }).collect();
    assert!(counts.iter().zip(&chances).all(|(count, chance)| *chance > 0.0 || *count == 0.0));
    let (statistic, freedom) = chi_square(&counts, &chances);
    assert!(statistic < bound(freedom), "{statistic} with {freedom}");
}

/// Which row comes at which place is uniform, of single rows: over places in tenths × rows in tenths.
#[test]
fn every_row_may_come_at_every_place() {
    let store = Derived::new(500, Form::Sparse);
    let sampler = row_sampler(&drawn(DrawKind::Uniform), &store, alone(50), None).unwrap();
    let mut grid = vec![0.0; 100];
    for number in 0..400 {
        for (place, row) in epoch(&sampler, number).concat().into_iter().enumerate() {
            grid[place / 50 * 10 + row as usize / 50] += 1.0;
        }
    }
    let (statistic, _) = chi_square(&grid, &[0.01; 100]);
    assert!(statistic < bound(81.0), "{statistic}");
}

#[test]
fn what_cannot_be_drawn_is_a_clear_error() {
    let error = |store: &Derived, settings: DrawSettings, sharding| {
        row_sampler(&settings, store, sharding, None).unwrap_err().to_string()
    };
    let store = Derived::new(10, Form::Sparse);
    let classes = DrawSettings { by: "kind".into(), ..drawn(DrawKind::Weighted) };
    let expected = "no column kind; it has classes, so rows can be drawn balanced by it";
    assert_eq!(error(&store, classes, alone(2)), expected);
    let none = DrawSettings { chunks: 0, ..drawn(DrawKind::Chunked) };
    assert!(error(&store, none, alone(2)).starts_with("0 chunks of "));
    let long = Derived { rows: 1 << 33, ..Derived::new(0, Form::Sparse) };
    let huge = Sharding { drop_last: false, ..alone(1 << 32) };
    let expected = "1 chunks of 34359738368 rows, for batches of 4294967296, cannot be held; take at least 1 chunk, and at \
                    most 4,294,967,295 rows";
    let all_at_once = DrawSettings { chunk_rows: 1 << 40, ..drawn(DrawKind::Sequential) };
    assert_eq!(error(&long, all_at_once, huge), expected);
    let dropped = Sharding { drop_last: true, ..alone(11) };
    let expected = "rank 0 of 1 has no batch: 10 rows an epoch in batches of 11, the last that is not full left out";
    assert_eq!(error(&store, drawn(DrawKind::Uniform), dropped), expected);
    assert!(error(&store, drawn(DrawKind::Uniform), alone(0)).contains("batches of 0"));
    assert!(error(&Derived::new(0, Form::Sparse), drawn(DrawKind::Chunked), alone(4)).contains("0 rows"));
    let short = Derived { weights: vec![1.0; 9], ..Derived::new(10, Form::Sparse) };
    assert_eq!(error(&short, drawn(DrawKind::Weighted), alone(2)), "column weight of obs has 9 values for 10 rows");
    let negative = Derived { weights: vec![1.0, -1.0], ..Derived::new(2, Form::Sparse) };
    assert!(error(&negative, drawn(DrawKind::Weighted), alone(2)).contains("row 1 has -1"));
}
