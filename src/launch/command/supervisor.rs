//! [`Supervisor`]: watches over a program of the user.

use std::collections::BTreeMap;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use expctl_ledger::{AttemptDir, EXIT_FAILED, EXIT_STORAGE, EXIT_STUCK, LedgerError, ProgramFacts, RankEnv};
use expctl_settings::Trial;
use host_metrics::{MetricsOptions, MetricsRecorder, WatchedProcesses};

use super::hub::{FromHub, LostRank};
use super::peers::Peers;
use super::program::{self, ProgramProcess, TrialFiles, drop_cache, program_facts, program_variables, status_text};
use super::program_folder::ProgramFolder;
use super::protocol::{ProgramSocket, Record, RunRecord, SocketEvent, quoted};
use super::rank_log::{RankLog, Refused};

/// Interval of checks for what changes without an event.
pub const TICK: Duration = Duration::from_millis(50);
/// Time after the end of a program for its processes to end, and its connections to close.
const AFTERMATH: Duration = Duration::from_secs(3);
/// Time for a rank that closed its connection too early to end with an exit code. Shorter where a program
/// starts its ranks itself, because the others wait for it meanwhile.
const CLOSED: Duration = Duration::from_secs(10);
const CLOSED_AMONG_OTHERS: Duration = Duration::from_secs(1);

/// An event that a supervisor waits for.
#[derive(Debug)]
pub enum Event {
    /// From the program.
    Program { connection: usize, at: Instant, event: SocketEvent },
    /// From the other ranks; `None` when rank 0 is gone.
    Peers(Option<FromHub>),
}

/// Why a supervisor stops before the program has ended well.
#[derive(Debug)]
pub enum Stop {
    /// This rank failed.
    Own(OwnFailure),
    /// Another rank failed.
    Lost(LostRank),
    /// This process was asked to stop.
    Interrupted,
}

/// A failure of the supervisor's own ranks.
#[derive(Debug)]
pub struct OwnFailure {
    pub rank: u32,
    pub message: String,
    /// When it was seen.
    pub at: Instant,
    /// Exit code of the supervisor.
    pub code: i32,
    /// The program reported it itself, and is about to end.
    pub said: bool,
    /// A signal ended the program: something outside did it, or it crashed.
    pub killed: bool,
}

impl OwnFailure {
    /// A failure that is seen now.
    pub fn now(rank: u32, message: impl Into<String>, code: i32) -> Self {
        Self {
            rank,
            message: format!("rank {rank}: {}", message.into()),
            at: Instant::now(),
            code,
            said: false,
            killed: false,
        }
    }
}

/// Watches over a program that runs as a rank, or as all ranks of a node.
///
/// Invariant: however it ends, nothing that the program started runs on, its steps are in tables, and its exit record
/// names the rank that failed first, in that rank's words.
pub struct Supervisor<'a> {
    /// The files of the trial's data.
    pub files: &'a dyn TrialFiles,
    pub attempt: &'a AttemptDir,
    pub trial: &'a Trial,
    pub env: RankEnv,
    pub stop: &'a AtomicBool,
    pub peers: Peers,
    pub events: Receiver<Event>,
    /// The ranks that the program runs as.
    pub logs: BTreeMap<u32, RankLog>,
    pub program: Option<ProgramProcess>,
    /// `None` where no hardware samples are taken, or no more.
    pub metrics: Option<MetricsRecorder>,
    /// Rank of each open connection; `None` before its run record.
    connections: BTreeMap<usize, Option<u32>>,
    /// Run record of rank 0, with its figures so far.
    rank0: Option<(RunRecord, ProgramFacts)>,
    exited: Option<(ExitStatus, Instant)>,
    /// Ticks since the last message of rank 0.
    quiet: u64,
    /// Smallest number of completed steps over all ranks.
    min_steps: u64,
    checked: Instant,
}

impl<'a> Supervisor<'a> {
    /// A supervisor of a program that has yet to be started.
    pub fn new(
        files: &'a dyn TrialFiles,
        (attempt, trial, env): (&'a AttemptDir, &'a Trial, RankEnv),
        stop: &'a AtomicBool,
        peers: Peers,
        events: Receiver<Event>,
        logs: BTreeMap<u32, RankLog>,
    ) -> Self {
        Self {
            files,
            attempt,
            trial,
            env,
            stop,
            peers,
            events,
            logs,
            program: None,
            metrics: None,
            connections: BTreeMap::new(),
            rank0: None,
            exited: None,
            quiet: 0,
            min_steps: 0,
            checked: Instant::now(),
        }
    }

