//! Jobs of real ranks on this machine.

use std::process::{Command, Stdio};

use expctl_ledger::AttemptDir;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{Guard, PATIENCE, SMALL, TestProject, text, wait_until, worker_pids};

/// Options that make these settings.
pub fn set<'a>(settings: &[&'a str]) -> Vec<&'a str> {
    settings.iter().flat_map(|setting| ["--set", setting]).collect()
}

/// Whether each of so many ranks has done more than `steps` steps.
pub fn stepped(attempt: &AttemptDir, ranks: u32, steps: usize) -> bool {
    (0..ranks).all(|rank| attempt.steps(rank).is_ok_and(|done| done.len() > steps))
}

impl TestProject {
    /// `expctl submit` of a config on this machine, to the end of the job, with more options.
    pub fn submission(&self, config: &str, options: &[&str]) -> Command {
        let conf = self.conf("small", config);
        let mut command = self.expctl(&["submit", conf.to_str().unwrap(), "--backend", "local", "--wait"]);
        command.args(options).stdin(Stdio::null());
        command
    }

    /// Submit a job that completes; returns its number.
    pub fn completed(&self, config: &str, options: &[&str]) -> String {
        let output = self.submission(config, options).output().unwrap();
        assert!(output.status.success(), "{options:?}: {}\n{}", output.status, text(&output.stderr));
        text(&output.stdout).trim().to_owned()
    }

    /// Submit a job, and go on while it runs.
    pub fn started(&self, config: &str, options: &[&str]) -> Guard {
        Guard(self.submission(config, options).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Job 1, of the variant `ids` of [`SMALL`], which would take very long; its two ranks have done some steps.
    pub fn endless(&self, options: &[&str]) -> (Guard, AttemptDir) {
        let all = [&["--only", "ids", "--set", "measure.steps=10000000"], options].concat();
        let guard = self.started(SMALL, &all);
        (guard, self.attempt_with_steps("1", "ids", 2, 5))
    }

    /// Wait until each of so many ranks has done more than `steps` steps in the last attempt of a variant.
    pub fn attempt_with_steps(&self, job: &str, variant: &str, ranks: u32, steps: usize) -> AttemptDir {
        wait_until("the ranks to step", PATIENCE, || {
            self.attempt(job, variant).filter(|attempt| stepped(attempt, ranks, steps))
        })
    }

    /// Process of a rank that runs.
    pub fn rank(&self, rank: u32) -> Pid {
        let running = worker_pids(self.path());
        let (_, pid) =
            running.iter().find(|(r, _)| *r == rank).unwrap_or_else(|| panic!("{rank} is not in {running:?}"));
        Pid::from_raw(*pid)
    }
}

impl Guard {
    /// Send the launcher a signal.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id().cast_signed()), signal).unwrap();
    }
}
