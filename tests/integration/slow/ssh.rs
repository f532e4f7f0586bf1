//! `--on NAME` over a real sshd: jobs on this machine and on a Slurm cluster behind it, lost connections, a host that is another one.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value as Json;
use test_support::{Requirement, skip};

use super::faults::bench::{Disk, Filled};
use crate::common::cluster::Cluster;
use crate::common::far_side::FarSide;
use crate::common::ledger::two_variants;
use crate::common::programs::{BARE, script};
use crate::common::{Guard, PATIENCE, SMALL, TestProject, copy, text, wait_until};
use crate::remote::files;

/// A machine behind sshd, or leave the test.
macro_rules! behind_sshd {
    () => {
        match FarSide::behind_sshd() {
            Some(far) => far,
            None => return,
        }
    };
}

/// A job whose program ends at once, and so fails.
fn conf() -> String {
    format!("{BARE}\n[variant.a]\nworker.command = [\"true\"]\n")
}

#[test]
fn a_job_runs_there_and_is_read_here() {
    let far = behind_sshd!();
    let project = TestProject::new();
    far.connect(&project);
    let settings = project.path().join("config/expctl/config.toml");
    let ssh = std::fs::read_to_string(&settings).unwrap();
    let on_end = "on_end = 'echo \"$EXPCTL_JOB: $EXPCTL_MESSAGE\" > told.txt'";
    std::fs::write(&settings, format!("{on_end}\n{ssh}")).unwrap();
    project.conf("small", SMALL);
    let (stdout, stderr) =
        far.expect(&project, &["submit", "conf/small.toml", "--on", "far", "--only", "ids", "--wait"], 0);
    assert_eq!(stdout, "far:1\n");
    assert!(stderr.contains("sent to far: ") && stderr.contains("job far:1: 1 completed"), "{stderr}");
    let note = std::fs::read_to_string(project.path().join("results/small_far_1.md")).unwrap();
    let told = std::fs::read_to_string(project.path().join("told.txt")).unwrap();
    assert!(told.starts_with("far:1: expctl job far:1 (small) completed, 1 trial"), "{told}");
    let (stdout, _) = far.expect(&project, &["status", "far:1", "--json"], 0);
    assert_eq!(serde_json::from_str::<Json>(&stdout).unwrap()[0]["state"], "completed");
    // Both ledgers say the same.
    for table in ["steps", "trials"] {
        let export = ["export", "1", "--to", "csv", "--table", table];
        let there = far.there(&export);
        assert!(there.status.success(), "{}", text(&there.stderr));
        let (here, _) = far.expect(&project, &[&export[..], &["--on", "far"]].concat(), 0);
        assert_eq!(here, text(&there.stdout), "{table}");
    }
    let there = far.there(&["report", "1"]);
    assert!(there.status.success(), "{}", text(&there.stderr));
    let there = std::fs::read_to_string(text(&there.stdout).trim()).unwrap();
    let rows = |note: &str| -> Vec<String> {
        note.lines().filter(|line| line.starts_with("| ids")).map(str::to_owned).collect()
    };
    assert!(!rows(&note).is_empty(), "{note}");
    assert_eq!(rows(&note), rows(&there));
    let (stdout, _) = far.expect(&project, &["logs", "far:1", "--rank", "0"], 0);
    assert_eq!(stdout, text(&far.there(&["logs", "1", "--rank", "0"]).stdout));
}

