//! The wheels, on an older system.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use test_support::{Requirement, skip};

use crate::common::text;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder of everything that is fetched.
fn cache() -> PathBuf {
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

/// Metadata, licences and the list of what is inside are made of the tree, and can be checked without a build.
#[test]
fn a_program_of_this_machine_is_no_wheel_for_old_ones() {
    let tools = cache().join("wheel-tools/bin/python");
    if !tools.exists() {
        return skip(Requirement::Other, "the tools of make wheels are not there");
    }
    let folder = tempfile::tempdir().unwrap();
    let (built, out) = (folder.path().join("built"), folder.path().join("dist"));
    std::fs::create_dir(&built).unwrap();
    // What ran this is linked with this system's libraries, whose symbols are newer.
    let program = env!("CARGO_BIN_EXE_expctl");
    for name in ["expctl", "expctl-worker", "libpython_loaders.so"] {
        std::fs::hard_link(program, built.join(name))
            .or_else(|_| std::fs::copy(program, built.join(name)).map(drop))
            .unwrap();
    }
    let python = |script: &str, arguments: &[&Path]| {
        Command::new(&tools).arg(root().join("scripts/wheels").join(script)).args(arguments).output().unwrap()
    };
    let packed = python("pack.py", &[&built, &out]);
    assert!(packed.status.success(), "{}", text(&packed.stderr));
    let wheels: Vec<PathBuf> = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(wheels.len(), 2, "{wheels:?}");
    let checked = python("check.py", &wheels.iter().map(PathBuf::as_path).collect::<Vec<_>>());
    assert_eq!(checked.status.code(), Some(1), "{}", text(&checked.stderr));
    assert!(text(&checked.stderr).contains("which manylinux_2_28 does not have"), "{}", text(&checked.stderr));
}
