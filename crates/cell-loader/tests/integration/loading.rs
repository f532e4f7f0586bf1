use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anndata_io::Form;
use cell_loader::{CellBatch, CellBatchOptions, CellValues, Fetch};
use loader_core::NextBatch;
use proptest::prelude::*;

use super::store::{
    Derived, DrawKind, DrawSettings, alone, class, dense, drawn, loader, options, row_sampler, rows_of, settings,
};

const DRAWS: [DrawKind; 6] = [
    DrawKind::Sequential,
    DrawKind::Uniform,
    DrawKind::Weighted,
    DrawKind::Balanced,
    DrawKind::Chunked,
    DrawKind::ListedChunks,
];

fn stores(rows: u64) -> [Derived; 3] {
    [Derived::new(rows, Form::Sparse), Derived::new(rows, Form::Dense), Derived::resident(rows)]
}

/// A batch holds the rows that it says, and their classes.
fn is_right(batch: &CellBatch) {
    let expected: Vec<Vec<f32>> = batch.rows.iter().map(|row| dense(*row)).collect();
    assert_eq!(rows_of(&batch.values, batch.columns), expected);
    let classes: Vec<i64> = batch.rows.iter().map(|row| class(*row).into()).collect();
    assert_eq!(batch.labels, [classes]);
}

#[test]
fn batches_hold_the_rows_that_were_drawn_in_order_with_any_number_of_threads() {
    for draw in DRAWS {
        for output in [Form::Dense, Form::Sparse] {
            for workers in [0, 1, 3] {
                for store in stores(101) {
                    let sampler = row_sampler(&drawn(draw), &store, alone(8), None).unwrap();
                    let mut loader = loader(store, &drawn(draw), alone(8), &settings(output), options(workers, 0..40));
                    for step in 0..40 {
                        let loaded = loader.next_batch().unwrap().unwrap();
                        let mut expected = Vec::new();
                        assert_eq!(loaded.epoch, sampler.batch(step, &mut expected));
                        assert_eq!((loaded.step, &loaded.batch.rows), (step, &expected));
                        is_right(&loaded.batch);
                        loader.recycle(loaded.batch);
                    }
                    assert!(loader.next_batch().is_none());
                }
            }
        }
    }
}

/// A batch that is polled for is the one that is waited for, and its wait is the whole one.
#[test]
fn batches_can_be_polled_for() {
    for workers in [0, 2] {
        let store = Derived::new(101, Form::Sparse);
        let mut loader =
            loader(store, &drawn(DrawKind::Uniform), alone(8), &settings(Form::Sparse), options(workers, 0..9));
        for step in 0..9 {
            let loaded = loop {
                match loader.poll_batch(Duration::from_micros(10)) {
                    NextBatch::Batch(loaded) => break loaded,
                    NextBatch::Waiting => assert!(workers > 0),
                    NextBatch::Failed(error) => panic!("{error}"),
                    NextBatch::End => panic!("the end, before step {step}"),
                }
            };
            assert_eq!(loaded.step, step);
            is_right(&loaded.batch);
        }
        assert!(matches!(loader.poll_batch(Duration::ZERO), NextBatch::End));
    }
}

/// Buffers come back from any thread, are used again, and can outlive their loader. However many come, few are held.
#[test]
fn batches_are_given_back_from_anywhere() {
    let store = Derived::new(101, Form::Sparse);
    let mut loader = loader(store, &drawn(DrawKind::Uniform), alone(8), &settings(Form::Dense), options(0, 0..60));
    let recycler = loader.recycler();
    let address = |batch: &CellBatch| match &batch.values {
        CellValues::Dense(values) => values.as_ptr() as usize,
        CellValues::Sparse { .. } => 0,
    };
    let first = loader.next_batch().unwrap().unwrap().batch;
    let used = address(&first);
    let elsewhere = recycler.clone();
    std::thread::spawn(move || elsewhere.recycle(first)).join().unwrap();
    let again = loader.next_batch().unwrap().unwrap().batch;
    assert_eq!(address(&again), used);
    let many: Vec<CellBatch> = (0..20).map(|_| loader.next_batch().unwrap().unwrap().batch).collect();
    let addresses: Vec<usize> = many.iter().map(address).collect();
    many.into_iter().for_each(|batch| recycler.recycle(batch));
    // One spare batch is enough without threads.
    let next = [loader.next_batch().unwrap().unwrap().batch, loader.next_batch().unwrap().unwrap().batch];
    assert_eq!(address(&next[0]), addresses[0]);
    drop(loader);
    recycler.recycle(again);
}

