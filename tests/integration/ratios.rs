//! What `expctl compare` says of ratios: classes, what else differs, pairs, pooled jobs, gates, differences of variants.

use std::collections::BTreeMap;

use expctl_ledger::{Stage, StepRecord};
use expctl_settings::{ArrayFormat, Mode, Settings, Trial};
use serde_json::Value;

use crate::common::ledger::{completed, steps, two_variants};
use crate::common::{TestProject, close};

fn words(confounds: &Value) -> Vec<String> {
    let of = |c: &Value| format!("{}: {} {}", c["setting"], c["base"], c["row"]).replace('"', "");
    confounds.as_array().unwrap().iter().map(of).collect()
}

/// Runs of two variants with these wall times, ms, a repeat each; `change` the settings of all.
fn job(project: &TestProject, id: u64, lazy: &[u64], ids: &[u64], change: impl Fn(&mut Settings)) {
    let of = |variant: &str, walls: &[u64]| -> Vec<(Trial, u64)> {
        let trial = |(i, wall): (usize, &u64)| (project.trial(variant, variant, i as u32 + 1, &change), *wall);
        walls.iter().enumerate().map(trial).collect()
    };
    let all: Vec<(Trial, u64)> = of("lazy", lazy).into_iter().chain(of("ids", ids)).collect();
    let dir = project.submitted(id, "086_ddp", all.iter().map(|(trial, _)| trial.clone()).collect());
    for (trial, wall) in &all {
        let ranks = vec![steps(*wall, 0); trial.settings.launch.ranks as usize];
        completed(&dir, trial, &ranks);
    }
}

#[test]
fn what_was_published_is_said_with_what_else_differs() {
    let project = TestProject::new();
    let all = project.compare(&["392", "428/430", "447", "456"]);
    let lines = &all["groups"][0]["lines"];
    for (line, percent, storage) in [(1, -0.18 / 0.42, 8.8 / 3.8), (2, -0.20 / 0.42, 225.0)] {
        close(&lines[line]["percent"], 100.0 * percent);
        close(&lines[line]["ratio_storage"], storage);
        assert_eq!(lines[line]["verdict"], "too_few_runs");
    }
    let differs = words(&lines[1]["confounds"]);
    for one in
        ["workers: 4 6", "pin_memory: true false", "CPUs of the job: 32 16", "allocator: default expandable_segments"]
    {
        assert!(differs.iter().any(|d| d == one), "{one}: {differs:?}");
    }
    // With 456 the pinning is the same.
    assert!(words(&lines[2]["confounds"]).iter().all(|d| !d.starts_with("pin_memory")));
    let apart = &all["groups"][1];
    assert_eq!((&apart["profiler"], &apart["lines"][0]["job"]), (&true.into(), &"428/430".into()));
    assert!(apart["lines"][0]["ratio_samples_per_s"].is_null());
    close(&apart["lines"][0]["with_profiler"][0], 0.26 / 0.42);
    close(&apart["lines"][0]["with_profiler"][1], 0.38 / 0.42);
    let (text, _) = project.expect(&["compare", "392", "428/430", "447", "456"], 0);
    for said in [
        "0.57× (−43 %) of 392 065 Incidence Map (Baseline) in samples/s (n = 1 and 1): no verdict; other settings differ: workers 4 → 6, pin_memory true → false,",
        "0.52× (−48 %) of 392",
        "0.22 (0.52×)",
        "8.8 GB (2.3×)",
        "855 GB (225×)",
        "n = 1 in every row (train): no verdict",
        "profiler on in 428/430 073 Incidence Map + Profiling: 0.62× (−38 %) to 0.90× (−9.5 %) of 392",
    ] {
        assert!(text.contains(said), "{said}\n{text}");
    }
}

