//! Where a job comes from, and what `submit` says, skips and only rehearses.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use expctl::data::ProjectData;
use expctl::project::Project;
use expctl::provenance::changes_since_submit;
use expctl_ledger::{JobDir, Outcome, Provenance, TrialState};
use expctl_settings::{TRIAL_SCHEMA_VERSION, Trial};
use serde_json::Value;

use crate::common::cluster::Cluster;
use crate::common::{SMALL, TestProject, text};

fn git(project: &TestProject, arguments: &[&str]) {
    let output = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"])
        .args(arguments)
        .current_dir(project.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", text(&output.stderr));
}

/// A project under version control, with a config of one trial that extends another.
fn versioned() -> (TestProject, PathBuf) {
    let project = TestProject::new();
    project.conf("base", SMALL);
    let only = "extends = \"base.toml\"\n[variant.ids]\nmethod = \"Ids\"\n";
    let conf = project.conf("own", only);
    std::fs::write(project.path().join("code.py"), "a = 1\n").unwrap();
    git(&project, &["init", "--quiet", "--initial-branch", "trunk"]);
    git(&project, &["add", "--all"]);
    git(&project, &["commit", "--quiet", "--message", "first"]);
    (project, conf)
}

/// Everything below a folder, with sizes and times of change.
fn all_files(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let meta = entry.metadata().unwrap();
            found.insert(format!("{} {} {:?}", entry.path().display(), meta.len(), meta.modified().unwrap()));
            if meta.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    found
}

fn changes(project: &TestProject, id: &str) -> Vec<String> {
    let here = Project::find(Some(project.path()), None).unwrap();
    let folder = project.job(id);
    changes_since_submit(&here, &ProjectData(&here), &folder, &folder.record().unwrap())
}

#[test]
fn a_job_says_where_it_comes_from_and_what_has_changed_since() {
    let (project, conf) = versioned();
    std::fs::write(project.path().join("code.py"), "a = 2\n").unwrap();
    std::fs::write(project.path().join("new.py"), "b = 1\n").unwrap();
    // A worker of the project's own: it leaves no results, and can be replaced.
    let worker = project.path().join("bin-worker");
    std::fs::copy("/bin/false", &worker).unwrap();
    let set = [
        "submit",
        conf.to_str().unwrap(),
        "--backend",
        "local",
        "--only",
        "ids",
        "--set",
        "measure.steps=7",
        "--wait",
        "--live",
    ];
    let output = project.expctl(&set).env("EXPCTL_WORKER", &worker).env("LOADEDMODULES", "gcc/12").output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    let id = text(&output.stdout).trim().to_owned();

    let folder = project.job(&id);
    let told = Provenance::read(&folder).unwrap().unwrap();
    let source = told.source.unwrap();
    assert_eq!((source.branch.as_deref(), source.dirty), (Some("trunk"), true));
    assert_eq!(folder.record().unwrap().commit, Some(format!("{}-dirty", &source.commit[..12])));
    let diff = std::fs::read_to_string(folder.path().join("source.diff")).unwrap();
    assert!(diff.contains("-a = 1\n+a = 2\n"), "{diff}");
    let hash = blake3::hash(b"b = 1\n").to_hex();
    assert!(diff.contains(&format!("# untracked: \"new.py\" {hash}\n")), "{diff}");
    // What expctl itself writes is no change of the code.
    assert!(!diff.contains("results/") && !diff.contains("data/"), "{diff}");

    assert_eq!(std::fs::read(folder.path().join("config.toml")).unwrap(), std::fs::read(&conf).unwrap());
    assert_eq!(std::fs::read_to_string(folder.path().join("config/1-base.toml")).unwrap(), SMALL);
    assert_eq!(told.config.files.len(), 2);
    assert_eq!(told.config.rows, ["lazy", "ids"]);
    assert_eq!(told.command[1..], set.map(str::to_owned));
    assert_eq!(told.folder, std::fs::canonicalize(project.path()).unwrap());
    assert_eq!(told.variables["LOADEDMODULES"], "gcc/12");
    assert!(!told.user.is_empty() && !told.host.is_empty());
    let hash = |path: &Path| Some(blake3::hash(&std::fs::read(path).unwrap()).to_hex().to_string());
    let ran = told.worker.unwrap();
    assert_eq!((ran.path.as_path(), ran.hash), (worker.as_path(), hash(&worker)));
    assert_eq!(told.expctl.hash, hash(Path::new(env!("CARGO_BIN_EXE_expctl"))));

    assert_eq!(changes(&project, &id), [""; 0]);
    // Words that change nothing are no change.
    std::fs::write(&conf, format!("# a comment\n{}", std::fs::read_to_string(&conf).unwrap())).unwrap();
    git(&project, &["add", "conf"]);
    let seen = changes(&project, &id);
    assert!(seen.len() == 1 && seen[0].starts_with("code: other changes than then lie on top of commit "), "{seen:?}");
    git(&project, &["commit", "--quiet", "--message", "second"]);
    project.conf("base", &SMALL.replace("hidden = 8", "hidden = 16"));
    std::fs::copy("/bin/true", &worker).unwrap();
    let seen = changes(&project, &id);
    assert_eq!(seen.len(), 3, "{seen:?}");
    assert_eq!(seen[0], "config: model.hidden: 8 is 16 now");
    assert!(seen[1].starts_with(&format!("code: commit {}-dirty is ", &source.commit[..12])), "{seen:?}");
    assert_eq!(seen[2], format!("worker: {} is another program now", worker.display()));
    let said = text(&project.run(&["status", &id]).stderr);
    assert_eq!(said.lines().count(), 3, "{said}");
    assert!(
        said.starts_with(&format!("note: changed since job {id} was submitted: config: model.hidden: 8 is 16")),
        "{said}"
    );
    project.conf("base", &SMALL.replace("[variant.ids]", "[variant.more]"));
    std::fs::write(&conf, "extends = \"base.toml\"\n").unwrap();
    let seen = changes(&project, &id);
    assert_eq!(seen[..2], ["config: no longer has ids", "config: has more besides"]);
    std::fs::remove_file(&conf).unwrap();
    let seen = changes(&project, &id);
    assert!(seen[0].contains("own.toml no longer makes a plan"), "{seen:?}");
}

#[test]
fn the_real_worker_says_its_version_and_finds_its_libtorch() {
    let project = TestProject::new();
    let id = project.completed(SMALL, &["--only", "ids"]);
    let told = Provenance::read(&project.job(&id)).unwrap().unwrap();
    assert!(told.worker.unwrap().version.is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit())));
    assert!(told.libtorch.is_some_and(|found| found.folder.join("libtorch_cpu.so").exists()));
    assert_eq!(told.source, None, "this folder is in no repository");

    // The second time, everything is there.
    let again = |more: &[&str]| {
        let all = [&["--only", "ids", "--only-missing"], more].concat();
        let output = project.submission(SMALL, &all).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        output
    };
    let second = again(&[]);
    assert_eq!(text(&second.stdout), "");
    let said = text(&second.stderr);
    assert!(
        said.contains(&format!("left out: 1 of 1 trial, which job {id} (1 completed) has\nnothing to submit")),
        "{said}"
    );
    // One more repeat is one more trial.
    let third = again(&["--set", "measure.repeats=2"]);
    let third = project.job(&text(&third.stdout)).record().unwrap();
    assert_eq!(third.trials.iter().map(|trial| trial.repeat).collect::<Vec<_>>(), [2]);
}

