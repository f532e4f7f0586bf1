//! What notes say of more ranks.

use crate::common::ledger::sweep;
use crate::common::{SMALL, TestProject};
use expctl_ledger::{Stage, write_json};

/// The section, up to the next one.
fn section(note: &str) -> &str {
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
    let conf = project.conf("small", &conf);
    let job = project.ok(&["submit", conf.to_str().unwrap(), "--backend", "local", "--wait", "--only", "ids"]);
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
    let section = section(&note);
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
    let shown = section(&spread);
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
    let shown = section(&crowded);
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
