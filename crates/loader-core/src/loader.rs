//! `Loader` runs the threads. Each claims the next step, builds its batch, and puts it where the step takes it from. Without threads, the step builds
//! its batch itself.
//! Invariant: batches and errors are delivered in the order of their steps, whichever thread is ready first.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::batcher::{Batcher, Dataset, Loaded, Reader};
use crate::memory_budget::{FewerBatches, MemoryBudget};
use crate::timing::{BatchTimes, exposed_wait};

/// Why a loader cannot deliver a batch, beside the errors of its [`Batcher`].
#[derive(Debug, thiserror::Error)]
pub enum LoaderError {
    /// The system starts no more threads.
    #[error("cannot start loader thread {thread}: {source}")]
    ThreadStart {
        /// The thread.
        thread: u32,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A batcher panicked.
    #[error("a loader thread panicked at step {step}: {message}")]
    ThreadPanicked {
        /// The step of the batch that was being built.
        step: u64,
        /// Message of the panic.
        message: String,
    },
    /// No thread is left that could build the batch.
    #[error("all loader threads have ended")]
    ThreadsEnded,
    /// The loader ends, or a batch that this one depends on could not be built.
    #[error("stopped")]
    Stopped,
    /// An error of a batcher around another one, whose errors it shares.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

/// The message of a panic.
fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("unknown reason").to_owned()
}

/// How a loader works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoaderOptions {
    /// Threads; 0 builds each batch on the step's own thread.
    pub workers: u32,
    /// Batches that each thread may be ahead of the step.
    pub prefetch_factor: u32,
    /// First step that a batch is built for.
    pub first: u64,
    /// Step after the last one.
    pub steps: u64,
    /// Maximum bytes of batches that are being built, ready, or delivered and not given back, and of the threads' scratch
    /// memory. 0 is no limit; a batch that is larger is held alone. Without threads there is never more than one.
    pub buffer_bytes: u64,
    /// Name of the limit in warnings, which give it in MiB.
    pub buffer_name: &'static str,
    /// Maximum bytes of the batches that are ahead of the step: of large batches fewer are than the prefetch factor allows, but one for each
    /// thread and one more. 0 is no limit.
    pub ahead_bytes: u64,
}

impl Default for LoaderOptions {
    /// No threads, no steps, no limit.
    fn default() -> Self {
        Self {
            workers: 0,
            prefetch_factor: 2,
            first: 0,
            steps: 0,
            buffer_bytes: 0,
            buffer_name: "the memory limit",
            ahead_bytes: 0,
        }
    }
}

impl LoaderOptions {
    /// Batches that may be ahead of the step, where the largest so far has so many bytes. With one more than there are threads each thread
    /// builds a batch while the next one is ready.
    fn ahead(&self, largest: Option<u64>) -> u64 {
        let workers = u64::from(self.workers);
        let ahead = workers * u64::from(self.prefetch_factor.max(1));
        match largest {
            Some(bytes) if self.ahead_bytes > 0 => ahead.min((self.ahead_bytes / bytes.max(1)).max(workers + 1)),
            _ => ahead,
        }
    }
}

/// Delivers the batches of a schedule in order, built by threads ahead of the step.
pub struct Loader<B: Batcher> {
    shared: Arc<Shared<B>>,
    threads: Vec<JoinHandle<()>>,
    /// Builds batches if there are no threads; keeps the clock otherwise.
    batcher: B,
    /// Reader of `batcher`; `None` before the first batch.
    reader: Option<OwnedReader<B>>,
    options: LoaderOptions,
    /// When the step began to wait for the next batch, if it does.
    waiting_since: Option<u64>,
}

struct Shared<B: Batcher> {
    state: Mutex<LoaderState<B>>,
    /// A batch is ready, or a thread has ended.
    ready: Condvar,
    /// There is room for another batch, or the loader stops.
    room: Condvar,
}

