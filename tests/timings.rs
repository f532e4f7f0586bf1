//! `expctl timings`, as a user runs it: files of pandas, pyarrow and CSV, jobs of the ledger, and what is wrong with them.
#![expect(clippy::unwrap_used, reason = "a test")]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::TestProject;
use common::ledger::{sweep, two_variants};
use common::python::interpreter;
use expctl::timings::generated;
use serde_json::Value;

/// A project, the files of write_timings.py in it, and what pandas makes of them.
fn written() -> (TestProject, PathBuf, Value) {
    let project = TestProject::new();
    let folder = project.path().join("files");
    std::fs::create_dir(&folder).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/write_timings.py");
    let output = Command::new(interpreter()).arg(script).arg(&folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (project, folder, serde_json::from_slice(&output.stdout).unwrap())
}

fn json(project: &TestProject, args: &[&str]) -> Value {
    let (stdout, _) = project.expect(&[&["timings", "--json"], args].concat(), 0);
    serde_json::from_str(&stdout).unwrap()
}

fn close(a: &Value, b: &Value, within: f64) {
    let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
    assert!((a - b).abs() <= within * b.abs(), "{a} is not {b}");
}

/// Method and epoch against pandas.
fn agrees(found: &Value, pandas: &Value, within: f64) {
    let methods = found["methods"].as_array().unwrap();
    assert_eq!(methods.iter().map(|m| m["method"].as_str().unwrap()).collect::<Vec<_>>(), ["b", "a"]);
    for method in methods {
        for epoch in method["epochs"].as_array().unwrap() {
            let name = format!("{}/{}", method["method"].as_str().unwrap(), epoch["epoch"].as_str().unwrap());
            let (times, pandas) = (&epoch["times"], &pandas[&name]);
            assert_eq!(times["batches"], pandas["n"], "{name}");
            close(&times["total_s"], &pandas["total"], within);
            for (a, b) in times["quantiles_s"].as_array().unwrap().iter().zip(pandas["quantiles"].as_array().unwrap()) {
                close(a, b, within);
            }
            close(&times["slowest_10_percent"], &pandas["slowest_10"], within);
            close(&times["halves_ratio"], &pandas["ratio_at_half"], within);
            assert_eq!(epoch["check"]["missing"], 0);
        }
    }
    assert_eq!((&methods[0]["found"]["period"], &methods[1]["found"]), (&10.into(), &Value::Null));
}

#[test]
fn files_of_pandas_pyarrow_and_csv_say_what_pandas_says() {
    let (project, folder, pandas) = written();
    let file = |name: &str| folder.join(name).display().to_string();
    for name in ["index.parquet", "category.parquet", "plain.csv"] {
        agrees(&json(&project, &[&file(name)]), &pandas, 1e-9);
    }
    agrees(&json(&project, &[&file("small.parquet")]), &pandas, 1e-6);
    let renamed = file("renamed.parquet");
    let columns = ["--method", "loader", "--epoch", "pass", "--batch", "i"];
    for (time, within) in [(&["took_ns", "--unit", "ns"][..], 1e-6), (&["exact"], 1e-6), (&["half"], 2e-3)] {
        let args = [&[renamed.as_str()], &columns[..], &["--time"], time].concat();
        agrees(&json(&project, &args), &pandas, within);
    }
}

#[test]
fn rows_out_of_order_are_put_in_order() {
    let (project, folder, _) = written();
    let found = json(&project, &[&folder.join("shuffled.parquet").display().to_string()]);
    let b = found["methods"].as_array().unwrap().iter().find(|m| m["method"] == "b").unwrap().clone();
    assert_eq!(b["found"]["period"], 10);
    let phases = b["epochs"][0]["rhythm"]["phases"].as_array().unwrap();
    assert!(!phases.is_empty() && phases.iter().all(|phase| phase == 3), "{phases:?}");
    assert_eq!(b["epochs"][0]["check"]["in_order"], false);
}

#[test]
fn a_column_that_is_not_there_is_named_with_those_that_are() {
    let (project, folder, _) = written();
    let file = folder.join("renamed.parquet").display().to_string();
    let (_, stderr) = project.expect(&["timings", &file], 3);
    assert!(stderr.contains("has no column batch_times for the time"), "{stderr}");
    assert!(stderr.contains("loader, pass, i, took_ns") && stderr.contains("--time NAME"), "{stderr}");
    let (_, stderr) = project.expect(&["timings", &file, "--time", "exact", "--method", "x"], 3);
    assert!(stderr.contains("has no column x for the method") && stderr.contains("--method NAME"), "{stderr}");
}

#[test]
fn a_value_that_is_no_time_is_named_with_its_row() {
    let (project, folder, _) = written();
    let fails = |name: &str| project.expect(&["timings", &folder.join(name).display().to_string()], 3).1;
    let null = fails("null.parquet");
    assert!(null.contains("row 1234 (from 0): column batch_times"), "{null}");
    assert!(fails("nan.parquet").contains("row 2 (from 0): column batch_times: not a number"));
    for (text, expected) in [
        ("batch,time\n0,0.5\n1,-0.5\n", "line 3: column time: -0.5 is no time"),
        ("batch,time\n0,0.5\n1,inf\n", "line 3: column time: inf is no time"),
        ("batch,time\n0,0.5\n1,fast\n", "line 3: column time: 'fast' is no number"),
        ("batch,time\n0,0.5\n-1,0.5\n", "line 3: column batch: '-1' is no batch number"),
        (
            "batch,time\n3,0.5\n18446744073709551615,0.5\n4,0.5\n",
            "line 3: column batch: 18446744073709551615 is too large",
        ),
        ("batch,time\n0,0.5\n1\n", "line 3: 1 fields where the header has 2"),
        ("batch,time\n", "has no rows"),
        ("", "has no column batch_times"),
    ] {
        std::fs::write(folder.join("x.csv"), text).unwrap();
        let stderr = fails("x.csv");
        assert!(stderr.contains(expected), "{text:?}: {stderr}");
    }
    std::fs::write(folder.join("x.parquet"), b"PAR1 and nothing else").unwrap();
    assert!(fails("x.parquet").contains("cannot read"));
    assert!(fails("absent.csv").contains("cannot read"));
}

#[test]
fn what_is_wrong_with_the_batch_index_is_said() {
    let project = TestProject::new();
    let path = project.path().join("x.csv");
    let rows: String = [0, 1, 2, 2, 5, 6].map(|i| format!("{i},0.5\n")).concat();
    std::fs::write(&path, format!("batch,seconds\n{rows}")).unwrap();
    let (stdout, _) = project.expect(&["timings", &path.display().to_string()], 0);
    assert!(stdout.contains("2 missing, first 3; 1 doubled, first 2"), "{stdout}");
    assert!(stdout.contains("1 series is not numbered from 0"), "{stdout}");
}

#[test]
fn what_could_not_be_looked_at_is_not_claimed() {
    let project = TestProject::new();
    let path = project.path().join("x.csv");
    std::fs::write(&path, "time\n0.5\n0.25\n0.75\n").unwrap();
    let path = path.display().to_string();
    let (stdout, _) = project.expect(&["timings", &path], 0);
    assert!(stdout.contains("No batch column") && !stdout.contains("without gap"), "{stdout}");
    assert!(stdout.contains("no period looked for: too few batches"), "{stdout}");
    let found = json(&project, &[&path]);
    let epoch = &found["methods"][0]["epochs"][0];
    assert_eq!((&epoch["check"], &epoch["times"]["slowest_1_percent"]), (&Value::Null, &Value::Null));
}

#[test]
fn pictures_have_names_of_their_own_and_say_what_they_show() {
    let project = TestProject::new();
    let path = project.path().join("x.csv");
    let mut text = "method,epoch,time\n".to_owned();
    for (method, epochs, batches) in [("a-1", 8, 100), ("a_1", 1, 6000), ("a 1", 1, 100)] {
        for epoch in 0..epochs {
            (0..batches).for_each(|i| text += &format!("{method},{epoch},0.{}\n", 1 + i * 7919 % 997));
        }
    }
    std::fs::write(&path, text).unwrap();
    let folder = project.path().join("notes");
    let args = ["timings", &path.display().to_string(), "--range", "0:9000", "--out", &folder.display().to_string()];
    project.expect(&args, 0);
    let note = std::fs::read_to_string(folder.join("x_timings.md")).unwrap();
    let mut pictures: Vec<&str> = note.lines().filter(|line| line.starts_with("![")).collect();
    pictures.iter_mut().for_each(|line| *line = line.split_once("](").unwrap().1);
    let count = pictures.len();
    pictures.sort_unstable();
    pictures.dedup();
    assert_eq!((count, pictures.len()), (9, 9), "{pictures:?}");
    assert!(note.contains("a-1 (x.csv), the first 5 of 8 epochs"), "{note}");
    assert!(note.contains("Every batch of [0, 5000)") && note.contains("Every batch of [0, 100)"), "{note}");
}

/// The generated file of the published benchmark's shape.
fn benchmark(project: &TestProject) -> String {
    let path = project.path().join("generated.parquet");
    generated::write_benchmark(&path, 20_241_105).unwrap();
    path.display().to_string()
}

#[test]
fn the_published_shape_gives_its_periods() {
    let project = TestProject::new();
    let file = benchmark(&project);
    let found = json(&project, &[&file]);
    assert_eq!(found["source"]["class"], "generated");
    let methods = found["methods"].as_array().unwrap();
    let periods: Vec<_> = methods.iter().map(|m| (m["method"].as_str().unwrap(), &m["found"]["period"])).collect();
    assert_eq!(periods, [("Merlin", &10.into()), ("Census", &10.into()), ("MappedCollection", &7.into())]);
    for epoch in methods[1]["epochs"].as_array().unwrap() {
        assert_eq!(epoch["found"]["period"], 10);
        let rhythm = &epoch["rhythm"];
        // One batch late for each 40 to 50.
        let drift = rhythm["drift_per_100"].as_f64().unwrap();
        assert!((1.9..2.6).contains(&drift), "{drift}");
        assert!(rhythm["slower"].as_f64().unwrap() > 90.0 && rhythm["time_share"].as_f64().unwrap() > 0.75);
        // The line of about 1 s does not slip.
        let second = &epoch["second"];
        assert_eq!(second["period"], 10);
        assert!(second["drift_per_100"].as_f64().unwrap().abs() < 0.1, "{second}");
    }
    assert!(methods[0]["second"].is_null() && methods[2]["second"].is_null());
    let (stdout, _) = project.expect(&["timings", &file], 0);
    insta::assert_snapshot!(stdout);
}

#[test]
fn a_note_keeps_what_was_written_by_hand() {
    let project = TestProject::new();
    let file = benchmark(&project);
    let folder = project.path().join("notes").display().to_string();
    let out = ["timings", &file, "--out", &folder];
    assert_eq!(project.expect(&out, 0).0.trim(), "ROOT/notes/generated_timings.md");
    let note = project.path().join("notes/generated_timings.md");
    let text = std::fs::read_to_string(&note).unwrap();
    assert!(
        text.starts_with("---\nid: ")
            && text.contains("assets/images/generated_timings_census_batches_mod10_1200_1800.svg")
    );
    for line in text.lines().filter_map(|line| line.strip_prefix("![")?.split_once("](")?.1.strip_suffix(')')) {
        let picture = note.with_file_name(line);
        let size = std::fs::metadata(&picture).unwrap().len();
        assert!((1000..500_000).contains(&size), "{}: {size} bytes", picture.display());
        assert!(picture.with_extension("png").is_file());
    }
    let mine = text + "\nMy own words.  \n";
    std::fs::write(&note, &mine).unwrap();
    project.expect(&out, 0);
    assert_eq!(std::fs::read_to_string(&note).unwrap(), mine);
    project.expect(&[&out[..], &["--period", "7"]].concat(), 0);
    let changed = std::fs::read_to_string(&note).unwrap();
    assert!(changed.ends_with("\nMy own words.  \n") && changed.contains("mod7") && changed != mine);
    let damaged = changed.replace("<!-- expctl:end period -->", "");
    std::fs::write(&note, &damaged).unwrap();
    let (_, stderr) = project.expect(&out, 3);
    assert!(stderr.contains("period") && std::fs::read_to_string(&note).unwrap() == damaged, "{stderr}");
}

#[test]
fn the_steps_of_a_job() {
    let project = TestProject::new();
    two_variants(&project, 7);
    let found = json(&project, &["7", "--rank", "1"]);
    assert_eq!((found["source"]["class"].as_str(), found["methods"].as_array().unwrap().len()), (Some("measured"), 6));
    let first = &found["methods"][0];
    assert_eq!((&first["method"], &first["epochs"][0]["check"]["missing"]), (&"lazy, repeat 1".into(), &0.into()));
    assert!((first["all"]["quantiles_s"][3].as_f64().unwrap() - 0.4).abs() < 0.02, "{first}");
    sweep(&project, 8);
    let (stdout, _) = project.expect(&["timings", "8"], 0);
    assert!(stdout.contains("| ids (launch.ranks=4) |") && stdout.contains("too few batches"), "{stdout}");
    assert!(project.expect(&["timings", "8", "--rank", "9"], 2).1.contains("there is no rank 9"));
    assert!(project.expect(&["timings", "8", "--unit", "ms"], 2).1.contains("--unit is for files"));
    assert!(project.expect(&["timings", "99"], 7).1.contains("there is no job 99"));
    assert!(project.expect(&["timings", "8", "--range", "5:5"], 2).1.contains("no batch between"));
}
