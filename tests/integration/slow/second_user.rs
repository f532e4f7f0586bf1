//! `--on NAME` where another user logs in, who has the wheels and nothing else: no clone, no build, and no way to the files of this side.
//!
//! Both users are of one machine and share its network, as the daemons of the cluster do. A far side in a network of its own is in `ssh.rs`: `ssh`
//! gets there by a pipe, so no interface is made in the network of the machine that runs the tests.

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use expctl_ledger::{JobDir, Provenance};
use serde_json::Value;
use test_support::{Requirement, skip};

use super::wheels::{cache, wheels};
use crate::common::cluster::{self, Cluster};
use crate::common::far_side::FarSide;
use crate::common::programs::{BARE, script};
use crate::common::second_user::SecondUser;
use crate::common::{Guard, TestProject, copy, text};

/// The Python of the system: one that every user may run.
const PYTHON: &str = "/usr/bin/python3";
/// Which trials of the starter project run: one.
const ONE: [&str; 4] = ["--only", "ids", "--set", "measure.repeats=1"];

/// What a program prints; it must succeed.
fn stdout_of(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout).trim().to_owned()
}

/// A machine of a second user with both wheels in `~/venv`, and the libtorch that they are built for in the place of PyTorch's wheel, of which
/// it is a part. `None`, and said, where that cannot be.
fn with_wheels() -> Option<FarSide> {
    let lacks = |what: &str| {
        skip(Requirement::Other, what);
        None
    };
    let Some(wheels) = wheels() else {
        return lacks("there are no wheels: make test links them, make wheels makes them");
    };
    let Some(libtorch) = std::env::var_os("LIBTORCH") else { return lacks("LIBTORCH names no libtorch") };
    let tools = cache().join("wheel-tools/bin/python");
    if !tools.exists() {
        return lacks("the tools of make wheels are not there");
    }
    let is_new = ["-c", "import sys, venv; sys.exit(sys.version_info < (3, 10))"];
    if !Command::new(PYTHON).args(is_new).output().is_ok_and(|output| output.status.success()) {
        return lacks("/usr/bin/python3 is not there, older than 3.10 or without venv");
    }
    let far = FarSide::of_second_user()?;
    // What is installed, and what installs it, for as long as that takes.
    let lent = tempfile::tempdir().unwrap();
    std::fs::set_permissions(lent.path(), Permissions::from_mode(0o755)).unwrap();
    let pip = stdout_of(Command::new(tools).args(["-c", "import pip; print(pip.__path__[0])"]));
    copy(Path::new(&pip), &lent.path().join("pip"));
    copy(&wheels, &lent.path().join("wheels"));
    let lines = format!(
        "set -e\n{PYTHON} -m venv --without-pip ~/venv\n\
         ~/venv/bin/python '{lent}/pip' install --quiet --no-index --no-deps --no-compile --no-cache-dir '{lent}'/wheels/*.whl >&2\n\
         packages=$(~/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))')\n\
         mkdir \"$packages/torch\"\necho \"$packages\"",
        lent = lent.path().display()
    );
    let installed = far.shell(&lines);
    assert!(installed.status.success(), "{}{}", text(&installed.stdout), text(&installed.stderr));
    let torch = Path::new(text(&installed.stdout).trim()).join("torch");
    // There alone: in the folder as it is here, nothing is below `torch`.
    stdout_of(far.user().command("mount").args(["-o", "bind,ro"]).args([Path::new(&libtorch), torch.as_path()]));
    Some(far)
}

/// A starter project that knows the machine, and the expctl of its wheel there.
fn starter(far: &FarSide) -> TestProject {
    let project = TestProject::new();
    // The studies of the clone are no part of it.
    std::fs::remove_file(project.path().join("experiments")).unwrap();
    // As a home folder is: temporary folders are as open as the shell's umask leaves them.
    for folder in [project.path(), project.cache()] {
        std::fs::set_permissions(folder, Permissions::from_mode(0o700)).unwrap();
    }
    far.connect_as(&project, "~/venv/bin/expctl");
    project.ok(&["init", "first", "--graph"]);
    project
}

