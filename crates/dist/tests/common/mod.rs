#![allow(dead_code, reason = "each test binary uses its own part")]
//! Runs the calling test binary again as ranks of their own: its ignored test `rank_entry` is where they start.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use expctl_dist::Store;

pub const LIMIT: Duration = Duration::from_secs(60);

/// What a rank is told.
pub struct Role {
    pub scenario: String,
    pub rank: u32,
    pub world: u32,
    pub port: u16,
}

impl Role {
    /// The role in the environment.
    pub fn from_env() -> Self {
        let text = std::env::var("EXPCTL_TEST_ROLE").expect("rank_entry is started by the other tests");
        let parts: Vec<&str> = text.split(' ').collect();
        Self {
            scenario: parts[0].to_owned(),
            rank: parts[1].parse().unwrap(),
            world: parts[2].parse().unwrap(),
            port: parts[3].parse().unwrap(),
        }
    }
}

/// A child that does not outlive its test.
pub struct Rank(pub Child);

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Rank {
    pub fn start(scenario: &str, rank: u32, world: u32, port: u16) -> Self {
        Self(command(scenario, rank, world, port).spawn().unwrap())
    }

    /// The same, with what it prints to stderr kept.
    pub fn start_piped(scenario: &str, rank: u32, world: u32, port: u16) -> Self {
        Self(command(scenario, rank, world, port).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Wait for a clean end.
    pub fn finish(mut self, limit: Duration) {
        let until = Instant::now() + limit;
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                assert!(status.success(), "rank ended with {status}");
                return;
            }
            assert!(Instant::now() < until, "rank still runs after {limit:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn command(scenario: &str, rank: u32, world: u32, port: u16) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["rank_entry", "--exact", "--ignored", "--nocapture"])
        .env("EXPCTL_TEST_ROLE", format!("{scenario} {rank} {world} {port}"))
        .env("OMP_NUM_THREADS", "1")
        .stdout(Stdio::null());
    command
}

/// The test's own store, where ranks meet and leave results.
pub fn serve() -> Store {
    Store::serve("127.0.0.1", 0, LIMIT).unwrap()
}

/// Text that a rank left.
pub fn text(store: &Store, key: &str) -> String {
    String::from_utf8(store.get(key).unwrap()).unwrap()
}
