//! `expctl data` as a user runs it, and what it builds as Python reads it.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

#[path = "common/python.rs"]
mod python;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use assert_cmd::assert::OutputAssertExt;
use assert_cmd::cargo::CommandCargoExt;
use python::interpreter;
use serde_json::Value;

const SET: &str = "006-kuzmin-tmi";
const SMALL: [&str; 6] = ["--samples", "1200", "--scale", "0.1", "--networks", "completed"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// `expctl data VERB SET SMALL…` with data sets in `data`.
fn expctl(data: &Path, verb: &str) -> Command {
    let mut command = Command::cargo_bin("expctl").unwrap();
    command.env("EXPCTL_ROOT", root()).env("EXPCTL_DATA", data).args(["data", verb, SET]);
    command
}

fn build_small(data: &Path) -> PathBuf {
    let assert = expctl(data, "build").args(SMALL).assert().success();
    let output = assert.get_output();
    PathBuf::from(String::from_utf8(output.stdout.clone()).unwrap().trim_end())
}

fn info(data: &Path) -> Value {
    let assert = expctl(data, "info").args(SMALL).arg("--json").assert().success();
    serde_json::from_slice(&assert.get_output().stdout).unwrap()
}

fn read_in_python(script: &str, folder: &Path, args: &[&str]) -> Value {
    let output = Command::new(interpreter())
        .arg(root().join("tests/python").join(script))
        .arg(folder)
        .args(args)
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "{script} failed");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn build_info_and_verify() {
    let data = tempfile::tempdir().unwrap();
    let folder = build_small(data.path());
    assert!(folder.starts_with(data.path()) && folder.join("processed/lmdb/data.mdb").is_file());

    let before = folder.join("manifest.json").metadata().unwrap().modified().unwrap();
    let started = Instant::now();
    assert_eq!(build_small(data.path()), folder);
    assert!(started.elapsed() < Duration::from_secs(2), "a second build took {:?}", started.elapsed());
    assert_eq!(folder.join("manifest.json").metadata().unwrap().modified().unwrap(), before);

    let manifest = info(data.path());
    assert_eq!(manifest["samples"]["count"], 1200);
    assert_eq!(manifest["store"]["records"], 1200);
    assert_eq!(manifest["genes"]["count"], 661);
    let table = expctl(data.path(), "info").args(SMALL).assert().success();
    let table = String::from_utf8(table.get_output().stdout.clone()).unwrap();
    for word in ["string12_0_neighborhood", "completed", "generated", "label sd (population)", "0.063264", "build time"]
    {
        assert!(table.contains(word), "{word} is not in\n{table}");
    }

    expctl(data.path(), "verify").args(SMALL).assert().success().stdout("");
    let store = folder.join("processed/lmdb/data.mdb");
    let mut bytes = std::fs::read(&store).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&store, bytes).unwrap();
    let assert = expctl(data.path(), "verify").args(SMALL).assert().code(6);
    let found = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
    assert!(found.starts_with("processed/lmdb/data.mdb: checksum "), "{found}");
    assert_eq!(found.lines().count(), 1);
}

