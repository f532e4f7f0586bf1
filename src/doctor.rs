//! Checks of what keeps jobs from running here, and what to do about it.

use std::path::Path;
use std::time::Duration;

use expctl_config::ClusterProfile;
use expctl_text::format::bytes;
use jiff::Timestamp;
use nix::sys::statfs::statfs;
use nix::sys::statvfs::statvfs;
use serde::Serialize;
use slurm_client::{Availability, Slurm};

use crate::launch::slurm::SlurmBackend;
use crate::program::{
    LIBTORCH, fits_worker, libtorch_advice, libtorch_folder, libtorch_version, missing_libraries, worker_binary,
    worker_version,
};

/// Free space below which there is a warning, bytes.
const MIN_FREE: u64 = 5_000_000_000;
/// Time limit of `expctl-worker --version`: it reads hundreds of MB first, maybe over a network.
const WORKER_TIMEOUT: Duration = Duration::from_secs(60);

/// File systems that other machines do not see, by their numbers in statfs(2).
const LOCAL_FILE_SYSTEMS: [(i64, &str); 7] = [
    (0xEF53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683E, "btrfs"),
    (0x0102_1994, "tmpfs"),
    (0x794c_7630, "overlay"),
    (0x2FC1_2FC1, "zfs"),
    (0x8584_58F6, "ramfs"),
];
/// Clock difference above which munge may refuse credentials as too old, s.
const MAX_SKEW_S: i64 = 5;

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckState {
    /// All is well.
    Ok,
    /// Jobs may run, but this needs attention.
    Warning,
    /// Jobs cannot run.
    Problem,
}

impl CheckState {
    /// The word in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// One check: what was looked at, and what was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was checked.
    pub check: String,
    /// The result.
    pub state: CheckState,
    /// What was found.
    pub found: String,
    /// What to do; empty if nothing.
    pub todo: String,
    /// Its subject.
    #[serde(skip)]
    pub subject: Subject,
}

/// What a check is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Slurm.
    Cluster,
    /// A folder that jobs write to.
    Folder,
    /// The programs of expctl, and its settings.
    Programs,
}

impl Check {
    /// All is well.
    pub fn ok(check: &str, found: impl Into<String>) -> Self {
        Self {
            check: check.to_owned(),
            state: CheckState::Ok,
            found: found.into(),
            todo: String::new(),
            subject: Subject::Programs,
        }
    }

    /// Something that needs attention.
    pub fn warning(check: &str, found: impl Into<String>, todo: impl Into<String>) -> Self {
        Self { state: CheckState::Warning, todo: todo.into(), ..Self::ok(check, found) }
    }

    /// Something that keeps jobs from running.
    pub fn problem(check: &str, found: impl Into<String>, todo: impl Into<String>) -> Self {
        Self { state: CheckState::Problem, ..Self::warning(check, found, todo) }
    }
}

/// Check the cluster: its commands, its controller, and the partition that jobs would go to. Also returns whether there
/// is a Slurm.
pub fn cluster(slurm: &Slurm, profile: Option<&ClusterProfile>, partition: &str) -> (Vec<Check>, bool) {
    let mut checks = Vec::new();
    match slurm.availability() {
        Availability::Absent => {
            let none = "no Slurm: jobs run on this machine (--backend local)";
            let check = match profile {
                Some(profile) if profile.backend.as_deref() != Some("local") => {
                    Check::warning("Slurm", none, "run this on a login node of the profile's cluster")
                }
                _ => Check::ok("Slurm", none),
            };
            return (vec![check], false);
        }
        Availability::Unreachable(reason) => {
            let todo = "try again later; ask the site's help desk if it lasts";
            checks.push(Check::problem("controller", reason, todo));
        }
        Availability::Ready => checks.extend([Check::ok("controller", "answers"), check_clock(slurm)]),
    }
    checks.extend(["sbatch", "srun", "squeue", "scontrol", "scancel"].map(|name| check_program(slurm, name, true)));
    checks.push(check_program(slurm, "sacct", false));
    checks.extend(check_slurmrestd());
    if checks.iter().all(|c| c.check != "controller" || c.todo.is_empty()) {
        checks.extend(check_partition(slurm, partition));
        checks.extend(profile.and_then(|profile| check_array_size(slurm, profile)));
    }
    for check in &mut checks {
        check.subject = Subject::Cluster;
    }
    (checks, true)
}