/// Rows that are read one by one make the batches that rows which are read together make.
#[test]
fn rows_are_read_together_or_one_by_one() {
    for draw in [DrawKind::Uniform, DrawKind::Weighted, DrawKind::Balanced] {
        for form in [Form::Sparse, Form::Dense] {
            for workers in [0, 3] {
                let batches = |fetch: Fetch| {
                    let store = Derived::new(101, form);
                    let (fetches, read) = (Arc::clone(&store.fetches), Arc::clone(&store.read));
                    let settings = CellBatchOptions { fetch, ..settings(Form::Sparse) };
                    let mut loader = loader(store, &drawn(draw), alone(8), &settings, options(workers, 0..20));
                    let mut all = Vec::new();
                    while let Some(loaded) = loader.next_batch() {
                        let loaded = loaded.unwrap();
                        is_right(&loaded.batch);
                        assert!(loaded.intervals.windows(2).all(|pair| pair[0].end <= pair[1].start));
                        all.push(loaded.batch.rows.clone());
                        loader.recycle(loaded.batch);
                    }
                    (all, fetches.load(Ordering::SeqCst), read.load(Ordering::SeqCst))
                };
                let ((together, fetches, rows), (singly, by_row, same)) = (batches(Fetch::Batch), batches(Fetch::Row));
                assert_eq!((together, rows), (singly, same), "{draw:?} {form:?} {workers}");
                assert_eq!((fetches, by_row), (20, rows), "{draw:?} {form:?} {workers}");
            }
        }
    }
}

