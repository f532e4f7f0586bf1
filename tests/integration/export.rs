//! `expctl export`: what is written, where, and what is refused. What other tools see of it is in `slow::export`.

use std::collections::BTreeMap;

use expctl_ledger::{Cause, JobDir, StepRecord, TrialState};
use expctl_settings::Trial;

use crate::common::TestProject;
use crate::common::ledger::{SUBMITTED, completed, finish, running, steps, two_variants};

/// Steps of 400 ms and some milliseconds more, two of three of them.
pub fn uneven() -> Vec<StepRecord> {
    let mut all = steps(400, 80);
    let mut start_ns = 0;
    for step in &mut all {
        step.wall_ns += (step.step % 3) * 1_000_000;
        step.start_ns = start_ns;
        start_ns += step.wall_ns;
    }
    all
}

/// Job `id`: `lazy` and `ids` completed on two ranks, `dies` ran out of memory, `late` never began. They sweep the loader threads.
pub fn varied(project: &TestProject, id: u64) -> JobDir {
    let workers = [("lazy", 4), ("ids", 1), ("dies", 4), ("late", 4)];
    let trials: Vec<Trial> = workers
        .iter()
        .map(|(variant, workers)| {
            let mut trial = project.trial(variant, &format!("Method {variant}"), 1, |settings| {
                settings.loader.workers = *workers;
            });
            trial.point = BTreeMap::from([("loader.workers".to_owned(), (*workers).into())]);
            trial
        })
        .collect();
    let job = project.submitted(id, "086_ddp", trials.clone());
    completed(&job, &trials[0], &[uneven(), uneven()]);
    completed(&job, &trials[1], &[steps(100, 0), steps(100, 0)]);
    let ranks = [steps(400, 0)[..5].to_vec(), steps(400, 0)[..3].to_vec()];
    let attempt = running(&job, &trials[2], &ranks);
    finish(&attempt, &ranks, TrialState::Failed, "rank 1 was killed: <out of memory>");
    let mut outcome = attempt.outcome().unwrap().unwrap();
    outcome.cause = Some(Cause::OutOfMemory);
    outcome.save(&attempt).unwrap();
    job
}

/// Names in a folder that are no studies, configs, data or results.
fn new_names(project: &TestProject) -> Vec<String> {
    let known = ["experiments", "conf", "results", "data"];
    let entries = std::fs::read_dir(project.path()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| !known.contains(&name.as_str())).collect();
    names.sort();
    names
}

#[test]
fn text_goes_to_stdout_and_the_exit_code_says_what_is_missing() {
    let project = TestProject::new();
    two_variants(&project, 12);
    let (csv, stderr) = project.expect(&["export", "12", "--to", "csv"], 0);
    assert_eq!(stderr, "");
    let lines: Vec<&str> = csv.lines().collect();
    // Six trials on two ranks.
    assert_eq!(lines.len(), 1 + 6 * 2 * 22);
    assert!(lines[0].starts_with("job,trial,variant,repeat,rank,step,epoch,start_ns,wall_ns,samples,"), "{}", lines[0]);
    assert!(lines[0].ends_with(",other_exposed_ns,other_busy_ns"), "{}", lines[0]);
    assert!(
        lines[1].starts_with("12,lazy-r1-0a1b2c,lazy,1,0,0,0,0,1000000000,28,11200,1155400000,0,false,0.5,"),
        "{}",
        lines[1]
    );
    assert!(lines[44].starts_with("12,lazy-r1-0a1b2c,lazy,1,1,21,"), "{}", lines[44]);
    let (jsonl, _) = project.expect(&["export", "12", "--to", "jsonl", "--table", "trials"], 0);
    let rows: Vec<serde_json::Value> = jsonl.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 6);
    assert_eq!(
        (&rows[3]["trial"], &rows[3]["state"], &rows[3]["class"]),
        (&"ids-r1-0a1b2c".into(), &"completed".into(), &"measured".into())
    );
    // Two ranks with 28 samples in 100 ms.
    assert_eq!((rows[3]["samples_per_s"].as_f64(), rows[3]["it_per_s"].as_f64()), (Some(560.0), Some(10.0)));
    assert_eq!(
        (&rows[3]["loader.workers"], &rows[3]["loader.shuffle"], &rows[3]["train.mode"]),
        (&1.into(), &true.into(), &"train".into())
    );
    assert_eq!((rows[3]["step_ms"].as_f64(), rows[3]["collate_exposed_ms"].as_f64()), (Some(100.0), Some(50.0)));

    varied(&project, 13);
    let (csv, stderr) = project.expect(&["export", "13", "--to", "csv"], 6);
    assert!(stderr.contains("1 of 4 trials did not end: late-r1-0a1b2c (loader.workers=4)"), "{stderr}");
    // Steps of the trial that failed are steps, too, and swept settings are columns.
    assert_eq!(csv.lines().count(), 1 + 4 * 22 + 5 + 3);
    assert!(csv.starts_with("job,trial,variant,repeat,loader.workers,rank,step,"), "{csv}");
    assert!(csv.lines().any(|line| line.starts_with("13,dies-r1-0a1b2c,dies,1,4,1,2,")), "{csv}");
    assert!(new_names(&project).is_empty());
}

