//! `expctl data` as a user runs it, and what it builds as Python reads it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::programs::interpreter;
use assert_cmd::assert::OutputAssertExt;
use assert_cmd::cargo::CommandCargoExt;
use expctl_datasets::graph::Dataset;
use expctl_settings::{Pipeline, Processor, StoreKind};
use graph_loader::{LmdbStore, Sample};
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
    assert_eq!(build_small(data.path()), folder);
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
    let dataset = expctl_datasets::graph::Dataset::open(&folder).unwrap();
    let genes = dataset.genes().unwrap();
    let (base, decoder) = (dataset.store().unwrap(), dataset.decoder().unwrap());
    let (mut reader, mut sample) = (base.reader().unwrap(), graph_loader::Sample::default());
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

/// The value that write_store.py has written under `index` in the end.
fn written_by_python(index: u64) -> Vec<u8> {
    (0..index * 7919 % 20_000).map(|k| (index * 31 + k) as u8).collect()
}

#[test]
fn stores_that_python_wrote_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let counts = read_in_python("write_store.py", folder.path(), &["1500"]);
    assert!(counts["overwritten"].as_u64() > Some(0) && counts["deleted"].as_u64() > Some(0));
    let store = LmdbStore::open(folder.path()).unwrap();
    assert_eq!(store.len(), 1500);
    let mut reader = store.reader().unwrap();
    for index in 0..1500 {
        let mut bytes = Vec::new();
        reader.read(index, &mut bytes).unwrap();
        assert!(bytes == written_by_python(index), "record {index} of {} bytes", bytes.len());
    }
}

/// Number and sum of the False positions of each mask in the compressed store, as Rust decodes it.
fn false_positions(dataset: &Dataset, index: u64) -> (Sample, Vec<(String, Value)>) {
    let networks: Vec<String> = dataset.manifest().networks.iter().map(|network| network.name.clone()).collect();
    let mut names: Vec<String> = networks.iter().map(|name| format!("edge_masks/gene__{name}__gene")).collect();
    names.extend(
        ["node_masks/reaction", "edge_masks/gene__gpr__reaction", "edge_masks/reaction__rmr__metabolite"]
            .map(str::to_owned),
    );
    let settings =
        Pipeline { store: StoreKind::Compressed, metabolism: true, ..Pipeline::new(Processor::Lazy, networks) };
    let (store, decoder) = dataset.records(&settings).unwrap();
    let (mut bytes, mut sample) = (Vec::new(), Sample::default());
    store.reader().unwrap().read(index, &mut bytes).unwrap();
    decoder.decode(index, &bytes, 0..bytes.len(), &mut sample).unwrap();
    let positions = sample.masks.spans.iter().map(|span| {
        let words = bytes[span.clone()].chunks_exact(8).map(|word| i64::from_le_bytes(word.try_into().unwrap()));
        serde_json::json!([words.len(), words.sum::<i64>()])
    });
    let all = names.into_iter().zip(positions).collect();
    (sample, all)
}

#[test]
fn conversion_and_what_python_reads_of_it() {
    let data = tempfile::tempdir().unwrap();
    let kinds = ["compressed", "full_masks", "packed_masks", "ids"];
    let set = ["--samples", "300", "--scale", "0.1", "--networks", "completed"];
    let to: Vec<&str> = kinds.iter().flat_map(|kind| ["--to", kind]).collect();
    let convert = || expctl(data.path(), "convert").args(set).args(&to).args(["--jobs", "2"]).assert();
    let said = String::from_utf8(convert().code(6).get_output().stderr.clone()).unwrap();
    assert!(said.contains("has not been built"), "{said}");
    expctl(data.path(), "build").args(set).assert().success();
    let done = convert().success();
    let (folders, said) = (&done.get_output().stdout, String::from_utf8_lossy(&done.get_output().stderr));
    let folders: Vec<PathBuf> = String::from_utf8(folders.clone()).unwrap().lines().map(PathBuf::from).collect();
    assert!(folders.len() == 4 && folders.iter().all(|folder| folder.join("manifest.json").is_file()));
    assert!(said.contains("full_masks: about ") && said.contains("(estimated from 64 records)"), "{said}");
    let before = folders[1].join("manifest.json").metadata().unwrap().modified().unwrap();
    convert().success();
    assert_eq!(folders[1].join("manifest.json").metadata().unwrap().modified().unwrap(), before);
    expctl(data.path(), "convert").args(set).args(["--to", "json"]).assert().code(2);

    let info = expctl(data.path(), "info").args(set).arg("--json").assert().success();
    let info: Value = serde_json::from_slice(&info.get_output().stdout).unwrap();
    let stores = info["stores"].as_array().unwrap();
    assert_eq!(
        stores.iter().map(|store| store["kind"].as_str().unwrap()).collect::<Vec<_>>(),
        [&["json"], &kinds[..]].concat()
    );
    assert!(stores.iter().all(|store| store["records"] == 300 && store["allocated_bytes"].as_u64() > Some(0)));
    assert!(stores[2]["ratio_to_base"].as_f64() > Some(1.0) && stores[4]["ratio_to_base"].as_f64() < Some(0.1));
    let table = expctl(data.path(), "info").args(set).assert().success();
    assert!(String::from_utf8_lossy(&table.get_output().stdout).contains("| packed_masks |"));

    let folder = folders[0].parent().unwrap().parent().unwrap();
    let python = read_in_python("read_converted.py", folder, &["0", "17", "299"]);
    let dataset = Dataset::open(folder).unwrap();
    for (index, at) in [0, 17, 299].into_iter().zip(0..) {
        let (sample, masks) = false_positions(&dataset, index);
        for kind in kinds {
            let read = &python[kind][at as usize];
            assert_eq!(read["genes"], serde_json::json!(sample.genes), "{kind}");
            assert_eq!(read["label"].as_f64().unwrap() as f32, sample.label);
            assert_eq!(read["p_value"].as_f64().unwrap() as f32, sample.p_value);
            for (name, expected) in masks.iter().filter(|_| kind != "ids") {
                assert_eq!(read["masks"][name], *expected, "{kind} {name}");
            }
            if kind != "ids" {
                let genes = serde_json::json!([3, sample.genes.iter().sum::<i64>()]);
                assert_eq!(
                    (&read["masks"]["node_masks/gene"], &read["masks"]["node_masks/metabolite"]),
                    (&genes, &serde_json::json!([0, 0]))
                );
            }
        }
    }

    expctl(data.path(), "verify").args(set).assert().success();
    let store = folders[2].join("lmdb/data.mdb");
    let mut bytes = std::fs::read(&store).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&store, bytes).unwrap();
    let found = expctl(data.path(), "verify").args(set).assert().code(6);
    let found = String::from_utf8_lossy(&found.get_output().stdout).into_owned();
    assert!(found.starts_with("stores/packed_masks/lmdb/data.mdb: checksum "), "{found}");
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
    let built = data.path().join(SET).join("scale-1_samples-9");
    std::fs::create_dir_all(&built).unwrap();
    std::fs::write(built.join("manifest.json"), "").unwrap();
    assert!(say(&["info", SET, "--samples", "3"], 6).contains("built are: scale-1_samples-9\n"));
    assert!(say(&["verify", SET, "--samples", "3"], 6).contains("has not been built"));
    say(&["build", SET, "--networks", "imagined"], 2);
}