/// Files and folders below a folder that are a user's, or those that are not.
fn paths_of(folder: &Path, uid: u32, are_theirs: bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    // A launcher that ends may still remove what it made.
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(about) = entry.metadata() else { continue };
        if (about.uid() == uid) == are_theirs {
            found.push(entry.path());
        }
        if about.is_dir() {
            found.extend(paths_of(&entry.path(), uid, are_theirs));
        }
    }
    found
}

/// Nothing there is anybody else's, and nothing here is theirs, or in their reach.
fn each_has_their_own(far: &FarSide, project: &TestProject) {
    let uid = far.user().uid();
    assert_eq!(paths_of(&far.home(), uid, false), Vec::<PathBuf>::new());
    assert!(!paths_of(&far.project(), uid, true).is_empty());
    for folder in [project.path(), project.cache()] {
        assert_eq!(paths_of(folder, uid, true), Vec::<PathBuf>::new());
    }
    let config = project.path().join("conf/first.toml");
    let reached = far.shell(&format!("cat '{}'", config.display()));
    assert!(!reached.status.success() && text(&reached.stderr).contains("Permission denied"), "{reached:?}");
}

/// The record here of a job there: who submitted it, with which programs.
fn is_of_the_wheels(far: &FarSide, project: &TestProject, job: &str) {
    let folder = JobDir::new(project.path().join("results/hosts/far/runs").join(job));
    let origin = Provenance::read(&folder).unwrap().unwrap();
    let environment = far.home().canonicalize().unwrap().join("venv");
    assert_eq!(origin.user, SecondUser::NAME);
    assert_eq!(origin.expctl.path, environment.join("bin/expctl"));
    assert_eq!(origin.worker.unwrap().path, environment.join("bin/expctl-worker"));
    let libtorch = origin.libtorch.unwrap().folder;
    assert!(libtorch.starts_with(environment) && libtorch.ends_with("torch/lib"), "{}", libtorch.display());
}

/// The only trial of a job there, as `status` shows it.
fn trial(far: &FarSide, project: &TestProject, job: &str) -> Value {
    let (stdout, _) = far.expect(project, &["status", job, "--json"], 0);
    let trials: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(trials.as_array().unwrap().len(), 1, "{trials}");
    trials[0].clone()
}

#[test]
fn another_user_with_the_wheels_alone_runs_jobs() {
    let Some(far) = with_wheels() else { return };
    let project = starter(&far);
    let submit = [&["submit", "conf/first.toml", "--on", "far"], &ONE[..]].concat();

    // Ranks of the worker's wheel.
    let (stdout, stderr) = far.expect(&project, &[&submit[..], &["--set", "measure.steps=20", "--wait"]].concat(), 0);
    assert_eq!(stdout, "far:1\n");
    assert!(stderr.contains("sent to far: ") && stderr.contains("job far:1: 1 completed"), "{stderr}");
    assert_eq!(trial(&far, &project, "far:1")["state"], "completed");
    is_of_the_wheels(&far, &project, "1");
    each_has_their_own(&far, &project);

    assert_eq!(watched_and_cancelled(&far, &project), "far:2");
}

