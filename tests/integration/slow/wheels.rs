//! The wheels: what is in them, on an older system, and beside each PyTorch that a user may have.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use test_support::{Requirement, skip};

use crate::common::text;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn home() -> PathBuf {
    PathBuf::from(std::env::var_os("HOME").unwrap())
}

/// The folder of everything that is fetched.
pub(super) fn cache() -> PathBuf {
    std::env::var_os("EXPCTL_CACHE").map_or_else(|| home().join(".cache/expctl"), PathBuf::from)
}

/// The folder of wheels of the programs that are tested here (`make test` links them for older systems before it runs the tests), else of those
/// that `make wheels` made.
pub(super) fn wheels() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let has_wheels = |folder: &PathBuf| {
        let mut files = std::fs::read_dir(folder).into_iter().flatten().flatten();
        files.any(|entry| entry.path().extension().is_some_and(|end| end == "whl"))
    };
    [target.join("older/dist"), root().join("dist")].into_iter().find(has_wheels)
}

#[test]
fn wheels_run_where_the_c_library_is_older() {
    let Some(wheels) = wheels() else {
        return skip(Requirement::Other, "there are no wheels: make test links them, make wheels makes them");
    };
    let script = root().join("scripts/wheels/try_old_system.sh");
    let Output { status, stdout, stderr } =
        Command::new("bash").arg(script).arg(cache().join("debian-11")).arg(wheels).output().unwrap();
    let said = text(&stderr);
    match status.code() {
        Some(0) => {}
        Some(3) => return skip(Requirement::Other, said.lines().last().unwrap_or_default()),
        _ => panic!("{}\n{said}", text(&stdout)),
    }
    // A system without a compiler that is older than this one, a job there, and its note.
    assert!(said.contains("GLIBC 2.31") && text(&stdout).contains("samples/s"), "{}\n{said}", text(&stdout));
}

/// Metadata, licences and the list of what is inside are made of the tree, and can be checked without a build: the same programs give the same
/// wheels, byte for byte.
#[test]
fn a_program_of_this_machine_is_no_wheel_for_old_ones() {
    let tools = cache().join("wheel-tools/bin/python");
    if !tools.exists() {
        return skip(Requirement::Other, "the tools of make wheels are not there");
    }
    let folder = tempfile::tempdir().unwrap();
    let built = folder.path().join("built");
    std::fs::create_dir(&built).unwrap();
    // What ran this is linked with this system's libraries, whose symbols are newer. Small programs stand in for the other parts.
    let program = Path::new(env!("CARGO_BIN_EXE_expctl"));
    for (name, of) in [
        ("expctl", program),
        ("expctl-worker", Path::new("/bin/true")),
        ("libpython_loaders.so", Path::new("/bin/true")),
    ] {
        std::fs::hard_link(of, built.join(name)).or_else(|_| std::fs::copy(of, built.join(name)).map(drop)).unwrap();
    }
    let python = |script: &str, arguments: &[&Path]| {
        Command::new(&tools).arg(root().join("scripts/wheels").join(script)).args(arguments).output().unwrap()
    };
    let [wheels, again] = ["dist", "again"].map(|name| {
        let out = folder.path().join(name);
        let packed = python("pack.py", &[&built, &out]);
        assert!(packed.status.success(), "{}", text(&packed.stderr));
        let mut wheels: Vec<PathBuf> = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path()).collect();
        wheels.sort();
        wheels
    });
    assert_eq!(wheels.len(), 2, "{wheels:?}");
    for (one, other) in wheels.iter().zip(&again) {
        assert_eq!(one.file_name(), other.file_name());
        assert!(
            std::fs::read(one).unwrap() == std::fs::read(other).unwrap(),
            "{} is another one each time",
            one.display()
        );
    }
    // Its panics name files of the packages that were compiled here.
    let packages = std::env::var_os("CARGO_HOME").map_or_else(|| home().join(".cargo"), PathBuf::from);
    let without = [Path::new("--without"), packages.as_path()];
    let arguments: Vec<&Path> = without.into_iter().chain(wheels.iter().map(PathBuf::as_path)).collect();
    let checked = python("check.py", &arguments);
    let said = text(&checked.stderr);
    assert_eq!(checked.status.code(), Some(1), "{said}");
    assert!(said.contains("which manylinux_2_28 does not have"), "{said}");
    assert!(said.contains(&format!("expctl names files in {}/", packages.display())), "{said}");

    // A program that carries a library of this system, as the worker carries the process group over NCCL.
    let library = Command::new("g++").arg("-print-file-name=libstdc++.so.6").output().unwrap();
    let library = std::fs::read(text(&library.stdout).trim()).unwrap();
    let (carrier, wheel) = (folder.path().join("carrier"), folder.path().join("carrier.whl"));
    std::fs::write(&carrier, [std::fs::read("/bin/true").unwrap(), library].concat()).unwrap();
    let packed = Command::new(&tools).args(["-m", "zipfile", "-c"]).args([&wheel, &carrier]).output().unwrap();
    assert!(packed.status.success(), "{}", text(&packed.stderr));
    let said = text(&python("check.py", &[&wheel]).stderr);
    assert!(said.contains("carrier.whl: carrier, a library in it, asks for GLIBC_2."), "{said}");
}

