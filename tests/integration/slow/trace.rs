//! Traces end to end: what the profiler records on the ranks of a job, merged and summed up.

mod figures;

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common;
use crate::common::browser;
use crate::common::local::set;
use crate::common::traces::{self, profiled, traced, write_trace};
use crate::common::{TestProject, close, text, wait_until, worker};
use expctl::trace::{RankTrace, nest, step_times};
use expctl_ledger::{AttemptDir, Stage};
use expctl_settings::Settings;
use nix::sys::signal::{Signal, kill};
use serde_json::Value as Json;

/// Two ranks that train, with steps of some milliseconds: a range takes about a microsecond.
const SMALL: &str = r#"
[experiment]
study = "006-kuzmin-tmi"
title = "Small"

[data]
samples = 400
scale = 0.1

[loader]
batch_size = 28
workers = 1

[model]
hidden = 16

[train]
mode = "train"
clip_norm = 1.0

[measure]
warmup = 2
steps = 12
repeats = 1

[launch]
ranks = 2
heartbeat_timeout_s = 5

[variant.dango]
pipeline.processor = "perturbation"
"#;

/// Run one that completes with these settings; returns its job.
fn ran(project: &TestProject, settings: &[&str]) -> String {
    project.completed(SMALL, &set(settings))
}

fn trace_files(attempt: &AttemptDir) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(attempt.path()).unwrap().flatten().map(|entry| entry.path());
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    let mut found: Vec<PathBuf> =
        entries.filter(|p| name(p).starts_with("trace-") || name(p).starts_with(".writing")).collect();
    found.sort();
    found
}

