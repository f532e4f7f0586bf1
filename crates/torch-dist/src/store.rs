use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::IntoRawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cxx::UniquePtr;

use crate::DistError;
use crate::ffi::bridge;

/// How long one address is tried before the next one gets its turn.
const PATIENCE: Duration = Duration::from_secs(2);

/// A connection to c10d's `TCPStore`, a key-value store that one process serves to all ranks.
///
/// Calls on one connection wait for each other. A thread that must not wait for another one's [`Store::get`] opens a
/// connection of its own. The server lives as long as the value that [`Store::serve`] returned, and as any
/// [`ProcessGroup`](crate::ProcessGroup) or reducer made from it; when the last of them is dropped, every other connection
/// fails.
///
/// Time limits are the server's word: c10d's client reads replies without a limit of its own. A server that is gone is an
/// error at once; one that is frozen (stopped, swapping, behind a dead network) holds every call but [`Store::set`] for as
/// long as it is, [`Store::wait`] too: at its limit that asks the server to forget the wait, and reads the answer. The same
/// holds for opening a connection, for the rendezvous and for making process groups. Who must not hang watches from a
/// thread that makes no calls to the store.
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
    /// Port 0 lets the kernel choose; [`Store::port`] says which. `timeout` limits each later [`Store::get`].
    ///
    /// # Errors
    /// The port is taken, or `host` does not lead here.
    pub fn serve(host: &str, port: u16, timeout: Duration) -> Result<Self, DistError> {
        Self::open(host, host, port, timeout, Some(-1), "serve the store")
    }

    /// The same on one address of this machine only, to which it connects.
    ///
    /// # Errors
    /// The address is not of this machine, or its port is taken.
    pub fn serve_on(address: IpAddr, port: u16, timeout: Duration) -> Result<Self, DistError> {
        let operation = "serve the store";
        let failed = |e: io::Error| DistError::Torch {
            operation: format!("{operation} at {}", SocketAddr::new(address, port)),
            message: e.to_string(),
        };
        let listener = TcpListener::bind((address, port)).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        // The server closes it.
        let descriptor = listener.into_raw_fd();
        Self::open(&address.to_string(), &address.to_string(), port, timeout, Some(descriptor), operation)
    }

    /// A store of this process alone: no port, no thread, and nobody else can reach it. For a world of one rank.
    /// Unlike a server's, a wait in it does not hear of a key that [`Store::add`] made; a look at it does.
    ///
    /// # Errors
    /// libtorch cannot make it.
    pub fn alone(timeout: Duration) -> Result<Self, DistError> {
        bridge::quiet();
        let handle = bridge::open_lone_store(millis(timeout)).map_err(DistError::torch("make a store"))?;
        Ok(Self { handle, host: "127.0.0.1".to_owned(), groups: AtomicU32::new(0) })
    }

    /// Another handle to the store that [`Store::alone`] made, for another thread. No call waits for one of the other
    /// handle, except as [`Store::get`] and [`Store::wait`] are meant to. Of a store over TCP it is the same connection.
    #[must_use]
    pub fn another(&self) -> Self {
        Self { handle: self.handle.another(), host: self.host.clone(), groups: AtomicU32::new(0) }
    }

    /// Connect to a store that is, or soon will be, served at `host:port`.
    ///
    /// # Errors
    /// [`DistError::Unreachable`] if nothing listens within `timeout`. A server that is frozen still listens: the kernel
    /// takes connections for it, and the call waits for its greeting.
    pub fn connect(host: &str, port: u16, timeout: Duration) -> Result<Self, DistError> {
        // libtorch retries on its own schedule, up to three times the limit; so the waiting is done here.
        let found = await_listener(host, port, timeout)?;
        // libtorch would begin again with the host's first address, and wait there if it is one that swallows packets.
        let answering = match found {
            SocketAddr::V6(address) if address.scope_id() != 0 => host.to_owned(),
            address => address.ip().to_string(),
        };
        Self::open(host, &answering, port, timeout, None, "connect to the store")
    }

    /// `serve`: nothing for a client, a bound socket that the server takes over, or -1 for one on all addresses.
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

    /// Limit each later [`Store::get`] to `timeout`, in the place of the one that the store was opened with.
    pub fn set_timeout(&self, timeout: Duration) {
        self.handle.set_timeout(millis(timeout));
    }

    /// Port of the server; 0 where there is none ([`Store::alone`]).
    pub fn port(&self) -> u16 {
        self.handle.port()
    }

    /// Write a value. Returns when it is sent; the server does not confirm it.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<(), DistError> {
        self.handle.set(key, value).map_err(DistError::torch(format!("set {key} in the store")))
    }

    /// Read a value, waiting for it to be written.
    ///
    /// # Errors
    /// It was not written within the store's time limit, or the server is gone. No limit holds if the server is frozen.
    pub fn get(&self, key: &str) -> Result<Vec<u8>, DistError> {
        self.handle.get(key).map_err(DistError::torch(format!("get {key} from the store")))
    }

    /// Read a value if it is there. Waits for a frozen server without limit.
    pub fn try_get(&self, key: &str) -> Result<Option<Vec<u8>>, DistError> {
        if self.check(&[key])? { self.get(key).map(Some) } else { Ok(None) }
    }

    /// Whether all keys are there. Waits for a frozen server without limit.
    pub fn check<K: AsRef<str>>(&self, keys: &[K]) -> Result<bool, DistError> {
        self.handle.check(&strings(keys)).map_err(DistError::torch("look for keys in the store"))
    }

    /// Add to a counter, which starts at 0, and return the sum. Waits for a frozen server without limit.
    pub fn add(&self, key: &str, amount: i64) -> Result<i64, DistError> {
        self.handle.add(key, amount).map_err(DistError::torch(format!("add to {key} in the store")))
    }

    /// Wait until all keys are there.
    ///
    /// # Errors
    /// `timeout` passed, or the server is gone. No limit holds if the server is frozen.
    pub fn wait<K: AsRef<str>>(&self, keys: &[K], timeout: Duration) -> Result<(), DistError> {
        self.handle.wait(&strings(keys), millis(timeout)).map_err(DistError::torch("wait for keys in the store"))
    }

    /// Key prefix of the next process group that is made through this connection. Ranks that make their groups in the
    /// same order get the same prefixes, and two groups never share one.
    pub(crate) fn next_group(&self) -> String {
        format!("group-{}", self.groups.fetch_add(1, Ordering::Relaxed))
    }
}

