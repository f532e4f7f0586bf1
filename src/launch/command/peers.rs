//! [`Peers`]: the other ranks of a trial, as one of them sees them.

use std::io::{BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use expctl_ledger::{AttemptDir, Hardware, RankEnv, RendezvousAddress, RendezvousFile, Secret, rendezvous_address};
use expctl_settings::Trial;
use host_metrics::hardware;
use socket2::{Domain, Socket, Type};

use super::hub::{
    FromHub, HEARTBEAT, JoinMessage, LostRank, MAX_MESSAGE, Rendezvous, StartMessage, ToHub, receive, send, serve,
};
use super::supervisor::Event;

/// Time limit of one connection to rank 0.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// The connection to the other ranks of a trial, once all have joined. Invariant: while it lives, the program's port is
/// reserved.
pub struct Peers {
    /// Connection to rank 0; `None` for the only rank of a trial.
    hub: Option<Arc<Mutex<TcpStream>>>,
    steps: Arc<AtomicU64>,
    /// Host and port at which rank 0's program can be reached.
    pub master: (String, u16),
    /// Rank 0's message when all had joined.
    pub start: StartMessage,
    _port: Option<Socket>,
}

/// Why the ranks did not come together.
#[derive(Debug)]
pub enum RendezvousError {
    /// This process was asked to stop.
    Stopped,
    /// A rank is missing.
    Lost(LostRank),
    /// A failure of this rank.
    Own(String),
}

impl Peers {
    /// Join the other ranks; sends their later messages to `events`.
    ///
    /// # Errors
    /// [`RendezvousError`].
    pub fn join(
        env: RankEnv,
        attempt: &AttemptDir,
        trial: &Trial,
        events: &SyncSender<Event>,
        stop: &AtomicBool,
    ) -> Result<Self, RendezvousError> {
        let own = |what: &str| {
            let what = what.to_owned();
            move |e: std::io::Error| RendezvousError::Own(format!("{what}: {e}"))
        };
        let found = hardware(env.local_rank == 0);
        let cpus = allowed_cpus();
        let mut reserved = None;
        if env.rank == 0 {
            reserved = Some(reserve_port().map_err(own("no port can be had for the program"))?);
        }
        if env.world_size == 1 {
            let port = reserved.as_ref().map_or(0, |(_, port)| *port);
            let start = StartMessage { master_port: port, ranks: vec![0], cpus, hardware: vec![found] };
            let (steps, master) = (Arc::default(), (Ipv4Addr::LOCALHOST.to_string(), port));
            return Ok(Self { hub: None, steps, master, start, _port: reserved.map(|(fd, _)| fd) });
        }
        let file = RendezvousFile::new(attempt);
        let launch = &trial.settings.launch;
        let rendezvous = Duration::from_secs(launch.rendezvous_timeout_s);
        if let Some((_, master_port)) = &reserved {
            let (listener, host) = listen(env).map_err(own("the other ranks cannot be listened to"))?;
            let port = listener.local_addr().map_err(own("the other ranks cannot be listened to"))?.port();
            let secret = Secret::generate().map_err(own("no secret can be made for the other ranks"))?;
            let meeting = Rendezvous {
                trial: trial.id.clone(),
                attempt: attempt.number(),
                secret: secret.clone(),
                world_size: env.world_size,
                master_port: *master_port,
                rendezvous,
                heartbeat: Duration::from_secs(launch.heartbeat_timeout_s),
            };
            serve(listener, meeting).map_err(own("the other ranks cannot be listened to"))?;
            // The address of an earlier start is void.
            file.clear();
            file.publish_with_secret(&host, port, &secret).map_err(|e| RendezvousError::Own(e.to_string()))?;
        }
        let (stream, host, secret) = connect(&file, env.world_size, rendezvous, stop)?;
        let _ = stream.set_nodelay(true);
        let stream = Arc::new(stream);
        let join = join_message(env, attempt, trial, secret, cpus, found);
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
                while send_locked(&beating, &ToHub::Beat { steps: done.load(Ordering::Relaxed) }).is_ok() {
                    std::thread::sleep(HEARTBEAT);
                }
            }),
        )?;
        let master = (host, start.master_port);
        Ok(Self { hub: Some(sending), steps, master, start, _port: reserved.map(|(fd, _)| fd) })
    }

    /// Whether there are other ranks.
    pub fn any(&self) -> bool {
        self.hub.is_some()
    }

    /// Set the number of completed steps that heartbeats carry.
    pub fn set_steps(&self, steps: u64) {
        self.steps.store(steps, Ordering::Relaxed);
    }

    /// Send a message to rank 0.
    pub fn send(&self, message: &ToHub) {
        if let Some(hub) = &self.hub {
            // Then rank 0 is gone, which is noticed elsewhere.
            let _ = send_locked(hub, message);
        }
    }
}

/// Send a message over a connection that other threads use too.
fn send_locked(stream: &Mutex<TcpStream>, message: &ToHub) -> std::io::Result<()> {
    send(&stream.lock().unwrap_or_else(PoisonError::into_inner), message)
}

