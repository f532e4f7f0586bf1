//! `--on NAME` without a network: a script in the place of `ssh` runs what it is given on this machine, in a home of its own, or answers
//! itself.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use expctl::remote::protocol::PROTOCOL;

use crate::common::far_side::FarSide;
use crate::common::ledger::two_variants;
use crate::common::programs::BARE;
use crate::common::{PATIENCE, SMALL, TestProject, copy, wait_until};

/// A job whose program ends at once, and so fails.
fn conf() -> String {
    format!("{BARE}\n[variant.a]\nworker.command = [\"true\"]\n")
}

/// A machine with job 7, and a project that knows how to get there.
fn with_job() -> (FarSide, TestProject) {
    let (far, project, other) = (FarSide::without_network(), TestProject::new(), TestProject::new());
    two_variants(&other, 7);
    copy(other.job("7").path(), &far.project().join("results/runs/7"));
    far.connect(&project);
    (far, project)
}

/// All files below a folder.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().map(Result::unwrap) {
        match entry.path() {
            path if path.is_dir() => found.extend(files(&path)),
            path => found.push(path),
        }
    }
    found.sort();
    found
}

#[test]
fn records_are_fetched_once_and_read_here() {
    let (far, project) = with_job();
    let (stdout, _) = far.expect(&project, &["status", "--on", "far"], 0);
    assert!(stdout.contains("| 7 |"), "{stdout}");
    let (stdout, stderr) = far.expect(&project, &["fetch", "far:7"], 0);
    let here = project.path().join("results/hosts/far/runs");
    assert_eq!(stdout.trim(), here.display().to_string());
    assert!(stderr.contains("1 job of far: ") && !stderr.contains("all is here"), "{stderr}");
    let there = far.project().join("results/runs");
    let relative = |folder: &Path| -> Vec<PathBuf> {
        files(&folder.join("7")).iter().map(|path| path.strip_prefix(folder).unwrap().to_owned()).collect()
    };
    assert_eq!(relative(&here), relative(&there));
    for file in relative(&here) {
        let (a, b) = (here.join(&file), there.join(&file));
        assert_eq!(std::fs::read(&a).unwrap(), std::fs::read(&b).unwrap());
        let time = |path: &Path| path.metadata().map(|found| (found.mtime(), found.mtime_nsec())).unwrap();
        assert_eq!(time(&a), time(&b), "{}", file.display());
    }
    let (_, stderr) = far.expect(&project, &["fetch", "--on", "far"], 0);
    assert!(stderr.contains("1 job of far: all is here"), "{stderr}");
    // A file that was lost here comes again, if the job is looked at again.
    std::fs::remove_dir_all(project.path().join("results/hosts/far/fetched")).unwrap();
    std::fs::remove_file(here.join(&relative(&here)[0])).unwrap();
    let (_, stderr) = far.expect(&project, &["fetch", "far:7"], 0);
    assert!(stderr.contains("1 job of far: 1 file, "), "{stderr}");
    let (stdout, _) = far.expect(&project, &["report", "far:7"], 0);
    let note = PathBuf::from(stdout.trim());
    assert!(note.starts_with(project.path().join("results")) && stdout.trim().ends_with("_far_7.md"), "{stdout}");
    // What is here is read without a network, too.
    far.ssh_program("echo 'ssh: connect to host far port 22: No route to host' >&2; exit 255");
    std::fs::remove_dir_all(project.path().join("results/hosts/far/fetched")).unwrap();
    let (_, stderr) = far.expect(&project, &["report", "far:7"], 0);
    assert!(stderr.contains("No route to host; this is what was fetched before"), "{stderr}");
}

