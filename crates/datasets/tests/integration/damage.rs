//! Data sets and stores that are not what their manifests say, or change while they are read.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use expctl_datasets::graph::{Conversion, Dataset, DatasetRecords};
use expctl_datasets::{DatasetError, graph_batch_options};
use expctl_settings::{Pipeline, Processor, StoreKind};
use graph_loader::{
    Assembler, CellGraph, DistributedSampler, GraphBatcher, GraphError, LmdbStore, Records, Sample, Schedule,
};
use loader_core::{Loader, LoaderOptions};
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;

use crate::converted::{MADE, built, convert, pipeline};

/// Write the graph file with one edge fewer in these tensors.
fn without_an_edge(path: &Path, good: &[u8], names: &[&str]) {
    let tensors = SafeTensors::deserialize(good).unwrap();
    let all: Vec<_> = tensors
        .iter()
        .map(|(name, tensor)| {
            let (mut shape, mut data) = (tensor.shape().to_vec(), tensor.data().to_vec());
            if names.contains(&name) {
                let edges = shape.last_mut().unwrap();
                // Coefficients have one row, edges two.
                let rows = data.chunks_exact(data.len() / tensor.shape().len());
                data = rows.flat_map(|row| row[..row.len() / *edges * (*edges - 1)].to_vec()).collect();
                *edges -= 1;
            }
            (name, tensor.dtype(), shape, data)
        })
        .collect();
    let views =
        all.iter().map(|(name, dtype, shape, data)| (*name, TensorView::new(*dtype, shape.clone(), data).unwrap()));
    std::fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

#[test]
fn a_graph_of_other_edges_than_the_manifests_is_refused_with_every_store() {
    let parent = tempfile::tempdir().unwrap();
    let dataset = built(parent.path(), 8, 0.05);
    MADE.iter().for_each(|kind| drop(convert(&dataset, *kind, 1).unwrap()));
    let path = dataset.folder().join("graph.safetensors");
    let good = std::fs::read(&path).unwrap();
    let network = dataset.manifest().networks.iter().find(|network| network.name == "tflink").unwrap().edges;
    let bipartite = &dataset.manifest().bipartite;
    let changes: [(&[&str], u64); 3] = [
        (&["edge_index/tflink"], network),
        (&["hyperedge_index/gpr"], bipartite.gpr),
        (&["hyperedge_index/rmr", "stoichiometry/rmr"], bipartite.rmr),
    ];
    for (names, edges) in changes {
        without_an_edge(&path, &good, names);
        for kind in StoreKind::ALL {
            // As a worker does: the graph first.
            let trial = pipeline(kind, &["physical", "tflink"], true);
            let graph = dataset.graph(&trial.edge_types, trial.metabolism);
            let error = graph.and_then(|_| DatasetRecords::open(&dataset, &trial)).err().unwrap().to_string();
            let says =
                format!("{}: {} has {} edges, but the manifest says {edges}", path.display(), names[0], edges - 1);
            assert!(error.starts_with(&says), "{error}");
            assert!(error.contains("`expctl data verify 006-kuzmin-tmi --samples 8 "), "{error}");
        }
        assert!(Conversion::new(&dataset, StoreKind::Ids).is_err());
        // What does not use the edges goes by the manifest.
        assert!(dataset.graph(&["physical".to_owned()], false).is_ok());
    }
}

/// Where `record` lies in a file.
fn place(file: &[u8], record: &[u8]) -> u64 {
    file.windows(record.len()).position(|window| window == record).unwrap() as u64
}

fn write_at(path: &Path, at: u64, bytes: &[u8]) {
    std::fs::File::options().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
}

fn record(folder: &Path, index: u64) -> Vec<u8> {
    let mut value = Vec::new();
    LmdbStore::open(folder).unwrap().reader().unwrap().read(index, &mut value).unwrap();
    value
}

#[test]
fn a_bad_record_is_not_kept_for_the_next_conversion() {
    let parent = tempfile::tempdir().unwrap();
    let dataset = built(parent.path(), 200, 0.05);
    for kind in MADE {
        let before_the_check = Conversion::new(&dataset, kind).unwrap().run(1, &mut |p| match p.phase {
            "check" => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
        assert!(matches!(before_the_check, Err(DatasetError::Stopped)));
        let partial = PathBuf::from(format!("{}.partial", dataset.store_folder(kind).display()));
        let file = partial.join("lmdb/data.mdb");
        let value = record(&partial.join("lmdb"), 123);
        let base = DatasetRecords::open(&dataset, &pipeline(StoreKind::Json, &[], false)).unwrap();
        let (mut json, mut sample) = (Vec::new(), Sample::default());
        base.reader().unwrap().read(123, &mut json).unwrap();
        base.decode(123, &json, 0..json.len(), &mut sample).unwrap();
        let label = place(&std::fs::read(&file).unwrap(), &value) + place(&value, &sample.label.to_le_bytes());
        write_at(&file, label, &2.5f32.to_le_bytes());

        let error = convert(&dataset, kind, 1).unwrap_err().to_string();
        assert!(error.starts_with(&format!("record 123 of {}: ", partial.join("lmdb").display())), "{error}");
        assert!(
            error.ends_with("differs from the base store; it was removed, and the next run makes it anew"),
            "{error}"
        );
        assert!(!partial.exists());
        convert(&dataset, kind, 1).unwrap();
    }
}

#[test]
fn a_store_whose_file_is_cut_or_gone_is_not_there() {
    let parent = tempfile::tempdir().unwrap();
    let dataset = built(parent.path(), 8, 0.05);
    for kind in MADE {
        let bytes = convert(&dataset, kind, 1).unwrap().file.bytes;
        let file = dataset.store_file(kind);
        let refused = |why: &str| {
            let error = dataset.converted(kind).unwrap_err().to_string();
            let (store, name) = (dataset.store_folder(kind), kind.name());
            let remedy = format!(
                "; remove {} and run `expctl data convert 006-kuzmin-tmi --to {name} --samples 8 --scale 0.05 --networks \
                 completed --seed 7`",
                store.display()
            );
            assert_eq!(error, format!("{}: {why}{remedy}", file.display()));
            assert!(!dataset.has(kind));
            let trial = DatasetRecords::open(&dataset, &pipeline(kind, &[], false)).err().unwrap();
            assert_eq!(trial.to_string(), error);
        };
        std::fs::File::options().write(true).open(&file).unwrap().set_len(bytes - 4096).unwrap();
        refused(&format!("{} bytes, but the manifest of the store says {bytes}", bytes - 4096));
        std::fs::remove_file(&file).unwrap();
        refused("is missing");
        // What it says helps.
        std::fs::remove_dir_all(dataset.store_folder(kind)).unwrap();
        convert(&dataset, kind, 1).unwrap();
        assert!(dataset.has(kind));
    }
}

/// Batches of four samples in the order of the data set, of the ids store.
fn loader(dataset: &Dataset, workers: u32) -> Loader<GraphBatcher> {
    let trial = Pipeline { store: StoreKind::Ids, ..Pipeline::new(Processor::Ids, Vec::new()) };
    let records = DatasetRecords::open(dataset, &trial).unwrap();
    let sampler = DistributedSampler { len: 40, world_size: 1, rank: 0, shuffle: false, seed: 0, drop_last: false };
    let schedule = Arc::new(Schedule::new(sampler, 4).unwrap());
    let graph = Arc::new(CellGraph { genes: Vec::new(), edge_types: Vec::new(), metabolism: None });
    let builder = GraphBatcher::new(
        Arc::new(records),
        schedule,
        Assembler::new(&graph_batch_options(&trial).unwrap(), graph).unwrap(),
    );
    let options = LoaderOptions { workers, prefetch_factor: 1, steps: 10, ..LoaderOptions::default() };
    Loader::start(builder, options).unwrap()
}

#[test]
fn no_batch_of_a_store_that_was_written_to_is_delivered() {
    let parent = tempfile::tempdir().unwrap();
    let dataset = built(parent.path(), 40, 0.05);
    convert(&dataset, StoreKind::Ids, 1).unwrap();
    let expected: Vec<f32> = {
        let mut loader = loader(&dataset, 0);
        (0..10).flat_map(|_| loader.next_batch().unwrap().unwrap().batch.common.labels).collect()
    };
    let file = dataset.store_file(StoreKind::Ids);
    for workers in [0, 1, 2] {
        let good = std::fs::read(&file).unwrap();
        let mut loader = loader(&dataset, workers);
        let first = loader.next_batch().unwrap().unwrap();
        assert_eq!(first.batch.common.labels, expected[..4]);
        // Every label becomes another, in the same file; fewer records are left than 64.
        for index in 0..40 {
            let at = place(&good, &record(file.parent().unwrap(), index));
            write_at(&file, at, &2.5f32.to_le_bytes());
        }
        let mut error = None;
        for step in 1..10 {
            match loader.next_batch().unwrap() {
                // Read before.
                Ok(loaded) => assert_eq!(loaded.batch.common.labels, expected[4 * step..4 * step + 4]),
                Err(e) => {
                    error = Some(e);
                    break;
                }
            }
        }
        assert!(matches!(error, Some(GraphError::Rewritten { .. })), "{error:?} with {workers} workers");
        std::fs::write(&file, &good).unwrap();
    }
}
