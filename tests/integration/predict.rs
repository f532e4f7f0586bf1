//! `expctl predict`, on ledgers whose steps are those of a known pipeline.

use expctl_ledger::{
    Environment, HardwareSample, JobDir, Stage, StepRecord, TrialState, VerifiedPrediction, VerifiedPredictions,
    write_json, write_samples,
};
use expctl_settings::{Mode, Settings, Trial};
use serde_json::Value;

use crate::common::ledger::{completed, finish, running, steps, two_variants};
use crate::common::{TestProject, close};

const MS: u64 = 1_000_000;

/// Steps of a rank with one loader thread, which works 10 ms on a batch (read 2, decode 3, collate 5). A step works 4 ms: forward 2, backward
/// 1, optimizer 1. Two steps of 120 are warm-up.
pub fn one_thread() -> Vec<StepRecord> {
    let mut start_ns = 0;
    let step = |step: u64| {
        // The first step waits for a whole batch; the others began to wait when the thread was in decode.
        let waits = if step == 0 { [2, 3, 5] } else { [0, 1, 5] };
        let mut record =
            StepRecord { step, measured: step >= 2, samples: 28, bytes_batch: 1_000_000, ..StepRecord::default() };
        for ((stage, works), waits) in
            [(Stage::Read, 2), (Stage::Decode, 3), (Stage::Collate, 5)].into_iter().zip(waits)
        {
            record.busy[stage] = works * MS;
            record.exposed[stage] = waits * MS;
        }
        for (stage, works) in [(Stage::Forward, 2), (Stage::Backward, 1), (Stage::Optimizer, 1)] {
            record.busy[stage] = works * MS;
            record.exposed[stage] = works * MS;
        }
        record.wall_ns = record.exposed.total();
        record.start_ns = start_ns;
        start_ns += record.wall_ns;
        record
    };
    (0..122).map(step).collect()
}

/// A trial of these steps on a machine of so many processors.
pub fn write(job: &JobDir, trial: &Trial, ranks: &[Vec<StepRecord>], cpus: u32) {
    let attempt = running(job, trial, ranks);
    let mut environment: Environment = attempt.environment().unwrap().unwrap();
    environment.ranks.iter_mut().for_each(|rank| (rank.host, rank.cpus) = ("node".into(), cpus));
    write_json(&attempt.environment_path(), &environment).unwrap();
    finish(&attempt, ranks, TrialState::Completed, "");
}

/// One rank, one loader thread.
fn alone(settings: &mut Settings) {
    settings.loader.workers = 1;
    settings.launch.ranks = 1;
    settings.measure.steps = 120;
}

/// Job 12 of one variant, on a machine of so many processors.
fn project(cpus: u32) -> TestProject {
    let project = TestProject::new();
    let trial = project.trial("lazy", "Lazy", 1, alone);
    let job = project.submitted(12, "086_ddp", vec![trial.clone()]);
    write(&job, &trial, &[one_thread()], cpus);
    project
}

/// The only variant of job 12, predicted.
fn predicted(project: &TestProject) -> Value {
    project.json(&["predict", "12", "--json"], 0)["variants"][0].clone()
}

/// The gain of a change.
fn gain(variant: &Value, change: &str) -> f64 {
    let changes = variant["changes"].as_array().unwrap();
    let one = changes.iter().find(|one| one["change"] == change);
    one.unwrap_or_else(|| panic!("no {change} among {changes:#?}"))["gain"].as_f64().unwrap()
}

#[test]
fn a_loader_that_is_the_limit_gets_threads_until_the_step_is() {
    let variant = predicted(&project(16));
    close(&variant["measured_samples_per_s"], 2800.0);
    assert!(variant["calibration"]["error"].as_f64().unwrap().abs() < 1e-9);
    assert_eq!((&variant["bottleneck"]["stage"], &variant["bottleneck"]["waits"]), (&"collate".into(), &true.into()));
    for (change, expected) in [
        ("load in the step, without loader threads", 10.0 / 14.0),
        ("2 loader threads", 2.0),
        ("4 loader threads", 2.5),
        ("8 loader threads", 2.5),
        ("8 batches ahead per thread", 1.0),
        ("collate free", 2.0),
        ("collate 2× as fast", 10.0 / 7.5),
        ("decode free: data stored as they are used", 10.0 / 7.0),
        ("model 2× as fast: forward to optimizer", 1.0),
        ("loading free: the ceiling", 2.5),
    ] {
        let found = gain(&variant, change);
        assert!((found - expected).abs() < 0.01 * expected, "{change}: {found}, and not {expected}");
    }
    let changes = variant["changes"].as_array().unwrap();
    // Those that bring the same are not in the order of their last digits.
    let rates: Vec<f64> = changes.iter().map(|one| one["samples_per_s"].as_f64().unwrap().round()).collect();
    assert!(rates.is_sorted_by(|a, b| a >= b), "{rates:?}");
    for one in changes {
        let [low, high] = ["low", "high"].map(|end| one["interval"][end].as_f64().unwrap());
        assert!(
            low <= one["samples_per_s"].as_f64().unwrap() && one["samples_per_s"].as_f64().unwrap() <= high,
            "{one}"
        );
    }
}