#[test]
fn python_reads_store_and_graph() {
    let data = tempfile::tempdir().unwrap();
    let folder = build_small(data.path());
    let manifest = info(data.path());

    let store = read_in_python("read_store.py", &folder, &["0", "31", "1199"]);
    assert_eq!((store["records"].as_u64(), store["distinct_triples"].as_u64()), (Some(1200), Some(1200)));
    for (key, expected) in [("label_mean", -0.008024), ("label_sd", 0.063264)] {
        let found = store[key].as_f64().unwrap();
        assert!((found - expected).abs() < 1e-10, "{key}: {found}");
        assert!((manifest["samples"][key].as_f64().unwrap() - found).abs() < 1e-10);
    }
    assert_eq!(store["label_min"], manifest["samples"]["label_min"]);
    let dataset = expctl_pipeline::dataset::Dataset::open(&folder).unwrap();
    let genes = dataset.genes().unwrap();
    let (base, decoder) = (dataset.store().unwrap(), dataset.decoder().unwrap());
    let (mut reader, mut sample) = (base.reader().unwrap(), expctl_pipeline::store::Sample::default());
    for shown in store["shown"].as_array().unwrap() {
        let index = shown["index"].as_u64().unwrap();
        let mut bytes = Vec::new();
        reader.read(index, &mut bytes).unwrap();
        decoder.decode(index, &bytes, &mut sample).unwrap();
        let names: Vec<&str> = sample.genes.iter().map(|gene| genes[*gene as usize].as_str()).collect();
        assert_eq!(shown["genes"], serde_json::json!(names));
        assert_eq!(shown["label"].as_f64().unwrap() as f32, sample.label);
        assert_eq!(shown["p_value"].as_f64().unwrap() as f32, sample.p_value);
        assert_eq!((shown["class"].as_str(), shown["strain"].as_str()), (Some("generated"), Some("S288C")));
    }

    let graph = read_in_python("read_graph.py", &folder, &[]);
    assert_eq!((graph["genes"].as_u64(), graph["genes_sorted"].as_bool()), (Some(661), Some(true)));
    for network in manifest["networks"].as_array().unwrap() {
        let name = network["name"].as_str().unwrap();
        let read = &graph["networks"][name];
        assert_eq!(read["distinct"], network["edges"], "{name}");
        assert_eq!((read["self_loops"].as_u64(), read["loops_at_end"].as_bool()), (Some(661), Some(true)), "{name}");
        let tensor = &graph["tensors"][format!("edge_index/{name}")];
        assert_eq!(*tensor, serde_json::json!(["int64", [2, network["edges"]]]));
    }
    assert_eq!(graph["tensors"]["stoichiometry/rmr"], serde_json::json!(["float32", [manifest["bipartite"]["rmr"]]]));
    assert!(graph["reactants"].as_u64() > Some(0) && graph["products"].as_u64() > Some(0));
}

#[test]
fn an_interrupted_build_goes_on() {
    use nix::sys::signal::{Signal, kill};
    let data = tempfile::tempdir().unwrap();
    let many = ["--samples", "60000", "--scale", "0.2"];
    let mut child =
        expctl(data.path(), "build").args(many).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let partial = || {
        let sets = std::fs::read_dir(data.path().join(SET)).into_iter().flatten().flatten();
        sets.map(|set| set.path()).find(|path| path.extension().is_some_and(|e| e == "partial"))
    };
    let grown = |path: PathBuf| path.join("processed/lmdb/data.mdb").metadata().is_ok_and(|meta| meta.len() > 50 << 20);
    let deadline = Instant::now() + Duration::from_secs(120);
    while !partial().is_some_and(grown) {
        assert!(Instant::now() < deadline && child.try_wait().unwrap().is_none(), "the build did not get going");
        std::thread::sleep(Duration::from_millis(20));
    }
    kill(nix::unistd::Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(said.contains("goes on where it stopped"), "{said}");

    expctl(data.path(), "build").args(many).assert().success();
    assert!(partial().is_none());
    let assert = expctl(data.path(), "info").args(many).arg("--json").assert().success();
    let manifest: Value = serde_json::from_slice(&assert.get_output().stdout).unwrap();
    assert!(manifest["resumed_at"].as_u64() >= Some(1000), "{}", manifest["resumed_at"]);
    assert_eq!(manifest["store"]["records"], 60000);
}

#[test]
fn wrong_questions_are_answered() {
    let data = tempfile::tempdir().unwrap();
    let say = |args: &[&str], code: i32| {
        let mut command = Command::cargo_bin("expctl").unwrap();
        command.env("EXPCTL_ROOT", root()).env("EXPCTL_DATA", data.path()).arg("data").args(args);
        let assert = command.assert().code(code);
        String::from_utf8(assert.get_output().stderr.clone()).unwrap()
    };
    let unknown = say(&["build", "006-kuzmin-tml"], 3);
    assert!(unknown.contains("did you mean `006-kuzmin-tmi`?"), "{unknown}");
    assert!(say(&["info", "zzz"], 3).contains("data sets: 006-kuzmin-tmi"));
    assert!(say(&["build", SET, "--samples", "332314"], 3).contains("1 to 332313 samples, not 332314"));
    assert!(say(&["build", SET, "--scale", "2"], 3).contains("scale is a share"));
    assert!(say(&["info", SET, "--samples", "3"], 6).contains("has not been built"));
    assert!(say(&["verify", SET, "--samples", "3"], 6).contains("has not been built"));
    say(&["build", SET, "--networks", "imagined"], 2);
}
