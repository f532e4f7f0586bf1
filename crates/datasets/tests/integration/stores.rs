//! Stores that are made from the base store: what they hold, their sizes, and how they are refused.

#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "a test; sizes are shown")]

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use expctl_datasets::DatasetError;
use expctl_datasets::graph::{Conversion, Dataset, DatasetRecords, Recipe, expected_bytes, verify};
use expctl_settings::{Data, Pipeline, StoreKind};
use graph_loader::{CellGraph, EdgeType, MaskForm, Records, Sample};

use crate::converted::{MADE, built, convert, pipeline, quiet};

/// All records of a store as a trial reads them, all in one buffer as in a batch.
fn samples(dataset: &Dataset, pipeline: &Pipeline) -> (Vec<u8>, Vec<Sample>) {
    let records = DatasetRecords::open(dataset, pipeline).unwrap();
    let mut reader = records.reader().unwrap();
    let mut bytes = b"something before".to_vec();
    let samples = (0..records.len()).map(|index| {
        let start = bytes.len();
        reader.read(index, &mut bytes).unwrap();
        let mut sample = Sample { genes: vec![1; 9], ..Sample::default() };
        sample.masks.spans.push(3..5);
        records.decode(index, &bytes, start..bytes.len(), &mut sample).unwrap();
        sample
    });
    let samples = samples.collect();
    (bytes, samples)
}

/// A stored mask, written out.
fn kept(sample: &Sample, bytes: &[u8], slot: usize, entries: usize) -> Vec<bool> {
    let bytes = &bytes[sample.masks.spans[slot].clone()];
    match sample.masks.form {
        MaskForm::FalsePositions => {
            let mut kept = vec![true; entries];
            for word in bytes.chunks_exact(8) {
                kept[i64::from_le_bytes(word.try_into().unwrap()) as usize] = false;
            }
            kept
        }
        MaskForm::Bytes => {
            assert!(bytes.len() == entries && bytes.iter().all(|byte| *byte <= 1));
            bytes.iter().map(|byte| *byte == 1).collect()
        }
        MaskForm::Bits => {
            assert_eq!(bytes.len(), entries.div_ceil(8));
            let mut bits = (0..8 * bytes.len()).map(|i| bytes[i / 8] >> (i % 8) & 1 == 1);
            let kept = bits.by_ref().take(entries).collect();
            assert!(!bits.any(|bit| bit), "the bits behind the last entry are 0");
            kept
        }
        MaskForm::None => unreachable!("the store has masks"),
    }
}

/// The masks by their definition: edge types in their order, reactions, gpr, rmr.
fn defined(graph: &CellGraph, genes: &[i64]) -> Vec<Vec<bool>> {
    let metabolism = graph.metabolism.as_ref().unwrap();
    let gone = |gene: &i64| genes.contains(gene);
    let gpr: Vec<bool> = metabolism.gpr_genes().iter().map(|gene| !gone(gene)).collect();
    let reaction = |r: usize| metabolism.gpr_reactions().iter().zip(&gpr).all(|(of, kept)| *of != r as i64 || *kept);
    let reactions: Vec<bool> = (0..metabolism.reactions).map(reaction).collect();
    let rmr = metabolism.rmr_reactions().iter().map(|r| reactions[*r as usize]).collect();
    let networks = graph
        .edge_types
        .iter()
        .map(|e| e.sources().iter().zip(e.targets()).map(|(s, t)| !gone(s) && !gone(t)).collect());
    networks.chain([reactions, gpr, rmr]).collect()
}

