use std::time::{Duration, Instant};

use expctl_dist::{DistError, Store, rendezvous};
use expctl_record::{AttemptDir, RendezvousFile};

use crate::rank_env::RankEnv;

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
/// The address is MASTER_ADDR:MASTER_PORT if both are set. Otherwise rank 0 takes a port from the kernel and publishes
/// it in the attempt's folder, under MASTER_ADDR or its host name.
///
/// # Errors
/// Names the ranks that did not appear within `timeout`.
pub fn connect(
    env: RankEnv,
    attempt: &AttemptDir,
    timeout: Duration,
    lively: Duration,
) -> Result<Connections, DistError> {
    let started = Instant::now();
    let file = RendezvousFile::of(attempt);
    let host = std::env::var("MASTER_ADDR").ok().filter(|h| !h.is_empty());
    let port = std::env::var("MASTER_PORT").ok().and_then(|p| p.parse::<u16>().ok());
    let (step, host, port) = if env.rank == 0 {
        let host = host.unwrap_or_else(hostname);
        let step = Store::serve(&host, port.unwrap_or(0), timeout)?;
        let port = step.port();
        file.publish(&host, port).map_err(|e| refused("publish the address of the store", &e))?;
        (step, host, port)
    } else {
        let (host, port) = match (host, port) {
            (Some(host), Some(port)) => (host, port),
            _ => wait_for(&file, timeout).ok_or_else(|| missing_rank_0(env, timeout))?,
        };
        let left = timeout.saturating_sub(started.elapsed()).max(Duration::from_secs(1));
        let step = Store::connect(&host, port, left).map_err(|_| missing_rank_0(env, timeout))?;
        (step, host, port)
    };
    rendezvous(&step, env.rank, env.world_size, timeout.saturating_sub(started.elapsed()))?;
    let monitor = Store::connect(&host, port, lively)?;
    Ok(Connections { step, monitor })
}

fn wait_for(file: &RendezvousFile, timeout: Duration) -> Option<(String, u16)> {
    let started = Instant::now();
    loop {
        if let Some(address) = file.lookup() {
            return Some(address);
        }
        if started.elapsed() >= timeout {
            return None;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn missing_rank_0(env: RankEnv, limit: Duration) -> DistError {
    DistError::MissingRanks { missing: vec![0], world: env.world_size, limit }
}

fn refused(operation: &str, why: &dyn std::fmt::Display) -> DistError {
    DistError::Torch { operation: operation.to_owned(), message: why.to_string() }
}

fn hostname() -> String {
    nix::unistd::gethostname().map_or_else(|_| "localhost".to_owned(), |h| h.to_string_lossy().into_owned())
}
