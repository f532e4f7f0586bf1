//! `locate` finds the libtorch_cuda.so to load.
//! Invariant: a library of another version than the libtorch of this process, or for another CUDA runtime than the loaded one, is refused and not
//! loaded. One whose folder names no version is accepted.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cuda::CudaError;
use crate::release;

/// The library that registers libtorch's CUDA kernels.
const LIBRARY: &str = "libtorch_cuda.so";

/// Find the libtorch_cuda.so that fits the libtorch of `wanted` version whose libtorch_cpu.so is `loaded`: in `EXPCTL_LIBTORCH`, beside the loaded
/// one (links resolved), in the cache folder, in the PyTorch of the active Python environment, in that of `python3`.
///
/// # Errors
/// There is none, or the first one is of another version or built for another CUDA.
pub fn locate(loaded: &Path, wanted: &str) -> Result<PathBuf, CudaError> {
    let folders = candidates(loaded, wanted, &|name| std::env::var_os(name).filter(|value| !value.is_empty()));
    let python = || python_torch().map(|torch| torch.join("lib"));
    // libtorch_cpu.so loads the CUDA runtime that its profiler was built with.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    find(folders, python, wanted, cuda_of_process(&maps))
}

fn find(
    mut folders: Vec<PathBuf>,
    python: impl FnOnce() -> Option<PathBuf>,
    wanted: &str,
    loaded_cuda: Option<u32>,
) -> Result<PathBuf, CudaError> {
    let has = |folder: &&PathBuf| folder.join(LIBRARY).exists();
    // To ask Python starts a process.
    if folders.iter().find(has).is_none() {
        folders.extend(python());
    }
    let Some(folder) = folders.iter().find(has) else {
        return Err(CudaError::NoLibrary { searched: folders, version: wanted.to_owned() });
    };
    let file = folder.join(LIBRARY);
    let Some(build) = Build::read(folder) else { return Ok(file) };
    if release(&build.version) != release(wanted) {
        return Err(CudaError::Version { file, found: build.version, wanted: wanted.to_owned() });
    }
    match (build.cuda, loaded_cuda) {
        // With two runtimes in one process, chance would decide which one answers.
        (Some(found), Some(loaded)) if major(&found) != Some(loaded) => {
            Err(CudaError::OtherCuda { file, found, loaded })
        }
        _ => Ok(file),
    }
}

/// Folders to search, in order, without that of `python3`.
fn candidates(loaded: &Path, wanted: &str, env: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    if let Some(site) = env("EXPCTL_LIBTORCH").map(PathBuf::from) {
        folders.push(if site.join("lib").is_dir() { site.join("lib") } else { site });
    }
    // Where libtorch was set up from a site's PyTorch, the loaded file is a link into it.
    let real = loaded.canonicalize().unwrap_or_else(|_| loaded.to_owned());
    folders.extend(real.parent().map(Path::to_owned));
    let cache = env("EXPCTL_CACHE").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(env("HOME")?).join(".cache/expctl")));
    folders.extend(cache.map(|cache| cache.join(format!("libtorch-cuda-{}", release(wanted))).join("torch/lib")));
    for prefix in ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(env) {
        let lib = Path::new(&prefix).join("lib");
        let entries = std::fs::read_dir(&lib).into_iter().flatten().flatten();
        let mut pythons: Vec<PathBuf> = entries
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"))
            .map(|entry| entry.path().join("site-packages/torch/lib"))
            .collect();
        pythons.sort();
        folders.extend(pythons);
    }
    let mut unique: Vec<PathBuf> = Vec::new();
    for folder in folders {
        if !unique.contains(&folder) {
            unique.push(folder);
        }
    }
    unique
}

/// Folder of the PyTorch of `python3`; it is not imported, which would take seconds.
fn python_torch() -> Option<PathBuf> {
    let ask = "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])";
    let output = Command::new("python3").args(["-c", ask]).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| PathBuf::from(text.trim()))
}

/// A PyTorch, as its own files describe it.
#[derive(Debug, PartialEq, Eq)]
struct Build {
    /// `2.11.0+cu130`.
    version: String,
    /// CUDA version that it is built for, `13.0`; `None` if unknown.
    cuda: Option<String>,
}

impl Build {
    /// The build of the PyTorch or libtorch with this folder `lib`; `None` if no file names its version.
    fn read(folder: &Path) -> Option<Self> {
        let root = folder.parent()?;
        let (version, cuda) = match std::fs::read_to_string(root.join("version.py")) {
            Ok(text) => (assigned(&text, "__version__")?, assigned(&text, "cuda")),
            Err(_) => (std::fs::read_to_string(root.join("build-version")).ok()?.trim().to_owned(), None),
        };
        let cuda = cuda.or_else(|| cuda_of_suffix(&version));
        Some(Self { version, cuda })
    }
}

/// The text that version.py assigns to `name`: `__version__ = '2.11.0+cu130'`, `cuda: Optional[str] = '13.0'`.
fn assigned(text: &str, name: &str) -> Option<String> {
    let rest =
        text.lines().find_map(|line| line.strip_prefix(name).filter(|rest| rest.starts_with([' ', ':', '='])))?;
    rest.split_once('=')?.1.split(['\'', '"']).nth(1).map(str::to_owned)
}

