use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use expctl_dist::{DistError, Store, rendezvous_until};
use expctl_record::{AttemptDir, RendezvousFile};

use crate::meeting_place::serve;
use crate::rank_env::RankEnv;
use crate::stop::Stop;

/// How long one try to reach the store may take before its address is looked up again.
const TRY: Duration = Duration::from_secs(5);

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
/// in the attempt's folder.
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
    let started = Instant::now();
    let file = RendezvousFile::of(attempt);
    let master = master()?;
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
        reach(env, &file, master.as_ref(), timeout, stop)?
    };
    rendezvous_until(&step, env.rank, env.world_size, started + timeout, timeout)?;
    let monitor = Store::connect(&host, port, lively)?;
    Ok(Connections { step, monitor })
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
    file: &RendezvousFile,
    master: Option<&(String, u16)>,
    timeout: Duration,
    stop: &AtomicBool,
) -> Result<(Store, String, u16), Stop> {
    let started = Instant::now();
    let mut error = None;
    while started.elapsed() < timeout {
        if stop.load(Ordering::SeqCst) {
            return Err(Stop::Interrupted);
        }
        let Some((host, port)) = master.cloned().or_else(|| file.lookup()) else {
            std::thread::sleep(Duration::from_millis(50));
            continue;
        };
        // A short look first: the connection that is kept has the full time limit for its later calls.
        match Store::connect(&host, port, TRY.min(timeout)) {
            Ok(_) => return Ok((Store::connect(&host, port, timeout)?, host, port)),
            Err(e) => error = Some(e),
        }
    }
    let missing = DistError::MissingRanks { missing: vec![0], world: env.world_size, limit: timeout };
    Err(match error {
        Some(error) => Stop::Invalid(format!("{missing}: {error}")),
        None => missing.into(),
    })
}
