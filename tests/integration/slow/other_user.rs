//! What another user of the node can do to a running trial: a real second uid tries to read it, to join it and to disturb it.

use std::fs::Permissions;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use expctl_ledger::{AttemptDir, Hardware, RendezvousFile, TrialState};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use test_support::{Requirement, skip};

use crate::common::programs::{BARE, install};
use crate::common::{Guard, TestProject, text, worker_pids};

/// A variant of [`BARE`] whose ranks step until they are stopped.
const ENDLESS: &str = r#"
[variant.a]
measure.steps = 1000000
worker.command = ["./python", "-c", "from train import *; train(expctl.Run(program='x'))"]
"#;

/// Runs [`the_other_user`] as `nobody` with a copy of this executable; what it found.
fn as_nobody(project: &TestProject, task: &str, port: u16, paths: &[PathBuf]) -> Value {
    std::fs::set_permissions(project.path(), Permissions::from_mode(0o755)).unwrap();
    // The built executable may be in a home that others do not reach.
    let (built, program) = (std::env::current_exe().unwrap(), project.path().join("other_user"));
    if !program.exists() {
        std::fs::hard_link(&built, &program).or_else(|_| std::fs::copy(&built, &program).map(drop)).unwrap();
    }
    let paths: Vec<&str> = paths.iter().map(|path| path.to_str().unwrap()).collect();
    let output = Command::new("setpriv")
        .args(["--reuid", "nobody", "--regid", "nogroup", "--clear-groups", "--"])
        .arg(program)
        .args(["--exact", "slow::other_user::the_other_user", "--ignored", "--nocapture"])
        .current_dir("/")
        .env_clear()
        .envs([("OTHER_TASK", task), ("OTHER_PORT", &port.to_string()), ("OTHER_PATHS", &paths.join("\n"))])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", text(&output.stderr));
    let found = said.lines().find_map(|line| line.split_once("found ")).unwrap_or_else(|| panic!("{said}"));
    serde_json::from_str(found.1).unwrap()
}

#[test]
#[ignore = "the other user: the tests below run it"]
fn the_other_user() {
    let variable = |name: &str| std::env::var(name).unwrap();
    let port = variable("OTHER_PORT").parse().unwrap();
    let found = match variable("OTHER_TASK").as_str() {
        "read" => variable("OTHER_PATHS").lines().map(|path| json!([path, is_refused(Path::new(path))])).collect(),
        "hub" => disturb_hub(port),
        "store" => disturb_store(port),
        other => panic!("{other}"),
    };
    let mut out = std::io::stdout().lock();
    writeln!(out, "\nfound {found}").unwrap();
}

/// Whether this user can neither read nor write a file, list a folder, add to it, or connect to a socket.
fn is_refused(path: &Path) -> bool {
    std::fs::read(path).is_err_and(|e| e.kind() == ErrorKind::PermissionDenied)
        && std::fs::OpenOptions::new().append(true).open(path).is_err()
        && std::fs::read_dir(path).is_err()
        && std::fs::write(path.join("x"), "x").is_err()
        && UnixStream::connect(path).is_err()
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

/// Bytes that come until the other side closes the connection.
fn until_closed(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => panic!("still open after 30 s"),
        _ => bytes,
    }
}

/// Joins without the secret in all ways that are not its own: silence, garbage without end, and a message with a wrong secret.
fn disturb_hub(port: u16) -> Value {
    let begun = Instant::now();
    let silent: Vec<TcpStream> = (0..200).map(|_| connect(port)).collect();
    let mut endless = connect(port);
    // It is closed on the way.
    let sent = (0..64).take_while(|_| endless.write_all(&[b'x'; 1 << 16]).is_ok()).count();
    let mut answers = vec![until_closed(endless)];
    for secret in [
        "",
        "0",
        "00000000000000000000000000000000",
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    ] {
        let mut stream = connect(port);
        let join = json!({"join": {
            "trial": "a", "attempt": 1, "secret": secret, "rank": 1, "node": "n", "cpus": [0], "hardware": Hardware::default()
        }});
        let _ = stream.write_all(format!("{join}\n").as_bytes());
        answers.push(until_closed(stream));
    }
    answers.extend(silent.into_iter().map(until_closed));
    json!({
        "answered": answers.iter().filter(|answer| !answer.is_empty()).count(),
        "sent": sent * (1 << 16),
        "seconds": begun.elapsed().as_secs_f64(),
    })
}

