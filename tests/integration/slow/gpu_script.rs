//! `scripts/gpu.sh`, run whole on a machine without a GPU: `nvidia-smi` and the test programs are stand-ins, the jobs compute on the host.

use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use expctl::report::reference::ReferenceRecord;
use expctl_ledger::{JobRecord, Stage};
use expctl_settings::Trial;
use test_support::{Requirement, skip};

use crate::common::programs::install_torch;
use crate::common::{TestProject, text, worker};

/// Longest that a part of the benchmark may take, seconds.
const LONGEST_PART_S: u64 = 480;

/// Settings that make any job of the benchmark one of seconds, on the host.
const SMALL_SET: &str = "launch.device=cpu measure.repeats=1 measure.warmup=2 data.samples=400 data.scale=0.05 \
                         loader.workers=1 loader.prefetch_factor=1";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A clone without its history, and stand-ins in front of its PATH.
struct Checkout(TestProject);

impl Checkout {
    fn new() -> Self {
        let clone = Self(TestProject::new());
        for folder in ["scripts", "benches", "python"] {
            symlink(root().join(folder), clone.path(folder)).unwrap();
        }
        for entry in std::fs::read_dir(root().join("conf")).unwrap() {
            let entry = entry.unwrap();
            symlink(entry.path(), clone.path("conf").join(entry.file_name())).unwrap();
        }
        std::fs::create_dir(clone.path("stand-ins")).unwrap();
        let smi = "case \"$*\" in\n  -L) echo 'GPU 0: Stand-in (UUID: GPU-0)';;\n  \
                   --query-gpu=name,*) echo 'Stand-in, 1.2.3, 81559 MiB';;\nesac";
        clone.program("stand-ins/nvidia-smi", smi);
        clone
    }

    fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(relative)
    }

    /// A shell script that can be run.
    fn program(&self, relative: &str, lines: &str) {
        let path = self.path(relative);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, format!("#!/bin/sh\n{lines}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Another list of parts: name, kind, limit, arguments, and what is added for a module of Python.
    fn parts(&self, parts: &[(&str, &str, u64, &str, &str)]) {
        let line = |(name, kind, limit, arguments, more): &(&str, &str, u64, &str, &str)| {
            format!("{name}\t{kind}\t{limit}\t1\t{arguments}\t{more}\n")
        };
        std::fs::write(self.path("parts.tsv"), parts.iter().map(line).collect::<String>()).unwrap();
    }

    /// `scripts/gpu.sh` with these arguments and further variables.
    fn gpu(&self, args: &[&str], variables: &[(&str, &str)]) -> Output {
        let path = std::env::var("PATH").unwrap();
        let mut command = Command::new("bash");
        command.arg(self.path("scripts/gpu.sh")).args(args).current_dir(self.path("")).stdin(Stdio::null());
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("EXPCTL_") && name != "EXPCTL_CACHE") {
            command.env_remove(name);
        }
        command
            .env("PATH", format!("{}:{path}", self.path("stand-ins").display()))
            .env("EXPCTL_BIN", worker().parent().unwrap())
            .env("EXPCTL_GPU_PARTS", self.path("parts.tsv"))
            .env("EXPCTL_GPU_SET", SMALL_SET)
            // No Python of the machine takes a part unless a test names one.
            .env("EXPCTL_PEER_PYTHON", "false")
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env_remove("OUT")
            .envs(variables.iter().copied());
        command.output().unwrap()
    }

    /// The last line of `results/gpu/NAME.txt`.
    fn ended(&self, name: &str) -> String {
        let said = std::fs::read_to_string(self.path("results/gpu").join(format!("{name}.txt"))).unwrap();
        assert!(said.contains("gpu: Stand-in, 1.2.3, 81559 MiB\n"), "{said}");
        said.lines().last().unwrap().to_owned()
    }

    fn record(&self, name: &str) -> ReferenceRecord {
        ReferenceRecord::read(&self.path("results/gpu/records").join(format!("{name}.json"))).unwrap()
    }

    /// The job that made a part's record.
    fn job(&self, name: &str) -> JobRecord {
        self.0.job(&self.record(name).job.to_string()).record().unwrap()
    }

    /// Files of a folder, by name.
    fn files(&self, folder: &str) -> BTreeSet<String> {
        let Ok(entries) = std::fs::read_dir(self.path(folder)) else { return BTreeSet::new() };
        let files = entries.map(|entry| entry.unwrap()).filter(|entry| entry.path().is_file());
        files.map(|entry| entry.file_name().into_string().unwrap()).collect()
    }

    /// The note of a part is there, with every picture that it shows; how many those are.
    fn pictures(&self, name: &str) -> usize {
        let note = std::fs::read_to_string(self.path("results/gpu").join(format!("{name}.md"))).unwrap();
        let shown: Vec<&str> =
            note.split("](assets/images/").skip(1).map(|rest| rest.split_once(')').unwrap().0).collect();
        for picture in &shown {
            assert!(picture.starts_with(name), "{picture} is of another note than {name}");
            assert!(self.path("results/gpu/assets/images").join(picture).is_file(), "{picture} is missing");
        }
        shown.len()
    }

    /// Nothing of a job is left where jobs write their notes by themselves.
    fn assert_results_are_clean(&self) {
        assert_eq!(self.files("results"), BTreeSet::new());
        assert_eq!(self.files("results/assets/images"), BTreeSet::new());
    }
}

