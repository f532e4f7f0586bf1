//! The loaders in Python: the tests of `python/tests/data`, on a Python with torch and on one without.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use test_support::{Requirement, skip};

use crate::common::programs::interpreter;
use crate::common::text;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What a script of the project prints; an error where it fails.
fn printed(script: &str) -> Result<PathBuf, Output> {
    let output = Command::new("bash").arg(root().join("scripts").join(script)).output().unwrap();
    if output.status.success() { Ok(PathBuf::from(text(&output.stdout).trim())) } else { Err(output) }
}

/// The folder of the installed package, which maturin builds from this tree.
static PACKAGE: LazyLock<PathBuf> = LazyLock::new(|| {
    printed("python_loaders.sh").unwrap_or_else(|output| panic!("python_loaders.sh: {}", text(&output.stderr)))
});

/// Run Python with the package and the folder of the tests in its path.
fn python(interpreter: &Path, arguments: &[&str]) -> Output {
    // The one with torch sets PYTHONPATH itself, and finds the package through the working folder and `-c`.
    let tests = root().join("python/tests/data");
    let path = format!("{}:{}", PACKAGE.display(), tests.display());
    let wrapper = std::fs::read_to_string(interpreter).unwrap_or_default();
    let mut command = match wrapper.starts_with("#!/bin/sh") {
        true => {
            let mut shell = Command::new("sh");
            shell.args(["-c", &wrapper.replace("PYTHONPATH=\"", &format!("PYTHONPATH=\"{path}:")), "python"]);
            shell
        }
        false => {
            let mut python = Command::new(interpreter);
            python.env("PYTHONPATH", &path);
            python
        }
    };
    command.args(arguments).env_remove("RANK").env_remove("WORLD_SIZE").stdin(Stdio::null()).output().unwrap()
}

/// Run the tests and return how many there were.
fn tests_pass(interpreter: &Path) -> usize {
    let tests = root().join("python/tests/data");
    let output = python(
        interpreter,
        &["-W", "error::ResourceWarning", "-m", "unittest", "discover", "-v", tests.to_str().unwrap()],
    );
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let ran = said.lines().find_map(|line| line.strip_prefix("Ran ")?.split(' ').next()?.parse().ok());
    ran.unwrap_or_else(|| panic!("{said}"))
}

#[test]
fn the_tests_pass_without_torch() {
    assert!(tests_pass(&interpreter()) >= 30);
}

#[test]
fn the_tests_pass_with_torch() {
    match printed("torch_python.sh") {
        Ok(interpreter) => assert!(tests_pass(&interpreter) >= 30),
        Err(output) if output.status.code() == Some(3) => skip(Requirement::Python, text(&output.stderr).trim()),
        Err(output) => panic!("torch_python.sh: {}", text(&output.stderr)),
    }
}

/// The example of the guide is the first thing that somebody tries.
#[test]
fn the_guide_runs_as_it_stands() {
    let guide = std::fs::read_to_string(root().join("docs/guide/python.md")).unwrap();
    let blocks: Vec<&str> = guide.split("```python\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() >= 4);
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "import os, cells\nfound = cells.Cells()\nos.makedirs('{0}/atlas')\n[os.rename(f, '{0}/atlas/' + os.path.basename(f)) for f in found.files]\nos.chdir('{0}')\n{1}",
        folder.path().display(),
        blocks.join("\n")
    );
    let Ok(interpreter) = printed("torch_python.sh") else {
        return skip(Requirement::Python, "no torch for this Python");
    };
    let output = python(&interpreter, &["-c", &script]);
    assert!(output.status.success(), "{}\n{}", text(&output.stderr), text(&output.stdout));
}

/// Two ranks train, and a second run finds that all epochs are done.
#[test]
fn the_example_trains_on_two_ranks() {
    let Ok(interpreter) = printed("torch_python.sh") else {
        return skip(Requirement::Python, "no torch for this Python");
    };
    let folder = tempfile::tempdir().unwrap();
    let example = root().join("python/examples/cells_ddp.py");
    let script = format!(
        "import cells, os, subprocess, sys\nfound = cells.Cells()\nos.chdir({:?})\n\
         run = [sys.executable, '-m', 'torch.distributed.run', '--nproc_per_node', '2', {example:?}, 'cell_type', *found.files]\n\
         for _ in range(2): print(subprocess.run(run, check=True, stdout=subprocess.PIPE, text=True).stdout)",
        folder.path()
    );
    let output = python(&interpreter, &["-c", &script]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", text(&output.stderr));
    for line in ["epoch 2: loss", "rank 0: 327 rows", "rank 1: 327 rows", "rank 0: 0 rows", "waited for batches"] {
        assert!(said.contains(line), "{line}: {said}");
    }
}

/// Type checkers read the stubs: they name all that the module has, and nothing else.
#[test]
fn stubs_name_what_the_module_has() {
    let stub = root().join("python/src/expctl/_native.pyi");
    let check = format!(
        "
import ast, expctl._native as native
tree = ast.parse(open({stub:?}).read())
top = {{node.name: node for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}}
has = {{name for name in dir(native) if not name.startswith('_')}}
assert has == set(top), has ^ set(top)
for name, node in top.items():
    if isinstance(node, ast.ClassDef) and name != 'DataError':
        said = {{item.name for item in node.body if isinstance(item, ast.FunctionDef)}} - {{'__init__'}}
        there = {{item for item in vars(getattr(native, name)) if not item.startswith('__')}}
        assert there <= said and all(hasattr(getattr(native, name), item) for item in said), (name, said ^ there)
",
    );
    let output = python(&interpreter(), &["-c", &check]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}
