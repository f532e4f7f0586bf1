use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use super::buffer::{Buffer, Reduced};
use super::own_reader::OwnReader;
use super::{BatchBuilder, BatchTimes, Build, Loaded, exposed_wait};
use crate::PipelineError;

/// How a loader works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoaderOptions {
    /// Threads; 0 builds each batch on the step's own thread.
    pub workers: u32,
    /// Batches that each thread may be ahead of the step.
    pub prefetch_factor: u32,
    /// First step that a batch is made for.
    pub first: u64,
    /// Step behind the last one.
    pub steps: u64,
    /// The most bytes that are held: of batches in the making, ready, delivered and not given back, and of what threads work
    /// with. 0 is no limit; a batch that is larger is held alone. Without threads there is never more than one.
    pub buffer_bytes: u64,
}

impl LoaderOptions {
    /// Batches that may be ahead of the step.
    fn ahead(&self) -> u64 {
        u64::from(self.workers) * u64::from(self.prefetch_factor.max(1))
    }
}

/// Delivers the batches of a schedule in order, built by threads ahead of the step.
pub struct Loader<B: Build = BatchBuilder> {
    shared: Arc<Shared<B::Batch>>,
    threads: Vec<JoinHandle<()>>,
    /// Builds here when there are no threads; keeps the clock otherwise.
    builder: B,
    /// What it reads with here; none before the first batch.
    reader: Option<OwnReader<B>>,
    options: LoaderOptions,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    /// A batch is ready, or a thread has ended.
    ready: Condvar,
    /// There is room for another batch, or the loader stops.
    room: Condvar,
}

struct State<T> {
    /// Next step that no thread has claimed.
    claim: u64,
    /// Next step to deliver.
    deliver: u64,
    finished: BTreeMap<u64, Result<Loaded<T>, PipelineError>>,
    spare: Vec<T>,
    buffer: Buffer,
    stopped: bool,
}

impl<T> State<T> {
    /// Takes out the spare buffers that there is no room for. Drop them without the lock: giving a gigabyte back to the
    /// system takes a while.
    fn surplus(&mut self) -> Vec<T> {
        let keep = self.spare.len() - self.buffer.surplus(self.spare.len());
        self.spare.split_off(keep)
    }

    /// Whether another batch may be begun.
    fn may_begin(&self, ahead: u64) -> bool {
        self.claim < self.deliver + ahead && self.buffer.may_begin(self.spare.len())
    }
}

impl<T> Shared<T> {
    /// A thread that panicked while it held the lock left whole values: nothing below panics between changes that belong
    /// together.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: Build> Loader<B> {
    /// Start the threads.
    pub fn start(mut builder: B, options: LoaderOptions) -> Result<Self, PipelineError> {
        builder.starting(&options);
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                claim: options.first,
                deliver: options.first,
                finished: BTreeMap::new(),
                spare: Vec::new(),
                buffer: Buffer::new(options.buffer_bytes, u64::from(options.workers)),
                stopped: false,
            }),
            ready: Condvar::new(),
            room: Condvar::new(),
        });
        let mut loader = Self { shared, threads: Vec::new(), builder, reader: None, options };
        for i in 0..options.workers {
            let (shared, builder) = (Arc::clone(&loader.shared), loader.builder.clone());
            let thread = std::thread::Builder::new()
                .name(format!("loader-{i}"))
                .spawn(move || work(&shared, builder, options, i))
                .map_err(|e| PipelineError::Invalid(format!("cannot start loader thread {i}: {e}")))?;
            loader.threads.push(thread);
        }
        Ok(loader)
    }

    /// Whether the next batch is there, so that [`Loader::next_batch`] would not wait. Without threads it never is.
    pub fn is_ready(&self) -> bool {
        let state = self.shared.lock();
        state.finished.contains_key(&state.deliver)
    }

    /// The next batch; none after the last. Waits, and says in `Loaded::exposed` on which stages.
    pub fn next_batch(&mut self) -> Option<Result<Loaded<B::Batch>, PipelineError>> {
        if self.options.workers == 0 { self.build_here() } else { self.wait_for_next() }
    }

    fn build_here(&mut self) -> Option<Result<Loaded<B::Batch>, PipelineError>> {
        let (step, batch) = {
            let mut state = self.shared.lock();
            if state.deliver >= self.options.steps {
                return None;
            }
            state.deliver += 1;
            (state.deliver - 1, state.spare.pop())
        };
        let batch = batch.unwrap_or_else(|| self.builder.empty());
        let from = self.builder.now();
        // An error leaves none: what it has in hand may be halves.
        let reader = self.reader.take().map_or_else(|| OwnReader::open(&self.builder), Ok);
        let result = reader.and_then(|mut reader| {
            let loaded = self.builder.build(reader.get(), step, batch)?;
            self.reader = Some(reader);
            Ok(loaded)
        });
        if result.is_err() {
            self.builder.stop(step + 1);
        }
        Some(result.map(|loaded| self.with_wait(loaded, from)))
    }

    fn wait_for_next(&mut self) -> Option<Result<Loaded<B::Batch>, PipelineError>> {
        let from = self.builder.now();
        let mut state = self.shared.lock();
        let step = state.deliver;
        if step >= self.options.steps {
            return None;
        }
        let result = loop {
            if let Some(result) = state.finished.remove(&step) {
                break result;
            }
            if self.threads.iter().all(JoinHandle::is_finished) {
                break Err(PipelineError::Invalid("all loader threads have ended".into()));
            }
            // What the step holds itself may be all that fits.
            state.buffer.wait(true);
            self.memory_changed();
            // The time-out only guards against a thread that ends without a word.
            let (next, _) = self
                .shared
                .ready
                .wait_timeout(state, std::time::Duration::from_millis(500))
                .unwrap_or_else(PoisonError::into_inner);
            state = next;
        };
        state.deliver = if result.is_ok() { step + 1 } else { self.options.steps };
        state.stopped |= result.is_err();
        state.buffer.wait(false);
        state.buffer.delivered();
        drop(state);
        self.shared.room.notify_all();
        Some(result.map(|loaded| self.with_wait(loaded, from)))
    }

    fn with_wait(&self, mut loaded: Loaded<B::Batch>, from: u64) -> Loaded<B::Batch> {
        loaded.exposed = exposed_wait(from, self.builder.now(), &loaded.intervals);
        loaded
    }

    /// Give a batch's buffers back for reuse. A batch that is not given back counts as held.
    pub fn recycle(&self, batch: B::Batch) {
        let mut state = self.shared.lock();
        state.buffer.given_back();
        state.spare.push(batch);
        let surplus = state.surplus();
        drop(state);
        self.memory_changed();
        drop(surplus);
    }

    /// Start of the clock that intervals are in.
    pub fn clock(&self) -> Instant {
        self.builder.clock()
    }

    /// What threads did for batches that are ready and not delivered yet, in order of their steps.
    pub fn ahead(&self) -> Vec<BatchTimes> {
        let state = self.shared.lock();
        state.finished.values().filter_map(|result| result.as_ref().ok()).map(BatchTimes::of).collect()
    }

    /// Threads that wait for memory look again. Without a limit there are none to be woken at every step.
    fn memory_changed(&self) {
        if self.options.buffer_bytes > 0 {
            self.shared.room.notify_all();
        }
    }
}

