//! The parts of a note that only some jobs have: isolation and learning, on ledgers written by the record crate.

use std::collections::BTreeMap;

use expctl_ledger::{
    LearningRecord, Operation, OperationTime, PerStage, RankUsage, Stage, StepRecord, Validation, append_learning,
    stopped_early, write_json,
};
use expctl_settings::{ArrayFormat, Draw, Mode, ModelKind, Trial};

use crate::common;
use crate::common::TestProject;
use crate::common::ledger::{completed, in_epochs, steps};

const MODES: [Mode; 4] = [Mode::Data, Mode::Forward, Mode::ForwardBackward, Mode::Train];

/// The part of the note under a heading.
fn section(project: &TestProject, heading: &str) -> String {
    let (stdout, _) = project.expect(&["report", "12"], 0);
    let path = stdout.trim().replace("ROOT", project.path().to_str().unwrap());
    let note = std::fs::read_to_string(path).unwrap();
    let start = note.find(&format!("### {heading}\n")).unwrap_or(note.len());
    let end = note[start..].find("\n### ").map_or(note.len(), |end| start + end);
    // What only the program reads is no part of the section.
    note[start..end].lines().filter(|line| !line.starts_with("<!-- expctl:")).map(|line| format!("{line}\n")).collect()
}

#[test]
fn settings_of_a_sampler_count_where_rows_are_drawn_by_them() {
    let project = TestProject::new();
    let drawn = |name: &str, draw: Draw, by: &str| {
        project.trial(name, name, 1, |s| {
            s.array.format = ArrayFormat::H5ad;
            (s.sampler.draw, s.sampler.by) = (draw, by.to_owned());
        })
    };
    let trials = [
        drawn("uniform", Draw::Uniform, ""),
        drawn("chunked", Draw::Chunked, ""),
        drawn("balanced", Draw::Balanced, "cell_type"),
    ];
    let dir = project.submitted(12, "086_ddp", trials.to_vec());
    trials.iter().for_each(|trial| completed(&dir, trial, &[steps(400, 0), steps(400, 0)]));
    let (table, _) = project.expect(&["compare", "12"], 0);
    assert!(table.contains("sampler.draw uniform") && !table.contains("sampler.by"), "{table}");
    assert!(!table.contains("chunk_rows"), "{table}");
    let found = section(&project, "Configuration");
    assert!(found.contains("| sampler.by | – | – | cell_type |\n"), "{found}");
    assert!(found.contains("| sampler.chunk_rows | – | 512 | – |\n"), "{found}");
}

/// Steps of a mode: `collate` is waited for, then the model's stages in ms, as far as the mode goes.
fn in_mode(mode: Mode, samples: u64, collate: u64, model: [u64; 3], extra: u64) -> Vec<StepRecord> {
    const MS: u64 = 1_000_000;
    let stages = [Stage::Forward, Stage::Backward, Stage::Optimizer];
    let done = MODES.iter().position(|m| *m == mode).unwrap();
    let mut all = steps(1, 0);
    for step in all.iter_mut().filter(|step| step.measured) {
        (step.exposed, step.busy) = (PerStage::default(), PerStage::default());
        step.samples = samples;
        step.exposed[Stage::Collate] = collate * MS;
        step.busy[Stage::Collate] = 2 * collate * MS;
        step.exposed[Stage::Read] = MS;
        step.busy[Stage::Read] = MS;
        for (stage, ms) in stages.into_iter().zip(model).take(done) {
            step.exposed[stage] = ms * MS;
            step.busy[stage] = ms * MS;
        }
        step.wall_ns = step.exposed.total() + extra * MS;
    }
    all
}

fn in_modes(project: &TestProject, variant: &str, repeat: u32) -> Vec<Trial> {
    let of = |mode: &Mode| {
        let mut trial = project.trial(variant, variant, repeat, |settings| {
            settings.train.mode = *mode;
            settings.launch.ranks = 1;
            if variant == "lazy" {
                settings.model.kind = ModelKind::Lazy;
            }
        });
        trial.id = format!("{variant}-{}-r{repeat}-0a1b2c", mode.name());
        trial.point = BTreeMap::from([("train.mode".to_owned(), mode.name().into())]);
        trial.default_model = variant == "dango";
        trial
    };
    MODES.iter().map(of).collect()
}

