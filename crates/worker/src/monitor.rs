//! Notices ranks that are gone. Invariant: a rank never waits for a lost peer much longer than the heartbeat time-out.
//!
//! Every rank counts up a key of its own in the store, over a connection that the step never uses. Rank 0, which serves the
//! store, watches the counters of all others and publishes a loss; the others look for that, and for the store itself. A
//! call to a store that is frozen never returns, so one thread looks and another watches that it gets answers. The step may
//! be stuck in a collective meanwhile: when it does not end by itself, the watching thread ends the process.
//!
//! A step that does not end is another matter: the process lives, and says so itself (see `hang`).
//!
//! Silence is counted in own turns, not in wall time: a node that was suspended does not take the pause for a loss.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use expctl_dist::{DistError, Store};
use expctl_record::{EXIT_INTERRUPTED, EXIT_PEER_LOST, EXIT_STUCK, LastWords, RankStatus};

use crate::activity::Activity;
use crate::checkpoint::Agreement;
use crate::hang::HangWatch;

/// Between two looks.
const BEAT: Duration = Duration::from_millis(300);
/// Between two turns of the watching thread.
const TURN: Duration = Duration::from_millis(100);
/// How long the step may take to notice a loss or a stop by itself. Rank 0 stays as long, so that the others can read
/// from its store who was lost.
pub const GRACE: Duration = Duration::from_millis(1500);
/// The same for a stop, where the ranks first end a step together and keep a checkpoint.
pub const CHECKPOINT_GRACE: Duration = Duration::from_secs(20);

/// A rank that is gone, and how that showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The rank.
    pub rank: u32,
    /// For the reader of the outcome.
    pub message: String,
}

/// The running monitor; dropping it ends its threads.
pub struct Monitor {
    shared: Arc<Shared>,
    looker: Option<JoinHandle<()>>,
    watcher: Option<JoinHandle<()>>,
    timeout: Duration,
    world_size: u32,
}

struct Shared {
    loss: Mutex<Option<Loss>>,
    changed: Condvar,
    ended: AtomicBool,
    /// Looks that were answered.
    looks: AtomicU64,
}

impl Shared {
    fn lose(&self, loss: Loss) {
        // The first reason is the root; what follows from it is not.
        self.loss.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(loss);
        self.changed.notify_all();
    }

    fn loss(&self) -> Option<Loss> {
        self.loss.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }
}

/// What a monitor watches with.
pub struct Watch {
    /// A connection of its own.
    pub store: Store,
    /// This rank.
    pub rank: u32,
    /// Number of ranks.
    pub world_size: u32,
    /// Silence for longer is a loss.
    pub timeout: Duration,
    /// What the step thread is at.
    pub activity: Arc<Activity>,
    /// A step that takes longer is stuck; zero does not watch for that.
    pub hang_timeout: Duration,
    /// Set when this process was asked to stop.
    pub stop: Arc<AtomicBool>,
    /// How long the step may take to end after a stop.
    pub stop_grace: Duration,
    /// Takes part in agreeing on checkpoints; none where there are no checkpoints.
    pub agreement: Option<Arc<Agreement>>,
    /// Where to leave the reason if the step cannot.
    pub last_words: Arc<LastWords>,
}