/// Steps of one loader thread that works this long on a batch, ns by stage, while nothing else happens.
fn loading(work: &[(Stage, u64)], samples: u64) -> Vec<StepRecord> {
    let wall_ns: u64 = work.iter().map(|(_, ns)| ns).sum();
    let step = |step: u64| {
        let mut record =
            StepRecord { step, measured: step >= 2, samples, bytes_batch: 1_000_000, wall_ns, ..StepRecord::default() };
        record.start_ns = step * wall_ns;
        for (stage, ns) in work {
            (record.busy[*stage], record.exposed[*stage]) = (*ns, *ns);
        }
        record
    };
    (0..62).map(step).collect()
}

/// The published way to load, by its times in the committed record: what masks cost is little, and what the edge index costs is told before
/// anybody has run it without.
#[test]
fn the_published_loader_is_told_to_share_its_edge_index() {
    let record = concat!(env!("CARGO_MANIFEST_DIR"), "/results/reference/records/006_fair.json");
    let record: Value = serde_json::from_str(&std::fs::read_to_string(record).unwrap()).unwrap();
    let busy = &record["variants"]["lazy"]["busy_ns"];
    let work: Vec<(Stage, u64)> = [Stage::Sample, Stage::Read, Stage::Decode, Stage::Mask, Stage::Collate]
        .map(|stage| (stage, busy[stage.name()].as_f64().unwrap() as u64))
        .to_vec();
    let project = TestProject::new();
    let trial = project.trial("lazy", "Incidence masks", 1, |settings| {
        alone(settings);
        settings.train.mode = Mode::Data;
    });
    let job = project.submitted(12, "006_fair", vec![trial.clone()]);
    write(&job, &trial, &[loading(&work, 28)], 2);
    let variant = predicted(&project);
    let geometric_mean = |variant: &str| {
        let rates = record["variants"][variant]["samples_per_s"].as_array().unwrap();
        (rates.iter().map(|rate| rate.as_f64().unwrap().ln()).sum::<f64>() / rates.len() as f64).exp()
    };
    let measured = geometric_mean("shared_masks") / geometric_mean("lazy");
    let changes = variant["changes"].as_array().unwrap();
    let one_index = changes.iter().find(|one| one["change"] == "one edge index for all samples").unwrap();
    assert_eq!(one_index["setting"], "pipeline.collation=shared_index");
    let predicted = one_index["gain"].as_f64().unwrap();
    assert!((0.5..2.0).contains(&(predicted / measured)), "{predicted} predicted, {measured} measured");
    let interval = &one_index["gain_interval"];
    assert!(
        interval["low"].as_f64().unwrap() < measured && measured < interval["high"].as_f64().unwrap(),
        "{interval}"
    );
    // The published notes blamed the masks.
    let without_masks = gain(&variant, "mask free");
    assert!((1.0..1.1).contains(&without_masks), "{without_masks}");
    let (stdout, _) = project.expect(&["predict", "12"], 0);
    assert!(stdout.contains("Of the loader's settings, one edge index for all samples would bring most"), "{stdout}");
}

/// A model that reads the graph of each sample has to be another one.
#[test]
fn one_edge_index_is_no_setting_where_a_model_reads_each() {
    let variant = predicted(&project(16));
    let changes = variant["changes"].as_array().unwrap();
    let one = changes.iter().find(|one| one["change"] == "one edge index for all samples").unwrap();
    assert_eq!((&one["class"], &one["setting"]), (&"what_if".into(), &Value::Null));
    close(&one["gain"], gain(&variant, "collate free"));
}