/// Wait until something listens at `host:port`; returns the address that answered.
fn await_listener(host: &str, port: u16, limit: Duration) -> Result<SocketAddr, DistError> {
    // Resolved each time: a host's name can appear later than its ranks.
    let resolve = || (host, port).to_socket_addrs().map(Iterator::collect);
    let connect = |address: &SocketAddr, patience| TcpStream::connect_timeout(address, patience).map(drop);
    first_to_answer(limit, resolve, connect).map_err(|error| DistError::Unreachable {
        address: format!("{host}:{port}"),
        limit,
        reason: error.to_string(),
    })
}

/// Try the addresses in turns until one answers or `limit` has passed. Each gets its share of the time and at most
/// [`PATIENCE`] a turn, so that one that swallows packets (IPv6 behind a firewall) does not use up the others' time.
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
                    match connect(address, share.clamp(Duration::from_millis(1), PATIENCE)) {
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

/// Milliseconds for libtorch; at least 1, because it reads 0 as "no limit".
pub(crate) fn millis(timeout: Duration) -> i64 {
    i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const DEAF: &str = "[2001:db8::1]:1";
    const LATE: &str = "192.0.2.1:1";

    /// The first address swallows packets; the second one refuses until it was asked `refusals` times.
    fn meet(limit: Duration, refusals: u32) -> (io::Result<SocketAddr>, Duration) {
        let (start, asked) = (Instant::now(), Cell::new(0));
        let found = first_to_answer(
            limit,
            || Ok([DEAF, LATE].map(|a| a.parse().unwrap()).to_vec()),
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
        let (found, took) = meet(Duration::from_secs(60), 1);
        assert_eq!(found.unwrap(), LATE.parse().unwrap());
        assert!(took < 3 * PATIENCE, "{took:?}");
        let (found, took) = meet(Duration::from_millis(400), 0);
        assert_eq!(found.unwrap(), LATE.parse().unwrap());
        assert!(took < Duration::from_millis(390), "{took:?}");
    }

    #[test]
    fn the_time_limit_holds() {
        let limit = Duration::from_millis(300);
        let (found, took) = meet(limit, u32::MAX);
        assert_eq!(found.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        assert!(took < 2 * limit, "{took:?}");
    }
}
