//! The device of a rank, and the way of batches to it. Invariants: the device of a rank is settled before its first tensor; a step waits
//! for its device once, at its end, but for the cases that docs/guide/gpu.md lists; a batch that is being copied is neither changed nor reused.
//!
//! Here: streams, events and page-locked memory of a GPU, and what is built on them (the timer of a step, the prefetcher of batches).

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
#[cfg(test)]
use std::time::Instant;

use expctl_ledger::{PerStage, Stage};
use tch::{Device, Kind, TchError, Tensor};
use torch_dist::{DeviceEvent, DeviceStream, DistError, PinnedMemory, StreamScope};

use crate::error::RankError;

mod placement;
mod staged_batch;

pub(crate) use placement::{Placement, PlacementError, choose_gpu_backend};
pub(crate) use staged_batch::{PinMemory, PinningBuilder, StagedBatch};

/// An operation of this rank alone failed: one of its device, or one of libtorch on it. No other rank took part, so it says nothing about
/// whether the others are alive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct DeviceError(#[from] DistError);

impl DeviceError {
    /// An error of tch, with the operation named.
    pub(crate) fn from_tch(operation: &str, error: &TchError) -> Self {
        Self(DistError::from_tch(operation, error))
    }
}

/// The GPU that a rank computes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gpu {
    /// By libtorch's index.
    Cuda(u32),
    /// The host in the place of a GPU, whose work is done when it is launched: the GPU path of a step runs on every machine.
    #[cfg(test)]
    Host,
}

impl Gpu {
    /// The GPU that `device` is; `None` where it is the host.
    pub fn from_device(device: Device) -> Option<Self> {
        match device {
            Device::Cuda(index) => Some(Self::Cuda(index as u32)),
            _ => None,
        }
    }

    /// The device of its tensors.
    pub fn device(self) -> Device {
        match self {
            Self::Cuda(index) => Device::Cuda(index as usize),
            #[cfg(test)]
            Self::Host => Device::Cpu,
        }
    }
}

/// A stream of a GPU.
#[derive(Debug)]
enum Stream {
    Cuda(DeviceStream),
    #[cfg(test)]
    Host,
}

impl Stream {
    /// A new stream.
    fn new(gpu: Gpu) -> Result<Self, DeviceError> {
        match gpu {
            Gpu::Cuda(index) => Ok(Self::Cuda(DeviceStream::new(index)?)),
            #[cfg(test)]
            Gpu::Host => Ok(Self::Host),
        }
    }

    /// The stream that this thread's work goes to. For the step's thread that is libtorch's default stream, and has to be: the
    /// collectives of c10d's Gloo make the default stream of *their* thread wait for what they have reduced. A step on a stream of its
    /// own would read gradients that are not there yet.
    fn current(gpu: Gpu) -> Result<Self, DeviceError> {
        match gpu {
            Gpu::Cuda(index) => Ok(Self::Cuda(DeviceStream::current(index)?)),
            #[cfg(test)]
            Gpu::Host => Ok(Self::Host),
        }
    }

    /// Make this the current stream of the thread until the scope is dropped; `None` where the host stands in for a GPU.
    fn enter(&self) -> Result<Option<StreamScope>, DeviceError> {
        match self {
            Self::Cuda(stream) => Ok(Some(stream.enter()?)),
            #[cfg(test)]
            Self::Host => Ok(None),
        }
    }

    /// Record an event behind the work that the stream has been given so far.
    fn record(&self) -> Result<Event, DeviceError> {
        match self {
            Self::Cuda(stream) => Ok(Event::Cuda(DeviceEvent::record(stream)?)),
            #[cfg(test)]
            Self::Host => Ok(Event::Host(Instant::now())),
        }
    }

    /// The memory of `tensor`, which was allocated on another stream, is used on this one as well.
    fn record_tensor(&self, tensor: &Tensor) -> Result<(), DeviceError> {
        match self {
            Self::Cuda(stream) => Ok(stream.record_tensor(tensor)?),
            #[cfg(test)]
            Self::Host => Ok(()),
        }
    }
}

