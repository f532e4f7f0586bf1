//! The local backend, end to end: `expctl submit --backend local` starts ranks on libtorch, they read a small data set,
//! and the tests check the ledger that they leave under `results/runs`.
//!
//! Exit codes (`docs/reference/commands.md`): 3 is an invalid config, 5 a trial that failed, 6 incomplete results, 70 an
//! error of the system. [`SMALL`] runs the variants lazy and ids on two ranks, with 2 warm-up and 6 measured steps of 8
//! samples.

use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common;
use crate::common::local::set;
use crate::common::{Guard, PATIENCE, SMALL, TestProject, text, wait_until, worker_pids};
use expctl_ledger::{FileSize, Outcome, RankStatus, Stage, TrialState};
use expctl_settings::{Estimator, StoreKind, Trial};
use nix::sys::signal::{Signal, kill};

#[test]
fn two_ranks_train_and_leave_a_whole_ledger() {
    let project = TestProject::new();
    let output = project.submission(SMALL, &[]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "1\n", "stdout is the job id alone");
    let job = "1";
    for variant in ["lazy", "ids"] {
        let outcome = project.outcome(job, variant);
        assert_eq!(outcome.state, TrialState::Completed);
        let digests: Vec<_> = outcome.ranks.iter().map(|r| r.parameters_digest.clone().unwrap()).collect();
        assert_eq!(digests[0], digests[1], "ranks end with the same parameters, bit for bit");
        let attempt = project.attempt(job, variant).unwrap();
        for rank in 0..2 {
            let steps = attempt.steps(rank).unwrap();
            assert_eq!(steps.iter().map(|s| s.step).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
            assert_eq!(steps.iter().filter(|s| s.measured).count(), 6);
            for step in &steps {
                assert_eq!(step.samples, 8);
                assert!(step.loss.unwrap().is_finite() && step.bytes_read > 0 && step.bytes_batch > 0);
                assert!(step.exposed.total() <= step.wall_ns, "the exposed times of all stages are at most the step");
                for stage in [Stage::Read, Stage::Decode, Stage::Forward, Stage::Backward, Stage::Optimizer] {
                    assert!(step.busy[stage] > 0, "{stage} was timed");
                }
            }
        }
        let environment = attempt.environment().unwrap().unwrap();
        assert_eq!(environment.ranks.len(), 2);
        assert!(environment.libtorch_version.starts_with("2.11"), "{}", environment.libtorch_version);
        // Journals and exit files are joined into the step tables and the outcome, and removed.
        assert!(!attempt.journal_path(0).exists() && !attempt.exit_path(0).exists() && attempt.log_path(1).exists());
    }
    // Both graph processors give the model the same samples, so training ends with the same parameters.
    let digest = |variant| project.outcome(job, variant).ranks[0].parameters_digest.clone();
    assert_eq!(digest("lazy"), digest("ids"));
    // The digest does depend on the samples: in another order they give other parameters.
    let other = project.completed(SMALL, &["--only", "ids", "--set", "loader.seed=7"]);
    assert_ne!(project.outcome(&other, "ids").ranks[0].parameters_digest, digest("ids"));
    // Gradients that are rounded for the all-reduce give other parameters, too, and the same ones on both ranks.
    let rounded = project.completed(SMALL, &["--only", "ids", "--set", "train.gradient_compression=bf16"]);
    let digests =
        project.outcome(&rounded, "ids").ranks.iter().map(|r| r.parameters_digest.clone()).collect::<Vec<_>>();
    assert!(digests[0] == digests[1] && digests[0] != digest("ids"), "{digests:?}");
    let note = std::fs::read_to_string(project.path().join("results/small_1.md")).unwrap();
    assert!(note.contains("unattributed") && note.contains("samples/s"), "{note}");
}

#[test]
fn a_note_says_what_was_read_and_what_the_published_timer_would_have_said() {
    let project = TestProject::new();
    let conf = format!("{SMALL}estimators = [\"timer_after_arrival\"]\n");
    let job = project.completed(&conf, &["--only", "lazy", "--set", "launch.ranks=1"]);
    let record = project.job(&job).record().unwrap();
    assert_eq!(record.estimators, [Estimator::TimerAfterArrival]);
    let attempt = project.attempt(&job, "lazy").unwrap();
    let read = attempt.data_read().unwrap().unwrap();
    let store = FileSize::from_path(&record.trials[0].data_dir.join("processed/lmdb/data.mdb")).unwrap();
    assert_eq!((read.store, read.records, read.selected), (Some(StoreKind::Json), 200, 200));
    assert_eq!((read.size, read.base_size), (store, Some(store)));
    let steps = attempt.steps(0).unwrap();
    // Nanoseconds over all measured steps: of the whole step, and without the wait for the batch, which this estimator
    // leaves out.
    let (mut wall, mut after_arrival) = (0, 0);
    for step in steps.iter().filter(|s| s.measured) {
        let waited: u64 = Stage::LOADER.iter().map(|s| step.exposed[*s]).sum();
        wall += step.wall_ns;
        after_arrival += step.wall_ns - waited;
    }
    let note = std::fs::read_to_string(project.path().join("results/small_1.md")).unwrap();
    let (_, estimated) = note.split_once("### Estimated, as published").unwrap();
    assert!(estimated.contains("rests on it): starts after the batch has arrived"), "{estimated}");
    let row: Vec<&str> = estimated.lines().find(|l| l.starts_with("| lazy |")).unwrap().split('|').collect();
    let assert_close = |cell: &str, value: f64| {
        let shown: f64 = cell.trim().trim_end_matches('×').parse().unwrap();
        assert!((shown - value).abs() <= 0.005 + value * 1e-4, "{shown} is not {value}: {row:?}");
    };
    // Steps per second of the 6 measured steps.
    let rate = |ns: u64| 6e9 / ns as f64;
    // it/s, then samples/s of batches of 8, then the factor to what was measured.
    let rates = [rate(after_arrival), 8.0 * rate(after_arrival)];
    for (cell, value) in row[2..].iter().zip(rates) {
        assert_close(cell, value);
    }
    assert_close(row[4], wall as f64 / after_arrival as f64);
    assert!(note.contains(": lazy: 200 of 200 samples of the store json, "), "{note}");
}

/// A config that only loads data. Its steps are so short that many of them end between two times that the launcher reads the
/// journal: rates must count them all.
const FAST: &str = r#"
[experiment]
study = "006-kuzmin-tmi"
title = "Fast"
[data]
samples = 200
scale = 0.05
[loader]
batch_size = 8
workers = 2
[train]
mode = "data"
[measure]
steps = 3000
repeats = 1
[launch]
ranks = 1
[variant.lazy]
pipeline.processor = "lazy"
[variant.ids]
pipeline.processor = "ids"
"#;

#[test]
fn a_trial_has_one_rate_wherever_it_is_shown() {
    let project = TestProject::new();
    let conf = project.conf("fast", FAST);
    let output = project.run(&["submit", conf.to_str().unwrap(), "--backend", "local", "--wait"]);
    let stderr = text(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let status: serde_json::Value = serde_json::from_str(&project.ok(&["status", "1", "--json"])).unwrap();
    let compared: serde_json::Value = serde_json::from_str(&project.ok(&["compare", "1", "--format", "json"])).unwrap();
    let note = std::fs::read_to_string(project.path().join("results/fast_1.md")).unwrap();
    project.ok(&["report", "1", "--html"]);
    let page = std::fs::read_to_string(project.path().join("results/fast_1.html")).unwrap();
    let table = project.ok(&["status", "1"]);
    for (task, variant) in ["lazy", "ids"].into_iter().enumerate() {
        // [1/2] lazy-r1-3f2a: completed, 26000.1 it/s, 208001 samples/s
        let line = stderr.lines().find(|l| l.contains(&format!("] {variant}-r1")) && l.contains(": completed, "));
        let (_, rates) = line.unwrap_or_else(|| panic!("{stderr}")).split_once(": completed, ").unwrap();
        let (it, samples) = rates.split_once(" it/s, ").unwrap();
        let samples = samples.strip_suffix(" samples/s").unwrap();
        // Both rates, computed from the step table in the ledger: 3000 measured steps of 8 samples. The message shows them
        // rounded.
        let steps = project.attempt("1", variant).unwrap().steps(0).unwrap();
        let wall: u64 = steps.iter().filter(|step| step.measured).map(|step| step.wall_ns).sum();
        let (ledger_it, ledger_samples) = (3000.0 / (wall as f64 / 1e9), 24_000.0 / (wall as f64 / 1e9));
        for (shown, value) in [(it, ledger_it), (samples, ledger_samples)] {
            let decimals = shown.split_once('.').map_or(0, |(_, decimals)| decimals.len());
            let shown: f64 = shown.parse().unwrap();
            assert!(
                (shown - value).abs() <= 0.5001 * 10f64.powi(-(decimals as i32)).max(value * 1e-5),
                "{shown}: {value}"
            );
        }
        let row = &status[task];
        assert_eq!(
            (row["rates_of"].as_str(), row["it_per_s"].as_f64()),
            (Some("measured_steps"), Some(ledger_it)),
            "{row}"
        );
        assert_eq!(row["samples_per_s"].as_f64(), Some(ledger_samples), "{row}");
        let lines = compared["groups"][0]["lines"].as_array().unwrap();
        let line = lines.iter().find(|line| line["label"] == variant).unwrap();
        assert_eq!((&line["it_per_s"][0], &line["samples_per_s"][0]), (&row["it_per_s"], &row["samples_per_s"]));
        // Without the asterisks of bold cells.
        let plain = note.replace('*', "");
        let in_note = plain.lines().find(|l| l.starts_with(&format!("| {variant} | "))).unwrap();
        assert!([it, samples].iter().all(|rate| in_note.contains(&format!("| {rate} |"))), "{rates}: {in_note}");
        assert!(table.lines().any(|l| l.contains(&format!("| {variant}-r1")) && l.contains(&format!("| {samples} |"))));
        assert!(page.contains(&format!(">{samples}<")), "{samples} is not in the page");
    }
}

#[test]
fn pandas_reads_the_step_tables() {
    let project = TestProject::new();
    let job = project.completed(SMALL, &["--only", "ids"]);
    let table = project.attempt(&job, "ids").unwrap().steps_path(1);
    let reader = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/read_steps.py");
    let output = std::process::Command::new(common::programs::interpreter()).arg(reader).arg(table).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let facts: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&facts["rows"], &facts["measured"]), (&8.into(), &6.into()));
    assert_eq!(facts["every_step_has_a_loss"], true);
    assert!(facts["samples_per_s"].as_f64().unwrap() > 0.0);
    let columns: Vec<&str> = facts["columns"].as_array().unwrap().iter().map(|c| c.as_str().unwrap()).collect();
    let documented =
        std::fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/ledger.md"))
            .unwrap();
    for column in &columns {
        let stage_column = Stage::ALL.iter().any(|s| column.starts_with(s.name()) && column.ends_with("_ns"));
        assert!(
            stage_column || documented.contains(&format!("`{column}`")),
            "{column} is not in docs/reference/ledger.md"
        );
    }
    for stage in Stage::ALL {
        for side in ["exposed", "busy"] {
            assert!(columns.contains(&format!("{stage}_{side}_ns").as_str()), "{stage} {side}");
        }
    }
}

