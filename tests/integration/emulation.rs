//! Emulated steps in configs and reports, on ledgers of known steps.

use expctl_config::{expand, load};
use expctl_ledger::{Stage, StepRecord};
use expctl_settings::{EmulatedStepTimes, Mode, Settings, StepMs, Trial};

use crate::common::ledger::{completed, steps};
use crate::common::{TestProject, close};
use expctl::data::ProjectData;
use expctl::project::Project;

const MS: u64 = 1_000_000;

/// Two steps of warm-up and 20 measured ones beside a constant loader: a step lasts as long as the longer of the two, and waits for the rest.
fn emulated(load_ms: u64, step_ms: u64) -> Vec<StepRecord> {
    let wall_ns = load_ms.max(step_ms) * MS;
    let step = |step: u64| {
        let mut record = StepRecord {
            step,
            measured: step >= 2,
            start_ns: step * wall_ns,
            wall_ns,
            samples: 28,
            ..StepRecord::default()
        };
        (record.busy[Stage::Read], record.exposed[Stage::Read]) = (load_ms * MS, wall_ns - step_ms * MS);
        (record.busy[Stage::Forward], record.exposed[Stage::Forward]) = (step_ms * MS, step_ms * MS);
        record
    };
    (0..22).map(step).collect()
}

fn emulate(settings: &mut Settings) {
    settings.train.mode = Mode::Emulate;
    settings.train.step_ms = StepMs(vec![60.0]);
    settings.train.allreduce_bytes = 4_000_000;
    settings.launch.ranks = 8;
    settings.loader.workers = 1;
}

/// Job 31: eight ranks at 60 ms a step, `fast` beside a loader of 20 ms and `slow` beside one of 80 ms, which on rank 7 takes 100 ms.
fn project() -> TestProject {
    let project = TestProject::new();
    let trials = ["fast", "slow"].map(|variant| project.trial(variant, variant, 1, emulate));
    let job = project.submitted(31, "086_ddp", trials.to_vec());
    let ranks = |load_ms: [u64; 8]| load_ms.map(|load| emulated(load, 60)).to_vec();
    completed(&job, &trials[0], &ranks([20; 8]));
    completed(&job, &trials[1], &ranks([80, 80, 80, 80, 80, 80, 80, 100]));
    project
}

#[test]
fn utilisation_is_that_of_arithmetic_wherever_it_stands() {
    let project = project();
    let lines = project.compare(&["31"])["groups"][0]["lines"].clone();
    let of = |line: usize, key: &str| lines[line]["emulation"]["utilisation"][key].clone();
    close(&of(0, "all_ranks"), 1.0);
    close(&of(1, "all_ranks"), (7.0 * 0.75 + 0.6) / 8.0);
    close(&of(1, "lowest_rank"), 0.6);
    close(&of(1, "highest_rank"), 0.75);
    assert_eq!((of(0, "class"), &lines[0]["emulation"]["step"]), ("derived".into(), &"60 ms".into()));
    let (table, _) = project.expect(&["compare", "31", "--format", "markdown"], 0);
    for said in [
        "| AU |",
        "| **100.0 %** |",
        "| 73.1 % (ranks 60.0 %–75.0 %) |",
        "fast (emulated)",
        "AU (derived): accelerator utilisation as MLPerf Storage defines it",
        "the step is emulated, no model is computed: it waits 60 ms, then for the other ranks, with which it sums up 4 MB",
    ] {
        assert!(table.contains(said), "{said}: {table}");
    }
    let (csv, _) = project.expect(&["compare", "31", "--format", "csv"], 0);
    assert!(csv.lines().next().unwrap().ends_with("emulated_step_ms,au,au_lowest_rank,au_highest_rank"), "{csv}");
    assert!(csv.contains("60,0.73125,0.6,0.75"), "{csv}");
    project.expect(&["report", "31"], 0);
    let note = std::fs::read_to_string(project.file("results/086_ddp_31.md")).unwrap();
    for said in [
        "**Emulated**: fast (emulated), slow (emulated): the step is emulated",
        "AU (derived): fast (emulated) 100.0 %, slow (emulated) 73.1 % (ranks 60.0 %–75.0 %)",
        "| AU |",
        "allreduce_bytes = 4000000, mode = emulate, step_ms = 60.0",
    ] {
        assert!(note.contains(said), "{said}: {note}");
    }
}

#[test]
fn where_a_job_stands_says_that_its_rates_are_emulated() {
    let project = project();
    let (table, _) = project.expect(&["status", "31"], 0);
    assert_eq!(table.matches("(emulated)").count(), 2, "{table}");
    let rows = project.json(&["status", "31", "--json"], 0);
    assert!(rows.as_array().unwrap().iter().all(|row| row["emulated"] == true), "{rows}");
}

#[test]
fn jobs_without_emulated_steps_do_not_speak_of_them() {
    let project = TestProject::new();
    let trial = project.trial("lazy", "Lazy", 1, |_| {});
    let job = project.submitted(32, "086_ddp", vec![trial.clone()]);
    completed(&job, &trial, &[steps(100, 0), steps(100, 0)]);
    let (table, _) = project.expect(&["compare", "32", "--format", "markdown"], 0);
    let (csv, _) = project.expect(&["compare", "32", "--format", "csv"], 0);
    project.expect(&["report", "32"], 0);
    let note = std::fs::read_to_string(project.file("results/086_ddp_32.md")).unwrap();
    let (status, _) = project.expect(&["status", "32"], 0);
    for text in [table, csv, note, status, project.compare(&["32"]).to_string()] {
        assert!(!text.contains("emulat") && !text.contains("step_ms") && !text.contains("AU"), "{text}");
    }
}

