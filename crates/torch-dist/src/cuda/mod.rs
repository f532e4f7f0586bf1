//! CUDA, loaded at run time: one program serves machines with and without it. Invariant: nothing of CUDA is linked, and a process that does not
//! ask for a GPU loads nothing of it.
//!
//! Streams, events and page-locked memory go through libtorch's interface for devices of any kind, which is in libc10 and libtorch_cpu; it works
//! once libtorch_cuda is loaded. Only the process group over NCCL has no such interface: it is in a small library of its own
//! (`nccl/backend.cpp`), which is embedded in this program and loaded from memory.

use std::ffi::c_int;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW, Symbol};

use crate::DistError;
use crate::ffi::bridge;
use crate::{libtorch_file, release};

mod driver;
mod locate;
mod nccl;
mod stream;

pub use driver::GpuProperties;
pub use nccl::{Nccl, leave_nccl_failures_to_caller};
pub use stream::{DeviceEvent, DeviceStream, PinnedMemory, StreamScope};

use driver::{Driver, version_text};
use locate::locate;

/// CUDA in this process: a driver with at least one GPU, and libtorch's kernels for it.
#[derive(Clone, Debug)]
pub struct Cuda {
    gpus: Vec<GpuProperties>,
    versions: CudaVersions,
}

/// Versions of what was loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaVersions {
    /// CUDA version that the driver supports, `13.0`.
    pub driver: String,
    /// CUDA version of libtorch.
    pub runtime: String,
    /// The file of libtorch's kernels.
    pub library: PathBuf,
}

impl Cuda {
    /// Find a driver, a GPU and libtorch's CUDA kernels, and load the kernels. To call before the first tensor of the process: a libtorch that was
    /// asked for devices before remembers that there were none.
    ///
    /// # Errors
    /// The driver, a GPU or the kernels are missing, or do not fit each other.
    pub fn load() -> Result<Self, CudaError> {
        let driver = Driver::open()?;
        let gpus = driver.gpus()?;
        if gpus.is_empty() {
            return Err(CudaError::no_device());
        }
        let (file, library) = libraries()?;
        let runtime = runtime_version(&file, library)?;
        let versions = CudaVersions {
            driver: version_text(driver.version()),
            runtime: version_text(runtime),
            library: file.clone(),
        };
        // Within a major version, older drivers serve newer libraries.
        if driver.version() / 1000 < runtime / 1000 {
            return Err(CudaError::OldDriver { driver: versions.driver, runtime: versions.runtime, file });
        }
        if bridge::visible_gpus() == 0 {
            return Err(CudaError::Unseen(file));
        }
        bridge::annotate_ranges();
        Ok(Self { gpus, versions })
    }

    /// The part of [`Cuda::load`] that needs no driver, to check an installation anywhere: find and load libtorch's CUDA kernels. Returns their
    /// file.
    ///
    /// # Errors
    /// The kernels are missing, of another version or for another CUDA, or lack a library.
    pub fn load_libraries() -> Result<PathBuf, CudaError> {
        libraries().map(|(file, _)| file)
    }

    /// Make GPU `index` the default one of this thread.
    ///
    /// # Errors
    /// The GPU does not exist.
    pub fn select(&self, index: u32) -> Result<(), DistError> {
        bridge::choose_gpu(i32::try_from(index).unwrap_or(-1)).map_err(DistError::torch("choose a GPU"))
    }

    /// The GPUs that this process sees, in its order.
    pub fn gpus(&self) -> &[GpuProperties] {
        &self.gpus
    }

    /// Versions of what was loaded.
    pub fn versions(&self) -> &CudaVersions {
        &self.versions
    }
}

/// libtorch's CUDA kernels, found and loaded, and their file.
fn libraries() -> Result<(PathBuf, &'static Library), CudaError> {
    let file = locate(Path::new(&libtorch_file()), release(&bridge::compiled_version()))?;
    let library = load_library(&file)?;
    Ok((file, library))
}

/// Load `file` and the libraries that it needs for the whole process, for good, as `import torch` does: kernels stay registered.
fn load_library(file: &Path) -> Result<&'static Library, CudaError> {
    // SAFETY: its initialisers register kernels, and nothing else.
    let library = unsafe { Library::open(Some(file), RTLD_NOW | RTLD_GLOBAL) };
    match library {
        Ok(library) => Ok(Box::leak(Box::new(library))),
        Err(e) => Err(CudaError::Load { file: file.to_owned(), message: e.to_string() }),
    }
}