#[test]
fn a_job_in_four_modes_is_taken_apart() {
    let project = TestProject::new();
    let mut trials = Vec::new();
    for repeat in 1..=3 {
        trials.extend(in_modes(&project, "lazy", repeat));
        trials.extend(in_modes(&project, "dango", repeat));
    }
    let dir = project.submitted(12, "006_isolation", trials.clone());
    for trial in &trials {
        let (mode, extra) = (trial.settings.train.mode, u64::from(trial.repeat));
        // Lazy's loader hides half behind the model, another part in each mode; there is nothing to hide of DANGO's.
        let (samples, collate, model) = match (trial.variant.as_str(), mode) {
            ("lazy", Mode::Data) => (28, 760, [250, 125, 10]),
            ("lazy", Mode::Forward) => (28, 380, [250, 125, 10]),
            ("lazy", Mode::ForwardBackward) => (28, 400, [250, 125, 10]),
            ("lazy", _) => (28, 370, [250, 125, 10]),
            _ => (64, 12, [30, 15, 2]),
        };
        completed(&dir, trial, &[in_mode(mode, samples, collate, model, extra)]);
        if (trial.variant.as_str(), mode) == ("lazy", Mode::Train) {
            let attempt = dir.attempts(&trial.id).unwrap().pop().unwrap();
            let usage = RankUsage { parameters: Some(1_781_187), ..RankUsage::default() };
            write_json(&attempt.usage_path(0), &usage).unwrap();
        }
    }
    let shown = section(&project, "Isolation");
    insta::assert_snapshot!(shown);

    // The variants beside each other, from the steps of mode train alone: times, how many times as fast for a sample, share of lazy's step.
    let (_, rest) = shown.split_once("#### All variants: mode train, lazy n = 3, dango n = 3").unwrap();
    let (summary, rest) = rest.split_once("#### lazy").unwrap();
    let cells = |text: &str, name: &str| -> Vec<String> {
        let of = |line: &str| line.replace("**", "").split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
        text.lines().map(of).find(|row| row.get(1).is_some_and(|first| first == name)).unwrap()[2..].to_vec()
    };
    let number = |cell: &str| cell.trim_end_matches(" %").split(['×', ' ']).next().unwrap().parse::<f64>().unwrap();
    for (name, lazy, dango) in [
        ("data pipeline", 371.0, 13.0),
        ("├─ read", 1.0, 1.0),
        ("└─ collate", 370.0, 12.0),
        ("model compute", 375.0, 45.0),
        ("├─ forward", 250.0, 30.0),
        ("└─ backward", 125.0, 15.0),
        ("optimizer", 10.0, 2.0),
        ("other, unattributed", 2.0, 2.0),
        ("total", 758.0, 62.0),
    ] {
        let row = cells(summary, name);
        let ratio = (lazy / 28.0) / (dango / 64.0);
        let expected = [lazy, lazy / 28.0, dango, dango / 64.0, ratio, lazy / 7.58];
        for (cell, expected) in row.iter().zip(expected) {
            let allowed = if cell.contains('%') { 0.1 } else { 0.000_51 + 0.01 * expected };
            assert!((number(cell) - expected).abs() <= allowed, "{name}: {cell} is not {expected}\n{summary}");
        }
        // Three runs a side: a ratio has its interval, but where no run differs from another.
        assert_eq!(row[4].contains("× ["), ["other, unattributed", "total"].contains(&name), "{row:?}");
    }

    // A difference, corrected by what is said of it, is what the part costs.
    let (lazy, _) = rest.split_once("#### dango").unwrap();
    let line = lazy.lines().find(|line| line.contains("overlaps")).unwrap();
    let waits = "761 ms in data, 381 ms in forward, 401 ms in forward_backward, 371 ms in train (exposed)";
    assert!(line.contains(waits), "{line}");
    for (part, cost, shift) in [
        ("forward", 250.0, "forward 380 ms more"),
        ("backward", 125.0, "backward 20 ms less"),
        ("optimizer", 10.0, "optimizer 30 ms more"),
    ] {
        assert!(line.contains(shift), "{line}");
        let amount = number(shift.split_once(' ').unwrap().1);
        let signed = if shift.ends_with("less") { -amount } else { amount };
        assert_eq!(number(&cells(lazy, part)[4]) + signed, cost, "{part}");
    }
    assert!(!shown.contains("allreduce"), "on one rank there is none");
}

