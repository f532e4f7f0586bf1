//! `expctl import` of logs: what progress bars say, read in the published way and in the right one.

use std::process::Command;

use crate::common;
use crate::common::TestProject;
use crate::common::programs::interpreter;
use expctl_settings::Estimator;

const OF_LOG: [&str; 10] =
    ["--study", "006-kuzmin-tmi", "--config", "086a", "--job", "700", "--batch-size", "28", "--ranks", "1"];

fn import(project: &TestProject, log: &str, more: &[&str], code: i32) -> (String, String) {
    let path = project.file(log);
    project.expect(&[&["import", path.to_str().unwrap()], &OF_LOG[..], more].concat(), code)
}

/// The text of real bars, and the steps and seconds of the training ones.
fn bars(project: &TestProject, kind: &str) -> (u64, f64) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python/progress_bars.py");
    let run = Command::new(interpreter()).args([script, kind]).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    std::fs::write(project.file(&format!("{kind}.log")), &run.stderr).unwrap();
    let said: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    (said["steps"].as_u64().unwrap(), said["seconds"].as_f64().unwrap())
}

fn rows(project: &TestProject) -> Vec<toml::Table> {
    let text = std::fs::read_to_string(project.file("results/imported/log_700.toml")).unwrap();
    let file: toml::Table = toml::from_str(&text).unwrap();
    file["result"].as_array().unwrap().iter().map(|row| row.as_table().unwrap().clone()).collect()
}

fn row(project: &TestProject, variant: &str, reading: &str) -> toml::Table {
    let found =
        |row: &toml::Table| row["variant"].as_str() == Some(variant) && row["reading"].as_str() == Some(reading);
    rows(project).into_iter().find(found).unwrap()
}

/// The right rate lies between the bounds that whole seconds allow.
fn holds(row: &toml::Table, (steps, seconds): (u64, f64)) {
    let progress = row["progress"].as_table().unwrap();
    let (low, high) = (progress["it_per_s_low"].as_float().unwrap(), progress["it_per_s_high"].as_float().unwrap());
    let right = steps as f64 / seconds;
    // The bar's own clock starts and ends within the one of the script, a little apart.
    assert!(low * 0.95 <= right && right <= high * 1.05, "{right} {progress}");
    assert_eq!(progress["steps"].as_float().unwrap(), steps as f64);
    let rate = row["it_per_s"].as_float().unwrap();
    assert!(low <= rate && rate <= high);
}

#[test]
fn a_log_without_a_job_gets_the_next_number() {
    let project = TestProject::new();
    std::fs::write(project.file("train.log"), "Epoch 0: 100%|##########| 100/100 [00:10<00:00, 10.00it/s]\n").unwrap();
    let path = project.file("train.log");
    let line = ["import", path.to_str().unwrap(), "--study", "006-kuzmin-tmi", "--config", "mine", "--batch-size", "8"];
    let (first, _) = project.expect(&[&line[..], &["--ranks", "1"]].concat(), 0);
    let number =
        |path: &str| path.trim().rsplit_once("log_").unwrap().1.trim_end_matches(".toml").parse::<u64>().unwrap();
    // Beyond the published jobs.
    assert!(number(&first) > 525, "{first}");
    let (second, _) = project.expect(&[&line[..], &["--ranks", "2"]].concat(), 0);
    assert_eq!(number(&second), number(&first) + 1);
}

#[test]
fn a_file_that_is_missing_is_said_to_be_missing() {
    let project = TestProject::new();
    for file in ["nowhere.log", "nowhere.toml"] {
        let (stdout, stderr) = project.expect(&["import", file], 3);
        assert!(stdout.is_empty() && stderr.contains(file) && !stderr.contains("--study"), "{stderr}");
    }
}

#[test]
fn real_bars_are_read_in_both_ways() {
    let project = TestProject::new();
    let (fast, slow, plain) = (bars(&project, "fast"), bars(&project, "slow"), bars(&project, "plain"));
    let (stdout, stderr) = import(&project, "fast.log", &["--variant", "fast", "--method", "Fast"], 0);
    assert_eq!(stdout, "ROOT/results/imported/log_700.toml\n");
    assert!(stderr.contains("took job 700 086a Fast (mean of the last 20 printed): "), "{stderr}");
    import(&project, "slow.log", &["--variant", "slow", "--method", "Slow"], 0);
    let (_, stderr) = import(&project, "plain.log", &["--variant", "plain", "--method", "Plain"], 0);
    let training = |variant: &str| row(&project, variant, "training");
    holds(&training("fast"), fast);
    holds(&training("slow"), slow);
    holds(&training("plain"), plain);
    // The published mean holds more values of the validation bar than of the training's.
    let of = training("fast")["progress"]["last_20_of"].clone();
    assert!(of["validation"].as_integer() > of["training"].as_integer(), "{of}");
    let published = row(&project, "fast", "last_20")["it_per_s"].as_float().unwrap();
    assert!(published > 1.5 * training("fast")["it_per_s"].as_float().unwrap(), "{published}");
    // Lightning writes rates below 1 as it/s, tqdm itself as s/it, which the published pattern does not see.
    assert_eq!(training("slow")["progress"]["missed_s_per_it"].as_integer(), Some(0));
    assert!(training("plain")["progress"]["missed_s_per_it"].as_integer() >= Some(3));
    assert!(stderr.contains("as s/it, which is how tqdm writes rates below 1"), "{stderr}");
    // Side by side, and each compared with what was read in the same way.
    let (table, _) = project.expect(&["compare", "700"], 0);
    for method in
        ["Fast, mean of the last 20 printed", "Fast, last printed", "Fast, steps over time", "Slow, steps over time"]
    {
        let line = table.lines().find(|l| l.contains(&format!("{method} |")) || l.contains(&format!("{method}** |")));
        assert!(line.is_some_and(|l| l.contains("imported")), "{method}: {table}");
    }
    for words in ["mean of the last 20 printed", "last printed", "steps over time"] {
        let ratio = format!("of 700 086a Fast, {words} in samples/s");
        let of = |name: &str| format!("- 700 086a {name}, {words}: ");
        for name in ["Slow", "Plain"] {
            assert!(table.lines().any(|l| l.starts_with(&of(name)) && l.contains(&ratio)), "{name}, {words}: {table}");
        }
    }
}

