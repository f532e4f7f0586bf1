//! Ranks on several nodes of a real Slurm, and ranks that are stuck while their process lives.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::common::cluster::Cluster;
use crate::common::local::{set, stepped};
use crate::common::{SMALL, TestProject, text, wait_until, worker, worker_pids};
use expctl_ledger::{AttemptDir, RankStatus, RendezvousFile, TrialState, write_json};
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

const LONG: Duration = Duration::from_secs(120);

/// A local job of one variant, run to its end.
fn local(project: &TestProject, more: &[&str]) -> AttemptDir {
    let job = project.completed(SMALL, &[&["--only", "ids"], more].concat());
    assert_eq!(project.outcome(&job, "ids").state, TrialState::Completed);
    project.attempt(&job, "ids").unwrap()
}

#[test]
fn two_nodes_with_two_ranks_each_train_to_the_bits_of_four_local_ranks() {
    let Some(cluster) = Cluster::start(&[]) else { return };
    let project = TestProject::new();
    let alone = local(&project, &set(&["launch.ranks=4", "launch.rendezvous_timeout_s=60"]));
    let digest = alone.outcome().unwrap().unwrap().ranks[0].parameters_digest.clone().unwrap();

    let folder = project.path().join("attempt-1");
    std::fs::create_dir(&folder).unwrap();
    let attempt = AttemptDir::open(&folder);
    write_json(&attempt.trial_path(), &alone.trial().unwrap()).unwrap();
    let script = format!(
        "#!/bin/bash\nunset RANK LOCAL_RANK WORLD_SIZE MASTER_ADDR MASTER_PORT EXPCTL_STORE_HOST\n\
         srun --ntasks=4 --ntasks-per-node=2 --cpus-per-task=1 --kill-on-bad-exit=1 --input=none \
         --output={0}/rank-%t.log {1} --attempt {0}\necho $? > {0}/code\n",
        folder.display(),
        worker().display(),
    );
    let path = project.path().join("batch.sh");
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = project.path().join("batch.log");
    let path = path.to_str().unwrap();
    cluster.ask(
        "sbatch",
        &["--nodes=2", "--ntasks-per-node=2", "--parsable", &format!("--output={}", output.display()), path],
    );
    let code = wait_until("the ranks to end", LONG, || {
        std::fs::read_to_string(folder.join("code")).ok().filter(|code| code.ends_with('\n'))
    });
    let logs = || (0..4).map(|r| std::fs::read_to_string(attempt.log_path(r)).unwrap_or_default()).collect::<String>();
    assert_eq!(code.trim(), "0", "{}{}", std::fs::read_to_string(&output).unwrap_or_default(), logs());
    for rank in 0..4 {
        let exit = attempt.rank_exit(rank).unwrap().unwrap();
        assert_eq!((exit.status, exit.parameters_digest.as_ref()), (RankStatus::Completed, Some(&digest)), "{exit:?}");
        assert_eq!(attempt.steps(rank).unwrap().len(), 8);
        let log = std::fs::read_to_string(attempt.log_path(rank)).unwrap();
        assert!(log.contains(&format!("rank {rank} of 4")) && !log.contains("does not run on"), "{log}");
    }
    let environment = attempt.environment().unwrap().unwrap();
    let hosts: Vec<&str> = environment.ranks.iter().map(|r| r.host.as_str()).collect();
    assert_eq!(hosts, ["n1", "n1", "n2", "n2"]);
    // The first host of Slurm's list, which both nodes know by that name.
    assert_eq!(RendezvousFile::new(&attempt).lookup().unwrap().0, "n1");
}

/// One thread of a process that is stopped while the others go on: what a dead network file system or a deadlock does to it. A stop
/// signal stops whole processes; a debugger's stop is the only one that leaves the others running. It goes on when this is dropped, unless its process has ended.
struct Frozen {
    release: Option<mpsc::Sender<()>>,
    tracer: Option<JoinHandle<()>>,
}

impl Frozen {
    /// Stop the thread of `pid` that is called `name`.
    fn new(pid: i32, name: &str) -> Self {
        let task = thread_named(pid, name);
        let (stopped, is_stopped) = mpsc::channel();
        let (release, released) = mpsc::channel();
        // Only the thread that seized another one may wait for it, and a traced thread that ends keeps its process from
        // ending until that was done.
        let tracer = std::thread::spawn(move || {
            ptrace::seize(task, ptrace::Options::empty()).unwrap();
            ptrace::interrupt(task).unwrap();
            waitpid(task, Some(WaitPidFlag::__WALL)).unwrap();
            stopped.send(()).unwrap();
            loop {
                match waitpid(task, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG)) {
                    Ok(WaitStatus::StillAlive) => {}
                    // It was killed with its process.
                    Ok(_) | Err(_) => return,
                }
                if released.recv_timeout(Duration::from_millis(20)) != Err(mpsc::RecvTimeoutError::Timeout) {
                    let _ = ptrace::detach(task, None);
                    return;
                }
            }
        });
        is_stopped.recv().unwrap();
        Self { release: Some(release), tracer: Some(tracer) }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        drop(self.release.take());
        let _ = self.tracer.take().unwrap().join();
    }
}

