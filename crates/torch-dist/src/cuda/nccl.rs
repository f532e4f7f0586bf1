//! `Nccl` loads the embedded library `nccl/backend.cpp` from memory, which makes c10d's process group over NCCL.
//! `leave_nccl_failures_to_caller` sets c10d so that a failed collective does not end the process.

use std::ffi::{CStr, OsString, c_char, c_int, c_void};
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::PathBuf;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW, Symbol};

use crate::cuda::CudaError;

/// The library `nccl/backend.cpp`, which needs libtorch_cuda and so cannot be part of this program. Empty where it could not be built.
static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/torch_dist_nccl.so"));

/// Makes c10d's backend over NCCL. Defined in `nccl/backend.cpp`.
pub(crate) type Open =
    unsafe extern "C" fn(*const c_void, c_int, c_int, i64, *mut *mut c_void, *mut c_char, usize) -> c_int;

/// By default c10d ends the process, from a thread of its own, where a collective over NCCL or the device fails. These variables, with their
/// older names, which count as well, have the values that leave the failure to the caller that waits for the device.
///
/// Source: ProcessGroupNCCL.hpp of PyTorch 2.11.
const LEAVE_TO_CALLER: [(&[&str], &str); 3] = [
    // 0 is `NoHandling`; 3, `SkipCleanUp`, tears the process down.
    (&["TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING"], "0"),
    // The thread that watches collectives rethrows errors of the device, and nothing catches them.
    (&["TORCH_NCCL_RETHROW_CUDA_ERRORS"], "0"),
    // Another thread watches the first, and ends the process where it is stuck for some minutes.
    (&["TORCH_NCCL_ENABLE_MONITORING"], "0"),
];

/// Make c10d leave failures of NCCL and of the device to the caller, which sees them where it waits, or watches from another thread. Variables that
/// are already set stay.
///
/// # Safety
/// No other thread may run yet: one that reads the environment meanwhile may read freed memory.
pub unsafe fn leave_nccl_failures_to_caller() {
    for (name, value) in unset_variables(|name| std::env::var_os(name).filter(|value| !value.is_empty())) {
        // SAFETY: as the caller says.
        unsafe { std::env::set_var(name, value) };
    }
}

/// The variables of [`LEAVE_TO_CALLER`] that have no value under any of their names.
fn unset_variables(env: impl Fn(&str) -> Option<OsString>) -> Vec<(&'static str, &'static str)> {
    let missing = LEAVE_TO_CALLER.iter().filter(|(names, _)| names.iter().all(|name| env(name).is_none()));
    missing.filter_map(|(names, value)| Some((*names.first()?, *value))).collect()
}

/// libtorch's process group over NCCL, loaded.
#[derive(Clone, Copy, Debug)]
pub struct Nccl {
    pub(crate) open: Open,
    version: c_int,
    group_bytes: usize,
}

impl Nccl {
    /// Load the process group; to call behind [`super::Cuda::load`] or [`super::Cuda::load_libraries`].
    ///
    /// # Errors
    /// It was not built, does not fit the loaded libtorch, or libtorch has no CUDA.
    pub fn load() -> Result<Self, CudaError> {
        let failed = |message: String| CudaError::Load { file: PathBuf::from("the process group over NCCL"), message };
        if LIBRARY.is_empty() {
            return Err(CudaError::WithoutNccl);
        }
        // SAFETY: a new descriptor, owned by the file; the name is a constant.
        let mut memory = unsafe {
            let descriptor = libc::memfd_create(c"torch_dist_nccl".as_ptr(), libc::MFD_CLOEXEC);
            if descriptor < 0 {
                return Err(failed(std::io::Error::last_os_error().to_string()));
            }
            std::fs::File::from_raw_fd(descriptor)
        };
        memory.write_all(LIBRARY).map_err(|e| failed(e.to_string()))?;
        let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
        // SAFETY: its initialisers only make the lists of names that c10d's header defines; the signatures are those of its source,
        // and the message has as many bytes as it is told.
        unsafe {
            let library = Library::open(Some(path), RTLD_NOW | RTLD_LOCAL).map_err(|e| failed(e.to_string()))?;
            let fits: Symbol<unsafe extern "C" fn(*mut c_char, usize) -> c_int> =
                library.get(b"torch_dist_nccl_fits\0").map_err(|e| failed(e.to_string()))?;
            let mut message = [0 as c_char; 1024];
            if fits(message.as_mut_ptr(), message.len()) != 0 {
                let text = CStr::from_ptr(message.as_ptr()).to_string_lossy().into_owned();
                return Err(CudaError::NcclMisfit(text.lines().next().unwrap_or_default().to_owned()));
            }
            let open: Symbol<Open> = library.get(b"torch_dist_nccl_open\0").map_err(|e| failed(e.to_string()))?;
            let number: Symbol<unsafe extern "C" fn() -> c_int> =
                library.get(b"torch_dist_nccl_version\0").map_err(|e| failed(e.to_string()))?;
            let bytes: Symbol<unsafe extern "C" fn() -> usize> =
                library.get(b"torch_dist_nccl_group_bytes\0").map_err(|e| failed(e.to_string()))?;
            let nccl = Self { open: *open, version: number(), group_bytes: bytes() };
            // Its objects live as long as the process group.
            std::mem::forget(library);
            Ok(nccl)
        }
    }

    /// Version of NCCL, `2.28.9`; empty if unknown.
    pub fn version(&self) -> String {
        match self.version {
            0 => String::new(),
            v => format!("{}.{}.{}", v / 10_000, v % 10_000 / 100, v % 100),
        }
    }

    /// Size of c10d's process group as it is allocated here, bytes. libtorch_cuda, which frees it, has to assume the same size.
    pub fn group_bytes(&self) -> usize {
        self.group_bytes
    }

    /// For tests: NCCL with a function that stands in for `torch_dist_nccl_open` of `nccl/backend.cpp`.
    ///
    /// # Safety
    /// The function keeps to what is said there.
    #[doc(hidden)]
    pub unsafe fn stand_in(open: Open) -> Self {
        Self { open, version: 0, group_bytes: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_left_to_the_caller_unless_the_environment_says_otherwise() {
        let all = ["TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_RETHROW_CUDA_ERRORS", "TORCH_NCCL_ENABLE_MONITORING"];
        assert_eq!(unset_variables(|_| None), all.map(|name| (name, "0")));
        let older = |name: &str| (name == "NCCL_ASYNC_ERROR_HANDLING").then(|| OsString::from("1"));
        assert_eq!(unset_variables(older), [(all[1], "0"), (all[2], "0")]);
        assert!(unset_variables(|_| Some(OsString::from("3"))).is_empty());
    }
}
