//! `expctl compare` and `expctl import`, as a user runs them.

mod published;

use std::collections::BTreeMap;

use expctl_ledger::JobRecord;
use expctl_settings::{Collation, Mode, ModelKind, Networks, Processor, SampleSet, Select, Split, StoreKind, Trial};

use crate::common::ledger::{completed, in_epochs, running, steps, sweep, two_variants};
use crate::common::{TestProject, close};

/// Ratio, lower and upper end.
const SCIPY: [f64; 3] = [3.9996998574311537, 3.795808644783065, 4.21454305172148];

#[test]
fn the_published_table() {
    let project = TestProject::new();
    insta::assert_snapshot!(project.expect(&["compare", "392", "447", "456"], 0).0);
}

#[test]
fn the_published_table_as_csv() {
    let project = TestProject::new();
    let (stdout, stderr) = project.expect(&["compare", "392", "447", "456", "--format", "csv"], 0);
    assert!(stderr.contains("no verdict"), "{stderr}");
    insta::assert_snapshot!(stdout);
}

#[test]
fn the_published_table_as_json() {
    let project = TestProject::new();
    let all = project.compare(&["392", "447", "456"]);
    let lines = all["groups"][0]["lines"].as_array().unwrap();
    assert_eq!(lines.len(), 3);
    assert!(lines.iter().all(|l| l["class"] == "imported"));
    close(&lines[1]["ratio_it_per_s"]["value"], 0.24 / 0.42);
    close(&lines[2]["ratio_storage"], 225.0);
    close(&lines[0]["samples_per_s"][0], 47.04);
    close(&lines[1]["percent"], -0.18 / 0.42 * 100.0);
    assert_eq!(
        (&lines[1]["verdict"], &lines[1]["ratio_it_per_s"]["interval"]),
        (&"too_few_runs".into(), &serde_json::Value::Null)
    );
    let workers = &all["groups"][0]["differences"][0];
    assert_eq!(workers, &serde_json::json!({ "setting": "workers", "values": ["4", "6", "12"] }));
}

#[test]
fn rows_with_a_profiler_are_set_apart() {
    let project = TestProject::new();
    insta::assert_snapshot!(project.expect(&["compare", "392", "428/430", "447"], 0).0);
}

#[test]
fn a_profiled_and_an_unprofiled_row_show_what_the_profiler_cost() {
    let project = TestProject::new();
    for job in ["428", "430"] {
        let (stdout, _) = project.expect(&["compare", "392", job], 0);
        let tables: Vec<&str> = stdout.lines().filter(|line| line.starts_with("Steps: ")).collect();
        assert_eq!(tables, ["Steps: train", "Steps: train, profiler on"], "{stdout}");
        for said in [
            "- set apart (train, profiler on): a profiler ran along, so these rows are not ranked against the others",
            "- profiler on in 428/430 073 Incidence Map + Profiling: 0.62× (−38 %) to 0.90× (−9.5 %) of 392 065",
        ] {
            assert!(stdout.contains(said), "{said}\n{stdout}");
        }
        assert!(!stdout.contains("expctl trace"), "published rows have no traces here: {stdout}");
    }
    // Alone it is not known, and steps of another mode do not tell.
    let (stdout, _) = project.expect(&["compare", "430"], 0);
    assert!(stdout.contains("what it costs is not known, no row of the same variant ran without one"), "{stdout}");
    let (_, stderr) = project.expect(&["compare", "525", "430"], 7);
    assert!(stderr.contains("steps of kind train with a profiler: 428/430"), "{stderr}");
}

