//! Trials of several attempts: which of them count, and what notes and comparisons say of them.

use std::process::{Output, Stdio};
use std::time::Duration;

use crate::common::cluster::Cluster;
use crate::common::ledger::{completed, finish, running, steps, two_variants};
use crate::common::local::stepped;
use crate::common::{SMALL, TestProject, text, wait_until, worker_pids};
use expctl_ledger::{AttemptDir, Environment, JobDir, StepRecord, TrialState, write_json};
use expctl_settings::Trial;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

const LONG: Duration = Duration::from_secs(180);

/// The steps of both ranks that take `wall_ms` each, from `first` to `end`.
fn two_ranks(wall_ms: u64, first: usize, end: usize) -> Vec<Vec<StepRecord>> {
    let mut part = steps(wall_ms, 0)[first..end].to_vec();
    let begin = part[0].start_ns;
    part.iter_mut().for_each(|step| step.start_ns -= begin);
    vec![part; 2]
}

/// An attempt that was stopped, with a change of where it ran.
fn stopped(dir: &JobDir, trial: &Trial, ranks: &[Vec<StepRecord>], change: impl FnOnce(&mut Environment)) {
    let attempt = running(dir, trial, ranks);
    let mut environment = attempt.environment().unwrap().unwrap();
    change(&mut environment);
    write_json(&attempt.environment_path(), &environment).unwrap();
    finish(&attempt, ranks, TrialState::Interrupted, "stopped on request");
}

/// A trial of 22 steps, 2 of them warm-up: steps 0 to 11 took a second each in an attempt that was stopped; steps 10 to 21 took 100 ms
/// each in the attempt that went on from a checkpoint in front of step 10.
fn resumed(dir: &JobDir, trial: &Trial, change: impl FnOnce(&mut Environment)) {
    stopped(dir, trial, &two_ranks(1000, 0, 12), change);
    completed(dir, trial, &two_ranks(100, 10, 22));
}

fn elsewhere(environment: &mut Environment) {
    for (rank, hardware) in environment.ranks.iter_mut().enumerate() {
        hardware.host = format!("other{rank}");
    }
}

fn on_another_processor(environment: &mut Environment) {
    elsewhere(environment);
    environment.ranks.iter_mut().for_each(|hardware| hardware.cpu = "AMD EPYC 7763".to_owned());
}

/// Job 1: lazy went on from a checkpoint, ids did not. Job 2: lazy alone, in one attempt. All have 20 measured steps of 100 ms but the
/// first part of the resumed trial.
fn two_jobs(project: &TestProject, change: impl FnOnce(&mut Environment)) -> Trial {
    let lazy = project.trial("lazy", "Lazy", 1, |_| {});
    let ids =
        project.trial("ids", "Ids only", 1, |settings| settings.pipeline.processor = expctl_settings::Processor::Ids);
    let dir = project.submitted(1, "086_ddp", vec![lazy.clone(), ids.clone()]);
    resumed(&dir, &lazy, change);
    completed(&dir, &ids, &two_ranks(100, 0, 22));
    let dir = project.submitted(2, "086_ddp", vec![lazy.clone()]);
    completed(&dir, &lazy, &two_ranks(100, 0, 22));
    lazy
}

fn note(project: &TestProject) -> String {
    project.expect(&["report", "1"], 0);
    std::fs::read_to_string(project.file("results/086_ddp_1.md")).unwrap()
}

/// The lines of a comparison, by job and variant.
fn line(project: &TestProject, jobs: &[&str], job: &str, label: &str) -> Value {
    let (stdout, _) = project.expect(&[&["compare", "--format", "json"], jobs].concat(), 0);
    let all: Value = serde_json::from_str(&stdout).unwrap();
    let lines = all["groups"].as_array().unwrap().iter().flat_map(|group| group["lines"].as_array().unwrap());
    let mut found = lines.filter(|line| line["job"] == job && line["label"] == label);
    found.next().unwrap_or_else(|| panic!("no {label} of job {job} in {all}")).clone()
}

fn crosses(line: &Value) -> Vec<&str> {
    line["crosses"].as_array().unwrap().iter().map(|confound| confound["setting"].as_str().unwrap()).collect()
}

const PROCESSORS: &str = "AMD EPYC 7763 (steps 0–9), Test CPU (steps 10–21)";