fn said(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn parts_leave_their_notes_and_are_not_measured_twice() {
    let clone = Checkout::new();
    let out = clone.path("out");
    std::fs::create_dir(&out).unwrap();
    clone.parts(&[
        ("masks", "job", 300, "conf/gpu_masks.toml --only loader --only vectorised --set measure.steps=3", ""),
        (
            "masks_trace",
            "trace",
            300,
            "conf/gpu_trace.toml --only loader --set measure.steps=6 --set profile.wait=1 --set profile.active=2",
            "",
        ),
        (
            "copies",
            "job",
            300,
            "conf/gpu_copies.toml --only within --set measure.steps=3 --set sweep.grid.loader.batch_size=[32]",
            "no_such_module --only torch_pinned",
        ),
    ]);
    let names = ["masks", "masks_trace", "copies"];
    let first = clone.gpu(&["bench"], &[("OUT", out.to_str().unwrap())]);
    assert!(first.status.success(), "{}", said(&first));
    assert!(
        said(&first).contains("SKIPPED copies, --only torch_pinned: false has no no_such_module"),
        "{}",
        said(&first)
    );
    for name in names {
        assert_eq!(clone.ended(name), "ended: complete", "{}", said(&first));
        assert!(clone.pictures(name) > 0 || name != "masks");
        // No git here: nobody may cite it, and it says so.
        let flaws = clone.record(name).flaws;
        assert_eq!(flaws.len(), 1, "{flaws:?}");
    }
    assert_eq!(clone.record("masks").variants.keys().collect::<Vec<_>>(), ["loader", "vectorised"]);
    assert!(clone.job("copies").trials.iter().all(|trial| trial.variant == "within"));
    let trace = std::fs::read_to_string(clone.path("results/gpu/masks_trace.trace.md")).unwrap();
    assert!(trace.contains("## Stages: trace and ledger"), "{trace}");
    clone.assert_results_are_clean();

    let packed = Command::new("tar").arg("-tzf").arg(out.join("gpu.tar.gz")).output().unwrap();
    let packed = text(&packed.stdout);
    for part in ["results/gpu/masks.md", "results/gpu/records/copies.json", "results/gpu/masks_trace.trace.md"] {
        assert!(packed.lines().any(|line| line == part), "{part} is not in\n{packed}");
    }
    assert_eq!(packed.lines().filter(|line| line.ends_with("rank-0.parquet")).count(), 4, "{packed}");
    assert!(!packed.lines().any(|line| line.contains("/runs/") && line.contains("trace")), "{packed}");

    let jobs = std::fs::read_dir(clone.path("results/runs")).unwrap().count();
    let again = clone.gpu(&["bench"], &[]);
    assert!(again.status.success(), "{}", said(&again));
    for name in names {
        assert!(said(&again).contains(&format!("==> {name}: complete already")), "{}", said(&again));
    }
    assert_eq!(std::fs::read_dir(clone.path("results/runs")).unwrap().count(), jobs);

    // What another GPU left, as a clone may have it, is measured again. It takes the place of the first, and nothing of the others' is touched.
    let (before, notes) = (clone.record("masks").job, clone.files("results/gpu"));
    let left = clone.path("results/gpu/masks.txt");
    std::fs::write(&left, std::fs::read_to_string(&left).unwrap().replace("gpu: Stand-in", "gpu: Another")).unwrap();
    let once_more = clone.gpu(&["bench", "masks"], &[]);
    assert!(once_more.status.success(), "{}", said(&once_more));
    assert!(clone.record("masks").job > before);
    assert_eq!(clone.files("results/gpu"), notes);
    assert!(names.map(|name| clone.pictures(name))[0] > 0);

    let unknown = clone.gpu(&["bench", "maskes"], &[]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(said(&unknown).contains("error: there is no part maskes"), "{}", said(&unknown));
    // Without a driver there is nothing to measure.
    clone.program("stand-ins/nvidia-smi", "exit 9");
    let without = clone.gpu(&["bench"], &[]);
    assert!(
        without.status.success() && said(&without).contains("SKIPPED: nvidia-smi shows no GPU"),
        "{}",
        said(&without)
    );
}

#[test]
fn parts_that_fail_or_take_too_long_keep_no_other_from_running() {
    let clone = Checkout::new();
    let endless = "conf/gpu_masks.toml --only loader --set measure.steps=1000000";
    clone.parts(&[
        ("before", "job", 300, "conf/gpu_masks.toml --only loader --set measure.steps=3", ""),
        // PyTorch's side runs in a Python that there is not.
        ("fails", "job", 300, "conf/gpu_ddp.toml --only s_torch --set measure.steps=3", ""),
        ("refused", "job", 300, "conf/no_such_config.toml", ""),
        ("cut", "job", 8, endless, ""),
        ("after", "job", 300, "conf/gpu_masks.toml --only looped --set measure.steps=3", ""),
        ("late", "job", 90_000, endless, ""),
    ]);
    let output = clone.gpu(&["bench"], &[("EXPCTL_GPU_SECONDS", "80000")]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let ended = ["before", "fails", "refused", "cut", "after"].map(|name| clone.ended(name));
    assert_eq!(
        ended,
        [
            "ended: complete",
            "ended: failed with exit code 5",
            "ended: failed with exit code 3",
            "ended: stopped after 8 s",
            "ended: complete"
        ],
        "{}",
        said(&output)
    );
    assert!(said(&output).contains("==> not begun, for want of time: late"), "{}", said(&output));
    assert!(!clone.path("results/gpu/late.txt").exists());
    // What was cut off is written down all the same.
    assert!(clone.path("results/gpu/cut.md").is_file());
    let cut = clone.record("cut");
    assert!(cut.flaws.iter().any(|flaw| flaw.contains("did not complete")), "{:?}", cut.flaws);
    clone.assert_results_are_clean();
}

/// PyTorch's side of the benchmark, on the host: alone in bf16, as two ranks, and its copies.
#[test]
fn pytorch_takes_the_device_and_the_precision_that_the_trial_names() {
    let clone = Checkout::new();
    if !install_torch(&clone.0) {
        return skip(Requirement::Python, "no PyTorch wheel is known for this Python");
    }
    clone.parts(&[
        ("alone", "job", 300, "conf/gpu_ddp_bf16.toml --only s_expctl --set measure.steps=3", "torch --only s_torch"),
        ("ranks", "job", 300, "conf/gpu_ranks.toml --only torch_two --set measure.steps=3", ""),
        (
            "copies",
            "job",
            300,
            "conf/gpu_copies.toml --only torch_pinned --set measure.steps=3 --set sweep.grid.loader.batch_size=[32]",
            "",
        ),
    ]);
    let python = clone.path("torch-python");
    let python = [("EXPCTL_PEER_PYTHON", python.to_str().unwrap())];
    let output = clone.gpu(&["bench"], &python);
    assert!(output.status.success(), "{}", said(&output));
    for (part, variant, backend, ranks, stages) in [
        (
            "alone",
            "s_torch",
            "gloo",
            1,
            vec![Stage::Read, Stage::Forward, Stage::Backward, Stage::Optimizer, Stage::Other],
        ),
        ("ranks", "torch_two", "gloo", 2, vec![Stage::Forward, Stage::Backward, Stage::Optimizer, Stage::Other]),
        ("copies", "torch_pinned", "", 1, vec![Stage::Transfer]),
    ] {
        let job = clone.record(part).job.to_string();
        let attempt = clone.0.attempt(&job, variant).unwrap();
        let environment = attempt.environment().unwrap().unwrap();
        assert_eq!((environment.device.as_str(), environment.backend.as_str()), ("cpu", backend), "{part}");
        for rank in 0..ranks {
            let steps = attempt.steps(rank).unwrap();
            assert_eq!(steps.len(), 5, "{part}");
            for step in steps {
                for stage in &stages {
                    assert!(step.exposed[*stage] > 0, "{part}: {stage} of {step:?}");
                }
                assert!(part == "copies" || step.loss.is_some_and(f64::is_finite), "{part}: {step:?}");
                assert_eq!(step.bytes_to_device, 0, "{part}");
            }
        }
    }

    // It does not compute on the host where a GPU is asked for: this PyTorch has none of CUDA.
    clone.parts(&[("gpu", "job", 300, "conf/gpu_ddp.toml --only s_torch --set measure.steps=3", "")]);
    let set = SMALL_SET.replace("launch.device=cpu", "launch.device=cuda");
    let output = clone.gpu(&["bench"], &[python[0], ("EXPCTL_GPU_SET", set.as_str())]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert_eq!(clone.ended("gpu"), "ended: failed with exit code 5");
    let attempt = clone.0.attempt(&clone.record("gpu").job.to_string(), "s_torch").unwrap();
    let log = std::fs::read_to_string(attempt.log_path(0)).unwrap();
    assert!(log.contains("launch.device is \"cuda\", but torch has no GPU that it can use"), "{log}");
}

/// A bundle of these programs, packed as `scripts/gpu.sh bundle` packs them.
fn bundle(clone: &Checkout, files: &[(&str, &str)]) {
    for (name, lines) in files {
        clone.program(&format!(".gpu/{name}"), lines);
    }
    let packed =
        // tar finds out by itself how an archive is compressed; not every machine has xz.
        Command::new("tar").args(["-czf", ".gpu.tar.xz", ".gpu"]).current_dir(clone.path("")).status().unwrap();
    assert!(packed.success());
    std::fs::remove_dir_all(clone.path(".gpu")).unwrap();
}

#[test]
fn all_tests_of_a_bundle_run_and_one_that_fails_is_told() {
    let clone = Checkout::new();
    let carried = [("EXPCTL_BUNDLE", "1")];
    // Whatever a test does with its input, the others run.
    let greedy = ("test-torch_dist", "cat; echo \"torch_dist $*\"");
    let gpu_cases = ("test-expctl_worker", "echo \"worker $*, $EXPCTL_TEST_GPU\"");
    bundle(&clone, &[greedy, gpu_cases]);
    let output = clone.gpu(&["test"], &carried);
    assert!(output.status.success(), "{}", said(&output));
    for line in [
        "gpu: Stand-in, 1.2.3, 81559 MiB",
        "torch_dist --test-threads=1 --nocapture cuda::",
        "worker --test-threads=1 --nocapture tests::gpu, 1",
        "==> 2 test programs ran",
    ] {
        assert!(said(&output).lines().any(|found| found == line), "{line} is not in\n{}", said(&output));
    }

    std::fs::remove_dir_all(clone.path(".gpu")).unwrap();
    bundle(&clone, &[("test-torch_dist", "exit 101"), gpu_cases]);
    let output = clone.gpu(&["test"], &carried);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("==> 2 test programs ran"), "{}", said(&output));

    std::fs::remove_dir_all(clone.path(".gpu")).unwrap();
    bundle(&clone, &[("expctl", "exit 0")]);
    let output = clone.gpu(&["test"], &carried);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("error: there is no test to run"), "{}", said(&output));
}

#[test]
fn the_history_of_a_bundle_says_which_commit_is_measured() {
    let clone = Checkout::new();
    let source = tempfile::tempdir().unwrap();
    let git = |folder: &Path, arguments: &[&str]| -> String {
        let user = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"];
        let ran = Command::new("git").arg("-C").arg(folder).args(user).args(arguments).output().unwrap();
        assert!(ran.status.success(), "{arguments:?}: {}", text(&ran.stderr));
        text(&ran.stdout).trim().to_owned()
    };
    std::fs::write(source.path().join("code"), "1").unwrap();
    git(source.path(), &["init", "-q"]);
    git(source.path(), &["add", "."]);
    git(source.path(), &["commit", "-q", "-m", "a"]);
    let commit = git(source.path(), &["rev-parse", "--short=12", "HEAD"]);
    let history = clone.path(".gpu/git");
    let from = format!("file://{}", source.path().display());
    git(source.path(), &["clone", "-q", "--bare", "--depth", "1", &from, history.to_str().unwrap()]);
    bundle(&clone, &[("test-cuda", "exit 0")]);

    let committed = |text: &str| {
        std::fs::write(clone.path("code"), text).unwrap();
        let output = clone.gpu(&["test"], &[("EXPCTL_BUNDLE", "1")]);
        assert!(output.status.success(), "{}", said(&output));
        let said = said(&output);
        said.lines().find_map(|line| line.strip_prefix("commit: ")).unwrap().to_owned()
    };
    assert_eq!(committed("1"), commit);
    assert_eq!(committed("2"), format!("{commit}-dirty"));
}

#[test]
fn what_cannot_be_built_is_an_error_and_no_old_bundle_takes_its_place() {
    let clone = Checkout::new();
    bundle(&clone, &[("test-cuda", "exit 0")]);
    clone.program("stand-ins/cargo", "echo 'error: could not compile' >&2; exit 101");
    let output = clone.gpu(&["test"], &[]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("note: .gpu.tar.xz is not used, because there is cargo"), "{}", said(&output));
    assert!(said(&output).contains("error: the tests cannot be built"), "{}", said(&output));
    std::fs::remove_file(clone.path(".gpu.tar.xz")).unwrap();
    let output = clone.gpu(&["bundle"], &[]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("error: the tests cannot be built"), "{}", said(&output));
    assert!(!clone.path(".gpu.tar.xz").exists());
}

/// The columns of a line of scripts/gpu.tsv.
fn listed() -> Vec<Vec<String>> {
    let list = std::fs::read_to_string(root().join("scripts/gpu.tsv")).unwrap();
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

/// The trials of `expctl plan` with these arguments, in this clone.
fn planned(arguments: &[&str]) -> Vec<Trial> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_expctl"));
    command.current_dir(root()).env("XDG_CONFIG_HOME", "/nonexistent").stdin(Stdio::null());
    let output = command.arg("plan").args(arguments).arg("--json").output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    let mut plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    serde_json::from_value(plan["trials"].take()).unwrap()
}

#[test]
fn each_part_of_the_benchmark_ends_within_eight_minutes() {
    let mut configs = BTreeSet::new();
    for columns in listed() {
        let [name, kind, limit, seconds, arguments, more @ ..] = columns.as_slice() else { panic!("{columns:?}") };
        let (limit, seconds): (u64, u64) = (limit.parse().unwrap(), seconds.parse().unwrap());
        let mut arguments: Vec<&str> = arguments.split(' ').collect();
        let trials = if kind == "program" {
            let example = format!("crates/worker/examples/{}.rs", arguments[0]);
            assert!(root().join(&example).is_file(), "{name}: there is no {example}");
            1
        } else {
            assert!(["job", "trace"].contains(&kind.as_str()), "{name}: {kind}");
            // Where the module is there.
            arguments.extend(more.iter().flat_map(|more| more.split(' ').skip(1)));
            configs.insert(arguments[0].to_owned());
            let trials = planned(&arguments);
            if name.starts_with("gpu_ddp") {
                // Steps of a millisecond at most: without these, clocks that rise would be measured.
                assert!(trials.iter().all(|t| (t.settings.measure.warmup, t.settings.measure.steps) == (300, 1200)));
            }
            assert!(trials.iter().all(|trial| trial.settings.launch.device.name() == "cuda"), "{name}");
            trials.len() as u64
        };
        assert!(trials * seconds <= limit, "{name}: {trials} trials of {seconds} s, but it is stopped after {limit} s");
        assert!(limit <= LONGEST_PART_S, "{name} may take {limit} s");
    }
    let shipped = std::fs::read_dir(root().join("conf")).unwrap().map(|entry| entry.unwrap().file_name());
    let shipped =
        shipped.map(|name| format!("conf/{}", name.to_str().unwrap())).filter(|name| name.starts_with("conf/gpu_"));
    assert_eq!(configs, shipped.collect::<BTreeSet<_>>(), "what is listed, and what there is");
}
