//! Published figures beside the measured ones that repeat them: rates, breakdowns, and what a note has of them.

use std::collections::BTreeMap;

use expctl_ledger::{JobRecord, PerStage, Stage, StepRecord};
use expctl_settings::{Estimator, Mode, Trial};

use crate::common::ledger::{completed, steps, two_variants};
use crate::common::{TestProject, close};

/// Steps of one rank with these samples and these exposed times, ms; what is left of `wall` is in no stage.
fn exposed(samples: u64, wall: u64, stages: &[(Stage, u64)]) -> Vec<StepRecord> {
    const MS: u64 = 1_000_000;
    let mut all = steps(wall, 0);
    for step in &mut all {
        (step.samples, step.exposed, step.busy) = (samples, PerStage::default(), PerStage::default());
        for (stage, ms) in stages {
            step.exposed[*stage] = ms * MS;
            // Two threads work on each stage of the loader.
            step.busy[*stage] = if Stage::LOADER.contains(stage) { 2 * ms * MS } else { ms * MS };
        }
    }
    all
}

/// A trial on one rank, with as many samples a step as were published.
fn published_alike(project: &TestProject, variant: &str, mode: Mode) -> Trial {
    let mut trial = project.trial(variant, variant, 1, |settings| {
        settings.train.mode = mode;
        settings.launch.ranks = 1;
        settings.loader.batch_size = if variant == "dango" { 64 } else { 28 };
    });
    trial.id = format!("{variant}-{}-r1-0a1b2c", mode.name());
    trial.point = BTreeMap::from([("train.mode".to_owned(), mode.name().into())]);
    trial
}

#[test]
fn what_repeats_a_published_job_stands_beside_it_in_one_table() {
    let project = TestProject::new();
    let trials = ["lazy", "dango"].map(|variant| published_alike(&project, variant, Mode::ZeroLoss));
    let as_run = |record: &mut JobRecord| {
        record.baseline = Some("lazy".into());
        record.estimators = vec![Estimator::Last20];
    };
    let dir = project.submitted_as(19, "086_as_run", trials.to_vec(), as_run);
    completed(&dir, &trials[0], &[exposed(28, 400, &[(Stage::Collate, 390)])]);
    completed(&dir, &trials[1], &[exposed(64, 100, &[(Stage::Collate, 90)])]);
    let all = project.compare(&["19", "525"]);
    let rates = all["published"]["rates"].as_array().unwrap();
    let of: Vec<_> = rates.iter().map(|one| (&one["published"], &one["mode"])).collect();
    let zero_loss = serde_json::json!("zero_loss");
    assert_eq!(of, [(&"525 086a Lazy Hetero".into(), &zero_loss), (&"525 086a DANGO".into(), &zero_loss)]);
    let lines = [&rates[0]["lines"][0], &rates[1]["lines"][0]];
    close(&lines[0]["ratio_samples_per_s"]["value"], 2.5 / 1.310);
    close(&lines[1]["ratio_samples_per_s"]["value"], 10.0 / 73.816);
    assert_eq!((&lines[0]["verdict"], &lines[0]["class"]), (&"too_few_runs".into(), &"measured".into()));
    // Two steps of warm-up of 1 s, then twenty: the mean of what a bar would have printed.
    let last = |ms: f64| (1..=20).map(|k| f64::from(2 + k) / (2.0 + 1e-3 * ms * f64::from(k))).sum::<f64>() / 20.0;
    close(&lines[0]["estimated"][0]["it_per_s"], last(400.0));
    let (text, _) = project.expect(&["compare", "19", "525"], 0);
    let published = "| **zero_loss** | **525** | **086a** | **Lazy Hetero** | **last_20** | **1.31** | **36.68** | **763.4** | **27.26** | **–** |";
    let measured = "| zero_loss | 19 | 086_as_run | lazy (train.mode=\"zero_loss\") | measured steps | 2.5 | 70 | 400 | 14.29 | 1.91× † | measured | 1 |";
    assert!(
        text.contains("Published beside measured:") && text.contains(published) && text.contains(measured),
        "{text}"
    );
    // The same estimator on both sides.
    let ratio = format!("{:.2}× † | estimated | 1 |", last(400.0) / 1.310);
    let line = text.lines().find(|line| line.contains("| lazy (train.mode=\"zero_loss\") | last_20 |")).unwrap();
    assert!(line.ends_with(&ratio), "{line} {ratio}");
    assert!(text.contains("`last_20` (estimated, from the measured steps): "), "{text}");
    // The note has it, too; that of a job which repeats nothing has no such section.
    project.expect(&["report", "19"], 0);
    let note = std::fs::read_to_string(project.file("results/086_as_run_19.md")).unwrap();
    assert!(
        note.contains("### Published Beside Measured") && note.contains(published) && note.contains(measured),
        "{note}"
    );
    assert!(note.contains("- 525 (imported): Experiment 086 Results Summary (2025-11-07), torchcell notes"), "{note}");
    two_variants(&project, 12);
    project.expect(&["report", "12"], 0);
    let note = std::fs::read_to_string(project.file("results/086_ddp_12.md")).unwrap();
    assert!(!note.contains("Published Beside Measured"), "{note}");
}

