use anndata_io::AnnDataError;
use cell_loader::CellError;
use expctl_datasets::DatasetError;
use expctl_dist::DistError;
use expctl_record::RecordError;
use graph_loader::GraphError;

use crate::device::DeviceError;
use crate::device_masks::DeviceMaskError;
use crate::monitor::Loss;
use crate::trainer::TrainError;

/// Why a rank ended before its last step.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Stop {
    #[error("{0}")]
    Data(#[from] DatasetError),
    #[error("{0}")]
    Dist(#[from] DistError),
    #[error("{0}")]
    Device(#[from] DeviceError),
    #[error("{0}")]
    Record(#[from] RecordError),
    #[error("{0}")]
    Masks(#[from] DeviceMaskError),
    #[error("{0}")]
    Train(TrainError),
    #[error("a defect of the worker or an error inside libtorch: {0}")]
    Panicked(String),
    #[error("this attempt was run before: {0} exists")]
    Used(String),
    #[error("{0}")]
    Invalid(String),
    #[error("{}", .0.message)]
    PeerLost(Loss),
    #[error("{0}")]
    Stuck(String),
    #[error("stopped on request")]
    Interrupted,
    #[error("this attempt was closed while the rank was out of reach; another one may run")]
    Closed,
}

impl From<GraphError> for Stop {
    fn from(error: GraphError) -> Self {
        Self::Data(error.into())
    }
}

impl From<CellError> for Stop {
    fn from(error: CellError) -> Self {
        Self::Data(error.into())
    }
}

impl From<AnnDataError> for Stop {
    fn from(error: AnnDataError) -> Self {
        Self::Data(error.into())
    }
}

impl From<TrainError> for Stop {
    fn from(error: TrainError) -> Self {
        match error {
            // A collective that failed is mostly a lost peer.
            TrainError::Dist(error) => Self::Dist(error),
            TrainError::Device(error) => Self::Device(error),
            other => Self::Train(other),
        }
    }
}

impl Stop {
    /// The fault lies with this rank.
    pub(crate) fn is_own_failure(&self) -> bool {
        !matches!(self, Self::PeerLost(_) | Self::Interrupted | Self::Closed)
    }

    /// The ledger cannot be written to.
    pub(crate) fn is_storage(&self) -> bool {
        matches!(self, Self::Record(error) if error.is_storage())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_device_is_no_sign_of_a_lost_peer() {
        let error = || DistError::from_tch("copy a batch to the device", &tch::TchError::Shape("too large".to_owned()));
        let alone = Stop::from(TrainError::Device(DeviceError::from(error())));
        assert!(matches!(alone, Stop::Device(_)) && alone.is_own_failure());
        assert!(alone.to_string().starts_with("copy a batch to the device: "), "{alone}");
        assert!(matches!(Stop::from(TrainError::Dist(error())), Stop::Dist(_)));
    }
}
