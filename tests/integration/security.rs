//! What a config, a profile or an environment must not be able to do: run code of its own, leave a secret behind, or make
//! files that others can read against the user's umask.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::cluster::Cluster;
use crate::common::{SMALL, TestProject, text};
use expctl_ledger::{CodeSnapshot, JobDir, LiveReason, SnapshotContent};
use serde_json::to_string as quoted;
use test_support::{Requirement, skip};

/// Everything that a shell, Slurm or a template may take for its own, with commands that leave a mark.
const HOSTILE: &str = "it's \"a\" \\ \\\" $(touch pwned) `touch pwned` ; touch pwned & ${IFS} %A %% {{ 7*7 }} {% raw %}\
                       \u{2028}touch pwned\u{2029}#SBATCH --uid=0\n#SBATCH --array=0-99\ntouch pwned\n'\ntouch pwned\n\"\r touch pwned #";

/// Secrets as environments hold them, each under a name that gives it away.
const SECRETS: [(&str, &str); 5] = [
    ("SLURM_JWT", "eyJhbGciOiJIUzI1NiJ9.sesame1"),
    ("HF_TOKEN", "hf_sesame2sesame2"),
    ("EXPCTL_TEST_PASSWORD", "sesame3-sesame3"),
    ("PYTORCH_API_KEY", "sesame4-sesame4"),
    ("DB_PASSWD", "sesame5-sesame5"),
];

/// All files and folders below a folder; links are not followed.
fn below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            }
            found.push(entry.path());
        }
    }
    found
}

fn holds(path: &Path, words: &str) -> bool {
    let content = std::fs::read(path).unwrap_or_default();
    content.windows(words.len()).any(|window| window == words.as_bytes())
}

fn bash_reads(script: &str, folder: &Path) {
    let path = folder.join("script-under-test.sh");
    std::fs::write(&path, script).unwrap();
    let output = Command::new("bash").arg("-n").arg(&path).output().unwrap();
    assert!(output.status.success(), "{}\n{script}", text(&output.stderr));
    std::fs::remove_file(path).unwrap();
}

/// A config all of whose texts are hostile, with a profile that is too; the config's own name is as bad as a name can be.
fn hostile(project: &TestProject) -> PathBuf {
    let all = quoted(HOSTILE).unwrap();
    let one_line = quoted(&HOSTILE.replace(['\n', '\r'], " ")).unwrap();
    let profiles = project.path().join("slurm/profiles");
    std::fs::create_dir_all(&profiles).unwrap();
    let profile = format!(
        "description = {all}\n[environment]\nHOSTILE = {all}\nHOSTILE_TOO = {all}\n[extra]\ncomment = {one_line}\n"
    );
    std::fs::write(profiles.join("hostile.toml"), profile).unwrap();
    let conf = SMALL
        .replace("title = \"Small\"", &format!("title = {all}\ndescription = {all}\nmeasures = [{all}]"))
        .replace("ranks = 2", "ranks = 1")
        .replace("[variant.ids]\n", &format!("[variant.ids]\nmethod = {all}\n"));
    let name = HOSTILE.replace('/', "").chars().take(150).collect::<String>();
    project.conf(&name, &format!("{conf}\n[slurm]\nprofile = \"hostile\"\n"))
}

/// Nothing that the texts order was done: not in the project, not where the job or the test ran.
fn nothing_was_done(project: &TestProject) {
    let places = [project.path().to_owned(), std::env::current_dir().unwrap()];
    for place in places {
        assert!(!place.join("pwned").exists(), "{}", place.display());
    }
    let marks: Vec<PathBuf> = below(project.path()).into_iter().filter(|p| p.ends_with("pwned")).collect();
    assert!(marks.is_empty(), "{marks:?}");
}