/// As others read them: objdump the programs, auditwheel the wheels.
#[test]
fn no_program_asks_for_a_newer_system() {
    let (Some(wheels), Some(environment)) = (wheels(), Environment::install()) else {
        return skip(Requirement::Other, "there are no wheels: make test links them, make wheels makes them");
    };
    let bin = environment.prefix.path().join("bin");
    let module = environment.packages().join("expctl/_native.abi3.so");
    for program in [bin.join("expctl"), bin.join("expctl-worker"), module] {
        let dynamic = Command::new("objdump").arg("-T").arg(&program).output().unwrap();
        assert!(dynamic.status.success(), "{}", text(&dynamic.stderr));
        let symbols = text(&dynamic.stdout);
        // GLIBC_2.2.5, in brackets where nothing else has the name. GLIBC_PRIVATE is of one build of it alone.
        let words = symbols.split(|c: char| c.is_whitespace() || c == '(' || c == ')');
        let versions: BTreeSet<Vec<u32>> = words
            .filter_map(|word| word.strip_prefix("GLIBC_"))
            .map(|version| version.split('.').map(|number| number.parse().unwrap()).collect())
            .collect();
        let newest = versions.last().map(Vec::as_slice);
        assert!(newest.is_some_and(|newest| newest <= [2, 28].as_slice()), "{}: {versions:?}", program.display());
        // The day and the folder of a build of HDF5 are no part of it.
        let content = std::fs::read(&program).unwrap();
        assert!(!has(&content, b"SUMMARY OF THE HDF5 CONFIGURATION"), "{}", program.display());
    }
    let python = cache().join("wheel-tools/bin/python");
    for wheel in std::fs::read_dir(wheels).unwrap().map(|entry| entry.unwrap().path()) {
        let shown = Command::new(&python).args(["-m", "auditwheel", "show", "--json"]).arg(&wheel).output().unwrap();
        assert!(shown.status.success(), "{}", text(&shown.stderr));
        let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
        // libtorch is no library of a system, so the tag of all of the worker's wheel is none of manylinux.
        let tag = shown["sym_tag"].as_str().unwrap();
        let minor = tag.strip_prefix("manylinux_2_").and_then(|rest| rest.strip_suffix("_x86_64")?.parse::<u32>().ok());
        assert!(minor.is_some_and(|minor| minor <= 28), "{}: {tag}", wheel.display());
    }
}

/// Whether `content` has these bytes somewhere.
fn has(content: &[u8], bytes: &[u8]) -> bool {
    content.windows(bytes.len()).any(|window| window == bytes)
}

/// An environment into which pip installed both wheels, without PyTorch.
struct Environment {
    prefix: tempfile::TempDir,
}

impl Environment {
    /// `None`: the tools or the wheels are not there.
    fn install() -> Option<Self> {
        let (python, wheels) = (cache().join("wheel-tools/bin/python"), wheels()?);
        let files = std::fs::read_dir(wheels).ok()?.flatten().map(|entry| entry.path());
        let files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "whl")).collect();
        let environment = Self { prefix: tempfile::tempdir().unwrap() };
        let packages = environment.packages();
        let arguments = "-m pip install --quiet --no-deps --no-index --no-compile --only-binary :all: --python-version 3.11 --implementation cp \
                         --abi cp311 --abi abi3 --abi none --platform manylinux_2_28_x86_64 --target";
        let installed =
            Command::new(python).args(arguments.split_whitespace()).arg(&packages).args(files).output().ok()?;
        assert!(installed.status.success(), "{}", text(&installed.stderr));
        // pip --target puts programs into the folder of packages; an environment has them beside it.
        std::fs::rename(packages.join("bin"), environment.prefix.path().join("bin")).unwrap();
        Some(environment)
    }

    fn packages(&self) -> PathBuf {
        self.prefix.path().join("lib/python3.11/site-packages")
    }

    /// Code and both outputs of `expctl` of this environment, in a starter project.
    fn expctl(&self, arguments: &[&str], library_path: Option<&Path>) -> (Option<i32>, String, String) {
        let (bin, project) = (self.prefix.path().join("bin"), self.prefix.path().join("project"));
        std::fs::create_dir_all(&project).unwrap();
        let mut command = Command::new(bin.join("expctl"));
        command.args(arguments).current_dir(project).env_clear();
        command.env("HOME", self.prefix.path()).env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
        command.envs(library_path.map(|path| ("LD_LIBRARY_PATH", path)));
        let Output { status, stdout, stderr } = command.output().unwrap();
        (status.code(), text(&stdout), text(&stderr))
    }

    /// The line of `expctl doctor` on libtorch.
    fn libtorch_line(&self, library_path: Option<&Path>) -> String {
        let (_, stdout, stderr) = self.expctl(&["doctor"], library_path);
        let lines: Vec<&str> = stdout.lines().filter(|line| line.contains("libtorch")).collect();
        let [line] = lines[..] else { panic!("not one line on libtorch\n{stdout}\n{stderr}") };
        line.to_owned()
    }
}

