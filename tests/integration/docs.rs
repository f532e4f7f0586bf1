//! What the documentation says of crates and of faults over ssh: its list of dependencies is complete, the programs that it shows build and run, and
//! tests look for the messages that it shows.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use test_support::{Requirement, skip};

use crate::common::text;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn every_direct_dependency_is_accounted_for() {
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let text = read(&root().join("docs/design/dependencies.md"));
    let named: BTreeSet<&str> = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_')).collect();
    let mut manifests = vec![root().join("Cargo.toml")];
    let crates = std::fs::read_dir(root().join("crates")).unwrap();
    manifests.extend(crates.map(|entry| entry.unwrap().path().join("Cargo.toml")).filter(|path| path.is_file()));
    assert!(manifests.len() > 4);
    let manifests: Vec<(PathBuf, toml::Table)> =
        manifests.into_iter().map(|path| (path.clone(), toml::from_str(&read(&path)).unwrap())).collect();
    let ours: BTreeSet<&str> =
        manifests.iter().map(|(_, manifest)| manifest["package"]["name"].as_str().unwrap()).collect();
    for (path, manifest) in &manifests {
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            for name in manifest.get(section).and_then(toml::Value::as_table).into_iter().flat_map(toml::Table::keys) {
                assert!(
                    ours.contains(name.as_str()) || named.contains(name.as_str()),
                    "{name} of {} is not named",
                    path.display()
                );
            }
        }
    }
}

/// Programs, the Python package and the changelog are of one version.
#[test]
fn versions_are_in_step() {
    let (read, own) = (|file: &str| std::fs::read_to_string(root().join(file)).unwrap(), env!("CARGO_PKG_VERSION"));
    let manifest: toml::Table = toml::from_str(&read("python/pyproject.toml")).unwrap();
    let package = &manifest["project"];
    assert_eq!((package["name"].as_str(), package["version"].as_str()), (Some("expctl-hpc"), Some(own)));
    assert!(read("python/src/expctl/__init__.py").contains(&format!("\n__version__ = \"{own}\"\n")));
    assert!(read("CHANGELOG.md").contains(&format!("\n## [{own}] - ")));
}

/// The name `expctl` on the package index is somebody else's. Nothing may install it, or tell anybody to.
#[test]
fn nobody_is_told_to_install_the_other_project() {
    let asks = regex::Regex::new(r"(?:pipx?|uv tool) install (?:-\S+ )*['\x22]?expctl(?:[^-_a-z]|$)").unwrap();
    for (line, is_other) in [
        ("pip install expctl", true),
        ("pipx install --quiet 'expctl==0.2.0'", true),
        ("pip install 'expctl-hpc[worker]'", false),
        ("pip install dist/expctl_hpc-*.whl", false),
    ] {
        assert_eq!(asks.is_match(line), is_other, "{line}");
    }
    let endings = ["md", "j2", "rs", "sh", "py", "toml", "def", "lua", "txt"];
    let mut files = vec![root().join("README.md"), root().join("Makefile")];
    for folder in ["benches", "conf", "crates", "docs", "examples", "python", "scripts", "slurm", "src"] {
        files.extend(all_files(&root().join(folder)));
    }
    let mut read = 0;
    for file in files {
        if file.extension().is_some_and(|end| !endings.iter().any(|known| end == *known)) {
            continue;
        }
        // Names without an ending are of scripts, and of binary files.
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        read += 1;
        let told: Vec<&str> = text.lines().filter(|line| asks.is_match(line)).collect();
        assert!(told.is_empty(), "{}: {told:?}", file.display());
    }
    assert!(read > 500, "{read}");
}

/// Files with the tests that docs/guide/remote.md names.
const FAULT_TESTS: [&str; 4] = [
    "tests/integration/remote.rs",
    "tests/integration/slow/ssh.rs",
    "tests/integration/slow/ssh_verbs.rs",
    "src/remote/running_mark.rs",
];

