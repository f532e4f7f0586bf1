//! A rank and its peers: how it finds them (rank 0 serves the store, the others look its address up), what all ranks tell each other about
//! their hardware, and the connections that the steps use.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use expctl_ledger::{
    AttemptDir, CudaFacts, Environment, Hardware, LastWords, RankEnv, RendezvousAddress, RendezvousFile,
    rendezvous_address, share_gpus, variables,
};
use expctl_settings::{Settings, Trial};
use host_metrics::{MetricsRecorder, gpu_topology, hardware};
use torch_dist::{DistError, GpuBackend, ProcessGroup, Store, libtorch_file, libtorch_version, rendezvous_until};

use crate::activity::Activity;
use crate::device::Placement;
use crate::error::RankError;
use crate::monitor::Monitor;

/// Flags that signals to the process set.
#[derive(Clone, Debug, Default)]
pub struct Signals {
    /// End at the next step (TERM, INT).
    pub stop: Arc<AtomicBool>,
    /// Write a checkpoint and go on (USR1).
    pub checkpoint: Arc<AtomicBool>,
}

/// Ranks that share a node with this one, itself included.
pub fn ranks_per_node(settings: &Settings, env: RankEnv) -> u32 {
    (env.world_size / settings.launch.nodes.max(1)).max(1)
}

/// A rank that is connected to its peers: its trial, its records, and its connections.
#[derive(Clone, Copy)]
pub struct Session<'a> {
    pub attempt: &'a AttemptDir,
    pub trial: &'a Trial,
    pub env: RankEnv,
    pub stop: &'a AtomicBool,
    pub last_words: &'a LastWords,
    pub activity: &'a Activity,
    pub store: &'a Store,
    pub monitor: &'a Monitor,
    pub group: &'a ProcessGroup,
    /// `None` where no hardware metrics are taken.
    pub metrics: Option<&'a MetricsRecorder>,
}

impl<'a> Session<'a> {
    /// The settings of the trial.
    pub fn settings(&self) -> &'a Settings {
        &self.trial.settings
    }

    /// Whether this process was asked to stop.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

/// Time limit of the first try to reach the store, after which its address is looked up again. Each further try has twice the limit: on
/// a busy machine or network only the time limit of all tries counts.
const FIRST_TRY: Duration = Duration::from_secs(5);
/// Between two tries.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Two connections to the store of an attempt.
#[derive(Debug)]
pub struct RankStores {
    /// For the step and its collectives.
    pub step: Store,
    /// For the monitor; its calls never wait behind those of the step.
    pub monitor: Store,
}

/// Find the other ranks: rank 0 serves the store, the others look its address up.
///
/// The address is MASTER_ADDR:MASTER_PORT, if both are set. Otherwise rank 0 takes a port from the kernel and publishes it in the
/// attempt's folder. A single rank has a store of its own and needs neither.
///
/// `timeout` limits the whole rendezvous, `monitor_timeout` each later call of the monitor.
///
/// # Errors
/// Ranks did not appear within `timeout` (they are named); the store cannot be served or reached; the process was asked to stop.
pub fn connect(
    env: RankEnv,
    attempt: &AttemptDir,
    timeout: Duration,
    monitor_timeout: Duration,
    stop: &AtomicBool,
) -> Result<RankStores, RankError> {
    let deadline = Deadline { limit: timeout, end: Instant::now() + timeout };
    let master = master_address()?;
    if env.world_size == 1 {
        let step = Store::in_process(timeout)?;
        let monitor = step.another_handle();
        return Ok(RankStores { step, monitor });
    }
    let file = RendezvousFile::new(attempt);
    let (step, host, port) = if env.rank == 0 {
        // The address of an earlier start leads nowhere.
        file.clear();
        let (step, host) = match master {
            Some((host, port)) => (Store::serve(&host, port, timeout)?, host),
            None => serve_on_any_port(env, timeout)?,
        };
        let port = step.port();
        file.publish(&host, port)?;
        (step, host, port)
    } else {
        connect_until(env, || master.clone().or_else(|| file.lookup()), deadline, stop)?
    };
    step.set_timeout(timeout);
    // In front of the rendezvous: a rank that announced itself has both connections.
    let (monitor, ..) = connect_until(env, || Some((host.clone(), port)), deadline, stop)?;
    monitor.set_timeout(monitor_timeout);
    rendezvous_until(&step, env.rank, env.world_size, deadline.end, timeout)?;
    Ok(RankStores { step, monitor })
}