#[test]
fn the_published_isolation_is_taken_apart() {
    let project = TestProject::new();
    let all = project.compare(&["525"]);
    let (lazy, dango) = (&all["decompositions"][0], &all["decompositions"][1]);
    let forward = |base: f64, more: f64| 1e3 / more - 1e3 / base;
    let (of_lazy, of_dango) = (forward(1.310, 0.879), forward(73.816, 16.980));
    close(&lazy["parts"][1]["ms_per_step"], of_lazy);
    close(&dango["parts"][1]["ms_per_step"], of_dango);
    close(&dango["parts"][0]["ratio_per_step"], 73.816 / 1.310);
    close(&dango["parts"][0]["ratio_per_sample"], 73.816 * 64.0 / (1.310 * 28.0));
    close(&dango["parts"][1]["ratio_per_step"], of_lazy / of_dango);
    close(&dango["parts"][1]["ratio_per_sample"], of_lazy / of_dango * 64.0 / 28.0);
    assert_eq!((&lazy["baseline"], &lazy["overlap"]), (&true.into(), &Value::Null));
    let (text, _) = project.expect(&["compare", "525"], 0);
    for said in [
        "73.816 (56.35× ‡) | 4724.2 (128.8×)",
        "16.98 (19.32× ‡)",
        "| 525 | DANGO | forward | 45.35 | 0.709 | 8.25× ‡ | 18.87× | derived | 1 and 1 |",
        "56.35× per iteration, 128.8× per sample (batch 64 × 1 against 28 × 1)",
        "how much of loading is hidden behind computing is not known",
        "| 525 | DANGO | data pipeline (zero loss) | 13.55 | 0.212 |",
        "zero loss: these steps ran no model, but went back from a loss of zero and stepped the optimizer",
    ] {
        assert!(text.contains(said), "{said}\n{text}");
    }
    assert!(!text.contains("123"), "{text}");
}

#[test]
fn classes_have_tables_of_their_own_and_ratios_between_them_are_marked() {
    let project = TestProject::new();
    let all = project.compare(&["524", "525"]);
    let groups = all["groups"].as_array().unwrap();
    let class = |g: &Value| format!("{} {}", g["mode"], g["class"]).replace('"', "");
    assert_eq!(class(&groups[0]), "zero_loss ranks 4, samples 332313, device 4 x RTX 6000 Ada");
    assert_eq!(class(&groups[1]), "zero_loss ranks 1, samples 10000, device 1 x RTX 6000 Ada");
    // Within each class its own ratio; what each is measured by, against the first class.
    close(&groups[0]["lines"][1]["ratio_it_per_s"]["value"], 19.904 / 1.592);
    close(&groups[1]["lines"][1]["ratio_it_per_s"]["value"], 73.816 / 1.310);
    assert!(groups[1]["lines"][1]["crosses"].as_array().unwrap().is_empty());
    let base = &groups[1]["lines"][0];
    assert_eq!((&base["baseline"], &base["against"]), (&true.into(), &"524 085_dataloader_profile Lazy Hetero".into()));
    assert_eq!(
        words(&base["crosses"]),
        ["world size: 4 1", "number of samples: 332313 10000", "device: 4 x RTX 6000 Ada 1 x RTX 6000 Ada"]
    );
    let (text, _) = project.expect(&["compare", "524", "525"], 0);
    assert!(text.contains("1.31 (0.82× † ‡)") && text.contains("36.68 (0.21× †)"), "{text}");
    assert!(text.contains("† not a like-for-like comparison: world size 4 → 1,"), "{text}");
}

#[test]
fn own_files_are_not_called_by_the_data_set_that_they_replace() {
    let project = TestProject::new();
    job(&project, 12, &[400], &[100], |_| {});
    job(&project, 13, &[400], &[100], |s| {
        s.data.set = "arrayloader".into();
        s.array.format = ArrayFormat::H5ad;
        s.array.files = vec!["/data/mine.h5ad".into()];
    });
    let (_, stderr) = project.expect(&["compare", "12", "13"], 7);
    assert!(stderr.contains("steps of kind train on own files: 13"), "{stderr}");
    assert!(!stderr.contains("arrayloader"), "{stderr}");
}

#[test]
fn samples_of_other_data_sets_are_refused() {
    let project = TestProject::new();
    job(&project, 12, &[400], &[100], |_| {});
    job(&project, 13, &[400], &[100], |s| s.data.set = "007-other".into());
    let (stdout, stderr) = project.expect(&["compare", "12", "13"], 7);
    assert!(stdout.is_empty());
    assert!(stderr.contains("steps of kind train on 006-kuzmin-tmi: 12"), "{stderr}");
    assert!(stderr.contains("steps of kind train on 007-other: 13"), "{stderr}");
    assert!(stderr.contains("comparable are jobs with steps of one kind on one data set"), "{stderr}");
    // With a third job of the first set there is something to say; the other stands by itself.
    job(&project, 14, &[200], &[50], |_| {});
    let all = project.compare(&["12", "13", "14"]);
    let sets: Vec<&str> = all["groups"].as_array().unwrap().iter().map(|g| g["data_set"].as_str().unwrap()).collect();
    assert_eq!(sets, ["006-kuzmin-tmi", "007-other"]);
    let other = &all["groups"][1]["lines"][0];
    assert_eq!((&other["job"], &other["against"]), (&"13".into(), &Value::Null));
}

