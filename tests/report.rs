//! `expctl report`, as a user runs it, on ledgers written by the record crate.
#![allow(clippy::unwrap_used, reason = "a test that cannot set up fails")]

#[path = "support/ledger.rs"]
mod ledger;

use expctl_record::{Stage, TrialState};
use ledger::{TestProject, completed, finish, running, steps, two_variants};

fn note(project: &TestProject, code: i32) -> String {
    let (stdout, _) = project.run(&["report", "12"], code);
    assert_eq!(stdout, "ROOT/results/086_ddp_12.md\n");
    std::fs::read_to_string(project.path("results/086_ddp_12.md"))
        .unwrap()
        .replace(project.root().to_str().unwrap(), "ROOT")
}

fn settings() -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.add_filter(r"id: [a-z0-9]{23}\n", "id: [ID]\n");
    settings.add_filter(r"(updated|created): \d{13}\n", "$1: [MS]\n");
    settings
}

#[test]
fn a_note_of_two_variants() {
    let project = TestProject::new();
    two_variants(&project, 12);
    std::fs::create_dir_all(project.data_dir()).unwrap();
    let manifest =
        r#"{"networks": [{"name": "physical", "class": "generated"}, {"name": "fusion", "class": "measured"}]}"#;
    std::fs::write(project.data_dir().join("manifest.json"), manifest).unwrap();
    settings().bind(|| insta::assert_snapshot!(note(&project, 0)));
}

#[test]
fn a_note_keeps_its_id_and_creation_time() {
    let project = TestProject::new();
    two_variants(&project, 12);
    let head = |text: &str, key: &str| text.lines().find(|l| l.starts_with(key)).unwrap().to_owned();
    let first = note(&project, 0);
    std::thread::sleep(std::time::Duration::from_millis(5));
    let second = note(&project, 0);
    assert_eq!(head(&first, "id:"), head(&second, "id:"));
    assert_eq!(head(&first, "created:"), head(&second, "created:"));
    assert_ne!(head(&first, "updated:"), head(&second, "updated:"));
    let other = TestProject::new();
    two_variants(&other, 12);
    assert_ne!(head(&note(&other, 0), "id:"), head(&first, "id:"));
}

#[test]
fn failed_and_lost_trials_are_told_and_not_counted() {
    let project = TestProject::new();
    let trials: Vec<_> = (1..=3).map(|r| project.trial("lazy", "Lazy", r, |_| {})).collect();
    let dir = project.job(12, "086_ddp", trials.clone());
    completed(&dir, &trials[0], &[steps(400, 80), steps(400, 8)]);
    // Ten times as fast: would be seen, if it were counted.
    let fast = [steps(40, 8), steps(40, 8)];
    finish(&running(&dir, &trials[1], &fast), &fast, TrialState::Failed, "rank 1 was killed by signal 9 SIGKILL");
    let failed = project.run(&["report", "12"], 6);
    assert!(failed.1.contains("1 of 3 trials did not end"), "{}", failed.1);
    running(&dir, &trials[2], &fast);
    let text = note(&project, 6);
    assert!(text.contains("| **lazy** | **Lazy** | **2.5** | **140** | **baseline** | **1** |"), "{text}");
    assert!(text.contains("1 completed, 1 failed, 1 running or lost"), "{text}");
    assert!(
        text.contains("- trial lazy-r2-0a1b2c is not counted, failed: rank 1 was killed by signal 9 SIGKILL"),
        "{text}"
    );
    assert!(text.contains("n = 1, so nothing can be said"), "{text}");
    finish(&running(&dir, &trials[2], &fast), &fast, TrialState::Completed, "");
    let text = note(&project, 5);
    assert!(text.contains("| lazy-r3-0a1b2c | 3 | completed | 2 | 22 |"), "{text}");
    assert!(text.contains("trial lazy-r3-0a1b2c took 2 attempts"), "{text}");
}

#[test]
fn a_ddp_step_is_as_slow_as_its_slowest_rank() {
    let project = TestProject::new();
    let trial = project.trial("lazy", "Lazy", 1, |_| {});
    let dir = project.job(12, "086_ddp", vec![trial.clone()]);
    completed(&dir, &trial, &[steps(100, 0), steps(200, 0)]);
    let text = note(&project, 0);
    // 5 it/s of rank 1; 28/0.1 + 28/0.2 samples/s.
    assert!(text.contains("| **5** | **420** |"), "{text}");
    assert!(text.contains("| 0 | node0 | 10 | 280 | 100 | 0.0 % | – |"), "{text}");
    assert!(text.contains("| 1 | node1 | 5 | 140 | 200 | 100.0 % | – |"), "{text}");
}

#[test]
fn what_makes_a_mean_doubtful_is_said() {
    let project = TestProject::new();
    let trial = project.trial("lazy", "Lazy", 1, |s| (s.launch.ranks, s.loader.workers) = (1, 0));
    let dir = project.job(12, "086_ddp", vec![trial.clone()]);
    let mut doubtful = steps(100, 0);
    // The first two of twenty are slow; the last five take longer and longer; half of the time is unattributed.
    for (i, step) in doubtful.iter_mut().enumerate().skip(2) {
        step.wall_ns = match i {
            2 | 3 => 150_000_000,
            17.. => 130_000_000,
            _ => 100_000_000,
        };
        step.exposed[Stage::Collate] = 25_000_000;
    }
    completed(&dir, &trial, &[doubtful]);
    let text = note(&project, 0);
    for warning in
        ["1.38× the rest, the warm-up is too short", "step times drift, the last quarter took 1.30× the first"]
    {
        assert!(text.contains(warning), "{warning}: {text}");
    }
    // (2×150 + 5×130 + 13×100)/20 = 112.5 ms, of which 50 are claimed.
    assert!(text.contains("lazy: the stages do not close, 55.6 % of the step is unattributed"), "{text}");
    assert!(text.contains("| unattributed | 62.500 | 55.6 % | – |"), "{text}");
    // A sound run has none of these.
    let sound = TestProject::new();
    let dir = sound.job(12, "086_ddp", vec![trial.clone()]);
    completed(&dir, &trial, &[steps(100, 25)]);
    let text = note(&sound, 0);
    assert!(!text.contains("warm-up is") && !text.contains("drift") && !text.contains("do not close"), "{text}");
}

#[test]
fn jobs_without_steps_are_refused() {
    let project = TestProject::new();
    let (stdout, stderr) = project.run(&["report", "392"], 7);
    assert!(stdout.is_empty() && stderr.contains("job 392 is published, not measured here"), "{stderr}");
    let (_, stderr) = project.run(&["report", "999"], 7);
    assert!(stderr.contains("there is no job 999"), "{stderr}");
}
