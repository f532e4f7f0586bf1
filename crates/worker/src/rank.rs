//! A rank from start to end. Invariant: every way out leaves last words, and steps that were done stay readable.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use expctl_datasets::array::remote_counts;
use expctl_ledger::{
    AttemptDir, DroppedPages, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_PEER_LOST, EXIT_STORAGE, EXIT_STUCK, Journal,
    LastWords, LedgerError, RankEnv, RankStatus, RankUsage, write_json,
};
use expctl_settings::{EmulatedStepTimes, Mode, Settings, Trial};
use host_metrics::{MetricsOptions, MetricsRecorder, WatchedProcesses, drop_from_page_cache, peak_resident};
use torch_dist::{ProcessGroup, Store, check_libtorch};

use crate::activity::{Activity, Phase};
use crate::checkpoint::Checkpointer;
use crate::device::{Gpu, LeakOnFailure, Placement, Prefetcher, choose_gpu_backend};
use crate::emulation::EmulatedAccelerator;
use crate::error::RankError;
use crate::monitor::{CHECKPOINT_GRACE, GRACE, LostRank, Monitor, MonitorOptions, done_key, publish_lost_rank};
use crate::profile::StepProfiler;
use crate::progress::{Progress, start_from};
use crate::session::{Session, Signals, connect, describe_environment, exchange_hardware};
use crate::source::{ArrayData, GraphData, RankBatches, TrialData};
use crate::step_loop::{StepLoop, StepWork};
use crate::trainer::Trainer;
use crate::training_run::{Epochs, TrainingRun};

/// Time limit of a collective. Long, as PyTorch's: the monitor finds ranks that are gone, and a slow rank (a cold file system) is not
/// gone.
const COLLECTIVE_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// Run one rank of the trial in `attempt`; returns the exit code of the process.
pub fn run(attempt: &AttemptDir, trial: &Trial, env: RankEnv, signals: &Signals) -> i32 {
    let last_words = Arc::new(LastWords::new(attempt.clone(), env.rank));
    let activity = Arc::new(Activity::default());
    let checkpointer = Checkpointer::new(attempt, trial, env, signals);
    let stop = &signals.stop;
    let result = Rank { attempt, trial, env, stop, last_words: &last_words, activity, checkpointer }.run();
    match result {
        Ok(digest) => {
            // Without its last words nobody would know that the rank completed.
            if last_words.say(RankStatus::Completed, "", None, digest) { 0 } else { EXIT_STORAGE }
        }
        Err(error @ RankError::AttemptUsed(_)) => {
            // The last words of the first start stay.
            tracing::error!("rank {}: {error}", env.rank);
            2
        }
        Err(error) => {
            tracing::error!("rank {}: {error}", env.rank);
            let (status, message, lost, code) = match &error {
                RankError::PeerLost(lost) => {
                    (RankStatus::PeerLost, lost.message.clone(), Some(lost.rank), EXIT_PEER_LOST)
                }
                RankError::Interrupted => (RankStatus::Interrupted, error.to_string(), None, EXIT_INTERRUPTED),
                // The outcome of the attempt has been written: nobody waits for last words.
                RankError::Closed => return EXIT_INTERRUPTED,
                RankError::Stuck(message) => (RankStatus::Failed, message.clone(), None, EXIT_STUCK),
                _ if error.is_storage() => {
                    (RankStatus::Failed, format!("rank {}: {error}", env.rank), None, EXIT_STORAGE)
                }
                _ => (RankStatus::Failed, format!("rank {}: {error}", env.rank), None, EXIT_FAILED),
            };
            last_words.say(status, &message, lost, None);
            code
        }
    }
}

/// A rank before it is connected.
struct Rank<'a> {
    attempt: &'a AttemptDir,
    trial: &'a Trial,
    env: RankEnv,
    stop: &'a Arc<AtomicBool>,
    last_words: &'a Arc<LastWords>,
    activity: Arc<Activity>,
    /// `None` where steps change no state.
    checkpointer: Option<Checkpointer>,
}

