//! Faults of a single rank, and of its memory.

use nix::sys::signal::Signal;

use super::bench::Bench;

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
        let said = crate::common::text(&output.stderr);
        let words =
            said.lines().find_map(|line| line.split_once("another attempt, ")).unwrap_or_else(|| panic!("{said}"));
        assert!(words.1.contains("MiB of memory instead of"), "{said}");
        cures.push(words.1.to_owned());
    }
    case.proven("out of memory", &before).seen(&slurm, said, cures.join("; "));
}
