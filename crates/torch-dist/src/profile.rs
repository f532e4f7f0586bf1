use std::marker::PhantomData;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use cxx::UniquePtr;

use crate::DistError;
use crate::ffi::bridge;

/// Whether the profiler of this process is prepared for the next profile: ending one that was started without ends the process.
static PREPARED: AtomicBool = AtomicBool::new(false);

/// What a profile holds besides the operations of the host and their times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProfileOptions {
    /// Kernels and copies of CUDA devices. The libraries of CUDA must be loaded.
    pub cuda: bool,
    /// Shapes and types of the arguments of each operation.
    pub record_shapes: bool,
    /// What each operation allocated and freed.
    pub memory: bool,
    /// Where in the source of a TorchScript module an operation was called; frames of Rust and C++ are not there.
    pub stack: bool,
}

impl ProfileOptions {
    fn settings(self) -> bridge::ProfileSettings {
        let Self { cuda, record_shapes, memory, stack } = self;
        bridge::ProfileSettings { cuda, record_shapes, memory, stack }
    }
}

/// libtorch's own profiler (Kineto), as `torch.profiler` drives it, running on this thread. It records the operations of
/// this thread, of the backward passes that it starts, and the collectives that it hands to a process group. One profile
/// runs at a time. Dropped without [`Profile::stop`], what it found is lost.
///
/// Source: `torch/csrc/autograd/profiler_kineto.h` of PyTorch.
#[derive(Debug)]
pub struct Profile {
    running: bool,
    /// The profiler belongs to the thread.
    thread: PhantomData<*const ()>,
}

impl Profile {
    /// Set the profiler up, which takes a while the first time; to call a step or more before [`Profile::start`].
    ///
    /// # Errors
    /// libtorch was built without it, or cannot record what is asked for.
    pub fn prepare(options: ProfileOptions) -> Result<(), DistError> {
        bridge::prepare_profile(&options.settings()).map_err(DistError::torch("prepare the profiler"))?;
        PREPARED.store(true, Ordering::SeqCst);
        Ok(())
    }

    /// Start it.
    ///
    /// # Errors
    /// It is not prepared, each time anew; another profile is running.
    pub fn start(options: ProfileOptions) -> Result<Self, DistError> {
        if !PREPARED.swap(false, Ordering::SeqCst) {
            let message = "it was not prepared, or is running".to_owned();
            return Err(DistError::Torch { operation: "start the profiler".to_owned(), message });
        }
        bridge::start_profile(&options.settings()).map_err(DistError::torch("start the profiler"))?;
        Ok(Self { running: true, thread: PhantomData })
    }

    /// Stop it.
    ///
    /// # Errors
    /// libtorch cannot put the events in order.
    pub fn stop(mut self) -> Result<Recorded, DistError> {
        self.running = false;
        bridge::stop_profile().map(Recorded).map_err(DistError::torch("stop the profiler"))
    }
}

impl Drop for Profile {
    fn drop(&mut self) {
        if self.running {
            // Whoever drops it has something worse to tell.
            let _ = bridge::stop_profile();
        }
    }
}

/// What a profile recorded.
pub struct Recorded(UniquePtr<bridge::RecordedHandle>);

impl std::fmt::Debug for Recorded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorded").finish_non_exhaustive()
    }
}

impl Recorded {
    /// Write it as JSON in the Chrome trace event format, once. Times (`ts`, `dur`) are microseconds, of the clock
    /// `CLOCK_REALTIME` less `baseTimeNanoseconds`. What goes wrong is in libtorch's log alone: look whether the file is
    /// there and whole.
    ///
    /// # Errors
    /// The path is not UTF-8, or libtorch raises an exception.
    pub fn save(&self, path: &Path) -> Result<(), DistError> {
        let operation = || format!("write the profile to {}", path.display());
        let Some(text) = path.to_str() else {
            return Err(DistError::Torch { operation: operation(), message: "the path is not UTF-8".to_owned() });
        };
        self.0.save(text).map_err(DistError::torch(operation()))
    }
}

/// A named range of a profile, from its making until it is dropped; ranges of a thread nest. Without a profile that is
/// running on this thread it is nothing, and costs a few nanoseconds.
pub struct Range {
    _handle: UniquePtr<bridge::RangeHandle>,
}

impl std::fmt::Debug for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Range").finish_non_exhaustive()
    }
}

impl Range {
    /// Begin it. To be dropped before any range that was begun earlier on this thread, as scopes do by themselves.
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
        Profile::prepare(options).unwrap();
        let profile = Profile::start(options).unwrap();
        work();
        profile.stop().unwrap().save(&path).unwrap();
        std::fs::read_to_string(path).unwrap()
    }

    fn train() {
        let _step = Range::open("step 7");
        let a = Tensor::ones([30, 20], (Kind::Float, Device::Cpu)).set_requires_grad(true);
        let loss = {
            let _forward = Range::open("forward");
            a.matmul(&a.tr()).sum(Kind::Float)
        };
        let _backward = Range::open("backward");
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

        assert!(Profile::start(ProfileOptions::default()).is_err());
        Profile::prepare(ProfileOptions::default()).unwrap();
        let first = Profile::start(ProfileOptions::default()).unwrap();
        assert!(Profile::start(ProfileOptions::default()).is_err());
        drop(first);
        assert!(recorded(ProfileOptions::default(), train).contains("\"step 7\""));
    }
}
