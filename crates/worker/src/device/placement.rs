//! The device that a rank computes on, and the backend that reduces gradients on GPUs.

use std::collections::BTreeMap;

use expctl_ledger::{Hardware, RankDevice, RankEnv};
use expctl_settings::{BackendChoice, DeviceChoice, DeviceMasks, Mode, Settings};
use tch::Device;
use torch_dist::{Cuda, CudaError, DistError, GpuBackend, GpuProperties, Nccl, Store};

use crate::device::DeviceError;
use crate::session::ranks_per_node;

/// Why a rank has no device, or the ranks no common backend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    #[error("launch.device is \"cuda\": {0}")]
    CudaUnavailable(CudaError),
    #[error(
        "{ranks} ranks on a node with {visible} visible GPUs: set launch.ranks to at most {visible} a node, or launch.device to \
         \"cpu\""
    )]
    TooFewGpus { ranks: u32, visible: usize },
    #[error("GPU {0} is not there")]
    NoSuchGpu(usize),
    #[error("launch.backend is \"nccl\", but rank {rank} computes on the host: set it to \"gloo\" or \"auto\"")]
    NcclOnHost { rank: usize },
    #[error(
        "rank {gpu_rank} computes on a GPU ({gpu}) and rank {host_rank} on the host: set launch.device to \"cpu\", or to \"cuda\" to \
         learn why rank {host_rank} has none"
    )]
    MixedDevices { gpu_rank: usize, gpu: String, host_rank: usize },
    #[error(
        "ranks {first} and {second} share GPU {index} ({bus}), and NCCL wants one for each: set launch.backend to \"gloo\", or \
         fewer launch.ranks"
    )]
    SharedGpu { first: usize, second: usize, index: u32, bus: String },
    #[error("{}", nccl_reason(.0))]
    NcclUnavailable(CudaError),
    #[error("{0}")]
    Device(#[from] DeviceError),
    #[error("{0}")]
    Dist(#[from] DistError),
}

/// Why NCCL cannot be loaded, with what to do.
fn nccl_reason(error: &CudaError) -> String {
    match error {
        CudaError::WithoutNccl => {
            "this expctl-worker was built without NCCL: set launch.backend = \"gloo\", or build it where nccl.h is"
                .to_owned()
        }
        CudaError::NcclMisfit(_) => {
            format!("{error} (set launch.backend = \"gloo\", or build expctl-worker against that PyTorch)")
        }
        other => other.to_string(),
    }
}

/// The device of a rank.
#[derive(Clone, Debug)]
pub struct Placement {
    /// Device of the model and its steps.
    pub device: Device,
    /// The GPU, and the libraries that were loaded for it; `None` where the device is the host.
    pub gpu: Option<(RankDevice, Cuda)>,
}

impl Placement {
    const HOST: Self = Self { device: Device::Cpu, gpu: None };

    /// Choose the device of the rank `env` of a trial with `settings`, and load the libraries that it needs. To call before the first
    /// tensor.
    ///
    /// # Errors
    /// A GPU was asked for and cannot be used, or the node has fewer GPUs than ranks that want one each.
    pub fn choose(settings: &Settings, env: RankEnv) -> Result<Self, PlacementError> {
        let choice = settings.launch.device;
        if choice == DeviceChoice::Cpu || (choice == DeviceChoice::Auto && !has_gpu_work(settings)) {
            return Ok(Self::HOST);
        }
        let cuda = match Cuda::load() {
            Ok(cuda) => cuda,
            Err(error) if choice == DeviceChoice::Cuda => return Err(PlacementError::CudaUnavailable(error)),
            // Nothing was expected there.
            Err(CudaError::NoDriver(_) | CudaError::NoDevice(_)) => return Ok(Self::HOST),
            Err(error) => {
                tracing::warn!("rank {}: there is a GPU, but it computes on the host: {error}", env.rank);
                return Ok(Self::HOST);
            }
        };
        let node_ranks = ranks_per_node(settings, env);
        let index = gpu_index(cuda.gpus().len(), env.local_rank, node_ranks)?;
        let Some(properties) = cuda.gpus().get(index) else { return Err(PlacementError::NoSuchGpu(index)) };
        let gpu = rank_device(properties);
        cuda.select(gpu.index).map_err(DeviceError::from)?;
        tracing::info!("rank {}: computes on GPU {} ({}, {})", env.rank, gpu.index, gpu.name, gpu.bus);
        Ok(Self { device: Device::Cuda(index), gpu: Some((gpu, cuda)) })
    }

    /// Index of the GPU; `None` where the device is the host.
    pub fn gpu_index(&self) -> Option<u32> {
        self.gpu.as_ref().map(|(gpu, _)| gpu.index)
    }
}

/// Whether the steps of `settings` have any work for a GPU.
fn has_gpu_work(settings: &Settings) -> bool {
    settings.train.mode != Mode::Data || settings.pipeline.device_masks != DeviceMasks::None
}

/// Index of the GPU, of `visible` ones, for the rank with local index `local` of `ranks` on its node. A rank that sees a single GPU got it from
/// its launcher, or shares it.
fn gpu_index(visible: usize, local: u32, ranks: u32) -> Result<usize, PlacementError> {
    match visible {
        1 => Ok(0),
        _ if visible >= ranks as usize => Ok(local as usize),
        _ => Err(PlacementError::TooFewGpus { ranks, visible }),
    }
}

fn rank_device(properties: &GpuProperties) -> RankDevice {
    let GpuProperties { index, name, uuid, bus, memory_bytes, capability } = properties.clone();
    RankDevice { index, name, uuid, bus, memory_bytes, capability }
}

/// Choose the backend for collectives on tensors of GPUs; `None` where all ranks compute on the host. `ranks` lists every rank in rank
/// order, so that all ranks reach the same decision; they exchange through `store` whether each of them can load NCCL.
///
/// # Errors
/// Some ranks have a GPU and others have none; NCCL was asked for, and two ranks share a GPU or it cannot be loaded.
pub fn choose_gpu_backend(
    choice: BackendChoice,
    ranks: &[Hardware],
    rank: u32,
    placement: &Placement,
    store: &Store,
) -> Result<Option<GpuBackend>, PlacementError> {
    let devices: Vec<Option<&RankDevice>> = ranks.iter().map(|rank| rank.device.as_ref()).collect();
    let nccl = wants_nccl(choice, &devices)?;
    if placement.gpu_index().is_none() {
        return Ok(None);
    }
    let backend =
        if nccl { nccl_if_all_load_it(choice, rank, ranks.len(), store, Nccl::load)? } else { GpuBackend::Gloo };
    Ok(Some(backend))
}

/// NCCL, where all of `world` ranks can load it. Where it was not asked for by name and a rank cannot load it, all take Gloo.
fn nccl_if_all_load_it(
    choice: BackendChoice,
    rank: u32,
    world: usize,
    store: &Store,
    load: impl FnOnce() -> Result<Nccl, CudaError>,
) -> Result<GpuBackend, PlacementError> {
    let loaded = load();
    if choice == BackendChoice::Nccl {
        return loaded.map(GpuBackend::Nccl).map_err(PlacementError::NcclUnavailable);
    }
    let failed = first_failure(store, rank, world, loaded.as_ref().err())?;
    match (loaded, failed) {
        (Ok(nccl), None) => Ok(GpuBackend::Nccl(nccl)),
        (_, failed) => {
            if let Some((failed, why)) = failed
                && rank == 0
            {
                tracing::warn!("gradients go through the hosts (Gloo), for rank {failed} cannot load NCCL: {why}");
            }
            Ok(GpuBackend::Gloo)
        }
    }
}

/// Tell all ranks whether this one cannot load NCCL; returns the first rank that cannot, with its reason.
fn first_failure(
    store: &Store,
    rank: u32,
    world: usize,
    error: Option<&CudaError>,
) -> Result<Option<(usize, String)>, DistError> {
    let text = error.map_or_else(|| LOADED.to_owned(), nccl_reason);
    store.set(&nccl_key(rank as usize), text.as_bytes())?;
    for other in 0..world {
        let text = store.get(&nccl_key(other))?;
        if text != LOADED.as_bytes() {
            return Ok(Some((other, String::from_utf8_lossy(&text).into_owned())));
        }
    }
    Ok(None)
}

/// The value in the store of a rank that can load NCCL; any other value is a reason.
const LOADED: &str = "loaded";

fn nccl_key(rank: usize) -> String {
    format!("nccl/{rank}")
}

/// Whether to take NCCL, by the GPU of each rank. A single rank exchanges gradients with nobody: it does without, unless told otherwise.
fn wants_nccl(choice: BackendChoice, devices: &[Option<&RankDevice>]) -> Result<bool, PlacementError> {
    let with: Vec<(usize, &RankDevice)> =
        devices.iter().enumerate().filter_map(|(rank, device)| Some((rank, (*device)?))).collect();
    if let Some(host_rank) = devices.iter().position(Option::is_none) {
        return match with.first() {
            None if choice == BackendChoice::Nccl => Err(PlacementError::NcclOnHost { rank: host_rank }),
            None => Ok(false),
            Some((gpu_rank, gpu)) => {
                Err(PlacementError::MixedDevices { gpu_rank: *gpu_rank, gpu: gpu.name.clone(), host_rank })
            }
        };
    }
    let mut owners = BTreeMap::new();
    for (rank, gpu) in &with {
        if let Some(first) = owners.insert(gpu.uuid.as_str(), *rank) {
            return match choice {
                BackendChoice::Nccl => {
                    Err(PlacementError::SharedGpu { first, second: *rank, index: gpu.index, bus: gpu.bus.clone() })
                }
                BackendChoice::Auto | BackendChoice::Gloo => Ok(false),
            };
        }
    }
    Ok(match choice {
        BackendChoice::Auto => devices.len() > 1,
        BackendChoice::Gloo => false,
        BackendChoice::Nccl => true,
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::{c_char, c_int, c_void};
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_rank_takes_its_own() {
        assert_eq!([0, 1, 3].map(|local| gpu_index(4, local, 4)), [Ok(0), Ok(1), Ok(3)]);
        // Bound by Slurm, or one for all.
        assert_eq!(gpu_index(1, 3, 4), Ok(0));
        assert_eq!(gpu_index(8, 1, 2), Ok(1));
        assert!(gpu_index(2, 2, 3).unwrap_err().to_string().starts_with("3 ranks on a node with 2 visible GPUs"));
    }

    fn gpu(uuid: &str) -> RankDevice {
        RankDevice {
            uuid: uuid.to_owned(),
            name: "NVIDIA H200".to_owned(),
            bus: "0000:19:00.0".to_owned(),
            ..RankDevice::default()
        }
    }

    #[test]
    fn nccl_is_for_ranks_with_a_gpu_each() {
        let (a, b) = (gpu("GPU-a"), gpu("GPU-b"));
        use BackendChoice::{Auto, Gloo, Nccl};
        assert_eq!(wants_nccl(Auto, &[Some(&a), Some(&b)]), Ok(true));
        assert_eq!(wants_nccl(Gloo, &[Some(&a), Some(&b)]), Ok(false));
        assert_eq!(wants_nccl(Auto, &[Some(&a), Some(&a)]), Ok(false));
        assert_eq!(wants_nccl(Auto, &[None, None]), Ok(false));
        assert_eq!([Auto, Gloo, Nccl].map(|choice| wants_nccl(choice, &[Some(&a)])), [Ok(false), Ok(false), Ok(true)]);
        let shared = wants_nccl(Nccl, &[Some(&a), Some(&b), Some(&a)]).unwrap_err().to_string();
        assert!(shared.starts_with("ranks 0 and 2 share GPU 0 (0000:19:00.0)"), "{shared}");
        let mixed = wants_nccl(Auto, &[Some(&a), None]).unwrap_err().to_string();
        assert!(mixed.starts_with("rank 0 computes on a GPU (NVIDIA H200) and rank 1 on the host"), "{mixed}");
        assert!(wants_nccl(Nccl, &[None]).unwrap_err().to_string().contains("rank 0 computes on the host"));
    }

    fn missing() -> Result<Nccl, CudaError> {
        Err(CudaError::WithoutNccl)
    }

    #[test]
    fn nccl_by_name_is_an_error_where_it_cannot_be_loaded() {
        let store = Store::in_process(Duration::from_secs(5)).unwrap();
        let error = nccl_if_all_load_it(BackendChoice::Nccl, 0, 1, &store, missing).unwrap_err();
        assert!(error.to_string().contains("was built without NCCL"), "{error}");
    }

    /// Each rank loads it for itself; that one of them cannot has to reach those that can.
    #[test]
    fn where_one_rank_cannot_load_nccl_all_take_gloo() {
        let limit = Duration::from_secs(30);
        let store = Store::serve("127.0.0.1", 0, limit).unwrap();
        let peer = Store::connect("127.0.0.1", store.port(), limit).unwrap();
        // SAFETY: it is never called.
        let there = || Ok(unsafe { Nccl::stand_in(uncalled) });
        let (mine, theirs) = std::thread::scope(|scope| {
            let theirs = scope.spawn(|| {
                nccl_if_all_load_it(BackendChoice::Auto, 1, 2, &peer, missing).map_err(|stop| stop.to_string())
            });
            (nccl_if_all_load_it(BackendChoice::Auto, 0, 2, &store, there), theirs.join().unwrap())
        });
        assert!(matches!((mine, theirs), (Ok(GpuBackend::Gloo), Ok(GpuBackend::Gloo))));
        assert_eq!(store.get("nccl/0").unwrap(), LOADED.as_bytes());
        assert_eq!(store.get("nccl/1").unwrap(), nccl_reason(&CudaError::WithoutNccl).as_bytes());
    }

    #[test]
    fn where_all_ranks_load_nccl_all_take_it() {
        let store = Store::in_process(Duration::from_secs(5)).unwrap();
        store.set("nccl/1", LOADED.as_bytes()).unwrap();
        // SAFETY: it is never called.
        let there = || Ok(unsafe { Nccl::stand_in(uncalled) });
        let backend = nccl_if_all_load_it(BackendChoice::Auto, 0, 2, &store, there);
        assert!(matches!(backend, Ok(GpuBackend::Nccl(_))));
    }

    unsafe extern "C" fn uncalled(
        _: *const c_void,
        _: c_int,
        _: c_int,
        _: i64,
        _: *mut *mut c_void,
        _: *mut c_char,
        _: usize,
    ) -> c_int {
        1
    }
}
