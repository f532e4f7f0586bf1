//! The Slurm backend on a real cluster: each test starts its own throw-away cluster of virtual nodes and ends it.
//!
//! Most tests try the way of a job through Slurm and back, with a shell script in the worker's place that leaves what a
//! worker leaves ([`job::WORKER`]); the last one runs the real worker.

mod arrays;
mod pack;

use std::path::Path;
use std::time::Duration;

use crate::common;
use crate::common::cluster::Cluster;
use crate::common::job;
use crate::common::job::{Flow, job};
use crate::common::programs;
use crate::common::{SMALL, TestProject};
use crate::slurm::HOSTILE;
use expctl::exit::Exit;
use expctl::launch::slurm::TrialProgress;
use expctl_ledger::{Outcome, RankStatus, TrialState};
use slurm_client::Availability;
use test_support::{Requirement, skip};

/// A submitting shell in which torchrun was at work.
const TORCHRUN: [(&str, &str); 5] =
    [("RANK", "7"), ("LOCAL_RANK", "7"), ("WORLD_SIZE", "8"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29500")];

/// Start a cluster, or say why not and leave the test.
macro_rules! cluster {
    ($($option:expr),*) => {
        match Cluster::start(&[$($option),*]) {
            Some(cluster) => cluster,
            None => return,
        }
    };
}

#[test]
fn a_task_without_a_launcher_on_its_node_has_failed() {
    let cluster = cluster!("--nodes", "1");
    let flow = Flow::new("ledger").with_launcher("/nonexistent/expctl");
    let id = flow.submit(&cluster, job("nowhere", &["good"], 1)).unwrap();
    assert!(id >= 100_000, "{id} may be the number of a local job");
    cluster.backend().wait_for_job(&flow.project, id, &mut |_| {}).unwrap();
    let outcome = flow.outcome(id, 0);
    assert_eq!(outcome.state, TrialState::Failed, "{outcome:?}");
    assert!(outcome.message.contains("Slurm says FAILED (NonZeroExitCode)"), "{outcome:?}");
    let log = std::fs::read_to_string(flow.project.job(id).path().join(format!("slurm-{id}_0.log"))).unwrap();
    assert!(log.contains("/nonexistent/expctl"), "{log}");
}

#[test]
fn a_job_goes_through_slurm_and_leaves_outcomes() {
    let cluster = cluster!();
    assert_eq!(cluster.slurm.availability(), Availability::Ready);
    // The ledger's own name is as hostile as Slurm lets it be.
    let flow = Flow::new("it's \"my\" $(ledger) 100%");
    // What torchrun leaves in a shell is not for these ranks.
    let slurm = TORCHRUN.iter().fold(cluster.slurm.clone(), |slurm, (name, value)| slurm.with_variable(*name, *value));
    let id = flow.submit_to(&slurm, job(HOSTILE, &["good", "also-good"], 2)).unwrap();
    let mut looks = Vec::new();
    cluster.backend().wait_for_job(&flow.project, id, &mut |look| looks.push(look.to_string())).unwrap();

    let folder = flow.project.job(id);
    let record = folder.record().unwrap();
    assert_eq!((record.job, record.backend.as_str()), (id, "slurm"));
    assert!(folder.path().join("batch.sh").exists());
    for trial in &record.trials {
        let attempts = folder.attempts(&trial.id).unwrap();
        assert_eq!(attempts.len(), 1);
        assert_eq!(attempts[0].trial().unwrap(), *trial);
        let outcome = attempts[0].outcome().unwrap().unwrap();
        assert_eq!((outcome.state, outcome.message.as_str()), (TrialState::Completed, ""));
        assert_eq!(outcome.ranks.iter().map(|r| r.rank).collect::<Vec<_>>(), [0, 1]);
        for rank in 0..2 {
            let log = std::fs::read_to_string(attempts[0].log_path(rank)).unwrap();
            assert_eq!(log, format!("rank {rank} of 2\n"));
        }
    }
    assert_eq!(looks.last().unwrap(), "2 of 2 trials ended");
    // The ledger knows of the end of a task before Slurm does.
    let states = || cluster.ask("squeue", &["--noheader", "--array", "--states=all", "--format=%T"]);
    cluster.until("the end of both tasks", || states() == "COMPLETED\nCOMPLETED\n");
    let name = cluster.ask("squeue", &["--noheader", "--states=all", "--format=%j"]);
    assert_eq!(name.lines().next().unwrap(), HOSTILE.replace('\n', " "));
    assert!(flow.files_named("pwned").is_empty() && flow.files_named(".staged-").is_empty());
}

#[test]
fn a_killed_rank_is_named_and_slurm_shows_the_task_as_failed() {
    let cluster = cluster!();
    let flow = Flow::new("ledger");
    let id = flow.submit(&cluster, job("killed", &["dies", "good"], 2)).unwrap();
    cluster.backend().wait_for_job(&flow.project, id, &mut |_| {}).unwrap();

    let outcome = flow.outcome(id, 0);
    assert_eq!((outcome.state, outcome.failed_rank), (TrialState::Failed, Some(1)));
    assert_eq!(outcome.message, "rank 1 was killed by signal 9 SIGKILL");
    assert!(outcome.ended - outcome.started <= 10, "{outcome:?}");
    assert_eq!(flow.outcome(id, 1).state, TrialState::Completed);
    cluster.until("the task's end", || cluster.task(id, 0).contains("JobState=FAILED"));
    assert!(cluster.task(id, 0).contains("ExitCode=5:0"), "{}", cluster.task(id, 0));
}

#[test]
fn a_cancelled_task_gets_an_outcome_whether_it_ran_or_not() {
    let cluster = cluster!();
    let flow = Flow::new("ledger");
    let mut three = job("cancelled", &["sleeps", "never", "good"], 2);
    for trial in &mut three.trials {
        trial.settings.slurm.throttle = 1;
    }
    let id = flow.submit(&cluster, three).unwrap();
    // Both ranks are asleep, so both can be asked to stop.
    cluster.until("the ranks", || flow.files_named("asleep-").len() == 2);
    cluster.ask("scancel", &[&format!("{id}_1")]);
    cluster.ask("scancel", &[&format!("{id}_0")]);
    cluster.backend().wait_for_job(&flow.project, id, &mut |_| {}).unwrap();

    let ran = flow.outcome(id, 0);
    assert_eq!((ran.state, ran.message.as_str()), (TrialState::Interrupted, "stopped on request"), "{ran:?}");
    // They had the time to say so themselves.
    assert!(ran.ranks.iter().all(|r| r.status == RankStatus::Interrupted), "{ran:?}");
    let never = flow.outcome(id, 1);
    assert_eq!(never.state, TrialState::Interrupted, "{never:?}");
    assert!(never.message.starts_with("the trial never started; Slurm "), "{never:?}");
    assert_eq!(flow.outcome(id, 2).state, TrialState::Completed);
}

#[test]
fn the_accounting_is_asked_about_a_task_that_the_controller_forgot() {
    if !Path::new("/usr/sbin/slurmdbd").exists() {
        skip(Requirement::Slurm, "needs accounting: slurm/dev-cluster/install.sh --dbd");
        return;
    }
    let cluster = cluster!("--dbd", "--nodes", "1");
    let flow = Flow::new("ledger");
    let id = flow.submit(&cluster, job("forgotten", &["sleeps"], 1)).unwrap();
    cluster.until("the rank", || flow.files_named("asleep-").len() == 1);
    cluster.node("kill", "n1");
    cluster.ask("scontrol", &["update", "nodename=n1", "state=down", "reason=test"]);
    // Accounting is late, and its rows have neither array index nor final state at first.
    // Whether Slurm calls it a lost node or a failed launch is a race inside Slurm.
    let whole = ["NODE_FAIL", "FAILED"].map(|state| format!("{id}_0|{state}"));
    let rows = ["--allocations", "--duplicates", "--parsable2", "--format=JobID,State"];
    cluster.until("the accounting", || {
        let answer = cluster.ask("sacct", &rows);
        whole.iter().any(|row| answer.contains(row))
    });
    cluster.forget_jobs();
    cluster.backend().wait_for_job(&flow.project, id, &mut |_| {}).unwrap();
    let lost = flow.outcome(id, 0);
    assert_eq!(lost.state, TrialState::Failed);
    let expected = ["NODE_FAIL", "FAILED"]
        .map(|state| format!("the task ended without writing its outcome; Slurm says {state} (exit code "));
    assert!(expected.iter().any(|words| lost.message.starts_with(words)), "{lost:?}");
}

#[test]
fn a_signal_to_the_script_alone_reaches_the_ranks() {
    let cluster = cluster!();
    let flow = Flow::new("ledger");
    let id = flow.submit(&cluster, job("signalled", &["sleeps", "sleeps-too"], 1)).unwrap();
    cluster.until("the ranks", || flow.files_named("asleep-").len() == 2);
    // The last task of an array has the id of the array: it must not take the other with it.
    let last = (0..2).find(|task| cluster.task(id, *task).contains(&format!("JobId={id} "))).unwrap();
    cluster.ask("scancel", &["--batch", "--signal=TERM", &format!("{id}_{last}")]);
    cluster.until("the outcome", || flow.try_outcome(id, last).is_some());
    let outcome = flow.outcome(id, last);
    assert_eq!(outcome.state, TrialState::Interrupted);
    assert!(outcome.ranks.iter().all(|r| r.status == RankStatus::Interrupted), "{outcome:?}");
    // Time enough for a signal that went astray to show.
    std::thread::sleep(Duration::from_secs(4));
    assert!(cluster.task(id, 1 - last).contains("JobState=RUNNING"));
}

#[test]
fn a_time_limit_is_a_failure_that_says_so() {
    let cluster = cluster!("--nodes", "1");
    let flow = Flow::new("ledger");
    let mut late = job("late", &["sleeps"], 2);
    late.trials[0].settings.slurm.time_min = 1;
    let id = flow.submit(&cluster, late).unwrap();
    cluster.until("the ranks", || flow.files_named("asleep-").len() == 2);
    assert!(cluster.task(id, 0).contains("TimeLimit=00:01:00"));
    // Slurm looks at time limits every 30 s.
    cluster.ask("scontrol", &["update", &format!("jobid={id}_0"), "endtime=now+1"]);
    cluster.backend().wait_for_job(&flow.project, id, &mut |_| {}).unwrap();
    let outcome = flow.outcome(id, 0);
    // The second where Slurm killed the script before that could write: it waits for some seconds only, and this machine may be busy.
    let says =
        ["stopped by Slurm (TimeLimit)", "the task ended without writing its outcome; Slurm says TIMEOUT (TimeLimit)"];
    assert!(outcome.state == TrialState::Failed && says.contains(&outcome.message.as_str()), "{outcome:?}");
}

#[test]
fn a_task_lost_with_its_node_gets_an_outcome() {
    let cluster = cluster!("--nodes", "1");
    let flow = Flow::new("ledger");
    let id = flow.submit(&cluster, job("lost", &["sleeps"], 2)).unwrap();
    cluster.until("the ranks", || flow.files_named("asleep-").len() == 2);
    cluster.node("kill", "n1");
    // Spare the test the time until the controller notices by itself.
    cluster.ask("scontrol", &["update", "nodename=n1", "state=down", "reason=test"]);
    let mut states = Vec::new();
    cluster
        .backend()
        .wait_for_job(&flow.project, id, &mut |look| {
            if let [TrialProgress::Active(task)] = &look.trials[..] {
                states.push(task.state.to_string());
            }
        })
        .unwrap();
    let outcome = flow.outcome(id, 0);
    assert_eq!(outcome.state, TrialState::Failed);
    // Which of the two it says is a race inside Slurm: it may still have been launching the step. Either way the words
    // are Slurm's, and the state was seen while waiting.
    let says = [("NODE_FAIL", "Slurm says NODE_FAIL"), ("FAILED", "Slurm says FAILED (JobLaunchFailure)")];
    let (state, _) =
        says.iter().find(|(_, words)| outcome.message.contains(words)).unwrap_or_else(|| panic!("{outcome:?}"));
    assert!(states.iter().any(|seen| seen == state), "{states:?}");
}

#[test]
fn a_refused_job_leaves_nothing_behind() {
    let cluster = cluster!();
    let flow = Flow::new("ledger");
    let mut refused = job("refused", &["good"], 1);
    refused.trials[0].settings.slurm.partition = "nowhere".to_owned();
    let failure = flow.submit(&cluster, refused).unwrap_err();
    assert_eq!(failure.exit, Exit::Cluster);
    assert!(failure.message.contains("invalid partition specified: nowhere"), "{failure}");
    assert_eq!(std::fs::read_dir(flow.project.runs()).unwrap().count(), 0);
}

#[test]
fn a_number_that_the_ledger_has_already_is_refused() {
    let cluster = cluster!("--first-job-id", "392");
    let flow = Flow::new("ledger");
    let old = flow.project.job(392);
    std::fs::create_dir_all(old.path()).unwrap();
    let failure = flow.submit(&cluster, job("again", &["good"], 1)).unwrap_err();
    assert_eq!(failure.exit, Exit::Cluster);
    assert!(failure.message.contains("job number 392"), "{failure}");
    assert!(failure.hints.concat().contains("--backend local"), "{failure}");
    assert_eq!(std::fs::read_dir(flow.project.runs()).unwrap().count(), 1);
    assert_eq!(std::fs::read_dir(old.path()).unwrap().count(), 0);
    let states = cluster.ask("squeue", &["--noheader", "--states=all", "--format=%T"]);
    assert_eq!(states, "CANCELLED\n");
    // The next one has a number of its own.
    assert_eq!(flow.submit(&cluster, job("again", &["good"], 1)).unwrap(), 393);
}

#[test]
fn a_controller_that_is_gone_is_exit_4() {
    let cluster = cluster!("--nodes", "1");
    let flow = Flow::new("ledger");
    cluster.node("down", "ctld");
    assert!(matches!(cluster.slurm.availability(), Availability::Unreachable(_)));
    let failure = flow.submit(&cluster, job("unheard", &["good"], 1)).unwrap_err();
    assert_eq!(failure.exit, Exit::Cluster);
    assert!(failure.message.starts_with("sbatch: "), "{failure}");
}

/// The same config through Slurm and through the local backend: the same columns, steps and parameters.
#[test]
fn the_real_worker_leaves_the_same_ledger_through_slurm_as_through_the_local_backend() {
    let cluster = cluster!();
    let run = |backend: &str| {
        let project = TestProject::new();
        let conf = project.conf("small", SMALL);
        let output = project
            .expctl(&["submit", conf.to_str().unwrap(), "--backend", backend, "--wait"])
            .env("SLURM_CONF", cluster.conf())
            .envs(TORCHRUN)
            .output()
            .unwrap();
        assert!(output.status.success(), "{backend}: {}", common::text(&output.stderr));
        (common::text(&output.stdout).trim().to_owned(), project)
    };
    let ((slurm_id, slurm), (local_id, local)) = (run("slurm"), run("local"));
    assert_eq!(slurm.job(&slurm_id).record().unwrap().backend, "slurm");
    for variant in ["lazy", "ids"] {
        let (a, b) = (slurm.attempt(&slurm_id, variant).unwrap(), local.attempt(&local_id, variant).unwrap());
        assert_eq!(a.trial().unwrap().id, b.trial().unwrap().id);
        let (x, y) = (slurm.outcome(&slurm_id, variant), local.outcome(&local_id, variant));
        assert_eq!((x.state, y.state), (TrialState::Completed, TrialState::Completed));
        for rank in 0..2 {
            assert_eq!(job::columns(&a.steps_path(rank)), job::columns(&b.steps_path(rank)));
            let losses = |attempt: &expctl_ledger::AttemptDir| -> Vec<Option<f64>> {
                attempt.steps(rank).unwrap().iter().map(|s| s.loss).collect()
            };
            assert_eq!(losses(&a), losses(&b), "{variant}, rank {rank}");
            let digest = |o: &Outcome| o.ranks[rank as usize].parameters_digest.clone().unwrap();
            assert_eq!(digest(&x), digest(&y), "{variant}, rank {rank}");
        }
        assert!(a.environment().unwrap().unwrap().variables.contains_key("SLURM_JOB_ID"));
    }
    let note = std::fs::read_to_string(slurm.path().join(format!("results/small_{slurm_id}.md"))).unwrap();
    assert!(note.contains("to slurm"), "{note}");
}

/// Ranks of a program on two nodes, each a host of its own, beside a native variant in one allocation.
#[test]
fn a_program_runs_as_ranks_of_slurm() {
    let cluster = cluster!("--netns");
    let project = TestProject::new();
    programs::install(&project);
    let conf = format!(
        "{}\n[variant.good]\nworker.command = [\"./python\", \"slurm.py\"]\n[variant.spawns]\nworker.command = [\"./python\", \"slurm.py\"]\n\
         worker.starts_ranks = true\nlaunch.ranks = 1\nlaunch.nodes = 1\n[variant.dies]\nworker.command = [\"./python\", \"bad.py\", \"killed\"]\n",
        "[experiment]\nstudy = \"006-kuzmin-tmi\"\n[loader]\nbatch_size = 4\nworkers = 0\n[measure]\nwarmup = 2\nsteps = 6\nrepeats = 1\n\
         [launch]\nranks = 2\nnodes = 2"
    );
    let program = "from train import *\nimport socket\nrun = expctl.Run(program='slurm')\n\
                   print(socket.gethostname(), os.environ['MASTER_ADDR'], os.environ['MASTER_PORT'])\n\
                   if run.world_size == 2:\n    address = (os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))\n    \
                   if run.rank == 0:\n        socket.create_server(('', address[1])).accept()[0].sendall(b'met')\n    \
                   else:\n        for _ in range(600):\n            try:\n                print(socket.create_connection(address).recv(9))\n                break\n            \
                   except OSError:\n                time.sleep(0.1)\ntrain(run)\n";
    std::fs::write(project.path().join("slurm.py"), program).unwrap();
    let conf = project.conf("command", &conf);
    let output = project
        .expctl(&["submit", conf.to_str().unwrap(), "--backend", "slurm", "--wait"])
        .envs(cluster.env())
        .envs(TORCHRUN)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", common::text(&output.stderr));
    let job = common::text(&output.stdout).trim().to_owned();
    let outcome = project.outcome(&job, "good");
    let attempt = project.attempt(&job, "good").unwrap();
    let logs = [0, 1].map(|rank| std::fs::read_to_string(attempt.log_path(rank)).unwrap_or_default());
    assert_eq!(outcome.state, TrialState::Completed, "{outcome:?} {logs:?}");
    assert!((0..2).all(|rank| attempt.steps(rank).unwrap().len() == 8));
    // Two hosts, and the second one met the first.
    let hosts = logs.each_ref().map(|log| log.split(' ').next().unwrap_or_default());
    assert!(hosts[0] != hosts[1] && !logs[0].contains("127.0.0.1") && logs[1].contains("b'met'"), "{logs:?}");
    let environment = attempt.environment().unwrap().unwrap();
    assert!(environment.ranks[0].host != environment.ranks[1].host && environment.program.is_some());
    assert_eq!(project.outcome(&job, "spawns").state, TrialState::Completed, "{:?}", project.outcome(&job, "spawns"));
    let dead = project.outcome(&job, "dies");
    assert_eq!((dead.state, dead.failed_rank), (TrialState::Failed, Some(1)), "{dead:?}");
    assert!(dead.message.contains("was killed by signal 9 SIGKILL after 3 of 8 steps"), "{dead:?}");
}
