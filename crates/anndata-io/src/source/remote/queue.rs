use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};

use super::service::lock;
use super::unit::Unit;

/// Parts of objects that are to be asked for, as far as there is room for them in memory.
///
/// What somebody waits for is started whether there is room or not, so nobody waits for room that he himself takes.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Bytes of parts that are under way, or there and not taken yet.
    room: u64,
}

#[derive(Debug, Default)]
struct State {
    /// Asked for by readers.
    urgent: VecDeque<Weak<Unit>>,
    /// Asked for ahead of readers.
    ahead: VecDeque<Weak<Unit>>,
    /// Bytes that are taken of the room.
    used: u64,
}

impl Queue {
    pub(super) fn new(room: u64) -> Self {
        Self { state: Mutex::default(), room }
    }

    /// Have parts asked for, in this order.
    pub(super) fn add<'u>(&self, units: impl IntoIterator<Item = &'u Arc<Unit>>, ahead: bool) {
        let mut state = lock(&self.state);
        let queue = if ahead { &mut state.ahead } else { &mut state.urgent };
        queue.extend(units.into_iter().map(Arc::downgrade));
        drop(state);
        self.go_on();
    }

    /// A part takes room.
    pub(super) fn charge(&self, bytes: u64) {
        lock(&self.state).used += bytes;
    }

    /// A part takes no room any more.
    pub(super) fn release(&self, bytes: u64) {
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

    fn next(&self) -> Option<Arc<Unit>> {
        let mut state = lock(&self.state);
        // Readers find room even where much was read ahead.
        if state.used < self.room
            && let Some(unit) = first(&mut state.urgent)
        {
            return Some(unit);
        }
        if state.used < self.room / 4 * 3 { first(&mut state.ahead) } else { None }
    }
}

/// The first that somebody still wants. Others have no owner, so letting go of them here ends nothing.
fn first(queue: &mut VecDeque<Weak<Unit>>) -> Option<Arc<Unit>> {
    while let Some(unit) = queue.pop_front() {
        if let Some(unit) = unit.upgrade() {
            return Some(unit);
        }
    }
    None
}
