//! A rank from start to end. Invariant: every way out leaves last words, and steps that were done stay readable.

use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use expctl_datasets::array::remote_counts;
use expctl_dist::{ProcessGroup, Store, check_libtorch};
use expctl_record::{
    AttemptDir, DroppedPages, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_PEER_LOST, EXIT_STORAGE, EXIT_STUCK, Journal,
    LastWords, Mode, RankEnv, RankStatus, RankUsage, Settings, Trial, drop_from_page_cache, peak_resident, write_json,
    write_table,
};
use expctl_sampler::{Sampler, Watched};

use crate::activity::{Activity, Phase};
use crate::checkpoints::Checkpoints;
use crate::connect::connect;
use crate::device::{Feed, Gpu, LeakOnFailure, Placement, agree};
use crate::environment;
use crate::monitor::{CHECKPOINT_GRACE, GRACE, Loss, Monitor, Watch, done_key, publish_loss};
use crate::profile::StepProfiler;
use crate::session::Session;
use crate::source::{ArraySource, Batches, GraphSource, Source};
use crate::steps::Steps;
use crate::stop::Stop;
use crate::trainer::Trainer;
use crate::training::{Epochs, Progress, TrainingRun, start_from};

/// Time limit of a collective. Long, as PyTorch's: the monitor finds ranks that are gone, and a rank that is slow (a cold
/// file system) is not gone.
const COLLECTIVE_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// Set by the signals that a rank gets.
#[derive(Clone, Debug, Default)]
pub struct Signals {
    /// End at the next step (TERM, INT).
    pub stop: Arc<AtomicBool>,
    /// Make a checkpoint and go on (USR1).
    pub checkpoint: Arc<AtomicBool>,
}

/// Run one rank of the trial in `attempt`; returns the exit code of the process.
pub fn run(attempt: &AttemptDir, trial: &Trial, env: RankEnv, signals: &Signals) -> i32 {
    let last_words = Arc::new(LastWords::new(attempt.clone(), env.rank));
    let activity = Arc::new(Activity::default());
    let checkpoints = Checkpoints::new(attempt, trial, env, signals, &activity);
    let stop = &signals.stop;
    let result = Rank { attempt, trial, env, stop, last_words: &last_words, activity, checkpoints }.run();
    match result {
        Ok(digest) => {
            // Without its last words nobody would know that the rank completed.
            if last_words.say(RankStatus::Completed, "", None, digest) { 0 } else { EXIT_STORAGE }
        }
        Err(stop @ Stop::Used(_)) => {
            // The last words of the first start stay.
            tracing::error!("rank {}: {stop}", env.rank);
            2
        }
        Err(stop) => {
            tracing::error!("rank {}: {stop}", env.rank);
            let (status, message, lost, code) = match &stop {
                Stop::PeerLost(loss) => (RankStatus::PeerLost, loss.message.clone(), Some(loss.rank), EXIT_PEER_LOST),
                Stop::Interrupted => (RankStatus::Interrupted, stop.to_string(), None, EXIT_INTERRUPTED),
                // Its outcome has been written: nobody waits for last words.
                Stop::Closed => return EXIT_INTERRUPTED,
                Stop::Stuck(message) => (RankStatus::Failed, message.clone(), None, EXIT_STUCK),
                _ if stop.is_storage() => {
                    (RankStatus::Failed, format!("rank {}: {stop}", env.rank), None, EXIT_STORAGE)
                }
                _ => (RankStatus::Failed, format!("rank {}: {stop}", env.rank), None, EXIT_FAILED),
            };
            last_words.say(status, &message, lost, None);
            code
        }
    }
}

struct Rank<'a> {
    attempt: &'a AttemptDir,
    trial: &'a Trial,
    env: RankEnv,
    stop: &'a Arc<AtomicBool>,
    last_words: &'a Arc<LastWords>,
    activity: Arc<Activity>,
    /// None where steps change nothing that could be kept.
    checkpoints: Option<Checkpoints<'a>>,
}