/// Files, chunks and blocks of all sizes; batches that reach over blocks, and over several; steps that start anywhere.
fn case() -> impl Strategy<Value = (u64, u64, DrawSettings, u64, u32, u64, bool)> {
    let sampler = (1u64..9, 1u64..5, prop_oneof![Just(DrawKind::Chunked), Just(DrawKind::Sequential)])
        .prop_map(|(chunk_rows, chunks, draw)| DrawSettings { draw, chunk_rows, chunks, ..DrawSettings::default() });
    (1u64..80, 0u64..80, sampler, 1u64..20, 0u32..5, 0u64..40, any::<bool>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn the_rest_of_an_epoch_is_the_same_wherever_it_starts(
        (rows, start, sampler, batch_size, workers, first, tight) in case()
    ) {
        let store = || Derived { starts: vec![0, start], ..Derived::new(rows, Form::Sparse) };
        let expected = row_sampler(&sampler, &store(), alone(batch_size), None).unwrap();
        let mut options = options(workers, first..first + 20);
        options.buffer_bytes = if tight { 2000 } else { 0 };
        let mut loader = loader(store(), &sampler, alone(batch_size), &settings(Form::Sparse), options);
        for step in first..first + 20 {
            let loaded = loader.next_batch().unwrap().unwrap();
            let mut rows = Vec::new();
            expected.batch(step, &mut rows);
            prop_assert_eq!(&loaded.batch.rows, &rows);
            is_right(&loaded.batch);
            loader.recycle(loaded.batch);
        }
    }

    #[test]
    fn each_chunk_is_read_once((rows, start, sampler, batch_size, workers, _, _) in case()) {
        let store = Derived { starts: vec![0, start], ..Derived::new(rows, Form::Sparse) };
        let read = Arc::clone(&store.read);
        let epoch = row_sampler(&sampler, &store, alone(batch_size), None).unwrap().batches_per_epoch();
        let options = options(workers, 0..3 * epoch);
        let mut loader = loader(store, &sampler, alone(batch_size), &settings(Form::Dense), options);
        let mut bytes = 0;
        while let Some(loaded) = loader.next_batch() {
            bytes += loaded.unwrap().bytes_read;
        }
        // And, once, some of the block that would come next.
        prop_assert_eq!(read.load(Ordering::SeqCst), bytes);
        let block = (sampler.chunk_rows * sampler.chunks).max(8 * batch_size + sampler.chunk_rows).min(rows);
        prop_assert!((3 * rows..=3 * rows + block).contains(&bytes), "{} of 3 times {}", bytes, rows);
    }
}

/// Of 400 rows, 320 are listed with a gap of one after each fourth: an epoch reads each chunk once, with its gaps, and never the rest of the file.
#[test]
fn chunks_of_a_list_are_read_once() {
    for workers in [0, 1, 3] {
        let store = Derived { starts: vec![0, 203], ..Derived::new(1000, Form::Sparse) };
        let (read, fetches) = (Arc::clone(&store.read), Arc::clone(&store.fetches));
        let listed: Vec<u64> = (0..400).filter(|row| row % 5 != 4).collect();
        let sampler = DrawSettings {
            draw: DrawKind::ListedChunks,
            chunk_rows: 40,
            chunks: 2,
            listed,
            ..drawn(DrawKind::Uniform)
        };
        let mut loader = loader(store, &sampler, alone(16), &settings(Form::Sparse), options(workers, 0..20));
        let mut drawn = Vec::new();
        while let Some(loaded) = loader.next_batch() {
            let loaded = loaded.unwrap();
            is_right(&loaded.batch);
            drawn.extend_from_slice(&loaded.batch.rows);
            loader.recycle(loaded.batch);
        }
        drop(loader);
        drawn.sort_unstable();
        assert_eq!(drawn, sampler.listed);
        // And some of the block that would come next: at most 100 rows.
        let (read, fetches) = (read.load(Ordering::SeqCst), fetches.load(Ordering::SeqCst));
        assert!((390..=500).contains(&read) && fetches <= 60, "{read} rows in {fetches} reads");
    }
}

/// Of 600 rows in blocks of 60, no more than two blocks are held, and not more after twenty epochs than after two.
#[test]
fn memory_is_that_of_two_blocks_and_does_not_grow() {
    for workers in [0, 1, 4] {
        let sampler = DrawSettings { draw: DrawKind::Chunked, chunk_rows: 12, chunks: 5, ..DrawSettings::default() };
        let store = Derived::new(600, Form::Dense);
        let mut loader = loader(store, &sampler, alone(7), &settings(Form::Dense), options(workers, 0..20 * 86));
        // Buffers that grow by doubling.
        let block = 2 * 60 * super::store::GENES as u64 * 4;
        let mut most = 0;
        while let Some(loaded) = loader.next_batch() {
            let loaded = loaded.unwrap();
            let blocks = u64::from(workers.max(1)) * loaded.work_bytes;
            assert!(blocks <= 2 * block + u64::from(workers.max(1)) * 1000, "{blocks} bytes are held");
            most = most.max(loaded.work_bytes);
            loader.recycle(loaded.batch);
        }
        assert!(most > 0);
    }
}

/// Time is told by stages that do not overlap, and reading is spread over the batches of a block.
#[test]
fn every_batch_reads_its_share_of_the_next_block() {
    let sampler = DrawSettings { draw: DrawKind::Chunked, chunk_rows: 10, chunks: 8, ..DrawSettings::default() };
    let store = Derived::new(800, Form::Sparse);
    let mut loader = loader(store, &sampler, alone(10), &settings(Form::Sparse), options(0, 0..80));
    let mut reads = Vec::new();
    while let Some(loaded) = loader.next_batch() {
        let loaded = loaded.unwrap();
        assert!(loaded.intervals.windows(2).all(|pair| pair[0].end <= pair[1].start));
        reads.push(loaded.bytes_read / 10);
    }
    // The first block at once, then a chunk with each batch, to the last.
    let expected: Vec<u64> = std::iter::once(9).chain(vec![1; 79]).collect();
    assert_eq!(reads, expected);
}

/// Steps that end inside a block read as much as any others: what is measured there is what reading costs.
#[test]
fn steps_inside_one_block_read_their_share() {
    for workers in [0, 2] {
        let sampler = DrawSettings { draw: DrawKind::Chunked, chunk_rows: 10, chunks: 80, ..DrawSettings::default() };
        let store = Derived::new(8000, Form::Sparse);
        let mut loader = loader(store, &sampler, alone(10), &settings(Form::Sparse), options(workers, 0..60));
        let mut reads = Vec::new();
        while let Some(loaded) = loader.next_batch() {
            reads.push(loaded.unwrap().bytes_read);
        }
        let measured: u64 = reads[20..].iter().sum();
        assert!((380..=430).contains(&measured), "{measured} rows for 40 batches of 10, {workers} threads");
    }
}

/// What a reader keeps between batches is of use without threads too.
#[test]
fn a_thread_has_one_reader() {
    for (workers, expected) in [(0, 1..=1), (3, 1..=3)] {
        let store = Derived::new(100, Form::Sparse);
        let readers = Arc::clone(&store.readers);
        let draw = drawn(DrawKind::Uniform);
        let mut loader = loader(store, &draw, alone(10), &settings(Form::Sparse), options(workers, 0..30));
        while let Some(loaded) = loader.next_batch() {
            is_right(&loaded.unwrap().batch);
        }
        assert!(expected.contains(&readers.load(Ordering::SeqCst)), "{workers}");
    }
}

/// Neither a chunk of all rows nor single rows, whatever the settings and the store say.
#[test]
fn sequential_reads_a_few_batches_at_once() {
    for (chunk_rows, run_rows, expected) in
        [(1 << 40, 1, 512), (1 << 40, 700, 700), (0, 1, 512), (0, 7, 7), (20, 1, 20)]
    {
        let store = Derived { run_rows, ..Derived::new(10_000, Form::Sparse) };
        let sampler = DrawSettings { chunk_rows, ..drawn(DrawKind::Sequential) };
        let mut loader = loader(store, &sampler, alone(4), &settings(Form::Sparse), options(0, 0..3));
        // The first block, of 32 rows or a chunk, and what the first batch reads of the next.
        let read = loader.next_batch().unwrap().unwrap().bytes_read;
        // Runs are read as a whole; of chunks, which are in as many parts as a block has batches, a part more.
        let is_whole = read.is_multiple_of(if run_rows > 1 { expected } else { 1 });
        assert!(is_whole && (expected..=2 * expected.max(32)).contains(&read), "{chunk_rows} and {run_rows}: {read}");
    }
}
