//! `Reducer` averages gradients over ranks during the backward pass, and times it: `AllreduceTimes`. `AllreduceWatch` tells another thread whether a
//! reduction is running.

use cxx::UniquePtr;
use tch::Tensor;

use crate::ffi::bridge;
use crate::group::address;
use crate::{DistError, ProcessGroup};

/// Grouping of gradients for communication. The defaults are those of `DistributedDataParallel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReducerOptions {
    /// Maximum size of a bucket, MiB.
    pub bucket_cap_mib: u64,
    /// Size of the first bucket, MiB: small, so that communication starts early.
    pub first_bucket_mib: u64,
    /// The dtype in which gradients are sent between ranks.
    pub gradient_dtype: GradientDtype,
    /// Search in each step for parameters that the outputs do not depend on. Needed when a loss leaves out a part of the model: otherwise such
    /// a parameter is an error in the next step.
    pub find_unused: bool,
}

/// The dtype in which gradients are sent between ranks. 16 bits are half as many bytes: each bucket, divided by the number of ranks, is
/// rounded, summed in that dtype, and converted back.
///
/// Source: `fp16_compress_hook` and `bf16_compress_hook` of PyTorch, which round before they divide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GradientDtype {
    /// The dtype of the gradients.
    #[default]
    Unchanged,
    /// float16: 11 significant bits, up to 65,504.
    Float16,
    /// bfloat16: 8 significant bits, the range of float32.
    Bfloat16,
}

impl GradientDtype {
    fn name(self) -> &'static str {
        match self {
            Self::Unchanged => "",
            Self::Float16 => "fp16",
            Self::Bfloat16 => "bf16",
        }
    }
}

impl Default for ReducerOptions {
    fn default() -> Self {
        Self { bucket_cap_mib: 25, first_bucket_mib: 1, gradient_dtype: GradientDtype::Unchanged, find_unused: false }
    }
}

/// Times of the communication of one backward pass, ns: of the monotonic clock on the host, of the device's clock on a GPU.
///
/// The interval of a bucket runs from its launch (all its gradients are ready and copied into it) until its all-reduce has completed on this
/// rank. It includes the queue of the process group, the wait for slower ranks, and the conversion to and from another dtype; with Gloo on a
/// GPU the conversion back is part of the backward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllreduceTimes {
    /// Length of the union of the buckets' intervals: the time in which at least one all-reduce was in flight, mostly in parallel with the rest
    /// of the backward pass.
    pub busy_ns: u64,
    /// From the launch of the last bucket (the last gradient is ready, nothing is left to compute) until every bucket has completed: the time
    /// that communication adds to the step. A part of `busy_ns`. Copying the reduced gradients back into the parameters is this rank's own work,
    /// so it belongs to the backward pass.
    pub exposed_ns: u64,
    /// Number of buckets.
    pub buckets: u64,
}

/// c10d's gradient reducer, the engine of `DistributedDataParallel`: while the backward pass runs, gradients that are
/// ready are averaged over the ranks, bucket by bucket.
///
/// Per step: [`Reducer::prepare_forward`], forward, [`Reducer::prepare_backward`], [`Reducer::backward`].
pub struct Reducer {
    handle: UniquePtr<bridge::ReducerHandle>,
    has_times: bool,
}

impl std::fmt::Debug for Reducer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reducer").finish_non_exhaustive()
    }
}

/// Watches the communication of a reducer from another thread; it may outlive the reducer.
pub struct AllreduceWatch(UniquePtr<bridge::TimelineHandle>);

impl std::fmt::Debug for AllreduceWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AllreduceWatch").finish_non_exhaustive()
    }
}

impl AllreduceWatch {
    /// Whether a bucket of this rank is in flight: the gradients of other ranks are missing, not its own. With NCCL a bucket counts as reduced
    /// when the device has been told to: the device waits there, not the backward pass. Never blocks, and asks nothing of the device.
    pub fn in_flight(&self) -> bool {
        self.0.under_way()
    }
}

