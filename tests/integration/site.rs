//! `expctl site`: all jobs of a ledger as pages.

use std::path::Path;

use expctl_ledger::JobDir;
use serde_json::Value as Json;

use crate::common::TestProject;
use crate::common::ledger::{SUBMITTED, completed, steps};

/// A name that would end the script with the data, and be markup elsewhere.
const HOSTILE: &str = "</script><img src=x onerror=alert(1)> & more";

/// Jobs 1 to 3: two that completed, and one that never began.
fn ledger(project: &TestProject) {
    for (job, config, wall) in [(1, "slow", [40, 20]), (2, "quick", [30, 10])] {
        let mut trials = Vec::new();
        for variant in ["lazy", "ids"] {
            for repeat in 1..=3 {
                trials.push(project.trial(variant, HOSTILE, repeat, |s| {
                    s.launch.ranks = 1;
                    s.experiment.title = format!("{config} {HOSTILE}");
                }));
            }
        }
        let dir = submitted(project, job, config, trials.clone());
        for trial in &trials {
            let ms = if trial.variant == "lazy" { wall[0] } else { wall[1] } + u64::from(trial.repeat);
            completed(&dir, trial, &[steps(ms, 0)]);
        }
    }
    submitted(project, 3, "never", vec![project.trial("lazy", "Lazy", 1, |_| {})]);
}

fn submitted(project: &TestProject, job: u64, config: &str, trials: Vec<expctl_settings::Trial>) -> JobDir {
    let baseline = trials.first().map(|trial| trial.variant.clone());
    project.submitted_as(job, config, trials, |record| {
        record.baseline = baseline;
        record.submitted = SUBMITTED + job as i64;
    })
}

/// The jobs in the data of the first page.
fn jobs(index: &Path) -> Vec<Json> {
    let page = std::fs::read_to_string(index).unwrap();
    let data = page.split_once("id=\"data\"").unwrap().1.split_once('>').unwrap().1.split_once("</script>").unwrap().0;
    let data: Json = serde_json::from_str(data).unwrap_or_else(|e| panic!("{e}: {data}"));
    data["jobs"].as_array().unwrap().clone()
}

#[test]
fn the_list_has_every_job_and_the_newest_have_pages() {
    let project = TestProject::new();
    ledger(&project);
    let out = project.file("site");
    let (stdout, stderr) = project.expect(&["site", out.to_str().unwrap(), "--pages", "2"], 0);
    assert_eq!(stdout, "ROOT/site/index.html\n");
    let found = jobs(&out.join("index.html"));
    let of = |key: &str| found.iter().map(|job| job[key].clone()).collect::<Vec<_>>();
    assert_eq!(of("job"), [3, 2, 1].map(Json::from));
    assert_eq!(of("state"), ["incomplete", "completed", "completed"].map(Json::from));
    assert_eq!(of("variants"), [vec!["lazy"], vec!["lazy", "ids"], vec!["lazy", "ids"]].map(Json::from));
    // The newest two are 3, which has nothing to show but a page, and 2.
    assert_eq!(of("page"), ["jobs/3.html".into(), "jobs/2.html".into(), Json::Null], "{stderr}");
    let rates = &found[1]["rates"];
    assert_eq!((&rates[0]["label"], &rates[1]["label"], &rates[1]["n"]), (&"lazy".into(), &"ids".into(), &3.into()));
    let rate = |index: usize, key: &str| rates[index][key].as_f64().unwrap();
    assert!(rate(1, "samples_per_s") > 2.0 * rate(0, "samples_per_s"), "{rates}");
    assert!(rate(1, "low") < rate(1, "samples_per_s") && rate(1, "samples_per_s") < rate(1, "high"), "{rates}");
    assert!(found[1]["answer"].as_str().unwrap().contains("ids"), "{}", found[1]["answer"]);
    let page = std::fs::read_to_string(out.join("jobs/2.html")).unwrap();
    assert!(page.contains("Where a step") && !page.contains("<img src=x"), "{page}");
    let index = std::fs::read_to_string(out.join("index.html")).unwrap();
    assert!(!index.contains("<img src=x") && !index.contains("http-equiv=\"refresh\""), "{index}");
}

#[test]
fn a_page_is_made_again_only_when_its_job_has_changed() {
    let project = TestProject::new();
    ledger(&project);
    let out = project.file("site");
    let write = || project.expect(&["site", out.to_str().unwrap()], 0);
    write();
    for job in 1..=2 {
        std::fs::write(out.join(format!("jobs/{job}.html")), "as it was").unwrap();
    }
    let job = project.job("2");
    let outcome = job.attempts(&job.record().unwrap().trials[0].id).unwrap()[0].path().join("outcome.json");
    let text = std::fs::read(&outcome).unwrap();
    std::fs::write(&outcome, text).unwrap();
    let (_, stderr) = write();
    let page = |job: u64| std::fs::read_to_string(out.join(format!("jobs/{job}.html"))).unwrap();
    assert_eq!(page(1), "as it was", "{stderr}");
    assert!(page(2).contains("Where a step"), "{}", page(2));
    // One that is gone is made again.
    std::fs::remove_file(out.join("jobs/1.html")).unwrap();
    write();
    assert!(page(1).contains("Where a step"));
    assert_eq!(std::fs::read_dir(out.join("jobs")).unwrap().count(), 3);
}

