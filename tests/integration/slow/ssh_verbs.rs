//! `search`, `data build` and `predict --verify` on another machine, whose connection may be lost.

use std::path::Path;
use std::process::Stdio;

use expctl_ledger::{JobDir, JobRecord, TrialState};
use serde_json::Value as Json;

use super::predict::data_alone;
use crate::common::far_side::FarSide;
use crate::common::{Guard, PATIENCE, TestProject, text, wait_until};
use crate::search::slow::project as searched;

/// A job there.
fn job(far: &FarSide, job: u64) -> JobDir {
    JobDir::new(far.project().join("results/runs").join(job.to_string()))
}

/// Whether a trial of a job there has ended.
fn has_outcome(far: &FarSide, number: u64) -> bool {
    let folder = job(far, number);
    let Ok(record) = folder.record() else { return false };
    let mut attempts = record.trials.iter().flat_map(|trial| folder.attempts(&trial.id).unwrap());
    attempts.any(|attempt| attempt.outcome_path().exists())
}

/// The ledger there has the rounds of one search, and each trial completed once, but for those that fail.
fn assert_measured_once(far: &FarSide) {
    let jobs = far.jobs();
    let records: Vec<JobRecord> = jobs.iter().map(|number| job(far, *number).record().unwrap()).collect();
    let rounds: Vec<(u32, u32)> = records
        .iter()
        .map(|record| record.search.as_ref().map(|search| (search.start, search.round)).unwrap())
        .collect();
    let expected: Vec<(u32, u32)> = (1..).take(jobs.len()).map(|round| (1, round)).collect();
    assert_eq!(rounds, expected);
    for record in &records {
        for trial in &record.trials {
            let attempts = job(far, record.job).attempts(&trial.id).unwrap();
            let outcomes = attempts.iter().filter_map(|attempt| attempt.outcome().unwrap());
            let completed = outcomes.filter(|outcome| outcome.state == TrialState::Completed).count();
            // Three threads fail.
            assert_eq!(completed, usize::from(trial.settings.loader.workers != 3), "{} of {}", trial.id, record.job);
        }
    }
}

#[test]
fn a_search_runs_there_and_its_result_is_here() {
    let Some(far) = FarSide::behind_sshd() else { return };
    let (project, conf) = searched();
    far.connect(&project);
    let search = ["search", conf.as_str(), "--on", "far"];
    let (stdout, stderr) = far.expect(&project, &search, 0);
    assert!(stdout.starts_with("**`loader.workers=2` ran fastest: "), "{stdout}\n{stderr}");
    let command = format!("    expctl submit {conf} --on far --set loader.workers=2\n");
    assert!(stdout.ends_with(&command), "{stdout}");
    assert!(stderr.contains("round 1: 5 of 5 points"), "{stderr}");
    assert_measured_once(&far);
    let jobs = far.jobs();
    let last = jobs.last().unwrap();
    let results = project.path().join("results");
    let note = std::fs::read_to_string(results.join(format!("waits_search_far_{last}.md"))).unwrap();
    assert_eq!(note, format!("# Search: waits, variant default\n\n{stdout}"));
    for job in &jobs {
        assert!(results.join(format!("hosts/far/runs/{job}/job.json")).exists());
    }
    // It is over: shown again, in another form.
    let (again, stderr) = far.expect(&project, &[&search[..], &["--format", "csv"]].concat(), 0);
    assert!(stderr.contains("the ledger has this search up to job ") && again.lines().count() == 6, "{again}{stderr}");
    assert_eq!(far.jobs(), jobs);
    // What is here is of earlier jobs of these numbers, all of which had completed.
    let hosts = results.join("hosts/far");
    for job in &jobs {
        let path = hosts.join(format!("runs/{job}/job.json"));
        let mut record: Json = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        record["submitted"] = 1.into();
        std::fs::write(&path, record.to_string()).unwrap();
        let mark = serde_json::json!({"extent": "records", "submitted": 1});
        std::fs::write(hosts.join(format!("fetched/{job}.json")), mark.to_string()).unwrap();
    }
    far.expect(&project, &search, 0);
    for number in &jobs {
        assert!(hosts.join(format!("replaced/{number}-1/job.json")).exists());
        let here = JobDir::new(hosts.join(format!("runs/{number}"))).record().unwrap();
        assert_eq!(here.submitted, job(&far, *number).record().unwrap().submitted);
    }
}

