//! For tests: a GPU without hardware. It replaces the streams and events of libtorch's CUDA part, so that code on these runs on every machine. Its
//! streams take the time that a test says, its calls are recorded, and it fails when a test wants it to. There are no tensors on it.
//!
//! libtorch has one implementation of a device in a process: tests with this GPU run in a process where nothing asks for a real one.
//!
//! ```no_run
//! use torch_dist::{DeviceEvent, DeviceStream};
//! use expctl_fake_gpu::{DEFAULT_STREAM, FakeGpu};
//!
//! let gpu = FakeGpu::install();
//! let stream = DeviceStream::current(0)?;
//! let start = DeviceEvent::record(&stream)?;
//! gpu.add_work(DEFAULT_STREAM, 250);
//! let end = DeviceEvent::record(&stream)?;
//! end.synchronize()?;
//! assert_eq!(start.elapsed_ns(&end)?, 250_000);
//! # Ok::<(), torch_dist::DistError>(())
//! ```

use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use torch_dist::Nccl;

/// The current stream of a thread that entered no other one. Opened streams have the ids 1, 2, …
pub const DEFAULT_STREAM: i64 = 0;

unsafe extern "C" {
    fn expctl_fake_gpu_install();
    fn expctl_fake_gpu_works(stream: i64, microseconds: i64);
    fn expctl_fake_gpu_fail(text: *const c_char, length: usize);
    fn expctl_fake_gpu_calls(to: *mut c_char, room: usize) -> usize;
    fn expctl_fake_gpu_timeline() -> *mut c_void;
    fn expctl_fake_gpu_drop_timeline(timeline: *mut c_void);
    fn expctl_fake_gpu_begin(timeline: *mut c_void);
    fn expctl_fake_gpu_allreduce(
        timeline: *mut c_void,
        nccl: bool,
        bucket: *mut *mut c_void,
        message: *mut c_char,
        room: usize,
    ) -> usize;
    fn expctl_fake_gpu_done(bucket: *mut c_void, copies: i64, message: *mut c_char, room: usize) -> usize;
    fn expctl_fake_gpu_drop_bucket(bucket: *mut c_void);
    fn expctl_fake_gpu_under_way(timeline: *mut c_void) -> bool;
    fn expctl_fake_gpu_totals(
        timeline: *mut c_void,
        busy: *mut i64,
        exposed: *mut i64,
        buckets: *mut usize,
        message: *mut c_char,
        room: usize,
    ) -> usize;
    fn expctl_fake_gpu_nccl_open(
        store: *const c_void,
        rank: c_int,
        world: c_int,
        timeout_ms: i64,
        backend: *mut *mut c_void,
        message: *mut c_char,
        room: usize,
    ) -> c_int;
}

/// The GPU, index 0. Its owner has it alone: a second test waits.
#[derive(Debug)]
pub struct FakeGpu {
    _alone: MutexGuard<'static, ()>,
}

impl FakeGpu {
    /// A GPU that has done nothing yet.
    pub fn install() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        // A test that failed leaves nothing behind that the next one sees.
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: takes nothing; registers the device once for the process.
        unsafe { expctl_fake_gpu_install() };
        Self { _alone: alone }
    }

    /// Give `stream` work for so many microseconds.
    pub fn add_work(&self, stream: i64, microseconds: i64) {
        // SAFETY: takes numbers alone.
        unsafe { expctl_fake_gpu_works(stream, microseconds) };
    }

    /// From here on every call for a stream or an event fails with `message`, as in CUDA once a kernel has failed.
    pub fn fail(&self, message: &str) {
        // SAFETY: the text lives for the call, with its length.
        unsafe { expctl_fake_gpu_fail(message.as_ptr().cast(), message.len()) };
    }

    /// The calls so far: `open`, `record on STREAM`, `block STREAM until EVENT`, `query EVENT`, `wait for EVENT`, `time from EVENT to EVENT`;
    /// of NCCL's stand-in `abort` and `shutdown`. Events are numbered in the order in which they were first recorded.
    pub fn calls(&self) -> Vec<String> {
        // SAFETY: the buffer has as many bytes as is said.
        let text = read_text(|to, room| unsafe { expctl_fake_gpu_calls(to, room) });
        text.lines().map(str::to_owned).collect()
    }

    /// A timeline as a reducer has one, of buckets on this GPU.
    pub fn timeline(&self) -> Timeline<'_> {
        // SAFETY: takes nothing; the result is freed by `Timeline`.
        Timeline { address: unsafe { expctl_fake_gpu_timeline() }, _gpu: self }
    }

    /// NCCL, whose process group only writes down how it ends.
    pub fn nccl(&self) -> Nccl {
        // SAFETY: it keeps to what `expctl_nccl_open` promises.
        unsafe { Nccl::stand_in(expctl_fake_gpu_nccl_open) }
    }
}