/// Wait for the end of a launcher. Returns its exit code and its stderr.
fn finish(mut guard: Guard) -> (Option<i32>, String) {
    let status = guard.0.wait().unwrap();
    let mut stderr = String::new();
    guard.0.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    (status.code(), stderr)
}

/// Kill `rank` of a job of two ranks that runs in `mode`. Soon both ranks end, and the ledger names the killed one.
fn kill_rank_and_check(mode: &str, rank: u32) {
    let project = TestProject::new();
    let (guard, _) = project.endless(&["--set", &format!("train.mode={mode}")]);
    let since = Instant::now();
    kill(project.rank(rank), Signal::SIGKILL).unwrap();
    let (code, stderr) = finish(guard);
    let took = since.elapsed();
    assert!(took < PATIENCE, "{mode}: the others took {took:?} to end");
    assert_eq!(code, Some(5), "{stderr}");
    assert!(worker_pids(project.path()).is_empty(), "no rank is left");
    let outcome = project.outcome("1", "ids");
    assert_eq!(outcome.state, TrialState::Failed);
    assert_eq!(outcome.failed_rank, Some(rank));
    assert!(outcome.message.contains(&format!("rank {rank} was killed by signal 9")), "{}", outcome.message);
    let survivor = &outcome.ranks[1 - rank as usize];
    assert_eq!((survivor.status, survivor.lost_peer), (RankStatus::PeerLost, Some(rank)), "{survivor:?}");
    // The steps of both ranks, those of the killed one too, are in step tables.
    let attempt = project.attempt("1", "ids").unwrap();
    for rank in 0..2 {
        assert!(attempt.steps_path(rank).exists());
        assert!(attempt.steps(rank).unwrap().len() > 5);
    }
}

