//! `expctl isolate`: what it makes of a past job, what it refuses, and what its note says.
#![allow(clippy::unwrap_used, reason = "a test that cannot set up fails")]

mod common;

use common::TestProject;
use expctl_record::Trial;
use serde_json::Value as Json;

/// Two variants in training, on as many ranks as the placeholder says.
const CONF: &str = r#"
[experiment]
study = "006-kuzmin-tmi"
title = "Small"

[data]
samples = 200
scale = 0.05

[loader]
batch_size = 8
workers = 1

[model]
hidden = 8
heads = 2

[train]
learning_rate = 0.01
MODE

[measure]
warmup = 4
steps = 6
repeats = 2

[launch]
ranks = RANKS

[variant.lazy]
pipeline.processor = "lazy"

[variant.ids]
method = "Ids"
pipeline.processor = "ids"
loader.workers = 0

[compare]
baseline = "lazy"

SWEEP
"#;

fn conf(mode: &str, ranks: u32, sweep: &str) -> String {
    CONF.replace("MODE", mode).replace("RANKS", &ranks.to_string()).replace("SWEEP", sweep)
}

fn planned(project: &TestProject, name: &str, text: &str) -> Vec<Trial> {
    let path = project.conf(name, text);
    let plan: Json = serde_json::from_str(&project.ok(&["plan", path.to_str().unwrap(), "--json"])).unwrap();
    serde_json::from_value(plan["trials"].clone()).unwrap()
}

fn ids(trials: &[Trial]) -> Vec<String> {
    trials.iter().map(|trial| trial.id.clone()).collect()
}

/// Ids of what `isolate` would run.
fn isolated(project: &TestProject, more: &[&str]) -> Vec<String> {
    let args = [&["isolate", "7", "--backend", "local", "--dry-run", "--json"], more].concat();
    let answer: Json = serde_json::from_str(&project.ok(&args)).unwrap();
    serde_json::from_value(answer["trials"].clone()).unwrap()
}

const MODES: &str = "\"train.mode\" = [\"data\", \"forward\", \"forward_backward\", \"train\"]";

#[test]
fn isolation_is_a_sweep_over_modes_on_one_rank() {
    let project = TestProject::new();
    project.submitted(7, "small", planned(&project, "small", &conf("mode = \"train\"", 2, "")));
    let sweep = planned(&project, "modes", &conf("", 1, &format!("[sweep.grid]\n{MODES}")));
    assert_eq!(sweep.len(), 2 * 4 * 2);
    assert_eq!(isolated(&project, &[]), ids(&sweep));
    let some: Vec<String> = ids(&sweep).into_iter().filter(|id| id.starts_with("ids-r1")).collect();
    assert_eq!(isolated(&project, &["--only", "ids", "--repeats", "1"]), some);
    let longer = conf("", 1, &format!("[sweep.grid]\n{MODES}")).replace("steps = 6", "steps = 9");
    assert_eq!(isolated(&project, &["--set", "measure.steps=9"]), ids(&planned(&project, "longer", &longer)));
}

#[test]
fn points_of_a_sweep_are_kept_but_for_ranks_and_modes() {
    let project = TestProject::new();
    let swept = "[sweep.grid]\nlaunch.ranks = [1, 2]\nloader.prefetch_factor = [1, 2]";
    let conf_of = |sweep: &str| conf("mode = \"train\"", 1, sweep).replace("[launch]\nranks = 1\n", "");
    project.submitted(7, "small", planned(&project, "small", &conf_of(swept)));
    let sweep = format!("[sweep.grid]\n{MODES}\nloader.prefetch_factor = [1, 2]");
    let expected = planned(&project, "modes", &conf_of(&sweep).replace("mode = \"train\"\n", ""));
    assert_eq!(expected.len(), 2 * 4 * 2 * 2);
    assert_eq!(isolated(&project, &[]), ids(&expected));
}

#[test]
fn epochs_become_the_usual_steps() {
    let project = TestProject::new();
    let trains = conf("mode = \"train\"\nepochs = 3\npatience = 2\nvalidate_every = 0", 2, "");
    project.submitted(7, "small", planned(&project, "small", &trains.replace("steps = 6\n", "")));
    let sweep = conf("validate_every = 0", 1, &format!("[sweep.grid]\n{MODES}")).replace("steps = 6\n", "");
    let sweep = planned(&project, "modes", &sweep);
    assert!(sweep.iter().all(|trial| trial.settings.measure.steps == 100 && trial.settings.train.epochs == 0));
    assert_eq!(isolated(&project, &[]), ids(&sweep));
}

#[test]
fn a_sweep_over_epochs_is_left_out() {
    let project = TestProject::new();
    let swept = "[sweep.grid]\ntrain.epochs = [3, 4]\ntrain.patience = [1, 2]\nloader.prefetch_factor = [1, 2]";
    let plain = "validate_every = 0\nschedule = \"cosine_restarts\"";
    let trains = conf(&format!("mode = \"train\"\n{plain}"), 1, swept).replace("steps = 6\n", "");
    let trials = planned(&project, "small", &trains);
    assert_eq!(trials.len(), 2 * 2 * 2 * 2 * 2);
    project.submitted(7, "small", trials);
    let sweep = conf(plain, 1, &format!("[sweep.grid]\n{MODES}\nloader.prefetch_factor = [1, 2]"));
    let expected = planned(&project, "modes", &sweep.replace("steps = 6\n", ""));
    assert_eq!(isolated(&project, &[]), ids(&expected));
}

