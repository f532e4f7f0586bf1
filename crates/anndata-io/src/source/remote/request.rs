//! Requests for byte ranges, and the queue in which they wait for memory.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};

use bytes::Bytes;
use tokio::task::AbortHandle;

use crate::source::remote::failure::Failure;
use crate::source::remote::fetch::runtime;
use crate::source::remote::object::RemoteObject;
use crate::source::remote::service::lock;

/// A request for a byte range of an object.
///
/// Its bytes stay in memory until all readers that want some of them have taken theirs. Dropping the last reference cancels it.
pub(crate) struct RangeRequest {
    object: Arc<RemoteObject>,
    range: Range<u64>,
    state: Mutex<RequestState>,
    changed: Condvar,
}

struct RequestState {
    content: RequestContent,
    /// Bytes that present readers have not taken yet.
    wanted: u64,
    /// Bytes that were prefetched for later readers.
    promised: u64,
    /// Whether the queue counts its bytes as used.
    charged: bool,
    task: Option<AbortHandle>,
}

enum RequestContent {
    Queued,
    InFlight,
    Received(Bytes),
    Failed(Failure),
    Taken,
}

impl std::fmt::Debug for RangeRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RangeRequest").field("range", &self.range).finish_non_exhaustive()
    }
}

impl RangeRequest {
    pub fn new(object: &Arc<RemoteObject>, range: Range<u64>) -> Arc<Self> {
        let state =
            RequestState { content: RequestContent::Queued, wanted: 0, promised: 0, charged: false, task: None };
        Arc::new(Self { object: Arc::clone(object), range, state: Mutex::new(state), changed: Condvar::new() })
    }

    /// Range within the object.
    pub fn range(&self) -> &Range<u64> {
        &self.range
    }

    /// Address of the object.
    pub fn url(&self) -> &str {
        self.object.url()
    }

    fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Whether a reader can still get its bytes.
    pub fn is_usable(&self) -> bool {
        !matches!(lock(&self.state).content, RequestContent::Failed(_) | RequestContent::Taken)
    }

    /// Registers a reader of `bytes`; `false` if the request is not usable any more.
    pub fn want(&self, bytes: u64) -> bool {
        let mut state = lock(&self.state);
        if matches!(state.content, RequestContent::Failed(_) | RequestContent::Taken) {
            return false;
        }
        state.wanted += bytes;
        true
    }

    /// Registers a later reader of `bytes`.
    pub fn promise(&self, bytes: u64) {
        lock(&self.state).promised += bytes;
    }

    /// A reader took `bytes`, or does not want them any more. Frees the memory after the last reader.
    pub fn done(&self, bytes: u64) {
        let mut state = lock(&self.state);
        state.wanted = state.wanted.saturating_sub(bytes);
        state.promised = state.promised.saturating_sub(bytes);
        if state.wanted > 0 || state.promised > 0 || !matches!(state.content, RequestContent::Received(_)) {
            return;
        }
        let bytes = std::mem::replace(&mut state.content, RequestContent::Taken);
        let charged = std::mem::take(&mut state.charged);
        drop(state);
        drop(bytes);
        if charged {
            self.object.service().queue.release(self.len());
        }
    }