#[test]
fn unknown_jobs_and_machines_are_refused() {
    let (far, project) = with_job();
    let (_, stderr) = far.expect(&project, &["fetch", "far:9"], 7);
    assert!(stderr.contains("far has no job 9"), "{stderr}");
    let (_, stderr) = far.expect(&project, &["status", "--on", "local"], 2);
    assert!(stderr.contains("the profile local (compiled in) has no [ssh]"), "{stderr}");
    assert!(stderr.contains("[ssh.local]") && stderr.contains("host = \"USER@LOGIN_NODE\""), "{stderr}");
    far.expect(&project, &["status", "--on", "nowhere"], 3);
    let (_, stderr) = far.expect(&project, &["fetch"], 2);
    assert!(stderr.contains("expctl fetch --on NAME"), "{stderr}");
    let (_, stderr) = far.expect(&project, &["import", "x.json", "--on", "far"], 2);
    assert!(stderr.contains("this verb works on this machine alone"), "{stderr}");
}

#[test]
fn a_machine_that_cannot_be_used_is_one_clear_error() {
    let (far, project) = with_job();
    far.ssh_program("echo 'kex_exchange_identification: read: Connection reset by peer' >&2; exit 255");
    for verb in [&["fetch", "--on", "far"][..], &["status", "--on", "far"]] {
        let (_, stderr) = far.expect(&project, verb, 4);
        assert!(stderr.contains("error: cannot reach far: kex_exchange_identification: read: Connection"), "{stderr}");
    }
    far.ssh_program("echo Welcome; echo 'expctl-remote {\"version\":\"9.9.9\",\"protocol\":99}'; cat > /dev/null");
    let (_, stderr) = far.expect(&project, &["fetch", "--on", "far"], 4);
    assert!(stderr.contains("expctl 9.9.9 on far speaks version 99 of the protocol"), "{stderr}");
    assert!(stderr.contains("hint: update expctl on this machine"), "{stderr}");
    far.ssh_program("echo \"error: unrecognized subcommand 'remote'\" >&2; exit 2");
    for verb in [&["fetch", "--on", "far"][..], &["status", "--on", "far"]] {
        let (_, stderr) = far.expect(&project, verb, 4);
        assert!(stderr.contains("hint: update expctl on far"), "{stderr}");
    }
    let far = FarSide::without_network();
    far.connect_as(&project, "no-such-expctl");
    for verb in [&["fetch", "--on", "far"][..], &["status", "--on", "far"]] {
        let (_, stderr) = far.expect(&project, verb, 4);
        assert!(stderr.contains("there is no no-such-expctl on far") && stderr.contains("pip install"), "{stderr}");
    }
}

#[test]
fn another_version_that_speaks_the_same_is_a_warning() {
    let (far, project) = (FarSide::without_network(), TestProject::new());
    far.connect(&project);
    let lines = [
        format!("expctl-remote {{\"version\":\"9.9.9\",\"protocol\":{PROTOCOL}}}"),
        "{\"numbers\":{\"jobs\":[]}}".to_owned(),
    ];
    let printed = lines.map(|line| format!("echo '{line}'")).join("\n");
    far.ssh_program(&format!("{printed}\ncat > /dev/null"));
    let (_, stderr) = far.expect(&project, &["fetch", "--on", "far"], 0);
    assert!(stderr.contains("warning: far has expctl 9.9.9, and this is "), "{stderr}");
    assert!(stderr.contains("0 jobs of far: all is here"), "{stderr}");
}