#[test]
fn profiled_trials_are_in_no_ratio() {
    let project = TestProject::new();
    let profiled = |settings: &mut expctl_settings::Settings| settings.profile.active = 3;
    let trials: Vec<Trial> = (1..=3)
        .flat_map(|repeat| {
            [
                project.trial("lazy", "Lazy", repeat, |_| {}),
                project.trial("traced", "Lazy, traced", repeat, profiled),
                project.trial("ids", "Ids only", repeat, |settings| settings.pipeline.processor = Processor::Ids),
            ]
        })
        .collect();
    let dir = project.submitted(12, "086_ddp", trials.clone());
    for (trial, wall) in trials.iter().zip([400, 900, 100, 410, 910, 102, 390, 890, 98]) {
        completed(&dir, trial, &[steps(wall, wall / 5), steps(wall, wall / 50)]);
    }
    let lines = |all: &serde_json::Value| -> Vec<(String, bool)> {
        let groups = all["groups"].as_array().unwrap().iter().flat_map(|group| group["lines"].as_array().unwrap());
        groups
            .map(|line| (line["label"].as_str().unwrap().to_owned(), line["ratio_samples_per_s"].is_object()))
            .collect()
    };
    let expected = [("lazy", false), ("ids", true), ("traced", false)].map(|(label, ratio)| (label.to_owned(), ratio));
    assert_eq!(lines(&project.compare(&["12"])), expected);
    let (table, _) = project.expect(&["compare", "12"], 0);
    assert!(table.contains("set apart (train, profiler on): a profiler ran along"), "{table}");
    project.expect(&["report", "12"], 0);
    let note = std::fs::read_to_string(project.file("results/086_ddp_12.md")).unwrap();
    assert!(
        note.contains("traced: profiled, and what the profiler costs is in these times: they are in no ratio"),
        "{note}"
    );
    let row = note.lines().find(|line| line.starts_with("| traced |")).unwrap();
    let ids = note.lines().find(|line| line.starts_with("| ids |")).unwrap();
    assert!(!row.contains('×') && ids.contains('×'), "{row}\n{ids}");

    // What the profiler cost is of the variant without it: 400 of 900 ms.
    let all = project.compare(&["12"]);
    let line = &all["groups"][1]["lines"][0];
    close(&line["with_profiler"][0], 400.0 / 900.0);
    close(&line["profiler_ratio"]["value"], (400.0_f64 * 410.0 * 390.0 / (900.0 * 910.0 * 890.0)).cbrt());
    assert_eq!(line["profiler_runs"], serde_json::json!([3, 3]));
    assert!(
        table.contains("profiler on in 12 086_ddp Lazy, traced: 0.44× [")
            && table.contains("n = 3 and 3) of 12 086_ddp Lazy without one"),
        "{table}"
    );

    // A job with nothing else stands beside the others, in a table of its own and without a ratio.
    let only = project.trial("traced", "Lazy, traced", 1, profiled);
    let dir = project.submitted(13, "086_ddp", vec![only.clone()]);
    completed(&dir, &only, &[steps(900, 10), steps(900, 10)]);
    let dir = project.submitted(14, "086_ddp", vec![only.clone()]);
    completed(&dir, &only, &[steps(800, 10), steps(800, 10)]);
    let (table, _) = project.expect(&["compare", "13", "14"], 0);
    for said in [
        "- set apart: a profiler ran along, its cost is in these times, so these rows have no ratios",
        "- profiler on in 14 086_ddp Lazy, traced: what it costs is not known, no row of the same variant ran without one",
        "- `expctl trace 13 14` compares what the profiler recorded: stages and operations",
    ] {
        assert!(table.contains(said), "{said}\n{table}");
    }
    assert!(!table.contains('×'), "{table}");
    assert_eq!(lines(&project.compare(&["13", "14"])), [("traced".to_owned(), false), ("traced".to_owned(), false)]);
    assert_eq!(lines(&project.compare(&["13"])), [("traced".to_owned(), false)]);
    // Beside a job with unprofiled rows the cost is known, and no rate of profiled steps is in a ratio.
    let all = project.compare(&["12", "13"]);
    let apart = all["groups"].as_array().unwrap().iter().find(|group| group["profiler"] == true).unwrap();
    let costs: Vec<bool> =
        apart["lines"].as_array().unwrap().iter().map(|line| line["with_profiler"].is_array()).collect();
    assert_eq!(costs, [true, true]);
}

#[test]
fn published_profiling_per_iteration_and_per_sample() {
    let project = TestProject::new();
    insta::assert_snapshot!(project.expect(&["compare", "525"], 0).0);
    let all = project.compare(&["524"]);
    let lines = &all["groups"][0]["lines"];
    assert_eq!((&lines[0]["it_per_s"][0], &lines[1]["it_per_s"][0]), (&1.592.into(), &19.904.into()));
}