#[test]
fn every_store_holds_what_the_base_store_says() {
    let parent = tempfile::tempdir().unwrap();
    let dataset = built(parent.path(), 70, 0.05);
    // Not in the order of the data set.
    let types = ["tflink", "physical", "string12_0_database"];
    let graph = dataset.graph(&types.map(str::to_owned), true).unwrap();
    let (_, base) = samples(&dataset, &pipeline(StoreKind::Json, &types, true));
    assert!(base.iter().all(|sample| sample.masks.form == MaskForm::None && sample.masks.spans.is_empty()));
    for kind in MADE {
        let manifest = convert(&dataset, kind, 2).unwrap();
        assert_eq!((manifest.store.records, manifest.kind, manifest.resumed_at), (70, kind, 0));
        let (bytes, found) = samples(&dataset, &pipeline(kind, &types, true));
        let (mut reactions_gone, mut edges_gone) = (0, 0);
        for (base, found) in base.iter().zip(&found) {
            assert_eq!(
                (&base.genes, base.label, base.p_value.to_bits()),
                (&found.genes, found.label, found.p_value.to_bits())
            );
            if kind == StoreKind::Ids {
                assert_eq!(found.masks, base.masks);
                continue;
            }
            let defined = defined(&graph, &base.genes);
            assert_eq!(found.masks.spans.len(), defined.len());
            for (slot, expected) in defined.iter().enumerate() {
                assert_eq!(kept(found, &bytes, slot, expected.len()), *expected, "{} {slot}", kind.name());
            }
            reactions_gone += defined[3].iter().filter(|kept| !**kept).count();
            edges_gone += defined[0].iter().filter(|kept| !**kept).count();
        }
        assert!(kind == StoreKind::Ids || reactions_gone > 0 && edges_gone > 0);
        // Fewer masks are asked for.
        let (_, few) = samples(&dataset, &pipeline(kind, &types[..1], false));
        assert!(few.iter().all(|sample| sample.masks.spans.len() == usize::from(kind != StoreKind::Ids)));
        // Made once: the second run has nothing to do.
        assert_eq!(convert(&dataset, kind, 1).unwrap(), manifest);
    }
    assert_eq!(verify(dataset.folder(), &mut quiet).unwrap(), Vec::<String>::new());
    let unknown = DatasetRecords::open(&dataset, &pipeline(StoreKind::FullMasks, &["fusion"], false)).err().unwrap();
    assert!(unknown.to_string().contains("no masks of edge type `fusion`"), "{unknown}");
}

#[test]
fn merged_networks_are_their_union_and_have_no_stored_masks() {
    let parent = tempfile::tempdir().unwrap();
    let dataset = built(parent.path(), 10, 0.05);
    let names: Vec<&str> = dataset.manifest().networks.iter().map(|network| network.name.as_str()).collect();
    let merged = Pipeline {
        merge_edge_types: vec!["string=string12_0_*".to_owned()],
        ..pipeline(StoreKind::Json, &names, true)
    };
    let (whole, graph) = (dataset.graph(&merged.edge_types, true).unwrap(), dataset.graph_of(&merged).unwrap());
    let found: Vec<&str> = graph.edge_types.iter().map(|edges| edges.name.as_str()).collect();
    assert_eq!(found, ["physical", "regulatory", "tflink", "string"]);
    assert_eq!((&graph.edge_types[..3], &graph.metabolism), (&whole.edge_types[..3], &whole.metabolism));
    // Each pair that any of the six has, once, and the self-loops behind.
    let pairs = |edges: &EdgeType| -> Vec<(i64, i64)> {
        edges.sources().iter().copied().zip(edges.targets().iter().copied()).collect()
    };
    let all: BTreeSet<(i64, i64)> = whole.edge_types[3..].iter().flat_map(pairs).collect();
    let (loops, edges): (Vec<_>, Vec<_>) = all.into_iter().partition(|(source, target)| source == target);
    assert!(edges.iter().all(|(source, target)| source < target), "STRING is undirected: each edge is stored once");
    assert_eq!(loops.len(), graph.num_genes());
    let members: usize = whole.edge_types[3..].iter().map(EdgeType::num_edges).sum();
    assert!(graph.edge_types[3].num_edges() < members, "networks share edges, the self-loops among them");
    assert_eq!(pairs(&graph.edge_types[3]), [edges, loops].concat());
    // Records of masks have one for each network.
    assert!(DatasetRecords::open(&dataset, &merged).is_ok());
    for kind in MADE {
        convert(&dataset, kind, 1).unwrap();
        let opened = DatasetRecords::open(&dataset, &Pipeline { store: kind, ..merged.clone() });
        match opened.err() {
            None => assert_eq!(kind, StoreKind::Ids),
            Some(e) => assert!(e.to_string().contains("has a mask for each network"), "{e}"),
        }
    }
}

