//! The threaded loader: order, back-pressure, errors at their step, clean shutdown.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use graph_loader::error::RecordError;
use graph_loader::{
    Assembler, CellGraph, DistributedSampler, EdgeType, GraphBatchOptions, GraphBatcher, GraphError, Processor,
    ReadRecord, Records, Sample, Schedule,
};
use loader_core::{BatchTimes, Loader, LoaderOptions, Stage, StageOperation};
use proptest::prelude::*;

/// Records whose only gene is their index; record `bad` is an error, record `panics` a panic.
#[derive(Default)]
struct Numbers {
    bad: Option<u64>,
    panics: Option<u64>,
    reads: Arc<AtomicU64>,
    delay: Duration,
}

struct Reader(Arc<AtomicU64>);

impl Records for Numbers {
    fn reader(&self) -> Result<Box<dyn ReadRecord + '_>, GraphError> {
        Ok(Box::new(Reader(Arc::clone(&self.reads))))
    }

    fn decode(&self, index: u64, bytes: &[u8], range: Range<usize>, sample: &mut Sample) -> Result<(), GraphError> {
        assert_eq!(bytes[range], index.to_le_bytes());
        assert!(self.panics != Some(index), "record {index} panics");
        if self.bad == Some(index) {
            return Err(GraphError::Record {
                store: "numbers".into(),
                index,
                problem: RecordError::IdsLength { bytes: 3 },
            });
        }
        // Later records are faster, so that threads overtake each other.
        std::thread::sleep(self.delay * (index % 3) as u32);
        sample.genes.clear();
        sample.genes.push(index as i64);
        Ok(())
    }
}

impl ReadRecord for Reader {
    fn read(&mut self, index: u64, out: &mut Vec<u8>) -> Result<usize, GraphError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        out.extend_from_slice(&index.to_le_bytes());
        Ok(8)
    }
}

fn loader(records: Numbers, workers: u32, steps: u64) -> Loader<GraphBatcher> {
    loader_with(records, LoaderOptions { workers, steps, ..LoaderOptions::default() })
}

fn loader_with(records: impl Records, options: LoaderOptions) -> Loader<GraphBatcher> {
    let sampler = DistributedSampler { len: 100, world_size: 1, rank: 0, shuffle: false, seed: 0, drop_last: false };
    let schedule = Arc::new(Schedule::new(sampler, 4).unwrap());
    let graph = Arc::new(CellGraph { genes: Vec::new(), edge_types: Vec::new(), metabolism: None });
    let builder = GraphBatcher::new(
        Arc::new(records),
        schedule,
        Assembler::new(&GraphBatchOptions::new(Processor::Ids), graph).unwrap(),
    );
    Loader::start(builder, options).unwrap()
}

#[test]
fn batches_arrive_in_order_with_any_number_of_threads() {
    for workers in [0, 1, 3, 8] {
        let mut loader = loader(Numbers { delay: Duration::from_micros(200), ..Numbers::default() }, workers, 60);
        let mut steps = 0;
        while let Some(loaded) = loader.next_batch() {
            let loaded = loaded.unwrap();
            assert_eq!(loaded.step, steps);
            assert_eq!(loaded.epoch, steps / 25);
            let first = (steps % 25 * 4) as i64;
            assert_eq!(loaded.batch.common.genes, [first, first + 1, first + 2, first + 3]);
            assert_eq!(loaded.bytes_read, 32);
            steps += 1;
            loader.recycle(loaded.batch);
        }
        assert_eq!(steps, 60, "{workers} workers");
    }
}

#[test]
fn without_threads_all_work_is_exposed() {
    let mut loader = loader(Numbers { delay: Duration::from_millis(2), ..Numbers::default() }, 0, 3);
    for _ in 0..3 {
        let loaded = loader.next_batch().unwrap().unwrap();
        let (busy, exposed) = (loaded.busy(), loaded.exposed);
        for stage in Stage::ALL.into_iter().filter(|stage| *stage != Stage::Other) {
            assert_eq!(exposed[stage], busy[stage], "{stage:?}");
        }
    }
}

