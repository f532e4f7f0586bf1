//! Jobs of a thousand trials: what is shown is right, and Slurm is asked as often as documented. How long it takes is
//! measured by benches/load.sh, not here.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use expctl_ledger::{Cause, JobArrays, JobDir, SubmittedArray, TaskTrial, TrialState, write_json};
use serde_json::{Value, json};

use crate::common::cluster::Cluster;
use crate::common::ledger::{completed, finish, many, running, steps};
use crate::common::{TestProject, text};

const TRIALS: u32 = 1000;

/// A thousand completed trials, of which one is made a failed one.
fn job(project: &TestProject, id: u64, backend: &str) -> JobDir {
    let dir = many(project, id, TRIALS, 1, 20);
    let mut record = dir.record().unwrap();
    backend.clone_into(&mut record.backend);
    write_json(&dir.record_path(), &record).unwrap();
    let attempt = dir.attempts(&record.trials[7].id).unwrap().pop().unwrap();
    let mut outcome = attempt.outcome().unwrap().unwrap();
    (outcome.state, outcome.message) = (TrialState::Failed, "rank 0 was killed by signal 9 SIGKILL".to_owned());
    outcome.save(&attempt).unwrap();
    dir
}

/// A folder for the path with `squeue` and `sacct` that count their calls and pass them on to the real ones.
fn counting(folder: &Path) -> String {
    let path = std::env::var("PATH").unwrap();
    for program in ["squeue", "sacct"] {
        let file = folder.join(program);
        let count = folder.join("calls");
        let script =
            format!("#!/bin/sh\necho {program} >> '{}'\nPATH='{path}' exec {program} \"$@\"\n", count.display());
        std::fs::write(&file, script).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    format!("{}:{path}", folder.display())
}

fn count(rows: &[Value], state: &str) -> usize {
    rows.iter().filter(|row| row["state"] == state).count()
}

#[test]
fn a_thousand_trials_are_counted_right() {
    let project = TestProject::new();
    let dir = job(&project, 7, "local");
    let rows: Vec<Value> = serde_json::from_str(&project.ok(&["status", "7", "--json"])).unwrap();
    assert_eq!((rows.len(), count(&rows, "completed"), count(&rows, "failed")), (1000, 999, 1));
    for (task, row) in rows.iter().enumerate() {
        assert_eq!(
            (row["task"].as_u64(), row["steps"].as_u64(), row["attempt"].as_u64()),
            (Some(task as u64), Some(22), Some(1))
        );
        // 28 samples in 5 to 8 ms; the one that failed has no rate.
        let rate = 28.0 / (0.005 + 0.001 * (task % 4) as f64);
        let shown = row["samples_per_s"].as_f64();
        assert_eq!(shown.is_none(), row["state"] == "failed", "{row}");
        assert!(shown.is_none_or(|shown| (shown - rate).abs() < 1e-6), "{row}");
        assert_eq!(row["trial"], dir.record().map(|r| r.trials[task].id.clone()).unwrap(), "{row}");
        if task > 20 {
            break;
        }
    }
    assert!(project.ok(&["status"]).contains("| 999 completed, 1 failed |"));

    let report = project.run(&["report", "7"]);
    let said = text(&report.stderr);
    assert_eq!(report.status.code(), Some(5), "{said}");
    assert!(said.contains("1 of 1000 trials failed: ids-r2-0a1b2c"), "{said}");
    let note = std::fs::read_to_string(project.path().join("results/086_load_7.md")).unwrap();
    // Repeats that completed alike share a row of the table of trials.
    let completed = note.lines().filter(|line| line.contains("-0a1b2c | ") && line.contains("| completed |"));
    let repeats = completed.map(|line| match line.split_once('{') {
        Some((_, rest)) => rest.split('}').next().map_or(0, |repeats| repeats.split(',').count()),
        None => 1,
    });
    assert_eq!(repeats.sum::<usize>(), 999);
    assert!(note.contains("trial ids-r2-0a1b2c is not counted, failed: rank 0 was killed"), "{note}");
    // Each variant's own rate, over its own 250 trials.
    let dango = |line: &&str| line.starts_with("| dango |");
    let row = note.lines().find(dango).unwrap();
    assert!(row.contains("| 166.67 |") && row.contains("| 250 |"), "{row}");

    let watched = project.run(&["watch", "7"]);
    assert_eq!(watched.status.code(), Some(5));
    let seen = text(&watched.stdout);
    assert!(seen.contains("job 7: 999 completed, 1 failed\n") && seen.contains("killed by signal 9"), "{seen}");
    assert!(seen.lines().count() < 10, "{seen}");
}

#[test]
fn slurm_is_asked_once_for_what_is_open_and_not_at_all_for_what_has_ended() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    let project = TestProject::new();
    let tools = tempfile::tempdir().unwrap();
    let path = counting(tools.path());
    // A real task, in the place of the last trial.
    let id = cluster.ask("sbatch", &["--parsable", "--hold", "--array=999", "--output=/dev/null", "--wrap=true"]);
    let id = id.trim();
    let dir = job(&project, id.parse().unwrap(), "slurm");
    let calls = |args: &[&str]| {
        let _ = std::fs::remove_file(tools.path().join("calls"));
        let mut command = project.expctl(args);
        let output = command.env("PATH", &path).env("SLURM_CONF", cluster.conf()).output().unwrap();
        let calls = std::fs::read_to_string(tools.path().join("calls")).unwrap_or_default();
        (calls.lines().count(), output)
    };
    for args in [&["status"][..], &["status", id], &["watch", id]] {
        assert_eq!(calls(args).0, 0, "expctl {args:?}");
    }
    // What Slurm measured of the attempts is not in this ledger: the accounting is asked for all of them at once.
    assert_eq!(calls(&["report", id]).0, 1);

    let last = dir.record().unwrap().trials.pop().unwrap();
    std::fs::remove_dir_all(dir.trial_dir(&last.id)).unwrap();
    for args in [&["status"][..], &["status", id, "--json"]] {
        assert_eq!(calls(args).0, 1, "expctl {args:?}");
    }
    let (_, output) = calls(&["status", id, "--json"]);
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((count(&rows, "completed"), count(&rows, "failed"), count(&rows, "waiting")), (998, 1, 1));
    assert_eq!(rows[999]["reason"], "JobHeldUser");
    cluster.ask("scancel", &[id]);
}

