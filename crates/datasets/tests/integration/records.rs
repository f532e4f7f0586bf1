//! Records of stores that were made from the base store: their format, read without expctl, and what damage to them does.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::ops::Range;

use expctl_datasets::graph::{Dataset, DatasetRecords};
use expctl_settings::StoreKind;
use graph_loader::{LmdbStore, Records, Sample};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::converted::{MADE, built, convert, pipeline};

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
        let (_, after) = text.split_at("{'descr': '".len());
        let (descr, shape) = (after[..3].to_owned(), after.split_once('(').unwrap().1);
        let elements = shape.split_once(',').unwrap().0.parse().unwrap();
        let whole = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({elements},), }}");
        assert_eq!(text.trim_end(), whole);
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

/// The store of a kind, and the bytes of one of its records.
fn record(dataset: &Dataset, kind: StoreKind, index: u64) -> (DatasetRecords, Vec<u8>) {
    convert(dataset, kind, 1).unwrap();
    let records = DatasetRecords::open(dataset, &pipeline(kind, &["physical", "tflink"], true)).unwrap();
    let mut bytes = Vec::new();
    records.reader().unwrap().read(index, &mut bytes).unwrap();
    (records, bytes)
}

#[test]
fn damaged_records_are_named() {
    let parent = tempfile::tempdir().unwrap();
    let dataset = built(parent.path(), 8, 0.05);
    for kind in MADE {
        let (records, good) = record(&dataset, kind, 7);
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

#[test]
fn no_damage_ends_the_process_or_leads_out_of_the_record() {
    let parent = tempfile::tempdir().unwrap();
    let dataset = built(parent.path(), 8, 0.05);
    for kind in MADE {
        let (records, good) = record(&dataset, kind, 5);
        let (length, before) = (good.len(), 100);
        // Most headers are at the ends: there half of the bytes that change are.
        let place = prop_oneof![0..length, 0..length.min(700), length - length.min(2000)..length];
        let change = (place, any::<u8>());
        let cut = prop_oneof![Just(length), 0..length];
        let mut runner = TestRunner::new(Config { cases: 2000, failure_persistence: None, ..Config::default() });
        let result = runner.run(&(vec(change, 0..6), cut, vec(any::<u8>(), 0..40)), |(changes, cut, more)| {
            let mut bytes = vec![7; before];
            bytes.extend_from_slice(&good);
            changes.iter().for_each(|(at, byte)| bytes[before + at] = *byte);
            bytes.truncate(before + cut);
            bytes.extend_from_slice(&more);
            // The record is followed by another.
            let range = before..bytes.len();
            bytes.extend_from_slice(&good);
            let mut sample = Sample::default();
            if records.decode(5, &bytes, range.clone(), &mut sample).is_ok() {
                let inside = |span: &Range<usize>| range.start <= span.start && span.end <= range.end;
                prop_assert!(sample.masks.spans.iter().all(inside));
                prop_assert!(sample.genes.is_sorted() && sample.label.is_finite());
            }
            Ok(())
        });
        result.unwrap();
    }
}