/// Submit a job that runs until it is stopped, which whoever watches it sees; its name.
fn watched_and_cancelled(far: &FarSide, project: &TestProject) -> String {
    let endless = ["--set", "measure.steps=10000000", "--set", "checkpoint.on_signal=false"];
    let submit = [&["submit", "conf/first.toml", "--on", "far"][..], &ONE, &endless].concat();
    let job = far.expect(project, &submit, 0).0.trim().to_owned();
    let number = job.strip_prefix("far:").unwrap();
    let mut watch = far.expctl(project, &["watch", &job]);
    let mut watching = Guard(watch.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut lines = BufReader::new(watching.0.stdout.take().unwrap());
    let mut seen = String::new();
    while !seen.contains(&format!("job {number}: 1 running")) {
        assert!(lines.read_line(&mut seen).unwrap() > 0, "{seen}");
    }
    let (_, stderr) = far.expect(project, &["cancel", &job], 0);
    assert!(stderr.contains(&format!("job {number} is cancelled")), "{stderr}");
    assert_eq!(watching.0.wait().unwrap().code(), Some(6));
    assert_eq!(trial(far, project, &job)["state"], "interrupted");
    job
}

#[test]
fn a_job_of_another_user_is_repaired_there_and_read_here() {
    let Some(far) = with_wheels() else { return };
    let project = starter(&far);
    assert_eq!(repaired_and_read(&far, &project), "far:1");
    each_has_their_own(&far, &project);
}

/// Submit a job whose program lacks something there, retry it once that is there, and write its note from a folder that has nothing to do with the
/// project; its name.
fn repaired_and_read(far: &FarSide, project: &TestProject) -> String {
    // A program that reports through the package of the wheel, once what it lacks there is there.
    script(project, "train.sh", "cat \"$HOME/needed\" && exec \"$HOME/venv/bin/python\" train.py");
    let train = "import expctl, time\nrun = expctl.Run(program='repaired')\nfor step in run.steps():\n    time.sleep(0.002)\n    step.samples = 4\n";
    std::fs::write(project.path().join("train.py"), train).unwrap();
    let bare = BARE.replace("006-kuzmin-tmi", "first").replace("ranks = 2", "ranks = 1");
    project.conf("program", &format!("{bare}\n[variant.a]\nworker.command = [\"./train.sh\"]\n"));
    let submit = ["submit", "conf/program.toml", "--on", "far", "--wait"];
    let job = far.expect(project, &submit, 5).0.trim().to_owned();
    let failed = trial(far, project, &job);
    assert_eq!((&failed["state"], &failed["attempt"]), (&"failed".into(), &1.into()), "{failed}");
    let (stdout, _) = far.expect(project, &["logs", &job, "--rank", "0"], 0);
    assert!(stdout.contains("needed") && stdout.contains("No such file"), "{stdout}");

    let repaired = far.shell("echo repaired > ~/needed");
    assert!(repaired.status.success(), "{repaired:?}");
    far.expect(project, &["retry", &job, "--all", "--wait"], 0);
    let completed = trial(far, project, &job);
    assert_eq!((&completed["state"], &completed["attempt"]), (&"completed".into(), &2.into()), "{completed}");
    let (stdout, stderr) = far.expect(project, &["fetch", &job], 0);
    let here = project.path().join("results/hosts/far/runs");
    assert_eq!(Path::new(stdout.trim()), here);
    assert!(stderr.contains("1 job of far: ") && !stderr.contains("all is here"), "{stderr}");

    let elsewhere = tempfile::tempdir().unwrap();
    let root = project.path().to_str().unwrap();
    let mut report = far.expctl(project, &["--root", root, "report", &job]);
    let note = PathBuf::from(stdout_of(report.current_dir(elsewhere.path())));
    assert_eq!(note, project.path().join(format!("results/program_{}.md", job.replace(':', "_"))));
    let rows = std::fs::read_to_string(&note).unwrap();
    assert!(rows.lines().any(|line| line.starts_with("| a ")), "{rows}");
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    job
}

#[test]
fn another_user_works_with_slurm_from_here() {
    // The users of its daemons are known there as well.
    if !cluster::installed(&[]) {
        return;
    }
    let Some(mut far) = with_wheels() else { return };
    let Some(cluster) = Cluster::start_for(far.user(), &[]) else { return };
    far.setup(format!("export SLURM_CONF='{}'", cluster.conf().display()));
    far.setup("export EXPCTL_BACKEND=slurm");
    let project = starter(&far);
    let submit =
        [&["submit", "conf/first.toml", "--on", "far", "--set", "measure.steps=20", "--wait"], &ONE[..]].concat();
    let (stdout, stderr) = far.expect(&project, &submit, 0);
    let job = stdout.trim().strip_prefix("far:").unwrap();
    let number: u64 = job.parse().unwrap();
    assert!(number >= 100_000, "{number} may be the number of a local job: {stderr}");
    assert!(project.path().join(format!("results/first_far_{job}.md")).exists());
    // Whose job it is, as Slurm says.
    let task = cluster.task(number, 0);
    assert!(task.contains(&format!("({})", far.user().uid())), "{task}");
    is_of_the_wheels(&far, &project, job);
    watched_and_cancelled(&far, &project);
    repaired_and_read(&far, &project);
    each_has_their_own(&far, &project);
}