#[test]
fn faults_over_ssh_are_documented_as_their_tests_see_them() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let sources = FAULT_TESTS.map(read);
    let functions: BTreeMap<&str, &str> = sources.iter().flat_map(|source| functions_of(source)).collect();
    let document = read("docs/guide/remote.md");
    let (_, table) = document.split_once("<!-- faults -->\n").expect("a begin");
    let (table, _) = table.split_once("<!-- /faults -->").expect("an end");
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    assert!(rows.len() > 20, "{table}");
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [_, message, _, tests] = &cells[..] else { panic!("{row}") };
        let mut text = String::new();
        assert!(tests.contains('`'), "{row}");
        for test in tests.split('`').skip(1).step_by(2) {
            let is_test = |indent: &str| format!("#[test]\n{indent}fn {test}() {{");
            let exists =
                ["", "    "].iter().any(|indent| sources.iter().any(|source| source.contains(&is_test(indent))));
            assert!(exists, "there is no test {test}");
            add_with_called(&functions, test, &mut BTreeSet::new(), &mut text);
        }
        // The machine has another name there.
        let messages: Vec<String> =
            message.split('`').skip(1).step_by(2).map(|words| words.replace("delta", "far")).collect();
        for words in messages.iter().flat_map(|message| message.split('…')) {
            assert!(text.contains(words), "no test of this row looks for {words:?}: {row}");
        }
        let codes = message.split('`').step_by(2).flat_map(|between| between.split(|c: char| !c.is_ascii_digit()));
        for code in codes.filter(|code| !messages.is_empty() && !code.is_empty()) {
            let mut numbers = text.split(|c: char| !c.is_ascii_alphanumeric());
            assert!(numbers.any(|number| number == code), "no test of this row looks for the exit code {code}: {row}");
        }
    }
}

/// The functions in a file, each with its text.
fn functions_of(source: &str) -> BTreeMap<&str, &str> {
    let mut functions = BTreeMap::new();
    for (at, _) in source.match_indices("fn ") {
        let begin = source[..at].rfind('\n').map_or(0, |end| end + 1);
        let name = source[at + 3..].split(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default();
        let indent = source[begin..].len() - source[begin..].trim_start_matches(' ').len();
        let end = format!("\n{}}}\n", &source[begin..begin + indent]);
        let is_function = source[begin..at].trim().split(' ').all(|word| ["", "pub", "async"].contains(&word));
        if let Some(length) = source[at..].find(&end).filter(|_| is_function && !name.is_empty()) {
            functions.insert(name, &source[at..at + length]);
        }
    }
    functions
}

/// Add the text of a function, and those of all functions that it calls.
fn add_with_called<'a>(
    functions: &BTreeMap<&'a str, &'a str>,
    name: &str,
    seen: &mut BTreeSet<&'a str>,
    text: &mut String,
) {
    let Some((&name, &body)) = functions.get_key_value(name) else { return };
    if !seen.insert(name) {
        return;
    }
    text.push_str(body);
    let is_called = |other: &str| {
        let mut calls = body.match_indices(other);
        calls.any(|(at, _)| {
            !body[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_')
                && body[at + other.len()..].starts_with('(')
        })
    };
    for &other in functions.keys() {
        if is_called(other) {
            add_with_called(functions, other, seen, text);
        }
    }
}

/// Crates for other programs: what `cargo publish` would send. Nothing outside their folders is needed, and every field that crates.io asks for is
/// there; a warning says so otherwise.
#[test]
fn public_crates_can_be_published() {
    let target = tempfile::tempdir().unwrap();
    let mut package = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    package.args(["package", "--offline", "--no-verify", "--allow-dirty", "--target-dir"]).arg(target.path());
    for name in PUBLIC_CRATES {
        package.args(["-p", name]);
    }
    let output = package.current_dir(root()).stdin(Stdio::null()).output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success() && !said.contains("warning"), "{said}");
    let mut sizes = Vec::new();
    for name in PUBLIC_CRATES {
        let folder = if name == "slurm-client" { "slurm" } else { name };
        let archive = target.path().join(format!("package/{name}-{}.crate", env!("CARGO_PKG_VERSION")));
        let files = Command::new("tar").arg("tzf").arg(&archive).output().unwrap();
        let files = text(&files.stdout);
        for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE", "src/lib.rs"] {
            assert!(files.lines().any(|line| line.ends_with(&format!("/{file}"))), "{name}: {file}\n{files}");
        }
        let package = root().join("crates").join(folder);
        for source in sources(&package.join("src")) {
            let text = std::fs::read_to_string(&source).unwrap();
            for included in text.split("include_str!(\"").skip(1).chain(text.split("include_bytes!(\"").skip(1)) {
                let path = source.parent().unwrap().join(included.split('"').next().unwrap());
                let path = path.canonicalize().unwrap_or_else(|e| panic!("{}: {e}", path.display()));
                assert!(path.starts_with(&package), "{name} includes {}", path.display());
            }
        }
        sizes.push(std::fs::metadata(archive).unwrap().len());
    }
    // crates.io takes 10 MB.
    assert!(sizes.iter().all(|size| *size < 2_000_000), "{sizes:?}");
}