impl Rank<'_> {
    fn run(&self) -> Result<Option<String>, RankError> {
        let launch = &self.trial.settings.launch;
        self.refuse_used_folder()?;
        // Before anything uses libtorch: a device that it has once looked for and not found stays absent.
        let placement = Placement::choose(&self.trial.settings, self.env)?;
        check_libtorch()?;
        tch::set_num_threads(launch.threads as i32);
        let mut journal = Journal::create(&self.attempt.journal_path(self.env.rank))?;
        let metrics = MetricsRecorder::start(MetricsOptions {
            journal: self.attempt.sample_journal_path(self.env.rank),
            rank: self.env.rank,
            local_rank: self.env.local_rank,
            processes: WatchedProcesses::Itself,
            interval_s: self.trial.settings.measure.sample_every_s,
        });
        let timeout = Duration::from_secs(launch.rendezvous_timeout_s);
        let heartbeat_timeout = Duration::from_secs(launch.heartbeat_timeout_s);
        let stores = connect(self.env, self.attempt, timeout, heartbeat_timeout, self.stop)?;
        let store = stores.step;
        let checkpoints_on_stop = self.checkpointer.as_ref().is_some_and(|checkpointer| checkpointer.on_stop);
        let monitor = Monitor::start(MonitorOptions {
            store: stores.monitor,
            rank: self.env.rank,
            world_size: self.env.world_size,
            timeout: heartbeat_timeout,
            activity: Arc::clone(&self.activity),
            hang_timeout: Duration::from_secs(launch.hang_timeout_s),
            stop: Arc::clone(self.stop),
            stop_grace: if checkpoints_on_stop { CHECKPOINT_GRACE } else { GRACE },
            agreement: self.checkpointer.as_ref().map(Checkpointer::agreement),
            last_words: Arc::clone(self.last_words),
        })
        .map_err(RankError::MonitorThread)?;

        // libtorch's errors arrive as panics from tch; the others are to hear of them like of any other.
        let work = std::panic::catch_unwind(AssertUnwindSafe(|| {
            self.work(&placement, &store, &monitor, &mut journal, metrics.as_ref())
        }));
        let result = work.unwrap_or_else(|panic| Err(RankError::Panicked(panic_message(panic.as_ref()))));
        let result = self.name_lost_rank(result, &monitor);
        // From here on this thread ends the process by itself.
        monitor.stop();
        if let Some(error) = result.as_ref().err().filter(|error| error.is_own_failure()) {
            // If the store is gone as well, the others know already.
            let _ = publish_lost_rank(&store, self.env.rank, &format!("rank {} failed: {error}", self.env.rank));
        }
        let written = self.last_words.write_table(self.trial);
        // Rank 0 serves the store: leave the others time to read there why it ends.
        if result.is_err() && self.env.rank == 0 && self.env.world_size > 1 {
            std::thread::sleep(GRACE);
        }
        if let (Err(_), Err(e)) = (&result, &written) {
            // The journal stays, and the launcher makes the table from it; the first reason is the one that counts.
            tracing::error!("rank {}: {e}", self.env.rank);
            return result;
        }
        written?;
        result
    }

    /// A failed collective or store call is mostly a lost peer: find out which before the reason is reported. Other errors of the device are
    /// this rank's own ([`RankError::Device`]), and a single rank has no peer to lose.
    fn name_lost_rank<T>(&self, result: Result<T, RankError>, monitor: &Monitor) -> Result<T, RankError> {
        let result = match result {
            Err(RankError::Dist(_)) if self.stop.load(Ordering::SeqCst) => Err(RankError::Interrupted),
            Err(RankError::Dist(error)) => match monitor.wait_for_lost_rank() {
                Some(LostRank { rank, message }) => {
                    Err(RankError::PeerLost(LostRank { rank, message: format!("{message} (noticed in: {error})") }))
                }
                None => Err(RankError::Dist(error)),
            },
            other => other,
        };
        match result {
            Err(RankError::PeerLost(lost)) if lost.rank == self.env.rank => Err(RankError::Stuck(lost.message)),
            other => other,
        }
    }

    /// The records of an attempt are written once: those that a second start would overwrite may be all that is left of the first.
    fn refuse_used_folder(&self) -> Result<(), RankError> {
        let rank = self.env.rank;
        let used = [
            self.attempt.journal_path(rank),
            self.attempt.steps_path(rank),
            self.attempt.exit_path(rank),
            self.attempt.outcome_path(),
        ];
        match used.into_iter().find(|path| path.exists()) {
            Some(path) => Err(RankError::AttemptUsed(path)),
            None => Ok(()),
        }
    }

    /// Connect the ranks' devices, open the data, and step until the last step.
    fn work(
        &self,
        placement: &Placement,
        store: &Store,
        monitor: &Monitor,
        journal: &mut Journal,
        metrics: Option<&MetricsRecorder>,
    ) -> Result<Option<String>, RankError> {
        let settings = &self.trial.settings;
        let ranks = exchange_hardware(store, self.env, placement)?;
        let gpus = choose_gpu_backend(settings.launch.backend, &ranks, self.env.rank, placement, store)?;
        if self.env.rank == 0 {
            let environment = describe_environment(ranks, settings.launch.threads, placement, gpus);
            write_json(&self.attempt.environment_path(), &environment)?;
        }
        self.activity.enter(Phase::Rendezvous);
        let (rank, world) = (self.env.rank, self.env.world_size);
        let group = match gpus {
            None => ProcessGroup::gloo(store, rank, world, COLLECTIVE_TIMEOUT)?,
            Some(gpus) => ProcessGroup::with_gpus(store, rank, world, COLLECTIVE_TIMEOUT, gpus)?,
        };
        let group = LeakOnFailure::new(group, placement.gpu.is_some());
        self.activity.enter(Phase::SetUp);
        let session = Session {
            attempt: self.attempt,
            trial: self.trial,
            env: self.env,
            stop: self.stop,
            last_words: self.last_words,
            activity: &self.activity,
            store,
            monitor,
            group: &group,
            metrics,
        };
        let result = if settings.reads_array() {
            ArrayData::open(self.trial, self.env).and_then(|data| self.train(&data, placement, session, journal))
        } else {
            GraphData::open(self.trial).and_then(|data| self.train(&data, placement, session, journal))
        };
        group.drop_after(&result);
        result
    }

    /// Load and step batches of `data` until the last step; returns the digest of the parameters.
    fn train(
        &self,
        data: &impl TrialData,
        placement: &Placement,
        session: Session<'_>,
        journal: &mut Journal,
    ) -> Result<Option<String>, RankError> {
        let settings = &self.trial.settings;
        let Session { store, monitor, group, .. } = session;
        self.activity.enter(Phase::Rendezvous);
        let trainer = match settings.train.mode {
            Mode::Data | Mode::Emulate => None,
            Mode::ZeroLoss | Mode::Forward | Mode::ForwardBackward | Mode::Train => {
                Some(data.trainer(group, placement.device)?)
            }
        };
        let gpu = placement.gpu_index().map(Gpu::Cuda);
        let mut trainer = LeakOnFailure::new(trainer, gpu.is_some());
        let (first, progress) = self.restore(&session, trainer.as_mut())?;
        if let Some(watch) = trainer.as_ref().and_then(Trainer::allreduce) {
            self.activity.watch_allreduce(watch);
        }
        // In front of the barrier: what rank 0 alone writes about the data must not make the others wait in a step.
        self.activity.enter(Phase::SetUp);
        let batches = data.batches(self.attempt, self.env, placement.device)?;
        let dropped = self.drop_cache(data, group)?;
        self.activity.enter(Phase::Rendezvous);
        group.barrier()?;
        // Behind the barrier: the measurement of the clocks waits for no rank that is late.
        let cuda = placement.device.is_cuda();
        let profiler = StepProfiler::new(session, cuda)?;
        // Behind the barrier: a rank that waits for others must not fill its queue meanwhile.
        self.activity.enter(Phase::SetUp);
        let per_epoch = batches.per_epoch();
        let mut training = TrainingRun::new(progress, per_epoch, self.epochs(&batches)?);
        training.resume(first, self.attempt, self.env.rank)?;
        if let Some(trainer) = trainer.as_mut() {
            trainer.set_start(first, progress.first_epoch, per_epoch);
        }
        let (loader, masks) = (batches.start(first, progress.first_epoch * per_epoch)?, batches.step_masks());
        let work = match (trainer.as_mut(), EmulatedStepTimes::from_trial(self.trial)) {
            (Some(trainer), _) => StepWork::Compute(trainer, Box::new(training)),
            (None, Some(times)) => {
                StepWork::Emulate(EmulatedAccelerator::new(times, settings, group, placement.device)?)
            }
            (None, None) => StepWork::Load,
        };
        let prefetcher = gpu.filter(|_| settings.loader.pin_memory).map(Prefetcher::new).transpose()?;
        let checkpointer = self.checkpointer.as_ref();
        let prefetched = None;
        let steps =
            StepLoop { session, checkpointer, loader, prefetched, prefetcher, gpu, masks, work, profiler, journal };
        let result = steps.run(first);
        if result.is_err() {
            trainer.drop_after(&result);
            return result.map(|()| None);
        }
        self.write_usage(trainer.as_ref().map(Trainer::parameter_count), dropped)?;
        self.activity.enter(Phase::Done);
        // While the monitor still watches: with NCCL it waits for the others.
        group.shutdown()?;
        self.leave_together(store, monitor)?;
        if self.attempt.is_closed() {
            return Err(RankError::Closed);
        }
        monitor.stop();
        let digest = trainer.as_ref().map(Trainer::parameters_digest).transpose()?;
        drop(trainer.into_inner());
        Ok(digest)
    }

    /// Drop the files that steps read from the page cache of this node, where the trial measures a cold cache; one rank of the node does.
    /// All ranks have opened their files by then, which reads parts of them.
    fn drop_cache(&self, data: &impl TrialData, group: &ProcessGroup) -> Result<Option<DroppedPages>, RankError> {
        if !self.trial.settings.measure.cold_cache {
            return Ok(None);
        }
        self.activity.enter(Phase::Rendezvous);
        group.barrier()?;
        if self.env.local_rank != 0 {
            return Ok(None);
        }
        self.activity.enter(Phase::SetUp);
        let files = data.files();
        let dropped = drop_from_page_cache(files.iter().map(PathBuf::as_path)).map_err(LedgerError::from)?;
        Ok(Some(dropped))
    }

    /// Record what the steps used besides time: memory, remote requests, the size of the model, the pages dropped before them.
    fn write_usage(&self, parameters: Option<u64>, dropped: Option<DroppedPages>) -> Result<(), RankError> {
        let counts = remote_counts();
        let remote = (counts.requests > 0 || counts.hits > 0).then_some(counts);
        let usage = RankUsage { peak_resident_bytes: peak_resident(), parameters, remote, dropped };
        Ok(write_json(&self.attempt.usage_path(self.env.rank), &usage)?)
    }

    /// Restore `trainer` from a checkpoint or from the weights that the trial starts from; returns the first step and the progress of the
    /// training.
    fn restore(&self, session: &Session<'_>, trainer: Option<&mut Trainer>) -> Result<(u64, Progress), RankError> {
        let Some(trainer) = trainer else { return Ok((0, Progress::default())) };
        if let Some(checkpointer) = &self.checkpointer
            && let Some(restored) = checkpointer.restore(session, trainer)?
        {
            return Ok(restored);
        }
        let path = &self.trial.settings.train.start_from;
        if path.is_empty() {
            return Ok((0, Progress::default()));
        }
        self.activity.enter(Phase::Checkpoint);
        let progress = start_from(Path::new(path), trainer)?;
        tracing::info!("rank {}: starts in front of epoch {} with {path}", self.env.rank, progress.first_epoch);
        Ok((0, progress))
    }

    /// The epochs of the training; `None` where the run is not divided into epochs.
    fn epochs(&self, batches: &impl RankBatches) -> Result<Option<Epochs>, RankError> {
        let Settings { train, measure, .. } = &self.trial.settings;
        let (steps, per_epoch, count) = (measure.warmup + measure.steps, batches.per_epoch(), train.epochs);
        if count == 0 || train.mode != Mode::Train {
            return Ok(None);
        }
        if per_epoch.checked_mul(count) != Some(steps) {
            return Err(RankError::NotWholeEpochs { steps, epochs: count, batches: per_epoch });
        }
        let validator = match train.validate_every {
            0 => None,
            _ => Some(batches.validator()?),
        };
        Ok(Some(Epochs { count, validator }))
    }

    /// Publish that this rank is done; rank 0 serves the store, so it stays until all are.
    fn leave_together(&self, store: &Store, monitor: &Monitor) -> Result<(), RankError> {
        store.set(&done_key(self.env.rank), b"")?;
        if self.env.rank != 0 {
            return Ok(());
        }
        let keys: Vec<String> = (0..self.env.world_size).map(done_key).collect();
        while !store.check(&keys)? {
            if let Some(lost) = monitor.lost_rank() {
                return Err(RankError::PeerLost(lost));
            }
            if self.stop.load(Ordering::SeqCst) {
                return Err(RankError::Interrupted);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

/// First line of a panic's message.
fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("no message").lines().next().unwrap_or_default().to_owned()
}