impl<B: Build> Drop for Loader<B> {
    fn drop(&mut self) {
        self.shared.lock().stopped = true;
        self.shared.room.notify_all();
        self.builder.stop(0);
        for thread in self.threads.drain(..) {
            // A panic in a thread has been delivered as an error already.
            let _ = thread.join();
        }
    }
}

/// A loader thread: claim the next step, build it, hand it over.
fn work<B: Build>(shared: &Shared<B::Batch>, mut builder: B, options: LoaderOptions, thread: u32) {
    let source = builder.source();
    let mut reader = None;
    let ahead = options.ahead();
    loop {
        let (step, batch) = {
            let mut state = shared.lock();
            while !state.stopped && state.claim < options.steps && !state.may_begin(ahead) {
                state = shared.room.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.stopped || state.claim >= options.steps {
                return;
            }
            state.claim += 1;
            state.buffer.begin();
            (state.claim - 1, state.spare.pop())
        };
        let batch = batch.unwrap_or_else(|| builder.empty());
        let built = std::panic::catch_unwind(AssertUnwindSafe(|| {
            if reader.is_none() {
                reader = Some(B::reader(&source)?);
            }
            match &mut reader {
                Some(reader) => Ok(Loaded { thread: Some(thread), ..builder.build(reader, step, batch)? }),
                None => Err(PipelineError::Stopped),
            }
        }));
        let result = built.unwrap_or_else(|panic| {
            Err(PipelineError::panicked(&format!("a loader thread panicked at step {step}"), panic.as_ref()))
        });
        if result.is_err() {
            // Earlier steps are still wanted.
            builder.stop(step + 1);
        }
        let size = result.as_ref().ok().map(|loaded| (B::bytes(&loaded.batch), loaded.work_bytes));
        let mut state = shared.lock();
        let reduced = match size {
            Some((bytes, work)) => state.buffer.built(bytes, work, ahead + 1),
            None => {
                state.buffer.failed();
                None
            }
        };
        state.finished.insert(step, result);
        let surplus = state.surplus();
        drop(state);
        shared.ready.notify_all();
        if options.buffer_bytes > 0 {
            // Now that its size is known, others may begin.
            shared.room.notify_all();
        }
        drop(surplus);
        if let Some(Reduced { batches, largest, work }) = reduced {
            let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
            tracing::warn!(
                "batches of {:.1} MiB: {batches} of them fit into loader.buffer_mib = {:.0} beside the {:.1} MiB that the \
                 threads work with, the step's own among them, and not {}; fewer are loaded ahead",
                mib(largest),
                mib(options.buffer_bytes),
                mib(work),
                ahead + 1
            );
        }
        if size.is_none() {
            return;
        }
    }
}
