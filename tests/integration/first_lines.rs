//! The first lines of a note answer: what is fastest, what bounds it, what to change next, what the figures do not show. Then a table, fastest
//! first; every verdict is said once.

use std::path::Path;

use expctl::report::reference::ReferenceRecord;
use expctl_ledger::{Stage, StepRecord, TrialState};
use expctl_settings::{Estimator, Mode, Trial};

use crate::common::TestProject;
use crate::common::ledger::{completed, finish, running, steps, sweep, two_variants};

/// The lines of a note that a reader sees: without frontmatter, comments and empty lines.
fn visible(note: &str) -> Vec<&str> {
    let body = note.splitn(3, "---\n").nth(2).unwrap();
    body.lines().filter(|line| !line.trim().is_empty() && !line.starts_with("<!--")).collect()
}

fn report(project: &TestProject, code: i32) -> String {
    let (stdout, _) = project.expect(&["report", "12"], code);
    let path = stdout.lines().next().unwrap().replace("ROOT", project.path().to_str().unwrap());
    std::fs::read_to_string(path).unwrap()
}

/// The rows of the first table of a note, by cells, without the marks of bold text; the first row has the names of the columns.
fn first_table(note: &str) -> Vec<Vec<String>> {
    let lines = note.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let cells = |line: &str| -> Vec<String> {
        line.replace('*', "").trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()
    };
    lines.filter(|line| !line.starts_with("|---")).map(cells).collect()
}

/// What holds for every note. Gives its first ten lines.
fn check(note: &str) -> Vec<String> {
    let lines = visible(note);
    let head: Vec<&str> = lines.iter().copied().take(10).collect();
    assert!(head[0].starts_with("## ") && head[1] == "### Executive Summary", "{head:#?}");
    assert!(head[2].starts_with("**") && head[2].ends_with("**"), "{head:#?}");
    for name in ["Bottleneck", "Not shown"] {
        let of = |line: &&&str| line.starts_with(&format!("- **{name}**"));
        assert_eq!(lines.iter().filter(of).count(), 1, "{name}: {head:#?}");
        assert_eq!(head.iter().filter(of).count(), 1, "{name}: {head:#?}");
    }
    let before_table = lines.iter().take_while(|line| !line.starts_with('|')).count();
    assert!(before_table <= 12, "{before_table} lines before the first table: {head:#?}");
    // One line a variant, the fastest first, with the bottleneck in one of the first six columns.
    let table = first_table(note);
    let column = |name: &str| table[0].iter().position(|cell| cell.starts_with(name));
    assert!(column("A step waits most for").unwrap() < 6, "{:?}", table[0]);
    let rate = |row: &Vec<String>| row[1].parse::<f64>().ok();
    let rates: Vec<Option<f64>> = table[1..].iter().map(rate).collect();
    assert!(rates.is_sorted_by(|a, b| a >= b), "{rates:?}");
    let labels: std::collections::BTreeSet<&String> = table[1..].iter().map(|row| &row[0]).collect();
    assert_eq!(labels.len(), table.len() - 1, "{table:#?}");
    // The ratio of a variant, with its interval, and its verdict are in its row and nowhere else.
    for row in &table[1..] {
        if row[2].contains('[') && table.iter().filter(|other| other[2] == row[2]).count() == 1 {
            assert_eq!(note.matches(&row[2]).count(), 1, "{}", row[2]);
        }
    }
    for words in ["faster than", "slower than", "no difference shown to"] {
        let said = lines.iter().filter(|line| line.contains(words)).count();
        assert!(said <= 1, "{words}: {said} times");
    }
    head.into_iter().map(str::to_owned).collect()
}

/// The line of the head that begins with this name.
fn line<'a>(head: &'a [String], name: &str) -> &'a str {
    head.iter().find(|line| line.starts_with(&format!("- **{name}**"))).unwrap_or_else(|| panic!("{name}: {head:#?}"))
}

