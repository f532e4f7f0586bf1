use std::time::{Duration, Instant};

use crate::{DistError, Store};

/// Announce this rank and wait until all `world` ranks have announced themselves.
///
/// A store serves one rendezvous: an attempt that starts again needs a new store.
///
/// # Errors
/// [`DistError::MissingRanks`] with the ranks that did not come within `timeout`; [`DistError::Torch`] if the store is
/// gone.
pub fn rendezvous(store: &Store, rank: u32, world: u32, timeout: Duration) -> Result<(), DistError> {
    rendezvous_until(store, rank, world, Instant::now() + timeout, timeout)
}

/// The same for a caller that has used up part of its time limit: wait until `deadline`, and name `limit`, the one that
/// was set, in the error.
///
/// # Errors
/// As [`rendezvous`].
pub fn rendezvous_until(
    store: &Store,
    rank: u32,
    world: u32,
    deadline: Instant,
    limit: Duration,
) -> Result<(), DistError> {
    let keys: Vec<String> = (0..world).map(key).collect();
    store.set(&key(rank), b"here")?;
    let left = deadline.saturating_duration_since(Instant::now());
    let Err(waited) = store.wait(&keys, left) else { return Ok(()) };
    let mut missing = Vec::new();
    for other in 0..world {
        // If the store itself is gone, the first error says more than this one.
        if !store.check(&[key(other)]).map_err(|_| waited.clone())? {
            missing.push(other);
        }
    }
    // The last one may have come between the wait and the look.
    if missing.is_empty() { Ok(()) } else { Err(DistError::MissingRanks { missing, world, limit }) }
}

fn key(rank: u32) -> String {
    format!("rendezvous/rank-{rank}")
}
