//! `expctl init`: what it makes is a project whose config `check` accepts and ranks run, and nothing that exists is written over.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::common::{copy, text, worker};

/// An empty folder with real cells, a script and a program in it.
fn folder() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let cells = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments/arrayloader/real/pbmc68k_reduced.h5ad");
    copy(&cells, &dir.path().join("own/cells.h5ad"));
    copy(&cells, &dir.path().join("own/more.h5ad"));
    std::fs::write(dir.path().join("own/broken.h5ad"), "no HDF5").unwrap();
    std::fs::write(dir.path().join("train.sh"), "true\n").unwrap();
    copy(Path::new("/bin/true"), &dir.path().join("train"));
    dir
}

fn expctl(at: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_expctl"));
    command.current_dir(at).args(args).env("NO_COLOR", "1").env("XDG_CONFIG_HOME", "/nonexistent");
    for variable in ["EXPCTL_ROOT", "EXPCTL_DATA", "EXPCTL_RUNS", "EXPCTL_BACKEND", "EXPCTL_LOG"] {
        command.env_remove(variable);
    }
    command.env("EXPCTL_WORKER", worker()).stdin(Stdio::null()).output().unwrap()
}

fn ok(at: &Path, args: &[&str]) -> (String, String) {
    let output = expctl(at, args);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{args:?}: {stderr}");
    (stdout, stderr)
}

/// Expect an exit code; returns the messages.
fn refused(at: &Path, args: &[&str], code: i32) -> String {
    let output = expctl(at, args);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(code), ""), "{args:?}");
    text(&output.stderr)
}

/// Names of all files and folders, with the content of files.
fn everything(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        found.push((entry.clone(), std::fs::read(&entry).unwrap_or_default()));
        if entry.is_dir() {
            found.extend(everything(&entry));
        }
    }
    found.sort();
    found
}

#[test]
fn each_kind_is_made_checked_and_never_made_twice() {
    let dir = folder();
    let root = dir.path().canonicalize().unwrap();
    let kinds: [(&str, &[&str], &str); 5] = [
        ("cells", &["--h5ad", "own/cells.h5ad", "own/more.h5ad"], "files = [\"own/cells.h5ad\", \"own/more.h5ad\"]"),
        ("pattern", &["--h5ad", "own/[cm]*.h5ad"], "files = [\"own/[cm]*.h5ad\"]"),
        ("script", &["--script", "train.sh"], "worker.command = [\"bash\", \"train.sh\"]"),
        ("program", &["--script", "train"], "worker.command = [\"./train\"]"),
        ("graph", &["--graph"], "set = \"graph\""),
    ];
    for (name, kind, line) in kinds {
        let command = [&["init", name], kind].concat();
        let (stdout, stderr) = ok(&root, &command);
        let conf = root.join(format!("conf/{name}.toml"));
        assert_eq!(stdout, format!("{}\n", conf.display()));
        assert!(stderr.contains(&format!("ok {}: ", conf.display())), "{stderr}");
        let config = std::fs::read_to_string(&conf).unwrap();
        assert!(config.contains(line) && config.contains(&format!("study = \"{name}\"")), "{config}");
        assert!(!config.contains(['{', '}']) && root.join("experiments").join(name).is_dir(), "{config}");
        ok(&root, &["check", &format!("conf/{name}.toml")]);
        // A second one of the same name is refused, of whatever kind.
        let before = everything(&root);
        for kind in [kind, &["--graph"]] {
            let message = refused(&root, &[&["init", name], kind].concat(), 2);
            assert!(message.contains(&format!("error: {} exists", conf.display())), "{message}");
        }
        assert_eq!(everything(&root), before);
    }
}

#[test]
fn a_config_that_cannot_be_right_is_not_left_behind() {
    let dir = folder();
    let root = dir.path();
    let before = everything(root);
    let cases: [(&[&str], i32, &str); 8] = [
        (&["init", "new", "--h5ad", "own/broken.h5ad"], 3, "own/broken.h5ad"),
        (&["init", "new", "--h5ad", "own/absent.h5ad"], 3, "there is no file own/absent.h5ad"),
        (&["init", "new", "--h5ad", "own/*.zarr"], 3, "no file matches own/*.zarr"),
        (&["init", "new", "--script", "absent.py"], 3, "there is no file absent.py"),
        // Not one that may be run.
        (&["init", "new", "--script", "own/broken.h5ad"], 3, "chmod +x"),
        (&["init", "a/b", "--graph"], 2, "a name has letters, digits, - and _"),
        (&["init", "new"], 2, "--h5ad"),
        (&["init", "new", "--graph", "--script", "train.sh"], 2, "cannot be used with"),
    ];
    for (command, code, words) in cases {
        let message = refused(root, command, code);
        assert!(message.contains(words) && !message.contains("no project here"), "{command:?}: {message}");
        assert_eq!(everything(root), before, "{command:?}");
    }
}

#[test]
fn paths_are_from_the_project_wherever_init_is_called() {
    let dir = folder();
    let root = dir.path().canonicalize().unwrap();
    let project = root.join("project");
    std::fs::create_dir_all(project.join("experiments/old")).unwrap();
    std::fs::create_dir_all(project.join("deep/er")).unwrap();
    copy(&root.join("own/cells.h5ad"), &project.join("deep/cells.h5ad"));
    let (stdout, _) =
        ok(&project.join("deep/er"), &["init", "old", "--h5ad", "../cells.h5ad", "../../../own/more.h5ad"]);
    assert_eq!(stdout, format!("{}\n", project.join("conf/old.toml").display()));
    let config = std::fs::read_to_string(project.join("conf/old.toml")).unwrap();
    assert!(config.contains("/cells.h5ad\", ") && config.contains("/own/more.h5ad\"]"), "{config}");
    ok(&root, &["check", "project/conf/old.toml"]);
    // The study was there: nothing is added to it.
    assert_eq!(std::fs::read_dir(project.join("experiments/old")).unwrap().count(), 0);
    // Of a project that is named.
    ok(&root, &["--root", "project", "init", "new", "--script", "train.sh"]);
    assert!(project.join("conf/new.toml").is_file() && !root.join("conf").exists());
}

/// Ranks of expctl's own worker run what was made: rows of the files, and samples of the generated graph.
#[test]
fn what_was_made_runs() {
    let dir = folder();
    let root = dir.path();
    ok(root, &["init", "cells", "--h5ad", "own/cells.h5ad"]);
    ok(root, &["init", "graph", "--graph"]);
    for (name, variants) in [("cells", 2), ("graph", 3)] {
        let config = format!("conf/{name}.toml");
        let short = ["--set", "measure.repeats=1", "--set", "measure.steps=3", "--set", "data.samples=50"];
        let short = if name == "cells" { &short[..4] } else { &short };
        let submit = [&["submit", &config, "--backend", "local", "--wait"], short].concat();
        let (job, _) = ok(root, &submit);
        let trials = std::fs::read_dir(root.join("results/runs").join(job.trim())).unwrap();
        let trials = trials.filter(|entry| entry.as_ref().unwrap().path().join("attempt-1/outcome.json").is_file());
        assert_eq!(trials.count(), variants, "{name}");
    }
}
