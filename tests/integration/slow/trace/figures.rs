//! What traces add up to: in summaries, comparisons and notes.

use super::*;

#[test]
fn a_job_without_a_profiler_says_what_makes_a_trace() {
    let project = TestProject::new();
    let job = ran(&project, &["train.mode=data", "measure.steps=3"]);
    let (_, stderr) = project.expect(&["trace", &job], 7);
    assert!(stderr.contains("was not profiled") && stderr.contains("trace.at_step"), "{stderr}");
    assert!(trace_files(&project.attempt(&job, "dango").unwrap()).is_empty());
}

fn json(project: &TestProject, args: &[&str], code: i32) -> Json {
    project.json(&[&["trace"], args, &["--json"]].concat(), code)
}

/// The entry of this name in a list.
fn named<'j>(list: &'j Json, name: &str) -> &'j Json {
    list.as_array().unwrap().iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("no {name}: {list}"))
}

const WINDOW: fn(&mut Settings) = |settings| settings.profile.active = 4;

/// Jobs 20 and 21 of one variant: the second waits longer for its batch, and has an operation of its own.
pub fn two_profiled_jobs(project: &TestProject) {
    let trial = project.trial("lazy", "Lazy", 1, WINDOW);
    let dir = project.submitted(20, "074", vec![trial.clone()]);
    profiled(&dir, &trial, &traced(&[100, 104, 96, 100], &[("aten::mm", 150), ("aten::add", 20)]));
    let dir = project.submitted(21, "075", vec![trial.clone()]);
    profiled(&dir, &trial, &traced(&[300, 310, 296, 302], &[("aten::mm", 150), ("aten::index_select", 30)]));
}

#[test]
fn two_jobs_are_compared_by_stages_and_operations() {
    let project = TestProject::new();
    two_profiled_jobs(&project);
    let (text, stderr) = project.expect(&["trace", "20", "21"], 0);
    for said in [
        "# Traces of job 20 lazy and job 21 lazy",
        "- job 20 lazy (Lazy): 4 steps recorded, 1.5 s, of trial lazy-r1-0a1b2c; longest single operation `aten::mm`, 150 ms (rank 0, steps, step 3, in forward)",
        "- job 21 lazy (Lazy): 4 steps recorded, 2.3 s, of trial lazy-r1-0a1b2c; longest single operation `collate`, 310 ms (rank 0, loader 0, step 4)",
        "- n = 4 and 4 steps; intervals (95 %) and verdicts are of these windows",
        "| collate | 100.000 | 302.000 | +202.000 [",
        "| **whole step** | **370.000** | **582.000** | **+212.000 [",
        "| `aten::add` | forward | 1.0 | 0.0 | 20.000 | – | -20.000 | – | only in 20 |",
        "| `aten::index_select` | forward | 0.0 | 1.0 | – | 30.000 | +30.000 | – | only in 21 |",
    ] {
        assert!(text.contains(said), "{said}\n{text}");
    }
    // Nothing is merged or written for a comparison, unless it is asked for.
    assert!(stderr.is_empty(), "{stderr}");
    assert!(!project.attempt("20", "lazy").unwrap().path().join("trace.json.gz").exists());
    let file = project.file("compared.md");
    project.expect(&["trace", "20", "21", "--summary", file.to_str().unwrap()], 0);
    assert_eq!(std::fs::read_to_string(file).unwrap().trim(), text.trim());
    let (boxed, _) = project.expect(&["trace", "20", "21", "--format", "table"], 0);
    assert!(boxed.contains("│") && !boxed.contains("| collate |"), "{boxed}");

    let all = json(&project, &["20", "21"], 0);
    let comparison = &all["comparisons"][0];
    assert_eq!((&comparison["base"]["job"], &comparison["side"]["job"]), (&20.into(), &21.into()));
    assert_eq!((&comparison["base"]["steps"], &comparison["side"]["steps"]), (&4.into(), &4.into()));
    let whole = named(&comparison["stages"], "whole step");
    close(&whole["base_ns"], 370e6);
    close(&whole["compared"]["difference"]["value"], 212e6);
    close(&whole["compared"]["ratio"]["value"], 370.0 / 582.0);
    assert_eq!((&whole["verdict"], &whole["compared"]["steps"]), (&"slower".into(), &serde_json::json!([4, 4])));
    // Four steps a side: Welch's t, 212 ± 8.8 ms.
    let interval = &whole["compared"]["difference"]["interval"];
    let (low, high) = (interval["low"].as_f64().unwrap(), interval["high"].as_f64().unwrap());
    assert!(low > 200e6 && low < 206e6 && high > 218e6 && high < 224e6, "{interval}");
    let collate = named(&comparison["stages"], "collate");
    assert_eq!(collate["verdict"], "slower");
    close(&collate["busy_ns"][1], 302e6);
    // What took the same in every step has no spread, so that nothing can be tested.
    assert_eq!(named(&comparison["operations"], "aten::mm")["verdict"], "no_spread");
    let only = named(&comparison["operations"], "aten::index_select");
    assert!(only["base_ns"].is_null() && only["verdict"].is_null() && only["compared"]["ratio"].is_null(), "{only}");
    close(&only["side_ns"], 30e6);
}

