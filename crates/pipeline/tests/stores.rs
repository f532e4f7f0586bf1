//! Stores that are made from the base store: what they hold, their sizes, and how they are refused.

#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "a test; sizes are shown")]

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};

use expctl_pipeline::PipelineError;
use expctl_pipeline::dataset::{BuildProgress, Conversion, Dataset, Recipe, StoreManifest, build, verify};
use expctl_pipeline::graph::CellGraph;
use expctl_pipeline::loader::{DatasetRecords, Records};
use expctl_pipeline::store::{LmdbStore, MaskForm, Sample};
use expctl_record::{Data, Networks, Pipeline, Processor, StoreKind};

const MADE: [StoreKind; 4] = [StoreKind::Compressed, StoreKind::FullMasks, StoreKind::PackedMasks, StoreKind::Ids];

fn quiet(_: BuildProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn built(parent: &Path, samples: u64, scale: f64) -> Dataset {
    let recipe = Recipe::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/006-kuzmin-tmi")).unwrap();
    let data = Data { set: "006-kuzmin-tmi".to_owned(), samples, scale, networks: Networks::Completed, seed: 7 };
    let folder = parent.join(data.folder_name());
    build(&recipe, &data, &folder, &mut quiet).unwrap();
    Dataset::open(&folder).unwrap()
}

fn convert(dataset: &Dataset, kind: StoreKind, jobs: usize) -> Result<StoreManifest, PipelineError> {
    Conversion::new(dataset, kind)?.run(jobs, &mut quiet)
}

fn pipeline(store: StoreKind, edge_types: &[&str], metabolism: bool) -> Pipeline {
    let edge_types = edge_types.iter().map(|name| (*name).to_owned()).collect();
    Pipeline { store, metabolism, ..Pipeline::new(Processor::Lazy, edge_types) }
}

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

/// One array of an NPZ archive.
struct Array {
    descr: String,
    elements: usize,
    /// Place of the elements in the archive.
    at: Range<usize>,
}

/// The arrays of an NPZ archive as zip readers find them: from the end, through the central directory.
fn arrays(value: &[u8]) -> BTreeMap<String, Array> {
    let word = |at: usize| u32::from_le_bytes(value[at..at + 4].try_into().unwrap()) as usize;
    let half = |at: usize| usize::from(u16::from_le_bytes(value[at..at + 2].try_into().unwrap()));
    let end = value.len() - 22;
    assert_eq!(&value[end..end + 4], b"PK\x05\x06");
    let (count, mut at) = (half(end + 10), word(end + 16));
    let mut found = BTreeMap::new();
    for _ in 0..count {
        assert_eq!(&value[at..at + 4], b"PK\x01\x02");
        let (crc, size, name, local) = (word(at + 16), word(at + 24), half(at + 28), word(at + 42));
        assert_eq!((half(at + 10), word(at + 20)), (0, size), "stored");
        let file = std::str::from_utf8(&value[at + 46..at + 46 + name]).unwrap();
        at += 46 + name;
        let npy = local + 30 + half(local + 26) + half(local + 28);
        assert_eq!(crc32fast::hash(&value[npy..npy + size]) as usize, crc, "{file}");
        let header = half(npy + 8);
        assert!(value[npy..].starts_with(b"\x93NUMPY\x01\x00") && (10 + header) % 64 == 0);
        let text = std::str::from_utf8(&value[npy + 10..npy + 10 + header]).unwrap();
        let parts: Vec<&str> = text.split(['\'', '(', ')', ',']).collect();
        assert_eq!((parts[1], parts[5], parts[6]), ("descr", "fortran_order", ": False"), "{text}");
        let (descr, elements) = (parts[3].to_owned(), parts[10].parse().unwrap());
        let at = npy + 10 + header..npy + size;
        found.insert(file.strip_suffix(".npy").unwrap().to_owned(), Array { descr, elements, at });
    }
    assert_eq!((found.len(), at), (count, end));
    found
}

#[test]
fn records_are_npz_with_the_published_fields() {
    let parent = tempfile::tempdir().unwrap();
    let dataset = built(parent.path(), 12, 0.05);
    let sizes = dataset.mask_sizes();
    for kind in [StoreKind::Compressed, StoreKind::FullMasks, StoreKind::PackedMasks] {
        convert(&dataset, kind, 1).unwrap();
        let store = LmdbStore::open(&dataset.store_folder(kind).join("lmdb")).unwrap();
        let mut value = Vec::new();
        store.reader().unwrap().read(11, &mut value).unwrap();
        let arrays = arrays(&value);
        let of = |name: String| {
            let array = arrays.get(&name).unwrap_or_else(|| panic!("{name}"));
            (array.descr.as_str(), array.elements, &value[array.at.clone()])
        };
        assert_eq!(of("gene/perturbation_indices".to_owned()).1, 3);
        assert_eq!((of("gene/phenotype_values".to_owned()).0, of("gene/phenotype_values".to_owned()).1), ("<f4", 1));
        let mut fields = 7;
        if kind == StoreKind::Compressed {
            let lengths: Vec<u8> = sizes.all().flat_map(|(_, entries)| (entries as i64).to_le_bytes()).collect();
            assert_eq!(of("mask_sizes".to_owned()), ("<i8", 14, &lengths[..]));
            fields += 1;
        }
        for (mask, (name, entries)) in sizes.all().enumerate() {
            let group = if mask < 3 { "node_masks" } else { "edge_masks" };
            fields += 1;
            if kind == StoreKind::Compressed {
                assert_eq!(of(format!("{group}/{name}/false_indices")).0, "<i8");
                continue;
            }
            let bytes = if kind == StoreKind::FullMasks { entries } else { entries.div_ceil(8) };
            let (descr, elements, data) = of(format!("{group}/{name}"));
            assert_eq!((descr, elements, data.len()), ("|u1", bytes, bytes));
            if mask < 3 {
                let complement = of(format!("pert_masks/{name}")).2;
                let ones = |data: &[u8]| data.iter().map(|byte| byte.count_ones() as usize).sum::<usize>();
                assert_eq!(ones(data) + ones(complement), entries);
                assert!(data.iter().zip(complement).all(|(kept, perturbed)| kept & perturbed == 0));
                assert_eq!(ones(complement), if mask == 0 { 3 } else { ones(complement) });
                fields += 1;
            }
        }
        assert_eq!(arrays.len(), fields);
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
        assert!((estimate / found - 1.0).abs() < 0.05, "{}: {estimate} was expected, {found} found", kind.name());
        (found, manifest.store.value_bytes as f64 / 64.0)
    };
    // 2,527,683 edges, 16,535 nodes twice; 24 arrays with their headers, and phenotype; whole pages of 4,096.
    let (full, full_value) = per_sample(StoreKind::FullMasks);
    let (packed, packed_value) = per_sample(StoreKind::PackedMasks);
    let (compressed, compressed_value) = per_sample(StoreKind::Compressed);
    eprintln!(
        "bytes a sample on disk (value): full {full} ({full_value}), packed {packed} ({packed_value}), compressed \
         {compressed} ({compressed_value})"
    );
    let ids = convert(&dataset, StoreKind::Ids, 1).unwrap();
    assert_eq!(ids.store.value_bytes, 64 * 20);
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
        assert!(matches!(stopped, Err(PipelineError::Stopped)));
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
    assert!(matches!(missing, PipelineError::NotConverted { kind: StoreKind::Ids, .. }));
    let command =
        "`expctl data convert 006-kuzmin-tmi --to ids --samples 10 --scale 0.05 --networks completed --seed 7`";
    assert!(missing.to_string().contains(command), "{missing}");
    assert!(matches!(Conversion::new(&dataset, StoreKind::Json).err().unwrap(), PipelineError::Invalid(_)));

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
    assert!(refused(with("kind", "compressed".into())).ends_with("of a compressed store"));
    std::fs::write(&path, good.to_string()).unwrap();
    assert_eq!(verify(dataset.folder(), &mut quiet).unwrap(), Vec::<String>::new());

    // The same for the data set.
    let path = dataset.folder().join("manifest.json");
    std::fs::write(&path, r#"{"schema": 1}"#).unwrap();
    let error = Dataset::open(dataset.folder()).unwrap_err().to_string();
    assert!(error.contains("layout version 1, but this program reads 2"), "{error}");
}

#[test]
fn damaged_records_are_named() {
    let parent = tempfile::tempdir().unwrap();
    let dataset = built(parent.path(), 8, 0.05);
    for kind in MADE {
        convert(&dataset, kind, 1).unwrap();
        let records = DatasetRecords::open(&dataset, &pipeline(kind, &["physical", "tflink"], true)).unwrap();
        let mut good = Vec::new();
        records.reader().unwrap().read(7, &mut good).unwrap();
        let decode = |bytes: &[u8]| records.decode(7, bytes, 0..bytes.len(), &mut Sample::default());
        decode(&good).unwrap();
        let folder = dataset.store_folder(kind);
        let start = format!("record 7 of {}", folder.display());
        let refused = |bytes: &[u8], why: &str| {
            let error = decode(bytes).unwrap_err().to_string();
            assert!(error.starts_with(&start), "{error}");
            assert!(error.contains(why), "{}: {error} does not say `{why}`", kind.name());
        };
        for length in [0, 3, 7, 9, 15, good.len() - 1] {
            refused(&good[..length], "");
        }
        refused(
            &[&good[..], &[0; 8]].concat(),
            if kind == StoreKind::Ids { "not in order" } else { "behind the last" },
        );
        let (label, genes) = if kind == StoreKind::Ids {
            (0, 8)
        } else {
            let arrays = arrays(&good);
            let at = |name: &str| arrays[name].at.start;
            // Every byte that is no element of an array.
            for byte in (0..good.len()).filter(|byte| !arrays.values().any(|array| array.at.contains(byte))) {
                let mut bad = good.clone();
                bad[byte] ^= 0x01;
                refused(&bad, "");
            }
            let of_physical = |name: &str| format!("edge_masks/gene__physical__gene{name}: ");
            match kind {
                StoreKind::Compressed => {
                    let positions = at("edge_masks/gene__tflink__gene/false_indices");
                    let mut bad = good.clone();
                    bad[positions + 5] = 1;
                    refused(&bad, "gene__tflink__gene/false_indices: position ");
                    bad = good.clone();
                    let (first, second) = (positions, positions + 8);
                    bad.copy_within(second..second + 8, first);
                    refused(&bad, "not in order");
                    bad = good.clone();
                    bad[at("mask_sizes") + 8] ^= 1;
                    refused(&bad, "mask_sizes: not the lengths");
                }
                StoreKind::FullMasks => {
                    let mask = arrays["edge_masks/gene__physical__gene"].at.clone();
                    for entry in [0, 77, mask.len() - 1] {
                        let mut bad = good.clone();
                        bad[mask.start + entry] = 130;
                        refused(&bad, &format!("{}entry {entry} is 130, not 0 or 1", of_physical("")));
                    }
                    // Not a mask of this trial.
                    let mut bad = good.clone();
                    bad[at("edge_masks/gene__regulatory__gene")] = 2;
                    decode(&bad).unwrap();
                }
                _ => {
                    let (name, entries) = dataset
                        .mask_sizes()
                        .all()
                        .map(|(name, entries)| (name.to_owned(), entries))
                        .find(|(name, entries)| {
                            ["gene__physical__gene", "gene__tflink__gene"].contains(&&name[..]) && entries % 8 != 0
                        })
                        .unwrap();
                    let mut bad = good.clone();
                    bad[arrays[&format!("edge_masks/{name}")].at.end - 1] |= 0x80;
                    refused(&bad, &format!("{name}: bits behind the last of {entries} entries"));
                }
            }
            (at("gene/phenotype_values"), at("gene/perturbation_indices"))
        };
        for value in [f32::NAN, f32::INFINITY] {
            let mut bad = good.clone();
            bad[label..label + 4].copy_from_slice(&value.to_le_bytes());
            refused(&bad, "the label is ");
        }
        let mut bad = good.clone();
        bad[genes + 3] = 1;
        refused(&bad, "is not one of 330");
    }
}