#[test]
fn a_killed_rank_ends_a_training_job_and_is_named() {
    kill_rank_and_check("train", 1);
    kill_rank_and_check("train", 0);
}

/// In mode `data` there are no collectives that could fail: only the heartbeat shows that a rank is gone.
#[test]
fn a_killed_rank_ends_a_data_only_job_and_is_named() {
    kill_rank_and_check("data", 1);
    kill_rank_and_check("data", 0);
}

/// A rank that is stopped (SIGSTOP) keeps its connections open, so no read fails. With rank 0, c10d's key-value store
/// stops as well, and requests to it get no answer.
#[test]
fn a_frozen_rank_ends_the_job_and_is_named() {
    for (mode, rank) in [("data", 0), ("train", 0), ("train", 1)] {
        let project = TestProject::new();
        let (guard, _) = project.endless(&["--set", &format!("train.mode={mode}")]);
        kill(project.rank(rank), Signal::SIGSTOP).unwrap();
        let since = Instant::now();
        let (code, stderr) = finish(guard);
        assert!(since.elapsed() < PATIENCE, "{mode} {rank}: {:?}", since.elapsed());
        assert_eq!(code, Some(5), "{stderr}");
        let outcome = project.outcome("1", "ids");
        assert_eq!(outcome.failed_rank, Some(rank), "{outcome:?}");
        let survivor = &outcome.ranks[1 - rank as usize];
        assert_eq!((survivor.status, survivor.lost_peer), (RankStatus::PeerLost, Some(rank)), "{survivor:?}");
        assert!(project.attempt("1", "ids").unwrap().steps(rank).unwrap().len() > 5);
    }
}

