//! Perfetto's own trace processor, in a browser.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value as Json;

use crate::common::browser::{chromium, python};

/// The rows that it answers each of `queries` (SQL) with over `trace`; none where there is no browser.
pub fn asked(trace: &Path, queries: &[&str]) -> Option<Vec<Vec<Vec<Json>>>> {
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