#[test]
fn a_range_and_its_runs_are_the_same_in_every_format() {
    let project = TestProject::new();
    let (table, _) = project.expect(&["compare", "428/430"], 0);
    assert!(table.contains("| 0.26–0.38 | 29.12–42.56 |") && table.contains("| imported | 2 |"), "{table}");
    assert!(!table.contains("n = "), "{table}");
    let row = &project.compare(&["428/430"])["groups"][0]["lines"][0];
    assert_eq!((&row["n"], &row["range"]), (&2.into(), &serde_json::json!([0.26, 0.38])));
    close(&row["samples_range"][0], 29.12);
    close(&row["samples_range"][1], 42.56);
    let (csv, _) = project.expect(&["compare", "428/430", "--format", "csv"], 0);
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let (header, row) = (lines.next().unwrap(), lines.next().unwrap());
    let cell = |name: &str| row[header.iter().position(|h| *h == name).unwrap()];
    assert_eq!((cell("n"), cell("it_per_s_low"), cell("it_per_s_high")), ("2", "0.26", "0.38"));
    assert!(cell("samples_per_s_low").starts_with("29.12") && cell("samples_per_s_high").starts_with("42.56"));
}

#[test]
fn figures_are_told_from_no_figures() {
    let project = TestProject::new();
    let trials = [project.trial("lazy", "Lazy", 1, |_| {}), project.trial("ids", "Ids only", 1, |_| {})];
    project.submitted(12, "086_ddp", trials.to_vec());
    let (stdout, _) = project.expect(&["compare", "12"], 6);
    assert!(stdout.contains("n = 0 in every row") && !stdout.contains("n = 1"), "{stdout}");
}

#[test]
fn sources_are_named() {
    let project = TestProject::new();
    let (stdout, _) = project.expect(&["compare", "392", "447", "525"], 0);
    let title = "Data Loading Optimization Results (2025-11-04), torchcell notes";
    assert!(stdout.contains(&format!("- 392, 447: {title}")), "{stdout}");
    assert_eq!(stdout.matches("- 525: Experiment 086 Results Summary (2025-11-07), ").count(), 1, "{stdout}");
    let row = &project.compare(&["392"])["groups"][0]["lines"][0];
    assert_eq!(row["source"]["date"], "2025-11-04");
    assert!(row["estimator"].as_str().unwrap().starts_with("one rate read off the progress bar"));
}

#[test]
fn cpus_have_one_meaning() {
    let project = TestProject::new();
    two_variants(&project, 12);
    let (stdout, _) = project.expect(&["compare", "392", "12"], 0);
    // 32 for the job of four ranks, 2 for each of two ranks: neither says anything about the other.
    assert!(!stdout.contains("CPUs of the job 32") && !stdout.contains("CPUs per rank 2"), "{stdout}");
    assert!(
        stdout.contains("recorded for only one of the two: ") && stdout.contains("CPUs per rank, CPUs of the job"),
        "{stdout}"
    );
    let (stdout, _) = project.expect(&["compare", "392", "447"], 0);
    assert!(stdout.contains("CPUs of the job 32 → 16"), "{stdout}");
}

#[test]
fn ratios_across_other_graphs_are_flagged() {
    let project = TestProject::new();
    let trials = [
        project.trial("lazy", "Lazy", 1, |_| {}),
        project.trial("whole", "Whole", 1, |s| {
            s.data.scale = 1.0;
            s.data.networks = Networks::Completed;
            s.pipeline.edge_types.pop();
        }),
    ];
    let dir = project.submitted(12, "086_ddp", trials.to_vec());
    trials.iter().for_each(|trial| completed(&dir, trial, &[steps(400, 0), steps(400, 0)]));
    let (stdout, _) = project.expect(&["compare", "12"], 0);
    let flags = "† not a like-for-like comparison: scale of the graph 0.1 → 1.0, set of network edges real → completed, \
                 set of edge types physical tflink → physical";
    assert!(stdout.contains(flags) && stdout.contains("(1.00× †)"), "{stdout}");
}

#[test]
fn ratios_across_other_samples_are_flagged_and_across_stores_are_not() {
    let project = TestProject::new();
    let trials = [
        project.trial("lazy", "Lazy", 1, |_| {}),
        project.trial("stored", "Stored", 1, |s| {
            s.pipeline.store = StoreKind::PackedMasks;
            s.pipeline.collation = Collation::SharedIndex;
        }),
    ];
    let compare = |id: u64, trials: &[Trial; 2]| {
        let dir = project.submitted(id, "087_loaders", trials.to_vec());
        trials.iter().for_each(|trial| completed(&dir, trial, &[steps(400, 0), steps(400, 0)]));
        project.expect(&["compare", &id.to_string()], 0).0
    };
    let stdout = compare(12, &trials);
    let differs = "they differ in: pipeline.collation pyg → shared_index, pipeline.store json → packed_masks";
    assert!(stdout.contains(differs), "{stdout}");
    assert!(!stdout.contains('†'), "{stdout}");
    let mut others = trials;
    let settings = &mut others[1].settings;
    settings.select = Select { samples: SampleSet::Metabolic, subset: 100, split: Split::Train, seed: 42 };
    settings.pipeline.metabolism = true;
    let stdout = compare(13, &others);
    let flags = "comparison: choice of samples all → metabolic, size of the subset 0 → 100, split all → train, graph (metabolism) false → true";
    assert!(stdout.contains(flags), "{stdout}");
}