#[test]
fn operations_lie_inside_their_stage_where_they_are_timed() {
    let ring = (0..100).chain((1..100).chain([0])).collect();
    let edge_types = vec![EdgeType { name: "ring".to_owned(), edge_index: ring }];
    let graph = Arc::new(CellGraph { genes: vec![String::new(); 100], edge_types, metabolism: None });
    let assembler = Assembler::new(&GraphBatchOptions::new(Processor::Shared), graph).unwrap();
    let sampler = DistributedSampler { len: 100, world_size: 1, rank: 0, shuffle: false, seed: 0, drop_last: false };
    let schedule = Arc::new(Schedule::new(sampler, 4).unwrap());
    let builder = GraphBatcher::new(Arc::new(Numbers::default()), schedule, assembler);
    for workers in [0, 2] {
        let options = LoaderOptions { workers, steps: 20, ..LoaderOptions::default() };
        let mut plain = Loader::start(builder.clone(), options).unwrap();
        let mut timed = Loader::start(builder.clone().timing_operations(), options).unwrap();
        while let Some(loaded) = timed.next_batch() {
            let (loaded, other) = (loaded.unwrap(), plain.next_batch().unwrap().unwrap());
            assert!(other.operations.is_none());
            // Without p-values, which are no numbers and equal to nothing.
            assert_eq!(loaded.batch.layout, other.batch.layout);
            let operations = loaded.operations.as_ref().unwrap();
            let named: Vec<_> = operations.intervals().map(|(of, name)| (of.stage, of.operation, name)).collect();
            let expected = [
                (Stage::Mask, StageOperation::Lookup, "ring"),
                (Stage::Mask, StageOperation::Fill, "ring"),
                (Stage::Collate, StageOperation::Copy, "labels"),
            ];
            assert_eq!(named, expected);
            for (of, name) in operations.intervals() {
                let around = loaded.intervals.iter().find(|interval| interval.stage == of.stage).unwrap();
                assert!(around.start <= of.start && of.end <= around.end, "{name}: {of:?} in {around:?}");
            }
            assert_eq!(BatchTimes::from(&loaded).operations.as_ref(), Some(operations));
        }
    }
}

#[test]
fn no_more_is_read_ahead_than_was_asked_for() {
    let records = Numbers::default();
    let reads = Arc::clone(&records.reads);
    let mut loader = loader(records, 3, 1000);
    let first = loader.next_batch().unwrap().unwrap();
    // The delivered batch and 3 threads × 2 batches ahead, of 4 samples each.
    assert_eq!(settled(&reads, 28), 28);
    drop(first);
}

/// Reads, once they are as many as expected and no more come.
fn settled(reads: &AtomicU64, expected: u64) -> u64 {
    let start = Instant::now();
    while reads.load(Ordering::SeqCst) < expected && start.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(50));
    reads.load(Ordering::SeqCst)
}

#[test]
fn no_more_is_held_than_fits() {
    let first = loader(Numbers::default(), 0, 1).next_batch().unwrap().unwrap();
    let (batch, work) = (first.batch.bytes(), first.work_bytes);
    assert!(work >= first.bytes_read, "the records of a batch stay with its thread");
    // Of 7 batches that could be held, so many beside what three threads keep; one that does not fit is held alone.
    for (limit, held) in [(10 * batch + 3 * work, 7), (4 * batch + 3 * work, 4), (4 * batch + 2 * work, 3), (1, 1)] {
        let records = Numbers::default();
        let reads = Arc::clone(&records.reads);
        let options = LoaderOptions { workers: 3, steps: 1000, buffer_bytes: limit, ..LoaderOptions::default() };
        let mut loader = loader_with(records, options);
        let mut in_step = loader.next_batch().unwrap().unwrap();
        assert_eq!(settled(&reads, 4 * held), 4 * held, "in the first step, limit {limit}");
        for step in 1..20 {
            loader.recycle(in_step.batch);
            in_step = loader.next_batch().unwrap().unwrap();
            assert_eq!(in_step.step, step);
        }
        // 19 batches have been given back.
        assert_eq!(settled(&reads, 4 * (19 + held)), 4 * (19 + held), "in step 19, limit {limit}");
    }
}

/// Records of different sizes, which count the batches that are held.
struct Uneven {
    largest: u64,
    begun: Arc<AtomicU64>,
    returned: Arc<AtomicU64>,
    most: Arc<AtomicU64>,
}

