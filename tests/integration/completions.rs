//! Completion in a shell: jobs of the ledger, and variants of the config or job that a line names.

use std::path::Path;
use std::process::Command;

use crate::common::{SMALL, TestProject, text};

/// A project with the config `small` and jobs 9 and 12, of variants that it does not have any more.
fn project() -> TestProject {
    let project = TestProject::new();
    project.conf("small", &format!("{SMALL}\n[variant.\"$(touch run)\"]\npipeline.processor = \"ids\"\n"));
    for (id, variants) in [(9, vec!["old"]), (12, vec!["one", "two"])] {
        let trials = variants.iter().flat_map(|variant| [1, 2].map(|repeat| (variant, repeat)));
        let trials = trials.map(|(variant, repeat)| project.trial(variant, "", repeat, |_| ())).collect();
        project.submitted(id, "small", trials);
    }
    project
}

const CASES: [(&str, &str); 12] = [
    ("watch ", "12 9"),
    ("watch 1", "12"),
    ("logs -f ", "12 9"),
    ("compare 9 ", "12"),
    ("compare 9 12 --baseline ", "12 9"),
    // A name that a shell would run is not listed.
    ("submit conf/small.toml --only ", "lazy ids"),
    ("submit conf/small.toml --only l", "lazy"),
    ("plan conf/small.toml --only lazy --only ", "lazy ids"),
    ("isolate 12 --only ", "one two"),
    ("isolate 12 --only t", "two"),
    // What has no list is completed as before.
    ("doctor --js", "--json"),
    ("compl", "completions"),
];

#[test]
fn what_may_follow_is_listed() {
    let project = project();
    for (line, expected) in CASES {
        let words: Vec<&str> = line.split(' ').collect();
        let (typed, before) = words.split_last().unwrap();
        let listed = project.ok(&[&["completions", "--after"], before].concat());
        let fitting: Vec<&str> = listed.lines().filter(|word| word.starts_with(typed)).collect();
        // Published jobs can be compared, too.
        let fitting: Vec<&str> =
            fitting.into_iter().filter(|word| !(line.starts_with("compare") && word.len() > 2)).collect();
        let expected = if line.contains("--js") || line == "compl" { "" } else { expected };
        assert_eq!(fitting.join(" "), expected, "{line}");
    }
    // Of another project, and where there is none.
    let root = project.path().to_str().unwrap();
    let outside = tempfile::tempdir().unwrap();
    let listed = |words: &[&str]| {
        let mut command = project.expctl(&[&["completions", "--after"], words].concat());
        text(&command.current_dir(outside.path()).output().unwrap().stdout)
    };
    assert_eq!((listed(&["--root", root, "watch"]), listed(&["watch"])), ("12\n9\n".to_owned(), String::new()));
    assert_eq!(project.ok(&["completions", "--after", "submit", "conf/absent.toml", "--only"]), "");
    assert_eq!(project.run(&["completions"]).status.code(), Some(2));
}

#[test]
fn bash_completes_jobs_and_variants() {
    let project = project();
    std::fs::write(project.path().join("script"), project.ok(&["completions", "bash"])).unwrap();
    // As readline calls the function: the command, the word at the cursor and the one before it.
    let program = r#"
        . ./script
        [[ $(complete -p expctl) == *"-F _expctl_listed"* ]] || exit 3
        while IFS= read -r line; do
            read -ra COMP_WORDS <<< "expctl $line"
            [[ $line == *" " ]] && COMP_WORDS+=("")
            COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
            _expctl_listed expctl "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
            echo "$line: ${COMPREPLY[*]}"
        done
        COMP_WORDS=(expctl submit conf/small.toml --only = l) COMP_CWORD=5
        _expctl_listed expctl l =
        echo "${COMPREPLY[*]}"
    "#;
    let folder = Path::new(env!("CARGO_BIN_EXE_expctl")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let lines: String = CASES.iter().map(|(line, _)| format!("{line}\n")).collect();
    std::fs::write(project.path().join("lines"), lines).unwrap();
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", program]).current_dir(project.path()).env("PATH", path).env_remove("EXPCTL_ROOT");
    bash.env_remove("EXPCTL_RUNS").env("XDG_CONFIG_HOME", "/nonexistent");
    let output = bash.stdin(std::fs::File::open(project.path().join("lines")).unwrap()).output().unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    let mut said = said.lines();
    for (line, expected) in CASES {
        let found = said.next().unwrap().strip_prefix(&format!("{line}: ")).unwrap_or_default();
        let found: Vec<&str> =
            found.split(' ').filter(|word| !(line.starts_with("compare") && word.len() > 2)).collect();
        assert_eq!(found.join(" "), expected, "{line}");
    }
    assert_eq!(said.next(), Some("lazy"));
    assert!(!project.path().join("run").exists());
}

/// Packages install what this writes: a page for each verb that `--help` lists, with what it does and its options.
#[test]
fn manual_pages_have_every_verb_that_the_help_lists() {
    let project = TestProject::new();
    let pages = project.path().join("share/man1");
    assert_eq!(project.ok(&["man-pages", pages.to_str().unwrap()]), "");
    let read = |name: &str| std::fs::read_to_string(pages.join(name)).unwrap();
    let help = project.ok(&["--help"]);
    let verbs = help.lines().filter_map(|line| {
        let (verb, about) = line.strip_prefix("  ")?.split_once("  ")?;
        (!verb.is_empty() && !verb.starts_with('-') && !about.trim().is_empty()).then_some(verb)
    });
    let mut count = 0;
    for verb in verbs {
        assert!(read(&format!("expctl-{verb}.1")).contains(".SH SYNOPSIS"), "{verb}");
        count += 1;
    }
    assert!(count > 15 && read("expctl.1").contains("Where does the time of a training pipeline go"));
    assert!(read("expctl-submit.1").contains("\\-\\-backend"), "{}", read("expctl-submit.1"));
    let hidden = ["expctl-man-pages.1", "expctl-run-local.1", "expctl-conclude.1"];
    assert!(hidden.iter().all(|name| !pages.join(name).exists()));
    let file = project.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert_eq!(project.run(&["man-pages", file.to_str().unwrap()]).status.code(), Some(6));
}