#[test]
fn ratios_across_page_caches_are_flagged() {
    let project = TestProject::new();
    let trials = [
        project.trial("warm", "Warm", 1, |_| {}),
        project.trial("cold", "Cold", 1, |settings| settings.measure.cold_cache = true),
    ];
    let dir = project.submitted(12, "086_ddp", trials.to_vec());
    trials.iter().for_each(|trial| completed(&dir, trial, &[steps(400, 0), steps(400, 0)]));
    let (stdout, _) = project.expect(&["compare", "12"], 0);
    assert!(stdout.contains("not a like-for-like comparison: cold page cache false → true"), "{stdout}");
    // Two jobs that differ in it have a table each.
    for (id, trial) in (13..).zip(&trials) {
        let dir = project.submitted(id, "086_ddp", vec![trial.clone()]);
        completed(&dir, trial, &[steps(400, 0), steps(400, 0)]);
    }
    let (stdout, _) = project.expect(&["compare", "13", "14"], 0);
    assert!(stdout.contains("cold page cache true") && stdout.contains("cold page cache false"), "{stdout}");
}

#[test]
fn a_sweep_is_compared_point_by_point() {
    let project = TestProject::new();
    sweep(&project, 12);
    let all = project.compare(&["12"]);
    let lines = all["groups"][0]["lines"].as_array().unwrap();
    let bases: Vec<_> = lines.iter().map(|l| l["baseline"].as_bool().unwrap()).collect();
    assert_eq!(bases, [true, true, false, false, false]);
    // 400/100 with one rank, 200/40 with two; the baseline has no run with four.
    close(&lines[2]["ratio_samples_per_s"]["value"], 4.0);
    close(&lines[3]["ratio_samples_per_s"]["value"], 5.0);
    assert_eq!(lines[3]["against"], "12 086_ddp Lazy (launch.ranks=2)");
    assert!(lines[4]["ratio_samples_per_s"].is_null() && lines[4]["against"].is_null());
    let (stdout, _) = project.expect(&["compare", "12"], 0);
    let alone = "no ratio, because the baseline was not run at the same point: 12 086_ddp Ids only (launch.ranks=4)";
    assert!(stdout.contains(alone) && !stdout.contains('†'), "{stdout}");
    // Another job with the same sweep meets the same points.
    sweep(&project, 13);
    let all = project.compare(&["12", "13"]);
    close(&all["groups"][0]["lines"][8]["ratio_samples_per_s"]["value"], 5.0);
}

/// There is nothing else to compare with.
#[test]
fn a_sweep_of_one_variant_is_compared_with_its_first_point() {
    let project = TestProject::new();
    let on = |workers: u32| {
        let mut trial = project.trial("lazy", "Lazy", 1, |s| s.loader.workers = workers);
        trial.id = format!("lazy-{workers}-r1-0a1b2c");
        trial.point = BTreeMap::from([("loader.workers".to_owned(), workers.into())]);
        trial
    };
    let trials = [on(0), on(1), on(2)];
    for id in [12, 13] {
        let dir = project.submitted(id, "086_ddp", trials.to_vec());
        for (trial, wall) in trials.iter().zip([400, 200, 100]) {
            completed(&dir, trial, &[steps(wall, 0), steps(wall, 0)]);
        }
    }
    let all = project.compare(&["12"]);
    let lines = all["groups"][0]["lines"].as_array().unwrap();
    let bases: Vec<_> = lines.iter().map(|l| l["baseline"].as_bool().unwrap()).collect();
    assert_eq!(bases, [true, false, false]);
    close(&lines[1]["ratio_samples_per_s"]["value"], 2.0);
    close(&lines[2]["ratio_samples_per_s"]["value"], 4.0);
    assert_eq!(lines[2]["against"], "12 086_ddp Lazy (loader.workers=0)");
    let (stdout, _) = project.expect(&["compare", "12"], 0);
    assert!(stdout.contains("they differ in: workers 0 → 2"), "{stdout}");
    // Two jobs meet at their points.
    let all = project.compare(&["12", "13"]);
    let lines = all["groups"][0]["lines"].as_array().unwrap();
    let bases: Vec<_> = lines.iter().map(|l| l["baseline"].as_bool().unwrap()).collect();
    assert_eq!(bases, [true, true, true, false, false, false]);
    close(&lines[5]["ratio_samples_per_s"]["value"], 1.0);
    // A job that swept nothing is at the point whose setting it has.
    let single = project.trial("lazy", "Lazy", 1, |s| s.loader.workers = 2);
    let dir = project.submitted(14, "086_ddp", vec![single.clone()]);
    completed(&dir, &single, &[steps(50, 0), steps(50, 0)]);
    let all = project.compare(&["12", "14"]);
    let line = &all["groups"][0]["lines"][3];
    close(&line["ratio_samples_per_s"]["value"], 2.0);
    assert_eq!(line["against"], "12 086_ddp Lazy (loader.workers=2)");
}

