//! Checkpoints end to end: real ranks that are stopped or killed, and go on in a second attempt.

use std::path::PathBuf;
use std::process::Output;

use crate::common::local::set;
use crate::common::{Guard, PATIENCE, SMALL, TestProject, text, wait_until};
use expctl_ledger::{AttemptDir, RankStatus, Stage, TrialState, joined_steps};
use nix::sys::signal::{Signal, kill};

/// Long enough to be stopped on the way, short enough to be run to the end.
const STEPS: u64 = 300;

fn start(project: &TestProject, variant: &str, more: &[&str]) -> Guard {
    let steps = format!("measure.steps={}", STEPS - 2);
    let settings = [&[steps.as_str()], more].concat();
    project.started(SMALL, &[&["--only", variant], &set(&settings)[..]].concat())
}

/// Another attempt of job 1.
fn again(project: &TestProject) -> Output {
    project.run(&["run-local", "1"])
}

fn attempts(project: &TestProject, variant: &str) -> Vec<AttemptDir> {
    let dir = project.job("1");
    let record = dir.record().unwrap();
    dir.attempts(&record.trials.iter().find(|t| t.variant == variant).unwrap().id).unwrap()
}

fn digests(attempt: &AttemptDir) -> Vec<String> {
    let outcome = attempt.outcome().unwrap().unwrap();
    assert_eq!(outcome.state, TrialState::Completed, "{outcome:?}");
    outcome.ranks.iter().map(|r| r.parameters_digest.clone().unwrap()).collect()
}

/// What a run that nothing stopped ends with.
fn undisturbed(variant: &str, more: &[&str]) -> String {
    let project = TestProject::new();
    let status = start(&project, variant, more).0.wait().unwrap();
    assert_eq!(status.code(), Some(0));
    digests(&attempts(&project, variant)[0]).remove(0)
}

/// Folders of complete checkpoints, by the step that comes next.
fn checkpoints(attempt: &AttemptDir) -> Vec<(u64, PathBuf)> {
    let folder = attempt.path().parent().unwrap().join("checkpoint");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if let Some(step) = name.strip_prefix("step-") {
            found.push((step.parse().unwrap(), entry.path()));
        }
    }
    found
}

/// The attempts of a trial join to every step once, on every rank, and the report counts them all.
fn assert_joined(project: &TestProject, variant: &str, ranks: u32, resumed_at: u64) {
    let attempts = attempts(project, variant);
    let last = attempts.last().unwrap();
    for rank in 0..ranks {
        let own = last.steps(rank).unwrap();
        assert_eq!(own.first().unwrap().step, resumed_at);
        assert_eq!(own.last().unwrap().step, STEPS - 1);
        let joined = joined_steps(&attempts, rank, 2).unwrap().steps;
        assert_eq!(joined.iter().map(|s| s.step).collect::<Vec<_>>(), (0..STEPS).collect::<Vec<_>>());
        // The table itself says that the first steps after the checkpoint are warm-up, as those of the first attempt are.
        let warm_up: Vec<u64> = own.iter().filter(|s| !s.measured).map(|s| s.step).collect();
        assert_eq!(warm_up, [resumed_at, resumed_at + 1]);
        let left_out: Vec<u64> = joined.iter().filter(|s| !s.measured).map(|s| s.step).collect();
        assert_eq!(left_out, [0, 1, resumed_at, resumed_at + 1]);
    }
    let note = std::fs::read_to_string(project.path().join("results/small_1.md")).unwrap();
    let short =
        format!("every rank: {} of {} measured steps: 2 steps after 1 checkpoint are warm-up", STEPS - 4, STEPS - 2);
    assert!(note.contains(&short), "{note}");
    assert!(note.contains(&format!("steps 0–{} from attempt 1 (", resumed_at - 1)), "{note}");
    assert!(note.contains(&format!("steps {resumed_at}–{} from attempt ", STEPS - 1)), "{note}");
    assert!(!note.contains("the last one counts"), "{note}");
    assert!(checkpoints(last).is_empty(), "a trial that is done needs no checkpoint");
}

