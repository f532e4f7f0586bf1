//! Snapshots of code with programs that run from them: on this machine, on Slurm, and where the ledger cannot be written.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use expctl_ledger::{CodeSnapshot, TrialState};
use test_support::{Requirement, skip};

use super::faults::bench::{Disk, Filled};
use crate::common::cluster::Cluster;
use crate::common::local::set;
use crate::common::programs::{BARE, install};
use crate::common::{Guard, PATIENCE, SMALL, TestProject, text, wait_until};

/// Says what it finds of the code, waits to be let go on, and says it again.
const PROGRAM: &str = r#"
from train import *
import helper
project = os.environ["EXPCTL_ROOT"]
run = expctl.Run(program="probe")

def tell(what):
    module = subprocess.check_output([sys.executable, "-m", "pkg.tool"], text=True).strip()
    print(what, helper.VALUE, open("settings.txt").read(), module, open("data/cells.txt").read(), flush=True)

tell("before")
open(os.path.join(project, "began-" + sys.argv[1]), "w").close()
while not os.path.exists(os.path.join(project, "go")):
    time.sleep(0.01)
import later
tell("after " + later.VALUE)
open("written.txt", "w").write(sys.argv[1])
open("results/written.txt", "w").write(sys.argv[1])
train(run)
"#;

/// Two trials of a program, one after the other.
fn conf(more: &str) -> String {
    let one = BARE.replace("ranks = 2", "ranks = 1");
    let variant = |name: &str| format!("[variant.{name}]\nworker.command = [\"./python\", \"probe.py\", \"{name}\"]\n");
    format!("{one}\n{more}{}{}", variant("first"), variant("second"))
}

/// Files whose content is `value`.
fn version(project: &TestProject, value: &str) {
    let write = |name: &str, text: String| {
        std::fs::create_dir_all(project.path().join(name).parent().unwrap()).unwrap();
        std::fs::write(project.path().join(name), text).unwrap();
    };
    for module in ["helper.py", "later.py"] {
        write(module, format!("VALUE = '{value}'\n"));
    }
    write("settings.txt", value.to_owned());
    write("pkg/__init__.py", String::new());
    write("pkg/tool.py", format!("print('{value}')\n"));
    write("data/cells.txt", "cells".to_owned());
}

fn project() -> TestProject {
    let project = TestProject::new();
    install(&project);
    std::fs::write(project.path().join("probe.py"), PROGRAM).unwrap();
    version(&project, "old");
    project
}

/// Change all of the code once the first trial runs, and let it go on.
fn change_and_go(project: &TestProject) {
    wait_until("the first trial", PATIENCE, || project.path().join("began-first").exists().then_some(()));
    version(project, "new");
    std::fs::write(project.path().join("probe.py"), "raise SystemExit('the code of later')\n").unwrap();
    std::fs::write(project.path().join("go"), "").unwrap();
}

fn log(project: &TestProject, job: &str, variant: &str) -> String {
    std::fs::read_to_string(project.attempt(job, variant).unwrap().log_path(0)).unwrap()
}

/// Both trials ran the code of before.
fn ran_the_old_code(project: &TestProject, job: &str) {
    for variant in ["first", "second"] {
        assert_eq!(project.outcome(job, variant).state, TrialState::Completed, "{:?}", project.outcome(job, variant));
        let expected = "before old old old cells\nafter old old old old cells\n";
        assert_eq!(log(project, job, variant), expected, "{variant}");
    }
}

