//! Small programs that run as ranks.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::TestProject;

/// Two ranks of eight steps, without data.
pub const BARE: &str = r#"
[experiment]
study = "006-kuzmin-tmi"
[loader]
batch_size = 4
workers = 0
[measure]
warmup = 2
steps = 6
repeats = 1
[launch]
ranks = 2
"#;

/// A good one, and what the bad ones have in common.
const TRAIN: &str = r#"
import os, signal, subprocess, sys, time
import expctl

def train(run, at=-1, act=None):
    for step in run.steps():
        if step.number == at and act:
            act()
        with step.stage("read"):
            time.sleep(0.002)
            with step.stage("decode"):
                time.sleep(0.001)
        with step.stage("forward"):
            time.sleep(0.001)
        step.samples = run.settings["loader"]["batch_size"]
        step.bytes_read += 100
        step.loss = 1.0 / (1 + step.number)
"#;

const GOOD: &str = r#"
from train import *
run = expctl.Run(program="good", versions={"toy": "1.2.3"}, settings={"amp": True}, stored_bytes=12345, samples_total=77)
assert os.environ["EXPCTL_DATA_DIR"] == run.data_dir and os.path.isdir(run.data_dir)
assert (run.rank, run.world_size, run.local_rank) == (int(os.environ["RANK"]), 2, int(os.environ["LOCAL_RANK"]))
assert os.environ["MASTER_ADDR"] == "127.0.0.1" and int(os.environ["MASTER_PORT"]) > 0
assert "expctl-socket" not in os.listdir(".")
print("here is rank", run.rank, sys.argv[1:])
train(run)
"#;

/// Fails in the way that its argument says.
const BAD: &str = r#"
from train import *
from train import train as steps
how = sys.argv[1]
if how == "silent":
    sys.exit(0)
if how == "mute":
    time.sleep(600)
run = expctl.Run(program="bad")
mine = run.rank == 1

def train(run, at=-1, act=None):
    """Rank 1 acts once rank 0 has come as far: both have then measured the steps before."""
    reached = how + ".reached"
    def rank_0():
        open(reached, "w").close()
    def rank_1():
        while not os.path.exists(reached):
            time.sleep(0.001)
        act()
    steps(run, at, (rank_1 if mine else rank_0) if at >= 0 else None)

raw = lambda text: run._connection._socket.sendall(text)
if how == "rubbish":
    train(run, 3, lambda: (raw(b'{"step": {"step": 3, "\x1b[2J": 1}}\n'), time.sleep(600)))
elif how == "stage":
    train(run, 3, lambda: raw(b'{"step": {"step": 3, "start_ns": 0, "wall_ns": 1, "samples": 1, "busy": {"reading": 1}}}\n'))
elif how == "order":
    train(run, 3, lambda: raw(b'{"step": {"step": 5, "start_ns": 99999999999, "wall_ns": 1, "samples": 1}}\n'))
elif how == "long":
    train(run, 3, lambda: raw(b'{"step": "' + b"x" * 100000 + b'"}\n'))
elif how == "killed":
    train(run, 3, lambda: os.kill(os.getpid(), signal.SIGKILL))
elif how == "exit":
    train(run, 3, lambda: os._exit(7))
elif how == "early":
    train(run, 3, lambda: sys.exit(0))
elif how == "raises":
    def fail():
        raise ValueError("no such thing as\na free lunch")
    train(run, 3, fail)
elif how == "hangs":
    train(run, 3, lambda: time.sleep(600))
elif how == "late":
    train(run)
    sys.exit(4 if mine else 0)
elif how == "forks":
    if mine:
        # Put into the background as a daemon does: a session of its own, and its parent gone.
        subprocess.run(["sh", "-c", 'setsid sleep 4711.25 & echo $! > "$0"', "daemon.pid"])
    train(run)
"#;

/// Starts its two ranks itself.
const SPAWNS: &str = r#"
from train import *
import multiprocessing

def rank(rank, dies):
    run = expctl.Run(program="spawns", rank=rank, world_size=int(os.environ["WORLD_SIZE"]))
    train(run, 3, rank == 1 and dies and (lambda: os.kill(os.getpid(), signal.SIGKILL)))
    run.close()

if __name__ == "__main__":
    assert "RANK" not in os.environ and os.environ["PET_NPROC_PER_NODE"] == "2"
    ranks = [multiprocessing.get_context("spawn").Process(target=rank, args=(r, len(sys.argv) > 1)) for r in range(2)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
"#;

/// Interpreter of the project's Python environment, which its script sets up where it is missing.
pub fn interpreter() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/python.sh");
    let setup = Command::new("bash").arg(script).stderr(Stdio::inherit()).output().unwrap();
    assert!(setup.status.success(), "scripts/python.sh failed");
    PathBuf::from(String::from_utf8(setup.stdout).unwrap().trim())
}

/// Where the helper is.
pub fn helper() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("python/src")
}

/// Put the programs into a project, and `./python`, which finds the helper.
pub fn install(project: &TestProject) {
    for (name, text) in [("train.py", TRAIN), ("good.py", GOOD), ("bad.py", BAD), ("spawns.py", SPAWNS)] {
        std::fs::write(project.path().join(name), text).unwrap();
    }
    script(
        project,
        "python",
        &format!("PYTHONPATH='{}' exec '{}' \"$@\"", helper().display(), interpreter().display()),
    );
}

/// A shell script in the project.
pub fn script(project: &TestProject, name: &str, line: &str) {
    let path = project.path().join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{line}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// `./torch-python`, with torch and the helper; false, and said, where there is no torch for this Python.
pub fn install_torch(project: &TestProject) -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let setup =
        Command::new("bash").arg(root.join("scripts/torch_python.sh")).stderr(Stdio::inherit()).output().unwrap();
    if setup.status.code() == Some(3) {
        return false;
    }
    assert!(setup.status.success(), "scripts/torch_python.sh failed");
    let wrapper = std::fs::read_to_string(String::from_utf8(setup.stdout).unwrap().trim()).unwrap();
    // It sets PYTHONPATH itself.
    let line = wrapper.replace("PYTHONPATH=\"", &format!("PYTHONPATH=\"{}:", helper().display()));
    script(project, "torch-python", &line);
    true
}