#[test]
fn a_published_summary_stands_beside_an_isolated_job() {
    let project = TestProject::new();
    let stages = [
        (Stage::Sample, 4),
        (Stage::Read, 6),
        (Stage::Decode, 20),
        (Stage::Mask, 30),
        (Stage::Collate, 400),
        (Stage::Pin, 5),
        (Stage::Transfer, 15),
        (Stage::Forward, 300),
        (Stage::Backward, 200),
    ];
    let tenth: Vec<(Stage, u64)> = stages.iter().map(|&(stage, ms): &(Stage, u64)| (stage, ms.div_ceil(10))).collect();
    let modes = [Mode::Data, Mode::ForwardBackward, Mode::Train];
    let of = |variant: &'static str| modes.map(|mode| (variant, mode, published_alike(&project, variant, mode)));
    let trials = [of("lazy"), of("dango")].concat();
    let dir =
        project.submitted(23, "086_dataloader_isolation", trials.iter().map(|(_, _, trial)| trial.clone()).collect());
    for (variant, mode, trial) in &trials {
        let (samples, wall, times) = if *variant == "lazy" { (28, 1000, &stages[..]) } else { (64, 110, &tenth[..]) };
        let shown = if *mode == Mode::Data { &times[..7] } else { times };
        completed(&dir, trial, &[exposed(samples, wall, shown)]);
    }
    // No kind of step is in both, but the components of the published steps are.
    let all = project.compare(&["525", "23"]);
    let breakdowns = all["published"]["breakdowns"].as_array().unwrap();
    let lazy = breakdowns.iter().find(|one| one["config"] == "086b" && one["variant"] == "lazy").unwrap();
    // As run it was forward; its source has a backward pass, and the nearest mode that has one is shown.
    assert_eq!((&lazy["mode"], &lazy["measured"]["mode"]), (&"forward".into(), &"forward_backward".into()));
    let expected = [0.48, 0.01, 0.05, 0.4, 0.02, 0.5, 0.3, 0.2, 1.0];
    for (component, expected) in lazy["measured"]["components"].as_array().unwrap().iter().zip(expected) {
        close(&component["exposed"], expected);
        close(&component["share"], expected);
    }
    close(&lazy["measured"]["components"][1]["busy"], 0.02);
    let sample = breakdowns.iter().find(|one| one["config"] == "086a" && one["variant"] == "lazy").unwrap();
    assert_eq!((&sample["mode"], &sample["measured"]["mode"]), (&"zero_loss".into(), &"data".into()));
    close(&sample["measured"]["components"][0]["exposed"], 50.0 / 28.0);
    assert!(sample["measured"]["components"][1]["exposed"].is_null());
    let (text, _) = project.expect(&["compare", "525", "23"], 0);
    for said in [
        "| Component | Lazy Hetero (s/iteration) | DANGO (s/iteration) | DANGO × faster | % of Lazy Hetero | Figures | 23 lazy, n = 1 (s/iteration) | 23 dango, n = 1 (s/iteration) | 23 dango × faster | % of 23 lazy | Class |",
        "| ├─ Graph processor | ~0.65 | ~0.001 | 650.0× ‡ | 57 % | imported (estimated) | 0.05 | 0.005 | 10.00× ‡ | 5.0 % | measured |",
        "| **TOTAL** | **1.138** | **0.059** | **19.29× ‡** | **100 %** | **imported (measured)** | **1** | **0.11** | **9.09× ‡** | **100.0 %** | **measured** |",
        "| 525 | 086b | Lazy Hetero | └─ Backward pass | ~0.125 | 11 % | imported (estimated) | backward | 23 lazy (forward_backward) | 0.2 | 20.0 % | 0.2 | measured |",
        "525 086b Lazy Hetero (steps: forward) stands beside 23 086_dataloader_isolation lazy (train.mode=\"forward_backward\") (steps: forward_backward, n = 1)",
    ] {
        assert!(text.contains(said), "{said}\n{text}");
    }
}

