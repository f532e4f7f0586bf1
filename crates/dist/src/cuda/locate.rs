use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::CudaError;
use crate::version::release;

/// The library that registers libtorch's CUDA kernels.
const LIBRARY: &str = "libtorch_cuda.so";

/// Find the libtorch_cuda.so that fits the libtorch of `wanted` version whose libtorch_cpu.so is `loaded`: in `EXPCTL_LIBTORCH`,
/// beside the one that was loaded (where links lead), in the cache folder, in the PyTorch of the active Python environment, in
/// that of `python3`.
///
/// # Errors
/// There is none, or the first one found is of another version.
pub(super) fn locate(loaded: &Path, wanted: &str) -> Result<PathBuf, CudaError> {
    let folders = candidates(loaded, wanted, &|name| std::env::var_os(name).filter(|value| !value.is_empty()));
    let python = || python_torch().map(|torch| torch.join("lib"));
    find(folders, python, wanted)
}

fn find(
    mut folders: Vec<PathBuf>,
    python: impl FnOnce() -> Option<PathBuf>,
    wanted: &str,
) -> Result<PathBuf, CudaError> {
    let has = |folder: &&PathBuf| folder.join(LIBRARY).exists();
    // Asking Python takes a process.
    if folders.iter().find(has).is_none() {
        folders.extend(python());
    }
    let Some(folder) = folders.iter().find(has) else {
        return Err(CudaError::NoLibrary { searched: folders, version: wanted.to_owned() });
    };
    let file = folder.join(LIBRARY);
    match version_of(folder) {
        Some(found) if release(&found) != release(wanted) => {
            Err(CudaError::Version { file, found, wanted: wanted.to_owned() })
        }
        _ => Ok(file),
    }
}

/// Folders to look in, the first come first, without Python's.
fn candidates(loaded: &Path, wanted: &str, env: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    if let Some(site) = env("EXPCTL_LIBTORCH").map(PathBuf::from) {
        folders.push(if site.join("lib").is_dir() { site.join("lib") } else { site });
    }
    // Set up from a site's PyTorch, what was loaded is a link into it.
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

/// Version of the PyTorch with this folder `lib`, as its own file says; none if there is no such file.
fn version_of(folder: &Path) -> Option<String> {
    let root = folder.parent()?;
    if let Ok(text) = std::fs::read_to_string(root.join("version.py")) {
        let line = text.lines().find(|line| line.starts_with("__version__"))?;
        return line.split(['\'', '"']).nth(1).map(str::to_owned);
    }
    let text = std::fs::read_to_string(root.join("build-version")).ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn torch(root: &Path, version: &str) -> PathBuf {
        let lib = root.join("torch/lib");
        std::fs::create_dir_all(&lib).unwrap();
        std::fs::write(lib.join(LIBRARY), "").unwrap();
        std::fs::write(root.join("torch/version.py"), format!("from typing import x\n__version__ = '{version}'\n"))
            .unwrap();
        lib
    }

    #[test]
    fn folders_come_in_their_order_and_once() {
        let dir = tempfile::tempdir().unwrap();
        let venv = dir.path().join("venv");
        let site = venv.join("lib/python3.12/site-packages");
        let own = torch(&site, "2.11.0+cu130");
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
        assert_eq!(find(folders, || panic!("not asked"), "2.11.0"), Ok(own.join(LIBRARY)));
    }

    #[test]
    fn another_version_is_refused_and_none_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let lib = torch(dir.path(), "2.9.1+cu128");
        let error = find(vec!["/nowhere".into()], || Some(lib.clone()), "2.11.0").unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "{}/libtorch_cuda.so is of PyTorch 2.9.1+cu128, and this program is built against 2.11.0: set EXPCTL_LIBTORCH to \
                 the folder of one that fits",
                lib.display()
            )
        );
        let none = find(vec!["/nowhere".into()], || None, "2.11.0").unwrap_err();
        assert!(matches!(none, CudaError::NoLibrary { searched, .. } if searched == [PathBuf::from("/nowhere")]));
    }
}
