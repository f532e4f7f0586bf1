//! `expctl report`, as a user runs it, on ledgers written by the record crate.

use expctl::report::reference::ReferenceRecord;
use expctl_ledger::{DataRead, FileSize, JobDir, PerStage, Stage, StepRecord, TrialState, write_json};
use expctl_settings::{ArrayFormat, DeviceMasks, Draw, Estimator, Split, StoreKind};

use crate::common::TestProject;
use crate::common::ledger::{SUBMITTED, completed, finish, running, steps, sweep, two_variants};

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
    let row = text.lines().find(|line| line.starts_with("| lazy | lazy | 2.128 |")).unwrap();
    // 470 ms for 28 samples, whatever the number of ranks.
    assert!(row.contains("| 16.79 | 0.21× [") && row.contains("(4.70× slower) |"), "{row}");
    let finding =
        text.lines().find(|line| line.starts_with("**Finding** (derived): lazy: slower than ids, 0.21× [")).unwrap();
    assert!(finding.contains("(−79 %, 4.70× slower) in samples/s (n = 3 and 3)"), "{finding}");
    let (table, _) = project.expect(&["compare", "12"], 0);
    assert!(table.contains("(−79 %, 4.70× slower) in samples/s") && table.contains("| 16.79 |"), "{table}");
}

/// Cut the table of a rank off.
fn damage(dir: &JobDir, trial: &str) {
    let path = dir.attempts(trial).unwrap().pop().unwrap().steps_path(1);
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(path, &whole[..whole.len() / 2]).unwrap();
}

