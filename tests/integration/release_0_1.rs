//! Ledgers and configs of release 0.1 are read as that release read them.
//!
//! tests/samples/release_0_1 has what the programs of that release left: jobs on graphs (1, two ranks), arrays (2), a Python program
//! (3) and with a profiler (4); all configs of its conf/; and what it printed about them. Fields may be added, none may change.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::common::{TestProject, copy, text};

fn release() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples/release_0_1")
}

fn expected(name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(release().join("expected").join(name)).unwrap()).unwrap()
}

/// A project with the jobs of that release.
fn project() -> TestProject {
    let project = TestProject::new();
    copy(&release().join("runs"), &project.path().join("results/runs"));
    project
}

/// All that `old` has is in `new`, numbers but for rounding. What came in later is not looked at, nor are the words of remarks, which are for
/// people: there are as many.
fn assert_has(new: &Value, old: &Value, at: &str) {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => {
            for (key, value) in old {
                let found = new.get(key).unwrap_or_else(|| panic!("{at}.{key} is gone"));
                match (key.as_str(), found.as_array(), value.as_array()) {
                    ("remarks", Some(new), Some(old)) => assert_eq!(new.len(), old.len(), "{at}.{key}"),
                    _ => assert_has(found, value, &format!("{at}.{key}")),
                }
            }
        }
        (Value::Array(new), Value::Array(old)) => {
            assert_eq!(new.len(), old.len(), "{at}");
            new.iter().zip(old).enumerate().for_each(|(i, (new, old))| assert_has(new, old, &format!("{at}[{i}]")));
        }
        (Value::Number(new), Value::Number(old)) => {
            let (new, old) = (new.as_f64().unwrap(), old.as_f64().unwrap());
            assert!((new - old).abs() <= 1e-9 * old.abs(), "{at}: {new} was {old}");
        }
        _ => assert_eq!(new, old, "{at}"),
    }
}

#[test]
fn jobs_of_release_0_1_compare_as_they_did() {
    let project = project();
    for job in ["1", "2", "3", "4"] {
        assert_has(&project.compare(&[job]), &expected(&format!("compare-{job}.json")), &format!("compare {job}"));
    }
}

#[test]
fn times_and_traces_of_release_0_1_are_read_as_they_were() {
    let project = project();
    assert_has(&project.json(&["timings", "1", "--json"], 0), &expected("timings-1.json"), "timings 1");
    assert_has(&project.json(&["trace", "4", "--json"], 0), &expected("trace-4.json"), "trace 4");
}

#[test]
fn jobs_of_release_0_1_are_listed_reported_and_taken_apart() {
    let project = project();
    let status = project.ok(&["status"]);
    for config in ["graph", "array", "program", "profiled"] {
        assert!(status.contains(config), "{status}");
    }
    for job in ["1", "2", "3", "4"] {
        project.ok(&["report", job]);
    }
    project.ok(&["isolate", "1", "--dry-run"]);
}

/// Every config is accepted, and its trials have the ids that they had: a job of today stands beside one of then.
#[test]
fn configs_of_release_0_1_plan_the_same_trials() {
    let project = TestProject::new();
    std::fs::remove_dir(project.path().join("conf")).unwrap();
    copy(&release().join("conf"), &project.path().join("conf"));
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches");
    std::os::unix::fs::symlink(peers, project.path().join("benches")).unwrap();
    for (config, ids) in expected("plans.json").as_object().unwrap() {
        let output = project.run(&["plan", config, "--json"]);
        assert!(output.status.success(), "{config}: {}", text(&output.stderr));
        let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
        let planned: Vec<&Value> = plan["trials"].as_array().unwrap().iter().map(|trial| &trial["id"]).collect();
        assert_eq!(planned, ids.as_array().unwrap().iter().collect::<Vec<_>>(), "{config}");
    }
}