/// A point in a stream, with the time at which the device passed it.
#[derive(Debug)]
enum Event {
    Cuda(DeviceEvent),
    #[cfg(test)]
    Host(Instant),
}

impl Event {
    /// Work that `stream` is given from here on starts when the device has passed this point. The host does not wait.
    fn block(&self, stream: &Stream) -> Result<(), DeviceError> {
        match (self, stream) {
            (Self::Cuda(event), Stream::Cuda(stream)) => Ok(event.block(stream)?),
            #[cfg(test)]
            _ => Ok(()),
        }
    }

    /// Wait until the device has passed this point.
    fn synchronize(&self) -> Result<(), DeviceError> {
        match self {
            Self::Cuda(event) => Ok(event.synchronize()?),
            #[cfg(test)]
            Self::Host(_) => Ok(()),
        }
    }

    /// Nanoseconds of the device's clock from this point to `later`, both passed.
    fn elapsed_ns(&self, later: &Self) -> Result<u64, DeviceError> {
        match (self, later) {
            (Self::Cuda(event), Self::Cuda(later)) => Ok(event.elapsed_ns(later)?),
            #[cfg(test)]
            (Self::Host(at), Self::Host(later)) => Ok(later.duration_since(*at).as_nanos() as u64),
            #[cfg(test)]
            _ => unreachable!("points of two devices"),
        }
    }
}

/// Memory of the host that a GPU copies from while the host goes on.
#[derive(Debug)]
pub enum StagingBuffer {
    Pinned(PinnedMemory),
    #[cfg(test)]
    Plain(Vec<u8>),
}

impl StagingBuffer {
    /// `bytes` of memory, not initialised.
    pub fn new(gpu: Gpu, bytes: usize) -> Result<Self, DeviceError> {
        match gpu {
            Gpu::Cuda(_) => Ok(Self::Pinned(PinnedMemory::new(bytes)?)),
            #[cfg(test)]
            Gpu::Host => Ok(Self::Plain(vec![0xEE; bytes])),
        }
    }

    /// Usable bytes.
    pub fn capacity(&self) -> usize {
        match self {
            Self::Pinned(memory) => memory.len(),
            #[cfg(test)]
            Self::Plain(memory) => memory.len(),
        }
    }

    /// Allocated bytes: libtorch locks memory in powers of two.
    ///
    /// Source: `PowerOf2Ceil` in ATen/core/CachingHostAllocator.h.
    pub fn allocated_bytes(&self) -> u64 {
        match self.capacity() {
            0 => 0,
            capacity => (capacity as u64).next_power_of_two(),
        }
    }

    /// The bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Pinned(memory) => memory.bytes_mut(),
            #[cfg(test)]
            Self::Plain(memory) => memory.as_mut_slice(),
        }
    }

    /// A copy of the first `bytes` on `device`, uint8, on this thread's stream. The memory must not change until the device has made it.
    fn copy_to(&self, device: Device, bytes: usize) -> Result<Tensor, DeviceError> {
        let copy = match self {
            Self::Pinned(memory) => memory
                .tensor()
                .f_narrow(0, 0, bytes as i64)
                .and_then(|used| used.f_to_device_(device, Kind::Uint8, true, true)),
            #[cfg(test)]
            Self::Plain(memory) => Tensor::f_from_slice(&memory[..bytes]),
        };
        copy.map_err(|e| DeviceError::from_tch("copy a batch to the device", &e))
    }
}

/// Times the stages of a step on the device's stream: an event at each boundary.
#[derive(Debug)]
pub struct DeviceTimer {
    stream: Stream,
    start: Event,
    ends: Vec<(Stage, Event)>,
}

impl DeviceTimer {
    /// Start the first stage on `gpu`.
    pub fn start(gpu: Gpu) -> Result<Self, DeviceError> {
        let stream = Stream::current(gpu)?;
        let start = stream.record()?;
        Ok(Self { stream, start, ends: Vec::new() })
    }