#[test]
fn settings_that_no_rate_depends_on_are_no_confounds() {
    let project = TestProject::new();
    job(&project, 12, &[400], &[100], |_| {});
    job(&project, 13, &[300], &[100], |s| {
        s.loader.seed = 7;
        s.model.seed = 7;
        s.slurm.partition = "other".into();
        s.slurm.account = "mine".into();
        s.launch.hang_timeout_s = 5;
        s.loader.workers = 2;
    });
    let all = project.compare(&["12", "13"]);
    let line = &all["groups"][0]["lines"][2];
    assert_eq!((&line["job"], words(&line["confounds"])), (&"13".into(), vec!["workers: 4 2".to_owned()]));
}

/// Repeats that drift together: apart their spread hides the difference, in pairs it does not.
const DRIFTING: ([u64; 4], [u64; 4]) = ([400, 440, 480, 520], [390, 430, 468, 506]);

#[test]
fn interleaved_trials_are_paired_by_repeat() {
    let project = TestProject::new();
    let (lazy, ids) = DRIFTING;
    job(&project, 12, &lazy, &ids, |s| s.measure.interleave = true);
    job(&project, 13, &lazy, &ids, |_| {});
    let line = &project.compare(&["12"])["groups"][0]["lines"][1];
    assert_eq!(
        (&line["paired"], &line["verdict"], &line["runs"]),
        (&true.into(), &"faster".into(), &serde_json::json!([4, 4]))
    );
    // Student's t of the four differences of logs.
    let logs: Vec<f64> = lazy.iter().zip(ids).map(|(l, i)| (*l as f64 / i as f64).ln()).collect();
    let mean = logs.iter().sum::<f64>() / 4.0;
    let deviation = (logs.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / 3.0).sqrt();
    close(&line["ratio_samples_per_s"]["value"], mean.exp());
    // The 97.5 % quantile of t with three degrees of freedom.
    let half = 3.182_446_305_284_263 * deviation / 2.0;
    let low = line["ratio_samples_per_s"]["interval"]["low"].as_f64().unwrap();
    assert!((low - (mean - half).exp()).abs() < 1e-7, "{low}");
    let (text, _) = project.expect(&["compare", "12"], 0);
    assert!(text.contains("(4 pairs, by repeat); p < 0.0001 (paired t)"), "{text}");
    // Pairs that show nothing say what they would have shown.
    job(&project, 14, &lazy, &[400, 436, 483, 517], |s| s.measure.interleave = true);
    let line = &project.compare(&["14"])["groups"][0]["lines"][1];
    assert_eq!((&line["paired"], &line["verdict"]), (&true.into(), &"no_difference_shown".into()));
    let detectable = line["detectable"].as_f64().unwrap();
    assert!(detectable > 1.005 && detectable < 1.05, "{detectable}");
    let (text, _) = project.expect(&["compare", "14"], 0);
    assert!(text.contains(&format!("only a ratio of ≥ {detectable:.2}× ")), "{text}");
    // The same figures, but not of one allocation.
    let line = &project.compare(&["13"])["groups"][0]["lines"][1];
    assert_eq!((&line["paired"], &line["verdict"]), (&false.into(), &"no_difference_shown".into()));
    let (text, _) = project.expect(&["compare", "13"], 0);
    let detectable = line["detectable"].as_f64().unwrap();
    assert!(detectable > 1.05, "{detectable}");
    let shown = format!(
        "with so many runs only a ratio of ≥ {detectable:.2}× (or ≤ {:.2}×) would have been detected (80 % power)",
        1.0 / detectable
    );
    assert!(text.contains(&shown), "{shown}\n{text}");
    assert!(
        text.contains("no difference shown to 13 086_ddp lazy") && text.contains("permutation test p = "),
        "{text}"
    );
}

