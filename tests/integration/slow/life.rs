//! The life of a job, as its user drives it: status, logs, cancel, retry, with real ranks, on this machine and on a real
//! Slurm.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::common::cluster::Cluster;
use crate::common::{Guard, SMALL, TestProject, text, wait_until, worker_pids};
use expctl_ledger::{TrialState, write_json};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

const LONG: Duration = Duration::from_secs(90);
// Without a checkpoint: the next attempt is made shorter (see `shorten`), and begins anew.
const ENDLESS: [&str; 8] = [
    "--only",
    "ids",
    "--set",
    "measure.steps=10000000",
    "--set",
    "train.mode=train",
    "--set",
    "checkpoint.on_signal=false",
];

/// A project, and the Slurm that its commands speak to.
struct Place {
    project: TestProject,
    cluster: Option<Cluster>,
}

impl Place {
    fn local() -> Self {
        Self { project: TestProject::new(), cluster: None }
    }

    fn expctl(&self, args: &[&str]) -> Command {
        let mut command = self.project.expctl(args);
        match &self.cluster {
            Some(cluster) => command.env("SLURM_CONF", cluster.conf()).env("EXPCTL_BACKEND", "slurm"),
            None => command.env("EXPCTL_BACKEND", "local"),
        };
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.expctl(args).stdin(Stdio::null()).output().unwrap()
    }

    /// Expect an exit code; returns stderr.
    fn code(&self, args: &[&str], code: i32) -> String {
        let output = self.run(args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "expctl {args:?}: {said}");
        said
    }

    /// Submit without waiting.
    fn submit(&self, more: &[&str]) -> String {
        let conf = self.project.conf("small", SMALL);
        let output = self.run(&[&["submit", conf.to_str().unwrap()], more].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).trim().to_owned()
    }

