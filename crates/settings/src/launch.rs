//! What ranks compute on, what they exchange gradients with, and as which numbers these are sent.

use serde::{Deserialize, Serialize};

/// What the ranks compute on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceChoice {
    /// A GPU where there is one that libtorch can use, else the host.
    #[default]
    Auto,
    /// The host.
    Cpu,
    /// A GPU; without one that libtorch can use the trial fails.
    Cuda,
}

impl DeviceChoice {
    /// The word used in configs and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
        }
    }
}

/// What the ranks exchange tensors with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackendChoice {
    /// NCCL where each of several ranks has a GPU of its own, else Gloo.
    #[default]
    Auto,
    /// Gloo, over TCP.
    Gloo,
    /// NCCL, between GPUs.
    Nccl,
}

impl BackendChoice {
    /// The word used in configs and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Gloo => "gloo",
            Self::Nccl => "nccl",
        }
    }
}

/// Numbers that gradients are sent between ranks as: each bucket is converted, reduced and converted back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GradientCompression {
    /// As they are, float32.
    #[default]
    None,
    /// float16: half the bytes, 11 significant bits, at most 65,504.
    Fp16,
    /// bfloat16: half the bytes, 8 significant bits, the range of float32.
    Bf16,
}

impl GradientCompression {
    /// The word used in configs and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Fp16 => "fp16",
            Self::Bf16 => "bf16",
        }
    }
}
