//! The fault matrix: every fault befalls a real job of real ranks on a real Slurm, driven through `expctl` as its user would.
//!
//! In each case `status` is right while and after it, `retry` (or Slurm's own requeue) finishes the job, its ledger holds every
//! step exactly once, and the parameters are those of an undisturbed run. `tests/faults/run` prints the table.

#![allow(clippy::print_stdout, reason = "figures are read from the output")]

pub mod bench;
mod case;

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::common::{text, wait_until};
use bench::{Bench, Filled, Sealed, ranks_below};
use case::FaultCase;

/// What finishes a job that Slurm runs again.
const BY_ITSELF: &str = "nothing to do: Slurm starts it again";

#[test]
fn ranks() {
    let Some(bench) = Bench::start(&["--nodes", "1"]) else { return };

    let case = bench.submit(&[]);
    case.steps_in(1);
    case.signal(&[1], Signal::SIGKILL);
    let said = case.becomes(&["failed"]);
    assert!(said.reason.contains("rank 1 was killed by signal 9"), "{said}");
    let (before, slurm) = (case.recorded(), case.slurm_says());
    let cure = case.retry();
    case.proven("a rank crashes", &before).seen(&slurm, said, cure);

    // The store is rank 0's; its loss is the harder one.
    let case = bench.submit(&[]);
    case.steps_in(1);
    case.signal(&[0], Signal::SIGSTOP);
    let said = case.becomes(&["failed"]);
    assert!(said.reason.contains("rank 0"), "{said}");
    let (before, slurm) = (case.recorded(), case.slurm_says());
    let cure = case.retry();
    case.proven("a rank hangs", &before).seen(&slurm, said, cure);
}

/// Memory that the loaders really take: `retry` doubles the limit until it suffices.
#[test]
fn memory() {
    let Some(bench) = Bench::start(&["--nodes", "1", "--cgroup"]) else { return };
    let case = bench.submit(&["slurm.memory_mib=40"]);
    let said = case.becomes(&["failed"]);
    assert!(said.reason.contains("memory"), "{said}");
    let (before, slurm) = (case.recorded(), case.slurm_says());
    let mut cures = Vec::new();
    while case.status()["state"] != "completed" {
        assert!(cures.len() < 5, "{cures:?}");
        let output = bench.expctl(&["retry", &case.job, "--wait"]);
        let said = text(&output.stderr);
        let words =
            said.lines().find_map(|line| line.split_once("another attempt, ")).unwrap_or_else(|| panic!("{said}"));
        assert!(words.1.contains("MiB of memory instead of"), "{said}");
        cures.push(words.1.to_owned());
    }
    case.proven("out of memory", &before).seen(&slurm, said, cures.join("; "));
}

#[test]
fn tasks() {
    let Some(bench) = Bench::start(&[]) else { return };
    // One after the other: the first one builds the data.
    let limited = bench.submit(&[]);
    // Slurm looks at its limits every 30 s: meanwhile the others have their turn.
    std::thread::scope(|scope| {
        scope.spawn(|| time_limit(&bench, &limited));
        cancelled(&bench);
        requeued(&bench);
    });
    preempted(&bench);
}

fn cancelled(bench: &Bench) {
    let case = bench.submit(&[]);
    case.steps_in(1);
    bench.cluster.ask("scancel", &[&case.job]);
    let said = case.becomes(&["interrupted"]);
    let (before, slurm) = (case.recorded(), case.slurm_says());
    let cure = case.retry();
    case.proven("`scancel`", &before).seen(&slurm, said, cure);
}

fn time_limit(bench: &Bench, case: &FaultCase) {
    case.steps_in(1);
    case.pause();
    let before = case.recorded();
    bench.cluster.ask("scontrol", &["update", &format!("jobid={}", case.task()), "endtime=now+1"]);
    bench.cluster.until("the time limit", || case.slurm_says() != "RUNNING");
    case.wake();
    let said = case.becomes(&["failed"]);
    assert!(said.reason.contains("TimeLimit") || said.reason.contains("TIMEOUT"), "{said}");
    let slurm = case.slurm_says();
    let cure = case.retry();
    case.proven("the time limit", &before).seen(&slurm, said, cure);
}

fn requeued(bench: &Bench) {
    let case = bench.submit(&[]);
    let (mut before, mut said) = (Vec::new(), None);
    for number in 1..=3 {
        case.steps_in(number);
        bench.cluster.ask("scontrol", &["requeue", &case.task()]);
        said = Some(case.becomes(&["waiting"]));
        before = case.recorded();
    }
    case.becomes(&["completed"]);
    let attempts = case.attempts();
    assert_eq!(attempts.len(), 4);
    let nothing = case.code(&["retry"], 0);
    assert!(nothing.contains("nothing to retry"), "{nothing}");
    case.proven("requeue, three times", &before).seen("PENDING", said.unwrap(), BY_ITSELF);
}

