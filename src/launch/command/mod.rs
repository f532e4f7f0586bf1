//! A program of the user as the ranks of a trial (`worker.command`): started without a shell, supervised, and recorded as
//! `expctl-worker` records its own steps.
//!
//! A supervisor is started where `expctl-worker` would be, once per rank. It joins the others at rank 0 (`hub`, `peers`),
//! starts the program (`program`) in its folder (`program_folder`), reads what the program writes to `EXPCTL_SOCKET` (`protocol`, `rank_log`), and ends
//! everything that is left of it (`supervisor`).

mod hub;
mod peers;
mod program;
mod program_folder;
mod protocol;
mod rank_log;
mod supervisor;

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use expctl_ledger::{
    AttemptDir, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_PEER_LOST, EXIT_STORAGE, LastWords, LedgerError, RankEnv,
    RankStatus,
};
use expctl_settings::Trial;
use nix::sys::signal::{SigHandler, Signal, signal};
use signal_hook::consts::{SIGINT, SIGTERM};

use self::hub::{LostRank, ToHub};
use self::peers::{Peers, RendezvousError};
pub use self::program::{TrialFiles, adopt, end_all};
use self::program_folder::ProgramFolder;
use self::protocol::ProgramSocket;
use self::rank_log::RankLog;
use self::supervisor::{Event, OwnFailure, Stop, Supervisor, TICK};
use crate::exit::{Exit, Failure};

/// Capacity of the queue of events; a program that writes faster waits.
const MAX_EVENTS: usize = 1024;
/// Time for a program to end: because another rank is lost, because it was asked to stop, and by itself after
/// it has reported an error.
const GRACE: Duration = Duration::from_millis(1500);
const STOP_GRACE: Duration = Duration::from_secs(3);
const SAID_GRACE: Duration = Duration::from_secs(1);