#[test]
fn by_difference_the_exchange_of_gradients_is_in_backward() {
    let project = TestProject::new();
    let mut trials = in_modes(&project, "lazy", 1);
    trials.iter_mut().for_each(|trial| trial.settings.launch.ranks = 2);
    let dir = project.submitted(12, "006_isolation", trials.clone());
    for trial in &trials {
        let mode = trial.settings.train.mode;
        let mut steps = in_mode(mode, 28, 5, [30, 20, 10], 0);
        if matches!(mode, Mode::ForwardBackward | Mode::Train) {
            for step in steps.iter_mut().filter(|step| step.measured) {
                step.exposed[Stage::Allreduce] = 7_000_000;
                step.wall_ns += 7_000_000;
            }
        }
        completed(&dir, trial, &[steps.clone(), steps]);
    }
    let shown = section(&project, "Isolation");
    assert!(shown.contains("by difference, allreduce (7 ms, exposed) is in backward"), "{shown}");
    let row = |name: &str| shown.lines().filter(|line| line.starts_with(&format!("| {name} |"))).collect::<Vec<_>>();
    assert!(row("backward").iter().any(|line| line.contains("| 27.000 |")), "{shown}");
    assert!(row("optimizer").iter().any(|line| line.matches("10.000").count() == 2), "{shown}");
}

#[test]
fn without_the_data_alone_there_is_nothing_to_take_apart() {
    let project = TestProject::new();
    let trials: Vec<Trial> = in_modes(&project, "lazy", 1).split_off(1);
    let dir = project.submitted(12, "006_isolation", trials.clone());
    trials.iter().for_each(|trial| completed(&dir, trial, &[in_mode(trial.settings.train.mode, 28, 5, [3, 2, 1], 0)]));
    assert_eq!(section(&project, "Isolation"), "");
}

#[test]
fn operations_inside_mask_and_collate_are_a_table_of_the_variants_that_time_them() {
    const MS: u64 = 1_000_000;
    let project = TestProject::new();
    let of = |variant: &str, repeat: u32, operations: bool| {
        project.trial(variant, variant, repeat, |settings| {
            settings.launch.ranks = 1;
            settings.profile.operations = operations;
        })
    };
    let trials: Vec<Trial> = (1..=3).flat_map(|repeat| [of("lazy", repeat, true), of("ids", repeat, false)]).collect();
    let dir = project.submitted(12, "006_masks", trials.clone());
    for trial in &trials {
        let mut ran = steps(100, 0);
        for step in ran.iter_mut().filter(|_| trial.settings.profile.operations) {
            let time = |stage, operation, ns| OperationTime { stage, operation, operand: "physical".into(), ns };
            step.operations =
                vec![time(Stage::Mask, Operation::Fill, 10 * MS), time(Stage::Collate, Operation::Copy, 150 * MS)];
        }
        completed(&dir, trial, &[ran]);
    }
    let shown = section(&project, "Inside mask and collate");
    // Of 28 samples; 20 ms of mask and 200 ms of collate.
    for row in [
        "| Stage | Of | fill (ms/step) | copy (ms/step) | Busy (ms/step) | Busy (ms/sample) | Share of the stage |",
        "| mask | physical | 10.000 | – | 10.000 | 0.357 | 50.0 % |",
        "| mask | unattributed | – | – | 10.000 | 0.357 | 50.0 % |",
        "| **mask** | **all** | **10.000** | **0.000** | **20.000** | **0.714** | **100.0 %** |",
        "| collate | physical | – | 150.000 | 150.000 | 5.357 | 75.0 % |",
        "| collate | unattributed | – | – | 50.000 | 1.786 | 25.0 % |",
    ] {
        assert!(shown.lines().any(|line| line == row), "{row}\n{shown}");
    }
    assert!(
        shown.contains("Mean of 60 steps of 28 samples.") && shown.contains("*mask* do not close: 50.0 %"),
        "{shown}"
    );
    assert!(shown.contains("#### lazy") && !shown.contains("#### ids"), "{shown}");
    let plain = TestProject::new();
    common::ledger::two_variants(&plain, 12);
    assert_eq!(section(&plain, "Inside mask and collate"), "");
}

