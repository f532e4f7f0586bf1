//! `expctl report`, as a user runs it, on ledgers written by the record crate.

mod doubts;

use crate::common::TestProject;
use crate::common::ledger::{SUBMITTED, completed, finish, running, steps, sweep, two_variants};
use expctl::report::reference::ReferenceRecord;
use expctl_ledger::{DataRead, FileSize, JobDir, PerStage, Stage, StepRecord, TrialState, write_json};
use expctl_settings::{ArrayFormat, DeviceMasks, Draw, Estimator, Split, StoreKind};

fn note(project: &TestProject, code: i32) -> String {
    let (stdout, _) = project.expect(&["report", "12"], code);
    assert_eq!(stdout, "ROOT/results/086_ddp_12.md\n");
    std::fs::read_to_string(project.file("results/086_ddp_12.md"))
        .unwrap()
        .replace(project.path().to_str().unwrap(), "ROOT")
}

fn settings() -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.add_filter(r"id: [a-z0-9]{23}\n", "id: [ID]\n");
    settings.add_filter(r"(updated|created): \d{13}\n", "$1: [MS]\n");
    settings
}

#[test]
fn a_note_of_two_variants() {
    let project = TestProject::new();
    two_variants(&project, 12);
    std::fs::create_dir_all(project.data_dir()).unwrap();
    let manifest =
        r#"{"networks": [{"name": "physical", "class": "generated"}, {"name": "fusion", "class": "measured"}]}"#;
    std::fs::write(project.data_dir().join("manifest.json"), manifest).unwrap();
    settings().bind(|| insta::assert_snapshot!(note(&project, 0)));
}

#[test]
fn a_note_keeps_its_id_and_creation_time() {
    let project = TestProject::new();
    two_variants(&project, 12);
    let head = |text: &str, key: &str| text.lines().find(|l| l.starts_with(key)).unwrap().to_owned();
    let first = note(&project, 0);
    std::thread::sleep(std::time::Duration::from_millis(5));
    let second = note(&project, 0);
    assert_eq!(head(&first, "id:"), head(&second, "id:"));
    assert_eq!(head(&first, "created:"), head(&second, "created:"));
    // Nothing else changed.
    assert_eq!(first, second);
    let other = TestProject::new();
    two_variants(&other, 12);
    assert_ne!(head(&note(&other, 0), "id:"), head(&first, "id:"));
}

#[test]
fn the_note_of_another_submission_stays() {
    let head = |text: &str, key: &str| text.lines().find(|l| l.starts_with(key)).unwrap().to_owned();
    let submitted = |project: &TestProject, at: i64| {
        let trial = project.trial("lazy", "Lazy", 1, |_| {});
        let dir = project.submitted_as(12, "086_ddp", vec![trial.clone()], |record| record.submitted = at);
        if dir.attempts(&trial.id).unwrap().is_empty() {
            completed(&dir, &trial, &[steps(400, 0), steps(400, 0)]);
        }
    };
    let project = TestProject::new();
    submitted(&project, SUBMITTED);
    let first = note(&project, 0);
    assert!(first.contains("<!-- expctl: job 12, submitted 1767323045, config 086_ddp -->"), "{first}");
    // The same number again, as in a fresh clone or another ledger.
    for at in 1..=2 {
        submitted(&project, SUBMITTED + at);
        let (stdout, stderr) = project.expect(&["report", "12"], 0);
        assert_eq!(stdout, format!("ROOT/results/086_ddp_12-{}.md\n", at + 1));
        let said = "ROOT/results/086_ddp_12.md is not the note of this submission and stays as it is";
        assert!(stderr.contains(said), "{stderr}");
    }
    assert_eq!(std::fs::read_to_string(project.file("results/086_ddp_12.md")).unwrap(), first);
    let second = std::fs::read_to_string(project.file("results/086_ddp_12-2.md")).unwrap();
    assert_ne!(head(&first, "id:"), head(&second, "id:"));
    // Each is found again, across a gap too.
    std::fs::remove_file(project.file("results/086_ddp_12-2.md")).unwrap();
    let third = std::fs::read_to_string(project.file("results/086_ddp_12-3.md")).unwrap();
    assert_eq!(project.expect(&["report", "12"], 0).0, "ROOT/results/086_ddp_12-3.md\n");
    let again = std::fs::read_to_string(project.file("results/086_ddp_12-3.md")).unwrap();
    assert_eq!(head(&third, "id:"), head(&again, "id:"));
    submitted(&project, SUBMITTED);
    assert_eq!(head(&note(&project, 0), "created:"), head(&first, "created:"));
}

