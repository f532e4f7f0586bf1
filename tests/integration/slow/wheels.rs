//! The wheels: what is in them, on an older system, and beside each PyTorch that a user may have.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use test_support::{Requirement, skip};

use crate::common::text;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder of everything that is fetched.
pub(super) fn cache() -> PathBuf {
    let home = || Path::new(&std::env::var("HOME").unwrap()).join(".cache/expctl");
    std::env::var("EXPCTL_CACHE").map_or_else(|_| home(), PathBuf::from)
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
    let checked = python("check.py", &wheels.iter().map(PathBuf::as_path).collect::<Vec<_>>());
    assert_eq!(checked.status.code(), Some(1), "{}", text(&checked.stderr));
    assert!(text(&checked.stderr).contains("which manylinux_2_28 does not have"), "{}", text(&checked.stderr));
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

/// No PyTorch, one of another version, the right one, and a site's own beside a wrong one: each is one line that says what to do.
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

    let site = environment.prefix.path().join("site");
    std::os::unix::fs::symlink(&libtorch, &site).unwrap();
    let line = environment.libtorch_line(Some(&site.join("lib")));
    assert!(line.contains("2.11.0") && line.contains("site/lib") && !line.contains(to_install), "{line}");

    std::fs::write(torch.join("version.py"), "__version__ = '2.11.0+cpu'\n").unwrap();
    let line = environment.libtorch_line(None);
    assert!(line.contains("2.11.0+cpu") && !line.contains(to_install), "{line}");
}