fn write(project: &TestProject, log: &str, text: &[u8]) {
    std::fs::write(project.file(log), text).unwrap();
}

/// As 086a ran: 286 steps in 246 s, then validation, then the training bar three times more.
fn as_published() -> Vec<u8> {
    let mut text = b"\xff\xfe not UTF-8\nSanity Checking DataLoader 0: 100%|#| 2/2 [00:00<00:00, 9.00it/s]\r".to_vec();
    let clock = |s: u64| format!("{:02}:{:02}", s / 60, s % 60);
    for n in 0..=286u64 {
        let (time, rate) = (clock(n * 246 / 286), if n == 0 { "?".to_owned() } else { "1.16".to_owned() });
        text.extend(format!("\rEpoch 0: {}%|#  | {n}/286 [{time}<00:00, {rate}it/s, v_num=1]", n * 100 / 286).bytes());
    }
    for n in 1..=17 {
        text.extend(format!("\n\x1b[A\rValidation DataLoader 0:  5%|# | {n}/36 [00:12<00:13,  1.36it/s]").bytes());
    }
    for _ in 0..3 {
        text.extend(b"\rEpoch 0: 100%|###| 286/286 [04:32<00:00,  1.05it/s, v_num=1, val_loss=0.2]");
    }
    text.extend(b"\nEpoch 1:   0%|   | 1/286 [00:0");
    text
}

#[test]
fn the_published_number_stands_beside_the_right_one() {
    let project = TestProject::new();
    write(&project, "525.log", &as_published());
    let (_, stderr) = import(&project, "525.log", &["--mode", "data", "--workers", "4"], 0);
    let rate = |reading: &str| row(&project, "", reading)["it_per_s"].as_float().unwrap();
    assert!((rate("last_20") - (17.0 * 1.36 + 3.0 * 1.05) / 20.0).abs() < 1e-9);
    assert_eq!(rate("last"), 1.05);
    assert!((rate("training") - 286.0 / 246.5).abs() < 1e-9, "{}", rate("training"));
    assert!(stderr.contains("3 from training bars, 17 from validation bars"), "{stderr}");
    let notes = row(&project, "", "last_20")["notes"].to_string();
    let said = "mean of the last 20 progress values: 3 from training bars, 17 from validation bars";
    assert!(notes.contains(said), "{notes}");
    // The same again changes nothing; other content needs --force.
    assert!(import(&project, "525.log", &["--mode", "data", "--workers", "4"], 0).1.contains("unchanged:"));
    let before = rows(&project);
    let (_, stderr) = import(&project, "525.log", &["--mode", "data", "--workers", "8"], 2);
    assert!(stderr.contains("--variant NAME tells the logs of a job apart") && rows(&project) == before, "{stderr}");
    import(&project, "525.log", &["--mode", "data", "--workers", "8", "--force"], 0);
    assert_eq!(row(&project, "", "training")["workers"].as_integer(), Some(8));
    assert_eq!(rows(&project).len(), before.len());
}

#[test]
fn a_replaced_log_leaves_all_else_as_it_is() {
    let project = TestProject::new();
    write(&project, "a.log", &as_published());
    write(&project, "b.log", b"Epoch 0: 10%|#| 20/200 [00:10<01:30, 2.00it/s]\n");
    write(&project, "c.log", b"Epoch 0: 10%|#| 30/200 [00:10<01:30, 3.00it/s]\n");
    import(&project, "a.log", &["--variant", "a"], 0);
    import(&project, "b.log", &["--variant", "b"], 0);
    let path = project.file("results/imported/log_700.toml");
    let commented = std::fs::read_to_string(&path).unwrap().replacen("it_per_s =", "# by hand\nit_per_s =", 1);
    std::fs::write(&path, &commented).unwrap();
    assert!(import(&project, "a.log", &["--variant", "a"], 0).1.contains("unchanged:"));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), commented);
    import(&project, "c.log", &["--variant", "b", "--force"], 0);
    let after = std::fs::read_to_string(&path).unwrap();
    let (kept, _) = commented.split_once("\n[[result]]\njob = 700\nconfig = \"086a\"\nvariant = \"b\"").unwrap();
    assert!(
        after.starts_with(kept) && kept.contains("# by hand") && kept.contains("# Written by expctl import"),
        "{after}"
    );
    assert!(row(&project, "b", "training")["notes"].to_string().contains("c.log"));
    // What was not replaced is still the same, and so is what was.
    assert!(import(&project, "a.log", &["--variant", "a"], 0).1.contains("unchanged:"));
    assert!(import(&project, "c.log", &["--variant", "b"], 0).1.contains("unchanged:"));
    import(&project, "b.log", &["--variant", "b"], 2);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), after);
}

