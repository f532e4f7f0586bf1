//! However many threads load, there is one incidence. In a program of its own, because it counts all memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use graph_loader::{
    Assembler, CellGraph, DistributedSampler, EdgeType, GraphBatchOptions, GraphBatcher, GraphError, Incidence,
    Processor, ReadRecord, Records, Sample, Schedule,
};
use loader_core::{Loader, LoaderOptions};

/// Counts the bytes that are in use.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all work is left to the system's allocator; the rest of its duties are those of the trait's other methods, which
// call these two.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Ordering::SeqCst);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::SeqCst);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const GENES: i64 = 1000;
const EDGES: i64 = 500_000;

/// Records that perturb one gene each; counts the threads that read.
struct Genes(Arc<AtomicU64>);

impl Records for Genes {
    fn reader(&self) -> Result<Box<dyn ReadRecord + '_>, GraphError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(Nothing))
    }

    fn decode(&self, index: u64, _: &[u8], _: Range<usize>, sample: &mut Sample) -> Result<(), GraphError> {
        sample.genes.clear();
        sample.genes.push(index as i64 % GENES);
        Ok(())
    }
}

struct Nothing;

impl ReadRecord for Nothing {
    fn read(&mut self, _: u64, _: &mut Vec<u8>) -> Result<usize, GraphError> {
        // Slow enough that all threads get their turn.
        std::thread::sleep(std::time::Duration::from_millis(2));
        Ok(0)
    }
}

#[test]
fn threads_share_one_incidence() {
    let ends = |factor: i64| (0..EDGES).map(move |i| i * factor % GENES);
    let edges = EdgeType { name: "e".to_owned(), edge_index: ends(7).chain(ends(13)).collect() };
    let genes = (0..GENES).map(|gene| format!("G{gene:04}")).collect();
    let graph = Arc::new(CellGraph { genes, edge_types: vec![edges], metabolism: None });
    let one = 4 * Incidence::build(&graph.edge_types[0], GENES as usize).num_positions();
    assert!(one > 3_000_000);

    let before = IN_USE.load(Ordering::SeqCst);
    let sampler = DistributedSampler { len: 1000, world_size: 1, rank: 0, shuffle: false, seed: 0, drop_last: false };
    let schedule = Arc::new(Schedule::new(sampler, 4).unwrap());
    let assembler = Assembler::new(&GraphBatchOptions::new(Processor::Shared), graph).unwrap();
    let readers = Arc::new(AtomicU64::new(0));
    let builder = GraphBatcher::new(Arc::new(Genes(Arc::clone(&readers))), schedule, assembler);
    let options = LoaderOptions { workers: 8, steps: 100, ..LoaderOptions::default() };
    let mut loader = Loader::start(builder, options).unwrap();
    let mut most = 0;
    while let Some(loaded) = loader.next_batch() {
        most = most.max(IN_USE.load(Ordering::SeqCst) - before);
        loader.recycle(loaded.unwrap().batch);
    }
    assert_eq!(readers.load(Ordering::SeqCst), 8, "all threads have loaded");
    // All else is a few batches of some kilobytes.
    assert!(most >= one && most < one + one / 2, "{most} bytes in use, one incidence has {one}");
}