impl Rank<'_> {
    fn run(&self) -> Result<Option<String>, Stop> {
        let launch = &self.trial.settings.launch;
        self.refuse_used_folder()?;
        // In front of everything that asks libtorch for anything: what it has once looked for and not found stays away.
        let placement = Placement::settle(&self.trial.settings, self.env)?;
        check_libtorch()?;
        tch::set_num_threads(launch.threads as i32);
        let mut journal = Journal::create(&self.attempt.journal_path(self.env.rank))?;
        let every_s = self.trial.settings.measure.sample_every_s;
        let sampler = Sampler::start(self.attempt, self.env, Watched::Itself, every_s);
        let timeout = Duration::from_secs(launch.rendezvous_timeout_s);
        let lively = Duration::from_secs(launch.heartbeat_timeout_s);
        let connections = connect(self.env, self.attempt, timeout, lively, self.stop)?;
        let store = connections.step;
        let keeps = self.checkpoints.as_ref().is_some_and(Checkpoints::keep_on_stop);
        let monitor = Monitor::start(Watch {
            store: connections.monitor,
            rank: self.env.rank,
            world_size: self.env.world_size,
            timeout: lively,
            activity: Arc::clone(&self.activity),
            hang_timeout: Duration::from_secs(launch.hang_timeout_s),
            stop: Arc::clone(self.stop),
            stop_grace: if keeps { CHECKPOINT_GRACE } else { GRACE },
            agreement: self.checkpoints.as_ref().map(Checkpoints::agreement),
            last_words: Arc::clone(self.last_words),
        })
        .map_err(|e| Stop::Invalid(format!("cannot start the monitor: {e}")))?;

        // libtorch's errors arrive as panics from tch; the others are to hear of them like of any other.
        let work = std::panic::catch_unwind(AssertUnwindSafe(|| {
            self.work(&placement, &store, &monitor, &mut journal, sampler.as_ref())
        }));
        let result = work.unwrap_or_else(|panic| Err(Stop::Panicked(panic_message(panic.as_ref()))));
        // A failed collective or store call is mostly a lost peer: find out which before giving the reason. Other errors of the device
        // are this rank's own (`Stop::Device`), and a rank that is alone has no peer to lose.
        let result = match result {
            Err(Stop::Dist(_)) if self.stop.load(Ordering::SeqCst) => Err(Stop::Interrupted),
            Err(Stop::Dist(error)) => match monitor.wait_for_loss() {
                Some(Loss { rank, message }) => {
                    Err(Stop::PeerLost(Loss { rank, message: format!("{message} (noticed in: {error})") }))
                }
                None => Err(Stop::Dist(error)),
            },
            other => other,
        };
        let result = match result {
            Err(Stop::PeerLost(loss)) if loss.rank == self.env.rank => Err(Stop::Stuck(loss.message)),
            other => other,
        };
        // From here on this thread ends the process by itself.
        monitor.end();
        if let Some(stop) = result.as_ref().err().filter(|stop| stop.is_own_failure()) {
            // If the store is gone as well, the others know already.
            let _ = publish_loss(&store, self.env.rank, &format!("rank {} failed: {stop}", self.env.rank));
        }
        let written = write_table(self.attempt, self.trial, self.env.rank, self.last_words);
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

    /// An attempt's records are written once: what a second start would overwrite may be all that is left of the first.
    fn refuse_used_folder(&self) -> Result<(), Stop> {
        let rank = self.env.rank;
        let used = [
            self.attempt.journal_path(rank),
            self.attempt.steps_path(rank),
            self.attempt.exit_path(rank),
            self.attempt.outcome_path(),
        ];
        match used.iter().find(|path| path.exists()) {
            Some(path) => Err(Stop::Used(path.display().to_string())),
            None => Ok(()),
        }
    }

    /// Connect, load and step, until the last step.
    fn work(
        &self,
        placement: &Placement,
        store: &Store,
        monitor: &Monitor,
        journal: &mut Journal,
        sampler: Option<&Sampler>,
    ) -> Result<Option<String>, Stop> {
        let settings = &self.trial.settings;
        let ranks = environment::share(store, self.env, placement)?;
        let gpus = agree(settings.launch.backend, &ranks, self.env.rank, placement, store)?;
        if self.env.rank == 0 {
            let environment = environment::of(ranks, settings.launch.threads, placement, gpus);
            write_json(&self.attempt.environment_path(), &environment)?;
        }
        self.activity.enter(Phase::Meet);
        let (rank, world) = (self.env.rank, self.env.world_size);
        let group = match gpus {
            None => ProcessGroup::gloo(store, rank, world, COLLECTIVE_TIMEOUT)?,
            Some(gpus) => ProcessGroup::with_gpus(store, rank, world, COLLECTIVE_TIMEOUT, gpus)?,
        };
        let group = LeakOnFailure::new(group, placement.gpu.is_some());
        self.activity.enter(Phase::SetUp);
        let result = if settings.reads_array() {
            let source = ArraySource::open(self.trial, self.env)?;
            self.steps(&source, placement, store, monitor, &group, journal, sampler)
        } else {
            self.steps(&GraphSource::open(self.trial)?, placement, store, monitor, &group, journal, sampler)
        };
        group.drop_after(&result);
        result
    }

    /// Load and step what comes of `source`, until the last step.
    #[expect(clippy::too_many_arguments, reason = "what a connected rank has, before it is a session")]
    fn steps(
        &self,
        source: &impl Source,
        placement: &Placement,
        store: &Store,
        monitor: &Monitor,
        group: &ProcessGroup,
        journal: &mut Journal,
        sampler: Option<&Sampler>,
    ) -> Result<Option<String>, Stop> {
        let settings = &self.trial.settings;
        self.activity.enter(Phase::Meet);
        let trainer = match settings.train.mode {
            Mode::Data => None,
            Mode::ZeroLoss | Mode::Forward | Mode::ForwardBackward | Mode::Train => {
                Some(source.trainer(group, placement.device)?)
            }
        };
        let gpu = placement.gpu_index().map(Gpu::Cuda);
        let mut trainer = LeakOnFailure::new(trainer, gpu.is_some());
        let (first, progress) = self.start(store, trainer.as_mut())?;
        if let Some(watch) = trainer.as_ref().and_then(Trainer::allreduce) {
            self.activity.watch_allreduce(watch);
        }
        // In front of the barrier: what rank 0 alone writes down of the data must not make the others wait in a step.
        self.activity.enter(Phase::SetUp);
        let loading = source.batches(self.attempt, self.env, placement.device)?;
        let dropped = self.drop_cache(source, group)?;
        self.activity.enter(Phase::Meet);
        group.barrier()?;
        // Now that all are here, none waits longer than its clock takes.
        let cuda = placement.device.is_cuda();
        let profiler = StepProfiler::new(self.attempt, self.trial, self.env, &self.activity, store, cuda)?;
        // Behind it: a rank that waits for others must not fill its queue meanwhile.
        self.activity.enter(Phase::SetUp);
        let batches = loading.per_epoch();
        let mut training = TrainingRun::new(progress, batches, self.epochs(&loading)?);
        training.resume(first, self.attempt, self.env.rank)?;
        let session = Session {
            attempt: self.attempt,
            trial: self.trial,
            env: self.env,
            stop: self.stop,
            last_words: self.last_words,
            activity: &self.activity,
            store,
            monitor,
            group,
            sampler,
        };
        if let Some(trainer) = trainer.as_mut() {
            trainer.starts_at(first, progress.first_epoch, batches);
        }
        let (loader, masks) = (loading.start(first, progress.first_epoch * batches)?, loading.step_masks());
        let model = trainer.as_mut().map(|trainer| (trainer, training));
        let feed = gpu.filter(|_| settings.loader.pin_memory).map(Feed::new).transpose()?;
        let checkpoints = self.checkpoints.as_ref();
        let upcoming = None;
        let result =
            Steps { session, checkpoints, loader, upcoming, feed, gpu, masks, model, profiler, journal }.run(first);
        if result.is_err() {
            trainer.drop_after(&result);
            return result.map(|()| None);
        }
        self.write_usage(trainer.as_ref().map(Trainer::parameter_count), dropped)?;
        self.activity.enter(Phase::Over);
        // While the monitor still watches: it waits for the others where they are connected by NCCL.
        group.shutdown()?;
        self.leave_together(store, monitor)?;
        if self.attempt.is_closed() {
            return Err(Stop::Closed);
        }
        monitor.end();
        let digest = trainer.as_ref().map(Trainer::parameters_digest).transpose()?;
        drop(trainer.into_inner());
        Ok(digest)
    }

    /// Drop what steps read from the page cache of this node, where the trial is to be measured so; one rank of the node does. All ranks
    /// have opened their files by then, which reads parts of them.
    fn drop_cache(&self, source: &impl Source, group: &ProcessGroup) -> Result<Option<DroppedPages>, Stop> {
        if !self.trial.settings.measure.cold_cache {
            return Ok(None);
        }
        self.activity.enter(Phase::Meet);
        group.barrier()?;
        if self.env.local_rank != 0 {
            return Ok(None);
        }
        self.activity.enter(Phase::SetUp);
        let files = source.files();
        Ok(Some(drop_from_page_cache(files.iter().map(PathBuf::as_path))?))
    }

    /// Write down what the steps took beside time, of a model with so many parameters, and what was dropped from the page cache
    /// before them.
    fn write_usage(&self, parameters: Option<u64>, dropped: Option<DroppedPages>) -> Result<(), Stop> {
        let counts = remote_counts();
        let remote = (counts.requests > 0 || counts.hits > 0).then_some(counts);
        let usage = RankUsage { peak_resident_bytes: peak_resident(), parameters, remote, dropped };
        Ok(write_json(&self.attempt.usage_path(self.env.rank), &usage)?)
    }

    /// Put `trainer` where it goes on; returns the first step, and how far training has come.
    fn start(&self, store: &Store, trainer: Option<&mut Trainer>) -> Result<(u64, Progress), Stop> {
        let Some(trainer) = trainer else { return Ok((0, Progress::default())) };
        if let Some(checkpoints) = &self.checkpoints
            && let Some(kept) = checkpoints.restore(store, trainer)?
        {
            return Ok(kept);
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

    /// What happens at the end of an epoch; none where the run is not divided into epochs.
    fn epochs(&self, loading: &impl Batches) -> Result<Option<Epochs>, Stop> {
        let Settings { train, measure, .. } = &self.trial.settings;
        let (steps, batches, count) = (measure.warmup + measure.steps, loading.per_epoch(), train.epochs);
        if count == 0 || train.mode != Mode::Train {
            return Ok(None);
        }
        if batches.checked_mul(count) != Some(steps) {
            return Err(Stop::Invalid(format!("{steps} steps are not {count} epochs of {batches}")));
        }
        let validator = match train.validate_every {
            0 => None,
            _ => Some(loading.validator()?),
        };
        Ok(Some(Epochs { count, validator }))
    }

    /// Say that this rank is done; rank 0 serves the store, so it stays until all are.
    fn leave_together(&self, store: &Store, monitor: &Monitor) -> Result<(), Stop> {
        store.set(&done_key(self.env.rank), b"")?;
        if self.env.rank != 0 {
            return Ok(());
        }
        let keys: Vec<String> = (0..self.env.world_size).map(done_key).collect();
        while !store.check(&keys)? {
            if let Some(loss) = monitor.loss() {
                return Err(Stop::PeerLost(loss));
            }
            if self.stop.load(Ordering::SeqCst) {
                return Err(Stop::Interrupted);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

/// First line of what a panic says.
fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("no message").lines().next().unwrap_or_default().to_owned()
}
