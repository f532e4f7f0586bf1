use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};

use bytes::Bytes;
use tokio::task::AbortHandle;

use super::failure::Failure;
use super::object::RemoteObject;
use super::runtime::runtime;
use super::service::lock;

/// A part of an object that is asked for at once.
///
/// Its bytes are there until all who want some have taken theirs; a request that nobody waits for any more is given up.
pub(super) struct Unit {
    object: Arc<RemoteObject>,
    range: Range<u64>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    content: Content,
    /// Bytes that readers are going to take who have come already.
    wanted: u64,
    /// Bytes that readers are to take who have not come yet.
    promised: u64,
    /// It counts in the room of the queue.
    charged: bool,
    request: Option<AbortHandle>,
}

enum Content {
    Queued,
    UnderWay,
    There(Bytes),
    Failed(Failure),
    Taken,
}

impl std::fmt::Debug for Unit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unit").field("range", &self.range).finish_non_exhaustive()
    }
}

impl Unit {
    pub(super) fn new(object: &Arc<RemoteObject>, range: Range<u64>) -> Arc<Self> {
        let state = State { content: Content::Queued, wanted: 0, promised: 0, charged: false, request: None };
        Arc::new(Self { object: Arc::clone(object), range, state: Mutex::new(state), changed: Condvar::new() })
    }

    /// Bytes of the object.
    pub(super) fn range(&self) -> &Range<u64> {
        &self.range
    }

    fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Whether bytes of it can still be had.
    pub(super) fn is_usable(&self) -> bool {
        !matches!(lock(&self.state).content, Content::Failed(_) | Content::Taken)
    }

    /// A reader wants `bytes` of it; false if they cannot be had.
    pub(super) fn want(&self, bytes: u64) -> bool {
        let mut state = lock(&self.state);
        if matches!(state.content, Content::Failed(_) | Content::Taken) {
            return false;
        }
        state.wanted += bytes;
        true
    }

    /// A reader will want `bytes` of it later.
    pub(super) fn promise(&self, bytes: u64) {
        lock(&self.state).promised += bytes;
    }

    /// A reader has taken `bytes`, or does not want them any more.
    pub(super) fn done(&self, bytes: u64) {
        let mut state = lock(&self.state);
        state.wanted = state.wanted.saturating_sub(bytes);
        state.promised = state.promised.saturating_sub(bytes);
        if state.wanted > 0 || state.promised > 0 || !matches!(state.content, Content::There(_)) {
            return;
        }
        let bytes = std::mem::replace(&mut state.content, Content::Taken);
        let charged = std::mem::take(&mut state.charged);
        drop(state);
        drop(bytes);
        if charged {
            self.object.service().queue.release(self.len());
        }
    }

    /// Ask for it, if that was not done yet.
    pub(super) fn start(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        if !matches!(state.content, Content::Queued) {
            return;
        }
        match runtime(self.object.url()) {
            Ok(runtime) => {
                state.content = Content::UnderWay;
                state.charged = true;
                self.object.service().queue.charge(self.len());
                let end = End(Arc::downgrade(self));
                let task = runtime.spawn(arrive(Arc::clone(&self.object), self.range.clone(), end));
                state.request = Some(task.abort_handle());
            }
            Err(failure) => state.content = Content::Failed(failure),
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Wait until it is there.
    pub(super) fn wait(self: &Arc<Self>) -> Result<Bytes, Failure> {
        self.start();
        let mut state = lock(&self.state);
        loop {
            match &state.content {
                Content::There(bytes) => return Ok(bytes.clone()),
                Content::Failed(failure) => return Err(failure.clone()),
                Content::Taken => return Err(Failure::refused(self.object.url(), "a part was let go of too early")),
                Content::Queued | Content::UnderWay => {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    fn end(&self, result: Result<Bytes, Failure>) {
        let mut state = lock(&self.state);
        if matches!(state.content, Content::UnderWay) {
            state.content = match result {
                Ok(bytes) => Content::There(bytes),
                Err(failure) => Content::Failed(failure),
            };
        }
        drop(state);
        self.changed.notify_all();
    }
}

impl Drop for Unit {
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
struct End(Weak<Unit>);

impl End {
    fn tell(&self, result: Result<Bytes, Failure>) {
        if let Some(unit) = self.0.upgrade() {
            unit.end(result);
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if let Some(unit) = self.0.upgrade() {
            unit.end(Err(Failure::refused(unit.object.url(), "a request was given up")));
        }
    }
}

/// Get a part, hand it to those who wait, then keep it.
async fn arrive(object: Arc<RemoteObject>, range: Range<u64>, end: End) {
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
