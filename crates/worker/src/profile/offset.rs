//! How the clocks of ranks stand to each other.

use expctl_dist::{DistError, Store};
use expctl_record::RankEnv;

use super::clock::realtime;

/// Questions that a rank asks rank 0; the one that was answered fastest counts.
const ROUNDS: u32 = 10;

/// What is to be added to the times of a rank to get those of rank 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Offset {
    /// ns.
    pub(super) ns: i64,
    /// True within so many ns.
    pub(super) uncertainty_ns: i64,
    /// The start of this machine; empty where it does not say.
    pub(super) boot_id: String,
}

/// Find the offset of this rank to rank 0, for `ranks`, on all of them and rank 0 at the same time. Ranks of one machine share
/// its clock. The others ask rank 0 for its time, over the store.
///
/// Source: Cristian, "Probabilistic clock synchronization" (1989): the clock of the other side was read in the middle of the
/// shortest round trip, to within half of it.
///
/// # Errors
/// A rank did not answer within the store's time limit.
pub(super) fn agree(store: &Store, env: RankEnv, ranks: &[u32]) -> Result<Offset, DistError> {
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned();
    agree_as(store, env.rank, ranks, boot_id)
}

fn agree_as(store: &Store, own: u32, ranks: &[u32], boot_id: String) -> Result<Offset, DistError> {
    let boot = |rank: u32| format!("profile/boot/{rank}");
    store.set(&boot(own), boot_id.as_bytes())?;
    let same = |rank: u32| -> Result<bool, DistError> {
        Ok(!boot_id.is_empty() && store.get(&boot(rank))? == boot_id.as_bytes())
    };
    if own == 0 {
        for rank in ranks.iter().copied().filter(|rank| *rank != 0) {
            if !same(rank)? {
                (0..ROUNDS).try_for_each(|round| answer(store, rank, round))?;
            }
        }
    } else if !same(0)? {
        let rounds: Vec<(i64, i64)> = (0..ROUNDS).map(|round| ask(store, own, round)).collect::<Result<_, _>>()?;
        let (ns, uncertainty_ns) = rounds.into_iter().min_by_key(|(_, width)| *width).unwrap_or_default();
        return Ok(Offset { ns, uncertainty_ns, boot_id });
    }
    Ok(Offset { boot_id, ..Offset::default() })
}

/// Offset and uncertainty by one round trip, ns.
fn ask(store: &Store, rank: u32, round: u32) -> Result<(i64, i64), DistError> {
    let before = realtime();
    store.set(&question(rank, round), b"")?;
    let answer = store.get(&reply(rank, round))?;
    let after = realtime();
    // Rank 0 runs this same program.
    let theirs = answer.as_slice().try_into().map(i64::from_le_bytes).unwrap_or_default();
    Ok((theirs - before - (after - before) / 2, (after - before) / 2))
}

fn answer(store: &Store, rank: u32, round: u32) -> Result<(), DistError> {
    store.get(&question(rank, round))?;
    store.set(&reply(rank, round), &realtime().to_le_bytes())
}

fn question(rank: u32, round: u32) -> String {
    format!("profile/ask/{rank}/{round}")
}

fn reply(rank: u32, round: u32) -> String {
    format!("profile/answer/{rank}/{round}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// What ranks find, each on a thread of its own, on machines that are called so.
    fn agreed(machines: [&str; 3]) -> Vec<Offset> {
        let limit = Duration::from_secs(60);
        let server = Store::serve("127.0.0.1", 0, limit).unwrap();
        let port = server.port();
        let threads = (0u32..).zip(machines).map(|(rank, machine)| {
            let machine = machine.to_owned();
            std::thread::spawn(move || {
                let store = Store::connect("127.0.0.1", port, limit).unwrap();
                agree_as(&store, rank, &[0, 1, 2], machine).unwrap()
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    }

    #[test]
    fn other_machines_ask_rank_0_for_its_time() {
        let found = agreed(["a", "a", "b"]);
        assert_eq!((found[0].ns, found[1].ns, found[1].uncertainty_ns), (0, 0, 0));
        // All of them really share one clock, so that the truth is known.
        assert!(found[2].uncertainty_ns > 0 && found[2].ns.abs() <= found[2].uncertainty_ns, "{:?}", found[2]);
        // One that does not say where it is may be anywhere.
        assert!(agreed(["", "", "b"])[1].uncertainty_ns > 0);
    }
}
