//! Answers of Slurm that a sound cluster does not give; needs no cluster.

use expctl::launch::slurm::SlurmBackend;
use expctl_ledger::TrialState;
use slurm_client::{Availability, Slurm};

use super::fake::FakeTools;
use crate::common::job::{Flow, job};
use crate::common::{self, SMALL, TestProject};

#[test]
fn a_slurm_that_is_away_is_not_taken_for_none() {
    let nothing = FakeTools::new(&[]);
    let no_sbatch = Slurm::from_environment().with_variable("PATH", nothing.folder());
    assert_eq!(no_sbatch.availability(), Availability::Absent);
    let away = FakeTools::new(&[("sbatch", "exit 1"), ("scontrol", "echo 'Slurmctld(primary) at c1 is DOWN'")]);
    let away = away.slurm().with_variable("SLURM_CONF", "/nonexistent/slurm.conf").availability();
    assert_eq!(away, Availability::Unreachable("Slurmctld(primary) at c1 is DOWN".to_owned()));
    let up = FakeTools::new(&[("sbatch", "exit 1"), ("scontrol", "echo 'Slurmctld(primary) at c1 is UP'")]);
    assert_eq!(up.slurm().availability(), Availability::Ready);
}

#[test]
fn submit_without_a_backend_does_not_fall_back_to_a_login_node() {
    let away = FakeTools::new(&[("sbatch", "exit 1"), ("scontrol", "echo 'no answer' >&2; exit 1")]);
    let project = TestProject::new();
    let conf = project.conf("small", SMALL);
    let mut submit = project.expctl(&["submit", conf.to_str().unwrap()]);
    let output = submit.env("PATH", away.path()).env("SLURM_CONF", "/nonexistent/slurm.conf").output().unwrap();
    let message = common::text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{message}");
    assert!(message.contains("scontrol: no answer") && message.contains("--backend local"), "{message}");
    assert!(output.stdout.is_empty() && !project.path().join("results/runs").exists());
}

#[test]
fn an_answer_that_cannot_be_read_is_trouble_and_every_question_goes_to_the_jobs_cluster() {
    let tools = FakeTools::cluster("7;east", "7_0|CANCELLED|None\\n");
    let flow = Flow::new("ledger");
    let slurm = tools.slurm();
    assert_eq!(flow.submit_to(&slurm, job("multi", &["a"], 1)).unwrap(), 7);
    let mut trouble = Vec::new();
    SlurmBackend::new(slurm).wait_for_job(&flow.project, 7, &mut |look| trouble.push(look.trouble)).unwrap();
    let first = "squeue answered \"greetings\", which is not the table that was asked for";
    assert_eq!(trouble.first().unwrap().as_deref(), Some(first));
    assert!(trouble.iter().skip(1).all(Option::is_none), "{trouble:?}");
    assert!(tools.asked().iter().all(|call| call.starts_with("--clusters=east ")), "{:?}", tools.asked());
}

#[test]
fn only_a_task_that_somebody_cancelled_before_its_attempt_is_interrupted() {
    let rows = "7_0|FAILED|NonZeroExitCode\\n7_1|CANCELLED|None\\n7_2|NODE_FAIL|None\\n7_3|COMPLETED|None\\n";
    let tools = FakeTools::cluster("7", rows);
    let flow = Flow::new("ledger");
    let slurm = tools.slurm();
    flow.submit_to(&slurm, job("unstarted", &["a", "b", "c", "d"], 2)).unwrap();
    SlurmBackend::new(slurm).wait_for_job(&flow.project, 7, &mut |_| {}).unwrap();
    let (failed, interrupted) = (TrialState::Failed, TrialState::Interrupted);
    for (index, state) in [failed, interrupted, failed, failed].into_iter().enumerate() {
        let outcome = flow.outcome(7, index);
        assert_eq!((outcome.state, outcome.failed_rank), (state, None), "{outcome:?}");
    }
    let expected = "the task ended before it had an attempt; Slurm says FAILED (NonZeroExitCode); see slurm-7_0.log";
    assert_eq!(flow.outcome(7, 0).message, expected);
}