#[test]
fn two_variants_are_answered_with_interval_bottlenecks_and_what_is_not_shown() {
    let project = TestProject::new();
    two_variants(&project, 12);
    let head = check(&report(&project, 0));
    assert_eq!(head[2], "**Fastest: ids, 4.00× lazy (95 % 3.80–4.21, 3 runs each, derived)**");
    let bottleneck = "- **Bottleneck** (measured): `ids` waits 50.0 % of a step for *collate*; `lazy`, the baseline, waits 50.0 % \
                      of a step for *collate*";
    assert_eq!(line(&head, "Bottleneck"), bottleneck);
    assert_eq!(line(&head, "Not shown"), "- **Not shown**: the optimizer");
    let trust = "- **Trust**: no warning that may change a verdict; measured for 2 s–8.2 s per run; 3 runs each";
    assert_eq!(line(&head, "Trust"), trust);
    assert!(line(&head, "Change next").contains("`ids`"), "{head:#?}");
}

/// Steps of a rank with one loader thread that works 10 ms on a batch, and 4 ms of work in the step.
fn one_thread() -> Vec<StepRecord> {
    const MS: u64 = 1_000_000;
    let step = |step: u64| {
        let waits = if step == 0 { [2, 3, 5] } else { [0, 1, 5] };
        let mut record =
            StepRecord { step, measured: step >= 2, samples: 28, bytes_batch: 1_000_000, ..StepRecord::default() };
        let loaded = [(Stage::Read, 2), (Stage::Decode, 3), (Stage::Collate, 5)];
        for ((stage, works), waits) in loaded.into_iter().zip(waits) {
            record.busy[stage] = works * MS;
            record.exposed[stage] = waits * MS;
        }
        for (stage, works) in [(Stage::Forward, 2), (Stage::Backward, 1), (Stage::Optimizer, 1)] {
            record.busy[stage] = works * MS;
            record.exposed[stage] = works * MS;
        }
        record.wall_ns = record.exposed.total();
        record.start_ns = step * record.wall_ns;
        record
    };
    (0..122).map(step).collect()
}

#[test]
fn one_variant_gets_its_rate_and_a_change_with_its_predicted_gain() {
    let project = TestProject::new();
    let trial = |repeat: u32| {
        project.trial("lazy", "Lazy", repeat, |settings| {
            settings.loader.workers = 1;
            settings.launch.ranks = 1;
            settings.measure.steps = 120;
        })
    };
    let trials: Vec<Trial> = (1..=2).map(trial).collect();
    let dir = project.submitted(12, "086_ddp", trials.clone());
    trials.iter().for_each(|trial| completed(&dir, trial, &[one_thread()]));
    let head = check(&report(&project, 0));
    assert!(head[2].starts_with("**lazy, 2800 samples/s (") && head[2].contains("2 runs, measured)"), "{head:#?}");
    assert!(head[2].ends_with("only one variant: nothing to compare**"), "{head:#?}");
    // On its two processors a second thread shares one with the step.
    let change = line(&head, "Change next");
    assert!(change.starts_with("- **Change next**: `loader.workers=2` (2 loader threads) in `lazy` "), "{change}");
    assert!(change.contains("× its rate (") && change.contains("*estimated*"), "{change}");
    assert!(change.ends_with("all predictions: `expctl predict 12`"), "{change}");
}

#[test]
fn where_nothing_is_predicted_the_largest_share_that_could_be_removed_is_named() {
    let project = TestProject::new();
    let trial = project.trial("lazy", "Lazy", 1, |_| {});
    let dir = project.submitted(12, "086_ddp", vec![trial.clone()]);
    // Fewer steps than a prediction needs.
    let few = steps(400, 0)[..12].to_vec();
    completed(&dir, &trial, &[few.clone(), few]);
    let head = check(&report(&project, 0));
    let change = line(&head, "Change next");
    assert!(
        change.starts_with("- **Change next**: not predicted for `lazy`: it has 10 measured steps, and "),
        "{change}"
    );
    assert!(
        change.contains("the largest share of a step that could be removed is *collate*, 50.0 % (derived)"),
        "{change}"
    );
}

