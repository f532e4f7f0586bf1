//! The other ranks, as one of them sees them.

use std::io::BufReader;
use std::net::{Ipv4Addr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use expctl_record::{AttemptDir, Hardware, RankEnv, RendezvousAddress, RendezvousFile, Trial, rendezvous_address};
use host_metrics::hardware;

use super::hub::{BEAT, Meeting, receive, serve};
use super::message::{FromHub, Join, Lost, Start, ToHub, send};
use super::port::keep_port;
use super::supervisor::Event;

/// How long one try to reach rank 0 may take.
const TRY: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);

/// The other ranks of a trial, once all have met. Invariant: while it lives, the program's port is kept free.
pub(super) struct Peers {
    /// To rank 0; none for a rank that is alone.
    hub: Option<Arc<Mutex<TcpStream>>>,
    steps: Arc<AtomicU64>,
    /// Where rank 0's program can be reached.
    pub master: (String, u16),
    /// What was said when all had met.
    pub start: Start,
    _port: Option<socket2::Socket>,
}

/// Why the ranks did not meet.
#[derive(Debug)]
pub(super) enum NotMet {
    /// This process was asked to stop.
    Stopped,
    /// A rank is missing.
    Lost(Lost),
    /// Something about this rank.
    Own(String),
}

impl Peers {
    /// Meet the other ranks; what they say later is sent to `events`.
    ///
    /// # Errors
    /// See [`NotMet`].
    pub fn meet(
        env: RankEnv,
        attempt: &AttemptDir,
        trial: &Trial,
        events: &SyncSender<Event>,
        stop: &AtomicBool,
    ) -> Result<Self, NotMet> {
        let own = |what: &str| {
            let what = what.to_owned();
            move |e: std::io::Error| NotMet::Own(format!("{what}: {e}"))
        };
        let found = hardware(env.local_rank == 0);
        let cpus = allowed_cpus();
        let mut kept = None;
        if env.rank == 0 {
            kept = Some(keep_port().map_err(own("no port can be had for the program"))?);
        }
        if env.world_size == 1 {
            let port = kept.as_ref().map_or(0, |(_, port)| *port);
            let start = Start { master_port: port, ranks: vec![0], cpus, hardware: vec![found] };
            let (steps, master) = (Arc::default(), (Ipv4Addr::LOCALHOST.to_string(), port));
            return Ok(Self { hub: None, steps, master, start, _port: kept.map(|(fd, _)| fd) });
        }
        let file = RendezvousFile::new(attempt);
        let launch = &trial.settings.launch;
        let rendezvous = Duration::from_secs(launch.rendezvous_timeout_s);
        if let Some((_, master_port)) = &kept {
            let (listener, host) = listen(env).map_err(own("the other ranks cannot be listened to"))?;
            let port = listener.local_addr().map_err(own("the other ranks cannot be listened to"))?.port();
            let meeting = Meeting {
                trial: trial.id.clone(),
                attempt: attempt.number(),
                world_size: env.world_size,
                master_port: *master_port,
                rendezvous,
                heartbeat: Duration::from_secs(launch.heartbeat_timeout_s),
            };
            serve(listener, meeting).map_err(own("the other ranks cannot be listened to"))?;
            // What an earlier start left there leads nowhere.
            file.clear();
            file.publish(&host, port).map_err(|e| NotMet::Own(e.to_string()))?;
        }
        let (stream, host) = reach(&file, env.world_size, rendezvous, stop)?;
        let _ = stream.set_nodelay(true);
        let stream = Arc::new(stream);
        let join = join(env, attempt, trial, cpus, found);
        send(&stream, &ToHub::Join(Box::new(join))).map_err(own("rank 0 does not listen"))?;
        let start = wait_for_start(&stream, rendezvous, stop)?;
        let steps = Arc::new(AtomicU64::new(0));
        let thread = |name: &str, run: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.to_owned()).spawn(run).map(drop).map_err(own("no thread"))
        };
        let (listening, events) = (Arc::clone(&stream), events.clone());
        thread(
            "peers",
            Box::new(move || {
                let mut reader = BufReader::new(&*listening);
                while let Some(message) = receive::<FromHub>(&mut reader) {
                    if events.send(Event::Peers(Some(message))).is_err() {
                        return;
                    }
                }
                let _ = events.send(Event::Peers(None));
            }),
        )?;
        let sending = stream.try_clone().map_err(own("rank 0 does not listen"))?;
        let sending = Arc::new(Mutex::new(sending));
        let (beating, done) = (Arc::clone(&sending), Arc::clone(&steps));
        thread(
            "heartbeat",
            Box::new(move || {
                while send_alone(&beating, &ToHub::Beat { steps: done.load(Ordering::Relaxed) }).is_ok() {
                    std::thread::sleep(BEAT);
                }
            }),
        )?;
        let master = (host, start.master_port);
        Ok(Self { hub: Some(sending), steps, master, start, _port: kept.map(|(fd, _)| fd) })
    }

    /// Whether there are others.
    pub fn any(&self) -> bool {
        self.hub.is_some()
    }

    /// Let the others know how far this rank is.
    pub fn note_steps(&self, steps: u64) {
        self.steps.store(steps, Ordering::Relaxed);
    }

    /// Tell the others.
    pub fn send(&self, message: &ToHub) {
        if let Some(hub) = &self.hub {
            // Rank 0 is gone, then, and that is heard elsewhere.
            let _ = send_alone(hub, message);
        }
    }
}

