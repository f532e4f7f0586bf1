//! `expctl history`, as a user runs it: series of jobs with known rates, what changed between them, gates, and JUnit XML.

use std::path::Path;
use std::process::Command;

use expctl_ledger::{AttemptDir, Environment, JobDir, StepRecord, TrialState, write_json};
use expctl_settings::{Settings, Trial};
use serde_json::Value;

use crate::common::ledger::{SUBMITTED, completed, finish, running, steps, two_variants};
use crate::common::programs::interpreter;
use crate::common::{TestProject, text};

/// What differs between the jobs of a test.
#[derive(Clone, Copy)]
struct Ran {
    /// Time of a step, ms.
    wall_ms: u64,
    /// Version of the GPUs' driver.
    driver: &'static str,
    /// Model of the processor.
    cpu: &'static str,
}

const PLAIN: Ran = Ran { wall_ms: 400, driver: "550.54", cpu: "Test CPU" };

/// Differences of the step time between jobs, ms: 1 % of it.
const NOISE: [i64; 10] = [0, 3, -2, 5, -4, 1, -6, 4, -1, 2];

fn environment(attempt: &AttemptDir, change: impl FnOnce(&mut Environment)) {
    let mut environment = attempt.environment().unwrap().unwrap();
    change(&mut environment);
    write_json(&attempt.environment_path(), &environment).unwrap();
}

/// A trial whose id has the hash of its settings, as those of real jobs have.
fn trial(project: &TestProject, variant: &str, repeat: u32, hash: &str, change: impl FnOnce(&mut Settings)) -> Trial {
    let mut trial = project.trial(variant, variant, repeat, |settings| {
        settings.launch.ranks = 1;
        change(settings);
    });
    trial.id = format!("{variant}-r{repeat}-{hash}");
    trial
}

/// Job `id` of two repeats of `lazy`, a day after the job before it, from a commit of its own.
fn job(project: &TestProject, id: u64, ran: Ran) -> JobDir {
    let trials = [1, 2].map(|repeat| trial(project, "lazy", repeat, "0a1b2c3d", |_| {}));
    job_of(project, id, &trials, ran)
}

fn job_of(project: &TestProject, id: u64, trials: &[Trial], ran: Ran) -> JobDir {
    let dir = project.submitted_as(id, "nightly", trials.to_vec(), |record| {
        record.submitted = SUBMITTED + 86_400 * id as i64;
        record.commit = Some(format!("c{id:03}"));
    });
    for (trial, apart) in trials.iter().zip([-1, 1].iter().cycle()) {
        let noise = NOISE[id as usize % NOISE.len()] + apart;
        let rows = [steps(ran.wall_ms.checked_add_signed(noise).unwrap(), 0)];
        let attempt = running(&dir, trial, &rows);
        environment(&attempt, |environment| {
            environment.ranks[0].gpu_driver = ran.driver.into();
            environment.ranks[0].cpu = ran.cpu.into();
        });
        finish(&attempt, &rows, TrialState::Completed, "");
    }
    dir
}

/// Jobs 1 to 24; from 17 on with another driver and 12 % fewer samples a second.
fn slower_from_17(project: &TestProject) {
    for id in 1..=24 {
        let slower = Ran { wall_ms: 455, driver: "560.28", ..PLAIN };
        job(project, id, if id < 17 { PLAIN } else { slower });
    }
}

/// The first of several lines that begins so.
fn line<'a>(text: &'a str, start: &str) -> &'a str {
    text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start}\n{text}"))
}