fn preempted(bench: &Bench) {
    let case = bench.submit(&["slurm.partition=low"]);
    case.steps_in(1);
    case.pause();
    let other = bench.cluster.ask("sbatch", &["--parsable", "--nodes=2", "--exclusive", "--wrap=sleep 2"]);
    bench.cluster.until("the preemption", || case.slurm_says() != "RUNNING");
    case.wake();
    let said = case.becomes(&["waiting"]);
    let (before, slurm) = (case.recorded(), case.slurm_says());
    case.becomes(&["completed"]);
    assert_eq!(case.attempts().len(), 2);
    wait_until("the other job", Duration::from_secs(60), || {
        let left = bench.cluster.ask("squeue", &["--noheader", "--format=%i"]);
        (!left.contains(other.trim())).then_some(())
    });
    case.proven("preemption", &before).seen(&slurm, said, BY_ITSELF);
}

#[test]
fn nodes() {
    let Some(bench) = Bench::start(&[]) else { return };
    controller(&bench);
    set_down(&bench);
    killed(&bench, "a node is killed", &[]);
    killed(&bench, "a node is killed, no checkpoints", &["checkpoint.every_steps=0", "checkpoint.on_signal=false"]);
}

/// The node that a trial's last attempt is on.
fn node(case: &FaultCase) -> String {
    wait_until("env.json", Duration::from_secs(60), || {
        let environment = case.attempts().pop()?.environment().unwrap()?;
        Some(environment.ranks[0].host.clone())
    })
}

fn controller(bench: &Bench) {
    let case = bench.submit(&[]);
    case.steps_in(1);
    // A controller that dies within seconds of a job's start forgets it: it saves its state every few seconds.
    case.pause();
    std::thread::sleep(Duration::from_secs(4));
    bench.cluster.node("kill", "ctld");
    let before = case.recorded();
    let said = case.becomes(&["unknown"]);
    case.code(&["retry"], 4);
    case.wake();
    bench.cluster.node("up", "ctld");
    case.becomes(&["completed"]);
    assert_eq!(case.attempts().len(), 1, "it went on");
    bench.cluster.until("its end", || case.slurm_says() == "COMPLETED");
    let fault = "the controller is killed and started again";
    case.proven(fault, &before).seen("does not answer, then COMPLETED", said, "nothing to do: the job goes on");
}

fn set_down(bench: &Bench) {
    let case = bench.submit(&[]);
    case.steps_in(1);
    let lost = node(&case);
    let name = format!("nodename={lost}");
    bench.cluster.ask("scontrol", &["update", &name, "state=down", "reason=test"]);
    let said = case.becomes(&["waiting"]);
    let (before, slurm) = (case.recorded(), case.slurm_says());
    case.becomes(&["completed"]);
    assert_ne!(node(&case), lost);
    bench.cluster.ask("scontrol", &["update", &name, "state=resume"]);
    case.proven("a node is set down", &before).seen(&slurm, said, BY_ITSELF);
}

/// With checkpoints Slurm runs the trial again by itself; without it is for `retry`, which stays away from that node.
fn killed(bench: &Bench, fault: &'static str, sets: &[&str]) {
    let case = bench.submit(sets);
    case.steps_in(1);
    let lost = node(&case);
    bench.cluster.node("kill", &lost);
    let before = case.recorded();
    let (said, slurm, cure);
    if sets.is_empty() {
        // Until then Slurm takes the node for alive.
        bench.cluster.until("NODE_FAIL", || case.slurm_says() != "RUNNING");
        slurm = case.slurm_says();
        said = case.becomes(&["waiting", "running"]);
        case.becomes(&["completed"]);
        cure = BY_ITSELF.to_owned();
    } else {
        said = case.becomes(&["lost"]);
        slurm = case.slurm_says();
        assert!(said.reason.contains("NODE_FAIL"), "{said}");
        cure = case.retry();
        assert!(cure.contains(&format!("not on {lost}")), "{cure}");
    }
    assert_ne!(node(&case), lost);
    bench.cluster.node("up", &lost);
    case.proven(fault, &before).seen(&slurm, said, cure);
}

#[test]
fn networks() {
    let Some(bench) = Bench::start(&["--netns"]) else { return };
    cut_off(&bench);
    parted(&bench);
}