#[test]
fn a_job_runs_the_code_that_was_submitted_however_the_project_changes() {
    let project = project();
    let mut running = project.started(&conf(""), &[]);
    change_and_go(&project);
    assert_eq!(running.0.wait().unwrap().code(), Some(0));
    ran_the_old_code(&project, "1");
    // Relative files are the job's own, unless their folder is the project's.
    let written = |path: &Path| std::fs::read_to_string(path.join("written.txt")).ok();
    assert_eq!(written(&project.job("1").path().join("code")).as_deref(), Some("second"));
    assert_eq!((written(&project.path().join("results")).as_deref(), written(project.path())), (Some("second"), None));

    // Again as it was, although the folder was removed and the project has other code.
    std::fs::remove_dir_all(project.job("1").path().join("code")).unwrap();
    std::fs::remove_file(project.path().join("python")).unwrap();
    let again = project.ok(&["rerun", "1", "--wait"]).trim().to_owned();
    ran_the_old_code(&project, &again);
    assert_eq!(project.job(&again).record().unwrap().reruns, Some(1));
    let changed = project.ok(&["rerun", "1", "--wait", "--set", "measure.steps=3"]).trim().to_owned();
    ran_the_old_code(&project, &changed);
    assert_eq!(project.attempt(&changed, "first").unwrap().steps(0).unwrap().len(), 5);
    let shown = project.ok(&["diff", "1", &changed]);
    assert!(
        shown.starts_with("Code: the same\n") && shown.contains("| measure.steps | 6 | 3 | first, second |"),
        "{shown}"
    );

    // Live, the code is what it is now.
    install(&project);
    let output = project.submission(&conf(""), &["--live"]).output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    let live = text(&output.stdout).trim().to_owned();
    assert!(log(&project, &live, "first").contains("the code of later"));
    assert_eq!(CodeSnapshot::read(&project.job(&live)).unwrap(), None);
    // A retry of such a job runs live again: the reason may be gone.
    std::fs::write(project.path().join("probe.py"), PROGRAM).unwrap();
    project.ok(&["retry", &live, "--all", "--wait"]);
    assert_eq!(log(&project, &live, "second"), "before new new new cells\nafter new new new new cells\n");
}