#[test]
fn a_slowdown_is_found_with_what_changed_with_it() {
    let project = TestProject::new();
    slower_from_17(&project);
    let (stdout, stderr) = project.expect(&["history", "nightly", "--last", "9"], 0);
    assert!(stderr.is_empty(), "{stderr}");
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guide/history.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    assert!(guide.contains(stdout.trim_end()), "docs/guide/history.md has not what is printed:\n{stdout}");
    let first = stdout.lines().next().unwrap();
    assert!(first.starts_with("**`lazy`: since job 17 (commit c017) 12 % slower ["), "{first}");
    assert!(first.ends_with("over 8 jobs; at the same time changed: GPU driver 550.54 → 560.28**"), "{first}");

    let all = project.json(&["history", "nightly", "--json"], 0);
    let series = &all["series"][0];
    assert_eq!((series["jobs"].as_array().unwrap().len(), series["levels"].as_array().unwrap().len()), (24, 2));
    let change = &series["changes"][0];
    assert_eq!(
        (&change["before"], &change["job"], &change["jobs"]),
        (&16.into(), &17.into(), &serde_json::json!([16, 8]))
    );
    let ratio = change["ratio"]["value"].as_f64().unwrap();
    assert!((ratio - 400.0 / 455.0).abs() < 0.005, "{change}");
    assert!(change["ratio"]["interval"]["high"].as_f64().unwrap() < 0.9, "{change}");
    // The geometric mean of the two runs, as their own rates give it.
    let of_job = &series["jobs"][0];
    let rates: Vec<f64> =
        of_job["samples_per_s"].as_array().unwrap().iter().map(|rate| rate.as_f64().unwrap()).collect();
    assert_eq!(rates.len(), 2);
    let mean = of_job["samples_per_s_rate"]["value"].as_f64().unwrap();
    assert!((mean - (rates[0] * rates[1]).sqrt()).abs() < 1e-9 && (rates[0] - 28.0 / 0.402).abs() < 1e-9, "{of_job}");
    assert_eq!((&of_job["environment"]["commit"], &of_job["environment"]["kernel"]), (&"c001".into(), &"6.1".into()));

    let (csv, _) = project.expect(&["history", "nightly", "--format", "csv"], 0);
    assert_eq!(csv.lines().count(), 25);
    assert!(line(&csv, "lazy,measured,nightly,17,").contains(",c017,"), "{csv}");
    let (all, _) = project.expect(&["history", "nightly", "--last", "0"], 0);
    assert_eq!(all.lines().filter(|line| line.contains(" UTC")).count(), 24, "{all}");
}

#[test]
fn a_config_has_a_name_and_paths_and_a_variant_a_name() {
    let project = TestProject::new();
    (1..=5).for_each(|id| _ = job(&project, id, PLAIN));
    let conf = project.conf("nightly", "");
    let of = |args: &[&str]| project.expect(&[&["history"], args].concat(), 0).0;
    let by_name = of(&["nightly"]);
    assert!(by_name.starts_with("**`lazy`: no change over 5 jobs, 6"), "{by_name}");
    for same in [&["conf/nightly.toml"][..], &[conf.to_str().unwrap()], &["nightly", "--only", "lazy"]] {
        assert_eq!(of(same), by_name, "{same:?}");
    }
    // A variant is of published jobs, too.
    let by_variant = of(&["lazy"]);
    let measured = by_name.split_once("\n\nMeasured;").unwrap().0;
    assert!(
        by_variant.starts_with(measured) && by_variant.contains("Published by others (imported), and in no series"),
        "{by_variant}"
    );
    assert!(of(&["nightly", "--since", "3"]).contains("over 3 jobs, too few to look for changes: 5 are needed"));
    let (stdout, stderr) = project.expect(&["history", "nightli"], 7);
    assert!(stdout.is_empty() && stderr.contains("error: no job of this ledger is of a config or variant `nightli`"));
    assert!(stderr.contains("did you mean nightly?") && stderr.contains("hint: variants: lazy"), "{stderr}");
    let (_, stderr) = project.expect(&["history", "nightly", "--only", "ids"], 7);
    assert!(stderr.contains("`nightly` with a variant `ids`"), "{stderr}");
    let (_, stderr) = project.expect(&["history", "nightly", "--since", "99"], 7);
    assert!(stderr.contains("there is no job 99"), "{stderr}");
}