#[test]
fn a_machine_that_sends_what_was_not_asked_for_writes_nothing() {
    let project = TestProject::new();
    let far = FarSide::without_network();
    far.connect(&project);
    let greeting = format!("expctl-remote {{\"version\":\"{}\",\"protocol\":{PROTOCOL}}}", env!("CARGO_PKG_VERSION"));
    let jobs = |path: &str| {
        let file = format!("{{\"path\":\"{path}\",\"size\":3,\"mtime_ns\":0}}");
        format!(
            "{{\"jobs\":{{\"jobs\":[{{\"job\":1,\"submitted\":5,\"completed\":true,\"files\":[{file}]}}],\"unknown\":[]}}}}"
        )
    };
    let file = |path: &str| format!("{{\"file\":{{\"path\":\"{path}\",\"size\":3,\"mtime_ns\":0}}}}");
    let runs = project.path().join("results/hosts/far/runs");
    for lines in [
        vec![jobs("1/../../../../pwned")],
        vec![jobs("/tmp/pwned")],
        vec![jobs("2/job.json")],
        vec![jobs("1/job.json"), file("1/../../pwned")],
        vec![jobs("1/job.json"), file("1/other.json")],
        vec![jobs("1/job.json"), file("../pwned")],
    ] {
        let lines = [vec![greeting.clone()], lines].concat();
        let printed: Vec<String> = lines.iter().map(|line| format!("echo '{line}'")).collect();
        far.ssh_program(&format!("{}\necho abc\ncat > /dev/null", printed.join("\n")));
        let (_, stderr) = far.expect(&project, &["fetch", "far:1"], 6);
        assert!(stderr.contains("is no path of a file that was asked for; nothing was written there"), "{stderr}");
        assert_eq!(files(&runs), Vec::<PathBuf>::new());
    }
    // Of a job that was not asked for.
    let printed = [greeting.clone(), jobs("1/job.json")].map(|line| format!("echo '{line}'")).join("\n");
    far.ssh_program(&format!("{printed}\ncat > /dev/null"));
    let (_, stderr) = far.expect(&project, &["fetch", "far:2"], 4);
    assert!(stderr.contains("far answers something that was not asked"), "{stderr}");
    // Cut off within a file: it is not there.
    let printed = [greeting, jobs("1/job.json"), file("1/job.json")].map(|line| format!("echo '{line}'")).join("\n");
    far.ssh_program(&format!("{printed}\nprintf ab"));
    far.expect(&project, &["fetch", "far:1"], 4);
    assert_eq!(files(&runs), Vec::<PathBuf>::new());
}

#[test]
fn contents_that_are_damaged_make_no_job_and_come_again() {
    let (project, far) = (TestProject::new(), FarSide::without_network());
    far.connect(&project);
    project.conf("small", &conf());
    std::fs::write(project.path().join("payload.py"), "x = 'filler of the code'\n").unwrap();
    let submit = ["submit", "conf/small.toml", "--on", "far"];
    let refused = |words: &str| {
        let (stdout, stderr) = far.expect(&project, &submit, 6);
        assert!(stdout.is_empty() && stderr.contains(words), "{words}: {stderr}");
        assert!(far.jobs().is_empty());
    };
    // On the way.
    let ssh = std::fs::read_to_string(far.ssh()).unwrap();
    far.replace_ssh(&ssh.replace("exec sh -c", "sed -u 's/filler/fuller/' | sh -c"));
    refused("a content has another hash");
    far.replace_ssh(&ssh);
    // There: of the right length, with other bytes.
    far.expect(&project, &["check", "conf/small.toml", "--on", "far"], 0);
    std::fs::remove_dir_all(far.project().join("trees")).unwrap();
    let objects = files(&far.project().join("results/runs")).into_iter().filter(|path| {
        path.components().any(|part| part.as_os_str() == "objects") && path.metadata().unwrap().len() > 0
    });
    let objects: Vec<PathBuf> = objects.collect();
    assert!(objects.len() > 1);
    for object in &objects {
        let length = usize::try_from(object.metadata().unwrap().len()).unwrap();
        std::fs::remove_file(object).unwrap();
        std::fs::write(object, vec![0_u8; length]).unwrap();
    }
    refused("the code of the job is damaged");
    // All of them, at once.
    let (stdout, stderr) = far.expect(&project, &submit, 0);
    let sent = format!("sent to far: {} files, ", objects.len());
    assert!(stdout == "far:1\n" && stderr.contains(&sent), "{sent}: {stdout}{stderr}");
    assert!(stderr.contains("going on with the submission of "), "{stderr}");
    far.wait_for_jobs();
}

