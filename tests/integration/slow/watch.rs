//! Jobs that are watched while they run: real ranks, on this machine and on a real Slurm.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::common::cluster::Cluster;
use crate::common::{Guard, SMALL, TestProject, text, wait_until, worker_pids};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

const LONG: Duration = Duration::from_secs(120);
const ENDLESS: [&str; 6] = ["--only", "ids", "--set", "measure.steps=10000000", "--set", "checkpoint.on_signal=false"];

/// A project whose job ends with it.
struct Place(TestProject);

impl Drop for Place {
    fn drop(&mut self) {
        for (_, pid) in worker_pids(self.0.path()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

impl Place {
    /// A job that runs until it is stopped, and does steps by now.
    fn endless() -> Self {
        let place = Self(TestProject::new());
        let conf = place.0.conf("small", SMALL);
        place.0.ok(&[&["submit", conf.to_str().unwrap(), "--backend", "local"], &ENDLESS[..]].concat());
        wait_until("steps", LONG, || {
            let rows: Vec<Value> = serde_json::from_str(&place.0.ok(&["status", "1", "--json"])).unwrap();
            (rows[0]["steps"].as_u64() > Some(5)).then_some(())
        });
        place
    }

    fn start(&self, args: &[&str]) -> (Guard, BufReader<ChildStdout>) {
        let mut command = self.0.expctl(args);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        (Guard(child), lines)
    }
}

fn stderr(child: &mut Guard) -> String {
    let mut said = String::new();
    child.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    said
}

fn interrupt(child: &Guard) {
    kill(Pid::from_raw(child.0.id() as i32), Signal::SIGINT).unwrap();
}

#[test]
fn a_local_job_is_watched_to_its_end() {
    let place = Place::endless();
    // As a program reads it: one object a look.
    let (mut json, mut looks) = place.start(&["watch", "1", "--json"]);
    let mut line = String::new();
    let seen = loop {
        line.clear();
        assert!(looks.read_line(&mut line).unwrap() > 0, "{}", stderr(&mut json));
        let look: Value = serde_json::from_str(&line).unwrap();
        // After the first look, which sees many steps at once, the window grows with new ones.
        if look["running"][0]["it_per_s"].is_number() {
            break look;
        }
    };
    assert_eq!((&seen["job"], &seen["backend"], &seen["ended"]), (&1.into(), &"local".into(), &false.into()));
    assert_eq!(seen["trials"], serde_json::json!([{"state": "running", "trials": 1}]));
    let trial = &seen["running"][0];
    assert!(trial["samples_per_s"].as_f64() > trial["it_per_s"].as_f64(), "{trial}");
    assert!(trial["step"].as_u64() > Some(5) && trial["steps_total"] == 10_000_002, "{trial}");
    assert!(trial["estimated_s_left"].as_f64() > Some(0.0) && trial["slowest_stage"].is_string(), "{trial}");
    let ranks = trial["ranks"].as_array().unwrap();
    assert_eq!(ranks.len(), 2);
    assert!(ranks.iter().all(|r| r["it_per_s"].is_number() && r["node"].is_string() && r["own_time"].is_number()));

    // As a log: a line for each change, with its time; whoever stops watching stops nothing else.
    let (mut plain, mut lines) = place.start(&["watch", "1"]);
    let mut text = String::new();
    while !text.contains(": attempt 1 runs\n") || !text.contains("job 1: 1 running") {
        assert!(lines.read_line(&mut text).unwrap() > 0, "{text}{}", stderr(&mut plain));
    }
    assert!(text.lines().all(|l| l.starts_with("20") && l.contains("Z job 1: ")), "{text}");
    assert!(text.contains("Z job 1: small on local, submitted 20"), "{text}");
    interrupt(&plain);
    assert_eq!(plain.0.wait().unwrap().code(), Some(6));
    let said = stderr(&mut plain);
    assert!(said.starts_with("job 1 goes on without me\n") && said.contains("expctl watch 1"), "{said}");
    assert!(!worker_pids(place.0.path()).is_empty());

    // The end is seen by whoever watches, with the exit code of what was waited for.
    place.0.ok(&["cancel", "1"]);
    let last = looks.lines().map(Result::unwrap).last().unwrap();
    let last: Value = serde_json::from_str(&last).unwrap();
    assert_eq!((&last["ended"], &last["failures"][0]["state"]), (&true.into(), &"interrupted".into()));
    assert_eq!(json.0.wait().unwrap().code(), Some(6));
    assert!(stderr(&mut json).contains("1 of 1 trials did not end"));
}

#[test]
fn on_a_terminal_it_is_drawn_in_place_and_q_leaves() {
    let place = Place::endless();
    let command = format!("{} --root {} watch 1", env!("CARGO_BIN_EXE_expctl"), place.0.path().display());
    let mut script = Command::new("script");
    script.args(["-qec", &command, "/dev/null"]).env("TERM", "xterm");
    let mut child = Guard(script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    let mut stdout = child.0.stdout.take().unwrap();
    let mut seen = Vec::new();
    let mut bytes = [0; 4096];
    while !text(&seen).contains("waits most for ") {
        let n = stdout.read(&mut bytes).unwrap();
        assert!(n > 0, "{}", text(&seen));
        seen.extend(&bytes[..n]);
    }
    let mut keys = child.0.stdin.take().unwrap();
    keys.write_all(b"q").unwrap();
    stdout.read_to_end(&mut seen).unwrap();
    assert_eq!(child.0.wait().unwrap().code(), Some(6));
    let seen = text(&seen);
    let drawn = seen.split("\x1b[?1049h").nth(1).unwrap().split("\x1b[?1049l").next().unwrap();
    assert!(drawn.contains("\x1b[Hjob 1, small on local") && drawn.contains("q leaves; the job goes on"), "{drawn}");
    assert!(!drawn.contains("\x1b[2J"), "it is drawn over, not cleared: {drawn}");
    assert!(seen.split("\x1b[?1049l").nth(1).unwrap().contains("job 1 goes on without me"), "{seen}");
    assert!(!worker_pids(place.0.path()).is_empty());
}

#[test]
fn the_logs_of_all_ranks_are_followed_until_the_job_ends() {
    let place = Place::endless();
    let attempt = place.0.attempt("1", "ids").unwrap();
    let log = |rank: u32, words: &str| {
        let mut log = std::fs::File::options().append(true).open(attempt.log_path(rank)).unwrap();
        writeln!(log, "{words}").unwrap();
    };
    (0..4).for_each(|n| log(0, &format!("early {n}")));
    let (mut follow, mut lines) = place.start(&["logs", "1", "-f", "--tail", "2"]);
    let mut seen = String::new();
    while !seen.contains("early 3") {
        assert!(lines.read_line(&mut seen).unwrap() > 0, "{seen}");
    }
    assert_eq!(
        seen.lines().filter(|l| l.starts_with("[r0] early")).collect::<Vec<_>>(),
        ["[r0] early 2", "[r0] early 3"]
    );
    log(1, "from rank 1");
    log(0, "from rank 0");
    while !(seen.contains("[r1] from rank 1\n") && seen.contains("[r0] from rank 0\n")) {
        assert!(lines.read_line(&mut seen).unwrap() > 0, "{seen}");
    }
    place.0.ok(&["cancel", "1"]);
    assert!(follow.0.wait().unwrap().success());
    let only = place.0.ok(&["logs", "1_0", "--tail", "1", "--rank", "1"]);
    assert_eq!(only.lines().count(), 1, "{only}");
}

#[test]
fn a_slurm_job_is_watched_with_few_questions() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    let place = Place(TestProject::new());
    let tools = tempfile::tempdir().unwrap();
    let (path, calls) = (std::env::var("PATH").unwrap(), tools.path().join("calls"));
    let squeue = tools.path().join("squeue");
    std::fs::write(&squeue, format!("#!/bin/sh\necho x >> '{}'\nPATH='{path}' exec squeue \"$@\"\n", calls.display()))
        .unwrap();
    std::fs::set_permissions(&squeue, std::fs::Permissions::from_mode(0o755)).unwrap();
    let expctl = |args: &[&str]| {
        let mut command = place.0.expctl(args);
        command.env("SLURM_CONF", cluster.conf()).env("PATH", format!("{}:{path}", tools.path().display()));
        command
    };
    let conf = place.0.conf("small", SMALL);
    cluster.ask("scontrol", &["update", "partitionname=batch", "state=down"]);
    let submit = expctl(&["submit", conf.to_str().unwrap(), "--backend", "slurm"]).output().unwrap();
    assert!(submit.status.success(), "{}", text(&submit.stderr));
    let id = text(&submit.stdout).trim().to_owned();
    let _ = std::fs::remove_file(&calls);

    let mut child = Guard(expctl(&["watch", &id, "--json"]).stdout(Stdio::piped()).spawn().unwrap());
    let mut looks = BufReader::new(child.0.stdout.take().unwrap()).lines().map(|l| l.unwrap());
    let look = |line: &str| serde_json::from_str::<Value>(line).unwrap();
    let mut seen = 0;
    // The reason comes with the scheduler's next turn.
    let down = serde_json::json!([{"reason": "PartitionDown", "trials": 2}]);
    loop {
        let now = look(&looks.next().unwrap());
        seen += 1;
        assert_eq!(now["arrays"], serde_json::json!([id.parse::<u64>().unwrap()]));
        if now["waiting"] == down {
            break;
        }
    }
    cluster.ask("scontrol", &["update", "partitionname=batch", "state=up"]);
    let mut last = Value::Null;
    for line in looks {
        seen += 1;
        last = look(&line);
    }
    assert_eq!(
        (&last["ended"], &last["trials"]),
        (&true.into(), &serde_json::json!([{"state": "completed", "trials": 2}]))
    );
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
    let asked = std::fs::read_to_string(&calls).unwrap().lines().count();
    assert!((1..=seen).contains(&asked), "{asked} questions in {seen} looks");

    // What Slurm keeps of a task is shown with the ranks' own words.
    let logs = text(&expctl(&["logs", &id]).output().unwrap().stdout);
    let log = place.0.job(&id).path().join(format!("slurm-{id}_1.log"));
    std::fs::File::options().append(true).create(true).open(log).unwrap().write_all(b"a word of the script\n").unwrap();
    let more = text(&expctl(&["logs", &id]).output().unwrap().stdout);
    let new: Vec<&str> = more.lines().filter(|line| !logs.contains(line)).collect();
    let trial = place.0.job(&id).record().unwrap().trials[1].id.clone();
    assert_eq!(new, [format!("[{trial} slurm] a word of the script")]);
}
