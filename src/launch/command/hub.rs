//! The meeting of the ranks, in rank 0's process. Invariant: of several ranks that fail, the one is named whose failure was seen
//! first, wherever the news of it came from; others wait a moment for what is still under way.

use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use expctl_record::Hardware;

use super::message::{FromHub, Join, Lost, MAX_MESSAGE, Start, ToHub, send};

/// Between two signs of life.
pub(super) const BEAT: Duration = Duration::from_millis(300);
const TURN: Duration = Duration::from_millis(50);
/// How long after the first news of a failure earlier ones may still come in.
const SETTLE: Duration = Duration::from_millis(300);
/// How long who connects may take to say who it is, and how long a message may take to be sent.
const PATIENCE: Duration = Duration::from_secs(5);

/// Which meeting it is.
#[derive(Clone, Debug)]
pub(super) struct Meeting {
    pub trial: String,
    pub attempt: u32,
    pub world_size: u32,
    pub master_port: u16,
    /// For all to come.
    pub rendezvous: Duration,
    /// Silence for longer is a loss.
    pub heartbeat: Duration,
}

#[derive(Default)]
struct State {
    members: Vec<Option<Member>>,
    started: bool,
    claims: Vec<Claim>,
    lost: Option<Lost>,
    over: bool,
}

struct Member {
    stream: Arc<TcpStream>,
    join: Join,
    steps: u64,
    done: bool,
    spoke: bool,
    /// Beats without a word.
    silent: u64,
}

struct Claim {
    lost: Lost,
    observed: Instant,
    came: Instant,
}

#[derive(Clone)]
struct Hub {
    meeting: Meeting,
    state: Arc<Mutex<State>>,
}

/// Serve the meeting on threads that live as long as the process.
///
/// # Errors
/// A thread cannot be started.
pub(super) fn serve(listener: TcpListener, meeting: Meeting) -> std::io::Result<()> {
    let members = (0..meeting.world_size).map(|_| None).collect();
    let hub = Hub { meeting, state: Arc::new(Mutex::new(State { members, ..State::default() })) };
    let ticking = hub.clone();
    std::thread::Builder::new().name("hub".to_owned()).spawn(move || ticking.tick())?;
    std::thread::Builder::new().name("meeting".to_owned()).spawn(move || {
        for stream in listener.incoming().flatten() {
            let hub = hub.clone();
            // Without a thread that rank is missing, and says so itself.
            let _ = std::thread::Builder::new().name("rank".to_owned()).spawn(move || hub.attend(stream));
        }
    })?;
    Ok(())
}

