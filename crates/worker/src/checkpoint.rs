//! Checkpoints of a trial: writing one on all ranks in front of the same step, although signals reach them at different steps, and resuming
//! from one.
//!
//! A rank that wants a checkpoint counts up the round in the store. The heartbeat thread of every rank sees that and publishes its
//! boundary: the step in front of which its step thread passes next. From then on the step thread stops at each boundary until all
//! ranks have published theirs. The largest boundary is the common one: no rank is beyond it, because none passed the boundary that it
//! published. A rank that waits there holds up no other: ranks that are stuck in a collective with it published a later boundary, to
//! which it goes on. A step without a checkpoint costs one lock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use expctl_ledger::{
    AttemptDir, CHECKPOINT_SCHEMA_VERSION, CheckpointDir, CheckpointRecord, Journal, LedgerError, RankEnv,
};
use expctl_settings::Trial;
use tch::Tensor;
use torch_dist::{DistError, Store, libtorch_version};

use crate::activity::Phase;
use crate::error::RankError;
use crate::progress::Progress;
use crate::session::{Session, Signals};
use crate::state::{all_finite, read_state, write_state};
use crate::trainer::Trainer;
use crate::training_run::TrainingRun;

/// Between two polls of the store while waiting for the other ranks.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Key of the step that all ranks start from.
const RESUME: &str = "checkpoint/resume";

/// Writes and restores the checkpoints of a trial on one rank.
pub struct Checkpointer {
    dir: CheckpointDir,
    agreement: Arc<CheckpointAgreement>,
    /// Whether a stop waits for a checkpoint.
    pub on_stop: bool,
}

impl Checkpointer {
    /// The checkpointer of rank `env`; `None` where steps change no state.
    pub fn new(attempt: &AttemptDir, trial: &Trial, env: RankEnv, signals: &Signals) -> Option<Self> {
        let settings = trial.settings.checkpoint;
        if !trial.settings.keeps_state() {
            return None;
        }
        let triggers = CheckpointTriggers {
            requested: Arc::clone(&signals.checkpoint),
            stop: settings.on_signal.then(|| Arc::clone(&signals.stop)),
            // One clock decides for all ranks.
            every: (settings.every_min > 0 && env.rank == 0).then(|| Duration::from_secs(60 * settings.every_min)),
        };
        let agreement = Arc::new(CheckpointAgreement::new(env.rank, env.world_size, triggers));
        Some(Self { dir: CheckpointDir::new(attempt), agreement, on_stop: settings.on_signal })
    }

    /// The agreement, for the heartbeat thread to poll.
    pub fn agreement(&self) -> Arc<CheckpointAgreement> {
        Arc::clone(&self.agreement)
    }

    /// Restore the newest checkpoint into `trainer`; returns the step to start with and the progress of the training. `None` if there is
    /// no checkpoint.
    ///
    /// # Errors
    /// The checkpoint cannot be read, or is one of another trial or model.
    pub fn restore(&self, session: &Session<'_>, trainer: &mut Trainer) -> Result<Option<(u64, Progress)>, RankError> {
        let Session { trial, env, activity, store, .. } = *session;
        activity.enter(Phase::Checkpoint);
        // Rank 0 chooses: on a network file system the others may not see the same folders yet.
        if env.rank == 0 {
            let step = self.dir.newest()?.unwrap_or(0);
            store.set(RESUME, step.to_string().as_bytes())?;
        }
        activity.enter(Phase::Rendezvous);
        let text = store.get(RESUME)?;
        let step = String::from_utf8_lossy(&text).parse().unwrap_or(0);
        if step == 0 {
            return Ok(None);
        }
        activity.enter(Phase::Checkpoint);
        let record = self.dir.check(step, trial)?;
        let path = self.dir.state_path(step);
        let state = read_state(&path)?;
        trainer.restore(&state).map_err(|e| LedgerError::Checkpoint { path, reason: e.to_string() })?;
        tracing::info!("rank {}: goes on at step {step}, from attempt {}", env.rank, record.attempt);
        // A version that stored no progress started every trial at the beginning.
        Ok(Some((step, Progress::from_state(&state).unwrap_or_default())))
    }