#[test]
fn a_job_runs_the_code_that_was_sent_however_the_project_changes() {
    let far = behind_sshd!();
    let project = TestProject::new();
    far.connect(&project);
    let go = far.home().join("go");
    script(
        &project,
        "show.sh",
        &format!("while [ ! -e '{}' ]; do sleep 0.05; done; cat settings.txt; echo", go.display()),
    );
    let settings = |text: &str| std::fs::write(project.path().join("settings.txt"), text).unwrap();
    settings("old");
    project.conf(
        "show",
        &format!("{BARE}\n[variant.a]\nworker.command = [\"./show.sh\"]\n").replace("ranks = 2", "ranks = 1"),
    );
    let submit = ["submit", "conf/show.toml", "--on", "far"];
    assert_eq!(far.expect(&project, &submit, 0).0, "far:1\n");
    settings("new");
    assert_eq!(far.expect(&project, &submit, 0).0, "far:2\n");
    settings("newer");
    // A job that runs is not retried; it is run once more.
    let (_, stderr) = far.expect(&project, &["retry", "far:1"], 6);
    assert!(stderr.contains("job 1 has not ended: ") && stderr.contains("hint: expctl cancel far:1\n"), "{stderr}");
    assert_eq!(far.expect(&project, &["rerun", "far:1"], 0).0, "far:3\n");
    std::fs::write(go, "").unwrap();
    far.wait_for_jobs();
    for (job, settings) in [("far:1", "old"), ("far:2", "new"), ("far:3", "old")] {
        let (stdout, _) = far.expect(&project, &["logs", job, "--rank", "0"], 0);
        // What comes behind is that it called no `expctl.Run`.
        assert_eq!(stdout.lines().next(), Some(settings), "{job}");
    }
}

/// A program that waits for a file there.
fn waits_for(project: &TestProject, go: &Path) -> String {
    script(project, "show.sh", &format!("while [ ! -e '{}' ]; do sleep 0.05; done", go.display()));
    format!("{BARE}\n[variant.a]\nworker.command = [\"./show.sh\"]\n")
}

/// Submits a config.
const SUBMIT: [&str; 4] = ["submit", "conf/small.toml", "--on", "far"];

/// Bytes that went each way in a command over `ssh`, or the result of one that was cut off.
struct Cut<'a> {
    far: &'a FarSide,
    project: &'a TestProject,
    ssh: std::path::PathBuf,
}

impl<'a> Cut<'a> {
    fn new(far: &'a FarSide, project: &'a TestProject) -> Self {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/cut_ssh.py");
        let ssh = far.script("cut-ssh", &format!("exec python3 '{}' \"$@\"", program.display()));
        Self { far, project, ssh }
    }

    /// Run a command; the exit code, stdout, stderr.
    fn run(&self, args: &[&str], variables: &[(&str, String)]) -> (Option<i32>, String, String) {
        let mut command = self.far.expctl(self.project, args);
        command.env("EXPCTL_SSH", &self.ssh).env("CUT_SSH", self.far.ssh());
        command.envs(variables.iter().map(|(name, value)| (*name, value)));
        let output = command.output().unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    }

    /// New code, so that there is something to send.
    fn change(&self, number: usize) {
        let payload = format!("# {number}\n{}", "x = 'filler of the code'\n".repeat(1000));
        std::fs::write(self.project.path().join("payload.py"), payload).unwrap();
    }

    /// How many bytes go to and from the other side in a command.
    fn counts(&self, args: &[&str]) -> (u64, u64) {
        let file = self.project.path().join("results/counts.json");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let (code, _, stderr) = self.run(args, &[("CUT_COUNTS", file.display().to_string())]);
        assert_eq!(code, Some(0), "{stderr}");
        let counts: Json = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        (counts["in"].as_u64().unwrap(), counts["out"].as_u64().unwrap())
    }

    /// Cut the connection after so many bytes, and submit again: there is exactly one job more.
    fn at(&self, way: &str, bytes: u64) {
        let before = self.far.jobs();
        let (code, stdout, stderr) = self.run(&SUBMIT, &[(way, bytes.to_string())]);
        let id = if code == Some(0) {
            // It was cut off after the answer.
            stdout
        } else {
            assert_eq!(code, Some(4), "{way} {bytes}: {stderr}");
            assert!(
                stderr.contains("error: cannot reach far: ") && stdout.is_empty(),
                "{way} {bytes}: {stdout}{stderr}"
            );
            let (code, stdout, stderr) = self.run(&SUBMIT, &[]);
            assert_eq!(code, Some(0), "{way} {bytes}: {stderr}");
            assert!(stderr.contains("going on with the submission of "), "{way} {bytes}: {stderr}");
            stdout
        };
        let new: Vec<String> =
            self.far.jobs().iter().filter(|job| !before.contains(job)).map(|job| format!("far:{job}\n")).collect();
        assert_eq!(new, [id], "{way} {bytes}");
    }

