#![allow(dead_code, reason = "each test binary uses its own part")]
//! Runs the calling test binary again as ranks of their own: its ignored test `rank_entry` is where they start.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use expctl_dist::{ProcessGroup, Store, rendezvous};
use expctl_rounding::distance;

pub const LIMIT: Duration = Duration::from_secs(60);

/// What a rank is told.
pub struct Role {
    pub scenario: String,
    /// Of `SCENARIO~NEIGHBOUR`: the neighbour of the start that it runs from.
    pub neighbour: Option<u32>,
    pub rank: u32,
    pub world: u32,
    pub port: u16,
}

impl Role {
    /// The role in the environment.
    pub fn from_env() -> Self {
        let text = std::env::var("EXPCTL_TEST_ROLE").expect("rank_entry is started by the other tests");
        let parts: Vec<&str> = text.split(' ').collect();
        let (scenario, neighbour) = parts[0].split_once('~').map_or((parts[0], None), |(of, n)| (of, Some(n)));
        Self {
            scenario: scenario.to_owned(),
            neighbour: neighbour.map(|n| n.parse().unwrap()),
            rank: parts[1].parse().unwrap(),
            world: parts[2].parse().unwrap(),
            port: parts[3].parse().unwrap(),
        }
    }
}

/// The store of the test, and a group with the other ranks; one thread each.
pub fn meet(role: &Role) -> (Store, ProcessGroup) {
    let store = Store::connect("127.0.0.1", role.port, LIMIT).unwrap();
    rendezvous(&store, role.rank, role.world, LIMIT).unwrap();
    let group = ProcessGroup::gloo(&store, role.rank, role.world, LIMIT).unwrap();
    tch::set_num_threads(1);
    (store, group)
}

/// Leave a model's parameters and their digest for [`trained`].
pub fn leave(role: &Role, store: &Store, group: &ProcessGroup, parameters: &[f32], digest: &str) {
    let bytes: Vec<u8> = parameters.iter().flat_map(|v| v.to_le_bytes()).collect();
    store.set(&format!("digest/{}", role.rank), digest.as_bytes()).unwrap();
    store.set(&format!("parameters/{}", role.rank), &bytes).unwrap();
    group.barrier().unwrap();
}

/// What ranks that ran a scenario left: parameters and digests, by rank.
pub fn trained(scenario: &str, world: u32) -> (Vec<Vec<f32>>, Vec<String>) {
    let store = serve();
    let ranks: Vec<Rank> = (0..world).map(|r| Rank::start(scenario, r, world, store.port())).collect();
    ranks.into_iter().for_each(|r| r.finish(LIMIT));
    let values = |r| {
        let bytes = store.get(&format!("parameters/{r}")).unwrap();
        bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    };
    ((0..world).map(values).collect(), (0..world).map(|r| text(&store, &format!("digest/{r}"))).collect())
}

/// All parameters that rank 0 ends with.
pub fn ends_with(scenario: &str, world: u32) -> Vec<f64> {
    trained(scenario, world).0[0].iter().map(|value| f64::from(*value)).collect()
}

/// How far one rank ends from `exact`, the end of one rank in `scenario`, if it starts from neighbouring parameters. Two starts,
/// since a model has so many parameters.
pub fn neighbours_end(scenario: &str, exact: &[f64]) -> Vec<f64> {
    (0..2).map(|neighbour| distance(&ends_with(&format!("{scenario}~{neighbour}"), 1), exact)).collect()
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
