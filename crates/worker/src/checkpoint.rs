//! The state of a trial on disk: writing a checkpoint on all ranks, and resuming from one.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use expctl_ledger::{
    AttemptDir, CHECKPOINT_SCHEMA_VERSION, CheckpointDir, CheckpointRecord, Journal, LedgerError, RankEnv,
};
use expctl_settings::Trial;
use tch::Tensor;
use torch_dist::{DistError, Store, libtorch_version};

use crate::activity::{Activity, Phase};
use crate::checkpoint_agreement::{CheckpointAgreement, CheckpointTriggers};
use crate::error::RankError;
use crate::monitor::Monitor;
use crate::session::{Session, Signals};
use crate::state::{all_finite, read_state, write_state};
use crate::trainer::Trainer;
use crate::training::{Progress, TrainingRun};

/// Between two polls of the store while waiting for the other ranks.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Key of the step that all ranks start from.
const RESUME: &str = "checkpoint/resume";

/// Writes and restores the checkpoints of a trial on one rank.
pub struct Checkpointer<'a> {
    trial: &'a Trial,
    env: RankEnv,
    attempt: AttemptDir,
    dir: CheckpointDir,
    agreement: Arc<CheckpointAgreement>,
    signals: Signals,
    activity: Arc<Activity>,
}

impl<'a> Checkpointer<'a> {
    /// `None` where steps change no state.
    pub fn new(
        attempt: &AttemptDir,
        trial: &'a Trial,
        env: RankEnv,
        signals: &Signals,
        activity: &Arc<Activity>,
    ) -> Option<Self> {
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
        let (dir, signals) = (CheckpointDir::new(attempt), signals.clone());
        let activity = Arc::clone(activity);
        Some(Self { trial, env, attempt: attempt.clone(), dir, agreement, signals, activity })
    }

    /// The agreement, for the heartbeat thread to poll.
    pub fn agreement(&self) -> Arc<CheckpointAgreement> {
        Arc::clone(&self.agreement)
    }

    /// Whether a stop waits for a checkpoint.
    pub fn checkpoints_on_stop(&self) -> bool {
        self.trial.settings.checkpoint.on_signal
    }

    /// Restore the newest checkpoint into `trainer`; returns the step to start with and the progress of the training. `None` if there is
    /// no checkpoint.
    ///
    /// # Errors
    /// The checkpoint cannot be read, or is one of another trial or model.
    pub fn restore(&self, store: &Store, trainer: &mut Trainer) -> Result<Option<(u64, Progress)>, RankError> {
        self.activity.enter(Phase::Checkpoint);
        // Rank 0 chooses: on a network file system the others may not see the same folders yet.
        if self.env.rank == 0 {
            let step = self.dir.newest()?.unwrap_or(0);
            store.set(RESUME, step.to_string().as_bytes())?;
        }
        self.activity.enter(Phase::Rendezvous);
        let text = store.get(RESUME)?;
        let step = String::from_utf8_lossy(&text).parse().unwrap_or(0);
        if step == 0 {
            return Ok(None);
        }
        self.activity.enter(Phase::Checkpoint);
        let record = self.dir.check(step, self.trial)?;
        let path = self.dir.state_path(step);
        let state = read_state(&path)?;
        trainer.restore(&state).map_err(|e| LedgerError::Checkpoint { path, reason: e.to_string() })?;
        tracing::info!("rank {}: goes on at step {step}, from attempt {}", self.env.rank, record.attempt);
        // A version that stored no progress started every trial at the beginning.
        Ok(Some((step, Progress::from_state(&state).unwrap_or_default())))
    }

    /// The first step is `first`.
    pub fn begin(&self, first: u64) {
        self.agreement.begin(first);
    }

    /// To call in front of each step: write a checkpoint if one is due; returns whether it was.
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
        let every = self.trial.settings.checkpoint.every_steps;
        let next_possible = |step| trainer.next_boundary(step);
        let agreed =
            self.agreement.arrive(step, session.store, &next_possible, |check| self.wait(session.monitor, check))?;
        // Accumulated gradients are in no checkpoint: it waits for the end of their group.
        let periodic = step.checked_div(every).is_some_and(|n| n > 0 && next_possible(n * every) == step);
        if !agreed && !periodic {
            return Ok(false);
        }
        self.activity.enter(Phase::AwaitCheckpoint);
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
        let Session { store, monitor, .. } = *session;
        self.activity.enter(Phase::Checkpoint);
        if self.attempt.is_closed() {
            // Another attempt resumes from the last checkpoint: it must not find a later one without its records.
            return Err(RankError::Closed);
        }
        journal.sync()?;
        let (ready, done) = (format!("checkpoint/ready/{step}"), format!("checkpoint/done/{step}"));
        store.add(&ready, 1)?;
        if self.env.rank != 0 {
            return self.wait(monitor, &|| store.check(&[&done]));
        }
        self.wait(monitor, &|| Ok(store.add(&ready, 0)? >= i64::from(self.env.world_size)))?;
        self.activity.enter(Phase::Checkpoint);
        let record = CheckpointRecord {
            schema: CHECKPOINT_SCHEMA_VERSION,
            trial: self.trial.id.clone(),
            world_size: self.env.world_size,
            next_step: step,
            attempt: self.attempt.number(),
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

    /// Call `check` until it returns true. A stop does not end the wait: a stop waits for the same checkpoint.
    fn wait(&self, monitor: &Monitor, check: &dyn Fn() -> Result<bool, DistError>) -> Result<(), RankError> {
        self.activity.enter(Phase::AwaitCheckpoint);
        while !check()? {
            if let Some(lost) = monitor.lost_rank() {
                let stop = self.signals.stop.load(Ordering::SeqCst);
                return Err(if stop { RankError::Interrupted } else { RankError::PeerLost(lost) });
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }
}
