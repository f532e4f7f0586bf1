//! Ledgers written by the record crate's own writers, so that a test needs neither worker nor data set.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use expctl_ledger::{
    AttemptDir, Environment, Hardware, JobDir, JobRecord, Outcome, RankExit, RankStatus, Stage, StepRecord, StepsTable,
    TrialState, write_json, write_steps,
};
use expctl_settings::{Settings, TRIAL_SCHEMA_VERSION, Trial};

use super::{TestProject, text};

/// 2026-01-02 03:04:05 UTC.
pub const SUBMITTED: i64 = 1_767_323_045;

impl TestProject {
    pub fn file(&self, relative: &str) -> PathBuf {
        self.path().join(relative)
    }

    /// Run, expect an exit code, and give back stdout and stderr with the project's folder called ROOT.
    pub fn expect(&self, args: &[&str], code: i32) -> (String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_expctl"));
        command.arg("--root").arg(self.path()).args(args).env("XDG_CACHE_HOME", self.cache());
        command.env_remove("EXPCTL_RUNS").env_remove("EXPCTL_DATA");
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = |bytes: &[u8]| text(bytes).replace(self.path().to_str().unwrap(), "ROOT");
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "expctl {args:?}\n{stdout}{stderr}");
        (stdout, stderr)
    }

    /// Write `job.json`; the first trial's variant is the baseline.
    pub fn submitted(&self, id: u64, config: &str, trials: Vec<Trial>) -> JobDir {
        let baseline = trials.first().map(|t| t.variant.clone());
        self.submitted_as(id, config, trials, |record| record.baseline = baseline)
    }

    /// Write `job.json` with a change.
    pub fn submitted_as(
        &self,
        id: u64,
        config: &str,
        trials: Vec<Trial>,
        change: impl FnOnce(&mut JobRecord),
    ) -> JobDir {
        let dir = self.job(&id.to_string());
        let mut record = JobRecord {
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
            baseline: None,
            estimators: Vec::new(),
            verifies: None,
            search: None,
            reruns: None,
            trials,
        };
        change(&mut record);
        write_json(&dir.record_path(), &record).unwrap();
        dir
    }

    /// Take what the files say the data is.
    pub fn data_dir(&self) -> PathBuf {
        self.file("data/006-kuzmin-tmi/small")
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
            default_model: false,
            recorded_step_ms: Vec::new(),
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
        ..Hardware::default()
    };
    let environment = Environment {
        worker_version: "0.1.0".into(),
        libtorch_version: "2.11.0".into(),
        device: "cpu".into(),
        backend: "gloo".into(),
        threads: 1,
        ranks: (0..ranks.len()).map(hardware).collect(),
        variables: BTreeMap::from([("OMP_NUM_THREADS".into(), "1".into())]),
        ..Environment::default()
    };
    write_json(&attempt.environment_path(), &environment).unwrap();
    for (rank, steps) in ranks.iter().enumerate() {
        let table = StepsTable {
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
        cause: None,
        failed_rank: None,
        started: SUBMITTED + 10,
        ended: SUBMITTED + 20,
        beside_s: None,
        beside_from: None,
        beside: Vec::new(),
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
            s.pipeline.processor = expctl_settings::Processor::Ids;
            s.loader.workers = 1;
        }));
    }
    let dir = project.submitted(id, "086_ddp", trials.clone());
    for (trial, wall) in trials.iter().zip([400, 410, 390, 100, 102, 98]) {
        completed(&dir, trial, &[steps(wall, wall / 5), steps(wall, wall / 50)]);
    }
    dir
}

/// Two variants on 1 and 2 ranks (lazy 400 and 200 ms, ids 100 and 40 ms), and ids on 4 ranks too.
pub fn sweep(project: &TestProject, id: u64) -> JobDir {
    let on = |variant: &str, method: &str, ranks: u32| {
        let mut trial = project.trial(variant, method, 1, |s| s.launch.ranks = ranks);
        trial.id = format!("{variant}-{ranks}-r1-0a1b2c");
        trial.point = BTreeMap::from([("launch.ranks".to_owned(), ranks.into())]);
        trial
    };
    let lazy = [on("lazy", "Lazy", 1), on("lazy", "Lazy", 2)];
    let ids = [on("ids", "Ids only", 1), on("ids", "Ids only", 2), on("ids", "Ids only", 4)];
    let trials = [&lazy[..], &ids[..]].concat();
    let dir = project.submitted(id, "086_ddp", trials.clone());
    for (trial, wall) in trials.iter().zip([400, 200, 100, 40, 20]) {
        let ranks: Vec<_> = (0..trial.settings.launch.ranks).map(|_| steps(wall, 0)).collect();
        completed(&dir, trial, &ranks);
    }
    dir
}

