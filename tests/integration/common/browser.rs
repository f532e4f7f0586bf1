//! A browser for tests that open pages, and Perfetto's own trace processor in it.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value as Json;
use test_support::{Requirement, skip_test};

/// The browser, or why there is none where it could not be installed.
fn installed() -> Result<PathBuf, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/chromium.sh");
    let found = Command::new("timeout").args(["1800", "bash"]).arg(script).stderr(Stdio::inherit()).output().unwrap();
    match found.status.code() {
        Some(0) => Ok(PathBuf::from(String::from_utf8(found.stdout).unwrap().trim())),
        Some(75) => Err("no Chromium is there, and none can be installed here".to_owned()),
        other => Err(format!("scripts/chromium.sh failed ({other:?})")),
    }
}

/// The browser; none where it can not be installed, which is then said: `what` is skipped.
pub fn chromium(what: &str) -> Option<PathBuf> {
    match installed() {
        Ok(program) => Some(program),
        Err(why) => {
            assert!(why.starts_with("no Chromium"), "{why}");
            skip_test(what, Requirement::Chromium, why);
            None
        }
    }
}

/// A Python program of tests/python, to be ended with the browser that it starts where it takes more than 400 s.
pub fn python(program: &str) -> Command {
    // Its own limit comes first and ends the browser, too.
    let mut python = Command::new("timeout");
    python.args(["--kill-after=10", "400", "python3"]);
    python.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python").join(program));
    python
}

/// The rows that Perfetto answers each of `queries` (SQL) with over `trace`; none where there is no browser.
pub fn ask_perfetto(trace: &Path, queries: &[&str]) -> Option<Vec<Vec<Vec<Json>>>> {
    let chromium = chromium("the trace was not opened in Perfetto")?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/perfetto.sh");
    let found = Command::new("bash").arg(script).stderr(Stdio::inherit()).output().unwrap();
    assert!(found.status.success(), "scripts/perfetto.sh failed");
    let viewer = String::from_utf8(found.stdout).unwrap();
    let mut asked = python("perfetto.py");
    asked.arg(chromium).arg(viewer.trim()).arg(trace);
    asked.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut asked = asked.spawn().unwrap();
    asked.stdin.take().unwrap().write_all(&serde_json::to_vec(queries).unwrap()).unwrap();
    let output = asked.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}
