//! Documents say what records say.
//!
//! `make figures` (`EXPCTL_UPDATE_FIGURES=1`) writes README.md and the documents from docs/templates and results/reference/records; the
//! same test fails where one of them is not what that gives.

mod records;
mod render;
mod scan;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use expctl_ledger::BenchSitting;

use records::{FigureRecord, FigureRecords, sources, synthetic};
use render::{DOCS, render, templates};
use scan::Scan;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display())).unwrap()
}

fn committed() -> FigureRecords {
    let folder = |name: &str| FigureRecords::load(&root().join("results").join(name).join("records")).unwrap();
    folder("reference").and(folder("gpu"))
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
    let Some(FigureRecord::Job(fair)) = other.0.get_mut("006_fair") else { panic!("006_fair is a job") };
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
    let Some(FigureRecord::Job(choosing)) = records.0.get_mut("choosing") else { panic!("choosing is a job") };
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
    let say = |records: &FigureRecords, text: &str| {
        let templates = all.keys().map(|name| (name.clone(), text.to_owned())).collect();
        render(&root(), records, &templates).unwrap_err()
    };
    let empty = say(&FigureRecords::default(), "{{ rate('006_fair', 'lazy') }}");
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

/// A record that was not measured at one go says so wherever it is cited.
#[test]
fn sittings_of_a_record_are_told() {
    let mut records = synthetic();
    let Some(FigureRecord::Bench(record)) = records.0.get_mut("predictions") else { panic!("predictions is a bench") };
    let document = |records: &FigureRecords| {
        render(&root(), records, &templates(&root())).unwrap().documents["docs/reference/predictions.md"].clone()
    };
    let sitting = |began: i64| BenchSitting { began, ended: began + 60, parts: 3 };
    record.sittings = vec![sitting(1_762_000_000), sitting(1_762_214_400)];
    let told = "commit 0123456789ab, 2025.11.04, in 2 sittings from 2025.11.01 on.";
    assert!(document(&records).contains(told), "{}", document(&records));
    assert!(!document(&synthetic()).contains("sittings"));
}

#[test]
fn records_are_clean_and_cited() {
    let records = committed();
    let cited = render(&root(), &records, &templates(&root())).unwrap().cited;
    let known: BTreeMap<String, &str> =
        sources(&root()).unwrap().into_iter().map(|source| (source.name, source.folder)).collect();
    for (name, record) in &records.0 {
        let flaws = match record {
            FigureRecord::Job(record) => record.flaws.clone(),
            FigureRecord::Bench(record) => record.flaw().into_iter().collect(),
        };
        assert!(flaws.is_empty(), "{name}: {flaws:?}");
        assert!(cited.contains(name), "no template cites {name}");
        let Some(folder) = known.get(name) else {
            panic!("neither scripts/reference.tsv nor scripts/gpu.tsv says how {name} is made")
        };
        let size = root().join(format!("results/{folder}/records/{name}.json")).metadata().unwrap().len();
        assert!(size <= 150_000, "{name} has {size} bytes");
    }
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
