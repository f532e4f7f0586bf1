//! Snapshots of code: what is copied of a project, what a job's folder `code` has, and what `diff`, `rerun` and `doctor --prune` make of it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{FileTimes, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use expctl::project::Project;
use expctl::snapshot::{SnapshotLimits, code_folder, place, prune, take};
use expctl_ledger::{CodeSnapshot, JobDir, LiveReason, SnapshotContent};
use serde_json::Value;

use crate::common::{SMALL, TestProject, text};

const LIMITS: SnapshotLimits = SnapshotLimits { max_file_bytes: 16 << 20, max_total_bytes: 256 << 20 };

fn git(folder: &Path, arguments: &[&str]) {
    let identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"];
    let output = Command::new("git").args(identity).args(arguments).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", text(&output.stderr));
}

/// A folder with these files, whose content is their name, as a project.
fn project(files: &[&str]) -> (tempfile::TempDir, Project) {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), files);
    let project = Project::find(Some(folder.path()), None).unwrap();
    (folder, project)
}

fn write(folder: &Path, files: &[&str]) {
    for file in files {
        let path = folder.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, file).unwrap();
    }
}

/// What a snapshot says of each path: `file 644`, `link TARGET`, `live REASON`.
fn said(snapshot: &CodeSnapshot) -> BTreeMap<String, String> {
    let words = |content: &SnapshotContent| match content {
        SnapshotContent::File { mode, .. } => format!("file {mode:o}"),
        SnapshotContent::Link { target } => format!("link {}", target.encoded()),
        SnapshotContent::Live { reason, .. } => format!("live {}", reason.words()),
    };
    snapshot.entries.iter().map(|entry| (entry.path.encoded(), words(&entry.content))).collect()
}

fn expected(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(path, words)| ((*path).to_owned(), (*words).to_owned())).collect()
}

/// The objects of a store, with their inodes.
fn objects(project: &Project) -> BTreeMap<PathBuf, u64> {
    let store = project.runs().join(format!("snapshots-{}/objects", nix::unistd::geteuid()));
    let folders = std::fs::read_dir(store).into_iter().flatten().map(|entry| entry.unwrap().path());
    let files = folders.flat_map(|folder| std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()));
    files.map(|path| (path.clone(), path.metadata().unwrap().ino())).collect()
}

/// A job's folder with the snapshot, unpacked.
fn unpacked(project: &Project, snapshot: &CodeSnapshot, id: u64) -> PathBuf {
    let job = project.job(id);
    job.create().unwrap();
    place(&job, snapshot, true).unwrap();
    code_folder(&job)
}