    /// The trials of a job, as `status` shows them.
    fn status(&self, job: &str) -> Vec<Value> {
        let output = self.run(&["status", job, "--json"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn running(&self, job: &str) -> Value {
        wait_until("a trial that runs and steps", LONG, || {
            self.status(job).into_iter().find(|t| t["state"] == "running" && t["steps"].as_u64() > Some(5))
        })
    }

    /// Give a job that would never end an end that it reaches, for its next attempt.
    fn shorten(&self, job: &str) {
        let folder = self.project.job(job);
        let mut record = folder.record().unwrap();
        record.trials.iter_mut().for_each(|trial| trial.settings.measure.steps = 6);
        write_json(&folder.record_path(), &record).unwrap();
    }
}

/// A failing test leaves no launcher of its own behind.
impl Drop for Place {
    fn drop(&mut self) {
        for (_, pid) in worker_pids(self.project.path()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

fn states(trials: &[Value]) -> Vec<(&str, u64)> {
    trials.iter().map(|t| (t["state"].as_str().unwrap(), t["attempt"].as_u64().unwrap())).collect()
}

/// Without a checkpoint the last attempt did all steps, and its note says so.
fn assert_began_anew(note: &str) {
    assert!(note.contains("took 2 attempts; the last one counts"), "{note}");
    assert!(!note.contains("attempts and went on from a checkpoint"), "{note}");
}

#[test]
fn a_local_job_is_watched_cancelled_and_retried() {
    let place = Place::local();
    let job = place.submit(&ENDLESS);
    let trial = place.running(&job);
    assert_eq!((&trial["attempt"], &trial["steps_total"]), (&1.into(), &10_000_002.into()));
    assert!(trial["samples_per_s"].as_f64().unwrap() > 0.0 && trial["node"].is_string(), "{trial}");
    let all = text(&place.run(&["status"]).stdout);
    assert!(all.contains("| 1 | small | local |") && all.contains("| 1 running |"), "{all}");
    let early = place.code(&["retry", &job], 6);
    assert!(early.contains("job 1 has not ended: 1 running"), "{early}");

    // Whoever follows the log sees a line that comes later, and the end.
    let mut follow = Guard(place.expctl(&["logs", "1_0", "-f"]).stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(follow.0.stdout.take().unwrap()).lines();
    let attempt = place.project.attempt(&job, "ids").unwrap();
    let mark = |rank: u32, words: &str| {
        use std::io::Write;
        let mut log = std::fs::File::options().append(true).open(attempt.log_path(rank)).unwrap();
        writeln!(log, "{words}").unwrap();
    };
    mark(1, "written while it runs");
    assert!(lines.any(|line| line.unwrap() == "[r1] written while it runs"));

    let said = place.code(&["cancel", &job], 0);
    assert!(said.contains("job 1 is cancelled: 1 interrupted") && said.contains("steps are on disk"), "{said}");
    assert!(worker_pids(place.project.path()).is_empty());
    assert!(follow.0.wait().unwrap().success(), "the follower sees the end");
    let outcome = place.project.outcome(&job, "ids");
    assert_eq!(outcome.state, TrialState::Interrupted);
    assert!(attempt.steps_path(0).exists() && attempt.steps_path(1).exists());
    let again = place.code(&["cancel", &job], 0);
    assert!(again.contains("job 1 does not run: 1 interrupted"), "{again}");
    assert_eq!(states(&place.status(&job)), [("interrupted", 1)]);
    mark(0, "the last words");
    let alone = text(&place.run(&["logs", "1_0", "--rank", "0"]).stdout);
    assert!(alone.lines().any(|line| line == "the last words"), "{alone}");
    assert!(!alone.contains("[r0] ") && !alone.contains("written while it runs"), "{alone}");
    place.code(&["logs", "1_0", "--rank", "2"], 2);
    place.code(&["logs", "1_7"], 2);

    place.shorten(&job);
    place.code(&["retry", &job, "--wait"], 0);
    assert_eq!(states(&place.status(&job)), [("completed", 2)]);
    let note = std::fs::read_to_string(place.project.path().join("results/small_1.md")).unwrap();
    assert_began_anew(&note);
    let nothing = place.code(&["retry", &job], 0);
    assert!(nothing.contains("nothing to retry: job 1 is complete"), "{nothing}");
    assert_eq!(states(&place.status(&job)), [("completed", 2)]);
    assert!(!place.project.job(&job).path().join("launcher.pid").exists());
}

#[test]
fn a_job_whose_launcher_was_killed_is_lost_and_can_be_retried() {
    let place = Place::local();
    let job = place.submit(&ENDLESS);
    place.running(&job);
    let launcher = std::fs::read_to_string(place.project.job(&job).path().join("launcher.pid")).unwrap();
    let pid: i32 = launcher.split(' ').next().unwrap().parse().unwrap();
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    wait_until("the ranks to end", LONG, || worker_pids(place.project.path()).is_empty().then_some(()));
    wait_until("the job to be lost", LONG, || (states(&place.status(&job)) == [("lost", 1)]).then_some(()));
    let said = place.code(&["cancel", &job], 0);
    assert!(said.contains("does not run: 1 lost"), "{said}");
    // A launcher that is gone keeps nobody waiting.
    assert!(place.run(&["logs", &job, "-f"]).status.success());

    place.shorten(&job);
    place.code(&["retry", &job], 0);
    wait_until("the retry to complete", LONG, || (states(&place.status(&job)) == [("completed", 2)]).then_some(()));
    // What the first launcher could not write down, the second did.
    let trial = place.status(&job)[0]["trial"].as_str().unwrap().to_owned();
    let first = place.project.job(&job).attempts(&trial).unwrap().remove(0);
    let outcome = first.outcome().unwrap().unwrap();
    assert_eq!(outcome.state, TrialState::Failed);
    assert!(outcome.message.contains("launcher ended"), "{}", outcome.message);
    assert!(first.steps_path(0).exists() && first.steps(0).unwrap().len() > 5);
    wait_until("the launcher to end", LONG, || {
        (!place.project.job(&job).path().join("launcher.pid").exists()).then_some(())
    });
}

#[test]
fn only_what_failed_is_retried() {
    let place = Place::local();
    let job = place.submit(&["--wait"]);
    let trials = place.project.job(&job).record().unwrap().trials;
    // As after a crash of the second trial.
    let attempt = place.project.attempt(&job, &trials[1].variant).unwrap();
    let outcome = attempt.outcome().unwrap().unwrap();
    expctl_ledger::Outcome { state: TrialState::Failed, message: "broken".to_owned(), ..outcome }
        .save(&attempt)
        .unwrap();
    assert_eq!(states(&place.status(&job)), [("completed", 1), ("failed", 1)]);
    place.code(&["retry", &job, "--wait"], 0);
    assert_eq!(states(&place.status(&job)), [("completed", 1), ("completed", 2)]);
}

#[test]
fn unknown_jobs_are_refused_with_those_that_exist() {
    let place = Place::local();
    for verb in ["status", "logs", "cancel", "retry"] {
        let said = place.code(&[verb, "77"], 7);
        assert!(said.contains("there is no job 77") && said.contains("measured jobs in"), "{said}");
        let said = place.code(&[verb, "392"], 7);
        assert!(said.contains("job 392 was published by others"), "{said}");
    }
    assert_eq!(text(&place.run(&["status", "--json"]).stdout).trim(), "[]");
}

#[test]
fn a_slurm_job_is_watched_cancelled_and_retried() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    let place = Place { project: TestProject::new(), cluster: Some(cluster) };
    let job = place.submit(&ENDLESS);
    place.running(&job);
    let all = text(&place.run(&["status"]).stdout);
    assert!(all.contains("| small | slurm |") && all.contains("| 1 running |"), "{all}");
    place.code(&["retry", &job], 6);
    let said = place.code(&["cancel", &format!("{job}_0")], 0);
    assert!(said.contains("is cancelled: 1 interrupted"), "{said}");
    let again = place.code(&["cancel", &job], 0);
    assert!(again.contains("does not run: 1 interrupted"), "{again}");

    place.shorten(&job);
    place.code(&["retry", &job, "--wait"], 0);
    assert_eq!(states(&place.status(&job)), [("completed", 2)]);
    let arrays = std::fs::read(place.project.job(&job).path().join("arrays.json")).unwrap();
    let arrays: Value = serde_json::from_slice(&arrays).unwrap();
    assert_eq!(arrays["arrays"][0]["id"].to_string(), job);
    assert_eq!(arrays["arrays"][1]["tasks"], serde_json::json!({"0": [[0, 2]]}), "{arrays}");
    let note = std::fs::read_to_string(place.project.path().join(format!("results/small_{job}.md"))).unwrap();
    assert_began_anew(&note);
    assert!(place.code(&["retry", &job], 0).contains("nothing to retry"));
}

#[test]
fn failed_trials_of_a_slurm_job_get_another_array_that_can_be_cancelled() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    let place = Place { project: TestProject::new(), cluster: Some(cluster) };
    let conf = place.project.conf("small", SMALL);
    // A worker that fails at once, then one that is there.
    let arguments = ["submit", conf.to_str().unwrap(), "--wait"];
    let output = place.expctl(&arguments).env("EXPCTL_WORKER", "/bin/false").output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    let job = text(&output.stdout).trim().to_owned();
    assert_eq!(states(&place.status(&job)), [("failed", 1), ("failed", 1)]);

    // Nowhere to run: the retry waits, is known as waiting, and is cancelled under its own number.
    let cluster = place.cluster.as_ref().unwrap();
    cluster.ask("scontrol", &["update", "partitionname=batch", "state=down"]);
    place.code(&["retry", &job], 0);
    assert_eq!(states(&place.status(&job)), [("waiting", 1), ("waiting", 1)]);
    let said = place.code(&["cancel", &format!("{job}_1")], 0);
    assert!(said.contains("1 interrupted, 1 waiting"), "{said}");
    cluster.ask("scontrol", &["update", "partitionname=batch", "state=up"]);
    wait_until("the first trial", LONG, || {
        (states(&place.status(&job)) == [("completed", 2), ("interrupted", 2)]).then_some(())
    });
    place.code(&["retry", &job, "--wait"], 0);
    assert_eq!(states(&place.status(&job)), [("completed", 2), ("completed", 3)]);
}
