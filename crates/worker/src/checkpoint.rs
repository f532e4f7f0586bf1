//! A rank's part in making checkpoints and in going on from one.

use std::sync::Arc;
use std::time::Duration;

use expctl_dist::{DistError, Store, libtorch_version};
use expctl_record::{AttemptDir, CHECKPOINT_SCHEMA_VERSION, CheckpointDir, CheckpointRecord, Journal};
use expctl_record::{RecordError, Trial};
use tch::Tensor;

use crate::activity::{Activity, Phase};
use crate::checkpoint::{Agreement, Wishes, read_state, write_state};
use crate::monitor::Monitor;
use crate::run::Signals;
use crate::session::Session;
use crate::stop::Stop;
use crate::trainer::{Trainer, all_finite};
use crate::training::{Progress, TrainingRun};
use expctl_record::RankEnv;

/// Between two looks at the store while waiting for the other ranks.
const PAUSE: Duration = Duration::from_millis(5);
/// Key of the step that all ranks start from.
const RESUME: &str = "checkpoint/resume";

/// The checkpoints of the trial that this rank runs.
pub(crate) struct Checkpoints<'a> {
    trial: &'a Trial,
    env: RankEnv,
    attempt: AttemptDir,
    dir: CheckpointDir,
    agreement: Arc<Agreement>,
    signals: Signals,
    activity: Arc<Activity>,
}

impl<'a> Checkpoints<'a> {
    /// None where steps change nothing that could be kept.
    pub(crate) fn new(
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
        let wishes = Wishes {
            asked: Arc::clone(&signals.checkpoint),
            stop: settings.on_signal.then(|| Arc::clone(&signals.stop)),
            // One clock decides for all ranks.
            every: (settings.every_min > 0 && env.rank == 0).then(|| Duration::from_secs(60 * settings.every_min)),
        };
        let agreement = Arc::new(Agreement::new(env.rank, env.world_size, wishes));
        let (dir, signals) = (CheckpointDir::of(attempt), signals.clone());
        let activity = Arc::clone(activity);
        Some(Self { trial, env, attempt: attempt.clone(), dir, agreement, signals, activity })
    }

    /// For the monitor.
    pub(crate) fn agreement(&self) -> Arc<Agreement> {
        Arc::clone(&self.agreement)
    }

    /// Whether a stop waits for a checkpoint.
    pub(crate) fn keep_on_stop(&self) -> bool {
        self.trial.settings.checkpoint.on_signal
    }

    /// Put `trainer` into the state of the newest checkpoint; returns the step to start with, and how far training has come.
    /// None if there is no checkpoint.
    pub(crate) fn restore(&self, store: &Store, trainer: &mut Trainer) -> Result<Option<(u64, Progress)>, Stop> {
        self.activity.enter(Phase::Checkpoint);
        // Rank 0 chooses: on a network file system the others may not see the same folders yet.
        if self.env.rank == 0 {
            let step = self.dir.newest()?.unwrap_or(0);
            store.set(RESUME, step.to_string().as_bytes())?;
        }
        self.activity.enter(Phase::Meet);
        let text = store.get(RESUME)?;
        let step = String::from_utf8_lossy(&text).parse().unwrap_or(0);
        if step == 0 {
            return Ok(None);
        }
        self.activity.enter(Phase::Checkpoint);
        let record = self.dir.check(step, self.trial)?;
        let path = self.dir.state_path(step);
        let state = read_state(&path)?;
        trainer.restore(&state).map_err(|reason| RecordError::Checkpoint { path, reason })?;
        tracing::info!("rank {}: goes on at step {step}, from attempt {}", self.env.rank, record.attempt);
        // A version that kept no progress started every trial at the beginning.
        Ok(Some((step, Progress::of(&state).unwrap_or_default())))
    }

    /// The first step is `first`.
    pub(crate) fn begin(&self, first: u64) {
        self.agreement.begin(first);
    }

    /// To call in front of each step. Makes a checkpoint if it is due; returns whether it was.
    pub(crate) fn arrive(
        &self,
        step: u64,
        trainer: &mut Trainer,
        training: &TrainingRun,
        session: &Session<'_>,
        journal: &Journal,
    ) -> Result<bool, Stop> {
        let every = self.trial.settings.checkpoint.every_steps;
        let whole = |step| trainer.boundary(step);
        let agreed = self.agreement.arrive(step, session.store, &whole, |look| self.wait(session.monitor, look))?;
        // Gradients that have been accumulated are in no checkpoint: it waits for the end of their group.
        let periodic = step.checked_div(every).is_some_and(|n| n > 0 && whole(n * every) == step);
        if !agreed && !periodic {
            return Ok(false);
        }
        self.activity.enter(Phase::AwaitCheckpoint);
        trainer.share_state(session.group)?;
        let state = || trainer.state().into_iter().chain(training.state()).collect::<Vec<_>>();
        self.make(step, &state, session, journal)?;
        self.agreement.go_on(step + 1);
        Ok(true)
    }

    /// All ranks come here in front of the same step, and leave when the checkpoint is on disk. Where the state is not
    /// finite, rank 0 fails and says so, and the others hear of it while they wait.
    fn make(
        &self,
        step: u64,
        state: &dyn Fn() -> Vec<(String, Tensor)>,
        session: &Session<'_>,
        journal: &Journal,
    ) -> Result<(), Stop> {
        let Session { store, monitor, .. } = *session;
        self.activity.enter(Phase::Checkpoint);
        if self.attempt.is_closed() {
            // Another attempt goes on from the last checkpoint: it must not find a later one without its records.
            return Err(Stop::Closed);
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
        // In front of step 0 there is nothing to keep.
        if step > 0 {
            let state = state();
            // Without clipping nobody has looked at what the last step made of the parameters, and the checkpoint in front of
            // it is removed for this one.
            all_finite(&state)?;
            self.dir.save(record, |path| write_state(path, &state))?;
            tracing::info!("checkpoint in front of step {step}");
        }
        Ok(store.set(&done, b"")?)
    }

    /// Look until it is true. A stop does not end the wait: what is waited for is what a stop waits for.
    fn wait(&self, monitor: &Monitor, look: &dyn Fn() -> Result<bool, DistError>) -> Result<(), Stop> {
        self.activity.enter(Phase::AwaitCheckpoint);
        while !look()? {
            if let Some(loss) = monitor.loss() {
                let stop = self.signals.stop.load(std::sync::atomic::Ordering::SeqCst);
                return Err(if stop { Stop::Interrupted } else { Stop::PeerLost(loss) });
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}