#[test]
fn a_baseline_that_was_not_run_is_not_replaced() {
    let project = TestProject::new();
    let trials = [project.trial("ids", "Ids only", 1, |_| {}), project.trial("shared", "Shared", 1, |_| {})];
    for (job, trials, wall) in [(12, &trials[..], 400), (13, &trials[..1], 400), (14, &trials[..1], 200)] {
        let lazy = |record: &mut JobRecord| record.baseline = Some("lazy".into());
        let dir = project.submitted_as(job, "086_ddp", trials.to_vec(), lazy);
        trials.iter().for_each(|trial| completed(&dir, trial, &[steps(wall, 0), steps(wall, 0)]));
    }
    let (stdout, _) = project.expect(&["compare", "12"], 0);
    assert!(stdout.contains("the baseline `lazy` of job 12 was not run, so there are no ratios"), "{stdout}");
    assert!(!stdout.contains('×'), "{stdout}");
    // Between jobs, the only variant of the one that was named first leaves no choice.
    let (stdout, _) = project.expect(&["compare", "13", "14"], 0);
    assert!(stdout.contains("5 (2.00×)"), "{stdout}");
    assert!(stdout.contains("the baseline `lazy` of job 13 was not run: ratios refer to `ids`"), "{stdout}");
}

#[test]
fn another_baseline() {
    let project = TestProject::new();
    for args in [["392", "447", "--baseline", "447"], ["392", "--baseline", "447", "392"]] {
        let all = project.compare(&args);
        let lines = all["groups"][0]["lines"].as_array().unwrap();
        let base = lines.iter().find(|l| l["baseline"] == true).unwrap();
        let other = lines.iter().find(|l| l["baseline"] == false).unwrap();
        assert_eq!((&base["job"], &other["job"]), (&"447".into(), &"392".into()));
        close(&other["ratio_it_per_s"]["value"], 0.42 / 0.24);
    }
}

#[test]
fn measured_jobs_get_intervals_and_verdicts() {
    let project = TestProject::new();
    two_variants(&project, 12);
    insta::assert_snapshot!(project.expect(&["compare", "12"], 0).0);
    let all = project.compare(&["12"]);
    let ratio = &all["groups"][0]["lines"][1]["ratio_samples_per_s"];
    // scipy.stats.ttest_ind(log([10, 1000/102, 1000/98]), log([2.5, 1000/410, 1000/390]), equal_var=False)
    for (value, expected) in
        [(&ratio["value"], SCIPY[0]), (&ratio["interval"]["low"], SCIPY[1]), (&ratio["interval"]["high"], SCIPY[2])]
    {
        let value = value.as_f64().unwrap();
        assert!((value - expected).abs() < 1e-8 * expected, "{value} is not {expected}");
    }
}

#[test]
fn a_job_that_still_runs_is_incomplete() {
    let project = TestProject::new();
    let trials: Vec<_> = (1..=2).map(|r| project.trial("lazy", "Lazy", r, |_| {})).collect();
    let dir = project.submitted(13, "086_ddp", trials.clone());
    completed(&dir, &trials[0], &[steps(400, 80), steps(400, 8)]);
    running(&dir, &trials[1], &[steps(40, 8), steps(40, 8)]);
    let (stdout, stderr) = project.expect(&["compare", "13"], 6);
    assert!(
        stdout.contains("| 2.5 | 140 |") && stdout.contains("lazy-r2-0a1b2c is not counted: running or lost"),
        "{stdout}"
    );
    assert!(stderr.contains("1 trial did not complete"), "{stderr}");
}