#[test]
fn a_note_says_which_steps_come_from_which_attempt_and_names_their_hardware() {
    let project = TestProject::new();
    let lazy = two_jobs(&project, on_another_processor);
    let note = note(&project);
    let expected = [
        format!(
            "trial {} took 2 attempts and went on from a checkpoint: steps 0–9 from attempt 1 (other0, other1), steps 10–21 from \
             attempt 2 (node0, node1)",
            lazy.id
        ),
        format!(
            "the attempts of trial {} ran on different hardware, so its rate is of neither and it is a class by itself: processor \
             {PROCESSORS}",
            lazy.id
        ),
        "lazy: repeat 1, every rank: 18 of 20 measured steps: 2 steps after 1 checkpoint are warm-up".to_owned(),
        "other0: AMD EPYC 7763, 2 CPUs per rank".to_owned(),
        "node0: Test CPU, 2 CPUs per rank".to_owned(),
        format!("processor {PROCESSORS} → Test CPU"),
        // Eight steps of a second and ten of 100 ms, none of them the first two of an attempt.
        "| **lazy** | **112** |".to_owned(),
    ];
    for words in expected {
        assert!(note.contains(&words), "{words}\n{note}");
    }
    assert!(!note.contains("the last one counts"), "{note}");
    let ids = note.lines().find(|line| line.starts_with("| ids |")).unwrap();
    assert!(ids.contains('†'), "{ids}");
}