#[test]
fn approximate_masks_are_warned_of_and_of_another_class() {
    let project = TestProject::new();
    let of = |variant: &str, repeat: u32, fraction: f64| {
        project.trial(variant, variant, repeat, |settings| {
            settings.launch.ranks = 1;
            settings.pipeline.mask_fraction = fraction;
        })
    };
    let trials: Vec<Trial> = (1..=3).flat_map(|repeat| [of("lazy", repeat, 1.0), of("half", repeat, 0.5)]).collect();
    let dir = project.submitted(12, "006_masks", trials.clone());
    for (trial, wall) in trials.iter().zip([100, 80, 102, 81, 98, 79]) {
        completed(&dir, trial, &[steps(wall, 0)]);
    }
    let said =
        "masks are approximate: an edge that a sample removes was masked with probability 0.5 (pipeline.mask_fraction)";
    let warnings = section(&project, "Warnings");
    assert!(warnings.contains(&format!("- half: {said}")), "{warnings}");
    let results = section(&project, "Where a step's time goes");
    let row = results.lines().find(|line| line.starts_with("| half |")).unwrap();
    assert!(row.contains(" † |"), "{row}");
    let why = "† half: not like for like with lazy: share of removed edges that are masked 1.0 → 0.5";
    assert!(results.contains(why), "{results}");
    assert!(project.expect(&["compare", "12"], 0).0.contains(said));
}

/// Epochs whose Pearson rises to `peak` at the third and falls from there.
fn epochs(n: u64, peak: f64, stopped: bool) -> Vec<LearningRecord> {
    let of = |epoch: u64| {
        let pearson = peak - 0.1 * (epoch as f64 - 2.0).abs();
        LearningRecord {
            epoch,
            step: 4 * (epoch + 1),
            learning_rate: 0.001,
            train_loss: 1.0 / (epoch + 1) as f64,
            validation: Some(Validation {
                samples: 1000,
                loss: 0.5 - pearson / 4.0,
                mse: 0.004 - pearson / 1000.0,
                pearson: Some(pearson),
                spearman: Some(pearson - 0.02),
                seconds: 1.5,
            }),
            best: epoch <= 2,
            stopped: stopped && epoch + 1 == n,
        }
    };
    (0..n).map(of).collect()
}

fn trained(project: &TestProject) {
    let change = |settings: &mut expctl_settings::Settings| {
        settings.launch.ranks = 1;
        settings.train.epochs = 8;
        settings.measure.steps = 30;
    };
    let trials = [
        project.trial("lazy", "Lazy", 1, change),
        project.trial("lazy", "Lazy", 2, change),
        project.trial("ids", "Ids", 1, change),
    ];
    let dir = project.submitted(12, "train", trials.to_vec());
    for (trial, (n, peak, stopped)) in trials.iter().zip([(5, 0.42, true), (5, 0.38, true), (8, 0.3, false)]) {
        let mut ran = steps(100, 0);
        if !stopped {
            // 2 + 30 steps, as many as its settings say.
            let more: Vec<StepRecord> = ran[2..12].to_vec();
            ran.extend(more);
            ran.iter_mut().enumerate().for_each(|(i, step)| step.step = i as u64);
        }
        completed(&dir, trial, &[ran]);
        let attempt = dir.attempts(&trial.id).unwrap().pop().unwrap();
        let records = epochs(n, peak, stopped);
        assert_eq!(stopped_early(&records), stopped);
        records.iter().for_each(|record| append_learning(&attempt.learning_path(), record).unwrap());
    }
}

#[test]
fn what_training_came_to_is_a_table_and_a_picture() {
    let project = TestProject::new();
    trained(&project);
    insta::assert_snapshot!(section(&project, "Learning"));
    let svg = std::fs::read_to_string(project.file("results/assets/images/train_12_learning.svg")).unwrap();
    for part in ["<svg", "training loss", "validation loss", "validation, Pearson", "lazy", "ids", "class=\"line"] {
        assert!(svg.contains(part), "{part}\n{svg}");
    }
}

#[test]
fn a_figure_that_is_missing_is_not_made_up() {
    let project = TestProject::new();
    let trials: Vec<Trial> = (1..=3)
        .map(|repeat| {
            project.trial("lazy", "Lazy", repeat, |settings| {
                settings.launch.ranks = 1;
                settings.train.epochs = 5;
            })
        })
        .collect();
    let dir = project.submitted(12, "train", trials.clone());
    for trial in &trials {
        completed(&dir, trial, &[steps(100, 0)]);
        let attempt = dir.attempts(&trial.id).unwrap().pop().unwrap();
        let mut records = epochs(5, 0.4, false);
        for record in &mut records {
            match trial.repeat {
                // Constant predictions have no correlation; a loss that is no number is the best of nothing.
                2 => record.validation.as_mut().unwrap().pearson = None,
                3 => record.best = false,
                _ => {}
            }
        }
        records.iter().for_each(|record| append_learning(&attempt.learning_path(), record).unwrap());
    }
    let shown = section(&project, "Learning");
    assert!(shown.contains("| lazy | 3 | 5 | 1 → 0.2 | best, – | – | – | – | – | – | as planned |"), "{shown}");
    let medians = "| lazy | 2 | 3 [3–3] | 0.4 [0.4–0.4] | 0.4 [0.4–0.4] (1 of 2) | 0.38 [0.38–0.38] |";
    assert!(shown.contains(medians), "{shown}");
    let table = project.expect(&["compare", "12"], 0).0;
    assert!(table.contains("| 0.4 (1 of 2) | 0.38 |"), "{table}");
    assert!(table.contains("- Pearson, Spearman, MSE: on the validation set at the best epoch"), "{table}");
}