struct LoaderState<B: Batcher> {
    /// Next step that no thread has claimed.
    claim: u64,
    /// Next step to deliver.
    deliver: u64,
    finished: BTreeMap<u64, Result<Loaded<B::Batch>, B::Error>>,
    spare: Vec<B::Batch>,
    budget: MemoryBudget,
    stopped: bool,
}

impl<B: Batcher> LoaderState<B> {
    /// Takes out the spare buffers that there is no room for. Drop them without the lock: giving a gigabyte back to the
    /// system takes a while.
    fn surplus(&mut self) -> Vec<B::Batch> {
        let keep = self.spare.len() - self.budget.surplus(self.spare.len());
        self.spare.split_off(keep)
    }

    /// Whether another batch may be begun.
    fn may_begin(&self, options: &LoaderOptions) -> bool {
        self.claim < self.deliver + options.ahead(self.budget.largest()) && self.budget.may_begin(self.spare.len())
    }
}

impl<B: Batcher> Shared<B> {
    /// A thread that panicked while it held the lock left whole values: nothing below panics between changes that belong
    /// together.
    fn lock(&self) -> MutexGuard<'_, LoaderState<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Take the buffers of a batch back.
    fn give_back(&self, batch: B::Batch, options: &LoaderOptions) {
        let mut state = self.lock();
        state.budget.given_back();
        state.spare.push(batch);
        let mut surplus = state.surplus();
        // A step may have held many batches at once; no more than these are in use at a time otherwise.
        let max_spare = usize::try_from(options.ahead(state.budget.largest()) + 1).unwrap_or(usize::MAX);
        if state.spare.len() > max_spare {
            surplus.extend(state.spare.drain(max_spare..));
        }
        drop(state);
        self.memory_changed(options);
        drop(surplus);
    }

    /// Wake threads that wait for memory. Without a limit there are none, and steps do not pay for it.
    fn memory_changed(&self, options: &LoaderOptions) {
        if options.buffer_bytes > 0 {
            self.room.notify_all();
        }
    }
}

impl<B: Batcher> Loader<B> {
    /// Start the threads.
    ///
    /// # Errors
    /// [`LoaderError::ThreadStart`].
    pub fn start(mut batcher: B, options: LoaderOptions) -> Result<Self, B::Error> {
        batcher.starting(&options);
        let shared = Arc::new(Shared {
            state: Mutex::new(LoaderState {
                claim: options.first,
                deliver: options.first,
                finished: BTreeMap::new(),
                spare: Vec::new(),
                budget: MemoryBudget::new(options.buffer_bytes, u64::from(options.workers)),
                stopped: false,
            }),
            ready: Condvar::new(),
            room: Condvar::new(),
        });
        let mut loader = Self { shared, threads: Vec::new(), batcher, reader: None, options, waiting_since: None };
        for i in 0..options.workers {
            let (shared, batcher) = (Arc::clone(&loader.shared), loader.batcher.clone());
            let thread = std::thread::Builder::new()
                .name(format!("loader-{i}"))
                .spawn(move || work(&shared, batcher, options, i))
                .map_err(|e| LoaderError::ThreadStart { thread: i, source: e })?;
            loader.threads.push(thread);
        }
        Ok(loader)
    }

    /// Whether the next batch is there, so that [`Loader::next_batch`] would not wait. Without threads it never is.
    pub fn is_ready(&self) -> bool {
        let state = self.shared.lock();
        state.finished.contains_key(&state.deliver)
    }

    /// Wait for the next batch; `None` after the last. [`Loaded::exposed`] says which stages the wait was for.
    pub fn next_batch(&mut self) -> Option<Result<Loaded<B::Batch>, B::Error>> {
        loop {
            // The time limit only guards against a thread that ends without a notice.
            match self.poll_batch(Duration::from_millis(500)) {
                NextBatch::Waiting => {}
                NextBatch::Batch(loaded) => return Some(Ok(*loaded)),
                NextBatch::Failed(error) => return Some(Err(error)),
                NextBatch::End => return None,
            }
        }
    }