#[test]
fn a_retry_runs_the_code_of_its_job() {
    let project = project();
    std::fs::write(project.path().join("go"), "").unwrap();
    // Fails where a file of the project's is missing, which no snapshot has.
    let guarded = PROGRAM
        .replace("tell(\"before\")", "assert os.path.exists(os.path.join(project, \"allowed\"))\ntell(\"before\")");
    std::fs::write(project.path().join("probe.py"), guarded).unwrap();
    let output = project.submission(&conf(""), &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    version(&project, "new");
    std::fs::write(project.path().join("probe.py"), "raise SystemExit('the code of later')\n").unwrap();
    std::fs::write(project.path().join("allowed"), "").unwrap();
    std::fs::remove_dir_all(project.job("1").path().join("code")).unwrap();
    project.ok(&["retry", "1", "--all", "--wait"]);
    ran_the_old_code(&project, "1");
}

#[test]
fn modules_that_come_from_the_project_in_spite_of_a_copy_are_named() {
    let project = project();
    std::fs::create_dir(project.path().join("src")).unwrap();
    std::fs::write(project.path().join("src/installed.py"), "").unwrap();
    // As `pip install -e` would: an absolute path that no variable names.
    let program = "from train import *\nsys.path.append(os.environ['EXPCTL_ROOT'] + '/src')\nimport installed\nimport helper\n\
                   assert os.path.samefile('.', os.environ.get('EXPCTL_CODE', os.environ['EXPCTL_ROOT']))\ntrain(expctl.Run(program='x'))\n";
    std::fs::write(project.path().join("probe.py"), program).unwrap();
    let job = project.completed(&conf(""), &["--only", "first"]);
    let said = log(&project, &job, "first");
    assert!(said.contains("not from the job's copy of the code: installed; folders in PYTHONPATH"), "{said}");
    let live = project.completed(&conf(""), &["--only", "first", "--live"]);
    assert!(!log(&project, &live, "first").contains("the job's copy"));
}

#[test]
fn tasks_of_slurm_run_from_the_snapshot() {
    let Some(cluster) = Cluster::start(&["--nodes", "2"]) else { return };
    let project = project();
    // One task at a time: the second starts after the change.
    let conf = project.conf("tasks", &conf("[slurm]\nthrottle = 1\n"));
    let mut submit = project.expctl(&["submit", conf.to_str().unwrap(), "--backend", "slurm", "--wait"]);
    let submit = submit.envs(cluster.env()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let running = submit.spawn().unwrap();
    change_and_go(&project);
    let output = running.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let job = text(&output.stdout).trim().to_owned();
    ran_the_old_code(&project, &job);
    let again = ["rerun", &job, "--wait"];
    let output = project.expctl(&again).envs(cluster.env()).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    ran_the_old_code(&project, text(&output.stdout).trim());
}

/// 300 samples: 240 train in 30 batches of 8.
fn training() -> String {
    let data = "samples = 300\nscale = 0.02\n\n[select]\nsplit = \"train\"";
    SMALL.replace("samples = 200\nscale = 0.05", data).replace("steps = 6\n", "")
}

fn weights(project: &TestProject, job: &str, variant: &str) -> PathBuf {
    project.attempt(job, variant).unwrap().path().parent().unwrap().join("weights/last.safetensors")
}

#[test]
fn a_training_run_that_is_run_again_leaves_the_same_parameters_bit_for_bit() {
    let project = TestProject::new();
    let settings = ["train.epochs=2", "launch.ranks=1"];
    let job = project.completed(&training(), &[&["--only", "ids"], &set(&settings)[..]].concat());
    // Another config and other data beside it by now.
    project.conf("small", &training().replace("learning_rate = 0.01", "learning_rate = 0.5"));
    let again = project.ok(&["rerun", &job, "--wait"]).trim().to_owned();
    let [first, second] = [&job, &again].map(|job| std::fs::read(weights(&project, job, "ids")).unwrap());
    assert!(!first.is_empty() && first == second);
    // Another rate leaves others: the comparison can fail.
    let other = project.ok(&["rerun", &job, "--wait", "--set", "train.learning_rate=0.02"]).trim().to_owned();
    assert_ne!(std::fs::read(weights(&project, &other, "ids")).unwrap(), first);
}

#[test]
fn a_ledger_that_cannot_be_written_is_one_error_and_no_job() {
    let project = project();
    let runs = project.path().join("results/runs");
    let mounts = Command::new("unshare").args(["--mount", "true"]).status().is_ok_and(|status| status.success());
    if !mounts {
        return skip(Requirement::Other, "needs root, which may mount a small disk");
    }
    let _disk = Disk::mount(&runs, 2);
    let refused = |what: &str| {
        let output = project.submission(&conf(""), &[]).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(6), "{what}: {said}");
        assert_eq!(said.lines().filter(|line| line.starts_with("error: ")).count(), 1, "{what}: {said}");
        assert!(said.contains(what), "{said}");
        assert_eq!(text(&output.stdout), "", "{what}");
        let names = std::fs::read_dir(&runs).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let jobs: Vec<String> =
            names.filter(|name| name.starts_with(|c: char| c.is_ascii_digit() || c == '.')).collect();
        assert_eq!(jobs, [""; 0], "{what}");
    };
    {
        let _filled = Filled::new(&runs);
        refused("No space left on device");
    }
    // The contents fit, the unpacked code does not.
    std::fs::write(project.path().join("half.bin"), vec![7u8; 1200 << 10]).unwrap();
    refused("No space left on device");
    std::fs::remove_file(project.path().join("half.bin")).unwrap();
    let remount = |how: &str| {
        let status = Command::new("mount").args(["-o", how]).arg(&runs).status().unwrap();
        assert!(status.success());
    };
    remount("remount,ro");
    refused("Read-only file system");
    remount("remount,rw");
    // With room again it runs.
    std::fs::write(project.path().join("go"), "").unwrap();
    let mut running: Guard = project.started(&conf(""), &[]);
    assert_eq!(running.0.wait().unwrap().code(), Some(0));
    ran_the_old_code(&project, "1");
}
