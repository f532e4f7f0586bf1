//! The programs of expctl on this machine: the C library that they need, the worker, the libtorch that it loads, and the GPUs that it can use.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use expctl_text::format::count;
use host_metrics::{Gpu, Hardware, hardware, nvidia_gpus_on_bus};

use super::{Check, CheckState};
use crate::program::{
    BRINGS_ONE_VERSION, LIBTORCH, fits_worker, libtorch_advice, libtorch_folder, libtorch_version, missing_libraries,
    other_version, pip_beside, worker_binary, worker_version,
};

/// Oldest glibc that PyTorch's wheels and those of expctl run with.
const MIN_GLIBC: (u32, u32) = (2, 28);
/// Oldest driver for each major version of CUDA, by NVIDIA's [CUDA Compatibility][1]. A package for compatibility may do with less.
///
/// [1]: https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
const MIN_DRIVERS: [(u32, u32); 2] = [(12, 525), (13, 580)];
/// Time limit of `expctl-worker --version`: it reads hundreds of MB first, maybe over a network.
const WORKER_TIMEOUT: Duration = Duration::from_secs(60);

/// Check the C library of this machine.
pub fn system() -> Check {
    check_system(&hardware(false))
}

fn check_system(hardware: &Hardware) -> Check {
    let Hardware { host, kernel, glibc, .. } = hardware;
    let found = format!("glibc {glibc}, Linux {kernel}, {host}");
    if two_numbers(glibc).is_some_and(|version| version < MIN_GLIBC) {
        let (major, minor) = MIN_GLIBC;
        let todo = format!(
            "PyTorch {LIBTORCH} and the wheels need glibc {major}.{minor}: run ranks in a container (slurm.image, docs/guide/install.md)"
        );
        return Check::warning("system", found, todo);
    }
    Check::ok("system", found)
}

