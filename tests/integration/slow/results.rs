//! `expctl.results`: the tests of `python/tests/results` on Pythons with and without the packages that tables are made of.

use std::path::Path;
use std::process::{Command, Stdio};

use super::export::tools;
use crate::common::ledger::two_variants;
use crate::common::programs::{helper, interpreter};
use crate::common::{TestProject, text};
use crate::export::varied;

/// A project with the jobs that the tests expect.
fn project() -> TestProject {
    let project = TestProject::new();
    two_variants(&project, 12);
    varied(&project, 13);
    two_variants(&project, 14);
    project
}

fn command(python: &Path, project: &TestProject) -> Command {
    let mut command = Command::new(python);
    command.env("PYTHONPATH", helper()).env("EXPCTL", env!("CARGO_BIN_EXE_expctl")).stdin(Stdio::null());
    command.env("EXPCTL_TEST_LEDGER", project.path()).env_remove("EXPCTL_RUNS").env_remove("EXPCTL_ROOT");
    command
}

/// Run the tests; returns what Python said.
fn tests_pass(python: &Path) -> String {
    let project = project();
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/tests/results");
    let mut unittest = command(python, &project);
    unittest.args(["-W", "error::ResourceWarning", "-m", "unittest", "discover", "-v"]).arg(tests);
    let output = unittest.output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let ran = said.lines().find_map(|line| line.strip_prefix("Ran ")?.split(' ').next()?.parse().ok());
    assert!(ran >= Some(12) && !said.contains("skipped"), "{said}");
    said
}

#[test]
fn the_tests_pass_without_any_package() {
    // An interpreter that finds none, whatever is installed for it.
    let folder = tempfile::tempdir().unwrap();
    let bare = folder.path().join("bare");
    let made = Command::new(interpreter()).args(["-m", "venv", "--without-pip"]).arg(&bare).status().unwrap();
    assert!(made.success());
    tests_pass(&bare.join("bin/python"));
}

#[test]
fn the_tests_pass_with_pandas_and_arrow() {
    tests_pass(&interpreter());
}

#[test]
fn the_tests_pass_with_polars_too() {
    tests_pass(&tools());
}

/// What the guide shows runs as it stands.
#[test]
fn the_guide_runs() {
    let guide = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guide/results-in-python.md"));
    let guide = guide.unwrap();
    let blocks: Vec<&str> = guide.split("```python\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() >= 3, "{}", blocks.len());
    let project = project();
    let output =
        command(&tools(), &project).current_dir(project.path()).args(["-c", &blocks.join("\n")]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(!text(&output.stdout).is_empty());
}
