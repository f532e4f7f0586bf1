use std::collections::BTreeMap;

use expctl_dist::{CudaError, DistError, GpuBackend, Nccl, Store};
use expctl_record::{BackendChoice, Hardware, RankDevice};

use super::Placement;
use crate::stop::Stop;

/// What tensors of GPUs come together with; none where all ranks compute on the host. `ranks` are those of all ranks, in their order, and
/// what cannot be known from them the ranks tell each other through `store`, so that all come to the same.
///
/// # Errors
/// Some ranks have a GPU and others have none; NCCL was asked for, and two ranks share a GPU or it cannot be loaded.
pub(crate) fn agree(
    choice: BackendChoice,
    ranks: &[Hardware],
    rank: u32,
    placement: &Placement,
    store: &Store,
) -> Result<Option<GpuBackend>, Stop> {
    let devices: Vec<Option<&RankDevice>> = ranks.iter().map(|rank| rank.device.as_ref()).collect();
    let nccl = wants_nccl(choice, &devices).map_err(Stop::Invalid)?;
    if placement.gpu_index().is_none() {
        return Ok(None);
    }
    let backend =
        if nccl { nccl_if_all_load_it(choice, rank, ranks.len(), store, Nccl::load)? } else { GpuBackend::Gloo };
    Ok(Some(backend))
}

/// NCCL, where all of `world` ranks can load it. Where it was not asked for by name and one of them cannot, all take Gloo.
fn nccl_if_all_load_it(
    choice: BackendChoice,
    rank: u32,
    world: usize,
    store: &Store,
    load: impl FnOnce() -> Result<Nccl, CudaError>,
) -> Result<GpuBackend, Stop> {
    let loaded = load();
    if choice == BackendChoice::Nccl {
        return match loaded {
            Ok(nccl) => Ok(GpuBackend::Nccl(nccl)),
            Err(why) => Err(Stop::Invalid(why.to_string())),
        };
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

/// Tell all ranks whether this one cannot load NCCL; returns the first that cannot, with its reason.
fn first_failure(
    store: &Store,
    rank: u32,
    world: usize,
    own: Option<&CudaError>,
) -> Result<Option<(usize, String)>, DistError> {
    let text = own.map_or_else(|| LOADED.to_owned(), CudaError::to_string);
    store.set(&nccl_key(rank as usize), text.as_bytes())?;
    for other in 0..world {
        let text = store.get(&nccl_key(other))?;
        if text != LOADED.as_bytes() {
            return Ok(Some((other, String::from_utf8_lossy(&text).into_owned())));
        }
    }
    Ok(None)
}

/// What a rank that can load NCCL says in the place of a reason.
const LOADED: &str = "loaded";

fn nccl_key(rank: usize) -> String {
    format!("nccl/{rank}")
}

/// Whether it is NCCL, by the GPU of each rank. One rank alone has nobody to exchange gradients with: it does without, unless told otherwise.
fn wants_nccl(choice: BackendChoice, devices: &[Option<&RankDevice>]) -> Result<bool, String> {
    let with: Vec<(usize, &RankDevice)> =
        devices.iter().enumerate().filter_map(|(rank, device)| Some((rank, (*device)?))).collect();
    if let Some(without) = devices.iter().position(Option::is_none) {
        return match with.first() {
            None if choice == BackendChoice::Nccl => Err(format!(
                "launch.backend is \"nccl\", but rank {without} computes on the host: set it to \"gloo\" or \"auto\""
            )),
            None => Ok(false),
            Some((rank, gpu)) => Err(format!(
                "rank {rank} computes on a GPU ({}) and rank {without} on the host: set launch.device to \"cpu\", or to \"cuda\" to \
                 learn why rank {without} has none",
                gpu.name
            )),
        };
    }
    let mut owners = BTreeMap::new();
    for (rank, gpu) in &with {
        if let Some(first) = owners.insert(gpu.uuid.as_str(), *rank) {
            return match choice {
                BackendChoice::Nccl => Err(format!(
                    "ranks {first} and {rank} share GPU {} ({}), and NCCL wants one for each: set launch.backend to \"gloo\", or \
                     fewer launch.ranks",
                    gpu.index, gpu.bus
                )),
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
        let shared = wants_nccl(Nccl, &[Some(&a), Some(&b), Some(&a)]).unwrap_err();
        assert!(shared.starts_with("ranks 0 and 2 share GPU 0 (0000:19:00.0)"), "{shared}");
        let mixed = wants_nccl(Auto, &[Some(&a), None]).unwrap_err();
        assert!(mixed.starts_with("rank 0 computes on a GPU (NVIDIA H200) and rank 1 on the host"), "{mixed}");
        assert!(wants_nccl(Nccl, &[None]).unwrap_err().contains("rank 0 computes on the host"));
    }

    fn missing() -> Result<Nccl, CudaError> {
        Err(CudaError::WithoutNccl)
    }

    #[test]
    fn nccl_by_name_is_an_error_where_it_cannot_be_loaded() {
        let store = Store::alone(Duration::from_secs(5)).unwrap();
        let error = nccl_if_all_load_it(BackendChoice::Nccl, 0, 1, &store, missing).unwrap_err();
        assert!(matches!(&error, Stop::Invalid(why) if why.contains("was built without NCCL")), "{error}");
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
        assert_eq!(store.get("nccl/1").unwrap(), CudaError::WithoutNccl.to_string().as_bytes());
    }

    #[test]
    fn where_all_ranks_load_nccl_all_take_it() {
        let store = Store::alone(Duration::from_secs(5)).unwrap();
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