/// With three ranks the sum of gradients depends on the order in which they are added up.
#[test]
fn a_run_that_was_stopped_ends_with_the_bits_of_one_that_was_not() {
    let more = ["launch.ranks=3"];
    let project = TestProject::new();
    let mut guard = start(&project, "lazy", &more);
    project.attempt_with_steps("1", "lazy", 3, 5);
    guard.signal(Signal::SIGTERM);
    assert_eq!(guard.0.wait().unwrap().code(), Some(6));
    let first = project.attempt("1", "lazy").unwrap();
    let outcome = first.outcome().unwrap().unwrap();
    assert_eq!(outcome.state, TrialState::Interrupted);
    assert!(outcome.ranks.iter().all(|r| r.status == RankStatus::Interrupted), "{outcome:?}");
    let kept = checkpoints(&first);
    let [(step, _)] = &kept[..] else { panic!("one checkpoint, not {kept:?}") };
    // All ranks stopped in front of the step that the checkpoint goes on with.
    for rank in 0..3 {
        assert_eq!(first.steps(rank).unwrap().len() as u64, *step);
    }
    assert_eq!(again(&project).status.code(), Some(0));
    assert_joined(&project, "lazy", 3, *step);
    let all = attempts(&project, "lazy");
    assert_eq!(all.len(), 2);
    assert_eq!(digests(&all[1]), vec![undisturbed("lazy", &more); 3]);
}

#[test]
fn a_killed_rank_costs_only_the_steps_since_the_last_checkpoint() {
    let more = ["checkpoint.every_steps=20"];
    let project = TestProject::new();
    let mut guard = start(&project, "ids", &more);
    project.attempt_with_steps("1", "ids", 2, 45);
    kill(project.rank(0), Signal::SIGKILL).unwrap();
    assert_eq!(guard.0.wait().unwrap().code(), Some(5));
    let first = project.attempt("1", "ids").unwrap();
    let step = checkpoints(&first).iter().map(|(step, _)| *step).max().unwrap();
    assert!(step >= 40 && step.is_multiple_of(20), "{step}");
    assert_eq!(again(&project).status.code(), Some(0));
    assert_joined(&project, "ids", 2, step);
    let all = attempts(&project, "ids");
    // Every 20 steps, and only then, the time of a checkpoint is in `other`.
    let second = all[1].steps(0).unwrap();
    let shown = project.ok(&["status", "1", "--attempts", "--json"]);
    let rows: Vec<serde_json::Value> = serde_json::from_str(&shown).unwrap();
    let resumed: Vec<_> = rows.iter().map(|row| (row["attempt"].as_u64(), row["resumed_from"].as_u64())).collect();
    assert_eq!(resumed, [(Some(1), None), (Some(2), Some(step))]);
    let other = |at: u64| second.iter().find(|s| s.step == at).unwrap().exposed[Stage::Other];
    assert!(second.iter().filter(|s| s.step > step && s.step % 20 == 0).all(|s| other(s.step) > 0));
    // More checkpoints change neither the trial's id nor what it computes.
    assert_eq!(digests(&all[1]), vec![undisturbed("ids", &[]); 2]);
}

/// The profiler is set up at step 2, and its window begins near the end: an attempt that goes on between the two records it.
#[test]
fn an_attempt_that_goes_on_in_the_warm_up_of_a_profile_records_it() {
    let warmup = format!("profile.warmup={}", STEPS - 12);
    let more = ["checkpoint.every_steps=20", warmup.as_str(), "profile.active=3"];
    let project = TestProject::new();
    let mut guard = start(&project, "ids", &more);
    project.attempt_with_steps("1", "ids", 2, 45);
    kill(project.rank(1), Signal::SIGKILL).unwrap();
    assert_eq!(guard.0.wait().unwrap().code(), Some(5));
    assert_eq!(again(&project).status.code(), Some(0));
    let all = attempts(&project, "ids");
    assert!(all[1].steps(0).unwrap()[0].step >= 40);
    for rank in 0..2 {
        assert!(all[1].path().join(format!("trace-{rank}-0.json.gz")).exists(), "rank {rank} has a trace");
    }
}

#[test]
fn a_rank_that_is_asked_for_a_checkpoint_makes_one_with_the_others_and_goes_on() {
    let project = TestProject::new();
    let mut guard = start(&project, "ids", &["measure.steps=10000000", "checkpoint.on_signal=false"]);
    project.attempt_with_steps("1", "ids", 2, 5);
    let attempt = project.attempt("1", "ids").unwrap();
    assert!(checkpoints(&attempt).is_empty());
    // The rank that does not write it.
    kill(project.rank(1), Signal::SIGUSR1).unwrap();
    let step = wait_until("the checkpoint", PATIENCE, || checkpoints(&attempt).pop()).0;
    project.attempt_with_steps("1", "ids", 2, step as usize + 5);
    guard.signal(Signal::SIGTERM);
    assert_eq!(guard.0.wait().unwrap().code(), Some(6));
    // on_signal = false: the stop made no other one.
    assert_eq!(checkpoints(&attempt).iter().map(|(step, _)| *step).collect::<Vec<_>>(), [step]);
    assert!((0..2).all(|rank| attempt.steps(rank).unwrap().len() as u64 > step));
}