/// Send a message while nobody else does.
fn send_alone(stream: &Mutex<TcpStream>, message: &ToHub) -> std::io::Result<()> {
    send(&stream.lock().unwrap_or_else(PoisonError::into_inner), message)
}

/// Listen where the other ranks find rank 0; returns the host to publish.
fn listen(env: RankEnv) -> std::io::Result<(TcpListener, String)> {
    match rendezvous_address(env) {
        RendezvousAddress::Only(address) => Ok((TcpListener::bind((address, 0))?, address.to_string())),
        RendezvousAddress::All(host) => Ok((TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?, host)),
    }
}

/// Try until rank 0 answers; its address is read anew each time, because what stands there may be of an earlier start.
fn reach(file: &RendezvousFile, world: u32, limit: Duration, stop: &AtomicBool) -> Result<(TcpStream, String), NotMet> {
    let begun = Instant::now();
    let mut why = String::new();
    while begun.elapsed() < limit {
        if stop.load(Ordering::SeqCst) {
            return Err(NotMet::Stopped);
        }
        if let Some((host, port)) = file.lookup() {
            let addresses = (host.as_str(), port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
            match addresses {
                Ok(addresses) => {
                    for address in addresses {
                        match TcpStream::connect_timeout(&address, TRY) {
                            Ok(stream) => return Ok((stream, host)),
                            Err(e) => why = format!(": {address}: {e}"),
                        }
                    }
                }
                Err(e) => why = format!(": {host}: {e}"),
            }
        }
        std::thread::sleep(PAUSE);
    }
    let message = format!("rank 0 of {world} did not appear within {} s{why}", limit.as_secs());
    Err(NotMet::Lost(Lost { rank: 0, message, gone: true }))
}

/// Wait until all have met. Rank 0 keeps the time; a little more is left for its word to come.
fn wait_for_start(stream: &TcpStream, limit: Duration, stop: &AtomicBool) -> Result<Start, NotMet> {
    let begun = Instant::now();
    let gone =
        || NotMet::Lost(Lost { rank: 0, message: "rank 0 is gone: its supervisor ended".to_owned(), gone: true });
    let failed = |e: std::io::Error| NotMet::Own(e.to_string());
    let mut byte = [0];
    loop {
        if stop.load(Ordering::SeqCst) {
            return Err(NotMet::Stopped);
        }
        // A look that takes nothing out: the message is read in one piece, whatever comes behind it.
        stream.set_read_timeout(Some(PAUSE)).map_err(failed)?;
        match stream.peek(&mut byte) {
            Ok(0) => return Err(gone()),
            Ok(_) => break,
            Err(_) if begun.elapsed() > limit + TRY => return Err(gone()),
            Err(_) => {}
        }
    }
    stream.set_read_timeout(None).map_err(failed)?;
    match read_one(stream) {
        Some(FromHub::Start(start)) => Ok(*start),
        Some(FromHub::Lost(lost)) => Err(NotMet::Lost(lost)),
        _ => Err(gone()),
    }
}

/// One message, byte by byte: what follows it stays in the connection.
fn read_one(mut stream: &TcpStream) -> Option<FromHub> {
    use std::io::Read;
    let (mut line, mut byte) = (Vec::new(), [0]);
    while !line.ends_with(b"\n") && line.len() < super::message::MAX_MESSAGE as usize {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        line.push(byte[0]);
    }
    serde_json::from_slice(&line).ok()
}

fn join(env: RankEnv, attempt: &AttemptDir, trial: &Trial, cpus: Vec<u32>, hardware: Hardware) -> Join {
    let numbered_by_slurm = std::env::var_os("RANK").is_none();
    let node = std::env::var("SLURM_NODEID").ok().filter(|_| numbered_by_slurm);
    Join {
        trial: trial.id.clone(),
        attempt: attempt.number(),
        rank: env.rank,
        node: node.unwrap_or_else(|| hardware.host.clone()),
        cpus,
        hardware,
    }
}

/// Processors that this process may use.
fn allowed_cpus() -> Vec<u32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or_default().trim();
    let ranges = list.split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
    });
    ranges.flatten().collect()
}