/// `13.0` for `2.11.0+cu130`.
fn cuda_of_suffix(version: &str) -> Option<String> {
    let digits = version.split_once("+cu")?.1;
    let (major, minor) = digits.split_at_checked(digits.len().checked_sub(1)?)?;
    major.parse::<u32>().ok().map(|major| format!("{major}.{minor}"))
}

fn major(version: &str) -> Option<u32> {
    version.split('.').next()?.parse().ok()
}

/// Major version of the CUDA runtime that a process with these `maps` has loaded (`libcudart.so.13`, `libcudart-d0da41ae.so.11.0`); `None`
/// without one.
fn cuda_of_process(maps: &str) -> Option<u32> {
    let files = maps.lines().filter_map(|line| line.rsplit('/').next());
    let mut versions = files.filter(|file| file.starts_with("libcudart")).filter_map(|file| file.split_once(".so."));
    versions.find_map(|(_, version)| major(version))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn torch(root: &Path, version: &str, cuda: &str) -> PathBuf {
        let lib = root.join("torch/lib");
        std::fs::create_dir_all(&lib).unwrap();
        std::fs::write(lib.join(LIBRARY), "").unwrap();
        let text = format!(
            "from typing import Optional\n\n__all__ = ['__version__', 'cuda']\n__version__ = '{version}'\n{cuda}\nhip: Optional[str] = None\n"
        );
        std::fs::write(root.join("torch/version.py"), text).unwrap();
        lib
    }

    #[test]
    fn folders_come_in_their_order_and_once() {
        let dir = tempfile::tempdir().unwrap();
        let venv = dir.path().join("venv");
        let site = venv.join("lib/python3.12/site-packages");
        let own = torch(&site, "2.11.0+cu130", "cuda: Optional[str] = '13.0'");
        let link = dir.path().join("lib");
        std::fs::create_dir(&link).unwrap();
        std::fs::write(own.join("libtorch_cpu.so"), "").unwrap();
        std::os::unix::fs::symlink(own.join("libtorch_cpu.so"), link.join("libtorch_cpu.so")).unwrap();
        let env = |name: &str| match name {
            "EXPCTL_LIBTORCH" => Some("/site/torch".into()),
            "EXPCTL_CACHE" => Some("/cache".into()),
            "VIRTUAL_ENV" => Some(venv.clone().into()),
            _ => None,
        };
        let folders = candidates(&link.join("libtorch_cpu.so"), "2.11.0", &env);
        let own = own.canonicalize().unwrap();
        let cache = PathBuf::from("/cache/libtorch-cuda-2.11.0/torch/lib");
        assert_eq!(folders, [PathBuf::from("/site/torch"), own.clone(), cache]);
        assert_eq!(find(folders, || panic!("not asked"), "2.11.0", Some(13)), Ok(own.join(LIBRARY)));
    }

    #[test]
    fn another_version_is_refused_and_none_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let lib = torch(dir.path(), "2.9.1+cu128", "cuda: Optional[str] = '12.8'");
        let error = find(vec!["/nowhere".into()], || Some(lib.clone()), "2.11.0", Some(13)).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "{}/libtorch_cuda.so is of PyTorch 2.9.1+cu128, and this program is built against 2.11.0: set EXPCTL_LIBTORCH to \
                 the folder of one that fits",
                lib.display()
            )
        );
        let none = find(vec!["/nowhere".into()], || None, "2.11.0", None).unwrap_err();
        assert!(matches!(none, CudaError::NoLibrary { searched, .. } if searched == [PathBuf::from("/nowhere")]));
    }

    /// Both are PyTorch 2.11.0, and each would bring a CUDA runtime of its own.
    #[test]
    fn a_build_for_another_cuda_is_refused() {
        let found = |version: &str, cuda: &str, loaded: Option<u32>| {
            let dir = tempfile::tempdir().unwrap();
            find(vec![torch(dir.path(), version, cuda)], || panic!("not asked"), "2.11.0", loaded).map(|_| ())
        };
        let cuda12 = "cuda: Optional[str] = '12.8'";
        let error = found("2.11.0+cu128", cuda12, Some(13)).unwrap_err().to_string();
        assert!(
            error.contains("is of a PyTorch for CUDA 12.8, and the libtorch that was loaded is for CUDA 13"),
            "{error}"
        );
        // Some sites leave the build out of the version, older files write no type.
        assert!(found("2.11.0", "cuda = '12.6'", Some(13)).is_err());
        assert!(found("2.11.0+cu126", "", Some(13)).is_err());
        assert_eq!(found("2.11.0+cu130", "cuda: Optional[str] = '13.0'", Some(13)), Ok(()));
        // A libtorch without CUDA's profiler brings no runtime, and a build may not say what it is for.
        assert_eq!(found("2.11.0+cu128", cuda12, None), Ok(()));
        assert_eq!(found("2.11.0", "cuda: Optional[str] = None", Some(13)), Ok(()));
    }

    #[test]
    fn the_cuda_of_a_process_is_that_of_its_runtime() {
        let line =
            |file: &str| format!("7f0000000000-7f0000001000 r-xp 00000000 08:01 123   /site/nvidia/cu13/lib/{file}\n");
        let maps = [line("libc10.so"), line("libcudart.so.13"), line("libcudart.so.12")].concat();
        assert_eq!(cuda_of_process(&maps), Some(13));
        assert_eq!(cuda_of_process(&line("libcudart-d0da41ae.so.11.0")), Some(11));
        assert_eq!(cuda_of_process(&line("libcuda.so.1")), None);
    }
}