#[test]
fn rates_of_other_settings_and_other_hardware_are_other_series() {
    let project = TestProject::new();
    job(&project, 1, PLAIN);
    job(&project, 2, PLAIN);
    let more = |id: u64, ran: Ran| {
        let trials = [trial(&project, "lazy", 1, "ffff0000", |settings| settings.loader.workers = 8)];
        job_of(&project, id, &trials, ran)
    };
    more(3, PLAIN);
    more(4, PLAIN);
    job(&project, 5, Ran { cpu: "Other CPU", ..PLAIN });
    let all = project.json(&["history", "nightly", "--json"], 0);
    let series: Vec<(&str, Vec<u64>)> = (all["series"].as_array().unwrap().iter())
        .map(|series| {
            let jobs = series["jobs"].as_array().unwrap().iter().map(|job| job["job"].as_u64().unwrap());
            (series["name"].as_str().unwrap(), jobs.collect())
        })
        .collect();
    let expected = [
        ("lazy (workers 4, processor Other CPU)", vec![5]),
        ("lazy (workers 8, processor Test CPU)", vec![3, 4]),
        ("lazy (workers 4, processor Test CPU)", vec![1, 2]),
    ];
    assert_eq!(series, expected);
    let (stdout, _) = project.expect(&["history", "nightly"], 0);
    assert!(stdout.contains("Series of one job, which have nothing to be compared with:"), "{stdout}");
    line(&stdout, "| `lazy (workers 4, processor Other CPU)` | 5 |");
    // One run has the interval of its own steps, and says so.
    assert!(stdout.contains("(within the run only)") || stdout.contains(" – | "), "{stdout}");
}

#[test]
fn trials_and_jobs_that_do_not_count_are_named() {
    let project = TestProject::new();
    (1..=6).for_each(|id| _ = job(&project, id, PLAIN));
    // A table that was cut off, a trial that failed, a job whose record is damaged, and runs of a tenth of a second.
    let attempt = project.job("2").attempts("lazy-r1-0a1b2c3d").unwrap().pop().unwrap();
    std::fs::write(attempt.steps_path(0), b"PAR1").unwrap();
    let attempt = project.job("3").attempts("lazy-r2-0a1b2c3d").unwrap().pop().unwrap();
    let mut outcome = attempt.outcome().unwrap().unwrap();
    (outcome.state, outcome.message) = (TrialState::Failed, "rank 0 was killed by signal 9".into());
    outcome.save(&attempt).unwrap();
    std::fs::write(project.job("4").record_path(), b"{").unwrap();
    job(&project, 7, Ran { wall_ms: 20, ..PLAIN });
    let (stdout, _) = project.expect(&["history", "lazy"], 0);
    assert!(stdout.starts_with("**`lazy`: no change over 5 jobs, "), "{stdout}");
    for said in [
        "- job 2, trial lazy-r1-0a1b2c3d: unreadable: ",
        "- job 3, trial lazy-r2-0a1b2c3d: failed: rank 0 was killed by signal 9",
        "- job 7, `lazy`: measured for 4",
        "- job 4 cannot be read: ",
    ] {
        line(&stdout, said);
    }
    let all = project.json(&["history", "lazy", "--json"], 0);
    assert_eq!(all["unreadable"][0]["job"], 4);
    assert_eq!(all["series"][0]["jobs"][1]["samples_per_s"].as_array().unwrap().len(), 1);
}

#[test]
fn published_rates_are_marked_and_in_no_series() {
    let project = TestProject::new();
    let row = &project.compare(&["392"])["groups"][0]["lines"][0];
    let config = row["config"].as_str().unwrap();
    let (stdout, _) = project.expect(&["history", config], 0);
    assert!(stdout.starts_with(&format!("**No job of this ledger measured `{config}`**")), "{stdout}");
    assert!(stdout.contains("Published by others (imported), and in no series:"), "{stdout}");
    let of_392 = line(&stdout, "| 392 | 2025-11-04 |");
    assert!(of_392.contains("| 47.04 | 0.42 | imported |"), "{of_392}");
    let all = project.json(&["history", config, "--json"], 0);
    assert!(all["series"].as_array().unwrap().is_empty());
    assert_eq!(all["published"][0]["class"], "imported");
    let (csv, _) = project.expect(&["history", config, "--format", "csv"], 0);
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert!(!rows.is_empty() && rows.iter().all(|row| &row[1] == "imported" && &row[18] == "false"), "{csv}");
    // Nothing was measured, so nothing is checked.
    let (_, stderr) = project.expect(&["history", config, "--gate"], 7);
    assert!(stderr.contains("there is nothing to check"), "{stderr}");
}