#[test]
fn failed_trials_and_a_job_without_a_run_are_told() {
    let project = TestProject::new();
    let trials = ["lazy", "ids"].map(|variant| project.trial(variant, variant, 1, |_| {}));
    let dir = project.submitted(12, "086_ddp", trials.to_vec());
    let ranks = [steps(400, 0), steps(400, 0)];
    let failed = |trial: &Trial| {
        finish(&running(&dir, trial, &ranks), &ranks, TrialState::Failed, "rank 0 was killed by signal 9 SIGKILL");
    };
    trials.iter().for_each(failed);
    let head = check(&report(&project, 5));
    assert_eq!(head[2], "**No run completed**");
    assert_eq!(line(&head, "Bottleneck"), "- **Bottleneck** (measured): not known: no run completed");
    // One of two: what there is, and that the other is missing.
    completed(&dir, &trials[0], &ranks);
    let head = check(&report(&project, 5));
    assert!(head[2].starts_with("**Highest rate: lazy, 140 samples/s ("), "{head:#?}");
    assert!(line(&head, "Trust").contains("no run: ids"), "{head:#?}");
}

#[test]
fn without_the_baseline_the_highest_rate_is_named() {
    let project = TestProject::new();
    let trials = ["ids", "shared"].map(|variant| project.trial(variant, variant, 1, |_| {}));
    let dir = project.submitted_as(12, "086_ddp", trials.to_vec(), |record| record.baseline = Some("lazy".into()));
    for (trial, wall) in trials.iter().zip([400, 100]) {
        completed(&dir, trial, &[steps(wall, 0), steps(wall, 0)]);
    }
    let head = check(&report(&project, 0));
    assert!(head[2].starts_with("**Highest rate: shared, 560 samples/s ("), "{head:#?}");
    assert!(head[2].ends_with("no ratios: nothing to compare with**"), "{head:#?}");
    assert!(line(&head, "Trust").contains("baseline not run"), "{head:#?}");
}