/// The crates that others may take.
const PUBLIC_CRATES: [&str; 6] =
    ["anndata-io", "cell-loader", "graph-loader", "loader-core", "slurm-client", "torch-dist"];

/// All files of Rust below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    all_files(folder).into_iter().filter(|path| path.extension().is_some_and(|end| end == "rs")).collect()
}

/// All files below a folder.
fn all_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { all_files(&path) } else { vec![path] }).collect()
}

/// Programs of `examples/outside`, as somebody else's crate: outside the workspace, with nothing but paths to the libraries. The
/// first build takes minutes.
mod slow {
    use super::*;

    /// Folder of cargo's that the build goes to: what the workspace has built already serves again.
    fn target() -> PathBuf {
        Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().to_owned()
    }

    fn succeeded(output: Output) -> String {
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    }

    /// A fresh copy of the crate, always in the same folder, which is a part of the names of what cargo builds.
    fn copy() -> PathBuf {
        let copy = target().join("tmp/outside");
        let _ = std::fs::remove_dir_all(&copy);
        let crates = root().join("crates");
        let source = root().join("examples/outside");
        std::fs::create_dir_all(copy.join("src/bin")).unwrap();
        let manifest = std::fs::read_to_string(source.join("Cargo.toml")).unwrap();
        let here = manifest.replace("../../crates", crates.to_str().unwrap());
        assert_ne!(manifest, here);
        // The profile of the workspace: with another one all libraries would be built again. What lies here is built again in any case, and
        // is not measured.
        let workspace: toml::Table =
            toml::from_str(&std::fs::read_to_string(root().join("Cargo.toml")).unwrap()).unwrap();
        let mut profile = toml::Table::from_iter([("profile".to_owned(), workspace["profile"].clone())]);
        for library in ["anndata-io", "cell-loader", "loader-core"] {
            let quick = toml::Table::from_iter([("opt-level".to_owned(), 1.into())]);
            profile["profile"]["release"]["package"].as_table_mut().unwrap().insert(library.to_owned(), quick.into());
        }
        std::fs::write(copy.join("Cargo.toml"), format!("{here}\n{}", toml::to_string(&profile).unwrap())).unwrap();
        std::fs::copy(root().join("Cargo.lock"), copy.join("Cargo.lock")).unwrap();
        for program in ["first_rows.rs", "cell_batches.rs"] {
            std::fs::copy(source.join("src/bin").join(program), copy.join("src/bin").join(program)).unwrap();
        }
        copy
    }

