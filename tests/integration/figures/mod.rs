//! Documents say what records say.
//!
//! `make figures` (`EXPCTL_UPDATE_FIGURES=1`) writes README.md and the documents from docs/templates and results/reference/records; the
//! same test fails where one of them is not what that gives.

mod records;
mod render;
mod scan;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use expctl::report::reference::{REFERENCE_SCHEMA_VERSION, ReferenceRecord, VariantFigures};
use expctl_ledger::{BenchFigure, BenchRecord, LabelMixing, ShuffleQuality};
use records::{Record, Records, sources};
use render::{DOCS, render, templates};
use scan::{Scan, allowed};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display())).unwrap()
}

fn committed() -> Records {
    Records::load(&root().join("results/reference/records")).unwrap()
}

/// Documents that are not what the templates and records give.
fn stale(documents: &BTreeMap<String, String>, on_disk: &BTreeMap<String, String>) -> Vec<String> {
    let differing = documents.iter().filter(|(target, text)| on_disk.get(*target) != Some(text));
    differing.map(|(target, _)| target.clone()).collect()
}

#[test]
fn documents_are_rendered() {
    let rendered = render(&root(), &committed(), &templates(&root())).unwrap();
    if std::env::var_os("EXPCTL_UPDATE_FIGURES").is_some() {
        for (target, text) in &rendered.documents {
            let path = root().join(target);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }
    let on_disk = DOCS.iter().map(|(_, target)| ((*target).to_owned(), read(&root().join(target)))).collect();
    let stale = stale(&rendered.documents, &on_disk);
    assert!(
        stale.is_empty(),
        "{} are not what docs/templates and the records give: run make figures",
        stale.join(", ")
    );
}

#[test]
fn a_digit_that_changes_in_a_record_or_a_document_is_seen() {
    let (records, templates) = (synthetic(), templates(&root()));
    let rendered = render(&root(), &records, &templates).unwrap().documents;
    assert!(stale(&rendered, &rendered).is_empty());
    for (target, text) in &rendered {
        let digit = text.rfind(|c: char| c.is_ascii_digit()).unwrap();
        let other = if text.as_bytes()[digit] == b'7' { "8" } else { "7" };
        let mut changed = rendered.clone();
        changed.insert(target.clone(), format!("{}{other}{}", &text[..digit], &text[digit + 1..]));
        assert_eq!(stale(&rendered, &changed), std::slice::from_ref(target));
    }
    let mut other = records;
    let Some(Record::Job(fair)) = other.0.get_mut("006_fair") else { panic!("006_fair is a job") };
    fair.variants.get_mut("lazy").unwrap().samples_per_s[0] *= 1.01;
    let changed = render(&root(), &other, &templates).unwrap().documents;
    let stale = stale(&changed, &rendered);
    assert!(
        stale.contains(&"README.md".to_owned()) && stale.contains(&"docs/reference/performance.md".to_owned()),
        "{stale:?}"
    );
}

#[test]
fn every_template_renders_once_all_records_are_there() {
    let rendered = render(&root(), &synthetic(), &templates(&root())).unwrap();
    for (target, text) in &rendered.documents {
        assert!(!text.contains("No record of this is committed yet"), "{target} does without a record that is there");
        assert!(!text.contains("none yet"), "{target} does not show a record that is there");
    }
    let all: BTreeSet<String> = sources(&root()).unwrap().into_iter().map(|source| source.name).collect();
    assert_eq!(rendered.cited, all, "what scripts/reference.tsv makes and what documents cite");
    // Ratios of a synthetic record are 1 but for their scatter, so nothing may be called faster or slower.
    let choosing = &rendered.documents["docs/guide/choosing.md"];
    assert!(choosing.contains("no difference shown to chunks, 1.00× ["), "{choosing}");
    let scan = Scan::new().unwrap();
    assert!(scan.found(choosing, &BTreeSet::new()).iter().all(|(_, what)| !what.contains("faster")));
}

#[test]
fn verdicts_are_those_of_the_statistics_of_notes() {
    let mut records = synthetic();
    let Some(Record::Job(choosing)) = records.0.get_mut("choosing") else { panic!("choosing is a job") };
    choosing.variants.get_mut("ordered").unwrap().samples_per_s.iter_mut().for_each(|rate| *rate *= 2.0);
    // 1.5 times, with a run that is half as fast as the others: the interval excludes nothing.
    let single = &mut choosing.variants.get_mut("single_memory").unwrap().samples_per_s;
    *single = single.iter().zip([1.9, 1.8, 0.5, 2.0, 1.9]).map(|(rate, factor)| rate * factor).collect();
    let text = render(&root(), &records, &templates(&root())).unwrap().documents["docs/guide/choosing.md"].clone();
    assert!(text.contains("reading in order: faster than chunks, 2.00× ["), "{text}");
    assert!(text.contains("rows in memory, dense: no difference shown to chunks, 1.4"), "{text}");
}

#[test]
fn a_record_or_variant_that_is_missing_stops_the_rendering() {
    let all = templates(&root());
    let say = |records: &Records, text: &str| {
        let templates = all.keys().map(|name| (name.clone(), text.to_owned())).collect();
        render(&root(), records, &templates).unwrap_err()
    };
    let empty = say(&Records::default(), "{{ rate('006_fair', 'lazy') }}");
    assert!(empty.contains("scripts/reference.sh 006_fair makes it"), "{empty}");
    let synthetic = synthetic();
    assert!(say(&synthetic, "{{ rate('006_fair', 'lasy') }}").contains("no variant lasy"));
    assert!(say(&synthetic, "{{ bench('timing_cost', 'al') }}").contains("timing_cost has no figure al"));
    assert!(say(&synthetic, "{{ unmeasured('006_fair') }}").contains("nothing is unmeasured"));
    assert!(say(&synthetic, "{{ rate('timing_cost', 'a') }}").contains("of a bench"));
    assert!(say(&synthetic, "{{ nothing }}").contains("undefined"));
    let hidden = "{% if verdict('006_fair', 'ids', 'lazy') %}{{ ratio('006_fair', 'packed', 'lazy') }}{% endif %}";
    assert!(say(&synthetic, hidden).contains("was not judged"));
}

#[test]
fn records_are_clean_and_cited() {
    let records = committed();
    let cited = render(&root(), &records, &templates(&root())).unwrap().cited;
    let known: BTreeSet<String> = sources(&root()).unwrap().into_iter().map(|source| source.name).collect();
    for (name, record) in &records.0 {
        let flaws = match record {
            Record::Job(record) => record.flaws.clone(),
            Record::Bench(record) => record.flaw().into_iter().collect(),
        };
        assert!(flaws.is_empty(), "{name}: {flaws:?}");
        assert!(cited.contains(name), "no template cites {name}");
        assert!(known.contains(name), "scripts/reference.tsv does not say how {name} is made");
        let size = root().join("results/reference/records").join(format!("{name}.json")).metadata().unwrap().len();
        assert!(size <= 100_000, "{name} has {size} bytes");
    }
}

#[test]
fn documents_state_no_figure_without_a_record() {
    let scan = Scan::new().unwrap();
    let allowed = allowed(&root()).unwrap();
    let mut found = Vec::new();
    let mut scanned = BTreeSet::new();
    for file in scanned_files() {
        let text = read(&root().join(&file));
        let phrases: BTreeSet<&str> =
            allowed.iter().filter(|entry| entry.file == file).map(|entry| entry.phrase.as_str()).collect();
        for phrase in &phrases {
            assert!(text.lines().any(|line| line.contains(*phrase)), "{file} no longer says {phrase:?}: allowed.tsv");
        }
        found.extend(scan.found(&text, &phrases).into_iter().map(|(line, what)| format!("{file}:{line}: {what}")));
        scanned.insert(file);
    }
    let unknown: Vec<_> = allowed.iter().filter(|entry| !scanned.contains(&entry.file)).collect();
    assert!(unknown.is_empty(), "allowed.tsv names files that are not looked at: {unknown:?}");
    assert!(
        found.is_empty(),
        "figures or comparisons without a record; take them from one, or name them in docs/templates/allowed.tsv with a reason:\n{}",
        found.join("\n")
    );
}

#[test]
fn a_figure_is_told_from_a_shape() {
    let scan = Scan::new().unwrap();
    let found = |text: &str| scan.found(text, &BTreeSet::new()).into_iter().map(|(_, what)| what).collect::<Vec<_>>();
    for text in
        ["it takes 3.4 ms.", "1,234 rows/s", "12 %", "63×", "138× [129–177]", "8 times", "20 to 30 µs", "4 GB", "0.5 s"]
    {
        assert_eq!(found(text).len(), 1, "{text}: {:?}", found(text));
    }
    for text in ["it is faster", "half as large", "nine times as long", "twice the rate"] {
        assert_eq!(found(text).len(), 1, "{text}: {:?}", found(text));
    }
    let fine = "chunks of 512 × 32, 128 rows of 20,000 genes; `3 ms`; {{ ratio('a', '3×', 'c') }} [a](b#5-ms) 20 variants\n```\n3 ms\n```\n";
    assert_eq!(found(fine), Vec::<String>::new());
    let phrases = BTreeSet::from(["after 5 s"]);
    assert!(scan.found("it gives up after 5 s", &phrases).is_empty());
}

/// Templates, and documents that are not made from one.
fn scanned_files() -> Vec<String> {
    let made: BTreeSet<&str> = DOCS.iter().map(|(_, target)| *target).collect();
    let mut files: Vec<String> = DOCS.iter().map(|(name, _)| format!("docs/templates/{name}")).collect();
    for folder in ["docs/guide", "docs/reference", "docs/design"] {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let file = format!("{folder}/{}", entry.unwrap().file_name().into_string().unwrap());
            if file.ends_with(".md") && !made.contains(file.as_str()) {
                files.push(file);
            }
        }
    }
    files.sort();
    let in_folder = std::fs::read_dir(root().join("docs/templates")).unwrap();
    let on_disk =
        in_folder.filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|e| e == "j2")).count();
    assert_eq!(on_disk, DOCS.len(), "DOCS has a line for each template");
    files
}

