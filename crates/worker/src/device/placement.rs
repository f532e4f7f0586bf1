use expctl_dist::{Cuda, CudaError, GpuFacts};
use expctl_record::{DeviceChoice, DeviceMasks, Mode, RankDevice, RankEnv, Settings};
use tch::Device;

use super::DeviceError;
use crate::stop::Stop;

/// The device of a rank.
#[derive(Clone, Debug)]
pub(crate) struct Placement {
    /// Where the model is and steps are computed.
    pub device: Device,
    /// The GPU, and what was loaded for it; none where the device is the host.
    pub gpu: Option<(RankDevice, Cuda)>,
}

impl Placement {
    const HOST: Self = Self { device: Device::Cpu, gpu: None };

    /// Settle the device of the rank `env` of a trial with `settings`, and load what it needs. To call before the first tensor.
    ///
    /// # Errors
    /// A GPU was asked for and cannot be used, or the node has fewer GPUs than ranks that want one each.
    pub fn settle(settings: &Settings, env: RankEnv) -> Result<Self, Stop> {
        let choice = settings.launch.device;
        if choice == DeviceChoice::Cpu || (choice == DeviceChoice::Auto && !profits(settings)) {
            return Ok(Self::HOST);
        }
        let cuda = match Cuda::load() {
            Ok(cuda) => cuda,
            Err(why) if choice == DeviceChoice::Cuda => {
                return Err(Stop::Invalid(format!("launch.device is \"cuda\": {why}")));
            }
            // Nothing was expected there.
            Err(CudaError::NoDriver(_) | CudaError::NoDevice(_)) => return Ok(Self::HOST),
            Err(why) => {
                tracing::warn!("rank {}: there is a GPU, but it computes on the host: {why}", env.rank);
                return Ok(Self::HOST);
            }
        };
        let ranks_here = (env.world_size / settings.launch.nodes.max(1)).max(1);
        let index = index_of(cuda.gpus().len(), env.local_rank, ranks_here).map_err(Stop::Invalid)?;
        let Some(facts) = cuda.gpus().get(index) else {
            return Err(Stop::Invalid(format!("GPU {index} is not there")));
        };
        let gpu = described(facts);
        cuda.choose(gpu.index).map_err(DeviceError::from)?;
        tracing::info!("rank {}: computes on GPU {} ({}, {})", env.rank, gpu.index, gpu.name, gpu.bus);
        Ok(Self { device: Device::Cuda(index), gpu: Some((gpu, cuda)) })
    }

    /// Number of the GPU; none where the device is the host.
    pub fn gpu_index(&self) -> Option<u32> {
        self.gpu.as_ref().map(|(gpu, _)| gpu.index)
    }
}

/// Whether there is anything in the steps of `settings` for a GPU.
fn profits(settings: &Settings) -> bool {
    settings.train.mode != Mode::Data || settings.pipeline.device_masks != DeviceMasks::None
}

/// Which of the `visible` GPUs the rank with number `local` of `ranks` on its node takes. One that sees a single GPU was given it by its
/// launcher, or shares it.
fn index_of(visible: usize, local: u32, ranks: u32) -> Result<usize, String> {
    match visible {
        1 => Ok(0),
        _ if visible >= ranks as usize => Ok(local as usize),
        _ => Err(format!(
            "{ranks} ranks on a node with {visible} visible GPUs: set launch.ranks to at most {visible} a node, or launch.device to \
             \"cpu\""
        )),
    }
}

fn described(facts: &GpuFacts) -> RankDevice {
    let GpuFacts { index, name, uuid, bus, memory_bytes, capability } = facts.clone();
    RankDevice { index, name, uuid, bus, memory_bytes, capability }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rank_takes_its_own() {
        assert_eq!([0, 1, 3].map(|local| index_of(4, local, 4)), [Ok(0), Ok(1), Ok(3)]);
        // Bound by Slurm, or one for all.
        assert_eq!(index_of(1, 3, 4), Ok(0));
        assert_eq!(index_of(8, 1, 2), Ok(1));
        assert!(index_of(2, 2, 3).unwrap_err().starts_with("3 ranks on a node with 2 visible GPUs"));
    }
}