#[test]
fn what_slurm_there_says_is_said_here_and_nothing_is_submitted() {
    let (project, mut far) = (TestProject::new(), FarSide::without_network());
    far.script("scontrol", "[ \"$1\" = ping ] && echo 'Slurmctld(primary) at login is UP'");
    let sbatch = far.script("sbatch", "echo 'sbatch: error: Batch job submission failed: Invalid account' >&2; exit 1");
    far.script("squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1");
    let tools = sbatch.parent().unwrap().display();
    far.setup(format!("export PATH='{tools}':\"$PATH\" SLURM_CONF=/dev/null EXPCTL_BACKEND=slurm"));
    far.connect(&project);
    project.conf("small", &conf());
    let submit = ["submit", "conf/small.toml", "--on", "far"];
    let (stdout, stderr) = far.expect(&project, &submit, 4);
    assert!(stdout.is_empty() && stderr.contains("Batch job submission failed: Invalid account"), "{stderr}");
    // Killed before it asked Slurm, which does not say then what it has of it.
    let killed = far.expctl(&project, &submit).env("EXPCTL_DIE_AT", "staged").output().unwrap();
    assert_eq!(killed.status.code(), Some(6), "{killed:?}");
    let (stdout, stderr) = far.expect(&project, &submit, 4);
    assert!(stdout.is_empty() && stderr.contains("the submission ended midway"), "{stderr}");
    assert!(stderr.contains("Unable to contact slurm controller"), "{stderr}");
    // Once it does, the rest of that one is removed, and it is asked anew.
    far.script("squeue", "exit 0");
    let (_, stderr) = far.expect(&project, &submit, 4);
    assert!(stderr.contains("Invalid account"), "{stderr}");
    let left = std::fs::read_dir(far.project().join("results/runs")).unwrap();
    let left: Vec<String> = left.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(left.iter().all(|name| name.starts_with("snapshots-")), "{left:?}");
}

#[test]
fn a_folder_there_may_be_the_home_folder() {
    let (project, far) = (TestProject::new(), FarSide::without_network());
    far.connect(&project);
    let settings = project.path().join("config/expctl/config.toml");
    let home = std::fs::read_to_string(&settings).unwrap().replace("\"expctl/p\"", "\"~\"");
    std::fs::write(&settings, home).unwrap();
    project.conf("small", &conf());
    let (stdout, _) = far.expect(&project, &["submit", "conf/small.toml", "--on", "far"], 0);
    assert_eq!(stdout, "far:1\n");
    assert!(far.home().join("results/runs/1/job.json").exists() && !far.project().exists());
    wait_until("the job there", PATIENCE, || {
        let (stdout, _) = far.expect(&project, &["status", "far:1", "--json"], 0);
        (serde_json::from_str::<serde_json::Value>(&stdout).unwrap()[0]["state"] == "failed").then_some(())
    });
    let (_, stderr) = far.expect(&project, &["fetch", "--on", "far"], 0);
    assert!(stderr.contains("1 job of far: "), "{stderr}");
}

#[test]
fn another_job_or_machine_is_not_taken_for_the_one_before() {
    let (far, project) = with_job();
    far.expect(&project, &["fetch", "--on", "far"], 0);
    // The folder there was emptied, and has another job 7 now.
    let record = far.project().join("results/runs/7/job.json");
    let earlier = std::fs::read(&record).unwrap();
    let mut job: serde_json::Value = serde_json::from_slice(&earlier).unwrap();
    let submitted = job["submitted"].as_i64().unwrap();
    job["submitted"] = (submitted + 1).into();
    std::fs::write(&record, job.to_string()).unwrap();
    let (_, stderr) = far.expect(&project, &["fetch", "--on", "far"], 0);
    assert!(stderr.contains("far:7 is another job than the one that was fetched before"), "{stderr}");
    let hosts = project.path().join("results/hosts/far");
    assert_eq!(std::fs::read(hosts.join("runs/7/job.json")).unwrap(), std::fs::read(&record).unwrap());
    // The records of the earlier one are nowhere else any more.
    let replaced = hosts.join(format!("replaced/7-{submitted}"));
    assert_eq!(std::fs::read(replaced.join("job.json")).unwrap(), earlier);
    assert_eq!(files(&replaced).len(), files(&hosts.join("runs/7")).len());
    let (_, stderr) = far.expect(&project, &["fetch", "--on", "far"], 0);
    assert!(stderr.contains("1 job of far: all is here"), "{stderr}");
    // Another folder there.
    let settings = project.path().join("config/expctl/config.toml");
    let other = std::fs::read_to_string(&settings).unwrap().replace("expctl/p", "expctl/q");
    std::fs::write(&settings, other).unwrap();
    project.conf("small", &conf());
    for verb in [&["fetch", "far:7"][..], &["report", "far:7"], &["submit", "conf/small.toml", "--on", "far"]] {
        let (stdout, stderr) = far.expect(&project, verb, 7);
        assert!(
            stdout.is_empty() && stderr.contains("has records of far:expctl/p, and far is far:expctl/q now"),
            "{stderr}"
        );
        assert!(stderr.contains("where.json"), "{stderr}");
    }
}

