//! `expctl timings`, as a user runs it: files of pandas, pyarrow and CSV, jobs of the ledger, and what is wrong with them.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::TestProject;
use crate::common::ledger::{in_epochs, steps_of_epochs, sweep, two_variants};
use crate::common::programs::interpreter;
use crate::generated_times;
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
    project.json(&[&["timings", "--json"], args].concat(), 0)
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
    assert_eq!((count, pictures.len()), (11, 11), "{pictures:?}");
    assert!(note.contains("a-1 (x.csv), the first 5 of 8 epochs"), "{note}");
    assert!(note.contains("Every batch of [0, 5000)") && note.contains("Every batch of [0, 100)"), "{note}");
}

/// The generated file of the published benchmark's shape.
fn benchmark(project: &TestProject) -> String {
    let path = project.path().join("generated.parquet");
    generated_times::write_benchmark(&path, 20_241_105).unwrap();
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

#[test]
fn one_column_is_not_taken_for_two_things() {
    let project = TestProject::new();
    let file = project.path().join("times.csv");
    let rows: String = (0..20).map(|i| format!("{i},0.{}\n", 5 + i % 3)).collect();
    std::fs::write(&file, format!("epoch,time\n{rows}")).unwrap();
    let file = file.to_str().unwrap();
    // Named as the count of batches, it is no epoch.
    let found = json(&project, &[file, "--batch", "epoch"]);
    let epochs = found["methods"][0]["epochs"].as_array().unwrap();
    assert_eq!((epochs.len(), &epochs[0]["check"]["missing"]), (1, &0.into()), "{found}");
    let (_, stderr) = project.expect(&["timings", file, "--batch", "epoch", "--epoch", "epoch"], 3);
    assert!(stderr.contains("batch and epoch are both column epoch"), "{stderr}");
    // The answer stands at the top.
    let (stdout, _) = project.expect(&["timings", file, "--batch", "epoch"], 0);
    let head = stdout.split("### ").next().unwrap();
    assert!(head.contains("**: a batch takes "), "{head}");
    let other = project.path().join("other.csv");
    std::fs::write(&other, "batch;time\n0;0.5\n").unwrap();
    let (_, stderr) = project.expect(&["timings", other.to_str().unwrap()], 3);
    assert!(stderr.contains("fields are separated by commas"), "{stderr}");
}

/// Seconds of the measured steps of an epoch.
fn seconds(epoch: u64) -> f64 {
    let steps = steps_of_epochs(5, 100);
    steps.iter().filter(|step| step.epoch == epoch && step.measured).map(|step| step.wall_ns as f64 / 1e9).sum()
}

#[test]
fn the_epochs_of_a_job_are_told_apart() {
    let project = TestProject::new();
    in_epochs(&project, 7);
    let found = json(&project, &["7"]);
    let methods = found["methods"].as_array().unwrap();
    let names: Vec<_> = methods.iter().map(|method| method["method"].as_str().unwrap()).collect();
    assert_eq!(names, ["epochs, repeat 1", "epochs, repeat 2", "single"]);
    let epochs = methods[0]["epochs"].as_array().unwrap();
    // The warm-up is part of the first one, which is not whole.
    let told: Vec<_> =
        epochs.iter().map(|e| (e["epoch"].as_str().unwrap(), &e["times"]["batches"], &e["whole"])).collect();
    let (eighty, no) = (Value::from(80), Value::from(false));
    let (hundred, yes) = (Value::from(100), Value::from(true));
    let expected = [
        ("0", &eighty, &no),
        ("1", &hundred, &yes),
        ("2", &hundred, &yes),
        ("3", &hundred, &yes),
        ("4", &hundred, &yes),
    ];
    assert_eq!(told, expected);
    assert!(epochs.iter().all(|epoch| epoch["check"]["missing"] == 0));
    let time = &methods[0]["epoch_time"];
    assert_eq!((&time["basis"], &time["epochs"]), (&"whole_epochs".into(), &4.into()));
    close(&time["time_s"]["value"], &((1..5).map(seconds).sum::<f64>() / 4.0).into(), 1e-9);
    let first = &methods[0]["first_epoch"];
    let later = (1..5).map(seconds).sum::<f64>() / 400.0;
    close(&first["ratio"], &(later / (seconds(0) / 80.0)).into(), 1e-9);
    assert_eq!((&first["epoch"], &first["later"]["batches"]), (&"0".into(), &400.into()));
    // Of a single epoch that is not whole, the time comes from the rate.
    let single = &methods[2]["epoch_time"];
    assert_eq!((&single["basis"], &single["epochs"]), (&"rate".into(), &0.into()));
    close(&single["time_s"]["value"], &(seconds(0) / 80.0 * 100.0).into(), 1e-9);
    let (stdout, _) = project.expect(&["timings", "7"], 0);
    assert!(stdout.contains("### Epochs") && stdout.contains("| single | from the rate |"), "{stdout}");
    // A job that counts steps has no epochs of its own.
    two_variants(&project, 8);
    assert!(!project.expect(&["timings", "8"], 0).0.contains("### Epochs"));
}

#[test]
fn the_stage_that_makes_slow_batches_slow_is_named() {
    let project = TestProject::new();
    in_epochs(&project, 7);
    let found = json(&project, &["7"]);
    let method = &found["methods"][0];
    assert_eq!(method["found"]["period"], 10);
    let slow = &method["slow_stages"];
    assert_eq!(slow["slow"], serde_json::json!({ "on_beat": { "period": 10 } }));
    assert_eq!((&slow["batches"], &slow["others"]), (&48.into(), &432.into()));
    let stages = slow["stages"].as_array().unwrap();
    let of = |name: &str| stages.iter().find(|stage| stage["stage"] == name).unwrap();
    let share = |name: &str| of(name)["share"].as_f64().unwrap();
    assert!(share("read") > 0.9 && share("collate").abs() < 0.1, "{slow}");
    assert!((stages.iter().map(|stage| stage["share"].as_f64().unwrap()).sum::<f64>() - 1.0).abs() < 1e-9, "{slow}");
    // Twice as much is worked on a batch as is waited for it.
    close(&of("read")["busy_slow_s"], &(2.0 * of("read")["exposed_slow_s"].as_f64().unwrap()).into(), 1e-9);
    let (stdout, _) = project.expect(&["timings", "7"], 0);
    let (_, section) = stdout.split_once("### Stages of the slow batches").unwrap();
    let line = section.lines().find(|line| line.starts_with("- **epochs, repeat 1**")).unwrap();
    assert!(line.contains("(every 10th batch; 48 of 480)") && line.contains("(exposed), read has "), "{line}");
    assert!(line.contains("Of the work, read grows most: "), "{line}");
    // Steps that are all alike have no slow ones, and a file has no stages.
    two_variants(&project, 8);
    assert!(!project.expect(&["timings", "8"], 0).0.contains("### Stages"));
    assert_eq!(json(&project, &[&benchmark(&project)])["methods"][0]["slow_stages"], Value::Null);
}

#[test]
fn several_jobs_are_methods_of_one_table() {
    let project = TestProject::new();
    in_epochs(&project, 7);
    two_variants(&project, 8);
    let found = json(&project, &["7", "8", "7"]);
    assert_eq!(found["source"]["name"], "jobs 7, 8");
    let names: Vec<_> = found["methods"].as_array().unwrap().iter().map(|m| m["method"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 9);
    assert_eq!(
        names[..4],
        ["job 7: epochs, repeat 1", "job 7: epochs, repeat 2", "job 7: single", "job 8: lazy, repeat 1"]
    );
    let folder = project.path().join("notes").display().to_string();
    let (stdout, _) = project.expect(&["timings", "7", "8", "--out", &folder], 0);
    assert_eq!(stdout.trim(), "ROOT/notes/jobs_7_8_timings.md");
    let file = project.path().join("x.csv");
    std::fs::write(&file, "time\n0.5\n").unwrap();
    let (_, stderr) = project.expect(&["timings", "7", &file.display().to_string()], 2);
    assert!(stderr.contains("are not all jobs") && stderr.contains("a file is read alone"), "{stderr}");
}

#[test]
fn the_second_line_of_a_period_has_its_level() {
    let project = TestProject::new();
    let (stdout, _) = project.expect(&["timings", &benchmark(&project)], 0);
    let is_period = |line: &&str| line.starts_with("- **Census**") && line.contains("a second line");
    let line = stdout.lines().find(is_period).unwrap();
    let (_, second) = line.split_once("a second line").unwrap();
    let (_, level) = second.split_once("slower by the median (").unwrap();
    let ends: Vec<f64> = level.split_once(" s)").unwrap().0.split('–').map(|end| end.parse().unwrap()).collect();
    // "≈1s batches"
    assert!(ends.iter().all(|level| (0.9..1.1).contains(level)), "{line}");
}

#[test]
fn a_full_curve_is_the_table_of_the_notebook() {
    let project = TestProject::new();
    let path = project.path().join("x.csv");
    let times: Vec<f64> = (0..3000).map(|i| 0.001 * f64::from(1 + i * 7919 % 2999)).collect();
    let rows: String = times.iter().enumerate().map(|(i, time)| format!("{},{time}\n", i % 2)).collect();
    std::fs::write(&path, format!("epoch,seconds\n{rows}")).unwrap();
    let path = path.display().to_string();
    let found = json(&project, &[&path, "--curve", "full"]);
    let epochs = found["methods"][0]["epochs"].as_array().unwrap();
    let mut sorted: Vec<f64> = times.iter().copied().step_by(2).collect();
    sorted.sort_by(f64::total_cmp);
    let curve = epochs[0]["times"]["curve"].as_array().unwrap();
    assert_eq!((curve.len(), sorted.len()), (1500, 1500));
    let (total, mut sum) = (sorted.iter().sum::<f64>(), 0.0);
    for (rank, (row, time)) in curve.iter().zip(&sorted).enumerate() {
        sum += time;
        // batch_time_sum, time_frac, batch_frac and ratio of the notebook, in the order of batch_rank.
        let (time_frac, batch_frac) = (sum / total, (rank + 1) as f64 / 1500.0);
        assert_eq!(row["batches"], rank + 1);
        close(&row["time_s"], &sum.into(), 1e-9);
        close(&row["time_share"], &time_frac.into(), 1e-9);
        close(&row["batch_share"], &batch_frac.into(), 1e-9);
        if rank + 1 < 1500 {
            let ratio = batch_frac / time_frac * (1.0 - time_frac) / (1.0 - batch_frac);
            close(&row["ratio"], &ratio.into(), 1e-6);
        }
    }
    assert_eq!(curve[1499]["ratio"], Value::Null);
    let reduced = json(&project, &[&path]);
    assert!(reduced["methods"][0]["epochs"][0]["times"]["curve"].as_array().unwrap().len() < 400);
    assert!(project.expect(&["timings", &path, "--curve", "full"], 2).1.contains("--json"));
}

#[test]
fn a_page_and_pictures_of_a_size_are_written_beside_the_note() {
    let project = TestProject::new();
    in_epochs(&project, 7);
    let folder = project.path().join("notes");
    let args =
        ["timings", "7", "--out", &folder.display().to_string(), "--html", "--size", "1200x900", "--picture-data"];
    let (stdout, _) = project.expect(&args, 0);
    assert_eq!(stdout, "ROOT/notes/fig1_7_timings.md\nROOT/notes/fig1_7_timings.html\n");
    let images = folder.join("assets/images");
    for name in ["boxplot", "epoch_time", "time_sums", "epochs_repeat_1_batches_mod10"] {
        let svg = std::fs::read_to_string(images.join(format!("fig1_7_timings_{name}.svg"))).unwrap();
        assert!(svg.contains(" width=\"1200\"") && svg.contains(" height=\"900\""), "{name}: {}", &svg[..200]);
        let data = std::fs::read(images.join(format!("fig1_7_timings_{name}.json"))).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&data).unwrap()["name"], name);
    }
    let page = std::fs::read_to_string(folder.join("fig1_7_timings.html")).unwrap();
    for part in [
        ">Stages of the slow batches</h2>",
        "id=\"plot-boxplot\"",
        "id=\"plot-epoch_time\"",
        "id=\"plot-single_batches_mod10\"",
        "\"of\":\"epoch 3\"",
        "\"whiskers\":\"1 % to 99 %\"",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("<img") && page.matches("http://").count() == page.matches("http://www.w3.org").count());
    // The page is known again, and that of another source is not.
    project.expect(&args, 0);
    assert!(!folder.join("fig1_7_timings-2.html").exists());
    std::fs::write(folder.join("fig1_7_timings.html"), "mine").unwrap();
    let (stdout, stderr) = project.expect(&args, 0);
    assert!(stdout.ends_with("ROOT/notes/fig1_7_timings-2.html\n"), "{stdout}");
    assert!(stderr.contains("is not the page of this source and stays as it is"), "{stderr}");
    for (option, value) in [("--html", None), ("--size", Some("900x600")), ("--picture-data", None)] {
        let args: Vec<&str> = ["timings", "7", option].into_iter().chain(value).collect();
        assert!(project.expect(&args, 2).1.contains("--out"), "{option}");
    }
    assert!(project.expect(&["timings", "7", "--out", "x", "--size", "9x9"], 2).1.contains("a width of 9 points"));
}