/// Steps of 10 ms beside one thread that loads for 5 ms, on one processor: the step sleeps, and takes as long with any batch.
#[test]
fn an_emulated_step_needs_no_processor_and_no_smaller_batch() {
    let project = TestProject::new();
    let trial = project.trial("lazy", "Lazy", 1, |settings| {
        alone(settings);
        settings.train.mode = Mode::Emulate;
    });
    let job = project.submitted(12, "086_ddp", vec![trial.clone()]);
    let mut steps = loading(&[(Stage::Forward, 10 * MS)], 28);
    steps.iter_mut().for_each(|step| step.busy[Stage::Read] = 5 * MS);
    write(&job, &trial, &[steps], 1);
    let variant = predicted(&project);
    close(&variant["calibration"]["samples_per_s"], 2800.0);
    for (change, expected) in [
        ("load in the step, without loader threads", 10.0 / 15.0),
        ("2 loader threads", 1.0),
        ("batches of 14 samples (½×)", 0.5),
        // Loading takes 10 ms then, which the step still covers.
        ("batches of 56 samples (2×)", 2.0),
    ] {
        let found = gain(&variant, change);
        assert!((found - expected).abs() < 0.02 * expected, "{change}: {found}, and not {expected}");
    }
}

/// A batch takes 10 ms on one thread: beside steps of 5 ms an accelerator is busy half of the time, beside steps of 40 ms always.
#[test]
fn an_accelerator_is_as_busy_as_its_loader_lets_it_be() {
    let project = project(16);
    let all = project.json(&["predict", "12", "--step-ms", "0,5", "--step-ms", "40", "--json"], 0);
    let steps = all["variants"][0]["emulated_steps"].as_array().unwrap();
    let expected = [(0, 1.0, 0.0), (5, 1.0, 0.5), (40, 0.25, 1.0)];
    assert_eq!(steps.len(), expected.len());
    for (one, (ms, gain, utilisation)) in steps.iter().zip(expected) {
        assert_eq!(one["change"], format!("steps of {ms} ms, emulated"));
        assert_eq!(one["setting"], format!("train.mode=emulate train.step_ms={ms}"));
        let near = |key: &str, expected: f64| {
            let found = one[key].as_f64().unwrap();
            assert!((found - expected).abs() < 0.01, "{key} of {ms} ms: {found}, and not {expected}");
        };
        near("gain", gain);
        near("utilisation", utilisation);
        let [low, high] = ["low", "high"].map(|end| one["gain_interval"][end].as_f64().unwrap() / gain);
        // What the loader takes is predicted; a step that waits for nothing takes what was asked for.
        let widest = if ms == 40 { 1.1 } else { 1.3 };
        assert!(low < 0.98 && high > 1.02 && high / low < widest, "{ms} ms: {one}");
    }
    let (stdout, _) = project.expect(&["predict", "12", "--step-ms", "40"], 0);
    let row = "| steps of 40 ms, emulated | train.mode=emulate train.step_ms=40 | 100.0 % | 700 |";
    assert!(stdout.contains("With emulated steps:") && stdout.contains(row), "{stdout}");
    // They are no changes to choose from.
    assert!(!predicted(&project)["changes"].to_string().contains("emulated"), "{stdout}");
    let (csv, _) = project.expect(&["predict", "12", "--step-ms", "40", "--format", "csv"], 0);
    assert!(csv.lines().next().unwrap().ends_with(",assumption,au"), "{csv}");
    for wrong in ["x", "-1", "600001"] {
        let (_, stderr) = project.expect(&["predict", "12", &format!("--step-ms={wrong}")], 2);
        assert!(stderr.contains("a number of milliseconds from 0 to 600000"), "{stderr}");
    }
}

