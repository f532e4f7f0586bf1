//! `expctl search`: what a config may say in `[search]`, and real searches on this machine among settings of known rates.

use serde_json::Value;

use crate::common::{SMALL, TestProject, text};

/// Two variants, and points that not all fit.
const SEARCH: &str = "\n[search]\nloader.workers = [0, 1, 2]\nloader.prefetch_factor = [1, 4]\nbudget_s = 60\n";

#[test]
fn other_verbs_run_the_own_settings_and_say_so() {
    let project = TestProject::new();
    let conf = project.conf("small", &format!("{SMALL}{SEARCH}"));
    let path = conf.to_str().unwrap();
    // Workers 1 and 2 with 1 and 4 batches ahead, no workers at all, and the baseline: 1 worker with 2.
    let (_, stderr) = project.expect(&["check", path], 0);
    assert!(stderr.contains("2 variants, 1 point, 2 trials, 16 steps; searches of 6 and 6 points"), "{stderr}");
    let (stdout, stderr) = project.expect(&["plan", path, "--only", "ids"], 0);
    assert_eq!(stdout.lines().filter(|line| line.starts_with("| ids-r1-")).count(), 1, "{stdout}");
    assert!(
        stderr.contains("these trials have the config's own settings; a search of 6 points with expctl search ROOT"),
        "{stderr}"
    );
    let planned = project.json(&["plan", path, "--only", "ids", "--json"], 0);
    let points = planned["search"][0]["points"].as_array().unwrap();
    let settings = |point: &Value| (point["loader.workers"].as_u64(), point["loader.prefetch_factor"].as_u64());
    let found: Vec<_> = points.iter().map(settings).collect();
    let expected = [(1, 2), (0, 1), (1, 1), (1, 4), (2, 1), (2, 4)];
    assert_eq!(found, expected.map(|(workers, ahead)| (Some(workers), Some(ahead))));
    let (_, stderr) = project.expect(&["submit", path, "--only", "ids", "--backend", "local", "--dry-run"], 0);
    assert!(stderr.contains("this runs the config's own settings; a search of 6 points"), "{stderr}");
    assert!(stderr.contains("dry run: 1 trial on"), "{stderr}");
    // The baseline are those of the config with --set, and they stay a point.
    let set = ["loader.workers=2", "loader.prefetch_factor=1", "search.loader.workers=[0]"];
    let set = set.into_iter().flat_map(|set| ["--set", set]);
    let planned =
        project.json(&["plan", path, "--only", "ids", "--json"].into_iter().chain(set).collect::<Vec<_>>(), 0);
    let points = planned["search"][0]["points"].as_array().unwrap();
    assert_eq!(points.iter().map(settings).collect::<Vec<_>>(), [(Some(2), Some(1)), (Some(0), Some(1))]);
}

#[test]
fn points_that_a_rule_refuses_are_named_and_no_mistake() {
    let project = TestProject::new();
    // 500 samples on two ranks, of which there are 200.
    let search = "\n[search]\nloader.batch_size = [8, 16, 500]\n";
    let conf = project.conf("small", &format!("{SMALL}{search}"));
    let (_, stderr) = project.expect(&["check", conf.to_str().unwrap()], 0);
    assert!(stderr.contains("searches of 2 and 2 points, 2 refused"), "{stderr}");
    let (_, stderr) = project.expect(&["plan", conf.to_str().unwrap(), "--only", "ids"], 0);
    let said = "note: not searched: ids loader.batch_size=500: one step takes 500 samples on each of 2 ranks";
    assert!(stderr.contains(said), "{stderr}");
    let conf = project.conf("none", &format!("{SMALL}\n[search]\nloader.batch_size = [500]\n"));
    let (_, stderr) = project.expect(&["check", conf.to_str().unwrap()], 3);
    assert!(stderr.contains("variant `lazy` has nothing to search") && stderr.contains("every other point is refused"));
}

#[test]
fn what_cannot_be_searched_is_refused_with_what_to_do() {
    let project = TestProject::new();
    let conf = project.conf("plain", SMALL);
    let (stdout, stderr) = project.expect(&["search", conf.to_str().unwrap()], 3);
    assert!(stdout.is_empty() && stderr.contains("plain.toml has no [search]") && stderr.contains("hint:"), "{stderr}");
    let conf = project.conf("small", &format!("{SMALL}{SEARCH}"));
    let path = conf.to_str().unwrap();
    let (_, stderr) = project.expect(&["search", path], 2);
    assert!(stderr.contains("a search is for one variant") && stderr.contains("--only: lazy, ids"), "{stderr}");
    let (_, stderr) = project.expect(&["search", path, "--only", "lazzy"], 2);
    assert!(stderr.contains("no variant is named `lazzy`"), "{stderr}");
    let (_, stderr) = project.expect(&["search", path, "--only", "ids", "--budget", "-1"], 3);
    assert!(stderr.contains("`search.budget_s` is out of range"), "{stderr}");
    for (set, message) in [
        ("sweep.loader.workers=[1, 2]", "a config has [sweep] or [search], not both"),
        ("train.epochs=2", "a search measures steps, not epochs"),
        ("profile.active=2", "a search runs no profiler"),
        ("search.measure.steps=[5, 6]", "`measure.steps` cannot be searched"),
    ] {
        let (_, stderr) = project.expect(&["check", path, "--set", set], 3);
        assert!(stderr.contains(message), "{set}: {stderr}");
    }
}

