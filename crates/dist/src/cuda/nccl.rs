use std::ffi::{c_char, c_int, c_void};
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::PathBuf;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW, Symbol};

use super::CudaError;

/// The library `nccl/backend.cpp`, which needs libtorch_cuda and so cannot be part of this program. Empty where it could not be built.
static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/expctl_nccl.so"));

/// Makes c10d's backend over NCCL. Defined in `nccl/backend.cpp`.
pub(crate) type Open =
    unsafe extern "C" fn(*const c_void, c_int, c_int, i64, c_int, *mut *mut c_void, *mut c_char, usize) -> c_int;

/// libtorch's process group over NCCL, loaded.
#[derive(Clone, Copy, Debug)]
pub struct Nccl {
    pub(crate) open: Open,
    version: c_int,
}

impl Nccl {
    /// Load it behind [`super::Cuda::load`] or [`super::Cuda::load_libraries`].
    ///
    /// # Errors
    /// It was not built, or does not fit the libtorch that is there, or none with CUDA is.
    pub fn load() -> Result<Self, CudaError> {
        let failed = |message: String| CudaError::Load { file: PathBuf::from("the process group over NCCL"), message };
        if LIBRARY.is_empty() {
            return Err(CudaError::WithoutNccl);
        }
        // SAFETY: a new descriptor, owned by the file; the name is a constant.
        let mut memory = unsafe {
            let descriptor = libc::memfd_create(c"expctl_nccl".as_ptr(), libc::MFD_CLOEXEC);
            if descriptor < 0 {
                return Err(failed(std::io::Error::last_os_error().to_string()));
            }
            std::fs::File::from_raw_fd(descriptor)
        };
        memory.write_all(LIBRARY).map_err(|e| failed(e.to_string()))?;
        let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
        // SAFETY: it has no initialisers of its own; the signatures are those of its source.
        unsafe {
            let library = Library::open(Some(path), RTLD_NOW | RTLD_LOCAL).map_err(|e| failed(e.to_string()))?;
            let open: Symbol<Open> = library.get(b"expctl_nccl_open\0").map_err(|e| failed(e.to_string()))?;
            let ask: Symbol<unsafe extern "C" fn() -> c_int> =
                library.get(b"expctl_nccl_version\0").map_err(|e| failed(e.to_string()))?;
            let nccl = Self { open: *open, version: ask() };
            // Its objects live as long as the process group.
            std::mem::forget(library);
            Ok(nccl)
        }
    }

    /// Version of NCCL, `2.28.9`; empty where it does not say.
    pub fn version(&self) -> String {
        match self.version {
            0 => String::new(),
            v => format!("{}.{}.{}", v / 10_000, v % 10_000 / 100, v % 100),
        }
    }
}