/// `Timeline` of timed_allreduce.h in torch-dist, with process groups whose reductions end when a test says so.
#[derive(Debug)]
pub struct Timeline<'a> {
    address: *mut c_void,
    _gpu: &'a FakeGpu,
}

/// Times of a timeline, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Length of the union of the buckets' intervals.
    pub busy: i64,
    /// From the last launch to the last completion.
    pub exposed: i64,
    /// Number of buckets.
    pub buckets: usize,
}

impl Timeline<'_> {
    /// A backward pass begins.
    pub fn begin(&self) {
        // SAFETY: the timeline lives.
        unsafe { expctl_fake_gpu_begin(self.address) };
    }

    /// Launch the all-reduce of a bucket, which is full on this thread's current stream, over Gloo.
    ///
    /// # Errors
    /// The device has failed, or the stream is not the default one.
    pub fn launch_gloo(&self) -> Result<Bucket<'_>, DeviceFailure> {
        self.launch(false)
    }

    /// Launch the all-reduce of a bucket, which is full on this thread's current stream, over NCCL.
    ///
    /// # Errors
    /// The device has failed.
    pub fn launch_nccl(&self) -> Result<Bucket<'_>, DeviceFailure> {
        self.launch(true)
    }

    fn launch(&self, nccl: bool) -> Result<Bucket<'_>, DeviceFailure> {
        let mut address = std::ptr::null_mut();
        // SAFETY: the timeline lives; address and buffer live for the call.
        guarded(|message, room| unsafe {
            expctl_fake_gpu_allreduce(self.address, nccl, &raw mut address, message, room)
        })?;
        Ok(Bucket { address, _timeline: self })
    }

    /// Whether a bucket is in flight.
    pub fn in_flight(&self) -> bool {
        // SAFETY: the timeline lives.
        unsafe { expctl_fake_gpu_under_way(self.address) }
    }

    /// The times of all buckets.
    ///
    /// # Errors
    /// The device has failed.
    pub fn totals(&self) -> Result<Totals, DeviceFailure> {
        let mut totals = Totals::default();
        // SAFETY: the timeline lives; numbers and buffer live for the call.
        guarded(|message, room| unsafe {
            expctl_fake_gpu_totals(
                self.address,
                &raw mut totals.busy,
                &raw mut totals.exposed,
                &raw mut totals.buckets,
                message,
                room,
            )
        })?;
        Ok(totals)
    }
}

/// A call of the device, or of a process group on it, failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFailure {
    /// Why, in the words of the device.
    pub message: String,
}

impl fmt::Display for DeviceFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for DeviceFailure {}

/// A bucket of gradients in flight.
#[derive(Debug)]
pub struct Bucket<'a> {
    address: *mut c_void,
    _timeline: &'a Timeline<'a>,
}

impl Bucket<'_> {
    /// The device has reduced it where this thread's current stream is: NCCL completes a bucket on one of its own streams.
    ///
    /// # Errors
    /// The device has failed.
    pub fn reduced(self) -> Result<(), DeviceFailure> {
        self.done(-1)
    }

    /// The host has reduced it, and its copy back ends where stream `copies` is now. The current stream of Gloo's thread, as of this one, is the
    /// default stream.
    ///
    /// # Errors
    /// The device has failed.
    pub fn copied_back(self, copies: i64) -> Result<(), DeviceFailure> {
        self.done(copies)
    }

    fn done(self, copies: i64) -> Result<(), DeviceFailure> {
        // SAFETY: the bucket lives; the buffer lives for the call.
        guarded(|message, room| unsafe { expctl_fake_gpu_done(self.address, copies, message, room) })
    }
}

impl Drop for Bucket<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `Timeline::launch`, and freed once.
        unsafe { expctl_fake_gpu_drop_bucket(self.address) };
    }
}

impl Drop for Timeline<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `FakeGpu::timeline`, and freed once.
        unsafe { expctl_fake_gpu_drop_timeline(self.address) };
    }
}

/// The text that `ask` writes into a buffer; `ask` returns the length of the text.
fn read_text(ask: impl FnOnce(*mut c_char, usize) -> usize) -> String {
    let mut buffer = vec![0u8; 1 << 16];
    let length = ask(buffer.as_mut_ptr().cast(), buffer.len());
    buffer.truncate(length);
    String::from_utf8_lossy(&buffer).into_owned()
}

/// The message that `run` writes into a buffer, as an error; `run` returns the length of the message, or 0.
fn guarded(run: impl FnOnce(*mut c_char, usize) -> usize) -> Result<(), DeviceFailure> {
    let message = read_text(run);
    if message.is_empty() { Ok(()) } else { Err(DeviceFailure { message }) }
}