#[test]
fn the_profile_and_the_job_go_along_and_options_for_this_machine_do_not() {
    let (far, project) = with_job();
    let profiles = project.path().join("config/expctl/profiles");
    std::fs::create_dir_all(&profiles).unwrap();
    std::fs::write(profiles.join("far.toml"), "backend = \"local\"\n").unwrap();
    project.conf("small", &conf());
    let ssh = std::fs::read_to_string(far.ssh()).unwrap();
    far.replace_ssh(&ssh.replace("exec sh -c", "echo \"$3\" >> asked\nexec sh -c"));
    far.expect(&project, &["submit", "conf/small.toml", "--on", "far", "--dry-run"], 0);
    // The first number is not the job's.
    far.expctl(&project, &["logs", "--tail", "12", "far:7"]).output().unwrap();
    let asked = std::fs::read_to_string(far.home().join("asked")).unwrap();
    assert!(asked.lines().any(|line| line.contains("--profile far") && line.contains("--dry-run")), "{asked}");
    assert!(asked.lines().any(|line| line.contains("--job 7") && line.contains("--tail 12 7")), "{asked}");
    for verb in [
        &["watch", "far:7", "--metrics", "x.prom"][..],
        &["site", "pages", "--every", "5", "--on", "far"],
        &["data", "convert", "x.h5ad", "--to", "parquet", "--out", "x", "--on", "far"],
    ] {
        let (_, stderr) = far.expect(&project, verb, 2);
        assert!(stderr.contains("--on far: "), "{stderr}");
    }
}

#[test]
fn the_job_of_a_search_there_is_not_retried() {
    let (far, project) = with_job();
    let record = far.project().join("results/runs/7/job.json");
    let mut job: serde_json::Value = serde_json::from_slice(&std::fs::read(&record).unwrap()).unwrap();
    job["search"] = serde_json::json!({"id": "a", "start": 1, "round": 2});
    job["overrides"] = serde_json::json!(["measure.steps=40"]);
    std::fs::write(&record, job.to_string()).unwrap();
    let (stdout, stderr) = far.expect(&project, &["retry", "--all", "far:7"], 7);
    assert!(stdout.is_empty() && stderr.contains("error: job 7 is round 2 of a search, which runs again"), "{stderr}");
    let goes_on = "expctl search conf/086_ddp.toml --on far --only lazy --set measure.steps=40";
    assert!(stderr.contains(&format!("{goes_on}\n")) && stderr.contains(&format!("{goes_on} --again\n")), "{stderr}");
    assert!(stderr.contains("expctl rerun far:7\n"), "{stderr}");
}