#[test]
fn a_sweep_is_compared_point_by_point() {
    let project = TestProject::new();
    sweep(&project, 12);
    let text = note(&project, 0);
    for (row, ratio) in [
        ("| **lazy (launch.ranks=1)** |", "| **baseline** |"),
        ("| **lazy (launch.ranks=2)** |", "| **baseline** |"),
        ("| ids (launch.ranks=1) |", "| 4.00× |"),
        ("| ids (launch.ranks=2) |", "| 5.00× |"),
        ("| ids (launch.ranks=4) |", "| – |"),
    ] {
        let line = text.lines().find(|l| l.starts_with(row)).unwrap();
        assert!(line.contains(ratio), "{line}");
    }
    assert!(text.contains("because the baseline was not run at the same point: ids (launch.ranks=4)"), "{text}");
}

#[test]
fn a_note_of_very_many_variants_has_the_ends_of_its_tables() {
    let project = TestProject::new();
    let on = |seed: u64| {
        let mut trial = project.trial("lazy", "Lazy", 1, |s| {
            s.loader.seed = seed;
            s.launch.ranks = 1;
        });
        trial.id = format!("lazy-{seed}-r1-0a1b2c");
        trial.point = std::collections::BTreeMap::from([("loader.seed".to_owned(), seed.into())]);
        trial
    };
    // Each is a little slower than the one before.
    let trials: Vec<_> = (0..130).map(on).collect();
    let dir = project.submitted(12, "086_ddp", trials.clone());
    for (trial, wall) in trials.iter().zip(100..) {
        completed(&dir, trial, &[steps(wall, 0)]);
    }
    let text = note(&project, 0);
    for said in [
        "\n| **lazy (loader.seed=0)** |",
        "\n| lazy (loader.seed=79) |",
        "\n| … 30 more |",
        "\n| lazy (loader.seed=110) |",
        "\n| lazy (loader.seed=129) |",
        "`expctl compare 12 --format csv` has all 130 variants.",
        " 100 of 130 variants, evenly from the slowest to the fastest.",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    for left_out in ["| lazy (loader.seed=80) |", "| lazy (loader.seed=109) |"] {
        assert!(!text.contains(left_out), "{left_out}: {text}");
    }
    let (csv, _) = project.expect(&["compare", "12", "--format", "csv"], 0);
    assert_eq!(csv.lines().count(), 131, "{csv}");
}

#[test]
fn the_summary_answers_first() {
    let project = TestProject::new();
    two_variants(&project, 12);
    let text = note(&project, 0);
    let summary = below(&text, "### Executive Summary").trim_start();
    let answer = "**Fastest: ids, 4.00× lazy (95 % 3.80–4.21, 3 runs each, derived)**\n";
    assert!(summary.starts_with(answer), "{summary}");
    let trust = "**Trust**: no warning that may change a verdict; measured for 2 s–8.2 s per run; 3 runs each\n";
    assert!(summary.contains(trust), "{text}");
    // The table follows, then pictures; what the writer says of them is the writer's.
    let order = ["### Executive Summary", "### Where a step's time goes", "### Pictures", "### Step times"];
    // What is not measured is said in the summary, and what is measured below the pictures.
    assert!(text.contains("\n\nMeasures: loading.\n") && text.matches("the optimizer").count() == 1, "{text}");
    let places = order.map(|heading| text.find(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("{heading}")));
    assert!(places.is_sorted(), "{places:?}");
    assert!(below(&text, "### Conclusions").trim().is_empty() && !text.contains("### Methods Tested"), "{text}");
}

/// A job of three repeats. For each variant: wall time of a step in each repeat, ms.
fn three_repeats(project: &TestProject, variants: &[(&str, [u64; 3])]) -> JobDir {
    let of = |(variant, _): &(&str, [u64; 3])| {
        (1..=3).map(|repeat| project.trial(variant, variant, repeat, |_| {})).collect()
    };
    let trials: Vec<Vec<_>> = variants.iter().map(of).collect();
    let dir = project.submitted(12, "086_ddp", trials.concat());
    for (trials, (_, walls)) in trials.iter().zip(variants) {
        for (trial, wall) in trials.iter().zip(walls) {
            completed(&dir, trial, &[steps(*wall, 0), steps(*wall, 0)]);
        }
    }
    dir
}

#[test]
fn the_summary_says_why_nobody_is_the_fastest() {
    let answer = |variants: &[(&str, [u64; 3])]| {
        let project = TestProject::new();
        three_repeats(&project, variants);
        let text = note(&project, 0);
        below(&text, "### Executive Summary").trim_start().lines().next().unwrap().to_owned()
    };
    let starts = |variants: &[(&str, [u64; 3])], said: &str| {
        let found = answer(variants);
        assert!(found.starts_with(said), "{found}");
    };
    let base = ("fast", [100, 101, 99]);
    starts(&[base, ("slow", [400, 410, 390])], "**Fastest: fast (the baseline); next: slow, 0.25× fast (95 % 0.2");
    // With one that may be as fast, nobody is.
    let both = [base, ("slow", [400, 410, 390]), ("like", [99, 101, 100])];
    starts(&both, "**No variant is shown to be faster than fast; largest ratio: like, 1.00× fast (95 % 0.9");
    // 20 steps of 30 ms.
    let short = [("fast", [30, 31, 29]), ("slow", [40, 41, 39])];
    let said =
        "**No verdict against fast: measured too briefly (less than 1 s per run); largest ratio: slow, 0.75× fast (";
    starts(&short, said);
}

#[test]
fn a_summary_names_the_bottleneck_of_the_rows_that_answer() {
    let project = TestProject::new();
    let variants = ["base", "quick", "other"].map(|name| (name, name));
    let trials: Vec<_> = variants
        .iter()
        .flat_map(|(name, method)| {
            (1..=3).map(|repeat| project.trial(name, method, repeat, |_| {})).collect::<Vec<_>>()
        })
        .collect();
    let dir = project.submitted(12, "086_ddp", trials.clone());
    for trial in &trials {
        let wall = match trial.variant.as_str() {
            "base" => 400,
            "quick" => 100,
            _ => 200,
        } + u64::from(trial.repeat);
        let mut ranks = [steps(wall, 0), steps(wall, 0)];
        for step in ranks.iter_mut().flatten() {
            step.exposed[Stage::Collate] = step.wall_ns / 10 * 7;
        }
        completed(&dir, trial, &ranks);
    }
    let text = note(&project, 0);
    let summary = below(&text, "### Executive Summary");
    for (name, shown) in [("base", true), ("quick", true), ("other", false)] {
        assert_eq!(summary.contains(&format!("`{name}`")), shown, "{name}: {summary}");
        // The table has all.
        assert!(cells(&text, name).contains(&"collate 70.0 %".to_owned()), "{name}");
    }
}

#[test]
fn a_job_without_a_completed_run_answers_nothing() {
    let project = TestProject::new();
    let trials = [project.trial("lazy", "Lazy", 1, |_| {}), project.trial("ids", "Ids only", 1, |_| {})];
    let dir = project.submitted(12, "086_ddp", trials.to_vec());
    let ranks = [steps(100, 0), steps(100, 0)];
    for trial in &trials {
        finish(&running(&dir, trial, &ranks), &ranks, TrialState::Failed, "rank 0 was killed by signal 9 SIGKILL");
    }
    let text = note(&project, 5);
    let summary = below(&text, "### Executive Summary");
    assert!(summary.contains("**No run completed**") && summary.contains("not known: no run completed"), "{summary}");
}

#[test]
fn the_best_point_of_each_variant_is_named() {
    let project = TestProject::new();
    let on = |variant: &str, workers: u32| {
        let mut trial = project.trial(variant, variant, 1, |s| s.loader.workers = workers);
        trial.id = format!("{variant}-{workers}-r1-0a1b2c");
        trial.point = [("loader.workers".to_owned(), workers.into())].into();
        trial
    };
    let trials = [on("lazy", 1), on("lazy", 2), on("ids", 1), on("ids", 2), on("ids", 4)];
    let dir = project.submitted(12, "086_ddp", trials.to_vec());
    for (trial, wall) in trials.iter().zip([200, 400, 100, 40, 20]) {
        completed(&dir, trial, &[steps(wall, 0), steps(wall, 0)]);
    }
    let text = note(&project, 0);
    let summary = below(&text, "### Executive Summary");
    for line in [
        "**No verdict against lazy at each of its 2 points: too few runs (3 needed on both sides); largest ratio: ids",
        "- **Best points** (derived): lazy: best at loader.workers=1 (its first point; medians of samples/s, no test); ids: best at \
         loader.workers=4 (5.00× its first point; medians of samples/s, no test)\n",
    ] {
        assert!(summary.contains(line), "{line}: {summary}");
    }
    let picture = "![Samples per second of each variant against loader.workers.](assets/images/086_ddp_12_sweep.svg)";
    assert!(text.contains(picture), "{text}");
    assert!(project.file("results/assets/images/086_ddp_12_sweep.svg").is_file());
    // Trials are named with their points, and status shows them.
    assert!(text.contains("| ids-4-r1-0a1b2c (loader.workers=4) | completed |"), "{text}");
    let (table, _) = project.expect(&["status", "12"], 0);
    let head = table.lines().next().unwrap();
    assert!(head.contains(" point ") && head.contains(" took "), "{table}");
    assert!(table.contains("loader.workers=4"), "{table}");
    // More ranks do more work at once: they are no alternatives.
    let other = TestProject::new();
    sweep(&other, 12);
    let text = note(&other, 0);
    assert!(!text.contains(": best at ") && !text.contains("_sweep.svg"), "{text}");
}

/// A single rank has no other to wait for, and what did not happen has no row.
#[test]
fn sections_leave_out_what_says_nothing() {
    let project = TestProject::new();
    let trial = project.trial("lazy", "Lazy", 1, |s| s.launch.ranks = 1);
    let dir = project.submitted(12, "086_ddp", vec![trial.clone()]);
    completed(&dir, &trial, &[steps(100, 0)]);
    let text = note(&project, 0);
    assert!(!text.contains("### Ranks") && !text.contains("| decode |"), "{text}");
    assert!(text.contains("| collate |") && text.contains("| mask |"), "{text}");
    let common = below(&text, "### Configuration");
    assert!(common.contains("batch_size = 28") && !common.contains("gradient_compression"), "{common}");
    // The method says no more than the variant.
    assert!(!text.contains("| Method |"), "{text}");
}

#[test]
fn a_baseline_that_was_not_run_is_not_replaced() {
    let project = TestProject::new();
    let trials = [project.trial("ids", "Ids only", 1, |_| {}), project.trial("shared", "Shared", 1, |_| {})];
    for named in [Some("lazy"), None] {
        let dir = project.submitted_as(12, "086_ddp", trials.to_vec(), |r| r.baseline = named.map(str::to_owned));
        trials.iter().for_each(|trial| completed(&dir, trial, &[steps(400, 0), steps(400, 0)]));
        let text = note(&project, 0);
        let said = text.contains("- the baseline `lazy` was not run, so there are no ratios");
        assert_eq!((said, text.contains("1.00×")), (named.is_some(), named.is_none()), "{text}");
    }
}

/// Ratios have one direction, above 1 is faster; a variant of less than half the rate is also said to be so many times slower.
#[test]
fn a_much_slower_variant_is_said_the_other_way_up() {
    let project = TestProject::new();
    let of = |repeat: u32| ["ids", "lazy"].map(|variant| project.trial(variant, variant, repeat, |_| {}));
    let trials: Vec<_> = (1..=3).flat_map(of).collect();
    let dir = project.submitted_as(12, "086_ddp", trials.clone(), |r| r.baseline = Some("ids".to_owned()));
    for trial in &trials {
        let wall = match trial.variant.as_str() {
            "ids" => 96 + 2 * u64::from(trial.repeat),
            _ => 450 + 10 * u64::from(trial.repeat),
        };
        completed(&dir, trial, &[steps(wall, 0), steps(wall, 0)]);
    }
    let text = note(&project, 0);
    let row = text.lines().find(|line| line.starts_with("| lazy |") && line.ends_with("| 2.128 |")).unwrap();
    assert!(row.contains("| 0.21× [") && row.contains("(4.70× slower) | slower |"), "{row}");
    // 470 ms for 28 samples, whatever the number of ranks.
    assert!(cells(below(&text, "### Step times"), "lazy").contains(&"16.79".to_owned()), "{text}");
    assert!(text.contains("\n**Fastest: ids (the baseline); next: lazy, 0.21× ids ("), "{text}");
    let (table, _) = project.expect(&["compare", "12"], 0);
    assert!(table.contains("(−79 %, 4.70× slower) in samples/s") && table.contains("| 16.79 |"), "{table}");
}

#[test]
fn failed_and_lost_trials_are_told_and_not_counted() {
    let project = TestProject::new();
    let trials: Vec<_> = (1..=3).map(|r| project.trial("lazy", "Lazy", r, |_| {})).collect();
    let dir = project.submitted(12, "086_ddp", trials.clone());
    completed(&dir, &trials[0], &[steps(400, 80), steps(400, 8)]);
    // Ten times as fast: would be seen, if it were counted.
    let fast = [steps(40, 8), steps(40, 8)];
    finish(&running(&dir, &trials[1], &fast), &fast, TrialState::Failed, "rank 1 was killed by signal 9 SIGKILL");
    let failed = project.expect(&["report", "12"], 6);
    assert!(failed.1.contains("1 of 3 trials did not end"), "{}", failed.1);
    running(&dir, &trials[2], &fast);
    let text = note(&project, 6);
    let row = cells(&text, "lazy");
    assert!(row[..3] == ["lazy", "140", "baseline"] && row[5] == "1" && text.contains("| **14.29** |"), "{text}");
    assert!(text.contains("1 completed, 1 failed, 1 running or lost"), "{text}");
    assert!(
        text.contains("- trial lazy-r2-0a1b2c is not counted, failed: rank 1 was killed by signal 9 SIGKILL"),
        "{text}"
    );
    assert!(text.contains("n = 1, so nothing can be said"), "{text}");
    finish(&running(&dir, &trials[2], &fast), &fast, TrialState::Completed, "");
    let text = note(&project, 5);
    assert!(text.contains("| lazy-r3-0a1b2c | completed | 2 | 22 |"), "{text}");
    assert!(text.contains("trial lazy-r3-0a1b2c took 2 attempts"), "{text}");
}

#[test]
fn a_ddp_step_is_as_slow_as_its_slowest_rank() {
    let project = TestProject::new();
    let trial = project.trial("lazy", "Lazy", 1, |_| {});
    let dir = project.submitted(12, "086_ddp", vec![trial.clone()]);
    completed(&dir, &trial, &[steps(100, 0), steps(200, 0)]);
    let text = note(&project, 0);
    // 5 it/s of rank 1; 28/0.1 + 28/0.2 samples/s.
    assert!(text.contains("| **lazy** | **420** | **baseline** |") && text.contains("| **5** |"), "{text}");
    assert!(text.contains("| 0 | node0 | 10 | 280 | 100 | 0.0 % | – |"), "{text}");
    assert!(text.contains("| 1 | node1 | 5 | 140 | 200 | 100.0 % | – |"), "{text}");
}

#[test]
fn storage_is_what_was_recorded_when_it_was_read() {
    let project = TestProject::new();
    let trials = [
        project.trial("lazy", "Lazy", 1, |_| {}),
        project.trial("compressed", "Compressed", 1, |s| s.pipeline.store = StoreKind::Compressed),
        project.trial("older", "Older", 1, |_| {}),
    ];
    let dir = project.submitted(12, "086_ddp", trials.to_vec());
    let size = |allocated_bytes| FileSize { apparent_bytes: 10_000_000_000, allocated_bytes };
    let base = size(3_800_000_000);
    for (trial, read) in trials.iter().zip([
        Some((StoreKind::Json, base, 332_313)),
        Some((StoreKind::Compressed, size(8_800_000_000), 10_000)),
        None,
    ]) {
        completed(&dir, trial, &[steps(400, 80), steps(400, 8)]);
        let Some((store, size, selected)) = read else { continue };
        let read = DataRead {
            store: Some(store),
            records: 332_313,
            selected,
            asked: None,
            buffer_bytes: 0,
            size,
            base_size: Some(base),
            array: None,
        };
        write_json(&dir.attempts(&trial.id).unwrap()[0].data_path(), &read).unwrap();
    }
    // What lies there when the note is written was not read.
    std::fs::create_dir_all(project.data_dir()).unwrap();
    std::fs::write(project.data_dir().join("later"), vec![1; 100_000]).unwrap();
    let text = note(&project, 0);
    let (compared, _) = project.expect(&["compare", "12"], 0);
    for (variant, method, storage) in
        [("**lazy**", "**Lazy**", "**3.8 GB**"), ("compressed", "Compressed", "8.8 GB (2.3×)"), ("older", "Older", "–")]
    {
        let times = below(&text, "### Step times");
        let of_note = times.lines().find(|l| l.starts_with(&format!("| {variant} |"))).unwrap();
        let of_table = compared.lines().find(|l| l.contains(&format!("| {method} |"))).unwrap();
        for line in [of_note, of_table] {
            assert!(line.contains(&format!("| {storage} |")), "{storage}: {line}");
        }
    }
    let read = [
        "- lazy: 332,313 of 332,313 samples of the store json, 3.8 GB on disk (10 GB long)\n",
        "- compressed: 10,000 of 332,313 samples of the store compressed, 8.8 GB on disk (10 GB long); base store 3.8 GB on",
        "- older: –\n",
        "rows differ in (in this order: lazy, compressed, older): pipeline.store json/compressed/json",
    ];
    read.iter().for_each(|line| assert!(text.contains(line), "{line}: {text}"));
    // A damaged record costs the storage, not the steps.
    std::fs::write(dir.attempts(&trials[0].id).unwrap()[0].data_path(), "{").unwrap();
    assert!(note(&project, 0).contains("| **1101.9** | **–** |"));
}

#[test]
fn the_bottleneck_is_named_where_there_is_one() {
    let project = TestProject::new();
    let trials = [project.trial("lazy", "Lazy", 1, |_| {}), project.trial("ids", "Ids only", 1, |_| {})];
    let dir = project.submitted(12, "086_ddp", trials.to_vec());
    // 300 of 400 ms wait for collate; the threads work 600 ms on masks.
    let mut waiting = steps(400, 0);
    for step in &mut waiting {
        step.exposed[Stage::Collate] = step.wall_ns / 4 * 3;
        step.busy[Stage::Mask] = step.wall_ns * 6;
    }
    completed(&dir, &trials[0], &[waiting.clone(), waiting]);
    completed(&dir, &trials[1], &[steps(100, 0), steps(100, 0)]);
    let text = note(&project, 0);
    assert!(text.contains("| **collate 75.0 %** | **mask 75.0 %** |"), "{text}");
    let cause = "- **Bottleneck** (measured): `ids` waits 50.0 % of a step for *collate*; `lazy`, the baseline, waits 75.0 % of a step for \
                 *collate*\n";
    assert!(text.contains(cause), "{text}");
    let (json, _) = project.expect(&["compare", "12", "--json"], 0);
    let all: serde_json::Value = serde_json::from_str(&json).unwrap();
    let line = &all["groups"][0]["lines"][0];
    assert_eq!(line["bottleneck"]["waits_for"], serde_json::json!({ "stage": "collate", "share": 0.75 }));
    assert_eq!(line["bottleneck"]["works_on"], serde_json::json!({ "stage": "mask", "share": 0.75 }));
    assert_eq!(line["batch_bytes"], 1_155_400_000.0);
}

#[test]
fn a_published_timer_stands_beside_the_right_rate() {
    let project = TestProject::new();
    let trial = project.trial("lazy", "Lazy", 1, |_| {});
    let named = vec![Estimator::TimerAfterArrival];
    let dir = project.submitted_as(12, "086_ddp", vec![trial.clone()], |record| record.estimators = named);
    // Half of each step waits for collate; rank 1 takes twice as long.
    completed(&dir, &trial, &[steps(100, 0), steps(200, 0)]);
    let text = note(&project, 0);
    assert!(text.contains("| lazy | 10 | 840 | 2.00× | 1 |"), "{text}");
    let said = "`timer_after_arrival` (estimated from the same steps; no ratio and no verdict rests on it): starts after the batch has \
                arrived; fetch, masks and collation are not";
    assert!(text.contains(said), "{text}");
    let no_copy = "No copy to a device was made here; the published figure was the rate of that copy.";
    assert!(text.contains(no_copy), "{text}");
    // Masks that are made in the step cannot be told from the loader's.
    let on_device = project.trial("device", "Device", 1, |s| s.pipeline.device_masks = DeviceMasks::Looped);
    let both = vec![trial.clone(), on_device.clone()];
    let dir =
        project.submitted_as(12, "086_ddp", both, |record| record.estimators = vec![Estimator::TimerAfterArrival]);
    completed(&dir, &on_device, &[steps(100, 0), steps(200, 0)]);
    let text = note(&project, 0);
    assert!(text.contains("| lazy | 10 | 840 |") && text.contains("| device | – | – | – | 0 |"), "{text}");
    // One step that copied something is enough.
    let copied = project.trial("copied", "Copied", 1, |_| {});
    let named = vec![Estimator::TimerAfterArrival];
    let dir = project.submitted_as(13, "086_ddp", vec![trial.clone(), copied.clone()], |r| r.estimators = named);
    let mut with_copy = steps(100, 0);
    with_copy[5].bytes_to_device = 1;
    completed(&dir, &trial, &[steps(100, 0), steps(100, 0)]);
    completed(&dir, &copied, &[steps(100, 0), with_copy]);
    project.expect(&["report", "13"], 0);
    let text = std::fs::read_to_string(project.file("results/086_ddp_13.md")).unwrap();
    assert!(text.contains("Estimated, as published") && !text.contains(no_copy), "{text}");
    // Nobody asked for it: nothing of it.
    project.submitted_as(12, "086_ddp", vec![trial], |_| {});
    assert!(!note(&project, 0).contains("as published"));
}

#[test]
fn jobs_without_steps_are_refused() {
    let project = TestProject::new();
    let (stdout, stderr) = project.expect(&["report", "392"], 7);
    assert!(stdout.is_empty() && stderr.contains("job 392 is published, not measured here"), "{stderr}");
    let (_, stderr) = project.expect(&["report", "999"], 7);
    assert!(stderr.contains("there is no job 999"), "{stderr}");
}

/// Steps of 10 ms in the shares of `exposed`, µs.
fn shared(exposed: &[(Stage, u64)], wall_us: u64) -> Vec<StepRecord> {
    let mut all = steps(10, 0);
    for step in all.iter_mut().filter(|step| step.measured) {
        (step.exposed, step.busy) = (PerStage::default(), PerStage::default());
        exposed.iter().for_each(|(stage, us)| step.exposed[*stage] = us * 1000);
        step.wall_ns = wall_us * 1000;
    }
    all
}

/// The part of a note below a heading, up to the next one of the same level.
fn below<'a>(note: &'a str, heading: &str) -> &'a str {
    let (_, rest) = note.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("{heading}: {note}"));
    let level = heading.split(' ').next().unwrap();
    rest.split(&format!("\n{level} ")).next().unwrap()
}