impl Monitor {
    /// Start watching.
    pub fn start(watch: Watch) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            loss: Mutex::new(None),
            changed: Condvar::new(),
            ended: AtomicBool::new(false),
            looks: AtomicU64::new(0),
        });
        let Watch { store, rank, world_size, timeout, activity, hang_timeout, stop, stop_grace, agreement, last_words } =
            watch;
        let hang = HangWatch::new(rank, (!hang_timeout.is_zero()).then(|| turns(hang_timeout, BEAT)));
        let mut looker = Looker { store, rank, world_size, limit: turns(timeout, BEAT), activity, hang, agreement };
        let watcher = Watcher { rank, limit: turns(timeout, TURN), stop, stop_grace, last_words };
        let spawn = |name: &str, run: Box<dyn FnOnce(&Shared) + Send>| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name(name.to_owned()).spawn(move || run(&shared))
        };
        let looker = spawn("heartbeat", Box::new(move |shared| looker.run(shared)))?;
        let watcher = spawn("monitor", Box::new(move |shared| watcher.run(shared)))?;
        Ok(Self { shared, looker: Some(looker), watcher: Some(watcher), timeout, world_size })
    }

    /// The loss, if there is one.
    pub fn loss(&self) -> Option<Loss> {
        self.shared.loss()
    }

    /// After a collective failed: wait until it is clear which rank is gone; none if all are alive. Who is alone does not wait.
    pub fn wait_for_loss(&self) -> Option<Loss> {
        if self.world_size == 1 {
            return None;
        }
        let loss = self.shared.loss.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = self.timeout + 4 * BEAT;
        let waited = self.shared.changed.wait_timeout_while(loss, limit, |l| l.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// From here on nobody is missed: the ranks part in peace, and the store goes with rank 0.
    pub fn end(&self) {
        self.shared.ended.store(true, Ordering::SeqCst);
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.end();
        for thread in [&self.looker, &self.watcher].into_iter().flatten() {
            thread.thread().unpark();
        }
        if let Some(watcher) = self.watcher.take() {
            // A panic there has nothing more to tell.
            let _ = watcher.join();
        }
        // A look at a frozen store never returns: it is left behind, the process ends soon.
        let since = Instant::now();
        while self.looker.as_ref().is_some_and(|l| !l.is_finished()) && since.elapsed() < 2 * BEAT {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Own turns that make up `timeout`, at least two.
fn turns(timeout: Duration, turn: Duration) -> u64 {
    (timeout.as_millis() / turn.as_millis()).max(2) as u64
}

/// Key of the rank that was lost first, as `<rank> <message>`.
const LOST: &str = "lost";

fn beat_key(rank: u32) -> String {
    format!("beat/{rank}")
}

/// Key of a rank that has done all its steps.
pub fn done_key(rank: u32) -> String {
    format!("done/{rank}")
}

/// Tell the others which rank is lost, unless that is known already.
pub fn publish_loss(store: &Store, rank: u32, message: &str) -> Result<(), DistError> {
    if store.add("lost/claims", 1)? == 1 { store.set(LOST, format!("{rank} {message}").as_bytes()) } else { Ok(()) }
}

/// Shows signs of life, and looks for those of the others.
struct Looker {
    store: Store,
    rank: u32,
    world_size: u32,
    /// Looks without a change after which a rank is lost.
    limit: u64,
    activity: Arc<Activity>,
    hang: HangWatch,
    agreement: Option<Arc<Agreement>>,
}

impl Looker {
    fn run(&mut self, shared: &Shared) {
        let mut silent = vec![(0i64, 0u64); self.world_size as usize];
        while !shared.ended() {
            match self.look(&mut silent) {
                Ok(None) => {}
                Ok(Some(loss)) => {
                    // A store that fails now only confirms it.
                    let _ = publish_loss(&self.store, loss.rank, &loss.message);
                    return shared.lose(loss);
                }
                Err(e) => {
                    let message = format!("rank 0, which serves the store, is gone: {e}");
                    return shared.lose(Loss { rank: 0, message });
                }
            }
            shared.looks.fetch_add(1, Ordering::SeqCst);
            std::thread::park_timeout(BEAT);
        }
    }

    fn look(&mut self, silent: &mut [(i64, u64)]) -> Result<Option<Loss>, DistError> {
        self.store.add(&beat_key(self.rank), 1)?;
        if let Some(text) = self.store.try_get(LOST)? {
            let text = String::from_utf8_lossy(&text).into_owned();
            let (rank, message) = text.split_once(' ').unwrap_or((&text, ""));
            // A rank that announced its own failure needs no telling.
            return Ok(rank
                .parse()
                .ok()
                .filter(|r| *r != self.rank)
                .map(|rank| Loss { rank, message: message.into() }));
        }
        if let Some(loss) = self.hang.look(&self.activity) {
            return Ok(Some(loss));
        }
        if let Some(agreement) = &self.agreement {
            agreement.look(&self.store)?;
        }
        // Rank 0 watches for all: two calls a beat for each rank, however many there are.
        if self.rank != 0 {
            return Ok(None);
        }
        for other in 1..self.world_size {
            let count = self.store.add(&beat_key(other), 0)?;
            let (last, turns) = &mut silent[other as usize];
            *turns = if count == *last { *turns + 1 } else { 0 };
            *last = count;
            if *turns > self.limit && !self.store.check(&[done_key(other)])? {
                let seconds = (BEAT * u32::try_from(self.limit).unwrap_or(u32::MAX)).as_secs_f32().round();
                let message = format!("rank {other} is gone: no sign of life for {seconds} s");
                return Ok(Some(Loss { rank: other, message }));
            }
        }
        Ok(None)
    }
}

/// Watches that the looks are answered, and ends the process where the step cannot.
struct Watcher {
    rank: u32,
    /// Turns without an answer after which the store is lost.
    limit: u64,
    stop: Arc<AtomicBool>,
    stop_grace: Duration,
    last_words: Arc<LastWords>,
}

impl Watcher {
    fn run(&self, shared: &Shared) {
        let (mut looks, mut silent) = (0, 0);
        let mut stop_turns = 0;
        while !shared.ended() {
            if let Some(loss) = shared.loss() {
                // This rank itself, if its own step is what is stuck.
                let (status, lost) = match loss.rank == self.rank {
                    true => (RankStatus::Failed, None),
                    false => (RankStatus::PeerLost, Some(loss.rank)),
                };
                return self.end_if_stuck(shared, status, &loss.message, lost);
            }
            let now = shared.looks.load(Ordering::SeqCst);
            silent = if now == looks { silent + 1 } else { 0 };
            looks = now;
            if silent > self.limit && self.rank != 0 {
                let seconds = (TURN * u32::try_from(self.limit).unwrap_or(u32::MAX)).as_secs_f32().round();
                let message = format!("rank 0, which serves the store, has not answered for {seconds} s");
                shared.lose(Loss { rank: 0, message });
            }
            stop_turns += u64::from(self.stop.load(Ordering::SeqCst));
            if stop_turns > turns(self.stop_grace, TURN) {
                return self.end_if_stuck(shared, RankStatus::Interrupted, "stopped on request", None);
            }
            std::thread::park_timeout(TURN);
        }
    }

    fn end_if_stuck(&self, shared: &Shared, status: RankStatus, message: &str, lost: Option<u32>) {
        let since = Instant::now();
        while since.elapsed() < GRACE {
            if shared.ended() {
                return;
            }
            std::thread::park_timeout(Duration::from_millis(50));
        }
        self.last_words.say(status, message, lost, None);
        let code = match status {
            RankStatus::PeerLost => EXIT_PEER_LOST,
            RankStatus::Failed => EXIT_STUCK,
            _ => EXIT_INTERRUPTED,
        };
        // SAFETY: ends the process at once. No destructors: the step may hold locks in a collective that will never
        // end. The journal is complete.
        unsafe { libc::_exit(code) }
    }
}

#[cfg(test)]
mod tests {
    use expctl_record::AttemptDir;

    use super::*;

    #[test]
    fn who_is_alone_does_not_wait_for_a_loss() {
        let folder = tempfile::tempdir().unwrap();
        let monitor = Monitor::start(Watch {
            store: Store::alone(Duration::from_secs(60)).unwrap(),
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
        assert_eq!(monitor.unwrap().wait_for_loss(), None);
        assert!(since.elapsed() < Duration::from_secs(30), "the heartbeat's time-out has not passed");
    }
}