#[test]
fn a_rank_that_alone_is_told_to_stop_is_the_one_named() {
    let project = TestProject::new();
    let (guard, _) = project.endless(&[]);
    kill(project.rank(1), Signal::SIGTERM).unwrap();
    let (code, stderr) = finish(guard);
    assert_eq!(code, Some(5), "{stderr}");
    let outcome = project.outcome("1", "ids");
    assert_eq!((outcome.state, outcome.failed_rank), (TrialState::Failed, Some(1)), "{outcome:?}");
}

#[test]
fn a_job_waits_for_the_one_that_runs() {
    let project = TestProject::new();
    let (guard, _) = project.endless(&["--set", "train.mode=data"]);
    let second = project.started(SMALL, &["--only", "ids"]);
    wait_until("the second job", PATIENCE, || project.job("2").record().ok());
    std::thread::sleep(Duration::from_millis(500));
    assert!(project.attempt("2", "ids").is_none(), "it waits");
    guard.signal(Signal::SIGINT);
    finish(guard);
    let (code, stderr) = finish(second);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("job 2 waits until local job 1 has ended"), "{stderr}");
}

/// Every write to /dev/full fails.
#[test]
fn a_job_goes_on_when_nobody_can_read_its_id() {
    let project = TestProject::new();
    let conf = project.conf("small", SMALL);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = project.submission(SMALL, &["--only", "ids"]).stdout(full).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(project.outcome("1", "ids").state, TrialState::Completed);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let status = project.expctl(&["plan", conf.to_str().unwrap()]).stdout(full).status().unwrap();
    assert_eq!(status.code(), Some(70), "a plan that cannot be written is not a success");
}

#[test]
fn a_job_goes_on_when_nobody_reads_its_messages() {
    let project = TestProject::new();
    let conf = project.conf("small", SMALL);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    for (job, stderr) in [("1", Stdio::from(full)), ("2", Stdio::from(closed))] {
        let arguments = ["submit", conf.to_str().unwrap(), "--backend", "local", "--wait", "--only", "ids"];
        let output = project.expctl(&arguments).env("EXPCTL_LOG", "trace").stderr(stderr).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "job {job}");
        assert_eq!(project.outcome(job, "ids").state, TrialState::Completed);
    }
}

