//! The processes below this one. Invariant: with [`adopt`] called, whatever a child starts is found here, however it was put
//! into the background.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

/// Longest that killed processes may take to be gone; one inside a dead file system may never be.
const LIMIT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);

/// Become the parent of all orphans below this process.
///
/// # Errors
/// The system refuses.
pub fn adopt() -> std::io::Result<()> {
    Ok(nix::sys::prctl::set_child_subreaper(true)?)
}

/// Processes below this one that have not ended: their numbers and names.
pub fn below() -> Vec<(Pid, String)> {
    let mut children: BTreeMap<i32, Vec<(i32, String, bool)>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        // The name, in parentheses, may hold anything.
        let Some((head, tail)) = stat.rsplit_once(") ") else { continue };
        let name = head.split_once(" (").map_or("", |(_, name)| name).to_owned();
        let mut fields = tail.split(' ');
        let ended = matches!(fields.next(), Some("Z" | "X"));
        if let Some(parent) = fields.next().and_then(|parent| parent.parse().ok()) {
            children.entry(parent).or_default().push((pid, name, ended));
        }
    }
    let mut found = Vec::new();
    let mut open = vec![nix::unistd::getpid().as_raw()];
    while let Some(parent) = open.pop() {
        for (pid, name, ended) in children.remove(&parent).unwrap_or_default() {
            open.push(pid);
            if !ended {
                found.push((Pid::from_raw(pid), name));
            }
        }
    }
    found
}

/// Kill all processes below this one, and bury them. Only for when no child is waited for elsewhere.
pub fn end_all() {
    let since = Instant::now();
    loop {
        let left = below();
        for (pid, _) in &left {
            // It may have ended meanwhile.
            let _ = kill(*pid, Signal::SIGKILL);
        }
        bury();
        if left.is_empty() || since.elapsed() > LIMIT {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Wait until no process is left below this one, for at most `limit`; returns those that are.
pub fn wait_for_all(limit: Duration) -> Vec<(Pid, String)> {
    let since = Instant::now();
    loop {
        bury();
        let left = below();
        if left.is_empty() || since.elapsed() > limit {
            return left;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Take in children that have ended.
fn bury() {
    while waitpid(None, Some(WaitPidFlag::WNOHANG)).is_ok_and(|status| status.pid().is_some()) {}
}