    /// End a stage: the work launched since the last end belongs to `stage`.
    pub fn end_stage(&mut self, stage: Stage) -> Result<(), DeviceError> {
        self.ends.push((stage, self.stream.record()?));
        Ok(())
    }

    /// Wait until the device has passed the last end.
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        self.ends.last().map_or(Ok(()), |(_, end)| end.synchronize())
    }

    /// Nanoseconds of each stage by the device's clock, the time in which the device waited for work included. To call when the device has
    /// passed the last end.
    pub fn times(&self) -> Result<PerStage<u64>, DeviceError> {
        let mut times = PerStage::default();
        let mut since = &self.start;
        for (stage, end) in &self.ends {
            times[*stage] += since.elapsed_ns(end)?;
            since = end;
        }
        Ok(times)
    }
}

/// Copies page-locked batches to a GPU on a stream of its own: the next batch is copied while the device works on the current one.
#[derive(Debug)]
pub struct Prefetcher {
    gpu: Gpu,
    stream: Stream,
}

/// A copy of a batch on the device, in flight or complete.
#[derive(Debug)]
pub struct DeviceCopy {
    /// uint8, on the device.
    memory: Tensor,
    begin: Event,
    end: Event,
    gpu: Gpu,
}

impl Prefetcher {
    /// A prefetcher for `gpu`.
    pub fn new(gpu: Gpu) -> Result<Self, DeviceError> {
        Ok(Self { gpu, stream: Stream::new(gpu)? })
    }

    /// Start to copy the first `bytes` of `buffer`, which must not change until the device has passed [`DeviceCopy::tensor`].
    pub fn copy(&self, buffer: &StagingBuffer, bytes: usize) -> Result<DeviceCopy, DeviceError> {
        let begin = self.stream.record()?;
        let scope = self.stream.enter()?;
        let memory = buffer.copy_to(self.gpu.device(), bytes)?;
        drop(scope);
        let end = self.stream.record()?;
        Ok(DeviceCopy { memory, begin, end, gpu: self.gpu })
    }
}

impl DeviceCopy {
    /// The copy, for work that this thread launches from here on; the device waits for the end of the copy, the host does not.
    pub fn tensor(&self) -> Result<&Tensor, DeviceError> {
        let current = Stream::current(self.gpu)?;
        self.end.block(&current)?;
        current.record_tensor(&self.memory)?;
        Ok(&self.memory)
    }

    /// Nanoseconds that the copy took by the device's clock. To call when it is complete.
    pub fn ns(&self) -> Result<u64, DeviceError> {
        self.begin.elapsed_ns(&self.end)
    }
}

/// A value that owns memory of a device, and is leaked where the rank fails.
///
/// After most CUDA errors every further call fails. The destructor of memory that two streams have used makes such a call (page-locked
/// memory too) and ends the process, before the rank could say why it failed. So on a GPU the value is dropped only when it is taken out,
/// neither by an early return nor by a panic. On the host it is dropped like any other value.
pub struct LeakOnFailure<T> {
    inner: ManuallyDrop<T>,
    on_gpu: bool,
}

impl<T> LeakOnFailure<T> {
    pub fn new(inner: T, on_gpu: bool) -> Self {
        Self { inner: ManuallyDrop::new(inner), on_gpu }
    }

    /// Take the value out, where all is well.
    pub fn into_inner(self) -> T {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, and nobody uses it again.
        unsafe { ManuallyDrop::take(&mut this.inner) }
    }

    /// Drop the value, unless `result` is a failure of this rank itself.
    pub fn drop_after<R>(self, result: &Result<R, RankError>) {
        if !matches!(result, Err(error) if error.is_own_failure()) {
            drop(self.into_inner());
        }
    }
}

