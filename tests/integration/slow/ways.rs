//! Every way of running a job on Slurm, from the command line to the note, with the real worker on four nodes: with and
//! without accounting, as root and as an ordinary user, on one network and on one per node.
//!
//! All ways run the same scenarios side by side on one cluster, each with a seed of its own, so that no trial of one is a trial of
//! another. Only the limit on arrays has to change in between.

mod site;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use expctl_ledger::{AttemptDir, TrialState, joined_steps};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::cluster::{self, Cluster};
use crate::common::local::{set, stepped};
use crate::common::{SMALL, TestProject, text, wait_until, worker_pids};
use site::{Site, Way, digests, outcome, succeeded};

/// The whole matrix on one cluster.
fn all(way: Way) {
    let Some(site) = Site::new(way) else { return };
    type Scenario = (&'static str, fn(&Site));
    let side_by_side: [Scenario; 6] = [
        ("two nodes", two_nodes_compute_what_one_does),
        ("short arrays", more_trials_than_an_array_takes_run_once_each),
        ("interleaved", interleaved_variants_take_turns),
        ("time limit", a_trial_at_its_time_limit_goes_on_by_itself),
        ("chain", a_chain_needs_nobody_who_waits),
        ("broken chain", a_chain_whose_data_cannot_be_built_is_over),
    ];
    let all = &site;
    std::thread::scope(|scope| {
        for (name, scenario) in side_by_side {
            let thread = std::thread::Builder::new().name(format!("{way}, {name}"));
            thread.spawn_scoped(scope, move || scenario(all)).unwrap();
        }
    });
    site.allow_long_arrays();
    a_throttled_array_never_runs_more_tasks_than_allowed(&site);
    site.cluster.until("an empty queue", || site.cluster.ask("squeue", &["--noheader"]).is_empty());
    site.everything_belongs_to_the_user();
}

#[test]
fn with_accounting() {
    all(Way { accounting: true, ..Way::default() });
}

#[test]
fn without_accounting_on_networks_of_their_own() {
    all(Way { netns: true, ..Way::default() });
}

#[test]
fn as_an_ordinary_user() {
    all(Way { accounting: true, user: Some("nobody"), ..Way::default() });
}

#[test]
fn over_http() {
    all(Way { accounting: true, rest: true, ..Way::default() });
}

#[test]
#[ignore = "fails on purpose: the test below runs it"]
fn a_test_that_fails() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    let mut out = std::io::stdout().lock();
    writeln!(out, "cluster {}", cluster.path().display()).unwrap();
    cluster.ask("sbatch", &["--output=/dev/null", "--wrap=sleep 600"]);
    cluster.until("the job", || cluster.ask("squeue", &["-ho%T"]) == "RUNNING\n");
    panic!("on purpose");
}

#[test]
fn a_test_that_fails_leaves_no_cluster_behind() {
    if !cluster::installed(&[]) {
        return;
    }
    let failing = ["--exact", "slow::ways::a_test_that_fails", "--ignored", "--nocapture"];
    let run = Command::new(std::env::current_exe().unwrap()).args(failing).stdin(Stdio::null()).output().unwrap();
    let said = text(&run.stdout);
    assert!(!run.status.success() && text(&run.stderr).contains("on purpose"), "{said}");
    let line = said.lines().find_map(|line| line.split_once("cluster ")).unwrap_or_else(|| panic!("{said}"));
    let folder = PathBuf::from(line.1);
    assert!(!folder.exists(), "{} is left", folder.display());
    assert_eq!(processes_naming(&folder), [""; 0]);
}

/// Command lines of the processes that name a folder, there or in their environment.
fn processes_naming(folder: &Path) -> Vec<String> {
    let name = folder.to_str().unwrap();
    let all = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let read = |process: &Path, file: &str| text(&std::fs::read(process.join(file)).unwrap_or_default());
    let found = all.filter(|process| ["environ", "cmdline"].iter().any(|file| read(process, file).contains(name)));
    found.map(|process| read(&process, "cmdline").replace('\0', " ")).collect()
}

/// A trial on four ranks.
const FOUR_RANKS: [&str; 2] = ["launch.ranks=4", "loader.seed=4"];
/// A trial that is long enough to be stopped on its way.
const LONG: [&str; 2] = ["measure.steps=298", "loader.seed=5"];
/// Its steps, with those before it is measured.
const LONG_STEPS: u64 = 300;

/// The parameters that a trial of the variant `ids` ends with.
fn of_four_ranks() -> &'static str {
    static DIGEST: OnceLock<String> = OnceLock::new();
    DIGEST.get_or_init(|| undisturbed(&FOUR_RANKS))
}

/// The same for the long one.
fn of_the_long_one() -> &'static str {
    static DIGEST: OnceLock<String> = OnceLock::new();
    DIGEST.get_or_init(|| undisturbed(&LONG))
}

fn undisturbed(settings: &[&str]) -> String {
    let project = TestProject::new();
    let settings = [settings, &["launch.heartbeat_timeout_s=120"]].concat();
    let id = project.completed(SMALL, &[&["--only", "ids"], &set(&settings)[..]].concat());
    digests(&project.attempt(&id, "ids").unwrap()).remove(0)
}

