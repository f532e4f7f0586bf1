use std::path::PathBuf;

/// Why a rank cannot compute on a GPU.
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
        /// Where it was looked for.
        searched: Vec<PathBuf>,
        /// What would fit.
        version: String,
    },
    /// The libtorch with CUDA is of another version.
    #[error("{} is of PyTorch {found}, and this program is built against {wanted}: set EXPCTL_LIBTORCH to the folder of one that fits", file.display())]
    Version {
        /// The library.
        file: PathBuf,
        /// Its version.
        found: String,
        /// What would fit.
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
        /// What the loader says.
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
    /// The process group over NCCL was compiled against another one than libtorch with CUDA.
    #[error(
        "the process group over NCCL does not fit libtorch: {0} (set launch.backend = \"gloo\", or build expctl-worker against that PyTorch)"
    )]
    NcclMisfit(String),
    /// This program was built without the process group over NCCL.
    #[error("this expctl-worker was built without NCCL: set launch.backend = \"gloo\", or build it where nccl.h is")]
    WithoutNccl,
}

impl CudaError {
    pub(super) fn no_device() -> Self {
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