#[test]
fn unknown_jobs_are_refused_with_those_that_exist() {
    let project = TestProject::new();
    two_variants(&project, 12);
    let (stdout, stderr) = project.expect(&["compare", "392", "999"], 7);
    assert!(stdout.is_empty());
    insta::assert_snapshot!(stderr);
    assert!(project.expect(&["compare", "x"], 2).1.contains("'x' is not a job"));
}

#[test]
fn steps_of_different_kinds_do_not_compare() {
    let project = TestProject::new();
    let trial = project.trial("lazy", "Lazy", 1, |s| s.train.mode = Mode::Data);
    let dir = project.submitted(14, "086_dataloader", vec![trial.clone()]);
    completed(&dir, &trial, &[steps(400, 0), steps(400, 0)]);
    let (stdout, stderr) = project.expect(&["compare", "392", "14"], 7);
    assert!(stdout.is_empty());
    insta::assert_snapshot!(stderr);
    // Steps on a loss of zero compare with those that were published as data only, across everything that differs.
    let trial = project.trial("lazy", "Lazy", 1, |s| s.train.mode = Mode::ZeroLoss);
    let dir = project.submitted(15, "086_as_run", vec![trial.clone()]);
    completed(&dir, &trial, &[steps(400, 0), steps(400, 0)]);
    let (stdout, _) = project.expect(&["compare", "525", "15"], 0);
    let crosses = "not a like-for-like comparison: world size 1 → 2, number of samples 10000 → 1000, device 1 x RTX 6000 Ada → cpu";
    assert!(stdout.contains(crosses), "{stdout}");
    assert!(stdout.contains("recorded for only one of the two: scale, networks, edge_types,"), "{stdout}");
}

#[test]
fn a_model_that_no_step_computes_is_no_difference() {
    let project = TestProject::new();
    let compared = |id: u64, mode: Mode| {
        let lazy = project.trial("lazy", "Lazy", 1, |s| {
            (s.train.mode, s.model.kind, s.train.learning_rate) = (mode, ModelKind::Lazy, 0.01);
        });
        let ids = project.trial("ids", "Ids only", 1, |s| {
            (s.train.mode, s.pipeline.processor) = (mode, Processor::Ids);
        });
        let dir = project.submitted(id, "086_ddp", vec![lazy.clone(), ids.clone()]);
        for (trial, wall) in [(&lazy, 400), (&ids, 100)] {
            completed(&dir, trial, &[steps(wall, 0), steps(wall, 0)]);
        }
        project.expect(&["compare", &id.to_string()], 0).0
    };
    let (data, train) = (compared(12, Mode::Data), compared(13, Mode::Train));
    for setting in ["model.kind", "train.learning_rate"] {
        assert!(!data.contains(setting), "{data}");
        assert!(train.contains(setting), "{train}");
    }
    let note = |job: &str| {
        let (path, _) = project.expect(&["report", job], 0);
        std::fs::read_to_string(path.trim().replace("ROOT", project.path().to_str().unwrap())).unwrap()
    };
    let (data, train) = (note("12"), note("13"));
    assert!(
        !data.contains("model.kind") && !data.contains("- model: ") && data.contains("- train: mode = data\n"),
        "{data}"
    );
    assert!(train.contains("| model.kind | lazy | dango |"), "{train}");
}

#[test]
fn the_measured_job_hides_the_published_one() {
    let project = TestProject::new();
    two_variants(&project, 392);
    let (stdout, stderr) = project.expect(&["compare", "392"], 0);
    assert!(stdout.contains("measured") && !stdout.contains("imported"), "{stdout}");
    assert!(stderr.contains("job 392 exists measured and published"), "{stderr}");
    let (stdout, _) = project.expect(&["compare", "392", "published:392"], 0);
    assert!(stdout.contains("Incidence Map (Baseline)") && stdout.contains("Ids only"), "{stdout}");
}