#[test]
fn a_table_of_many_ratios_is_judged_together() {
    let project = TestProject::new();
    let walls: [(&str, [u64; 3]); 4] =
        [("lazy", [400, 404, 396]), ("a", [388, 391, 393]), ("b", [401, 399, 405]), ("c", [398, 403, 400])];
    let mut trials = Vec::new();
    for (variant, of) in walls {
        trials.extend(
            of.iter().enumerate().map(|(i, wall)| (project.trial(variant, variant, i as u32 + 1, |_| {}), *wall)),
        );
    }
    let dir = project.submitted(12, "086_ddp", trials.iter().map(|(trial, _)| trial.clone()).collect());
    trials.iter().for_each(|(trial, wall)| completed(&dir, trial, &[steps(*wall, 0), steps(*wall, 0)]));
    let all = project.compare(&["12"]);
    let line = &all["groups"][0]["lines"][1];
    let (p, holm) = (line["ratio_samples_per_s"]["p"].as_f64().unwrap(), line["p_holm"].as_f64().unwrap());
    // Alone it would have passed; as the smallest of three it counts threefold.
    assert!(p < 0.05 && (holm - 3.0 * p).abs() < 1e-12 && holm > 0.05, "{p} {holm}");
    assert_eq!((&line["lone"], &line["verdict"]), (&true.into(), &"no_difference_shown".into()));
    let (text, _) = project.expect(&["compare", "12"], 0);
    assert!(text.contains("among the 3 ratios of the table (Holm)"), "{text}");
    assert!(text.contains("alone it would have had a verdict, among so many ratios it has none"), "{text}");
}