#[test]
fn a_window_of_one_step_has_no_interval_and_says_how_to_get_one() {
    let project = TestProject::new();
    let trial = project.trial("lazy", "Lazy", 1, |settings| settings.trace.at_step = 8);
    for (job, load) in [(20, 100), (21, 900)] {
        let dir = project.submitted(job, "074", vec![trial.clone()]);
        profiled(&dir, &trial, &traced(&[load], &[("aten::mm", 1000)]));
    }
    let (text, _) = project.expect(&["trace", "20", "21"], 0);
    let said = "- 1 step recorded of job 20 lazy: no interval and no verdict (3 steps are needed on both sides); \
                `--set profile.active=10` records ten steps, where `trace.at_step` is not set";
    assert!(text.contains(said) && text.contains("| too few steps |") && !text.contains("[+"), "{text}");
    let all = json(&project, &["20", "21"], 0);
    let whole = named(&all["comparisons"][0]["stages"], "whole step");
    assert_eq!(whole["verdict"], "too_few_steps");
    assert!(whole["compared"]["ratio"]["interval"].is_null() && whole["compared"]["difference"]["interval"].is_null());
    close(&whole["compared"]["ratio"]["value"], 1200.0 / 2000.0);
}

#[test]
fn the_variants_of_one_job_are_compared_with_its_baseline() {
    let project = TestProject::new();
    let trials = [
        project.trial("dango", "DANGO", 1, WINDOW),
        project.trial("lazy", "Lazy", 1, WINDOW),
        project.trial("plain", "Not profiled", 1, |_| {}),
    ];
    let dir = project.submitted_as(30, "086", trials.to_vec(), |record| record.baseline = Some("lazy".into()));
    for (trial, load) in trials.iter().zip([[300, 302, 301, 299], [100, 102, 101, 99]]) {
        profiled(&dir, trial, &traced(&load, &[("aten::mm", 150)]));
    }
    // A summary of each, and the comparison behind them.
    let (text, stderr) = project.expect(&["trace", "30"], 0);
    let headings: Vec<&str> = text.lines().filter(|line| line.starts_with("# ")).collect();
    assert_eq!(
        headings,
        [
            "# Trace of job 30, trial dango-r1-0a1b2c",
            "# Trace of job 30, trial lazy-r1-0a1b2c",
            "# Traces of job 30 lazy and job 30 dango"
        ]
    );
    assert_eq!(stderr.matches("open it at https://ui.perfetto.dev").count(), 2, "{stderr}");
    assert!(text.contains("| Stage | exposed, lazy | exposed, dango |"), "{text}");
    let order = |args: &[&str]| {
        let all = json(&project, args, 0);
        ["base", "side"].map(|side| all["comparisons"][0][side]["label"].as_str().unwrap().to_owned())
    };
    assert_eq!(order(&["30"]), ["lazy", "dango"]);
    // Of trials that are named the first one is the baseline.
    assert_eq!(order(&["30_0", "30_1"]), ["dango-r1-0a1b2c", "lazy-r1-0a1b2c"]);

    for (args, said) in [
        (&["30_0", "30_0"][..], "there is nothing to compare it with"),
        (&["30_0", "30_1", "--out", "x.gz"][..], "--out and --trial are for one job"),
        (&["30", "--out", "x.gz"][..], "job 30 has traces of 2 trials"),
    ] {
        let (stdout, stderr) = project.expect(&[&["trace"], args].concat(), 2);
        assert!(stdout.is_empty() && stderr.contains(said), "{stderr}");
    }
    let (_, stderr) = project.expect(&["trace", "30", "30_2"], 7);
    assert!(stderr.contains("job 30 was not profiled"), "{stderr}");
    // A rank without its trace is said; the rest is compared all the same.
    let attempt = project.attempt("30", "lazy").unwrap();
    std::fs::remove_file(attempt.trace_path(1, 0)).unwrap();
    let (text, stderr) = project.expect(&["trace", "30_0", "30_1"], 6);
    assert!(text.contains("| **whole step** |") && stderr.contains("lacks traces: rank 1, cycle 0"), "{stderr}");
}

