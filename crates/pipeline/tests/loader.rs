//! The threaded loader: order, back-pressure, errors at their step, clean shutdown.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use expctl_pipeline::PipelineError;
use expctl_pipeline::collate::Assembler;
use expctl_pipeline::graph::CellGraph;
use expctl_pipeline::loader::{BatchBuilder, Loader, LoaderOptions, ReadRecord, Records};
use expctl_pipeline::sampler::{DistributedSampler, Schedule};
use expctl_pipeline::store::Sample;
use expctl_record::{Pipeline, Processor, Stage};

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
    fn reader(&self) -> Result<Box<dyn ReadRecord + '_>, PipelineError> {
        Ok(Box::new(Reader(Arc::clone(&self.reads))))
    }

    fn decode(&self, index: u64, bytes: &[u8], range: Range<usize>, sample: &mut Sample) -> Result<(), PipelineError> {
        assert_eq!(bytes[range], index.to_le_bytes());
        assert!(self.panics != Some(index), "record {index} panics");
        if self.bad == Some(index) {
            return Err(PipelineError::Record { store: "numbers".into(), index, reason: "bad".into() });
        }
        // Later records are faster, so that threads overtake each other.
        std::thread::sleep(self.delay * (index % 3) as u32);
        sample.genes.clear();
        sample.genes.push(index as i64);
        Ok(())
    }
}

impl ReadRecord for Reader {
    fn read(&mut self, index: u64, out: &mut Vec<u8>) -> Result<usize, PipelineError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        out.extend_from_slice(&index.to_le_bytes());
        Ok(8)
    }
}

fn loader(records: Numbers, workers: u32, steps: u64) -> Loader {
    let sampler = DistributedSampler { len: 100, world_size: 1, rank: 0, shuffle: false, seed: 0, drop_last: false };
    let schedule = Arc::new(Schedule::new(sampler, 4).unwrap());
    let graph = Arc::new(CellGraph { genes: Vec::new(), edge_types: Vec::new(), metabolism: None });
    let builder = BatchBuilder::new(
        Arc::new(records),
        schedule,
        Assembler::new(&Pipeline::new(Processor::Ids, Vec::new()), graph).unwrap(),
    );
    Loader::start(builder, LoaderOptions { workers, prefetch_factor: 2, first: 0, steps }).unwrap()
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
        for stage in Stage::LOADER {
            assert_eq!(exposed[stage], busy[stage], "{stage}");
        }
    }
}

#[test]
fn no_more_is_read_ahead_than_was_asked_for() {
    let records = Numbers::default();
    let reads = Arc::clone(&records.reads);
    let mut loader = loader(records, 3, 1000);
    let first = loader.next_batch().unwrap().unwrap();
    let settled = |expected: u64| {
        let start = Instant::now();
        while reads.load(Ordering::SeqCst) < expected && start.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(50));
        reads.load(Ordering::SeqCst)
    };
    // The delivered batch and 3 threads × 2 batches ahead, of 4 samples each.
    assert_eq!(settled(28), 28);
    drop(first);
}

#[test]
fn an_error_arrives_at_its_own_step_and_ends_the_loader() {
    for workers in [0, 4] {
        let mut loader = loader(Numbers { bad: Some(21), ..Numbers::default() }, workers, 25);
        for step in 0..5 {
            assert_eq!(loader.next_batch().unwrap().unwrap().step, step);
        }
        let error = loader.next_batch().unwrap().unwrap_err().to_string();
        assert_eq!(error, "record 21 of numbers: bad");
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
