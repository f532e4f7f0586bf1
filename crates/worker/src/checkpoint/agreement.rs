//! All ranks make a checkpoint in front of the same step, although signals reach them at different ones.
//!
//! A rank that wants one counts up the round in the store. The heartbeat thread of every rank sees that, publishes the
//! boundary (the step in front of which its step thread comes past next), and from then on the step thread stops at
//! each boundary until all have published. The largest is the common one: nobody is beyond it, because nobody passed
//! the boundary that it published. A rank that waits there holds up no other: those that are stuck in a collective with
//! it published a later boundary, to which it goes on. Steps without a checkpoint cost one look at a lock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use expctl_dist::{DistError, Store};

/// Key of the round that was asked for last.
const ROUND: &str = "checkpoint/round";

fn boundary_key(round: u64, rank: u32) -> String {
    format!("checkpoint/{round}/{rank}")
}

/// What makes this rank want a checkpoint.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// Set by a signal: one checkpoint, then go on.
    pub asked: Arc<AtomicBool>,
    /// Set when this process was asked to stop; none where it then stops without a checkpoint.
    pub stop: Option<Arc<AtomicBool>>,
    /// So long after the last one.
    pub every: Option<Duration>,
}

/// What the step thread and the heartbeat thread of a rank share.
#[derive(Debug)]
pub struct Agreement {
    rank: u32,
    world_size: u32,
    wishes: Wishes,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Step that the step thread comes to next; none before it steps and after it ended.
    boundary: Option<u64>,
    /// The round that this rank takes part in, or took part in last.
    round: u64,
    /// The round is under way.
    held: bool,
    /// The common boundary of the round, once it is known.
    target: Option<u64>,
    last: Instant,
}

impl Agreement {
    /// Nothing is agreed on before [`Agreement::begin`].
    pub fn new(rank: u32, world_size: u32, wishes: Wishes) -> Self {
        let state = State { boundary: None, round: 0, held: false, target: None, last: Instant::now() };
        Self { rank, world_size, wishes, state: Mutex::new(state) }
    }

    /// Every change is a few plain assignments.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The step thread comes to `first`.
    pub fn begin(&self, first: u64) {
        let mut state = self.lock();
        state.boundary = Some(first);
        state.last = Instant::now();
    }

    /// A turn of the heartbeat thread.
    pub fn look(&self, store: &Store) -> Result<(), DistError> {
        let (round, held) = {
            let state = self.lock();
            if state.boundary.is_none() {
                return Ok(());
            }
            (state.round, state.held)
        };
        let text = store.try_get(ROUND)?.unwrap_or_default();
        let mut asked: u64 = String::from_utf8_lossy(&text).parse().unwrap_or(0);
        if asked == round && !held && self.wanted() {
            asked = round + 1;
            // Ranks that want it at once write the same number.
            store.set(ROUND, asked.to_string().as_bytes())?;
        }
        if asked == round || held {
            return Ok(());
        }
        let boundary = {
            let mut state = self.lock();
            (state.round, state.held, state.target) = (asked, true, None);
            self.wishes.asked.store(false, Ordering::SeqCst);
            state.boundary.unwrap_or_default()
        };
        store.set(&boundary_key(asked, self.rank), boundary.to_string().as_bytes())
    }

    fn wanted(&self) -> bool {
        let due = |every| self.lock().last.elapsed() >= every;
        self.wishes.asked.load(Ordering::SeqCst)
            || self.wishes.stop.as_ref().is_some_and(|stop| stop.load(Ordering::SeqCst))
            || self.wishes.every.is_some_and(due)
    }

    /// To call in front of `step`, the boundary: true if all ranks make a checkpoint here. `whole` says in front of which
    /// step, that one or the first behind it, a checkpoint can be made, the same on all ranks; `wait` calls its argument
    /// until that is true.
    pub fn arrive<E: From<DistError>>(
        &self,
        step: u64,
        store: &Store,
        whole: &dyn Fn(u64) -> u64,
        wait: impl FnOnce(&dyn Fn() -> Result<bool, DistError>) -> Result<(), E>,
    ) -> Result<bool, E> {
        let (round, known) = {
            let mut state = self.lock();
            if !state.held {
                state.boundary = Some(step + 1);
                return Ok(false);
            }
            (state.round, state.target)
        };
        let target = match known {
            Some(target) => target,
            None => {
                let keys: Vec<String> = (0..self.world_size).map(|rank| boundary_key(round, rank)).collect();
                wait(&|| store.check(&keys))?;
                let mut target = step;
                for key in &keys {
                    let text = store.get(key)?;
                    target = target.max(String::from_utf8_lossy(&text).parse().unwrap_or(0));
                }
                let target = whole(target);
                self.lock().target = Some(target);
                target
            }
        };
        if step < target {
            return Ok(false);
        }
        let mut state = self.lock();
        // Without a boundary this rank opens no round before all ranks have made this checkpoint: one that has not come
        // here yet would take part in the new one, and go on alone.
        (state.held, state.target, state.boundary) = (false, None, None);
        state.last = Instant::now();
        Ok(true)
    }

    /// The checkpoint is made, and the step thread comes to `step` next.
    pub fn go_on(&self, step: u64) {
        self.lock().boundary = Some(step);
    }
}
