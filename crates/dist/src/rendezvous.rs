use std::time::Duration;

use crate::{DistError, Store};

/// Announce this rank and wait until all `world` ranks have announced themselves.
///
/// A store serves one rendezvous: an attempt that starts again needs a new store.
///
/// # Errors
/// [`DistError::MissingRanks`] with the ranks that did not come within `timeout`; [`DistError::Torch`] if the store is
/// gone.
pub fn rendezvous(store: &Store, rank: u32, world: u32, timeout: Duration) -> Result<(), DistError> {
    let keys: Vec<String> = (0..world).map(key).collect();
    store.set(&key(rank), b"here")?;
    let Err(waited) = store.wait(&keys, timeout) else { return Ok(()) };
    let mut missing = Vec::new();
    for other in 0..world {
        // If the store itself is gone, the first error says more than this one.
        if !store.check(&[key(other)]).map_err(|_| waited.clone())? {
            missing.push(other);
        }
    }
    // The last one may have come between the wait and the look.
    if missing.is_empty() { Ok(()) } else { Err(DistError::MissingRanks { missing, world, limit: timeout }) }
}

fn key(rank: u32) -> String {
    format!("rendezvous/rank-{rank}")
}