/// Listen for the other ranks; returns the host to publish.
fn listen(env: RankEnv) -> std::io::Result<(TcpListener, String)> {
    match rendezvous_address(env) {
        RendezvousAddress::Only(address) => Ok((TcpListener::bind((address, 0))?, address.to_string())),
        RendezvousAddress::All(host) => Ok((TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?, host)),
    }
}

/// Connect to rank 0. Its address is read anew for each try: it may be that of an earlier start.
fn connect(
    file: &RendezvousFile,
    world: u32,
    limit: Duration,
    stop: &AtomicBool,
) -> Result<(TcpStream, String, Secret), RendezvousError> {
    let begun = Instant::now();
    let mut why = String::new();
    while begun.elapsed() < limit {
        if stop.load(Ordering::SeqCst) {
            return Err(RendezvousError::Stopped);
        }
        if let Some((host, port, secret)) = file.lookup_with_secret() {
            let addresses = (host.as_str(), port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
            match addresses {
                Ok(addresses) => {
                    for address in addresses {
                        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                            Ok(stream) => return Ok((stream, host, secret)),
                            Err(e) => why = format!(": {address}: {e}"),
                        }
                    }
                }
                Err(e) => why = format!(": {host}: {e}"),
            }
        }
        std::thread::sleep(RETRY_PAUSE);
    }
    let message = format!("rank 0 of {world} did not appear within {} s{why}", limit.as_secs());
    Err(RendezvousError::Lost(LostRank { rank: 0, message, gone: true }))
}

/// Wait until all have joined. Rank 0 keeps the time limit; a little more is left for its message to arrive.
fn wait_for_start(stream: &TcpStream, limit: Duration, stop: &AtomicBool) -> Result<StartMessage, RendezvousError> {
    let begun = Instant::now();
    let gone = || {
        RendezvousError::Lost(LostRank {
            rank: 0,
            message: "rank 0 is gone: its supervisor ended".to_owned(),
            gone: true,
        })
    };
    let failed = |e: std::io::Error| RendezvousError::Own(e.to_string());
    let mut byte = [0];
    loop {
        if stop.load(Ordering::SeqCst) {
            return Err(RendezvousError::Stopped);
        }
        // Peeking leaves the message, which is then read in one piece.
        stream.set_read_timeout(Some(RETRY_PAUSE)).map_err(failed)?;
        match stream.peek(&mut byte) {
            Ok(0) => return Err(gone()),
            Ok(_) => break,
            Err(_) if begun.elapsed() > limit + CONNECT_TIMEOUT => return Err(gone()),
            Err(_) => {}
        }
    }
    stream.set_read_timeout(None).map_err(failed)?;
    match read_one(stream) {
        Some(FromHub::Start(start)) => Ok(*start),
        Some(FromHub::Lost(lost)) => Err(RendezvousError::Lost(lost)),
        _ => Err(gone()),
    }
}

/// Read one message byte by byte: what follows it stays in the connection.
fn read_one(mut stream: &TcpStream) -> Option<FromHub> {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while !line.ends_with(b"\n") && line.len() < MAX_MESSAGE as usize {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        line.push(byte[0]);
    }
    serde_json::from_slice(&line).ok()
}

fn join_message(
    env: RankEnv,
    attempt: &AttemptDir,
    trial: &Trial,
    secret: Secret,
    cpus: Vec<u32>,
    hardware: Hardware,
) -> JoinMessage {
    let numbered_by_slurm = std::env::var_os("RANK").is_none();
    let node = std::env::var("SLURM_NODEID").ok().filter(|_| numbered_by_slurm);
    JoinMessage {
        trial: trial.id.clone(),
        attempt: attempt.number(),
        secret,
        rank: env.rank,
        node: node.unwrap_or_else(|| hardware.host.clone()),
        cpus,
        hardware,
    }
}

/// CPUs that this process may use.
fn allowed_cpus() -> Vec<u32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or_default().trim();
    let ranges = list.split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
    });
    ranges.flatten().collect()
}

/// Reserve a port: while the returned socket lives nobody else gets it, and a program can listen on it all the same.
///
/// The socket is bound and does not listen: the kernel then gives the port to no one who asks for any, and to one who
/// names it if both have set `SO_REUSEADDR`, as c10d's store, gRPC and Python's servers do (ip(7), socket(7)).
///
/// # Errors
/// The system has no port.
fn reserve_port() -> std::io::Result<(Socket, u16)> {
    let reserved = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    reserved.set_reuse_address(true)?;
    reserved.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into())?;
    let port = reserved.local_addr()?.as_socket().map(|address| address.port());
    Ok((reserved, port.ok_or_else(|| std::io::Error::other("the port has no number"))?))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_reserved_port_can_be_listened_on_and_is_given_to_no_one_else() {
        let (reserved, port) = reserve_port().unwrap();
        let others: Vec<(Socket, u16)> = (0..200).map(|_| reserve_port().unwrap()).collect();
        assert!(others.iter().all(|(_, other)| *other != port));
        // std sets SO_REUSEADDR.
        let listener = TcpListener::bind(("0.0.0.0", port)).unwrap();
        assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        drop((reserved, listener));
    }
}