/// Searches among loader threads of a program that sleeps in their place: the rates are known, whatever the machine.
pub mod slow {
    use std::process::Stdio;

    use expctl_ledger::{JobRecord, Ledger, TrialState};
    use nix::sys::signal::Signal;

    use super::*;
    use crate::common::programs::install;
    use crate::common::{Guard, PATIENCE, wait_until};

    /// Sleeps long with the baseline and least with two threads; three fail.
    const WAITS: &str = r#"
import sys, time
import expctl

run = expctl.Run(program="waits")
workers = run.settings["loader"]["workers"]
if workers == 3:
    sys.exit("no memory for three threads")
for step in run.steps():
    with step.stage("read"):
        time.sleep({0: 0.016, 1: 0.008, 2: 0.002, 4: 0.012}[workers])
"#;

    const CONF: &str = r#"
[experiment]
study = "006-kuzmin-tmi"
[data]
set = "none"
[worker]
command = ["./python", "waits.py"]
[loader]
batch_size = 4
workers = 0
[measure]
warmup = 2
steps = 40
sample_every_s = 0.0
[search]
loader.workers = [0, 1, 2, 3, 4]
max_repeats = 2
"#;

    /// A project with that program, and its config.
    pub fn project() -> (TestProject, String) {
        let project = TestProject::new();
        install(&project);
        std::fs::write(project.path().join("waits.py"), WAITS).unwrap();
        let conf = project.conf("waits", CONF);
        let path = conf.to_str().unwrap().to_owned();
        (project, path)
    }

    /// `expctl search` on this machine, with more arguments; gives stdout and stderr.
    fn search(project: &TestProject, conf: &str, arguments: &[&str]) -> (String, String) {
        let output = project.run(&[&["search", conf, "--backend", "local"], arguments].concat());
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        (stdout, stderr)
    }

    fn records(project: &TestProject) -> Vec<JobRecord> {
        let runs = std::fs::read_dir(project.path().join("results/runs")).into_iter().flatten().flatten();
        let jobs = runs.filter_map(|entry| entry.file_name().to_str()?.parse::<u64>().ok());
        let mut jobs: Vec<u64> = jobs.collect();
        jobs.sort_unstable();
        jobs.into_iter().filter_map(|job| project.job(&job.to_string()).record().ok()).collect()
    }

    /// Of each job the number of its search and of its round.
    fn rounds(project: &TestProject) -> Vec<(u32, u32)> {
        let all = records(project);
        all.iter().map(|record| record.search.as_ref().map(|search| (search.start, search.round)).unwrap()).collect()
    }

    /// Every trial of every job has completed once, but for those that fail.
    fn assert_measured_once(project: &TestProject) {
        for record in records(project) {
            for trial in &record.trials {
                let attempts = project.job(&record.job.to_string()).attempts(&trial.id).unwrap();
                let ended = attempts.iter().filter_map(|attempt| attempt.outcome().unwrap());
                let completed = ended.filter(|outcome| outcome.state == TrialState::Completed).count();
                let expected = usize::from(trial.settings.loader.workers != 3);
                assert_eq!(completed, expected, "{} of job {}", trial.id, record.job);
            }
        }
    }