/// A job of `trials` completed trials that only load data, four variants of equal share, on `ranks` ranks.
pub fn many(project: &TestProject, id: u64, trials: u32, ranks: u32, measured: u64) -> JobDir {
    let variants = ["lazy", "dango", "shared", "ids"];
    let all: Vec<Trial> = (0..trials)
        .map(|i| {
            let variant = variants[i as usize % variants.len()];
            project.trial(variant, variant, 1 + i / variants.len() as u32, |s| {
                s.train.mode = expctl_settings::Mode::Data;
                s.launch.ranks = ranks;
                s.measure.steps = measured;
                s.measure.repeats = trials.div_ceil(variants.len() as u32);
            })
        })
        .collect();
    let dir = project.submitted(id, "086_load", all.clone());
    let write = |(i, trial): (usize, &Trial)| {
        let wall = 5 + i as u64 % 4;
        let few = steps(wall, 0);
        let rows = few[..2].iter().chain(few[2..].iter().cycle());
        let mut rows: Vec<StepRecord> = rows.take(2 + measured as usize).cloned().collect();
        for (step, row) in rows.iter_mut().enumerate() {
            (row.step, row.loss) = (step as u64, None);
        }
        completed(&dir, trial, &vec![rows; ranks as usize]);
    };
    // Each file waits for the disk: several threads wait together.
    let numbered: Vec<(usize, &Trial)> = all.iter().enumerate().collect();
    std::thread::scope(|scope| {
        for part in numbered.chunks(numbered.len().div_ceil(16).max(1)) {
            scope.spawn(|| part.iter().copied().for_each(write));
        }
    });
    dir
}

/// Steps of so many epochs of 100 batches of 1,000 rows, the first 20 of them warm-up; all times are `percent` of these: every 10th batch reads
/// for 90 ms more than the others, and in the first epoch each collates for up to 20 ms more. A millisecond of each is in no stage.
pub fn steps_of_epochs(epochs: u64, percent: u64) -> Vec<StepRecord> {
    let mut state = 7u64;
    let mut noise = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % 1000
    };
    let mut start_ns = 0;
    (0..epochs * 100)
        .map(|step| {
            let epoch = step / 100;
            // In µs.
            let read = 8000 + noise() + if step % 10 == 3 { 90_000 } else { 0 };
            let collate = 1000 + if epoch == 0 { 20 * noise() } else { 0 };
            let ns = |us: u64| us * 10 * percent;
            let wall_ns = ns(read + collate + 1000);
            let (measured, samples) = (step >= 20, 1000);
            let mut record = StepRecord { step, epoch, measured, start_ns, wall_ns, samples, ..StepRecord::default() };
            for (stage, us) in [(Stage::Read, read), (Stage::Collate, collate)] {
                record.exposed[stage] = ns(us);
                record.busy[stage] = 2 * ns(us);
            }
            start_ns += wall_ns;
            record
        })
        .collect()
}

/// Loading alone on one rank: two runs of `epochs` over five epochs, of which four are measured whole, the second run a tenth slower; and one
/// run of `single` over one epoch, of which the first steps are warm-up.
pub fn in_epochs(project: &TestProject, id: u64) -> JobDir {
    let trial = |variant: &str, repeat: u32, epochs: u64| {
        project.trial(variant, variant, repeat, |settings| {
            settings.measure.epochs = epochs;
            settings.measure.warmup = 20;
            settings.measure.steps = epochs * 100 - 20;
            settings.launch.ranks = 1;
            settings.loader.batch_size = 1000;
            settings.train.mode = expctl_settings::Mode::Data;
        })
    };
    let trials = [trial("epochs", 1, 5), trial("epochs", 2, 5), trial("single", 1, 1)];
    let dir = project.submitted(id, "fig1", trials.to_vec());
    for (trial, percent) in trials.iter().zip([100, 110, 100]) {
        completed(&dir, trial, &[steps_of_epochs(trial.settings.measure.epochs, percent)]);
    }
    dir
}
