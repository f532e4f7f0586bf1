//! All ranks write a checkpoint in front of the same step, although signals reach them at different steps.
//!
//! A rank that wants a checkpoint counts up the round in the store. The heartbeat thread of every rank sees that and publishes its
//! boundary: the step in front of which its step thread passes next. From then on the step thread stops at each boundary until all
//! ranks have published theirs. The largest boundary is the common one: no rank is beyond it, because none passed the boundary that it
//! published. A rank that waits there holds up no other: ranks that are stuck in a collective with it published a later boundary, to
//! which it goes on. A step without a checkpoint costs one lock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use torch_dist::{DistError, Store};

/// Key of the round that was requested last.
const ROUND: &str = "checkpoint/round";

fn boundary_key(round: u64, rank: u32) -> String {
    format!("checkpoint/{round}/{rank}")
}

/// What makes this rank request a checkpoint.
#[derive(Clone, Debug, Default)]
pub struct CheckpointTriggers {
    /// Set by a signal: one checkpoint, then go on.
    pub requested: Arc<AtomicBool>,
    /// Set when this process was asked to stop; `None` where it then stops without a checkpoint.
    pub stop: Option<Arc<AtomicBool>>,
    /// Time between checkpoints.
    pub every: Option<Duration>,
}

/// The agreement on the next checkpoint, shared by the step thread and the heartbeat thread of a rank.
#[derive(Debug)]
pub struct CheckpointAgreement {
    rank: u32,
    world_size: u32,
    triggers: CheckpointTriggers,
    state: Mutex<RoundState>,
}

#[derive(Debug)]
struct RoundState {
    /// Step that the step thread comes to next; `None` before it steps and after it ended.
    boundary: Option<u64>,
    /// The round that this rank takes part in, or took part in last.
    round: u64,
    is_open: bool,
    /// The common boundary of the round, once it is known.
    target: Option<u64>,
    last_checkpoint: Instant,
}

impl CheckpointAgreement {
    /// Nothing is agreed on before [`CheckpointAgreement::begin`].
    pub fn new(rank: u32, world_size: u32, triggers: CheckpointTriggers) -> Self {
        let state =
            RoundState { boundary: None, round: 0, is_open: false, target: None, last_checkpoint: Instant::now() };
        Self { rank, world_size, triggers, state: Mutex::new(state) }
    }

    /// A poisoned lock is usable: every change is a few plain assignments.
    fn lock(&self) -> MutexGuard<'_, RoundState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The step thread comes to `first`.
    pub fn begin(&self, first: u64) {
        let mut state = self.lock();
        state.boundary = Some(first);
        state.last_checkpoint = Instant::now();
    }

    /// One poll of the heartbeat thread.
    ///
    /// # Errors
    /// The store does not answer.
    pub fn poll(&self, store: &Store) -> Result<(), DistError> {
        let (round, is_open) = {
            let state = self.lock();
            if state.boundary.is_none() {
                return Ok(());
            }
            (state.round, state.is_open)
        };
        let text = store.try_get(ROUND)?.unwrap_or_default();
        let mut requested: u64 = String::from_utf8_lossy(&text).parse().unwrap_or(0);
        if requested == round && !is_open && self.is_due() {
            requested = round + 1;
            // Ranks that request one at the same time write the same number.
            store.set(ROUND, requested.to_string().as_bytes())?;
        }
        if requested == round || is_open {
            return Ok(());
        }
        let boundary = {
            let mut state = self.lock();
            (state.round, state.is_open, state.target) = (requested, true, None);
            self.triggers.requested.store(false, Ordering::SeqCst);
            state.boundary.unwrap_or_default()
        };
        store.set(&boundary_key(requested, self.rank), boundary.to_string().as_bytes())
    }

    fn is_due(&self) -> bool {
        let elapsed = |every| self.lock().last_checkpoint.elapsed() >= every;
        self.triggers.requested.load(Ordering::SeqCst)
            || self.triggers.stop.as_ref().is_some_and(|stop| stop.load(Ordering::SeqCst))
            || self.triggers.every.is_some_and(elapsed)
    }

    /// To call in front of `step`, the boundary: true if all ranks write a checkpoint here. `next_possible` says in front of which step,
    /// the given one or the first behind it, a checkpoint is possible, the same on all ranks; `wait` calls its argument until that
    /// returns true.
    ///
    /// # Errors
    /// Those of `wait`, or the store does not answer.
    pub fn arrive<E: From<DistError>>(
        &self,
        step: u64,
        store: &Store,
        next_possible: &dyn Fn(u64) -> u64,
        wait: impl FnOnce(&dyn Fn() -> Result<bool, DistError>) -> Result<(), E>,
    ) -> Result<bool, E> {
        let (round, known) = {
            let mut state = self.lock();
            if !state.is_open {
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
                let target = next_possible(target);
                self.lock().target = Some(target);
                target
            }
        };
        if step < target {
            return Ok(false);
        }
        let mut state = self.lock();
        // Without a boundary this rank opens no round before all ranks have written this checkpoint: a rank that has not come here yet
        // would take part in the new round, and go on alone.
        (state.is_open, state.target, state.boundary) = (false, None, None);
        state.last_checkpoint = Instant::now();
        Ok(true)
    }

    /// The checkpoint is written, and the step thread comes to `step` next.
    pub fn resume(&self, step: u64) {
        self.lock().boundary = Some(step);
    }
}