#[test]
fn a_summary_names_the_longest_single_call_and_the_seconds_of_each_stage() {
    let project = TestProject::new();
    let trial = project.trial("lazy", "Lazy", 1, WINDOW);
    let dir = project.submitted(20, "074", vec![trial.clone()]);
    let attempt = profiled(&dir, &trial, &traced(&[100, 104, 96, 100], &[("aten::mm", 60), ("aten::add", 20)]));
    // Rank 1 has one call that stands out, in the last step.
    let mut late = traced(&[100, 104, 96, 100], &[("aten::mm", 60), ("aten::add", 20)]);
    late[3].operations[0].1 = 250;
    write_trace(&attempt, &trial, 1, &late);
    let (text, _) = project.expect(&["trace", "20"], 0);
    for said in [
        "Longest single operation: `aten::mm`, 250 ms (rank 1, steps, step 6, in forward).",
        "| host, own time | `aten::mm` | 250.000 | rank 1, steps, step 6, in forward | 8 | 670.000 |",
        "| loader thread | `collate` | 104.000 | rank 0, loader 0, step 4 | 8 | 800.000 |",
        "| collective | `gloo:all_reduce` | 40.000 | rank 0, collectives, step 3 | 8 | 320.000 |",
        // 20 measured steps of 400 ms, and two of a second before them.
        "Measured, by the ledger: In seconds, of a rank (mean of 2 ranks): 8 s in 20 measured steps, exposed collate 4 s, forward 2 s",
        "; 10 s in all 22 steps with the warm-up",
    ] {
        assert!(text.contains(said), "{said}\n{text}");
    }
    let all = json(&project, &["20"], 0);
    let one = &all["trials"][0];
    assert_eq!((&all["schema"], &one["trial"], &one["steps"]), (&1.into(), &"lazy-r1-0a1b2c".into(), &8.into()));
    let longest = named(&one["longest"], "aten::mm");
    assert_eq!(
        (&longest["kind"], &longest["ns"], &longest["rank"]),
        (&"host_exclusive".into(), &250_000_000.into(), &1.into())
    );
    close(&one["totals"]["measured"]["wall_s"], 8.0);
    close(&one["totals"]["measured"]["stages"][1]["exposed_s"], 4.0);
    assert_eq!(one["totals"]["run"]["steps"], 22.0);
    assert_eq!(named(&one["operations"], "aten::mm")["own_ns"], 670_000_000);
    assert_eq!(all["comparisons"], serde_json::json!([]));
}

#[test]
fn a_note_has_the_longest_operations_of_each_profiled_variant() {
    let project = TestProject::new();
    two_profiled_jobs(&project);
    project.expect(&["report", "20"], 0);
    let note = std::fs::read_to_string(project.file("results/074_20.md")).unwrap();
    let row = "| lazy | lazy-r1-0a1b2c | 8 | `aten::mm` | 150 | 40.5 % | `aten::mm` | 150 | rank 0, steps, step 3, in forward |";
    assert!(note.contains("### Profile") && note.contains(row), "{note}");
    // A trace that is gone is said, and the note is written all the same.
    let attempt = project.attempt("21", "lazy").unwrap();
    (0..2).for_each(|rank| std::fs::remove_file(attempt.trace_path(rank, 0)).unwrap());
    project.expect(&["report", "21"], 0);
    let note = std::fs::read_to_string(project.file("results/075_21.md")).unwrap();
    assert!(note.contains("- lazy: trial lazy-r1-0a1b2c left no trace: its last attempt is completed"), "{note}");
}
