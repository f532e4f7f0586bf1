//! Notices ranks that are gone. Invariant: a rank never waits for a lost peer longer than the heartbeat time-out.
//!
//! Every rank counts up a key of its own in the store and watches those of the others, over a connection that the step
//! never uses. A counter that stands still for the time-out, or a store that is gone (rank 0 serves it), is a loss. The
//! step may be stuck in a collective meanwhile, so when it does not end by itself, this thread ends the process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use expctl_dist::{DistError, Store};
use expctl_record::RankStatus;

use crate::last_words::LastWords;

const BEAT: Duration = Duration::from_millis(300);
/// How long the step may take to notice a loss or a stop by itself.
const GRACE: Duration = Duration::from_millis(1500);
/// Exit code of a rank that stopped because another one was lost.
pub const EXIT_PEER_LOST: i32 = 4;
/// Exit code of a rank that was asked to stop.
pub const EXIT_INTERRUPTED: i32 = 3;

/// A rank that is gone, and how that showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The rank.
    pub rank: u32,
    /// For the reader of the outcome.
    pub message: String,
}

/// The running monitor; dropping it ends its thread.
pub struct Monitor {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    timeout: Duration,
}

struct Shared {
    loss: Mutex<Option<Loss>>,
    changed: Condvar,
    ended: AtomicBool,
}

/// What a monitor watches with.
pub struct Watch {
    /// A connection of its own.
    pub store: Store,
    /// This rank.
    pub rank: u32,
    /// Number of ranks.
    pub world_size: u32,
    /// A counter that stands still for longer is a loss.
    pub timeout: Duration,
    /// Set when this process was asked to stop.
    pub stop: Arc<AtomicBool>,
    /// Where to leave the reason if the step cannot.
    pub last_words: Arc<LastWords>,
}

impl Monitor {
    /// Start watching.
    pub fn start(watch: Watch) -> std::io::Result<Self> {
        let shared =
            Arc::new(Shared { loss: Mutex::new(None), changed: Condvar::new(), ended: AtomicBool::new(false) });
        let timeout = watch.timeout;
        let thread = std::thread::Builder::new().name("monitor".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || watch.run(&shared)
        })?;
        Ok(Self { shared, thread: Some(thread), timeout })
    }

    /// The loss, if there is one.
    pub fn loss(&self) -> Option<Loss> {
        self.shared.loss.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// After a collective failed: wait until it is clear which rank is gone; none if all are alive.
    pub fn wait_for_loss(&self) -> Option<Loss> {
        let loss = self.shared.loss.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = self.timeout + 2 * BEAT;
        let waited = self.shared.changed.wait_timeout_while(loss, limit, |l| l.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic there has nothing more to tell.
            let _ = thread.join();
        }
    }
}

fn beat_key(rank: u32) -> String {
    format!("beat/{rank}")
}

fn failed_key(rank: u32) -> String {
    format!("failed/{rank}")
}

/// Key of a rank that has done all its steps.
pub fn done_key(rank: u32) -> String {
    format!("done/{rank}")
}

/// Tell the others that this rank fails, so that they need not find out.
pub fn announce_failure(store: &Store, rank: u32, message: &str) {
    // If the store is gone as well, the others know already.
    let _ = store.set(&failed_key(rank), message.as_bytes());
}

impl Watch {
    fn run(self, shared: &Shared) {
        let mut seen = vec![(0i64, Instant::now()); self.world_size as usize];
        let mut stop_since = None;
        while !shared.ended.load(Ordering::SeqCst) {
            if let Err(loss) = self.look(&mut seen) {
                *shared.loss.lock().unwrap_or_else(PoisonError::into_inner) = Some(loss.clone());
                shared.changed.notify_all();
                return self.end_if_stuck(shared, RankStatus::PeerLost, &loss.message, Some(loss.rank));
            }
            if self.stop.load(Ordering::SeqCst) && stop_since.get_or_insert_with(Instant::now).elapsed() > 2 * GRACE {
                return self.end_if_stuck(shared, RankStatus::Interrupted, "stopped on request", None);
            }
            std::thread::park_timeout(BEAT);
        }
    }

    /// One beat: show a sign of life and look at the others'.
    fn look(&self, seen: &mut [(i64, Instant)]) -> Result<(), Loss> {
        let store_gone =
            |e: DistError| Loss { rank: 0, message: format!("rank 0, which serves the store, is gone: {e}") };
        self.store.add(&beat_key(self.rank), 1).map_err(store_gone)?;
        for other in (0..self.world_size).filter(|r| *r != self.rank) {
            if let Some(why) = self.store.try_get(&failed_key(other)).map_err(store_gone)? {
                let why = String::from_utf8_lossy(&why);
                return Err(Loss { rank: other, message: format!("rank {other} failed: {why}") });
            }
            let count = self.store.add(&beat_key(other), 0).map_err(store_gone)?;
            let (last, since) = &mut seen[other as usize];
            if count != *last {
                (*last, *since) = (count, Instant::now());
            } else if since.elapsed() > self.timeout && !self.store.check(&[done_key(other)]).map_err(store_gone)? {
                let seconds = self.timeout.as_secs();
                return Err(Loss {
                    rank: other,
                    message: format!("rank {other} is gone: no sign of life for {seconds} s"),
                });
            }
        }
        Ok(())
    }

    fn end_if_stuck(&self, shared: &Shared, status: RankStatus, message: &str, lost: Option<u32>) {
        let since = Instant::now();
        while since.elapsed() < GRACE {
            if shared.ended.load(Ordering::SeqCst) {
                return;
            }
            std::thread::park_timeout(Duration::from_millis(50));
        }
        self.last_words.say(status, message, lost, None);
        let code = if status == RankStatus::PeerLost { EXIT_PEER_LOST } else { EXIT_INTERRUPTED };
        // SAFETY: ends the process at once. No destructors: the step may hold locks in a collective that will never
        // end. The journal is complete.
        unsafe { libc::_exit(code) }
    }
}