#[test]
fn folders_and_parquet_get_a_name_and_are_never_written_over() {
    let project = TestProject::new();
    varied(&project, 12);
    let here = |args: &[&str], code: i32| {
        let output = project.run(&[&["export", "12", "--to"], args].concat());
        let (stdout, stderr) = (crate::common::text(&output.stdout), crate::common::text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        (stdout.trim().to_owned(), stderr)
    };
    for (args, name) in [
        (vec!["parquet"], "086_ddp_12.parquet"),
        (vec!["parquet", "--table", "trials"], "086_ddp_12_trials.parquet"),
        (vec!["mlflow"], "086_ddp_12_mlruns"),
        (vec!["tensorboard"], "086_ddp_12_tensorboard"),
        (vec!["wandb-offline"], "086_ddp_12_wandb"),
        (vec!["csv", "--out", "steps.csv"], "steps.csv"),
        (vec!["junit", "--out", "new/junit.xml"], "new/junit.xml"),
        (vec!["openmetrics", "--out", "job.prom"], "job.prom"),
    ] {
        // Written for what there is: the exit code says that a trial is missing.
        assert_eq!(here(&args, 6).0, name, "{args:?}");
        assert!(project.file(name).exists(), "{name}");
        let (stdout, stderr) = here(&args, 2);
        assert!(stdout.is_empty(), "{stdout}");
        assert!(stderr.contains(&format!("{name} exists")) && stderr.contains("--force replaces"), "{stderr}");
        assert_eq!(here(&[&args[..], &["--force"]].concat(), 6).0, name);
    }
    // What no export is of is kept, whatever is asked.
    std::fs::create_dir(project.file("mine")).unwrap();
    std::fs::write(project.file("mine/thesis.tex"), "1").unwrap();
    let (_, stderr) = here(&["mlflow", "--out", "mine", "--force"], 2);
    assert!(stderr.contains("mine is not an export of expctl, and stays"), "{stderr}");
    assert!(project.file("mine/thesis.tex").exists());
    let names = new_names(&project);
    assert!(!names.iter().any(|name| name.starts_with(".writing-")), "{names:?}");
    assert_eq!(names.len(), 5 + 3 + 1, "{names:?}");
}

#[test]
fn what_cannot_be_exported_is_refused_with_what_to_do() {
    let project = TestProject::new();
    two_variants(&project, 12);
    let (_, stderr) = project.expect(&["export", "99", "--to", "csv"], 7);
    assert!(stderr.contains("there is no job 99") && stderr.contains("measured jobs in"), "{stderr}");
    let (_, stderr) = project.expect(&["export", "12/13", "--to", "csv"], 7);
    assert!(stderr.contains("there is no job") || stderr.contains("cannot be pooled"), "{stderr}");
    let (_, stderr) = project.expect(&["export", "392", "--to", "csv"], 7);
    assert!(stderr.contains("job 392 was published by others") && stderr.contains("--table trials"), "{stderr}");
    let (_, stderr) = project.expect(&["export", "12", "--to", "mlflow", "--table", "trials"], 2);
    assert!(stderr.contains("--table is for csv, jsonl and parquet"), "{stderr}");
    let (_, stderr) = project.expect(&["export", "12", "--to", "excel"], 2);
    assert!(stderr.contains("wandb-offline"), "{stderr}");
    two_variants(&project, 13);
    let (_, stderr) = project.expect(&["export", "12/13", "--to", "csv"], 2);
    assert!(stderr.contains("12/13 is not one job") && stderr.contains("one by one"), "{stderr}");
    let file = project.file("file");
    std::fs::write(&file, "").unwrap();
    let below = file.join("steps.parquet");
    let (_, stderr) = project.expect(&["export", "12", "--to", "parquet", "--out", below.to_str().unwrap()], 6);
    assert!(stderr.contains("cannot write ROOT/file"), "{stderr}");
}

/// A job with a damaged trial is exported without it, and the exit code says so.
#[test]
fn a_damaged_trial_hides_no_other() {
    let project = TestProject::new();
    let job = two_variants(&project, 12);
    let attempt = job.attempts("lazy-r2-0a1b2c").unwrap().pop().unwrap();
    std::fs::write(attempt.steps_path(1), "PAR1").unwrap();
    let (csv, stderr) = project.expect(&["export", "12", "--to", "csv"], 6);
    assert_eq!(csv.lines().count(), 1 + 5 * 2 * 22);
    assert!(stderr.contains("1 of 6 trials cannot be read: lazy-r2-0a1b2c"), "{stderr}");
    let (xml, _) = project.expect(&["export", "12", "--to", "junit"], 6);
    assert!(xml.contains("tests=\"6\" failures=\"0\" errors=\"1\" skipped=\"0\""), "{xml}");
    assert!(xml.contains("rank-1.parquet is not a valid table"), "{xml}");
}

#[test]
fn published_jobs_are_marked_as_imported() {
    let project = TestProject::new();
    let (jsonl, _) = project.expect(&["export", "392", "--to", "jsonl", "--table", "trials"], 0);
    let row: serde_json::Value = serde_json::from_str(jsonl.lines().next().unwrap()).unwrap();
    assert_eq!((&row["class"], &row["state"], &row["job"]), (&"imported".into(), &"imported".into(), &"392".into()));
    assert_eq!((row["it_per_s"].as_f64(), row["samples_per_s"].as_f64()), (Some(0.42), Some(0.42 * 112.0)));
    assert!(row["origin"].as_str().is_some_and(|source| !source.is_empty()) && row["reason"].is_null());
    // A published range has no value.
    let (jsonl, _) = project.expect(&["export", "428/430", "--to", "jsonl", "--table", "trials"], 0);
    let row: serde_json::Value = serde_json::from_str(jsonl.lines().next().unwrap()).unwrap();
    assert_eq!((&row["job"], &row["it_per_s"]), (&"428/430".into(), &serde_json::Value::Null));
    assert!(row["it_per_s_low"].as_f64() < row["it_per_s_high"].as_f64(), "{row}");
    let (xml, _) = project.expect(&["export", "392", "--to", "junit"], 0);
    assert!(xml.contains("<skipped message=\"published by others: it never ran here\" type=\"imported\">"), "{xml}");
    let (text, _) = project.expect(&["export", "392", "--to", "openmetrics"], 0);
    let rate = format!("class=\"imported\",of=\"measured_steps\"}} {}\n", 0.42 * 112.0);
    assert!(text.contains(&rate) && text.ends_with("# EOF\n"), "{text}");
}

/// A trial that went on from a checkpoint has each step once, in every format.
#[test]
fn attempts_are_joined() {
    let project = TestProject::new();
    let trial = project.trial("lazy", "Lazy", 1, |settings| settings.launch.ranks = 1);
    let job = project.submitted(12, "086_ddp", vec![trial.clone()]);
    let all = steps(400, 0);
    let first = [all[..15].to_vec()];
    finish(&running(&job, &trial, &first), &first, TrialState::Interrupted, "");
    let second = [all[10..].to_vec()];
    let attempt = running(&job, &trial, &second);
    finish(&attempt, &second, TrialState::Completed, "");
    let mut outcome = attempt.outcome().unwrap().unwrap();
    outcome.started = SUBMITTED + 1000;
    outcome.save(&attempt).unwrap();
    let (csv, _) = project.expect(&["export", "12", "--to", "csv"], 0);
    let numbers: Vec<&str> = csv.lines().skip(1).map(|line| line.split(',').nth(5).unwrap()).collect();
    assert_eq!(numbers, (0..22).map(|step| step.to_string()).collect::<Vec<_>>());
    // The first steps of the second attempt are warm-up.
    let measured: Vec<&str> = csv.lines().skip(1).map(|line| line.split(',').nth(13).unwrap()).collect();
    assert_eq!(measured.iter().filter(|measured| **measured == "false").count(), 2 + 2);
    project.expect(&["export", "12", "--to", "mlflow", "--out", project.file("m").to_str().unwrap()], 0);
    let losses: Vec<std::path::PathBuf> =
        walk(&project.file("m")).into_iter().filter(|path| path.ends_with("metrics/loss")).collect();
    let text = std::fs::read_to_string(&losses[0]).unwrap();
    let times: Vec<i64> = text.lines().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
    assert_eq!((losses.len(), times.len()), (1, 22));
    // Each attempt by its own start, and the clock of its own loop.
    assert_eq!(times[0], (SUBMITTED + 10 + 1) * 1000);
    assert_eq!(
        times[10] - 1000 * (SUBMITTED + 1000),
        i64::try_from((all[10].start_ns + all[10].wall_ns) / 1_000_000).unwrap()
    );
    assert!(times.is_sorted());
}

/// All files below a folder.
fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

/// Metrics of a job that nothing runs any more, and of one that is watched to its end.
#[test]
fn metrics_say_how_a_job_ended() {
    let project = TestProject::new();
    varied(&project, 12);
    let (text, _) = project.expect(&["export", "12", "--to", "openmetrics"], 6);
    for line in [
        "expctl_job_ended{job_id=\"12\",config=\"086_ddp\"} 1",
        "expctl_job_trials{job_id=\"12\",config=\"086_ddp\",state=\"completed\"} 2",
        "expctl_job_trials{job_id=\"12\",config=\"086_ddp\",state=\"failed\"} 1",
        "expctl_job_trials{job_id=\"12\",config=\"086_ddp\",state=\"not_started\"} 1",
        "expctl_job_trials{job_id=\"12\",config=\"086_ddp\",state=\"running\"} 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    let ids = "job_id=\"12\",config=\"086_ddp\",trial=\"ids-r1-0a1b2c\",variant=\"ids\",point=\"loader.workers=1\",class=\"measured\"";
    for (name, more, value) in [
        ("steps_done", "", 22.0),
        ("steps_planned", "", 22.0),
        ("samples_per_second", ",of=\"measured_steps\"", 560.0),
        ("iterations_per_second", ",of=\"measured_steps\"", 10.0),
        ("exposed_ratio", ",of=\"measured_steps\",stage=\"collate\"", 0.5),
        ("exposed_ratio", ",of=\"measured_steps\",stage=\"unattributed\"", 0.25),
        ("state", ",state=\"completed\"", 1.0),
    ] {
        let line = format!("expctl_trial_{name}{{{ids}{more}}} {value}");
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    let file = project.file("metrics/12.prom");
    project.expect(&["watch", "12", "--metrics", file.to_str().unwrap()], 6);
    let watched = std::fs::read_to_string(&file).unwrap();
    let without_time = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with("expctl_job_elapsed_seconds{")).map(str::to_owned).collect()
    };
    assert_eq!(without_time(&watched), without_time(&text));
    // Nothing else is left in the folder, which the collector reads.
    assert_eq!(std::fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
    let (_, stderr) = project.expect(&["watch", "12", "--metrics", file.join("x").to_str().unwrap()], 6);
    assert!(stderr.contains("cannot create ROOT/metrics/12.prom"), "{stderr}");
}
