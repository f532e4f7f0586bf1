//! How the trials of a job are spread over arrays, tasks and turns, on a real cluster.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use expctl_ledger::{JobArrays, JobRecord, TrialState};

use crate::common::cluster::Cluster;
use crate::common::job::{Flow, job};

/// A job of `n` trials that complete at once.
fn many(n: usize) -> JobRecord {
    let variants: Vec<String> = (0..n).map(|i| format!("{}-good", letters(i))).collect();
    job("many", &variants.iter().map(String::as_str).collect::<Vec<_>>(), 1)
}

/// Names of variants hold letters only, in these tests.
fn letters(i: usize) -> String {
    let letter = |n: usize| char::from(b'a' + u8::try_from(n % 26).unwrap());
    [letter(i / 26), letter(i)].iter().collect()
}

fn arrays(flow: &Flow, id: u64) -> JobArrays {
    let folder = flow.project.job(id);
    JobArrays::load(&folder, id, folder.record().unwrap().trials.len()).unwrap()
}

fn all_completed(flow: &Flow, id: u64) {
    let trials = flow.project.job(id).record().unwrap().trials.len();
    for index in 0..trials {
        let outcome = flow.outcome(id, index);
        assert_eq!(outcome.state, TrialState::Completed, "{index}: {outcome:?}");
    }
}

#[test]
fn a_throttled_array_never_runs_more_tasks_than_allowed() {
    let Some(cluster) = Cluster::start(&["--nodes", "4"]) else { return };
    let flow = Flow::new("ledger");
    let mut eight = many(8);
    for trial in &mut eight.trials {
        trial.settings.slurm.throttle = 2;
    }
    let id = flow.submit(&cluster, eight).unwrap();
    let most = AtomicUsize::new(0);
    cluster.until("the end", || {
        let running = cluster.ask("squeue", &["--noheader", "--array", "--states=RUNNING", "--format=%i"]);
        most.fetch_max(running.lines().count(), Ordering::Relaxed);
        cluster.ask("squeue", &["--noheader", "--array", "--format=%i"]).is_empty()
    });
    cluster.backend().wait_for_job(&flow.project, id, &mut |_| {}).unwrap();
    all_completed(&flow, id);
    let most = most.into_inner();
    assert!((1..=2).contains(&most), "{most} at once");
}

#[test]
fn a_job_longer_than_an_array_may_be_is_several_arrays() {
    let Some(cluster) = Cluster::start(&["--max-array-size", "5"]) else { return };
    let flow = Flow::new("ledger");
    let id = flow.submit(&cluster, many(12)).unwrap();
    cluster.backend().wait_for_job(&flow.project, id, &mut |_| {}).unwrap();
    all_completed(&flow, id);
    let arrays = arrays(&flow, id);
    let sizes: Vec<usize> = arrays.arrays.iter().map(|a| a.tasks.len()).collect();
    assert_eq!((arrays.arrays[0].id, sizes), (id, vec![5, 5, 2]));
    // Each trial ran once, under its own name, whatever the number of its task.
    let record = flow.project.job(id).record().unwrap();
    for trial in &record.trials {
        let attempts = flow.project.job(id).attempts(&trial.id).unwrap();
        assert_eq!((attempts.len(), attempts[0].trial().unwrap().id), (1, trial.id.clone()));
    }
}

#[test]
fn interleaved_trials_take_turns_in_one_task_and_one_that_fails_spares_the_others() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    let flow = Flow::new("ledger");
    let mut turns = job("turns", &["good", "dies", "b-good", "c-good"], 2);
    for trial in &mut turns.trials {
        trial.settings.measure.interleave = true;
    }
    let id = flow.submit(&cluster, turns).unwrap();
    let mut looks = Vec::new();
    cluster.backend().wait_for_job(&flow.project, id, &mut |look| looks.push(look.to_string())).unwrap();
    assert_eq!(arrays(&flow, id).arrays.len(), 1);
    let states: Vec<TrialState> = (0..4).map(|index| flow.outcome(id, index).state).collect();
    use TrialState::{Completed, Failed};
    assert_eq!(states, [Completed, Failed, Completed, Completed]);
    let times: Vec<(i64, i64)> =
        (0..4).map(|index| flow.outcome(id, index)).map(|outcome| (outcome.started, outcome.ended)).collect();
    assert!(times.windows(2).all(|pair| pair[0].1 <= pair[1].0), "one after another: {times:?}");
    cluster.until("the end of the task", || cluster.task(id, 0).contains("JobState=FAILED"));
    assert_eq!(cluster.ask("squeue", &["--noheader", "--array", "--states=all", "--format=%i"]).lines().count(), 1);
}