fn unpacked(path: &Path) -> Json {
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn two_ranks_make_one_trace_that_agrees_with_the_ledger() {
    let project = TestProject::new();
    let job =
        ran(&project, &["profile.wait=3", "profile.active=4", "profile.record_shapes=true", "profile.memory=true"]);
    let attempt = project.attempt(&job, "dango").unwrap();
    let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    assert_eq!(trace_files(&attempt).iter().map(name).collect::<Vec<_>>(), ["trace-0-0.json.gz", "trace-1-0.json.gz"]);

    let out = project.path().join("merged.json.gz");
    let summary = project.ok(&["trace", &job, "--out", out.to_str().unwrap()]);
    assert_eq!(summary.trim(), std::fs::read_to_string(project.path().join("merged.md")).unwrap().trim());
    for part in
        ["# Trace of job", "2 ranks of 2 recorded: steps 6 to 9", "| 1 | backward |", "`aten::", "`gloo:all_reduce`"]
    {
        assert!(summary.contains(part), "{part}: {summary}");
    }

    let checked = traces::check(&unpacked(&out));
    assert_eq!(checked.processes.len(), 2);
    let mut starts = Vec::new();
    for (pid, process) in &checked.processes {
        let row = |name: &str| {
            let thread = checked.threads.iter().find(|((of, _), title)| of == pid && title.starts_with(name));
            &checked.slices[thread.unwrap_or_else(|| panic!("{process} has no row {name}")).0]
        };
        let steps = row("steps");
        let mut of_steps =
            steps.iter().filter(|(.., category, name, _)| category == "user_annotation" && name.starts_with("step "));
        let steps_found: Vec<&str> = of_steps.clone().map(|(_, _, _, name, _)| name.as_str()).collect();
        assert_eq!(steps_found, ["step 6", "step 7", "step 8", "step 9"]);
        starts.push((of_steps.clone().next().unwrap().0, of_steps.next_back().unwrap().1));
        for stage in ["load", "transfer", "forward", "backward", "clip", "optimizer"] {
            assert_eq!(steps.iter().filter(|(.., name, _)| name == stage).count(), 4, "{stage}");
        }
        assert!(steps.iter().any(|(.., name, args)| name.starts_with("aten::") && args.get("Input Dims").is_some()));
        let loader = row("loader 0");
        assert!(loader.iter().any(|(.., name, args)| name == "collate" && args["step"] == 7), "{loader:?}");
        // Work for later steps is there, too: the loader is ahead.
        assert!(loader.iter().any(|(.., args)| args["step"].as_u64() > Some(9)), "{loader:?}");
        assert!(row("allreduce").iter().all(|(.., name, _)| name.starts_with("bucket ")));
        assert!(!row("collectives").is_empty());
    }
    // On one clock, ranks that exchange their gradients in every step do them at the same time.
    assert!(starts[0].0 < starts[1].1 && starts[1].0 < starts[0].1, "{starts:?}");
    agrees(&attempt);
    opens_in_perfetto(&out, &checked);
}

/// Perfetto's own trace processor takes the trace as it is, and finds the same in it.
fn opens_in_perfetto(trace: &Path, checked: &traces::Checked) {
    let queries = [
        "select name, idx, value from stats where severity in ('error', 'data_loss') and value > 0",
        "select name from process where name is not null order by pid",
        "select count(*) from slice",
        "select p.name, s.name, sum(s.dur) from slice s join thread_track t on s.track_id = t.id \
         join thread using (utid) join process p using (upid) where s.name in ('forward', 'backward') group by 1, 2",
    ];
    let Some(answers) = browser::ask_perfetto(trace, &queries) else { return };
    assert!(answers[0].is_empty(), "what it could not take: {:?}", answers[0]);
    let names: Vec<&str> = answers[1].iter().map(|row| row[0].as_str().unwrap()).collect();
    assert_eq!(names, checked.processes.values().map(String::as_str).collect::<Vec<_>>());
    // An instant is a slice without a length there.
    let slices = checked.slices.values().map(Vec::len).sum::<usize>() + checked.instants;
    assert_eq!(answers[2][0][0].as_u64(), Some(slices as u64));
    assert_eq!(answers[3].len(), 4);
    for row in &answers[3] {
        let (process, stage) = (row[0].as_str().unwrap(), row[1].as_str().unwrap());
        let of = checked.slices.iter().filter(|((pid, _), _)| checked.processes[pid] == process);
        let ours: i64 = of.flat_map(|(_, slices)| slices).filter(|slice| slice.3 == stage).map(|s| s.1 - s.0).sum();
        let far = (row[2].as_i64().unwrap() - ours).abs();
        // Each of four steps is rounded once more.
        assert!(ours > 0 && far <= 4000, "{process} {stage}: {row:?} and {ours}");
    }
}

/// Stage times of the trace and of the ledger differ by 5 % at most, wherever they make a hundredth of a step. A thread that loses
/// its processor between the two readings of a clock makes a single figure differ by any amount; the middle one stands.
fn agrees(attempt: &AttemptDir) {
    let mut found: Vec<(Stage, bool, f64)> = Vec::new();
    for path in trace_files(attempt) {
        let trace = RankTrace::read(&path).unwrap();
        let slices = trace.slices();
        let of_steps = slices.iter().filter(|s| (s.pid, s.tid) == (trace.meta.pid, trace.meta.step_thread));
        let forest = nest(of_steps.cloned().collect());
        assert!(forest.beside.is_empty(), "{:?}", forest.beside);
        let records = attempt.steps(trace.meta.rank).unwrap();
        let times = step_times(&forest, &slices, &trace.meta);
        assert_eq!(times.len(), 4);
        for times in times {
            let record = &records[times.step as usize];
            let wall = times.wall as f64 / record.wall_ns as f64;
            assert!(wall <= 1.0, "a range is no longer than its step: {wall}");
            for stage in Stage::ALL {
                for (exposed, ours, ledger) in [
                    (false, times.busy[stage], record.busy[stage]),
                    (true, times.exposed[stage], record.exposed[stage]),
                ] {
                    if ours.max(ledger) * 100 >= record.wall_ns {
                        found.push((stage, exposed, ours as f64 / ledger.max(1) as f64 - 1.0));
                    }
                }
            }
        }
    }
    let mut judged = 0;
    for stage in Stage::ALL {
        for exposed in [false, true] {
            let of = found.iter().filter(|(of, e, _)| (*of, *e) == (stage, exposed));
            let mut differences: Vec<f64> = of.map(|(.., difference)| difference.abs()).collect();
            differences.sort_by(f64::total_cmp);
            // One of few steps may be the only one in which a stage took that long.
            if differences.len() >= 4 {
                let middle = differences[differences.len() / 2];
                assert!(middle <= 0.05, "{stage}, exposed {exposed}: {differences:?}");
                judged += 1;
            }
        }
    }
    assert!(judged >= 6, "{found:?}");
}

#[test]
fn windows_ranks_and_the_short_form_are_kept_to() {
    let project = TestProject::new();
    let job = ran(&project, &["profile.active=2", "profile.repeat=2", "profile.ranks=[1]", "launch.ranks=2"]);
    let attempt = project.attempt(&job, "dango").unwrap();
    let windows = |attempt: &AttemptDir| -> Vec<(u32, u64, u64, u64)> {
        let metas = trace_files(attempt).into_iter().map(|path| RankTrace::read(&path).unwrap().meta);
        metas.map(|meta| (meta.rank, meta.window.cycle, meta.window.first, meta.window.end)).collect()
    };
    assert_eq!(windows(&attempt), [(1, 0, 3, 5), (1, 1, 6, 8)]);
    let summary = project.ok(&["trace", &job]);
    assert!(summary.contains("1 rank of 2 recorded: steps 3 to 4, steps 6 to 7"), "{summary}");
    traces::check(&unpacked(&attempt.path().join("trace.json.gz")));
    // What the profiler itself took is in no step: there is a gap in front of each that it was turned on or off for.
    let steps = attempt.steps(1).unwrap();
    let gaps: Vec<u64> =
        steps.windows(2).filter(|s| s[1].start_ns > s[0].start_ns + s[0].wall_ns).map(|s| s[1].step).collect();
    assert_eq!(gaps, [2, 3, 5, 6, 8]);

    // The last step, without loader threads and without other ranks; and what a start in front of step 0 leaves.
    let job = ran(&project, &["trace.at_step=13", "launch.ranks=1", "loader.workers=0"]);
    let attempt = project.attempt(&job, "dango").unwrap();
    assert_eq!(windows(&attempt), [(0, 0, 13, 14)]);
    project.ok(&["trace", &format!("{job}_0")]);
    let checked = traces::check(&unpacked(&attempt.path().join("trace.json.gz")));
    assert!(checked.threads.values().any(|name| name == "loader (on the step's thread)"), "{:?}", checked.threads);

    let (stdout, stderr) = project.expect(&["trace", &job, "--trial", "nothing"], 2);
    assert!(stdout.is_empty() && stderr.contains("has no trial nothing"), "{stderr}");
    std::fs::write(attempt.trace_path(0, 0), b"half").unwrap();
    let (_, stderr) = project.expect(&["trace", &job], 6);
    assert!(stderr.contains("trace-0-0.json.gz: it is damaged or no gzip file"), "{stderr}");
}

#[test]
fn operations_lie_inside_their_stage_and_are_those_of_the_ledger() {
    let project = TestProject::new();
    let window = ["profile.wait=5", "profile.active=2"];
    let set = ["pipeline.processor=lazy", "profile.operations=true", "launch.ranks=1"];
    let job = ran(&project, &[&set[..], &window].concat());
    let attempt = project.attempt(&job, "dango").unwrap();
    project.ok(&["trace", &job]);
    let checked = traces::check(&unpacked(&attempt.path().join("trace.json.gz")));
    let (thread, _) = checked.threads.iter().find(|(_, name)| *name == "loader 0").unwrap();
    let slices = &checked.slices[thread];
    // Of each step and operation, the time in the trace.
    let mut traced: BTreeMap<(u64, String, String, String), u64> = BTreeMap::new();
    for (start, end, category, name, args) in slices {
        if category != "loader_operation" {
            continue;
        }
        let stage = slices.iter().find(|(from, to, category, stage, of)| {
            category == "loader" && *stage == args["stage"] && of["step"] == args["step"] && from <= start && end <= to
        });
        assert!(stage.is_some(), "{name} of {args} lies in no stage");
        let word = |key: &str| args[key].as_str().unwrap().to_owned();
        assert_eq!(*name, format!("{} {}", word("operation"), word("operand")));
        let key = (args["step"].as_u64().unwrap(), word("stage"), word("operation"), word("operand"));
        *traced.entry(key).or_default() += (end - start) as u64;
    }
    let of_step_8 = |stage: &str, operation: &str, operand: &str| {
        traced.contains_key(&(8, stage.to_owned(), operation.to_owned(), operand.to_owned()))
    };
    for operand in ["physical", "string12_0_database", "genes"] {
        assert!(of_step_8("mask", "fill", operand) && of_step_8("collate", "copy", operand), "{operand}: {traced:?}");
    }
    assert!(of_step_8("mask", "lookup", "tflink") && !of_step_8("mask", "filter", "tflink"), "{traced:?}");
    // The ledger has every step; what is in both is the same to the nanosecond.
    let steps = attempt.steps(0).unwrap();
    assert_eq!(steps.len(), 14);
    let mut both = 0;
    for step in &steps {
        for stage in [Stage::Mask, Stage::Collate] {
            let sum: u64 = step.operations.iter().filter(|time| time.stage == stage).map(|time| time.ns).sum();
            assert!(sum > 0 && sum <= step.busy[stage], "{sum} of {} in {stage}", step.busy[stage]);
        }
        for time in &step.operations {
            let (stage, operation) = (time.stage.name().to_owned(), time.operation.name().to_owned());
            if let Some(ns) = traced.get(&(step.step, stage, operation, time.operand.to_string())) {
                assert_eq!(*ns, time.ns, "{time:?}");
                both += 1;
            }
        }
    }
    assert!(both > 50, "{both}");
    let note = std::fs::read_to_string(project.path().join(project.ok(&["report", &job]).trim())).unwrap();
    assert!(note.contains("### Inside mask and collate") && note.contains("| mask | physical |"), "{note}");
}

#[test]
fn a_killed_rank_leaves_no_half_written_trace() {
    let project = TestProject::new();
    let mut guard = project.started(SMALL, &set(&["measure.steps=100000", "profile.active=50000"]));
    let steps = |attempt: &AttemptDir| attempt.steps(1).map(|steps| steps.len()).unwrap_or_default();
    let attempt = wait_until("steps within the window", common::PATIENCE, || {
        project.attempt("1", "dango").filter(|attempt| steps(attempt) > 10)
    });
    kill(project.rank(1), Signal::SIGKILL).unwrap();
    let status = wait_until("the end", Duration::from_secs(60), || guard.0.try_wait().unwrap());
    assert_eq!(status.code(), Some(5));
    assert_eq!(trace_files(&attempt), Vec::<PathBuf>::new());
    let (_, stderr) = project.expect(&["trace", "1"], 6);
    assert!(stderr.contains("left no trace: its last attempt is failed: rank 1 was killed by signal 9"), "{stderr}");
    let mut said = String::new();
    guard.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(!text(said.as_bytes()).contains("panicked"), "{said}");
}

#[test]
fn tensorboard_gets_files_and_steps_under_the_names_of_its_plugin() {
    let project = TestProject::new();
    figures::two_profiled_jobs(&project);
    let folder = project.file("board");
    let (_, stderr) = project.expect(&["trace", "20", "21", "--tensorboard", folder.to_str().unwrap()], 0);
    assert!(stderr.contains("for TensorBoard: ROOT/board/20_lazy-r1-0a1b2c"), "{stderr}");
    // `consts.py` of torch_tb_profiler: ^(.*?)(\.\d+)?\.pt\.trace\.json(?:\.gz)?$
    let pattern = regex::Regex::new(r"^(.*?)(\.\d+)?\.pt\.trace\.json(?:\.gz)?$").unwrap();
    for run in ["20_lazy-r1-0a1b2c", "21_lazy-r1-0a1b2c"] {
        let entries = std::fs::read_dir(folder.join(run)).unwrap().flatten();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        files.sort();
        let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
        let workers: Vec<String> =
            files.iter().map(|file| pattern.captures(&name(file)).unwrap()[1].to_owned()).collect();
        assert_eq!(workers, ["node-1.local_0", "node-1.local_1"]);
        let root = unpacked(&files[0]);
        assert!(root["schemaVersion"] == 1 && root["expctl"].is_null());
        let names = |start: &str| {
            let events = root["traceEvents"].as_array().unwrap().iter();
            events.filter(|event| event["name"].as_str().unwrap().starts_with(start)).count()
        };
        assert_eq!((names("ProfilerStep#"), names("step "), names("enumerate(DataLoader)#")), (4, 0, 4));
        // Other ranges and the rows of loader threads stay.
        assert_eq!((names("forward"), names("collate"), names("load")), (4, 4, 0));
    }
}

/// The scripts of docs/guide/profiling.md that put a rank under a profiler of the system. A stand-in for the profiler writes down how it was
/// called, and runs what follows its options, of which `-o` with its value is the last.
#[test]
fn the_documented_scripts_put_rank_0_under_a_profiler() {
    let docs = include_str!("../../../docs/guide/profiling.md");
    let blocks: Vec<&str> =
        docs.split("```sh\n").skip(1).filter_map(|rest| Some(rest.split_once("\n```")?.0)).collect();
    let [script, nsys] = blocks[..] else { panic!("two scripts are expected: {blocks:?}") };
    let (head, perf) = script.rsplit_once('\n').unwrap();
    let project = TestProject::new();
    for (tool, last, file) in [("perf", perf, "perf.data"), ("nsys", nsys, "rank-0")] {
        let folder = project.file(tool);
        std::fs::create_dir(&folder).unwrap();
        let program = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let called = folder.join("called");
        program(
            tool,
            &format!(
                "#!/bin/sh\nprintf '%s\\n' \"$@\" >> '{}'\nwhile [ \"$1\" != -o ]; do shift; done\nshift 2\n\
                 [ \"$1\" != -- ] || shift\nexec \"$@\"\n",
                called.display()
            ),
        );
        let own = head.replace("/path/to/bin/expctl-worker", worker().to_str().unwrap());
        let wrapper = program("wrapper", &format!("{own}\n{last}\n"));
        let path = std::env::join_paths(
            std::iter::once(folder.clone()).chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
        );
        let mut command = project.submission(SMALL, &["--set", "measure.steps=3"]);
        let output = command.env("EXPCTL_WORKER", wrapper).env("PATH", path.unwrap()).output().unwrap();
        assert!(output.status.success(), "{tool}: {}", text(&output.stderr));
        let attempt = project.attempt(text(&output.stdout).trim(), "dango").unwrap();
        assert_eq!([0, 1].map(|rank| attempt.steps(rank).unwrap().len()), [5, 5]);
        let said = std::fs::read_to_string(&called).unwrap();
        let options: Vec<&str> = said.lines().collect();
        let at = options.iter().position(|word| *word == "-o").unwrap();
        assert!(Path::new(options[at + 1]).ends_with(Path::new("attempt-1").join(file)), "{said}");
        assert_eq!(options.iter().filter(|word| **word == "--attempt").count(), 1, "rank 0 alone: {said}");
    }
}