impl Hub {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Listen to who connects, if it belongs here.
    fn attend(&self, stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let _ = stream.set_write_timeout(Some(PATIENCE));
        let _ = stream.set_read_timeout(Some(PATIENCE));
        let stream = Arc::new(stream);
        let mut reader = BufReader::new(&*stream);
        let Some(ToHub::Join(join)) = receive(&mut reader) else { return };
        let Meeting { trial, attempt, .. } = &self.meeting;
        let rank = join.rank;
        if join.trial != *trial || join.attempt != *attempt {
            tracing::warn!("somebody of trial {} came to the meeting of {trial}", join.trial);
            return;
        }
        {
            let mut state = self.state();
            let Some(place) = state.members.get_mut(rank as usize).filter(|place| place.is_none()) else { return };
            let stream = Arc::clone(&stream);
            *place = Some(Member { stream, join: *join, steps: 0, done: false, spoke: true, silent: 0 });
        }
        let _ = stream.set_read_timeout(None);
        while let Some(message) = receive(&mut reader) {
            let now = Instant::now();
            let mut state = self.state();
            if let ToHub::Failed { rank, message, age_ms } = message {
                let observed = now.checked_sub(Duration::from_millis(age_ms)).unwrap_or(now);
                state.claims.push(Claim { lost: Lost { rank, message, gone: false }, observed, came: now });
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
            gone(&mut state, rank, "its supervisor ended".to_owned());
        }
    }

    /// Watch over the meeting until it is over or a rank is lost.
    fn tick(&self) {
        let begun = Instant::now();
        let limit = (self.meeting.heartbeat.as_millis() / BEAT.as_millis()).max(2) as u64;
        let mut beat = Instant::now();
        loop {
            std::thread::sleep(TURN);
            let mut state = self.state();
            if !state.started {
                self.start(&mut state, begun);
            } else if beat.elapsed() >= BEAT {
                beat = Instant::now();
                self.listen(&mut state, limit);
            }
            settle(&mut state);
            let (lost, over) = (state.lost.clone(), state.over);
            if let Some(lost) = lost {
                return tell(&state, &FromHub::Lost(lost));
            }
            if over {
                return tell(&state, &FromHub::Over);
            }
        }
    }

    /// Let the ranks begin once all are there, or give up.
    fn start(&self, state: &mut State, begun: Instant) {
        let missing: Vec<u32> = (0..).zip(&state.members).filter(|(_, m)| m.is_none()).map(|(rank, _)| rank).collect();
        let Some(first) = missing.first() else {
            state.started = true;
            let members: Vec<&Member> = state.members.iter().flatten().collect();
            let mut hardware: Vec<Hardware> = members.iter().map(|member| member.join.hardware.clone()).collect();
            expctl_record::share_gpus(&mut hardware);
            for member in &members {
                let beside = || members.iter().filter(|other| other.join.node == member.join.node);
                let mut cpus: Vec<u32> = beside().flat_map(|other| other.join.cpus.clone()).collect();
                cpus.sort_unstable();
                cpus.dedup();
                let start = Start {
                    master_port: self.meeting.master_port,
                    ranks: beside().map(|other| other.join.rank).collect(),
                    cpus,
                    hardware: if member.join.rank == 0 { hardware.clone() } else { Vec::new() },
                };
                // Who cannot be reached is found silent.
                let _ = send(&member.stream, &FromHub::Start(Box::new(start)));
            }
            return;
        };
        if begun.elapsed() > self.meeting.rendezvous {
            let names = missing.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            let (limit, world) = (self.meeting.rendezvous.as_secs(), self.meeting.world_size);
            let message = format!("rank {names} of {world} did not appear within {limit} s");
            state.lost = Some(Lost { rank: *first, message, gone: true });
        }
    }

    /// Look who is silent, and show that rank 0 is not.
    fn listen(&self, state: &mut State, limit: u64) {
        let mut silent = Vec::new();
        for member in state.members.iter_mut().flatten() {
            member.silent = if std::mem::take(&mut member.spoke) { 0 } else { member.silent + 1 };
            if member.silent > limit && !member.done {
                silent.push(member.join.rank);
            }
        }
        for rank in silent {
            gone(state, rank, format!("no sign of life for {} s", self.meeting.heartbeat.as_secs()));
        }
        let least = state.members.iter().flatten().map(|member| member.steps).min().unwrap_or(0);
        tell(state, &FromHub::Beat { least });
        state.over = state.members.iter().flatten().all(|member| member.done);
    }
}

/// Note that nothing more will come of a rank.
fn gone(state: &mut State, rank: u32, why: String) {
    let now = Instant::now();
    let lost = Lost { rank, message: format!("rank {rank} is gone: {why}"), gone: true };
    state.claims.push(Claim { lost, observed: now, came: now });
}

/// The first failure is the root; what follows from it is not.
fn settle(state: &mut State) {
    let Some(first) = state.claims.iter().map(|claim| claim.came).min() else { return };
    if state.lost.is_none() && first.elapsed() >= SETTLE {
        state.lost = state.claims.iter().min_by_key(|claim| claim.observed).map(|claim| claim.lost.clone());
    }
}

fn tell(state: &State, message: &FromHub) {
    for member in state.members.iter().flatten() {
        // Who cannot be reached is found silent, or is past caring.
        let _ = send(&member.stream, message);
    }
}

/// The next message; none if the connection ended, or holds something else.
pub(super) fn receive<T: serde::de::DeserializeOwned>(reader: &mut impl BufRead) -> Option<T> {
    let mut line = Vec::new();
    reader.by_ref().take(MAX_MESSAGE).read_until(b'\n', &mut line).ok()?;
    serde_json::from_slice(&line).ok()
}
