//! Notes that a writer works in: what stands outside of the markers survives, and what is damaged is refused.

use std::path::PathBuf;

use expctl_ledger::TrialState;
use proptest::prelude::*;

use crate::common::TestProject;
use crate::common::ledger::{SUBMITTED, completed, finish, running, steps, two_variants};

const NOTE: &str = "results/086_ddp_12.md";

fn noted() -> (TestProject, PathBuf) {
    let project = TestProject::new();
    two_variants(&project, 12);
    project.expect(&["report", "12"], 0);
    let path = project.file(NOTE);
    (project, path)
}

fn read(path: &PathBuf) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

fn text(path: &PathBuf) -> String {
    String::from_utf8(read(path)).unwrap()
}

/// One trial more, which did not complete: all figures and the list of trials change.
fn one_more(project: &TestProject, n: u32) {
    let dir = project.job("12");
    let mut record = dir.record().unwrap();
    let trial = project.trial("lazy", "Lazy", 3 + n, |_| {});
    record.trials.push(trial.clone());
    expctl_ledger::write_json(&dir.record_path(), &record).unwrap();
    let slow = [steps(800, 8), steps(800, 8)];
    finish(&running(&dir, &trial, &slow), &slow, TrialState::Failed, "rank 1 was killed");
}

/// The text without sections, the line of the note and the time of the update: what belongs to the writer.
fn prose(text: &[u8]) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut inside = false;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if line.starts_with(b"<!-- expctl:begin") {
            inside = true;
        }
        if !inside && !line.starts_with(b"<!-- expctl:note") && !line.starts_with(b"updated: ") {
            kept.extend_from_slice(line);
        }
        if line.starts_with(b"<!-- expctl:end") {
            inside = false;
        }
    }
    kept
}

#[test]
fn what_a_writer_adds_survives_every_regeneration() {
    let (project, path) = noted();
    let mine = text(&path)
        .replace("desc: ''", "desc: 'by hand'\nmine: [1, 2]")
        .replace("title: 'Loading with two ranks (12)'", "title: \"My own title\"")
        .replace("### Next Steps\n", "### Next Steps\n\n1. **Look** at `lazy`  \n2. and\ttabs\n\n\n\n```\n| a |\n```\n")
        .replace(
            "<!-- expctl:begin results",
            "Between: ü, \u{1f9ec}, <!-- a comment -->, `<!-- expctl:end x -->`\n<!-- expctl:begin results",
        );
    let mine = mine.trim_end().to_owned() + "\n\nThe end, without a line end";
    std::fs::write(&path, &mine).unwrap();
    // Nothing changed: not touched at all.
    project.expect(&["report", "12"], 0);
    assert_eq!(text(&path), mine);
    one_more(&project, 1);
    project.expect(&["report", "12"], 5);
    let after = text(&path);
    assert_ne!(after, mine);
    assert!(after.contains("trial lazy-r4-0a1b2c is not counted"), "{after}");
    let line = |text: &str, key: &str| text.lines().find(|l| l.starts_with(key)).unwrap().to_owned();
    assert_ne!(line(&after, "updated:"), line(&mine, "updated:"));
    // The section of warnings was there before; nothing was inserted, so the prose is the same byte for byte.
    assert_eq!(String::from_utf8(prose(after.as_bytes())), String::from_utf8(prose(mine.as_bytes())));
}

#[test]
fn windows_lines_and_other_encodings_stay() {
    let (project, path) = noted();
    let mut mine = text(&path).replace('\n', "\r\n").into_bytes();
    mine.extend_from_slice(b"caf\xe9 in Latin-1\r\n");
    std::fs::write(&path, &mine).unwrap();
    project.expect(&["report", "12"], 0);
    assert_eq!(read(&path), mine);
    one_more(&project, 1);
    project.expect(&["report", "12"], 5);
    let after = read(&path);
    assert_eq!(prose(&after), prose(&mine));
    assert!(after.ends_with(b"caf\xe9 in Latin-1\r\n"));
    let bare = after.windows(2).filter(|pair| pair[1] == b'\n' && pair[0] != b'\r').count();
    assert_eq!(bare, 0, "{}", String::from_utf8_lossy(&after));
}

/// The markers and the text of a section.
fn section(text: &str, name: &str) -> String {
    let start = text.find(&format!("<!-- expctl:begin {name} ")).unwrap();
    let end = format!("<!-- expctl:end {name} -->\n");
    let stop = start + text[start..].find(&end).unwrap() + end.len();
    text[start..stop].to_owned()
}