    /// The first step is `first`.
    pub fn begin(&self, first: u64) {
        self.agreement.begin(first);
    }

    /// Write a checkpoint in front of `step`, if one is due; returns whether it was. Called in front of each step.
    ///
    /// # Errors
    /// A peer is gone, the state is not finite, or a file cannot be written.
    pub fn write_if_due(
        &self,
        step: u64,
        trainer: &mut Trainer,
        training: &TrainingRun,
        session: &Session<'_>,
        journal: &Journal,
    ) -> Result<bool, RankError> {
        let every = session.settings().checkpoint.every_steps;
        let next_possible = |step| trainer.next_boundary(step);
        let agreed = self.agreement.arrive(step, session.store, &next_possible, |check| wait(session, check))?;
        // Accumulated gradients are in no checkpoint: it waits for the end of their group.
        let periodic = step.checked_div(every).is_some_and(|n| n > 0 && next_possible(n * every) == step);
        if !agreed && !periodic {
            return Ok(false);
        }
        session.activity.enter(Phase::AwaitCheckpoint);
        trainer.share_state(session.group)?;
        let state = || trainer.state().into_iter().chain(training.state()).collect::<Vec<_>>();
        self.write(step, &state, session, journal)?;
        self.agreement.resume(step + 1);
        Ok(true)
    }

    /// All ranks come here in front of the same step, and leave when the checkpoint is on disk. Where the state is not finite, rank 0
    /// fails with a message, and the others hear of it while they wait.
    fn write(
        &self,
        step: u64,
        state: &dyn Fn() -> Vec<(String, Tensor)>,
        session: &Session<'_>,
        journal: &Journal,
    ) -> Result<(), RankError> {
        let Session { attempt, env, activity, store, .. } = *session;
        activity.enter(Phase::Checkpoint);
        if attempt.is_closed() {
            // Another attempt resumes from the last checkpoint: it must not find a later one without its records.
            return Err(RankError::Closed);
        }
        journal.sync()?;
        let (ready, done) = (format!("checkpoint/ready/{step}"), format!("checkpoint/done/{step}"));
        store.add(&ready, 1)?;
        if env.rank != 0 {
            return wait(session, &|| store.check(&[&done]));
        }
        wait(session, &|| Ok(store.add(&ready, 0)? >= i64::from(env.world_size)))?;
        activity.enter(Phase::Checkpoint);
        let record = CheckpointRecord {
            schema: CHECKPOINT_SCHEMA_VERSION,
            trial: session.trial.id.clone(),
            world_size: env.world_size,
            next_step: step,
            attempt: attempt.number(),
            digest: String::new(),
            worker_version: env!("CARGO_PKG_VERSION").to_owned(),
            libtorch_version: libtorch_version(),
        };
        // In front of step 0 there is nothing to write.
        if step > 0 {
            let state = state();
            // Without clipping nothing has checked the parameters after the last step, and the previous checkpoint is removed for this
            // one.
            all_finite(&state)?;
            self.dir.save(record, |path| write_state(path, &state))?;
            tracing::info!("checkpoint in front of step {step}");
        }
        Ok(store.set(&done, b"")?)
    }
}

/// Call `check` until it returns true. A stop does not end the wait: a stop waits for the same checkpoint.
fn wait(session: &Session<'_>, check: &dyn Fn() -> Result<bool, DistError>) -> Result<(), RankError> {
    session.activity.enter(Phase::AwaitCheckpoint);
    while !check()? {
        if let Some(lost) = session.monitor.lost_rank() {
            return Err(if session.is_stopped() { RankError::Interrupted } else { RankError::PeerLost(lost) });
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Key of the round that was requested last.
const ROUND: &str = "checkpoint/round";

fn boundary_key(round: u64, rank: u32) -> String {
    format!("checkpoint/{round}/{rank}")
}

/// The reasons for which this rank requests a checkpoint.
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

    /// Arrive at the boundary in front of `step`; returns whether all ranks write a checkpoint here. `next_possible` gives the first step, from
    /// its argument on, in front of which a checkpoint is possible, the same on all ranks; `wait` calls its argument until that returns true.
    ///
    /// # Errors
    /// `wait` fails, or the store does not answer.
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
