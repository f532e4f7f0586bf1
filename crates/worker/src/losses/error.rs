use expctl_dist::DistError;

/// Why a loss cannot be computed.
#[derive(Debug, thiserror::Error)]
pub enum LossError {
    /// A collective failed.
    #[error("{0}")]
    Dist(#[from] DistError),
    /// An operation of libtorch failed.
    #[error("loss: {0}")]
    Torch(#[from] tch::TchError),
}
