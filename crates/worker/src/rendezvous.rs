use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use expctl_dist::{DistError, Store, rendezvous_until};
use expctl_record::{AttemptDir, RendezvousFile};

use crate::meeting_place::serve;
use crate::stop::Stop;
use expctl_record::RankEnv;

/// How long the first try to reach the store may take before its address is looked up again. Each further try may take
/// twice as long: on a busy machine or network the time limit as a whole is what counts.
const TRY: Duration = Duration::from_secs(5);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(50);

/// The store of an attempt: the step's connection and a second one for the monitor.
#[derive(Debug)]
pub struct Connections {
    /// For the step and its collectives.
    pub step: Store,
    /// For the monitor; it never waits behind the step's calls.
    pub monitor: Store,
}

/// Find the other ranks: rank 0 serves the store, the others look its address up.
///
/// The address is MASTER_ADDR:MASTER_PORT, if both are set. Otherwise rank 0 takes a port from the kernel and publishes it
/// in the attempt's folder. A rank that is alone has a store of its own and needs neither.
///
/// All of it together may take `timeout`. The monitor's calls are limited to `lively`.
///
/// # Errors
/// Names the ranks that did not appear within `timeout`, or says why the store could not be reached.
pub fn connect(
    env: RankEnv,
    attempt: &AttemptDir,
    timeout: Duration,
    lively: Duration,
    stop: &AtomicBool,
) -> Result<Connections, Stop> {
    let until = Until { limit: timeout, end: Instant::now() + timeout };
    let master = master()?;
    if env.world_size == 1 {
        let step = Store::alone(timeout)?;
        let monitor = step.another();
        return Ok(Connections { step, monitor });
    }
    let file = RendezvousFile::of(attempt);
    let (step, host, port) = if env.rank == 0 {
        // What an earlier start left there leads nowhere.
        file.clear();
        let (step, host) = match master {
            Some((host, port)) => (Store::serve(&host, port, timeout)?, host),
            None => serve(env, timeout)?,
        };
        let port = step.port();
        file.publish(&host, port)?;
        (step, host, port)
    } else {
        reach(env, || master.clone().or_else(|| file.lookup()), until, stop)?
    };
    step.set_timeout(timeout);
    // Before the ranks meet: who was met is complete.
    let (monitor, ..) = reach(env, || Some((host.clone(), port)), until, stop)?;
    monitor.set_timeout(lively);
    rendezvous_until(&step, env.rank, env.world_size, until.end, timeout)?;
    Ok(Connections { step, monitor })
}

/// A time limit, and when it ends.
#[derive(Clone, Copy)]
struct Until {
    limit: Duration,
    end: Instant,
}

/// MASTER_ADDR and MASTER_PORT, where both are set.
fn master() -> Result<Option<(String, u16)>, Stop> {
    let set = |name| std::env::var(name).ok().filter(|v| !v.is_empty());
    match (set("MASTER_ADDR"), set("MASTER_PORT")) {
        (Some(host), Some(port)) => match port.parse() {
            Ok(port) => Ok(Some((host, port))),
            Err(_) => Err(Stop::Invalid(format!("MASTER_PORT={port} is not a port"))),
        },
        _ => Ok(None),
    }
}

/// Try until the store answers; its address is read anew each time, because what stands there may be of an earlier start.
fn reach(
    env: RankEnv,
    address: impl Fn() -> Option<(String, u16)>,
    until: Until,
    stop: &AtomicBool,
) -> Result<(Store, String, u16), Stop> {
    let (mut error, mut patience) = (None, TRY);
    loop {
        if stop.load(Ordering::SeqCst) {
            return Err(Stop::Interrupted);
        }
        let left = until.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        let Some((host, port)) = address() else {
            std::thread::sleep(PAUSE);
            continue;
        };
        match Store::connect(&host, port, patience.min(left)) {
            Ok(store) => return Ok((store, host, port)),
            Err(e) => error = Some(e),
        }
        patience = (patience * 2).min(until.limit);
        std::thread::sleep(PAUSE);
    }
    let missing = DistError::MissingRanks { missing: vec![0], world: env.world_size, limit: until.limit };
    Err(match error {
        Some(error) => Stop::Invalid(format!("{missing}: {error}")),
        None => missing.into(),
    })
}
