//! [`Launcher`], the file `<job>/launcher.pid`: which process runs a local job, and which attempts it will make.
//!
//! Invariant: a process counts as the launcher only if id, start time and machine agree, so a recycled process id is
//! never taken for it, and never signalled.

use std::collections::BTreeMap;
use std::path::PathBuf;

use expctl_ledger::{JobDir, write_atomic};
use nix::unistd::{gethostname, getpid};

use crate::exit::Failure;

/// A launcher, as its file describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// Its process.
    pub pid: i32,
    /// Start of the process, ticks since boot.
    start: u64,
    /// The machine it runs on.
    pub host: String,
    /// The trials it runs, with the number of the attempt that each gets.
    pub attempts: BTreeMap<String, u32>,
}

/// Whether a launcher still runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LauncherState {
    /// It runs.
    Alive,
    /// It has ended.
    Gone,
    /// It ran on another machine, which this one cannot look into.
    Elsewhere,
}

impl Launcher {
    /// Read the file in a job's folder; `None` if there is none.
    ///
    /// # Errors
    /// The file exists and cannot be read.
    pub fn load(job: &JobDir) -> Result<Option<Self>, Failure> {
        let path = path(job);
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Self::parse(&text)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Failure::internal(format!("cannot read {}: {e}", path.display()))),
        }
    }

    /// Whether it still runs.
    pub fn state(&self) -> LauncherState {
        if self.host != host() {
            return LauncherState::Elsewhere;
        }
        if start_of(self.pid) == Some(self.start) { LauncherState::Alive } else { LauncherState::Gone }
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
pub struct AnnouncedLauncher {
    job: JobDir,
    launcher: Launcher,
}

impl AnnouncedLauncher {
    /// Write that this process runs `attempts` of `job`.
    pub fn new(job: JobDir, attempts: BTreeMap<String, u32>) -> Result<Self, Failure> {
        let pid = getpid().as_raw();
        let start = start_of(pid).ok_or_else(|| Failure::internal("this process has no start time in /proc"))?;
        let launcher = Launcher { pid, start, host: host(), attempts };
        write_atomic(&path(&job), launcher.text().as_bytes())?;
        Ok(Self { job, launcher })
    }
}

impl Drop for AnnouncedLauncher {
    fn drop(&mut self) {
        // The file of another launcher, written meanwhile, stays.
        if Launcher::load(&self.job).is_ok_and(|found| found.as_ref() == Some(&self.launcher)) {
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

/// Start of a process, ticks since boot; `None` if it does not run. A zombie does not.
fn start_of(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain anything.
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
        let announced = AnnouncedLauncher::new(job.clone(), BTreeMap::from([("ids-r1-ab".to_owned(), 2)])).unwrap();
        let read = Launcher::load(&job).unwrap().unwrap();
        assert_eq!((&read, read.state()), (&announced.launcher, LauncherState::Alive));
        assert_eq!(Launcher { start: read.start + 1, ..read.clone() }.state(), LauncherState::Gone);
        assert_eq!(Launcher { host: "another machine".to_owned(), ..read }.state(), LauncherState::Elsewhere);
        drop(announced);
        assert_eq!(Launcher::load(&job).unwrap(), None);
    }

    #[test]
    fn an_ended_process_that_nobody_waited_for_is_gone() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        let start = start_of(pid).unwrap();
        child.kill().unwrap();
        let launcher = Launcher { pid, start, host: host(), attempts: BTreeMap::new() };
        while launcher.state() == LauncherState::Alive {
            std::thread::yield_now();
        }
        assert_eq!(launcher.state(), LauncherState::Gone);
        child.wait().unwrap();
    }
}
