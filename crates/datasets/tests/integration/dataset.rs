//! Builds the data set that ships, at small and at full graph scale.

#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "a helper of a test fails the test; times are shown")]

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use expctl_datasets::graph::{Dataset, Manifest, Recipe, build, verify};
use expctl_datasets::{BuildProgress, DataOrigin, DatasetError};
use expctl_settings::{Data, LabelSource, Networks, SampleSet, Select};
use graph_loader::{Sample, Selection};

use crate::converted::quiet;

fn recipe() -> Recipe {
    Recipe::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/006-kuzmin-tmi")).unwrap()
}

fn data(samples: u64, scale: f64, networks: Networks) -> Data {
    let set = "006-kuzmin-tmi".to_owned();
    Data { set, samples, scale, networks, seed: 7, labels: LabelSource::Random, files: 1, genes: 0 }
}

fn built(data: &Data) -> (tempfile::TempDir, PathBuf, Manifest) {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join(data.folder_name());
    let manifest = build(&recipe(), data, &folder, &mut quiet).unwrap();
    (parent, folder, manifest)
}

fn blake3_of<'m>(manifest: &'m Manifest, path: &str) -> &'m str {
    &manifest.files.iter().find(|file| file.path == path).unwrap().blake3
}

#[test]
fn the_full_graph_has_the_published_counts() {
    let (_parent, folder, manifest) = built(&data(20, 1.0, Networks::Completed));
    let counts: Vec<(&str, u64, u64, DataOrigin)> =
        manifest.networks.iter().map(|n| (n.name.as_str(), n.edges, n.real, n.class)).collect();
    assert_eq!(
        counts,
        [
            ("physical", 144_211, 0, DataOrigin::Generated),
            ("regulatory", 44_310, 0, DataOrigin::Generated),
            ("tflink", 207_250, 0, DataOrigin::Generated),
            ("string12_0_neighborhood", 153_320, 45_610, DataOrigin::Completed),
            ("string12_0_fusion", 18_394, 1_361, DataOrigin::Completed),
            ("string12_0_cooccurence", 17_692, 2_664, DataOrigin::Completed),
            ("string12_0_coexpression", 1_002_806, 0, DataOrigin::Generated),
            ("string12_0_experimental", 828_701, 0, DataOrigin::Generated),
            ("string12_0_database", 79_224, 33_486, DataOrigin::Completed),
        ]
    );
    assert!(manifest.networks.iter().all(|n| n.edges == n.real + n.generated + 6607 && n.self_loops == 6607));
    assert_eq!(manifest.num_edges(), 2_495_908);
    assert_eq!((manifest.genes.count, manifest.genes.real, manifest.genes.generated), (6607, 6400, 207));
    assert_eq!((manifest.bipartite.gpr, manifest.bipartite.rmr), (5450, 26_325));

    let names: Vec<String> = manifest.networks.iter().map(|n| n.name.clone()).collect();
    let graph = Dataset::open(&folder).unwrap().graph(&names, false).unwrap();
    assert!(graph.genes.is_sorted() && graph.num_genes() == 6607 && graph.num_edges() == 2_495_908);
    for (edges, info) in graph.edge_types.iter().zip(&manifest.networks) {
        let distinct: HashSet<(i64, i64)> =
            edges.sources().iter().copied().zip(edges.targets().iter().copied()).collect();
        assert_eq!(distinct.len() as u64, info.edges, "{}: duplicates", info.name);
        assert!(distinct.iter().all(|(s, t)| (0..6607).contains(s) && (0..6607).contains(t)));
        assert!(info.directed || distinct.iter().all(|(s, t)| s <= t));
    }
    // A real edge of the STRING file, by name: cytochrome oxidase subunits 1 and 2.
    let index = |name: &str| graph.genes.iter().position(|gene| gene == name).unwrap() as i64;
    let cooccurence = &graph.edge_types[5];
    let pair = (index("Q0045"), index("Q0250"));
    assert!(cooccurence.sources().iter().zip(cooccurence.targets()).any(|(s, t)| (*s, *t) == pair));
}

