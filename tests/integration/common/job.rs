//! Jobs for the tests of the flow, and the script that stands in the worker's place.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use expctl::exit::Failure;
use expctl::launch::SubmitOrder;
use expctl::launch::slurm::SlurmBackend;
use expctl::program::Programs;
use expctl::project::Project;
use expctl_ledger::{JobRecord, Outcome};
use expctl_settings::{Settings, TRIAL_SCHEMA_VERSION, Trial};
use parquet::file::reader::FileReader;
use serde_json::json;
use slurm_client::Slurm;

use crate::common::cluster::Cluster;

/// No worker: a rank that leaves the last words of a worker, depending on the name of the variant. It computes nothing.
pub const WORKER: &str = r#"#!/bin/bash
[ "$1" = --attempt ] || exit 2
attempt=$2 rank=$SLURM_PROCID
say() {
  printf '{"rank": %d, "status": "%s", "message": "%s", "steps": 0}' "$rank" "$1" "$2" > "$attempt/.exit-$rank"
  mv "$attempt/.exit-$rank" "$attempt/rank-$rank.exit.json"
}
echo "rank $rank of $SLURM_NTASKS${RANK-}${LOCAL_RANK-}${WORLD_SIZE-}${MASTER_ADDR-}${MASTER_PORT-}"
variant=$(sed -n 's/.*"variant": "\([a-z-]*\)".*/\1/p' "$attempt/trial.json")
# In a loop: Slurm signals every process of a rank, and the sleep may be gone before the script hears of it.
nap() { while :; do sleep 120 & wait $!; done; }
case $variant in
  *good) say completed "" ;;
  meets-*)
    # Completes only while another one that meets runs.
    touch "$attempt/../../at-$variant"
    for _ in {1..600}; do
      [ "$(find "$attempt/../.." -maxdepth 1 -name 'at-meets-*' | wc -l)" -lt 2 ] || { say completed ""; exit; }
      sleep 0.1
    done
    exit 9 ;;
  dies)
    [ "$rank" = 0 ] || { sleep 0.5; kill -9 $$; }
    trap 'say peer_lost "rank 1 is gone"; exit 1' TERM
    nap ;;
  sleeps-once)
    case $attempt in *attempt-1) ;; *) say completed ""; exit ;; esac
    trap 'say interrupted "asked to stop"; exit 0' TERM
    touch "$attempt/asleep-$rank"
    nap ;;
  sleeps*)
    # As a worker in the middle of a step: it needs a moment to end it (less than KillWait).
    trap 'sleep 3; say interrupted "asked to stop"; exit 0' TERM
    touch "$attempt/asleep-$rank"
    nap ;;
  *) exit 9 ;;
esac
"#;

/// A project with a ledger at `root`/results/runs.
pub fn ledger(root: &Path) -> Project {
    Project::find(Some(root), None).unwrap()
}

/// Programs that a snapshot can name.
pub fn fixed_programs() -> Programs {
    Programs { expctl: "/opt/expctl/expctl".into(), worker: "/opt/expctl/expctl-worker".into(), library_path: None }
}

/// A ledger and a worker for one test.
pub struct Flow {
    root: tempfile::TempDir,
    pub project: Project,
    programs: Programs,
}

impl Flow {
    /// A project folder named `name` in a folder of its own.
    pub fn new(name: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        let worker = root.path().join("worker.sh");
        std::fs::write(&worker, WORKER).unwrap();
        std::fs::set_permissions(&worker, std::fs::Permissions::from_mode(0o755)).unwrap();
        let project = ledger(&root.path().join(name));
        let programs = Programs { expctl: env!("CARGO_BIN_EXE_expctl").into(), worker, library_path: None };
        Self { root, project, programs }
    }

    /// The same with another launcher on the nodes.
    pub fn with_launcher(mut self, path: &str) -> Self {
        self.programs.expctl = path.into();
        self
    }

    pub fn submit(&self, cluster: &Cluster, job: JobRecord) -> Result<u64, Failure> {
        self.submit_to(&cluster.slurm, job)
    }

