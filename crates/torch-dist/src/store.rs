//! `Store` is a connection to the key-value store through which ranks find each other; `rendezvous` waits for all of them and
//! names those that are missing.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::IntoRawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cxx::UniquePtr;

use crate::DistError;
use crate::ffi::bridge;

/// Time limit of a try at one address, before the next one.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection to c10d's `TCPStore`, a key-value store that one process serves to all ranks.
///
/// Calls on one connection wait for each other. A thread that must not wait for another thread's [`Store::get`] opens a connection of its own.
/// The server lives as long as the value that [`Store::serve`] returned, and as any [`ProcessGroup`](crate::ProcessGroup) or reducer made from
/// it; when the last of them is dropped, every other connection fails.
///
/// The server enforces time limits: c10d's client reads replies without a limit of its own. A server that is gone is an error at once. A frozen
/// server (stopped, swapping, behind a dead network) blocks every call but [`Store::set`] until it resumes; [`Store::wait`] too, which at its
/// limit asks the server to cancel the wait, and reads the answer. The same holds for opening a connection, for the rendezvous and for making
/// process groups. A caller that must not hang watches from a thread that makes no calls to the store.
pub struct Store {
    pub(crate) handle: UniquePtr<bridge::StoreHandle>,
    pub(crate) host: String,
    pub(crate) groups: AtomicU32,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("host", &self.host).field("port", &self.port()).finish()
    }
}

impl Store {
    /// Serve a store on all addresses of this machine, and connect to it as `host`.
    ///
    /// With port 0 the kernel chooses; see [`Store::port`]. `timeout` limits each later [`Store::get`].
    ///
    /// # Errors
    /// The port is taken, or `host` is not this machine.
    pub fn serve(host: &str, port: u16, timeout: Duration) -> Result<Self, DistError> {
        Self::open(host, host, port, timeout, Some(-1), "serve the store")
    }

    /// Serve a store on one address of this machine only, and connect to it there.
    ///
    /// # Errors
    /// The address is not one of this machine, or its port is taken.
    pub fn serve_on(address: IpAddr, port: u16, timeout: Duration) -> Result<Self, DistError> {
        let requested = SocketAddr::new(address, port);
        let failed = |e: io::Error| DistError::Listen { address: requested, reason: e.to_string() };
        let listener = TcpListener::bind((address, port)).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        // The server closes it.
        let descriptor = listener.into_raw_fd();
        Self::open(&address.to_string(), &address.to_string(), port, timeout, Some(descriptor), "serve the store")
    }

    /// A store within this process, for a world of one rank: no port, no thread, and no other process can reach it. Unlike with a server,
    /// [`Store::wait`] does not notice a key that [`Store::add`] made; [`Store::check`] does.
    ///
    /// # Errors
    /// libtorch fails.
    pub fn in_process(timeout: Duration) -> Result<Self, DistError> {
        bridge::quiet();
        let handle = bridge::open_lone_store(millis(timeout)).map_err(DistError::torch("make a store"))?;
        Ok(Self { handle, host: "127.0.0.1".to_owned(), groups: AtomicU32::new(0) })
    }

    /// Another handle to a store of [`Store::in_process`], for another thread. Calls of different handles do not wait for each other, except as
    /// [`Store::get`] and [`Store::wait`] are meant to. For a store over TCP both handles share one connection.
    #[must_use]
    pub fn another_handle(&self) -> Self {
        Self { handle: self.handle.another(), host: self.host.clone(), groups: AtomicU32::new(0) }
    }

    /// Connect to a store that is, or soon will be, served at `host:port`.
    ///
    /// # Errors
    /// [`DistError::Unreachable`] if nothing listens within `timeout`. A frozen server still listens: the kernel accepts connections for it, and
    /// the call waits for its greeting.
    pub fn connect(host: &str, port: u16, timeout: Duration) -> Result<Self, DistError> {
        // libtorch retries on its own schedule, up to three times the limit: so this waits itself.
        let found = await_listener(host, port, timeout)?;
        // libtorch would start again with the host's first address, and wait there if packets to it are dropped.
        let answering = match found {
            SocketAddr::V6(address) if address.scope_id() != 0 => host.to_owned(),
            address => address.ip().to_string(),
        };
        Self::open(host, &answering, port, timeout, None, "connect to the store")
    }