/// Check slurmrestd, where its address is set.
fn check_slurmrestd() -> Option<Check> {
    std::env::var_os("SLURMRESTD_URL").filter(|url| !url.is_empty())?;
    let todo = "needed by --backend slurmrest only; docs/guide/slurm.md says what it reads";
    Some(match SlurmBackend::from_name("slurmrest").map(|backend| backend.client().availability()) {
        Ok(Availability::Ready) => Check::ok("slurmrestd", "answers, and takes the token"),
        Ok(Availability::Unreachable(reason)) => Check::warning("slurmrestd", reason, todo),
        Ok(Availability::Absent) => Check::warning("slurmrestd", "no answer", todo),
        Err(failure) => Check::warning("slurmrestd", failure.message, todo),
    })
}

fn check_program(slurm: &Slurm, name: &str, needed: bool) -> Check {
    match slurm.run(name, ["--version"]) {
        Ok(version) => Check::ok(name, version.trim()),
        Err(e) if needed => Check::problem(name, e.to_string(), "put Slurm's commands on the PATH (a module, perhaps)"),
        Err(e) => Check::warning(name, e.to_string(), "without it, tasks that the controller forgot stay unexplained"),
    }
}

/// Compare the clock with the controller's, which its configuration shows.
fn check_clock(slurm: &Slurm) -> Check {
    let asked = Timestamp::now().as_second();
    let answer = slurm.with_time_in_seconds().run("scontrol", ["show", "config"]);
    let now = Timestamp::now().as_second();
    let told = answer.ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("Configuration data as of "))?;
        line.trim().parse::<i64>().ok()
    });
    match told {
        None => Check::ok("clock", "the controller does not tell its time"),
        Some(told) => {
            let skew = if told < asked { told - asked } else { (told - now).max(0) };
            if skew.abs() <= MAX_SKEW_S {
                Check::ok("clock", format!("within {MAX_SKEW_S} s of the controller's"))
            } else {
                let found = format!("the controller's is {skew:+} s from this one");
                Check::warning(
                    "clock",
                    found,
                    "have both set by NTP: Slurm refuses what seems to come from another time",
                )
            }
        }
    }
}

fn check_partition(slurm: &Slurm, partition: &str) -> Option<Check> {
    if partition.is_empty() {
        return None;
    }
    let columns = "--format=%a|%D|%c|%m|%G";
    let found = match slurm.run("sinfo", ["--noheader", "--partition", partition, columns]) {
        Ok(answer) => answer,
        Err(e) => return Some(Check::problem("partition", e.to_string(), "ask Slurm which there are: sinfo")),
    };
    let Some(line) = found.lines().find(|line| !line.trim().is_empty()) else {
        let todo = "set slurm.partition to one that `sinfo` shows";
        return Some(Check::problem("partition", format!("there is no partition {partition}"), todo));
    };
    let mut fields = line.trim().split('|');
    let mut next = || fields.next().unwrap_or("?").to_owned();
    let (state, nodes, cpus, memory, gres) = (next(), next(), next(), next(), next());
    let found = format!("{partition} is {state}: {nodes} nodes with {cpus} processors, {memory} MiB, GPUs {gres}");
    Some(match state.as_str() {
        "up" => Check::ok("partition", found),
        _ => Check::warning("partition", found, "jobs wait until the site opens it"),
    })
}

fn check_array_size(slurm: &Slurm, profile: &ClusterProfile) -> Option<Check> {
    let wanted = profile.max_array_size?;
    let has = slurm.max_array_size()?;
    // The highest index is one less.
    Some(if wanted <= has {
        Check::ok("array size", format!("the cluster takes {has}"))
    } else {
        Check::warning(
            "array size",
            format!("the cluster takes {has}, the profile says {wanted}"),
            "correct the profile",
        )
    })
}

/// Check a folder that jobs write to: whether it is writable, has space, and is seen by the nodes of a cluster.
pub fn folder(what: &str, path: &Path, with_slurm: bool) -> Check {
    Check { subject: Subject::Folder, ..check_folder(what, path, with_slurm) }
}