#[test]
fn a_job_without_a_copy_of_its_code_is_not_run_again_there() {
    let (far, project, other) = (FarSide::without_network(), TestProject::new(), TestProject::new());
    let trial = other.trial("mine", "Mine", 1, |settings| settings.worker.command = vec!["./train.sh".to_owned()]);
    other.submitted(8, "mine", vec![trial]);
    copy(other.job("8").path(), &far.project().join("results/runs/8"));
    far.connect(&project);
    for rerun in [&["rerun", "far:8"][..], &["rerun", "far:8", "--dry-run"]] {
        let (stdout, stderr) = far.expect(&project, rerun, 7);
        assert!(stdout.is_empty() && stderr.contains("job 8 cannot be run again: it has no copy"), "{stderr}");
        assert!(stderr.contains("with the code as it is now: expctl submit conf/mine.toml --on far\n"), "{stderr}");
    }
}

#[test]
fn a_config_is_submitted_there_with_the_code_that_is_not_there_yet() {
    let (project, far) = (TestProject::new(), FarSide::without_network());
    far.connect(&project);
    project.conf("small", &conf());
    let (stdout, stderr) = far.expect(&project, &["submit", "conf/small.toml", "--on", "far", "--dry-run"], 0);
    assert!(
        stdout.is_empty() && stderr.contains("sent to far: ") && stderr.contains("nothing was written"),
        "{stderr}"
    );
    assert!(far.jobs().is_empty());
    let (stdout, stderr) = far.expect(&project, &["submit", "conf/small.toml", "--on", "far"], 0);
    assert_eq!(stdout, "far:1\n");
    assert!(!stderr.contains("sent to far"), "{stderr}");
    assert!(stderr.contains("expctl watch far:1") && !stderr.contains("watch 1"), "{stderr}");
    std::fs::write(project.path().join("new.py"), "a = 1\n").unwrap();
    let (stdout, stderr) = far.expect(&project, &["submit", "--on", "far", "--", "conf/../conf/small.toml"], 0);
    assert_eq!(stdout, "far:2\n");
    assert!(stderr.contains("sent to far: 1 file, "), "{stderr}");
    assert_eq!(far.jobs(), [1, 2]);
    assert_eq!(std::fs::read_dir(far.project().join("trees")).unwrap().count(), 2);
    // What is wrong is said as it is said there, with the same exit code.
    project.conf("wrong", &conf().replace("repeats", "repeets"));
    let (stdout, stderr) = far.expect(&project, &["submit", "conf/wrong.toml", "--on", "far"], 3);
    assert!(stdout.is_empty() && stderr.contains("repeets"), "{stderr}");
    let (_, stderr) = far.expect(&project, &["submit", "conf/none.toml", "--on", "far"], 3);
    assert!(stderr.contains("conf/none.toml is not among the files that travel"), "{stderr}");
    far.expect(&project, &["cancel", "far:1"], 0);
    far.expect(&project, &["cancel", "far:2"], 0);
    far.wait_for_jobs();
}

#[test]
fn configs_are_checked_and_planned_and_data_are_built_there() {
    let (project, far) = (TestProject::new(), FarSide::without_network());
    far.connect(&project);
    project.conf("small", &conf());
    project.conf("wrong", &conf().replace("repeats", "repeets"));
    let (_, stderr) = far.expect(&project, &["check", "conf/small.toml", "./conf/small.toml", "--on", "far"], 0);
    assert_eq!(stderr.matches("ok conf/small.toml: 1 variant, ").count(), 2, "{stderr}");
    let (_, stderr) = far.expect(&project, &["check", "conf/small.toml", "conf/wrong.toml", "--on", "far"], 3);
    assert!(stderr.contains("ok conf/small.toml: ") && stderr.contains("repeets"), "{stderr}");
    let (_, stderr) = far.expect(&project, &["check", "conf/small.toml", "conf/none.toml", "--on", "far"], 3);
    assert!(stderr.contains("conf/none.toml is not among the files that travel"), "{stderr}");
    let (stdout, _) = far.expect(&project, &["plan", "conf/small.toml", "--on", "far"], 0);
    assert!(stdout.contains("| a-r1-"), "{stdout}");
    let (stdout, stderr) = far.expect(&project, &["search", "conf/small.toml", "--on", "far"], 3);
    assert!(stdout.is_empty() && stderr.contains("conf/small.toml has no [search]"), "{stderr}");
    let set = ["006-kuzmin-tmi", "--samples", "50", "--scale", "0.05", "--on", "far"];
    let data = |verb: &str| far.expect(&project, &[&["data", verb][..], &set].concat(), 0).0;
    let built = PathBuf::from(data("build").trim());
    assert!(built.starts_with(far.project().join("data")) && built.join("manifest.json").exists(), "{built:?}");
    assert!(!project.path().join("data").exists());
    data("verify");
    assert!(data("info").contains(&built.display().to_string()));
    assert!(far.jobs().is_empty());
}