#[test]
fn real_networks_are_used_as_they_are() {
    let (_parent, folder, manifest) = built(&data(20, 1.0, Networks::Real));
    let fusion = &manifest.networks[4];
    assert_eq!((fusion.edges, fusion.real, fusion.generated, fusion.class), (7968, 1361, 0, DataOrigin::Measured));
    assert_eq!(manifest.networks[6].generated, 1_002_806 - 6607, "networks without a real source are generated");
    let error = Dataset::open(&folder).unwrap().graph(&["fusion".to_owned()], false).unwrap_err().to_string();
    assert!(error.contains("no edge type `fusion`") && error.contains("string12_0_fusion, "), "{error}");
}

#[test]
fn planted_labels_change_labels_alone() {
    let random = data(2000, 0.05, Networks::Completed);
    let planted = Data { labels: LabelSource::Planted, ..random.clone() };
    let (_random, _, without) = built(&random);
    let (_planted, folder, with) = built(&planted);
    assert!(folder.ends_with("scale-0.05_samples-2000_completed_seed-7_planted"), "{}", folder.display());
    for file in ["graph.safetensors", "samples.safetensors", "genes.txt"] {
        assert_eq!(blake3_of(&with, file), blake3_of(&without, file), "{file}");
    }
    assert_ne!(with.store.content_blake3, without.store.content_blake3);
    assert_ne!(with.recipe_blake3, without.recipe_blake3);
    assert_eq!(with.data.labels, LabelSource::Planted);
    assert!((with.samples.label_mean + 0.008024).abs() < 1e-9 && (with.samples.label_sd - 0.063264).abs() < 1e-9);
    assert_eq!(verify(&folder, &mut quiet).unwrap(), Vec::<String>::new());
    let again = built(&planted).2;
    assert_eq!((again.store, again.samples), (with.store, with.samples));
}

#[test]
fn the_same_settings_give_the_same_bytes_and_a_stopped_build_goes_on() {
    let data = data(3500, 0.1, Networks::Completed);
    let (_parent, _, straight) = built(&data);

    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("set");
    let stop_at = |at: u64| {
        move |p: BuildProgress| {
            if p.phase == "samples" && p.done >= at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    };
    for at in [1000, 2000] {
        let stopped = build(&recipe(), &data, &folder, &mut stop_at(at));
        assert!(matches!(stopped, Err(DatasetError::Stopped)));
        assert!(!folder.exists() && parent.path().join("set.partial").is_dir());
    }
    let resumed = build(&recipe(), &data, &folder, &mut quiet).unwrap();
    assert_eq!(resumed.resumed_at, 2000);
    assert_eq!(resumed.store, straight.store);
    for file in ["graph.safetensors", "samples.safetensors", "genes.txt"] {
        assert_eq!(blake3_of(&resumed, file), blake3_of(&straight, file));
    }
    assert_eq!(resumed.samples, straight.samples);
    assert!(!parent.path().join("set.partial").exists());
    let left: HashSet<_> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(
        left,
        ["manifest.json", "genes.txt", "graph.safetensors", "samples.safetensors", "processed"].map(Into::into).into()
    );

    // A partial build of other settings is not gone on with.
    let other = parent.path().join("other");
    assert!(build(&recipe(), &data, &other, &mut stop_at(1000)).is_err());
    let fewer = Data { samples: 1500, ..data.clone() };
    let manifest = build(&recipe(), &fewer, &other, &mut quiet).unwrap();
    assert_eq!((manifest.resumed_at, manifest.store.records), (0, 1500));
    // And a finished one is not overwritten.
    assert!(build(&recipe(), &data, &other, &mut quiet).unwrap_err().to_string().contains("remove it to build again"));

    // The known digest: the same on every machine.
    assert_eq!(blake3_of(&straight, "graph.safetensors"), GRAPH_DIGEST);
    assert_eq!(straight.store.content_blake3, STORE_DIGEST);
}

const GRAPH_DIGEST: &str = "fb05bf25b86f84452c94e9317f5b11202268f07243f007e5ecc433de2318b774";
const STORE_DIGEST: &str = "77fdccf9b0bebe8f855f779ff62bb4a06cc90fba889d1392cc20ff4cb7eda40a";

#[test]
fn two_builders_do_not_meet() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("set");
    let data = data(10, 0.05, Networks::Real);
    let mut second = None;
    build(&recipe(), &data, &folder, &mut |_| {
        second.get_or_insert_with(|| build(&recipe(), &data, &folder, &mut quiet));
        ControlFlow::Continue(())
    })
    .unwrap();
    assert!(second.unwrap().unwrap_err().to_string().contains("another process is building"));
}

