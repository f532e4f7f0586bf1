use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cxx::UniquePtr;

use crate::DistError;
use crate::ffi::bridge;

/// A connection to c10d's `TCPStore`, a key-value store that one process serves to all ranks.
///
/// Calls on one connection wait for each other. A thread that must not wait for another one's [`Store::get`] opens a
/// connection of its own. The server lives as long as the value that [`Store::serve`] returned; dropping that makes
/// every other connection fail.
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
    /// Port 0 lets the kernel choose; [`Store::port`] says which. `timeout` limits each later call.
    ///
    /// # Errors
    /// The port is taken, or `host` does not lead here.
    pub fn serve(host: &str, port: u16, timeout: Duration) -> Result<Self, DistError> {
        Self::open(host, port, timeout, true, "serve the store")
    }

    /// Connect to a store that is, or soon will be, served at `host:port`.
    ///
    /// # Errors
    /// [`DistError::Unreachable`] if nothing answers within `timeout`.
    pub fn connect(host: &str, port: u16, timeout: Duration) -> Result<Self, DistError> {
        // libtorch retries on its own schedule, up to three times the limit; so the waiting is done here.
        await_listener(host, port, timeout)?;
        Self::open(host, port, timeout, false, "connect to the store")
    }

    fn open(host: &str, port: u16, timeout: Duration, serve: bool, what: &str) -> Result<Self, DistError> {
        bridge::quiet();
        let handle = bridge::open_store(host, port, serve, millis(timeout))
            .map_err(DistError::torch(format!("{what} at {host}:{port}")))?;
        Ok(Self { handle, host: host.to_owned(), groups: AtomicU32::new(0) })
    }

    /// Port of the server.
    pub fn port(&self) -> u16 {
        self.handle.port()
    }

    /// Write a value.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<(), DistError> {
        self.handle.set(key, value).map_err(DistError::torch(format!("set {key} in the store")))
    }

    /// Read a value, waiting for it to be written.
    ///
    /// # Errors
    /// It was not written within the store's time limit, or the server is gone.
    pub fn get(&self, key: &str) -> Result<Vec<u8>, DistError> {
        self.handle.get(key).map_err(DistError::torch(format!("get {key} from the store")))
    }

    /// Read a value if it is there.
    pub fn try_get(&self, key: &str) -> Result<Option<Vec<u8>>, DistError> {
        if self.check(&[key])? { self.get(key).map(Some) } else { Ok(None) }
    }

    /// Whether all keys are there.
    pub fn check<K: AsRef<str>>(&self, keys: &[K]) -> Result<bool, DistError> {
        self.handle.check(&strings(keys)).map_err(DistError::torch("look for keys in the store"))
    }

    /// Add to a counter, which starts at 0, and return the sum.
    pub fn add(&self, key: &str, amount: i64) -> Result<i64, DistError> {
        self.handle.add(key, amount).map_err(DistError::torch(format!("add to {key} in the store")))
    }

    /// Wait until all keys are there.
    ///
    /// # Errors
    /// `timeout` passed, or the server is gone.
    pub fn wait<K: AsRef<str>>(&self, keys: &[K], timeout: Duration) -> Result<(), DistError> {
        self.handle.wait(&strings(keys), millis(timeout)).map_err(DistError::torch("wait for keys in the store"))
    }

    /// Key prefix of the next process group that is made through this connection. Ranks that make their groups in the
    /// same order get the same prefixes, and two groups never share one.
    pub(crate) fn next_group(&self) -> String {
        format!("group-{}", self.groups.fetch_add(1, Ordering::Relaxed))
    }
}

fn await_listener(host: &str, port: u16, limit: Duration) -> Result<(), DistError> {
    const PAUSE: Duration = Duration::from_millis(50);
    let until = Instant::now() + limit;
    loop {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        // Resolved each time: a host's name can appear later than its ranks.
        let tried = (host, port).to_socket_addrs().and_then(|addresses| {
            let mut last = io::Error::other("the host has no address");
            for address in addresses {
                match TcpStream::connect_timeout(&address, left) {
                    Ok(_) => return Ok(()),
                    Err(error) => last = error,
                }
            }
            Err(last)
        });
        let Err(error) = tried else { return Ok(()) };
        if Instant::now() + PAUSE >= until {
            return Err(DistError::Unreachable { address: format!("{host}:{port}"), limit, reason: error.to_string() });
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