/// The first two numbers of `2.28` or `2.11.0`.
fn two_numbers(version: &str) -> Option<(u32, u32)> {
    let (major, rest) = version.split_once('.')?;
    let minor: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Check the worker, the libtorch that it loads, and the GPUs that they could use.
pub fn worker(with_slurm: bool) -> Vec<Check> {
    let found = worker_binary();
    let torch = found.as_ref().ok().and_then(|path| libtorch_folder(path));
    let mut checks = match &found {
        Ok(path) => check_programs(path, torch.as_deref()),
        Err(failure) => vec![Check::problem("worker", failure.message.clone(), failure.hints.join("; "))],
    };
    let pip = found.as_ref().map_or_else(|_| "pip".to_owned(), |path| pip_beside(path));
    let site = std::env::var_os("EXPCTL_LIBTORCH").filter(|site| !site.is_empty()).map(PathBuf::from);
    let torch = torch.as_deref().map(|folder| TorchBuild::of(folder, site));
    checks.push(check_gpus(&hardware(false), nvidia_gpus_on_bus(), torch.as_ref(), &pip, with_slurm));
    checks
}

/// Check the worker, and the libtorch in `torch` that it loads. Without its libtorch it does not start: one line says so.
fn check_programs(worker: &Path, torch: Option<&Path>) -> Vec<Check> {
    let libtorch = match torch {
        Some(folder) => found_libtorch(folder, worker),
        None if missing_libraries(worker).is_empty() => return vec![check_worker(worker)],
        None => Check::problem("libtorch", "the worker finds none", libtorch_advice(worker)),
    };
    if libtorch.state == CheckState::Ok { vec![check_worker(worker), libtorch] } else { vec![libtorch] }
}

/// Check that the worker starts.
fn check_worker(path: &Path) -> Check {
    judge_worker(path, worker_version(path, WORKER_TIMEOUT))
}

/// What an answer of the worker means: its version, or why it does not start.
fn judge_worker(path: &Path, answer: Result<String, String>) -> Check {
    let shown = path.display();
    match answer {
        Ok(version) if other_version(&version).is_some() => {
            let found = format!("{version}, {shown}; this is expctl {}", env!("CARGO_PKG_VERSION"));
            Check::problem("worker", found, BRINGS_ONE_VERSION)
        }
        Ok(version) => Check::ok("worker", format!("{version}, {shown}")),
        // Of the C library or of that of C++.
        Err(why) if why.contains("version `GLIBC") => {
            let todo = "it was built on a newer system: pip install dist/expctl_worker-*.whl (`make wheels` there, docs/guide/install.md), or `make build` here";
            Check::problem("worker", why, todo)
        }
        Err(why) => Check::problem("worker", why, format!("run it by hand: {shown} --version")),
    }
}

/// Check the libtorch that the worker finds in `folder`.
fn found_libtorch(folder: &Path, worker: &Path) -> Check {
    let version = libtorch_version(folder);
    let found = format!("{}, {}", version.as_deref().unwrap_or("of unknown version"), folder.display());
    if version.as_deref().is_none_or(fits_worker) {
        // Login nodes have none, so this is no problem.
        let is_idle = folder.join(CUDA_PART).exists() && hardware(false).gpus.is_empty();
        let without_gpu =
            if is_idle { "; it is for CUDA, and no driver shows a GPU here: ranks compute on the host" } else { "" };
        return Check::ok("libtorch", found + without_gpu);
    }
    let todo = todo_of_libtorch(folder, worker, std::env::var_os("LD_LIBRARY_PATH").as_deref());
    Check::problem("libtorch", format!("{found}; the worker is built for {LIBTORCH}"), todo)
}

/// What to do about a libtorch of another version, where `library_path` may be why it is found.
fn todo_of_libtorch(folder: &Path, worker: &Path, library_path: Option<&OsStr>) -> String {
    let advice = libtorch_advice(worker);
    match library_path {
        Some(path) if std::env::split_paths(path).any(|named| named == folder) => {
            format!("unset LD_LIBRARY_PATH, which names it; or {advice}")
        }
        _ => advice,
    }
}

/// The part of libtorch that computes on GPUs.
const CUDA_PART: &str = "libtorch_cuda.so";

/// What the PyTorch of the worker can compute on.
#[derive(Debug, PartialEq, Eq)]
enum TorchBuild {
    /// GPUs, with this major version of CUDA, where the version of PyTorch names it.
    Cuda(Option<u32>),
    /// Processors alone.
    Cpu,
    /// Unknown: its part for CUDA is not beside it, and ranks search more folders than are looked at here.
    Unknown,
}

impl TorchBuild {
    /// The PyTorch whose libraries are in `folder`, with the part for CUDA of `site` (`EXPCTL_LIBTORCH`) if that has one.
    fn of(folder: &Path, site: Option<PathBuf>) -> Self {
        let site = site.map(|site| if site.join("lib").is_dir() { site.join("lib") } else { site });
        // Where libtorch was set up from a site's PyTorch, its files are links into that.
        let linked = folder.join("libtorch_cpu.so").canonicalize();
        let real = linked.ok().and_then(|file| Some(file.parent()?.to_owned())).unwrap_or_else(|| folder.to_owned());
        let mut folders = site.into_iter().chain([real]);
        match folders.find(|lib| lib.join(CUDA_PART).exists()) {
            Some(lib) => Self::Cuda(libtorch_version(&lib).as_deref().and_then(cuda_of)),
            None if libtorch_version(folder).is_some_and(|version| version.ends_with("+cpu")) => Self::Cpu,
            None => Self::Unknown,
        }
    }
}

/// The major version of CUDA of `2.11.0+cu130`.
fn cuda_of(version: &str) -> Option<u32> {
    let number: u32 = version.split_once("+cu")?.1.parse().ok()?;
    Some(number / 10)
}

/// Check that the PyTorch of the worker can use the GPUs of this machine, of which `on_bus` are known without a driver.
fn check_gpus(hardware: &Hardware, on_bus: usize, torch: Option<&TorchBuild>, pip: &str, with_slurm: bool) -> Check {
    if hardware.gpus.is_empty() && on_bus > 0 {
        let found = format!("{} without a driver: ranks compute on the host", count(on_bus as u64, "NVIDIA GPU"));
        let todo = "have NVIDIA's driver installed or loaded, which takes root: `nvidia-smi` then shows them";
        return Check::warning("GPU", found, todo);
    }
    if hardware.gpus.is_empty() {
        let on_nodes = if with_slurm { "; srun --gres=gpu:1 expctl doctor looks on a node with GPUs" } else { "" };
        return Check::ok("GPU", format!("none here{on_nodes}"));
    }
    let found = format!("{}, driver {}", gpu_names(&hardware.gpus), hardware.gpu_driver);
    let install = format!("{pip} install --force-reinstall 'torch=={LIBTORCH}.*'");
    let built_for = match torch {
        Some(TorchBuild::Cuda(major)) => *major,
        Some(TorchBuild::Cpu) => {
            let found = format!("{found}; the PyTorch of the worker is for CPUs alone");
            let todo =
                format!("{install} brings one for CUDA, or EXPCTL_LIBTORCH=FOLDER names one (docs/guide/gpu.md)");
            return Check::warning("GPU", found, todo);
        }
        Some(TorchBuild::Unknown) => {
            let beside = "the worker's libtorch has no part for CUDA beside it: ranks search one (docs/guide/gpu.md)";
            return Check::ok("GPU", format!("{found}; {beside}"));
        }
        None => return Check::ok("GPU", found),
    };
    let oldest = MIN_DRIVERS.iter().find(|(cuda, _)| built_for == Some(*cuda));
    let driver = hardware.gpu_driver.split('.').next().and_then(|major| major.parse::<u32>().ok());
    match (oldest, driver) {
        (Some((cuda, oldest)), Some(driver)) if driver < *oldest => {
            let found =
                format!("{found}; the PyTorch of the worker is for CUDA {cuda}, which needs driver {oldest} or newer");
            let (lowest, _) = MIN_DRIVERS[0];
            let todo = if *cuda > lowest {
                // PyTorch 2.11 is built for 12.6 and 12.8: the first has Volta and older, the second Turing to Blackwell.
                format!(
                    "{install} --index-url https://download.pytorch.org/whl/cu128 (before Turing: cu126) brings one for CUDA {lowest}; or have \
                     the driver renewed"
                )
            } else {
                "have the driver renewed".to_owned()
            };
            Check::warning("GPU", found, todo)
        }
        _ => Check::ok("GPU", found),
    }
}

/// `2 × NVIDIA H200`.
fn gpu_names(gpus: &[Gpu]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    gpus.iter().for_each(|gpu| *counts.entry(&gpu.name).or_default() += 1);
    let shown = counts.iter().map(|(name, n)| if *n == 1 { (*name).to_owned() } else { format!("{n} × {name}") });
    shown.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_pytorch_is_a_problem_with_the_command_that_mends_it() {
        let root = tempfile::tempdir().unwrap();
        let (lib, worker) = (root.path().join("lib"), root.path().join("bin/expctl-worker"));
        let of = |version: &str| {
            std::fs::write(root.path().join("version.py"), format!("__version__ = '{version}'\n")).unwrap();
            found_libtorch(&lib, &worker)
        };
        assert_eq!((of("2.11.0+cu130").state, of("2.11.1").state), (CheckState::Ok, CheckState::Ok));
        std::fs::create_dir(&lib).unwrap();
        std::fs::write(lib.join(CUDA_PART), "").unwrap();
        let (said, has_gpus) = (of("2.11.0+cu130").found, !hardware(false).gpus.is_empty());
        assert_eq!(said.contains("no driver shows a GPU here"), !has_gpus, "{said}");
        for other in ["2.10.0", "2.110.0", "3.0.0"] {
            let check = of(other);
            assert_eq!(check.state, CheckState::Problem, "{other}");
            assert!(check.found.contains(other) && check.todo.contains("pip install 'torch==2.11.*'"), "{check:?}");
        }
        let path = std::env::join_paths([Path::new("/elsewhere"), lib.as_path()]).unwrap();
        assert!(todo_of_libtorch(&lib, &worker, Some(&path)).starts_with("unset LD_LIBRARY_PATH"));
        assert!(todo_of_libtorch(&lib, &worker, Some(OsStr::new("/elsewhere"))).starts_with("pip install"));
    }

    #[test]
    fn a_worker_of_another_system_or_version_is_a_problem() {
        let of = |answer: Result<&str, &str>| {
            let answer = answer.map(str::to_owned).map_err(str::to_owned);
            judge_worker(Path::new("/bin/expctl-worker"), answer)
        };
        assert_eq!(of(Ok(concat!("expctl-worker ", env!("CARGO_PKG_VERSION")))).state, CheckState::Ok);
        let other = of(Ok("expctl-worker 0.0.1"));
        assert!(
            other.state == CheckState::Problem && other.found.contains("0.0.1") && other.todo.contains("dist/*.whl")
        );
        let newer = of(Err("it does not start: /w: /lib64/libm.so.6: version `GLIBC_2.35' not found (required by /w)"));
        assert!(newer.state == CheckState::Problem && newer.todo.contains("dist/expctl_worker-*.whl"), "{newer:?}");
        assert!(of(Err("it does not start within 60 s")).todo.contains("/bin/expctl-worker --version"));
    }

    #[test]
    fn an_old_glibc_is_said() {
        let of = |glibc: &str| check_system(&Hardware { glibc: glibc.to_owned(), ..Hardware::default() }).state;
        assert_eq!([of("2.28"), of("2.36"), of("3.0"), of("")], [CheckState::Ok; 4]);
        assert_eq!([of("2.17"), of("2.27")], [CheckState::Warning; 2]);
    }

    #[test]
    fn gpus_that_pytorch_cannot_use_are_said() {
        let gpu = Gpu { name: "NVIDIA A100".to_owned(), ..Gpu::default() };
        let node = |driver: &str| Hardware {
            gpus: vec![gpu.clone(), gpu.clone()],
            gpu_driver: driver.to_owned(),
            ..Hardware::default()
        };
        let of = |driver: &str, torch: &TorchBuild| check_gpus(&node(driver), 2, Some(torch), "pip", true);
        let cuda = |major: u32| TorchBuild::Cuda(Some(major));
        let fine = of("580.65.06", &cuda(13));
        assert_eq!((fine.state, fine.found.as_str()), (CheckState::Ok, "2 × NVIDIA A100, driver 580.65.06"));
        let old = of("535.104", &cuda(13));
        assert!(old.state == CheckState::Warning && old.found.contains("driver 580 or newer"), "{old:?}");
        assert!(old.todo.contains("whl/cu128 (before Turing: cu126)"), "{old:?}");
        assert_eq!(
            (of("535.104", &cuda(12)).state, of("470.1", &cuda(12)).state),
            (CheckState::Ok, CheckState::Warning)
        );
        let for_cpus = of("580.1", &TorchBuild::Cpu);
        assert!(for_cpus.found.contains("for CPUs alone") && for_cpus.todo.contains("pip install --force-reinstall"));
        let elsewhere = of("580.1", &TorchBuild::Unknown);
        assert!(elsewhere.state == CheckState::Ok && elsewhere.found.contains("ranks search one"), "{elsewhere:?}");
        assert_eq!(of("470.1", &TorchBuild::Cuda(None)).state, CheckState::Ok, "for which CUDA is not known");
        let none = |on_bus, with_slurm| check_gpus(&Hardware::default(), on_bus, None, "pip", with_slurm);
        assert!(none(0, false).found == "none here" && none(0, true).found.contains("srun --gres=gpu:1 expctl doctor"));
        let unseen = none(2, true);
        assert_eq!(unseen.state, CheckState::Warning);
        assert_eq!(unseen.found, "2 NVIDIA GPUs without a driver: ranks compute on the host");
    }

    #[test]
    fn the_cuda_of_a_pytorch_is_in_its_version() {
        let root = tempfile::tempdir().unwrap();
        let torch = |name: &str, version: &str| {
            let lib = root.path().join(name).join("lib");
            std::fs::create_dir_all(&lib).unwrap();
            std::fs::write(root.path().join(name).join("version.py"), format!("__version__ = '{version}'\n")).unwrap();
            lib
        };
        let (own, site) = (torch("own", "2.11.0+cpu"), torch("site", "2.11.0+cu130"));
        let named = || Some(root.path().join("site"));
        assert_eq!(TorchBuild::of(&own, named()), TorchBuild::Cpu);
        std::fs::write(site.join(CUDA_PART), "").unwrap();
        assert_eq!(TorchBuild::of(&own, None), TorchBuild::Cpu);
        for site in [root.path().join("site"), site.clone()] {
            assert_eq!(TorchBuild::of(&own, Some(site)), TorchBuild::Cuda(Some(13)));
        }
        // As `make setup` makes it of a site's PyTorch, and of its own copy.
        let clone = torch("clone", "2.11.0");
        assert_eq!(TorchBuild::of(&clone, None), TorchBuild::Unknown);
        std::fs::write(site.join("libtorch_cpu.so"), "").unwrap();
        std::os::unix::fs::symlink(site.join("libtorch_cpu.so"), clone.join("libtorch_cpu.so")).unwrap();
        assert_eq!(TorchBuild::of(&clone, None), TorchBuild::Cuda(Some(13)));
    }
}