#[test]
fn a_gate_tells_a_loss_from_chance() {
    let project = TestProject::new();
    let gate = |args: &[&str], code: i32| project.expect(&[&["history", "nightly", "--gate"], args].concat(), code).1;
    job(&project, 1, PLAIN);
    job(&project, 2, PLAIN);
    let said = gate(&[], 7);
    assert!(
        said.contains("gate has no verdict on `lazy`: job 2 is ")
            && said.contains("1 job before it at that level, and 3 are needed")
    );
    job(&project, 3, PLAIN);
    job(&project, 4, PLAIN);
    let said = gate(&[], 0);
    assert!(
        said.starts_with("gate holds for `lazy`: job 4 is ")
            && said.contains("jobs 1 to 3 (3 jobs), within the margin of 5 %"),
        "{said}"
    );
    (5..=11).for_each(|id| _ = job(&project, id, PLAIN));
    job(&project, 12, Ran { wall_ms: 440, ..PLAIN });
    let said = gate(&[], 1);
    assert!(
        said.starts_with("gate fails for `lazy`: job 12 is 8.")
            && said.contains("jobs 1 to 11 (11 jobs), more than the margin of 5 %"),
        "{said}"
    );
    assert!(said.contains("error: 1 of 1 checks by --gate failed") && said.contains("--since JOB"), "{said}");
    let said = gate(&["--margin", "15"], 0);
    assert!(said.contains("within the margin of 15 %"), "{said}");
    // A loss that stays does not become the rule by itself, however long it lasts; it is accepted by hand.
    (13..=26).for_each(|id| _ = job(&project, id, Ran { wall_ms: 440, ..PLAIN }));
    let (stdout, _) = project.expect(&["history", "nightly"], 0);
    assert!(stdout.starts_with("**`lazy`: since job 12 "), "{stdout}");
    let said = gate(&[], 1);
    assert!(said.contains("than jobs 1 to 11 (11 jobs)"), "{said}");
    let said = gate(&["--since", "12"], 0);
    assert!(said.contains("than jobs 12 to 25 (14 jobs)"), "{said}");
    // Other settings begin anew.
    let others = [trial(&project, "lazy", 1, "ffff0000", |settings| settings.loader.workers = 8)];
    job_of(&project, 27, &others, PLAIN);
    let said = gate(&[], 7);
    assert!(said.contains("no earlier job with these settings on this hardware counts"), "{said}");
}

#[test]
fn a_gate_is_not_given_where_jobs_differ_too_much() {
    let project = TestProject::new();
    for (id, wall_ms) in (1..).zip([400, 480, 360, 520, 410, 350, 470, 440]) {
        job(&project, id, Ran { wall_ms, ..PLAIN });
    }
    job(&project, 9, Ran { wall_ms: 480, ..PLAIN });
    let (_, stderr) = project.expect(&["history", "nightly", "--gate"], 7);
    assert!(stderr.contains("more than the margin of 5 %, but jobs differ so much that it may be chance"), "{stderr}");
}

#[test]
fn the_newest_job_must_be_complete() {
    let project = TestProject::new();
    (1..=5).for_each(|id| _ = job(&project, id, PLAIN));
    let trials = [1, 2].map(|repeat| trial(&project, "lazy", repeat, "0a1b2c3d", |_| {}));
    let dir = project.submitted_as(6, "nightly", trials.to_vec(), |record| record.submitted = SUBMITTED + 86_400 * 6);
    let (_, stderr) = project.expect(&["history", "nightly", "--gate"], 7);
    assert!(stderr.contains("no run of it completed"), "{stderr}");
    completed(&dir, &trials[0], &[steps(401, 0)]);
    let (_, stderr) = project.expect(&["history", "nightly", "--gate"], 6);
    assert!(
        stderr.contains("gate holds for `lazy`: job 6 is ")
            && stderr.contains("1 trial of the newest job did not complete"),
        "{stderr}"
    );
}

