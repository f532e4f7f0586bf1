//! What is done in every way. Each scenario has a seed of its own, so that no trial of one is a trial of another.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, SystemTime};

use expctl_ledger::{AttemptDir, TrialState, joined_steps};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::reference::{self, FOUR_RANKS, LONG, LONG_STEPS};
use super::site::{Site, digests, outcome};
use crate::common::{text, wait_until, worker_pids};

pub fn a_throttled_array_never_runs_more_tasks_than_allowed(site: &Site) {
    let settings = ["measure.repeats=4", "launch.ranks=1", "slurm.throttle=2", "loader.seed=1"];
    let id = site.submit(&settings, &["--wait"]);
    let arrays = site.arrays(&id).arrays;
    assert_eq!(arrays.iter().map(|array| array.tasks.len()).collect::<Vec<_>>(), [8]);
    assert_eq!(site.completed(&id).len(), 8);
    site.note(&id);
    // All tasks held a node from their start to their end, in whole seconds.
    let times: Vec<(i64, i64)> = site
        .completed(&id)
        .iter()
        .map(|attempt| attempt.slurm_usage().unwrap().unwrap().usage)
        .map(|usage| (usage.started.unwrap(), usage.ended.unwrap()))
        .collect();
    let at_once = |at: i64| times.iter().filter(|(started, ended)| (*started..*ended).contains(&at)).count();
    let most = times.iter().map(|(started, _)| at_once(*started)).max().unwrap();
    assert!(most <= 2, "{most} at once: {times:?}");
}

pub fn two_nodes_compute_what_one_does(site: &Site) {
    let id = site.submit(&[&FOUR_RANKS[..], &["launch.nodes=2"]].concat(), &["--only", "ids", "--wait"]);
    let attempt = site.completed(&id).remove(0);
    let hosts: Vec<String> =
        attempt.environment().unwrap().unwrap().ranks.into_iter().map(|hardware| hardware.host).collect();
    assert!(hosts[0] == hosts[1] && hosts[1] != hosts[2] && hosts[2] == hosts[3], "{hosts:?}");
    assert!(hosts.iter().all(|host| ["n1", "n2", "n3", "n4"].contains(&host.as_str())), "{hosts:?}");
    for rank in 0..4 {
        assert!(attempt.log_path(rank).exists() && attempt.steps_path(rank).exists(), "rank {rank}");
    }
    assert_eq!(digests(&attempt), [reference::four_ranks(); 4]);
    site.note(&id);
}

pub fn more_trials_than_an_array_takes_run_once_each(site: &Site) {
    let settings = ["measure.repeats=6", "launch.ranks=1", "loader.seed=2"];
    let options = ["--only-missing", "--wait"];
    let id = site.submit(&settings, &options);
    let sizes: Vec<usize> = site.arrays(&id).arrays.iter().map(|array| array.tasks.len()).collect();
    assert_eq!(sizes, [5, 5, 2]);
    let attempts = site.completed(&id);
    let trials: BTreeSet<String> = attempts.iter().map(|attempt| attempt.trial().unwrap().id).collect();
    assert_eq!((attempts.len(), trials.len()), (12, 12));
    site.note(&id);
    // The second time all are there.
    let again = site.submission(&settings, &options);
    let again = site.expctl(&again.iter().map(String::as_str).collect::<Vec<_>>()).output().unwrap();
    assert_eq!((again.status.code(), text(&again.stdout).as_str()), (Some(0), ""), "{}", text(&again.stderr));
    assert!(text(&again.stderr).contains("nothing to submit"), "{}", text(&again.stderr));
}

pub fn interleaved_variants_take_turns(site: &Site) {
    let settings = ["measure.interleave=true", "measure.repeats=3", "loader.seed=3"];
    let id = site.submit(&settings, &["--wait"]);
    let arrays = site.arrays(&id).arrays;
    assert!(arrays.len() == 1 && arrays[0].tasks.len() == 1 && arrays[0].tasks[&0].len() == 6, "{arrays:?}");
    let mut turns: Vec<(SystemTime, String)> = site
        .completed(&id)
        .iter()
        .map(|attempt| {
            let staged = attempt.trial_path().metadata().unwrap().modified().unwrap();
            (staged, attempt.trial().unwrap().variant)
        })
        .collect();
    turns.sort();
    let order: Vec<&str> = turns.iter().map(|(_, variant)| variant.as_str()).collect();
    assert_eq!(order, ["lazy", "ids", "lazy", "ids", "lazy", "ids"]);
    let nodes: BTreeSet<String> = site
        .completed(&id)
        .iter()
        .flat_map(|attempt| attempt.environment().unwrap().unwrap().ranks)
        .map(|hardware| hardware.host)
        .collect();
    assert_eq!(nodes.len(), 1, "{nodes:?}");
    site.note(&id);
}