#[test]
fn the_attempts_of_a_trial_name_their_tasks_and_what_they_were_asked_for() {
    let project = TestProject::new();
    let trials = ["lazy", "ids"].map(|variant| project.trial(variant, variant, 1, |_| {}));
    let dir = project.submitted_as(392, "086_load", trials.to_vec(), |record| "slurm".clone_into(&mut record.backend));
    let ranks = [steps(10, 1), steps(10, 1)];
    completed(&dir, &trials[0], &ranks);
    // It ran out of memory, and was retried with more.
    let first = running(&dir, &trials[1], &ranks[..1]);
    finish(&first, &ranks[..1], TrialState::Failed, "rank 0 was killed");
    let mut outcome = first.outcome().unwrap().unwrap();
    outcome.cause = Some(Cause::OutOfMemory);
    outcome.save(&first).unwrap();
    completed(&dir, &trials[1], &ranks);
    let array = |id, memory_mib, tasks: &[(u32, TaskTrial)]| SubmittedArray {
        id,
        memory_mib,
        tasks: tasks.iter().map(|(task, turn)| (*task, vec![*turn])).collect(),
        ..SubmittedArray::default()
    };
    let arrays =
        vec![array(392, 500, &[(0, TaskTrial(0, 1)), (1, TaskTrial(1, 1))]), array(400, 1000, &[(1, TaskTrial(1, 2))])];
    JobArrays { arrays, ..JobArrays::default() }.save(&dir).unwrap();

    let rows: Vec<Value> = serde_json::from_str(&project.ok(&["status", "392", "--attempts", "--json"])).unwrap();
    let shown: Vec<Value> = rows
        .iter()
        .map(|row| {
            json!([row["task"], row["attempt"], row["slurm_task"], row["state"], row["cause"], row["memory_mib"]])
        })
        .collect();
    assert_eq!(
        shown,
        [
            json!([0, 1, "392_0", "completed", null, 500]),
            json!([1, 1, "392_1", "failed", "out_of_memory", 500]),
            json!([1, 2, "400_1", "completed", null, 1000]),
        ]
    );
    assert_eq!(rows[0]["nodes"], json!(["node0", "node1"]));
    assert_eq!((rows[1]["reason"].as_str(), rows[1]["time_min"].as_u64()), (Some("rank 0 was killed"), None));
    let table = project.ok(&["status", "392", "--attempts"]);
    assert!(table.contains("| out of memory | ") && table.contains(" | 1000 MiB | "), "{table}");

    // The note shows them for what was run again.
    project.ok(&["report", "392"]);
    let note = std::fs::read_to_string(project.path().join("results/086_load_392.md")).unwrap();
    let section = note.split("### Attempts").nth(1).unwrap().split("###").next().unwrap();
    assert!(
        section.contains("| 392_1 | failed | out of memory |") && section.contains("| 400_1 | completed |"),
        "{note}"
    );
    assert!(!section.contains("392_0"), "{section}");
}

/// Not a test: writes the ledger that benches/load.sh measures with, job 1, into `EXPCTL_LOAD_DIR`.
#[test]
#[ignore = "for benches/load.sh"]
fn write_a_ledger() {
    let number = |name: &str, usual: u32| std::env::var(name).map_or(usual, |n| n.parse().unwrap());
    let project = TestProject::new();
    let (trials, ranks) = (number("EXPCTL_LOAD_TRIALS", TRIALS), number("EXPCTL_LOAD_RANKS", 2));
    many(&project, 1, trials, ranks, number("EXPCTL_LOAD_STEPS", 100).into());
    std::fs::rename(project.path(), std::env::var("EXPCTL_LOAD_DIR").unwrap()).unwrap();
}