#[test]
fn a_search_whose_connection_is_lost_goes_on_and_measures_nothing_twice() {
    let Some(far) = FarSide::behind_sshd() else { return };
    let (project, conf) = searched();
    far.connect(&project);
    let search = ["search", conf.as_str(), "--on", "far"];
    let mut command = far.expctl(&project, &search);
    let mut searching = Guard(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    wait_until("a trial to end", PATIENCE, || has_outcome(&far, 1).then_some(()));
    searching.0.kill().unwrap();
    searching.0.wait().unwrap();
    let (stdout, stderr) = far.expect(&project, &search, 0);
    assert!(stdout.starts_with("**`loader.workers=2` ran fastest: "), "{stdout}\n{stderr}");
    assert_measured_once(&far);
}

#[test]
fn a_search_owns_its_jobs_and_a_rerun_of_one_is_none_of_them() {
    let (far, (project, conf)) = (FarSide::without_network(), searched());
    far.connect(&project);
    let mut command = far.expctl(&project, &["search", conf.as_str(), "--on", "far"]);
    let mut searching = Guard(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    wait_until("a trial to end", PATIENCE, || has_outcome(&far, 1).then_some(()));
    let refused = || {
        let (stdout, stderr) = far.expect(&project, &["retry", "far:1", "--all"], 7);
        assert!(
            stdout.is_empty() && stderr.contains("job 1 is round 1 of a search, which runs again itself"),
            "{stderr}"
        );
        let goes_on = "to go on with the search: expctl search conf/waits.toml --on far --only default\n";
        assert!(stderr.contains(goes_on), "{stderr}");
        assert!(stderr.contains("as a job of their own: expctl rerun far:1\n"), "{stderr}");
    };
    // While it runs, and after its end.
    refused();
    let (rerun, stderr) = far.expect(&project, &["rerun", "far:1"], 0);
    assert!(searching.0.wait().unwrap().success());
    refused();
    far.wait_for_jobs();
    let rerun: u64 = rerun.trim().strip_prefix("far:").unwrap_or_else(|| panic!("{rerun}{stderr}")).parse().unwrap();
    let record = job(&far, rerun).record().unwrap();
    assert!(record.search.is_none() && record.reruns == Some(1), "{record:?}");
    let others: Vec<u64> = far.jobs().into_iter().filter(|number| *number != rerun).collect();
    let rounds: Vec<Option<u32>> =
        others.iter().map(|number| job(&far, *number).record().unwrap().search.map(|search| search.round)).collect();
    let expected: Vec<Option<u32>> = (1..).take(others.len()).map(Some).collect();
    assert_eq!(rounds, expected);
    for trial in job(&far, 1).record().unwrap().trials {
        assert_eq!(job(&far, 1).attempts(&trial.id).unwrap().len(), 1, "{}", trial.id);
    }
}

#[test]
fn a_search_that_nobody_waits_for_stops() {
    let (far, (project, conf)) = (FarSide::without_network(), searched());
    far.connect(&project);
    let mut command = far.expctl(&project, &["search", conf.as_str(), "--on", "far"]);
    let mut searching = Guard(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    wait_until("a trial to end", PATIENCE, || has_outcome(&far, 1).then_some(()));
    searching.0.kill().unwrap();
    searching.0.wait().unwrap();
    wait_until("the search there to stop", PATIENCE, || processes_of(&far.home()).is_empty().then_some(()));
    assert_eq!(far.jobs(), [1]);
}

/// The processes of expctl there.
fn processes_of(home: &Path) -> Vec<String> {
    let home = format!("HOME={}", home.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let read = |name: &str| text(&std::fs::read(entry.path().join(name)).unwrap_or_default());
        if read("environ").split('\0').any(|variable| variable == home) && read("cmdline").contains("expctl") {
            found.push(read("cmdline").replace('\0', " "));
        }
    }
    found
}

#[test]
fn the_same_search_twice_at_once_is_one() {
    let (far, (project, conf)) = (FarSide::without_network(), searched());
    far.connect(&project);
    let start = || {
        let mut command = far.expctl(&project, &["search", conf.as_str(), "--on", "far"]);
        Guard(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap())
    };
    let both = [start(), start()].map(|mut search| {
        let stdout = std::io::read_to_string(search.0.stdout.take().unwrap()).unwrap();
        assert!(search.0.wait().unwrap().success());
        stdout
    });
    assert!(both[0].starts_with("**`loader.workers=2` ran fastest: ") && both[0] == both[1], "{both:?}");
    assert_measured_once(&far);
}

#[test]
fn data_whose_build_was_cut_off_are_built_by_the_same_command() {
    let (far, project) = (FarSide::without_network(), TestProject::new());
    far.connect(&project);
    let build = ["data", "build", "006-kuzmin-tmi", "--samples", "60000", "--scale", "0.05", "--on", "far"];
    let mut command = far.expctl(&project, &build);
    let mut building = Guard(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let set = far.project().join("data/006-kuzmin-tmi");
    wait_until("the build to begin", PATIENCE, || std::fs::read_dir(&set).ok()?.next().map(drop));
    building.0.kill().unwrap();
    building.0.wait().unwrap();
    wait_until("the build there to stop", PATIENCE, || processes_of(&far.home()).is_empty().then_some(()));
    let (stdout, _) = far.expect(&project, &build, 0);
    assert!(Path::new(stdout.trim()).join("manifest.json").exists(), "{stdout}");
}

#[test]
fn predictions_are_verified_there_by_one_job_and_shown_here() {
    let Some(far) = FarSide::behind_sshd() else { return };
    let project = TestProject::new();
    far.connect(&project);
    project.conf("small", &data_alone());
    far.expect(&project, &["submit", "conf/small.toml", "--only", "lazy", "--on", "far", "--wait"], 0);
    let predict = ["predict", "far:1", "--max-error", "1000"];
    let verify = [&predict[..], &["--verify", "0", "--repeats", "1", "--backend", "local"]].concat();
    // The process that submits it is killed once the job is in the ledger.
    let mut killed = far.expctl(&project, &verify);
    let output = killed.env("EXPCTL_DIE_AT", "recorded").output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{stderr}");
    assert!(output.stdout.is_empty() && stderr.contains("it was killed (signal: 9"), "{stderr}");
    let (stdout, stderr) = far.expect(&project, &verify, 0);
    assert!(stderr.contains("going on with the submission of ") && stderr.contains("job far:2: "), "{stderr}");
    let (id, table) = stdout.split_once('\n').unwrap();
    assert_eq!((id, far.jobs()), ("far:2", vec![1, 2]));
    assert!(table.starts_with("Predicted from job 1, and measured:\n"), "{stdout}");
    assert!(table.contains("| lazy | pipeline.collation=shared_index | "), "{stdout}");
    // Its record and its note are here.
    let results = project.path().join("results");
    let record = JobDir::new(results.join("hosts/far/runs/2")).record().unwrap();
    assert_eq!(record.verifies.unwrap().job, 1);
    let notes = std::fs::read_dir(results).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(notes.filter(|name| name.ends_with("_far_2.md")).count(), 1);
    let (shown, _) = far.expect(&project, &predict, 0);
    assert!(shown.contains("Verified so far in this ledger: "), "{shown}");
}
