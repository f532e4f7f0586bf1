//! `expctl compare` and `expctl import`, as a user runs them.
#![allow(clippy::unwrap_used, reason = "a test that cannot set up fails")]

#[path = "support/ledger.rs"]
mod ledger;

use expctl_record::Mode;
use ledger::{TestProject, completed, running, steps, two_variants};

/// Ratio, lower and upper end.
const SCIPY: [f64; 3] = [3.9996998574311537, 3.795808644783065, 4.21454305172148];

fn json(project: &TestProject, args: &[&str]) -> serde_json::Value {
    let (stdout, _) = project.run(&[&["compare", "--format", "json"], args].concat(), 0);
    serde_json::from_str(&stdout).unwrap()
}

fn close(value: &serde_json::Value, expected: f64) {
    let value = value.as_f64().unwrap();
    assert!((value - expected).abs() < 1e-9 * expected, "{value} is not {expected}");
}

#[test]
fn the_published_table() {
    let project = TestProject::new();
    insta::assert_snapshot!(project.run(&["compare", "392", "447", "456"], 0).0);
}

#[test]
fn the_published_table_as_csv() {
    let project = TestProject::new();
    let (stdout, stderr) = project.run(&["compare", "392", "447", "456", "--format", "csv"], 0);
    assert!(stderr.contains("no verdict"), "{stderr}");
    insta::assert_snapshot!(stdout);
}

#[test]
fn the_published_table_as_json() {
    let project = TestProject::new();
    let all = json(&project, &["392", "447", "456"]);
    let lines = all["groups"][0]["lines"].as_array().unwrap();
    assert_eq!(lines.len(), 3);
    assert!(lines.iter().all(|l| l["class"] == "imported"));
    close(&lines[1]["ratio_it_per_s"]["value"], 0.24 / 0.42);
    close(&lines[2]["ratio_storage"], 225.0);
    close(&lines[0]["samples_per_s"][0], 47.04);
    assert_eq!(
        (&lines[1]["verdict"], &lines[1]["ratio_it_per_s"]["interval"]),
        (&"too_few_runs".into(), &serde_json::Value::Null)
    );
    let workers = &all["groups"][0]["differences"][0];
    assert_eq!(workers, &serde_json::json!({ "setting": "workers", "values": ["4", "6", "12"] }));
}

#[test]
fn rows_with_a_profiler_are_set_apart() {
    let project = TestProject::new();
    insta::assert_snapshot!(project.run(&["compare", "392", "428/430", "447"], 0).0);
    let (_, stderr) = project.run(&["compare", "392", "428"], 7);
    assert!(stderr.contains("steps of kind train with a profiler: 428/430"), "{stderr}");
}

#[test]
fn published_profiling_per_iteration_and_per_sample() {
    let project = TestProject::new();
    insta::assert_snapshot!(project.run(&["compare", "525"], 0).0);
    let all = json(&project, &["524"]);
    let lines = &all["groups"][0]["lines"];
    assert_eq!((&lines[0]["it_per_s"][0], &lines[1]["it_per_s"][0]), (&1.592.into(), &19.904.into()));
}

#[test]
fn another_baseline() {
    let project = TestProject::new();
    for args in [["392", "447", "--baseline", "447"], ["392", "--baseline", "447", "392"]] {
        let all = json(&project, &args);
        let lines = all["groups"][0]["lines"].as_array().unwrap();
        let base = lines.iter().find(|l| l["baseline"] == true).unwrap();
        let other = lines.iter().find(|l| l["baseline"] == false).unwrap();
        assert_eq!((&base["job"], &other["job"]), (&"447".into(), &"392".into()));
        close(&other["ratio_it_per_s"]["value"], 0.42 / 0.24);
    }
}

#[test]
fn measured_jobs_get_intervals_and_verdicts() {
    let project = TestProject::new();
    two_variants(&project, 12);
    insta::assert_snapshot!(project.run(&["compare", "12"], 0).0);
    let all = json(&project, &["12"]);
    let ratio = &all["groups"][0]["lines"][1]["ratio_samples_per_s"];
    // scipy.stats.ttest_ind(log([10, 1000/102, 1000/98]), log([2.5, 1000/410, 1000/390]), equal_var=False)
    for (value, expected) in
        [(&ratio["value"], SCIPY[0]), (&ratio["interval"]["low"], SCIPY[1]), (&ratio["interval"]["high"], SCIPY[2])]
    {
        let value = value.as_f64().unwrap();
        assert!((value - expected).abs() < 1e-8 * expected, "{value} is not {expected}");
    }
}