/// Slurm looks at time limits twice a minute. The ranks stand still meanwhile: how fast the machine is does not matter.
pub fn a_trial_at_its_time_limit_goes_on_by_itself(site: &Site) {
    let settings = [&LONG[..], &["slurm.requeues=2", "slurm.time_min=60"]].concat();
    if site.way.rest {
        // This version of its interface has no field for the warning: that is said, and nothing is submitted.
        let refused = site.submission(&settings, &[]);
        let refused = site.expctl(&refused.iter().map(String::as_str).collect::<Vec<_>>()).output().unwrap();
        assert_eq!((refused.status.code(), text(&refused.stdout).as_str()), (Some(3), ""));
        assert!(text(&refused.stderr).contains("--signal=B:USR1@120"), "{}", text(&refused.stderr));
        return;
    }
    let id = site.submit(&settings, &["--only", "ids"]);
    let task = format!("{id}_0");
    let job = site.job(&id);
    let limit = Duration::from_secs(180);
    wait_until("the ranks to step", limit, || {
        let first = site.attempts(&id).remove(0).pop()?;
        (0..2).all(|rank| first.steps(rank).is_ok_and(|steps| steps.len() > 2)).then_some(())
    });
    // srun has the same words in its command line.
    let is_rank = |pid: i32| {
        let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        program.file_name() == Some("expctl-worker".as_ref())
    };
    let ranks: Vec<i32> = worker_pids(job.path()).into_iter().map(|(_, pid)| pid).filter(|pid| is_rank(*pid)).collect();
    assert_eq!(ranks.len(), 2);
    ranks.iter().for_each(|pid| kill(Pid::from_raw(*pid), Signal::SIGSTOP).unwrap());
    // The script is told two minutes before the end, and Slurm's next look may be half a minute away.
    site.cluster.ask("scontrol", &["update", &format!("jobid={task}"), "endtime=now+140"]);
    let undisturbed = reference::long();
    wait_until("the signal", limit, || ranks.iter().all(|pid| is_pending(*pid, Signal::SIGTERM)).then_some(()));
    ranks.iter().for_each(|pid| kill(Pid::from_raw(*pid), Signal::SIGCONT).unwrap());
    site.cluster
        .until("the task in the queue again", || site.cluster.task(id.parse().unwrap(), 0).contains("Restarts=1"));
    // Else the shorter limit would hold for the second run, too. It may have ended already.
    site.cluster.try_ask("scontrol", &["update", &format!("jobid={task}"), "timelimit=60"]);
    wait_until("the second attempt", limit, || site.attempts(&id)[0].get(1)?.outcome().unwrap());

    let attempts = site.attempts(&id).remove(0);
    let [first, second] = &attempts[..] else { panic!("{attempts:?}") };
    let states = [outcome(first).state, outcome(second).state];
    assert_eq!(states, [TrialState::Interrupted, TrialState::Completed]);
    for rank in 0..2 {
        let done = first.steps(rank).unwrap().len() as u64;
        assert_eq!(second.steps(rank).unwrap()[0].step, done, "rank {rank} goes on where it was");
        let joined: Vec<u64> = joined_steps(&attempts, rank, 0).unwrap().steps.iter().map(|step| step.step).collect();
        assert_eq!(joined, (0..LONG_STEPS).collect::<Vec<_>>());
    }
    assert_eq!(digests(second), [undisturbed; 2]);
    // Nobody waited for it.
    site.cluster
        .until("the end of the task", || site.cluster.task(id.parse().unwrap(), 0).contains("JobState=COMPLETED"));
    // The accounting may be late with what it knows of the tries.
    wait_until("the accounting", limit, || {
        site.ok(&["report", &id]);
        let known = |attempt: &AttemptDir| attempt.slurm_usage().unwrap().is_some();
        let last_is_known = attempts.last().is_some_and(known);
        (last_is_known && (!site.way.accounting || attempts.iter().all(known))).then_some(())
    });
    site.note(&id);
}

/// Whether a signal waits for a process that is stopped.
fn is_pending(pid: i32, signal: Signal) -> bool {
    let status = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << (signal as u32 - 1)) != 0
}