fn thread_named(pid: i32, name: &str) -> Pid {
    // Threads without a name of their own have the first one's.
    if std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap().trim() == name {
        return Pid::from_raw(pid);
    }
    for entry in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
        let found = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if found.trim() == name {
            return Pid::from_raw(entry.file_name().to_str().unwrap().parse().unwrap());
        }
    }
    panic!("process {pid} has no thread {name}");
}

/// Freezes one thread of a rank, whose others, the heartbeat among them, go on.
fn stuck(mode: &str, rank: u32, thread: &str, expected: &str) {
    let project = TestProject::new();
    let mode = format!("train.mode={mode}");
    let more = [mode.as_str(), "launch.hang_timeout_s=8", "launch.heartbeat_timeout_s=30"];
    let (mut guard, attempt) = project.endless(&set(&more));
    let frozen = Frozen::new(project.rank(rank).as_raw(), thread);
    let since = Instant::now();
    let code = wait_until("the launcher to end", LONG, || guard.0.try_wait().unwrap()).code();
    drop(frozen);
    assert_eq!(code, Some(5));
    // The heartbeat was not what told: its limit lies beyond.
    assert!(since.elapsed() < Duration::from_secs(60), "{:?}", since.elapsed());
    let outcome = project.outcome("1", "ids");
    assert_eq!((outcome.state, outcome.failed_rank), (TrialState::Failed, Some(rank)), "{outcome:?}");
    let named = format!("rank {rank} has been at step ");
    assert!(outcome.message.starts_with(&named) && outcome.message.contains(expected), "{}", outcome.message);
    assert_eq!(outcome.ranks[rank as usize].status, RankStatus::Failed);
    let other = &outcome.ranks[1 - rank as usize];
    assert_eq!((other.status, other.lost_peer), (RankStatus::PeerLost, Some(rank)), "{other:?}");
    assert!((0..2).all(|r| attempt.steps_path(r).exists() && attempt.steps(r).unwrap().len() > 5));
    assert!(worker_pids(project.path()).is_empty());
}

/// As a read from a file system that does not answer: the step waits for its batch, the other rank for the gradients.
#[test]
fn a_rank_whose_loader_is_stuck_is_named_and_not_the_one_that_waits_for_it() {
    stuck("train", 1, "loader-0", " (load) for ");
}

/// Nobody waits for anybody, and the other rank goes on all the while.
#[test]
fn a_stuck_step_ends_a_data_only_job() {
    stuck("data", 0, "expctl-worker", " for ");
}

#[test]
fn a_launcher_that_is_asked_for_a_checkpoint_passes_it_on() {
    let project = TestProject::new();
    let (mut guard, attempt) = project.endless(&["--set", "checkpoint.on_signal=false"]);
    let checkpoint = attempt.path().parent().unwrap().join("checkpoint");
    assert!(!checkpoint.exists());
    guard.signal(Signal::SIGUSR1);
    let step: usize = wait_until("the checkpoint", LONG, || {
        let names = std::fs::read_dir(&checkpoint).ok()?.flatten().map(|e| e.file_name().into_string().unwrap());
        names.filter_map(|name| name.strip_prefix("step-")?.parse().ok()).next()
    });
    wait_until("both ranks to go on", LONG, || stepped(&attempt, 2, step + 5).then_some(()));
    guard.signal(Signal::SIGTERM);
    assert_eq!(guard.0.wait().unwrap().code(), Some(6));
    assert_eq!(project.outcome("1", "ids").state, TrialState::Interrupted);
}

/// Addresses that something listens on at `port`, as the kernel writes them.
fn listening(port: u16) -> BTreeSet<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| std::fs::read_to_string(path).unwrap_or_default());
    let port = format!(":{port:04X}");
    let rows = tables.iter().flat_map(|table| table.lines().skip(1));
    let fields = rows.map(|row| row.split_whitespace().collect::<Vec<_>>());
    // 0A is LISTEN.
    fields.filter(|f| f[1].ends_with(&port) && f[3] == "0A").map(|f| f[1].to_owned()).collect()
}

#[test]
fn the_ranks_of_one_machine_meet_on_loopback_and_the_port_goes_with_them() {
    let project = TestProject::new();
    let (mut guard, attempt) = project.endless(&[]);
    let (host, port) = RendezvousFile::new(&attempt).lookup().unwrap();
    assert_eq!(host, "127.0.0.1");
    let expected = format!("0100007F:{port:04X}");
    assert_eq!(listening(port), BTreeSet::from([expected]));
    guard.signal(Signal::SIGTERM);
    guard.0.wait().unwrap();
    assert!(listening(port).is_empty());
    assert_eq!(RendezvousFile::new(&attempt).lookup(), None);
    let stderr = text(&std::fs::read(attempt.log_path(0)).unwrap());
    assert!(stderr.contains("rank 0 of 2"), "{stderr}");
}
