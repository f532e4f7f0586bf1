use expctl_dist::DistError;
use tch::TchError;

/// An operation of this rank alone failed: one of its device, or one of libtorch on it. No other rank took part, so nothing is said
/// about whether they are still there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct DeviceError(#[from] DistError);

impl DeviceError {
    /// An error of tch, with the operation named.
    pub(crate) fn from_tch(operation: &str, error: &TchError) -> Self {
        Self(DistError::from_tch(operation, error))
    }
}