/// Notes without a record whose regions were edited by hand, as results/reference/README.md says: note and region.
const EDITED: [(&str, &str); 2] = [("choosing", "pictures"), ("peers_ddp", "pictures")];

#[test]
fn notes_are_as_expctl_wrote_them() {
    let folder = root().join("results/reference");
    let digests =
        regex::Regex::new(r"(?s)<!-- expctl:begin (\w+) ([0-9a-f]{16}) -->\n(.*?)\n?<!-- expctl:end (\w+) -->")
            .unwrap();
    let said = read(&folder.join("README.md"));
    let records = committed();
    let mut looked_at = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let Some(name) = path.file_name().unwrap().to_str().unwrap().strip_suffix(".md").map(str::to_owned) else {
            continue;
        };
        for region in digests.captures_iter(&read(&path)) {
            let (section, digest, body) = (&region[1], &region[2], region[3].trim_matches('\n'));
            let fits = blake3::hash(body.as_bytes()).to_hex()[..16] == *digest;
            let edited = EDITED.contains(&(name.as_str(), section)) && !records.0.contains_key(&name);
            assert!(!edited || said.contains(&format!("`{name}.md`")), "the README does not name {name}");
            assert!(fits != edited, "{name}, {section}: fits is {fits}, edited by hand is {edited}");
            looked_at += 1;
        }
    }
    assert!(looked_at > 100, "{looked_at} regions");
}

