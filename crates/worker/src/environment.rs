//! The hardware and the libraries that a trial runs with.

use expctl_ledger::{CudaFacts, Environment, Hardware, RankEnv, share_gpus, variables};
use host_metrics::{gpu_topology, hardware};
use torch_dist::{DistError, GpuBackend, Store, libtorch_file, libtorch_version};

use crate::device::Placement;

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