/// The trials of a config in the project, or the messages of its problems.
fn planned(project: &TestProject, step: &str) -> Result<Vec<Trial>, Vec<String>> {
    planned_with(project, 28, step)
}

/// The same with another batch size.
fn planned_with(project: &TestProject, batch: u64, step: &str) -> Result<Vec<Trial>, Vec<String>> {
    let text = format!(
        "pipeline.processor = \"ids\"\nloader.batch_size = {batch}\nmeasure.repeats = 2\ntrain.mode = \"emulate\"\n{step}\n"
    );
    let path = project.conf("emulate", &text);
    let found = Project::find(Some(project.path()), None).unwrap();
    let files = ProjectData(&found);
    let messages = |e: expctl_config::ConfErrors| e.problems().iter().map(|p| p.message.clone()).collect::<Vec<_>>();
    Ok(expand(&files, &load(&files, &path, &[]).map_err(messages)?).map_err(messages)?.trials)
}

#[test]
fn recorded_times_are_those_of_the_measured_steps_of_one_variant() {
    let project = TestProject::new();
    let trials = ["lazy", "ids"].map(|variant| project.trial(variant, variant, 1, |_| {}));
    let job = project.submitted(33, "086_ddp", trials.to_vec());
    // A quarter of a measured step is forward: 100 and 50 ms on the ranks of `lazy`. Warm-up steps of a second would be 250.
    completed(&job, &trials[0], &[steps(400, 0), steps(200, 0)]);
    completed(&job, &trials[1], &[steps(40, 0), steps(40, 0)]);
    for name in ["33/lazy", "33/lazy-r1-0a1b2c"] {
        let planned = planned(&project, &format!("train.step_times_of = \"{name}\"")).unwrap();
        let times = [[50.0; 20], [100.0; 20]].concat();
        assert!(
            planned.iter().all(|trial| trial.recorded_step_ms == times),
            "{name}: {:?}",
            planned[0].recorded_step_ms
        );
        let drawn = EmulatedStepTimes::from_trial(&planned[0]).unwrap();
        assert!((0..100).map(|step| drawn.ns(0, step)).all(|ns| ns == 50 * MS || ns == 100 * MS));
        // Ranks are told the times, and not the job.
        let told: Trial = serde_json::from_str(&serde_json::to_string(&planned[1]).unwrap()).unwrap();
        assert_eq!(EmulatedStepTimes::from_trial(&told), Some(drawn));
    }
    let refused = |name: &str| planned(&project, &format!("train.step_times_of = \"{name}\"")).unwrap_err().join("\n");
    for (name, said) in [
        ("33", "job 33 has several variants: name one, as \"33/lazy\""),
        ("33/shared", "job 33 has no variant or trial `shared`; it has lazy, ids"),
        ("34", "there is no job 34 in "),
        ("lazy", "\"lazy\" is not JOB or JOB/NAME"),
    ] {
        let found = refused(name);
        assert!(found.contains(said) && found.starts_with("`train.step_times_of`: "), "{name}: {found}");
    }
    let data = project.trial("data", "data", 1, |settings| settings.train.mode = Mode::Data);
    let only = project.submitted(35, "086_ddp", vec![data.clone()]);
    assert!(refused("35").contains("no trial of 35 completed"));
    let mut loads = steps(100, 0);
    loads.iter_mut().for_each(|step| step.exposed[Stage::Forward] = 0);
    completed(&only, &data, &[loads.clone(), loads]);
    assert!(refused("35").contains("the steps of 35 computed nothing (train.mode = \"data\")"));
}

#[test]
fn a_step_time_is_a_number_a_list_or_a_preset() {
    let project = TestProject::new();
    for (batch, step, ms) in [
        (28, "train.step_ms = 60", vec![60.0]),
        (28, "train.step_ms = [60.0]", vec![60.0]),
        (28, "train.step_ms = [50, 0.5]", vec![50.0, 0.5]),
        (7, "train.emulate = \"unet3d_h100\"", vec![323.0]),
        (400, "train.emulate = \"resnet50_a100\"", vec![435.0]),
        (1, "train.emulate = \"cosmoflow_h100\"", vec![3.5]),
    ] {
        let trial = planned_with(&project, batch, step).unwrap()[0].clone();
        assert_eq!(EmulatedStepTimes::from_trial(&trial), Some(EmulatedStepTimes::InTurn(ms.clone())), "{step}");
        assert_eq!(trial.settings.train.step_ms, StepMs(ms));
    }
    let swept = planned(&project, "[sweep.grid]\n\"train.step_ms\" = [0, 60, [50, 70]]").unwrap();
    let labels: Vec<String> = swept.iter().filter(|trial| trial.repeat == 1).map(Trial::label).collect();
    assert_eq!(
        labels,
        [
            "default (train.step_ms=0.0, emulated)",
            "default (train.step_ms=60.0, emulated)",
            "default (train.step_ms=[50.0,70.0], emulated)"
        ]
    );
}
