//! Processes, as /proc shows them: which ones are watched, and what each of them uses. A process that is gone, or that another user owns,
//! gives `None`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The processes that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchedProcesses {
    /// The process that watches.
    Itself,
    /// All processes below the one that watches, which has to adopt orphans (`PR_SET_CHILD_SUBREAPER`).
    Descendants,
}

impl WatchedProcesses {
    /// Ids of the processes, including those that ended and were not waited for.
    pub(crate) fn pids(self) -> Vec<i32> {
        let own = std::process::id() as i32;
        match self {
            Self::Itself => vec![own],
            Self::Descendants => descendants(own),
        }
    }
}

/// All processes below `root`, parents before their children.
fn descendants(root: i32) -> Vec<i32> {
    // Each thread has a list of the processes that it started: that costs a look at the threads below `root`, and not at all processes of
    // the node.
    if folder(root).join(format!("task/{root}/children")).exists() {
        return walk(root, children);
    }
    let by_parent = children_by_parent();
    walk(root, |pid| by_parent.get(&pid).cloned().unwrap_or_default())
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

/// Children of every process of the node, for kernels that keep no lists of children.
fn children_by_parent() -> HashMap<i32, Vec<i32>> {
    let mut by_parent: HashMap<i32, Vec<i32>> = HashMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        if let Some(parent) = parent(&entry.path()) {
            by_parent.entry(parent).or_default().push(pid);
        }
    }
    by_parent
}

/// Folder of a process in /proc.
pub(crate) fn folder(pid: i32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

/// Parent of the process in `folder`.
fn parent(folder: &Path) -> Option<i32> {
    let stat = std::fs::read_to_string(folder.join("stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// Processor time of a process, in ticks of the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuTicks {
    /// Its own, including that of threads that ended.
    pub own: u64,
    /// Time of children that ended and were waited for, and of their children.
    pub ended_children: u64,
}

/// Processor time of the process in `folder`, also after it has ended, until it is waited for.
pub(crate) fn cpu_ticks(folder: &Path) -> Option<CpuTicks> {
    let stat = std::fs::read_to_string(folder.join("stat")).ok()?;
    // The name in parentheses may hold anything; the state is the first field behind it.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let field = |i: usize| fields.get(i)?.parse::<u64>().ok();
    Some(CpuTicks { own: field(11)? + field(12)?, ended_children: field(13)? + field(14)? })
}

/// Resident memory, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResidentMemory {
    /// Anonymous.
    pub anon: u64,
    /// Mapped files.
    pub file: u64,
    /// Shared memory.
    pub shmem: u64,
}

/// Resident memory of the process in `folder`. `None`: it has ended.
pub(crate) fn resident_memory(folder: &Path) -> Option<ResidentMemory> {
    let status = std::fs::read_to_string(folder.join("status")).ok()?;
    Some(ResidentMemory {
        anon: kib(&status, "RssAnon:")?,
        file: kib(&status, "RssFile:")?,
        shmem: kib(&status, "RssShmem:")?,
    })
}

/// Bytes that a process moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IoBytes {
    /// Read from disks.
    pub disk_read: u64,
    /// Written to disks.
    pub disk_written: u64,
    /// Returned by system calls that read.
    pub call_read: u64,
    /// Passed to system calls that write.
    pub call_written: u64,
}

/// Bytes in and out of the process in `folder`, and of its children that ended and were waited for.
pub(crate) fn io_bytes(folder: &Path) -> Option<IoBytes> {
    let text = std::fs::read_to_string(folder.join("io")).ok()?;
    let line = |name: &str| value(&text, name)?.parse::<u64>().ok();
    Some(IoBytes {
        disk_read: line("read_bytes:")?,
        disk_written: line("write_bytes:")?,
        call_read: line("rchar:")?,
        call_written: line("wchar:")?,
    })
}

/// Resident memory with each page divided by the number of processes that share it, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProportionalMemory {
    /// All of it, including pages of files.
    pub all: u64,
    /// Anonymous. `None`: a kernel before 5.0.
    pub anon: Option<u64>,
    /// Shared memory. `None`: a kernel before 5.0.
    pub shmem: Option<u64>,
}

/// Proportional memory of the process in `folder`. The kernel walks all pages for it.
pub(crate) fn proportional_memory(folder: &Path) -> Option<ProportionalMemory> {
    let text = std::fs::read_to_string(folder.join("smaps_rollup")).ok()?;
    Some(ProportionalMemory {
        all: kib(&text, "Pss:")?,
        anon: kib(&text, "Pss_Anon:"),
        shmem: kib(&text, "Pss_Shmem:"),
    })
}

/// First word of the line that begins with `name`.
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next())
}

/// A line in kB, in bytes.
fn kib(text: &str, name: &str) -> Option<u64> {
    Some(value(text, name)?.parse::<u64>().ok()? * 1024)
}

/// Minimum time between readings of proportional memory, in durations of a reading: it may take 0.1 % of the time for a single process, whose
/// status has the same figures, and 0.5 % for several, whose shared memory shows in no other way.
const REST_OF_ONE: u32 = 1000;
const REST_OF_SEVERAL: u32 = 200;