    /// Builds the programs, and gives back what each prints about a file of 700 blood cells of 10 types.
    fn run() -> [String; 2] {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--release", "--offline", "--bins", "--quiet"]).current_dir(copy());
        // Cargo sets CARGO_PKG_NAME and the like for this test. Build scripts that depend on them (ring's) would run again, and with them
        // all that needs ring would be built anew: here, and in the next build of the workspace.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"CARGO_")) {
            if name != "CARGO_HOME" {
                build.env_remove(name);
            }
        }
        succeeded(build.env("CARGO_TARGET_DIR", target()).stdin(Stdio::null()).output().unwrap());
        let file = root().join("experiments/arrayloader/real/pbmc68k_reduced.h5ad");
        ["first_rows", "cell_batches"]
            .map(|program| succeeded(Command::new(target().join("release").join(program)).arg(&file).output().unwrap()))
    }

    /// Cells of each type in the file, as h5py reads it.
    const CELLS: [u64; 10] = [68, 8, 19, 54, 43, 129, 95, 13, 31, 240];

    /// As somebody with the rights publishes them, up to the upload: each after those that it needs. The registry is asked whether a version is free.
    #[test]
    fn public_crates_pass_a_dry_run() {
        let target = tempfile::tempdir().unwrap();
        let mut publish = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        publish.args(["publish", "--dry-run", "--no-verify", "--allow-dirty", "--target-dir"]).arg(target.path());
        for name in PUBLIC_CRATES {
            publish.args(["-p", name]);
        }
        let output = publish.current_dir(root()).stdin(Stdio::null()).output().unwrap();
        let said = text(&output.stderr);
        // What cargo says where the registry is out of reach; a crate that cannot be published has other errors.
        let unreachable =
            ["failed to update", "failed to download", "config.json failed", "network error", "--offline"];
        if !output.status.success() && unreachable.iter().any(|words| said.contains(words)) {
            return skip(Requirement::Other, "the registry of crates cannot be reached");
        }
        assert!(output.status.success(), "{said}");
        let mut warnings = said.lines().filter(|line| line.starts_with("warning"));
        assert!(warnings.all(|line| line == "warning: aborting upload due to dry run"), "{said}");
        let place = |name: &str| {
            let line = format!("Uploading {name} v{}", env!("CARGO_PKG_VERSION"));
            said.find(&line).unwrap_or_else(|| panic!("{line}: {said}"))
        };
        for name in PUBLIC_CRATES {
            place(name);
        }
        for (needed, by) in
            [("anndata-io", "cell-loader"), ("loader-core", "cell-loader"), ("loader-core", "graph-loader")]
        {
            assert!(place(needed) < place(by), "{by} needs {needed}: {said}");
        }
    }

    #[test]
    fn programs_outside_the_workspace_read_rows_and_batches() {
        let [rows, batches] = run();
        let expected = "700 cells x 765 genes\nCD14+ Monocyte: 217 values, FTL is 5.542\nDendritic: 231 values, FTL is 4.982\n\
                        CD56+ NK: 260 values, NKG7 is 4.353\n";
        assert_eq!(rows, expected);

        let lines: Vec<&str> = batches.lines().collect();
        let cells = |line: &str, start: &str| -> Vec<f64> {
            let list = line.strip_prefix(start).unwrap_or_else(|| panic!("{line}")).trim_matches(['[', ']']);
            list.split(", ").map(|count| count.parse().unwrap()).collect()
        };
        assert_eq!(lines[0], format!("shuffled: 11 batches, cells of each type {CELLS:?}"));
        // Shares of the types in the sum of n_counts.
        let by_counts: [f64; 10] =
            [0.09334, 0.01353, 0.02750, 0.07316, 0.06225, 0.15693, 0.14485, 0.02347, 0.03594, 0.36901];
        for (line, start, shares) in [
            (lines[1], "weighted: 110 batches, cells of each type ", by_counts),
            (lines[2], "balanced: 110 batches, cells of each type ", [0.1; 10]),
        ] {
            let counts = cells(line, start);
            assert_eq!(counts.iter().sum::<f64>(), 7000.0, "{line}");
            for (count, share) in counts.iter().zip(shares) {
                let deviation = (7000.0 * share * (1.0 - share)).sqrt();
                assert!((count - 7000.0 * share).abs() < 5.0 * deviation, "{line}: {share}");
            }
        }
    }
}
