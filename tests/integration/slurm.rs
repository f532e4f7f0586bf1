//! The Slurm backend, as far as it needs no cluster: the scripts that are submitted, and answers of Slurm that a sound cluster does not give.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use expctl::exit::Exit;
use expctl::launch::slurm::{self, SlurmBackend};
use expctl::program::Programs;
use expctl::remote::protocol::{HostReply, HostRequest, write_message};
use expctl_ledger::{JobArrays, TrialState};
use slurm_client::{Availability, Slurm};

use crate::common::job::{Flow, fixed_programs, job, ledger};
use crate::common::{SMALL, TestProject, program, text};

/// A name that a shell, or Slurm, would take apart.
pub const HOSTILE: &str = "it's \"a\" \\ config; touch pwned; $(touch pwned) `touch pwned` #%A\n#SBATCH --array=0-9";

/// Shell scripts in the place of Slurm's commands, in a folder that comes first on the path.
struct FakeTools {
    folder: tempfile::TempDir,
}

impl FakeTools {
    /// Commands by name, each the body of a shell script that runs in the folder.
    fn new(commands: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, body) in commands {
            let path = folder.path().join(name);
            std::fs::write(&path, format!("#!/bin/bash\ncd \"$(dirname \"$0\")\"\n{body}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self { folder }
    }

    /// A cluster where `sbatch` answers `submitted` and `squeue` lists `rows`, after one answer that says nothing.
    fn cluster(submitted: &str, rows: &str) -> Self {
        let squeue = format!(
            "echo \"$*\" >> asked\n[ -e asked-before ] || {{ touch asked-before; echo greetings; exit; }}\n\
             printf 'JOBID|STATE|REASON\\n{rows}'"
        );
        let sbatch = format!("echo '{submitted}'");
        Self::new(&[("sbatch", &sbatch), ("scontrol", "true"), ("scancel", "true"), ("squeue", &squeue)])
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A value for `PATH`.
    fn path(&self) -> String {
        format!("{}:/usr/bin:/bin", self.folder.path().display())
    }

    fn slurm(&self) -> Slurm {
        Slurm::from_environment().with_variable("PATH", self.path())
    }

    /// Arguments of each call of squeue.
    fn asked(&self) -> Vec<String> {
        let log = self.folder.path().join("asked");
        std::fs::read_to_string(log).unwrap().lines().map(str::to_owned).collect()
    }
}

#[test]
fn the_script_is_this() {
    let mut job = job("086_ddp", &["lazy", "shared", "ids"], 2);
    for trial in &mut job.trials {
        let slurm = &mut trial.settings.slurm;
        (slurm.memory_mib, slurm.time_min, slurm.throttle, slurm.cpus_per_rank) = (4096, 90, 2, 4);
        "debug".clone_into(&mut slurm.partition);
        "lab".clone_into(&mut slurm.account);
    }
    let scripts = slurm::render(&ledger(Path::new("/project")), &job, &fixed_programs()).unwrap();
    insta::assert_snapshot!(scripts.join("\n"));
}

#[test]
fn any_script_is_one_that_bash_can_read() {
    let folder = tempfile::tempdir().unwrap();
    for (name, runs) in [("plain", "plain"), (HOSTILE, "it's \"a\" $(folder) 100%")] {
        let job = job(name, &["a"], 1);
        let programs = Programs { library_path: Some("/a b:$(c)".to_owned()), ..fixed_programs() };
        let project = ledger(&folder.path().join(runs));
        let script = slurm::render(&project, &job, &programs).unwrap().remove(0);
        let file = folder.path().join("batch.sh");
        std::fs::write(&file, &script).unwrap();
        let bash = std::process::Command::new("bash").arg("-n").arg(&file).output().unwrap();
        assert!(bash.status.success(), "{}\n{script}", String::from_utf8_lossy(&bash.stderr));
        let directives = script.lines().filter(|l| l.starts_with("#SBATCH "));
        let names = directives.map(|l| l["#SBATCH ".len()..].split('=').next().unwrap());
        let plain = "--job-name --array --nodes --ntasks --cpus-per-task --output --error --open-mode --kill-on-invalid-dep --no-requeue";
        assert_eq!(names.collect::<Vec<_>>().join(" "), plain, "{script}");
    }
}

#[test]
fn trials_that_ask_for_different_resources_are_in_arrays_of_their_own() {
    let mut job = job("mixed", &["a", "b", "c", "d"], 1);
    let launch = &mut job.trials[1].settings.launch;
    (launch.ranks, launch.nodes) = (4, 2);
    let slurm = &mut job.trials[1].settings.slurm;
    (slurm.memory_mib, slurm.gpus_per_rank) = (1001, 1);
    job.trials[3].settings.slurm.partition = "debug".to_owned();
    let scripts = slurm::render(&ledger(Path::new("/project")), &job, &fixed_programs()).unwrap();
    let directives = |script: &String| -> Vec<String> {
        let lines = script.lines().filter_map(|line| line.strip_prefix("#SBATCH --"));
        let wanted = ["array", "nodes", "ntasks", "mem", "gres", "partition"];
        lines.filter(|line| wanted.iter().any(|name| line.starts_with(name))).map(str::to_owned).collect()
    };
    let shown: Vec<_> = scripts.iter().map(directives).collect();
    assert_eq!(shown[0], ["array=0,2", "nodes=1", "ntasks=1"]);
    assert_eq!(shown[1], ["array=1", "nodes=2", "ntasks=4", "ntasks-per-node=2", "mem=501M", "gres=\"gpu:2\""]);
    assert_eq!(shown[2], ["array=3", "nodes=1", "ntasks=1", "partition=\"debug\""]);
    assert_eq!(shown.len(), 3);
    assert!(scripts[1].contains("srun --nodes=2 --ntasks=4 --ntasks-per-node=2 --cpus-per-task=1 "), "{}", scripts[1]);
}

#[test]
fn a_job_that_is_interleaved_is_one_task_with_all_its_trials() {
    let mut job = job("paired", &["a", "b", "c"], 1);
    for trial in &mut job.trials {
        trial.settings.measure.interleave = true;
        trial.settings.slurm.time_min = 20;
    }
    let scripts = slurm::render(&ledger(Path::new("/project")), &job, &fixed_programs()).unwrap();
    assert_eq!(scripts.len(), 1);
    assert!(scripts[0].contains("#SBATCH --array=0\n") && scripts[0].contains("#SBATCH --time=60\n"), "{}", scripts[0]);
}

#[test]
fn a_value_that_would_start_a_new_line_is_refused() {
    let mut job = job("a", &["a"], 1);
    job.trials[0].settings.slurm.partition = "batch\n#SBATCH --uid=0".to_owned();
    let failure = slurm::render(&ledger(Path::new("/project")), &job, &fixed_programs()).unwrap_err();
    assert_eq!(failure.exit, Exit::Config);
    assert!(failure.message.contains("control character"), "{failure}");
}

#[test]
fn a_slurm_that_is_away_is_not_taken_for_none() {
    let nothing = FakeTools::new(&[]);
    let no_sbatch = Slurm::from_environment().with_variable("PATH", nothing.folder());
    assert_eq!(no_sbatch.availability(), Availability::Absent);
    let away = FakeTools::new(&[("sbatch", "exit 1"), ("scontrol", "echo 'Slurmctld(primary) at c1 is DOWN'")]);
    let away = away.slurm().with_variable("SLURM_CONF", "/nonexistent/slurm.conf").availability();
    assert_eq!(away, Availability::Unreachable("Slurmctld(primary) at c1 is DOWN".to_owned()));
    let up = FakeTools::new(&[("sbatch", "exit 1"), ("scontrol", "echo 'Slurmctld(primary) at c1 is UP'")]);
    assert_eq!(up.slurm().availability(), Availability::Ready);
}

#[test]
fn submit_without_a_backend_does_not_fall_back_to_a_login_node() {
    let away = FakeTools::new(&[("sbatch", "exit 1"), ("scontrol", "echo 'no answer' >&2; exit 1")]);
    let project = TestProject::new();
    let conf = project.conf("small", SMALL);
    let mut submit = project.expctl(&["submit", conf.to_str().unwrap()]);
    let output = submit.env("PATH", away.path()).env("SLURM_CONF", "/nonexistent/slurm.conf").output().unwrap();
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{message}");
    assert!(message.contains("scontrol: no answer") && message.contains("--backend local"), "{message}");
    assert!(output.stdout.is_empty() && !project.path().join("results/runs").exists());
}

#[test]
fn an_answer_that_cannot_be_read_is_trouble_and_every_question_goes_to_the_jobs_cluster() {
    let tools = FakeTools::cluster("7;east", "7_0|CANCELLED|None\\n");
    let flow = Flow::new("ledger");
    let slurm = tools.slurm();
    assert_eq!(flow.submit_to(&slurm, job("multi", &["a"], 1)).unwrap(), 7);
    let mut trouble = Vec::new();
    SlurmBackend::new(slurm).wait_for_job(&flow.project, 7, &mut |look| trouble.push(look.trouble)).unwrap();
    let first = "squeue answered \"greetings\", which is not the table that was asked for";
    assert_eq!(trouble.first().unwrap().as_deref(), Some(first));
    assert!(trouble.iter().skip(1).all(Option::is_none), "{trouble:?}");
    assert!(tools.asked().iter().all(|call| call.starts_with("--clusters=east ")), "{:?}", tools.asked());
}

#[test]
fn only_a_task_that_somebody_cancelled_before_its_attempt_is_interrupted() {
    let rows = "7_0|FAILED|NonZeroExitCode\\n7_1|CANCELLED|None\\n7_2|NODE_FAIL|None\\n7_3|COMPLETED|None\\n";
    let tools = FakeTools::cluster("7", rows);
    let flow = Flow::new("ledger");
    let slurm = tools.slurm();
    flow.submit_to(&slurm, job("unstarted", &["a", "b", "c", "d"], 2)).unwrap();
    SlurmBackend::new(slurm).wait_for_job(&flow.project, 7, &mut |_| {}).unwrap();
    let (failed, interrupted) = (TrialState::Failed, TrialState::Interrupted);
    for (index, state) in [failed, interrupted, failed, failed].into_iter().enumerate() {
        let outcome = flow.outcome(7, index);
        assert_eq!((outcome.state, outcome.failed_rank), (state, None), "{outcome:?}");
    }
    let expected = "the task ended before it had an attempt; Slurm says FAILED (NonZeroExitCode); see slurm-7_0.log";
    assert_eq!(flow.outcome(7, 0).message, expected);
}

#[test]
fn a_job_that_is_waited_for_from_elsewhere_ends_with_its_outcomes() {
    // Its node has failed, and nobody has written an outcome.
    let tools = FakeTools::cluster("7", "7_0|NODE_FAIL|None\\n");
    let flow = Flow::new("ledger");
    flow.submit_to(&tools.slurm(), job("lost", &["a"], 1)).unwrap();
    let mut command = Command::new(program());
    command.args(["remote", "serve", "--folder"]).arg(flow.project.root()).env_remove("EXPCTL_DATA");
    command.env("PATH", tools.path()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut serving = command.spawn().unwrap();
    let mut asked = Vec::new();
    (0..2).for_each(|_| write_message(&mut asked, &HostRequest::State { job: 7 }).unwrap());
    serving.stdin.take().unwrap().write_all(&asked).unwrap();
    let output = serving.wait_with_output().unwrap();
    let replies: Vec<HostReply> =
        text(&output.stdout).lines().skip(2).map(|line| serde_json::from_str(line).unwrap()).collect();
    let state = |summary: &str, ended| HostReply::State { summary: summary.to_owned(), ended };
    // An answer of Slurm that says nothing is no end.
    assert_eq!(replies, [state("1 unknown", false), state("1 failed", true)]);
    assert_eq!(flow.outcome(7, 0).state, TrialState::Failed);
}

#[test]
fn a_submission_that_was_cut_off_is_withdrawn_only_if_nothing_of_it_was_released() {
    let flow = Flow::new("ledger");
    flow.submit_to(&FakeTools::cluster("7", "").slurm(), job("cut", &["a", "b"], 1)).unwrap();
    let folder = flow.project.job(7);
    let record = folder.record().unwrap();
    let finish = |rows: &str| {
        let squeue = format!("printf 'JOBID|STATE|REASON\\n{rows}'");
        let tools = FakeTools::new(&[
            ("squeue", squeue.as_str()),
            ("scontrol", "echo \"$*\" >> done"),
            ("scancel", "[ \"$1\" = 6 ] && exit 1; echo \"cancel $*\" >> done"),
        ]);
        let finished = SlurmBackend::new(tools.slurm()).finish_submission(&folder, &record).unwrap();
        (finished, std::fs::read_to_string(tools.folder().join("done")).unwrap_or_default())
    };
    let held = "7_0|PENDING|JobHeldUser\\n7_1|PENDING|JobHeldUser\\n";
    assert_eq!(finish(held), (false, "cancel 7\n".to_owned()));
    assert_eq!(finish("7_0|PENDING|Dependency\\n7_1|PENDING|JobHeldAdmin\\n"), (false, "cancel 7\n".to_owned()));
    // The job that was to build its data has failed, and Slurm has forgotten it.
    let mut arrays = JobArrays::load(&folder, 7, record.trials.len()).unwrap();
    arrays.build = Some(6);
    arrays.save(&folder).unwrap();
    assert_eq!(finish("7_0|PENDING|DependencyNeverSatisfied\\n"), (false, "cancel 7\n".to_owned()));
    // One task that its user holds is no array on hold.
    assert_eq!(finish("7_0|PENDING|JobHeldUser\\n7_1|PENDING|Priority\\n"), (true, String::new()));
    // It ran, so it was released, whoever holds it now.
    folder.next_attempt(&record.trials[0].id).unwrap();
    assert_eq!(finish(held), (true, String::new()));
    // Its figures may come for an hour.
    let awaits = |age_s: i64| {
        let mut job = record.clone();
        job.submitted = jiff::Timestamp::now().as_second() - age_s;
        slurm::awaits_usage(&folder, &job).unwrap()
    };
    assert!(awaits(60) && !awaits(7200));
}
