//! Clocks: libtorch's profiler and everything else use different ones, and so do ranks on different machines.

use std::time::Instant;

use expctl_ledger::RankEnv;
use torch_dist::{DistError, Store};

/// Joint readings of two clocks; the pair that lies closest together counts.
const TRIES: usize = 16;

/// Read a clock of the system, ns.
fn read_clock(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to `time` alone. It fails only for clocks that do not exist, and leaves zeros then.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// `CLOCK_MONOTONIC`, ns.
pub fn monotonic_ns() -> i64 {
    read_clock(libc::CLOCK_MONOTONIC)
}

/// `CLOCK_REALTIME`, ns since 1970.
fn realtime_ns() -> i64 {
    read_clock(libc::CLOCK_REALTIME)
}

/// Both clocks at one moment: that of libtorch's profiler, and that of all other times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockPair {
    /// `CLOCK_REALTIME`, ns.
    pub realtime: i64,
    /// `CLOCK_MONOTONIC`, ns.
    pub monotonic: i64,
    /// Time between the monotonic readings before and after, ns.
    pub width: i64,
}

impl ClockPair {
    /// Read both now.
    pub fn now() -> Self {
        let (realtime, monotonic, width) = read_between(realtime_ns);
        Self { realtime, monotonic, width }
    }

    /// `CLOCK_REALTIME` at a time of `CLOCK_MONOTONIC`, unless the clock is set in between: both run at the same rate.
    pub fn realtime_at(&self, monotonic: i64) -> i64 {
        self.realtime + (monotonic - self.monotonic)
    }

    /// Drift between the clocks since `earlier`, ns.
    pub fn drift_since(&self, earlier: &Self) -> i64 {
        self.realtime - earlier.realtime_at(self.monotonic)
    }
}

/// `CLOCK_MONOTONIC` at `instant`, ns.
pub fn monotonic_at(instant: Instant) -> i64 {
    let elapsed = || i64::try_from(instant.elapsed().as_nanos()).unwrap_or(i64::MAX);
    let (elapsed, monotonic, _) = read_between(elapsed);
    monotonic - elapsed
}

/// The result of `read`, the monotonic time in its middle, and the time between the readings around it.
fn read_between(read: impl Fn() -> i64) -> (i64, i64, i64) {
    let mut best = (0, 0, i64::MAX);
    for _ in 0..TRIES {
        let before = monotonic_ns();
        let value = read();
        let after = monotonic_ns();
        if after - before < best.2 {
            best = (value, before + (after - before) / 2, after - before);
        }
    }
    best
}

/// Round trips between a rank and rank 0; the fastest one counts.
const ROUNDS: u32 = 10;

/// Difference between the clock of rank 0 and that of this rank: times of this rank plus `ns` are times of rank 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClockOffset {
    pub ns: i64,
    /// Half-width of the error of `ns`.
    pub uncertainty_ns: i64,
    /// Identity of the boot of this machine; empty where it is unknown.
    pub boot_id: String,
}

/// Measure the offset of this rank to rank 0, on all `ranks` and rank 0 at the same time. Ranks of one machine share its clock. The others
/// ask rank 0 for its time, over the store.
///
/// Source: Cristian, "Probabilistic clock synchronization" (1989): the clock of the other side was read in the middle of the shortest round
/// trip, to within half of it.
///
/// # Errors
/// A rank did not answer within the store's time limit.
pub fn measure_offset(store: &Store, env: RankEnv, ranks: &[u32]) -> Result<ClockOffset, DistError> {
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned();
    measure_offset_as(store, env.rank, ranks, boot_id)
}

fn measure_offset_as(store: &Store, own: u32, ranks: &[u32], boot_id: String) -> Result<ClockOffset, DistError> {
    let boot = |rank: u32| format!("profile/boot/{rank}");
    store.set(&boot(own), boot_id.as_bytes())?;
    let is_same_machine = |rank: u32| -> Result<bool, DistError> {
        Ok(!boot_id.is_empty() && store.get(&boot(rank))? == boot_id.as_bytes())
    };
    if own == 0 {
        for rank in ranks.iter().copied().filter(|rank| *rank != 0) {
            if !is_same_machine(rank)? {
                (0..ROUNDS).try_for_each(|round| answer(store, rank, round))?;
            }
        }
    } else if !is_same_machine(0)? {
        let rounds: Vec<(i64, i64)> = (0..ROUNDS).map(|round| ask(store, own, round)).collect::<Result<_, _>>()?;
        let (ns, uncertainty_ns) = rounds.into_iter().min_by_key(|(_, width)| *width).unwrap_or_default();
        return Ok(ClockOffset { ns, uncertainty_ns, boot_id });
    }
    Ok(ClockOffset { boot_id, ..ClockOffset::default() })
}

/// Offset and uncertainty from one round trip, ns.
fn ask(store: &Store, rank: u32, round: u32) -> Result<(i64, i64), DistError> {
    let before = realtime_ns();
    store.set(&question(rank, round), b"")?;
    let answer = store.get(&reply(rank, round))?;
    let after = realtime_ns();
    // The answer is well formed: rank 0 runs this same program.
    let theirs = answer.as_slice().try_into().map(i64::from_le_bytes).unwrap_or_default();
    Ok((theirs - before - (after - before) / 2, (after - before) / 2))
}

fn answer(store: &Store, rank: u32, round: u32) -> Result<(), DistError> {
    store.get(&question(rank, round))?;
    store.set(&reply(rank, round), &realtime_ns().to_le_bytes())
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

    #[test]
    fn clocks_are_read_together() {
        let pair = ClockPair::now();
        let before = Instant::now();
        std::thread::sleep(Duration::from_millis(5));
        let (later, start) = (ClockPair::now(), monotonic_at(before));
        assert!(pair.width >= 0 && later.monotonic - pair.monotonic >= 5_000_000);
        assert!((pair.monotonic - pair.width..=later.monotonic - 5_000_000 + later.width).contains(&start));
        assert_eq!(pair.realtime_at(pair.monotonic + 7), pair.realtime + 7);
        let set = ClockPair { realtime: later.realtime + 1_000_000_000, ..later };
        assert_eq!(set.drift_since(&pair) - later.drift_since(&pair), 1_000_000_000);
    }

    /// The offsets that ranks measure, each on a thread of its own, on machines with these boot ids.
    fn measured(machines: [&str; 3]) -> Vec<ClockOffset> {
        let limit = Duration::from_secs(60);
        let server = Store::serve("127.0.0.1", 0, limit).unwrap();
        let port = server.port();
        let threads = (0u32..).zip(machines).map(|(rank, machine)| {
            let machine = machine.to_owned();
            std::thread::spawn(move || {
                let store = Store::connect("127.0.0.1", port, limit).unwrap();
                measure_offset_as(&store, rank, &[0, 1, 2], machine).unwrap()
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    }

    #[test]
    fn other_machines_ask_rank_0_for_its_time() {
        let found = measured(["a", "a", "b"]);
        assert_eq!((found[0].ns, found[1].ns, found[1].uncertainty_ns), (0, 0, 0));
        // All of them really share one clock, so that the truth is known.
        assert!(found[2].uncertainty_ns > 0 && found[2].ns.abs() <= found[2].uncertainty_ns, "{:?}", found[2]);
        // A machine without a boot id may be any machine.
        assert!(measured(["", "", "b"])[1].uncertainty_ns > 0);
    }
}
