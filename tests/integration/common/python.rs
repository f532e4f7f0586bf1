use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Interpreter of the project's Python environment, which its script sets up where it is missing.
pub fn interpreter() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/python.sh");
    let setup = Command::new("bash").arg(script).stderr(Stdio::inherit()).output().unwrap();
    assert!(setup.status.success(), "scripts/python.sh failed");
    PathBuf::from(String::from_utf8(setup.stdout).unwrap().trim())
}
