//! Control groups of this process: limits of memory and processors, and memory in use. Both versions of control groups are read.

use std::path::{Path, PathBuf};

use crate::hardware::available_memory;

/// Folder that control groups are mounted at.
const MOUNT: &str = "/sys/fs/cgroup";

/// Version 1 of control groups writes the largest number of pages where there is no limit. Larger values are no limit.
const NO_LIMIT: u64 = 1 << 62;

/// Limits of the control groups of a process; `None`: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupLimits {
    /// Memory, bytes.
    pub memory_bytes: Option<u64>,
    /// Processor time, thousandths of a processor.
    pub cpu_milli: Option<u64>,
}

impl GroupLimits {
    /// The limits of this process.
    pub fn of_this_process() -> Self {
        Self::read(&groups_of_this_process(), Path::new(MOUNT))
    }

    /// The smallest limits of `groups` (the form of /proc/self/cgroup) and of the groups above them.
    fn read(groups: &str, root: &Path) -> Self {
        let mut limits = Self::default();
        let lower = |limit: &mut Option<u64>, found: Option<u64>| {
            *limit = found.into_iter().chain(*limit).min();
        };
        for line in groups.lines() {
            let Some((controllers, path)) = controllers_and_path(line) else { continue };
            let has = |name| controllers.split(',').any(|c| c == name);
            let at = |mount: &str| with_ancestors(&root.join(mount), path);
            if controllers.is_empty() {
                for folder in at("") {
                    lower(&mut limits.memory_bytes, read_number(&folder.join("memory.max")));
                    lower(&mut limits.cpu_milli, read_quota(&folder.join("cpu.max")));
                }
            }
            if has("memory") {
                for folder in at("memory") {
                    lower(&mut limits.memory_bytes, read_number(&folder.join("memory.limit_in_bytes")));
                }
            }
            if has("cpu") {
                for folder in at(controllers).into_iter().chain(at("cpu")) {
                    let period = read_number(&folder.join("cpu.cfs_period_us")).filter(|p| *p > 0);
                    let quota = read_number(&folder.join("cpu.cfs_quota_us"));
                    lower(&mut limits.cpu_milli, quota.zip(period).map(|(quota, period)| quota * 1000 / period));
                }
            }
        }
        limits
    }

    /// The memory limit, if it is below the memory of the machine, bytes; 0 stands for an unknown amount.
    pub fn memory_below(self, machine_bytes: u64) -> Option<u64> {
        self.memory_bytes.filter(|limit| machine_bytes == 0 || *limit < machine_bytes)
    }
}

/// Memory that the control group of this process has in use, including its page cache, and the smallest memory limit of it and of those
/// above it, bytes. `None`: the system does not say, or there is no limit.
pub fn group_memory() -> (Option<u64>, Option<u64>) {
    let groups = groups_of_this_process();
    let root = Path::new(MOUNT);
    (memory_in_use(&groups, root), GroupLimits::read(&groups, root).memory_bytes.filter(|limit| *limit < NO_LIMIT))
}

/// Memory that this process and the others of its node may still take, bytes: what is available on the machine, or the limit of the control
/// group if that is less; `u64::MAX` if neither is known.
pub fn free_memory() -> u64 {
    let limit = GroupLimits::of_this_process().memory_bytes;
    available_memory().into_iter().chain(limit).min().unwrap_or(u64::MAX)
}

fn groups_of_this_process() -> String {
    std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default()
}

/// Memory in use by the innermost group that exists.
fn memory_in_use(groups: &str, root: &Path) -> Option<u64> {
    groups.lines().find_map(|line| {
        let (controllers, path) = controllers_and_path(line)?;
        let innermost = |mount: &str, file: &str| {
            with_ancestors(&root.join(mount), path).iter().find_map(|folder| read_number(&folder.join(file)))
        };
        if controllers.is_empty() {
            innermost("", "memory.current")
        } else {
            controllers.split(',').any(|c| c == "memory").then(|| innermost("memory", "memory.usage_in_bytes"))?
        }
    })
}

/// Controllers and path of a line `<number>:<controllers>:<path>`; version 2 names no controllers.
fn controllers_and_path(line: &str) -> Option<(&str, &str)> {
    let mut fields = line.splitn(3, ':').skip(1);
    Some((fields.next()?, fields.next()?))
}

/// The folder of a group and those of the groups above it. Inside a container the path is often that of the machine, and only the mount
/// itself exists.
fn with_ancestors(mount: &Path, path: &str) -> Vec<PathBuf> {
    let relative = Path::new(path.trim_start_matches('/'));
    relative.ancestors().map(|part| mount.join(part)).collect()
}

/// A number in a file of its own; `None` for `max` and -1.
fn read_number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Thousandths of a processor from `200000 100000`; `None` for `max 100000`.
fn read_quota(path: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let (quota, period) = text.trim().split_once(' ')?;
    let period = period.parse::<u64>().ok().filter(|p| *p > 0)?;
    Some(quota.parse::<u64>().ok()? * 1000 / period)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::write_test_file as file;

    #[test]
    fn the_tightest_limit_of_both_kinds_of_control_groups_counts() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let limits = |groups: &str| {
            let found = GroupLimits::read(groups, root);
            (found.memory_bytes, found.cpu_milli)
        };
        file(&root.join("job/memory.max"), "4096\n");
        file(&root.join("job/step/memory.max"), "max\n");
        file(&root.join("job/step/cpu.max"), "150000 100000\n");
        file(&root.join("job/cpu.max"), "max 100000\n");
        assert_eq!(limits("0::/job/step\n"), (Some(4096), Some(1500)));
        let step = GroupLimits::read("0::/job/step\n", root);
        assert_eq!([8192, 4096, 0].map(|machine| step.memory_below(machine)), [Some(4096), None, Some(4096)]);
        assert_eq!(limits("0::/elsewhere\n"), (None, None));
        file(&root.join("memory/a/memory.limit_in_bytes"), "2048\n");
        file(&root.join("cpu,cpuacct/a/cpu.cfs_quota_us"), "50000\n");
        file(&root.join("cpu,cpuacct/a/cpu.cfs_period_us"), "100000\n");
        let groups = "4:memory:/a/b\n2:cpu,cpuacct:/a\n1:name=systemd:/a\n0::/\n";
        assert_eq!(limits(groups), (Some(2048), Some(500)));
    }

    #[test]
    fn memory_in_use_is_that_of_the_innermost_group_that_is_there() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        assert_eq!(memory_in_use("0::/job/step\n", root), None);
        file(&root.join("job/memory.current"), "700\n");
        assert_eq!(memory_in_use("0::/job/step\n", root), Some(700));
        file(&root.join("job/step/memory.current"), "500\n");
        assert_eq!(memory_in_use("3:cpu:/job\n0::/job/step\n", root), Some(500));
        file(&root.join("memory/a/memory.usage_in_bytes"), "300\n");
        assert_eq!(memory_in_use("4:memory,hugetlb:/a/b\n", root), Some(300));
    }
}