#[test]
fn a_job_that_still_runs_is_incomplete() {
    let project = TestProject::new();
    let trials: Vec<_> = (1..=2).map(|r| project.trial("lazy", "Lazy", r, |_| {})).collect();
    let dir = project.job(13, "086_ddp", trials.clone());
    completed(&dir, &trials[0], &[steps(400, 80), steps(400, 8)]);
    running(&dir, &trials[1], &[steps(40, 8), steps(40, 8)]);
    let (stdout, stderr) = project.run(&["compare", "13"], 6);
    assert!(
        stdout.contains("| **2.5** | **140** |") && stdout.contains("lazy-r2-0a1b2c is not counted: running or lost"),
        "{stdout}"
    );
    assert!(stderr.contains("1 trial did not complete"), "{stderr}");
}

#[test]
fn unknown_jobs_are_refused_with_those_that_exist() {
    let project = TestProject::new();
    two_variants(&project, 12);
    let (stdout, stderr) = project.run(&["compare", "392", "999"], 7);
    assert!(stdout.is_empty());
    insta::assert_snapshot!(stderr);
    assert!(project.run(&["compare", "x"], 2).1.contains("'x' is not a job"));
}

#[test]
fn steps_of_different_kinds_do_not_compare() {
    let project = TestProject::new();
    let trial = project.trial("lazy", "Lazy", 1, |s| s.train.mode = Mode::Data);
    let dir = project.job(14, "086_dataloader", vec![trial.clone()]);
    completed(&dir, &trial, &[steps(400, 0), steps(400, 0)]);
    let (stdout, stderr) = project.run(&["compare", "392", "14"], 7);
    assert!(stdout.is_empty());
    insta::assert_snapshot!(stderr);
    // With a published data-only job it does, across everything that differs.
    let (stdout, _) = project.run(&["compare", "525", "14"], 0);
    assert!(stdout.contains("cross a different world size, number of samples, device"), "{stdout}");
    assert!(stdout.contains("not known for all rows (data), so they may differ: allocator"), "{stdout}");
}

#[test]
fn the_measured_job_hides_the_published_one() {
    let project = TestProject::new();
    two_variants(&project, 392);
    let (stdout, stderr) = project.run(&["compare", "392"], 0);
    assert!(stdout.contains("measured") && !stdout.contains("imported"), "{stdout}");
    assert!(stderr.contains("job 392 exists measured and published"), "{stderr}");
    let (stdout, _) = project.run(&["compare", "392", "published:392"], 0);
    assert!(stdout.contains("Incidence Map (Baseline)") && stdout.contains("Ids only"), "{stdout}");
}

#[test]
fn results_are_imported_once_checked() {
    let project = TestProject::new();
    let head = "schema = 1\nstudy = \"s\"\nsource = { title = \"t\", from = \"f\", date = \"2025-01-01\" }\n";
    let row = "[[result]]\njob = 700\nconfig = \"c\"\nmethod = \"m\"\nmode = \"train\"\nit_per_s = 0.5\nestimator = \"e\"\nranks = 4\nbatch_size = 28\n";
    let file = project.path("mine.toml");
    let path = file.to_str().unwrap();
    std::fs::write(&file, format!("{head}{row}")).unwrap();
    let (stdout, stderr) = project.run(&["import", path], 0);
    assert_eq!(stdout, "ROOT/results/imported/mine.toml\n");
    assert!(stderr.contains("took job 700 c m: 0.5 it/s, imported"), "{stderr}");
    assert!(project.run(&["compare", "392", "700"], 0).0.contains("| 700 | c | m | 0.5 (1.19×) | 56 |"));
    assert!(project.run(&["import", path], 0).1.contains("unchanged"));
    std::fs::write(&file, format!("{head}{}", row.replace("0.5", "0.6"))).unwrap();
    assert!(project.run(&["import", path], 2).1.contains("exists with other content"));
    project.run(&["import", path, "--force"], 0);
    assert!(project.run(&["compare", "700"], 0).0.contains("**0.6**"));
    std::fs::write(&file, format!("{head}{}", row.replace("it_per_s", "itpers"))).unwrap();
    let (_, stderr) = project.run(&["import", path, "--force"], 3);
    assert!(stderr.contains("mine.toml:9:1: unknown field `itpers`"), "{stderr}");
}