#[test]
fn sections_can_be_moved_and_removed_and_come_back() {
    let (project, path) = noted();
    let before = text(&path);
    let (ranks, trials) = (section(&before, "ranks"), section(&before, "trials"));
    // The ranks go to the end, the trials go.
    let mine = before.replace(&ranks, "").replace(&trials, "") + "\n" + &ranks;
    std::fs::write(&path, &mine).unwrap();
    one_more(&project, 1);
    project.expect(&["report", "12"], 5);
    let after = text(&path);
    assert!(
        after.trim_end().ends_with("<!-- expctl:end ranks -->") && !after.contains("expctl:begin trials"),
        "{after}"
    );
    assert_eq!(prose(after.as_bytes()), prose(mine.as_bytes()));
    let (_, stderr) = project.expect(&["report", "12", "--restore", "trails"], 2);
    assert!(stderr.contains("there is no section `trails`"), "{stderr}");
    let (_, stderr) = project.expect(&["report", "12", "--restore", "ranks"], 2);
    assert!(stderr.contains("the section `ranks` is there"), "{stderr}");
    assert_eq!(text(&path), after);
    project.expect(&["report", "12", "--restore", "trials"], 5);
    let back = text(&path);
    assert!(section(&back, "trials").contains("lazy-r4-0a1b2c"), "{back}");
    // Below the nearest section in front of it that is there.
    let place = |name: &str| back.find(&format!("expctl:begin {name} ")).unwrap();
    assert!(place("configuration") < place("trials") && place("trials") < place("provenance"), "{back}");
}

#[test]
fn a_section_of_a_newer_version_is_put_in_its_place() {
    let (project, path) = noted();
    // As if this expctl had just learnt of ranks.
    let old = text(&path);
    let line = old.lines().find(|l| l.starts_with("<!-- expctl:note 1 ")).unwrap();
    let mine = old.replace(line, &line.replace(" ranks", "")).replace(&section(&old, "ranks"), "");
    std::fs::write(&path, &mine).unwrap();
    project.expect(&["report", "12"], 0);
    let after = text(&path);
    let place = |name: &str| after.find(&format!("expctl:begin {name} ")).unwrap();
    assert!(place("breakdown") < place("ranks") && place("ranks") < place("configuration"), "{after}");
    assert_eq!(section(&after, "ranks"), section(&old, "ranks"));
}

#[test]
fn a_damaged_marker_is_an_error_and_the_note_stays() {
    let (project, path) = noted();
    let sound = text(&path);
    let line_of = |text: &str, part: &str| 1 + text.lines().position(|line| line.contains(part)).unwrap();
    let results = section(&sound, "results");
    let begin = results.lines().next().unwrap();
    for (name, damaged, at, said) in [
        ("begin without end", sound.replace("<!-- expctl:end results -->\n", ""), "expctl:begin pictures", ""),
        (
            "end without begin",
            sound.replace(&format!("{begin}\n"), ""),
            "expctl:end results",
            "ends here and does not begin",
        ),
        ("twice", sound.clone() + &results, "", "stands twice"),
        (
            "indented",
            sound.replace(begin, &format!("  {begin}")),
            "expctl:begin results",
            "must stand alone on its line",
        ),
        ("half a line", sound.replace(begin, "<!-- expctl:begin results"), "expctl:begin results", "must stand alone"),
        ("version", sound.replace("expctl:note 1", "expctl:note 9"), "expctl:note", "are of version 9"),
        ("no note line", sound.replace("<!-- expctl:note 1", "<!-- expctl: note 1"), "", "is gone"),
        ("unknown", sound.replace("expctl:end results", "expctl:stop results"), "expctl:stop", "is no marker"),
    ] {
        std::fs::write(&path, &damaged).unwrap();
        for more in [&[][..], &["--force"]] {
            let (stdout, stderr) = project.expect(&[&["report", "12"], more].concat(), 3);
            assert!(stdout.is_empty() && stderr.contains(said), "{name}: {stderr}");
            assert!(
                stderr.contains(&format!("ROOT/{NOTE}:")) && stderr.contains("was left as it is"),
                "{name}: {stderr}"
            );
            if !at.is_empty() && damaged.contains(at) {
                assert!(stderr.contains(&format!("{NOTE}:{}: ", line_of(&damaged, at))), "{name}: {stderr}");
            }
        }
        assert_eq!(text(&path), damaged, "{name}");
    }
    assert_eq!(
        std::fs::read_dir(project.file("results"))
            .unwrap()
            .filter(|e| { e.as_ref().unwrap().file_name().to_string_lossy().starts_with("086_ddp_12.md") })
            .count(),
        1
    );
}

