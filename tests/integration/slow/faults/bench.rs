//! A cluster with a project on it, and the faults that only root can make: a full disk, a folder nobody can write to.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;

use expctl_ledger::TrialState;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::case::FaultCase;
use crate::common::cluster::Cluster;
use crate::common::{SMALL, TestProject, text};

/// Steps of every trial, warm-up included: long enough to be hit on the way, short enough to be run to the end.
pub const STEPS: u64 = 300;
/// A checkpoint is kept after so many steps.
pub const EVERY: u64 = 20;

/// Digests of undisturbed runs, by their settings.
static UNDISTURBED: Mutex<Vec<(Vec<String>, String)>> = Mutex::new(Vec::new());

/// Where a test's jobs run. Fields are dropped in this order: the cluster ends before its files go.
pub struct Bench {
    pub cluster: Cluster,
    _disk: Option<Disk>,
    pub project: TestProject,
}

impl Bench {
    /// A cluster as `options` of up.sh say; `None` where none can run.
    pub fn start(options: &[&str]) -> Option<Self> {
        Some(Self { cluster: Cluster::start(options)?, _disk: None, project: TestProject::new() })
    }

    /// The same with a ledger on a disk of its own, of `mib` MiB.
    pub fn with_disk(options: &[&str], mib: u32) -> Option<Self> {
        if !crate::common::cluster::installed(options) {
            return None;
        }
        let project = TestProject::new();
        // Before the cluster: its nodes have mount namespaces of their own.
        let disk = Disk::mount(&project.path().join("results/runs"), mib);
        Some(Self { cluster: Cluster::start(options)?, _disk: Some(disk), project })
    }

    /// `expctl` on this cluster, as a user would run it.
    pub fn expctl(&self, args: &[&str]) -> Output {
        let mut command = self.project.expctl(args);
        command.envs(self.cluster.env()).env("EXPCTL_BACKEND", "slurm").stdin(Stdio::null());
        command.output().unwrap()
    }

    /// Submit one trial that trains on two ranks and keeps checkpoints; `sets` overrides.
    pub fn submit(&self, sets: &[&str]) -> FaultCase<'_> {
        let mut args = vec!["submit".to_owned(), self.conf()];
        args.extend(arguments(sets));
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let output = self.expctl(&args);
        assert!(output.status.success(), "{}", text(&output.stderr));
        FaultCase::new(self, text(&output.stdout).trim(), sets)
    }

    fn conf(&self) -> String {
        self.project.conf("small", SMALL).to_str().unwrap().to_owned()
    }

    /// Digest of the parameters that the trial ends with where nothing disturbs it: a run on this machine.
    pub fn undisturbed(&self, sets: &[&str]) -> String {
        let mut known = UNDISTURBED.lock().unwrap();
        // What Slurm is asked for changes nothing that is computed.
        let sets: Vec<&str> = sets.iter().copied().filter(|set| !set.starts_with("slurm.")).collect();
        if let Some((_, digest)) = known.iter().find(|(of, _)| *of == sets) {
            return digest.clone();
        }
        let mut args = vec!["submit".to_owned(), self.conf(), "--backend".to_owned(), "local".to_owned()];
        args.push("--wait".to_owned());
        args.extend(arguments(&sets));
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let job = self.project.ok(&args);
        let outcome = self.project.outcome(&job, "ids");
        assert_eq!(outcome.state, TrialState::Completed, "{outcome:?}");
        let digest = outcome.ranks[0].parameters_digest.clone().unwrap();
        known.push((sets.iter().map(|set| (*set).to_owned()).collect(), digest.clone()));
        digest
    }
}

/// A failing test leaves no rank behind, not even a stopped one.
impl Drop for Bench {
    fn drop(&mut self) {
        for (_, pid) in ranks_below(self.project.path()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

fn arguments(sets: &[&str]) -> Vec<String> {
    let own = [format!("measure.steps={}", STEPS - 2), "train.mode=train".to_owned()];
    let every = format!("checkpoint.every_steps={EVERY}");
    let mut args = vec!["--only".to_owned(), "ids".to_owned()];
    for set in own.into_iter().chain([every]).chain(sets.iter().map(|set| (*set).to_owned())) {
        args.extend(["--set".to_owned(), set]);
    }
    args
}

/// Processes of the worker itself (not srun's, which has its arguments) that run an attempt below `folder`, by rank.
pub fn ranks_below(folder: &Path) -> Vec<(u32, i32)> {
    let is_worker = |pid: i32| {
        let arguments = text(&std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default());
        arguments.split('\0').next().is_some_and(|program| program.ends_with("expctl-worker"))
    };
    crate::common::worker_pids(folder).into_iter().filter(|(_, pid)| is_worker(*pid)).collect()
}

/// A small disk.
pub struct Disk(PathBuf);

impl Disk {
    pub fn mount(at: &Path, mib: u32) -> Self {
        std::fs::create_dir_all(at).unwrap();
        let size = format!("size={mib}m");
        command("mount", &["-t", "tmpfs", "-o", &size, "expctl-ledger", at.to_str().unwrap()]);
        std::fs::set_permissions(at, std::fs::Permissions::from_mode(0o755)).unwrap();
        Self(at.to_owned())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a process that is just ending may still have a file open there.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// Fills the disk that `folder` is on until it is dropped.
pub struct Filled(PathBuf);

impl Filled {
    pub fn new(folder: &Path) -> Self {
        let filler = Self(folder.join("filler"));
        let mut file = std::fs::File::create(&filler.0).unwrap();
        let zeros = vec![0u8; 64 * 1024];
        // To the last page.
        let full = loop {
            if let Err(e) = std::io::Write::write_all(&mut file, &zeros) {
                break e;
            }
        };
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull, "{full}");
        filler
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Folders in which nobody, not even root, can make, rename or remove a file, until it is dropped.
pub struct Sealed(Vec<PathBuf>);

impl Sealed {
    pub fn new(folders: Vec<PathBuf>) -> Self {
        let sealed = Self(folders);
        for folder in &sealed.0 {
            command("chattr", &["+i", folder.to_str().unwrap()]);
        }
        sealed
    }
}

impl Drop for Sealed {
    fn drop(&mut self) {
        for folder in &self.0 {
            let _ = Command::new("chattr").arg("-i").arg(folder).status();
        }
    }
}

fn command(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", text(&output.stderr));
}
