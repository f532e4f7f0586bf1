//! What is cached of jobs that have ended: lists are the same with it and without it, and no change of the ledger is missed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use expctl_ledger::{JobDir, StepsTable, write_steps};
use serde_json::Value as Json;

use crate::common::ledger::{steps, two_variants};
use crate::common::{TestProject, text};

/// Jobs 1 and 2, which have ended, and 3, which never began.
fn ledger() -> TestProject {
    let project = TestProject::new();
    two_variants(&project, 1);
    two_variants(&project, 2);
    project.submitted(3, "never", vec![project.trial("lazy", "Lazy", 1, |_| {})]);
    // Files that changed in this moment are read again next time.
    std::thread::sleep(Duration::from_millis(100));
    project
}

/// The list of all jobs, without their age.
fn list(project: &TestProject) -> Json {
    let mut jobs = project.json(&["status", "--json"], 0);
    for job in jobs.as_array_mut().unwrap() {
        job.as_object_mut().unwrap().remove("age_s");
    }
    jobs
}

/// The file of all jobs in the cache of the only ledger of a user.
fn cache(project: &TestProject) -> PathBuf {
    cached(project, "jobs")
}

/// A file of that cache.
fn cached(project: &TestProject, name: &str) -> PathBuf {
    let all = files(&project.cache().join("expctl/ledgers"));
    all.iter().find(|file| file.ends_with(format!("{name}.json"))).unwrap_or_else(|| panic!("{all:?}")).clone()
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// Replace a text in the cache.
fn change(project: &TestProject, from: &str, to: &str) {
    let cached = std::fs::read_to_string(cache(project)).unwrap();
    assert!(cached.contains(from), "{cached}");
    std::fs::write(cache(project), cached.replace(from, to)).unwrap();
}

fn first_trial(job: &JobDir) -> String {
    job.record().unwrap().trials[0].id.clone()
}

#[test]
fn a_job_that_has_ended_comes_from_the_cache_and_others_do_not() {
    let project = ledger();
    let before = files(&project.file("results"));
    let first = list(&project);
    assert_eq!(files(&project.file("results")), before, "a list wrote into the ledger");
    let cached: Json = serde_json::from_slice(&std::fs::read(cache(&project)).unwrap()).unwrap();
    assert_eq!(cached["jobs"].as_object().unwrap().keys().collect::<Vec<_>>(), ["1", "2"]);
    // One reading of a job does not count yet.
    change(&project, "\"086_ddp\"", "\"cached\"");
    assert_eq!(list(&project), first);
    change(&project, "\"086_ddp\"", "\"cached\"");
    assert_eq!(list(&project).to_string(), first.to_string().replace("086_ddp", "cached"));
}

#[test]
fn a_job_that_has_changed_is_read_again() {
    let project = ledger();
    list(&project);
    list(&project);
    change(&project, "\"086_ddp\"", "\"cached\"");
    // A retry of job 1, and another outcome of job 2.
    let (retried, other) = (project.job("1"), project.job("2"));
    retried.next_attempt(&first_trial(&retried)).unwrap();
    let outcome = other.attempts(&first_trial(&other)).unwrap()[0].outcome_path();
    let failed = std::fs::read_to_string(&outcome).unwrap().replacen("\"completed\"", "\"failed\"", 1);
    std::fs::write(&outcome, failed).unwrap();
    let jobs = list(&project);
    let states = |job: usize| jobs[job]["trials"].to_string();
    assert!(!jobs.to_string().contains("cached"), "{jobs}");
    assert!(states(2).contains("lost") && states(1).contains("failed"), "{jobs}");
    // A job that is gone is forgotten.
    std::fs::remove_dir_all(other.path()).unwrap();
    assert_eq!(list(&project).as_array().unwrap().len(), 2);
}

#[test]
fn a_damaged_cache_and_one_of_another_version_are_made_again() {
    let project = ledger();
    let first = list(&project);
    assert_eq!(list(&project), first);
    let good = std::fs::read(cache(&project)).unwrap();
    let other_version =
        text(&good).replacen("\"version\":\"", "\"version\":\"another ", 1).replace("086_ddp", "cached");
    for damaged in ["", "{", "{\"version\": 3}", &text(&good)[..100], &other_version] {
        std::fs::write(cache(&project), damaged).unwrap();
        assert_eq!(list(&project), first, "{damaged}");
        assert_eq!(list(&project), first, "{damaged}");
        assert_eq!(std::fs::read(cache(&project)).unwrap(), good, "{damaged}");
    }
}

#[test]
fn a_history_is_the_same_with_and_without_a_cache() {
    let project = ledger();
    let history = || project.json(&["history", "086_ddp", "--json"], 0);
    let first = history();
    assert_eq!(history(), first);
    let file = cached(&project, "rates");
    let good = std::fs::read(&file).unwrap();
    let known: Json = serde_json::from_slice(&good).unwrap();
    // Of job 3 nobody asked for rates.
    let has_rates = |job: &str| !known["jobs"][job]["value"]["rates"].is_null();
    assert_eq!(["1", "2", "3"].map(has_rates), [true, true, false]);
    assert_eq!(history(), first);
    // Another rate in the cache is shown: the steps are not read again.
    let rate = known["jobs"]["2"]["value"]["rates"][0]["rates"]["samples_per_s"][0].to_string();
    assert!(!first.to_string().contains("4242.5"), "{first}");
    std::fs::write(&file, text(&good).replace(&rate, "4242.5")).unwrap();
    assert!(history().to_string().contains("4242.5"), "{rate}");
    std::fs::write(&file, "{").unwrap();
    assert_eq!(history(), first);
    assert_eq!(history(), first);
    assert_eq!(std::fs::read(&file).unwrap(), good);
    // Other steps are other rates, although nothing else says so.
    let job = project.job("2");
    let attempt = &job.attempts(&first_trial(&job)).unwrap()[0];
    for rank in 0..2 {
        let table = StepsTable { trial: first_trial(&job), rank, world_size: 2, steps: steps(800, 0) };
        write_steps(&attempt.steps_path(rank), &table).unwrap();
    }
    let slower = history();
    assert_ne!(slower, first);
    // Steps that are damaged, and then restored.
    let table = attempt.steps_path(0);
    let steps = std::fs::read(&table).unwrap();
    std::fs::write(&table, "PAR1").unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert!(history().to_string().contains("unreadable"), "{}", history());
    std::fs::write(&table, steps).unwrap();
    assert_eq!(history(), slower);
}

#[test]
fn rates_without_a_provenance_that_cannot_be_read_are_not_cached() {
    let project = ledger();
    std::fs::write(project.job("1").path().join("provenance.json"), "{").unwrap();
    std::thread::sleep(Duration::from_millis(100));
    project.json(&["history", "086_ddp", "--json"], 0);
    let known: Json = serde_json::from_slice(&std::fs::read(cached(&project, "rates")).unwrap()).unwrap();
    assert_eq!(known["jobs"].as_object().unwrap().keys().collect::<Vec<_>>(), ["2", "3"]);
}

#[test]
fn a_cache_that_cannot_be_written_is_done_without() {
    let project = ledger();
    let file = project.file("a_file");
    std::fs::write(&file, "").unwrap();
    let output = project.expctl(&["status"]).env("XDG_CACHE_HOME", &file).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).matches("6 completed").count(), 2, "{}", text(&output.stdout));
    assert_eq!(text(&output.stderr), "");
}
