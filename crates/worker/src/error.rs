//! Why a rank ends before its last step.

use std::path::PathBuf;

use anndata_io::AnnDataError;
use cell_loader::CellError;
use expctl_datasets::DatasetError;
use expctl_ledger::LedgerError;
use graph_loader::GraphError;
use torch_dist::DistError;

use crate::device::{DeviceError, PlacementError};
use crate::device_masks::DeviceMaskError;
use crate::monitor::LostRank;
use crate::profile::TraceError;
use crate::state::StateError;
use crate::trainer::{ADVICE, TrainError};

/// Why a rank ended before its last step.
#[derive(Debug, thiserror::Error)]
pub enum RankError {
    #[error("{0}")]
    Data(#[from] DatasetError),
    /// A call to the store or a collective failed: mostly a peer is gone.
    #[error("{0}")]
    Dist(#[from] DistError),
    #[error("{0}")]
    Device(#[from] DeviceError),
    #[error("{0}")]
    Placement(PlacementError),
    #[error("{0}")]
    Record(#[from] LedgerError),
    #[error("{0}")]
    Masks(#[from] DeviceMaskError),
    #[error("{0}")]
    Train(TrainError),
    #[error("{0}")]
    State(#[from] StateError),
    #[error("a defect of the worker or an error inside libtorch: {0}")]
    Panicked(String),
    #[error("this attempt was run before: {} exists", .0.display())]
    AttemptUsed(PathBuf),
    #[error("MASTER_PORT={0} is not a port")]
    MasterPort(String),
    /// Rank 0's store did not answer in time; `last` is the error of the last try.
    #[error("{missing}: {last}")]
    StoreUnreachable { missing: DistError, last: Box<DistError> },
    #[error("cannot start the monitor: {0}")]
    MonitorThread(std::io::Error),
    #[error("{samples} selected samples do not fill a batch of {batch} on each of {ranks} ranks")]
    TooFewSamples { samples: u64, batch: u64, ranks: u32 },
    #[error("the split `val` has no samples to validate on: set train.validate_every to 0, or more samples")]
    EmptyValidationSplit,
    #[error("rows of an array have no split to validate on: set train.validate_every to 0")]
    NoValidationSplit,
    #[error("{steps} steps are not {epochs} epochs of {batches}")]
    NotWholeEpochs { steps: u64, epochs: u64, batches: u64 },
    #[error("no batch for step {0}")]
    NoBatch(u64),
    #[error("the loss of step {step} is {loss}. {ADVICE}")]
    LossNotFinite { step: u64, loss: f64 },
    #[error("the validation loss of epoch {epoch} is {loss}. {ADVICE}")]
    ValidationLossNotFinite { epoch: u64, loss: f64 },
    #[error("the profiler's trace cannot be kept: {0}")]
    TraceUnreadable(#[from] TraceError),
    #[error("the profiler's trace cannot be packed: {0}")]
    TraceUnpacked(std::io::Error),
    #[error("{}", .0.message)]
    PeerLost(LostRank),
    #[error("{0}")]
    Stuck(String),
    #[error("stopped on request")]
    Interrupted,
    #[error("this attempt was closed while the rank was out of reach; another one may run")]
    Closed,
}

impl From<GraphError> for RankError {
    fn from(error: GraphError) -> Self {
        Self::Data(error.into())
    }
}

impl From<CellError> for RankError {
    fn from(error: CellError) -> Self {
        Self::Data(error.into())
    }
}

impl From<AnnDataError> for RankError {
    fn from(error: AnnDataError) -> Self {
        Self::Data(error.into())
    }
}

impl From<TrainError> for RankError {
    fn from(error: TrainError) -> Self {
        match error {
            // A collective that failed is mostly a lost peer.
            TrainError::Dist(error) => Self::Dist(error),
            TrainError::Device(error) => Self::Device(error),
            other => Self::Train(other),
        }
    }
}

impl From<PlacementError> for RankError {
    fn from(error: PlacementError) -> Self {
        match error {
            PlacementError::Dist(error) => Self::Dist(error),
            PlacementError::Device(error) => Self::Device(error),
            other => Self::Placement(other),
        }
    }
}

impl RankError {
    /// The fault lies with this rank.
    pub fn is_own_failure(&self) -> bool {
        !matches!(self, Self::PeerLost(_) | Self::Interrupted | Self::Closed)
    }

    /// The ledger cannot be written to.
    pub fn is_storage(&self) -> bool {
        matches!(self, Self::Record(error) if error.is_storage())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_device_is_no_sign_of_a_lost_peer() {
        let error = || DistError::from_tch("copy a batch to the device", &tch::TchError::Shape("too large".to_owned()));
        let alone = RankError::from(TrainError::Device(DeviceError::from(error())));
        assert!(matches!(alone, RankError::Device(_)) && alone.is_own_failure());
        assert!(alone.to_string().starts_with("copy a batch to the device: "), "{alone}");
        assert!(matches!(RankError::from(TrainError::Dist(error())), RankError::Dist(_)));
    }
}
