//! The rendezvous of the ranks of a trial, served by rank 0's process: a JSON object per line, over TCP.
//!
//! Whoever reaches the port may connect, so a rank shows the secret of the attempt first, which only the user can read
//! ([`RendezvousFile`](expctl_ledger::RendezvousFile)). Connections that have not shown it are few, and each ends after [`MESSAGE_TIMEOUT`].
//!
//! Invariant: of several ranks that fail, the hub names the one whose failure was seen first, whichever report arrived
//! first. Others wait a moment for reports that are under way.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use expctl_ledger::{Hardware, Secret};
use serde::{Deserialize, Serialize};

/// Longest line, bytes.
pub const MAX_MESSAGE: u64 = 1 << 20;

/// A rank that joins.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JoinMessage {
    /// Trial and attempt of the rank: others that find the port are not served.
    pub trial: String,
    pub attempt: u32,
    pub secret: Secret,
    pub rank: u32,
    /// Identifies the node: equal for ranks of the same node alone.
    pub node: String,
    /// CPUs that it may use.
    pub cpus: Vec<u32>,
    pub hardware: Hardware,
}

/// From a rank to rank 0.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToHub {
    Join(Box<JoinMessage>),
    /// Heartbeat, with the number of completed steps.
    Beat {
        steps: u64,
    },
    /// `rank` failed `age_ms` ago.
    Failed {
        rank: u32,
        message: String,
        age_ms: u64,
    },
    /// The rank is done.
    Done,
}

/// From rank 0 to a rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromHub {
    Start(Box<StartMessage>),
    /// Heartbeat, with the smallest number of completed steps over all ranks.
    Beat {
        least: u64,
    },
    Lost(LostRank),
    /// Every rank is done.
    Over,
}

/// Rank 0's message when all have joined.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StartMessage {
    /// A port of rank 0's machine, reserved for the program.
    pub master_port: u16,
    /// The ranks of this rank's node, in order.
    pub ranks: Vec<u32>,
    /// The CPUs that they may use together.
    pub cpus: Vec<u32>,
    /// Hardware of each rank's node, by rank; for rank 0 alone.
    pub hardware: Vec<Hardware>,
}

/// The rank that failed first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostRank {
    pub rank: u32,
    pub message: String,
    /// It does not answer, or never joined: it will report nothing itself.
    pub gone: bool,
}

/// Send a message in one write.
pub fn send<T: Serialize>(mut stream: &TcpStream, message: &T) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Interval of heartbeats.
pub const HEARTBEAT: Duration = Duration::from_millis(300);
const TICK: Duration = Duration::from_millis(50);
/// Time after the first report of a failure in which reports of earlier ones may arrive.
const SETTLE_TIME: Duration = Duration::from_millis(300);
/// Time limit of the first message of a connection, and of sending one.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(5);
/// Upper bound of connections that have not joined, beside two for each rank. One more ends the oldest of them.
const MAX_STRANGERS: usize = 64;

/// The trial and attempt whose ranks meet, and their time limits.
#[derive(Clone, Debug)]
pub struct Rendezvous {
    pub trial: String,
    pub attempt: u32,
    /// What a rank shows when it joins.
    pub secret: Secret,
    pub world_size: u32,
    pub master_port: u16,
    /// Time limit for all ranks to join.
    pub rendezvous: Duration,
    /// A rank that is silent for longer is lost.
    pub heartbeat: Duration,
}

#[derive(Default)]
struct HubState {
    members: Vec<Option<Member>>,
    started: bool,
    reports: Vec<FailureReport>,
    lost: Option<LostRank>,
    over: bool,
}

struct Member {
    stream: Arc<TcpStream>,
    join: JoinMessage,
    steps: u64,
    done: bool,
    spoke: bool,
    /// Heartbeats without a message.
    silent: u64,
}

struct FailureReport {
    lost: LostRank,
    observed: Instant,
    arrived: Instant,
}

#[derive(Clone)]
struct Hub {
    rendezvous: Rendezvous,
    state: Arc<Mutex<HubState>>,
    strangers: Arc<Mutex<Strangers>>,
}

/// Connections that have not joined, oldest first.
struct Strangers {
    streams: VecDeque<(Instant, Arc<TcpStream>)>,
    max: usize,
}

impl Strangers {
    /// Add a connection; ends the oldest where there are too many.
    fn add(&mut self, stream: &Arc<TcpStream>) {
        self.streams.push_back((Instant::now(), Arc::clone(stream)));
        if self.streams.len() > self.max {
            self.end_oldest();
        }
    }

    fn remove(&mut self, stream: &Arc<TcpStream>) {
        self.streams.retain(|(_, other)| !Arc::ptr_eq(other, stream));
    }

    /// End those that had their time.
    fn expire(&mut self) {
        while self.streams.front().is_some_and(|(since, _)| since.elapsed() > MESSAGE_TIMEOUT) {
            self.end_oldest();
        }
    }