#[test]
fn a_sweep_names_its_points_and_modes_stay_apart() {
    let project = TestProject::new();
    sweep(&project, 12);
    let note = report(&project, 0);
    let head = check(&note);
    assert!(head[2].contains("largest ratio: ids (launch.ranks=2), 5.00× lazy (launch.ranks=2)"), "{head:#?}");
    assert!(line(&head, "Bottleneck").contains("`ids (launch.ranks="), "{head:#?}");
    // Steps that do less are not faster.
    let other = TestProject::new();
    let modes = [Mode::Train, Mode::Data];
    let trials = modes.map(|mode| {
        let mut trial = other.trial("lazy", "Lazy", 1, |settings| settings.train.mode = mode);
        trial.id = format!("lazy-{}-r1-0a1b2c", mode.name());
        trial.point = [("train.mode".to_owned(), mode.name().into())].into();
        trial
    });
    let dir = other.submitted(12, "086_ddp", trials.to_vec());
    for (trial, wall) in trials.iter().zip([400, 100]) {
        completed(&dir, trial, &[steps(wall, 0), steps(wall, 0)]);
    }
    let note = report(&other, 0);
    let rows = first_table(&note);
    assert_eq!([&rows[1][0], &rows[2][0]], [r#"lazy (train.mode="train")"#, r#"lazy (train.mode="data")"#]);
    let bottleneck = visible(&note).into_iter().find(|line| line.starts_with("- **Bottleneck**")).unwrap();
    assert!(bottleneck.contains(r#"`lazy (train.mode="train")`"#), "{bottleneck}");
}

/// Measured time of a run in a job of the shape of a record, s.
const RUN_S: f64 = 1.2;

/// Job 12 in the shape of a committed record: its variants, runs, rates and stages, with fewer and equal steps, all times multiplied by `slower`.
fn recorded(project: &TestProject, name: &str, slower: f64) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("results/reference/records/{name}.json"));
    let record = ReferenceRecord::read(&file).unwrap();
    let mut trials: Vec<(Trial, Vec<StepRecord>)> = Vec::new();
    for (variant, figures) in &record.variants {
        for (repeat, it_per_s) in figures.repeats.iter().zip(&figures.it_per_s) {
            let wall_ns = 1e9 * slower / it_per_s;
            let count = (RUN_S * it_per_s / slower).ceil().max(30.0) as u64;
            let mut trial = project.trial(variant, &figures.method, *repeat, |settings| {
                settings.launch.ranks = figures.ranks;
                settings.loader.workers = figures.workers;
                settings.loader.batch_size = figures.batch_size;
                settings.measure.interleave = figures.interleaved;
                (settings.measure.warmup, settings.measure.steps) = (2, count);
                settings.train.mode = Mode::Data;
            });
            trial.config = name.to_owned();
            let share = |ns: f64| (ns / figures.step_mean_ns * wall_ns) as u64;
            let step = |step: u64| {
                let mut one = StepRecord {
                    step,
                    measured: step >= 2,
                    start_ns: step * wall_ns as u64,
                    wall_ns: wall_ns as u64,
                    samples: figures.batch_size,
                    bytes_batch: figures.batch_bytes.unwrap_or(0.0) as u64,
                    ..StepRecord::default()
                };
                for stage in Stage::ALL {
                    one.exposed[stage] = figures.exposed_ns.get(stage.name()).map_or(0, |ns| share(*ns));
                    one.busy[stage] = figures.busy_ns.get(stage.name()).map_or(0, |ns| share(*ns));
                }
                one
            };
            trials.push((trial, (0..count + 2).map(step).collect()));
        }
    }
    let all = trials.iter().map(|(trial, _)| trial.clone()).collect();
    let dir = project.submitted_as(12, name, all, |job| {
        job.baseline = record.baseline.clone();
        job.estimators = if name.starts_with("086") { vec![Estimator::Last20] } else { Vec::new() };
    });
    // Each file waits for the disk: several threads wait together.
    std::thread::scope(|scope| {
        for part in trials.chunks(trials.len().div_ceil(16)) {
            let dir = &dir;
            scope.spawn(move || {
                part.iter().for_each(|(trial, steps)| completed(dir, trial, std::slice::from_ref(steps)))
            });
        }
    });
}

#[test]
fn the_note_of_086_has_at_most_half_the_words_that_it_had() {
    let project = TestProject::new();
    recorded(&project, "086_dataloader", 1.0);
    let note = report(&project, 0);
    let head = check(&note);
    assert!(head[2].starts_with("**Fastest: ids, 14"), "{head:#?}");
    // It had 493 lines and 4,923 words. What samples of the hardware and whole epochs add is not in this one.
    let (lines, words) = (note.lines().count(), note.split_whitespace().count());
    assert!(lines <= 246 && words <= 2461, "{lines} lines, {words} words\n{note}");
    // A figure stands in one table: no tree beside the tables of stages.
    assert!(note.contains("### Stage by stage") && !note.contains("├─ collate") && !note.contains("most exposed time"));
}

#[test]
fn a_note_of_47_variants_has_its_table_at_once() {
    let project = TestProject::new();
    recorded(&project, "peers", 100.0);
    let note = report(&project, 0);
    let head = check(&note);
    assert!(head[2].starts_with("**Fastest: memory_expctl_sparse_2, "), "{head:#?}");
    assert_eq!(first_table(&note).len(), 48);
    let lines = note.lines().count();
    assert!(lines <= 600, "{lines} lines");
}