#[test]
fn trials_whose_turn_did_not_come_are_interrupted_when_their_task_is_cancelled() {
    let Some(cluster) = Cluster::start(&["--nodes", "1"]) else { return };
    let flow = Flow::new("ledger");
    let mut turns = job("turns", &["good", "sleeps", "b-good"], 1);
    for trial in &mut turns.trials {
        trial.settings.measure.interleave = true;
    }
    let id = flow.submit(&cluster, turns).unwrap();
    cluster.until("the second turn", || !flow.files_named("asleep-").is_empty());
    let alone = cluster.backend().cancel_trials(&flow.project, id, Some(&[2]), &mut |_| {}).unwrap_err();
    assert!(alone.message.contains("runs in the same task"), "{alone}");
    assert_eq!(cluster.backend().cancel_trials(&flow.project, id, None, &mut |_| {}).unwrap(), 2);
    let states: Vec<TrialState> = (0..3).map(|index| flow.outcome(id, index).state).collect();
    use TrialState::{Completed, Interrupted};
    assert_eq!(states, [Completed, Interrupted, Interrupted]);
    assert!(flow.outcome(id, 2).message.contains("never started"), "{:?}", flow.outcome(id, 2));
}

#[test]
fn a_cluster_that_takes_few_tasks_gets_few_with_several_trials_each() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    let flow = Flow::new("ledger");
    let profiles = flow.project.root().join("slurm/profiles");
    std::fs::create_dir_all(&profiles).unwrap();
    std::fs::write(profiles.join("few.toml"), "max_submit = 3\n").unwrap();
    let mut seven = many(7);
    for trial in &mut seven.trials {
        "few".clone_into(&mut trial.settings.slurm.profile);
    }
    let id = flow.submit(&cluster, seven).unwrap();
    cluster.backend().wait_for_job(&flow.project, id, &mut |_| {}).unwrap();
    all_completed(&flow, id);
    let arrays = arrays(&flow, id);
    let tasks: Vec<usize> = arrays.arrays.iter().flat_map(|a| a.tasks.values().map(Vec::len)).collect();
    assert_eq!(tasks, [3, 3, 1]);
    let trials: BTreeSet<u32> = arrays.arrays[0].tasks.values().flatten().map(|turn| turn.0).collect();
    assert_eq!(trials.len(), 7);
}

#[test]
fn a_requeued_task_goes_on_where_it_was_in_its_list() {
    let Some(cluster) = Cluster::start(&["--nodes", "1"]) else { return };
    let flow = Flow::new("ledger");
    let mut turns = job("turns", &["good", "sleeps-once", "b-good"], 1);
    for trial in &mut turns.trials {
        trial.settings.measure.interleave = true;
        // A trial that trains keeps checkpoints, so Slurm may run it again.
        trial.settings.train.mode = expctl_settings::Mode::Train;
    }
    let id = flow.submit(&cluster, turns).unwrap();
    cluster.until("the second turn", || !flow.files_named("asleep-").is_empty());
    cluster.ask("scontrol", &["requeue", &format!("{id}_0")]);
    cluster.backend().wait_for_job(&flow.project, id, &mut |_| {}).unwrap();
    let folder = flow.project.job(id);
    let trials = folder.record().unwrap().trials;
    let attempts: Vec<Vec<TrialState>> = trials
        .iter()
        .map(|trial| {
            let attempts = folder.attempts(&trial.id).unwrap();
            attempts.iter().map(|a| a.outcome().unwrap().unwrap().state).collect()
        })
        .collect();
    use TrialState::{Completed, Interrupted};
    assert_eq!(attempts, [vec![Completed], vec![Interrupted, Completed], vec![Completed]]);
    assert!(cluster.task(id, 0).contains("Restarts=1"), "{}", cluster.task(id, 0));
}
