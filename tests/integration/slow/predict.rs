//! Predictions that are verified: a real job runs what was predicted from made-up times.

use expctl_ledger::JobRecord;
use expctl_settings::{Collation, Mode, Trial};

use crate::common::{SMALL, TestProject, text};
use crate::predict::{one_thread, write};

#[test]
fn the_best_predictions_run_beside_the_variant_and_are_compared() {
    let project = TestProject::new();
    let conf = SMALL.replace("ranks = 2", "ranks = 1").replace("steps = 6", "steps = 120");
    let path = project.conf("small", &conf);
    let plan = project.json(&["plan", path.to_str().unwrap(), "--json"], 0);
    let trials: Vec<Trial> = serde_json::from_value(plan["trials"].clone()).unwrap();
    let lazy: Vec<Trial> = trials.into_iter().filter(|trial| trial.variant == "lazy").collect();
    let job = project.submitted(12, "small", lazy.clone());
    // Recorded with a loader that keeps the step waiting, so that more threads are predicted to help whatever this machine is.
    write(&job, &lazy[0], &[one_thread()], 16);
    let output = project.run(&["predict", "12", "--verify", "2", "--repeats", "2", "--backend", "local"]);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let (id, table) = stdout.split_once('\n').unwrap();
    assert!(table.starts_with("Predicted from job 12, and measured:\n"), "{stdout}");
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| lazy |")).collect();
    assert_eq!(rows.len(), 2, "{stdout}");
    assert!(rows[0].contains("| loader.workers=4 | 2.5") && rows[1].contains("| loader.workers=8 | 2.5"), "{stdout}");
    // What was predicted is in the record of the job, what was measured in its trials.
    let record: JobRecord = project.job(id).record().unwrap();
    let verifies = record.verifies.unwrap();
    assert_eq!((verifies.job, verifies.predictions.len()), (12, 2));
    let run: Vec<(&str, u32, u32, u64)> = record
        .trials
        .iter()
        .map(|t| (t.variant.as_str(), t.repeat, t.settings.loader.workers, t.settings.measure.warmup))
        .collect();
    let expected = [("lazy", 1, 2), ("lazy-workers4", 4, 8), ("lazy-workers8", 8, 16)];
    let expected = [1, 2].map(|repeat| expected.map(|(name, workers, warmup)| (name, repeat, workers, warmup)));
    assert_eq!(run, expected.concat(), "one of each, then one of each again");
    assert!(project.ok(&["status", id]).contains("completed"));
    assert!(!project.ok(&["status", id]).contains("no longer makes a plan"));
    assert!(project.ok(&["predict", "12"]).contains("Verified so far in this ledger: 2 predictions, off by "));
}

/// One rank that loads data and computes nothing.
pub fn data_alone() -> String {
    let (head, model) = SMALL.split_once("[model]").unwrap();
    let (_, tail) = model.split_once("[measure]").unwrap();
    format!("{head}[measure]{tail}").replace("ranks = 2", "ranks = 1").replace("steps = 6", "steps = 120")
}

/// Nothing of training is said again, the setting that brings most is a word, and an emulated step is made by two settings.
#[test]
fn one_edge_index_for_all_is_predicted_and_measured() {
    let project = TestProject::new();
    let path = project.conf("small", &data_alone());
    let job = project.ok(&["submit", path.to_str().unwrap(), "--only", "lazy", "--backend", "local", "--wait"]);
    let output = project.run(&[
        "predict",
        job.trim(),
        "--verify",
        "0",
        "--repeats",
        "1",
        "--backend",
        "local",
        "--max-error",
        "1000",
        "--step-ms",
        "50",
    ]);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let (id, table) = stdout.split_once('\n').unwrap();
    assert!(table.contains("| lazy | pipeline.collation=shared_index | "), "{stdout}");
    let record: JobRecord = project.job(id).record().unwrap();
    let changed: Vec<&Trial> =
        record.trials.iter().filter(|trial| trial.variant == "lazy-collationshared_index").collect();
    assert_eq!(changed.len(), 1, "{stdout}");
    assert_eq!(changed[0].settings.pipeline.collation, Collation::SharedIndex);
    // Emulated steps are measured, too; of steps that take many times as long there are fewer.
    assert!(table.contains("| lazy | train.mode=emulate train.step_ms=50 | "), "{stdout}");
    let emulated: Vec<&Trial> = record.trials.iter().filter(|trial| trial.variant == "lazy-step_ms50").collect();
    let [Trial { settings, .. }] = emulated[..] else { panic!("{stdout}") };
    assert_eq!((settings.train.mode, &settings.train.step_ms.0[..]), (Mode::Emulate, &[50.0][..]));
    assert_eq!((settings.measure.steps, changed[0].settings.measure.steps), (50, 120));
}
