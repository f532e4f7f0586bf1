//! Checks of what keeps jobs from running here, and what to do about it.

mod programs;

use std::io::{ErrorKind, Write};
use std::path::Path;

use expctl_config::ClusterProfile;
use expctl_text::format::bytes;
use jiff::Timestamp;
use nix::sys::statfs::statfs;
use nix::sys::statvfs::statvfs;
use serde::Serialize;
use slurm_client::{Availability, Slurm};

pub use self::programs::{system, worker};
use crate::launch::slurm::SlurmBackend;

/// Free space below which there is a warning, bytes.
const MIN_FREE: u64 = 5_000_000_000;
/// Bytes that are written into a folder: that a quota is used up shows with the bytes, not with the file.
const PROBE: [u8; 8192] = [1; 8192];

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
                    Check::warning("Slurm", none, todo_without_slurm(profile))
                }
                // Where there are modules, Slurm may be one.
                _ if std::env::var_os("MODULEPATH").is_some_and(|path| !path.is_empty()) => {
                    let todo = "on a login node of a cluster: `module avail slurm` shows whether a module brings it";
                    Check { todo: todo.to_owned(), ..Check::ok("Slurm", none) }
                }
                _ => Check::ok("Slurm", none),
            };
            return (vec![check], false);
        }
        Availability::Unreachable(reason) => {
            let todo = "try again later (`scontrol ping` asks it); ask the site's help desk if it lasts";
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

/// What to do where the cluster of a profile is expected, and there is no Slurm.
fn todo_without_slurm(profile: &ClusterProfile) -> String {
    let name = &profile.name;
    match profile.ssh {
        Some(_) => {
            format!(
                "this is not {name}: expctl doctor --on {name} checks it, expctl submit CONF --on {name} submits to it"
            )
        }
        None => {
            format!("run this on a login node of {name}; where sbatch is not in PATH, `module load slurm` may bring it")
        }
    }
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
        Err(e) if needed => {
            Check::problem(name, e.to_string(), "put Slurm's commands into PATH (`module load slurm`, perhaps)")
        }
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
            format!("max_array_size = {has} in the profile ({})", profile.found),
        )
    })
}

/// Check whether this is a project.
pub fn project(root: &Path, has_studies: bool) -> Check {
    let shown = root.display();
    if has_studies {
        return Check::ok("project", format!("{shown}, with experiments/"));
    }
    let todo = "in the folder of your project: expctl init NAME; or name it: --root DIR";
    Check::warning("project", format!("{shown}, no experiments/"), todo)
}

/// Check a folder that jobs write to, which `variable` moves: whether it is writable, has space, and is seen by the nodes of a cluster.
pub fn folder(what: &str, path: &Path, variable: &str, with_slurm: bool) -> Check {
    Check { subject: Subject::Folder, ..check_folder(what, path, variable, with_slurm) }
}

fn check_folder(what: &str, path: &Path, variable: &str, with_slurm: bool) -> Check {
    let elsewhere = format!("export {variable}=FOLDER (or ~/.config/expctl/config.toml) moves it");
    // It is created when it is needed; until then its nearest existing parent is checked.
    let Some(existing) = path.ancestors().find(|p| p.exists()) else {
        return Check::problem(what, format!("{} has no parent", path.display()), elsewhere);
    };
    let shown = path.display();
    if let Err(e) = write_probe(existing) {
        return Check::problem(
            what,
            format!("{shown} cannot be written: {e}"),
            todo_on(e.kind(), existing, &elsewhere),
        );
    }
    let free = statvfs(existing).map(|s| s.blocks_available() * s.fragment_size()).ok();
    let magic = statfs(existing).map(|s| s.filesystem_type().0).ok();
    let local = LOCAL_FILE_SYSTEMS.iter().find(|(number, _)| Some(*number) == magic).map(|(_, name)| *name);
    let space = free.map_or_else(String::new, |free| format!(", {} free", bytes(free as f64)));
    let found = format!("{shown}{}{space}", local.map_or_else(String::new, |name| format!(" on {name}")));
    if free.is_some_and(|free| free < MIN_FREE) {
        return Check::warning(what, found, todo_on(ErrorKind::StorageFull, existing, &elsewhere));
    }
    if with_slurm && local.is_some() {
        let todo = format!("nodes other than this one may not see it: {elsewhere} to a shared file system");
        return Check::warning(what, found, todo);
    }
    Check::ok(what, found)
}

/// Write 1 MiB into a file without a name.
fn write_probe(folder: &Path) -> std::io::Result<()> {
    let mut file = tempfile::tempfile_in(folder)?;
    for _ in 0..(1 << 20) / PROBE.len() {
        file.write_all(&PROBE)?;
    }
    // Network file systems may say only now that there is no space.
    file.sync_all()
}

/// What to do where a folder takes no bytes.
fn todo_on(error: ErrorKind, folder: &Path, elsewhere: &str) -> String {
    let shown = folder.display();
    match error {
        ErrorKind::QuotaExceeded => format!(
            "your quota is used up: `quota -s` shows it (Lustre: `lfs quota -h {shown}`); remove files (expctl doctor --prune: code that no \
             job has), or {elsewhere}"
        ),
        ErrorKind::StorageFull => {
            format!(
                "make space (`df -h {shown}` shows it; expctl doctor --prune: code that no job has), or {elsewhere}"
            )
        }
        _ => elsewhere.to_owned(),
    }
}

/// Check the folder of what can be made again.
pub fn cache(path: &Path) -> Check {
    let Some(existing) = path.ancestors().find(|p| p.exists()) else {
        return Check::ok("cache", path.display().to_string());
    };
    let shown = path.display();
    match write_probe(existing) {
        Ok(()) => Check::ok("cache", shown.to_string()),
        Err(e) => {
            let found =
                format!("{shown} cannot be written: {e}; nothing is lost, but jobs that have ended are read each time");
            Check::warning("cache", found, todo_on(e.kind(), existing, "export XDG_CACHE_HOME=FOLDER moves it"))
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;

    #[test]
    fn a_folder_that_takes_no_bytes_comes_with_what_says_why() {
        let todo = |error: Errno| {
            let kind = std::io::Error::from(error).kind();
            todo_on(kind, Path::new("/home/me"), "export EXPCTL_RUNS=FOLDER moves it")
        };
        let (quota, full) = (todo(Errno::EDQUOT), todo(Errno::ENOSPC));
        assert!(quota.contains("`quota -s`") && quota.contains("lfs quota -h /home/me"), "{quota}");
        assert!(
            full.contains("`df -h /home/me`") && full.contains("--prune") && full.contains("EXPCTL_RUNS"),
            "{full}"
        );
        assert_eq!(todo(Errno::EACCES), "export EXPCTL_RUNS=FOLDER moves it");
        let folder = tempfile::tempdir().unwrap();
        let check = super::folder("ledger", &folder.path().join("results/runs"), "EXPCTL_RUNS", false);
        assert!(check.found.contains("results/runs") && check.state != CheckState::Problem, "{check:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
        assert_eq!(cache(&folder.path().join("expctl")).state, CheckState::Ok);
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let check = super::folder("ledger", &file.join("runs"), "EXPCTL_RUNS", false);
        assert!(check.state == CheckState::Problem && check.todo.contains("EXPCTL_RUNS"), "{check:?}");
        assert_eq!(cache(&file.join("expctl")).state, CheckState::Warning);
    }
}
