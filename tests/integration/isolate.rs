//! `expctl isolate`: what it makes of a past job, what it refuses, and what its note says.

use std::collections::BTreeMap;

use expctl::data::ProjectData;
use expctl::project::Project;
use expctl_config::{Isolation, Modes, PastJob, expand, load_text};
use expctl_settings::{Mode, Trial};
use serde_json::Value as Json;

use crate::common::{TestProject, text};

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
    planned_from(project, path.to_str().unwrap())
}

fn planned_from(project: &TestProject, path: &str) -> Vec<Trial> {
    let plan: Json = serde_json::from_str(&project.ok(&["plan", path, "--json"])).unwrap();
    serde_json::from_value(plan["trials"].clone()).unwrap()
}

fn ids(trials: &[Trial]) -> Vec<String> {
    trials.iter().map(|trial| trial.id.clone()).collect()
}

/// Ids of what `isolate` would run.
fn isolated(project: &TestProject, more: &[&str]) -> Vec<String> {
    isolated_and_said(project, more).0
}

/// The same, with what it says about it.
fn isolated_and_said(project: &TestProject, more: &[&str]) -> (Vec<String>, String) {
    let args = [&["isolate", "7", "--backend", "local", "--dry-run", "--json"], more].concat();
    let output = project.run(&args);
    let stderr = text(&output.stderr);
    assert!(output.status.success(), "{args:?}: {stderr}");
    let answer: Json = serde_json::from_slice(&output.stdout).unwrap();
    (serde_json::from_value(answer["trials"].clone()).unwrap(), stderr)
}