#[test]
fn training_that_stopped_early_misses_nothing() {
    let project = TestProject::new();
    trained(&project);
    let (stdout, _) = project.expect(&["report", "12"], 0);
    let path = stdout.trim().replace("ROOT", project.path().to_str().unwrap());
    let note = std::fs::read_to_string(path).unwrap();
    let warnings = section(&project, "Warnings");
    assert!(warnings.contains("### Warnings") && !warnings.contains("measured steps"), "{warnings}");
    assert!(!note.contains(" of 30 measured steps"), "{note}");
    let (status, _) = project.expect(&["status", "12"], 0);
    let line = status.lines().find(|line| line.contains("lazy-r1")).unwrap();
    assert!(line.contains("22/22") && line.contains("stopped early, after epoch 5"), "{status}");
    let line = status.lines().find(|line| line.contains("ids-r1")).unwrap();
    assert!(line.contains("32/32"), "{status}");
}

#[test]
fn compare_has_columns_of_learning_where_there_is_any() {
    let project = TestProject::new();
    trained(&project);
    let table = project.expect(&["compare", "12"], 0).0;
    assert!(table.lines().next().unwrap().contains("| Pearson | Spearman | MSE |"), "{table}");
    // Medians of the best epochs: 0.42 and 0.38.
    assert!(table.contains("| **0.4** | **0.38** | **0.0036** |"), "{table}");
    let csv = project.expect(&["compare", "12", "--format", "csv"], 0).0;
    assert!(csv.lines().next().unwrap().ends_with(",pearson,spearman,mse"), "{csv}");
    common::ledger::two_variants(&project, 13);
    let table = project.expect(&["compare", "13"], 0).0;
    assert!(!table.contains("Pearson"), "{table}");
}

#[test]
fn an_epoch_has_its_time_and_the_first_one_its_own_rate() {
    let project = TestProject::new();
    in_epochs(&project, 12);
    // Below the table of step times.
    let shown = section(&project, "Step times");
    let (_, shown) = shown.split_once("\n| Variant | Time per epoch (s) |").unwrap();
    let row = |name: &str| -> Vec<String> {
        let line = shown.lines().find(|line| line.starts_with(&format!("| {name} |"))).unwrap();
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let (whole, single) = (row("epochs"), row("single"));
    // Two runs of which one is a tenth slower: 1.95 s, and 1.05 of that between them.
    let time: f64 = whole[1].parse().unwrap();
    assert!((time / 1.95 - 1.1f64.sqrt()).abs() < 0.01, "{shown}");
    assert_eq!((whole[3].as_str(), whole[4].as_str()), ("8 epochs of 2 runs", "measured"));
    assert_eq!((single[3].as_str(), single[4].as_str()), ("–", "derived"));
    // The first epoch collates for longer, and a single epoch has no later ones.
    let [first, later] = [&whole[5], &whole[6]].map(|cell| cell.parse::<f64>().unwrap());
    assert!(first < 0.75 * later && whole[7].starts_with("0.6"), "{shown}");
    assert_eq!(single[5..], ["–", "–", "–"]);
    assert!(shown.contains("Derived, where no epoch was measured whole"), "{shown}");
    let images = project.file("results/assets/images");
    for name in ["boxplot", "epoch_time", "rates"] {
        assert!(images.join(format!("fig1_12_{name}.png")).is_file(), "{name}");
    }
    let svg = std::fs::read_to_string(images.join("fig1_12_epoch_time.svg")).unwrap();
    for part in ["mean over epochs", "derived from the rate", "later epochs", "8 epochs of 2 runs each"] {
        assert!(svg.contains(part), "{part}: {svg}");
    }
    // No first epoch was measured whole.
    assert!(!svg.contains("first epoch"), "{svg}");
}