impl Records for Uneven {
    fn reader(&self) -> Result<Box<dyn ReadRecord + '_>, GraphError> {
        Ok(Box::new(UnevenReader(self)))
    }

    fn decode(&self, index: u64, _: &[u8], _: Range<usize>, sample: &mut Sample) -> Result<(), GraphError> {
        sample.genes = vec![index as i64; (index * 7 % (self.largest + 1)) as usize];
        Ok(())
    }
}

struct UnevenReader<'a>(&'a Uneven);

impl ReadRecord for UnevenReader<'_> {
    fn read(&mut self, index: u64, _: &mut Vec<u8>) -> Result<usize, GraphError> {
        if index.is_multiple_of(4) {
            // Never more than really are held: it is counted behind the claim, and given back in front of the call.
            let begun = self.0.begun.fetch_add(1, Ordering::SeqCst) + 1;
            self.0.most.fetch_max(begun.saturating_sub(self.0.returned.load(Ordering::SeqCst)), Ordering::SeqCst);
        }
        Ok(0)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn with_any_limit_all_batches_come_in_order_and_few_are_held(
        workers in 1u32..6,
        prefetch_factor in 1u32..4,
        buffer_bytes in 1u64..4000,
        largest in 0u64..7,
        kept in 0usize..4,
    ) {
        let count = || Arc::new(AtomicU64::new(0));
        let records = Uneven { largest, begun: count(), returned: count(), most: count() };
        let (returned, most) = (Arc::clone(&records.returned), Arc::clone(&records.most));
        let options = LoaderOptions { workers, prefetch_factor, steps: 60, buffer_bytes, ..LoaderOptions::default() };
        let mut loader = loader_with(records, options);
        let (mut in_step, mut smallest) = (VecDeque::new(), u64::MAX);
        for step in 0..60 {
            let loaded = loader.next_batch().unwrap().unwrap();
            prop_assert_eq!(loaded.step, step);
            smallest = smallest.min(loaded.batch.bytes());
            in_step.push_back(loaded.batch);
            // A caller that keeps a few is served all the same.
            while in_step.len() > kept {
                returned.fetch_add(1, Ordering::SeqCst);
                loader.recycle(in_step.pop_front().unwrap());
            }
        }
        prop_assert!(loader.next_batch().is_none());
        let most = most.load(Ordering::SeqCst);
        let ahead = u64::from(workers * prefetch_factor);
        // What fits of the smallest, or what is kept and the one that is waited for.
        let bound = (buffer_bytes / smallest).max(kept as u64 + 1);
        prop_assert!(most <= bound.min(ahead + kept as u64 + 1), "{} are held, not {}", most, bound);
    }
}

#[test]
fn an_error_arrives_at_its_own_step_and_ends_the_loader() {
    for workers in [0, 4] {
        let mut loader = loader(Numbers { bad: Some(21), ..Numbers::default() }, workers, 25);
        for step in 0..5 {
            assert_eq!(loader.next_batch().unwrap().unwrap().step, step);
        }
        let error = loader.next_batch().unwrap().unwrap_err().to_string();
        assert_eq!(error, "record 21 of numbers: 3 bytes, not 8 and 4 for each gene");
        if workers > 0 {
            assert!(loader.next_batch().is_none());
        }
    }
}

#[test]
fn a_panic_in_a_thread_is_an_error_at_its_step() {
    let mut loader = loader(Numbers { panics: Some(9), ..Numbers::default() }, 2, 25);
    assert!(loader.next_batch().unwrap().is_ok());
    assert!(loader.next_batch().unwrap().is_ok());
    let error = loader.next_batch().unwrap().unwrap_err().to_string();
    assert!(error.contains("step 2") && error.contains("record 9 panics"), "{error}");
}

#[test]
fn dropping_a_loader_that_is_ahead_ends_its_threads() {
    let records = Numbers::default();
    let reads = Arc::clone(&records.reads);
    let mut loader = loader(records, 4, 1_000_000);
    loader.next_batch().unwrap().unwrap();
    drop(loader);
    let after = reads.load(Ordering::SeqCst);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(reads.load(Ordering::SeqCst), after);
}