#[test]
fn a_damaged_file_hides_its_own_trial_only() {
    let project = TestProject::new();
    let dir = two_variants(&project, 12);
    damage(&dir, "ids-r2-0a1b2c");
    let (_, stderr) = project.expect(&["report", "12"], 6);
    assert!(stderr.contains("1 of 6 trials cannot be read: ids-r2-0a1b2c"), "{stderr}");
    let text = note(&project, 6);
    assert!(text.contains("2 completed, 1 unreadable") && text.contains("| **lazy** | **Lazy** | **2.5** |"), "{text}");
    let reason = "rank-1.parquet is not a valid table";
    let warning = text.lines().find(|l| l.starts_with("- trial ids-r2-0a1b2c is not counted, unreadable: ")).unwrap();
    assert!(warning.contains(reason), "{warning}");
    let (stdout, _) = project.expect(&["compare", "12"], 6);
    assert!(stdout.contains("| 12 | 086_ddp | Ids only | 10") && stdout.contains(reason), "{stdout}");
    // Steps that are gone altogether are no completed run either.
    let attempt = dir.attempts("lazy-r1-0a1b2c").unwrap().pop().unwrap();
    std::fs::remove_file(attempt.steps_path(0)).unwrap();
    assert!(note(&project, 6).contains("lazy-r1-0a1b2c is not counted, unreadable: the steps of rank 0 are gone"));
    // A failure stays one, with its reason.
    let steps = [steps(400, 80), steps(400, 8)];
    let attempt = dir.attempts("lazy-r2-0a1b2c").unwrap().pop().unwrap();
    finish(&attempt, &steps, TrialState::Failed, "rank 1 was killed");
    damage(&dir, "lazy-r2-0a1b2c");
    let text = note(&project, 6);
    let warning = text.lines().find(|l| l.starts_with("- trial lazy-r2-0a1b2c is not counted")).unwrap();
    assert!(warning.contains("failed: rank 1 was killed; ") && warning.contains(reason), "{warning}");
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
    assert!(text.contains("| **lazy** | **Lazy** | **2.5** | **140** | **14.29** | **baseline** | **1** |"), "{text}");
    assert!(text.contains("1 completed, 1 failed, 1 running or lost"), "{text}");
    assert!(
        text.contains("- trial lazy-r2-0a1b2c is not counted, failed: rank 1 was killed by signal 9 SIGKILL"),
        "{text}"
    );
    assert!(text.contains("n = 1, so nothing can be said"), "{text}");
    finish(&running(&dir, &trials[2], &fast), &fast, TrialState::Completed, "");
    let text = note(&project, 5);
    assert!(text.contains("| lazy-r3-0a1b2c | 3 | completed | 2 | 22 |"), "{text}");
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
    assert!(text.contains("| **5** | **420** |"), "{text}");
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
        let of_note = text.lines().find(|l| l.starts_with(&format!("| {variant} | {method} |"))).unwrap();
        let of_table = compared.lines().find(|l| l.contains(&format!("| {method} |"))).unwrap();
        for line in [of_note, of_table] {
            assert!(line.contains(&format!("| {storage} |")), "{storage}: {line}");
        }
    }
    let read = [
        "- lazy: 332,313 of 332,313 samples of the store json, 3.8 GB on disk (10 GB long)\n",
        "- compressed: 10,000 of 332,313 samples of the store compressed, 8.8 GB on disk (10 GB long); base store 3.8 GB on",
        "- older: –\n",
        "not the same in all rows: pipeline.store json/compressed/json",
    ];
    read.iter().for_each(|line| assert!(text.contains(line), "{line}: {text}"));
    // A damaged record costs the storage, not the steps.
    std::fs::write(dir.attempts(&trials[0].id).unwrap()[0].data_path(), "{").unwrap();
    assert!(note(&project, 0).contains(
        "| **lazy** | **Lazy** | **2.5** | **140** | **14.29** | **baseline** | **1** | **1101.9** | **–** |"
    ));
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
    assert!(text.contains("- a step of `lazy` waits 75.0 % of its time for *collate*\n"), "{text}");
    assert!(text.contains("- a step of `ids`: no stage has more than half of its time\n"), "{text}");
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
    assert!(text.contains("| lazy | 5 | 10 | 420 | 840 | 2.00× | 1 |"), "{text}");
    assert!(
        text.contains(
            "Estimated, as published: starts after the batch has arrived; fetch, masks and collation are not"
        )
    );
    let no_copy = "No copy to a device was made here; the published figure was the rate of that copy.";
    assert!(text.contains(no_copy), "{text}");
    // Masks that are made in the step cannot be told from the loader's.
    let on_device = project.trial("device", "Device", 1, |s| s.pipeline.device_masks = DeviceMasks::Looped);
    let both = vec![trial.clone(), on_device.clone()];
    let dir =
        project.submitted_as(12, "086_ddp", both, |record| record.estimators = vec![Estimator::TimerAfterArrival]);
    completed(&dir, &on_device, &[steps(100, 0), steps(200, 0)]);
    let text = note(&project, 0);
    assert!(text.contains("| lazy | 5 | 10 |") && text.contains("| device | 5 | – | 420 | – | – | 0 |"), "{text}");
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

/// Write what the attempt of a trial read.
fn read(dir: &JobDir, trial: &str, selected: u64, asked: Option<u64>, buffer_bytes: u64) {
    let size = FileSize { apparent_bytes: 10_000_000, allocated_bytes: 4_000_000 };
    let (store, base_size) = (Some(StoreKind::Json), Some(size));
    let read = DataRead { store, records: 1000, selected, asked, buffer_bytes, size, base_size, array: None };
    write_json(&dir.attempts(trial).unwrap()[0].data_path(), &read).unwrap();
}

