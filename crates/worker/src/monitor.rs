//! Detects ranks that are gone or stuck. Invariants: a rank never waits for a lost peer much longer than the heartbeat timeout; a rank
//! that is stuck in its own work names itself before any rank that only waits for it does.
//!
//! Every rank counts up a key of its own in the store, over a connection that the step never uses. Rank 0, which serves the store,
//! watches the counters of all others and publishes a loss; the others look for that, and for the store itself. A call to a frozen
//! store never returns, so one thread ([`Heartbeat`]) makes the calls and another one ([`Watchdog`]) watches that they are answered. The
//! step may be stuck in a collective meanwhile: where it does not end by itself, the watchdog ends the process.
//!
//! Silence is counted in polls, not in wall time: a node that was suspended does not take the pause for a loss.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use expctl_ledger::{EXIT_INTERRUPTED, EXIT_PEER_LOST, EXIT_STUCK, LastWords, RankStatus};
use torch_dist::{DistError, Store};

use crate::activity::{Activity, ActivitySnapshot};
use crate::checkpoint::CheckpointAgreement;

/// Between two polls of the heartbeat thread.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(300);
/// Between two turns of the watchdog.
const WATCHDOG_INTERVAL: Duration = Duration::from_millis(100);
/// Time in which the step thread may notice a lost rank or a stop by itself. Rank 0 stays as long, so that the others can read from its store
/// which rank was lost.
pub const GRACE: Duration = Duration::from_millis(1500);
/// [`GRACE`] for a stop where the ranks first end a step together and write a checkpoint.
pub const CHECKPOINT_GRACE: Duration = Duration::from_secs(20);

/// A rank that is gone or stuck.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRank {
    /// The rank.
    pub rank: u32,
    /// The sign by which it was noticed, for the reader of the outcome.
    pub message: String,
}

/// The running monitor; dropping it ends its threads.
pub struct Monitor {
    shared: Arc<Shared>,
    heartbeat: Option<JoinHandle<()>>,
    watchdog: Option<JoinHandle<()>>,
    timeout: Duration,
    world_size: u32,
}

struct Shared {
    lost_rank: Mutex<Option<LostRank>>,
    changed: Condvar,
    is_stopped: AtomicBool,
    /// Polls that were answered.
    polls: AtomicU64,
}

impl Shared {
    fn set_lost(&self, lost: LostRank) {
        // The first reason is the root; what follows from it is not.
        self.lost_rank.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(lost);
        self.changed.notify_all();
    }

    fn lost_rank(&self) -> Option<LostRank> {
        self.lost_rank.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::SeqCst)
    }
}

/// Targets and time limits of a monitor.
pub struct MonitorOptions {
    /// A connection of its own.
    pub store: Store,
    /// This rank.
    pub rank: u32,
    /// Number of ranks.
    pub world_size: u32,
    /// A rank that is silent for longer is lost.
    pub timeout: Duration,
    /// Activity of the step thread.
    pub activity: Arc<Activity>,
    /// A step that takes longer is stuck; zero: no limit.
    pub hang_timeout: Duration,
    /// Set when this process was asked to stop.
    pub stop: Arc<AtomicBool>,
    /// Time in which the step may end after a stop.
    pub stop_grace: Duration,
    /// The agreement on checkpoints to poll; `None` where there are no checkpoints.
    pub agreement: Option<Arc<CheckpointAgreement>>,
    /// Record of the reason, for a step that cannot write it.
    pub last_words: Arc<LastWords>,
}

