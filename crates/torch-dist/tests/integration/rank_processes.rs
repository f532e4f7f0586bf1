#![allow(dead_code, reason = "each crate that includes this file uses its own part")]
//! Runs the calling test binary again, in processes of their own: an ignored test is where they start.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use expctl_rounding::distance;
use torch_dist::{ProcessGroup, Store, rendezvous};

pub const LIMIT: Duration = Duration::from_secs(60);

/// The part of a rank in a test.
pub struct Role {
    pub scenario: String,
    /// The neighbour of the start that the rank runs from, given as `SCENARIO~NEIGHBOUR`.
    pub neighbour: Option<u32>,
    pub rank: u32,
    pub world: u32,
    pub port: u16,
}

impl Role {
    /// The role in the environment.
    pub fn from_env() -> Self {
        let text = std::env::var("EXPCTL_TEST_ROLE").expect("rank_entry is started by the other tests");
        let words: Vec<&str> = text.split(' ').collect();
        let (scenario, neighbour) = words[0].split_once('~').map_or((words[0], None), |(of, n)| (of, Some(n)));
        Self {
            scenario: scenario.to_owned(),
            neighbour: neighbour.map(|n| n.parse().unwrap()),
            rank: words[1].parse().unwrap(),
            world: words[2].parse().unwrap(),
            port: words[3].parse().unwrap(),
        }
    }

    /// Connect to the store of the test, and to the other ranks; one thread each.
    pub fn connect(&self) -> (Store, ProcessGroup) {
        let store = Store::connect("127.0.0.1", self.port, LIMIT).unwrap();
        rendezvous(&store, self.rank, self.world, LIMIT).unwrap();
        let group = ProcessGroup::gloo(&store, self.rank, self.world, LIMIT).unwrap();
        tch::set_num_threads(1);
        (store, group)
    }

    /// Leave the parameters of a model and their digest in the store, for [`RankEntry::train`].
    pub fn report(&self, store: &Store, group: &ProcessGroup, parameters: &[f32], digest: &str) {
        let bytes: Vec<u8> = parameters.iter().flat_map(|v| v.to_le_bytes()).collect();
        store.set(&format!("digest/{}", self.rank), digest.as_bytes()).unwrap();
        store.set(&format!("parameters/{}", self.rank), &bytes).unwrap();
        group.barrier().unwrap();
    }
}

/// The ignored test where ranks start, by its full name.
#[derive(Clone, Copy)]
pub struct RankEntry(pub &'static str);

impl RankEntry {
    /// Start a rank.
    pub fn start(self, scenario: &str, rank: u32, world: u32, port: u16) -> RankProcess {
        RankProcess(self.command(scenario, rank, world, port).spawn().unwrap())
    }

    /// Start a rank whose standard error is captured.
    pub fn start_piped(self, scenario: &str, rank: u32, world: u32, port: u16) -> RankProcess {
        RankProcess(self.command(scenario, rank, world, port).stderr(Stdio::piped()).spawn().unwrap())
    }

    fn command(self, scenario: &str, rank: u32, world: u32, port: u16) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args([self.0, "--exact", "--ignored", "--nocapture"])
            .env("EXPCTL_TEST_ROLE", format!("{scenario} {rank} {world} {port}"))
            .env("OMP_NUM_THREADS", "1")
            .stdout(Stdio::null());
        command
    }

    /// Run a scenario on `world` ranks; returns the reported parameters and digests, by rank.
    pub fn train(self, scenario: &str, world: u32) -> (Vec<Vec<f32>>, Vec<String>) {
        let store = serve_store();
        let ranks: Vec<RankProcess> = (0..world).map(|r| self.start(scenario, r, world, store.port())).collect();
        ranks.into_iter().for_each(|r| r.finish(LIMIT));
        let values = |r| {
            let bytes = store.get(&format!("parameters/{r}")).unwrap();
            bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
        };
        let digests = (0..world).map(|r| text(&store, &format!("digest/{r}"))).collect();
        ((0..world).map(values).collect(), digests)
    }

    /// The parameters that rank 0 ends with.
    pub fn final_parameters(self, scenario: &str, world: u32) -> Vec<f64> {
        self.train(scenario, world).0[0].iter().map(|value| f64::from(*value)).collect()
    }

    /// How far one rank ends from `exact`, the end of one rank in `scenario`, if it starts from neighbouring parameters. Two starts,
    /// since a model has so many parameters.
    pub fn neighbour_distances(self, scenario: &str, exact: &[f64]) -> Vec<f64> {
        let end = |neighbour| self.final_parameters(&format!("{scenario}~{neighbour}"), 1);
        (0..2).map(|neighbour| distance(&end(neighbour), exact)).collect()
    }
}

/// A child that does not outlive its test.
pub struct RankProcess(pub Child);

impl Drop for RankProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl RankProcess {
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

/// Run the ignored test with the full name `entry` in a process of its own.
pub fn run_alone(entry: &str) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([entry, "--exact", "--ignored", "--nocapture"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}{stderr}");
}

/// The store of the test, where ranks meet and report.
pub fn serve_store() -> Store {
    Store::serve("127.0.0.1", 0, LIMIT).unwrap()
}

/// Text that a rank left in the store.
pub fn text(store: &Store, key: &str) -> String {
    String::from_utf8(store.get(key).unwrap()).unwrap()
}
