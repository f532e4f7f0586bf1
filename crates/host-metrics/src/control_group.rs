//! What the control groups of this process say: limits of memory and processors, and memory in use.

use std::path::{Path, PathBuf};

/// Where control groups are mounted.
const MOUNT: &str = "/sys/fs/cgroup";

/// Memory that the control group of this process has in use, its page cache included, and the smallest limit of it and of
/// those above it, bytes. None of what the system does not say, and without a limit.
pub fn group_memory() -> (Option<u64>, Option<u64>) {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let root = Path::new(MOUNT);
    (in_use(&groups, root), limits(&groups, root, 0).0.filter(|limit| *limit < NO_LIMIT))
}

/// What the first version of control groups says in place of none: the largest number of pages.
const NO_LIMIT: u64 = 1 << 62;

/// Memory in use by the innermost group that is there.
fn in_use(groups: &str, root: &Path) -> Option<u64> {
    groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let found = |mount: &str, file: &str| above(&root.join(mount), path).iter().find_map(|f| number(&f.join(file)));
        if controllers.is_empty() {
            found("", "memory.current")
        } else {
            controllers.split(',').any(|c| c == "memory").then(|| found("memory", "memory.usage_in_bytes"))?
        }
    })
}

/// The smallest memory and processor limits of the control groups in `groups` (the form of /proc/self/cgroup) and of those
/// above them. A memory limit of at least `memory` bytes is none.
pub(super) fn limits(groups: &str, root: &Path, memory: u64) -> (Option<u64>, Option<u64>) {
    let (mut bytes, mut milli) = (None, None);
    let lower = |limit: &mut Option<u64>, found: Option<u64>| {
        *limit = found.into_iter().chain(*limit).min();
    };
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let has = |name| controllers.split(',').any(|c| c == name);
        let at = |mount: &str| above(&root.join(mount), path);
        if controllers.is_empty() {
            for folder in at("") {
                lower(&mut bytes, number(&folder.join("memory.max")));
                lower(&mut milli, quota(&folder.join("cpu.max")));
            }
        }
        if has("memory") {
            at("memory").iter().for_each(|f| lower(&mut bytes, number(&f.join("memory.limit_in_bytes"))));
        }
        if has("cpu") {
            for folder in at(controllers).into_iter().chain(at("cpu")) {
                let period = number(&folder.join("cpu.cfs_period_us")).filter(|p| *p > 0);
                let quota = number(&folder.join("cpu.cfs_quota_us"));
                lower(&mut milli, quota.zip(period).map(|(quota, period)| quota * 1000 / period));
            }
        }
    }
    (bytes.filter(|b| memory == 0 || *b < memory), milli)
}

/// The folders of a group and of those above it. Inside a container the path is often that of the machine, and only the
/// mount itself is there.
fn above(mount: &Path, path: &str) -> Vec<PathBuf> {
    let relative = Path::new(path.trim_start_matches('/'));
    relative.ancestors().map(|part| mount.join(part)).collect()
}

/// A limit in a file of its own; none for `max` and -1.
fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// `200000 100000`, or `max 100000`.
fn quota(path: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let (quota, period) = text.trim().split_once(' ')?;
    let period = period.parse::<u64>().ok().filter(|p| *p > 0)?;
    Some(quota.parse::<u64>().ok()? * 1000 / period)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_file::file;

    #[test]
    fn the_tightest_limit_of_both_kinds_of_control_groups_counts() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        file(&root.join("job/memory.max"), "4096\n");
        file(&root.join("job/step/memory.max"), "max\n");
        file(&root.join("job/step/cpu.max"), "150000 100000\n");
        file(&root.join("job/cpu.max"), "max 100000\n");
        assert_eq!(limits("0::/job/step\n", root, 8192), (Some(4096), Some(1500)));
        assert_eq!(limits("0::/job/step\n", root, 4096).0, None);
        assert_eq!(limits("0::/elsewhere\n", root, 8192), (None, None));
        file(&root.join("memory/a/memory.limit_in_bytes"), "2048\n");
        file(&root.join("cpu,cpuacct/a/cpu.cfs_quota_us"), "50000\n");
        file(&root.join("cpu,cpuacct/a/cpu.cfs_period_us"), "100000\n");
        let groups = "4:memory:/a/b\n2:cpu,cpuacct:/a\n1:name=systemd:/a\n0::/\n";
        assert_eq!(limits(groups, root, 8192), (Some(2048), Some(500)));
    }

    #[test]
    fn memory_in_use_is_that_of_the_innermost_group_that_is_there() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        assert_eq!(in_use("0::/job/step\n", root), None);
        file(&root.join("job/memory.current"), "700\n");
        assert_eq!(in_use("0::/job/step\n", root), Some(700));
        file(&root.join("job/step/memory.current"), "500\n");
        assert_eq!(in_use("3:cpu:/job\n0::/job/step\n", root), Some(500));
        file(&root.join("memory/a/memory.usage_in_bytes"), "300\n");
        assert_eq!(in_use("4:memory,hugetlb:/a/b\n", root), Some(300));
    }
}
