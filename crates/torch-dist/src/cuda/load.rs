use std::ffi::c_int;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use super::driver::{Driver, version_text};
use super::locate::locate;
use super::{CudaError, GpuFacts};
use crate::DistError;
use crate::ffi::bridge;
use crate::version::{libtorch_file, release};

/// CUDA in this process: a driver with at least one GPU, and libtorch's kernels for it.
#[derive(Clone, Debug)]
pub struct Cuda {
    gpus: Vec<GpuFacts>,
    versions: CudaVersions,
}

/// What was loaded.
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
    /// Look for a driver, a GPU and libtorch's CUDA kernels, and load these. To call before the first tensor of the process: a
    /// libtorch that was asked for devices before remembers that it had none.
    ///
    /// # Errors
    /// What is missing, in one line.
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

    /// The part of it that needs no driver, by which an installation can be looked at anywhere: find libtorch's CUDA kernels and load
    /// them. Returns their file.
    ///
    /// # Errors
    /// They are not there, of another version or for another CUDA, or lack a library.
    pub fn load_libraries() -> Result<PathBuf, CudaError> {
        libraries().map(|(file, _)| file)
    }

    /// Make GPU `index` the one that this thread's work goes to where nothing else is said.
    ///
    /// # Errors
    /// There is no such GPU.
    pub fn choose(&self, index: u32) -> Result<(), DistError> {
        bridge::choose_gpu(i32::try_from(index).unwrap_or(-1)).map_err(DistError::torch("choose a GPU"))
    }

    /// The GPUs that this process sees, in its order.
    pub fn gpus(&self) -> &[GpuFacts] {
        &self.gpus
    }

    /// What was loaded.
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

/// Load `file` and what it needs for all of the process and for good, as `import torch` does: kernels stay registered.
fn load_library(file: &Path) -> Result<&'static Library, CudaError> {
    // SAFETY: its initialisers register kernels, and nothing else.
    let library = unsafe { Library::open(Some(file), RTLD_NOW | RTLD_GLOBAL) };
    match library {
        Ok(library) => Ok(Box::leak(Box::new(library))),
        Err(e) => Err(CudaError::Load { file: file.to_owned(), message: e.to_string() }),
    }
}

/// Version of the CUDA runtime that `library`, loaded from `file`, works with. It is asked for among what this library needs: libtorch's
/// CPU part may have brought another runtime.
fn runtime_version(file: &Path, library: &Library) -> Result<c_int, CudaError> {
    let failed = |message: String| CudaError::Load { file: file.to_owned(), message };
    let mut version = 0;
    // SAFETY: the signature is that of cuda_runtime_api.h, and the number lives for the call.
    let code = unsafe {
        let ask: libloading::os::unix::Symbol<unsafe extern "C" fn(*mut c_int) -> c_int> =
            library.get(b"cudaRuntimeGetVersion\0").map_err(|e| failed(e.to_string()))?;
        ask(&raw mut version)
    };
    if code == 0 { Ok(version) } else { Err(failed(format!("cudaRuntimeGetVersion: error {code}"))) }
}
