//! What a note says of ranks: who waited for whom, and who is late.

use crate::common::TestProject;
use crate::common::ledger::{finish, running, steps};
use expctl_ledger::{Stage, StepRecord, TrialState, write_json};

/// Measured steps of 100 ms on as many ranks as `late` gives a wait for, ms: what each rank waited in the exchange at a step.
fn ranks(n: usize, waited: impl Fn(usize, usize) -> u64) -> Vec<Vec<StepRecord>> {
    let of = |rank: usize| {
        let mut all = steps(100, 0);
        for (at, step) in all.iter_mut().filter(|step| step.measured).enumerate() {
            let ns = waited(rank, at) * 1_000_000;
            (step.exposed[Stage::Allreduce], step.busy[Stage::Allreduce]) = (ns, ns);
        }
        all
    };
    (0..n).map(of).collect()
}

/// The section of ranks of a job of one trial on `ranks`, two on each node.
fn section(ranks: &[Vec<StepRecord>]) -> String {
    let project = TestProject::new();
    let trial = project.trial("lazy", "Lazy", 1, |s| s.launch.ranks = ranks.len() as u32);
    let dir = project.submitted(12, "086_ddp", vec![trial.clone()]);
    let attempt = running(&dir, &trial, ranks);
    let mut environment = attempt.environment().unwrap().unwrap();
    environment.ranks.iter_mut().enumerate().for_each(|(rank, node)| node.host = format!("n{}", rank / 2));
    write_json(&attempt.environment_path(), &environment).unwrap();
    finish(&attempt, ranks, TrialState::Completed, "");
    let (stdout, _) = project.expect(&["report", "12"], 0);
    let note = std::fs::read_to_string(stdout.trim().replace("ROOT", project.path().to_str().unwrap())).unwrap();
    let (_, rest) = note.split_once("### Ranks\n").unwrap();
    rest.split("\n### ").next().unwrap().to_owned()
}

#[test]
fn a_rank_that_is_late_is_named_with_its_node() {
    // Rank 2 arrives last and waits 5 ms for the exchange alone; the others wait for it, too.
    let shown = section(&ranks(4, |rank, _| [25, 15, 5, 35][rank]));
    let rows: Vec<&str> = shown.lines().filter(|line| line.starts_with("| ") && line.contains(" | n")).collect();
    for (row, cells) in rows.iter().zip(["| 25 | 20 | 5 |", "| 15 | 10 | 5 |", "| 5 | 0 | 5 |", "| 35 | 30 | 5 |"]) {
        assert!(row.ends_with(cells), "{row}");
    }
    assert_eq!(rows.len(), 4, "{shown}");
    assert!(shown.contains(
        "Skew (derived): 30 ms a step from the first arrival at the exchange to the last, 30.0 % of it; transfer 5 ms"
    ));
    let said: Vec<&str> = shown.lines().filter(|line| line.contains("Straggler")).collect();
    // Its node is late with it: half of the ranks are there, and all the steps.
    assert_eq!(said.len(), 1, "{shown}");
    assert!(
        said[0].contains("rank 2 on n1 is the slowest in 100.0 % of 20 steps, where chance gives 25.0 % (p < 0.0001"),
        "{shown}"
    );
}

#[test]
fn a_node_that_is_late_is_named_rather_than_its_ranks() {
    // Ranks 2 and 3 take turns.
    let shown = section(&ranks(4, |rank, at| if rank == 2 + at % 2 { 2 } else { 40 }));
    let said: Vec<&str> = shown.lines().filter(|line| line.contains("Straggler")).collect();
    assert_eq!(said.len(), 1, "{shown}");
    assert!(
        said[0].contains("node n1 (ranks 2, 3) is the slowest in 100.0 % of 20 steps, where chance gives 50.0 %"),
        "{shown}"
    );
}

#[test]
fn a_late_node_does_not_hide_a_late_rank_of_another() {
    // Of ten steps, ranks 2 and 3 are late in three each, and rank 5 of another node in four.
    let late = |at: usize| [2, 3, 5, 2, 3, 5, 2, 3, 5, 5][at % 10];
    let shown = section(&ranks(8, |rank, at| if rank == late(at) { 2 } else { 40 }));
    let said: Vec<&str> = shown.lines().filter(|line| line.contains("Straggler")).collect();
    assert_eq!(said.len(), 2, "{shown}");
    assert!(said[0].contains("rank 5 on n2 is the slowest in 40.0 % of 20 steps"), "{shown}");
    assert!(said[1].contains("node n1 (ranks 2, 3) is the slowest in 60.0 % of 20 steps"), "{shown}");
}

#[test]
fn ranks_that_take_turns_at_being_late_are_no_stragglers() {
    let shown = section(&ranks(4, |rank, at| if rank == (at * 3 + at / 4) % 4 { 2 } else { 40 }));
    assert!(shown.contains("Skew (derived): 38 ms") && !shown.contains("Straggler"), "{shown}");
    // Nobody is late by anything that matters, though it is always the same one.
    let shown = section(&ranks(2, |rank, _| if rank == 0 { 2 } else { 2 + u64::from(rank == 9) }));
    assert!(shown.contains("Skew (derived): 0 ms") && !shown.contains("Straggler"), "{shown}");
    assert!(shown.lines().filter(|line| line.starts_with("| ")).any(|line| line.contains("| 0.0 % |")), "{shown}");
}
