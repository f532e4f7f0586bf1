//! What makes figures of a note doubtful, and how it says so: damage, other work than the settings say, drift, crowded processors.

use super::*;

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
    assert!(text.contains("2 completed, 1 unreadable") && text.contains("| **lazy** | **140** |"), "{text}");
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
    // All trials that are not counted are in one line.
    let warning = text.lines().find(|l| l.contains("trial lazy-r2-0a1b2c is not counted")).unwrap();
    assert!(warning.contains("failed: rank 1 was killed; ") && warning.contains(reason), "{warning}");
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
    assert!(
        text.contains("`meant` spends 75.0 % of a step on *mask*")
            || text.contains("`published` spends 75.0 % of a step on *mask*"),
        "{text}"
    );
    let legend = "*mask* (in the step): the step makes masks itself";
    assert!(text.contains(legend), "{text}");
    // Others need no legend of it.
    two_variants(&project, 13);
    project.expect(&["report", "13"], 0);
    let text = std::fs::read_to_string(project.file("results/086_ddp_13.md")).unwrap();
    assert!(!text.contains(legend) && text.contains("*other*: thread wake-up and scheduling"), "{text}");
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
        "- stalls: outliers: 2 of 200 steps of repeat 1, rank 0 cost 16.6 % of the run (step ",
        "they are in the mean: check what else ran on node0, compare medians",
    ] {
        assert!(text.contains(warning), "{warning}: {text}");
    }
    // The table of the comparison says it again.
    let warned = text.split_once("### Warnings").and_then(|(_, rest)| rest.split("\n### ").next()).unwrap();
    assert_eq!(warned.matches("the warm-up is").count() + warned.matches("step times drift").count(), 2, "{text}");
    // About 140 ms, of which 50 are claimed.
    assert!(
        text.contains("starts, drifts, stalls (worst: drifts): 64.2 % of the step time is not covered by any stage"),
        "{text}"
    );
    let trial = project.trial("lazy", "Lazy", 1, |s| (s.launch.ranks, s.loader.workers) = (1, 0));
    // A sound run has none of these.
    let sound = TestProject::new();
    let dir = sound.submitted(12, "086_ddp", vec![trial.clone()]);
    completed(&dir, &trial, &[steps(100, 25)]);
    let text = note(&sound, 0);
    assert!(
        !text.contains("warm-up is") && !text.contains("drift") && !text.contains("not covered by any stage"),
        "{text}"
    );
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
    let causes = "`many` waits 60.6 % of a step for *other* (8 loader threads on 2 processors); `few`, the baseline, waits 60.6 % of a step \
                  for *other* (thread wake-up and scheduling, often more threads than CPUs)\n";
    assert!(below(&text, "### Executive Summary").contains(causes), "{text}");
    let warnings = below(&text, "### Warnings");
    assert!(
        warnings.contains("- many: 8 loader threads on 2 processors: threads wait for each other, and *other*"),
        "{warnings}"
    );
    assert!(!warnings.contains("few: "), "{warnings}");
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
    let slow = "- near, far (worst: near): outliers in 3 of 3 runs: ";
    assert_eq!((shown.matches(slow).count(), text.matches("outliers in").count()), (1, 1), "{text}");
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
    for sign in ["warm-up is too short", "step times drift", ": outliers", "many: a block of rows"] {
        assert!(!text.contains(sign), "{sign}: {text}");
    }
    assert!(
        text.contains("few: a block of rows lasts 128 steps, and 200 steps were measured")
            && text.contains("set measure.steps to 640 or more (5 blocks)"),
        "{text}"
    );
    assert!(text.contains("stages overlap or were counted twice: they add up to 1"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("| many |") && line.contains(" (-")), "{text}");
}
