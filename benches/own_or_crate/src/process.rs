//! /proc: our readings against `procfs`. Both sides read the same process once before they are timed, and must say the same.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use host_metrics::group_memory;
use procfs::process::Process;

use crate::harness::{Case, Check, Clock, Outcome, Pass, RunPass};
use crate::metrics::{self, WatchedProcesses};

/// Memory of a process that is watched, bytes.
const IDLE_BYTES: usize = 64 << 20;
/// Readings of a pass.
const READINGS: u64 = 200;
/// Readings of memory by pages of a pass: the kernel walks all pages.
const ROLLUPS: u64 = 20;
/// Processes that are found below this one.
const DESCENDANTS: usize = 4;

/// Bytes by which the memory of a process may change between two readings: a page that another process maps is shared from then on.
const MAX_DIFFERENCE: u64 = 64 << 10;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("/proc", "stat, status, io of a process", "readings/s")
            .side("ours", |_| of_process(READINGS, true, our_counters, their_counters))
            .side("procfs", |_| of_process(READINGS, false, our_counters, their_counters)),
        Case::new("/proc", "smaps_rollup of 64 MiB", "readings/s")
            .side("ours", |_| of_process(ROLLUPS, true, our_memory, their_memory))
            .side("procfs", |_| of_process(ROLLUPS, false, our_memory, their_memory)),
        Case::new("/proc", "processes below this one: 4", "readings/s")
            .side("ours", |_| readings(idle_group()?, READINGS, our_descendants, their_descendants))
            .side("procfs", |_| readings(idle_group()?, READINGS, their_descendants, our_descendants)),
        Case::new("/proc", "memory and limit of the control group", "readings/s")
            .side("ours", |_| readings(Vec::new(), READINGS, our_limit, their_limit))
            .side("procfs, and files by hand", |_| readings(Vec::new(), READINGS, their_limit, our_limit)),
    ]
}

fn our_counters(folder: &Path) -> Outcome<Vec<u64>> {
    let ticks = metrics::cpu_ticks(folder).ok_or("no stat")?;
    let memory = metrics::resident_memory(folder).ok_or("no status")?;
    let io = metrics::io_bytes(folder).ok_or("no io")?;
    Ok(vec![
        ticks.own,
        ticks.ended_children,
        memory.anon,
        memory.file,
        memory.shmem,
        io.disk_read,
        io.disk_written,
        io.call_read,
        io.call_written,
    ])
}

fn their_counters(process: &Process) -> Outcome<Vec<u64>> {
    let (stat, status, io) = (process.stat()?, process.status()?, process.io()?);
    let bytes = |kib: Option<u64>| kib.ok_or("a line of status is missing").map(|kib| kib * 1024);
    Ok(vec![
        stat.utime + stat.stime,
        (stat.cutime + stat.cstime) as u64,
        bytes(status.rssanon)?,
        bytes(status.rssfile)?,
        bytes(status.rssshmem)?,
        io.read_bytes,
        io.write_bytes,
        io.rchar,
        io.wchar,
    ])
}

fn our_memory(folder: &Path) -> Outcome<Vec<u64>> {
    let memory = metrics::proportional_memory(folder).ok_or("no smaps_rollup")?;
    Ok(vec![memory.all, memory.anon.ok_or("no Pss_Anon")?, memory.shmem.ok_or("no Pss_Shmem")?])
}

fn their_memory(process: &Process) -> Outcome<Vec<u64>> {
    let rollup = process.smaps_rollup()?;
    let map = rollup.memory_map_rollup.iter().next().ok_or("an empty rollup")?;
    let value = |name: &'static str| map.extension.map.get(name).copied().ok_or(name);
    Ok(vec![value("Pss")?, value("Pss_Anon")?, value("Pss_Shmem")?])
}

fn our_descendants() -> Outcome<Vec<u64>> {
    Ok(WatchedProcesses::Descendants.pids().into_iter().map(|pid| pid as u64).collect())
}