/// Version of the CUDA runtime of `library`, loaded from `file`. The symbol is looked up among the libraries that this one needs: libtorch's CPU
/// part may have loaded another runtime.
fn runtime_version(file: &Path, library: &Library) -> Result<c_int, CudaError> {
    let failed = |message: String| CudaError::Load { file: file.to_owned(), message };
    let mut version = 0;
    // SAFETY: the signature is that of cuda_runtime_api.h, and the number lives for the call.
    let code = unsafe {
        let ask: Symbol<unsafe extern "C" fn(*mut c_int) -> c_int> =
            library.get(b"cudaRuntimeGetVersion\0").map_err(|e| failed(e.to_string()))?;
        ask(&raw mut version)
    };
    if code == 0 { Ok(version) } else { Err(failed(format!("cudaRuntimeGetVersion: error {code}"))) }
}

/// Why this process cannot compute on a GPU.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CudaError {
    /// There is no driver.
    #[error("this machine has no NVIDIA driver ({0})")]
    NoDriver(String),
    /// The driver does not work.
    #[error("the NVIDIA driver does not work: {0}")]
    Driver(String),
    /// The driver shows no GPU.
    #[error("no GPU is visible to this process{}", visible(.0.as_deref()))]
    NoDevice(Option<String>),
    /// There is no libtorch with CUDA.
    #[error(
        "no libtorch_cuda.so in {}: install PyTorch {version} with CUDA, or set EXPCTL_LIBTORCH to its folder",
        list(searched)
    )]
    NoLibrary {
        /// Folders that were searched.
        searched: Vec<PathBuf>,
        /// Version that would fit.
        version: String,
    },
    /// The libtorch with CUDA is of another version.
    #[error("{} is of PyTorch {found}, and this program is built against {wanted}: set EXPCTL_LIBTORCH to the folder of one that fits", file.display())]
    Version {
        /// The library.
        file: PathBuf,
        /// Its version.
        found: String,
        /// Version that would fit.
        wanted: String,
    },
    /// The libtorch with CUDA is built for another CUDA than the libtorch that was loaded.
    #[error(
        "{} is of a PyTorch for CUDA {found}, and the libtorch that was loaded is for CUDA {loaded}: take both from one PyTorch, by \
         EXPCTL_LIBTORCH and LD_LIBRARY_PATH",
        file.display()
    )]
    OtherCuda {
        /// The library.
        file: PathBuf,
        /// CUDA version that it is built for.
        found: String,
        /// Major CUDA version of the libtorch that was loaded.
        loaded: u32,
    },
    /// A library cannot be loaded.
    #[error("cannot load {}: {message}", file.display())]
    Load {
        /// The library.
        file: PathBuf,
        /// Message of the loader.
        message: String,
    },
    /// The driver is older than the CUDA that libtorch was built with.
    #[error("the NVIDIA driver knows CUDA {driver}, and {} needs {runtime}: a newer driver, or a PyTorch for CUDA {driver} in EXPCTL_LIBTORCH", file.display())]
    OldDriver {
        /// CUDA version of the driver.
        driver: String,
        /// CUDA version of libtorch.
        runtime: String,
        /// The library.
        file: PathBuf,
    },
    /// libtorch does not see the GPU that the driver shows.
    #[error("{} was loaded and sees no GPU, though the driver shows one", .0.display())]
    Unseen(PathBuf),
    /// The process group over NCCL was compiled against another libtorch than the one with CUDA.
    #[error("the process group over NCCL does not fit libtorch: {0}")]
    NcclMisfit(String),
    /// This program was built without the process group over NCCL.
    #[error("this program was built without NCCL")]
    WithoutNccl,
}

impl CudaError {
    fn no_device() -> Self {
        Self::NoDevice(std::env::var("CUDA_VISIBLE_DEVICES").ok())
    }
}

fn visible(variable: Option<&str>) -> String {
    variable.map(|names| format!(" (CUDA_VISIBLE_DEVICES={names})")).unwrap_or_default()
}

fn list(searched: &[PathBuf]) -> String {
    searched.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_says_what_is_missing_and_what_to_do() {
        let searched = vec![PathBuf::from("/a/lib"), PathBuf::from("/b/lib")];
        let none = CudaError::NoLibrary { searched, version: "2.11.0".to_owned() };
        assert_eq!(
            none.to_string(),
            "no libtorch_cuda.so in /a/lib, /b/lib: install PyTorch 2.11.0 with CUDA, or set EXPCTL_LIBTORCH to its folder"
        );
        assert_eq!(CudaError::NoDevice(None).to_string(), "no GPU is visible to this process");
        let hidden = CudaError::NoDevice(Some("-1".to_owned()));
        assert_eq!(hidden.to_string(), "no GPU is visible to this process (CUDA_VISIBLE_DEVICES=-1)");
    }
}
