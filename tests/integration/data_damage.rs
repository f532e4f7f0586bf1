//! Data sets and stores that are damaged, stale, or under construction: what is said of them, and what to do.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::common::{PATIENCE, TestProject, text, wait_until};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use serde_json::Value;

const SET: [&str; 5] = ["006-kuzmin-tmi", "--samples", "200", "--scale", "0.05"];

const CONF: &str = r#"
[experiment]
study = "006-kuzmin-tmi"
title = "Packed masks"
[data]
samples = 200
scale = 0.05
networks = "real"
seed = 42
[loader]
batch_size = 8
[train]
mode = "data"
[measure]
steps = 2
[launch]
ranks = 1
[variant.packed]
pipeline.processor = "packed"
pipeline.store = "packed_masks"
"#;

/// `expctl data VERB` of the small data set; stdout and stderr, with the project's folder called ROOT.
fn data(project: &TestProject, verb: &str, more: &[&str], code: i32) -> (String, String) {
    project.expect(&[&["data", verb], &SET[..], more].concat(), code)
}

/// A project with the small data set and stores of two kinds; the folder of the data set.
fn converted() -> (TestProject, PathBuf) {
    let project = TestProject::new();
    let (folder, _) = data(&project, "build", &[], 0);
    data(&project, "convert", &["--to", "packed_masks", "--to", "ids"], 0);
    let folder = folder.trim_end().replace("ROOT", project.path().to_str().unwrap());
    (project, PathBuf::from(folder))
}