    /// As [`Loader::next_batch`], but wait no longer than `limit`, so that the caller can look after something else
    /// meanwhile, such as signals. Polls of one batch are one wait. Without threads the batch is built in this call, however
    /// long that takes.
    pub fn poll_batch(&mut self, limit: Duration) -> NextBatch<B> {
        if self.options.workers == 0 { self.build_here() } else { self.wait_for_next(limit) }
    }

    fn build_here(&mut self) -> NextBatch<B> {
        let (step, batch) = {
            let mut state = self.shared.lock();
            if state.deliver >= self.options.steps {
                return NextBatch::End;
            }
            state.deliver += 1;
            (state.deliver - 1, state.spare.pop())
        };
        let batch = batch.unwrap_or_else(|| self.batcher.empty());
        let from = self.batcher.now();
        // After an error there is none: the reader may be halfway through a read.
        let reader = self.reader.take().map_or_else(|| OwnedReader::open(&self.batcher), Ok);
        let result = reader.and_then(|mut reader| {
            let loaded = self.batcher.build(reader.get(), step, batch)?;
            self.reader = Some(reader);
            Ok(loaded)
        });
        if result.is_err() {
            self.batcher.stop(step + 1);
        }
        self.deliver(result, from)
    }

    fn wait_for_next(&mut self, limit: Duration) -> NextBatch<B> {
        let now = self.batcher.now();
        let end = now.saturating_add(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        let mut state = self.shared.lock();
        let step = state.deliver;
        if step >= self.options.steps {
            return NextBatch::End;
        }
        let from = *self.waiting_since.get_or_insert(now);
        let result = loop {
            if let Some(result) = state.finished.remove(&step) {
                break result;
            }
            if self.threads.iter().all(JoinHandle::is_finished) {
                break Err(LoaderError::ThreadsEnded.into());
            }
            // The batches that the step itself holds may be all that fit. It goes on waiting between two polls.
            state.budget.wait(true);
            self.memory_changed();
            let left = end.saturating_sub(self.batcher.now());
            if left == 0 {
                return NextBatch::Waiting;
            }
            let wait = self.shared.ready.wait_timeout(state, Duration::from_nanos(left));
            (state, _) = wait.unwrap_or_else(PoisonError::into_inner);
        };
        self.waiting_since = None;
        state.deliver = if result.is_ok() { step + 1 } else { self.options.steps };
        state.stopped |= result.is_err();
        state.budget.wait(false);
        state.budget.delivered();
        drop(state);
        self.shared.room.notify_all();
        self.deliver(result, from)
    }

    /// A batch with the wait for it since `from`, or the error in its place.
    fn deliver(&self, result: Result<Loaded<B::Batch>, B::Error>, from: u64) -> NextBatch<B> {
        match result {
            Ok(mut loaded) => {
                loaded.exposed = exposed_wait(from, self.batcher.now(), &loaded.intervals);
                NextBatch::Batch(Box::new(loaded))
            }
            Err(error) => NextBatch::Failed(error),
        }
    }

    /// Give a batch's buffers back for reuse. A batch that is not given back counts as held.
    pub fn recycle(&self, batch: B::Batch) {
        self.shared.give_back(batch, &self.options);
    }

    /// Gives batches back from anywhere, also after the loader has ended.
    pub fn recycler(&self) -> Recycler<B> {
        Recycler { shared: Arc::downgrade(&self.shared), options: self.options }
    }

    /// Time 0 of the clock that intervals are measured on.
    pub fn clock(&self) -> Instant {
        self.batcher.clock()
    }

    /// Times of the batches that are ready and not delivered yet, in order of their steps.
    pub fn ahead(&self) -> Vec<BatchTimes> {
        let state = self.shared.lock();
        state.finished.values().filter_map(|result| result.as_ref().ok()).map(BatchTimes::from).collect()
    }

    fn memory_changed(&self) {
        self.shared.memory_changed(&self.options);
    }
}

/// What [`Loader::poll_batch`] found.
pub enum NextBatch<B: Batcher> {
    /// The next batch.
    Batch(Box<Loaded<B::Batch>>),
    /// The batch could not be built.
    Failed(B::Error),
    /// The batch is not ready yet.
    Waiting,
    /// There are no more batches.
    End,
}

/// Gives batches back to their loader, from any thread and for as long as a batch is in use. After the loader has ended the
/// buffers are freed.
pub struct Recycler<B: Batcher> {
    shared: Weak<Shared<B>>,
    options: LoaderOptions,
}

impl<B: Batcher> Clone for Recycler<B> {
    fn clone(&self) -> Self {
        Self { shared: Weak::clone(&self.shared), options: self.options }
    }
}

impl<B: Batcher> Recycler<B> {
    /// As [`Loader::recycle`].
    pub fn recycle(&self, batch: B::Batch) {
        if let Some(shared) = self.shared.upgrade() {
            shared.give_back(batch, &self.options);
        }
    }
}

impl<B: Batcher> Drop for Loader<B> {
    fn drop(&mut self) {
        self.shared.lock().stopped = true;
        self.shared.room.notify_all();
        self.batcher.stop(0);
        for thread in self.threads.drain(..) {
            // A panic in a thread has been delivered as an error already.
            let _ = thread.join();
        }
    }
}

/// A loader thread: claim the next step, build it, hand it over.
fn work<B: Batcher>(shared: &Shared<B>, mut batcher: B, options: LoaderOptions, thread: u32) {
    let dataset = batcher.dataset();
    let mut reader = None;
    loop {
        let (step, batch) = {
            let mut state = shared.lock();
            while !state.stopped && state.claim < options.steps && !state.may_begin(&options) {
                state = shared.room.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.stopped || state.claim >= options.steps {
                return;
            }
            state.claim += 1;
            state.budget.begin();
            (state.claim - 1, state.spare.pop())
        };
        let batch = batch.unwrap_or_else(|| batcher.empty());
        let built = std::panic::catch_unwind(AssertUnwindSafe(|| -> Result<Loaded<B::Batch>, B::Error> {
            if reader.is_none() {
                reader = Some(dataset.reader()?);
            }
            match &mut reader {
                Some(reader) => Ok(Loaded { thread: Some(thread), ..batcher.build(reader, step, batch)? }),
                None => Err(LoaderError::Stopped.into()),
            }
        }));
        let result = built.unwrap_or_else(|panic| {
            let message = panic_message(panic.as_ref());
            Err(LoaderError::ThreadPanicked { step, message }.into())
        });
        if result.is_err() {
            // Earlier steps are still wanted.
            batcher.stop(step + 1);
        }
        let size = result.as_ref().ok().map(|loaded| (B::bytes(&loaded.batch), loaded.work_bytes));
        let ahead = options.ahead(size.map(|(bytes, _)| bytes));
        let mut state = shared.lock();
        let reduced = match size {
            Some((bytes, scratch)) => state.budget.built(bytes, scratch, ahead + 1),
            None => {
                state.budget.failed();
                None
            }
        };
        state.finished.insert(step, result);
        let surplus = state.surplus();
        drop(state);
        shared.ready.notify_all();
        if options.buffer_bytes > 0 {
            // Now that the size of a batch is known, others may be begun.
            shared.room.notify_all();
        }
        drop(surplus);
        if let Some(FewerBatches { batches, largest, scratch }) = reduced {
            let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
            tracing::warn!(
                "batches of {:.1} MiB: {batches} of them fit into {} = {:.0} beside the {:.1} MiB that the \
                 threads work with, the step's own among them, and not {}; fewer are loaded ahead",
                mib(largest),
                options.buffer_name,
                mib(options.buffer_bytes),
                mib(scratch),
                ahead + 1
            );
        }
        if size.is_none() {
            return;
        }
    }
}

/// A reader together with the data set that it borrows from, for a loader without threads.
struct OwnedReader<B: Batcher> {
    // Dropped before what it borrows from: fields are dropped in this order.
    reader: Reader<'static, B>,
    _dataset: Arc<B::Dataset>,
}

impl<B: Batcher> OwnedReader<B> {
    /// Open a reader of the batcher's data set.
    ///
    /// # Errors
    /// As [`Dataset::reader`].
    fn open(batcher: &B) -> Result<Self, B::Error> {
        let dataset = batcher.dataset();
        // SAFETY: the data set lies on the heap, is never moved or changed, and lives as long as `_dataset`, which is dropped
        // after the reader. The reader is seen through `get` alone, with a lifetime for which it cannot lend what outlives it:
        // `Batcher::build` takes readers of every lifetime.
        let lent: &'static B::Dataset = unsafe { &*Arc::as_ptr(&dataset) };
        Ok(Self { reader: lent.reader()?, _dataset: dataset })
    }

    fn get(&mut self) -> &mut Reader<'static, B> {
        &mut self.reader
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn of_large_batches_fewer_may_be_ahead() {
        let options = LoaderOptions { workers: 2, prefetch_factor: 4, ahead_bytes: 100, ..LoaderOptions::default() };
        let ahead = [None, Some(0), Some(12), Some(20), Some(40), Some(1000)].map(|largest| options.ahead(largest));
        assert_eq!(ahead, [8, 8, 8, 5, 3, 3]);
        assert_eq!(LoaderOptions { prefetch_factor: 1, ..options }.ahead(Some(1000)), 2);
        assert_eq!(LoaderOptions { ahead_bytes: 0, ..options }.ahead(Some(1000)), 8);
    }

    struct Nothing;

    impl Dataset for Nothing {
        type Reader<'a> = ();
        type Error = LoaderError;

        fn reader(&self) -> Result<(), LoaderError> {
            Ok(())
        }
    }

    /// Builds batches of 1,000 bytes, and counts them.
    #[derive(Clone)]
    struct Counting {
        built: Arc<AtomicU64>,
        clock: Instant,
    }

    impl Batcher for Counting {
        type Dataset = Nothing;
        type Batch = Vec<u8>;
        type Error = LoaderError;

        fn dataset(&self) -> Arc<Nothing> {
            Arc::new(Nothing)
        }

        fn empty(&self) -> Vec<u8> {
            Vec::new()
        }

        fn clock(&self) -> Instant {
            self.clock
        }

        fn bytes(batch: &Vec<u8>) -> u64 {
            batch.len() as u64
        }

        fn build(
            &mut self,
            _: &mut Reader<'_, Self>,
            step: u64,
            mut batch: Vec<u8>,
        ) -> Result<Loaded<Vec<u8>>, LoaderError> {
            batch.resize(1000, 0);
            self.built.fetch_add(1, Ordering::SeqCst);
            Ok(Loaded::new(batch, step, 0))
        }
    }

    #[test]
    fn threads_stop_when_batches_ahead_are_as_large_as_they_may_be() {
        for (ahead_bytes, expected) in [(0, 8), (5000, 5), (1, 3)] {
            let batcher = Counting { built: Arc::default(), clock: Instant::now() };
            let built = Arc::clone(&batcher.built);
            let options =
                LoaderOptions { workers: 2, prefetch_factor: 4, steps: 100, ahead_bytes, ..LoaderOptions::default() };
            let mut loader = Loader::start(batcher, options).unwrap();
            for step in 0..5 {
                let batch = loader.next_batch().unwrap().unwrap().batch;
                let end = Instant::now() + Duration::from_secs(10);
                while loader.ahead().len() < expected && Instant::now() < end {
                    std::thread::sleep(Duration::from_millis(1));
                }
                std::thread::sleep(Duration::from_millis(10));
                assert_eq!(loader.ahead().len(), expected);
                assert_eq!(built.load(Ordering::SeqCst), step + 1 + expected as u64);
                loader.recycle(batch);
            }
        }
    }
}