    /// Sends the request, unless it was sent before.
    pub fn start(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        if !matches!(state.content, RequestContent::Queued) {
            return;
        }
        match runtime(self.object.url()) {
            Ok(runtime) => {
                state.content = RequestContent::InFlight;
                state.charged = true;
                self.object.service().queue.charge(self.len());
                let completion = CompletionGuard(Arc::downgrade(self));
                let task = runtime.spawn(run_request(Arc::clone(&self.object), self.range.clone(), completion));
                state.task = Some(task.abort_handle());
            }
            Err(failure) => state.content = RequestContent::Failed(failure),
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Sends the request if necessary, and waits for its bytes.
    pub fn wait(self: &Arc<Self>) -> Result<Bytes, Failure> {
        self.start();
        let mut state = lock(&self.state);
        loop {
            match &state.content {
                RequestContent::Received(bytes) => return Ok(bytes.clone()),
                RequestContent::Failed(failure) => return Err(failure.clone()),
                RequestContent::Taken => {
                    return Err(Failure::refused(self.object.url(), "a part was let go of too early"));
                }
                RequestContent::Queued | RequestContent::InFlight => {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    fn complete(&self, result: Result<Bytes, Failure>) {
        let mut state = lock(&self.state);
        if matches!(state.content, RequestContent::InFlight) {
            state.content = match result {
                Ok(bytes) => RequestContent::Received(bytes),
                Err(failure) => RequestContent::Failed(failure),
            };
        }
        drop(state);
        self.changed.notify_all();
    }
}

impl Drop for RangeRequest {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = state.task.take() {
            task.abort();
        }
        if std::mem::take(&mut state.charged) {
            self.object.service().queue.release(self.len());
        }
    }
}

/// Wakes the waiting readers, even if the task is cancelled or panics.
struct CompletionGuard(Weak<RangeRequest>);

impl CompletionGuard {
    fn complete(&self, result: Result<Bytes, Failure>) {
        if let Some(request) = self.0.upgrade() {
            request.complete(result);
        }
    }
}

impl Drop for CompletionGuard {
    fn drop(&mut self) {
        if let Some(request) = self.0.upgrade() {
            request.complete(Err(Failure::refused(request.object.url(), "a request was given up")));
        }
    }
}

/// Fetches a range, completes its request, then writes the bytes to the cache.
async fn run_request(object: Arc<RemoteObject>, range: Range<u64>, completion: CompletionGuard) {
    // The permit is held until the bytes are in the cache: a disk that is slower than the network then slows down the requests,
    // and memory does not fill up.
    let cached = Arc::clone(&object);
    let _permit = object.service().requests.acquire().await;
    let result = object.fetch(&range).await;
    completion.complete(result.clone());
    drop(completion);
    if let Ok(bytes) = result
        && object.service().cache.is_some()
    {
        // On a blocking thread, since the write may wait for the disk. It continues if this task is cancelled.
        let _ = tokio::task::spawn_blocking(move || cached.store_in_cache(range.start, &bytes)).await;
    }
}

/// Requests that wait until there is memory for their bytes.
///
/// A request that a thread waits for is sent regardless of memory, so no thread can wait for memory that it uses itself.
#[derive(Debug)]
pub(crate) struct RequestQueue {
    state: Mutex<QueueState>,
    /// Capacity in bytes, for requests in flight and received bytes that were not taken yet.
    capacity: u64,
}

#[derive(Debug, Default)]
struct QueueState {
    /// Requests of present readers.
    urgent: VecDeque<Weak<RangeRequest>>,
    /// Prefetched requests.
    prefetched: VecDeque<Weak<RangeRequest>>,
    /// Used part of the capacity in bytes.
    used: u64,
}

impl RequestQueue {
    pub fn new(capacity: u64) -> Self {
        Self { state: Mutex::default(), capacity }
    }

    /// Appends requests.
    pub fn add<'u>(&self, requests: impl IntoIterator<Item = &'u Arc<RangeRequest>>, is_prefetch: bool) {
        let mut state = lock(&self.state);
        let queue = if is_prefetch { &mut state.prefetched } else { &mut state.urgent };
        queue.extend(requests.into_iter().map(Arc::downgrade));
        drop(state);
        self.start_requests();
    }

    /// Counts bytes as used.
    fn charge(&self, bytes: u64) {
        lock(&self.state).used += bytes;
    }

    /// Counts bytes as free, and sends further requests.
    pub fn release(&self, bytes: u64) {
        lock(&self.state).used -= bytes;
        self.start_requests();
    }

    /// Sends the requests for which there is memory.
    fn start_requests(&self) {
        // Without the lock: starting or dropping a request calls the queue again.
        while let Some(request) = self.next() {
            request.start();
        }
    }

    fn next(&self) -> Option<Arc<RangeRequest>> {
        let mut state = lock(&self.state);
        // A quarter of the capacity is reserved for present readers.
        if state.used < self.capacity
            && let Some(request) = pop_live(&mut state.urgent)
        {
            return Some(request);
        }
        if state.used < self.capacity / 4 * 3 { pop_live(&mut state.prefetched) } else { None }
    }
}

/// The first request that still has an owner.
fn pop_live(queue: &mut VecDeque<Weak<RangeRequest>>) -> Option<Arc<RangeRequest>> {
    while let Some(request) = queue.pop_front() {
        if let Some(request) = request.upgrade() {
            return Some(request);
        }
    }
    None
}