impl<T> Deref for LeakOnFailure<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for LeakOnFailure<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T> Drop for LeakOnFailure<T> {
    fn drop(&mut self) {
        if !self.on_gpu {
            // SAFETY: `into_inner`, the only other place that takes the value, forgets `self`.
            unsafe { ManuallyDrop::drop(&mut self.inner) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::process::{Command, Stdio};

    use expctl_fake_gpu::{DEFAULT_STREAM, FakeGpu};

    use super::*;

    struct Counted<'a>(&'a Cell<u32>);

    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }

    /// Whether what `way` is given is dropped.
    fn drops(on_gpu: bool, way: impl FnOnce(LeakOnFailure<Counted<'_>>)) -> bool {
        let drops = Cell::new(0);
        way(LeakOnFailure::new(Counted(&drops), on_gpu));
        assert!(drops.get() < 2);
        drops.get() == 1
    }

    #[test]
    fn a_failing_rank_frees_nothing_of_a_gpu() {
        let failed: Result<(), RankError> = Err(RankError::Panicked("no memory".to_owned()));
        let stopped: Result<(), RankError> = Err(RankError::Interrupted);
        for on_gpu in [false, true] {
            let returned = drops(on_gpu, |it| {
                let _returns = it;
            });
            assert_eq!(returned, !on_gpu, "an early return");
            assert_eq!(drops(on_gpu, |it| it.drop_after(&failed)), !on_gpu);
            assert!(drops(on_gpu, |it| it.drop_after(&stopped)), "the device is well");
            assert!(drops(on_gpu, |it| it.drop_after(&Ok(()))));
            assert!(drops(on_gpu, |it| drop(it.into_inner())));
            let panicked = drops(on_gpu, |it| {
                let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
                    let _unwound = it;
                    panic!("libtorch's");
                }));
                assert!(caught.is_err());
            });
            assert_eq!(panicked, !on_gpu, "a panic");
        }
    }

    // The test of the fake GPU runs in a process of its own: libtorch has one device of a kind in a process, and other tests ask for a real one.
    #[test]
    fn stages_on_a_device_take_the_time_between_their_events() {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["device::tests::stages_on_the_fake_gpu", "--exact", "--ignored"])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("1 passed"), "{said}{errors}");
    }

    #[test]
    #[ignore = "entry of the process that stages_on_a_device_take_the_time_between_their_events starts"]
    fn stages_on_the_fake_gpu() {
        let gpu = FakeGpu::install();
        // Work from before the step belongs to no stage.
        gpu.add_work(DEFAULT_STREAM, 125);
        let mut timer = DeviceTimer::start(Gpu::Cuda(0)).unwrap();
        // A stage may come twice, and one may leave the device nothing to do.
        for (stage, microseconds) in
            [(Stage::Transfer, 250), (Stage::Forward, 1000), (Stage::Mask, 0), (Stage::Transfer, 500)]
        {
            gpu.add_work(DEFAULT_STREAM, microseconds);
            timer.end_stage(stage).unwrap();
        }
        // Times are there when the device is, and nothing but `synchronize` waits for it.
        assert!(timer.times().unwrap_err().to_string().contains("must be completed"));
        timer.synchronize().unwrap();
        let times = timer.times().unwrap();
        let stages = [Stage::Transfer, Stage::Forward, Stage::Mask, Stage::Backward];
        assert_eq!(stages.map(|stage| times[stage]), [750_000, 1_000_000, 0, 0]);
        let calls = gpu.calls();
        let count = |kind: &str| calls.iter().filter(|call| call.starts_with(kind)).count();
        assert_eq!((count("record on 0"), count("wait for"), count("block")), (5, 1, 0), "{calls:?}");

        gpu.fail("CUDA error: an illegal memory access was encountered");
        for error in [
            timer.end_stage(Stage::Backward).unwrap_err(),
            timer.synchronize().unwrap_err(),
            timer.times().unwrap_err(),
        ] {
            assert!(error.to_string().contains("illegal memory access"), "{error}");
        }
    }
}