/// Both ranks are on the node that is cut off. They know nothing of it, and would go on with an attempt that has a successor.
fn cut_off(bench: &Bench) {
    let case = bench.submit(&[]);
    case.steps_in(1);
    let lost = node(&case);
    case.pause();
    let old = ranks_below(case.folder().path());
    let before = case.recorded();
    bench.cluster.cut(&lost);
    bench.cluster.until("NODE_FAIL", || case.slurm_says() != "RUNNING");
    let (said, slurm) = (case.becomes(&["waiting", "running"]), case.slurm_says());
    case.steps_in(2);
    case.wake();
    wait_until("the ranks of the first attempt to end", Duration::from_secs(90), || {
        let now = ranks_below(case.folder().path());
        (!now.iter().any(|rank| old.contains(rank))).then_some(())
    });
    case.becomes(&["completed"]);
    assert_ne!(node(&case), lost);
    let row = case.proven("the network of a node is cut, its ranks go on", &before);
    bench.cluster.join(&lost);
    bench.cluster.until("the node", || {
        !bench.cluster.ask("sinfo", &["--noheader", "--format=%T", "--nodes", &lost]).contains("down")
    });
    row.seen(&slurm, said, BY_ITSELF);
}

/// A rank on each node. Whether the other rank's silence or Slurm's ends the attempt is a race: both are right.
fn parted(bench: &Bench) {
    let case = bench.submit(&["launch.nodes=2"]);
    case.steps_in(1);
    let before = case.recorded();
    bench.cluster.cut("n2");
    bench.cluster.until("the end of the attempt", || case.slurm_says() != "RUNNING");
    let said = case.becomes(&["failed", "waiting", "lost"]);
    let slurm = case.slurm_says();
    bench.cluster.join("n2");
    bench.cluster.until("the node", || {
        let state = bench.cluster.ask("sinfo", &["--noheader", "--format=%T", "--nodes=n2"]);
        !state.contains("down") && !state.contains('*')
    });
    let cure = match said.state.as_str() {
        // Slurm keeps what it could not tell the lost node, and may deliver srun's signal to the next run there.
        "waiting" => match case.becomes(&["completed", "failed", "interrupted"]).state.as_str() {
            "completed" => BY_ITSELF.to_owned(),
            _ => format!("Slurm starts it again; where its old signal ends that run, {}", case.retry()),
        },
        _ => case.retry(),
    };
    case.proven("the network between the ranks is cut", &before).seen(&slurm, said, cure);
}

#[test]
fn ledger() {
    let Some(bench) = Bench::with_disk(&["--nodes", "1"], 64) else { return };
    full(&bench);
    sealed(&bench);
}

fn full(bench: &Bench) {
    let case = bench.submit(&[]);
    case.steps_in(1);
    let filled = Filled::new(&bench.project.path().join("results/runs"));
    // If a few bytes are left the ranks can say why; if not, Slurm alone says that they are gone.
    let said = case.becomes(&["failed", "lost"]);
    let (before, slurm) = (case.recorded(), case.slurm_says());
    // Nothing can be written about it either, and nothing is started that could not be written down.
    case.code(&["retry"], 6);
    assert_eq!(case.attempts().len(), 1);
    drop(filled);
    let cure = case.retry();
    case.proven("the disk of the ledger is full", &before).seen(&slurm, said, cure);
}

fn sealed(bench: &Bench) {
    let case = bench.submit(&[]);
    let attempt = case.steps_in(1);
    let trial = attempt.path().parent().unwrap().to_owned();
    let checkpoint = trial.join("checkpoint");
    let sealed = Sealed::new(vec![checkpoint, attempt.path().to_owned(), trial, case.folder().path().to_owned()]);
    let said = case.becomes(&["lost"]);
    let (before, slurm) = (case.recorded(), case.slurm_says());
    case.code(&["retry"], 6);
    drop(sealed);
    let cure = case.retry();
    case.proven("the ledger cannot be written", &before).seen(&slurm, said, cure);
}

#[test]
fn accounting() {
    let Some(bench) = Bench::start(&["--nodes", "1", "--dbd"]) else { return };
    let case = bench.submit(&[]);
    case.steps_in(1);
    bench.cluster.node("kill", "dbd");
    let before = case.recorded();
    let said = case.becomes(&["running", "completed"]);
    case.becomes(&["completed"]);
    let nothing = case.code(&["retry"], 0);
    assert!(nothing.contains("nothing to retry"), "{nothing}");
    case.code(&["report"], 0);
    bench.cluster.node("up", "dbd");
    // What it missed comes later, and the report takes it.
    let fields = ["--noheader", "--parsable2", "--allocations", "--format=State", "--jobs", &case.job];
    bench.cluster.until("the accounting", || {
        let rows = bench.cluster.try_ask("sacct", &fields).stdout;
        String::from_utf8_lossy(&rows).trim() == "COMPLETED"
    });
    case.code(&["report"], 0);
    case.proven("the accounting is down", &before).seen("COMPLETED", said, "nothing to do: the job goes on");
}
