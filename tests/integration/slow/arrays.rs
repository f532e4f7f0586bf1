//! Rows of arrays end to end: built, loaded, trained on, gone on with, and refused.

use crate::common;
use crate::common::{PATIENCE, TestProject, text, wait_until};
use expctl_ledger::{AttemptDir, Outcome, Stage, joined_steps, read_learning};
use expctl_settings::ArrayFormat;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// 600 rows of 400 genes in two files, of which an MLP learns the cell types on two ranks.
const SMALL: &str = r#"
[experiment]
study = "arrayloader"
title = "Small array"

[data]
samples = 600
scale = 0.02
files = 2

[array]
format = "h5ad"
labels = ["cell_type"]
log1p = true

[loader]
batch_size = 16
workers = 1

[model]
hidden = 32
layers = 1

[train]
mode = "train"
learning_rate = 0.01
epochs = 6

[measure]
warmup = 2
repeats = 1

[launch]
ranks = 2
heartbeat_timeout_s = 5

[variant.weighted]
sampler.draw = "weighted"
sampler.by = "weight"

[variant.chunked]
array.output = "sparse"
sampler.draw = "chunked"
sampler.chunk_rows = 20
sampler.chunks = 3

[compare]
baseline = "weighted"
"#;

/// 600 rows on two ranks in batches of 16.
const PER_EPOCH: u64 = 19;

fn submit(project: &TestProject, more: &[&str]) -> (Option<i32>, String) {
    let output = project.submission(SMALL, more).output().unwrap();
    (output.status.code(), text(&output.stderr))
}

fn outcome(attempt: &AttemptDir) -> Outcome {
    attempt.outcome().unwrap().unwrap()
}

#[test]
fn two_ranks_learn_cell_types_and_the_note_says_how_rows_were_shuffled() {
    let project = TestProject::new();
    let (code, message) = submit(&project, &[]);
    assert_eq!(code, Some(0), "{message}");
    for variant in ["weighted", "chunked"] {
        let attempt = project.attempt("1", variant).unwrap();
        let told = outcome(&attempt);
        assert!(told.ranks.iter().all(|r| r.parameters_digest == told.ranks[0].parameters_digest), "{told:?}");
        let losses: Vec<f64> = read_learning(&attempt.learning_path()).unwrap().iter().map(|r| r.train_loss).collect();
        assert_eq!(losses.len(), 6);
        assert!(losses[5] < losses[0] / 2.0, "{variant}: {losses:?}");
        let read = attempt.data_read().unwrap().unwrap();
        let array = read.array.unwrap();
        assert_eq!((read.records, array.format, array.files, array.genes), (600, ArrayFormat::H5ad, 2, 400));
        assert_eq!(array.classes, [16]);
        let shuffle = attempt.shuffle().unwrap().unwrap();
        assert_eq!(shuffle.metered_batches, PER_EPOCH);
        assert_eq!(variant == "chunked", shuffle.duplicates <= 4, "{shuffle:?}");
        let steps = attempt.steps(1).unwrap();
        assert_eq!(steps.len() as u64, 6 * PER_EPOCH);
        let busy = |stage: Stage| steps.iter().map(|s| s.busy[stage]).sum::<u64>();
        for stage in [Stage::Sample, Stage::Read, Stage::Collate, Stage::Forward, Stage::Backward, Stage::Optimizer] {
            assert!(busy(stage) > 0, "{variant}: {stage}");
        }
        assert!(steps.iter().all(|s| s.samples == 16 || (s.step + 1).is_multiple_of(PER_EPOCH)), "{steps:?}");
        assert!(steps.iter().map(|s| s.bytes_read).sum::<u64>() > 0);
    }
    let note = std::fs::read_to_string(project.path().join("results/small_1.md")).unwrap();
    for said in ["chunked 20 × 3", "weighted by weight", "600 rows of 400 genes, h5ad in 2 files", "(cell_type)"] {
        assert!(note.contains(said), "{said}: {note}");
    }
}

