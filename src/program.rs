//! Programs that are started: where one is, without a shell, and those that run as ranks (this one and `expctl-worker`, with the libtorch that
//! the worker loads).

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use expctl_settings::Trial;
use wait_timeout::ChildExt;

use crate::exit::Failure;

/// Whether a path names a file that may be run.
pub fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// The file that `name` stands for: a path, which starts at `root`, or a name in `PATH`.
///
/// # Errors
/// There is none that may be run; says what was looked at.
pub fn find_program(root: &Path, name: &str) -> Result<PathBuf, String> {
    if name.is_empty() {
        return Err("the name of the program is empty".to_owned());
    }
    if name.contains('/') {
        let path = root.join(name);
        return match path.metadata() {
            Ok(_) if is_program(&path) => Ok(path),
            Ok(found) if found.is_file() => Err(format!("{} may not be run (chmod +x)", path.display())),
            Ok(_) => Err(format!("{} is no file", path.display())),
            Err(_) => Err(format!("there is no {}", path.display())),
        };
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&folders).map(|folder| root.join(folder).join(name)).find(|path| is_program(path));
    found.ok_or_else(|| format!("there is no program {name:?} in PATH"))
}

/// Which build of expctl this is, for what is stored and computed again by another one: the version with the commit or, of a build without one
/// or from a tree with changes, the size and time of the program's file.
pub fn build_identity() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let commit = option_env!("EXPCTL_BUILD_COMMIT").unwrap_or_default();
    if !commit.is_empty() && !commit.ends_with("-dirty") {
        return format!("{version} {commit}");
    }
    let file = std::env::current_exe().and_then(|path| path.metadata());
    file.map_or_else(
        |_| format!("{version} {commit}"),
        |file| format!("{version} {commit} {} {}.{:09}", file.len(), file.mtime(), file.mtime_nsec()),
    )
}

/// The programs that a batch script runs, as absolute paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programs {
    /// The launcher.
    pub expctl: PathBuf,
    /// The worker: one process per rank.
    pub worker: PathBuf,
    /// `LD_LIBRARY_PATH` for the worker, where the site brings its own libtorch.
    pub library_path: Option<String>,
}

impl Programs {
    /// This launcher, and the worker beside it or at `EXPCTL_WORKER`. The worker need not exist yet.
    ///
    /// # Errors
    /// Exit 70 if the system cannot say where this program is.
    pub fn find() -> Result<Self, Failure> {
        let expctl = std::env::current_exe().map_err(Failure::internal)?;
        let worker = worker_path()?;
        // The site's own libtorch may need the path under which it was found; the bundled one is found without.
        let site = std::env::var_os("EXPCTL_LIBTORCH").filter(|site| !site.is_empty());
        let library_path = site.and_then(|_| std::env::var("LD_LIBRARY_PATH").ok());
        Ok(Self { expctl, worker, library_path })
    }
}

/// The `expctl-worker` to start: `EXPCTL_WORKER`, or the one beside this program.
///
/// # Errors
/// Exit 70 if it is no program.
pub fn worker_binary() -> Result<PathBuf, Failure> {
    let path = worker_path()?;
    if is_program(&path) {
        return Ok(path);
    }
    Err(Failure::internal(format!("the worker {} is not a program", path.display()))
        .hint("`pip install dist/expctl_worker-*.whl` or, in a clone, `make build` puts it beside expctl; EXPCTL_WORKER names another one")
        .hint("jobs of your own script (worker.command) need none"))
}

/// The worker, if one of `trials` needs it: the others run programs of the user.
///
/// # Errors
/// As [`worker_binary`].
pub fn needed_worker<'a>(trials: impl IntoIterator<Item = &'a Trial>) -> Result<Option<PathBuf>, Failure> {
    if trials.into_iter().all(|trial| trial.settings.runs_command()) { Ok(None) } else { worker_binary().map(Some) }
}

/// A worker that starts ranks of jobs, and what it says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundWorker {
    /// The program.
    pub path: PathBuf,
    /// Its version. `None`: it does not start on this machine, or takes too long; nodes may have what it lacks here.
    pub version: Option<String>,
}

/// As [`needed_worker`], refusing one that says another version than this program's: the two share the files of a job, so each may write what
/// the other does not read.
///
/// # Errors
/// Exit 70 if it is no program, or of another version.
pub fn needed_worker_of_this_version<'a>(
    trials: impl IntoIterator<Item = &'a Trial>,
) -> Result<Option<FoundWorker>, Failure> {
    let Some(path) = needed_worker(trials)? else { return Ok(None) };
    let line = worker_version(&path, VERSION_TIMEOUT).ok();
    if let Some(other) = line.as_deref().and_then(other_version) {
        let (path, own) = (path.display(), env!("CARGO_PKG_VERSION"));
        let message = format!("the worker {path} is expctl-worker {other}, and this is expctl {own}");
        return Err(Failure::internal(message).hint(BRINGS_ONE_VERSION));
    }
    let version = line.map(|line| line.trim_start_matches("expctl-worker ").to_owned());
    Ok(Some(FoundWorker { path, version }))
}