fn check_folder(what: &str, path: &Path, with_slurm: bool) -> Check {
    // It is created when it is needed; until then its nearest existing parent is checked.
    let Some(existing) = path.ancestors().find(|p| p.exists()) else {
        return Check::problem(what, format!("{} has no parent", path.display()), "name another folder");
    };
    let shown = path.display();
    if let Err(e) = tempfile::tempfile_in(existing) {
        let todo = "EXPCTL_RUNS and EXPCTL_DATA, or ~/.config/expctl/config.toml, move it";
        return Check::problem(what, format!("{shown} cannot be written: {e}"), todo);
    }
    let free = statvfs(existing).map(|s| s.blocks_available() * s.fragment_size()).ok();
    let magic = statfs(existing).map(|s| s.filesystem_type().0).ok();
    let local = LOCAL_FILE_SYSTEMS.iter().find(|(number, _)| Some(*number) == magic).map(|(_, name)| *name);
    let space = free.map_or_else(String::new, |free| format!(", {} free", bytes(free as f64)));
    let found = format!("{shown}{}{space}", local.map_or_else(String::new, |name| format!(" on {name}")));
    if free.is_some_and(|free| free < MIN_FREE) {
        return Check::warning(what, found, "make space, or move it to another file system");
    }
    if with_slurm && local.is_some() {
        let todo = "nodes other than this one may not see it: put it on a shared file system";
        return Check::warning(what, found, todo);
    }
    Check::ok(what, found)
}

/// Check the worker, and the libtorch that it loads.
pub fn worker() -> Vec<Check> {
    let path = match worker_binary() {
        Ok(path) => path,
        Err(failure) => return vec![Check::problem("worker", failure.message, failure.hints.join("; "))],
    };
    // Without its libtorch the worker does not start: one line says so.
    let libtorch = match libtorch_folder(&path) {
        Some(folder) => found_libtorch(&folder),
        None if missing_libraries(&path).is_empty() => return vec![check_worker(&path)],
        None => Check::problem("libtorch", "the worker finds none", libtorch_advice()),
    };
    if libtorch.state == CheckState::Ok { vec![check_worker(&path), libtorch] } else { vec![libtorch] }
}

/// Check that the worker starts.
fn check_worker(path: &Path) -> Check {
    match worker_version(path, WORKER_TIMEOUT) {
        Ok(version) => Check::ok("worker", format!("{version}, {}", path.display())),
        Err(why) => Check::problem("worker", why, format!("run it by hand: {} --version", path.display())),
    }
}

/// Check the libtorch that the worker finds in `folder`.
fn found_libtorch(folder: &Path) -> Check {
    let version = libtorch_version(folder);
    let found = format!("{}, {}", version.as_deref().unwrap_or("of unknown version"), folder.display());
    if version.as_deref().is_none_or(fits_worker) {
        // Login nodes have none, so this is no problem.
        let is_idle = folder.join("libtorch_cuda.so").exists() && host_metrics::hardware(false).gpus.is_empty();
        let without_gpu =
            if is_idle { "; it is for CUDA, and there is no GPU here: ranks compute on the host" } else { "" };
        return Check::ok("libtorch", found + without_gpu);
    }
    Check::problem("libtorch", format!("{found}; the worker is built for {LIBTORCH}"), libtorch_advice())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_pytorch_is_a_problem_with_the_command_that_mends_it() {
        let root = tempfile::tempdir().unwrap();
        let of = |version: &str| {
            std::fs::write(root.path().join("version.py"), format!("__version__ = '{version}'\n")).unwrap();
            found_libtorch(&root.path().join("lib"))
        };
        assert_eq!((of("2.11.0+cu130").state, of("2.11.1").state), (CheckState::Ok, CheckState::Ok));
        std::fs::create_dir(root.path().join("lib")).unwrap();
        std::fs::write(root.path().join("lib/libtorch_cuda.so"), "").unwrap();
        let (said, has_gpus) = (of("2.11.0+cu130").found, !host_metrics::hardware(false).gpus.is_empty());
        assert_eq!(said.contains("no GPU here"), !has_gpus, "{said}");
        for other in ["2.10.0", "2.110.0", "3.0.0"] {
            let check = of(other);
            assert_eq!(check.state, CheckState::Problem, "{other}");
            assert!(check.found.contains(other) && check.todo.contains("pip install 'torch==2.11.*'"), "{check:?}");
        }
    }
}