/// The cells of the row of a table that begins with `first`.
fn cells(text: &str, first: &str) -> Vec<String> {
    let row = text.lines().find(|line| line.replace('*', "").starts_with(&format!("| {first} |")));
    let row = row.unwrap_or_else(|| panic!("no row {first}: {text}")).replace('*', "");
    row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
}

#[test]
fn one_figure_has_the_same_digits_in_every_section() {
    use Stage::{Backward, Collate, Decode, Forward, Mask, Other, Read};
    let project = TestProject::new();
    // Thirds and halves of a last digit, which two ways of rounding would show differently; of `dango` *other* is the longest wait.
    let lazy = [(Backward, 5_133_500u64), (Forward, 4_378_500), (Read, 162_167), (Collate, 162_166), (Mask, 162_667)];
    let dango = [(Other, 6_066_500), (Decode, 1_986_667), (Collate, 986_667), (Read, 926_666)];
    let lazy: Vec<(Stage, u64)> = lazy.into_iter().map(|(stage, ns)| (stage, ns / 1000)).collect();
    let dango: Vec<(Stage, u64)> = dango.into_iter().map(|(stage, ns)| (stage, ns / 1000)).collect();
    let trials = [project.trial("lazy", "Lazy", 1, |_| {}), project.trial("dango", "Dango", 1, |_| {})];
    let dir = project.submitted(12, "086_ddp", trials.to_vec());
    for (trial, exposed) in trials.iter().zip([&lazy, &dango]) {
        completed(&dir, trial, &[shared(exposed, 9_999), shared(exposed, 9_999)]);
    }
    let note = note(&project, 0);
    for (variant, exposed, longest) in [("lazy", &lazy, Backward), ("dango", &dango, Other)] {
        let stages = below(&note, "### Stage by stage");
        let names = cells(stages, "Variant");
        let row = cells(stages, variant);
        let of = |stage: Stage| &row[names.iter().position(|name| *name == stage.name()).unwrap()];
        for (stage, us) in exposed {
            let (ms, share) = of(*stage).split_once(" (").unwrap();
            let share = share.trim_end_matches(')');
            // Each is the raw figure, rounded by itself.
            assert_eq!(ms, format!("{:.3}", *us as f64 / 1e3), "{variant} {stage}");
            assert!((share.trim_end_matches(" %").parse::<f64>().unwrap() - *us as f64 / 99.99).abs() <= 0.0501);
        }
        let share = of(longest).split_once(" (").unwrap().1.trim_end_matches(')');
        let row = cells(below(&note, "### Where a step's time goes"), variant);
        assert!(row.contains(&format!("{longest} {share}")), "{share}: {row:?}");
        let summary = below(&note, "### Executive Summary");
        assert!(summary.contains(&format!(" {share} of a step ")), "{share}: {summary}");
    }
    // The rates of the table are those of the comparison and of the JSON.
    let all: serde_json::Value =
        serde_json::from_str(&project.expect(&["compare", "12", "--format", "json"], 0).0).unwrap();
    let status: serde_json::Value = serde_json::from_str(&project.expect(&["status", "12", "--json"], 0).0).unwrap();
    for (i, variant) in ["lazy", "dango"].into_iter().enumerate() {
        let line = all["groups"][0]["lines"].as_array().unwrap().iter().find(|line| line["label"] == variant).unwrap();
        for key in ["it_per_s", "samples_per_s"] {
            assert_eq!(line[key][0], status[i][key], "{variant} {key}");
        }
    }
}