#[test]
fn jobs_are_pooled_into_one_row() {
    let project = TestProject::new();
    job(&project, 12, &[400, 410], &[100, 102], |_| {});
    job(&project, 13, &[390], &[98], |_| {});
    job(&project, 14, &[390], &[98], |s| s.loader.batch_size = 32);
    let all = project.compare(&["12/13"]);
    let lines = &all["groups"][0]["lines"];
    let rates =
        |line: &Value| line["it_per_s"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect::<Vec<_>>();
    assert_eq!((&lines[0]["job"], &lines[0]["n"], &lines[1]["n"]), (&"12/13".into(), &3.into(), &3.into()));
    for (rate, wall) in rates(&lines[0]).into_iter().zip([400.0, 410.0, 390.0]) {
        assert!((rate - 1000.0 / wall).abs() < 1e-12, "{rate}");
    }
    let parts = lines[0]["parts"].as_array().unwrap();
    assert_eq!(
        parts.iter().map(|p| (p["job"].as_str().unwrap(), rates(p).len())).collect::<Vec<_>>(),
        [("12", 2), ("13", 1)]
    );
    assert_eq!(lines[1]["verdict"], "faster");
    let (text, _) = project.expect(&["compare", "12/13"], 0);
    assert!(text.contains("| ├─ 12 |") && text.contains("| └─ 13 |"), "{text}");
    let said =
        "12/13 086_ddp lazy: median it/s 2.47 in job 12 (n = 2), 2.564 in job 13 (n = 1), 2.439–2.564 over all 3 runs";
    assert!(text.contains(said), "{text}");
    let (csv, _) = project.expect(&["compare", "12/13", "--format", "csv"], 0);
    assert!(
        csv.lines().nth(1).unwrap().starts_with("12/13,086_ddp,lazy,lazy,train,false,true,measured,3,2.5,2.43902"),
        "{csv}"
    );
    let (_, stderr) = project.expect(&["compare", "12/14"], 7);
    assert!(stderr.contains("of `lazy`, loader.batch_size is 28 in job 12 and 32 in job 14"), "{stderr}");
    let (_, stderr) = project.expect(&["compare", "12/999"], 7);
    assert!(stderr.contains("of 12/999, job 12 was measured here and others were not"), "{stderr}");
}

#[test]
fn of_pooled_jobs_signs_are_counted_by_run_and_named_by_job() {
    let project = TestProject::new();
    for id in [12, 13] {
        let trial = project.trial("lazy", "lazy", 1, |_| {});
        let dir = project.submitted(id, "086_ddp", vec![trial.clone()]);
        let few = steps(400, 0);
        let mut slow: Vec<StepRecord> = few[..2].iter().chain(few[2..].iter().cycle().take(100)).cloned().collect();
        for (i, step) in slow.iter_mut().enumerate() {
            step.step = i as u64;
            step.wall_ns += (i as u64 * 7919 % 101) * 10_000;
            // Of job 13 the more.
            step.wall_ns *= if i < 12 { id - 10 } else { 1 };
        }
        completed(&dir, &trial, &[slow.clone(), slow]);
    }
    let (text, _) = project.expect(&["compare", "12/13"], 0);
    let said = "the warm-up is too short in 2 of 2 runs: the first 10 measured steps of job 13, repeat 1, rank";
    assert!(text.contains(said), "{text}");
}

#[test]
fn runs_of_milliseconds_have_no_verdict() {
    let project = TestProject::new();
    let short = |settings: &mut Settings| settings.measure.steps = 20;
    // 20 steps of 20 ms and of 5 ms: three runs that agree, of 0.4 s and 0.1 s.
    job(&project, 12, &[20, 20, 21], &[5, 5, 5], short);
    let all = project.compare(&["12"]);
    let line = &all["groups"][0]["lines"][1];
    assert_eq!((&line["verdict"], &line["p_holm"]), (&"too_short".into(), &Value::Null), "{line}");
    assert!((line["measured_s"][0].as_f64().unwrap() - 0.1).abs() < 1e-9, "{line}");
    // The ratio stands as it is.
    assert!(line["ratio_samples_per_s"]["interval"]["low"].as_f64().unwrap() > 3.5, "{line}");
    let (text, _) = project.expect(&["compare", "12"], 0);
    assert!(text.contains("(n = 3 and 3): no verdict, measured for 100 ms per run, which is less than 1 s"), "{text}");
    let warning = "measured for 100 ms per run, and a verdict needs 1 s or more: set measure.steps to 240 (now 20)";
    assert!(text.contains("(worst: 12 086_ddp ids)") && text.contains(warning), "{text}");
    assert!(!text.contains("faster than"), "{text}");
    let (stdout, _) = project.expect(&["report", "12"], 0);
    let note = std::fs::read_to_string(stdout.trim().replace("ROOT", project.path().to_str().unwrap())).unwrap();
    assert!(note.contains(warning) && note.matches(warning).count() == 1 && !note.contains(": faster than"), "{note}");
    let answer =
        "**No verdict against lazy: measured too briefly (less than 1 s per run); largest ratio: ids, 4.07× lazy (";
    assert!(note.contains(answer), "{note}");
    assert!(note.contains("| **400 ms–420 ms** |") && note.contains("| 100 ms |"), "{note}");
    // A gate decides on the figure, and says so.
    let (_, said) = project.expect(&["compare", "12", "--gate", "samples_per_s >= 2 * baseline"], 0);
    assert!(said.contains("measured for 100 ms per run, which is less than 1 s, so there is no verdict"), "{said}");
    // The same rates over more than a second are a finding.
    job(&project, 13, &[60, 60, 63], &[51, 52, 51], short);
    assert_eq!(project.compare(&["13"])["groups"][0]["lines"][1]["verdict"], "faster");
}

#[test]
fn a_gate_decides_the_exit_code() {
    let project = TestProject::new();
    two_variants(&project, 12);
    let gate = |conditions: &[&str], code: i32| {
        let mut args = vec!["compare", "12"];
        conditions.iter().for_each(|condition| args.extend(["--gate", condition]));
        let (stdout, stderr) = project.expect(&args, code);
        assert!(stdout.contains("| 12 | 086_ddp | Ids only |") || code == 2, "the table is printed in any case");
        stderr
    };
    let said = gate(&["samples_per_s >= 0.95 * baseline", "storage_bytes <= 5e9"], 1);
    assert!(said.contains("holds for 12 086_ddp Ids only: 4.00× [3.80×–4.21×] of 12 086_ddp Lazy"), "{said}");
    assert!(said.contains("`storage_bytes <= 5e9` fails for 12 086_ddp Lazy: there is no such figure"), "{said}");
    assert!(said.contains("2 of 3 checks by --gate failed"), "{said}");
    let said = gate(&["samples_per_s >= 4.1 * baseline"], 1);
    assert!(
        said.contains("fails for 12 086_ddp Ids only: 4.00×") && said.contains("the interval holds the bound"),
        "{said}"
    );
    let said = gate(&["step_ms < 500", "it_per_s > 2"], 0);
    assert_eq!(said.matches(" holds for ").count(), 4, "{said}");
    assert!(
        said.contains("`step_ms < 500` holds for 12 086_ddp Lazy: 400 ms (median; 95 % of the mean over runs ["),
        "{said}"
    );
    assert!(gate(&["samples_per_s => 1"], 2).contains("  samples_per_s => 1\n                ^"));
    // A single row has nothing to stand against.
    let alone = project.trial("lazy", "Lazy", 1, |_| {});
    let dir = project.submitted(13, "086_ddp", vec![alone.clone()]);
    completed(&dir, &alone, &[steps(400, 0), steps(400, 0)]);
    let (_, said) = project.expect(&["compare", "13", "--gate", "it_per_s >= baseline"], 1);
    assert!(said.contains("fails: no row besides the baseline"), "{said}");
    // Published rows: one run each.
    let (_, said) = project.expect(&["compare", "392", "447", "--gate", "samples_per_s >= 0.5*baseline"], 0);
    assert!(said.contains("holds for 447 074 Compressed Indices (LMDB): 0.57× of 392 065 Incidence Map (Baseline); without an interval"), "{said}");
}

#[test]
fn between_jobs_a_gate_holds_a_variant_against_itself() {
    let project = TestProject::new();
    let three = |wall: u64| [wall, wall + 1, wall - 1];
    job(&project, 12, &three(400), &three(100), |_| {});
    // Ids is twice as slow as it was, and still twice as fast as lazy.
    job(&project, 13, &three(400), &three(200), |_| {});
    // The slow one is the baseline's job's own: nothing changed.
    job(&project, 14, &three(100), &three(400), |_| {});
    job(&project, 15, &three(100), &three(400), |_| {});
    let gate = |jobs: &[&str], code: i32| {
        let gate = ["--gate", "samples_per_s >= 0.95 * baseline"];
        project.expect(&[&["compare"], jobs, &gate[..]].concat(), code).1
    };
    let said = gate(&["12", "13"], 1);
    assert!(said.contains("holds for 13 086_ddp lazy: 1.00× [") && said.contains("] of 12 086_ddp lazy"), "{said}");
    assert!(said.contains("fails for 13 086_ddp ids: 0.50× [") && said.contains("] of 12 086_ddp ids"), "{said}");
    assert!(said.contains("1 of 2 checks by --gate failed"), "{said}");
    let said = gate(&["14", "15"], 0);
    assert_eq!((said.matches(" holds for 15 ").count(), said.matches(" for 14 ").count()), (2, 0), "{said}");
    // A variant that the baseline's job does not have stands against that job's baseline.
    let other = project.trial("new", "new", 1, |_| {});
    let dir = project.submitted(16, "086_ddp", vec![other.clone()]);
    completed(&dir, &other, &[steps(200, 0), steps(200, 0)]);
    let said = gate(&["12", "16"], 0);
    assert!(said.contains("holds for 16 086_ddp new: 2.00× of 12 086_ddp lazy; without an interval"), "{said}");
}

#[test]
fn a_gate_does_not_take_the_steps_of_one_run_for_runs() {
    let project = TestProject::new();
    let trial = project.trial("lazy", "Lazy", 1, |s| s.launch.ranks = 1);
    let dir = project.submitted(12, "086_ddp", vec![trial.clone()]);
    // Enough steps for an interval of the run itself.
    let few = steps(400, 0);
    let mut many: Vec<StepRecord> = (0..5).flat_map(|_| few[2..].to_vec()).collect();
    many.iter_mut().enumerate().for_each(|(i, step)| {
        step.step = i as u64;
        step.wall_ns += (i as u64 * 7919 % 101) * 10_000;
    });
    completed(&dir, &trial, &[many]);
    let (_, said) = project.expect(&["compare", "12", "--gate", "step_ms <= 401", "--gate", "it_per_s > 2"], 0);
    assert_eq!(said.matches("; one run, whose own steps give [").count(), 2, "{said}");
    assert!(said.contains("what another run would give is not known") && !said.contains(" ms ["), "{said}");
}

/// Steps that wait for loading and compute, ms.
fn waiting(collate: u64, forward: u64) -> Vec<StepRecord> {
    let mut all = steps(1, 0);
    for step in all.iter_mut().filter(|step| step.measured) {
        step.exposed[Stage::Collate] = collate * 1_000_000;
        step.exposed[Stage::Forward] = forward * 1_000_000;
        step.wall_ns = (collate + forward) * 1_000_000;
    }
    all
}

#[test]
fn what_is_hidden_is_read_off_the_exposed_times_of_the_full_step() {
    let project = TestProject::new();
    let in_mode = |variant: &str, mode: Mode| {
        let mut trial = project.trial(variant, variant, 1, |s| {
            s.train.mode = mode;
            s.launch.ranks = 1;
        });
        trial.id = format!("{variant}-{}-r1-0a1b2c", mode.name());
        trial.point = BTreeMap::from([("train.mode".to_owned(), mode.name().into())]);
        trial
    };
    let cases = [
        (in_mode("lazy", Mode::Data), waiting(700, 0)),
        (in_mode("lazy", Mode::Forward), waiting(450, 300)),
        (in_mode("ids", Mode::Data), waiting(10, 0)),
        (in_mode("ids", Mode::Forward), waiting(10, 300)),
    ];
    let dir = project.submitted(12, "006_isolation", cases.iter().map(|(trial, _)| trial.clone()).collect());
    cases.iter().for_each(|(trial, steps)| completed(&dir, trial, std::slice::from_ref(steps)));
    let all = project.compare(&["12"]);
    let lazy = &all["decompositions"][0];
    assert_eq!((&lazy["variant"], &lazy["baseline"]), (&"lazy".into(), &true.into()));
    close(&lazy["parts"][1]["ms_per_step"], 50.0);
    assert_eq!(lazy["overlap"], serde_json::json!({ "mode": "forward", "alone": 700.0, "waited": 450.0 }));
    // By difference ids would cost six times as much: what overlaps is why this is no cost.
    close(&all["decompositions"][1]["parts"][1]["ms_per_step"], 300.0);
    let (text, _) = project.expect(&["compare", "12"], 0);
    let said = "12 lazy: data alone costs 700 ms a step; a step of forward waits 450 ms for it, so 250 ms are hidden behind the rest of the step";
    assert!(text.contains(said), "{text}");
}

#[test]
fn parts_of_another_class_are_marked_and_modes_that_took_turns_are_paired() {
    let project = TestProject::new();
    let in_mode = |variant: &str, mode: Mode, repeat: u32| {
        let mut trial = project.trial(variant, variant, repeat, |s| {
            s.train.mode = mode;
            s.launch.ranks = 1;
            s.measure.interleave = true;
            s.select.subset = if variant == "lazy" { 0 } else { 100 };
        });
        trial.id = format!("{variant}-{}-r{repeat}-0a1b2c", mode.name());
        trial.point = BTreeMap::from([("train.mode".to_owned(), mode.name().into())]);
        trial
    };
    let mut cases = Vec::new();
    for repeat in 1..=3 {
        // Each repeat is slower than the one before, whatever the mode.
        let drift = 100 * u64::from(repeat);
        for variant in ["lazy", "ids"] {
            // Without any spread there would be no test.
            let drift = drift + u64::from(variant == "ids" && repeat == 3);
            cases.push((in_mode(variant, Mode::Data, repeat), waiting(drift, 0)));
            cases.push((in_mode(variant, Mode::Forward, repeat), waiting(drift, 49 + u64::from(repeat % 2))));
        }
    }
    let dir = project.submitted(12, "006_isolation", cases.iter().map(|(trial, _)| trial.clone()).collect());
    cases.iter().for_each(|(trial, steps)| completed(&dir, trial, std::slice::from_ref(steps)));
    let all = project.compare(&["12"]);
    let part = &all["decompositions"][1]["parts"][1];
    // 50, 49 and 50 ms, by repeat; unpaired, the drift would be all there is to see.
    let end = |end: &str| part["interval"][end].as_f64().unwrap();
    assert!(end("low") > 48.0 && end("high") < 52.0, "{part}");
    assert_eq!(words(&part["crosses"]), ["size of the subset: 0 100"]);
    let (text, _) = project.expect(&["compare", "12"], 0);
    let parts: Vec<&str> = text.lines().filter(|line| line.starts_with("| 12 | ids | ")).collect();
    assert_eq!(parts.iter().filter(|line| line.contains("| 1.00× † | 1.00× † |")).count(), 2, "{text}");
    let (stdout, _) = project.expect(&["report", "12"], 0);
    let note = std::fs::read_to_string(stdout.trim().replace("ROOT", project.path().to_str().unwrap())).unwrap();
    // One note, one verdict: the table of the modes has those of the results.
    assert!(note.contains("- data, ids: no difference shown to lazy, 1.00×"), "{note}");
    assert!(note.contains("(3 pairs, by repeat)") && note.contains("| data | ids | 5 |"), "{note}");
}
