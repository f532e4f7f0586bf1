//! Benchmarks in Python that are measured in several sittings.

use std::path::Path;
use std::process::Command;

use expctl_ledger::BenchRecord;

use crate::common::text;

/// A bench of three parts, at the commit that is named. It says what it measures.
const BENCH: &str = r#"
import os, sys, types
import bench_record
from bench_record import Parts, figure, write_record

bench_record.git = lambda *arguments: types.SimpleNamespace(returncode=0, stdout=sys.argv[1])
parts = Parts("test")

def measure(name):
    print(name, end=" ")
    return {"value": len(name)}

for name in ["a", "bb", "c c"]:
    figure(name, parts.get(name, lambda: measure(name), 3600)["value"], None, 1)
write_record(os.environ.get("EXPCTL_BENCH_RECORD"), "test", parts)
"#;

#[test]
fn a_bench_goes_on_where_it_was_stopped_and_its_record_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("record.json");
    // What it measured, and its exit code.
    let sitting = |commit: &str, variables: &[(&str, &str)]| {
        let mut bench = Command::new("python3");
        bench.args(["-c", BENCH, commit]).env("PYTHONPATH", Path::new(env!("CARGO_MANIFEST_DIR")).join("benches"));
        bench.env("PYTHONDONTWRITEBYTECODE", "1").env("EXPCTL_BENCH_PARTS", folder.path().join("parts"));
        bench.env_remove("EXPCTL_BENCH_RECORD").env_remove("EXPCTL_BENCH_MINUTES").envs(variables.iter().copied());
        let output = bench.output().unwrap();
        (text(&output.stdout), output.status.code(), text(&output.stderr))
    };
    let minute = [("EXPCTL_BENCH_MINUTES", "1")];
    let write = [("EXPCTL_BENCH_RECORD", record.to_str().unwrap())];
    let (measured, code, said) = sitting("c1", &minute);
    assert_eq!((measured.as_str(), code), ("a ", Some(75)), "{said}");
    assert!(said.contains("this sitting is over before bb"), "{said}");
    assert_eq!(sitting("c1", &minute).0, "bb ");
    // Other code: nothing counts.
    assert_eq!(sitting("c2", &[]).0, "a bb c c ");
    assert_eq!(sitting("c2", &write).0, "");
    let first = BenchRecord::read(&record).unwrap();
    assert!(first.sittings.is_empty(), "one sitting measured all of it: {first:?}");
    assert_eq!(first.figures.iter().map(|figure| figure.median).collect::<Vec<_>>(), [1.0, 2.0, 3.0]);
    // A record uses its parts up.
    assert_eq!(sitting("c2", &minute).0, "a ");
    assert_eq!(sitting("c2", &write).0, "bb c c ");
    let second = BenchRecord::read(&record).unwrap();
    assert_eq!(second.sittings.iter().map(|sitting| sitting.parts).collect::<Vec<_>>(), [1, 2]);
    assert!(second.sittings.iter().all(|sitting| sitting.began <= sitting.ended), "{second:?}");
    assert_eq!(std::fs::read_dir(folder.path().join("parts")).unwrap().count(), 0);
}