/// A shipped config as job 7, on no more samples than any disk has room for; its trials.
fn shipped(project: &TestProject, name: &str, samples: u64) -> Vec<Trial> {
    let mut trials = planned_from(project, &format!("{}/conf/{name}.toml", env!("CARGO_MANIFEST_DIR")));
    for trial in &mut trials {
        trial.settings.data.samples = trial.settings.data.samples.min(samples);
    }
    project.submitted(7, name, trials.clone());
    trials
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
fn trials_that_ran_side_by_side_are_isolated_alone() {
    let project = TestProject::new();
    let expected = ids(&planned(&project, "modes", &conf("", 1, &format!("[sweep.grid]\n{MODES}"))));
    for packed in ["[slurm]\npack = 2", "[slurm]\npack = 2\npack_gpu = \"shared\"", "[sweep.grid]\nslurm.pack = [1, 2]"]
    {
        let side_by_side = planned(&project, "small", &conf("mode = \"train\"", 1, packed));
        project.submitted(7, "small", side_by_side);
        assert_eq!(isolated(&project, &[]), expected, "{packed}");
        std::fs::remove_dir_all(project.job("7").path()).unwrap();
    }
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
    let (some, stderr) = isolated_and_said(&project, &[]);
    let said =
        "left out: ids in forward, forward_backward, train: the replicated lazy model needs the graph of each sample";
    assert!(stderr.contains(said) && stderr.contains("model of ids: none: data alone"), "{stderr}");
    let of = |variant: &str| some.iter().filter(|id| id.starts_with(variant)).count();
    assert_eq!((of("lazy-"), of("ids-"), some.len()), (4 * 2, 2, 5 * 2));
    // With another implementation it runs in all.
    let (all, stderr) = isolated_and_said(&project, &["--set", "variant.ids.model.implementation=shared"]);
    assert!(all.len() == 2 * 4 * 2 && !stderr.contains("left out"), "{stderr}");
    // What is wrong in every mode is refused as a whole.
    let (_, stderr) = project.expect(&["isolate", "7", "--dry-run", "--set", "variant.ids.loader.batch_size=0"], 3);
    assert!(stderr.contains("`loader.batch_size` is out of range") && stderr.contains("--only leaves"), "{stderr}");
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
    let job = project.completed(&conf("mode = \"data\"", 2, ""), &["--only", "ids"]);
    let isolated = project.ok(&["isolate", &job, "--backend", "local", "--wait"]);
    assert_eq!(isolated, "2\n");
    let note = std::fs::read_to_string(project.path().join("results/small_isolation_2.md")).unwrap();
    for part in
        ["### Isolation", "| data pipeline |", "| forward |", "| backward |", "| optimizer |", "← most exposed time"]
    {
        assert!(note.contains(part), "{part}\n{note}");
    }
    assert!(note.contains(" of a train step of ids (measured)**\n") && note.contains("\n**Loading is "), "{note}");
    // What the model of a variant is, and that nobody said so, is in the note; the rank counted its parameters.
    assert!(note.contains("| Variant | Model | Parameters | Named by |"), "{note}");
    assert!(note.contains("| ids | dango | ") && note.contains(" | nobody: the default |"), "{note}");
    for trial in project.job("2").record().unwrap().trials {
        let attempt = project.job("2").attempts(&trial.id).unwrap().pop().unwrap();
        let counted = attempt.usage(0).unwrap().unwrap().parameters;
        // A twentieth of 6,607 genes.
        let expected = trial.settings.model.parameter_count(330).filter(|_| trial.settings.computes_model());
        assert!(counted == expected && trial.default_model, "{}: {counted:?} {expected:?}", trial.id);
    }
    // What ran is in the job's folder, and runs again from there as the same.
    let config = project.path().join("results/runs/2/config.toml");
    let plan: Json = serde_json::from_str(&project.ok(&["plan", config.to_str().unwrap(), "--json"])).unwrap();
    let again: Vec<Trial> = serde_json::from_value(plan["trials"].clone()).unwrap();
    assert_eq!(ids(&again), ids(&project.job("2").record().unwrap().trials));
    assert!(!project.ok(&["status", "2"]).contains("no longer makes a plan"));
}

#[test]
fn each_variant_of_086_has_the_model_that_its_name_says() {
    let project = TestProject::new();
    let trials = shipped(&project, "086_dataloader", 1_000);
    let (ids, stderr) = isolated_and_said(&project, &["--repeats", "1"]);
    assert_eq!(ids.len(), 4 * 4, "{stderr}");
    for said in [
        "model of lazy: lazy, replicated, 1,781,187 parameters (derived)",
        "model of dango: dango, 3,138,270 parameters (derived)",
        "model of shared: lazy, shared, 1,781,187 parameters (derived)",
        "model of ids: lazy, shared, 1,781,187 parameters (derived)",
    ] {
        assert!(stderr.contains(said), "{said}\n{stderr}");
    }
    assert!(!stderr.contains("nothing in the config"), "{stderr}");
    // The data-only job and the one with models have the same model behind a variant, and trained in the same way.
    for behind in shipped(&project, "086_model", 1_000) {
        let alone = trials.iter().find(|trial| trial.variant == behind.variant).unwrap();
        assert_eq!(alone.settings.model, behind.settings.model, "{}", behind.id);
        let mut train = alone.settings.train.clone();
        train.mode = behind.settings.train.mode;
        assert_eq!(train, behind.settings.train, "{}", behind.id);
    }
}

#[test]
fn a_model_that_nobody_chose_is_said() {
    let project = TestProject::new();
    project.submitted(7, "small", planned(&project, "small", &conf("mode = \"data\"", 1, "")));
    let (_, stderr) = isolated_and_said(&project, &[]);
    let warning =
        "warning: nothing in the config of job 7 says which model belongs to lazy, ids: it is the default one";
    assert!(stderr.contains(warning) && stderr.contains("--set variant.lazy.model.kind=…"), "{stderr}");
    let (_, stderr) = isolated_and_said(&project, &["--set", "variant.lazy.model.kind=lazy"]);
    assert!(stderr.contains("says which model belongs to ids: it is"), "{stderr}");
    let (_, stderr) = isolated_and_said(&project, &["--set", "model.kind=dango"]);
    assert!(!stderr.contains("nothing in the config"), "{stderr}");
    // The plan of a job that computes a model says so as well.
    let path = project.conf("trains", &conf("mode = \"train\"", 1, ""));
    let table = project.ok(&["plan", path.to_str().unwrap()]);
    assert!(table.contains("| train | dango (default) | 8 |"), "{table}");
}

/// No shipped config is refused, and what is left out has a reason: only hops have batches that no model reads.
#[test]
fn shipped_graph_configs_can_be_isolated() {
    let project = TestProject::new();
    let all = [
        "006_cold",
        "006_fair",
        "006_lazy_base",
        "006_masks",
        "006_training",
        "065_incidence",
        "073_profiler",
        "074_compressed",
        "075_full_masks",
        "077_full_masks",
        "080_sum",
        "081_device_masks_looped",
        "082_device_masks_vectorised",
        "086_as_run",
        "086_base",
        "086_batch",
        "086_ddp",
        "086_model",
        "087_neighborhood",
        "087_preprocessed",
        "087_training",
        "demo",
        "scaling_086",
        "training_planted",
    ];
    for name in all {
        let trials = shipped(&project, name, 1_000);
        // Points of a sweep over what isolation sets are one.
        let mut rows: BTreeMap<(String, String), u32> = BTreeMap::new();
        for trial in &trials {
            let mut point = trial.point.clone();
            point.retain(|key, _| !["train.mode", "launch.ranks"].contains(&key.as_str()));
            let repeats = rows.entry((trial.variant.clone(), format!("{point:?}"))).or_default();
            *repeats = (*repeats).max(trial.repeat);
        }
        let (ids, stderr) = isolated_and_said(&project, &[]);
        assert_eq!(ids.len() as u32, rows.values().map(|repeats| 4 * repeats).sum::<u32>(), "{name}: {stderr}");
        assert!(!stderr.contains("left out"), "{name}: {stderr}");
        let of_data_alone = ["006_cold", "006_fair", "006_masks"].contains(&name);
        assert_eq!(stderr.contains("nothing in the config"), of_data_alone, "{name}: {stderr}");
    }
}

#[test]
fn shipped_array_configs_can_be_isolated() {
    let project = TestProject::new();
    for name in ["fig1", "fig2a", "fig2b", "fig3", "fig4", "fig5", "figA1"] {
        let trials = shipped(&project, &format!("arrayloader_{name}"), 50_000);
        let rows: BTreeMap<(&str, u32), u32> = trials
            .iter()
            .map(|t| ((t.variant.as_str(), t.settings.loader.workers), t.settings.measure.repeats))
            .collect();
        let (ids, stderr) = isolated_and_said(&project, &[]);
        assert_eq!(ids.len() as u32, rows.values().map(|repeats| 4 * repeats).sum::<u32>(), "{name}: {stderr}");
        assert!(!stderr.contains("left out"), "{name}: {stderr}");
        let said = if name == "fig5" { "model of transformer: transformer" } else { "it is the default one" };
        assert!(stderr.contains(said), "{name}: {stderr}");
    }
}

/// Rows of own files.
const OWN: &str = r#"
[experiment]
study = "arrayloader"

[array]
format = "h5ad"
files = ["experiments/arrayloader/real/pbmc68k_reduced.h5ad"]
LABELS

[loader]
batch_size = 28

[measure]
warmup = 4
steps = 6
repeats = 2

[variant.single]
sampler.draw = "uniform"

[variant.chunked]
sampler.draw = "chunked"
sampler.chunks = 2

SWEEP
"#;

#[test]
fn a_job_of_own_files_can_be_isolated() {
    let project = TestProject::new();
    let conf = |labels: &str, sweep: &str| OWN.replace("LABELS", labels).replace("SWEEP", sweep);
    let labels = "labels = [\"bulk_labels\"]";
    let in_modes = |modes: &str| format!("[sweep.grid]\n\"train.mode\" = [{modes}]");
    let all_modes = ids(&planned(&project, "modes", &conf(labels, &format!("[sweep.grid]\n{MODES}"))));
    assert_eq!(all_modes.len(), 2 * 4 * 2);
    project.submitted(7, "own", planned(&project, "own", &conf(labels, "")));
    assert_eq!(isolated(&project, &[]), all_modes);
    // Without labels a model has nothing to tell: the data is measured, and the reason is said.
    project.submitted(7, "own", planned(&project, "own", &conf("", "")));
    let (data, stderr) = isolated_and_said(&project, &[]);
    assert_eq!(data, ids(&planned(&project, "data", &conf("", &in_modes("\"data\"")))));
    for variant in ["single", "chunked"] {
        let said = format!("left out: {variant} in forward, forward_backward, train: model `mlp` tells classes");
        assert!(stderr.contains(&said), "{stderr}");
    }
    assert_eq!(isolated(&project, &["--set", "array.labels=[\"bulk_labels\"]"]), all_modes);
}

/// The config of an isolated job runs again as the same, also where a variant is left out of a mode.
#[test]
fn modes_that_a_variant_cannot_run_in_are_in_its_config() {
    let project = TestProject::new();
    let trials = planned(&project, "small", &conf("mode = \"data\"", 1, ""));
    project.submitted(7, "small", trials);
    let record = project.job("7").record().unwrap();
    let past = PastJob {
        job: record.job,
        config: &record.config,
        baseline: record.baseline.as_deref(),
        estimators: &record.estimators,
        trials: &record.trials,
    };
    let mut modes = Modes::default();
    modes.leave_out("ids", Mode::ForwardBackward);
    modes.leave_out("ids", Mode::Train);
    modes.leave_out("lazy", Mode::Train);
    let isolation = Isolation::new(project.path(), past, &[], Some(1), &modes).unwrap();
    let found = Project::find(Some(project.path()), None).unwrap();
    let config = load_text(&ProjectData(&found), &isolation.name, "isolated", &isolation.text, &[]).unwrap();
    let trials = expand(&ProjectData(&found), &config).unwrap().trials;
    let run: Vec<(&str, &str)> = trials.iter().map(|t| (t.variant.as_str(), t.settings.train.mode.name())).collect();
    let expected =
        [("lazy", "data"), ("lazy", "forward"), ("lazy", "forward_backward"), ("ids", "data"), ("ids", "forward")];
    assert_eq!(run, expected, "{}", isolation.text);
    assert_eq!(ids(&planned(&project, "again", &isolation.text)), ids(&trials));
    let one = Isolation::new(project.path(), past, &["ids".to_owned()], None, &Modes::one(Mode::Data)).unwrap();
    assert!(
        one.text.contains("sweep.grid.\"train.mode\" = [\"data\"]") && !one.text.contains("exclude"),
        "{}",
        one.text
    );
}