/// What junitparser reads of a file: suite, counts, and for each case its class, name, and kind of result with the message.
fn parsed(path: &Path) -> Value {
    const PROGRAM: &str = r#"
import json, sys
from junitparser import JUnitXml
[suite] = list(JUnitXml.fromfile(sys.argv[1]))
cases = [[case.classname, case.name, [[type(result).__name__, result.message] for result in case.result]] for case in suite]
print(json.dumps({"name": suite.name, "counts": [suite.tests, suite.failures, suite.errors, suite.skipped], "cases": cases}))
"#;
    let output = Command::new(interpreter()).args(["-c", PROGRAM]).arg(path).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn gates_are_test_cases_for_ci() {
    let project = TestProject::new();
    let variants = ["lazy", "ids <&> \"x\""];
    for id in 1..=8 {
        let trials: Vec<Trial> = (variants.iter())
            .flat_map(|variant| [1, 2].map(|repeat| trial(&project, variant, repeat, "0a1b2c3d", |_| {})))
            .collect();
        let mut trials = trials;
        for (place, trial) in trials.iter_mut().enumerate() {
            // A folder cannot have this name.
            trial.id = format!("t{}-r{}-0a1b2c3d", place / 2, trial.repeat);
        }
        let dir = project
            .submitted_as(id, "nightly", trials.clone(), |record| record.submitted = SUBMITTED + 86_400 * id as i64);
        for (place, trial) in trials.iter().enumerate() {
            let slow = if id == 8 && place < 2 { 80 } else { 0 };
            let wall = (400 + slow + place as u64).checked_add_signed(NOISE[id as usize]).unwrap();
            completed(&dir, trial, &[steps(wall, 0)]);
        }
    }
    let file = project.file("reports/history.xml");
    let args = ["history", "nightly", "--gate", "--junit", file.to_str().unwrap()];
    let (_, stderr) = project.expect(&args, 1);
    let found = parsed(&file);
    assert_eq!((&found["name"], &found["counts"]), (&"expctl history".into(), &serde_json::json!([2, 1, 0, 0])));
    assert_eq!(found["cases"][0][0], "nightly");
    assert_eq!((&found["cases"][0][1], &found["cases"][1][1]), (&variants[0].into(), &variants[1].into()));
    let (kind, message) = (&found["cases"][0][2][0][0], found["cases"][0][2][0][1].as_str().unwrap());
    assert!(
        kind == "Failure"
            && stderr.contains(message)
            && message.starts_with("gate fails for `lazy`: job 8 is 16 % slower ["),
        "{found}"
    );
    assert_eq!(found["cases"][1][2], serde_json::json!([]));
    // Without a verdict a case is skipped.
    project.expect(&["history", "nightly", "--gate", "--since", "7", "--junit", file.to_str().unwrap()], 7);
    let found = parsed(&file);
    assert_eq!(found["counts"], serde_json::json!([2, 0, 0, 2]));
    assert_eq!(found["cases"][0][2][0][0], "Skipped");
    // And without a gate there is nothing to write.
    let (_, stderr) = project.expect(&["history", "nightly", "--junit", "x.xml"], 2);
    assert!(stderr.contains("--gate"), "{stderr}");
    for margin in ["-1", "100", "a"] {
        let (_, stderr) = project.expect(&["history", "nightly", "--gate", &format!("--margin={margin}")], 2);
        assert!(stderr.contains("a number of percent from 0 to below 100 is expected"), "{stderr}");
    }
}

#[test]
fn gates_of_a_comparison_are_test_cases_too() {
    let project = TestProject::new();
    two_variants(&project, 12);
    let file = project.file("compare.xml");
    let gates = ["--gate", "samples_per_s > 200", "--gate", "step_ms < 1000"];
    let args = [&["compare", "12", "--junit", file.to_str().unwrap()], &gates[..]].concat();
    project.expect(&args, 1);
    let found = parsed(&file);
    assert_eq!((&found["name"], &found["counts"]), (&"expctl compare".into(), &serde_json::json!([4, 1, 0, 0])));
    let cases: Vec<(&str, &str, bool)> = (found["cases"].as_array().unwrap().iter())
        .map(|case| (case[0].as_str().unwrap(), case[1].as_str().unwrap(), case[2].as_array().unwrap().is_empty()))
        .collect();
    let expected = [
        ("samples_per_s > 200", "12 086_ddp Lazy", false),
        ("samples_per_s > 200", "12 086_ddp Ids only", true),
        ("step_ms < 1000", "12 086_ddp Lazy", true),
        ("step_ms < 1000", "12 086_ddp Ids only", true),
    ];
    assert_eq!(cases, expected);
    let (_, stderr) = project.expect(&["compare", "12", "--junit", "x.xml"], 2);
    assert!(stderr.contains("--gate"), "{stderr}");
}

#[test]
fn the_rates_are_drawn() {
    let project = TestProject::new();
    slower_from_17(&project);
    let svg = project.file("pictures/history.svg");
    project.expect(&["history", "nightly", "--plot", svg.to_str().unwrap()], 0);
    let picture = std::fs::read_to_string(&svg).unwrap();
    assert!(picture.starts_with("<svg") && picture.contains("nightly over the jobs of the ledger"), "{picture}");
    // Two levels, whiskers of two runs, and the name of a job.
    assert_eq!(picture.matches("<g data-name=\"level\">").count(), 2, "{picture}");
    assert!(picture.contains("17, mean of a job: 61") && picture.contains("data-name=\"each run\""), "{picture}");
    let png = project.file("history.png");
    project.expect(&["history", "nightly", "--plot", png.to_str().unwrap()], 0);
    assert!(std::fs::read(&png).unwrap().starts_with(b"\x89PNG"));
    let (_, stderr) = project.expect(&["history", "nightly", "--plot", "history.jpg"], 2);
    assert!(stderr.contains("history.jpg is neither .svg nor .png"), "{stderr}");
    // One job is no picture.
    let (_, stderr) = project.expect(&["history", "nightly", "--since", "24", "--plot", "one.svg"], 0);
    assert!(stderr.contains("one.svg was not written"), "{stderr}");
}

mod slow {
    use super::*;

    /// A ledger of a thousand jobs, a tenth of another config: each of three runs of 22 steps.
    #[test]
    fn a_thousand_jobs_are_one_series() {
        let project = TestProject::new();
        let write = |id: u64| {
            let config = if id.is_multiple_of(10) { "other" } else { "nightly" };
            let trials = [1, 2, 3].map(|repeat| trial(&project, "lazy", repeat, "0a1b2c3d", |_| {}));
            let dir = project.submitted_as(id, config, trials.to_vec(), |record| {
                record.submitted = SUBMITTED + 3600 * id as i64;
            });
            for trial in &trials {
                let wall = 400_u64.checked_add_signed(NOISE[(id * 7 % 10) as usize] + i64::from(trial.repeat));
                let rows: Vec<Vec<StepRecord>> = vec![steps(wall.unwrap(), 0)];
                completed(&dir, trial, &rows);
            }
        };
        let ids: Vec<u64> = (1..=1000).collect();
        std::thread::scope(|scope| {
            for part in ids.chunks(63) {
                scope.spawn(|| part.iter().copied().for_each(write));
            }
        });
        let all = project.json(&["history", "nightly", "--json"], 0);
        let series = &all["series"][0];
        assert_eq!(series["jobs"].as_array().unwrap().len(), 900);
        assert!(series["changes"].as_array().unwrap().is_empty(), "{}", series["changes"]);
    }
}
