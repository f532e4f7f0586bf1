//! The loaders in Python: the tests of `python/tests/data`, on a Python with torch, on one without, on one with PyTorch Geometric, on one with
//! Lightning, scvi-tools and torchdata, and on other versions of Python.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use test_support::{Requirement, skip};

use super::wheels::wheels;
use crate::common::programs::interpreter;
use crate::common::{TestProject, text};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What a script of the project prints; an error where it fails.
fn output_of(script: &str) -> Result<Output, Output> {
    let output = Command::new("bash").arg(root().join("scripts").join(script)).output().unwrap();
    if output.status.success() { Ok(output) } else { Err(output) }
}

/// The one line that a script of the project prints; an error where it fails.
fn printed(script: &str) -> Result<PathBuf, Output> {
    output_of(script).map(|output| PathBuf::from(text(&output.stdout).lines().next().unwrap()))
}

/// The folder of the installed package, which maturin builds from this tree.
static PACKAGE: LazyLock<PathBuf> = LazyLock::new(|| {
    printed("python_loaders.sh").unwrap_or_else(|output| panic!("python_loaders.sh: {}", text(&output.stderr)))
});

/// Build a small data set of a graph, with all stores, which the tests of `expctl.data.graph` read; returns its folder.
fn graph_set(project: &TestProject) -> PathBuf {
    let of = ["006-kuzmin-tmi", "--samples", "250", "--scale", "0.03", "--networks", "completed"];
    let stores = ["--to", "compressed", "--to", "full_masks", "--to", "packed_masks", "--to", "ids"];
    let folder = project.ok(&[&["data", "build"], &of[..]].concat());
    project.ok(&[&["data", "convert"], &of[..], &stores[..]].concat());
    project.path().join(folder.trim())
}

/// Installs what a file of requirements names, for a Python, with the pip of another; prints the folder. 3: that cannot be done.
///
/// Where there is a file for this version alone (`_cp310`), it is taken.
const INSTALL: &str = r#"
set -euo pipefail
. scripts/common.sh
name=$1 requirements=$2 python=$3 pip=("$4" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --require-hashes)
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
own=${requirements%.txt}_cp${version/./}.txt dir=$EXPCTL_CACHE/python-$name-$version
[ ! -e "$own" ] || requirements=$own
mark=$(cat "$requirements" scripts/requirements/build.txt | sha256sum)
exec 7>"$dir.lock"
flock 7
if [ "$(cat "$dir/.complete" 2>/dev/null)" != "$mark" ]; then
  rm -rf "$dir" "$dir.build"
  # For packages that are there as source alone.
  "${pip[@]}" --target "$dir.build" -r scripts/requirements/build.txt >&2 || exit 3
  PYTHONPATH=$dir.build "${pip[@]}" --no-build-isolation --python-version "$version" --target "$dir" -r "$requirements" >&2 || exit 3
  rm -rf "$dir.build"
  printf '%s' "$mark" > "$dir/.complete"
fi
echo "$dir"
"#;

/// The folder of packages that are installed for this Python. `None`, and the test says that it is skipped, where that cannot be done.
fn installed(name: &str, requirements: &str, python: &Path) -> Option<PathBuf> {
    let mut install = Command::new("bash");
    install.args(["-c", INSTALL, "install", name, requirements]).arg(python).arg(interpreter()).current_dir(root());
    let output = install.stdin(Stdio::null()).output().unwrap();
    if output.status.code() == Some(3) {
        skip(Requirement::Python, format!("{requirements}: {}", text(&output.stderr).trim()));
        return None;
    }
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(PathBuf::from(text(&output.stdout).trim()))
}

/// Run Python with the package of [`PACKAGE`], the folder of the tests and `more` in its path.
fn python(interpreter: &Path, more: &[&Path], graph: Option<&Path>, arguments: &[&str]) -> Output {
    python_with(interpreter, &[&[PACKAGE.as_path()], more].concat(), graph, arguments)
}

/// Run Python with these folders and that of the tests in its path.
fn python_with(interpreter: &Path, folders: &[&Path], graph: Option<&Path>, arguments: &[&str]) -> Output {
    // The one with torch sets PYTHONPATH itself, and finds the package through the working folder and `-c`.
    let tests = root().join("python/tests/data");
    let path = std::env::join_paths(folders.iter().copied().chain([tests.as_path()])).unwrap().into_string().unwrap();
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
    match graph {
        Some(graph) => command.env("EXPCTL_TEST_GRAPH", graph),
        None => command.env_remove("EXPCTL_TEST_GRAPH"),
    };
    command.args(arguments).env_remove("RANK").env_remove("WORLD_SIZE").stdin(Stdio::null()).output().unwrap()
}

/// Run the tests in files of this pattern. Returns how many there were, and what Python said.
fn tests_pass(interpreter: &Path, more: &[&Path], pattern: &str) -> (usize, String) {
    tests_pass_with(interpreter, &[&[PACKAGE.as_path()], more].concat(), pattern)
}

/// The same with these folders in the path of Python, and not the package.
fn tests_pass_with(interpreter: &Path, folders: &[&Path], pattern: &str) -> (usize, String) {
    let tests = root().join("python/tests/data");
    let arguments =
        ["-W", "error::ResourceWarning", "-m", "unittest", "discover", "-v", "-p", pattern, tests.to_str().unwrap()];
    let project = TestProject::new();
    let output = python_with(interpreter, folders, Some(&graph_set(&project)), &arguments);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(!said.contains("EXPCTL_TEST_GRAPH"), "{said}");
    let ran = said.lines().find_map(|line| line.strip_prefix("Ran ")?.split(' ').next()?.parse().ok());
    (ran.unwrap_or_else(|| panic!("{said}")), said)
}