#[test]
fn sizes_at_full_scale() {
    let parent = tempfile::tempdir().unwrap();
    let dataset = built(parent.path(), 64, 1.0);
    let per_sample = |kind: StoreKind| {
        let estimate = (Conversion::new(&dataset, kind).unwrap().size().bytes - 4 * 4096) as f64 / 64.0;
        let manifest = convert(&dataset, kind, 2).unwrap();
        // Without the pages that every file has.
        let found = (manifest.file.bytes - 4 * 4096) as f64 / 64.0;
        assert!((estimate / found - 1.0).abs() < 0.01, "{}: {estimate} was expected, {found} found", kind.name());
        (found, manifest.store.value_bytes as f64 / 64.0)
    };
    let (full, full_value) = per_sample(StoreKind::FullMasks);
    let (packed, packed_value) = per_sample(StoreKind::PackedMasks);
    let (compressed, compressed_value) = per_sample(StoreKind::Compressed);
    eprintln!(
        "bytes a sample on disk (value): full {full} ({full_value}), packed {packed} ({packed_value}), compressed \
         {compressed} ({compressed_value})"
    );
    // 2,527,683 edges, 16,535 nodes twice, a byte or a bit each; three genes, four zeros, label, p-value; the headers of 24
    // arrays.
    let around = 3.0 * 8.0 + 4.0 * 8.0 + 2.0 * 4.0 + 7_046.0;
    assert_eq!(full_value, 2_527_683.0 + 2.0 * 16_535.0 + around);
    assert!((full_value / 8.0..full_value / 8.0 + 7_100.0).contains(&packed_value), "{packed_value}");
    // Whole pages of 4,096 and a little of the tree. The published 855 GB are 628 pages a sample, of which pickle takes 7.4 to
    // 11.5 kB; the headers here are 7.0 kB, with which 627 are enough.
    assert!((2_567_000.0..2_573_000.0).contains(&full) && full as u64 / 4096 == 627, "{full}");
    assert_eq!(packed as u64 / 4096, 80, "{packed}");
    // The published 8.8 GB are 26,480 bytes a sample. False positions and the rest are 17.3 kB of that here, the headers of
    // 22 arrays 6.9 kB, whole pages 2.1 kB: with as many positions, about 7.1 kB were pickle.
    assert!((0.95..1.05).contains(&(compressed / 26_480.0)) && compressed_value < compressed, "{compressed}");
    let ids = convert(&dataset, StoreKind::Ids, 1).unwrap();
    assert_eq!(ids.store.value_bytes, 64 * 20);

    // The recipe alone says it, too, before anything is built; which edges a sample removes only on average.
    let recipe = Recipe::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/006-kuzmin-tmi")).unwrap();
    let data = &dataset.manifest().data;
    let expected = |data: &Data, kind: StoreKind| expected_bytes(&recipe, data, kind).unwrap();
    let of_records = [
        (StoreKind::FullMasks, full, 0.01),
        (StoreKind::PackedMasks, packed, 0.01),
        (StoreKind::Compressed, compressed, 0.1),
    ];
    for (kind, found, within) in of_records {
        let a_sample = (expected(data, kind) - 4 * 4096) as f64 / 64.0;
        assert!((a_sample / found - 1.0).abs() < within, "{}: {a_sample}, {found} found", kind.name());
    }
    let base: u64 = dataset.manifest().files.iter().map(|file| file.bytes).sum();
    let base_expected = expected(data, StoreKind::Json);
    assert!((base_expected as f64 / base as f64 - 1.0).abs() < 0.02, "{base_expected}, {base} found");
    // All samples as full masks: the published 855 GB.
    let whole = Data { samples: recipe.samples.count, ..data.clone() };
    let bytes = expected(&whole, StoreKind::FullMasks) as f64;
    assert!((bytes / 855e9 - 1.0).abs() < 0.01, "{bytes}");
}

