//! What a note says of ranks: who waited for whom, who is late, and what more of them bring.

use crate::common::ledger::{finish, running, steps, sweep};
use crate::common::{SMALL, TestProject};
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

/// The section on scaling, up to the next one.
fn scaling_section(note: &str) -> &str {
    let (_, rest) = note.split_once("### Scaling\n").expect("a section");
    rest.split("\n### ").next().unwrap()
}

fn cells<'a>(section: &'a str, variant: &str, ranks: u32) -> Vec<&'a str> {
    let start = format!("| {variant} | {ranks} |");
    let line = section.lines().find(|line| line.starts_with(&start)).expect("a row");
    line.trim_matches('|').split('|').map(str::trim).collect()
}

#[test]
fn efficiency_of_real_ranks_is_that_of_their_ledger() {
    let project = TestProject::new();
    let conf =
        SMALL.replace("[launch]\nranks = 2", "[sweep]\nranks = [1, 2]\n[launch]").replace("repeats = 1", "repeats = 2");
    let job = project.completed(&conf, &["--only", "ids"]);
    let dir = project.job(&job);
    // Logarithms of samples/s of each run, and its exposed exchange and wall time, by number of ranks.
    let (mut logs, mut waited, mut walls) = ([const { Vec::new() }; 2], [0, 0], [0, 0]);
    for trial in dir.record().unwrap().trials {
        let (attempt, ranks) = (dir.attempts(&trial.id).unwrap().pop().unwrap(), trial.settings.launch.ranks);
        let mut rate = 0.0;
        for rank in 0..ranks {
            let steps: Vec<_> = attempt.steps(rank).unwrap().into_iter().filter(|step| step.measured).collect();
            let wall: u64 = steps.iter().map(|step| step.wall_ns).sum();
            rate += steps.iter().map(|step| step.samples).sum::<u64>() as f64 / (wall as f64 / 1e9);
            waited[ranks as usize - 1] += steps.iter().map(|step| step.exposed[Stage::Allreduce]).sum::<u64>();
            walls[ranks as usize - 1] += wall;
        }
        logs[ranks as usize - 1].push(f64::ln(rate));
    }
    assert_eq!(logs.each_ref().map(Vec::len), [2, 2]);
    let mean = |logs: &Vec<f64>| logs.iter().sum::<f64>() / logs.len() as f64;
    let speed_up = (mean(&logs[1]) - mean(&logs[0])).exp();
    let note = std::fs::read_to_string(project.path().join("results/small_1.md")).unwrap();
    let section = scaling_section(&note);
    let row = cells(section, "ids", 2);
    let number = |cell: &str| cell.split([' ', '×']).next().unwrap().parse::<f64>().unwrap();
    assert!((number(row[4]) - speed_up).abs() < 0.006 + speed_up * 1e-3, "{row:?} {speed_up}");
    assert!((number(row[5]) - 50.0 * speed_up).abs() < 0.06, "{row:?} {speed_up}");
    // Two runs on both sides: an interval, which holds the figure.
    let ends = row[5].split_once('[').unwrap().1.trim_end_matches([']', ' ', '⚠']).split_once('–').unwrap();
    assert!(number(ends.0) < number(row[5]) && number(row[5]) < number(ends.1), "{row:?}");
    let share = 100.0 * waited[1] as f64 / walls[1] as f64;
    assert!((number(row[6]) - share).abs() < 0.06, "{row:?} {share}");
    let one = cells(section, "ids", 1);
    assert_eq!((one[2], one[4], one[5]), ("2", "–", "–"));
    assert!(note.contains("small_1_scaling.svg"));
}

#[test]
fn more_ranks_than_processors_are_said_to_be_so() {
    let project = TestProject::new();
    let dir = sweep(&project, 12);
    let note = || {
        let (stdout, _) = project.expect(&["report", "12"], 0);
        std::fs::read_to_string(stdout.trim().replace("ROOT", project.path().to_str().unwrap())).unwrap()
    };
    // Each rank on a node of its own.
    let spread = note();
    let shown = scaling_section(&spread);
    // 100 ms on one rank, 40 ms on two and 20 ms on four: 2.5 and 5 times as many steps, of 2 and 4 times the samples.
    assert_eq!(cells(shown, "ids", 2)[4..6], ["5.00×", "250.0 %"]);
    assert_eq!(cells(shown, "ids", 4)[4..6], ["20.00×", "500.0 %"]);
    assert_eq!(cells(shown, "lazy", 2)[4..6], ["4.00×", "200.0 %"]);
    assert!(!spread.contains('⚠'), "{spread}");
    // All on one, which has two processors.
    for trial in dir.record().unwrap().trials {
        let attempt = dir.attempts(&trial.id).unwrap().pop().unwrap();
        let mut environment = attempt.environment().unwrap().unwrap();
        environment.ranks.iter_mut().for_each(|node| node.host = "alone".into());
        write_json(&attempt.environment_path(), &environment).unwrap();
    }
    let crowded = note();
    let shown = scaling_section(&crowded);
    assert!(shown.contains("- ids: 4 ranks on alone, which has 2 processors"), "{shown}");
    assert_eq!(cells(shown, "ids", 4)[5], "500.0 % ⚠");
    assert_eq!(cells(shown, "ids", 2)[5], "250.0 %");
    let (warnings, _) = crowded.split_once("### Warnings\n").unwrap().1.split_once("\n### ").unwrap();
    assert!(
        warnings.contains("- ids: 4 ranks on alone, which has 2 processors: how it scales says nothing"),
        "{warnings}"
    );
    // Slurm gives each rank processors of its own, whatever one of them sees.
    let mut record = dir.record().unwrap();
    record.backend = "slurm".into();
    write_json(&dir.record_path(), &record).unwrap();
    assert!(!note().contains('⚠'));
}