/// The version in the line that a worker prints, if it is another one than this program's.
pub fn other_version(line: &str) -> Option<&str> {
    line.strip_prefix("expctl-worker ").filter(|version| *version != env!("CARGO_PKG_VERSION"))
}

/// What brings a launcher and a worker of one version.
pub const BRINGS_ONE_VERSION: &str =
    "install both of one version: `pip install dist/*.whl` or, in a clone, `make build`";

/// How long the worker may take to print its version before its ranks are to start. Without an answer the version stays open: each attempt also
/// writes it into its `env.json`.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);

/// The path of the worker, which need not exist.
///
/// # Errors
/// Exit 70 if the system cannot say where this program is.
fn worker_path() -> Result<PathBuf, Failure> {
    match std::env::var_os("EXPCTL_WORKER").filter(|p| !p.is_empty()) {
        Some(path) => std::path::absolute(&path)
            .map_err(|e| Failure::internal(format!("EXPCTL_WORKER={}: {e}", PathBuf::from(path).display()))),
        None => std::env::current_exe()
            .map(|here| here.with_file_name("expctl-worker"))
            .map_err(|e| Failure::internal(format!("cannot find this program: {e}"))),
    }
}

/// The version that the worker prints.
///
/// # Errors
/// The reason, if the worker does not start or takes longer than `limit`.
pub fn worker_version(path: &Path, limit: Duration) -> Result<String, String> {
    let mut child = Command::new(path)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| e.to_string())?;
    if child.wait_timeout(limit).map_err(|e| e.to_string())?.is_none() {
        // It may have ended meanwhile.
        let _ = child.kill();
        let _ = child.wait();
        return Err(format!("it does not start within {} s", limit.as_secs()));
    }
    let output = child.wait_with_output().map_err(|e| e.to_string())?;
    let text = if output.status.success() { &output.stdout } else { &output.stderr };
    let line = String::from_utf8_lossy(text).lines().next().unwrap_or_default().trim().to_owned();
    if output.status.success() { Ok(line) } else { Err(format!("it does not start: {line} ({})", output.status)) }
}

/// Libraries that `worker` needs and that the dynamic linker does not find on this machine; none if it is a script, or if there is no `ldd`.
pub fn missing_libraries(worker: &Path) -> Vec<String> {
    let output = Command::new("ldd").arg(worker).env("LC_ALL", "C").stdin(Stdio::null()).output();
    output.map(|output| not_found(&String::from_utf8_lossy(&output.stdout))).unwrap_or_default()
}