/// Reads that wait for a disk: a faster one helps, and rates that none of its samples shows are told.
#[test]
fn storage_is_as_fast_as_it_was_sampled() {
    let project = TestProject::new();
    let trial = project.trial("lazy", "Lazy", 1, |settings| {
        alone(settings);
        settings.train.mode = Mode::Data;
    });
    let job = project.submitted(12, "086_ddp", vec![trial.clone()]);
    let mut steps = loading(&[(Stage::Read, 8 * MS), (Stage::Collate, 2 * MS)], 28);
    steps.iter_mut().for_each(|step| step.bytes_read = 10_000_000);
    write(&job, &trial, &[steps], 16);
    // Of each second 0.3 on a processor: 0.2 are collation, so reads use one for an eighth of their time. 10 MB in each of the steps of 10 ms.
    let sample = |i: u64| HardwareSample {
        clock_ns: i * 100 * MS,
        at_ns: Some((i * 100 * MS) as i64),
        cpu_percent: Some(30.0),
        disk_read_bytes: Some(if i == 3 { 110_000_000 } else { 100_000_000 }),
        ..HardwareSample::default()
    };
    let samples: Vec<HardwareSample> = (1..=7).map(sample).collect();
    let attempt = job.attempts(&trial.id).unwrap().pop().unwrap();
    write_samples(&attempt.samples_path(0), &samples).unwrap();
    let variant = predicted(&project);
    let found = gain(&variant, "storage 2× as fast");
    assert!((found - 10.0 / 6.5).abs() < 0.01, "{found}");
    let beyond = |change: &str| {
        let changes = variant["changes"].as_array().unwrap();
        let one = changes.iter().find(|one| one["change"] == change).unwrap();
        one["beyond_sampled_storage"].as_f64()
    };
    // 610 MB for 60 steps, twice as fast.
    let rate = beyond("2 loader threads").unwrap();
    assert!((rate / (2.0 * 610e6 / 0.6) - 1.0).abs() < 0.02, "{rate}");
    assert_eq!([beyond("1 batch ahead per thread"), beyond("storage 2× as fast")], [None, None]);
    let (stdout, _) = project.expect(&["predict", "12", "--top", "0"], 0);
    assert!(stdout.contains("Need more bytes a second from storage than was ever sampled: "), "{stdout}");
}

/// Ranks that never met meet behind each emulated step, so the slowest loader decides.
#[test]
fn emulated_steps_wait_for_the_slowest_rank() {
    let project = TestProject::new();
    let trial = project.trial("lazy", "Lazy", 1, |settings| {
        alone(settings);
        settings.launch.ranks = 2;
        settings.train.mode = Mode::Data;
    });
    let job = project.submitted(12, "086_ddp", vec![trial.clone()]);
    let rank = |read: u64| loading(&[(Stage::Read, read * MS), (Stage::Collate, MS)], 28);
    write(&job, &trial, &[rank(4), rank(19)], 16);
    let all = project.json(&["predict", "12", "--step-ms", "10", "--json"], 0);
    let one = &all["variants"][0]["emulated_steps"][0];
    let rate = one["samples_per_s"].as_f64().unwrap();
    assert!((rate / (56.0 / 0.020) - 1.0).abs() < 0.02, "{one}");
    assert!((one["utilisation"].as_f64().unwrap() - 0.5).abs() < 0.01, "{one}");
}

#[test]
fn a_long_warm_up_is_not_all_that_is_replayed() {
    let project = TestProject::new();
    let trial = project.trial("lazy", "Lazy", 1, alone);
    let job = project.submitted(12, "086_ddp", vec![trial.clone()]);
    let usual = one_thread();
    let mut steps: Vec<StepRecord> = (0..7000).map(|i| usual[1 + i % 120].clone()).chain(usual[2..].to_vec()).collect();
    for (index, step) in steps.iter_mut().enumerate() {
        (step.step, step.measured) = (index as u64, index >= 7000);
    }
    write(&job, &trial, &[steps], 16);
    let found = gain(&predicted(&project), "2 loader threads");
    assert!((found - 2.0).abs() < 0.02, "{found}");
}

#[test]
fn processors_that_are_not_there_make_nothing_faster() {
    // 14 ms of work a step on two processors: 7 ms, however many threads.
    let variant = predicted(&project(2));
    for threads in ["2 loader threads", "4 loader threads", "8 loader threads"] {
        // The batches that are ready when measuring begins, up to 16, are a part of 120.
        let gain = gain(&variant, threads);
        assert!((1.4..1.5).contains(&gain), "{threads}: {gain}");
    }
    let changes = variant["changes"].as_array().unwrap();
    let four = changes.iter().find(|one| one["change"] == "4 loader threads").unwrap();
    assert_eq!((&four["processors_suffice"], &four["processors"]["threads"]), (&false.into(), &5.0.into()));
    // Four threads have two batches ahead each, and the step has one.
    assert_eq!(four["setting"], "loader.workers=4");
}

/// Without the last digits, which differ between processors.
fn rounded(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            *value = format!("{:.4}", number.as_f64().unwrap()).parse::<f64>().unwrap().into();
        }
        Value::Array(all) => all.iter_mut().for_each(rounded),
        Value::Object(all) => all.values_mut().for_each(rounded),
        _ => {}
    }
}