#[test]
fn hostile_texts_make_a_script_that_does_what_every_script_does() {
    let project = TestProject::new();
    let conf = hostile(&project);
    let script = project.ok(&["plan", conf.to_str().unwrap(), "--script"]);
    bash_reads(&script, project.path());
    let plain = project.conf("plain", &SMALL.replace("ranks = 2", "ranks = 1"));
    let plain = project.ok(&["plan", plain.to_str().unwrap(), "--script"]);
    // The same options and no others; Slurm stops looking for them where the commands begin.
    let options = |script: &str| -> Vec<String> {
        let head = script.lines().take_while(|line| line.trim().is_empty() || line.starts_with('#'));
        let lines = head.filter_map(|line| line.strip_prefix("#SBATCH ")).map(str::to_owned);
        lines.map(|line| line.split('=').next().unwrap_or_default().to_owned()).collect()
    };
    let mut expected = options(&plain);
    let at = expected.iter().position(|option| option == "--output").unwrap();
    expected.insert(at, "--comment".to_owned());
    assert_eq!(options(&script), expected, "{script}");
    // Texts that become directives or words of srun cannot hold a line break at all.
    for key in ["partition", "account", "qos", "constraint", "gpu_type", "image"] {
        let set = format!("slurm.{key}={}", quoted("x\n#SBATCH --uid=0").unwrap());
        let more = if key == "gpu_type" { "slurm.gpus_per_rank=1" } else { "slurm.gpus_per_rank=0" };
        let output = project.run(&["plan", conf.to_str().unwrap(), "--script", "--set", &set, "--set", more]);
        assert_eq!(output.status.code(), Some(3), "{key}: {}", text(&output.stdout));
        let set = format!("slurm.{key}={}", quoted(&HOSTILE.replace(['\n', '\r'], " ")).unwrap());
        bash_reads(
            &project.ok(&["plan", conf.to_str().unwrap(), "--script", "--set", &set, "--set", more]),
            project.path(),
        );
    }
    // What sbatch would refuse in any script is refused with its place.
    std::fs::write(project.path().join("slurm/profiles/dos.toml"), "[environment]\nA = \"b\\r\\nc\"\n").unwrap();
    let output = project.run(&["check", conf.to_str().unwrap(), "--set", "slurm.profile=dos"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("cannot hold a DOS line break"), "{}", text(&output.stderr));
    // Names that become folders are checked.
    let named =
        project.conf("named", &SMALL.replace("[variant.ids]", &format!("[variant.{}]", quoted(HOSTILE).unwrap())));
    assert_eq!(project.run(&["plan", named.to_str().unwrap(), "--script"]).status.code(), Some(3));
    nothing_was_done(&project);
}

/// The command under a umask, as a user's shell sets it.
fn under(project: &TestProject, umask: &str, arguments: &[&str]) -> Command {
    let expctl = project.expctl(arguments);
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("umask {umask}; exec \"$@\""), "sh"])
        .arg(expctl.get_program())
        .args(expctl.get_args());
    command.current_dir(project.path());
    for (name, value) in expctl.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// Files and folders of the ledger, the notes and the data are as the umask has them, but for the folders of jobs, and for the code of jobs,
/// which is the user's alone.
fn modes(project: &TestProject, job: u32, folder: u32, file: u32) {
    for place in ["results", "data"].map(|name| project.path().join(name)) {
        let all = below(&place);
        assert!(!all.is_empty(), "{}", place.display());
        for path in all {
            let meta = std::fs::symlink_metadata(&path).unwrap();
            let is_job = path.parent().is_some_and(|parent| parent.ends_with("results/runs"));
            let is_store =
                |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("snapshots-"));
            let is_object = path.ancestors().nth(3).is_some_and(is_store);
            let expected = match meta.is_dir() {
                true if is_store(&path) => 0o700,
                true if is_job => job,
                true => folder,
                // Nobody writes an object again.
                false if is_object => file & 0o444,
                false => file,
            };
            assert_eq!(meta.permissions().mode() & 0o7777, expected, "{}", path.display());
        }
    }
}

fn no_secrets(project: &TestProject, output: &Output) {
    for (name, secret) in SECRETS {
        for words in [&output.stdout, &output.stderr] {
            assert!(!text(words).contains(secret), "{name} was printed: {}", text(words));
        }
        for path in below(&project.path().join("results")) {
            assert!(!holds(&path, secret), "{name} is in {}", path.display());
        }
    }
}

