//! Programs of the user's as ranks, end to end on this machine: small Python programs with the helper of `python/`.

use crate::common::programs::{BARE, install, install_torch};
use crate::common::{Guard, SMALL, TestProject, text, worker_pids};
use expctl_ledger::{Cause, RankStatus, Stage, TrialState};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn project() -> TestProject {
    let project = TestProject::new();
    install(&project);
    project
}

/// Submit and wait; returns the exit code and stderr.
fn submit(project: &TestProject, conf: &str) -> (Option<i32>, String) {
    let conf = project.conf("command", conf);
    let output = project.run(&["submit", conf.to_str().unwrap(), "--backend", "local", "--wait"]);
    (output.status.code(), text(&output.stderr))
}

/// Processes that run something of the project.
fn left_over(project: &TestProject) -> Vec<String> {
    let folder = project.path().canonicalize().unwrap();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        if std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(&folder)) {
            let command = text(&std::fs::read(entry.path().join("cmdline")).unwrap_or_default()).replace('\0', " ");
            found.push(command);
        }
    }
    found
}

#[test]
fn a_program_stands_beside_a_native_variant_in_every_table() {
    let project = project();
    // SMALL has two native variants; its steps train, and so it is said of the program's.
    let conf = SMALL.replace(
        "[variant.lazy]",
        "[variant.mine]\nworker.command = [\"./python\", \"good.py\", \"x\"]\n\n[variant.lazy]",
    );
    let (code, stderr) = submit(&project, &conf);
    assert_eq!(code, Some(0), "{stderr}");
    let attempt = project.attempt("1", "mine").unwrap();
    let environment = attempt.environment().unwrap().unwrap();
    let program = environment.program.unwrap();
    assert_eq!(
        (program.name.as_str(), program.versions["toy"].as_str(), program.stored_bytes),
        ("good", "1.2.3", Some(12345))
    );
    assert!(
        program.peak_memory_bytes.unwrap() > 1 << 20 && environment.ranks.len() == 2 && environment.device == "cpu"
    );
    assert_eq!(attempt.data_read().unwrap().unwrap().records, 77);
    for rank in 0..2 {
        let steps = attempt.steps(rank).unwrap();
        assert_eq!(steps.iter().map(|s| s.step).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
        assert_eq!(steps.iter().filter(|s| s.measured).count(), 6);
        for (i, step) in steps.iter().enumerate() {
            assert_eq!((step.samples, step.bytes_read, step.loss), (8, 100, Some(1.0 / (1.0 + i as f64))));
            // The inner stage is taken out of the outer one.
            assert!(step.exposed[Stage::Read] >= 2_000_000 && step.exposed[Stage::Decode] >= 1_000_000, "{step:?}");
            assert!(step.exposed.total() <= step.wall_ns && step.busy == step.exposed, "{step:?}");
        }
        assert!(steps.windows(2).all(|two| two[0].start_ns + two[0].wall_ns == two[1].start_ns));
        let log = std::fs::read_to_string(attempt.log_path(rank)).unwrap();
        assert!(log.contains(&format!("here is rank {rank} ['x']")), "{log}");
        assert!(!attempt.journal_path(rank).exists() && !attempt.exit_path(rank).exists());
    }
    let note = std::fs::read_to_string(project.path().join("results/command_1.md")).unwrap();
    assert!(note.contains("- program: good (python 3."), "{note}");
    assert!(note.contains("toy 1.2.3): amp = true, samples 77, on disk 12.3 kB"), "{note}");
    assert!(note.contains("Peak memory of a rank"), "{note}");
    let table = project.ok(&["compare", "1"]);
    for row in ["| mine |", "| lazy |", "| ids |"] {
        assert_eq!(table.lines().filter(|line| line.replace('*', "").contains(row)).count(), 1, "{table}");
    }
    assert!(note.contains("| worker.command |") || note.contains("worker.command = ./python good.py x"), "{note}");
    let status = project.ok(&["status", "1"]);
    assert!(
        status.lines().any(|line| line.contains("mine-r1") && line.contains("completed") && line.contains("8/8")),
        "{status}"
    );
    assert!(project.ok(&["timings", "1"]).contains("mine"));
    let isolated = project.run(&["isolate", "1", "--only", "mine"]);
    assert_eq!(isolated.status.code(), Some(7), "{}", text(&isolated.stderr));
}

#[test]
fn whatever_goes_wrong_is_said_and_other_trials_go_on() {
    let project = project();
    // How it fails, what is said, and how the other rank ended.
    let cases: [(&str, &str, Cause, Option<RankStatus>); 13] = [
        (
            "rubbish",
            "rank 1: line 5 that the program wrote to EXPCTL_SOCKET is no record: control character (\\u0000-\\u001F) found while parsing a string, column 23: {\"step\": {\"step\": 3, \"\\u{1b}[2J\": 1}}",
            Cause::Error,
            Some(RankStatus::PeerLost),
        ),
        ("stage", "unknown variant `reading`, expected one of `sample`, ", Cause::Error, Some(RankStatus::PeerLost)),
        (
            "order",
            "line 5 that the program wrote to EXPCTL_SOCKET is no record: step 5, where step 3 was due",
            Cause::Error,
            Some(RankStatus::PeerLost),
        ),
        ("long", "longer than 65536 bytes: {\"step\": \"xxx", Cause::Error, Some(RankStatus::PeerLost)),
        (
            "killed",
            "rank 1: the program was killed by signal 9 SIGKILL after 3 of 8 steps",
            Cause::Killed,
            Some(RankStatus::PeerLost),
        ),
        (
            "exit",
            "rank 1: the program ended with exit code 7 after 3 of 8 steps; see rank-1.log",
            Cause::Error,
            Some(RankStatus::PeerLost),
        ),
        (
            "early",
            "rank 1: the program ended with exit code 0 after 3 of 8 steps",
            Cause::Error,
            Some(RankStatus::PeerLost),
        ),
        (
            "raises",
            "rank 1: ValueError: no such thing as\\na free lunch (after 3 of 8 steps)",
            Cause::Error,
            Some(RankStatus::PeerLost),
        ),
        ("hangs", "rank 1: the program has been at step 3 for ", Cause::Hang, Some(RankStatus::PeerLost)),
        ("late", "rank 1: the program did all its steps and ended with exit code 4", Cause::Error, None),
        ("forks", "rank 1: the program left 1 process behind, which had to be ended: ", Cause::Error, None),
        ("silent", "the program ended with exit code 0 before it called expctl.Run()", Cause::Error, None),
        ("mute", "the program has not sent its run record within 4 s", Cause::Hang, None),
    ];
    let mut conf = BARE.to_owned() + "hang_timeout_s = 3\nrendezvous_timeout_s = 120\n";
    for (how, ..) in cases {
        let command = format!("\n[variant.{how}]\nworker.command = [\"./python\", \"bad.py\", \"{how}\"]\n");
        conf += &command;
        if how == "mute" {
            conf += "launch.rendezvous_timeout_s = 4\n";
        }
        // The one that is ahead of a rank that hangs waits for it, as in training it would.
        if how == "hangs" {
            conf += "launch.hang_timeout_s = 2\n";
        }
    }
    conf += "\n[variant.last]\nworker.command = [\"./python\", \"bad.py\", \"none\"]\nmeasure.steps = 1\n[variant.good]\nworker.command = [\"./python\", \"-c\", \"from train import *; train(expctl.Run(program='ok'))\"]\n";
    let (code, stderr) = submit(&project, &conf);
    assert_eq!(code, Some(5), "{stderr}");
    assert!(stderr.contains("    | a free lunch\n"), "the last lines of its log: {stderr}");
    for (how, said, cause, other) in cases {
        let outcome = project.outcome("1", how);
        assert_eq!(outcome.state, TrialState::Failed, "{how}");
        assert!(outcome.message.contains(said), "{how}: {}", outcome.message);
        assert!(!outcome.message.contains(char::is_control), "{how}: {:?}", outcome.message);
        assert_eq!(outcome.cause, Some(cause), "{how}: {outcome:?}");
        if let Some(other) = other {
            assert_eq!((outcome.failed_rank, outcome.ranks[0].status), (Some(1), other), "{how}: {outcome:?}");
            // What was measured is kept, of both.
            let attempt = project.attempt("1", how).unwrap();
            assert_eq!(attempt.steps(1).unwrap().len(), 3, "{how}");
            assert!(attempt.steps(0).unwrap().len() >= 3, "{how}");
        }
    }
    assert_eq!(project.outcome("1", "good").state, TrialState::Completed);
    let daemon = std::fs::read_to_string(project.job("1").path().join("code/daemon.pid")).unwrap();
    assert!(kill(Pid::from_raw(daemon.trim().parse().unwrap()), None).is_err(), "the daemon runs on");
    assert_eq!(left_over(&project), Vec::<String>::new());
}

#[test]
fn stages_that_were_counted_twice_are_shown_as_measured() {
    let project = project();
    let code = toml::Value::from(
        "from train import *\nrun = expctl.Run(program='twice')\nfor step in run.steps():\n    begin = time.perf_counter_ns()\n    \
         time.sleep(0.02)\n    ns = time.perf_counter_ns() - begin\n    step.add('read', exposed=ns)\n    \
         step.add('forward', exposed=ns)\n    step.samples = 4\n",
    );
    let (code, stderr) =
        submit(&project, &format!("{BARE}\n[variant.a]\nworker.command = [\"./python\", \"-c\", {code}]\n"));
    assert_eq!(code, Some(0), "{stderr}");
    let steps = project.attempt("1", "a").unwrap().steps(0).unwrap();
    for step in steps {
        assert!(step.exposed[Stage::Read] >= 20_000_000 && step.exposed[Stage::Forward] >= 20_000_000, "{step:?}");
    }
    let note = std::fs::read_to_string(project.path().join("results/command_1.md")).unwrap();
    assert!(note.contains("a: stages overlap or were counted twice: they add up to 1"), "{note}");
    // What is left of the step for no stage is below zero.
    assert!(note.lines().any(|line| line.starts_with("| a |") && line.contains("| -")), "{note}");
}

#[test]
fn no_shell_sees_the_command() {
    let project = project();
    let hostile =
        ["a b", "$(touch pwned)", "`touch pwned`", "it's \"q\"", "; touch pwned", "new\nline", "*", "\\", "", "--root"];
    let words: Vec<String> = hostile.iter().map(|word| toml::Value::from(*word).to_string()).collect();
    let code = toml::Value::from(
        "import json; from train import *; print(json.dumps(sys.argv[1:])); train(expctl.Run(program='x'))",
    );
    let conf = format!("{BARE}\n[variant.a]\nworker.command = [\"./python\", \"-c\", {code}, {}]\n", words.join(", "));
    let (code, stderr) = submit(&project, &conf);
    assert_eq!(code, Some(0), "{stderr}");
    let log = std::fs::read_to_string(project.attempt("1", "a").unwrap().log_path(1)).unwrap();
    let seen: Vec<String> = serde_json::from_str(log.trim()).unwrap();
    assert_eq!(seen, hostile);
    assert!(!project.path().join("pwned").exists() && !project.job("1").path().join("code/pwned").exists());
    // Nor is a name of several lines several lines of a note.
    let note = std::fs::read_to_string(project.path().join("results/command_1.md")).unwrap();
    assert!(note.contains(r"new\nline"), "{note}");
}

#[test]
fn what_cannot_work_is_refused_before_anything_runs() {
    let project = project();
    let variant = |lines: &str| format!("{BARE}\n[variant.a]\n{lines}\n");
    for (lines, said) in [
        ("worker.command = [\"no-such-program\"]", "there is no program \"no-such-program\" in PATH"),
        ("worker.command = [\"./gone.sh\"]", "gone.sh"),
        ("worker.command = [\"train.py\"]", "there is no program \"train.py\" in PATH"),
        ("worker.command = [\"./train.py\"]", "may not be run (chmod +x)"),
        ("worker.command = [\"./python good.py\"]", "no shell takes it apart: write [\"./python\", \"good.py\"]"),
        ("worker.command = \"./python good.py\"", "its arguments as an array: [\"./python\", \"good.py\"]"),
        ("worker.command = [\"./python\", \"a\\u0000b\"]", "holds a NUL byte"),
        ("worker.starts_ranks = true", "there is no `worker.command`"),
        ("worker.command = [\"./python\"]\nmodel.hidden = 8", "`model.hidden` is of expctl's own worker"),
        (
            "worker.command = [\"./python\"]\ntrain.learning_rate = 0.1",
            "`train.learning_rate` is of expctl's own worker",
        ),
        (
            "worker.command = [\"./python\"]\npipeline.processor = \"lazy\"",
            "`pipeline.processor` is of expctl's own worker",
        ),
    ] {
        let conf = project.conf("wrong", &variant(lines));
        let output = project.run(&["check", conf.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(3), "{lines}");
        let stderr = text(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(stderr.contains(said), "{lines}: {stderr}");
    }
    // What a program's step does is for the config to say, and decides what it is compared with.
    let conf = project.conf("right", &variant("worker.command = [\"./python\"]\ntrain.mode = \"train\""));
    assert!(project.ok(&["plan", conf.to_str().unwrap()]).contains("| command | train |"));
}

#[test]
fn trials_that_all_fail_alike_are_not_all_run() {
    let project = project();
    let conf = BARE.replace("repeats = 1", "repeats = 3").replace("ranks = 2", "ranks = 1")
        + "\n[variant.a]\nworker.command = [\"./python\", \"-c\", \"import nothing_of_that_name\"]\n\
           [variant.b]\nworker.command = [\"./python\", \"-c\", \"import nothing_of_that_name\", \"x\"]\n";
    let (code, stderr) = submit(&project, &conf);
    assert_eq!(code, Some(5), "{stderr}");
    let said = "the first 3 trials failed alike before their first step; 3 of 6 trials of job 1 are not started";
    assert!(stderr.contains(said) && stderr.contains("expctl retry 1 --all"), "{stderr}");
    // The last words of the program, without the line that the outcome repeats.
    assert!(stderr.contains("    | ModuleNotFoundError: No module named 'nothing_of_that_name'\n"), "{stderr}");
    assert!(!stderr.lines().any(|line| line.starts_with("    | ") && line.contains("ERROR")), "{stderr}");
    let rows = project.json(&["status", "1", "--json"], 0);
    let count = |state: &str| rows.as_array().unwrap().iter().filter(|row| row["state"] == state).count();
    assert_eq!((count("failed"), count("not_started")), (3, 3), "{rows}");
    // What failed by itself stays, with one reason for all, and the others are run: by then the module may be there.
    let retried = project.run(&["retry", "1", "--wait"]);
    let stderr = text(&retried.stderr);
    assert!(
        stderr.contains("3 trials failed by themselves: ") && stderr.contains("    | ModuleNotFoundError"),
        "{stderr}"
    );
    assert_eq!(retried.status.code(), Some(5), "{stderr}");
    assert_eq!(project.job("1").attempts(&project.job("1").record().unwrap().trials[5].id).unwrap().len(), 1);
}

#[test]
fn a_program_may_start_its_ranks_itself() {
    let project = project();
    let conf = format!(
        "{BARE}\n[variant.good]\nworker.command = [\"./python\", \"spawns.py\"]\nworker.starts_ranks = true\n\
         [variant.dies]\nworker.command = [\"./python\", \"spawns.py\", \"dies\"]\nworker.starts_ranks = true\n"
    );
    let (code, stderr) = submit(&project, &conf);
    assert_eq!(code, Some(5), "{stderr}");
    let outcome = project.outcome("1", "good");
    assert_eq!(outcome.state, TrialState::Completed, "{outcome:?}");
    let attempt = project.attempt("1", "good").unwrap();
    assert!((0..2).all(|rank| attempt.steps(rank).unwrap().len() == 8));
    let outcome = project.outcome("1", "dies");
    assert_eq!((outcome.state, outcome.failed_rank), (TrialState::Failed, Some(1)), "{outcome:?}");
    assert!(outcome.message.contains("after 3 of 8 steps"), "{}", outcome.message);
    assert_eq!((outcome.ranks[0].status, outcome.ranks[0].lost_peer), (RankStatus::PeerLost, Some(1)));
    assert_eq!(left_over(&project), Vec::<String>::new());
}

/// A job that would take very long, once both ranks have done a few steps.
fn endless(project: &TestProject) -> Guard {
    let code = "from train import *; subprocess.Popen(['sleep', '4711.75']); train(expctl.Run(program='x'))";
    let conf = format!(
        "{BARE}\n[variant.a]\nmeasure.steps = 1000000\nworker.command = [\"./python\", \"-c\", {}]\n",
        toml::Value::from(code)
    );
    let guard = project.started(&conf, &[]);
    project.attempt_with_steps("1", "a", 2, 5);
    guard
}

#[test]
fn a_job_that_is_stopped_leaves_nothing_running() {
    let project = project();
    let mut guard = endless(&project);
    kill(Pid::from_raw(guard.0.id() as i32), Signal::SIGINT).unwrap();
    assert_eq!(guard.0.wait().unwrap().code(), Some(6));
    let outcome = project.outcome("1", "a");
    assert_eq!(outcome.state, TrialState::Interrupted, "{outcome:?}");
    assert_eq!(left_over(&project), Vec::<String>::new());
}

#[test]
fn a_supervisor_that_is_killed_takes_its_program_with_it_and_is_named() {
    for victim in [1, 0] {
        let project = project();
        let mut guard = endless(&project);
        let pids = worker_pids(project.path());
        let (_, pid) = pids.iter().find(|(rank, _)| *rank == victim).expect("the supervisor runs");
        kill(Pid::from_raw(*pid), Signal::SIGKILL).unwrap();
        assert_eq!(guard.0.wait().unwrap().code(), Some(5));
        let outcome = project.outcome("1", "a");
        assert_eq!(outcome.failed_rank, Some(victim), "{outcome:?}");
        assert!(outcome.message.contains(&format!("rank {victim} was killed by signal 9")), "{}", outcome.message);
        let other = &outcome.ranks[1 - victim as usize];
        assert_eq!((other.status, other.lost_peer), (RankStatus::PeerLost, Some(victim)), "{outcome:?}");
        assert!(project.attempt("1", "a").unwrap().steps(victim).unwrap().len() > 5);
        assert_eq!(left_over(&project), Vec::<String>::new());
    }
}

#[test]
fn the_helper_does_what_is_said_of_it() {
    let project = project();
    if !install_torch(&project) {
        return;
    }
    let tests = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("python/tests");
    let mut python = std::process::Command::new("./torch-python");
    let output = python.current_dir(project.path()).args(["-m", "unittest", "discover"]).arg(tests).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn the_example_trains_with_torch_under_expctl_and_under_torchrun() {
    let project = project();
    if !install_torch(&project) {
        return;
    }
    let example = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("python/examples/ddp.py");
    let example = example.display();
    let conf = format!(
        "{BARE}\n[train]\nmode = \"train\"\n[variant.ddp]\nworker.command = [\"./torch-python\", \"{example}\"]\n\
         [variant.workers]\nloader.workers = 1\nmeasure.warmup = 2\nworker.command = [\"./torch-python\", \"{example}\"]\n\
         [variant.torchrun]\nworker.command = [\"./torch-python\", \"-m\", \"torch.distributed.run\", \"{example}\"]\nworker.starts_ranks = true\n"
    );
    let (code, stderr) = submit(&project, &conf);
    assert_eq!(code, Some(0), "{stderr}");
    let losses = |variant: &str, rank: u32| -> Vec<Option<f64>> {
        let attempt = project.attempt("1", variant).unwrap();
        let steps = attempt.steps(rank).unwrap();
        assert_eq!(steps.len(), 8);
        for step in &steps {
            assert!(
                step.exposed[Stage::Backward] > 0 && step.busy[Stage::Read] > 0 && step.busy[Stage::Collate] > 0,
                "{variant}: {step:?}"
            );
            assert!(step.bytes_batch == 4 * 65 * 4 && step.samples == 4, "{step:?}");
        }
        assert!(attempt.environment().unwrap().unwrap().program.unwrap().versions.contains_key("torch"));
        steps.iter().map(|step| step.loss).collect()
    };
    for rank in 0..2 {
        // The same training, whoever started the ranks.
        assert_eq!(losses("ddp", rank), losses("torchrun", rank));
        assert_eq!(losses("ddp", rank), losses("workers", rank));
    }
    assert_ne!(losses("ddp", 0), losses("ddp", 1), "each rank has its own samples");
}