fn a_throttled_array_never_runs_more_tasks_than_allowed(site: &Site) {
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

fn two_nodes_compute_what_one_does(site: &Site) {
    let id = site.submit(&[&FOUR_RANKS[..], &["launch.nodes=2"]].concat(), &["--only", "ids", "--wait"]);
    let attempt = site.completed(&id).remove(0);
    let hosts: Vec<String> =
        attempt.environment().unwrap().unwrap().ranks.into_iter().map(|hardware| hardware.host).collect();
    assert!(hosts[0] == hosts[1] && hosts[1] != hosts[2] && hosts[2] == hosts[3], "{hosts:?}");
    assert!(hosts.iter().all(|host| ["n1", "n2", "n3", "n4"].contains(&host.as_str())), "{hosts:?}");
    for rank in 0..4 {
        assert!(attempt.log_path(rank).exists() && attempt.steps_path(rank).exists(), "rank {rank}");
    }
    assert_eq!(digests(&attempt), [of_four_ranks(); 4]);
    site.note(&id);
}

fn more_trials_than_an_array_takes_run_once_each(site: &Site) {
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

fn interleaved_variants_take_turns(site: &Site) {
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
fn a_trial_at_its_time_limit_goes_on_by_itself(site: &Site) {
    let settings = [&LONG[..], &["slurm.requeues=2", "slurm.time_min=60"]].concat();
    if site.way.rest {
        // This version of its interface has no field for the warning: that is said, and nothing is submitted.
        let refused = site.submission(&settings, &[]);
        let refused = site.expctl(&refused.iter().map(String::as_str).collect::<Vec<_>>()).output().unwrap();
        assert_eq!((refused.status.code(), text(&refused.stdout).as_str()), (Some(3), ""));
        assert!(text(&refused.stderr).contains("--signal=B:USR1@120"), "{}", text(&refused.stderr));
        return;
    }
    // Ranks that stand still must not wait for it: nobody hears from them meanwhile.
    let undisturbed = of_the_long_one();
    let id = site.submit(&settings, &["--only", "ids"]);
    let task = format!("{id}_0");
    let job = site.job(&id);
    let limit = Duration::from_secs(180);
    wait_until("the ranks to step", limit, || {
        let first = site.attempts(&id).remove(0).pop()?;
        stepped(&first, 2, 2).then_some(())
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

/// How a job of Slurm's ended, with its exit code, once it has.
fn end(site: &Site, job: u64) -> Option<(String, String)> {
    let told = site.cluster.ask("scontrol", &["--oneliner", "show", "job", &job.to_string()]);
    let value = |key: &str| told.split_whitespace().find_map(|word| word.strip_prefix(key)).unwrap().to_owned();
    let state = value("JobState=");
    let over = ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"].contains(&state.as_str());
    over.then(|| (state, value("ExitCode=")))
}

fn ends(site: &Site, job: u64) -> (String, String) {
    site.cluster.until(&format!("the end of job {job}"), || end(site, job).is_some());
    end(site, job).unwrap()
}

fn a_chain_needs_nobody_who_waits(site: &Site) {
    let id = site.submit(&["data.seed=77"], &["--chain"]);
    let arrays = site.arrays(&id);
    let completed = || ("COMPLETED".to_owned(), "0:0".to_owned());
    assert_eq!(ends(site, arrays.build.unwrap()), completed());
    assert_eq!(ends(site, arrays.note.unwrap()), completed(), "{}", log(site, &id, "note"));
    assert!(!log(site, &id, "build").is_empty());
    assert_eq!(site.completed(&id).len(), 2);
    let note = site.note(&id);
    assert!(note.contains("lazy") && note.contains("ids"), "{note}");
}

fn a_chain_whose_data_cannot_be_built_is_over(site: &Site) {
    // No folder can be made in a file, not even by root.
    let blocked = site.root().join("conf/small.toml/data");
    let args = site.submission(&["data.seed=78"], &["--chain"]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let submitted = site.expctl(&args).env("EXPCTL_DATA", blocked).output().unwrap();
    let id = succeeded(&submitted, &args).trim().to_owned();
    let arrays = site.arrays(&id);
    let (state, code) = ends(site, arrays.build.unwrap());
    assert_eq!(state, "FAILED", "{code}");
    assert!(log(site, &id, "build").contains("small.toml"), "{}", log(site, &id, "build"));
    // Exit code 5: trials failed.
    assert_eq!(ends(site, arrays.note.unwrap()), ("FAILED".to_owned(), "5:0".to_owned()), "{}", log(site, &id, "note"));
    for attempts in site.attempts(&id) {
        assert_eq!(attempts.len(), 1);
        let outcome = outcome(&attempts[0]);
        assert_eq!(outcome.state, TrialState::Failed);
        assert_eq!(outcome.message, "the data could not be built; see build.log");
        assert!(!attempts[0].path().join("srun.log").exists() && !attempts[0].log_path(0).exists(), "a task ran");
    }
    let waiting = site.cluster.ask("squeue", &["--noheader", "--array", "--format=%F"]);
    assert!(waiting.lines().all(|line| line != id), "{waiting}");
}

fn log(site: &Site, id: &str, step: &str) -> String {
    std::fs::read_to_string(site.job(id).path().join(format!("{step}.log"))).unwrap()
}