/// Run the trial of an attempt in this process, as one of its ranks: supervise a program of the user, or become
/// `worker`. `files` knows the files of the trial's data. Returns the exit code.
///
/// # Errors
/// The attempt cannot be read, was run before, or has no such rank.
pub fn run_rank(
    root: &Path,
    files: &dyn TrialFiles,
    attempt: &AttemptDir,
    worker: Option<&Path>,
) -> Result<i32, Failure> {
    let trial = attempt.trial()?;
    if !trial.settings.runs_command() {
        let worker = worker.ok_or_else(|| Failure::internal(format!("trial {} runs no command", trial.id)))?;
        let e = Command::new(worker).arg("--attempt").arg(attempt.path()).exec();
        return Err(Failure::internal(format!("cannot start {}: {e}", worker.display())));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let deaf = |e: std::io::Error| Failure::internal(format!("cannot listen for signals: {e}"));
    for number in [SIGTERM, SIGINT] {
        signal_hook::flag::register(number, Arc::clone(&stop)).map_err(deaf)?;
    }
    #[expect(unsafe_code, reason = "no handler of this program's is replaced")]
    // SAFETY: ignoring a signal runs no code. Programs write checkpoints themselves: a request for one is not for them.
    unsafe { signal(Signal::SIGUSR1, SigHandler::SigIgn) }.map_err(|e| deaf(e.into()))?;
    let env = RankEnv::read(|name| std::env::var(name).ok(), trial.settings.launch.ranks).map_err(Failure::internal)?;
    refuse_used_folder(attempt, env.rank)?;
    let folder = ProgramFolder::new(root, attempt)?;
    Ok(supervise(&folder, files, attempt, &trial, env, &stop))
}

/// Refuse an attempt that has run: its records are written once, and a second start would overwrite those of the first.
fn refuse_used_folder(attempt: &AttemptDir, rank: u32) -> Result<(), Failure> {
    let used = [attempt.journal_path(rank), attempt.steps_path(rank), attempt.exit_path(rank), attempt.outcome_path()];
    match used.iter().find(|path| path.exists()) {
        Some(path) => Err(Failure::new(Exit::Usage, format!("this attempt was run before: {} exists", path.display()))),
        None => Ok(()),
    }
}

fn supervise(
    folder: &ProgramFolder,
    files: &dyn TrialFiles,
    attempt: &AttemptDir,
    trial: &Trial,
    env: RankEnv,
    stop: &AtomicBool,
) -> i32 {
    let (sender, events) = sync_channel(MAX_EVENTS);
    let peers = match Peers::join(env, attempt, trial, &sender, stop) {
        Ok(peers) => peers,
        Err(error) => return rendezvous_failed(attempt, env, error),
    };
    let starts_ranks = trial.settings.worker.starts_ranks;
    let ranks = if starts_ranks { peers.start.ranks.clone() } else { vec![env.rank] };
    let leads = ranks.first() == Some(&env.rank);
    let logs = if leads {
        ranks.iter().map(|rank| Ok((*rank, RankLog::new(attempt, trial, *rank)?))).collect()
    } else {
        Ok(BTreeMap::new())
    };
    let logs: BTreeMap<u32, RankLog> = match logs {
        Ok(logs) => logs,
        Err(e) => return journal_failed(&peers, attempt, env, &e),
    };
    let mut supervisor = Supervisor::new(files, (attempt, trial, env), stop, peers, events, logs);
    if !leads {
        return attend(&mut supervisor, ranks[0]);
    }
    let listening = ProgramSocket::listen(sender.clone());
    let result = match &listening {
        Ok(socket) => supervisor.run(folder, socket),
        Err(e) => Err(Stop::Own(OwnFailure::now(env.rank, format!("no socket for the program: {e}"), EXIT_FAILED))),
    };
    let code = finish(&mut supervisor, result);
    // Held until here, so that the threads of the hub and the socket can always send.
    drop(sender);
    code
}

/// End the program, settle with the other ranks which failed first, and write the records.
fn finish(supervisor: &mut Supervisor<'_>, result: Result<(), Stop>) -> i32 {
    let result = result.and_then(|()| leave_together(supervisor));
    if let Err(Stop::Own(failure)) = &result {
        let age_ms = u64::try_from(failure.at.elapsed().as_millis()).unwrap_or(u64::MAX);
        supervisor.peers.send(&ToHub::Failed { rank: failure.rank, message: failure.message.clone(), age_ms });
    }
    let reported = Instant::now();
    // Takes the last hardware sample while the program still runs.
    supervisor.metrics = None;
    if let Some(program) = &mut supervisor.program {
        let since = Instant::now();
        while matches!(&result, Err(Stop::Own(failure)) if failure.said)
            && program.ended().is_none()
            && since.elapsed() < SAID_GRACE
        {
            std::thread::sleep(TICK);
        }
        program.stop(if matches!(result, Err(Stop::Interrupted)) { STOP_GRACE } else { GRACE });
    }
    program::end_all();
    if matches!(result, Err(Stop::Lost(_) | Stop::Interrupted)) {
        supervisor.take_measured();
    }
    let result = match result {
        Err(Stop::Own(failure)) => Err(verdict(supervisor, failure, reported)),
        other => other,
    };
    if supervisor.write_environment().is_err() {
        tracing::error!("env.json cannot be written");
    }
    // The attempt was concluded while this node was out of reach: that outcome stays.
    if supervisor.attempt.is_closed() {
        return EXIT_INTERRUPTED;
    }
    let (status, message, lost, code) = match &result {
        Ok(()) => (RankStatus::Completed, String::new(), None, 0),
        Err(Stop::Own(failure)) => {
            let status = if failure.killed { RankStatus::Killed } else { RankStatus::Failed };
            (status, failure.message.clone(), None, failure.code)
        }
        Err(Stop::Lost(lost)) => (RankStatus::PeerLost, lost.message.clone(), Some(lost.rank), EXIT_PEER_LOST),
        Err(Stop::Interrupted) => (RankStatus::Interrupted, "stopped on request".to_owned(), None, EXIT_INTERRUPTED),
    };
    if !message.is_empty() {
        tracing::error!("{message}");
    }
    let mut written = true;
    for log in supervisor.logs.values() {
        // Of the ranks of one program only one has failed.
        written &= match &result {
            Err(Stop::Own(failure)) if failure.rank != log.rank && supervisor.logs.contains_key(&failure.rank) => {
                log.close(supervisor.trial, RankStatus::PeerLost, &message, Some(failure.rank))
            }
            _ => log.close(supervisor.trial, status, &message, lost),
        };
    }
    if supervisor.env.rank == 0 && supervisor.peers.any() && code != 0 {
        // The others are told by this process: rank 0 stays until they are.
        std::thread::sleep(GRACE.saturating_sub(reported.elapsed()));
    }
    if written { code } else { EXIT_STORAGE }
}

/// Report that this rank is done; rank 0, which serves the others, stays until all are.
fn leave_together(supervisor: &mut Supervisor<'_>) -> Result<(), Stop> {
    supervisor.peers.send(&ToHub::Done);
    if supervisor.env.rank != 0 || !supervisor.peers.any() {
        return Ok(());
    }
    loop {
        if let Ok(Event::Peers(message)) = supervisor.events.recv_timeout(TICK)
            && supervisor.take_peers(message)?
        {
            return Ok(());
        }
        supervisor.check_outside()?;
    }
}

/// Which rank failed first, as rank 0 decides: this one, or another one whose loss made this program fail.
fn verdict(supervisor: &mut Supervisor<'_>, failure: OwnFailure, reported: Instant) -> Stop {
    while supervisor.peers.any() && reported.elapsed() < GRACE {
        let Ok(Event::Peers(message)) = supervisor.events.recv_timeout(TICK) else { continue };
        match supervisor.take_peers(message) {
            Err(Stop::Lost(lost)) if !lost.gone && supervisor.logs.contains_key(&lost.rank) => break,
            Err(Stop::Lost(lost)) if lost.rank != supervisor.env.rank => return Stop::Lost(lost),
            Err(_) => break,
            Ok(_) => {}
        }
    }
    Stop::Own(failure)
}

/// Keep this rank's CPUs allocated while `leader` supervises the program.
fn attend(supervisor: &mut Supervisor<'_>, leader: u32) -> i32 {
    supervisor.peers.send(&ToHub::Done);
    loop {
        let heard = match supervisor.events.recv_timeout(TICK) {
            Ok(Event::Peers(message)) => supervisor.take_peers(message),
            _ => supervisor.check_outside().map(|()| false),
        };
        match heard {
            Ok(true) => return 0,
            Ok(false) => {}
            Err(Stop::Lost(lost)) => {
                // As long as it can, the leader writes the records of all ranks of the program.
                if lost.gone
                    && (lost.rank == leader || lost.rank == 0)
                    && !supervisor.attempt.exit_path(supervisor.env.rank).exists()
                {
                    write_exit(
                        supervisor.attempt,
                        supervisor.env.rank,
                        RankStatus::PeerLost,
                        &lost.message,
                        Some(lost.rank),
                    );
                }
                return EXIT_PEER_LOST;
            }
            Err(_) => return EXIT_INTERRUPTED,
        }
    }
}

/// The ranks did not come together: no program was started.
fn rendezvous_failed(attempt: &AttemptDir, env: RankEnv, error: RendezvousError) -> i32 {
    let (status, message, lost, code) = match error {
        RendezvousError::Stopped => (RankStatus::Interrupted, "stopped on request".to_owned(), None, EXIT_INTERRUPTED),
        RendezvousError::Lost(LostRank { rank, message, .. }) => {
            (RankStatus::PeerLost, message, Some(rank), EXIT_PEER_LOST)
        }
        RendezvousError::Own(message) => {
            (RankStatus::Failed, format!("rank {}: {message}", env.rank), None, EXIT_FAILED)
        }
    };
    tracing::error!("{message}");
    if env.rank == 0 {
        std::thread::sleep(GRACE);
    }
    write_exit(attempt, env.rank, status, &message, lost);
    code
}

fn journal_failed(peers: &Peers, attempt: &AttemptDir, env: RankEnv, error: &LedgerError) -> i32 {
    let message = format!("rank {}: {error}", env.rank);
    tracing::error!("{message}");
    peers.send(&ToHub::Failed { rank: env.rank, message: message.clone(), age_ms: 0 });
    write_exit(attempt, env.rank, RankStatus::Failed, &message, None);
    std::thread::sleep(GRACE);
    EXIT_STORAGE
}

fn write_exit(attempt: &AttemptDir, rank: u32, status: RankStatus, message: &str, lost: Option<u32>) {
    LastWords::new(attempt.clone(), rank).say(status, message, lost, None);
}