    /// All of that at so many points of each way.
    fn everywhere(&self, points: u64) {
        self.change(0);
        let (to, from) = self.counts(&SUBMIT);
        for point in 0..points {
            for (way, bytes) in [("CUT_IN", to), ("CUT_OUT", from)] {
                self.change(usize::try_from(2 * point + 1).unwrap() + usize::from(way == "CUT_OUT"));
                self.at(way, bytes * point / points);
            }
        }
        assert_eq!(staged(self.far), Vec::<String>::new());
    }
}

/// Folders of jobs there that did not get a number.
fn staged(far: &FarSide) -> Vec<String> {
    let entries = std::fs::read_dir(far.project().join("results/runs")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(".staged-")).collect()
}

/// Submit, where the process that submits there is killed at a point of its way; then the same again: there is exactly one job more.
fn die_at(far: &FarSide, project: &TestProject, point: &str) {
    let before = far.jobs();
    let output = far.expctl(project, &SUBMIT).env("EXPCTL_DIE_AT", point).output().unwrap();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(6), "{point}: {stdout}{stderr}");
    assert!(stdout.is_empty() && stderr.contains("the submission ended midway"), "{point}: {stdout}{stderr}");
    assert!(stderr.contains("it was killed (signal: 9"), "{point}: {stderr}");
    assert!(stderr.contains("hint: the same command again goes on"), "{point}: {stderr}");
    let (stdout, stderr) = far.expect(project, &SUBMIT, 0);
    assert!(stderr.contains("going on with the submission of "), "{point}: {stderr}");
    let new: Vec<String> =
        far.jobs().iter().filter(|job| !before.contains(job)).map(|job| format!("far:{job}\n")).collect();
    assert_eq!(new, [stdout], "{point}: {stderr}");
    assert_eq!(staged(far), Vec::<String>::new(), "{point}");
}

#[test]
fn a_submission_that_is_killed_anywhere_leaves_one_job() {
    let (far, project) = (FarSide::without_network(), TestProject::new());
    far.connect(&project);
    project.conf("small", &conf());
    for point in ["staged", "recorded", "detached"] {
        die_at(&far, &project, point);
    }
    far.wait_for_jobs();
    // Whoever started their launchers, all of them ran.
    let status = text(&far.there(&["status", "--json"]).stdout);
    let jobs: Json = serde_json::from_str(&status).unwrap();
    let states: Vec<&Json> = jobs.as_array().unwrap().iter().map(|job| &job["trials"][0]["state"]).collect();
    assert_eq!(states, ["failed"; 3], "{status}");
}

#[test]
fn a_connection_that_ends_anywhere_leaves_one_job() {
    let far = behind_sshd!();
    let project = TestProject::new();
    far.connect(&project);
    project.conf("small", &conf());
    Cut::new(&far, &project).everywhere(12);
    far.wait_for_jobs();
}

#[test]
fn a_far_side_that_is_killed_anywhere_leaves_one_job() {
    let (far, project) = (FarSide::without_network(), TestProject::new());
    far.connect(&project);
    project.conf("small", &conf());
    Cut::new(&far, &project).everywhere(8);
    far.wait_for_jobs();
}