    /// `serve`: `None` for a client, a bound socket that the server takes over, or -1 for all addresses.
    fn open(
        host: &str,
        address: &str,
        port: u16,
        timeout: Duration,
        serve: Option<i32>,
        what: &str,
    ) -> Result<Self, DistError> {
        bridge::quiet();
        let handle = bridge::open_store(address, port, serve.is_some(), serve.unwrap_or(-1), millis(timeout))
            .map_err(DistError::torch(format!("{what} at {host}:{port}")))?;
        Ok(Self { handle, host: host.to_owned(), groups: AtomicU32::new(0) })
    }

    /// Limit each later [`Store::get`] to `timeout`, instead of the limit that the store was opened with.
    pub fn set_timeout(&self, timeout: Duration) {
        self.handle.set_timeout(millis(timeout));
    }

    /// Port of the server; 0 without one ([`Store::in_process`]).
    pub fn port(&self) -> u16 {
        self.handle.port()
    }

    /// Write a value. Returns when it is sent; the server does not confirm it.
    ///
    /// # Errors
    /// The server is gone.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<(), DistError> {
        self.handle.set(key, value).map_err(DistError::torch(format!("set {key} in the store")))
    }

    /// Read a value, waiting for it to be written.
    ///
    /// # Errors
    /// The key was not written within the store's time limit, or the server is gone. A frozen server blocks without limit.
    pub fn get(&self, key: &str) -> Result<Vec<u8>, DistError> {
        self.handle.get(key).map_err(DistError::torch(format!("get {key} from the store")))
    }

    /// Read a value if it exists. A frozen server blocks without limit.
    ///
    /// # Errors
    /// The server is gone.
    pub fn try_get(&self, key: &str) -> Result<Option<Vec<u8>>, DistError> {
        if self.check(&[key])? { self.get(key).map(Some) } else { Ok(None) }
    }

    /// Whether all keys exist. A frozen server blocks without limit.
    ///
    /// # Errors
    /// The server is gone.
    pub fn check<K: AsRef<str>>(&self, keys: &[K]) -> Result<bool, DistError> {
        self.handle.check(&strings(keys)).map_err(DistError::torch("look for keys in the store"))
    }

    /// Add to a counter, which starts at 0, and return the sum. A frozen server blocks without limit.
    ///
    /// # Errors
    /// The server is gone.
    pub fn add(&self, key: &str, amount: i64) -> Result<i64, DistError> {
        self.handle.add(key, amount).map_err(DistError::torch(format!("add to {key} in the store")))
    }

    /// Wait until all keys exist.
    ///
    /// # Errors
    /// `timeout` passed, or the server is gone. A frozen server blocks without limit.
    pub fn wait<K: AsRef<str>>(&self, keys: &[K], timeout: Duration) -> Result<(), DistError> {
        self.handle.wait(&strings(keys), millis(timeout)).map_err(DistError::torch("wait for keys in the store"))
    }

    /// Key prefix of the next process group that is made through this connection. Ranks that make their groups in the same order get the same
    /// prefixes, and two groups never share one.
    pub(crate) fn next_group(&self) -> String {
        format!("group-{}", self.groups.fetch_add(1, Ordering::Relaxed))
    }
}

/// Wait until something listens at `host:port`; returns the address that answered.
fn await_listener(host: &str, port: u16, limit: Duration) -> Result<SocketAddr, DistError> {
    // Resolved for each try: the name of a host can appear later than its ranks.
    let resolve = || (host, port).to_socket_addrs().map(Iterator::collect);
    let connect = |address: &SocketAddr, patience| TcpStream::connect_timeout(address, patience).map(drop);
    first_to_answer(limit, resolve, connect).map_err(|error| DistError::Unreachable {
        address: format!("{host}:{port}"),
        limit,
        reason: error.to_string(),
    })
}

