//! The ledger's own faults, and the accounting's.

use super::bench::{Bench, Filled, Sealed};

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
    case.code(&["retry"], 70);
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
    case.code(&["retry"], 70);
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
