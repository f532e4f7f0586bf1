//! `RunningProfile` records a profile with Kineto, libtorch's profiler; `ProfilerRange` gives a name to a stretch of time in it.

use std::marker::PhantomData;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use cxx::UniquePtr;

use crate::DistError;
use crate::ffi::bridge;

/// Whether the profiler of this process is prepared for the next profile. Stopping a profile that was started without preparation ends the
/// process.
static PREPARED: AtomicBool = AtomicBool::new(false);

/// Records of a profile besides the operations of the host and their times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProfileOptions {
    /// Kernels and copies of CUDA devices. The libraries of CUDA must be loaded.
    pub cuda: bool,
    /// Shapes and dtypes of the arguments of each operation.
    pub record_shapes: bool,
    /// Memory that each operation allocated and freed.
    pub memory: bool,
    /// Source lines of a TorchScript module that called an operation; frames of Rust and C++ are missing.
    pub stack: bool,
}

impl ProfileOptions {
    fn settings(self) -> bridge::ProfileSettings {
        let Self { cuda, record_shapes, memory, stack } = self;
        bridge::ProfileSettings { cuda, record_shapes, memory, stack }
    }
}

/// libtorch's own profiler (Kineto), as `torch.profiler` drives it, running on this thread. It records the operations of this thread, of the
/// backward passes that it starts, and the collectives that it launches. One profile runs at a time. Dropped without [`RunningProfile::stop`], its
/// records are lost.
///
/// Source: `torch/csrc/autograd/profiler_kineto.h` of PyTorch.
#[derive(Debug)]
pub struct RunningProfile {
    running: bool,
    /// Not `Send`: the profiler belongs to the thread.
    thread: PhantomData<*const ()>,
}

impl RunningProfile {
    /// Set the profiler up, which takes a while the first time; to call a step or more before each [`RunningProfile::start`].
    ///
    /// # Errors
    /// libtorch was built without it, or cannot record what the options ask for.
    pub fn prepare(options: ProfileOptions) -> Result<(), DistError> {
        bridge::prepare_profile(&options.settings()).map_err(DistError::torch("prepare the profiler"))?;
        PREPARED.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Start recording.
    ///
    /// # Errors
    /// [`DistError::ProfilerNotPrepared`] without a call of [`RunningProfile::prepare`] since the last start; libtorch fails.
    pub fn start(options: ProfileOptions) -> Result<Self, DistError> {
        if !PREPARED.swap(false, Ordering::SeqCst) {
            return Err(DistError::ProfilerNotPrepared);
        }
        bridge::start_profile(&options.settings()).map_err(DistError::torch("start the profiler"))?;
        Ok(Self { running: true, thread: PhantomData })
    }

    /// Stop recording.
    ///
    /// # Errors
    /// libtorch cannot order the events.
    pub fn stop(mut self) -> Result<RecordedProfile, DistError> {
        self.running = false;
        bridge::stop_profile().map(RecordedProfile).map_err(DistError::torch("stop the profiler"))
    }
}

impl Drop for RunningProfile {
    fn drop(&mut self) {
        if self.running {
            // The caller that drops it reports a worse error.
            let _ = bridge::stop_profile();
        }
    }
}

/// The records of a profile.
pub struct RecordedProfile(UniquePtr<bridge::RecordedHandle>);

impl std::fmt::Debug for RecordedProfile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordedProfile").finish_non_exhaustive()
    }
}

impl RecordedProfile {
    /// Write the records as JSON in the Chrome trace event format, once. Times (`ts`, `dur`) are microseconds of `CLOCK_REALTIME` less
    /// `baseTimeNanoseconds`. libtorch reports a failed write in its log alone: check that the file is there and complete.
    ///
    /// # Errors
    /// The path is not UTF-8, or libtorch raises an exception.
    pub fn save(&self, path: &Path) -> Result<(), DistError> {
        let Some(text) = path.to_str() else { return Err(DistError::ProfilePath(path.to_owned())) };
        self.0.save(text).map_err(DistError::torch(format!("write the profile to {}", path.display())))
    }
}

/// A named range of a profile, which ends when the value is dropped; ranges of a thread nest. Without a profile that is running on this thread
/// it records nothing, and costs a few nanoseconds.
pub struct ProfilerRange {
    _handle: UniquePtr<bridge::RangeHandle>,
}

impl std::fmt::Debug for ProfilerRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProfilerRange").finish_non_exhaustive()
    }
}

impl ProfilerRange {
    /// Begin a range. Drop it before any range that was begun earlier on this thread, as scopes do by themselves.
    #[must_use = "a range ends when it is dropped"]
    pub fn open(name: &str) -> Self {
        Self { _handle: bridge::open_range(name) }
    }
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind, Tensor};

    use super::*;

    fn recorded(options: ProfileOptions, work: impl FnOnce()) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace.json");
        RunningProfile::prepare(options).unwrap();
        let profile = RunningProfile::start(options).unwrap();
        work();
        profile.stop().unwrap().save(&path).unwrap();
        std::fs::read_to_string(path).unwrap()
    }

    fn train() {
        let _step = ProfilerRange::open("step 7");
        let a = Tensor::ones([30, 20], (Kind::Float, Device::Cpu)).set_requires_grad(true);
        let loss = {
            let _forward = ProfilerRange::open("forward");
            a.matmul(&a.tr()).sum(Kind::Float)
        };
        let _backward = ProfilerRange::open("backward");
        loss.backward();
    }

    // Profiles of one process exclude each other, so all is in one test.
    #[test]
    fn operations_ranges_and_what_was_asked_for_are_recorded() {
        train();
        let plain = recorded(ProfileOptions::default(), train);
        for name in ["\"step 7\"", "\"forward\"", "\"backward\"", "\"aten::matmul\"", "MmBackward"] {
            assert!(plain.contains(name), "{name}");
        }
        assert!(!plain.contains("Input Dims") && !plain.contains("[memory]"));
        let all = ProfileOptions { record_shapes: true, memory: true, stack: true, ..ProfileOptions::default() };
        let more = recorded(all, train);
        assert!(more.contains("Input Dims") && more.contains("[memory]"));

        assert!(RunningProfile::start(ProfileOptions::default()).is_err());
        RunningProfile::prepare(ProfileOptions::default()).unwrap();
        let first = RunningProfile::start(ProfileOptions::default()).unwrap();
        assert!(RunningProfile::start(ProfileOptions::default()).is_err());
        drop(first);
        assert!(recorded(ProfileOptions::default(), train).contains("\"step 7\""));
    }
}
