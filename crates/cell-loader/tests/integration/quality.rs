use anndata_io::{ArrayStore, Form, Labels};
use cell_loader::{CellError, Sharding, ShuffleMeter, ShuffleQuality};

use super::store::{Derived, DrawKind, DrawSettings, alone, class, drawn, row_sampler};

fn labels(codes: Vec<i32>) -> Labels {
    Labels { categories: vec!["a".into(), "b".into()], codes, ..Labels::default() }
}

/// Of this order of `population` rows, whatever would draw it.
fn measured(population: u64, order: &[u64], batch: usize, labels: &Labels) -> ShuffleQuality {
    let store = Derived::new(population, Form::Sparse);
    let sampler = row_sampler(&drawn(DrawKind::Sequential), &store, alone(batch as u64), None).unwrap();
    let mut meter = ShuffleMeter::new(&sampler, population, Some(("kind", labels)));
    order.chunks(batch).for_each(|rows| meter.add(rows));
    meter.finish()
}

#[test]
fn as_they_are_is_no_shuffle() {
    let labels = labels((0..100).map(|row| i32::from(row >= 50)).collect());
    let quality = measured(100, &(0..100).collect::<Vec<_>>(), 10, &labels);
    assert_eq!((quality.metered_rows, quality.metered_batches, quality.duplicates), (100, 10, 0));
    assert_eq!((quality.epoch_rows, quality.mean_distance), (100, 0.0));
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

/// Of files sorted by class, the start of an epoch has one class alone: it is compared with all rows, not with itself.
#[test]
fn a_part_of_an_epoch_is_compared_with_all_rows() {
    let labels = labels((0..100).map(|row| i32::from(row >= 50)).collect());
    let mixing = measured(100, &(0..30).collect::<Vec<_>>(), 10, &labels).labels.unwrap();
    assert_eq!((mixing.classes, mixing.entropy), (1, 0.0));
    assert!(mixing.ideal_entropy > 0.9, "{mixing:?}");
    // Weighted rows are never all alike likely.
    let store = Derived::new(100, Form::Sparse);
    let sampler = row_sampler(&drawn(DrawKind::Weighted), &store, alone(10), None).unwrap();
    let mut meter = ShuffleMeter::new(&sampler, 100, Some(("kind", &labels)));
    meter.add(&(0..10).collect::<Vec<_>>());
    assert_eq!(meter.finish().labels.unwrap().ideal_entropy, 0.0);
}

/// Of the first tenth of an epoch, on any of four ranks: a perfect shuffle comes as far as is expected, and none nowhere.
#[test]
fn the_expected_distance_is_that_of_the_places_that_were_metered() {
    let store = Derived::new(100_000, Form::Sparse);
    for (world_size, rank) in [(1, 0), (4, 0), (4, 2)] {
        let distance = |settings: &DrawSettings| {
            let sharding = Sharding { world_size, rank, ..alone(100) };
            let sampler = row_sampler(settings, &store, sharding, None).unwrap();
            let mut meter = ShuffleMeter::new(&sampler, store.len(), None);
            let steps = sampler.batches_per_epoch() / 10;
            for step in 0..steps {
                let mut rows = Vec::new();
                sampler.batch(step, &mut rows);
                meter.add(&rows);
            }
            let quality = meter.finish();
            assert_eq!((quality.epoch_rows, quality.metered_batches), (100_000 / u64::from(world_size), steps));
            (quality.mean_distance, quality.expected_distance)
        };
        for settings in [drawn(DrawKind::Uniform), DrawSettings { chunks: 500, ..drawn(DrawKind::Chunked) }] {
            let (mean, expected) = distance(&settings);
            assert!((mean / expected - 1.0).abs() < 0.06, "{settings:?}, rank {rank}: {mean} and {expected}");
            assert!(rank > 0 || expected > 0.45, "{expected}");
        }
        let (mean, expected) = distance(&drawn(DrawKind::Sequential));
        assert!(mean < 1e-9 && expected > 0.25, "{mean} and {expected}");
    }
}

/// Classes that were read already are those that are drawn by.
#[test]
fn classes_need_not_be_read_twice() {
    let store = Derived::new(60, Form::Sparse);
    let batch = |by: &str, classes: Option<&Labels>| {
        let settings = DrawSettings { by: by.into(), ..drawn(DrawKind::Balanced) };
        let sampler = row_sampler(&settings, &store, alone(20), classes)?;
        let mut rows = Vec::new();
        sampler.batch(0, &mut rows);
        Ok::<_, CellError>(rows)
    };
    let classes = store.labels("kind").unwrap();
    assert_eq!(batch("elsewhere", Some(&classes)).unwrap(), batch("kind", None).unwrap());
    assert!(batch("elsewhere", None).is_err());
    assert!(batch("kind", None).unwrap().iter().all(|row| class(*row) >= 0));
}

#[test]
fn the_quality_of_a_shuffle_tells_the_samplers_apart() {
    let rows = 20_000;
    let store = Derived::new(rows, Form::Sparse);
    let codes = (0..rows).map(|row| (row / 2000) as i32).collect();
    let labels = Labels { categories: (0..10).map(|class| class.to_string()).collect(), codes, ..Labels::default() };
    let quality = |settings: &DrawSettings| {
        let sampler = row_sampler(settings, &store, alone(100), None).unwrap();
        ShuffleMeter::epoch(&sampler, store.len(), Some(("block", &labels)), 1)
    };
    let mixed = |settings: &DrawSettings| {
        let labels = quality(settings).labels.unwrap();
        labels.entropy / labels.ideal_entropy
    };
    let uniform = quality(&drawn(DrawKind::Uniform));
    assert_eq!((uniform.epoch_rows, uniform.metered_rows, uniform.metered_batches), (rows, rows, 200));
    assert_eq!(uniform.duplicates, 0);
    assert!(uniform.neighbour_correlation.unwrap().abs() < 0.03);
    assert!((uniform.mean_distance - 1.0 / 3.0).abs() < 0.01);
    assert!((mixed(&drawn(DrawKind::Uniform)) - 1.0).abs() < 0.005);
    assert!((uniform.expected_distance - 1.0 / 3.0).abs() < 1e-4);
    let sequential = quality(&drawn(DrawKind::Sequential));
    assert!(sequential.neighbour_correlation.unwrap() > 0.999 && sequential.mean_distance < 1e-9);
    assert!(mixed(&drawn(DrawKind::Sequential)) < 0.01);
    let chunked = |chunks| DrawSettings { chunk_rows: 100, chunks, ..drawn(DrawKind::Chunked) };
    let (few, many) = (mixed(&chunked(2)), mixed(&chunked(50)));
    assert!(few < 0.5 && many > 0.9 && many < 1.0, "{few} {many}");
    assert!(quality(&drawn(DrawKind::Weighted)).duplicates > rows / 10);
}