/// A number of genes and of parquet files, rows that are read one by one, and a cold page cache, as a job has them.
#[test]
fn genes_files_and_the_way_of_fetching_are_settings_of_a_job() {
    let project = TestProject::new();
    let text = SMALL.replace("scale = 0.02", "genes = 400").replace("epochs = 6", "").replace(
        "[variant.chunked]",
        "[variant.row]\narray.fetch = \"row\"\nmeasure.cold_cache = true\nsampler.draw = \"weighted\"\nsampler.by = \"weight\"\n\
         [variant.groups]\narray.format = \"parquet\"\narray.file_count = 3\nsampler.draw = \"sequential\"\n\
         sampler.chunk_rows = 0\n[variant.chunked]",
    );
    let conf = project.conf("asked", &text);
    let submit = ["submit", conf.to_str().unwrap(), "--backend", "local", "--wait", "--set", "measure.steps=10"];
    project.ok(&submit);
    let attempt = |variant: &str| project.attempt("1", variant).unwrap();
    let read = |variant: &str| attempt(variant).data_read().unwrap().unwrap().array.unwrap();
    assert_eq!((read("weighted").files, read("weighted").genes), (2, 400));
    assert_eq!((read("groups").files, read("groups").format), (3, ArrayFormat::Parquet));
    // The same rows in the same order, so the same losses.
    let losses = |variant: &str| -> Vec<Option<f64>> {
        attempt(variant).steps(0).unwrap().iter().map(|step| step.loss).collect()
    };
    assert_eq!(losses("row"), losses("weighted"));
    let dropped = attempt("row").usage(0).unwrap().unwrap().dropped.unwrap();
    let bytes = attempt("row").data_read().unwrap().unwrap().size.apparent_bytes;
    assert_eq!((dropped.files, dropped.bytes), (2, bytes));
    let note = std::fs::read_to_string(project.path().join("results/asked_1.md")).unwrap();
    assert!(note.contains("600 rows of 400 genes, parquet in 3 files"), "{note}");
    // The files that are there are not as many as another job asks for.
    let more = ["--only", "groups", "--set", "variant.groups.array.file_count=4"];
    let refused = project.run(&[&submit[..], &more[..]].concat());
    assert_eq!(refused.status.code(), Some(6));
    let said = common::text(&refused.stderr);
    assert!(said.contains("holds 3 files, and 4 are asked for"), "{said}");
    // Files of one format lie in one folder, so two variants cannot ask for different numbers.
    let more = "[variant.more]\narray.format = \"parquet\"\narray.file_count = 5\nsampler.draw = \"sequential\"\n\
                sampler.chunk_rows = 0\n[variant.chunked]";
    let conf = project.conf("both", &text.replace("[variant.chunked]", more));
    let submit = ["submit", conf.to_str().unwrap(), "--backend", "local", "--wait", "--set", "measure.steps=10"];
    let refused = project.run(&submit);
    assert_eq!(refused.status.code(), Some(3));
    let said = common::text(&refused.stderr);
    assert!(said.contains("array.file_count: trials ask for 3 and for 5 files in "), "{said}");
}