#[test]
fn published_breakdowns_keep_their_class_and_what_they_leave_open() {
    let project = TestProject::new();
    for (job, all) in [
        (
            "428/430",
            &[
                "| Data Loading | 34–36 | 3.0–3.2 % | imported (measured) | sample + read |",
                "| DDP Communication | – | 13.3–13.9 % | imported (measured) | allreduce |",
                "| GPU kernel time | – | 4.9 % | imported (measured) | GPU busy, in a note |",
                "its shares add up to 84.8–85.9 % of the whole; the rest is in no component",
            ][..],
        ),
        (
            "525",
            &[
                "| ├─ Mask computation | ~90 | 329.7 % (derived) | imported (estimated) | – |",
                "are estimated at ~126 and ~90 ms/sample, 4.62× and 3.30× the 27.3 of the whole: that contradicts it",
            ],
        ),
        (
            "202401",
            &[
                "| Data loading | 6 | at most 10.0 % (derived) | imported (measured) | sample + read + decode + mask + collate + pin + transfer |",
                "| **Training iteration** | **> 60** | **–** |",
            ],
        ),
    ] {
        let (text, _) = project.expect(&["compare", job], 0);
        for said in all {
            assert!(text.contains(said), "{said}\n{text}");
        }
    }
}

#[test]
fn a_breakdown_that_is_wrong_is_refused_with_its_line() {
    let project = TestProject::new();
    let file = project.file("mine.toml");
    let text = |class: &str, more: &str| {
        format!(
            "schema = 1\nstudy = \"006-kuzmin-tmi\"\nsource = {{ title = \"t\", from = \"f\", date = \"2025-01-01\" }}\n\
             [[result]]\njob = 700\nconfig = \"c\"\nmethod = \"m\"\nmode = \"train\"\nit_per_s = 0.5\nestimator = \"e\"\nranks = 4\nbatch_size = 28\n\
             [[breakdown]]\njob = 700\nconfig = \"c\"\nfrom = \"table 1\"\ncomponent = [\n\
             {{ name = \"Loading\", kind = \"fetch\", percent = 60, class = \"{class}\" }},\n{{ name = \"Model\", kind = \"model\", {more} class = \"measured\" }},\n]\n"
        )
    };
    for (class, more, said) in [
        ("guessed", "percent = 30,", "mine.toml:18:"),
        (
            "measured",
            "percent = 50,",
            "mine.toml:19:10: with this share those of the whole add up to 110.0 percent, more than 100",
        ),
        ("measured", "percent = -3,", "mine.toml:19:"),
        ("measured", "s_per_run = 3, ms_per_sample = 2,", "have one unit: ms_per_sample here, s_per_run above"),
    ] {
        std::fs::write(&file, text(class, more)).unwrap();
        let (_, stderr) = project.expect(&["import", file.to_str().unwrap()], 3);
        assert!(stderr.contains(said) && stderr.matches("mine.toml:").count() == 1, "{stderr}");
    }
    std::fs::write(&file, text("estimated", "percent = 30,")).unwrap();
    project.expect(&["import", file.to_str().unwrap()], 0);
    let (table, _) = project.expect(&["compare", "700"], 0);
    assert!(table.contains("| 700 | c | m | Loading | – | 60 % | imported (estimated) | sample + read |"), "{table}");
}