/// Reads proportional memory, the more rarely the slower a reading is: the kernel walks all pages of a process.
#[derive(Debug, Default)]
pub(crate) struct ProportionalReader {
    /// When the next reading may be. `None`: now.
    due: Option<Instant>,
}

impl ProportionalReader {
    /// The sum over these processes. `None`: the next reading is not due, or no process says it.
    pub fn read(&mut self, pids: &[i32]) -> Option<ProportionalMemory> {
        if pids.is_empty() || self.due.is_some_and(|due| Instant::now() < due) {
            return None;
        }
        let begin = Instant::now();
        let each = pids.iter().filter_map(|pid| proportional_memory(&folder(*pid)));
        let sum = each.reduce(|a, b| ProportionalMemory {
            all: a.all + b.all,
            anon: a.anon.zip(b.anon).map(|(a, b)| a + b),
            shmem: a.shmem.zip(b.shmem).map(|(a, b)| a + b),
        });
        self.rest(begin.elapsed() * if pids.len() > 1 { REST_OF_SEVERAL } else { REST_OF_ONE });
        sum
    }

    fn rest(&mut self, pause: Duration) {
        self.due = Some(Instant::now() + pause);
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn files_of_proc_are_read_by_name_and_place() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 200 0 0 31 12 50 4 20 0 3 0 12345 1000 20 0\n";
        write("stat", stat);
        assert_eq!(cpu_ticks(dir.path()), Some(CpuTicks { own: 43, ended_children: 54 }));
        write(
            "status",
            "Name:\tx\nVmRSS:\t      30 kB\nRssAnon:\t      12 kB\nRssFile:\t      11 kB\nRssShmem:\t       7 kB\n",
        );
        assert_eq!(
            resident_memory(dir.path()),
            Some(ResidentMemory { anon: 12 << 10, file: 11 << 10, shmem: 7 << 10 })
        );
        write(
            "io",
            "rchar: 5\nwchar: 6\nsyscr: 1\nsyscw: 1\nread_bytes: 3\nwrite_bytes: 4\ncancelled_write_bytes: 0\n",
        );
        assert_eq!(
            io_bytes(dir.path()),
            Some(IoBytes { disk_read: 3, disk_written: 4, call_read: 5, call_written: 6 })
        );
        write(
            "smaps_rollup",
            "55d-7ff ---p 00000000 00:00 0    [rollup]\nRss:    9 kB\nPss:   8 kB\nPss_Dirty: 1 kB\n\
             Pss_Anon: 5 kB\nPss_File: 1 kB\nPss_Shmem: 2 kB\n",
        );
        let parts = ProportionalMemory { all: 8 << 10, anon: Some(5 << 10), shmem: Some(2 << 10) };
        assert_eq!(proportional_memory(dir.path()), Some(parts));
        // A kernel that does not tell the parts apart.
        write("smaps_rollup", "Rss:    9 kB\nPss:   8 kB\n");
        assert_eq!(proportional_memory(dir.path()), Some(ProportionalMemory { all: 8 << 10, anon: None, shmem: None }));
        // A process that has ended has no memory.
        write("status", "Name:\tx\nState:\tZ (zombie)\n");
        assert_eq!(resident_memory(dir.path()), None);
    }

    #[test]
    fn both_ways_find_the_same_processes() {
        // A shell with a child of its own; it waits for it, so that it does not become it.
        let mut shell =
            Command::new("sh").args(["-c", "sleep 600 & echo $!; wait"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(shell.stdout.take().unwrap()), &mut line).unwrap();
        let (shell_pid, sleep_pid) = (shell.id() as i32, line.trim().parse::<i32>().unwrap());
        let all = children_by_parent();
        let scanned = walk(shell_pid, |pid| all.get(&pid).cloned().unwrap_or_default());
        let listed = descendants(shell_pid);
        let own = descendants(std::process::id() as i32);
        shell.kill().unwrap();
        shell.wait().unwrap();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(sleep_pid), nix::sys::signal::Signal::SIGKILL).unwrap();
        assert_eq!((scanned, listed), (vec![sleep_pid], vec![sleep_pid]));
        assert!(own.contains(&shell_pid) && own.contains(&sleep_pid), "{own:?}");
    }

    #[test]
    fn a_slow_look_is_not_soon_repeated() {
        let own = [std::process::id() as i32];
        let mut reader = ProportionalReader::default();
        assert_eq!(reader.read(&[]), None);
        assert!(reader.read(&own).is_some_and(|memory| memory.all > 1 << 20));
        reader.rest(Duration::from_secs(60));
        assert_eq!(reader.read(&own), None);
        reader.rest(Duration::ZERO);
        let memory = reader.read(&own).unwrap();
        assert!(
            memory.anon.unwrap() > 1 << 16 && memory.anon.unwrap() + memory.shmem.unwrap() <= memory.all,
            "{memory:?}"
        );
    }

    #[test]
    fn memory_of_several_processes_is_summed() {
        let own = std::process::id() as i32;
        let one = ProportionalReader::default().read(&[own]).unwrap();
        let two = ProportionalReader::default().read(&[own, own]).unwrap();
        // Other tests take and free memory meanwhile.
        assert!(two.anon.unwrap() as f64 > 1.5 * one.anon.unwrap() as f64, "{one:?} {two:?}");
    }
}
