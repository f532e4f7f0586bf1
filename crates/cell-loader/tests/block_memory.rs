//! The memory of sparse rows is free when their batches are built, so that a block and the next one together take that of one. In a program of its
//! own, because it counts all memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anndata_io::{AnnDataError, ArrayStore, Form, Labels, ReadRows, RowSelection, Rows};
use cell_loader::{CellBatchOptions, CellBatcher, Draw, Loader, LoaderOptions, RowSampler, Sharding};

/// Counts the bytes that are in use.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all work is left to the system's allocator; the rest of its duties are those of the trait's other methods, which
// call these two.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let before = IN_USE.fetch_add(layout.size(), Ordering::SeqCst);
        PEAK.fetch_max(before + layout.size(), Ordering::SeqCst);
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

const CHUNK: u64 = 256;
const CHUNKS: u64 = 32;
const BATCH: u64 = 16;
/// Two blocks.
const ROWS: u64 = 2 * CHUNK * CHUNKS;
const BATCHES_OF_BLOCK: u64 = CHUNK * CHUNKS / BATCH;

/// Values of a row. Rows that lie together are alike, as those of a donor are: buffers that fit the longest parts are too large for others.
fn values_of(row: u64) -> u64 {
    if (row / 2048).is_multiple_of(2) { 1400 } else { 1000 }
}

/// Counts below 256 in rows of two lengths, half of the rows each.
#[derive(Debug)]
struct Counts {
    genes: Vec<String>,
}

impl ArrayStore for Counts {
    fn len(&self) -> u64 {
        ROWS
    }

    fn genes(&self) -> &[String] {
        &self.genes
    }

    fn form(&self) -> Form {
        Form::Sparse
    }

    fn stored_bytes(&self) -> u64 {
        0
    }

    fn labels(&self, column: &str) -> Result<Labels, AnnDataError> {
        Err(AnnDataError::Other(format!("no column {column}").into()))
    }

    fn numbers(&self, column: &str) -> Result<Vec<f64>, AnnDataError> {
        Err(AnnDataError::Other(format!("no column {column}").into()))
    }

    fn reader(&self) -> Result<Box<dyn ReadRows + '_>, AnnDataError> {
        Ok(Box::new(CountsReader { fetched: 0..0 }))
    }
}

struct CountsReader {
    fetched: Range<u64>,
}

impl ReadRows for CountsReader {
    fn fetch(&mut self, wanted: &RowSelection<'_>, _: &mut Rows) -> Result<u64, AnnDataError> {
        let RowSelection::Range(range) = wanted else {
            return Err(AnnDataError::Other("chunks are read in ranges".into()));
        };
        self.fetched = range.clone();
        Ok(range.end - range.start)
    }

    fn decode(&mut self, out: &mut Rows) -> Result<(), AnnDataError> {
        let Rows::Sparse(out) = out else { return Err(AnnDataError::Other("rows are sparse".into())) };
        for row in self.fetched.clone() {
            out.indices.extend((0..values_of(row)).map(|at| (3 * at + row % 3) as i32));
            out.data.extend((0..values_of(row)).map(|at| ((row + at) % 200 + 1) as f32));
            out.indptr.push(out.data.len() as u64);
        }
        Ok(())
    }
}

#[test]
fn two_blocks_take_the_memory_of_one() {
    // 3 bytes a value; the two lengths of rows are in a block in about equal shares.
    let block = (CHUNK * CHUNKS * 1200 * 3) as usize;
    for (workers, first) in [(0, 0), (1, 0), (2, 0), (4, 0), (2, BATCHES_OF_BLOCK / 2)] {
        let before = IN_USE.load(Ordering::SeqCst);
        PEAK.store(before, Ordering::SeqCst);
        let genes = (0..3 * 1400).map(|gene| gene.to_string()).collect();
        let store: Arc<dyn ArrayStore> = Arc::new(Counts { genes });
        let sharding = Sharding { seed: 3, rank: 0, world_size: 1, batch_size: BATCH, drop_last: false };
        let draw = Draw::Chunked { chunk_rows: CHUNK, chunks: CHUNKS };
        let sampler = Arc::new(RowSampler::new(&draw, store.as_ref(), sharding, None).unwrap());
        let options = CellBatchOptions { output: Form::Sparse, ..CellBatchOptions::default() };
        let batcher = CellBatcher::new(store, sampler, &options, Arc::default()).unwrap();
        // Two epochs.
        let options = LoaderOptions { workers, first, steps: 4 * BATCHES_OF_BLOCK, ..LoaderOptions::default() };
        let mut loader = Loader::start(batcher, options).unwrap();
        while let Some(loaded) = loader.next_batch() {
            loader.recycle(loaded.unwrap().batch);
        }
        let peak = PEAK.load(Ordering::SeqCst) - before;
        let found = format!("{workers} threads from step {first}: {peak} bytes in use, a block has {block}");
        // Beside the block, as docs/guide/samplers.md says: a group of it, pages that are not full, what threads are ahead, and some batches.
        assert!(peak < block * 8 / 5, "{found}");
        // A whole block was there: a loader that starts in the middle of one needs the next as a whole.
        assert!(peak >= block * 19 / 20, "{found}");
    }
}
