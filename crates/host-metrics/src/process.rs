//! What /proc says of one process. None of one that is gone, or that another user owns.

use std::path::{Path, PathBuf};

/// Folder of a process in /proc.
pub(crate) fn folder(pid: i32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

/// Processor time of a process, in ticks of the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ticks {
    /// Its own, that of threads which ended too.
    pub own: u64,
    /// That of its children which ended and were waited for, and of theirs.
    pub ended_children: u64,
}

/// Processor time of the process in `folder`; of one that has ended and was not waited for, too.
pub(crate) fn ticks(folder: &Path) -> Option<Ticks> {
    let stat = std::fs::read_to_string(folder.join("stat")).ok()?;
    // The name in parentheses may hold anything; the state is the first field behind it.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let field = |i: usize| fields.get(i)?.parse::<u64>().ok();
    Some(Ticks { own: field(11)? + field(12)?, ended_children: field(13)? + field(14)? })
}

/// Resident memory, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resident {
    /// Its own.
    pub anon: u64,
    /// Mapped files.
    pub file: u64,
    /// Shared memory.
    pub shmem: u64,
}

/// Resident memory of the process in `folder`; none of one that has ended.
pub(crate) fn resident(folder: &Path) -> Option<Resident> {
    let status = std::fs::read_to_string(folder.join("status")).ok()?;
    Some(Resident {
        anon: kib(&status, "RssAnon:")?,
        file: kib(&status, "RssFile:")?,
        shmem: kib(&status, "RssShmem:")?,
    })
}

/// Bytes in and out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Io {
    /// From disks.
    pub disk_read: u64,
    /// To disks.
    pub disk_written: u64,
    /// By calls that read.
    pub call_read: u64,
    /// By calls that write.
    pub call_written: u64,
}

/// Bytes in and out of the process in `folder`, and of its children that ended and were waited for.
pub(crate) fn io(folder: &Path) -> Option<Io> {
    let text = std::fs::read_to_string(folder.join("io")).ok()?;
    let line = |name: &str| value(&text, name)?.parse::<u64>().ok();
    Some(Io {
        disk_read: line("read_bytes:")?,
        disk_written: line("write_bytes:")?,
        call_read: line("rchar:")?,
        call_written: line("wchar:")?,
    })
}

/// Resident memory with each page divided by the number of processes that share it, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Proportion {
    /// All of it, pages of files too.
    pub all: u64,
    /// Memory that no file stands behind; none before Linux 5.0.
    pub anon: Option<u64>,
    /// Shared memory; none before Linux 5.0.
    pub shmem: Option<u64>,
}

/// Proportional memory of the process in `folder`. The kernel walks all pages for it.
pub(crate) fn proportional(folder: &Path) -> Option<Proportion> {
    let text = std::fs::read_to_string(folder.join("smaps_rollup")).ok()?;
    Some(Proportion { all: kib(&text, "Pss:")?, anon: kib(&text, "Pss_Anon:"), shmem: kib(&text, "Pss_Shmem:") })
}

/// First word of the line that begins with `name`.
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next())
}

/// A line in kB, in bytes.
fn kib(text: &str, name: &str) -> Option<u64> {
    Some(value(text, name)?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_proc_are_read_by_name_and_place() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 200 0 0 31 12 50 4 20 0 3 0 12345 1000 20 0\n";
        write("stat", stat);
        assert_eq!(ticks(dir.path()), Some(Ticks { own: 43, ended_children: 54 }));
        write(
            "status",
            "Name:\tx\nVmRSS:\t      30 kB\nRssAnon:\t      12 kB\nRssFile:\t      11 kB\nRssShmem:\t       7 kB\n",
        );
        assert_eq!(resident(dir.path()), Some(Resident { anon: 12 << 10, file: 11 << 10, shmem: 7 << 10 }));
        write(
            "io",
            "rchar: 5\nwchar: 6\nsyscr: 1\nsyscw: 1\nread_bytes: 3\nwrite_bytes: 4\ncancelled_write_bytes: 0\n",
        );
        assert_eq!(io(dir.path()), Some(Io { disk_read: 3, disk_written: 4, call_read: 5, call_written: 6 }));
        write(
            "smaps_rollup",
            "55d-7ff ---p 00000000 00:00 0    [rollup]\nRss:    9 kB\nPss:   8 kB\nPss_Dirty: 1 kB\n\
             Pss_Anon: 5 kB\nPss_File: 1 kB\nPss_Shmem: 2 kB\n",
        );
        let parts = Proportion { all: 8 << 10, anon: Some(5 << 10), shmem: Some(2 << 10) };
        assert_eq!(proportional(dir.path()), Some(parts));
        // A kernel that does not tell the parts apart.
        write("smaps_rollup", "Rss:    9 kB\nPss:   8 kB\n");
        assert_eq!(proportional(dir.path()), Some(Proportion { all: 8 << 10, anon: None, shmem: None }));
        // A process that has ended has no memory.
        write("status", "Name:\tx\nState:\tZ (zombie)\n");
        assert_eq!(resident(dir.path()), None);
    }
}