    /// Start the program in `folder` and watch it until it has ended.
    pub fn run(&mut self, folder: &ProgramFolder, socket: &ProgramSocket) -> Result<(), Stop> {
        self.write_environment()?;
        let rank = self.env.rank;
        let failed = |message: String| Stop::Own(OwnFailure::now(rank, message, EXIT_FAILED));
        let variables = program_variables(folder, self.files, self.attempt, self.trial, self.env, &self.peers, socket);
        let variables = variables.map_err(|failure| failed(failure.message))?;
        if self.trial.settings.measure.cold_cache && self.env.local_rank == 0 {
            drop_cache(self.files, self.attempt, self.trial, rank).map_err(|failure| failed(failure.message))?;
        }
        program::adopt().map_err(|e| failed(format!("its processes cannot be watched: {e}")))?;
        let worker = &self.trial.settings.worker;
        let cpus: &[u32] = if worker.starts_ranks { &self.peers.start.cpus } else { &[] };
        let program = ProgramProcess::start(folder, &worker.command, &variables, cpus);
        self.program = Some(program.map_err(|why| failed(format!("the program cannot be started: {why}")))?);
        let every_s = self.trial.settings.measure.sample_every_s;
        self.metrics = MetricsRecorder::start(MetricsOptions {
            journal: self.attempt.sample_journal_path(self.env.rank),
            rank: self.env.rank,
            local_rank: self.env.local_rank,
            processes: WatchedProcesses::Descendants,
            interval_s: every_s,
        });
        loop {
            if let Ok(event) = self.events.recv_timeout(TICK) {
                self.take(event)?;
            }
            if self.checked.elapsed() >= TICK {
                self.checked = Instant::now();
                if self.check(socket)? {
                    return Ok(());
                }
            }
        }
    }

    /// Write `env.json`, as far as it is known; for rank 0.
    pub fn write_environment(&self) -> Result<(), Stop> {
        if self.env.rank != 0 {
            return Ok(());
        }
        let (run, facts) = self.rank0.as_ref().map(|(run, facts)| (run, facts)).unzip();
        program::write_environment(self.files, self.attempt, self.trial, &self.peers, run, facts)
            .map_err(|failure| Stop::Own(OwnFailure::now(0, failure.message, EXIT_STORAGE)))
    }

    /// Take a message of the other ranks; true when all ranks are done.
    pub fn take_peers(&mut self, message: Option<FromHub>) -> Result<bool, Stop> {
        self.quiet = 0;
        match message {
            Some(FromHub::Lost(lost)) => Err(Stop::Lost(lost)),
            Some(FromHub::Beat { least }) => {
                self.min_steps = least;
                Ok(false)
            }
            Some(FromHub::Over) => Ok(true),
            Some(FromHub::Start(_)) => Ok(false),
            None => Err(Stop::Lost(LostRank {
                rank: 0,
                message: "rank 0 is gone: its supervisor ended".to_owned(),
                gone: true,
            })),
        }
    }

    /// Check for a request to stop, and for the silence of rank 0. To be called every [`TICK`].
    pub fn check_outside(&mut self) -> Result<(), Stop> {
        if self.stop.load(Ordering::SeqCst) {
            return Err(Stop::Interrupted);
        }
        let limit = self.trial.settings.launch.heartbeat_timeout_s;
        self.quiet += u64::from(self.peers.any());
        if self.quiet > ticks(limit).max(2) {
            let message = format!("rank 0 is gone: no sign of life for {limit} s");
            return Err(Stop::Lost(LostRank { rank: 0, message, gone: true }));
        }
        Ok(())
    }

    fn take(&mut self, event: Event) -> Result<(), Stop> {
        match event {
            Event::Peers(message) => self.take_peers(message).map(drop),
            Event::Program { connection, at, event } => {
                let rank = self.connections.entry(connection).or_default().unwrap_or(self.env.rank);
                match event {
                    SocketEvent::Opened => Ok(()),
                    SocketEvent::Line(number, record) => {
                        self.record(connection, record, at).map_err(|refused| invalid_line(rank, number, at, refused))
                    }
                    SocketEvent::Invalid(number, why) => {
                        Err(invalid_line(rank, number, at, Refusal::Line(Refused::Record(why))))
                    }
                    SocketEvent::Closed => {
                        if let Some(Some(rank)) = self.connections.remove(&connection)
                            && let Some(log) = self.logs.get_mut(&rank)
                        {
                            log.closed = Some(at);
                        }
                        Ok(())
                    }
                }
            }
        }
    }

