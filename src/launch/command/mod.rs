use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use expctl_record::{
    AttemptDir, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_PEER_LOST, EXIT_STORAGE, LastWords, RankEnv, RankStatus,
    RecordError, Trial,
};
use nix::sys::signal::{SigHandler, Signal, signal};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::message::{Lost, ToHub};
use super::peers::{NotMet, Peers};
use super::processes;
use super::rank_log::RankLog;
use super::socket::Socket;
use super::supervisor::{Event, OwnFailure, Stop, Supervisor};
use crate::exit::{Exit, Failure};

/// Events that may wait to be looked at; a program that writes faster waits.
const EVENTS: usize = 1024;
/// How long a program may take to end: because another rank is lost, because it was asked to stop, and by itself after it
/// has said what went wrong.
const GRACE: Duration = Duration::from_millis(1500);
const STOP_GRACE: Duration = Duration::from_secs(3);
const SAID_GRACE: Duration = Duration::from_secs(1);
const TURN: Duration = Duration::from_millis(50);

/// Run the trial of an attempt in this process, as one of its ranks: under watch if it is a program of the user's, else as
/// `worker`. Returns the exit code.
///
/// # Errors
/// The attempt cannot be read, was run before, or has no such rank.
pub fn run_rank(root: &Path, attempt: &AttemptDir, worker: Option<&Path>) -> Result<i32, Failure> {
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
    // SAFETY: ignoring a signal runs no code. A request for a checkpoint is not for programs: theirs are their own matter.
    unsafe { signal(Signal::SIGUSR1, SigHandler::SigIgn) }.map_err(|e| deaf(e.into()))?;
    let env = RankEnv::read(|name| std::env::var(name).ok(), trial.settings.launch.ranks).map_err(Failure::internal)?;
    refuse_used_folder(attempt, env.rank)?;
    Ok(run(root, attempt, &trial, env, &stop))
}

/// An attempt's records are written once: what a second start would overwrite may be all that is left of the first.
fn refuse_used_folder(attempt: &AttemptDir, rank: u32) -> Result<(), Failure> {
    let used = [attempt.journal_path(rank), attempt.steps_path(rank), attempt.exit_path(rank), attempt.outcome_path()];
    match used.iter().find(|path| path.exists()) {
        Some(path) => Err(Failure::new(Exit::Usage, format!("this attempt was run before: {} exists", path.display()))),
        None => Ok(()),
    }
}

fn run(root: &Path, attempt: &AttemptDir, trial: &Trial, env: RankEnv, stop: &AtomicBool) -> i32 {
    let (sender, events) = sync_channel(EVENTS);
    let peers = match Peers::meet(env, attempt, trial, &sender, stop) {
        Ok(peers) => peers,
        Err(not_met) => return never_met(attempt, env, not_met),
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
        Err(e) => return storage(&peers, attempt, env, &e),
    };
    let mut supervisor = Supervisor::new((attempt, trial, env), stop, peers, events, logs);
    if !leads {
        return attend(&mut supervisor, ranks[0]);
    }
    let listening = Socket::listen(sender.clone());
    let result = match &listening {
        Ok(socket) => supervisor.run(root, socket),
        Err(e) => Err(Stop::Own(OwnFailure::now(env.rank, format!("no socket for the program: {e}"), EXIT_FAILED))),
    };
    let code = finish(&mut supervisor, result);
    // Held until here, so that rank 0's word and the program's can always be sent.
    drop(sender);
    code
}

/// End what runs, hear what the others say, and write down how it was.
fn finish(supervisor: &mut Supervisor<'_>, result: Result<(), Stop>) -> i32 {
    let result = result.and_then(|()| leave_together(supervisor));
    if let Err(Stop::Own(failure)) = &result {
        let age_ms = u64::try_from(failure.at.elapsed().as_millis()).unwrap_or(u64::MAX);
        supervisor.peers.send(&ToHub::Failed { rank: failure.rank, message: failure.message.clone(), age_ms });
    }
    let reported = Instant::now();
    // Takes the last sample while what there is to see still runs.
    supervisor.sampler = None;
    if let Some(program) = &mut supervisor.program {
        let since = Instant::now();
        while matches!(&result, Err(Stop::Own(failure)) if failure.said)
            && program.ended().is_none()
            && since.elapsed() < SAID_GRACE
        {
            std::thread::sleep(TURN);
        }
        program.stop(if matches!(result, Err(Stop::Interrupted)) { STOP_GRACE } else { GRACE });
    }
    processes::end_all();
    let result = match result {
        Err(Stop::Own(failure)) => Err(verdict(supervisor, failure, reported)),
        other => other,
    };
    if supervisor.write_environment().is_err() {
        tracing::error!("env.json cannot be written");
    }
    // What was said first stays: somebody closed the attempt while this node was out of reach.
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
        // The others hear of it here: rank 0 stays until they have.
        std::thread::sleep(GRACE.saturating_sub(reported.elapsed()));
    }
    if written { code } else { EXIT_STORAGE }
}