/// What comes along with a program: the licences of all that is in it, the list of that, manual pages and completions.
#[test]
fn a_wheel_tells_what_is_in_it() {
    let Some(environment) = Environment::install() else {
        return skip(Requirement::Other, "there are no wheels: make test links them, make wheels makes them");
    };
    let packages = environment.packages();
    for wheel in ["expctl_hpc", "expctl_worker"] {
        let info = packages.join(format!("{wheel}-{}.dist-info", env!("CARGO_PKG_VERSION")));
        let read = |file: &str| {
            std::fs::read_to_string(info.join(file)).unwrap_or_else(|error| panic!("{wheel}: {file}: {error}"))
        };
        // What pip is told, and that the other project of the index is not asked for.
        let metadata = read("METADATA");
        let lines = |start: &str| -> Vec<String> {
            metadata.lines().filter_map(|line| line.strip_prefix(start)).map(str::to_owned).collect()
        };
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(lines("Name: "), [wheel.replace('_', "-")]);
        assert_eq!(lines("Version: "), [version]);
        assert_eq!(lines("Requires-Python: "), [">=3.10"]);
        let (tag, needs) = match wheel {
            "expctl_worker" => ("py3-none", vec!["torch==2.11.*".to_owned()]),
            _ => ("cp310-abi3", vec![format!("expctl-worker=={version}; extra == 'worker'")]),
        };
        let asked: Vec<String> = lines("Requires-Dist: ")
            .into_iter()
            .filter(|line| wheel == "expctl_worker" || line.starts_with("expctl"))
            .collect();
        assert_eq!(asked, needs);
        assert!(read("WHEEL").contains(&format!("\nTag: {tag}-manylinux_2_28_x86_64\n")), "{}", read("WHEEL"));
        for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
            assert_eq!(read(&format!("licenses/{licence}")), std::fs::read_to_string(root().join(licence)).unwrap());
        }
        let licences = read("licenses/THIRD_PARTY.txt");
        let heads = licences.lines().filter_map(|line| line.strip_prefix("Of "));
        let with_text: BTreeSet<&str> = heads.flat_map(|line| line.split(", ")).collect();
        let parts: serde_json::Value = serde_json::from_str(&read("sboms/expctl.cyclonedx.json")).unwrap();
        let parts = parts["components"].as_array().unwrap();
        for part in parts {
            let name = part["name"].as_str().unwrap();
            // The text of a C library is that of the package that has its source.
            let source = part["description"].as_str().and_then(|text| text.strip_prefix("C source in "));
            let of = source.map(str::to_owned).unwrap_or_else(|| match part["version"].as_str() {
                Some(version) => format!("{name} {version}"),
                None => name.to_owned(),
            });
            assert!(with_text.contains(of.as_str()), "{wheel}: {name} is in it without the licence of {of}");
        }
        for (library, holder) in [
            ("bzip2", "Julian R Seward"),
            ("c-blosc", "Francesc Alted"),
            ("DejaVu Sans", "Bitstream"),
            ("HDF5", "The HDF Group"),
            ("libdeflate", "Eric Biggers"),
            ("LMDB", "Howard Chu"),
            ("lz4", "Yann Collet"),
            ("PyTorch", "Soumith Chintala"),
            ("zlib", "Mark Adler"),
            ("zstd", "Meta Platforms"),
        ] {
            assert!(parts.iter().any(|part| part["name"] == library), "{wheel}: {library}");
            assert!(licences.contains(holder), "{wheel}: {library} is of {holder}");
        }
    }
    for file in [
        "man/man1/expctl.1",
        "man/man1/expctl-submit.1",
        "bash-completion/completions/expctl",
        "fish/vendor_completions.d/expctl.fish",
        "zsh/site-functions/_expctl",
    ] {
        let text = std::fs::read_to_string(packages.join("share").join(file)).unwrap_or_default();
        assert!(text.contains("expctl") && text.len() > 500, "{file}: {text}");
    }
}