#[test]
fn two_laptops_at_once_get_a_job_each() {
    let far = behind_sshd!();
    let projects = [TestProject::new(), TestProject::new()];
    let started: Vec<Guard> = projects
        .iter()
        .zip(["one", "two"])
        .map(|(project, name)| {
            far.connect(project);
            project.conf("small", &conf());
            std::fs::write(project.path().join("name.txt"), name).unwrap();
            let mut command = far.expctl(project, &["submit", "conf/small.toml", "--on", "far"]);
            Guard(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
        })
        .collect();
    let mut ids: Vec<String> = started
        .into_iter()
        .map(|mut guard| {
            assert!(guard.0.wait().unwrap().success());
            std::io::read_to_string(guard.0.stdout.take().unwrap()).unwrap()
        })
        .collect();
    ids.sort();
    assert_eq!(ids, ["far:1\n", "far:2\n"]);
    assert_eq!(std::fs::read_dir(far.project().join("trees")).unwrap().count(), 2);
    far.wait_for_jobs();
}

#[test]
fn a_host_with_another_key_is_not_spoken_to() {
    let far = behind_sshd!();
    let project = TestProject::new();
    far.connect(&project);
    project.conf("small", &conf());
    far.expect_another_key();
    let (stdout, stderr) = far.expect(&project, &SUBMIT, 4);
    assert!(stdout.is_empty() && stderr.contains("REMOTE HOST IDENTIFICATION HAS CHANGED"), "{stderr}");
    assert!(stderr.contains("error: cannot reach far: Host key verification failed"), "{stderr}");
    assert!(!far.project().exists());
}

#[test]
fn a_host_that_cannot_be_used_gets_nothing() {
    let mut far = behind_sshd!();
    let project = TestProject::new();
    project.conf("small", &conf());
    let refused = |far: &FarSide, words: &str| {
        let (stdout, stderr) = far.expect(&project, &SUBMIT, 4);
        assert!(stdout.is_empty() && stderr.contains(words), "{words}: {stderr}");
        assert!(!far.project().exists(), "{words}");
    };
    // No expctl, a newer one, and one that is too old to be asked.
    far.connect_as(&project, "~/bin/expctl");
    refused(&far, "there is no ~/bin/expctl on far");
    let newer = "echo 'expctl-remote {\"version\":\"9.9.9\",\"protocol\":99}'; exec cat > /dev/null";
    far.connect_as(&project, far.script("newer-expctl", newer).to_str().unwrap());
    refused(&far, "expctl 9.9.9 on far speaks version 99 of the protocol");
    let older = "echo \"error: unrecognized subcommand 'remote'\" >&2; exit 2";
    far.connect_as(&project, far.script("older-expctl", older).to_str().unwrap());
    refused(&far, "the expctl on far is older than this one");
    far.connect(&project);
    far.use_unknown_key();
    refused(&far, "Permission denied");
    far.stop();
    refused(&far, "Connection refused");
    refused(&far, "error: cannot reach far: ");
}

#[test]
fn a_full_disk_there_is_said_and_leaves_no_job() {
    let far = behind_sshd!();
    let mounts = Command::new("unshare").args(["--mount", "true"]).status().is_ok_and(|status| status.success());
    if !mounts {
        return skip(Requirement::Other, "needs root, which may mount a small disk");
    }
    let project = TestProject::new();
    far.connect(&project);
    project.conf("small", &conf());
    let _disk = Disk::mount(&far.project(), 2);
    let refused = |words: [&str; 2]| {
        let (stdout, stderr) = far.expect(&project, &SUBMIT, 6);
        assert!(stdout.is_empty() && words.iter().all(|word| stderr.contains(word)), "{words:?}: {stderr}");
        assert!(far.jobs().is_empty());
    };
    {
        let _filled = Filled::new(&far.project());
        refused(["far: cannot write ", ": no storage space"]);
    }
    // The contents fit, their copies in the folder of the code do not.
    let half = project.path().join("half.bin");
    std::fs::write(&half, vec![7_u8; 1200 << 10]).unwrap();
    refused(["error: far: ", "No space left on device"]);
    std::fs::remove_file(half).unwrap();
    assert_eq!(far.expect(&project, &SUBMIT, 0).0, "far:1\n");
    far.wait_for_jobs();
}

#[test]
fn a_fetch_that_is_cut_off_anywhere_goes_on() {
    let far = behind_sshd!();
    let (project, other) = (TestProject::new(), TestProject::new());
    far.connect(&project);
    two_variants(&other, 7);
    let there = far.project().join("results/runs/7");
    copy(other.job("7").path(), &there);
    let fetch = ["fetch", "far:7"];
    let cut = Cut::new(&far, &project);
    let (_, from) = cut.counts(&fetch);
    let hosts = project.path().join("results/hosts");
    let here = hosts.join("far/runs/7");
    for point in 0..10 {
        std::fs::remove_dir_all(&hosts).unwrap();
        let (code, _, stderr) = cut.run(&fetch, &[("CUT_OUT", (from * point / 10).to_string())]);
        assert!(code == Some(4) && stderr.contains("error: cannot reach far: "), "{point}: {stderr}");
        // What is here is whole.
        for file in files(&here) {
            let same = there.join(file.strip_prefix(&here).unwrap());
            assert_eq!(std::fs::read(&file).unwrap(), std::fs::read(same).unwrap(), "{point}: {}", file.display());
        }
        far.expect(&project, &fetch, 0);
        assert_eq!(files(&here).len(), files(&there).len(), "{point}");
    }
}

#[test]
fn a_laptop_that_slept_goes_on_waiting() {
    let Some(far) = FarSide::behind_sshd_with("ClientAliveInterval 1\nClientAliveCountMax 2\n") else { return };
    let project = TestProject::new();
    far.connect(&project);
    let go = far.home().join("go");
    project.conf("small", &waits_for(&project, &go));
    let log = project.path().join("results-log");
    let mut command = far.expctl(&project, &[&SUBMIT[..], &["--wait"]].concat());
    command.process_group(0).stdout(Stdio::null()).stderr(std::fs::File::create(&log).unwrap());
    let mut waiting = Guard(command.spawn().unwrap());
    let said = |words: &str| {
        wait_until(words, PATIENCE, || std::fs::read_to_string(&log).unwrap().contains(words).then_some(()));
    };
    said("job far:1: 1 running");
    // It and its ssh, which does not answer the server any more.
    let all = Pid::from_raw(-waiting.0.id().cast_signed());
    kill(all, Signal::SIGSTOP).unwrap();
    std::thread::sleep(Duration::from_secs(8));
    kill(all, Signal::SIGCONT).unwrap();
    said("job far:1 goes on, and I try again until Ctrl-C");
    said("far answers again");
    std::fs::write(go, "").unwrap();
    // The program reported no steps, so the trial failed.
    assert_eq!(waiting.0.wait().unwrap().code(), Some(5), "{}", std::fs::read_to_string(&log).unwrap());
    assert_eq!(far.jobs(), [1]);
}

#[test]
fn a_cancel_whose_connection_is_lost_is_ended_there() {
    let far = behind_sshd!();
    let project = TestProject::new();
    far.connect(&project);
    // Its ranks take all the time that they are given to end.
    script(&project, "show.sh", "trap '' TERM INT; while :; do sleep 0.2; done");
    project.conf("small", &format!("{BARE}\n[variant.a]\nworker.command = [\"./show.sh\"]\n"));
    far.expect(&project, &SUBMIT, 0);
    let state = || {
        let status = text(&far.there(&["status", "1", "--json"]).stdout);
        serde_json::from_str::<Json>(&status).unwrap()[0]["state"].as_str().unwrap().to_owned()
    };
    wait_until("the job to run", PATIENCE, || (state() == "running").then_some(()));
    let mut command = far.expctl(&project, &["cancel", "far:1"]);
    let mut cancelling = Guard(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
    let is_cancel = |line: &str| line.contains("cancel\0") && !line.contains("remote\0");
    wait_until("the cancel to begin", PATIENCE, || processes_there(&far, &is_cancel).pop());
    let child = format!("/proc/{0}/task/{0}/children", cancelling.0.id());
    let ssh: i32 = std::fs::read_to_string(child).unwrap().trim().parse().unwrap();
    kill(Pid::from_raw(ssh), Signal::SIGKILL).unwrap();
    let stderr = std::io::read_to_string(cancelling.0.stderr.take().unwrap()).unwrap();
    assert_eq!(cancelling.0.wait().unwrap().code(), Some(4), "{stderr}");
    assert!(stderr.contains("error: cannot reach far: "), "{stderr}");
    wait_until("the job to end", PATIENCE, || (state() == "interrupted").then_some(()));
}

#[test]
fn a_machine_with_a_network_of_its_own_is_reached_by_ssh_alone() {
    let Some(far) = FarSide::with_own_network() else { return };
    let project = TestProject::new();
    far.connect(&project);
    project.conf("small", SMALL);
    // What listens here is not to be reached from there.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = listener.local_addr().unwrap();
    TcpStream::connect(here).unwrap();
    let reached = far.shell(&format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/{}'", here.port()));
    assert!(!reached.status.success() && text(&reached.stderr).contains("refused"), "{reached:?}");
    drop(listener);
    let submit = [&SUBMIT[..], &["--only", "ids", "--wait"]].concat();
    let (stdout, stderr) = far.expect(&project, &submit, 0);
    assert!(stdout == "far:1\n" && stderr.contains("job far:1: 1 completed"), "{stderr}");
    assert!(project.path().join("results/small_far_1.md").exists());
    let (stdout, _) = far.expect(&project, &["logs", "far:1", "--rank", "1"], 0);
    assert_eq!(stdout, text(&far.there(&["logs", "1", "--rank", "1"]).stdout));
}

#[test]
fn a_shared_connection_is_used_and_never_waited_for() {
    let far = behind_sshd!();
    let project = TestProject::new();
    far.connect(&project);
    let go = far.home().join("go");
    project.conf("small", &waits_for(&project, &go));
    // One that had to stay until the last of the others has ended would hold up its command, or be cut off with them.
    let socket = far.share_connections("no");
    far.expect(&project, &SUBMIT, 0);
    let mut watch = far.expctl(&project, &["watch", "far:1"]);
    let mut watching = Guard(watch.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut lines = BufReader::new(watching.0.stdout.take().unwrap());
    let mut seen = String::new();
    while !seen.contains("job 1: 1 running") {
        assert!(lines.read_line(&mut seen).unwrap() > 0, "{seen}");
    }
    assert!(!socket.exists());
    // One that stays by itself serves the next commands.
    far.share_connections("60");
    far.expect(&project, &["status", "far:1"], 0);
    assert!(socket.exists());
    far.expect(&project, &["fetch", "far:1"], 0);
    let ended = Command::new(far.ssh()).args(["-O", "exit", "far"]).stdin(Stdio::null()).output().unwrap();
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    std::fs::write(go, "").unwrap();
    // The program reported no steps, so the trial failed.
    assert_eq!(watching.0.wait().unwrap().code(), Some(5));
    far.wait_for_jobs();
}

#[test]
fn what_a_verb_there_proposes_names_the_machine() {
    let (far, project) = (FarSide::without_network(), TestProject::new());
    far.connect(&project);
    script(&project, "show.sh", "exec sleep 1000");
    project.conf("show", &format!("{BARE}\n[variant.a]\nworker.command = [\"./show.sh\"]\n"));
    far.expect(&project, &["submit", "conf/show.toml", "--on", "far"], 0);
    wait_until("the job to run", PATIENCE, || {
        let (stdout, _) = far.expect(&project, &["status", "far:1", "--json"], 0);
        (serde_json::from_str::<Json>(&stdout).unwrap()[0]["state"] == "running").then_some(())
    });
    let (_, stderr) = far.expect(&project, &["cancel", "far:1_0"], 2);
    assert!(stderr.contains("hint: expctl cancel far:1\n"), "{stderr}");
    let (_, stderr) = far.expect(&project, &["cancel", "far:1"], 0);
    assert!(stderr.contains("`expctl retry far:1` runs the others again"), "{stderr}");
    let (_, stderr) = far.expect(&project, &["watch", "far:1"], 6);
    let proposed = "`expctl logs far:1` shows what the ranks printed, `expctl retry far:1` runs them again";
    assert!(stderr.contains(proposed), "{stderr}");
}

#[test]
fn waiting_goes_on_after_a_lost_connection() {
    let (far, project) = (FarSide::without_network(), TestProject::new());
    let go = far.home().join("go");
    far.connect(&project);
    project.conf("show", &waits_for(&project, &go));
    let working = std::fs::read_to_string(far.ssh()).unwrap();
    let mut command = far.expctl(&project, &["submit", "conf/show.toml", "--on", "far", "--wait"]);
    let log = project.path().join("results-log");
    let mut waiting =
        Guard(command.stdout(Stdio::null()).stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap());
    let said = |words: &str| {
        wait_until(words, PATIENCE, || std::fs::read_to_string(&log).unwrap().contains(words).then_some(()));
    };
    said("job far:1: 1 running");
    // No new connection works, and the one there is ends.
    far.ssh_program("echo 'ssh: connect to host far port 22: Network is unreachable' >&2; exit 255");
    for pid in processes_there(&far, &|line| line.contains("remote\0serve")) {
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }
    said("job far:1 goes on, and I try again until Ctrl-C");
    far.replace_ssh(&working);
    said("far answers again");
    std::fs::write(go, "").unwrap();
    // The program reported no steps, so the trial failed.
    assert_eq!(waiting.0.wait().unwrap().code(), Some(5), "{}", std::fs::read_to_string(&log).unwrap());
    assert!(project.path().join("results/show_far_1.md").exists());
}

#[test]
fn a_job_is_known_before_old_code_is_looked_for_and_ctrl_c_leaves_it() {
    let (far, project) = (FarSide::without_network(), TestProject::new());
    far.connect(&project);
    project.conf("small", &conf());
    // Old code, and a job that would take any time to say what it runs.
    far.expect(&project, &["check", "conf/small.toml", "--on", "far"], 0);
    let long_ago = SystemTime::now() - Duration::from_secs(15 * 24 * 3600);
    for tree in std::fs::read_dir(far.project().join("trees")).unwrap() {
        std::fs::File::open(tree.unwrap().path()).unwrap().set_modified(long_ago).unwrap();
    }
    let endless = far.project().join("results/runs/.endless");
    std::fs::create_dir(&endless).unwrap();
    assert!(Command::new("mkfifo").arg(endless.join("snapshot.json")).status().unwrap().success());
    std::fs::write(project.path().join("new.py"), "a = 1\n").unwrap();
    for (job, wait, code) in [("far:1", &[][..], 0), ("far:2", &["--wait"][..], 6)] {
        let submit = [&["submit", "conf/small.toml", "--on", "far"][..], wait].concat();
        let mut command = far.expctl(&project, &submit);
        let mut submitting = Guard(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        let mut id = String::new();
        BufReader::new(submitting.0.stdout.take().unwrap()).read_line(&mut id).unwrap();
        assert_eq!(id.trim_end(), job);
        // The other side is at it by now.
        assert!(submitting.0.try_wait().unwrap().is_none());
        submitting.signal(Signal::SIGINT);
        let stderr = std::io::read_to_string(submitting.0.stderr.take().unwrap()).unwrap();
        assert_eq!(submitting.0.wait().unwrap().code(), Some(code), "{stderr}");
        assert!(stderr.contains("warning: old code that no job has was not removed: cannot look through "), "{stderr}");
        assert_eq!(stderr.contains("job far:2 goes on without me"), code == 6, "{stderr}");
    }
    std::fs::remove_dir_all(endless).unwrap();
    assert_eq!(far.jobs(), [1, 2]);
    far.wait_for_jobs();
}

/// The processes there whose words, each with a NUL behind it, are meant.
fn processes_there(far: &FarSide, is_meant: &dyn Fn(&str) -> bool) -> Vec<i32> {
    let home = format!("HOME={}", far.home().display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let read = |name: &str| text(&std::fs::read(entry.path().join(name)).unwrap_or_default());
        if is_meant(&read("cmdline")) && read("environ").split('\0').any(|variable| variable == home) {
            found.push(pid);
        }
    }
    found
}

#[test]
fn a_slurm_cluster_behind_ssh_runs_jobs_once() {
    let mut far = behind_sshd!();
    let Some(cluster) = Cluster::start(&[]) else { return };
    for (name, value) in cluster.env() {
        far.setup(format!("export {}='{}'", name.display(), value.display()));
    }
    far.setup("export EXPCTL_BACKEND=slurm");
    let project = TestProject::new();
    far.connect(&project);
    project.conf("slurm", SMALL);
    let submit = ["submit", "conf/slurm.toml", "--on", "far", "--only", "ids", "--wait"];
    let (stdout, stderr) = far.expect(&project, &submit, 0);
    let job: u64 = stdout.trim().strip_prefix("far:").unwrap().parse().unwrap();
    assert!(job >= 100_000, "{job} may be the number of a local job: {stderr}");
    assert!(project.path().join(format!("results/slurm_far_{job}.md")).exists());
    // Cut off while Slurm is asked: one job each time, and none on hold.
    project.conf("small", &conf());
    Cut::new(&far, &project).everywhere(4);
    for point in ["staged", "queued", "entered", "released"] {
        die_at(&far, &project, point);
    }
    let held = cluster.ask("squeue", &["--noheader", "--states=PENDING", "--format=%i %r"]);
    assert!(!held.contains("JobHeldUser"), "{held}");
}
