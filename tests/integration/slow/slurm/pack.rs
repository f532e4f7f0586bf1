//! Trials side by side in one allocation, on a real cluster.

use expctl_ledger::{JobArrays, JobRecord, Outcome, TaskTrial, TrialState};
use expctl_settings::{Mode, Trial};

use crate::common::cluster::Cluster;
use crate::common::job::{Flow, job};

/// A job of one rank per trial, of which two run side by side: the ids end alike, as those of repeats do.
fn packed(variants: &[&str]) -> JobRecord {
    let mut job = job("packed", variants, 1);
    for trial in &mut job.trials {
        trial.settings.slurm.pack = 2;
    }
    job
}

/// The tasks of the job's only array, each with its trials.
fn tasks(flow: &Flow, id: u64) -> Vec<(u32, Vec<u32>)> {
    let folder = flow.project.job(id);
    let arrays = JobArrays::load(&folder, id, folder.record().unwrap().trials.len()).unwrap();
    assert_eq!(arrays.arrays.len(), 1);
    let trials = |(task, list): (&u32, &Vec<TaskTrial>)| (*task, list.iter().map(|trial| trial.0).collect());
    arrays.arrays[0].tasks.iter().map(trials).collect()
}

fn overlap(one: &Outcome, other: &Outcome) -> bool {
    one.started <= other.ended && other.started <= one.ended
}

#[test]
fn four_trials_are_two_tasks_of_two_and_one_that_fails_spares_the_other() {
    let Some(cluster) = Cluster::start(&["--nodes", "1", "--cpus", "4"]) else { return };
    let flow = Flow::new("ledger");
    // The first two complete only if both run at the same time.
    let id = flow.submit(&cluster, packed(&["meets-a", "meets-b", "unknown", "good"])).unwrap();
    cluster.backend().wait_for_job(&flow.project, id, &mut |_| {}).unwrap();
    assert_eq!(tasks(&flow, id), [(0, vec![0, 1]), (2, vec![2, 3])]);
    use TrialState::{Completed, Failed};
    let outcomes: Vec<Outcome> = (0..4).map(|index| flow.outcome(id, index)).collect();
    let states: Vec<TrialState> = outcomes.iter().map(|outcome| outcome.state).collect();
    assert_eq!(states, [Completed, Completed, Failed, Completed], "{outcomes:?}");
    assert!(overlap(&outcomes[0], &outcomes[1]), "{outcomes:?}");
    // Written behind the outcome.
    cluster.until("the times beside", || (0..4).all(|index| flow.outcome(id, index).beside_s.is_some()));
    let task = cluster.task(id, 0);
    assert!(task.contains("NumCPUs=2") && task.contains("NumTasks=2"), "{task}");
}

#[test]
fn a_task_that_is_cancelled_stops_all_its_trials() {
    let Some(cluster) = Cluster::start(&["--nodes", "1", "--cpus", "4"]) else { return };
    let flow = Flow::new("ledger");
    let id = flow.submit(&cluster, packed(&["sleeps-a", "sleeps-b", "good", "also-good"])).unwrap();
    cluster.until("the ranks", || flow.files_named("asleep-").len() == 2);
    let alone = cluster.backend().cancel_trials(&flow.project, id, Some(&[1]), &mut |_| {}).unwrap_err();
    assert!(alone.message.contains("runs in the same task"), "{alone}");
    cluster.ask("scancel", &[&format!("{id}_0")]);
    cluster.backend().wait_for_job(&flow.project, id, &mut |_| {}).unwrap();
    use TrialState::{Completed, Interrupted};
    let states: Vec<TrialState> = (0..4).map(|index| flow.outcome(id, index).state).collect();
    assert_eq!(states, [Interrupted, Interrupted, Completed, Completed]);
}

#[test]
fn a_requeued_task_goes_on_with_each_of_its_trials() {
    let Some(cluster) = Cluster::start(&["--nodes", "1", "--cpus", "4"]) else { return };
    let flow = Flow::new("ledger");
    let mut two = packed(&["sleeps-once", "good"]);
    for trial in &mut two.trials {
        // A trial that trains keeps checkpoints, so Slurm may run it again.
        trial.settings.train.mode = Mode::Train;
    }
    let id = flow.submit(&cluster, two).unwrap();
    cluster.until("the sleeper, and the end of the other", || {
        let folder = flow.project.job(id);
        let ended = |trial: &Trial| {
            folder.attempts(&trial.id).unwrap().iter().any(|attempt| attempt.outcome().unwrap().is_some())
        };
        !flow.files_named("asleep-").is_empty() && ended(&folder.record().unwrap().trials[1])
    });
    cluster.ask("scontrol", &["requeue", &format!("{id}_0")]);
    cluster.backend().wait_for_job(&flow.project, id, &mut |_| {}).unwrap();
    let folder = flow.project.job(id);
    let states = |trial: &Trial| -> Vec<TrialState> {
        folder.attempts(&trial.id).unwrap().iter().map(|attempt| attempt.outcome().unwrap().unwrap().state).collect()
    };
    let found: Vec<Vec<TrialState>> = folder.record().unwrap().trials.iter().map(states).collect();
    use TrialState::{Completed, Interrupted};
    assert_eq!(found, [vec![Interrupted, Completed], vec![Completed]]);
}