/// Speaks to the store of libtorch: silence and garbage, and then its own protocol (`TCPStoreLibUvBackend.cpp` of PyTorch 2.11).
fn disturb_store(port: u16) -> Value {
    let _silent: Vec<TcpStream> = (0..100).map(|_| connect(port)).collect();
    for _ in 0..50 {
        let _ = connect(port).write_all(&[0xff; 4096]);
    }
    let mut stream = connect(port);
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    // VALIDATE with its number, SET, GET.
    let set = [&[0][..], &0x3C85_F7CE_u32.to_le_bytes(), &[1], &text("/other"), &text("user")].concat();
    let get = [&[3][..], &text("/other")].concat();
    stream.write_all(&[set, get].concat()).unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    json!({"read_back": answer[8..] == *b"user"})
}

/// The trial goes on for more steps, and ends as we tell it to.
fn goes_on(project: &TestProject, guard: &mut Guard, variant: &str) {
    let attempt = project.attempt("1", variant).unwrap();
    let steps = |attempt: &AttemptDir| attempt.steps(1).unwrap().len();
    let before = steps(&attempt);
    project.attempt_with_steps("1", variant, 2, before + 20);
    kill(Pid::from_raw(guard.0.id() as i32), Signal::SIGINT).unwrap();
    assert_eq!(guard.0.wait().unwrap().code(), Some(6));
    let outcome = project.outcome("1", variant);
    assert_eq!((outcome.state, outcome.failed_rank), (TrialState::Interrupted, None), "{outcome:?}");
}

/// Files and folders of a running attempt, and what the kernel shows of its processes.
fn private_paths(project: &TestProject, attempt: &AttemptDir) -> Vec<PathBuf> {
    let mut paths =
        vec![project.path().join("results/runs/1"), attempt.path().to_owned(), attempt.path().join("rendezvous")];
    paths.extend([attempt.trial_path(), attempt.log_path(0)]);
    let processes = worker_pids(project.path());
    assert!(!processes.is_empty());
    for (_, pid) in processes {
        paths.extend(["environ", "mem", "fd"].map(|name| PathBuf::from(format!("/proc/{pid}/{name}"))));
    }
    paths
}

fn nothing_is_read(project: &TestProject, attempt: &AttemptDir) {
    let found = as_nobody(project, "read", 0, &private_paths(project, attempt));
    let open: Vec<&Value> = found.as_array().unwrap().iter().filter(|pair| pair[1] != true).collect();
    assert!(open.is_empty(), "{open:?}");
}

fn is_root() -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        skip(Requirement::Other, "only root can run a program as another user");
    }
    is_root
}

#[test]
fn another_user_can_neither_read_nor_join_nor_disturb_a_program() {
    if !is_root() {
        return;
    }
    let project = TestProject::new();
    install(&project);
    let mut guard = project.started(&format!("{BARE}{ENDLESS}"), &[]);
    let attempt = project.attempt_with_steps("1", "a", 2, 5);
    nothing_is_read(&project, &attempt);
    let (_, port, _) = RendezvousFile::new(&attempt).lookup_with_secret().unwrap();
    let found = as_nobody(&project, "hub", port, &[]);
    assert_eq!(found["answered"], 0, "{found}");
    // A first message may take five seconds; what comes too often at once is closed earlier.
    assert!(found["seconds"].as_f64().unwrap() < 25.0, "{found}");
    goes_on(&project, &mut guard, "a");
    writeln!(std::io::stdout().lock(), "connections of another user to a program's ranks: {found}").unwrap();
}

/// c10d's store asks nobody who they are (docs/design/architecture.md, "How ranks meet"): a user of the same node can reach it. What does not
/// speak its protocol changes nothing.
#[test]
fn another_user_reads_nothing_of_native_ranks_and_reaches_their_store() {
    if !is_root() {
        return;
    }
    let project = TestProject::new();
    let (mut guard, attempt) = project.endless(&[]);
    nothing_is_read(&project, &attempt);
    let (_, port) = RendezvousFile::new(&attempt).lookup().unwrap();
    let found = as_nobody(&project, "store", port, &[]);
    assert_eq!(found["read_back"], true, "the documents say that it can: {found}");
    goes_on(&project, &mut guard, "ids");
}