#[test]
fn impossible_jobs_are_refused_before_anything_is_made() {
    let project = TestProject::new();
    let conf = project.conf("small", SMALL);
    let arguments = ["submit", conf.to_str().unwrap(), "--backend", "local", "--set", "launch.ranks=100000"];
    let output = project.run(&[&arguments[..], &["--set", "data.samples=300000", "--set", "data.scale=1.0"]].concat());
    // 100,000 ranks × a batch of 8 are more samples than the data set has: the check of the config refuses that first.
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    // 5000 ranks × a batch of 1 pass the check of the config, but need more processors than the machine has.
    let output = project.run(&[
        "submit",
        conf.to_str().unwrap(),
        "--backend",
        "local",
        "--set",
        "launch.ranks=5000",
        "--set",
        "loader.batch_size=1",
        "--set",
        "data.samples=6000",
    ]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("this machine has"), "{}", text(&output.stderr));
    assert!(!project.path().join("data").exists() && !project.path().join("results").exists());
}

#[test]
fn ctrl_c_stops_all_ranks_and_keeps_what_was_measured() {
    let project = TestProject::new();
    let (guard, _) = project.endless(&[]);
    let since = Instant::now();
    guard.signal(Signal::SIGINT);
    let (code, stderr) = finish(guard);
    assert!(since.elapsed() < PATIENCE, "{:?}", since.elapsed());
    assert_eq!(code, Some(6), "{stderr}");
    assert!(worker_pids(project.path()).is_empty());
    assert_eq!(project.outcome("1", "ids").state, TrialState::Interrupted);
    let attempt = project.attempt("1", "ids").unwrap();
    assert!((0..2).all(|rank| attempt.steps_path(rank).exists() && attempt.steps(rank).unwrap().len() > 5));
}

#[test]
fn a_killed_launcher_takes_its_ranks_along() {
    let project = TestProject::new();
    let (mut guard, _) = project.endless(&["--set", "train.mode=data"]);
    guard.0.kill().unwrap();
    guard.0.wait().unwrap();
    wait_until("the ranks to end", PATIENCE, || worker_pids(project.path()).is_empty().then_some(()));
}

#[test]
fn without_wait_the_job_goes_on_in_the_background() {
    let project = TestProject::new();
    let conf = project.conf("small", SMALL);
    let job = project.ok(&["submit", conf.to_str().unwrap(), "--backend", "local", "--only", "ids"]);
    let outcome =
        wait_until("the outcome", PATIENCE, || project.attempt(&job, "ids").and_then(|a| a.outcome().unwrap()));
    assert_eq!(outcome.state, TrialState::Completed);
    wait_until("the note", PATIENCE, || project.path().join("results/small_1.md").exists().then_some(()));
}

#[test]
fn two_trials_run_at_the_same_time_and_the_note_says_what_that_costs() {
    let project = TestProject::new();
    // Long enough that whole seconds tell trials at the same time from trials one after another.
    let emulated = ["train.mode=emulate", "train.step_ms=60"];
    let settings =
        [&["slurm.pack=2", "launch.ranks=1", "measure.repeats=2", "measure.steps=60"][..], &emulated].concat();
    let id = project.completed(SMALL, &set(&settings));
    let job = project.job(&id);
    let ended = |trial: &Trial| {
        let attempt = job.attempts(&trial.id).unwrap().pop().unwrap();
        (trial.clone(), attempt.outcome().unwrap().unwrap())
    };
    let trials: Vec<(Trial, Outcome)> = job.record().unwrap().trials.iter().map(ended).collect();
    let packs: Vec<u32> = trials.iter().map(|(trial, _)| trial.settings.slurm.pack).collect();
    assert_eq!(packs, [2, 2, 1, 2, 2, 1], "lazy, ids, and lazy alone");
    for (trial, outcome) in &trials {
        let packed = trial.settings.slurm.pack == 2;
        assert_eq!((outcome.state, outcome.beside_s.is_some()), (TrialState::Completed, packed), "{outcome:?}");
    }
    // The repeats of a variant ran together.
    for (one, other) in [(0, 3), (3, 0), (1, 4), (4, 1)] {
        let outcome = &trials[one].1;
        assert!(outcome.beside_s.is_some_and(|seconds| seconds > 0), "{outcome:?}");
        assert_eq!(outcome.beside, [trials[other].0.id.as_str()], "{outcome:?}");
    }
    // Those alone began when all others had ended.
    let last = [0, 1, 3, 4].map(|index| trials[index].1.ended).into_iter().max().unwrap();
    assert!(trials[2].1.started >= last && trials[5].1.started >= trials[2].1.ended, "{trials:?}");
    let note = std::fs::read_to_string(project.path().join(format!("results/small_{id}.md"))).unwrap();
    let said = "- **Side by side** (derived): lazy (emulated, 2 side by side): a trial runs at ";
    assert!(note.contains(said), "{note}");
}