/// No PyTorch, one of another version, the right one, a site's own beside a wrong one, and one for CUDA without a driver: each is one line that
/// says what to do.
#[test]
fn each_pytorch_that_a_user_may_have_is_one_line() {
    let Some(libtorch) = std::env::var_os("LIBTORCH").map(PathBuf::from) else {
        return skip(Requirement::Other, "LIBTORCH names no libtorch");
    };
    let Some(environment) = Environment::install() else {
        return skip(Requirement::Other, "there are no wheels: make test links them, make wheels makes them");
    };
    let torch = environment.packages().join("torch");
    let to_install = "pip install 'torch==2.11.*'";

    let line = environment.libtorch_line(None);
    assert!(line.contains("the worker finds none") && line.contains(to_install), "{line}");
    assert_eq!(environment.expctl(&["init", "first", "--graph"], None).0, Some(0));
    let (code, stdout, stderr) = environment.expctl(&["submit", "conf/first.toml", "--backend", "local"], None);
    assert_eq!((code, stdout.as_str()), (Some(70), ""), "{stderr}");
    assert!(
        stderr.contains("libtorch_cpu.so") && stderr.contains("not found") && stderr.contains(to_install),
        "{stderr}"
    );

    std::fs::create_dir(&torch).unwrap();
    std::os::unix::fs::symlink(libtorch.join("lib"), torch.join("lib")).unwrap();
    std::fs::write(torch.join("version.py"), "__version__ = '2.10.0+cpu'\n").unwrap();
    let line = environment.libtorch_line(None);
    assert!(line.contains("2.10.0+cpu") && line.contains("is built for 2.11") && line.contains(to_install), "{line}");
    let one = ["submit", "conf/first.toml", "--backend", "local", "--only", "ids", "--set", "measure.repeats=1"];
    let (code, stdout, stderr) = environment.expctl(&one, None);
    assert_eq!((code, stdout.as_str()), (Some(70), ""), "{stderr}");
    assert!(stderr.contains("it needs libtorch 2.11, and ") && stderr.contains(" has 2.10.0+cpu"), "{stderr}");

    let site = environment.prefix.path().join("site");
    std::os::unix::fs::symlink(&libtorch, &site).unwrap();
    let line = environment.libtorch_line(Some(&site.join("lib")));
    assert!(line.contains("2.11.0") && line.contains("site/lib") && !line.contains(to_install), "{line}");
    let to_the_end = [&one[..], &["--wait"]].concat();
    let (code, stdout, stderr) = environment.expctl(&to_the_end, Some(&site.join("lib")));
    assert_eq!((code, stdout.as_str()), (Some(0), "1\n"), "{stderr}");
    let provenance = environment.prefix.path().join("project/results/runs/1/provenance.json");
    let provenance: serde_json::Value = serde_json::from_slice(&std::fs::read(provenance).unwrap()).unwrap();
    assert_eq!(provenance["libtorch"]["folder"].as_str(), site.join("lib").to_str(), "{provenance}");

    std::fs::write(torch.join("version.py"), "__version__ = '2.11.0+cpu'\n").unwrap();
    let line = environment.libtorch_line(None);
    assert!(line.contains("2.11.0+cpu") && !line.contains(to_install), "{line}");

    // One for CUDA has one library more.
    std::fs::remove_file(torch.join("lib")).unwrap();
    std::fs::create_dir(torch.join("lib")).unwrap();
    for library in std::fs::read_dir(libtorch.join("lib")).unwrap().map(|entry| entry.unwrap()) {
        std::os::unix::fs::symlink(library.path(), torch.join("lib").join(library.file_name())).unwrap();
    }
    let cuda = torch.join("lib/libtorch_cuda.so");
    if !cuda.exists() {
        std::fs::write(cuda, "").unwrap();
    }
    std::fs::write(torch.join("version.py"), "__version__ = '2.11.0+cu130'\n").unwrap();
    if !host_metrics::hardware(false).gpus.is_empty() {
        return skip(Requirement::Other, "this machine has a driver, so a PyTorch for CUDA without one is not tried");
    }
    let line = environment.libtorch_line(None);
    let idle = "it is for CUDA, and no driver shows a GPU here: ranks compute on the host";
    assert!(line.contains("2.11.0+cu130") && line.contains(idle) && !line.contains(to_install), "{line}");
    let (code, _, stderr) = environment.expctl(&to_the_end, None);
    assert_eq!(code, Some(0), "{stderr}");
    let on_gpu = [&to_the_end[..], &["--set", "launch.device=cuda"]].concat();
    let (code, _, stderr) = environment.expctl(&on_gpu, None);
    assert_eq!(code, Some(5), "{stderr}");
    assert!(stderr.contains("launch.device is \"cuda\": this machine has no NVIDIA driver"), "{stderr}");
}