/// A time limit, and when it ends.
#[derive(Clone, Copy)]
struct Deadline {
    limit: Duration,
    end: Instant,
}

/// MASTER_ADDR and MASTER_PORT, where both are set.
fn master_address() -> Result<Option<(String, u16)>, RankError> {
    let variable = |name| std::env::var(name).ok().filter(|v| !v.is_empty());
    match (variable("MASTER_ADDR"), variable("MASTER_PORT")) {
        (Some(host), Some(port)) => match port.parse() {
            Ok(port) => Ok(Some((host, port))),
            Err(_) => Err(RankError::MasterPort(port)),
        },
        _ => Ok(None),
    }
}

/// Serve the store on a port that the kernel chooses; returns it with the host to publish.
fn serve_on_any_port(env: RankEnv, timeout: Duration) -> Result<(Store, String), DistError> {
    match rendezvous_address(env) {
        RendezvousAddress::Only(address) => Ok((Store::serve_on(address, 0, timeout)?, address.to_string())),
        RendezvousAddress::All(host) => Ok((Store::serve(&host, 0, timeout)?, host)),
    }
}

/// Try until the store answers. The address is read anew for each try, because a published one may be of an earlier start.
fn connect_until(
    env: RankEnv,
    address: impl Fn() -> Option<(String, u16)>,
    deadline: Deadline,
    stop: &AtomicBool,
) -> Result<(Store, String, u16), RankError> {
    let (mut last_error, mut limit) = (None, FIRST_TRY);
    loop {
        if stop.load(Ordering::SeqCst) {
            return Err(RankError::Interrupted);
        }
        let remaining = deadline.end.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            break;
        }
        let Some((host, port)) = address() else {
            std::thread::sleep(RETRY_INTERVAL);
            continue;
        };
        match Store::connect(&host, port, limit.min(remaining)) {
            Ok(store) => return Ok((store, host, port)),
            Err(e) => last_error = Some(e),
        }
        limit = (limit * 2).min(deadline.limit);
        std::thread::sleep(RETRY_INTERVAL);
    }
    let missing = DistError::MissingRanks { missing: vec![0], world: env.world_size, limit: deadline.limit };
    Err(match last_error {
        Some(last) => RankError::StoreUnreachable { missing, last: Box::new(last) },
        None => missing.into(),
    })
}

/// Exchange the hardware and the devices of all ranks through the store; returns them in rank order.
///
/// # Errors
/// The store does not answer, or a rank is missing.
pub fn exchange_hardware(store: &Store, env: RankEnv, placement: &Placement) -> Result<Vec<Hardware>, DistError> {
    let device = placement.gpu.as_ref().map(|(gpu, _)| gpu.clone());
    let own = Hardware { device, ..hardware(env.local_rank == 0) };
    store.set(&hardware_key(env.rank), &serde_json::to_vec(&own).unwrap_or_default())?;
    let texts = (0..env.world_size).map(|rank| store.get(&hardware_key(rank)));
    let mut ranks = texts
        .map(|text| text.map(|text| serde_json::from_slice(&text).unwrap_or_default()))
        .collect::<Result<Vec<Hardware>, _>>()?;
    share_gpus(&mut ranks);
    Ok(ranks)
}

/// The environment that rank 0 records: the hardware of all `ranks`, and the libraries that they compute and communicate with.
pub fn describe_environment(
    ranks: Vec<Hardware>,
    threads: u32,
    placement: &Placement,
    gpus: Option<GpuBackend>,
) -> Environment {
    let (backend, nccl) = match gpus {
        Some(GpuBackend::Nccl(nccl)) => ("nccl", nccl.version()),
        Some(GpuBackend::Gloo) | None => ("gloo", String::new()),
    };
    let cuda = placement.gpu.as_ref().map(|(_, cuda)| CudaFacts {
        driver: cuda.versions().driver.clone(),
        runtime: cuda.versions().runtime.clone(),
        library: cuda.versions().library.display().to_string(),
        nccl,
        topology: gpu_topology(),
    });
    Environment {
        worker_version: env!("CARGO_PKG_VERSION").to_owned(),
        libtorch_version: libtorch_version(),
        libtorch_file: libtorch_file(),
        device: if cuda.is_some() { "cuda" } else { "cpu" }.to_owned(),
        backend: backend.to_owned(),
        threads,
        ranks,
        variables: variables(),
        program: None,
        cuda,
    }
}

fn hardware_key(rank: u32) -> String {
    format!("hardware/{rank}")
}
