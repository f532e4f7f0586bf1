//! Files that AnnData, zarr, pyarrow and streaming write are read as Python reads them, and the other way round.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod h5ad_matrix;
mod matrix_cases;
mod mds;
mod parquet;
mod slow;
mod truth;
mod zarr_matrix;

use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs a script of `tests/python` with the packages that are pinned for tests; returns its standard output.
pub fn run_python(script: &str, arguments: &[&Path]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = |command: &mut Command| {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let interpreter = match std::env::var_os("EXPCTL_TEST_PYTHON") {
        Some(interpreter) => PathBuf::from(interpreter),
        None => output(&mut Command::new(root.join("scripts/python.sh"))).trim().into(),
    };
    output(Command::new(interpreter).arg(root.join("tests/python").join(script)).args(arguments))
}