/// Jobs as they would be, from a config's own plan.
fn planned(project: &TestProject, conf: &Path, set: &[&str]) -> Vec<Trial> {
    let mut line = vec!["plan", conf.to_str().unwrap(), "--json"];
    line.extend(set);
    let plan: Value = serde_json::from_str(&project.ok(&line)).unwrap();
    serde_json::from_value(plan["trials"].clone()).unwrap()
}

fn outcome(state: TrialState) -> Outcome {
    Outcome {
        state,
        message: String::new(),
        cause: None,
        failed_rank: None,
        started: 1,
        ended: 2,
        beside_s: None,
        beside_from: None,
        beside: Vec::new(),
        ranks: Vec::new(),
    }
}

#[test]
fn what_runs_waits_or_completed_is_not_missing_and_what_failed_is() {
    let project = TestProject::new();
    let conf = project.conf("small", SMALL);
    let repeats = ["--set", "measure.repeats=500"];
    let trials = planned(&project, &conf, &repeats);
    assert_eq!((trials.len(), trials[0].schema), (1000, TRIAL_SCHEMA_VERSION));
    let names: Vec<String> = trials.iter().map(|trial| trial.id.clone()).collect();
    let first = project.submitted(1, "small", trials.clone());
    let end = |job: &JobDir, trial: &str, state| outcome(state).save(&job.next_attempt(trial).unwrap()).unwrap();
    for name in &names[..990] {
        end(&first, name, TrialState::Completed);
    }
    end(&first, &names[990], TrialState::Failed);
    end(&first, &names[991], TrialState::Interrupted);
    // This test itself is the launcher of another job, which has two of them still to run.
    let second = project.submitted(2, "small", trials[990..].to_vec());
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let start = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().to_owned();
    let host = nix::unistd::gethostname().unwrap().into_string().unwrap();
    let launcher = format!("{} {start} {host}\n{} 1\n{} 1\n", std::process::id(), names[992], names[993]);
    std::fs::write(second.path().join("launcher.pid"), launcher).unwrap();
    // A job that cannot be read hides nothing.
    std::fs::create_dir_all(project.job("3").path()).unwrap();
    std::fs::write(project.job("3").record_path(), "{").unwrap();

    let line = ["submit", conf.to_str().unwrap(), "--backend", "local", "--only-missing", "--dry-run", "--json"];
    let output = project.run(&[&line, repeats.as_slice()].concat());
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let left: Vec<&str> = answer["trials"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    let expected: Vec<&str> = names[990..992].iter().chain(&names[994..]).map(String::as_str).collect();
    assert_eq!(left, expected);
    let has = "left out: 992 of 1000 trials, which job 2 (2 waiting or running), job 1 (990 completed) has";
    assert!(said.contains(has) && said.contains("warning: job 3 was not looked at: "), "{said}");
}

/// A launcher and a worker of two versions may each write what the other does not read.
#[test]
fn a_worker_of_another_version_is_refused_in_one_line() {
    let (project, conf) = versioned();
    let worker = |name: &str, text: &str| {
        let path = project.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    };
    let (fails, older) =
        (worker("fails", "#!/bin/sh\nexit 1\n"), worker("older", "#!/bin/sh\necho 'expctl-worker 0.0.1'\n"));
    let with = |worker: &Path, line: &[&str]| {
        let output = project.expctl(line).env("EXPCTL_WORKER", worker).output().unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let refused = |line: &[&str]| {
        let (code, stdout, stderr) = with(&older, line);
        assert_eq!((code, stdout.as_str()), (Some(70), ""), "{stderr}");
        let own = env!("CARGO_PKG_VERSION");
        let expected =
            format!("error: the worker {} is expctl-worker 0.0.1, and this is expctl {own}\n", older.display());
        let (_, hint) = stderr.split_once(&expected).unwrap_or_else(|| panic!("{stderr}"));
        assert!(hint.starts_with("  hint: install both of one version: ") && hint.lines().count() == 1, "{stderr}");
    };
    let submit = ["submit", conf.to_str().unwrap(), "--backend", "local", "--only", "ids", "--set", "measure.steps=7"];
    refused(&submit);
    refused(&[&submit[..], &["--dry-run"]].concat());
    assert!(!project.path().join("results/runs/1").exists());

    // One that says no version may lack here what nodes have: its ranks say why they end.
    let (code, job, stderr) = with(&fails, &[&submit[..], &["--wait"]].concat());
    assert_eq!((code, job.trim()), (Some(5), "1"), "{stderr}");
    refused(&["retry", "1", "--all"]);
}

#[test]
fn a_dry_run_says_what_would_be_and_changes_nothing() {
    let (project, conf) = versioned();
    project.ok(&["plan", conf.to_str().unwrap()]);
    let before = all_files(project.path());
    let dry = |more: &[&str]| {
        let output = project.run(&[&["submit", conf.to_str().unwrap(), "--dry-run"], more].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        (text(&output.stdout), text(&output.stderr))
    };
    let (stdout, said) = dry(&["--backend", "slurm", "--set", "slurm.time_min=30"]);
    assert_eq!(stdout, "");
    for part in [
        "2 trials × 2 ranks: at most 2.00 CPU h (time limit 30 min)\n",
        "dry run: 2 trials on Slurm\n  lazy-r1-",
        "would be built, about ",
        " are to be written (estimated), ",
        "results/runs/<job>/batch.sh, from slurm/batch.sh.j2, compiled in, asks for\n  --job-name=\"own\"\n",
        "\n  --time=30\n",
        "nothing was written, built or submitted\n",
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
    let (stdout, _) = dry(&["--backend", "slurm", "--json"]);
    let answer: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(answer["trials"].as_array().unwrap().len(), 2);
    assert_eq!((&answer["cost"]["cpus"][1], &answer["data"][0]["built"]), (&Value::from(2), &Value::from(false)));
    assert!(answer["scripts"][0]["options"].as_array().unwrap().contains(&"--ntasks=2".into()), "{answer}");
    let (_, said) = dry(&["--backend", "local"]);
    assert!(said.contains("2 trials × 2 ranks on this machine, one after another\n"), "{said}");
    // A profile may say where its jobs run.
    let (_, said) = dry(&["--set", "slurm.profile=local"]);
    assert!(said.contains("dry run: 2 trials on this machine"), "{said}");
    assert_eq!(all_files(project.path()), before);

    // What submitting would refuse, this refuses too.
    let code = |line: &[&str]| project.run(&[&["submit", conf.to_str().unwrap()], line].concat()).status.code();
    assert_eq!(code(&["--dry-run", "--backend", "local", "--set", "launch.ranks=4000"]), Some(3));
    assert_eq!(code(&["--test-only", "--backend", "local"]), Some(2));
    assert_eq!(code(&["--backend", "local", "--json"]), Some(2));
    assert_eq!(all_files(project.path()), before);
}

#[test]
fn the_cost_is_a_bound_and_says_of_what() {
    let project = TestProject::new();
    let conf = project.conf("small", SMALL);
    let footer = |set: &[&str]| {
        let mut line = vec!["plan", conf.to_str().unwrap(), "--set", "measure.repeats=3"];
        line.extend(set.iter().flat_map(|s| ["--set", s]));
        project.ok(&line).lines().last().unwrap().to_owned()
    };
    assert_eq!(
        footer(&[]),
        "On Slurm, 6 trials × 2 ranks: 2 CPUs per trial (no time limit in the config: the partition's holds)"
    );
    let gpus = ["slurm.time_min=120", "slurm.gpus_per_rank=1", "slurm.cpus_per_rank=4"];
    assert_eq!(footer(&gpus), "On Slurm, 6 trials × 2 ranks: at most 24.0 GPU h, 96.0 CPU h (time limit 120 min)");
    let memory = ["slurm.time_min=120", "slurm.memory_mib=16384", "variant.ids.slurm.memory_mib=8192"];
    assert!(footer(&memory).ends_with("(time limit 120 min, 8,192 to 16,384 MiB of memory per trial)"));
    let line = ["plan", conf.to_str().unwrap(), "--set", "loader.buffer_mib=512"];
    let local = "on this machine, one after another, each rank with at most 512 MiB of batches\n";
    assert!(project.ok(&line).contains(local));
    let mixed = ["slurm.time_min=60", "slurm.exclusive=true", "variant.ids.launch.ranks=4"];
    assert_eq!(
        footer(&mixed),
        "On Slurm, 6 trials × 2 to 4 ranks: whole nodes with at least 2 to 4 CPUs per trial (time limit 60 min)"
    );
}

#[test]
fn plan_names_the_template_of_the_script() {
    let project = TestProject::new();
    let conf = project.conf("small", SMALL);
    let line = ["plan", conf.to_str().unwrap(), "--script"];
    assert!(text(&project.run(&line).stderr).contains("template: slurm/batch.sh.j2, compiled in"));
    let own = project.path().join("config/expctl/batch.sh.j2");
    std::fs::create_dir_all(own.parent().unwrap()).unwrap();
    std::fs::write(&own, format!("{}# ours\n", expctl::launch::slurm::SHIPPED_TEMPLATE)).unwrap();
    assert!(text(&project.run(&line).stderr).contains(&format!("template: {}", own.display())));
    std::fs::write(&own, "#!/bin/bash\nsrun hostname\n").unwrap();
    let refused = project.run(&line);
    assert_eq!(refused.status.code(), Some(3));
    assert!(text(&refused.stderr).contains("lacks stage-attempt and conclude"), "{}", text(&refused.stderr));
}

/// What `make check` leaves out.
mod slow {
    use super::*;

    #[test]
    fn slurm_is_asked_when_it_would_start_a_job() {
        let Some(cluster) = Cluster::start(&["--nodes", "1"]) else { return };
        let project = TestProject::new();
        let conf = project.conf("small", SMALL);
        let ask = |more: &[&str]| -> Output {
            let line = ["submit", conf.to_str().unwrap(), "--backend", "slurm", "--test-only"];
            project.expctl(&[&line, more].concat()).env("SLURM_CONF", cluster.conf()).output().unwrap()
        };
        let taken = ask(&["--json"]);
        let said = text(&taken.stderr);
        assert!(taken.status.success() && said.contains("Slurm would take it: Job "), "{said}");
        let answer: Value = serde_json::from_slice(&taken.stdout).unwrap();
        assert!(answer["scripts"][0]["answer"].as_str().unwrap().contains(" to start at "), "{answer}");
        let refused = ask(&["--set", "slurm.partition=nowhere"]);
        assert_eq!(refused.status.code(), Some(4));
        assert!(text(&refused.stderr).contains("invalid partition specified: nowhere"), "{}", text(&refused.stderr));
        assert_eq!(cluster.ask("squeue", &["--noheader", "--states=all"]), "");
        assert!(!project.path().join("results").exists() && !project.path().join("data").exists());

        // Through Slurm a job says the same of itself, and the jobs of either backend are known to the other.
        let submit = |more: &[&str]| {
            let line = ["submit", conf.to_str().unwrap(), "--only", "ids"];
            let output = project.expctl(&[&line, more].concat()).env("SLURM_CONF", cluster.conf()).output().unwrap();
            assert!(output.status.success(), "{}", text(&output.stderr));
            text(&output.stdout).trim().to_owned()
        };
        let id = submit(&["--backend", "slurm", "--wait"]);
        let told = Provenance::read(&project.job(&id)).unwrap().unwrap();
        assert_eq!(told.variables["SLURM_CONF"], cluster.conf().to_str().unwrap());
        assert!(project.job(&id).path().join("config.toml").exists());
        assert_eq!(submit(&["--backend", "local", "--only-missing"]), "");
        // One that waits is not missing either: its node is not to be had.
        cluster.ask("scontrol", &["update", "nodename=n1", "state=drain", "reason=test"]);
        let repeat = ["--backend", "slurm", "--set", "measure.repeats=2", "--only-missing"];
        let waits = submit(&repeat);
        assert_eq!(project.job(&waits).record().unwrap().trials.len(), 1);
        assert_eq!(submit(&repeat), "");
        cluster.ask("scancel", &[&waits]);
    }
}