#[test]
fn names_modes_and_links_are_kept_whatever_they_are() {
    let (folder, project) =
        project(&["train.py", "a b/new\nline.py", "results/note.md", "data/cells.h5ad", ".venv/bin/python"]);
    let root = folder.path();
    let odd = OsStr::from_bytes(b"caf\xe9 %41.py");
    std::fs::write(root.join(odd), "latin-1").unwrap();
    std::fs::write(root.join("run.sh"), "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(root.join("run.sh"), Permissions::from_mode(0o775)).unwrap();
    symlink("a b", root.join("inside")).unwrap();
    symlink("gone", root.join("dangling")).unwrap();
    symlink("../outside", root.join("out")).unwrap();
    symlink("/dev/null", root.join("absolute")).unwrap();
    std::fs::create_dir(root.join("empty")).unwrap();
    nix::unistd::mkfifo(&root.join("pipe"), nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();

    let snapshot = take(&project, LIMITS).unwrap().snapshot;
    let all = expected(&[
        (".venv", "live ignored"),
        ("a b/new\nline.py", "file 644"),
        ("absolute", "link /dev/null"),
        ("caf%E9 %2541.py", "file 644"),
        ("dangling", "link gone"),
        ("data", "live ignored"),
        ("empty", "live ignored"),
        ("inside", "link a b"),
        ("out", "live leads out of the project"),
        ("pipe", "live ignored"),
        ("results", "live ignored"),
        ("run.sh", "file 755"),
        ("train.py", "file 644"),
    ]);
    assert_eq!(said(&snapshot), all);

    let code = unpacked(&project, &snapshot, 1);
    assert_eq!(CodeSnapshot::read(&project.job(1)).unwrap().unwrap(), snapshot);
    let read = |path: &Path| std::fs::read(code.join(path)).unwrap();
    assert_eq!(read(Path::new("inside/new\nline.py")), b"a b/new\nline.py");
    assert_eq!(read(Path::new(odd)), b"latin-1");
    assert_eq!(read(Path::new("data/cells.h5ad")), b"data/cells.h5ad");
    assert_eq!(read(Path::new(".venv/bin/python")), b".venv/bin/python");
    assert_eq!(std::fs::read_link(code.join("dangling")).unwrap(), Path::new("gone"));
    let mode = |name: &str| code.join(name).metadata().unwrap().permissions().mode() & 0o333;
    assert_eq!((mode("train.py"), mode("run.sh") & 0o300), (0, 0o100));
    // Programs may write beside the code, and into what is the project's.
    std::fs::write(code.join("a b/log"), "").unwrap();
    std::fs::write(code.join("empty/log"), "").unwrap();
    assert!(root.join("empty/log").exists() && !root.join("a b/log").exists());
}

#[test]
fn in_a_repository_git_says_what_is_code() {
    let (folder, project) = project(&[
        "tracked.py",
        "changed.py",
        "deleted.py",
        "out/model.pt",
        "pkg/native.so",
        "pkg/m.py",
        "results/old.md",
    ]);
    let root = folder.path();
    std::fs::write(root.join(".gitignore"), "out/\n*.so\n").unwrap();
    git(root, &["init", "--quiet"]);
    git(root, &["add", "--all", "--force", "results"]);
    git(root, &["add", "--all"]);
    git(root, &["commit", "--quiet", "--message", "first"]);
    std::fs::remove_file(root.join("deleted.py")).unwrap();
    std::fs::write(root.join("changed.py"), "now").unwrap();
    write(root, &["new.py", "venv/pyvenv.cfg", "venv/lib/x.py", "nested/inner.py", "nested/skip.so"]);
    std::fs::write(root.join("nested/.gitignore"), "*.so\n").unwrap();
    git(&root.join("nested"), &["init", "--quiet"]);
    let snapshot = take(&project, LIMITS).unwrap().snapshot;
    let all = expected(&[
        (".gitignore", "file 644"),
        ("changed.py", "file 644"),
        ("nested/.gitignore", "file 644"),
        ("nested/inner.py", "file 644"),
        ("nested/skip.so", "live ignored"),
        ("new.py", "file 644"),
        ("out", "live ignored"),
        ("pkg/m.py", "file 644"),
        ("pkg/native.so", "live ignored"),
        ("results", "live ignored"),
        ("tracked.py", "file 644"),
        ("venv", "live ignored"),
    ]);
    assert_eq!(said(&snapshot), all);
    let code = unpacked(&project, &snapshot, 1);
    // As it is on disk, not as it was committed.
    assert_eq!(std::fs::read_to_string(code.join("changed.py")).unwrap(), "now");
    assert_eq!(std::fs::read_to_string(code.join("pkg/native.so")).unwrap(), "pkg/native.so");
    assert!(!code.join(".git").exists());

    // A folder of home that its repository ignores wholly, as those of settings do.
    std::fs::write(root.join(".git/info/exclude"), "*\n").unwrap();
    let inner = root.join("out/project");
    write(&inner, &["train.py"]);
    let inner = Project::find(Some(&inner), None).unwrap();
    assert_eq!(said(&take(&inner, LIMITS).unwrap().snapshot)["train.py"], "file 644");
}

#[test]
fn large_secret_and_unreadable_files_stay_in_the_project_and_are_named() {
    let (folder, project) = project(&["a.py", "b.py", ".env"]);
    let root = folder.path();
    let grow = |name: &str, bytes: usize| std::fs::write(root.join(name), vec![b'x'; bytes]).unwrap();
    grow("big.bin", 3000);
    grow("mid.bin", 900);
    let limits = SnapshotLimits { max_file_bytes: 2000, max_total_bytes: 500 };
    let taken = take(&project, limits).unwrap();
    let all = expected(&[
        (".env", "live looks like a secret"),
        ("a.py", "file 644"),
        ("b.py", "file 644"),
        ("big.bin", "live too large"),
        ("mid.bin", "live more than the snapshot may hold"),
    ]);
    let mut found = said(&taken.snapshot);
    assert_eq!(found.remove("results").as_deref(), Some("live ignored"), "{found:?}");
    assert_eq!(found, all);
    let warnings = taken.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    for words in ["big.bin (too large, 3 kB)", "mid.bin (more than", ".env (looks like a secret"] {
        assert!(warnings[0].contains(words), "{words}: {warnings:?}");
    }
    // What was left out is found where it is, as it is by then.
    let code = unpacked(&project, &taken.snapshot, 1);
    grow("big.bin", 7);
    assert_eq!(std::fs::read(code.join("big.bin")).unwrap(), b"xxxxxxx");
    let reasons = taken.snapshot.entries.iter().filter(|entry| {
        matches!(entry.content, SnapshotContent::Live { reason: LiveReason::TooLarge, size: Some(3000) })
    });
    assert_eq!(reasons.count(), 1);
}

#[test]
fn contents_are_stored_once_and_unchanged_files_are_not_read_again() {
    let (folder, project) = project(&["a.py", "sub/b.py"]);
    let root = folder.path();
    std::fs::write(root.join("copy.py"), "a.py").unwrap();
    let first = take(&project, LIMITS).unwrap().snapshot;
    let stored = objects(&project);
    assert_eq!(stored.len(), 2, "two of three contents differ: {stored:?}");
    let again = take(&project, LIMITS).unwrap().snapshot;
    assert_eq!((&again, objects(&project)), (&first, stored.clone()));
    // A change of a file that keeps length and date is seen: its inode says so.
    let old = std::fs::metadata(root.join("a.py")).unwrap().modified().unwrap();
    std::fs::write(root.join("a.py"), "A.py").unwrap();
    let file = std::fs::File::options().write(true).open(root.join("a.py")).unwrap();
    file.set_times(FileTimes::new().set_modified(old)).unwrap();
    let changed = take(&project, LIMITS).unwrap().snapshot;
    assert_ne!(changed.hash, first.hash);
    assert_eq!(objects(&project).len(), 3);
    // What no job has goes, but for what was used within the last day.
    unpacked(&project, &first, 1);
    assert_eq!(prune(&project).unwrap().objects, 0);
    for object in objects(&project).keys() {
        let yesterday = SystemTime::now() - Duration::from_secs(25 * 3600);
        std::fs::File::open(object).unwrap().set_modified(yesterday).unwrap();
    }
    let pruned = prune(&project).unwrap();
    assert_eq!((pruned.objects, pruned.bytes), (1, 4));
    assert_eq!(objects(&project), stored);
    // Nothing is removed while a snapshot cannot be read.
    std::fs::write(CodeSnapshot::path(&project.job(1)), "{").unwrap();
    assert!(prune(&project).is_err());
    std::fs::remove_dir_all(project.job(1).path()).unwrap();
    assert_eq!(prune(&project).unwrap().objects, 2);
}

#[test]
fn two_submissions_at_once_have_the_same_code() {
    let project = TestProject::new();
    // Builds the data, which only one process may do.
    submitted(&project, &[]);
    let conf = project.conf("small", SMALL);
    for i in 0..200 {
        std::fs::write(project.path().join(format!("m{i}.py")), format!("value = {i}\n")).unwrap();
    }
    let line = ["submit", conf.to_str().unwrap(), "--backend", "local", "--only", "ids", "--set", "launch.ranks=1"];
    let running: Vec<_> =
        (0..3).map(|_| project.expctl(&line).stdout(std::process::Stdio::piped()).spawn().unwrap()).collect();
    let ids: Vec<String> =
        running.into_iter().map(|child| text(&child.wait_with_output().unwrap().stdout).trim().to_owned()).collect();
    let snapshots: Vec<CodeSnapshot> =
        ids.iter().map(|id| CodeSnapshot::read(&project.job(id)).unwrap().unwrap()).collect();
    assert!(snapshots.windows(2).all(|two| two[0].hash == two[1].hash), "{ids:?}");
    assert_eq!(snapshots[0].copied().filter(|entry| entry.path.encoded().ends_with(".py")).count(), 200);
    // Nothing but native ranks runs: nothing is unpacked.
    assert!(!code_folder(&project.job(&ids[0])).exists());
    for id in ids {
        assert!(!project.job(&id).path().join("source.diff").exists());
        project.ok(&["cancel", &id]);
    }
}

/// A job of native ranks whose code has these files.
fn submitted(project: &TestProject, more: &[&str]) -> String {
    project.completed(SMALL, &[&["--only", "ids", "--set", "launch.ranks=1"], more].concat())
}

#[test]
fn diff_shows_code_settings_and_environment() {
    let project = TestProject::new();
    let write = |name: &str, text: &str| std::fs::write(project.path().join(name), text).unwrap();
    write("train.py", "a = 1\nb = 2\n");
    write("gone.py", "x\n");
    let old = submitted(&project, &[]);
    write("train.py", "a = 1\nb = 3\nc = 4\n");
    std::fs::remove_file(project.path().join("gone.py")).unwrap();
    let new = submitted(&project, &["--set", "loader.batch_size=4", "--set", "loader.seed=9"]);
    let live = submitted(&project, &["--live"]);

    let shown = project.ok(&["diff", &old, &new]);
    for part in [
        "Code: 2 files not the same\n",
        "| gone.py | removed | +0 -1 |\n",
        "| train.py | changed | +2 -1 |\n",
        "Settings: not the same\n",
        "| batch_size | 8 | 4 | ids |\n",
        "| loader.seed | ",
    ] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
    let full = project.ok(&["diff", &old, &new, "--full"]);
    assert!(
        full.contains("--- a/train.py\n+++ b/train.py\n@@ -1,2 +1,3 @@\n a = 1\n-b = 2\n+b = 3\n+c = 4\n"),
        "{full}"
    );
    let json = project.json(&["diff", &old, &new, "--json"], 0);
    assert_eq!(json["code"]["files"][1]["path"], "train.py", "{json}");
    assert_eq!(json["code"]["files"][1]["added_lines"], 2);
    assert_eq!(json["settings"][0]["values"], serde_json::json!(["8", "4"]));
    assert!(json["code"]["files"][1].get("hunks").is_none() && json["only_in"] == serde_json::json!([[], []]));
    let json = project.json(&["diff", &old, &new, "--json", "--full"], 0);
    assert!(json["code"]["files"][1]["hunks"].as_str().unwrap().starts_with("diff --git a/train.py b/train.py\n"));

    let same = project.ok(&["diff", &old, &old]);
    assert_eq!(same, "Code: the same\n\nSettings: the same\n\nEnvironment: the same, as far as it is recorded\n");
    let without = project.ok(&["diff", &old, &live]);
    assert!(
        without.starts_with(&format!("Code: not compared, because there is no snapshot of job {live}\n")),
        "{without}"
    );
    assert_eq!(project.json(&["diff", &live, &old, "--json"], 0)["code"], Value::Null);
    let (_, said) = project.expect(&["diff", &old, "99"], 7);
    assert!(said.contains("there is no job 99"), "{said}");
    project.expect(&["diff", &old], 2);
}

#[test]
fn a_config_that_changes_after_submit_changes_no_trial_and_is_run_again_as_it_was() {
    let project = TestProject::new();
    let base = project.conf("base", SMALL);
    let conf = project.conf("own", "extends = \"base.toml\"\n[launch]\nranks = 1\n");
    let output = project.run(&["submit", conf.to_str().unwrap(), "--backend", "local"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let id = text(&output.stdout).trim().to_owned();
    std::fs::write(&base, SMALL.replace("batch_size = 8", "batch_size = 2").replace("hidden = 8", "hidden = 4"))
        .unwrap();
    project.run(&["watch", &id]);
    let record = project.job(&id).record().unwrap();
    for trial in &record.trials {
        let attempt = project.job(&id).attempts(&trial.id).unwrap().pop().unwrap();
        assert_eq!(attempt.trial().unwrap(), *trial);
        assert_eq!((trial.settings.loader.batch_size, trial.settings.model.hidden), (8, 8));
        assert!(attempt.steps(0).unwrap().iter().all(|step| step.samples == 8));
    }
    // The same again: trials, ids and parameters.
    let again = project.ok(&["rerun", &id, "--wait"]).trim().to_owned();
    let repeated = project.job(&again).record().unwrap();
    assert_eq!((repeated.reruns, &repeated.trials), (Some(id.parse().unwrap()), &record.trials));
    let copy = |id: &str| std::fs::read_to_string(project.job(id).path().join("config/1-base.toml")).unwrap();
    assert_eq!((copy(&again), copy(&id)), (SMALL.to_owned(), SMALL.to_owned()));
    let code = |id: &str| CodeSnapshot::read(&project.job(id)).unwrap().unwrap();
    assert_eq!(code(&again).hash, code(&id).hash);
    for variant in ["lazy", "ids"] {
        let digest = |id: &str| project.outcome(id, variant).ranks[0].parameters_digest.clone().unwrap();
        assert_eq!(digest(&again), digest(&id), "{variant}");
    }
    // With another setting on top, and all others as they were.
    let changed = project.ok(&["rerun", &id, "--wait", "--set", "loader.workers=0"]).trim().to_owned();
    let record = project.job(&changed).record().unwrap();
    assert_eq!(record.config_path, Path::new(&format!("job {id}, rerun")));
    let difference = project.json(&["diff", &id, &changed, "--json"], 0);
    let keys: Vec<&str> =
        difference["settings"].as_array().unwrap().iter().map(|s| s["setting"].as_str().unwrap()).collect();
    assert_eq!((keys, &difference["code"]["files"]), (vec!["workers"], &serde_json::json!([])), "{difference}");
    let refused = project.run(&["rerun", &id, "--set", "loader.workers=-1"]);
    assert_eq!(refused.status.code(), Some(3), "{}", text(&refused.stderr));
}

#[test]
fn limits_and_the_old_way_are_settings_of_the_project_and_of_the_user() {
    let project = TestProject::new();
    std::fs::write(project.path().join("big.bin"), vec![0u8; (1 << 20) + 1]).unwrap();
    let run = |more: &[&str]| {
        let all = [&["--only", "ids", "--set", "launch.ranks=1"], more].concat();
        let output = project.submission(SMALL, &all).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        (project.job(&text(&output.stdout)), text(&output.stderr))
    };
    let kind = |job: &JobDir| said(&CodeSnapshot::read(job).unwrap().unwrap())["big.bin"].clone();
    let (job, said) = run(&[]);
    assert_eq!(kind(&job), "file 644");
    assert!(!said.contains("snapshot"), "{said}");
    let user = project.path().join("config/expctl/config.toml");
    std::fs::create_dir_all(user.parent().unwrap()).unwrap();
    std::fs::write(&user, "[snapshot]\nmax_file_mib = 1\n").unwrap();
    let (job, said) = run(&[]);
    assert_eq!(kind(&job), "live too large");
    assert_eq!(said.matches("not in the snapshot of the code: big.bin (too large, 1.05 MB)").count(), 1, "{said}");
    std::fs::write(project.file("expctl.toml"), "[snapshot]\nlive = true\n[notes]\n").unwrap();
    let (job, _) = run(&[]);
    assert_eq!(CodeSnapshot::read(&job).unwrap(), None);
    for (text, words) in [
        ("[snapshot]\nlife = true\n", "did you mean `live`?"),
        ("[snapshot]\nmax_file_mib = 0\n", "`snapshot.max_file_mib` is out of range"),
        ("[snapshot]\nlive = \"yes\"\n", "write true, without quotes"),
        ("[snapshots]\n", "did you mean `snapshot`?"),
    ] {
        std::fs::write(project.file("expctl.toml"), text).unwrap();
        let output = project.submission(SMALL, &["--only", "ids"]).output().unwrap();
        let said = crate::common::text(&output.stderr);
        assert!(output.status.code() == Some(3) && said.contains(words) && said.contains("expctl.toml"), "{said}");
    }
    std::fs::remove_file(project.file("expctl.toml")).unwrap();
    std::fs::write(project.file(".expctlignore"), "!a\n").unwrap();
    let output = project.submission(SMALL, &["--only", "ids"]).output().unwrap();
    assert!(output.status.code() == Some(3) && text(&output.stderr).contains(".expctlignore:1: "));
}

#[test]
fn programs_of_jobs_without_a_snapshot_are_not_run_again() {
    let project = TestProject::new();
    let trial = project.trial("mine", "Mine", 1, |settings| settings.worker.command = vec!["./train.sh".to_owned()]);
    project.submitted(12, "mine", vec![trial]);
    let (_, said) = project.expect(&["rerun", "12"], 7);
    for words in ["job 12 cannot be run again", "--live", "expctl submit conf/mine.toml"] {
        assert!(said.contains(words), "{said}");
    }
    let shown = project.ok(&["diff", "12", "12"]);
    assert!(shown.starts_with("Code: not compared, because there is no snapshot of job 12 and of job 12\n"), "{shown}");
    let (_, said) = project.expect(&["rerun", "99"], 7);
    assert!(said.contains("there is no job 99"), "{said}");
}

#[test]
fn a_job_whose_files_are_gone_is_not_run_again() {
    let project = TestProject::new();
    let weights = project.file("last.safetensors");
    let trial = project.trial("lazy", "Lazy", 1, |settings| {
        settings.train.start_from = weights.to_str().unwrap().to_owned();
    });
    project.submitted(12, "small", vec![trial]);
    let (stdout, said) = project.expect(&["rerun", "12", "--backend", "local"], 7);
    let message = format!("job 12 cannot be run again: there is no file {} any more", weights.display());
    // The folder of the project is masked in what is said.
    let message = message.replace(project.path().to_str().unwrap(), "ROOT");
    assert!(stdout.is_empty() && said.contains(&message) && said.contains("--set train.start_from=FILE"), "{said}");
    std::fs::write(&weights, "").unwrap();
    let said = text(&project.run(&["rerun", "12", "--backend", "local", "--dry-run"]).stderr);
    assert!(!said.contains("cannot be run again"), "{said}");
    let rows = project.file("rows.zarr").to_str().unwrap().to_owned();
    let trial = project.trial("rows", "Rows", 1, |settings| {
        settings.array.files = vec!["s3://bucket/rows.h5ad".to_owned(), rows];
    });
    project.submitted(13, "rows", vec![trial]);
    let (_, said) = project.expect(&["rerun", "13", "--backend", "local"], 7);
    assert!(said.contains("there is no file ROOT/rows.zarr any more, its `array.files`"), "{said}");
    assert!(said.contains("--set 'array.files=[\"FILE\"]'"), "{said}");
    std::fs::create_dir(project.file("rows.zarr")).unwrap();
    let said = text(&project.run(&["rerun", "13", "--backend", "local", "--dry-run"]).stderr);
    assert!(!said.contains("cannot be run again"), "{said}");
}

#[test]
fn doctor_removes_what_no_job_has() {
    let project = TestProject::new();
    assert!(text(&project.run(&["doctor", "--prune"]).stderr).contains("removed 0 files of code snapshots"));
    assert_eq!(project.run(&["doctor", "--prune", "--json"]).status.code(), Some(2));
}