#[test]
fn the_predictions_as_json() {
    let mut all = project(4).json(&["predict", "12", "--json"], 0);
    rounded(&mut all);
    insta::assert_snapshot!(serde_json::to_string_pretty(&all).unwrap());
}

#[test]
fn the_predictions_in_markdown() {
    insta::assert_snapshot!(project(4).expect(&["predict", "12"], 0).0);
}

#[test]
fn the_predictions_as_csv() {
    let (stdout, _) = project(4).expect(&["predict", "12", "--format", "csv"], 0);
    let lines: Vec<&str> = stdout.lines().collect();
    assert!(lines[0].starts_with("variant,change,set,class,samples_per_s,low,high,gain"), "{stdout}");
    assert!(lines.iter().any(|line| line.starts_with("lazy,2 loader threads,loader.workers=2,estimated,")), "{stdout}");
}

#[test]
fn the_slowest_rank_is_named_as_what_others_wait_for() {
    let project = TestProject::new();
    let trial = project.trial("lazy", "Lazy", 1, |settings| {
        alone(settings);
        settings.launch.ranks = 2;
    });
    let job = project.submitted(12, "086_ddp", vec![trial.clone()]);
    // Batches are there at once. Rank 1 computes 6 ms and rank 0 only 2; both exchange for 1 ms.
    let rank = |forward: u64, waits: u64| -> Vec<StepRecord> {
        let mut steps = one_thread();
        for (index, step) in steps.iter_mut().enumerate() {
            let first = index == 0;
            for stage in [Stage::Read, Stage::Decode, Stage::Collate] {
                step.busy[stage] = if stage == Stage::Collate { MS } else { 0 };
                step.exposed[stage] = if first { step.busy[stage] } else { 0 };
            }
            (step.busy[Stage::Forward], step.exposed[Stage::Forward]) = (forward * MS, forward * MS);
            (step.busy[Stage::Allreduce], step.exposed[Stage::Allreduce]) = (waits * MS, waits * MS);
            step.wall_ns = step.exposed.total();
        }
        steps
    };
    write(&job, &trial, &[rank(2, 5), rank(6, 1)], 16);
    let variant = predicted(&project);
    // A step takes 6 + 1 + 1 + 1 ms.
    close(&variant["measured_samples_per_s"], 56.0 / 0.009);
    for (change, expected) in [
        ("no slowest rank", 9.0 / 7.0),
        ("all-reduce wholly beside the backward pass", 9.0 / 8.0),
        ("loading free: the ceiling", 1.0),
    ] {
        let found = gain(&variant, change);
        assert!((found - expected).abs() < 0.01, "{change}: {found}, and not {expected}");
    }
}

#[test]
fn what_cannot_be_predicted_is_refused_with_the_reason() {
    let refused = |change: &dyn Fn(&mut Settings), steps: &[Vec<StepRecord>]| {
        let project = TestProject::new();
        let trial = project.trial("lazy", "Lazy", 1, |settings| {
            alone(settings);
            change(settings);
        });
        let job = project.submitted(12, "086_ddp", vec![trial.clone()]);
        completed(&job, &trial, steps);
        let (stdout, stderr) = project.expect(&["predict", "12"], 7);
        assert_eq!((stdout.as_str(), stderr.lines().count()), ("", 1), "{stderr}");
        stderr
    };
    let whole = one_thread();
    let said = refused(&|_| {}, &[whole[..12].to_vec()]);
    assert!(
        said.contains("nothing is predicted from job 12: `lazy`: it has 10 measured steps, and at least 20"),
        "{said}"
    );
    // A program of the user's that reports steps alone.
    let plain: Vec<StepRecord> = whole
        .iter()
        .map(|step| StepRecord { busy: Default::default(), exposed: Default::default(), ..step.clone() })
        .collect();
    let said = refused(&|settings| settings.worker.command = vec!["python3".into()], &[plain]);
    assert!(said.contains("no times of loading: 100.0 % of the step time is in no stage"), "{said}");
    // Times that no pipeline has: half of a step waits for a loader that worked for twice as long on one thread.
    let said = refused(&|settings| settings.train.mode = Mode::Train, &[steps(400, 0)]);
    assert!(said.contains("the model does not reproduce it"), "{said}");
    let said = refused(&|settings| settings.profile.active = 3, &[whole]);
    assert!(said.contains("a profiler ran along"), "{said}");
}

