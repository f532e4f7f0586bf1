//! Watches over a program that runs as a rank, or as all ranks of a node. Invariant: whatever way it ends, nothing that it
//! started runs on, its steps are in tables, and its last words say why, in the words of whoever failed first.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use expctl_record::{AttemptDir, EXIT_FAILED, EXIT_STORAGE, ProgramFacts, RankEnv, RecordError, Trial};
use host_metrics::{MetricsOptions, MetricsRecorder, WatchedProcesses};

use super::message::{FromHub, Lost};
use super::peers::Peers;
use super::processes;
use super::program_process::ProgramProcess;
use super::protocol::{Record, RunRecord, quoted};
use super::rank_log::{RankLog, Refused};
use super::socket::{Heard, Socket};
use super::surroundings::{drop_cache, facts, variables_of, write_environment};

/// Between two looks at what can change without a word.
pub(super) const TURN: Duration = Duration::from_millis(50);
/// How long what a program has started may take to end after it, and its connections to close.
pub(super) const AFTERMATH: Duration = Duration::from_secs(3);
/// How long a rank that has closed its connection too early may take to end, and to say so by its exit code. Where a program
/// starts its ranks itself, the others wait for it meanwhile.
const CLOSED: Duration = Duration::from_secs(10);
const CLOSED_AMONG_OTHERS: Duration = Duration::from_secs(1);

/// What a supervisor waits for.
#[derive(Debug)]
pub(super) enum Event {
    /// Of the program.
    Heard { connection: usize, at: Instant, heard: Heard },
    /// Of the other ranks; none when rank 0 is gone.
    Peers(Option<FromHub>),
}

/// Why a program was not watched to a good end.
#[derive(Debug)]
pub(super) enum Stop {
    /// It failed.
    Own(OwnFailure),
    /// Another rank failed.
    Lost(Lost),
    /// This process was asked to stop.
    Interrupted,
}

/// A failure of this supervisor's own ranks.
#[derive(Debug)]
pub(super) struct OwnFailure {
    pub rank: u32,
    pub message: String,
    /// When it showed.
    pub at: Instant,
    /// Exit code of the supervisor.
    pub code: i32,
    /// The program said so itself, and is about to end.
    pub said: bool,
    /// A signal ended the program: something outside did it, or it crashed.
    pub killed: bool,
}

impl OwnFailure {
    /// A failure that shows now.
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

/// A program under watch.
pub(super) struct Supervisor<'a> {
    pub attempt: &'a AttemptDir,
    pub trial: &'a Trial,
    pub env: RankEnv,
    pub stop: &'a AtomicBool,
    pub peers: Peers,
    pub events: Receiver<Event>,
    /// The ranks that the program is.
    pub logs: BTreeMap<u32, RankLog>,
    pub program: Option<ProgramProcess>,
    /// None where no hardware samples are taken, or not any more.
    pub metrics: Option<MetricsRecorder>,
    /// Rank of each open connection; none before its run record.
    connections: BTreeMap<usize, Option<u32>>,
    /// What rank 0 said of its program, with its figures so far.
    about: Option<(RunRecord, ProgramFacts)>,
    pub(super) exited: Option<(ExitStatus, Instant)>,
    /// Turns since rank 0 was heard.
    quiet: u64,
    /// Steps of the rank that has done the fewest, of all.
    pub(super) least: u64,
    pub(super) looked: Instant,
}

impl<'a> Supervisor<'a> {
    /// A supervisor of a program that has yet to be started.
    pub fn new(
        (attempt, trial, env): (&'a AttemptDir, &'a Trial, RankEnv),
        stop: &'a AtomicBool,
        peers: Peers,
        events: Receiver<Event>,
        logs: BTreeMap<u32, RankLog>,
    ) -> Self {
        Self {
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
            about: None,
            exited: None,
            quiet: 0,
            least: 0,
            looked: Instant::now(),
        }
    }