    fn end_oldest(&mut self) {
        if let Some((_, stream)) = self.streams.pop_front() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Serve the rendezvous on threads that live as long as the process.
///
/// # Errors
/// A thread cannot be started.
pub fn serve(listener: TcpListener, rendezvous: Rendezvous) -> std::io::Result<()> {
    let members = (0..rendezvous.world_size).map(|_| None).collect();
    let state = Arc::new(Mutex::new(HubState { members, ..HubState::default() }));
    let max = 2 * rendezvous.world_size as usize + MAX_STRANGERS;
    let strangers = Arc::new(Mutex::new(Strangers { streams: VecDeque::new(), max }));
    let hub = Hub { rendezvous, state, strangers };
    let watching = hub.clone();
    std::thread::Builder::new().name("hub".to_owned()).spawn(move || watching.watch())?;
    std::thread::Builder::new().name("rendezvous".to_owned()).spawn(move || {
        for stream in listener.incoming().flatten() {
            let (hub, stream) = (hub.clone(), Arc::new(stream));
            hub.strangers().add(&stream);
            // Without a thread that rank times out, and reports it itself.
            let _ = std::thread::Builder::new().name("rank".to_owned()).spawn(move || hub.serve_rank(stream));
        }
    })?;
    Ok(())
}

impl Hub {
    fn state(&self) -> MutexGuard<'_, HubState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn strangers(&self) -> MutexGuard<'_, Strangers> {
        self.strangers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Listen to a rank that connects, if it belongs to this attempt.
    fn serve_rank(&self, stream: Arc<TcpStream>) {
        let _ = stream.set_nodelay(true);
        let _ = stream.set_write_timeout(Some(MESSAGE_TIMEOUT));
        let _ = stream.set_read_timeout(Some(MESSAGE_TIMEOUT));
        let mut reader = BufReader::new(&*stream);
        let first = receive(&mut reader);
        self.strangers().remove(&stream);
        let Some(ToHub::Join(join)) = first else { return };
        let Rendezvous { trial, attempt, .. } = &self.rendezvous;
        let rank = join.rank;
        if join.trial != *trial || join.attempt != *attempt {
            tracing::warn!(
                "a rank of trial {:?}, attempt {} came to the rendezvous of {trial}",
                join.trial,
                join.attempt
            );
            return;
        }
        if !join.secret.is(&self.rendezvous.secret) {
            tracing::warn!("a connection without the secret of the attempt was refused at the rendezvous of {trial}");
            return;
        }
        {
            let mut state = self.state();
            let Some(member) = state.members.get_mut(rank as usize).filter(|member| member.is_none()) else { return };
            let stream = Arc::clone(&stream);
            *member = Some(Member { stream, join: *join, steps: 0, done: false, spoke: true, silent: 0 });
        }
        let _ = stream.set_read_timeout(None);
        while let Some(message) = receive(&mut reader) {
            let now = Instant::now();
            let mut state = self.state();
            if let ToHub::Failed { rank, message, age_ms } = message {
                let observed = now.checked_sub(Duration::from_millis(age_ms)).unwrap_or(now);
                state.reports.push(FailureReport {
                    lost: LostRank { rank, message, gone: false },
                    observed,
                    arrived: now,
                });
                continue;
            }
            let Some(Some(member)) = state.members.get_mut(rank as usize) else { return };
            member.spoke = true;
            match message {
                ToHub::Beat { steps } => member.steps = steps,
                ToHub::Done => member.done = true,
                ToHub::Join(_) | ToHub::Failed { .. } => {}
            }
        }
        let mut state = self.state();
        if state.members.get(rank as usize).and_then(Option::as_ref).is_some_and(|member| !member.done) {
            report_gone(&mut state, rank, "its supervisor ended".to_owned());
        }
    }

    /// Watch over the ranks until all are done or one is lost.
    fn watch(&self) {
        let begun = Instant::now();
        let limit = (self.rendezvous.heartbeat.as_millis() / HEARTBEAT.as_millis()).max(2) as u64;
        let mut beat = Instant::now();
        loop {
            std::thread::sleep(TICK);
            self.strangers().expire();
            let mut state = self.state();
            if !state.started {
                self.start(&mut state, begun);
            } else if beat.elapsed() >= HEARTBEAT {
                beat = Instant::now();
                self.check_heartbeats(&mut state, limit);
            }
            settle(&mut state);
            let (lost, over) = (state.lost.clone(), state.over);
            if let Some(lost) = lost {
                return broadcast(&state, &FromHub::Lost(lost));
            }
            if over {
                return broadcast(&state, &FromHub::Over);
            }
        }
    }

    /// Let the ranks begin once all are there, or give up.
    fn start(&self, state: &mut HubState, begun: Instant) {
        let missing: Vec<u32> = (0..).zip(&state.members).filter(|(_, m)| m.is_none()).map(|(rank, _)| rank).collect();
        let Some(first) = missing.first() else {
            state.started = true;
            let members: Vec<&Member> = state.members.iter().flatten().collect();
            let mut hardware: Vec<Hardware> = members.iter().map(|member| member.join.hardware.clone()).collect();
            expctl_ledger::share_gpus(&mut hardware);
            for member in &members {
                let beside = || members.iter().filter(|other| other.join.node == member.join.node);
                let mut cpus: Vec<u32> = beside().flat_map(|other| other.join.cpus.clone()).collect();
                cpus.sort_unstable();
                cpus.dedup();
                let start = StartMessage {
                    master_port: self.rendezvous.master_port,
                    ranks: beside().map(|other| other.join.rank).collect(),
                    cpus,
                    hardware: if member.join.rank == 0 { hardware.clone() } else { Vec::new() },
                };
                // A rank that cannot be reached is found silent.
                let _ = send(&member.stream, &FromHub::Start(Box::new(start)));
            }
            return;
        };
        if begun.elapsed() > self.rendezvous.rendezvous {
            let names = missing.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            let (limit, world) = (self.rendezvous.rendezvous.as_secs(), self.rendezvous.world_size);
            let message = format!("rank {names} of {world} did not appear within {limit} s");
            state.lost = Some(LostRank { rank: *first, message, gone: true });
        }
    }

    /// Find silent ranks, and send the heartbeat of rank 0.
    fn check_heartbeats(&self, state: &mut HubState, limit: u64) {
        let mut silent = Vec::new();
        for member in state.members.iter_mut().flatten() {
            member.silent = if std::mem::take(&mut member.spoke) { 0 } else { member.silent + 1 };
            if member.silent > limit && !member.done {
                silent.push(member.join.rank);
            }
        }
        for rank in silent {
            report_gone(state, rank, format!("no sign of life for {} s", self.rendezvous.heartbeat.as_secs()));
        }
        let min_steps = state.members.iter().flatten().map(|member| member.steps).min().unwrap_or(0);
        broadcast(state, &FromHub::Beat { least: min_steps });
        state.over = state.members.iter().flatten().all(|member| member.done);
    }
}

/// Report that a rank is gone.
fn report_gone(state: &mut HubState, rank: u32, why: String) {
    let now = Instant::now();
    let lost = LostRank { rank, message: format!("rank {rank} is gone: {why}"), gone: true };
    state.reports.push(FailureReport { lost, observed: now, arrived: now });
}

/// Once reports have settled, name the rank that failed first: later failures follow from it.
fn settle(state: &mut HubState) {
    let Some(first) = state.reports.iter().map(|report| report.arrived).min() else { return };
    if state.lost.is_none() && first.elapsed() >= SETTLE_TIME {
        state.lost = state.reports.iter().min_by_key(|report| report.observed).map(|report| report.lost.clone());
    }
}

fn broadcast(state: &HubState, message: &FromHub) {
    for member in state.members.iter().flatten() {
        // A rank that cannot be reached is found silent, or has ended.
        let _ = send(&member.stream, message);
    }
}

/// The next message; `None` if the connection ended, or carries something else.
pub fn receive<T: serde::de::DeserializeOwned>(reader: &mut impl BufRead) -> Option<T> {
    let mut line = Vec::new();
    reader.by_ref().take(MAX_MESSAGE).read_until(b'\n', &mut line).ok()?;
    serde_json::from_slice(&line).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_neither_joins_nor_keeps_a_rank_out() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let secret = Secret::generate().unwrap();
        let rendezvous = Rendezvous {
            trial: "lazy-r1-01234567".to_owned(),
            attempt: 1,
            secret: secret.clone(),
            world_size: 1,
            master_port: 7,
            rendezvous: Duration::from_secs(60),
            heartbeat: Duration::from_secs(60),
        };
        serve(listener, rendezvous.clone()).unwrap();
        let connect = |secret: Option<Secret>| {
            let stream = TcpStream::connect(address).unwrap();
            if let Some(secret) = secret {
                let join = JoinMessage {
                    trial: rendezvous.trial.clone(),
                    attempt: 1,
                    secret,
                    rank: 0,
                    node: "n1".to_owned(),
                    cpus: vec![0],
                    hardware: Hardware::default(),
                };
                send(&stream, &ToHub::Join(Box::new(join))).unwrap();
            }
            stream
        };
        let answer = |stream: &TcpStream| receive::<FromHub>(&mut BufReader::new(stream));
        assert!(answer(&connect(Some(Secret::generate().unwrap()))).is_none(), "closed without a word");
        // The first of those that say nothing is closed when there are too many.
        let silent: Vec<TcpStream> = (0..MAX_STRANGERS + 4).map(|_| connect(None)).collect();
        assert!(answer(&silent[0]).is_none());
        assert!(matches!(answer(&connect(Some(secret))), Some(FromHub::Start(_))));
    }
}