#[test]
fn one_variant_of_several_can_be_asked_for() {
    let project = TestProject::new();
    two_variants(&project, 12);
    let (_, stderr) = project.expect(&["predict", "12", "--only", "nothere"], 2);
    assert!(stderr.contains("job 12 has no variant nothere") && stderr.contains("it has lazy, ids"), "{stderr}");
    let (_, stderr) = project.expect(&["predict", "99"], 7);
    assert!(stderr.contains("there is no job 99"), "{stderr}");
    let (_, stderr) = project.expect(&["predict", "392"], 7);
    assert!(stderr.contains("published by others"), "{stderr}");
}

#[test]
fn verified_predictions_are_shown_beside_what_was_measured() {
    let project = project(16);
    let changed = |variant: &str, repeat| {
        project.trial(variant, "Lazy", repeat, |settings| {
            alone(settings);
            settings.loader.workers = 1 + u32::from(variant == "lazy-workers2");
        })
    };
    let trials: Vec<Trial> =
        (1..=3).flat_map(|repeat| ["lazy", "lazy-workers2"].map(|name| changed(name, repeat))).collect();
    let job = project.submitted_as(13, "086_ddp_verified", trials.clone(), |record| {
        let promised = VerifiedPrediction {
            label: "lazy".to_owned(),
            baseline: "lazy".to_owned(),
            variant: "lazy-workers2".to_owned(),
            setting: "loader.workers=2".to_owned(),
            samples_per_s: 5600.0,
            gain: 2.0,
            gain_interval: Some((1.7, 2.3)),
        };
        record.verifies = Some(VerifiedPredictions { job: 12, predictions: vec![promised] });
    });
    // Steps that are 1.6 times as fast, but for one of the three.
    for trial in &trials {
        let mut steps = one_thread();
        if trial.variant == "lazy-workers2" {
            let percent = if trial.repeat == 3 { 50 } else { 62 };
            for step in &mut steps {
                step.exposed[Stage::Decode] = 0;
                step.exposed[Stage::Collate] = step.exposed[Stage::Collate] * percent / 100;
                step.wall_ns = step.exposed.total();
            }
        }
        write(&job, trial, &[steps], 16);
    }
    let shown = project.json(&["predict", "13", "--json", "--max-error", "90"], 0);
    let one = &shown["verified"][0];
    assert_eq!(
        (&one["setting"], &one["predicted_from"], &one["runs"]),
        (&"loader.workers=2".into(), &12.into(), &3.into())
    );
    let measured = [10.0 / 7.1, 10.0 / 7.1, 10.0 / 6.5].map(f64::ln).iter().sum::<f64>() / 3.0;
    close(&one["measured"]["value"], measured.exp());
    assert!(one["measured"]["interval"]["low"].as_f64().unwrap() < measured.exp(), "{one}");
    let record = &shown["track_record"];
    assert_eq!(
        (&record["predictions"], &record["within"], &record["with_interval"]),
        (&1.into(), &0.into(), &1.into())
    );
    close(&record["median_error"], 1.0 - measured.exp() / 2.0);
    // Every other job says how predictions did.
    let (stdout, _) = project.expect(&["predict", "12"], 0);
    assert!(stdout.contains("Verified so far in this ledger: 1 prediction, off by 27.5 %"), "{stdout}");
    let (stdout, _) = project.expect(&["predict", "13", "--max-error", "90"], 0);
    assert!(stdout.starts_with("Predicted from job 12, and measured:\n\n| Variant |"), "{stdout}");
}

#[test]
fn nothing_to_verify_is_refused() {
    let project = TestProject::new();
    let trial = project.trial("lazy", "Lazy", 1, alone);
    let job = project.submitted(12, "086_ddp", vec![trial.clone()]);
    // Batches are always there.
    let mut steps = one_thread();
    for step in &mut steps {
        for stage in [Stage::Read, Stage::Decode, Stage::Collate] {
            step.busy[stage] = 1000;
            step.exposed[stage] = 0;
        }
        step.wall_ns = step.exposed.total();
    }
    write(&job, &trial, &[steps], 16);
    let (stdout, stderr) = project.expect(&["predict", "12", "--verify"], 7);
    assert!(stdout.is_empty() && stderr.contains("job 12 leaves nothing to verify"), "{stderr}");
    let (_, stderr) = project.expect(&["predict", "12", "--repeats", "2"], 2);
    assert!(stderr.contains("--verify"), "{stderr}");
}
