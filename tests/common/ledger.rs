//! A project in a temporary folder with a ledger written by the record crate's own writers.
#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot set up fails")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use expctl_record::{
    AttemptDir, Environment, Hardware, JobDir, JobRecord, Outcome, RankExit, RankStatus, Settings, Stage, StepRecord,
    StepsFile, TRIAL_SCHEMA_VERSION, Trial, TrialState, write_json, write_steps,
};

/// 2026-01-02 03:04:05 UTC.
pub const SUBMITTED: i64 = 1_767_323_045;

pub struct TestProject {
    dir: tempfile::TempDir,
}

impl TestProject {
    /// A project that ships the published results of this repository.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let published = Path::new("experiments/006-kuzmin-tmi/published");
        let to = dir.path().join(published);
        std::fs::create_dir_all(&to).unwrap();
        for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(published)).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
        Self { dir }
    }

    pub fn root(&self) -> &Path {
        self.dir.path()
    }

    pub fn path(&self, relative: &str) -> PathBuf {
        self.root().join(relative)
    }

    pub fn expctl(&self, args: &[&str]) -> assert_cmd::Command {
        let mut command = assert_cmd::Command::cargo_bin("expctl").unwrap();
        command.arg("--root").arg(self.root()).args(args).env_remove("EXPCTL_RUNS").env_remove("EXPCTL_DATA");
        command
    }

    /// Run, expect an exit code, and give back stdout and stderr.
    pub fn run(&self, args: &[&str], code: i32) -> (String, String) {
        let assert = self.expctl(args).assert().code(code);
        let output = assert.get_output();
        let text =
            |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap().replace(self.root().to_str().unwrap(), "ROOT");
        (text(&output.stdout), text(&output.stderr))
    }

    pub fn job(&self, id: u64, config: &str, trials: Vec<Trial>) -> JobDir {
        let dir = JobDir::new(self.path("results/runs").join(id.to_string()));
        let record = JobRecord {
            schema: TRIAL_SCHEMA_VERSION,
            job: id,
            backend: "local".into(),
            config: config.into(),
            study: "006-kuzmin-tmi".into(),
            config_path: format!("conf/{config}.toml").into(),
            overrides: Vec::new(),
            submitted: SUBMITTED,
            commit: Some("0123abc".into()),
            expctl_version: "0.1.0".into(),
            baseline: trials.first().map(|t| t.variant.clone()),
            trials,
        };
        write_json(&dir.record_path(), &record).unwrap();
        dir
    }

    /// Take what the files say the data is.
    pub fn data_dir(&self) -> PathBuf {
        self.path("data/006-kuzmin-tmi/small")
    }

    pub fn trial(&self, variant: &str, method: &str, repeat: u32, change: impl FnOnce(&mut Settings)) -> Trial {
        let mut settings = settings();
        change(&mut settings);
        Trial {
            schema: TRIAL_SCHEMA_VERSION,
            id: format!("{variant}-r{repeat}-0a1b2c"),
            config: "086_ddp".into(),
            variant: variant.into(),
            method: method.into(),
            point: BTreeMap::new(),
            repeat,
            settings,
            data_dir: self.data_dir(),
        }
    }
}

pub fn settings() -> Settings {
    serde_json::from_value(serde_json::json!({
        "experiment": { "study": "006-kuzmin-tmi", "title": "Loading with two ranks", "description": "Which part waits?",
            "measures": ["loading"], "does_not_measure": ["the optimizer"] },
        "data": { "set": "006-kuzmin-tmi", "samples": 1000, "scale": 0.1, "networks": "real", "seed": 1 },
        "pipeline": { "processor": "lazy", "edge_types": ["physical", "tflink"] },
        "loader": { "batch_size": 28, "workers": 4, "prefetch_factor": 2, "pin_memory": false, "shuffle": true,
            "drop_last": true, "seed": 1 },
        "model": { "kind": "dango", "hidden": 64, "heads": 4, "layers": 2, "edge_types": ["physical"], "seed": 1 },
        "train": { "mode": "train", "optimizer": "adamw", "learning_rate": 0.001, "weight_decay": 0.0, "clip_norm": 1.0,
            "reconstruction": "off" },
        "measure": { "warmup": 2, "steps": 20, "repeats": 3 },
        "launch": { "ranks": 2, "threads": 1, "rendezvous_timeout_s": 60, "heartbeat_timeout_s": 60 },
        "slurm": { "partition": "", "account": "", "cpus_per_rank": 1, "memory_mib": 0, "time_min": 0, "throttle": 0 }
    }))
    .unwrap()
}