#[test]
fn a_mixed_trial_is_a_class_by_itself() {
    let project = TestProject::new();
    let lazy = two_jobs(&project, on_another_processor);
    let mixed = line(&project, &["1", "2"], "1", "lazy");
    assert_eq!(mixed["settings"]["cpu"], PROCESSORS);
    assert_eq!(mixed["settings"]["node"], "other0 other1 (steps 0–9), node0 node1 (steps 10–21)");
    assert_eq!((&mixed["it_per_s"], &mixed["samples_per_s"]), (&json!([2.0]), &json!([112.0])));
    let notes: Vec<&str> = mixed["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap()).collect();
    assert!(
        notes[0].starts_with(&format!("trial {} took 2 attempts and went on from a checkpoint: ", lazy.id)),
        "{notes:?}"
    );
    assert!(notes[1].ends_with(&format!("processor {PROCESSORS}")), "{notes:?}");
    // The same variant in one attempt: not like for like, from either side.
    assert_eq!(crosses(&line(&project, &["1", "2"], "2", "lazy")), ["processor"]);
    assert_eq!(crosses(&line(&project, &["2", "1"], "1", "lazy")), ["processor"]);
    assert_eq!(crosses(&line(&project, &["1"], "1", "ids")), ["processor"]);
    let (markdown, _) = project.expect(&["compare", "1", "2"], 0);
    let flagged = format!("† not a like-for-like comparison: processor {PROCESSORS} → Test CPU");
    assert!(markdown.contains(&flagged) && markdown.contains("× †"), "{markdown}");
    assert!(!markdown.contains("the last one counts"), "{markdown}");
    // A job of mixed trials alone has a table of its own.
    let dir = project.submitted(3, "086_ddp", vec![lazy.clone()]);
    resumed(&dir, &lazy, on_another_processor);
    let (stdout, _) = project.expect(&["compare", "2", "3", "--format", "json"], 0);
    let all: Value = serde_json::from_str(&stdout).unwrap();
    let classes: Vec<&str> = all["groups"].as_array().unwrap().iter().map(|g| g["class"].as_str().unwrap()).collect();
    assert_eq!(classes, ["processor Test CPU".to_owned(), format!("processor {PROCESSORS}")]);
    assert_eq!(crosses(&line(&project, &["2", "3"], "3", "lazy")), ["processor"]);
    // Pooled with a plain run it is no longer the class of that one.
    let pooled = line(&project, &["2", "1/2"], "1/2", "lazy");
    assert_eq!(crosses(&pooled), ["processor"]);
}

#[test]
fn another_node_with_the_same_hardware_is_no_class() {
    let project = TestProject::new();
    two_jobs(&project, elsewhere);
    let note = note(&project);
    assert!(note.contains("steps 0–9 from attempt 1 (other0, other1)"), "{note}");
    assert!(!note.contains("class by itself") && !note.contains('†'), "{note}");
    let plain = line(&project, &["1", "2"], "2", "lazy");
    assert_eq!(crosses(&plain), [""; 0]);
    assert!(plain["confounds"].as_array().unwrap().iter().any(|confound| confound["setting"] == "node"), "{plain}");
}

#[test]
fn attempts_of_different_software_are_named_and_confound_a_ratio() {
    let project = TestProject::new();
    let lazy = two_jobs(&project, |environment| environment.libtorch_version = "2.9.0".to_owned());
    let versions = "libtorch 2.9.0 (steps 0–9), 2.11.0 (steps 10–21)";
    let note = note(&project);
    assert!(note.contains(&format!("the attempts of trial {} also differ in {versions}", lazy.id)), "{note}");
    assert!(note.contains(" · libtorch: 2.11.0; 2.9.0\n") && !note.contains("class by itself"), "{note}");
    let plain = line(&project, &["1", "2"], "2", "lazy");
    let libtorch = json!({ "setting": "libtorch", "base": versions.trim_start_matches("libtorch "), "row": "2.11.0" });
    assert!(crosses(&plain).is_empty() && plain["confounds"].as_array().unwrap().contains(&libtorch), "{plain}");
}

#[test]
fn an_attempt_without_a_record_of_its_hardware_is_not_taken_for_the_same() {
    let project = TestProject::new();
    let lazy = two_jobs(&project, |_| {});
    let first = project.job("1").attempts(&lazy.id).unwrap().remove(0);
    std::fs::remove_file(first.environment_path()).unwrap();
    assert_eq!(
        line(&project, &["1", "2"], "1", "lazy")["settings"]["cpu"],
        "unknown (steps 0–9), Test CPU (steps 10–21)"
    );
    let note = note(&project);
    assert!(note.contains("steps 0–9 from attempt 1, steps 10–21 from attempt 2 (node0, node1)"), "{note}");
    let unknown = format!("nothing says what attempt 1 of trial {} ran on, so it is a class by itself", lazy.id);
    assert!(note.contains(&unknown), "{note}");
}

#[test]
fn an_attempt_from_the_first_step_on_replaces_those_before_it() {
    let project = TestProject::new();
    let lazy = project.trial("lazy", "Lazy", 1, |_| {});
    let dir = project.submitted(1, "086_ddp", vec![lazy.clone()]);
    stopped(&dir, &lazy, &two_ranks(1000, 0, 12), on_another_processor);
    completed(&dir, &lazy, &two_ranks(100, 0, 22));
    let note = note(&project);
    assert!(note.contains(&format!("trial {} took 2 attempts; the last one counts", lazy.id)), "{note}");
    assert!(!note.contains("AMD EPYC 7763") && !note.contains("measured steps:"), "{note}");
    let row = line(&project, &["1"], "1", "lazy");
    assert_eq!((&row["settings"]["cpu"], &row["it_per_s"]), (&json!("Test CPU"), &json!([10.0])));
}

#[test]
fn a_trial_whose_steps_are_all_warm_up_has_no_rate() {
    let project = TestProject::new();
    let lazy = project.trial("lazy", "Lazy", 1, |settings| settings.measure.steps = 2);
    let dir = project.submitted(1, "086_ddp", vec![lazy.clone()]);
    stopped(&dir, &lazy, &two_ranks(1000, 0, 2), elsewhere);
    completed(&dir, &lazy, &two_ranks(100, 2, 4));
    let note = note(&project);
    assert!(note.contains("lazy: no completed run with measured steps, so no figures"), "{note}");
    assert!(note.contains("every rank: 0 of 2 measured steps: 2 steps after 1 checkpoint are warm-up"), "{note}");
}

/// What `make check` leaves out.
mod slow {
    use super::*;

    /// A cluster whose nodes have different processors, with a project whose trials go on from checkpoints.
    struct Nodes {
        project: TestProject,
        cluster: Cluster,
    }

    impl Nodes {
        fn expctl(&self, args: &[&str]) -> Output {
            let mut command = self.project.expctl(args);
            let output =
                command.envs(self.cluster.env()).env("EXPCTL_BACKEND", "slurm").stdin(Stdio::null()).output().unwrap();
            assert!(output.status.success(), "expctl {args:?}: {}", text(&output.stderr));
            output
        }

        fn submit(&self, more: &[&str]) -> String {
            let conf = self.project.conf("small", SMALL);
            let start = ["submit", conf.to_str().unwrap(), "--only", "ids", "--set", "checkpoint.every_steps=20"];
            text(&self.expctl(&[&start[..], more].concat()).stdout).trim().to_owned()
        }

        fn attempts(&self, job: &str) -> Vec<AttemptDir> {
            let dir = self.project.job(job);
            dir.attempts(&dir.record().unwrap().trials[0].id).unwrap()
        }
    }

    /// A failing test leaves no rank behind.
    impl Drop for Nodes {
        fn drop(&mut self) {
            for (_, pid) in worker_pids(self.project.path()) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
    }

    #[test]
    fn a_trial_requeued_onto_another_processor_is_a_class_by_itself() {
        let processors = [("n1", "Processor One 3.5 GHz"), ("n2", "Processor Two")];
        let named = processors.map(|(node, name)| format!("{node}={name}"));
        let Some(cluster) = Cluster::start(&["--processor", &named[0], "--processor", &named[1]]) else { return };
        let nodes = Nodes { project: TestProject::new(), cluster };
        let job = nodes.submit(&["--set", "measure.steps=598"]);
        wait_until("the ranks to step", LONG, || {
            let first = nodes.attempts(&job).pop()?;
            stepped(&first, 2, 45).then_some(())
        });
        let host = |attempt: &AttemptDir| attempt.environment().unwrap().unwrap().ranks[0].host.clone();
        let lost = host(&nodes.attempts(&job)[0]);
        nodes.cluster.ask("scontrol", &["update", &format!("nodename={lost}"), "state=drain", "reason=test"]);
        nodes.cluster.ask("scontrol", &["requeue", &format!("{job}_0")]);
        wait_until("the second attempt", LONG, || nodes.attempts(&job).get(1)?.outcome().unwrap());

        let attempts = nodes.attempts(&job);
        assert_eq!(attempts[1].outcome().unwrap().unwrap().state, TrialState::Completed);
        let on = |node: &str| processors.iter().find(|(of, _)| *of == node).unwrap().1;
        let (first, second) = (on(&lost), on(&host(&attempts[1])));
        assert_ne!(first, second);
        let from = attempts[1].steps(0).unwrap()[0].step;
        assert!(from >= 40, "{from}");
        let mixed = format!("processor {first} (steps 0–{}), {second} (steps {from}–599)", from - 1);
        nodes.expctl(&["report", &job]);
        let note = std::fs::read_to_string(nodes.project.path().join(format!("results/small_{job}.md"))).unwrap();
        assert!(note.contains(&format!("it is a class by itself: {mixed}")), "{note}");
        assert!(note.contains(&format!("steps 0–{} from attempt 1 ({lost})", from - 1)), "{note}");
        assert!(note.contains("596 of 598 measured steps: 2 steps after 1 checkpoint are warm-up"), "{note}");
        assert!(note.contains(first) && note.contains(second) && !note.contains("the last one counts"), "{note}");

        // The same variant in one attempt, on the node that is left.
        let plain = nodes.submit(&["--wait"]);
        let compared = text(&nodes.expctl(&["compare", &job, &plain]).stdout);
        for class in [format!("Steps: train, {mixed}"), format!("Steps: train, processor {second}")] {
            assert!(compared.lines().any(|line| line == class), "{class}\n{compared}");
        }
    }
}

#[test]
fn a_damaged_record_hides_no_other_job() {
    let project = TestProject::new();
    for id in [1, 2, 3] {
        two_variants(&project, id);
    }
    std::fs::write(project.job("2").record_path(), "{").unwrap();
    let outcome = &project.attempt("3", "ids").unwrap();
    std::fs::write(outcome.path().join("outcome.json"), "").unwrap();
    let (stdout, stderr) = project.expect(&["status", "--json"], 6);
    let rows: Vec<serde_json::Value> = serde_json::from_str(&stdout).unwrap();
    assert_eq!(rows.iter().map(|row| row["job"].as_u64()).collect::<Vec<_>>(), [Some(1)]);
    assert!(stderr.contains("job.json is not a valid record") && stderr.contains("outcome.json"), "{stderr}");
    assert!(stderr.contains("2 of 3 jobs cannot be read"), "{stderr}");
    let (_, stderr) = project.expect(&["status", "2"], 6);
    assert!(stderr.contains("job.json is not a valid record"), "{stderr}");
}