/// `make demo` runs what `make wheels` made, as long as no source is newer; else it builds, and a build that fails ends it.
#[test]
fn the_demo_takes_the_programs_of_new_wheels() {
    let Some(libtorch) = std::env::var_os("LIBTORCH") else {
        return skip(Requirement::Other, "LIBTORCH names no libtorch");
    };
    let Some(wheels) = wheels() else {
        return skip(Requirement::Other, "there are no wheels: make test links them, make wheels makes them");
    };
    let is_new = ["-c", "import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 10))"];
    if !Command::new("python3").args(is_new).output().is_ok_and(|output| output.status.success()) {
        return skip(Requirement::Python, "python3 is not there, older than 3.10 or without venv");
    }
    // A clone whose two configs are small.
    let clone = tempfile::tempdir().unwrap();
    let at = |path: &str| clone.path().join(path);
    for folder in ["cache", "crates", "python", "scripts", "src"] {
        std::fs::create_dir(at(folder)).unwrap();
    }
    for (file, content) in
        [("Cargo.lock", ""), ("Cargo.toml", ""), ("Makefile", "build:\n\t@echo cargo is asked >&2; false\n")]
    {
        std::fs::write(at(file), content).unwrap();
    }
    for script in ["scripts/common.sh", "scripts/demo.sh"] {
        std::fs::copy(root().join(script), at(script)).unwrap();
    }
    let outside = |command: &mut Command| {
        for name in ["EXPCTL_ROOT", "EXPCTL_DATA", "EXPCTL_RUNS", "EXPCTL_WORKER", "EXPCTL_PROFILE", "EXPCTL_ON_END"] {
            command.env_remove(name);
        }
        command.current_dir(clone.path()).env("EXPCTL_CACHE", at("cache")).env("LIBTORCH", &libtorch);
        let output = command.env("XDG_CACHE_HOME", at("cache")).env("XDG_CONFIG_HOME", at("cache")).output().unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let made = outside(Command::new(env!("CARGO_BIN_EXE_expctl")).args(["init", "demo", "--graph"]));
    assert_eq!(made.0, Some(0), "{}", made.2);
    let config = std::fs::read_to_string(at("conf/demo.toml")).unwrap();
    let short = config.replace("\nsteps = 200", "\nsteps = 20").replace("\nrepeats = 3", "\nrepeats = 1");
    for name in ["conf/demo.toml", "conf/086_dataloader.toml"] {
        std::fs::write(at(name), &short).unwrap();
    }
    std::fs::create_dir(at("dist")).unwrap();
    for wheel in std::fs::read_dir(wheels).unwrap().map(|entry| entry.unwrap()) {
        std::fs::copy(wheel.path(), at("dist").join(wheel.file_name())).unwrap();
    }
    let (code, stdout, stderr) = outside(Command::new("bash").arg("scripts/demo.sh"));
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("the programs of dist/*.whl, in ") && !stderr.contains("cargo is asked"), "{stderr}");
    let notes: Vec<&str> = stdout.lines().filter(|line| line.ends_with(".md")).collect();
    assert!(
        notes.len() == 2 && notes[0].ends_with("demo_1.md") && notes[1].ends_with("086_dataloader_2.md"),
        "{stdout}"
    );

    for wheel in std::fs::read_dir(at("dist")).unwrap().map(|entry| entry.unwrap().path()) {
        let before = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        std::fs::File::options().append(true).open(wheel).unwrap().set_modified(before).unwrap();
    }
    // Programs of an earlier build.
    std::fs::create_dir(at("bin")).unwrap();
    std::os::unix::fs::symlink("/bin/true", at("bin/expctl")).unwrap();
    let (code, stdout, stderr) = outside(Command::new("bash").arg("scripts/demo.sh"));
    assert!(code != Some(0) && stderr.contains("cargo is asked") && stdout.is_empty(), "{code:?} {stdout}\n{stderr}");
    assert!(!stderr.contains("expctl submit"), "{stderr}");
}
