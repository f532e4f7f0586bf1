//! Exports as the tools see them that they are for: pandas, MLflow, TensorBoard, wandb and the client of Prometheus.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::common::ledger::{SUBMITTED, in_epochs};
use crate::common::programs::interpreter;
use crate::common::{TestProject, close, text};
use crate::export::{uneven, varied};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Python with the tools (scripts/exports_python.sh).
pub fn tools() -> PathBuf {
    let setup =
        Command::new("bash").arg(root().join("scripts/exports_python.sh")).stderr(Stdio::inherit()).output().unwrap();
    assert!(setup.status.success(), "scripts/exports_python.sh failed");
    PathBuf::from(text(&setup.stdout).trim())
}

/// What tests/python/read_exports.py prints.
fn read(python: &Path, reader: &str, paths: &[&Path]) -> Value {
    let mut command = Command::new(python);
    command.arg(root().join("tests/python/read_exports.py")).arg(reader).args(paths).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{reader}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Export job 12 to a path of this name; gives the path.
fn export(project: &TestProject, job: &str, args: &[&str], name: &str, code: i32) -> PathBuf {
    let path = project.file(name);
    let all = [&["export", job, "--to"], args, &["--out", path.to_str().unwrap()]].concat();
    assert_eq!(project.expect(&all, code).0.trim(), format!("ROOT/{name}"));
    path
}

#[test]
fn tables_have_the_steps_of_the_ledger_as_pandas_reads_them() {
    let project = TestProject::new();
    let job = varied(&project, 12);
    let python = interpreter();
    let [csv, jsonl, parquet] =
        ["csv", "jsonl", "parquet"].map(|format| export(&project, "12", &[format], &format!("steps.{format}"), 6));
    let read_steps = read(&python, "tables", &[job.path(), &csv, &jsonl, &parquet]);
    assert_eq!((&read_steps["rows"], &read_steps["compared"]), (&json!(96), &json!(96)));
    let types = json!({"job": "string", "trial": "string", "variant": "string", "repeat": "int64", "loader.workers": "int64",
        "rank": "int64", "step": "int64", "measured": "bool", "loss": "double"});
    assert_eq!(read_steps["types"], types);

    let [csv, jsonl, parquet] = ["csv", "jsonl", "parquet"]
        .map(|format| export(&project, "12", &[format, "--table", "trials"], &format!("trials.{format}"), 6));
    let trials = read(&python, "trials", &[&csv, &jsonl, &parquet]);
    // The rates and intervals are those that everything else shows.
    let compared = project.json(&["compare", "12", "--format", "json"], 6);
    let lines = compared["groups"][0]["lines"].as_array().unwrap();
    for variant in ["lazy", "ids"] {
        let trial = &trials[format!("{variant}-r1-0a1b2c")];
        let line = lines.iter().find(|line| line["variant"] == variant).unwrap();
        close(&trial["samples_per_s"], line["samples_per_s"][0].as_f64().unwrap());
        close(&trial["it_per_s"], line["it_per_s"][0].as_f64().unwrap());
    }
    in_epochs(&project, 15);
    let [csv, jsonl, parquet] = ["csv", "jsonl", "parquet"]
        .map(|format| export(&project, "15", &[format, "--table", "trials"], &format!("long.{format}"), 0));
    let long = &read(&python, "trials", &[&csv, &jsonl, &parquet])["single-r1-0a1b2c"];
    let compared = project.compare(&["15"]);
    let mut lines = compared["groups"].as_array().unwrap().iter().flat_map(|group| group["lines"].as_array().unwrap());
    let single = &lines.find(|line| line["variant"] == "single").unwrap()["samples_per_s_rate"];
    assert_eq!(single["scope"], "within_run");
    for (column, end) in [("samples_per_s_low", "low"), ("samples_per_s_high", "high")] {
        close(&long[column], single["interval"][end].as_f64().unwrap());
    }
    let dies = &trials["dies-r1-0a1b2c"];
    assert_eq!((&dies["state"], &dies["cause"]), (&json!("failed"), &json!("out of memory")));
    assert_eq!(
        (&dies["reason"], &dies["nodes"]),
        (&json!("rank 1 was killed: <out of memory>"), &json!("node0, node1"))
    );
    assert!(dies["samples_per_s"].is_null() && dies["attempts"] == 1 && dies["started"] == SUBMITTED + 10);
    let late = &trials["late-r1-0a1b2c"];
    assert_eq!((&late["state"], &late["attempts"], &late["started"]), (&json!("not started"), &json!(0), &Value::Null));
}

/// Sum of the wall times of the first steps of a rank, s.
fn end_of(step: usize) -> f64 {
    uneven()[..=step].iter().map(|step| step.wall_ns as f64 / 1e9).sum()
}

#[test]
fn mlflow_opens_the_store() {
    let project = TestProject::new();
    varied(&project, 12);
    let python = tools();
    let folder = export(&project, "12", &["mlflow"], "mlruns", 6);
    let runs = read(&python, "mlflow", &[&folder]);
    assert_eq!(runs.as_object().unwrap().len(), 5, "{runs}");
    let job = &runs["job 12"];
    assert_eq!((&job["experiment"], &job["status"]), (&json!("086_ddp"), &json!("RUNNING")));
    for (tag, value) in [("expctl.job", "12"), ("expctl.commit", "0123abc"), ("mlflow.source.git.commit", "0123abc")] {
        assert_eq!(job["tags"][tag], value);
    }
    let lazy = &runs["lazy-r1-0a1b2c (loader.workers=4)"];
    assert_eq!((&lazy["status"], &lazy["tags"]["mlflow.parentRunId"]), (&json!("FINISHED"), &job["id"]));
    assert_eq!((&lazy["params"]["loader.workers"], &lazy["params"]["train.mode"]), (&json!("4"), &json!("train")));
    assert_eq!(
        (&lazy["tags"]["expctl.host"], &lazy["tags"]["expctl.class"]),
        (&json!("node0, node1"), &json!("measured"))
    );
    assert_eq!((&lazy["start"], &lazy["end"]), (&json!((SUBMITTED + 10) * 1000), &json!((SUBMITTED + 20) * 1000)));
    let metrics = &lazy["metrics"];
    let collate = metrics["exposed_ms/collate"].as_array().unwrap();
    assert_eq!(collate.len(), 22);
    // The fifth step: number, ms since 1970, and half of 400 ms.
    let at = ((SUBMITTED + 10) as f64 + end_of(4)) * 1e3;
    assert_eq!((&collate[4][0], &collate[4][2]), (&json!(4), &json!(200.0)));
    assert!((collate[4][1].as_f64().unwrap() - at).abs() <= 1.0, "{} {at}", collate[4]);
    // Two ranks with 28 samples in 401 ms.
    close(&metrics["rate/samples_per_s"][4][2], 56.0 / 0.401);
    assert_eq!(metrics["loss"][21][2], 0.5);
    let compared = project.json(&["compare", "12", "--format", "json"], 6);
    let lines = compared["groups"][0]["lines"].as_array().unwrap();
    let line = lines.iter().find(|line| line["variant"] == "lazy").unwrap();
    close(&metrics["trial/samples_per_s"][0][2], line["samples_per_s"][0].as_f64().unwrap());
    let dies = &runs["dies-r1-0a1b2c (loader.workers=4)"];
    assert_eq!((&dies["status"], &dies["tags"]["expctl.cause"]), (&json!("FAILED"), &json!("out of memory")));
    // The steps that both ranks did.
    assert_eq!(dies["metrics"]["loss"].as_array().unwrap().len(), 3);
    let late = &runs["late-r1-0a1b2c (loader.workers=4)"];
    assert_eq!((&late["status"], &late["metrics"]), (&json!("RUNNING"), &json!({})));

    // Published jobs, in the same store: exports can be copied together.
    let other = export(&project, "392", &["mlflow"], "published", 0);
    assert!(Command::new("cp").arg("-rT").args([&other, &folder]).status().unwrap().success());
    let runs = read(&python, "mlflow", &[&folder]);
    assert_eq!(runs.as_object().unwrap().len(), 7, "{runs}");
    let (_, row) = runs
        .as_object()
        .unwrap()
        .iter()
        .find(|(_, run)| run["tags"]["expctl.trial"].as_str().is_some_and(|t| t.starts_with("065")))
        .unwrap();
    assert_eq!(
        (&row["tags"]["expctl.class"], &row["metrics"]["trial/it_per_s"][0][2]),
        (&json!("imported"), &json!(0.42))
    );
}

#[test]
fn tensorboard_opens_the_event_files() {
    let project = TestProject::new();
    varied(&project, 12);
    let folder = export(&project, "12", &["tensorboard"], "board", 6);
    let runs = read(&tools(), "tensorboard", &[&folder]);
    assert_eq!(runs.as_object().unwrap().len(), 4, "{runs}");
    let lazy = &runs["lazy-r1-0a1b2c, loader.workers=4"];
    let scalars = &lazy["scalars"];
    let forward = scalars["exposed_ms/forward"].as_array().unwrap();
    assert_eq!(forward.len(), 22);
    assert_eq!((&forward[3][0], &forward[3][2]), (&json!(3), &json!(100.0)));
    assert!((forward[3][1].as_f64().unwrap() - (SUBMITTED + 10) as f64 - end_of(3)).abs() < 1e-3, "{}", forward[3]);
    // As float32.
    let rate = scalars["rate/samples_per_s"][4][2].as_f64().unwrap();
    assert!((rate - 56.0 / 0.401).abs() < 1e-4, "{rate}");
    assert_eq!(
        (scalars["trial/samples_per_s"].as_array().unwrap().len(), &scalars["trial/samples_per_s"][0][0]),
        (1, &json!(21))
    );
    let hparams = &lazy["hparams"];
    assert_eq!(
        (&hparams["loader.workers"], &hparams["loader.shuffle"], &hparams["train.mode"]),
        (&json!(4.0), &json!(true), &json!("train"))
    );
    assert_eq!(
        (&hparams["variant"], &lazy["group"], &lazy["status"]),
        (&json!("lazy"), &json!("12 lazy loader.workers=4"), &json!(1))
    );
    let dies = &runs["dies-r1-0a1b2c, loader.workers=4"];
    assert_eq!((&dies["status"], dies["scalars"]["loss"].as_array().unwrap().len()), (&json!(2), 3));
    assert_eq!(runs["late-r1-0a1b2c, loader.workers=4"]["status"], Value::Null);
    let published = export(&project, "392", &["tensorboard"], "published", 0);
    let runs = read(&tools(), "tensorboard", &[&published]);
    let row = runs.as_object().unwrap().values().next().unwrap();
    assert_eq!(row["hparams"]["class"], "imported");
    assert!((row["scalars"]["trial/it_per_s"][0][2].as_f64().unwrap() - 0.42).abs() < 1e-6);
}

#[test]
fn wandb_reads_the_run_files() {
    let project = TestProject::new();
    varied(&project, 12);
    let folder = export(&project, "12", &["wandb-offline"], "wandb", 6);
    let runs = read(&tools(), "wandb", &[&folder]);
    assert_eq!(runs.as_object().unwrap().len(), 4, "{runs}");
    let lazy = &runs["lazy-r1-0a1b2c (loader.workers=4)"];
    assert_eq!((&lazy["project"], &lazy["group"]), (&json!("086_ddp"), &json!("job 12")));
    assert_eq!(
        (&lazy["tags"], &lazy["commit"], &lazy["host"]),
        (&json!(["measured", "lazy"]), &json!("0123abc"), &json!("node0"))
    );
    assert_eq!((&lazy["exit"], &lazy["runtime"], &lazy["start"]), (&json!(0), &json!(10), &json!(SUBMITTED + 10)));
    let config = &lazy["config"];
    assert_eq!(
        (&config["loader.workers"], &config["loader.shuffle"], &config["expctl.trial"]),
        (&json!(4), &json!(true), &json!("lazy-r1-0a1b2c"))
    );
    let history = lazy["history"].as_array().unwrap();
    assert_eq!(history.len(), 22);
    assert_eq!(
        (&history[4]["_step"], &history[4]["exposed_ms/collate"], &history[4]["loss"]),
        (&json!(4), &json!(200.0), &json!(0.5))
    );
    close(&history[4]["rate/samples_per_s"], 56.0 / 0.401);
    assert!((history[4]["_runtime"].as_f64().unwrap() - end_of(4)).abs() < 1e-6, "{}", history[4]);
    close(&lazy["summary"]["trial/exposed_ms/forward"], 100.0);
    let dies = &runs["dies-r1-0a1b2c (loader.workers=4)"];
    assert_eq!((&dies["exit"], &dies["notes"]), (&json!(1), &json!("rank 1 was killed: <out of memory>")));
    let published = export(&project, "392", &["wandb-offline"], "published", 0);
    let runs = read(&tools(), "wandb", &[&published]);
    let row = runs.as_object().unwrap().values().next().unwrap();
    assert_eq!((&row["tags"][0], &row["summary"]["trial/it_per_s"]), (&json!("imported"), &json!(0.42)));
}

/// Records that are longer than a block, and files of many blocks.
#[test]
fn wandb_reads_long_run_files() {
    let project = TestProject::new();
    let trial = project.trial("lazy", "Lazy", 1, |settings| {
        settings.launch.ranks = 1;
        settings.experiment.description = "word ".repeat(20_000);
    });
    let job = project.submitted(12, "086_ddp", vec![trial.clone()]);
    let mut rows = uneven();
    for step in 22..3000 {
        rows.push(expctl_ledger::StepRecord { step, loss: Some(1.0 / step as f64), ..rows[2].clone() });
    }
    crate::common::ledger::completed(&job, &trial, &[rows]);
    let folder = export(&project, "12", &["wandb-offline"], "wandb", 0);
    let runs = read(&tools(), "wandb", &[&folder]);
    let run = &runs["lazy-r1-0a1b2c"];
    assert_eq!(run["config"]["experiment.description"].as_str().unwrap().len(), 100_000);
    let history = run["history"].as_array().unwrap();
    assert_eq!(history.len(), 3000);
    close(&history[2999]["loss"], 1.0 / 2999.0);
}

#[test]
fn prometheus_parses_the_metrics_in_both_formats() {
    let project = TestProject::new();
    varied(&project, 12);
    let file = export(&project, "12", &["openmetrics"], "job.prom", 6);
    let families = read(&tools(), "openmetrics", &[&file]);
    assert_eq!(families["expctl_job_ended"][0][1], 1.0);
    let counted: f64 = families["expctl_job_trials"].as_array().unwrap().iter().map(|s| s[1].as_f64().unwrap()).sum();
    assert_eq!(counted, 4.0);
    let of = |family: &str, trial: &str| -> Vec<&Value> {
        let samples = families[family].as_array().unwrap().iter();
        samples.filter(|sample| sample[0]["variant"] == trial).collect()
    };
    let rates = of("expctl_trial_samples_per_second", "ids");
    assert_eq!((rates.len(), rates[0][1].as_f64(), &rates[0][0]["of"]), (1, Some(560.0), &json!("measured_steps")));
    assert_eq!(rates[0][0]["point"], "loader.workers=1");
    assert!(of("expctl_trial_samples_per_second", "dies").is_empty());
    let shares: f64 = of("expctl_trial_exposed_ratio", "ids").iter().map(|sample| sample[1].as_f64().unwrap()).sum();
    assert!((shares - 1.0).abs() < 1e-9, "the shares of all stages and the unattributed time: {shares}");
    let published = export(&project, "392", &["openmetrics"], "392.prom", 0);
    let families = read(&tools(), "openmetrics", &[&published]);
    assert_eq!(families["expctl_trial_samples_per_second"][0][0]["class"], "imported");
}

#[test]
fn junit_has_a_case_for_each_trial() {
    let project = TestProject::new();
    varied(&project, 12);
    let file = export(&project, "12", &["junit"], "junit.xml", 6);
    let seen = read(&interpreter(), "junit", &[&file]);
    for (count, value) in [("tests", "4"), ("failures", "1"), ("errors", "0"), ("skipped", "1"), ("time", "30")] {
        assert_eq!((&seen["suite"][count], &seen["root"][count]), (&json!(value), &json!(value)), "{count}");
    }
    assert_eq!(
        (&seen["suite"]["name"], &seen["suite"]["timestamp"]),
        (&json!("expctl 086_ddp job 12"), &json!("2026-01-02T03:04:05"))
    );
    let cases = seen["cases"].as_array().unwrap();
    assert_eq!(
        (&cases[0]["classname"], &cases[0]["name"]),
        (&json!("086_ddp.lazy"), &json!("lazy-r1-0a1b2c (loader.workers=4)"))
    );
    assert_eq!((&cases[0]["results"], &cases[1]["properties"]["trial/samples_per_s"]), (&json!([]), &json!("560")));
    let reason = "rank 1 was killed: <out of memory>";
    assert_eq!(cases[2]["results"], json!([["failure", "out of memory", reason, reason]]));
    assert_eq!(cases[3]["results"][0][0], "skipped");
}
