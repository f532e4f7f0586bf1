use serde::{Deserialize, Serialize};

use crate::{OperationTime, PerStage};

/// What one rank measured in one step. Times are nanoseconds of the monotonic clock.
///
/// `exposed` closes against `wall_ns`: what is missing from its sum is unattributed time. `busy` does not:
/// loader threads work beside the step, so their sum may exceed the wall time. Nor does `device`, whose work goes on beside the
/// host's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Number of the step, from 0, warm-up included.
    pub step: u64,
    /// Epoch of the sampler that the batch belongs to.
    pub epoch: u64,
    /// False during warm-up: the first `measure.warmup` steps of each attempt.
    pub measured: bool,
    /// Start of the step, since the rank's loop began.
    pub start_ns: u64,
    /// End of the previous step to end of this one.
    pub wall_ns: u64,
    /// Samples in this rank's batch.
    pub samples: u64,
    /// Bytes taken from the store.
    pub bytes_read: u64,
    /// Bytes of the collated batch.
    pub bytes_batch: u64,
    /// Bytes copied to the device; 0 where the device is the host.
    pub bytes_to_device: u64,
    /// Loss of this rank's batch; none in data mode.
    pub loss: Option<f64>,
    /// Time worked on each stage, summed over the threads of the rank.
    pub busy: PerStage<u64>,
    /// Time for which the step waited on each stage.
    pub exposed: PerStage<u64>,
    /// Time between two events of the device around each stage's work, ns, on the device's own clock and in its stream's
    /// order; 0 for a stage without any. None where the device is the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<PerStage<u64>>,
    /// Time for which the device copied the batch, ns, on its own clock and beside its other work. None where the device is the host, or
    /// the batch was not page-locked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_ns: Option<u64>,
    /// What the loader worked on each operation inside *mask* and *collate*, each once, ns; together at most the busy time of these
    /// stages. Empty where operations are not timed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<OperationTime>,
}