/// A record of each name that scripts/reference.tsv has: jobs with the variants of their config, all of the same figures, benches with
/// the figures that the templates ask for.
fn synthetic() -> Records {
    let shuffle = ShuffleQuality {
        epoch_rows: 1_000,
        metered_rows: 1_000,
        metered_batches: 8,
        duplicates: 0,
        neighbour_correlation: Some(0.25),
        mean_distance: 0.3,
        expected_distance: 1.0 / 3.0,
        labels: Some(LabelMixing { column: "cell_type".into(), classes: 3, entropy: 1.2, ideal_entropy: 1.5 }),
    };
    let variant = VariantFigures {
        method: "a method".into(),
        mode: "data".into(),
        ranks: 1,
        workers: 2,
        batch_size: 128,
        interleaved: true,
        repeats: vec![1, 2, 3, 4, 5],
        it_per_s: vec![10.0, 11.0, 12.0, 10.5, 11.5],
        samples_per_s: vec![1280.0, 1408.0, 1536.0, 1344.0, 1472.0],
        measured_s: vec![10.0; 5],
        step_mean_ns: 1e8,
        step_median_ns: 9e7,
        step_p5_ns: 8e7,
        step_p95_ns: 1.2e8,
        exposed_ns: [("collate", 8e7), ("decode", 1e7), ("mask", 1e6), ("read", 1e6), ("allreduce", 1e6)]
            .into_iter()
            .map(|(stage, ns)| (stage.into(), ns))
            .collect(),
        busy_ns: ["read", "decode", "mask", "collate"].into_iter().map(|stage| (stage.into(), 1e7)).collect(),
        peak_memory_bytes: Some(500_000_000),
        storage_bytes: Some(2_000_000_000),
        batch_bytes: Some(1e6),
        shuffle: Some(shuffle),
        versions: BTreeMap::new(),
        cautions: vec!["step times drift".into()],
    };
    let label = regex::Regex::new(r"(?m)^\[variant\.(\w+)\]").unwrap();
    let key = regex::Regex::new(r#"bench(?:_median)?\("(\w+)", "([^"]+)""#).unwrap();
    let texts: String = templates(&root()).into_values().collect();
    let mut all = BTreeMap::new();
    for source in sources(&root()).unwrap() {
        let record = if source.kind == "job" {
            let config = source.command.split(' ').find(|word| word.ends_with(".toml")).unwrap();
            let mut text = read(&root().join(config));
            // Variants that the config takes over from another one. Where a variant extends `FILE#VARIANT`, those of that file
            // are there as well and nobody asks for them.
            if let Some(base) = text.lines().find_map(|line| line.strip_prefix("extends = \"")?.strip_suffix('"')) {
                let file = base.split('#').next().unwrap_or(base);
                text += &read(&root().join("conf").join(file));
            }
            let labels = label.captures_iter(&text).map(|found| found[1].to_owned());
            let labels = labels.chain(swept_labels(&texts, &source.name)).enumerate();
            let labels = labels.map(|(place, label)| (label, scattered(&variant, place)));
            Record::Job(Box::new(ReferenceRecord {
                schema: REFERENCE_SCHEMA_VERSION,
                job: 1,
                config: source.name.clone(),
                config_path: config.into(),
                config_hash: None,
                command: source.command.clone(),
                commit: Some("0123456789ab".into()),
                flaws: Vec::new(),
                expctl: "0.1.0".into(),
                submitted: 1_762_214_400,
                baseline: None,
                machines: Vec::new(),
                warnings: Vec::new(),
                variants: labels.collect(),
            }))
        } else {
            let mut keys: BTreeSet<String> = key
                .captures_iter(&texts)
                .filter(|found| found[1] == source.name)
                .map(|found| found[2].to_owned())
                .collect();
            keys.extend(looped_keys(&source.name));
            let figures =
                keys.iter().filter_map(|key| BenchFigure::from_range(key.as_str(), "ns", &[1500.0, 1600.0, 1700.0]));
            let record = BenchRecord::new(source.command.clone(), &root(), figures.collect());
            Record::Bench(BenchRecord { commit: Some("0123456789ab".into()), measured: 1_762_214_400, ..record })
        };
        all.insert(source.name, record);
    }
    Records(all)
}

/// Labels of swept points, as `lazy (train.mode="forward")`, that the templates ask for of a record.
fn swept_labels(templates: &str, record: &str) -> BTreeSet<String> {
    let call = regex::Regex::new(&format!(r#"\w+\("{record}", (.*?)\) *\}}\}}"#)).unwrap();
    let label = regex::Regex::new(r#""(\w+ \([^"]+\))"|'(\w+ \([^']+\))'"#).unwrap();
    let arguments = call.captures_iter(templates).map(|found| found[1].to_owned());
    arguments
        .flat_map(|all| {
            label
                .captures_iter(&all)
                .map(|found| found.get(1).or(found.get(2)).map_or_else(String::new, |label| label.as_str().to_owned()))
                .collect::<Vec<_>>()
        })
        .collect()
}

/// The same figures with runs a little apart from those of the variants at other places, and the same mean: without any spread there is
/// no test.
fn scattered(variant: &VariantFigures, place: usize) -> VariantFigures {
    let wave: Vec<f64> =
        (0..variant.samples_per_s.len()).map(|run| ((place * 7 + run * 11 + 1) as f64).sin()).collect();
    let mean = wave.iter().sum::<f64>() / wave.len() as f64;
    let rates = variant.samples_per_s.iter().zip(&wave).map(|(rate, wave)| rate * (1e-3 * (wave - mean)).exp());
    VariantFigures { samples_per_s: rates.collect(), ..variant.clone() }
}

/// Keys that templates put together from lists: those that the bench of this name writes.
fn looped_keys(bench: &str) -> Vec<String> {
    let of = |names: &[&str], figures: &[&str]| -> Vec<String> {
        names.iter().flat_map(|name| figures.iter().map(move |figure| format!("{name}.{figure}"))).collect()
    };
    let floors = ["floor", "this", "ratio"];
    match bench {
        "masks" => of(&["byte masks of a sample", "bit masks of a sample", "removed lists of a sample"], &floors),
        "stores" => {
            let stores = ["json", "ids", "compressed", "full_masks"];
            let names: Vec<String> =
                stores.iter().flat_map(|s| ["cache", "disk"].map(|from| format!("{s}, from the {from}"))).collect();
            of(&names.iter().map(String::as_str).collect::<Vec<_>>(), &floors)
        }
        "remote_cache" | "remote_rows_cache" => of(&["cold", "warm"], &["useful", "rows", "sent"]),
        _ if bench.starts_with("remote_") => of(&["direct"], &["useful", "rows", "sent"]),
        _ if bench.starts_with("lazy_") => ["forward", "backward", "rate", "memory"].map(str::to_owned).into(),
        "timing_cost" => {
            let step = ["stages", "batch", "allreduce", "journal", "last_words", "all", "all_cold"];
            let others = ["loader", "operations", "operations_step"];
            step.iter().chain(&others).map(|key| (*key).to_owned()).collect()
        }
        _ => Vec::new(),
    }
}