    /// Take the records that a program sent before it was ended for a reason that is not its own: steps that it
    /// measured are kept.
    pub fn take_measured(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            if matches!(event, Event::Program { .. }) && self.take(event).is_err() {
                break;
            }
        }
    }

    /// Take a record of the program.
    fn record(&mut self, connection: usize, record: Record, at: Instant) -> Result<(), Refusal> {
        let refuse = |why: String| Err(Refusal::Line(Refused::Record(why)));
        let rank = self.connections.get(&connection).copied().flatten();
        let record = match (record, rank) {
            (Record::Run(_), Some(_)) => return refuse("a second run record".to_owned()),
            (Record::Run(run), None) => return self.introduce(connection, *run),
            (_, None) => return refuse("the first line has to be the run record".to_owned()),
            (record, Some(_)) => record,
        };
        let Some(log) = rank.and_then(|rank| self.logs.get_mut(&rank)) else { return Ok(()) };
        log.ticks = 0;
        match record {
            Record::Step(line) => {
                log.step(&line)?;
                if let Some(metrics) = self.metrics.as_ref().filter(|_| log.rank == self.env.rank) {
                    metrics.heard_of_step(at, line.start_ns + line.wall_ns);
                }
                let min_steps = self.logs.values().map(|log| log.steps).min().unwrap_or(0);
                self.peers.set_steps(min_steps);
            }
            Record::Note(counts) if log.rank == 0 => {
                if let Some((_, facts)) = &mut self.rank0 {
                    counts.add_to(facts);
                }
            }
            Record::End(end) if log.end.is_some() => return refuse(format!("a second end record: {end:?}")),
            Record::End(end) => {
                let said = end.error.clone();
                log.end = Some(end);
                if let Some(error) = said {
                    let message = format!("rank {}: {} ({})", log.rank, quoted(error.as_bytes()), log.progress());
                    return Err(Refusal::Ended(OwnFailure {
                        rank: log.rank,
                        message,
                        at,
                        code: EXIT_FAILED,
                        said: true,
                        killed: false,
                    }));
                }
            }
            Record::Note(_) | Record::Run(_) => {}
        }
        Ok(())
    }

    /// Take the run record of a connection.
    fn introduce(&mut self, connection: usize, run: RunRecord) -> Result<(), Refusal> {
        let refuse = |why: String| Err(Refusal::Line(Refused::Record(why)));
        let (rank, world) = (run.rank, self.env.world_size);
        if run.world_size != world {
            return refuse(format!("the program has {} ranks, the trial {world}", run.world_size));
        }
        let known = self.logs.keys().map(u32::to_string).collect::<Vec<_>>().join(", ");
        let Some(log) = self.logs.get_mut(&rank) else {
            return refuse(format!("the program says that it is rank {rank}; here is {known}"));
        };
        if log.run.is_some() {
            return refuse(format!("a second connection says that it is rank {rank}"));
        }
        log.ticks = 0;
        log.run = Some(run.clone());
        self.connections.insert(connection, Some(rank));
        if rank == 0 {
            let facts = program_facts(&run);
            self.rank0 = Some((run, facts));
            if let Err(Stop::Own(failure)) = self.write_environment() {
                return Err(Refusal::Ended(failure));
            }
        }
        Ok(())
    }

    /// Check what changes without an event; true once the program has ended well.
    fn check(&mut self, socket: &ProgramSocket) -> Result<bool, Stop> {
        self.check_outside()?;
        if self.exited.is_none() {
            let status = self.program.as_mut().and_then(ProgramProcess::ended);
            self.exited = status.map(|status| (status, Instant::now()));
        }
        if let Some((status, at)) = self.exited {
            // Its last lines may still be under way, and those of a program that ended at once all of its lines.
            let is_pending = socket.has_pending();
            while let Ok(event) = self.events.try_recv() {
                self.take(event)?;
            }
            if (is_pending || !self.connections.is_empty()) && at.elapsed() < AFTERMATH {
                return Ok(false);
            }
            return self.judge(status, at).map(|()| true).map_err(Stop::Own);
        }
        self.check_hang().map_err(Stop::Own)?;
        let patience = if self.trial.settings.worker.starts_ranks { CLOSED_AMONG_OTHERS } else { CLOSED };
        match self.logs.values().find(|log| !log.complete() && log.closed.is_some_and(|at| at.elapsed() > patience)) {
            Some(log) => {
                let message = format!("rank {} closed its connection {}", log.rank, log.progress());
                let at = log.closed.unwrap_or(self.checked);
                Err(Stop::Own(OwnFailure {
                    rank: log.rank,
                    message,
                    at,
                    code: EXIT_FAILED,
                    said: false,
                    killed: false,
                }))
            }
            None => Ok(false),
        }
    }

    /// Check for a rank that has been silent for too long. A rank behind the others hangs before those that wait for
    /// it.
    fn check_hang(&mut self) -> Result<(), OwnFailure> {
        let launch = &self.trial.settings.launch;
        let (rendezvous, hang) = (launch.rendezvous_timeout_s, launch.hang_timeout_s);
        let own = self.logs.values().map(|log| log.steps).min().unwrap_or(0);
        let min_steps = if self.peers.any() { self.min_steps.min(own) } else { own };
        for log in self.logs.values_mut() {
            log.ticks += 1;
            let seconds = log.ticks * TICK.as_millis() as u64 / 1000;
            let stuck = |message: String| Err(OwnFailure::now(log.rank, message, EXIT_STUCK));
            if log.run.is_none() {
                if log.ticks > ticks(rendezvous) {
                    return stuck(format!("the program has not sent its run record within {rendezvous} s"));
                }
                continue;
            }
            let limit = if log.steps <= min_steps { hang } else { hang.saturating_mul(2) };
            if hang == 0 || log.ticks <= ticks(limit) {
                continue;
            }
            return stuck(match log.steps {
                steps if steps == log.total => format!("the program goes on for {seconds} s after its last step"),
                0 => format!("the program has been in front of its first step for {seconds} s"),
                step => format!("the program has been at step {step} for {seconds} s"),
            });
        }
        Ok(())
    }

    /// Whether the program, which ended with `status` at `ended`, did all its steps and left no process.
    fn judge(&mut self, status: ExitStatus, ended: Instant) -> Result<(), OwnFailure> {
        let left = program::wait_for_all(if status.success() { AFTERMATH } else { Duration::ZERO });
        program::end_all();
        let failed = |rank: u32, message: String, at: Instant| {
            let message = format!("rank {rank}: the program {message}");
            Err(OwnFailure { rank, message, at, code: EXIT_FAILED, said: false, killed: status.code().is_none() })
        };
        // The others ended because of the rank whose connection closed first.
        let open = self.logs.values().filter(|log| !log.complete());
        let first = open.min_by_key(|log| (log.closed.unwrap_or(ended), log.rank));
        if let Some(log) = first {
            let see = if status.success() { String::new() } else { format!("; see rank-{}.log", self.env.rank) };
            let message = format!("{} {}{see}", status_text(status), log.progress());
            return failed(log.rank, message, log.closed.unwrap_or(ended).min(ended));
        }
        if !status.success() {
            let message = format!("did all its steps and {}; see rank-{}.log", status_text(status), self.env.rank);
            return failed(self.env.rank, message, ended);
        }
        if !left.is_empty() {
            let names: Vec<String> =
                left.iter().take(5).map(|(pid, name)| format!("{pid} {}", quoted(name.as_bytes()))).collect();
            let (n, what) = (left.len(), if left.len() == 1 { "process" } else { "processes" });
            return failed(
                self.env.rank,
                format!("left {n} {what} behind, which had to be ended: {}", names.join(", ")),
                ended,
            );
        }
        Ok(())
    }
}

/// Why a record of the program stops the supervisor.
enum Refusal {
    Line(Refused),
    Ended(OwnFailure),
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        Self::Line(refused)
    }
}

impl From<LedgerError> for Refusal {
    fn from(error: LedgerError) -> Self {
        Self::Line(error.into())
    }
}

fn invalid_line(rank: u32, number: u64, at: Instant, refusal: Refusal) -> Stop {
    let (message, code) = match refusal {
        Refusal::Ended(failure) => return Stop::Own(failure),
        Refusal::Line(Refused::Ledger(error)) => (format!("rank {rank}: {error}"), EXIT_STORAGE),
        Refusal::Line(Refused::Record(why)) => (
            format!("rank {rank}: line {number} that the program wrote to EXPCTL_SOCKET is no record: {why}"),
            EXIT_FAILED,
        ),
    };
    Stop::Own(OwnFailure { rank, message, at, code, said: false, killed: false })
}

/// Number of [`TICK`]s in so many seconds. Counting ticks leaves out time in which the node was suspended.
fn ticks(seconds: u64) -> u64 {
    seconds.saturating_mul(1000) / TICK.as_millis() as u64
}