#[test]
fn a_damaged_record_fails_the_trial_and_is_named() {
    let project = TestProject::new();
    project.completed(SMALL, &["--only", "ids"]);
    // Overwrite the first byte of every JSON record in place: the LMDB file around the records stays valid.
    let mut stores = Vec::new();
    find_files(&project.path().join("data"), "data.mdb", &mut stores);
    let mut bytes = std::fs::read(&stores[0]).unwrap();
    let record_start = b"[{\"experiment\"";
    let offsets: Vec<usize> =
        (0..bytes.len() - record_start.len()).filter(|i| bytes[*i..].starts_with(record_start)).collect();
    assert!(offsets.len() >= 200, "{} records", offsets.len());
    for offset in offsets {
        bytes[offset] = b'?';
    }
    std::fs::write(&stores[0], bytes).unwrap();
    let output = project.submission(SMALL, &["--only", "ids"]).output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    let outcome = project.outcome("2", "ids");
    assert!(outcome.message.contains("record ") && outcome.message.contains("lmdb"), "{}", outcome.message);
}

#[test]
fn gene_masks_above_their_limit_fail_the_trial_with_advice() {
    let project = TestProject::new();
    // At this scale the masks take more than 1 MiB: hundreds of genes, each with a bit for tens of thousands of edges.
    let large =
        ["data.scale=0.1", "variant.lazy.pipeline.mask_source=gene_masks", "variant.lazy.pipeline.gene_masks_mib=1"];
    let output = project.submission(SMALL, &[&["--only", "lazy"], &set(&large)[..]].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    let outcome = project.outcome("1", "lazy");
    assert_eq!(outcome.state, TrialState::Failed);
    for phrase in ["a mask for each of", "may take 1.0 MiB", "set pipeline.gene_masks_mib higher"] {
        assert!(outcome.message.contains(phrase), "{phrase}: {}", outcome.message);
    }
}

/// Append the paths of all files called `name` below `folder` to `found`.
fn find_files(folder: &std::path::Path, name: &str, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        if entry.path().is_dir() {
            find_files(&entry.path(), name, found);
        } else if entry.file_name() == name {
            found.push(entry.path());
        }
    }
}

/// The launcher runs on login nodes, so none of the shared libraries that it needs may be of libtorch or CUDA.
#[test]
fn the_launcher_links_no_libtorch() {
    // Shared libraries of a program, one a line: `libm.so.6 => /lib/libm.so.6 (0x00007f59e7c10000)`.
    let needed = |program: &str| {
        let output = std::process::Command::new("ldd").arg(program).output().unwrap();
        assert!(output.status.success(), "ldd {program}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    let launcher = needed(env!("CARGO_BIN_EXE_expctl"));
    // The names alone: an address may contain `c10` by chance.
    let names: Vec<&str> = launcher.lines().filter_map(|line| line.split_whitespace().next()).collect();
    for library in ["torch", "c10", "cuda", "nccl", "gomp"] {
        assert!(!names.iter().any(|name| name.contains(library)), "expctl needs {library}:\n{launcher}");
    }
    // ldd does find libtorch in the worker, so the check above works. The CUDA library of libtorch is loaded at run time
    // alone.
    let worker = needed(common::worker().to_str().unwrap());
    assert!(worker.contains("libtorch_cpu.so") && !worker.contains("libtorch_cuda.so"), "{worker}");
}