#[test]
fn secrets_stay_out_of_the_ledger_however_they_come_near_it() {
    let project = TestProject::new();
    // A config and a tracked file that quote a secret.
    let conf = project.conf("small", &format!("# {}\n{}", SECRETS[2].1, SMALL.replace("ranks = 2", "ranks = 1")));
    let git = |arguments: &[&str]| {
        let identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"];
        let output = Command::new("git").args(identity).args(arguments).current_dir(project.path()).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    std::fs::write(project.path().join(".env"), "A=1\n").unwrap();
    git(&["init", "--quiet"]);
    git(&["add", "--all"]);
    git(&["commit", "--quiet", "--message", "first"]);
    let known_only_by_name = "another-sesame-6";
    std::fs::write(
        project.path().join(".env"),
        format!("A=2\nexport OTHER_TOKEN={known_only_by_name}\nURL=https://x:{}@y\n", SECRETS[1].1),
    )
    .unwrap();
    std::fs::write(project.path().join("untracked.env"), SECRETS[0].1).unwrap();
    let line = ["submit", conf.to_str().unwrap(), "--backend", "local", "--only", "ids", "--wait"];
    let submit = |more: &[&str]| {
        let output = project.expctl(&[&line, more].concat()).envs(SECRETS).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        output
    };
    // A copy of the code has to be the code, so files with secrets are not copied.
    let copied = submit(&[]);
    let snapshot = CodeSnapshot::read(&project.job(&text(&copied.stdout))).unwrap().unwrap();
    let left_out = snapshot
        .entries
        .iter()
        .filter(|entry| matches!(entry.content, SnapshotContent::Live { reason: LiveReason::Secret, .. }));
    let left_out: Vec<String> = left_out.map(|entry| entry.path.encoded()).collect();
    assert_eq!(left_out, [".env", "conf/small.toml", "untracked.env"]);
    assert!(text(&copied.stderr).contains("conf/small.toml (looks like a secret"), "{}", text(&copied.stderr));
    no_secrets(&project, &copied);
    let output = submit(&["--live"]);
    let folder = project.job(&text(&output.stdout));
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let diff = read("source.diff");
    assert!(
        diff.contains("+A=2\n") && diff.contains("+URL=https://x:[left out") && diff.contains("untracked.env"),
        "{diff}"
    );
    assert!(!diff.contains(known_only_by_name), "{diff}");
    // It is said that something was left out, and what.
    assert!(read("config.toml").starts_with("# [left out: looks like a secret]\n"));
    assert!(
        read("provenance.json").contains("\"EXPCTL_TEST_PASSWORD\"") && !read("provenance.json").contains("sesame")
    );
    no_secrets(&project, &output);

    // A profile is no place for a secret: its script is kept.
    let profiles = project.path().join("slurm/profiles");
    std::fs::create_dir_all(&profiles).unwrap();
    std::fs::write(profiles.join("leaky.toml"), "[environment]\nWANDB_API_KEY = \"x\"\n").unwrap();
    let refused = project.run(&["check", conf.to_str().unwrap(), "--set", "slurm.profile=leaky"]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(text(&refused.stderr).contains("`WANDB_API_KEY` looks like a secret"), "{}", text(&refused.stderr));
}

#[test]
fn files_are_made_with_the_users_umask_and_jobs_are_shared_with_whom_the_config_says() {
    for (umask, readers, job, folder, file) in [
        ("077", "user", 0o700, 0o700, 0o600),
        ("002", "user", 0o700, 0o775, 0o664),
        ("002", "group", 0o750, 0o775, 0o664),
        ("077", "all", 0o755, 0o700, 0o600),
    ] {
        let project = TestProject::new();
        let conf = project.conf("small", SMALL);
        let readers = format!("launch.readers={readers}");
        let line =
            ["submit", conf.to_str().unwrap(), "--backend", "local", "--wait", "--only", "ids", "--set", &readers];
        let checkpoints = ["--set", "checkpoint.every_steps=3"];
        let output = under(&project, umask, &[&line[..], &checkpoints].concat()).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        modes(&project, job, folder, file);
    }
}

/// A second user of the machine, as on a shared node.
#[test]
fn another_user_sees_the_jobs_that_are_shared_and_no_others() {
    if !nix::unistd::geteuid().is_root() {
        return skip(Requirement::Other, "only root can run a program as another user");
    }
    let project = TestProject::new();
    std::fs::set_permissions(project.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let conf = project.conf("small", &SMALL.replace("ranks = 2", "ranks = 1"));
    let submit = |readers: &str| {
        let readers = format!("launch.readers={readers}");
        let line =
            ["submit", conf.to_str().unwrap(), "--backend", "local", "--wait", "--only", "ids", "--set", &readers];
        let output = project.run(&line);
        assert!(output.status.success(), "{}", text(&output.stderr));
        project.job(&text(&output.stdout))
    };
    let (own, shared) = (submit("user"), submit("all"));
    // The built programs may be in a home that others do not reach.
    let program = project.path().join("expctl");
    let built = Path::new(env!("CARGO_BIN_EXE_expctl"));
    std::fs::hard_link(built, &program).or_else(|_| std::fs::copy(built, &program).map(drop)).unwrap();
    let nobody = |command: &[&str]| {
        let mut setpriv = Command::new("setpriv");
        setpriv.args(["--reuid", "nobody", "--regid", "nogroup", "--clear-groups", "--"]).args(command);
        setpriv.current_dir("/").env("HOME", "/nonexistent").output().unwrap()
    };
    let root = project.path().to_str().unwrap();
    let expctl = |arguments: &[&str]| nobody(&[&[program.to_str().unwrap(), "--root", root][..], arguments].concat());

    let all = expctl(&["status"]);
    assert_eq!(all.status.code(), Some(0), "{}", text(&all.stderr));
    let note = "note: not shown: jobs of other users that only they may read: 1 (";
    assert!(text(&all.stderr).contains(note), "{}", text(&all.stderr));
    assert!(text(&all.stdout).contains("small"), "{}", text(&all.stdout));
    let one = expctl(&["status", "1"]);
    assert_eq!(one.status.code(), Some(6));
    assert!(text(&one.stderr).contains("job 1 is another user's"), "{}", text(&one.stderr));

    let shown = |folder: &JobDir| nobody(&["cat", folder.record_path().to_str().unwrap()]).status.success();
    assert!(!shown(&own) && shown(&shared));
    let changed = nobody(&["touch", shared.path().join("more").to_str().unwrap()]);
    assert!(!changed.status.success(), "a reader does not write");
}

/// What `make check` leaves out.
mod slow {
    use super::*;

    /// One real job on a real cluster: hostile texts, secrets in the environment, a strict umask.
    #[test]
    fn a_hostile_job_with_secrets_runs_on_slurm_and_leaves_neither_marks_nor_secrets() {
        let Some(cluster) = Cluster::start(&["--nodes", "1"]) else { return };
        let project = TestProject::new();
        let conf = hostile(&project);
        let line = ["submit", conf.to_str().unwrap(), "--backend", "slurm", "--only", "ids", "--wait"];
        // Without the token of Slurm's own: its commands would use it, and this cluster knows no tokens.
        let secrets = SECRETS.into_iter().filter(|(name, _)| *name != "SLURM_JWT");
        let output = under(&project, "077", &line).env("SLURM_CONF", cluster.conf()).envs(secrets).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let id = text(&output.stdout).trim().to_owned();
        let attempt = project.attempt(&id, "ids").unwrap();
        assert!(attempt.environment().unwrap().is_some() && attempt.steps(0).unwrap().len() == 8);
        // One trial, one task: no directive of the texts' own was heard.
        assert_eq!(cluster.ask("squeue", &["--noheader", "--array", "--states=all", "--format=%K %u"]), "0 root\n");
        nothing_was_done(&project);
        no_secrets(&project, &output);
        modes(&project, 0o700, 0o700, 0o600);
    }
}
