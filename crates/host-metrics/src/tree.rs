use std::collections::HashMap;
use std::path::Path;

use crate::process::folder;

/// Which processes a rank is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// This one.
    Itself,
    /// All below this one, which has adopted its orphans.
    Below,
}

impl Watched {
    /// The processes, those that ended and were not waited for too.
    pub(crate) fn pids(self) -> Vec<i32> {
        let own = std::process::id() as i32;
        match self {
            Self::Itself => vec![own],
            Self::Below => below(own),
        }
    }
}

/// All processes below `root`, parents in front of their children.
fn below(root: i32) -> Vec<i32> {
    // Each thread has a list of what it started: that costs a look at the rank's own threads, and not at all processes of the node.
    if folder(root).join(format!("task/{root}/children")).exists() {
        return walk(root, children);
    }
    let all = parents();
    walk(root, |pid| all.get(&pid).cloned().unwrap_or_default())
}

fn walk(root: i32, children: impl Fn(i32) -> Vec<i32>) -> Vec<i32> {
    let mut found = children(root);
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        found.extend(children(pid));
        next += 1;
    }
    found
}

/// Children of all threads of a process.
fn children(pid: i32) -> Vec<i32> {
    let threads = std::fs::read_dir(folder(pid).join("task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>()).collect()
}

/// Children of every process of the node, by parent: for kernels that keep no lists.
fn parents() -> HashMap<i32, Vec<i32>> {
    let mut all: HashMap<i32, Vec<i32>> = HashMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        if let Some(parent) = parent(&entry.path()) {
            all.entry(parent).or_default().push(pid);
        }
    }
    all
}

fn parent(folder: &Path) -> Option<i32> {
    let stat = std::fs::read_to_string(folder.join("stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn both_ways_find_the_same_processes() {
        // A shell with a child of its own; it waits for it, so that it does not become it.
        let mut shell =
            Command::new("sh").args(["-c", "sleep 600 & echo $!; wait"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(shell.stdout.take().unwrap()), &mut line).unwrap();
        let (shell_pid, sleep_pid) = (shell.id() as i32, line.trim().parse::<i32>().unwrap());
        let all = parents();
        let scanned = walk(shell_pid, |pid| all.get(&pid).cloned().unwrap_or_default());
        let listed = below(shell_pid);
        let own = below(std::process::id() as i32);
        shell.kill().unwrap();
        shell.wait().unwrap();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(sleep_pid), nix::sys::signal::Signal::SIGKILL).unwrap();
        assert_eq!((scanned, listed), (vec![sleep_pid], vec![sleep_pid]));
        assert!(own.contains(&shell_pid) && own.contains(&sleep_pid), "{own:?}");
    }
}