#[test]
fn a_build_that_was_killed_just_after_the_rename_is_finished() {
    let data = data(10, 0.05, Networks::Real);
    let (_parent, folder, manifest) = built(&data);
    for file in [".digest", ".lock"] {
        std::fs::write(folder.join(file), "").unwrap();
    }
    // Not built again, and nothing of the builder is left.
    assert_eq!(build(&recipe(), &data, &folder, &mut |_| ControlFlow::Break(())).unwrap(), manifest);
    assert_eq!(verify(&folder, &mut quiet).unwrap(), Vec::<String>::new());
    assert!(!folder.join(".digest").exists() && !folder.join(".lock").exists());
}

#[test]
fn records_decode_to_distinct_triples_with_the_published_statistics() {
    let (_parent, folder, manifest) = built(&data(12_000, 0.1, Networks::Completed));
    let dataset = Dataset::open(&folder).unwrap();
    let (store, decoder) = (dataset.store().unwrap(), dataset.decoder().unwrap());
    let (mut reader, mut bytes, mut sample) = (store.reader().unwrap(), Vec::new(), Sample::default());
    let (mut triples, mut labels) = (HashSet::new(), Vec::new());
    let listed = dataset.sample_genes().unwrap();
    assert_eq!(listed.len(), store.len());
    let mut decoding = std::time::Duration::ZERO;
    for index in 0..store.len() {
        bytes.clear();
        reader.read(index, &mut bytes).unwrap();
        assert!((8_177..=12_272).contains(&bytes.len()), "three pages a record, not {} bytes", bytes.len());
        let started = std::time::Instant::now();
        decoder.decode(index, &bytes, &mut sample).unwrap();
        decoding += started.elapsed();
        assert!(sample.genes.len() == 3 && sample.genes.is_sorted() && sample.genes[2] < manifest.genes.count as i64);
        assert!(listed.of(index).iter().map(|gene| i64::from(*gene)).eq(sample.genes.iter().copied()));
        assert!(triples.insert(sample.genes.clone()));
        assert!(sample.p_value > 0.0 && sample.p_value < 1.0);
        labels.push(f64::from(sample.label));
    }
    eprintln!("decoding takes {:.1} µs a record", decoding.as_secs_f64() * 1e6 / labels.len() as f64);
    let mean = labels.iter().sum::<f64>() / labels.len() as f64;
    let sd = (labels.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / labels.len() as f64).sqrt();
    assert!((mean + 0.008024).abs() < 1e-7 && (sd - 0.063264).abs() < 1e-7, "{mean} {sd}");
    assert_eq!(labels.iter().copied().fold(f64::MAX, f64::min) as f32, -1.0816);
    assert_eq!(labels.iter().copied().fold(f64::MIN, f64::max) as f32, 1.128043);
    // Sample i does not depend on how many there are.
    let (_other, folder, _) = built(&data(50, 0.1, Networks::Completed));
    let fewer = Dataset::open(&folder).unwrap();
    let (few_store, few_decoder) = (fewer.store().unwrap(), fewer.decoder().unwrap());
    let mut few_reader = few_store.reader().unwrap();
    let mut one = |reader: &mut graph_loader::LmdbReader<'_>| {
        bytes.clear();
        reader.read(31, &mut bytes).unwrap();
        few_decoder.decode(31, &bytes, &mut sample).unwrap();
        sample.genes.clone()
    };
    assert_eq!(one(&mut few_reader), one(&mut reader));
}

