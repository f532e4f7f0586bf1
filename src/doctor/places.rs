use std::path::Path;
use std::time::Duration;

use expctl_text::format::bytes;
use nix::sys::statfs::statfs;
use nix::sys::statvfs::statvfs;

use super::check::Check;
use crate::launch::{libtorch_folder, libtorch_version, worker_binary, worker_version};

/// Less free space than this is worth a word.
const LITTLE: u64 = 5_000_000_000;
/// Longest that the worker may take to say its version; it reads hundreds of MB first, maybe over a network.
const START: Duration = Duration::from_secs(60);

/// File systems that other machines do not see, by the numbers of statfs(2).
const LOCAL: [(i64, &str); 7] = [
    (0xEF53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683E, "btrfs"),
    (0x0102_1994, "tmpfs"),
    (0x794c_7630, "overlay"),
    (0x2FC1_2FC1, "zfs"),
    (0x8584_58F6, "ramfs"),
];

/// A folder that jobs write to: writable, with space, and seen by the nodes of a cluster.
pub fn folder(what: &str, path: &Path, with_slurm: bool) -> Check {
    // It is made when it is needed; until then its nearest parent decides.
    let Some(there) = path.ancestors().find(|p| p.exists()) else {
        return Check::problem(what, format!("{} has no parent", path.display()), "name another folder");
    };
    let shown = path.display();
    if let Err(e) = tempfile::tempfile_in(there) {
        let todo = "EXPCTL_RUNS and EXPCTL_DATA, or ~/.config/expctl/config.toml, move it";
        return Check::problem(what, format!("{shown} cannot be written: {e}"), todo);
    }
    let free = statvfs(there).map(|s| s.blocks_available() * s.fragment_size()).ok();
    let magic = statfs(there).map(|s| s.filesystem_type().0).ok();
    let local = LOCAL.iter().find(|(number, _)| Some(*number) == magic).map(|(_, name)| *name);
    let space = free.map_or_else(String::new, |free| format!(", {} free", bytes(free as f64)));
    let found = format!("{shown}{}{space}", local.map_or_else(String::new, |name| format!(" on {name}")));
    if free.is_some_and(|free| free < LITTLE) {
        return Check::warning(what, found, "make space, or move it to another file system");
    }
    if with_slurm && local.is_some() {
        let todo = "nodes other than this one may not see it: put it on a shared file system";
        return Check::warning(what, found, todo);
    }
    Check::ok(what, found)
}

/// The worker, and the libtorch that it loads.
pub fn worker() -> Vec<Check> {
    let path = match worker_binary() {
        Ok(path) => path,
        Err(failure) => return vec![Check::problem("worker", failure.message, failure.hints.join("; "))],
    };
    let mut checks = vec![match worker_version(&path, START) {
        Ok(version) => Check::ok("worker", format!("{version}, {}", path.display())),
        Err(why) => {
            let todo = format!("run it by hand: {} --version", path.display());
            Check::problem("worker", why, todo)
        }
    }];
    checks.push(match libtorch_folder(&path) {
        None => Check::problem("libtorch", "the worker does not find one", "run `make setup`, or set LD_LIBRARY_PATH"),
        Some(folder) => {
            let version = libtorch_version(&folder).unwrap_or_else(|| "of unknown version".to_owned());
            Check::ok("libtorch", format!("{version}, {}", folder.display()))
        }
    });
    checks
}
