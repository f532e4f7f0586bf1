//! Completion in a shell: jobs, configs, variants, settings and machines, as the project has them.

use std::path::Path;
use std::process::Command;

use crate::common::{SMALL, TestProject, text};

/// A project with the config `small`, jobs 9 and 12, of variants that it does not have any more, and job 7 of the machine `far`.
fn project() -> TestProject {
    let project = TestProject::new();
    project.conf("small", &format!("{SMALL}\n[variant.\"$(touch run)\"]\npipeline.processor = \"ids\"\n"));
    for (id, variants) in [(7, vec!["there"]), (9, vec!["old"]), (12, vec!["one", "two"])] {
        let trials = variants.iter().flat_map(|variant| [1, 2].map(|repeat| (variant, repeat)));
        let trials = trials.map(|(variant, repeat)| project.trial(variant, "", repeat, |_| ())).collect();
        project.submitted(id, "small", trials);
    }
    let there = project.path().join("results/hosts/far/runs");
    std::fs::create_dir_all(&there).unwrap();
    std::fs::rename(project.path().join("results/runs/7"), there.join("7")).unwrap();
    let profiles = project.path().join("slurm/profiles");
    std::fs::create_dir_all(&profiles).unwrap();
    std::fs::write(profiles.join("far.toml"), "[ssh]\nhost = \"me@far\"\n").unwrap();
    project
}

const CASES: &[(&str, &str)] = &[
    ("watch ", "12 9"),
    ("watch 1", "12"),
    ("logs -f ", "12 9"),
    ("logs 12_", "12_0 12_1 12_2 12_3"),
    ("compare 9 ", "12"),
    ("compare 9 12 --baseline ", "12 9"),
    ("predict ", "12 9"),
    ("predict 12 --only ", "one two"),
    ("history lazy --since ", "12 9"),
    ("history ", "conf/small.toml small one two old"),
    ("history conf/small.toml --only ", "lazy ids"),
    ("history small --only ", "one two"),
    ("submit ", "conf/small.toml"),
    ("check conf/s", "conf/small.toml"),
    // A name that a shell would run is not listed.
    ("submit conf/small.toml --only ", "lazy ids"),
    ("submit conf/small.toml --only l", "lazy"),
    ("plan conf/small.toml --only lazy --only ", "lazy ids"),
    ("search conf/small.toml --only l", "lazy"),
    ("isolate 12 --only ", "one two"),
    ("isolate 12 --only t", "two"),
    ("submit conf/small.toml --set pipeline.pro", "pipeline.processor="),
    ("submit conf/small.toml --set sampler.draw=", SAMPLER_DRAWS),
    ("submit conf/small.toml --set sampler.draw=c", "sampler.draw=chunked"),
    ("submit conf/small.toml --set loader.pin_memory=", "loader.pin_memory=true loader.pin_memory=false"),
    ("submit conf/small.toml --set variant.lazy.loader.w", "variant.lazy.loader.workers="),
    ("isolate 12 --set variant.two.sampler.draw=c", "variant.two.sampler.draw=chunked"),
    // Isolation sets these itself.
    ("isolate 12 --set launch.ran", ""),
    ("plan conf/small.toml --set slurm.profile=f", "slurm.profile=far"),
    ("search conf/small.toml --set search.bud", "search.budget_s="),
    ("watch --on ", "far"),
    ("watch --on far ", "7"),
    ("watch far:", "far:7"),
    ("isolate far:7 --only ", "there"),
    ("doctor --profile d", "delta dev-cluster"),
    ("data info a", "arrayloader"),
    // What has no list is completed as before.
    ("doctor --js", "--json"),
    ("compl", "completions"),
];

const SAMPLER_DRAWS: &str =
    "sampler.draw=sequential sampler.draw=uniform sampler.draw=weighted sampler.draw=balanced sampler.draw=chunked";

