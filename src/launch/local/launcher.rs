//! `<job>/launcher.pid`: which process runs a local job, and what it is going to run.
//!
//! Invariant: a process counts as the launcher only if number, start time and machine agree, so a recycled number is never
//! taken for it, and never signalled.

use std::collections::BTreeMap;
use std::path::PathBuf;

use expctl_record::{JobDir, write_atomic};
use nix::unistd::{gethostname, getpid};

use crate::exit::Failure;

/// A launcher as it wrote itself down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// Its process.
    pub pid: i32,
    /// When the process began, in ticks since the machine did.
    start: u64,
    /// The machine it runs on.
    pub host: String,
    /// The trials it runs, with the number of the attempt that each gets.
    pub attempts: BTreeMap<String, u32>,
}

/// Whether a launcher still runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It does.
    Alive,
    /// It does not.
    Gone,
    /// It ran on another machine, which this one cannot look into.
    Elsewhere,
}

impl Launcher {
    /// The launcher that a job's folder names, if any.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub fn of(job: &JobDir) -> Result<Option<Self>, Failure> {
        let path = path(job);
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Self::parse(&text)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Failure::internal(format!("cannot read {}: {e}", path.display()))),
        }
    }

    /// Whether it still runs.
    pub fn life(&self) -> Life {
        if self.host != host() {
            return Life::Elsewhere;
        }
        if start_of(self.pid) == Some(self.start) { Life::Alive } else { Life::Gone }
    }

    /// `<pid> <start> <host>`, then a line `<trial> <attempt>` for each trial.
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut first = lines.next()?.splitn(3, ' ');
        let (pid, start, host) = (first.next()?.parse().ok()?, first.next()?.parse().ok()?, first.next()?.to_owned());
        let attempts = lines.filter_map(|line| {
            let (trial, attempt) = line.rsplit_once(' ')?;
            Some((trial.to_owned(), attempt.parse().ok()?))
        });
        Some(Self { pid, start, host, attempts: attempts.collect() })
    }

    fn text(&self) -> String {
        let rows = self.attempts.iter().map(|(trial, attempt)| format!("{trial} {attempt}\n"));
        format!("{} {} {}\n{}", self.pid, self.start, self.host, rows.collect::<String>())
    }
}

/// Keeps `launcher.pid` while this process runs a job.
pub(super) struct Announced {
    job: JobDir,
    launcher: Launcher,
}

impl Announced {
    /// Write down that this process runs `attempts` of `job`.
    pub(super) fn new(job: JobDir, attempts: BTreeMap<String, u32>) -> Result<Self, Failure> {
        let pid = getpid().as_raw();
        let start = start_of(pid).ok_or_else(|| Failure::internal("this process has no start time in /proc"))?;
        let launcher = Launcher { pid, start, host: host(), attempts };
        write_atomic(&path(&job), launcher.text().as_bytes())?;
        Ok(Self { job, launcher })
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        // Another launcher may have written itself down meanwhile; that one stays.
        if Launcher::of(&self.job).is_ok_and(|found| found.as_ref() == Some(&self.launcher)) {
            let _ = std::fs::remove_file(path(&self.job));
        }
    }
}

fn path(job: &JobDir) -> PathBuf {
    job.path().join("launcher.pid")
}

fn host() -> String {
    gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// When a process began; none if it does not run. One that nobody has buried yet does not.
fn start_of(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    if matches!(state, "Z" | "X") { None } else { fields.nth(18)?.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launcher_is_alive_until_it_ends_and_a_recycled_number_is_not_it() {
        let folder = tempfile::tempdir().unwrap();
        let job = JobDir::new(folder.path());
        let announced = Announced::new(job.clone(), BTreeMap::from([("ids-r1-ab".to_owned(), 2)])).unwrap();
        let read = Launcher::of(&job).unwrap().unwrap();
        assert_eq!((&read, read.life()), (&announced.launcher, Life::Alive));
        assert_eq!(Launcher { start: read.start + 1, ..read.clone() }.life(), Life::Gone);
        assert_eq!(Launcher { host: "another machine".to_owned(), ..read }.life(), Life::Elsewhere);
        drop(announced);
        assert_eq!(Launcher::of(&job).unwrap(), None);
    }

    #[test]
    fn an_ended_process_that_nobody_waited_for_is_gone() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        let start = start_of(pid).unwrap();
        child.kill().unwrap();
        let launcher = Launcher { pid, start, host: host(), attempts: BTreeMap::new() };
        while launcher.life() == Life::Alive {
            std::thread::yield_now();
        }
        assert_eq!(launcher.life(), Life::Gone);
        child.wait().unwrap();
    }
}