#[test]
fn an_edit_between_markers_is_refused_and_kept() {
    let (project, path) = noted();
    let mine = text(&path).replace("| **lazy** | **140** |", "| **lazy** | **940** |");
    std::fs::write(&path, &mine).unwrap();
    let line = 1 + mine.lines().position(|line| line.starts_with("<!-- expctl:begin results ")).unwrap();
    let (_, stderr) = project.expect(&["report", "12"], 3);
    assert!(stderr.contains(&format!("{NOTE}:{line}: the section `results` was edited")), "{stderr}");
    assert!(stderr.contains("--force") && stderr.contains("move your text out"), "{stderr}");
    assert_eq!(text(&path), mine);
    let (_, stderr) = project.expect(&["report", "12", "--force"], 0);
    let kept = stderr.lines().find_map(|l| l.strip_prefix("the note as it was is in ROOT/")).unwrap();
    assert_eq!(text(&project.file(kept)), mine);
    assert!(text(&path).contains("| **lazy** | **140** |"));
    // Blank lines and line ends are nobody's edit.
    let spaced = text(&path).replace("### Ranks\n", "\n### Ranks\n");
    std::fs::write(&path, &spaced).unwrap();
    project.expect(&["report", "12"], 0);
    assert_eq!(text(&path), spaced);
}

#[test]
fn a_note_without_markers_is_replaced_only_when_asked() {
    let (project, path) = noted();
    let id = |text: &str| text.lines().find(|l| l.starts_with("id: ")).unwrap().to_owned();
    let old: String =
        text(&path).lines().filter(|l| !l.starts_with("<!-- expctl:")).map(|l| format!("{l}\n")).collect();
    let old = old.replace("### Next Steps\n", "### Next Steps\n\nmine\n");
    let old = old.replacen("\n\n", "\n\n<!-- expctl: job 12, submitted 1767323045, config 086_ddp -->\n", 1);
    std::fs::write(&path, &old).unwrap();
    let (_, stderr) = project.expect(&["report", "12"], 3);
    assert!(stderr.contains("without markers") && text(&path) == old, "{stderr}");
    let (_, stderr) = project.expect(&["report", "12", "--force"], 0);
    let kept = stderr.lines().find_map(|l| l.strip_prefix("the note as it was is in ROOT/")).unwrap();
    assert_eq!((text(&project.file(kept)), id(&text(&path))), (old.clone(), id(&old)));
}

