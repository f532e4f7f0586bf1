use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};

use bytes::Bytes;
use tokio::task::AbortHandle;

use crate::source::remote::failure::Failure;
use crate::source::remote::fetch::runtime;
use crate::source::remote::object::RemoteObject;
use crate::source::remote::service::lock;

/// A part of an object that is asked for at once.
///
/// Its bytes are there until all who want some have taken theirs; a request that nobody waits for any more is given up.
pub(crate) struct RangeRequest {
    object: Arc<RemoteObject>,
    range: Range<u64>,
    state: Mutex<RequestState>,
    changed: Condvar,
}

struct RequestState {
    content: RequestContent,
    /// Bytes that readers are going to take who have come already.
    wanted: u64,
    /// Bytes that readers are to take who have not come yet.
    promised: u64,
    /// It counts in the room of the queue.
    charged: bool,
    request: Option<AbortHandle>,
}

enum RequestContent {
    Queued,
    UnderWay,
    There(Bytes),
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
            RequestState { content: RequestContent::Queued, wanted: 0, promised: 0, charged: false, request: None };
        Arc::new(Self { object: Arc::clone(object), range, state: Mutex::new(state), changed: Condvar::new() })
    }

    /// Bytes of the object.
    pub fn range(&self) -> &Range<u64> {
        &self.range
    }

    fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Whether bytes of it can still be had.
    pub fn is_usable(&self) -> bool {
        !matches!(lock(&self.state).content, RequestContent::Failed(_) | RequestContent::Taken)
    }

    /// A reader wants `bytes` of it; false if they cannot be had.
    pub fn want(&self, bytes: u64) -> bool {
        let mut state = lock(&self.state);
        if matches!(state.content, RequestContent::Failed(_) | RequestContent::Taken) {
            return false;
        }
        state.wanted += bytes;
        true
    }

    /// A reader will want `bytes` of it later.
    pub fn promise(&self, bytes: u64) {
        lock(&self.state).promised += bytes;
    }

    /// A reader has taken `bytes`, or does not want them any more.
    pub fn done(&self, bytes: u64) {
        let mut state = lock(&self.state);
        state.wanted = state.wanted.saturating_sub(bytes);
        state.promised = state.promised.saturating_sub(bytes);
        if state.wanted > 0 || state.promised > 0 || !matches!(state.content, RequestContent::There(_)) {
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

    /// Ask for it, if that was not done yet.
    pub fn start(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        if !matches!(state.content, RequestContent::Queued) {
            return;
        }
        match runtime(self.object.url()) {
            Ok(runtime) => {
                state.content = RequestContent::UnderWay;
                state.charged = true;
                self.object.service().queue.charge(self.len());
                let end = CompletionGuard(Arc::downgrade(self));
                let task = runtime.spawn(run_request(Arc::clone(&self.object), self.range.clone(), end));
                state.request = Some(task.abort_handle());
            }
            Err(failure) => state.content = RequestContent::Failed(failure),
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Wait until it is there.
    pub fn wait(self: &Arc<Self>) -> Result<Bytes, Failure> {
        self.start();
        let mut state = lock(&self.state);
        loop {
            match &state.content {
                RequestContent::There(bytes) => return Ok(bytes.clone()),
                RequestContent::Failed(failure) => return Err(failure.clone()),
                RequestContent::Taken => {
                    return Err(Failure::refused(self.object.url(), "a part was let go of too early"));
                }
                RequestContent::Queued | RequestContent::UnderWay => {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    fn end(&self, result: Result<Bytes, Failure>) {
        let mut state = lock(&self.state);
        if matches!(state.content, RequestContent::UnderWay) {
            state.content = match result {
                Ok(bytes) => RequestContent::There(bytes),
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
        if let Some(request) = state.request.take() {
            request.abort();
        }
        if std::mem::take(&mut state.charged) {
            self.object.service().queue.release(self.len());
        }
    }
}

/// Tells those who wait, also where a task ends before its end.
struct CompletionGuard(Weak<RangeRequest>);

impl CompletionGuard {
    fn tell(&self, result: Result<Bytes, Failure>) {
        if let Some(unit) = self.0.upgrade() {
            unit.end(result);
        }
    }
}

impl Drop for CompletionGuard {
    fn drop(&mut self) {
        if let Some(unit) = self.0.upgrade() {
            unit.end(Err(Failure::refused(unit.object.url(), "a request was given up")));
        }
    }
}

/// Get a part, hand it to those who wait, then keep it.
async fn run_request(object: Arc<RemoteObject>, range: Range<u64>, end: CompletionGuard) {
    // The permit is held until the part is kept: a disk that is slower than the network slows it down, and memory does not fill.
    let kept = Arc::clone(&object);
    let _permit = object.service().requests.acquire().await;
    let result = object.fetch(&range).await;
    end.tell(result.clone());
    drop(end);
    if let Ok(bytes) = result
        && object.service().cache.is_some()
    {
        // A thread of its own: writing may wait for a disk. It goes on where this task is given up.
        let _ = tokio::task::spawn_blocking(move || kept.keep(range.start, &bytes)).await;
    }
}

/// Parts of objects that are to be asked for, as far as there is room for them in memory.
///
/// What somebody waits for is started whether there is room or not, so nobody waits for room that he himself takes.
#[derive(Debug)]
pub(crate) struct RequestQueue {
    state: Mutex<QueueState>,
    /// Bytes of parts that are under way, or there and not taken yet.
    room: u64,
}

#[derive(Debug, Default)]
struct QueueState {
    /// Asked for by readers.
    urgent: VecDeque<Weak<RangeRequest>>,
    /// Asked for ahead of readers.
    ahead: VecDeque<Weak<RangeRequest>>,
    /// Bytes that are taken of the room.
    used: u64,
}

impl RequestQueue {
    pub fn new(room: u64) -> Self {
        Self { state: Mutex::default(), room }
    }

    /// Have parts asked for, in this order.
    pub fn add<'u>(&self, units: impl IntoIterator<Item = &'u Arc<RangeRequest>>, ahead: bool) {
        let mut state = lock(&self.state);
        let queue = if ahead { &mut state.ahead } else { &mut state.urgent };
        queue.extend(units.into_iter().map(Arc::downgrade));
        drop(state);
        self.go_on();
    }

    /// A part takes room.
    fn charge(&self, bytes: u64) {
        lock(&self.state).used += bytes;
    }

    /// A part takes no room any more.
    pub fn release(&self, bytes: u64) {
        lock(&self.state).used -= bytes;
        self.go_on();
    }

    /// Start what there is room for.
    fn go_on(&self) {
        // Units are started and let go without the lock: both come back here.
        while let Some(unit) = self.next() {
            unit.start();
        }
    }

    fn next(&self) -> Option<Arc<RangeRequest>> {
        let mut state = lock(&self.state);
        // Readers find room even where much was read ahead.
        if state.used < self.room
            && let Some(unit) = pop_live(&mut state.urgent)
        {
            return Some(unit);
        }
        if state.used < self.room / 4 * 3 { pop_live(&mut state.ahead) } else { None }
    }
}

/// The first that somebody still wants. Others have no owner, so letting go of them here ends nothing.
fn pop_live(queue: &mut VecDeque<Weak<RangeRequest>>) -> Option<Arc<RangeRequest>> {
    while let Some(unit) = queue.pop_front() {
        if let Some(unit) = unit.upgrade() {
            return Some(unit);
        }
    }
    None
}
