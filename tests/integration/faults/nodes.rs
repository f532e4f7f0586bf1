//! Nodes, their network, and the daemons that know about them.

use super::bench::{Bench, ranks_below};
use super::case::Case;
use crate::common::wait_until;

const BY_ITSELF: &str = "nothing to do: Slurm starts it again";

#[test]
fn nodes() {
    let Some(bench) = Bench::start(&[]) else { return };
    controller(&bench);
    set_down(&bench);
    killed(&bench, "a node is killed", &[]);
    killed(&bench, "a node is killed, no checkpoints", &["checkpoint.every_steps=0", "checkpoint.on_signal=false"]);
}

/// The node that a trial's last attempt is on.
fn node(case: &Case) -> String {
    wait_until("env.json", std::time::Duration::from_secs(60), || {
        let environment = case.attempts().pop()?.environment().unwrap()?;
        Some(environment.ranks[0].host.clone())
    })
}

fn controller(bench: &Bench) {
    let case = bench.submit(&[]);
    case.steps_in(1);
    // A controller that dies within seconds of a job's start forgets it: it saves its state every few seconds.
    case.pause();
    std::thread::sleep(std::time::Duration::from_secs(4));
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
    wait_until("the ranks of the first attempt to end", std::time::Duration::from_secs(90), || {
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