impl Monitor {
    /// Start watching.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(options: MonitorOptions) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            lost_rank: Mutex::new(None),
            changed: Condvar::new(),
            is_stopped: AtomicBool::new(false),
            polls: AtomicU64::new(0),
        });
        let MonitorOptions {
            store,
            rank,
            world_size,
            timeout,
            activity,
            hang_timeout,
            stop,
            stop_grace,
            agreement,
            last_words,
        } = options;
        let hang_polls = (!hang_timeout.is_zero()).then(|| polls_in(hang_timeout, HEARTBEAT_INTERVAL));
        let hang = HangDetector::new(rank, hang_polls);
        let max_polls = polls_in(timeout, HEARTBEAT_INTERVAL);
        let mut heartbeat = Heartbeat { store, rank, world_size, max_polls, activity, hang, agreement };
        let max_turns = polls_in(timeout, WATCHDOG_INTERVAL);
        let watchdog = Watchdog { rank, max_turns, stop, stop_grace, last_words };
        let spawn = |name: &str, run: Box<dyn FnOnce(&Shared) + Send>| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name(name.to_owned()).spawn(move || run(&shared))
        };
        let heartbeat = spawn("heartbeat", Box::new(move |shared| heartbeat.run(shared)))?;
        let watchdog = spawn("monitor", Box::new(move |shared| watchdog.run(shared)))?;
        Ok(Self { shared, heartbeat: Some(heartbeat), watchdog: Some(watchdog), timeout, world_size })
    }

    /// The rank that is lost, if one is.
    pub fn lost_rank(&self) -> Option<LostRank> {
        self.shared.lost_rank()
    }

    /// After a collective failed: wait until it is clear which rank is lost; `None` if all are alive. A single rank does not wait.
    pub fn wait_for_lost_rank(&self) -> Option<LostRank> {
        if self.world_size == 1 {
            return None;
        }
        let lost = self.shared.lost_rank.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = self.timeout + 4 * HEARTBEAT_INTERVAL;
        let waited = self.shared.changed.wait_timeout_while(lost, limit, |l| l.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// Stop watching: the ranks end in order from here on, and the store goes with rank 0.
    pub fn stop(&self) {
        self.shared.is_stopped.store(true, Ordering::SeqCst);
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.stop();
        for thread in [&self.heartbeat, &self.watchdog].into_iter().flatten() {
            thread.thread().unpark();
        }
        if let Some(watchdog) = self.watchdog.take() {
            // A panic there has nothing more to say.
            let _ = watchdog.join();
        }
        // A call to a frozen store never returns: its thread is left behind, the process ends soon.
        let since = Instant::now();
        while self.heartbeat.as_ref().is_some_and(|l| !l.is_finished()) && since.elapsed() < 2 * HEARTBEAT_INTERVAL {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Number of polls in `timeout`, at least two.
fn polls_in(timeout: Duration, interval: Duration) -> u64 {
    (timeout.as_millis() / interval.as_millis()).max(2) as u64
}

/// Key of the rank that was lost first, as `<rank> <message>`.
const LOST: &str = "lost";

fn heartbeat_key(rank: u32) -> String {
    format!("beat/{rank}")
}

/// Key of a rank that has done all its steps.
pub fn done_key(rank: u32) -> String {
    format!("done/{rank}")
}

/// Tell the others which rank is lost, unless one was published before.
///
/// # Errors
/// The store does not answer.
pub fn publish_lost_rank(store: &Store, rank: u32, message: &str) -> Result<(), DistError> {
    if store.add("lost/claims", 1)? == 1 { store.set(LOST, format!("{rank} {message}").as_bytes()) } else { Ok(()) }
}

/// The thread that counts up this rank's key in the store, and polls those of the others.
struct Heartbeat {
    store: Store,
    rank: u32,
    world_size: u32,
    /// Polls without a change after which a rank is lost.
    max_polls: u64,
    activity: Arc<Activity>,
    hang: HangDetector,
    agreement: Option<Arc<CheckpointAgreement>>,
}

impl Heartbeat {
    fn run(&mut self, shared: &Shared) {
        let mut silent = vec![(0i64, 0u64); self.world_size as usize];
        while !shared.is_stopped() {
            match self.poll(&mut silent) {
                Ok(None) => {}
                Ok(Some(lost)) => {
                    // A store that fails now only confirms it.
                    let _ = publish_lost_rank(&self.store, lost.rank, &lost.message);
                    return shared.set_lost(lost);
                }
                Err(e) => {
                    let message = format!("rank 0, which serves the store, is gone: {e}");
                    return shared.set_lost(LostRank { rank: 0, message });
                }
            }
            shared.polls.fetch_add(1, Ordering::SeqCst);
            std::thread::park_timeout(HEARTBEAT_INTERVAL);
        }
    }

    /// `silent`: of each rank its last count, and the polls since it changed.
    fn poll(&mut self, silent: &mut [(i64, u64)]) -> Result<Option<LostRank>, DistError> {
        self.store.add(&heartbeat_key(self.rank), 1)?;
        if let Some(text) = self.store.try_get(LOST)? {
            let text = String::from_utf8_lossy(&text).into_owned();
            let (rank, message) = text.split_once(' ').unwrap_or((&text, ""));
            // A rank that published its own failure knows of it.
            return Ok(rank
                .parse()
                .ok()
                .filter(|r| *r != self.rank)
                .map(|rank| LostRank { rank, message: message.into() }));
        }
        if let Some(lost) = self.hang.poll(&self.activity) {
            return Ok(Some(lost));
        }
        if let Some(agreement) = &self.agreement {
            agreement.poll(&self.store)?;
        }
        // Rank 0 watches for all: two calls an interval for each rank, however many there are.
        if self.rank != 0 {
            return Ok(None);
        }
        for other in 1..self.world_size {
            let count = self.store.add(&heartbeat_key(other), 0)?;
            let (last, polls) = &mut silent[other as usize];
            *polls = if count == *last { *polls + 1 } else { 0 };
            *last = count;
            if *polls > self.max_polls && !self.store.check(&[done_key(other)])? {
                let seconds = rounded_seconds(HEARTBEAT_INTERVAL, self.max_polls);
                let message = format!("rank {other} is gone: no sign of life for {seconds} s");
                return Ok(Some(LostRank { rank: other, message }));
            }
        }
        Ok(None)
    }
}

fn rounded_seconds(interval: Duration, count: u64) -> f32 {
    (interval * u32::try_from(count).unwrap_or(u32::MAX)).as_secs_f32().round()
}

/// The thread that watches that polls are answered, and ends the process where the step cannot.
struct Watchdog {
    rank: u32,
    /// Turns without an answered poll after which the store is lost.
    max_turns: u64,
    stop: Arc<AtomicBool>,
    stop_grace: Duration,
    last_words: Arc<LastWords>,
}

impl Watchdog {
    fn run(&self, shared: &Shared) {
        let (mut polls, mut silent_turns) = (0, 0);
        let mut stop_turns = 0;
        while !shared.is_stopped() {
            if let Some(lost) = shared.lost_rank() {
                // This rank itself, if its own step is stuck.
                let (status, lost_rank) = match lost.rank == self.rank {
                    true => (RankStatus::Failed, None),
                    false => (RankStatus::PeerLost, Some(lost.rank)),
                };
                return self.end_if_stuck(shared, status, &lost.message, lost_rank);
            }
            let now = shared.polls.load(Ordering::SeqCst);
            silent_turns = if now == polls { silent_turns + 1 } else { 0 };
            polls = now;
            if silent_turns > self.max_turns && self.rank != 0 {
                let seconds = rounded_seconds(WATCHDOG_INTERVAL, self.max_turns);
                let message = format!("rank 0, which serves the store, has not answered for {seconds} s");
                shared.set_lost(LostRank { rank: 0, message });
            }
            stop_turns += u64::from(self.stop.load(Ordering::SeqCst));
            if stop_turns > polls_in(self.stop_grace, WATCHDOG_INTERVAL) {
                return self.end_if_stuck(shared, RankStatus::Interrupted, "stopped on request", None);
            }
            std::thread::park_timeout(WATCHDOG_INTERVAL);
        }
    }

    /// End the process, unless the step ends by itself within [`GRACE`].
    fn end_if_stuck(&self, shared: &Shared, status: RankStatus, message: &str, lost_rank: Option<u32>) {
        let since = Instant::now();
        while since.elapsed() < GRACE {
            if shared.is_stopped() {
                return;
            }
            std::thread::park_timeout(Duration::from_millis(50));
        }
        self.last_words.say(status, message, lost_rank, None);
        let code = match status {
            RankStatus::PeerLost => EXIT_PEER_LOST,
            RankStatus::Failed => EXIT_STUCK,
            _ => EXIT_INTERRUPTED,
        };
        // SAFETY: ends the process at once, without destructors: the step may hold locks in a collective that never ends. The journal is
        // complete.
        unsafe { libc::_exit(code) }
    }
}

/// Counts the polls since this rank's step thread last made progress.
#[derive(Debug)]
struct HangDetector {
    rank: u32,
    /// Polls after which a rank that works is stuck; `None`: no limit.
    max_polls: Option<u64>,
    restarts: u64,
    polls: u64,
}

impl HangDetector {
    fn new(rank: u32, max_polls: Option<u64>) -> Self {
        Self { rank, max_polls, restarts: 0, polls: 0 }
    }

    /// Count a poll; returns this rank where it is stuck.
    fn poll(&mut self, activity: &Activity) -> Option<LostRank> {
        let max_polls = self.max_polls?;
        let now = activity.snapshot();
        let restarts = now.as_ref().map_or(self.restarts, |snapshot| snapshot.restarts);
        self.polls = if now.is_some() && restarts == self.restarts { self.polls + 1 } else { 0 };
        self.restarts = restarts;
        let ActivitySnapshot { is_waiting, description, .. } = now?;
        let rank = self.rank;
        let message = match is_waiting {
            false if self.polls > max_polls => format!("rank {rank} has been {description}"),
            // The rank that is stuck would have named itself by now: the connection between the ranks is at fault.
            true if self.polls > 2 * max_polls => {
                format!("rank {rank} has waited for the others {description}, and none of them says that it is stuck")
            }
            _ => return None,
        };
        Some(LostRank { rank, message })
    }
}

#[cfg(test)]
mod tests {
    use expctl_ledger::AttemptDir;

    use super::*;
    use crate::activity::Phase;
    use crate::activity::tests::with_peers;

    #[test]
    fn who_is_alone_does_not_wait_for_a_loss() {
        let folder = tempfile::tempdir().unwrap();
        let monitor = Monitor::start(MonitorOptions {
            store: Store::in_process(Duration::from_secs(60)).unwrap(),
            rank: 0,
            world_size: 1,
            timeout: Duration::from_secs(60),
            activity: Arc::new(Activity::default()),
            hang_timeout: Duration::ZERO,
            stop: Arc::new(AtomicBool::new(false)),
            stop_grace: GRACE,
            agreement: None,
            last_words: Arc::new(LastWords::new(AttemptDir::open(folder.path()), 0)),
        });
        let since = Instant::now();
        assert_eq!(monitor.unwrap().wait_for_lost_rank(), None);
        assert!(since.elapsed() < Duration::from_secs(30), "the heartbeat's time-out has not passed");
    }

    fn polls_until_lost(detector: &mut HangDetector, activity: &Activity) -> Option<(u32, String)> {
        (1..100).find_map(|poll| Some((poll, detector.poll(activity)?.message)))
    }

    #[test]
    fn a_rank_that_works_is_stuck_before_one_that_waits() {
        let activity = Activity::default();
        activity.begin_step(41);
        let mut detector = HangDetector::new(2, Some(10));
        let (polls, message) = polls_until_lost(&mut detector, &activity).unwrap();
        assert_eq!((polls, message.as_str()), (12, "rank 2 has been at step 41 (load) for 0 s"));
        activity.enter(Phase::AwaitCheckpoint);
        let (polls, message) = polls_until_lost(&mut detector, &activity).unwrap();
        assert_eq!(polls, 22);
        assert!(message.starts_with("rank 2 has waited for the others at step 41 (checkpoint)"), "{message}");
    }

    #[test]
    fn a_rank_that_loads_is_stuck_before_one_whose_device_waits_for_it() {
        let (stuck, innocent) = (Activity::default(), with_peers());
        stuck.begin_step(41);
        innocent.begin_step(41);
        innocent.set_phase(Phase::Device);
        let (polls, message) = polls_until_lost(&mut HangDetector::new(1, Some(10)), &stuck).unwrap();
        assert_eq!((polls, message.as_str()), (12, "rank 1 has been at step 41 (load) for 0 s"));
        let (later, message) = polls_until_lost(&mut HangDetector::new(0, Some(10)), &innocent).unwrap();
        assert!(later > polls, "{later}");
        assert!(message.starts_with("rank 0 has waited for the others at step 41 (device)"), "{message}");
        // Alone, it is its own device that does not get on.
        let alone = Activity::default();
        alone.begin_step(41);
        alone.set_phase(Phase::Device);
        let (polls, message) = polls_until_lost(&mut HangDetector::new(0, Some(10)), &alone).unwrap();
        assert_eq!((polls, message.as_str()), (12, "rank 0 has been at step 41 (device) for 0 s"));
    }

    #[test]
    fn steps_that_get_on_and_a_rank_that_is_done_are_not_stuck() {
        let activity = Activity::default();
        let mut detector = HangDetector::new(0, Some(10));
        for step in 0..30 {
            activity.begin_step(step);
            assert!((0..8).all(|_| detector.poll(&activity).is_none()));
        }
        activity.enter(Phase::Done);
        assert_eq!(polls_until_lost(&mut detector, &activity), None);
        activity.begin_step(1);
        assert_eq!(polls_until_lost(&mut HangDetector::new(0, None), &activity), None);
    }
}
