//! What Slurm does to a task by itself or because somebody asks it to.

use super::bench::Bench;
use super::case::Case;
use crate::common::wait_until;

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

fn time_limit(bench: &Bench, case: &Case) {
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
    case.proven("requeue, three times", &before).seen("PENDING", said.unwrap(), "nothing to do: Slurm starts it again");
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
    wait_until("the other job", std::time::Duration::from_secs(60), || {
        let left = bench.cluster.ask("squeue", &["--noheader", "--format=%i"]);
        (!left.contains(other.trim())).then_some(())
    });
    case.proven("preemption", &before).seen(&slurm, said, "nothing to do: Slurm starts it again");
}