#[test]
fn a_loader_that_did_other_than_its_settings_say_is_told() {
    let project = TestProject::new();
    // Batches of 1101.875… MiB each; 4 workers × 2.
    const BATCH: u64 = 1_155_400_000;
    let few = |s: &mut expctl_settings::Settings| s.measure.steps = 3;
    let inline = |s: &mut expctl_settings::Settings| s.loader.workers = 0;
    let trials = [
        project.trial("enough", "Enough", 1, |_| {}),
        project.trial("lazy", "Lazy", 1, |_| {}),
        project.trial("same", "Same", 1, |_| {}),
        project.trial("least", "Least", 1, |_| {}),
        project.trial("brief", "Brief", 1, few),
        project.trial("brief_and_little", "Brief, little", 1, few),
        project.trial("inline", "Inline", 1, inline),
        project.trial("older", "Older", 1, |_| {}),
    ];
    let dir = project.submitted(12, "086_ddp", trials.to_vec());
    for trial in &trials {
        let rows = 2 + trial.settings.measure.steps as usize;
        let table = steps(400, 80)[..rows].to_vec();
        completed(&dir, trial, &[table.clone(), table]);
    }
    for (trial, selected, asked, buffer) in [
        ("enough", 190, Some(190), 9 * BATCH),
        ("lazy", 131, Some(190), 8 * BATCH + BATCH / 2),
        ("same", 131, None, 8 * BATCH),
        ("least", 1000, None, BATCH / 2),
        ("brief", 1000, None, 9 * BATCH),
        ("brief_and_little", 1000, None, 4 * BATCH),
        ("inline", 1000, None, 1),
        ("older", 1000, None, 0),
    ] {
        read(&dir, &format!("{trial}-r1-0a1b2c"), selected, asked, buffer);
    }
    let text = note(&project, 0);
    let would = "where 4 workers × prefetch factor 2 would hold 9";
    // One sentence for a cause, with its worst case.
    let expected = [
        format!(
            "lazy, same, least, brief_and_little (worst: least): memory for 1 batch of 1101.9 MiB, {would}: fewer threads work at once \
             than the settings say"
        ),
        "brief: 3 measured steps are fewer than the 8 batches that are loaded ahead: rates are those of a burst"
            .to_owned(),
        "lazy: 131 samples, where select asks for 190: there are no more".to_owned(),
    ];
    let warnings = text.split("### Warnings").nth(1).unwrap().split("###").next().unwrap();
    let found: Vec<&str> = warnings
        .lines()
        .filter_map(|line| line.strip_prefix("- "))
        .filter(|line| ["memory for", "select asks", "burst"].iter().any(|part| line.contains(part)))
        .collect();
    assert_eq!(found, expected);
    // A comparison says the same of its rows.
    let (compared, _) = project.expect(&["compare", "12"], 0);
    let both = "12 086_ddp Brief, little (worst: 12 086_ddp Least): memory for 1 batch of 1101.9 MiB, ";
    let one = "- 12 086_ddp Brief: 3 measured steps are fewer than the 8 batches";
    assert!(compared.contains(both) && compared.contains(one), "{compared}");
}

#[test]
fn masks_of_the_step_are_no_wait() {
    let project = TestProject::new();
    let on_device = |s: &mut expctl_settings::Settings| s.pipeline.device_masks = DeviceMasks::Looped;
    let trials = [
        project.trial("published", "As published", 1, on_device),
        project.trial("meant", "As meant", 1, |s| {
            on_device(s);
            s.pipeline.processor = expctl_settings::Processor::Ids;
        }),
    ];
    let dir = project.submitted_as(12, "086_ddp", trials.to_vec(), |_| {});
    let mut masks = steps(400, 0);
    for step in &mut masks {
        (step.exposed[Stage::Collate], step.exposed[Stage::Forward]) = (0, 0);
        step.exposed[Stage::Mask] = step.wall_ns / 4 * 3;
        (step.busy[Stage::Mask], step.busy[Stage::Collate]) = (step.wall_ns * 6, step.wall_ns);
    }
    for trial in &trials {
        completed(&dir, trial, &[masks.clone(), masks.clone()]);
    }
    let text = note(&project, 0);
    for (row, cells) in [
        ("| **published** |", "| **mask (in the step) 75.0 %** | **–** |"),
        ("| meant |", "| mask (in the step) 75.0 % | collate 100.0 % |"),
    ] {
        let line = text.lines().find(|line| line.starts_with(row)).unwrap();
        assert!(line.contains(cells), "{line}");
    }
    assert!(text.contains("- a step of `meant` spends 75.0 % of its time on *mask*\n"), "{text}");
    let legend = "with pipeline.device_masks the step makes masks itself";
    assert!(text.contains(legend), "{text}");
    // Others need no legend of it.
    two_variants(&project, 13);
    project.expect(&["report", "13"], 0);
    let text = std::fs::read_to_string(project.file("results/086_ddp_13.md")).unwrap();
    assert!(!text.contains(legend) && text.contains("*other*: threads waking up"), "{text}");
}