#[test]
fn numbers_beyond_all_bounds_are_refused() {
    let project = TestProject::new();
    write(&project, "b.log", b"Epoch 0: 10%|#| 20/200 [00:10<01:30, 2.00it/s]\n");
    let log = project.file("b.log");
    for (name, at) in [("--job", 5), ("--batch-size", 7), ("--ranks", 9)] {
        for value in ["0", "18446744073709551615"] {
            let mut of_log = OF_LOG;
            of_log[at] = value;
            let (_, stderr) = project.expect(&[&["import", log.to_str().unwrap()], &of_log[..]].concat(), 2);
            assert!(stderr.contains(value) && stderr.contains(name), "{stderr}");
        }
    }
    import(&project, "b.log", &["--samples", "18446744073709551615"], 2);
    assert!(!project.file("results/imported").join("log_700.toml").exists());
}

#[test]
fn a_log_that_says_nothing_is_refused() {
    let project = TestProject::new();
    write(&project, "empty.log", b"[2025-11-07] starting\nloss 0.5, 3.2 it/s\n");
    let (_, stderr) = import(&project, "empty.log", &[], 3);
    assert!(stderr.contains("empty.log has no progress bar") && stderr.contains("Epoch 0:"), "{stderr}");
    write(
        &project,
        "other.log",
        b"shard 1: 10%|#| 1/10 [00:05<00:45, 4.00s/it]\nshard 2: 20%|#| 2/10 [00:10<00:40, 4.00s/it]\n",
    );
    let (_, stderr) = import(&project, "other.log", &[], 3);
    assert!(stderr.contains("--bar NAME") && stderr.contains("\"shard \""), "{stderr}");
    let (_, stderr) = import(&project, "other.log", &["--bar", "shard"], 0);
    assert!(
        stderr.contains("the pattern `<number>it/s` finds nothing: it misses 2 printed rates (2 as s/it"),
        "{stderr}"
    );
    let log = project.file("other.log");
    let (_, stderr) = project.expect(&["import", log.to_str().unwrap(), "--job", "3"], 2);
    assert!(stderr.contains("needs --study, --config, --batch-size, --ranks"), "{stderr}");
    import(&project, "gone.log", &[], 3);
    let (_, stderr) = project.expect(&[&["import", log.to_str().unwrap(), "--study", "no"], &OF_LOG[2..]].concat(), 2);
    assert!(stderr.contains("there is no study no"), "{stderr}");
}

#[test]
fn a_long_log_is_streamed() {
    // One line of 8 MiB, of which no more is held than a bar can be long.
    let project = TestProject::new();
    let mut log = vec![b'['; 8 << 20];
    log.extend(b"\nEpoch 0: 10%|#| 20/200 [00:10<01:30, 2.00it/s]\n");
    write(&project, "long.log", &log);
    import(&project, "long.log", &[], 0);
    assert_eq!(row(&project, "", "training")["progress"]["steps"].as_float(), Some(20.0));
}

#[test]
fn a_measured_job_shows_what_the_published_mean_would_have_been() {
    use common::ledger::{completed, steps};
    let project = TestProject::new();
    let trial = project.trial("lazy", "Lazy", 1, |_| {});
    let named = vec![Estimator::Last20];
    let dir = project.submitted_as(12, "086_ddp", vec![trial.clone()], |record| record.estimators = named);
    completed(&dir, &trial, &[steps(100, 0), steps(100, 0)]);
    project.expect(&["report", "12"], 0);
    let text = std::fs::read_to_string(project.file("results/086_ddp_12.md")).unwrap();
    // Two warm-up steps of 1 s, then 20 of 0.1 s: the mean over k of (2 + k)/(2 + 0.1 k) for k = 1..20.
    let expected = (1..=20).map(|k| (2.0 + f64::from(k)) / (2.0 + 0.1 * f64::from(k))).sum::<f64>() / 20.0;
    assert!(text.contains(&format!("\n| lazy | {expected:.3} | ")), "{expected}: {text}");
    let said = "\n`last_20` (estimated from the same steps; no ratio and no verdict rests on it): ";
    assert!(text.contains(said) && text.contains("mean of the last 20 rates of a progress bar"), "{text}");
    assert!(!text.contains("No copy to a device was made here"), "{text}");
}