    pub fn submit_to(&self, slurm: &Slurm, job: JobRecord) -> Result<u64, Failure> {
        SlurmBackend::new(slurm.clone()).submit_job(&self.project, job, &self.programs, SubmitOrder::default())
    }

    /// Outcome of a trial's only attempt.
    pub fn outcome(&self, id: u64, index: usize) -> Outcome {
        self.try_outcome(id, index).unwrap()
    }

    pub fn try_outcome(&self, id: u64, index: usize) -> Option<Outcome> {
        let job = self.project.job(id);
        let trial = &job.record().unwrap().trials[index];
        let attempts = job.attempts(&trial.id).unwrap();
        assert!(attempts.len() <= 1);
        attempts.first()?.outcome().unwrap()
    }

    /// Files anywhere in the test's folder whose names start so.
    pub fn files_named(&self, prefix: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut folders = vec![self.root.path().to_owned()];
        while let Some(folder) = folders.pop() {
            // Folders come and go while a job runs.
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                if entry.file_name().to_string_lossy().starts_with(prefix) {
                    found.push(entry.path());
                }
                if entry.file_type().is_ok_and(|t| t.is_dir()) {
                    folders.push(entry.path());
                }
            }
        }
        found
    }
}

/// Names and types of a parquet file's columns.
pub fn columns(path: &Path) -> Vec<String> {
    let file = std::fs::File::open(path).unwrap();
    let reader = parquet::file::reader::SerializedFileReader::new(file).unwrap();
    let schema = reader.metadata().file_metadata().schema_descr();
    schema.columns().iter().map(|c| format!("{} {:?}", c.path(), c.physical_type())).collect()
}

/// A job of one trial per variant, each with `ranks` ranks.
pub fn job(config: &str, variants: &[&str], ranks: u32) -> JobRecord {
    let trial = |variant: &&str| Trial {
        schema: TRIAL_SCHEMA_VERSION,
        id: format!("{variant}-1"),
        config: config.to_owned(),
        variant: (*variant).to_owned(),
        method: (*variant).to_owned(),
        point: BTreeMap::new(),
        repeat: 1,
        settings: settings(ranks),
        data_dir: "/nonexistent".into(),
        default_model: false,
        recorded_step_ms: Vec::new(),
    };
    JobRecord {
        schema: TRIAL_SCHEMA_VERSION,
        job: 0,
        backend: "slurm".to_owned(),
        config: config.to_owned(),
        study: "006-kuzmin-tmi".to_owned(),
        config_path: "conf/test.toml".into(),
        overrides: Vec::new(),
        submitted: 1_700_000_000,
        commit: None,
        expctl_version: "0.0.0".to_owned(),
        baseline: None,
        estimators: Vec::new(),
        verifies: None,
        search: None,
        reruns: None,
        trials: variants.iter().map(trial).collect(),
    }
}

fn settings(ranks: u32) -> Settings {
    serde_json::from_value(json!({
        "experiment": {"study": "006-kuzmin-tmi", "title": "t", "description": "", "measures": [], "does_not_measure": []},
        "data": {"set": "006-kuzmin-tmi", "samples": 16, "scale": 0.01, "networks": "real", "seed": 1},
        "pipeline": {"processor": "ids", "edge_types": []},
        "loader": {"batch_size": 2, "workers": 0, "prefetch_factor": 2, "pin_memory": false, "shuffle": false,
                   "drop_last": true, "seed": 1},
        "model": {"kind": "dango", "hidden": 8, "heads": 1, "layers": 1, "edge_types": [], "seed": 1},
        "train": {"mode": "data", "optimizer": "adamw", "learning_rate": 0.1, "weight_decay": 0.0, "clip_norm": 0.0,
                  "reconstruction": "off"},
        "measure": {"warmup": 0, "steps": 1, "repeats": 1},
        "launch": {"ranks": ranks, "threads": 1, "rendezvous_timeout_s": 10, "heartbeat_timeout_s": 10},
        "slurm": {"partition": "", "account": "", "cpus_per_rank": 1, "memory_mib": 0, "time_min": 0, "throttle": 0},
    }))
    .unwrap()
}