/// Names in the lines `libtorch_cpu.so => not found` of what `ldd` printed, each once.
fn not_found(ldd: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in ldd.lines().filter_map(|line| line.trim().strip_suffix("=> not found")) {
        let name = name.trim().to_owned();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// As [`needed_worker`], for trials that run on this machine: the worker's libraries are here, too.
///
/// # Errors
/// Exit 70 if it is no program, if a library that it needs is missing, or if its libtorch is of another version than it was built for.
pub fn needed_worker_here<'a>(trials: impl IntoIterator<Item = &'a Trial>) -> Result<Option<PathBuf>, Failure> {
    let worker = needed_worker(trials)?;
    let Some(path) = worker else { return Ok(None) };
    let missing = missing_libraries(&path);
    let refused = |why: String| {
        let message = format!("the worker {} cannot start: {why}", path.display());
        Err(Failure::internal(message).hint(libtorch_advice(&path)).hint("`expctl doctor` checks it"))
    };
    if !missing.is_empty() {
        return refused(format!("{} not found", missing.join(", ")));
    }
    let folder = libtorch_folder(&path);
    match folder.as_deref().and_then(|folder| Some((folder, libtorch_version(folder)?))) {
        Some((folder, version)) if !fits_worker(&version) => {
            refused(format!("it needs libtorch {LIBTORCH}, and {} has {version}", folder.display()))
        }
        _ => Ok(Some(path)),
    }
}

/// What brings the libtorch that `worker` needs.
pub fn libtorch_advice(worker: &Path) -> String {
    let pip = pip_beside(worker);
    format!(
        "{pip} install 'torch=={LIBTORCH}.*' beside the worker, `make setup` in a clone, or a LD_LIBRARY_PATH that names one"
    )
}

/// The `pip` of the environment that has `worker`, as it is called: another one would install elsewhere.
pub fn pip_beside(worker: &Path) -> String {
    let pip = worker.with_file_name("pip");
    if is_program(&pip) { pip.display().to_string() } else { "pip".to_owned() }
}

/// Whether a libtorch of this version is that of the worker's build.
pub fn fits_worker(version: &str) -> bool {
    version.strip_prefix(LIBTORCH).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The folder `lib` of the libtorch that `worker` loads on this machine, as the dynamic linker says; `None` if it is no
/// program or finds none.
pub fn libtorch_folder(worker: &Path) -> Option<PathBuf> {
    let output = Command::new("ldd").arg(worker).env("LC_ALL", "C").stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let line = text.lines().find(|line| line.trim_start().starts_with("libtorch_cpu.so "))?;
    // `libtorch_cpu.so => /path/libtorch_cpu.so (0x…)`; `not found` is no path.
    let path = line.split_once("=> ")?.1.rsplit_once(" (")?.0;
    Path::new(path).parent().map(Path::to_owned)
}

/// The version of PyTorch whose libtorch the worker is built against, without its last part.
pub const LIBTORCH: &str = "2.11";

/// Version of the libtorch with this folder `lib`, as its file `build-version` says or, in a Python package, `version.py`; `None` if there is
/// neither.
pub fn libtorch_version(folder: &Path) -> Option<String> {
    let root = folder.parent()?;
    if let Ok(text) = std::fs::read_to_string(root.join("build-version")) {
        return Some(text.trim().to_owned());
    }
    let text = std::fs::read_to_string(root.join("version.py")).ok()?;
    let quoted = text.lines().find_map(|line| line.strip_prefix("__version__ = "))?;
    Some(quoted.trim_matches(['\'', '"']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_that_the_linker_does_not_find_are_named_once() {
        let ldd = "\tlinux-vdso.so.1 (0x00007)\n\tlibtorch_cpu.so => not found\n\tlibc10.so => not found\n\
                   \tlibc.so.6 => /lib/libc.so.6 (0x00007)\n\tlibc10.so => not found\n";
        assert_eq!(not_found(ldd), ["libtorch_cpu.so", "libc10.so"]);
        assert!(not_found("\tnot a dynamic executable\n").is_empty());
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("worker");
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        assert!(missing_libraries(&script).is_empty());
    }

    #[test]
    fn pip_is_that_of_the_environment_of_the_worker() {
        let folder = tempfile::tempdir().unwrap();
        let (worker, pip) = (folder.path().join("expctl-worker"), folder.path().join("pip"));
        assert!(libtorch_advice(&worker).starts_with("pip install 'torch==2.11.*'"));
        std::fs::write(&pip, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&pip, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(libtorch_advice(&worker).starts_with(&format!("{} install 'torch==2.11.*'", pip.display())));
    }

    #[test]
    fn a_worker_that_says_no_version_is_none_of_another() {
        assert_eq!(other_version("expctl-worker 0.0.1"), Some("0.0.1"));
        for line in [concat!("expctl-worker ", env!("CARGO_PKG_VERSION")), "false (GNU coreutils) 9.1", ""] {
            assert_eq!(other_version(line), None, "{line}");
        }
    }

    #[test]
    fn the_version_of_libtorch_is_that_of_the_build() {
        let script = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/common.sh")).unwrap();
        assert!(script.contains(&format!("\nTORCH_VERSION={LIBTORCH}.")), "{LIBTORCH}");
    }

    #[test]
    fn libtorch_says_its_version_in_a_folder_of_its_own_and_in_a_python_package() {
        let root = tempfile::tempdir().unwrap();
        let lib = root.path().join("lib");
        assert_eq!(libtorch_version(&lib), None);
        std::fs::write(
            root.path().join("version.py"),
            "from typing import X\n__version__ = '2.11.0+cu130'\ndebug = False\n",
        )
        .unwrap();
        assert_eq!(libtorch_version(&lib).as_deref(), Some("2.11.0+cu130"));
        std::fs::write(root.path().join("build-version"), "2.11.0+cpu\n").unwrap();
        assert_eq!(libtorch_version(&lib).as_deref(), Some("2.11.0+cpu"));
    }

    #[test]
    fn a_program_is_a_file_that_may_be_run() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("run it");
        std::fs::write(&file, "").unwrap();
        assert!(!is_program(folder.path()) && !is_program(&file));
        let find = |name: &str| find_program(folder.path(), name);
        assert!(find("./run it").unwrap_err().contains("chmod +x"));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find("./run it").unwrap(), folder.path().join("./run it"));
        assert!(find("sh").unwrap().is_absolute());
        for (name, reason) in [("run it", "in PATH"), ("./gone", "there is no "), ("./", "is no file"), ("", "empty")] {
            assert!(find(name).unwrap_err().contains(reason), "{name}");
        }
    }
}
