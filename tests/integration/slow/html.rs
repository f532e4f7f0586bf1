//! `report --html` in a real browser. `EXPCTL_SCREENSHOTS=FOLDER` keeps pictures of the page.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use expctl_ledger::{LearningRecord, Stage, Validation, append_learning};
use expctl_settings::Mode;

use crate::common::TestProject;
use crate::common::browser::{chromium, python};
use crate::common::ledger::{completed, in_epochs, steps};

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
    if let Some(said) = browse(&page, "use") {
        assert!(said.matches("ok: ").count() >= 27, "{said}");
    }
}

/// A job in four modes that trained: tables with columns aligned to the right, parts that the other one has not.
fn in_four_modes(project: &TestProject) {
    let modes = [Mode::Data, Mode::Forward, Mode::ForwardBackward, Mode::Train];
    let of = |mode: Mode| {
        let mut trial = project.trial("lazy", "Lazy", 1, |settings| {
            settings.train.mode = mode;
            settings.train.epochs = if mode == Mode::Train { 5 } else { 0 };
            settings.launch.ranks = 1;
            settings.experiment.links = vec!["other.note".into()];
        });
        trial.id = format!("lazy-{}-r1-0a1b2c", mode.name());
        trial.point = BTreeMap::from([("train.mode".to_owned(), mode.name().into())]);
        trial
    };
    let trials: Vec<_> = modes.into_iter().map(of).collect();
    let dir = project.submitted(12, "086_ddp", trials.clone());
    for (trial, wall) in trials.iter().zip([100, 150, 200, 220]) {
        completed(&dir, trial, &[steps(wall, 0)]);
    }
    let attempt = dir.attempts(&trials[3].id).unwrap().pop().unwrap();
    for epoch in 0..5 {
        let (samples, loss, mse, seconds) = (1000, 0.5, 0.004, 1.5);
        let (pearson, spearman) = (Some(0.3 + 0.01 * epoch as f64), Some(0.2));
        let record = LearningRecord {
            epoch,
            step: 4 * (epoch + 1),
            learning_rate: 0.001,
            train_loss: 1.0 / (epoch + 1) as f64,
            validation: Some(Validation { samples, loss, mse, pearson, spearman, seconds }),
            best: true,
            stopped: false,
        };
        append_learning(&attempt.learning_path(), &record).unwrap();
    }
}

#[test]
fn a_page_is_of_the_note_beside_it() {
    let project = TestProject::new();
    in_four_modes(&project);
    std::fs::write(project.file("expctl.toml"), "[notes]\nlinks = \"dendron\"\nvault = \"torchcell\"\n").unwrap();
    let template = "{% extends \"expctl/note.md.j2\" %}\n{% block conclusions %}\n<!-- expctl:begin conclusions -->\n\
                    ### My own part\n<!-- expctl:end conclusions -->\n{% endblock %}\n";
    std::fs::write(project.file("own.j2"), template).unwrap();
    let folder = project.file("vault");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("other.note.md"), "---\nid: x\ntitle: The Other Note\n---\n").unwrap();
    std::fs::write(folder.join("x.html"), "mine").unwrap();
    let own = project.file("own.j2");
    let (own, folder_arg) = (own.to_str().unwrap(), folder.to_str().unwrap());
    for _ in 0..2 {
        let args = ["report", "12", "--html", "--notes", folder_arg, "--template", own, "--name", "x"];
        let (stdout, stderr) = project.expect(&args, 0);
        assert_eq!(stdout, "ROOT/vault/x.md\nROOT/vault/x-2.html\n");
        assert!(stderr.contains("ROOT/vault/x.html is not the page of this submission"), "{stderr}");
    }
    assert_eq!(std::fs::read(folder.join("x.html")).unwrap(), b"mine");
    let note = std::fs::read_to_string(folder.join("x.md")).unwrap();
    assert!(note.contains("[[The Other Note|dendron://torchcell/other.note]]"), "{note}");
    let page = folder.join("x-2.html");
    let text = std::fs::read_to_string(&page).unwrap();
    for part in [
        ">My own part</h2>",
        "<a href=\"other.note.md\">The Other Note</a>",
        ">Isolation</h2>",
        ">Learning</h2>",
        "id=\"plot-learning\"",
        "<td class=\"right\">",
    ] {
        assert!(note.contains("### My own part") && text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("[[The Other") && !text.contains("dendron:"), "{text}");
    browse(&page, "glance");
}

/// What the browser's script says of a page; none where there is no browser.
fn browse(page: &Path, how: &str) -> Option<String> {
    let program = chromium("the page was not opened in a browser")?;
    let mut python = python("browse_page.py");
    python.arg(program).arg(page).arg(how).args(std::env::var_os("EXPCTL_SCREENSHOTS"));
    let output = python.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    Some(said)
}

#[test]
fn a_page_of_batch_timings_tells_batch_epoch_and_time() {
    let project = TestProject::new();
    in_epochs(&project, 12);
    let folder = project.file("notes");
    project.expect(&["timings", "12", "--out", folder.to_str().unwrap(), "--html"], 0);
    let page = folder.join("fig1_12_timings.html");
    browse(&page, "batches");
    browse(&page, "glance");
}

#[test]
fn a_browser_that_was_named_and_is_not_there_is_a_mistake() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/chromium.sh");
    let found = Command::new("bash").arg(script).env("EXPCTL_CHROMIUM", "/no/such/browser").output().unwrap();
    assert_eq!((found.status.code(), found.stdout), (Some(1), Vec::new()));
    assert!(String::from_utf8_lossy(&found.stderr).contains("EXPCTL_CHROMIUM is /no/such/browser"));
}