#[test]
fn a_plateau_needs_epochs_which_isolation_has_none_of() {
    let project = TestProject::new();
    let plateau = "mode = \"train\"\nepochs = 3\nschedule = \"plateau\"\nschedule_patience = 2";
    let trains =
        conf(plateau, 1, "").replace("steps = 6\n", "").replace("[loader]", "[select]\nsplit = \"train\"\n[loader]");
    project.submitted(7, "small", planned(&project, "small", &trains));
    assert_eq!(isolated(&project, &[]).len(), 2 * 4 * 2);
}

/// The paths of files are no part of where the project lies: ids are equal below two roots, and the ranks find the file.
#[test]
fn files_are_named_from_the_project() {
    let of = || {
        let project = TestProject::new();
        std::fs::write(project.path().join("start.safetensors"), "").unwrap();
        std::fs::write(project.path().join("sum.pt"), "").unwrap();
        let text = conf("mode = \"train\"\nstart_from = \"start.safetensors\"", 2, "")
            .replace("heads = 2", "heads = 2\nkind = \"torchscript\"\npath = \"sum.pt\"");
        let trials = planned(&project, "small", &text);
        let settings = &trials[0].settings;
        assert_eq!(settings.model.path, project.path().join("sum.pt").to_str().unwrap());
        assert_eq!(settings.train.start_from, project.path().join("start.safetensors").to_str().unwrap());
        project.submitted(7, "small", trials.clone());
        (ids(&trials), isolated(&project, &[]), project)
    };
    let (one, other) = (of(), of());
    assert_ne!(one.2.path(), other.2.path());
    assert_eq!((one.0, one.1), (other.0, other.1));
    let conf = other.2.path().join("conf/small.toml");
    let (_, stderr) = other.2.expect(&["plan", conf.to_str().unwrap(), "--set", "model.path=none.pt"], 3);
    assert!(stderr.contains("there is no file ROOT/none.pt"), "{stderr}");
}

#[test]
fn what_cannot_be_isolated_is_explained() {
    let project = TestProject::new();
    // In mode data nothing asks whether the model fits its batches.
    let data = conf("mode = \"data\"", 2, "").replace(
        "pipeline.processor = \"ids\"",
        "pipeline.processor = \"ids\"\nmodel.kind = \"lazy\"\nmodel.implementation = \"replicated\"",
    );
    project.submitted(7, "small", planned(&project, "small", &data));
    let (_, stderr) = project.expect(&["isolate", "7", "--dry-run", "--backend", "local"], 3);
    assert!(stderr.contains("the replicated lazy model needs the graph of each sample"), "{stderr}");
    assert!(stderr.contains("variant.ids.") && stderr.contains("--only leaves out"), "{stderr}");
    for (args, code, said) in [
        (&["isolate", "7", "--only", "idz"][..], 2, "did you mean `ids`?"),
        (&["isolate", "7", "--set", "launch.ranks=2"], 2, "--set cannot change launch.ranks"),
        (&["isolate", "7", "--set", "variant.ids.train.mode=data"], 2, "--set cannot change train.mode"),
        (&["isolate", "7", "--json"], 2, "--json goes with --dry-run"),
        (&["isolate", "9"], 7, "there is no job 9"),
        (&["isolate", "525"], 7, "job 525 was published by others; it never ran here"),
    ] {
        let (stdout, stderr) = project.expect(args, code);
        assert!(stdout.is_empty() && stderr.contains(said), "{args:?}: {stdout}{stderr}");
    }
}

#[test]
fn an_isolated_job_runs_and_its_note_has_the_parts() {
    let project = TestProject::new();
    let path = project.conf("small", &conf("mode = \"data\"", 2, ""));
    let job = project.ok(&["submit", path.to_str().unwrap(), "--backend", "local", "--wait", "--only", "ids"]);
    let isolated = project.ok(&["isolate", job.trim(), "--backend", "local", "--wait"]);
    assert_eq!(isolated, "2\n");
    let note = std::fs::read_to_string(project.path().join("results/small_isolation_2.md")).unwrap();
    for part in
        ["### Isolation", "| data pipeline |", "| forward |", "| backward |", "| optimizer |", "← most exposed time"]
    {
        assert!(note.contains(part), "{part}\n{note}");
    }
    // What ran is in the job's folder, and runs again from there as the same.
    let config = project.path().join("results/runs/2/config.toml");
    let plan: Json = serde_json::from_str(&project.ok(&["plan", config.to_str().unwrap(), "--json"])).unwrap();
    let again: Vec<Trial> = serde_json::from_value(plan["trials"].clone()).unwrap();
    assert_eq!(ids(&again), ids(&project.job("2").record().unwrap().trials));
    assert!(!project.ok(&["status", "2"]).contains("no longer makes a plan"));
}