#[test]
fn files_that_a_config_names_are_those_of_the_other_machine() {
    let (project, far) = (TestProject::new(), FarSide::without_network());
    far.connect(&project);
    project.conf("small", SMALL);
    for file in ["weights/a.safetensors", "data/b.safetensors"] {
        let path = project.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
    }
    let check =
        |set: &str, code: i32| far.expect(&project, &["check", "conf/small.toml", "--on", "far", "--set", set], code).1;
    // One that travels, and one that does not.
    check("train.start_from=weights/a.safetensors", 0);
    let stderr = check("train.start_from=data/b.safetensors", 3);
    assert!(stderr.contains("`train.start_from`: there is no file data/b.safetensors on the machine that"), "{stderr}");
    assert!(stderr.contains("data/ and results/ are those of the machine that runs it"), "{stderr}");
    // Of that machine.
    std::fs::write(far.project().join("data/b.safetensors"), "").unwrap();
    check("train.start_from=data/b.safetensors", 0);
    let there = far.project().join("b.pt");
    let named = format!("train.start_from={}", there.display());
    let stderr = check(&named, 3);
    assert!(stderr.contains(&format!("`train.start_from`: there is no file {} on the", there.display())), "{stderr}");
    assert!(stderr.contains("an absolute path is one of the machine that runs it"), "{stderr}");
    std::fs::write(&there, "").unwrap();
    check(&named, 0);
    // Nothing is submitted, with --live neither.
    for live in [&[][..], &["--live"]] {
        let submit = ["submit", "conf/small.toml", "--on", "far", "--set", "model.path=data/none.pt"];
        let (stdout, stderr) = far.expect(&project, &[&submit[..], live].concat(), 3);
        assert!(stdout.is_empty() && stderr.contains("there is no file data/none.pt on the machine"), "{stderr}");
    }
    assert!(far.jobs().is_empty());
}

#[test]
fn a_submission_removes_old_code_that_no_job_has() {
    let (project, far) = (TestProject::new(), FarSide::without_network());
    far.connect(&project);
    project.conf("small", &conf());
    let trees = || -> Vec<PathBuf> {
        let entries = std::fs::read_dir(far.project().join("trees")).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    let change = |text: &str| std::fs::write(project.path().join("new.py"), text).unwrap();
    let submit = ["submit", "conf/small.toml", "--on", "far"];
    // Sent, and not submitted.
    far.expect(&project, &["check", "conf/small.toml", "--on", "far"], 0);
    let unused = trees();
    change("a = 1\n");
    far.expect(&project, &submit, 0);
    far.wait_for_jobs();
    let of_job: Vec<PathBuf> = trees().into_iter().filter(|tree| !unused.contains(tree)).collect();
    assert_eq!([unused.len(), of_job.len()], [1, 1]);
    let sent = SystemTime::now() - Duration::from_secs(15 * 24 * 3600);
    trees().iter().for_each(|tree| File::open(tree).unwrap().set_modified(sent).unwrap());
    change("a = 2\n");
    far.expect(&project, &submit, 0);
    wait_until("the old tree to be removed", PATIENCE, || (trees().len() == 2).then_some(()));
    assert!(!unused[0].exists() && of_job[0].join("new.py").exists());
    // Its job runs again.
    far.expect(&project, &["rerun", "far:1"], 0);
    assert_eq!(far.jobs(), [1, 2, 3]);
    far.wait_for_jobs();
}
