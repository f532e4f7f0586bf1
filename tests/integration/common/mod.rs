//! A project in a temporary folder, and the programs run in it as a user would.

pub mod browser;
pub mod cluster;
pub mod far_side;
pub mod job;
pub mod ledger;
pub mod local;
pub mod programs;
pub mod second_user;
pub mod traces;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use expctl_ledger::{AttemptDir, JobDir, Outcome};

/// A small config: seconds to run, two ranks that train.
pub const SMALL: &str = r#"
[experiment]
study = "006-kuzmin-tmi"
title = "Small"

[data]
samples = 200
scale = 0.05

[loader]
batch_size = 8
workers = 1

[model]
hidden = 8
heads = 2

[train]
mode = "train"
learning_rate = 0.01
# The published schedule starts with the reconstruction alone, which does not depend on the samples: equal parameters would
# then prove nothing about the data.
reconstruction = "uniform"

[measure]
warmup = 2
steps = 6
repeats = 1

[launch]
ranks = 2
heartbeat_timeout_s = 5

[variant.lazy]
pipeline.processor = "lazy"

[variant.ids]
pipeline.processor = "ids"

[compare]
baseline = "lazy"
"#;

/// A project folder that vanishes with the value.
pub struct TestProject {
    dir: tempfile::TempDir,
    /// Not in the project: it is no part of the code that jobs run from.
    cache: tempfile::TempDir,
}

impl TestProject {
    /// A project with the studies of this repository.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let studies = repository().join("experiments");
        std::os::unix::fs::symlink(studies, dir.path().join("experiments")).unwrap();
        std::fs::create_dir(dir.path().join("conf")).unwrap();
        Self { dir, cache: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// What its user caches.
    pub fn cache(&self) -> &Path {
        self.cache.path()
    }

    /// Write `conf/<name>.toml`.
    pub fn conf(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join("conf").join(format!("{name}.toml"));
        std::fs::write(&path, text).unwrap();
        path
    }

    /// `expctl` in this project.
    pub fn expctl(&self, args: &[&str]) -> Command {
        let mut command = Command::new(program());
        command
            .current_dir(self.path())
            .args(args)
            .env("NO_COLOR", "1")
            .env("XDG_CONFIG_HOME", self.path().join("config"))
            .env("XDG_CACHE_HOME", self.cache())
            .env("EXPCTL_WORKER", worker());
        for variable in [
            "EXPCTL_ROOT",
            "EXPCTL_DATA",
            "EXPCTL_RUNS",
            "EXPCTL_BACKEND",
            "EXPCTL_LOG",
            "EXPCTL_ON_END",
            "EXPCTL_PROFILE",
        ] {
            command.env_remove(variable);
        }
        command
    }

    /// Run to the end.
    pub fn run(&self, args: &[&str]) -> Output {
        self.expctl(args).stdin(Stdio::null()).output().unwrap()
    }

    /// Run to the end, and expect success; returns stdout.
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "expctl {args:?}: {}\n{}", output.status, text(&output.stderr));
        text(&output.stdout)
    }

    /// Run to the end with an exit code; returns stdout as JSON.
    pub fn json(&self, args: &[&str], code: i32) -> serde_json::Value {
        serde_json::from_str(&self.expect(args, code).0).unwrap()
    }

    /// `expctl compare --format json`.
    pub fn compare(&self, args: &[&str]) -> serde_json::Value {
        self.json(&[&["compare", "--format", "json"], args].concat(), 0)
    }

    /// A job of the ledger.
    pub fn job(&self, id: &str) -> JobDir {
        JobDir::new(self.path().join("results/runs").join(id.trim()))
    }

    /// Last attempt of the trial of a variant, once it exists.
    pub fn attempt(&self, job: &str, variant: &str) -> Option<AttemptDir> {
        let dir = self.job(job);
        let record = dir.record().ok()?;
        let trial = record.trials.iter().find(|t| t.variant == variant)?;
        dir.attempts(&trial.id).unwrap().pop()
    }

    /// Outcome of the last attempt of a variant.
    pub fn outcome(&self, job: &str, variant: &str) -> Outcome {
        self.attempt(job, variant).expect("an attempt").outcome().unwrap().expect("an outcome")
    }
}

/// Folder of the programs where they were not built here, but carried into this folder of a clone.
fn carried() -> Option<PathBuf> {
    std::env::var_os("EXPCTL_BIN").map(PathBuf::from)
}

/// The launcher that is tested.
pub fn program() -> PathBuf {
    carried().map_or_else(|| env!("CARGO_BIN_EXE_expctl").into(), |folder| folder.join("expctl"))
}

/// The clone that this is a test of.
fn repository() -> PathBuf {
    let carried = carried().and_then(|folder| folder.parent().map(Path::to_owned));
    carried.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into())
}

/// The worker, built beside the launcher by the same `cargo test --workspace`.
pub fn worker() -> PathBuf {
    let path = program().with_file_name("expctl-worker");
    assert!(path.is_file(), "{} is missing: run the tests with --workspace", path.display());
    path
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Equal but for rounding: within 1e-9 of the expected value.
pub fn close(value: &serde_json::Value, expected: f64) {
    let value = value.as_f64().unwrap_or_else(|| panic!("{value} is no number"));
    assert!((value - expected).abs() <= 1e-9 * expected.abs(), "{value} is not {expected}");
}

/// Copies a file, or a folder with all that is in it.
pub fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
            copy(&entry.path(), &to.join(entry.file_name()));
        }
    } else {
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(from, to).unwrap();
    }
}

/// How long a test waits for what should come soon: more than a machine at work on other things takes, and less than the ten
/// minutes after which a program that hangs would give up by itself.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Wait for something to become true.
pub fn wait_until<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < limit, "waited {limit:?} for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Processes of the worker that run an attempt below `folder`, by rank.
pub fn worker_pids(folder: &Path) -> Vec<(u32, i32)> {
    let folder = folder.to_string_lossy().into_owned();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
        let command = text(&std::fs::read(entry.path().join("cmdline")).unwrap_or_default());
        if !command.contains("--attempt") || !command.contains(&folder) {
            continue;
        }
        let environment = text(&std::fs::read(entry.path().join("environ")).unwrap_or_default());
        let rank = environment.split('\0').find_map(|v| v.strip_prefix("RANK=").or(v.strip_prefix("SLURM_PROCID=")));
        if let Some(rank) = rank.and_then(|r| r.parse().ok()) {
            found.push((rank, pid));
        }
    }
    found.sort_unstable();
    found
}

/// A child that does not outlive a failing test.
pub struct Guard(pub Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