/// Two warm-up steps of a second, then 20 measured ones of `wall_ms`: of these, half waits on collate, a quarter is forward, and
/// `allreduce_ms` the wait for the other rank.
pub fn steps(wall_ms: u64, allreduce_ms: u64) -> Vec<StepRecord> {
    const MS: u64 = 1_000_000;
    let mut start_ns = 0;
    (0..22)
        .map(|step| {
            let measured = step >= 2;
            let wall_ns = if measured { wall_ms * MS } else { 1000 * MS };
            let mut record = StepRecord {
                step,
                measured,
                start_ns,
                wall_ns,
                samples: 28,
                bytes_read: 28 * 400,
                bytes_batch: 1_155_400_000,
                loss: Some(0.5),
                ..StepRecord::default()
            };
            record.exposed[Stage::Collate] = wall_ns / 2;
            record.busy[Stage::Collate] = wall_ns * 2;
            record.busy[Stage::Mask] = wall_ns / 5;
            record.exposed[Stage::Forward] = wall_ns / 4;
            record.busy[Stage::Forward] = wall_ns / 4;
            record.exposed[Stage::Allreduce] = allreduce_ms * MS;
            record.busy[Stage::Allreduce] = allreduce_ms * MS;
            start_ns += wall_ns;
            record
        })
        .collect()
}

/// An attempt with steps and environment, but without outcome: as while it runs.
pub fn running(job: &JobDir, trial: &Trial, ranks: &[Vec<StepRecord>]) -> AttemptDir {
    let attempt = job.next_attempt(&trial.id).unwrap();
    write_json(&attempt.trial_path(), trial).unwrap();
    let hardware = |rank: usize| Hardware {
        host: format!("node{rank}"),
        cpu: "Test CPU".into(),
        cpus: 2,
        memory_bytes: 64_000_000_000,
        kernel: "6.1".into(),
    };
    let environment = Environment {
        worker_version: "0.1.0".into(),
        libtorch_version: "2.11.0".into(),
        device: "cpu".into(),
        backend: "gloo".into(),
        threads: 1,
        ranks: (0..ranks.len()).map(hardware).collect(),
        variables: BTreeMap::from([("OMP_NUM_THREADS".into(), "1".into())]),
    };
    write_json(&attempt.environment_path(), &environment).unwrap();
    for (rank, steps) in ranks.iter().enumerate() {
        let table = StepsFile {
            trial: trial.id.clone(),
            rank: rank as u32,
            world_size: ranks.len() as u32,
            steps: steps.clone(),
        };
        write_steps(&attempt.steps_path(rank as u32), &table).unwrap();
    }
    attempt
}

pub fn finish(attempt: &AttemptDir, ranks: &[Vec<StepRecord>], state: TrialState, message: &str) {
    let status = if state == TrialState::Completed { RankStatus::Completed } else { RankStatus::Killed };
    let exit = |(rank, steps): (usize, &Vec<StepRecord>)| RankExit {
        rank: rank as u32,
        status,
        message: message.into(),
        lost_peer: None,
        steps: steps.len() as u64,
        parameters_digest: None,
        exit_code: None,
        signal: None,
    };
    let outcome = Outcome {
        state,
        message: message.into(),
        failed_rank: None,
        started: SUBMITTED + 10,
        ended: SUBMITTED + 20,
        ranks: ranks.iter().enumerate().map(exit).collect(),
    };
    outcome.save(attempt).unwrap();
}

pub fn completed(job: &JobDir, trial: &Trial, ranks: &[Vec<StepRecord>]) {
    finish(&running(job, trial, ranks), ranks, TrialState::Completed, "");
}

/// Three runs each of lazy (400, 410, 390 ms) and ids (100, 102, 98 ms), on two ranks of which rank 1 is late.
pub fn two_variants(project: &TestProject, id: u64) -> JobDir {
    let mut trials = Vec::new();
    for repeat in 1..=3 {
        trials.push(project.trial("lazy", "Lazy", repeat, |_| {}));
    }
    for repeat in 1..=3 {
        trials.push(project.trial("ids", "Ids only", repeat, |s| {
            s.pipeline.processor = expctl_record::Processor::Ids;
            s.loader.workers = 1;
        }));
    }
    let dir = project.job(id, "086_ddp", trials.clone());
    for (trial, wall) in trials.iter().zip([400, 410, 390, 100, 102, 98]) {
        completed(&dir, trial, &[steps(wall, wall / 5), steps(wall, wall / 50)]);
    }
    dir
}