#[test]
fn equal_numbers_of_other_samples_are_kept_apart() {
    let project = TestProject::new();
    let part =
        |split: Split| move |s: &mut expctl_settings::Settings| (s.select.subset, s.select.split) = (1000, split);
    let trials = [
        project.trial("val", "Val", 1, part(Split::Val)),
        project.trial("test", "Test", 1, part(Split::Test)),
        project.trial("again", "Val again", 1, part(Split::Val)),
        project.trial("all", "All", 1, |_| {}),
    ];
    let dir = project.submitted(12, "086_ddp", trials.to_vec());
    for trial in &trials {
        completed(&dir, trial, &[steps(400, 80), steps(400, 8)]);
        read(&dir, &trial.id, 100, None, 0);
    }
    let text = note(&project, 0);
    for line in [
        "- val, again: 100 of 1,000 samples (select: subset = 1,000, split = val, seed = 42) of the store json, 4 MB on disk",
        "- test: 100 of 1,000 samples (select: subset = 1,000, split = test, seed = 42) of the store json, 4 MB on disk",
        "- all: 100 of 1,000 samples of the store json, 4 MB on disk",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn what_makes_a_mean_doubtful_is_said() {
    let project = TestProject::new();
    let alone = |name: &str| {
        project.trial(name, name, 1, |s| (s.launch.ranks, s.loader.workers, s.measure.steps) = (1, 0, 200))
    };
    let (starts, drifts, stalls) = (alone("starts"), alone("drifts"), alone("stalls"));
    let dir = project.submitted(12, "086_ddp", vec![starts.clone(), drifts.clone(), stalls.clone()]);
    // 200 measured steps of about 100 ms, of which 50 are claimed.
    let run = |factor: fn(u64) -> f64| {
        let one = steps(100, 0).pop().unwrap();
        let step = |i: u64| {
            let mut step = one.clone();
            let noise = 1.0 + ((i * i * 7919 % 1009) as f64 - 504.0) / 10_000.0;
            (step.step, step.wall_ns) = (i, (1e8 * noise * factor(i)) as u64);
            step.exposed[Stage::Collate] = 25_000_000;
            step
        };
        (0..200).map(step).collect::<Vec<_>>()
    };
    completed(&dir, &starts, &[run(|i| if i < 20 { 1.5 } else { 1.0 })]);
    completed(&dir, &drifts, &[run(|i| 1.0 + 0.004 * i as f64)]);
    completed(&dir, &stalls, &[run(|i| if i == 77 || i == 140 { 20.0 } else { 1.0 })]);
    let text = note(&project, 0);
    for warning in [
        "- starts: the warm-up is too short: the first 20 measured steps of repeat 1, rank 0 took 1.50× the rest, which makes the mean step 5.0 % longer; set measure.warmup to 22 or more (now 2)",
        "- drifts: step times drift: in repeat 1, rank 0 the second half took 1.33× the first",
        "- stalls: a few slow steps weigh much: 2 of 200 in repeat 1, rank 0 take 16.6 % of its time",
        "look at what else node0 did",
    ] {
        assert!(text.contains(warning), "{warning}: {text}");
    }
    // The table of the comparison says it again.
    let warned = text.split_once("### Warnings").and_then(|(_, rest)| rest.split("\n### ").next()).unwrap();
    assert_eq!(warned.matches("the warm-up is").count() + warned.matches("step times drift").count(), 2, "{text}");
    // About 140 ms, of which 50 are claimed.
    assert!(text.contains("starts, drifts, stalls (worst: drifts): the stages do not close, 64.2 % of"), "{text}");
    let trial = project.trial("lazy", "Lazy", 1, |s| (s.launch.ranks, s.loader.workers) = (1, 0));
    // A sound run has none of these.
    let sound = TestProject::new();
    let dir = sound.submitted(12, "086_ddp", vec![trial.clone()]);
    completed(&dir, &trial, &[steps(100, 25)]);
    let text = note(&sound, 0);
    assert!(!text.contains("warm-up is") && !text.contains("drift") && !text.contains("do not close"), "{text}");
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
        let detail = below(below(&note, "### Stage by stage"), &format!("#### {variant}"));
        let tree = detail.split("```").nth(1).unwrap();
        for (stage, us) in exposed {
            let row = cells(detail, stage.name());
            let (ms, share) = (row[1].as_str(), row[2].as_str());
            // Each is the raw figure, rounded by itself.
            assert_eq!(ms, format!("{:.3}", *us as f64 / 1e3), "{variant} {stage}");
            assert!((share.trim_end_matches(" %").parse::<f64>().unwrap() - *us as f64 / 99.99).abs() <= 0.0501);
            let named = |line: &&str| line.contains(&format!("─ {stage} ")) || line.contains(&format!("({stage}) "));
            let line = tree.lines().find(named).unwrap_or_else(|| panic!("{stage}: {tree}"));
            assert!(
                line.contains(&format!(" {ms} ms/step")) && line.contains(&format!("({share})")),
                "{row:?}: {line}"
            );
            assert_eq!(line.contains("← most exposed time"), *stage == longest, "{line}");
        }
        assert_eq!(tree.matches('←').count(), 1, "{tree}");
        let share = &cells(detail, longest.name())[2];
        let row = cells(below(&note, "### Where a step's time goes"), variant);
        assert!(row.contains(&format!("{longest} {share}")), "{share}: {row:?}");
        for heading in ["### Executive Summary", "### Conclusions", "### Where a step's time goes"] {
            let said = below(&note, heading);
            let sentence = said.split(&format!("a step of `{variant}`")).nth(1).unwrap_or_else(|| panic!("{said}"));
            let sentence = sentence.split("a step of").next().unwrap();
            let found =
                sentence.split_whitespace().zip(sentence.split_whitespace().skip(1)).find(|(_, unit)| *unit == "%");
            assert_eq!(found.map(|(number, _)| format!("{number} %")).as_ref(), Some(share), "{heading}: {sentence}");
        }
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
fn threads_that_share_processors_are_a_warning_and_a_cause() {
    let project = TestProject::new();
    let trial = |workers: u32| move |s: &mut expctl_settings::Settings| s.loader.workers = workers;
    // The recorded machine has two processors for each rank's node.
    let trials = [project.trial("few", "Few", 1, trial(1)), project.trial("many", "Many", 1, trial(8))];
    let dir = project.submitted(12, "086_ddp", trials.to_vec());
    for trial in &trials {
        let steps = shared(&[(Stage::Other, 6_060), (Stage::Decode, 1_990)], 10_000);
        completed(&dir, trial, &[steps.clone(), steps]);
    }
    let text = note(&project, 0);
    let cause = "a step of `many` waits 60.6 % of its time for *other* (threads waking up, and what no other stage holds; 8 loader \
                 threads on 2 processors)";
    assert!(below(&text, "### Executive Summary").contains(cause), "{text}");
    let warnings = below(&text, "### Warnings");
    assert!(
        warnings.contains("- many: 8 loader threads on 2 processors: threads wait for each other, and *other*"),
        "{warnings}"
    );
    assert!(!warnings.contains("few: "), "{warnings}");
    let few = "a step of `few` waits 60.6 % of its time for *other* (threads waking up, and what no other stage holds)";
    assert!(below(&text, "### Executive Summary").contains(few), "{text}");
}

#[test]
fn warnings_are_ranked_and_those_that_change_no_verdict_are_folded() {
    let project = TestProject::new();
    let mut trials = Vec::new();
    for variant in ["lazy", "near", "far"] {
        trials.extend((1..=3).map(|repeat| project.trial(variant, variant, repeat, |s| s.measure.steps = 400)));
    }
    let dir = project.submitted(12, "086_ddp", trials.clone());
    for (i, trial) in trials.iter().enumerate() {
        // `near` is 7 % faster than the baseline and `far` four times as fast; the runs differ by a per mille.
        let wall_us = [20_000, 18_700, 5_000][i / 3] + 10 * (i as u64 % 3);
        let mut all: Vec<StepRecord> = shared(&[(Stage::Collate, wall_us / 2)], wall_us);
        let measured = all[2].clone();
        all.truncate(2);
        all.extend((0..400u64).map(|step| {
            // Of `near` and `far` a tenth of the time is in a few slow steps.
            let slow = i >= 3 && [50, 150, 250, 350].contains(&step);
            let times = if i < 6 { 12 } else { 13 };
            let wall_ns = measured.wall_ns * if slow { times } else { 1 };
            StepRecord { step: step + 2, wall_ns, ..measured.clone() }
        }));
        completed(&dir, trial, &[all.clone(), all]);
    }
    let text = note(&project, 0);
    let warnings = below(&text, "### Warnings");
    let (shown, folded) = warnings.split_once("<details>\n<summary>").unwrap();
    // One sentence for both, of which the one that changes a verdict is the worst.
    let slow = "- near, far (worst: near): a few slow steps weigh much in 3 of 3 runs: ";
    assert_eq!((shown.matches(slow).count(), text.matches("a few slow steps weigh much").count()), (1, 1), "{text}");
    assert!(folded.contains(" no verdict</summary>\n\n- ") && folded.contains("\n</details>\n"), "{folded}");
    let all: serde_json::Value =
        serde_json::from_str(&project.expect(&["compare", "12", "--format", "json"], 0).0).unwrap();
    let warnings = all["warnings"].as_array().unwrap();
    let slow = warnings.iter().find(|warning| warning["cause"] == "slow_steps").unwrap();
    assert_eq!(
        (&slow["bearing"], slow["variants"].as_array().unwrap().len()),
        (&"changes_verdict".into(), 2),
        "{slow}"
    );
    assert!(slow["rate_without"].as_f64().unwrap() > 1.09, "{slow}");
    assert!(all["remarks"].as_array().unwrap().contains(&slow["text"]), "{slow}");
    assert!(all["groups"][0]["lines"][1]["cautions"][0].is_string(), "sentences, as ever");
}

#[test]
fn blocks_that_are_read_at_once_are_no_signs() {
    let project = TestProject::new();
    let chunked = |name: &str, chunks: u64| {
        project.trial(name, name, 1, |s| {
            (s.launch.ranks, s.loader.workers, s.measure.steps, s.loader.batch_size) = (1, 0, 200, 128);
            s.array.format = ArrayFormat::H5ad;
            (s.sampler.draw, s.sampler.chunk_rows, s.sampler.chunks) = (Draw::Chunked, 512, chunks);
        })
    };
    // 32 steps a block, of which 200 steps have six; and 128.
    let (many, few) = (chunked("many", 8), chunked("few", 32));
    let dir = project.submitted(12, "086_ddp", vec![many.clone(), few.clone()]);
    let run = |period: u64| {
        let one = steps(100, 0).pop().unwrap();
        let step = |i: u64| {
            let mut step = one.clone();
            let noise = 1.0 + ((i * i * 7919 % 1009) as f64 - 504.0) / 10_000.0;
            let slow = if i % period < 2 { 20.0 } else { 1.0 };
            (step.step, step.wall_ns) = (i, (1e8 * noise * slow) as u64);
            // Counted twice.
            (step.exposed[Stage::Read], step.exposed[Stage::Collate]) = (step.wall_ns, step.wall_ns / 8);
            step
        };
        (0..200).map(step).collect::<Vec<_>>()
    };
    completed(&dir, &many, &[run(32)]);
    completed(&dir, &few, &[run(128)]);
    let text = note(&project, 0);
    for sign in ["warm-up is too short", "step times drift", "slow steps weigh much", "many: a block of rows"] {
        assert!(!text.contains(sign), "{sign}: {text}");
    }
    assert!(
        text.contains("few: a block of rows lasts 128 steps, and 200 steps were measured")
            && text.contains("set measure.steps to 640 or more (5 blocks)"),
        "{text}"
    );
    assert!(text.contains("stages overlap or were counted twice: they add up to 1"), "{text}");
    assert!(text.contains("| unattributed | -"), "{text}");
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