#[test]
fn a_reference_record_gives_the_ratios_of_compare() {
    let project = TestProject::new();
    two_variants(&project, 12);
    let file = project.file("records/two.json");
    project.expect(&["report", "12", "--record", file.to_str().unwrap()], 0);
    let record = ReferenceRecord::read(&file).unwrap();
    let (json, _) = project.expect(&["compare", "12", "--json"], 0);
    let compared: serde_json::Value = serde_json::from_str(&json).unwrap();
    let lines: Vec<&serde_json::Value> =
        compared["groups"].as_array().unwrap().iter().flat_map(|group| group["lines"].as_array().unwrap()).collect();
    let base = lines.iter().find(|line| line["baseline"] == true).unwrap()["label"].as_str().unwrap();
    let mut ratios = 0;
    for line in lines {
        let label = line["label"].as_str().unwrap();
        let figures = record.variant(label).unwrap();
        assert_eq!(serde_json::json!(figures.samples_per_s), line["samples_per_s"], "{label}");
        assert_eq!(serde_json::json!(figures.repeats), line["repeats"], "{label}");
        if !line["ratio_samples_per_s"].is_null() {
            let (ratio, _) = record.ratio(label, base).unwrap().unwrap();
            assert_eq!(serde_json::to_value(ratio).unwrap(), line["ratio_samples_per_s"], "{label}");
            ratios += 1;
        }
        let waits = line["bottleneck"]["waits_for"].clone();
        let (stage, share) = figures.waits_for().unwrap();
        assert_eq!((waits["stage"].as_str(), waits["share"].as_f64()), (Some(stage), Some(share)), "{label}");
    }
    assert!(ratios > 0);
    assert!(record.ratio("lazy", "nothing").unwrap_err().to_string().contains("no variant nothing"));
    assert!(record.flaws.is_empty() && record.commit.as_deref() == Some("0123abc"));
    // What was written is what is read.
    record.write(&project.file("again.json")).unwrap();
    assert_eq!(ReferenceRecord::read(&project.file("again.json")).unwrap(), record);
    std::fs::write(&file, "{\"schema\": 2}").unwrap();
    assert!(ReferenceRecord::read(&file).unwrap_err().to_string().contains("has the form 2"));
}