fn their_descendants() -> Outcome<Vec<u64>> {
    let mut found = vec![std::process::id() as i32];
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        for task in Process::new(pid)?.tasks()?.flatten() {
            found.extend(task.children()?.into_iter().map(|child| child as i32));
        }
        next += 1;
    }
    Ok(found[1..].iter().map(|pid| *pid as u64).collect())
}

/// The memory in use is read, too; it changes.
fn our_limit() -> Outcome<Vec<u64>> {
    let (used, limit) = group_memory();
    Ok(vec![u64::from(used.is_some()), limit.unwrap_or(0)])
}

/// procfs says which groups a process is in; their files are left to its user.
fn their_limit() -> Outcome<Vec<u64>> {
    let number = |path: PathBuf| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let (mut limit, mut used): (Option<u64>, Option<u64>) = (None, None);
    for group in Process::myself()?.cgroups()? {
        let (mount, current, max) = match group.controllers.iter().any(|name| name == "memory") {
            true => ("/sys/fs/cgroup/memory", "memory.usage_in_bytes", "memory.limit_in_bytes"),
            false if group.controllers.iter().all(String::is_empty) => {
                ("/sys/fs/cgroup", "memory.current", "memory.max")
            }
            false => continue,
        };
        let mut folder = Some(PathBuf::from(group.pathname.trim_start_matches('/')));
        while let Some(path) = folder {
            let of_group = Path::new(mount).join(&path);
            used = used.or_else(|| number(of_group.join(current)));
            limit = limit.into_iter().chain(number(of_group.join(max))).min();
            folder = path.parent().map(ToOwned::to_owned);
        }
    }
    Ok(vec![u64::from(used.is_some()), limit.filter(|limit| *limit < 1 << 62).unwrap_or(0)])
}

/// Passes of readings of a process that waits.
fn of_process(
    count: u64,
    is_ours: bool,
    ours: impl Fn(&Path) -> Outcome<Vec<u64>> + 'static,
    theirs: impl Fn(&Process) -> Outcome<Vec<u64>> + 'static,
) -> Outcome<RunPass> {
    let watched = Idle::start()?;
    let (folder, process) = (metrics::folder(watched.pid()), Process::new(watched.pid())?);
    let (ours, theirs) = (move || ours(&folder), move || theirs(&process));
    match is_ours {
        true => readings(vec![watched], count, ours, theirs),
        false => readings(vec![watched], count, theirs, ours),
    }
}

/// Passes of `count` readings; `watched` lives as long. `other` must say the same, but for [`MAX_DIFFERENCE`].
fn readings(
    watched: Vec<Idle>,
    count: u64,
    read: impl Fn() -> Outcome<Vec<u64>> + 'static,
    other: impl Fn() -> Outcome<Vec<u64>> + 'static,
) -> Outcome<RunPass> {
    let (said, other) = (read()?, other()?);
    let agree = |(a, b): (&u64, &u64)| a.abs_diff(*b) <= MAX_DIFFERENCE;
    if said.len() != other.len() || !said.iter().zip(&other).all(agree) {
        return Err(format!("one side says {said:?}, the other {other:?}").into());
    }
    Ok(Box::new(move |_| {
        let _ = &watched;
        let mut clock = Clock::default();
        clock.time(|| (0..count).try_for_each(|_| read().map(|said| drop(std::hint::black_box(said)))))?;
        Ok(Pass { units: count, time: clock.0, check: Check::Same(0) })
    }))
}

/// A process that waits until it is dropped.
struct Idle(Child);

impl Idle {
    fn start() -> Outcome<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let child = command.arg("--idle").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut idle = Self(child);
        // It says when its memory is filled, and then waits for its input.
        idle.0.stdout.take().ok_or("no output")?.read_exact(&mut [0])?;
        std::thread::sleep(Duration::from_millis(20));
        Ok(idle)
    }

    fn pid(&self) -> i32 {
        self.0.id() as i32
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        // It ends with its input.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// What [`Idle`] runs.
pub fn idle() -> Outcome<()> {
    let memory = vec![1u8; IDLE_BYTES];
    std::hint::black_box(&memory);
    println!("x");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn idle_group() -> Outcome<Vec<Idle>> {
    (0..DESCENDANTS).map(|_| Idle::start()).collect()
}