/// Say that this rank is done; rank 0, which the others talk to, stays until all are.
fn leave_together(supervisor: &mut Supervisor<'_>) -> Result<(), Stop> {
    supervisor.peers.send(&ToHub::Done);
    if supervisor.env.rank != 0 || !supervisor.peers.any() {
        return Ok(());
    }
    loop {
        if let Ok(Event::Peers(message)) = supervisor.events.recv_timeout(TURN)
            && supervisor.take_peers(message)?
        {
            return Ok(());
        }
        supervisor.look_outside()?;
    }
}

/// Which rank failed first, in rank 0's judgement: this one, or another one that its program fell over.
fn verdict(supervisor: &mut Supervisor<'_>, failure: OwnFailure, reported: Instant) -> Stop {
    while supervisor.peers.any() && reported.elapsed() < GRACE {
        let Ok(Event::Peers(message)) = supervisor.events.recv_timeout(TURN) else { continue };
        match supervisor.take_peers(message) {
            Err(Stop::Lost(lost)) if !lost.gone && supervisor.logs.contains_key(&lost.rank) => break,
            Err(Stop::Lost(lost)) if lost.rank != supervisor.env.rank => return Stop::Lost(lost),
            Err(_) => break,
            Ok(_) => {}
        }
    }
    Stop::Own(failure)
}

/// Be there for the sake of the processors that this rank has, while `leader` watches over the program.
fn attend(supervisor: &mut Supervisor<'_>, leader: u32) -> i32 {
    supervisor.peers.send(&ToHub::Done);
    loop {
        let heard = match supervisor.events.recv_timeout(TURN) {
            Ok(Event::Peers(message)) => supervisor.take_peers(message),
            _ => supervisor.look_outside().map(|()| false),
        };
        match heard {
            Ok(true) => return 0,
            Ok(false) => {}
            Err(Stop::Lost(lost)) => {
                // The leader speaks for all ranks of the program, as long as it can.
                if lost.gone
                    && (lost.rank == leader || lost.rank == 0)
                    && !supervisor.attempt.exit_path(supervisor.env.rank).exists()
                {
                    say(supervisor.attempt, supervisor.env.rank, RankStatus::PeerLost, &lost.message, Some(lost.rank));
                }
                return EXIT_PEER_LOST;
            }
            Err(_) => return EXIT_INTERRUPTED,
        }
    }
}

/// The ranks did not come together: nothing was started.
fn never_met(attempt: &AttemptDir, env: RankEnv, not_met: NotMet) -> i32 {
    let (status, message, lost, code) = match not_met {
        NotMet::Stopped => (RankStatus::Interrupted, "stopped on request".to_owned(), None, EXIT_INTERRUPTED),
        NotMet::Lost(Lost { rank, message, .. }) => (RankStatus::PeerLost, message, Some(rank), EXIT_PEER_LOST),
        NotMet::Own(message) => (RankStatus::Failed, format!("rank {}: {message}", env.rank), None, EXIT_FAILED),
    };
    tracing::error!("{message}");
    if env.rank == 0 {
        std::thread::sleep(GRACE);
    }
    say(attempt, env.rank, status, &message, lost);
    code
}

fn storage(peers: &Peers, attempt: &AttemptDir, env: RankEnv, error: &RecordError) -> i32 {
    let message = format!("rank {}: {error}", env.rank);
    tracing::error!("{message}");
    peers.send(&ToHub::Failed { rank: env.rank, message: message.clone(), age_ms: 0 });
    say(attempt, env.rank, RankStatus::Failed, &message, None);
    std::thread::sleep(GRACE);
    EXIT_STORAGE
}

fn say(attempt: &AttemptDir, rank: u32, status: RankStatus, message: &str, lost: Option<u32>) {
    LastWords::new(attempt.clone(), rank).say(status, message, lost, None);
}
