//! `report --html` in a real browser. `EXPCTL_SCREENSHOTS=FOLDER` keeps pictures of the page.
#![expect(clippy::unwrap_used, reason = "a test")]

mod common;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::TestProject;
use common::ledger::{completed, steps};
use expctl_record::Stage;

/// What would run, or be fetched, if a name were taken for markup.
const HOSTILE: &str = "Ids <img src=x onerror=stolen=1> | <b>only</b>";

/// Two variants on 1, 2 and 4 ranks, three runs each, with step times that vary and a rank that is late.
fn ledger(project: &TestProject) {
    let mut trials = Vec::new();
    for (variant, method) in [("lazy", "Lazy"), ("ids", HOSTILE)] {
        for ranks in [1, 2, 4] {
            for repeat in 1..=3 {
                let mut trial = project.trial(variant, method, repeat, |s| s.launch.ranks = ranks);
                trial.id = format!("{variant}-{ranks}-r{repeat}-0a1b2c");
                trial.point = BTreeMap::from([("launch.ranks".to_owned(), ranks.into())]);
                trials.push(trial);
            }
        }
    }
    let dir = project.submitted(12, "086_ddp", trials.clone());
    for trial in &trials {
        let wall = if trial.variant == "lazy" { 40 } else { 11 } + u64::from(trial.repeat);
        let ranks: Vec<_> = (0..trial.settings.launch.ranks)
            .map(|rank| {
                let mut rows = steps(wall, 0);
                for row in &mut rows {
                    // Neither even nor at random: the same picture every time.
                    let late = if rank == 1 { 0 } else { row.wall_ns / 10 };
                    row.wall_ns += row.wall_ns / 16 * (row.step * 7 % 11);
                    row.exposed[Stage::Allreduce] = late;
                }
                rows
            })
            .collect();
        completed(&dir, trial, &ranks);
    }
}

/// The browser, or why there is none where it could not be installed.
fn chromium() -> Result<PathBuf, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/chromium.sh");
    let found = Command::new("bash").arg(script).stderr(Stdio::inherit()).output().unwrap();
    match found.status.code() {
        Some(0) => Ok(PathBuf::from(String::from_utf8(found.stdout).unwrap().trim())),
        Some(75) => Err("no Chromium is there, and no package source can be reached".to_owned()),
        other => Err(format!("scripts/chromium.sh failed ({other:?})")),
    }
}

#[test]
fn a_page_is_used_as_a_reader_would() {
    let project = TestProject::new();
    ledger(&project);
    let (stdout, _) = project.expect(&["report", "12", "--html"], 0);
    assert_eq!(stdout, "ROOT/results/086_ddp_12.md\nROOT/results/086_ddp_12.html\n");
    let page = project.file("results/086_ddp_12.html");
    let text = std::fs::read_to_string(&page).unwrap();
    for name in ["rates", "stages", "times", "ranks", "scaling"] {
        assert!(text.contains(&format!("id=\"plot-{name}\"")), "{name}");
        let picture = project.file(&format!("results/assets/images/086_ddp_12_{name}.svg"));
        assert!(picture.metadata().unwrap().len() < 500_000 && picture.with_extension("png").exists());
    }
    assert!(text.len() < 1_000_000, "{} bytes", text.len());
    assert!(
        !text.contains("http://")
            || text.matches("http://").count() == text.matches("http://www.w3.org/2000/svg").count()
    );
    let program = match chromium() {
        Ok(program) => program,
        Err(why) => {
            assert!(why.starts_with("no Chromium"), "{why}");
            // Past the capture of the test harness: a skipped test must be seen.
            writeln!(std::io::stderr(), "SKIPPED: the page was not opened in a browser: {why}").unwrap();
            return;
        }
    };
    let mut python = Command::new("python3");
    python.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/browse_page.py")).arg(program).arg(&page);
    python.args(std::env::var_os("EXPCTL_SCREENSHOTS"));
    let output = python.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.matches("ok: ").count() >= 27, "{said}");
}