#[test]
fn a_stopped_conversion_goes_on_and_ends_with_the_same_records() {
    let parent = tempfile::tempdir().unwrap();
    let dataset = built(parent.path(), 3000, 0.15);
    let other = built(&parent.path().join("other"), 3000, 0.15);
    let straight = convert(&other, StoreKind::FullMasks, 3).unwrap();
    let partial = PathBuf::from(format!("{}.partial", dataset.store_folder(StoreKind::FullMasks).display()));
    for (phase, at) in [("samples", 1), ("samples", 900), ("check", 100)] {
        let conversion = Conversion::new(&dataset, StoreKind::FullMasks).unwrap();
        let stopped = conversion.run(2, &mut |p| {
            if p.phase == phase && p.done >= at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert!(matches!(stopped, Err(DatasetError::Stopped)));
        assert!(partial.is_dir() && !dataset.has(StoreKind::FullMasks));
    }
    let rest = Conversion::new(&dataset, StoreKind::FullMasks).unwrap();
    assert!(rest.size().there > 0);
    let resumed = rest.run(1, &mut quiet).unwrap();
    assert_eq!(resumed.resumed_at, 3000);
    assert_eq!((&resumed.store, &resumed.base_blake3), (&straight.store, &straight.base_blake3));
    assert!(!partial.exists());
}

#[test]
fn stores_that_do_not_fit_are_refused() {
    let parent = tempfile::tempdir().unwrap();
    let dataset = built(parent.path(), 10, 0.05);
    let ids = pipeline(StoreKind::Ids, &[], false);
    let missing = DatasetRecords::open(&dataset, &ids).err().unwrap();
    assert!(matches!(missing.cause(), DatasetError::NotConverted { store: "ids", .. }), "{missing}");
    let command =
        "`expctl data convert 006-kuzmin-tmi --to ids --samples 10 --scale 0.05 --networks completed --seed 7`";
    assert!(missing.to_string().contains(command), "{missing}");
    assert!(matches!(Conversion::new(&dataset, StoreKind::Json).err().unwrap(), DatasetError::Request(_)));

    let manifest = convert(&dataset, StoreKind::Ids, 1).unwrap();
    let path = dataset.store_folder(StoreKind::Ids).join("manifest.json");
    let refused = |manifest: serde_json::Value| {
        std::fs::write(&path, manifest.to_string()).unwrap();
        let read = DatasetRecords::open(&dataset, &ids).err().unwrap();
        assert!(!dataset.has(StoreKind::Ids));
        assert_eq!(convert(&dataset, StoreKind::Ids, 1).unwrap_err().to_string(), read.to_string());
        assert_eq!(verify(dataset.folder(), &mut quiet).unwrap(), [read.to_string()]);
        read.to_string()
    };
    let good = serde_json::to_value(&manifest).unwrap();
    let with = |key: &str, value: serde_json::Value| {
        let mut changed = good.clone();
        changed[key] = value;
        changed
    };
    assert!(refused(with("base_blake3", "0000".into())).contains("was made from another base store"));
    assert!(refused(with("schema", 99.into())).contains("layout version 99, but this program reads 1"));
    // A later version may have other fields.
    assert!(refused(serde_json::json!({"schema": 2})).contains("layout version 2, but this program reads 1"));
    assert!(refused(with("kind", "compressed".into())).contains(": of a compressed store; remove "));
    std::fs::write(&path, good.to_string()).unwrap();
    assert_eq!(verify(dataset.folder(), &mut quiet).unwrap(), Vec::<String>::new());

    // The same for the data set.
    let path = dataset.folder().join("manifest.json");
    std::fs::write(&path, r#"{"schema": 1}"#).unwrap();
    let error = Dataset::open(dataset.folder()).unwrap_err().to_string();
    assert!(error.contains("layout version 1, but this program reads 2"), "{error}");
}