impl Reducer {
    /// Check that all ranks have parameters of the same shapes, copy rank 0's values to the others, and hook into the gradients. The parameters
    /// are float leaves that require gradients, in the same order on all ranks.
    ///
    /// # Errors
    /// Shapes differ between ranks, a parameter takes no gradient, or a peer is gone.
    pub fn new(
        parameters: &[(String, Tensor)],
        group: &ProcessGroup,
        options: ReducerOptions,
    ) -> Result<Self, DistError> {
        const MIB: u64 = 1 << 20;
        let (names, addresses): (Vec<_>, Vec<_>) = parameters.iter().map(|(n, t)| (n.clone(), address(t))).unzip();
        let handle = bridge::open_reducer(
            &group.handle,
            &addresses,
            &names,
            options.bucket_cap_mib * MIB,
            options.first_bucket_mib * MIB,
            options.find_unused,
            options.gradient_dtype.name(),
        )
        .map_err(DistError::torch("set up the gradient reducer"))?;
        Ok(Self { handle, has_times: false })
    }

    /// Prepare a step, before its forward pass. Returns true where the buckets were rebuilt in the order in which the first backward pass made the
    /// gradients, as `DistributedDataParallel` does once.
    ///
    /// # Errors
    /// A peer is gone.
    pub fn prepare_forward(&mut self) -> Result<bool, DistError> {
        self.handle.prepare_forward().map_err(DistError::torch("prepare the forward pass"))
    }

    /// Prepare the backward pass, behind the forward pass. `outputs`, the tensors that the backward pass starts from, are read with
    /// `find_unused` only.
    ///
    /// # Errors
    /// A parameter had no gradient in the last step, without `find_unused`.
    pub fn prepare_backward(&mut self, outputs: &[&Tensor]) -> Result<(), DistError> {
        let addresses: Vec<usize> = outputs.iter().map(|t| address(t)).collect();
        self.has_times = false;
        self.handle.prepare_backward(&addresses).map_err(DistError::torch("prepare the backward pass"))
    }

    /// The backward pass from `loss`, a scalar. When it returns, every gradient is the mean over the ranks.
    ///
    /// [`Tensor::backward`] does the same but panics when a peer is lost.
    ///
    /// # Errors
    /// A peer is gone, or did not communicate within the group's time limit.
    pub fn backward(&mut self, loss: &Tensor) -> Result<(), DistError> {
        loss.f_backward().map_err(|e| DistError::from_tch("backward pass", &e))?;
        self.has_times = true;
        Ok(())
    }

    /// A watch on the communication for another thread.
    pub fn watch(&self) -> AllreduceWatch {
        AllreduceWatch(self.handle.timeline())
    }

    /// Start and end of the interval of each bucket of the last backward pass, in the order of their launches; ns of `CLOCK_MONOTONIC`. Empty on
    /// a GPU, whose times are on another clock.
    pub fn buckets(&self) -> Vec<(u64, u64)> {
        let ns = |time: i64| u64::try_from(time).unwrap_or_default();
        self.handle.buckets().iter().map(|bucket| (ns(bucket.start), ns(bucket.end))).collect()
    }

    /// Take the times of the last backward pass; zeros if there was none since the last call. On a GPU, to call when the device is done.
    ///
    /// # Errors
    /// The device is not done.
    pub fn take_allreduce_times(&mut self) -> Result<AllreduceTimes, DistError> {
        if !std::mem::take(&mut self.has_times) {
            return Ok(AllreduceTimes::default());
        }
        let times = self.handle.times().map_err(DistError::torch("read the times of the reducer"))?;
        let bridge::BucketTimes { busy_ns, exposed_ns, buckets } = times;
        Ok(AllreduceTimes { busy_ns, exposed_ns, buckets })
    }
}