    /// Start the program in `folder` and watch it until it has ended.
    pub fn run(&mut self, folder: &Path, socket: &Socket) -> Result<(), Stop> {
        self.write_environment()?;
        let rank = self.env.rank;
        let failed = |message: String| Stop::Own(OwnFailure::now(rank, message, EXIT_FAILED));
        let variables = variables_of(self.attempt, self.trial, self.env, &self.peers, socket);
        let variables = variables.map_err(|failure| failed(failure.message))?;
        if self.trial.settings.measure.cold_cache && self.env.local_rank == 0 {
            drop_cache(self.attempt, self.trial, rank).map_err(|failure| failed(failure.message))?;
        }
        processes::adopt().map_err(|e| failed(format!("its processes cannot be watched: {e}")))?;
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
            if let Ok(event) = self.events.recv_timeout(TURN) {
                self.take(event)?;
            }
            if self.looked.elapsed() >= TURN {
                self.looked = Instant::now();
                if self.look()? {
                    return Ok(());
                }
            }
        }
    }

    /// Write `env.json` as it is known; for rank 0.
    pub fn write_environment(&self) -> Result<(), Stop> {
        if self.env.rank != 0 {
            return Ok(());
        }
        let (run, facts) = self.about.as_ref().map(|(run, facts)| (run, facts)).unzip();
        write_environment(self.attempt, self.trial, &self.peers, run, facts)
            .map_err(|failure| Stop::Own(OwnFailure::now(0, failure.message, EXIT_STORAGE)))
    }

    /// What the other ranks say, as far as it ends this one.
    pub fn take_peers(&mut self, message: Option<FromHub>) -> Result<bool, Stop> {
        self.quiet = 0;
        match message {
            Some(FromHub::Lost(lost)) => Err(Stop::Lost(lost)),
            Some(FromHub::Beat { least }) => {
                self.least = least;
                Ok(false)
            }
            Some(FromHub::Over) => Ok(true),
            Some(FromHub::Start(_)) => Ok(false),
            None => Err(Stop::Lost(Lost {
                rank: 0,
                message: "rank 0 is gone: its supervisor ended".to_owned(),
                gone: true,
            })),
        }
    }

    /// What ends a rank from outside: a request to stop, or rank 0 that is silent. To be called every [`TURN`].
    pub fn look_outside(&mut self) -> Result<(), Stop> {
        if self.stop.load(Ordering::SeqCst) {
            return Err(Stop::Interrupted);
        }
        let limit = self.trial.settings.launch.heartbeat_timeout_s;
        self.quiet += u64::from(self.peers.any());
        if self.quiet > turns(limit).max(2) {
            let message = format!("rank 0 is gone: no sign of life for {limit} s");
            return Err(Stop::Lost(Lost { rank: 0, message, gone: true }));
        }
        Ok(())
    }

    fn take(&mut self, event: Event) -> Result<(), Stop> {
        match event {
            Event::Peers(message) => self.take_peers(message).map(drop),
            Event::Heard { connection, at, heard } => {
                let rank = self.connections.entry(connection).or_default().unwrap_or(self.env.rank);
                match heard {
                    Heard::Line(number, record) => {
                        self.record(connection, record, at).map_err(|refused| bad(rank, number, at, refused))
                    }
                    Heard::Bad(number, why) => Err(bad(rank, number, at, Refusal::Line(Refused::Record(why)))),
                    Heard::Closed => {
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
        log.turns = 0;
        match record {
            Record::Step(line) => {
                log.step(&line)?;
                if let Some(metrics) = self.metrics.as_ref().filter(|_| log.rank == self.env.rank) {
                    metrics.heard_of_step(at, line.start_ns + line.wall_ns);
                }
                let fewest = self.logs.values().map(|log| log.steps).min().unwrap_or(0);
                self.peers.note_steps(fewest);
            }
            Record::Note(counts) if log.rank == 0 => {
                if let Some((_, facts)) = &mut self.about {
                    counts.add_to(facts);
                }
            }
            Record::End(end) if log.end.is_some() => return refuse(format!("a second end record: {end:?}")),
            Record::End(end) => {
                let said = end.error.clone();
                log.end = Some(end);
                if let Some(error) = said {
                    let message = format!("rank {}: {} ({})", log.rank, quoted(error.as_bytes()), log.place());
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

    /// A rank says who it is.
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
        log.turns = 0;
        log.run = Some(run.clone());
        self.connections.insert(connection, Some(rank));
        if rank == 0 {
            let facts = facts(&run);
            self.about = Some((run, facts));
            if let Err(Stop::Own(failure)) = self.write_environment() {
                return Err(Refusal::Ended(failure));
            }
        }
        Ok(())
    }

    /// Look at what changes without a word; true once the program has come to a good end.
    fn look(&mut self) -> Result<bool, Stop> {
        self.look_outside()?;
        if self.exited.is_none() {
            let status = self.program.as_mut().and_then(ProgramProcess::ended);
            self.exited = status.map(|status| (status, Instant::now()));
        }
        if let Some((status, at)) = self.exited {
            // What it wrote last may still be under way.
            if !self.connections.is_empty() && at.elapsed() < AFTERMATH {
                return Ok(false);
            }
            return self.judge(status, at).map(|()| true).map_err(Stop::Own);
        }
        self.look_for_hang().map_err(Stop::Own)?;
        let patience = if self.trial.settings.worker.starts_ranks { CLOSED_AMONG_OTHERS } else { CLOSED };
        match self.logs.values().find(|log| !log.complete() && log.closed.is_some_and(|at| at.elapsed() > patience)) {
            Some(log) => {
                let message = format!("rank {} closed its connection {}", log.rank, log.place());
                let at = log.closed.unwrap_or(self.looked);
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
}

/// Why a record of the program ends it.
enum Refusal {
    Line(Refused),
    Ended(OwnFailure),
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        Self::Line(refused)
    }
}

impl From<RecordError> for Refusal {
    fn from(error: RecordError) -> Self {
        Self::Line(error.into())
    }
}

fn bad(rank: u32, number: u64, at: Instant, refusal: Refusal) -> Stop {
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

/// Own turns that make up so many seconds. Time in which the node was suspended is not counted.
pub(super) fn turns(seconds: u64) -> u64 {
    seconds.saturating_mul(1000) / TURN.as_millis() as u64
}