#[test]
fn a_note_goes_into_any_folder_under_any_name() {
    let project = TestProject::new();
    let earlier = project.trial("lazy", "Lazy", 1, |_| {});
    let dir = project.submitted_as(11, "086_ddp", vec![earlier.clone()], |record| record.submitted = SUBMITTED - 100);
    completed(&dir, &earlier, &[steps(500, 0), steps(500, 0)]);
    let trial = project.trial("lazy", "Lazy", 1, |s| {
        s.experiment.continues = "experiments.006.plan".into();
        s.experiment.links = vec!["other.note".into()];
    });
    let dir = project.submitted(12, "086_ddp", vec![trial.clone()]);
    completed(&dir, &trial, &[steps(400, 0), steps(400, 0)]);
    let notes = project.file("notes");
    std::fs::create_dir(&notes).unwrap();
    std::fs::write(notes.join("experiments.006.plan.md"), "---\nid: x\ntitle: Optimization Plan\n---\n").unwrap();
    std::fs::write(
        project.file("expctl.toml"),
        "[notes]\nfolder = \"notes\"\nlinks = \"dendron\"\nvault = \"torchcell\"\n\
         name = \"experiments.{study}.scripts.{config}.{year}.{month}.{day}.{job}.results\"\n",
    )
    .unwrap();
    project.expect(&["report", "11"], 0);
    let (stdout, _) = project.expect(&["report", "12"], 0);
    let name = "experiments.006-kuzmin-tmi.scripts.086_ddp.2026.1.2";
    assert_eq!(stdout, format!("ROOT/notes/{name}.12.results.md\n"));
    let note = text(&notes.join(format!("{name}.12.results.md")));
    for part in [
        "Continuation of [[Optimization Plan|dendron://torchcell/experiments.006.plan]]\n".to_owned(),
        "See also [[note|dendron://torchcell/other.note]]\n".to_owned(),
        format!("(same config): [[Loading with two ranks (11)|dendron://torchcell/{name}.11.results]]"),
        "| 11 | 086_ddp | Lazy | 2".to_owned(),
    ] {
        assert!(note.contains(&part), "{part}: {note}");
    }
    // A note that was renamed is found again.
    let renamed = notes.join("my.own.name.md");
    std::fs::rename(notes.join(format!("{name}.12.results.md")), &renamed).unwrap();
    assert_eq!(project.expect(&["report", "12"], 0).0, "ROOT/notes/my.own.name.md\n");
    // An argument wins over the project's file.
    let (stdout, _) = project.expect(
        &["report", "12", "--notes", project.file("b").to_str().unwrap(), "--name", "x", "--links", "markdown"],
        0,
    );
    assert_eq!(stdout, "ROOT/b/x.md\n");
    let note = text(&project.file("b/x.md"));
    assert!(note.contains("Continuation of [plan](experiments.006.plan.md)"), "{note}");
    let (_, stderr) = project.expect(&["report", "12", "--name", "{jobs}"], 2);
    assert!(stderr.contains("unknown place {jobs}"), "{stderr}");
    std::fs::write(project.file("file"), "").unwrap();
    let (_, stderr) = project.expect(&["report", "12", "--notes", project.file("file").to_str().unwrap()], 2);
    assert!(stderr.contains("ROOT/file, is a file"), "{stderr}");
    std::fs::write(project.file("expctl.toml"), "[notes]\nfolder = \"file\"\n").unwrap();
    assert!(project.expect(&["report", "12"], 3).1.contains("ROOT/file, is a file"));
    std::fs::write(project.file("expctl.toml"), "[notes]\nname = \"{jobs}\"\n").unwrap();
    let (_, stderr) = project.expect(&["report", "12"], 3);
    assert!(stderr.contains("expctl.toml:2:8") && stderr.contains("unknown place {jobs}"), "{stderr}");
    std::fs::write(project.file("expctl.toml"), "[notes]\nfodler = \"notes\"\n").unwrap();
    let (_, stderr) = project.expect(&["report", "12"], 3);
    assert!(stderr.contains("expctl.toml:2:1") && stderr.contains("did you mean `folder`?"), "{stderr}");
}

#[test]
fn a_template_of_ones_own_is_used() {
    let (project, path) = noted();
    let (builtin, _) = project.expect(&["report", "--print-template"], 0);
    let own = project.file("own.j2");
    let own_arg = own.to_str().unwrap();
    std::fs::write(&own, &builtin).unwrap();
    let before = text(&path);
    project.expect(&["report", "12", "--template", own_arg], 0);
    assert_eq!(text(&path), before);
    // One block is replaced, all else stays.
    let extended = "{% extends \"expctl/note.md.j2\" %}\n{% block ranks %}\n<!-- expctl:begin ranks -->\n### My ranks of {{ job }}\n\
                    <!-- expctl:end ranks -->\n{% endblock %}\n";
    std::fs::create_dir(project.file("templates")).unwrap();
    std::fs::write(project.file("templates/note.md.j2"), extended).unwrap();
    project.expect(&["report", "12"], 0);
    assert_eq!(prose(text(&path).as_bytes()), prose(before.as_bytes()));
    assert!(section(&text(&path), "ranks").contains("### My ranks of 12\n"));
    assert_eq!(section(&text(&path), "trials"), section(&before, "trials"));
    let now = text(&path);
    for (template, said) in [
        ("a\n{{ resluts }}\n", "own.j2:2: `resluts` is not defined"),
        ("a\n{% if %}\n", "own.j2:2: syntax error"),
        ("<!-- expctl:note 1 -->\n<!-- expctl:begin x -->\n", "own.j2 makes a wrong note: line 2 of the note"),
        ("no markers\n", "own.j2 makes a wrong note: line 1"),
        (
            "{{ frontmatter }}\n<!-- expctl:note 1 -->\n",
            "`<!-- expctl: job 12, submitted 1767323045, config 086_ddp -->` is missing",
        ),
    ] {
        std::fs::write(&own, template).unwrap();
        let (_, stderr) = project.expect(&["report", "12", "--template", own_arg], 3);
        assert!(stderr.contains(said), "{stderr}");
        assert_eq!(text(&path), now);
        // Nor is there a new one.
        let new = project.file("new");
        project.expect(&["report", "12", "--notes", new.to_str().unwrap(), "--template", own_arg], 3);
        assert!(!new.exists());
    }
}

