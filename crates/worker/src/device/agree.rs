use std::collections::BTreeMap;

use expctl_dist::{GpuBackend, Nccl};
use expctl_record::{BackendChoice, Hardware, RankDevice};

use super::Placement;
use crate::stop::Stop;

/// What tensors of GPUs come together with; none where all ranks compute on the host. `ranks` are those of all ranks, in their order, so
/// that all come to the same.
///
/// # Errors
/// Some ranks have a GPU and others have none; NCCL was asked for, and two ranks share a GPU or it cannot be loaded.
pub(crate) fn agree(
    choice: BackendChoice,
    ranks: &[Hardware],
    placement: &Placement,
) -> Result<Option<GpuBackend>, Stop> {
    let devices: Vec<Option<&RankDevice>> = ranks.iter().map(|rank| rank.device.as_ref()).collect();
    let nccl = wants_nccl(choice, &devices).map_err(Stop::Invalid)?;
    let Some(index) = placement.gpu_index() else { return Ok(None) };
    if !nccl {
        return Ok(Some(GpuBackend::Gloo));
    }
    match Nccl::load() {
        Ok(nccl) => Ok(Some(GpuBackend::Nccl(nccl, index))),
        Err(why) => Err(Stop::Invalid(why.to_string())),
    }
}

/// Whether it is NCCL, by the GPU of each rank.
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
    Ok(choice != BackendChoice::Gloo)
}

#[cfg(test)]
mod tests {
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
        let shared = wants_nccl(Nccl, &[Some(&a), Some(&b), Some(&a)]).unwrap_err();
        assert!(shared.starts_with("ranks 0 and 2 share GPU 0 (0000:19:00.0)"), "{shared}");
        let mixed = wants_nccl(Auto, &[Some(&a), None]).unwrap_err();
        assert!(mixed.starts_with("rank 0 computes on a GPU (NVIDIA H200) and rank 1 on the host"), "{mixed}");
        assert!(wants_nccl(Nccl, &[None]).unwrap_err().contains("rank 0 computes on the host"));
    }
}