    #[test]
    fn the_fastest_point_is_found_and_one_that_fails_is_named() {
        let (project, conf) = project();
        let (stdout, stderr) = search(&project, &conf, &["--json"]);
        let result: Value = serde_json::from_str(&stdout).unwrap_or_else(|e| panic!("{e}: {stdout}\n{stderr}"));
        assert_eq!((&result["set"], &result["variant"]), (&serde_json::json!(["loader.workers=2"]), &"default".into()));
        let rows = result["rows"].as_array().unwrap();
        let workers: Vec<u64> = rows.iter().map(|row| row["point"]["loader.workers"].as_u64().unwrap()).collect();
        assert_eq!((rows.len(), workers[0], workers[4]), (5, 2, 3), "{workers:?}");
        assert_eq!((&rows[0]["chosen"], &rows[4]["eliminated"]["why"]), (&true.into(), &"failed".into()));
        assert!(rows[4]["eliminated"]["reason"].as_str().unwrap().contains("exit code 1"), "{}", rows[4]);
        let baseline = rows.iter().find(|row| row["baseline"] == true).unwrap();
        assert_eq!(baseline["point"]["loader.workers"], 0);
        // Sleeping 16 ms a step or 2: beside both stands what the machine takes.
        let gain = result["gain"]["value"].as_f64().unwrap();
        assert!(gain > 1.0 && result["gain_runs"].as_u64().unwrap() >= 2, "{result}");
        assert_eq!(result["jobs"].as_array().unwrap().len(), rounds(&project).len());
        assert_measured_once(&project);
        // The rounds are ordinary jobs, whose config is not one that has changed since.
        let status = project.ok(&["status", "1"]);
        assert!(status.contains("failed") && !status.contains("no longer makes a plan"), "{status}");
        // Their notes say what they are.
        let note = text(&project.run(&["report", "1"]).stdout);
        let note = std::fs::read_to_string(note.trim()).unwrap();
        let purpose = "Round 1 of a search for the fastest settings; `expctl search ";
        assert!(note.contains(purpose), "{note}");
        // A search that has ended is shown again, and measures nothing.
        let before = rounds(&project);
        let (again, stderr) = search(&project, &conf, &[]);
        assert!(again.starts_with("**`loader.workers=2` ran fastest: "), "{again}");
        assert!(again.ends_with(&format!("    expctl submit {conf} --set loader.workers=2\n")), "{again}");
        assert!(again.contains("| failed in round 1: ") && again.contains("(baseline)"), "{again}");
        assert!(stderr.contains("the ledger has this search up to job "), "{stderr}");
        assert_eq!(rounds(&project), before);
        // The note beside those of jobs has the same text.
        let last = before.len();
        let note = std::fs::read_to_string(project.path().join(format!("results/waits_search_{last}.md"))).unwrap();
        assert!(note.starts_with("# Search: waits, variant default\n\n**`loader.workers=2` ran fastest"), "{note}");
        assert_eq!(note.split_once("\n\n").unwrap().1, again);
    }

    #[test]
    fn a_search_that_was_killed_goes_on_and_measures_nothing_twice() {
        let (project, conf) = project();
        for signal in [Signal::SIGKILL, Signal::SIGINT] {
            let jobs = records(&project).len();
            let mut command = project.expctl(&["search", &conf, "--backend", "local"]);
            let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let mut guard = Guard(child);
            // In the middle of the next round: one of its trials has completed.
            wait_until("a round to begin", PATIENCE, || {
                let record = records(&project).get(jobs).cloned()?;
                let folder = project.job(&record.job.to_string());
                let has_ended = |trial: &expctl_settings::Trial| {
                    folder.attempts(&trial.id).unwrap().iter().any(|attempt| attempt.outcome_path().exists())
                };
                record.trials.iter().any(has_ended).then_some(())
            });
            guard.signal(signal);
            guard.0.wait().unwrap();
        }
        let (_, stderr) = project.expect(&["retry", "2"], 7);
        assert!(stderr.contains("job 2 is round 2 of a search") && stderr.contains("expctl rerun 2\n"), "{stderr}");
        let (_, stderr) = project.expect(&["watch", "2"], 6);
        assert!(stderr.contains("`expctl logs 2`") && !stderr.contains("expctl retry"), "{stderr}");
        // The first one was completed before the second began.
        assert_eq!(rounds(&project), [(1, 1), (1, 2)]);
        let (stdout, stderr) = search(&project, &conf, &[]);
        assert!(stdout.starts_with("**`loader.workers=2` ran fastest: "), "{stdout}\n{stderr}");
        assert!(stderr.contains("job 2: "), "{stderr}");
        assert_measured_once(&project);
        let all = rounds(&project);
        assert!(all.len() > 2 && all.iter().enumerate().all(|(i, round)| *round == (1, i as u32 + 1)), "{all:?}");
    }

    #[test]
    fn a_budget_ends_a_search_and_more_of_it_goes_on() {
        let (project, conf) = project();
        let (stdout, _) = search(&project, &conf, &["--budget", "0.01"]);
        assert!(stdout.contains("Ended because the budget of 10 ms has no room for another round"), "{stdout}");
        assert!(stdout.starts_with("**`loader.workers=2` ran fastest: ") && stdout.contains("(n = 1, measured)"));
        assert_eq!(rounds(&project), [(1, 1)]);
        search(&project, &conf, &[]);
        let longer = rounds(&project);
        assert!(longer.len() > 1 && longer[0] == (1, 1) && longer[1] == (1, 2), "{longer:?}");
        // Other settings are another search, and --again is one as well.
        let (_, stderr) = search(&project, &conf, &["--budget", "0.01", "--set", "measure.steps=30"]);
        assert!(stderr.contains("a new search: the points, steps or options are not those of the search"), "{stderr}");
        assert_eq!(rounds(&project).len(), longer.len() + 1);
        search(&project, &conf, &["--budget", "0.01", "--again"]);
        assert_eq!(rounds(&project).last(), Some(&(2, 1)));
        let ledger = Ledger::open(&expctl::project::Project::find(Some(project.path()), None).unwrap()).unwrap();
        assert_eq!(ledger.measured_ids().len(), longer.len() + 2);
    }
}