#[test]
fn only_a_note_that_is_there_can_have_lost_a_section() {
    let project = TestProject::new();
    two_variants(&project, 12);
    for name in ["nonsense", "ranks"] {
        let (_, stderr) = project.expect(&["report", "12", "--restore", name], 2);
        assert!(stderr.contains(&format!("no section `{name}` was removed: ROOT/{NOTE} is not there yet")), "{stderr}");
    }
    assert!(!project.file("results/086_ddp_12.md").exists() && !project.file("results/assets").exists());
    project.expect(&["report", "12", "--restore", "all"], 0);
}

#[test]
fn a_note_says_why_earlier_jobs_are_missing() {
    let (project, path) = noted();
    let earlier = project.trial("lazy", "Lazy", 1, |s| s.train.mode = expctl_settings::Mode::Data);
    let before = |record: &mut expctl_ledger::JobRecord| record.submitted = SUBMITTED - 100;
    let dir = project.submitted_as(11, "086_ddp", vec![earlier.clone()], before);
    completed(&dir, &earlier, &[steps(500, 0), steps(500, 0)]);
    project.expect(&["report", "12"], 0);
    let note = text(&path);
    let comparison = section(&note, "comparison");
    let line = comparison.lines().find(|line| line.starts_with("Earlier jobs are missing: ")).unwrap();
    assert!(line.contains("steps of kind train: 12; steps of kind data: 11"), "{line}");
    // The job's own rows are those of the results.
    assert!(!comparison.contains("| 12 | 086_ddp |"), "{comparison}");
    // Alone, nothing is said of them.
    project.expect(&["report", "12", "--alone"], 0);
    let alone = text(&path);
    assert!(!section(&alone, "comparison").contains("Earlier jobs"), "{alone}");
    // Of which config a job without a record is, is not known: that is said, and the note stays as it was.
    std::fs::write(dir.record_path(), "{").unwrap();
    let (_, stderr) = project.expect(&["report", "12"], 0);
    assert!(stderr.contains("job 11 is not compared with: "), "{stderr}");
}

#[test]
fn every_variable_of_a_template_is_documented() {
    let docs = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/guide/notes.md")).unwrap();
    let source = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/src/report/note/context.rs")).unwrap();
    let name = |line: &'static str| {
        let rest = line.trim().trim_start_matches('(').strip_prefix('"')?;
        rest.split_once("\",").map(|(name, _)| name)
    };
    let names: Vec<&str> = source.leak().lines().filter_map(name).collect();
    assert!(names.len() > 30, "{names:?}");
    for name in names {
        assert!(docs.contains(&format!("| `{name}`")), "{name} is not in docs/guide/notes.md");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Whatever is written between the sections, it is there afterwards, byte for byte.
    #[test]
    fn prose_survives(
        parts in prop::collection::vec(("[^\\r]{0,80}", any::<bool>()), 4),
        crlf in any::<bool>(),
        tail in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let (project, path) = noted();
        let mut mine = text(&path);
        for (name, (part, blank)) in ["results", "ranks", "trials", "provenance"].into_iter().zip(&parts) {
            let part = part.replace("expctl:", "expctl");
            let begin = format!("<!-- expctl:begin {name} ");
            mine = mine.replace(&begin, &format!("{part}\n{}{begin}", if *blank { "\n" } else { "" }));
        }
        let mut mine = if crlf { mine.replace('\n', "\r\n") } else { mine }.into_bytes();
        mine.extend_from_slice(&tail);
        std::fs::write(&path, &mine).unwrap();
        project.expect(&["report", "12"], 0);
        prop_assert_eq!(&read(&path), &mine);
        one_more(&project, 1);
        project.expect(&["report", "12"], 5);
        let after = read(&path);
        prop_assert!(after != mine);
        prop_assert_eq!(prose(&after), prose(&mine));
    }
}