#[test]
fn verification_finds_what_was_changed() {
    let (_parent, folder, _) = built(&data(30, 0.05, Networks::Completed));
    assert_eq!(verify(&folder, &mut quiet).unwrap(), Vec::<String>::new());
    for file in ["genes.txt", "graph.safetensors", "samples.safetensors", "processed/lmdb/data.mdb"] {
        let path = folder.join(file);
        let good = std::fs::read(&path).unwrap();
        let mut bad = good.clone();
        *bad.last_mut().unwrap() ^= 1;
        std::fs::write(&path, &bad).unwrap();
        let problems = verify(&folder, &mut quiet).unwrap();
        assert!(problems.len() == 1 && problems[0].starts_with(&format!("{file}: checksum")), "{problems:?}");
        std::fs::write(&path, &good[1..]).unwrap();
        assert!(verify(&folder, &mut quiet).unwrap()[0].contains("bytes instead of"));
        std::fs::write(&path, &good).unwrap();
    }
    std::fs::remove_file(folder.join("genes.txt")).unwrap();
    assert_eq!(verify(&folder, &mut quiet).unwrap().len(), 1);
}

#[test]
fn an_older_layout_is_refused_and_what_to_do_is_said() {
    let data = data(10, 0.05, Networks::Real);
    let (_parent, folder, _) = built(&data);
    let path = folder.join("manifest.json");
    let mut manifest: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    manifest["schema"] = 1.into();
    manifest.as_object_mut().unwrap().remove("samples");
    std::fs::write(&path, manifest.to_string()).unwrap();
    for error in [Dataset::open(&folder).unwrap_err(), build(&recipe(), &data, &folder, &mut quiet).unwrap_err()] {
        let error = error.to_string();
        assert!(error.contains("layout version 1") && error.contains("build it again"), "{error}");
    }
}

#[test]
fn metabolic_samples_of_a_data_set_are_those_of_its_gpr_edges() {
    let (_parent, folder, _) = built(&data(2_000, 0.1, Networks::Completed));
    let dataset = Dataset::open(&folder).unwrap();
    let select = Select { samples: SampleSet::Metabolic, ..Select::default() };
    let selection = expctl_datasets::graph::select_samples(&dataset, &select).unwrap();
    let mut found: Vec<u64> = (0..selection.len()).collect();
    selection.to_records(&mut found);
    let metabolism = dataset.graph(&[], true).unwrap().metabolism.unwrap();
    let (store, decoder) = (dataset.store().unwrap(), dataset.decoder().unwrap());
    let (mut reader, mut sample) = (store.reader().unwrap(), Sample::default());
    let naive: Vec<u64> = (0..store.len())
        .filter(|index| {
            let mut bytes = Vec::new();
            reader.read(*index, &mut bytes).unwrap();
            decoder.decode(*index, &bytes, &mut sample).unwrap();
            metabolism.gpr_genes().iter().any(|gene| sample.genes.contains(gene))
        })
        .collect();
    assert_eq!(found, naive);
    assert!(!naive.is_empty() && (naive.len() as u64) < store.len(), "{} of {}", naive.len(), store.len());
    // All records are no list.
    let all = expctl_datasets::graph::select_samples(&dataset, &Select { seed: 9, ..Select::default() }).unwrap();
    assert_eq!(all, Selection::all(2_000));
}

#[test]
fn impossible_settings_are_refused() {
    let parent = tempfile::tempdir().unwrap();
    let refused = |data: Data| {
        let error = build(&recipe(), &data, &parent.path().join("x"), &mut quiet).unwrap_err();
        assert!(matches!(error, DatasetError::Request(_)), "{error}");
        assert!(!parent.path().join("x.partial").exists());
        error.to_string()
    };
    assert!(refused(data(332_314, 1.0, Networks::Real)).contains("1 to 332313 samples"));
    assert!(refused(data(0, 1.0, Networks::Real)).contains("samples"));
    assert!(refused(data(5, 0.0, Networks::Real)).contains("scale"));
    assert!(refused(data(5, 1.5, Networks::Real)).contains("scale"));
    assert!(refused(data(300_000, 0.01, Networks::Real)).contains("at most"));
    assert!(matches!(Dataset::open(&parent.path().join("x")), Err(DatasetError::NotBuilt { .. })));
}