#[test]
fn results_are_imported_once_checked() {
    let project = TestProject::new();
    let head =
        "schema = 1\nstudy = \"006-kuzmin-tmi\"\nsource = { title = \"t\", from = \"f\", date = \"2025-01-01\" }\n";
    let row = "[[result]]\njob = 700\nconfig = \"c\"\nmethod = \"m\"\nmode = \"train\"\nit_per_s = 0.5\nestimator = \"e\"\nranks = 4\nbatch_size = 28\n";
    let file = project.file("mine.toml");
    let path = file.to_str().unwrap();
    std::fs::write(&file, format!("{head}{row}")).unwrap();
    let (stdout, stderr) = project.expect(&["import", path], 0);
    assert_eq!(stdout, "ROOT/results/imported/mine.toml\n");
    assert!(stderr.contains("took job 700 c m: 0.5 it/s, 56 samples/s, imported"), "{stderr}");
    assert!(project.expect(&["compare", "392", "700"], 0).0.contains("| 700 | c | m | 0.5 (1.19×) | 56 |"));
    assert!(project.expect(&["import", path], 0).1.contains("unchanged"));
    std::fs::write(&file, format!("{head}{}", row.replace("0.5", "0.6"))).unwrap();
    assert!(project.expect(&["import", path], 2).1.contains("exists with other content"));
    project.expect(&["import", path, "--force"], 0);
    assert!(project.expect(&["compare", "700"], 0).0.contains("| 0.6 |"));
    std::fs::write(&file, format!("{head}{}", row.replace("it_per_s", "itpers"))).unwrap();
    let (_, stderr) = project.expect(&["import", path, "--force"], 3);
    assert!(stderr.contains("mine.toml:9:1: unknown field `itpers`"), "{stderr}");
}

#[test]
fn time_per_epoch_is_a_column_where_epochs_were_timed() {
    let project = TestProject::new();
    in_epochs(&project, 12);
    let (stdout, _) = project.expect(&["compare", "12", "--format", "markdown"], 0);
    let header = stdout.lines().find(|line| line.starts_with("| Job ID |")).unwrap();
    assert!(header.contains("| samples/s | ms/sample | s/epoch | Storage |"), "{stdout}");
    assert!(stdout.contains("(8 epochs of 2 runs)") && stdout.contains(" (derived) |"), "{stdout}");
    let all = project.compare(&["12"]);
    let lines = all["groups"][0]["lines"].as_array().unwrap();
    let basis: Vec<_> = lines.iter().map(|line| line["epoch_time"]["basis"].as_str().unwrap()).collect();
    assert_eq!(basis, ["whole_epochs", "rate"]);
    // 100 batches at the rate of the 80 that were measured.
    close(&lines[1]["epoch_time"]["time_s"]["value"], 100.0 / lines[1]["it_per_s"][0].as_f64().unwrap());
    let (csv, _) = project.expect(&["compare", "12", "--format", "csv"], 0);
    let mut rows = csv.lines();
    assert!(
        rows.next().unwrap().ends_with(",s_per_epoch,s_per_epoch_ci_low,s_per_epoch_ci_high,s_per_epoch_class,epochs")
    );
    let ends: Vec<&str> = rows.map(|row| row.rsplit(',').nth(1).unwrap()).collect();
    assert_eq!(ends, ["measured", "derived"]);
    // Without epochs that were timed there is no such column.
    two_variants(&project, 13);
    assert!(!project.expect(&["compare", "13", "--format", "markdown"], 0).0.contains("s/epoch"));
}

/// On a terminal what is the same in all rows stands in a line above the table, and two columns are left to the other forms.
#[test]
fn a_table_has_the_columns_in_which_rows_differ() {
    let project = TestProject::new();
    two_variants(&project, 12);
    let (table, _) = project.expect(&["compare", "12", "--format", "table"], 0);
    let above = table.lines().next().unwrap();
    for same in ["Job ID: 12", "Config: 086_ddp", "Batch Size: 28", "Figures: measured"] {
        assert!(above.starts_with("All rows: ") && above.contains(same), "{same}: {table}");
    }
    let head = table.lines().nth(3).unwrap();
    assert!(head.contains("Workers") && head.contains("samples/s") && head.contains("Method"), "{table}");
    assert!(!head.contains("Job ID") && !head.contains("95 %"), "{table}");
    let (markdown, _) = project.expect(&["compare", "12", "--format", "markdown"], 0);
    assert!(
        markdown.starts_with("| Job ID | Config | Method |") && markdown.contains("95 % (samples/s)"),
        "{markdown}"
    );
}