/// Try the addresses in turns until one answers or `limit` has passed. Each try gets its share of the time and at most [`ADDRESS_TIMEOUT`], so that
/// an address to which packets are dropped (IPv6 behind a firewall) does not use up the time of the others.
fn first_to_answer(
    limit: Duration,
    resolve: impl Fn() -> io::Result<Vec<SocketAddr>>,
    connect: impl Fn(&SocketAddr, Duration) -> io::Result<()>,
) -> io::Result<SocketAddr> {
    const PAUSE: Duration = Duration::from_millis(50);
    let until = Instant::now() + limit;
    loop {
        let mut last = io::Error::other("the host has no address");
        match resolve() {
            Ok(addresses) => {
                for (tried, address) in addresses.iter().enumerate() {
                    let share = until.saturating_duration_since(Instant::now()) / (addresses.len() - tried) as u32;
                    match connect(address, share.clamp(Duration::from_millis(1), ADDRESS_TIMEOUT)) {
                        Ok(()) => return Ok(*address),
                        Err(error) => last = error,
                    }
                }
            }
            Err(error) => last = error,
        }
        if Instant::now() + PAUSE >= until {
            return Err(last);
        }
        std::thread::sleep(PAUSE);
    }
}

fn strings<K: AsRef<str>>(keys: &[K]) -> Vec<String> {
    keys.iter().map(|k| k.as_ref().to_owned()).collect()
}

/// Milliseconds for libtorch; at least 1, because 0 means "no limit" there.
pub(crate) fn millis(timeout: Duration) -> i64 {
    i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX).max(1)
}

/// Announce this rank and wait until all `world` ranks have announced themselves.
///
/// A store serves one rendezvous: ranks that start again need a new store.
///
/// # Errors
/// [`DistError::MissingRanks`] with the ranks that did not appear within `timeout`; [`DistError::Torch`] if the store is gone.
pub fn rendezvous(store: &Store, rank: u32, world: u32, timeout: Duration) -> Result<(), DistError> {
    rendezvous_until(store, rank, world, Instant::now() + timeout, timeout)
}

/// [`rendezvous`] for a caller that has used a part of its time limit: wait until `deadline`, and report `limit`, the whole limit, in the
/// error.
///
/// # Errors
/// As [`rendezvous`].
pub fn rendezvous_until(
    store: &Store,
    rank: u32,
    world: u32,
    deadline: Instant,
    limit: Duration,
) -> Result<(), DistError> {
    let keys: Vec<String> = (0..world).map(rendezvous_key).collect();
    store.set(&rendezvous_key(rank), b"here")?;
    let remaining = deadline.saturating_duration_since(Instant::now());
    let Err(waited) = store.wait(&keys, remaining) else { return Ok(()) };
    let mut missing = Vec::new();
    for other in 0..world {
        // If the store itself is gone, the first error says more than the second.
        if !store.check(&[rendezvous_key(other)]).map_err(|_| waited.clone())? {
            missing.push(other);
        }
    }
    // The last rank may have appeared between the wait and the check.
    if missing.is_empty() { Ok(()) } else { Err(DistError::MissingRanks { missing, world, limit }) }
}

fn rendezvous_key(rank: u32) -> String {
    format!("rendezvous/rank-{rank}")
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const DROPS_PACKETS: &str = "[2001:db8::1]:1";
    const LATE: &str = "192.0.2.1:1";

    /// The first address swallows packets; the second one refuses until it was asked `refusals` times.
    fn first_answer(limit: Duration, refusals: u32) -> (io::Result<SocketAddr>, Duration) {
        let (start, asked) = (Instant::now(), Cell::new(0));
        let found = first_to_answer(
            limit,
            || Ok([DROPS_PACKETS, LATE].map(|a| a.parse().unwrap()).to_vec()),
            |address, patience| {
                if address.is_ipv6() {
                    std::thread::sleep(patience);
                    return Err(io::ErrorKind::TimedOut.into());
                }
                asked.set(asked.get() + 1);
                if asked.get() > refusals { Ok(()) } else { Err(io::ErrorKind::ConnectionRefused.into()) }
            },
        );
        (found, start.elapsed())
    }

    #[test]
    fn an_address_that_swallows_packets_leaves_time_for_the_others() {
        let (found, took) = first_answer(Duration::from_secs(60), 1);
        assert_eq!(found.unwrap(), LATE.parse().unwrap());
        assert!(took < 3 * ADDRESS_TIMEOUT, "{took:?}");
        let (found, took) = first_answer(Duration::from_millis(400), 0);
        assert_eq!(found.unwrap(), LATE.parse().unwrap());
        assert!(took < Duration::from_millis(390), "{took:?}");
    }

    #[test]
    fn the_time_limit_holds() {
        let limit = Duration::from_millis(300);
        let (found, took) = first_answer(limit, u32::MAX);
        assert_eq!(found.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        assert!(took < 2 * limit, "{took:?}");
    }
}