#[test]
fn a_checkpoint_that_does_not_fit_is_refused_by_name() {
    let project = TestProject::new();
    let mut guard = start(&project, "ids", &[]);
    project.attempt_with_steps("1", "ids", 2, 5);
    guard.signal(Signal::SIGTERM);
    assert_eq!(guard.0.wait().unwrap().code(), Some(6));
    let kept = checkpoints(&project.attempt("1", "ids").unwrap());
    let (step, folder) = &kept[0];
    let refused = |file: &str, expected: &str, change: &dyn Fn(&[u8]) -> Vec<u8>| {
        let path = folder.join(file);
        let sound = std::fs::read(&path).unwrap();
        std::fs::write(&path, change(&sound)).unwrap();
        assert_eq!(again(&project).status.code(), Some(5));
        let outcome = project.outcome("1", "ids");
        assert!(outcome.message.contains(expected) && outcome.message.contains(file), "{}", outcome.message);
        std::fs::write(&path, sound).unwrap();
    };
    let replace = |from: &'static str, to: &'static str| {
        move |sound: &[u8]| {
            let changed = text(sound).replace(from, to);
            assert_ne!(changed.as_bytes(), sound, "{from} is in it");
            changed.into_bytes()
        }
    };
    refused("checkpoint.json", "it is of trial other-r1-", &replace("\"ids-r1-", "\"other-r1-"));
    refused("checkpoint.json", "a run on 3 rank(s)", &replace("\"world_size\": 2", "\"world_size\": 3"));
    refused("checkpoint.json", "is not a valid record", &|sound| sound[..sound.len() / 2].to_vec());
    refused("state.safetensors", "it is damaged", &|sound| {
        let mut bytes = sound.to_vec();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        bytes
    });
    refused("state.safetensors", "it is damaged", &|sound| sound[..sound.len() - 8].to_vec());
    // The attempts that were refused did no step; the next one goes on.
    assert_eq!(again(&project).status.code(), Some(0));
    assert_joined(&project, "ids", 2, *step);
}

/// Weight decay alone drives the parameters out of range, in a mode whose loss stays 0 until they are: each step multiplies
/// them by −1e11, and nothing is clipped.
#[test]
fn a_state_that_is_not_finite_is_never_kept() {
    let far = ["train.mode=\"zero_loss\"", "train.learning_rate=1e5", "train.weight_decay=1e6", "train.clip_norm=0"];
    let last_good = 3;
    let message = |project: &TestProject| {
        let outcome = project.outcome("1", "ids");
        assert_eq!(outcome.state, TrialState::Failed);
        assert!(outcome.message.contains("has values that are not finite"), "{}", outcome.message);
        assert!(outcome.message.contains("train.learning_rate"), "{}", outcome.message);
    };
    for ranks in ["launch.ranks=1", "launch.ranks=2"] {
        let project = TestProject::new();
        let more = [&far[..], &[ranks, "checkpoint.every_steps=1"]].concat();
        assert_eq!(start(&project, "ids", &more).0.wait().unwrap().code(), Some(5));
        message(&project);
        let attempt = project.attempt("1", "ids").unwrap();
        let kept = checkpoints(&attempt);
        let [(step, folder)] = &kept[..] else { panic!("one checkpoint, not {kept:?}") };
        assert_eq!(*step, last_good);
        for (name, values) in floats(&folder.join("state.safetensors")) {
            assert!(values.iter().all(|v| v.is_finite()), "{name}");
        }
        // The ledger is whole: every step that was done is in it.
        assert_eq!(attempt.steps(0).unwrap().len() as u64, last_good + 1);
    }
    // The last step is followed by no loss and no checkpoint.
    let project = TestProject::new();
    let more = [&far[..], &["measure.steps=2"]].concat();
    assert_eq!(start(&project, "ids", &more).0.wait().unwrap().code(), Some(5));
    message(&project);
    let attempt = project.attempt("1", "ids").unwrap();
    assert!((0..2).all(|rank| attempt.steps(rank).unwrap().len() as u64 == last_good + 1));
}

/// The float32 tensors of a safetensors file.
fn floats(path: &std::path::Path) -> Vec<(String, Vec<f32>)> {
    let bytes = std::fs::read(path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let tensors = header.into_iter().filter(|(_, tensor)| tensor["dtype"] == "F32");
    let place =
        |tensor: &serde_json::Value, i: usize| 8 + length + tensor["data_offsets"][i].as_u64().unwrap() as usize;
    let values = |tensor: &serde_json::Value| {
        let data = &bytes[place(tensor, 0)..place(tensor, 1)];
        data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    };
    tensors.map(|(name, tensor)| (name, values(&tensor))).collect()
}