#[test]
fn a_run_that_was_stopped_reads_the_rest_of_its_epoch() {
    let more = ["--only", "chunked", "--set", "train.epochs=60", "--set", "launch.ranks=1"];
    let project = TestProject::new();
    assert_eq!(submit(&project, &more).0, Some(0));
    let whole = project.attempt("1", "chunked").unwrap();
    let mut guard = project.started(SMALL, &more);
    // In the middle of an epoch, if it stops soon.
    wait_until("steps", PATIENCE, || {
        let attempt = project.attempt("2", "chunked")?;
        attempt.steps(0).is_ok_and(|steps| steps.len() > 45).then_some(())
    });
    kill(Pid::from_raw(guard.0.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(guard.0.wait().unwrap().code(), Some(6));
    let first = project.attempt("2", "chunked").unwrap();
    let done = first.steps(0).unwrap().len() as u64;
    assert!(done < 60 * PER_EPOCH * 2, "it was over before it was stopped");
    project.ok(&["retry", "2", "--wait"]);
    let last = project.attempt("2", "chunked").unwrap();
    assert_eq!((last.number(), last.steps(0).unwrap()[0].step), (2, done));
    let losses = |attempts: &[AttemptDir]| -> Vec<Option<f64>> {
        joined_steps(attempts, 0, 0).unwrap().steps.iter().map(|step| step.loss).collect()
    };
    assert_eq!(losses(&[first, last.clone()]), losses(std::slice::from_ref(&whole)));
    assert_eq!(outcome(&last).ranks[0].parameters_digest, outcome(&whole).ranks[0].parameters_digest);
}

#[test]
fn what_ranks_would_refuse_is_refused_before_they_start() {
    let project = TestProject::new();
    // The first one builds the data, so the config could not be judged by them.
    for (setting, key, said) in [
        ("array.labels=[\"cell_typ\"]", "`array.labels`", "\"cell_typ\""),
        ("array.labels=[\"cell_typ\"]", "`array.labels`", "\"cell_type\""),
        ("variant.weighted.sampler.by=cell_type", "`sampler.by`", "cell_type"),
        ("array.genes=[\"no such gene\"]", "`array.genes`", "\"no such gene\""),
    ] {
        let (code, message) = submit(&project, &["--only", "weighted", "--set", setting]);
        assert_eq!(code, Some(3), "{message}");
        assert!(message.contains(key) && message.contains(said), "{message}");
    }
    assert!(!project.path().join("results/runs/1").exists(), "no number was taken");
}

#[test]
fn own_files_are_read_from_memory_and_damaged_ones_are_refused_before_they_are_submitted() {
    let project = TestProject::new();
    // Own files need no study.
    std::fs::remove_file(project.path().join("experiments")).unwrap();
    std::fs::create_dir(project.path().join("experiments")).unwrap();
    let real =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments/arrayloader/real/pbmc68k_reduced.h5ad");
    let file = project.path().join("own.h5ad");
    std::fs::copy(&real, &file).unwrap();
    let text = r#"
        array = { format = "h5ad", files = ["*.h5ad"], memory = true, labels = ["bulk_labels"] }
        loader.batch_size = 32
        measure = { repeats = 1, warmup = 2, steps = 5 }
        sampler = { draw = "balanced", by = "bulk_labels" }
        model = { kind = "transformer", hidden = 16, heads = 2, layers = 1, tokens = 40 }
        train.mode = "forward_backward"
    "#;
    let conf = project.conf("own", text);
    let arguments = ["submit", conf.to_str().unwrap(), "--backend", "local", "--wait"];
    project.ok(&arguments);
    let read = project.attempt("1", "default").unwrap().data_read().unwrap().unwrap();
    let array = read.array.unwrap();
    assert_eq!((read.records, array.genes), (700, 765));
    assert!(array.resident_bytes.unwrap() > 0);
    // A note calls them what they are, not by the data set whose place they take.
    project.ok(&["report", "1"]);
    let note = std::fs::read_to_string(project.path().join("results/own_1.md")).unwrap();
    assert!(note.contains("own files: ") && note.contains("/own.h5ad (1 file)"), "{note}");
    assert!(!note.contains("data.scale"), "{note}");
    // They are named from the project where the job is isolated, too.
    let parts = project.ok(&["isolate", "1", "--backend", "local", "--dry-run", "--json"]);
    let parts: serde_json::Value = serde_json::from_str(&parts).unwrap();
    assert_eq!(parts["trials"].as_array().unwrap().len(), 4);
    let half = std::fs::metadata(&file).unwrap().len() / 2;
    std::fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(half).unwrap();
    let refused = project.run(&arguments);
    assert_eq!(refused.status.code(), Some(3));
    assert!(common::text(&refused.stderr).contains("own.h5ad"), "{}", common::text(&refused.stderr));
}

#[test]
fn a_job_of_arrays_is_isolated() {
    let project = TestProject::new();
    let epoch = ["--set", "train.epochs=0", "--set", "measure.epochs=1", "--set", "train.mode=data"];
    let (code, message) = submit(&project, &epoch);
    assert_eq!(code, Some(0), "{message}");
    let isolated = project.ok(&["isolate", "1", "--backend", "local", "--wait"]);
    assert_eq!(isolated, "2\n");
    let trials = project.job("2").record().unwrap().trials;
    assert_eq!(trials.len(), 2 * 4);
    let was = project.job("1").record().unwrap().trials;
    for trial in &trials {
        let before = &was.iter().find(|before| before.variant == trial.variant).unwrap().settings;
        let settings = &trial.settings;
        assert_eq!((&settings.array, &settings.data), (&before.array, &before.data));
        assert_eq!((&settings.sampler, &settings.model), (&before.sampler, &before.model));
        // 600 rows in batches of 16 on the one rank.
        assert_eq!((settings.launch.ranks, settings.measure.warmup + settings.measure.steps), (1, 38));
    }
    let note = std::fs::read_to_string(project.path().join("results/small_isolation_2.md")).unwrap();
    for part in ["### Isolation", "| data pipeline |", "| backward |", "| all loading |"] {
        assert!(note.contains(part), "{part}\n{note}");
    }
}