#[test]
fn the_tests_pass_without_torch() {
    assert!(tests_pass(&interpreter(), &[], "test_*.py").0 >= 50);
}

#[test]
fn the_tests_pass_with_torch() {
    match printed("torch_python.sh") {
        Ok(interpreter) => assert!(tests_pass(&interpreter, &[], "test_*.py").0 >= 50),
        Err(output) if output.status.code() == Some(3) => skip(Requirement::Python, text(&output.stderr).trim()),
        Err(output) => panic!("torch_python.sh: {}", text(&output.stderr)),
    }
}

/// What torchcell's model gets is what PyTorch Geometric gave it.
#[test]
fn batches_are_those_of_pytorch_geometric() {
    let Ok(torch) = printed("torch_python.sh") else {
        return skip(Requirement::Python, "no torch for this Python");
    };
    let Some(pyg) = installed("pyg", "benches/peers/requirements/pyg.txt", &torch) else { return };
    let (ran, said) = tests_pass(&torch, &[&pyg], "test_graph_pyg.py");
    assert!(ran >= 5 && !said.contains("skipped"), "{said}");
}

/// Lightning and SCVI train from the loaders, and torchdata keeps their place.
#[test]
fn the_tests_pass_with_trainers() {
    let Ok(torch) = printed("torch_python.sh") else {
        return skip(Requirement::Python, "no torch for this Python");
    };
    let Some(trainers) = installed("trainers", "scripts/requirements/trainers.txt", &torch) else { return };
    for (pattern, least) in [("test_lightning.py", 1), ("test_scvi.py", 5), ("test_training.py", 9)] {
        let (ran, said) = tests_pass(&torch, &[&trainers], pattern);
        assert!(ran >= least && !said.contains("skipped"), "{pattern}: {said}");
    }
}

/// A fresh environment of this Python into which pip installed the wheel and nothing else; its interpreter.
fn environment(python: &Path, wheel: &Path, folder: &Path) -> PathBuf {
    let run = |command: &mut Command| {
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    // Debian's minimal Python has no pip to put into it; that of the tests installs.
    run(Command::new(python).args(["-m", "venv", "--without-pip"]).arg(folder));
    let inside = folder.join("bin/python");
    let asked = "import sysconfig; print(sysconfig.get_path('purelib'))";
    let packages = PathBuf::from(run(Command::new(&inside).args(["-c", asked])).trim());
    let version =
        packages.parent().unwrap().file_name().unwrap().to_str().unwrap().trim_start_matches("python").to_owned();
    let mut pip = Command::new(interpreter());
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-index",
        "--no-compile",
        "--only-binary",
        ":all:",
    ]);
    pip.args(["--python-version", &version, "--target"]).arg(&packages).arg(wheel);
    run(&mut pip);
    // What goes beside the packages of an environment lies in the folder that pip was told.
    assert_eq!(
        run(Command::new(packages.join("bin/expctl")).arg("--version")).trim(),
        format!("expctl {}", env!("CARGO_PKG_VERSION"))
    );
    inside
}

/// One wheel serves every Python from 3.10 on.
#[test]
fn the_tests_pass_on_other_pythons() {
    let found = match output_of("other_pythons.sh") {
        Ok(found) => found,
        Err(output) if output.status.code() == Some(3) => {
            return skip(Requirement::Other, text(&output.stderr).trim());
        }
        Err(output) => panic!("other_pythons.sh: {}", text(&output.stderr)),
    };
    for missing in text(&found.stderr).lines().filter(|line| line.starts_with("other_pythons: ")) {
        skip(Requirement::Other, missing);
    }
    let wheel = wheels().and_then(|folder| {
        let mut files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        files.find(|path| path.file_name().is_some_and(|name| name.to_str().unwrap().starts_with("expctl_hpc-")))
    });
    if wheel.is_none() {
        skip(Requirement::Other, "no wheel for other Pythons, they get the package as it is: make test links one");
    }
    for python in text(&found.stdout).lines().map(PathBuf::from) {
        let Some(packages) = installed("loaders", "scripts/requirements/loaders.txt", &python) else { return };
        let folder = tempfile::tempdir().unwrap();
        let (ran, said) = match &wheel {
            Some(wheel) => tests_pass_with(&environment(&python, wheel, folder.path()), &[&packages], "test_*.py"),
            None => tests_pass(&python, &[&packages], "test_*.py"),
        };
        assert!(ran >= 50, "{}: {said}", python.display());
    }
}

/// The example of the guide is the first thing that somebody tries.
#[test]
fn the_guide_runs_as_it_stands() {
    let guide = std::fs::read_to_string(root().join("docs/guide/python.md")).unwrap();
    let blocks: Vec<&str> = guide.split("```python\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() >= 4);
    let (folder, project) = (tempfile::tempdir().unwrap(), TestProject::new());
    std::os::unix::fs::symlink(graph_set(&project), folder.path().join("kuzmin")).unwrap();
    let script = format!(
        "import os, cells\nfound = cells.Cells()\nos.makedirs('{0}/atlas')\n[os.rename(f, '{0}/atlas/' + os.path.basename(f)) for f in found.files]\nos.chdir('{0}')\n{1}",
        folder.path().display(),
        blocks.join("\n")
    );
    let Ok(interpreter) = printed("torch_python.sh") else {
        return skip(Requirement::Python, "no torch for this Python");
    };
    let output = python(&interpreter, &[], None, &["-c", &script]);
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
    let output = python(&interpreter, &[], None, &["-c", &script]);
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
    let output = python(&interpreter(), &[], None, &["-c", &check]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}
