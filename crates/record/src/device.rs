use serde::{Deserialize, Serialize};

/// The GPU that a rank computes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankDevice {
    /// Its number among those that the rank's process sees, from 0.
    pub index: u32,
    /// Model.
    pub name: String,
    /// The driver's name of this very GPU, `GPU-…`.
    #[serde(default)]
    pub uuid: String,
    /// Place on the bus, in the driver's words.
    #[serde(default)]
    pub bus: String,
    /// Its memory, bytes.
    pub memory_bytes: u64,
    /// Compute capability, `9.0`.
    #[serde(default)]
    pub capability: String,
}

/// CUDA as the ranks of an attempt used it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CudaFacts {
    /// Newest version of CUDA that the driver supports, `13.0`. The driver's own version is a node's: `gpu_driver` of its hardware.
    pub driver: String,
    /// Version of the CUDA runtime that libtorch was built with, `12.8`.
    pub runtime: String,
    /// The file that libtorch's CUDA part was loaded from.
    #[serde(default)]
    pub library: String,
    /// Version of NCCL, `2.28.9`; empty where it was not used.
    #[serde(default)]
    pub nccl: String,
    /// How the GPUs of the node of rank 0 are connected, a line per pair: `GPU 0 - GPU 1: NVLink x18`.
    #[serde(default)]
    pub topology: Vec<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Environment, Hardware, PerStage, Stage, StepRecord};

    #[test]
    fn what_ranks_on_the_host_write_says_nothing_of_devices() {
        let environment = Environment { ranks: vec![Hardware::default()], ..Environment::default() };
        let written = serde_json::to_value(&environment).unwrap();
        assert!(written.get("cuda").is_none() && written["ranks"][0].get("device").is_none(), "{written}");
        let step = serde_json::to_value(StepRecord::default()).unwrap();
        assert!(step.get("device").is_none(), "{step}");
        assert_eq!(serde_json::from_value::<StepRecord>(step).unwrap(), StepRecord::default());
    }

    #[test]
    fn gpus_of_ranks_are_read_as_they_are_written() {
        let device =
            RankDevice { index: 1, name: "NVIDIA H100".into(), memory_bytes: 85 << 30, ..RankDevice::default() };
        let cuda = CudaFacts {
            driver: "13.0".into(),
            runtime: "12.8".into(),
            topology: vec!["GPU 0 - GPU 1: NVLink x18".into()],
            ..CudaFacts::default()
        };
        let rank = Hardware { device: Some(device), ..Hardware::default() };
        let environment = Environment { ranks: vec![rank], cuda: Some(cuda), ..Environment::default() };
        let written = serde_json::to_value(&environment).unwrap();
        assert_eq!(written["ranks"][0]["device"]["index"], json!(1));
        assert_eq!(written["cuda"]["topology"], json!(["GPU 0 - GPU 1: NVLink x18"]));
        assert_eq!(serde_json::from_value::<Environment>(written).unwrap(), environment);
        let mut times = PerStage::<u64>::default();
        times[Stage::Backward] = 12;
        let step = StepRecord { device: Some(times), ..StepRecord::default() };
        let line = serde_json::to_string(&step).unwrap();
        assert_eq!(serde_json::from_str::<StepRecord>(&line).unwrap(), step);
    }
}