/// Change a bit in the middle of a file; twice gives the file back.
fn flip(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

/// Put another text for `key` into a manifest.
fn change(manifest: &Path, key: &str) {
    let mut all: Value = serde_json::from_slice(&std::fs::read(manifest).unwrap()).unwrap();
    all[key] = "of something else".into();
    std::fs::write(manifest, all.to_string()).unwrap();
}

#[test]
fn only_what_is_damaged_is_to_be_made_again() {
    let (project, folder) = converted();
    data(&project, "verify", &[], 0);
    flip(&folder.join("stores/packed_masks/lmdb/data.mdb"));
    let (found, said) = data(&project, "verify", &[], 6);
    assert!(found.starts_with("stores/packed_masks/lmdb/data.mdb: checksum ") && found.lines().count() == 1, "{found}");
    let alone =
        "stores/packed_masks and run `expctl data convert 006-kuzmin-tmi --to packed_masks --samples 200 --scale 0.05 ";
    assert!(said.contains("1 problem\n") && said.contains(alone), "{said}");
    assert!(!said.contains("everything in it") && !said.contains("ids"), "{said}");

    // A manifest of something else stands in the absolute path; the base store comes first, each store has its hint.
    change(&folder.join("stores/ids/manifest.json"), "base_blake3");
    flip(&folder.join("processed/lmdb/data.mdb"));
    let (found, said) = data(&project, "verify", &[], 6);
    let lines: Vec<&str> = found.lines().collect();
    assert_eq!(lines.len(), 3, "{found}");
    assert!(lines[0].starts_with("processed/lmdb/data.mdb: checksum "), "{found}");
    assert!(lines[1].starts_with("stores/packed_masks/") && lines[2].contains("stores/ids: was made from another"));
    let hints: Vec<&str> = said.lines().filter(|line| line.contains("hint: ")).collect();
    assert_eq!(hints.len(), 3, "{said}");
    assert!(
        hints[0].contains("with everything in it, then `expctl data build 006-kuzmin-tmi --samples 200 "),
        "{said}"
    );
    assert!(hints[1].contains(alone) && hints[2].contains("the ids store alone: remove ROOT/"), "{said}");
}

#[test]
fn a_store_that_cannot_be_used_hides_no_other() {
    let (project, folder) = converted();
    let (table, _) = data(&project, "info", &[], 0);
    assert!(!table.contains("cannot be used") && table.contains("| ids | 200 |"), "{table}");
    change(&folder.join("stores/packed_masks/manifest.json"), "base_blake3");
    let (table, said) = data(&project, "info", &[], 6);
    assert!(table.contains("| packed_masks | cannot be used: was made from another base store"), "{table}");
    assert!(table.contains("| json | 200 |") && table.contains("| ids | 200 |"), "{table}");
    assert!(said.contains("cannot be used: packed_masks"), "{said}");
    std::fs::write(folder.join("stores/ids/manifest.json"), "{").unwrap();
    let (json, _) = data(&project, "info", &["--json"], 6);
    let all: Value = serde_json::from_str(&json).unwrap();
    let stores = all["stores"].as_array().unwrap();
    assert_eq!(stores.iter().map(|s| s["kind"].as_str().unwrap()).collect::<Vec<_>>(), ["json", "packed_masks", "ids"]);
    assert!(stores[0]["refused"].is_null() && stores[0]["records"] == 200);
    let why = stores[2]["refused"].as_str().unwrap();
    assert!(
        why.contains("stores/ids/manifest.json: EOF while parsing")
            && why.contains("stores/ids and run `expctl data convert")
    );
    // The manifest of the data set says so, too.
    std::fs::write(folder.join("manifest.json"), r#"{"schema": 2}"#).unwrap();
    let (_, said) = data(&project, "build", &[], 6);
    assert!(said.contains("manifest.json: missing field") && said.contains("_seed-42 and build it again"), "{said}");
}

#[test]
fn what_submit_would_refuse_is_not_called_missing() {
    let (project, folder) = converted();
    let conf = project.conf("packed", CONF);
    let submit = |more: &[&str], code: i32| {
        let output = project.run(&[&["submit", conf.to_str().unwrap()], more].concat());
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
        (text(&output.stdout), text(&output.stderr))
    };
    let dry = ["--dry-run", "--backend", "local"];
    let store = folder.join("stores/packed_masks");
    let (_, said) = submit(&dry, 0);
    assert_eq!(said.matches(" is there\n").count(), 2, "{said}");

    let kept = std::fs::read(store.join("manifest.json")).unwrap();
    change(&store.join("manifest.json"), "base_blake3");
    let (stdout, said) = submit(&[&dry[..], &["--json"]].concat(), 6);
    assert!(said.contains("packed_masks: was made from another base store"), "{said}");
    assert!(!said.contains("would be built") && said.contains("nothing was written"), "{said}");
    let answer: Value = serde_json::from_str(&stdout).unwrap();
    let states: Vec<_> =
        answer["data"].as_array().unwrap().iter().map(|data| (&data["state"], &data["built"])).collect();
    assert_eq!(states, [(&"there".into(), &true.into()), (&"refused".into(), &false.into())]);
    // Neither a job of this machine nor a chain is begun.
    for line in [&["--backend", "local"][..], &["--backend", "slurm", "--chain"]] {
        let (stdout, said) = submit(line, 6);
        assert!(stdout.is_empty() && said.contains("was made from another base store"), "{said}");
    }
    assert!(!project.path().join("results/runs").exists());

    // A folder without a manifest is in the way; without a folder the store is missing.
    std::fs::remove_file(store.join("manifest.json")).unwrap();
    assert!(submit(&dry, 6).1.contains("packed_masks: exists, but is no store"));
    std::fs::remove_dir_all(&store).unwrap();
    let (_, said) = submit(&dry, 0);
    assert!(said.contains("packed_masks would be built, about ") && said.matches(" is there\n").count() == 1, "{said}");

    // The same of the data set itself.
    std::fs::create_dir_all(&store).unwrap();
    std::fs::write(store.join("manifest.json"), kept).unwrap();
    change(&folder.join("manifest.json"), "recipe_blake3");
    assert!(submit(&dry, 6).1.contains("_seed-42: was built from another state of the recipe"));
    std::fs::remove_file(folder.join("manifest.json")).unwrap();
    assert!(submit(&dry, 6).1.contains("_seed-42: exists, but is no data set"));
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(submit(&dry, 0).1.matches(" would be built, about ").count(), 2);
}

/// More rows than any disk has room for are refused before a folder is made; the recipe says how much they would take.
#[test]
fn what_does_not_fit_is_refused_before_anything_is_built() {
    let project = TestProject::new();
    let rows =
        "array.format = \"h5ad\"\ndata.samples = 100_000_000_000_000\nloader.batch_size = 28\nmeasure.repeats = 1\n";
    let conf = project.conf("rows", rows);
    let run = |line: &[&str], code: i32| {
        let output = project.run(line);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
        (text(&output.stdout), text(&output.stderr))
    };
    let conf = conf.to_str().unwrap();
    let (_, said) = run(&["plan", conf], 0);
    assert!(said.contains("would be built, about ") && said.contains(" PB (estimated)"), "{said}");
    for more in [&["--dry-run", "--json"][..], &[]] {
        let (stdout, said) = run(&[&["submit", conf, "--backend", "local"], more].concat(), 3);
        assert!(said.contains("the data do not fit: 1 folder to be built take "), "{said}");
        if let Ok(answer) = serde_json::from_str::<Value>(&stdout) {
            let (needed, free) = (&answer["data"][0]["estimated_bytes"], &answer["free_bytes"]);
            assert!(needed.as_u64().unwrap() > free.as_u64().unwrap(), "{answer}");
        } else {
            assert!(stdout.is_empty() && more.is_empty(), "{stdout}");
        }
    }
    assert!(!project.path().join("results/runs").exists() && !project.path().join("data").exists());
}

#[test]
fn a_second_builder_is_told_to_wait() {
    let (project, folder) = converted();
    let hold = |folder: &Path| {
        let partial = PathBuf::from(format!("{}.partial", folder.display()));
        std::fs::create_dir_all(&partial).unwrap();
        let lock = std::fs::File::create(partial.join(".lock")).unwrap();
        Flock::lock(lock, FlockArg::LockExclusiveNonblock).unwrap()
    };
    let told =
        |said: &str| said.contains("another process is building ROOT/") && said.contains("wait for it, or stop it");
    let lock = hold(&folder.join("stores/compressed"));
    let (_, said) = data(&project, "convert", &["--to", "compressed"], 6);
    assert!(told(&said), "{said}");
    drop(lock);
    data(&project, "convert", &["--to", "compressed"], 0);
    std::fs::remove_dir_all(&folder).unwrap();
    let _lock = hold(&folder);
    let (_, said) = data(&project, "build", &[], 6);
    assert!(told(&said), "{said}");
}

#[test]
fn a_stopped_conversion_says_what_it_was() {
    let project = TestProject::new();
    let set = ["006-kuzmin-tmi", "--samples", "6000", "--scale", "0.1", "--networks", "completed"];
    let folder = project.ok(&[&["data", "build"], &set[..]].concat());
    let partial = Path::new(folder.trim_end()).join("stores/full_masks.partial/lmdb/data.mdb");
    let convert = [&["data", "convert"], &set[..], &["--to", "full_masks", "--jobs", "1"]].concat();
    let mut child = project.expctl(&convert).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the conversion to begin", PATIENCE, || {
        assert!(child.try_wait().unwrap().is_none(), "it has ended");
        partial.is_file().then_some(())
    });
    kill(nix::unistd::Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(said.contains("stopped before the store was complete: full_masks") && said.contains("goes on"), "{said}");
    // Estimate and result are in the same unit.
    let output = project.run(&convert);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let sizes: Vec<&str> = said.lines().filter(|line| line.contains(" MB")).collect();
    assert!(
        sizes.len() == 2 && sizes[0].contains("full_masks: about ") && sizes[1].contains("6,000 records"),
        "{said}"
    );
    assert!(!said.contains("iB"), "{said}");
}
