use expctl_dist::{DistError, GpuBackend, Store};
use expctl_record::{CudaFacts, Environment, Hardware, RankEnv, share_gpus, variables};
use host_metrics::{gpu_topology, hardware};

use crate::device::Placement;

/// Put this rank's hardware and its device into the store; returns those of all ranks, in their order.
pub fn share(store: &Store, env: RankEnv, placement: &Placement) -> Result<Vec<Hardware>, DistError> {
    let device = placement.gpu.as_ref().map(|(gpu, _)| gpu.clone());
    let own = Hardware { device, ..hardware(env.local_rank == 0) };
    store.set(&key(env.rank), &serde_json::to_vec(&own).unwrap_or_default())?;
    let found = (0..env.world_size).map(|rank| store.get(&key(rank)));
    let mut ranks = found
        .map(|text| text.map(|text| serde_json::from_slice(&text).unwrap_or_default()))
        .collect::<Result<Vec<Hardware>, _>>()?;
    share_gpus(&mut ranks);
    Ok(ranks)
}

/// What rank 0 writes down: the hardware of all `ranks`, and what it and the others compute and communicate with.
pub fn of(ranks: Vec<Hardware>, threads: u32, placement: &Placement, gpus: Option<GpuBackend>) -> Environment {
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
        libtorch_version: expctl_dist::libtorch_version(),
        libtorch_file: expctl_dist::libtorch_file(),
        device: if cuda.is_some() { "cuda" } else { "cpu" }.to_owned(),
        backend: backend.to_owned(),
        threads,
        ranks,
        variables: variables(),
        program: None,
        cuda,
    }
}

fn key(rank: u32) -> String {
    format!("hardware/{rank}")
}
