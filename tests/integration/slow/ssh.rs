//! `--on NAME` over a real sshd: jobs on this machine and on a Slurm cluster behind it, lost connections, a host that is another one.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal;
use serde_json::Value as Json;

use crate::common::cluster::Cluster;
use crate::common::far_side::FarSide;
use crate::common::programs::{BARE, script};
use crate::common::{Guard, PATIENCE, SMALL, TestProject, text, wait_until};

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
    project.conf("small", SMALL);
    let (stdout, stderr) =
        far.expect(&project, &["submit", "conf/small.toml", "--on", "far", "--only", "ids", "--wait"], 0);
    assert_eq!(stdout, "far:1\n");
    assert!(stderr.contains("sent to far: ") && stderr.contains("job far:1: 1 completed"), "{stderr}");
    let note = std::fs::read_to_string(project.path().join("results/small_far_1.md")).unwrap();
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

/// Bytes that went each way in a submission over `ssh`, or the result of one that was cut off.
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

    /// Submit; the exit code, stdout, stderr.
    fn submit(&self, variables: &[(&str, String)]) -> (Option<i32>, String, String) {
        let mut command = self.far.expctl(self.project, &["submit", "conf/small.toml", "--on", "far"]);
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

    /// How many bytes go to and from the other side in a submission of new code.
    fn counts(&self) -> (u64, u64) {
        let file = self.project.path().join("results/counts.json");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let (code, _, stderr) = self.submit(&[("CUT_COUNTS", file.display().to_string())]);
        assert_eq!(code, Some(0), "{stderr}");
        let counts: Json = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        (counts["in"].as_u64().unwrap(), counts["out"].as_u64().unwrap())
    }

    /// Cut the connection after so many bytes, and submit again: there is exactly one job more.
    fn at(&self, way: &str, bytes: u64) {
        let before = self.far.jobs();
        let (code, stdout, stderr) = self.submit(&[(way, bytes.to_string())]);
        let id = if code == Some(0) {
            // It was cut off after the answer.
            stdout
        } else {
            assert_eq!(code, Some(4), "{way} {bytes}: {stderr}");
            assert!(
                stderr.contains("error: cannot reach far: ") && stdout.is_empty(),
                "{way} {bytes}: {stdout}{stderr}"
            );
            let (code, stdout, stderr) = self.submit(&[]);
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
        let (to, from) = self.counts();
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
    let submit = ["submit", "conf/small.toml", "--on", "far"];
    let output = far.expctl(project, &submit).env("EXPCTL_DIE_AT", point).output().unwrap();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(6), "{point}: {stdout}{stderr}");
    assert!(stdout.is_empty() && stderr.contains("it was killed (signal: 9"), "{point}: {stdout}{stderr}");
    assert!(stderr.contains("hint: the same command again goes on"), "{point}: {stderr}");
    let (stdout, stderr) = far.expect(project, &submit, 0);
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
    let (stdout, stderr) = far.expect(&project, &["submit", "conf/small.toml", "--on", "far"], 4);
    assert!(stdout.is_empty() && stderr.contains("REMOTE HOST IDENTIFICATION HAS CHANGED"), "{stderr}");
    assert!(stderr.contains("error: cannot reach far: Host key verification failed"), "{stderr}");
    assert!(!far.project().exists());
}

#[test]
fn a_shared_connection_is_used_and_never_waited_for() {
    let far = behind_sshd!();
    let project = TestProject::new();
    far.connect(&project);
    let go = far.home().join("go");
    script(&project, "show.sh", &format!("while [ ! -e '{}' ]; do sleep 0.05; done", go.display()));
    project.conf("show", &format!("{BARE}\n[variant.a]\nworker.command = [\"./show.sh\"]\n"));
    // One that had to stay until the last of the others has ended would hold up its command, or be cut off with them.
    let socket = far.share_connections("no");
    far.expect(&project, &["submit", "conf/show.toml", "--on", "far"], 0);
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
    script(&project, "show.sh", &format!("while [ ! -e '{}' ]; do sleep 0.05; done", go.display()));
    project.conf("show", &format!("{BARE}\n[variant.a]\nworker.command = [\"./show.sh\"]\n"));
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
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = text(&std::fs::read(entry.path().join("cmdline")).unwrap_or_default());
        if line.contains("remote\0serve") && line_is_of(&entry.path(), &far.home()) {
            let pid = entry.file_name().to_str().unwrap().parse().unwrap();
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
        }
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

/// Whether a process runs in a home folder.
fn line_is_of(process: &Path, home: &Path) -> bool {
    let environment = text(&std::fs::read(process.join("environ")).unwrap_or_default());
    environment.split('\0').any(|variable| variable == format!("HOME={}", home.display()))
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