/// Published jobs can be compared, too.
fn is_of_case(line: &str, word: &str) -> bool {
    !line.starts_with("compare") || word.len() <= 2
}

#[test]
fn what_may_follow_is_listed() {
    let project = project();
    for &(line, expected) in CASES {
        let words: Vec<&str> = line.split(' ').collect();
        let (&typed, before) = words.split_last().unwrap();
        let listed = project.ok(&[&["completions", "--word", typed, "--after"], before].concat());
        let words = listed.lines().map(|line| line.split_once('\t').map_or(line, |(word, _)| word));
        let fitting: Vec<&str> = words.filter(|word| word.starts_with(typed) && is_of_case(line, word)).collect();
        let expected = if line.contains("--js") || line == "compl" { "" } else { expected };
        assert_eq!(fitting.join(" "), expected, "{line}");
    }
    // Of another project, and where there is none. A script of before asks without the word, and shows no descriptions.
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
fn words_have_descriptions() {
    let project = project();
    let listed =
        |words: &[&str], typed: &str| project.ok(&[&["completions", "--word", typed, "--after"], words].concat());
    assert_eq!(listed(&["watch"], ""), "12\tsmall: Loading with two ranks\n9\tsmall: Loading with two ranks\n");
    assert!(listed(&["logs"], "12_").starts_with("12_0\tone-r1-0a1b2c\n"), "{}", listed(&["logs"], "12_"));
    assert_eq!(listed(&["watch", "--on"], ""), "far\tme@far\n");
    let keys = listed(&["submit", "conf/small.toml", "--set"], "");
    assert!(keys.contains("\nloader.batch_size=\tSamples per rank and step\n"), "{keys}");
    assert!(listed(&["compare"], "").contains("\n447\t"), "published jobs have their config");
}

/// A shell waits for the list: of records of many megabytes only the newest is read.
#[test]
fn records_that_take_long_are_not_read_for_a_list() {
    let project = TestProject::new();
    for (id, variant) in [(7, "small"), (9, "large"), (12, "newest")] {
        project.submitted(id, "nightly", vec![project.trial(variant, "", 1, |_| ())]);
    }
    let lengthen = |job: &str| {
        let path = project.job(job).record_path();
        let record = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, record + &" ".repeat(17 << 20)).unwrap();
    };
    let listed = || {
        let lines = project.ok(&["completions", "--word", "", "--after", "history"]);
        let words: Vec<String> = lines.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect();
        words.join(" ")
    };
    assert_eq!(listed(), "nightly newest large small");
    lengthen("9");
    assert_eq!(listed(), "nightly newest");
    lengthen("12");
    assert_eq!(listed(), "nightly newest");
}

#[test]
fn bash_completes_what_the_project_has() {
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
        # The words that readline makes of them.
        COMP_WORDS=(expctl submit conf/small.toml --only = l) COMP_CWORD=5
        _expctl_listed expctl l =
        echo "${COMPREPLY[*]}"
        COMP_WORDS=(expctl submit conf/small.toml --set loader.pin_memory =) COMP_CWORD=5
        _expctl_listed expctl "" loader.pin_memory
        echo "${COMPREPLY[*]}"
        COMP_WORDS=(expctl submit conf/small.toml --set sampler.draw = c) COMP_CWORD=6
        _expctl_listed expctl c =
        echo "${COMPREPLY[*]}"
        COMP_WORDS=(expctl watch far :) COMP_CWORD=3
        _expctl_listed expctl "" far
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
    for &(line, expected) in CASES {
        let found = said.next().unwrap().strip_prefix(&format!("{line}: ")).unwrap_or_default();
        let found: Vec<&str> = found.split(' ').filter(|word| is_of_case(line, word)).collect();
        assert_eq!(found.join(" "), expected, "{line}");
    }
    for expected in ["lazy", "true false", "chunked", "7"] {
        assert_eq!(said.next(), Some(expected));
    }
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