#[test]
fn a_reference_record_of_changes_or_of_an_incomplete_job_is_refused() {
    let project = TestProject::new();
    let submitted = |id: u64, commit: Option<&str>, state: TrialState| {
        let trial = project.trial("lazy", "Lazy", 1, |_| {});
        let change = |record: &mut expctl_ledger::JobRecord| record.commit = commit.map(str::to_owned);
        let dir = project.submitted_as(id, "086_ddp", vec![trial.clone()], change);
        let ranks = [steps(10, 1), steps(10, 1)];
        finish(&running(&dir, &trial, &ranks), &ranks, state, "a reason");
    };
    let file = project.file("record.json");
    let record = |id: &str, code: i32, more: &[&str]| {
        let _ = std::fs::remove_file(&file);
        let args = [&["report", id, "--record", file.to_str().unwrap()], more].concat();
        project.expect(&args, code).1
    };
    submitted(1, Some("0123456789ab-dirty"), TrialState::Completed);
    let said = record("1", 7, &[]);
    assert!(said.contains("job 1 ran from a working tree with changes (0123456789ab-dirty)"), "{said}");
    assert!(!file.exists());
    record("1", 0, &["--force"]);
    assert_eq!(ReferenceRecord::read(&file).unwrap().flaws.len(), 1);
    submitted(2, None, TrialState::Completed);
    assert!(record("2", 7, &[]).contains("does not say of which commit"));
    submitted(3, Some("0123456789ab"), TrialState::Failed);
    assert!(record("3", 6, &[]).contains("1 trials of job 3 did not complete"));
    assert!(!file.exists());
    submitted(4, Some("0123456789ab"), TrialState::Completed);
    record("4", 0, &[]);
    let whole = ReferenceRecord::read(&file).unwrap();
    assert_eq!((whole.flaws.len(), whole.variants["lazy"].samples_per_s.len()), (0, 1));
}