#[test]
fn folders_of_others_and_damaged_jobs_are_named() {
    let project = TestProject::new();
    ledger(&project);
    let folder = project.file("mine");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("index.html"), "mine").unwrap();
    let (_, stderr) = project.expect(&["site", folder.to_str().unwrap()], 2);
    assert!(stderr.contains("ROOT/mine has files, and none of `expctl site`"), "{stderr}");
    assert_eq!(std::fs::read(folder.join("index.html")).unwrap(), b"mine");

    std::fs::write(project.job("1").record_path(), "{").unwrap();
    let out = project.file("site");
    let (stdout, stderr) = project.expect(&["site", out.to_str().unwrap()], 6);
    assert_eq!(stdout, "ROOT/site/index.html\n");
    assert!(stderr.contains("1 jobs cannot be read") && stderr.contains("left out: ROOT/results/runs/1"), "{stderr}");
    assert_eq!(jobs(&out.join("index.html")).len(), 2);
}

#[test]
fn an_empty_ledger_is_an_empty_list() {
    let project = TestProject::new();
    let out = project.file("site");
    project.expect(&["site", out.to_str().unwrap()], 0);
    assert!(jobs(&out.join("index.html")).is_empty());
}

/// Jobs 11 to 13 of one config, with the same settings; of another one two jobs.
fn nightly(project: &TestProject) {
    for (job, config, wall) in [(11, "nightly", 140), (12, "nightly", 141), (13, "nightly", 139), (14, "rare", 140)] {
        again(project, job, config, wall);
    }
    again(project, 15, "rare", 140);
}

/// A job of one variant, three runs with steps of so many ms, long enough to count.
fn again(project: &TestProject, job: u64, config: &str, wall: u64) {
    let trial = |repeat: u32| project.trial("lazy", HOSTILE, repeat, |s| s.launch.ranks = 1);
    let trials: Vec<_> = (1..=3).map(trial).collect();
    let dir = submitted(project, job, config, trials.clone());
    for trial in &trials {
        completed(&dir, trial, &[steps(wall + u64::from(trial.repeat), 0)]);
    }
}

#[test]
fn series_of_three_jobs_have_a_picture_that_is_drawn_when_a_job_is_new() {
    let project = TestProject::new();
    nightly(&project);
    let out = project.file("site");
    let write = || project.expect(&["site", out.to_str().unwrap(), "--pages", "0"], 0);
    write();
    let page = || std::fs::read_to_string(out.join("history.html")).unwrap();
    let index = std::fs::read_to_string(out.join("index.html")).unwrap();
    assert!(index.contains("href=\"history.html\""), "{index}");
    let first = page();
    assert_eq!((first.matches("<svg").count(), first.matches("<h2>nightly</h2>").count()), (1, 1), "{first}");
    assert!(first.contains("lazy: ") && first.contains("over 3 jobs") && !first.contains("<h2>rare</h2>"), "{first}");
    assert!(first.contains("data-theme=dark") && first.contains("prefers-color-scheme:dark"), "{first}");
    // Nothing new: the page stays, whatever it says.
    std::fs::write(out.join("history.html"), "as it was").unwrap();
    write();
    assert_eq!(page(), "as it was");
    // Another job of `rare` is no reason to draw `nightly` again.
    let drawn = out.join("expctl-site-history.json");
    let known = std::fs::read_to_string(&drawn).unwrap();
    std::fs::write(&drawn, known.replace("over 3 jobs", "over three jobs")).unwrap();
    again(&project, 16, "rare", 140);
    write();
    let second = page();
    assert_eq!(second.matches("<svg").count(), 2, "{second}");
    assert!(second.contains("over three jobs") && second.contains("<h2>rare</h2>"), "{second}");
    // One of `nightly` is.
    again(&project, 17, "nightly", 142);
    write();
    assert!(page().contains("over 4 jobs") && !page().contains("over three jobs"), "{}", page());
    // Damaged, it is made again.
    std::fs::write(&drawn, "{").unwrap();
    write();
    assert_eq!(page().matches("<svg").count(), 2);
}

#[test]
fn rates_that_could_not_be_read_are_on_the_page_once_they_can_be() {
    let project = TestProject::new();
    nightly(&project);
    let write = |folder: &Path| project.expect(&["site", folder.to_str().unwrap(), "--pages", "0"], 0);
    let drawn = |folder: &Path| -> Json {
        let text = std::fs::read(folder.join("expctl-site-history.json")).unwrap();
        serde_json::from_slice::<Json>(&text).unwrap()["configs"].clone()
    };
    let job = project.job("13");
    let steps = job.attempts(&job.record().unwrap().trials[0].id).unwrap()[0].steps_path(0);
    let table = std::fs::read(&steps).unwrap();
    std::fs::write(&steps, "PAR1").unwrap();
    let (once, later) = (project.file("once"), project.file("later"));
    write(&once);
    std::fs::write(&steps, table).unwrap();
    // No state and no outcome has changed.
    write(&once);
    write(&later);
    assert_eq!(drawn(&once), drawn(&later));
}

mod slow {
    use std::process::Stdio;

    use super::*;
    use crate::common::browser::{chromium, python};

    #[test]
    fn a_reader_searches_sorts_and_compares() {
        let project = TestProject::new();
        ledger(&project);
        let out = project.file("site");
        project.expect(&["site", out.to_str().unwrap()], 0);
        let Some(program) = chromium("the list of jobs was not opened in a browser") else { return };
        let mut python = python("browse_site.py");
        python.arg(program).arg(out.join("index.html")).args(std::env::var_os("EXPCTL_SCREENSHOTS"));
        let output = python.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    }
}
