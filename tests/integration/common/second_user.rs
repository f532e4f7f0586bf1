//! A second user of this machine: known in a mount namespace alone, where copies of `/etc/passwd` and `/etc/group` with one line more lie over
//! the system's. The machine itself is not changed. Root alone can make one.

use std::ffi::OsStr;
use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use test_support::{Requirement, skip};

use super::{Guard, text};

/// Numbers of users are looked for from here on: above those of people and packages.
const FIRST_UID: u32 = 54_321;
/// Words of unshare for a namespace whose mounts nobody outside sees.
const NAMESPACE: [&str; 3] = ["--mount", "--propagation", "slave"];
/// Make the users of the folder in `$0` those of the namespace, and wait until the test closes the input, or is killed.
const HOLD: &str =
    "set -e\nmount --bind \"$0/passwd\" /etc/passwd\nmount --bind \"$0/group\" /etc/group\necho ready\nexec cat";

/// A user with a group, a home folder and a shell, and no password: `sshd` lets them in with a key. Ends with the value.
pub struct SecondUser {
    uid: u32,
    /// A process in the namespace, which lasts as long as it.
    holder: Guard,
}

impl SecondUser {
    /// Its name.
    pub const NAME: &str = "expctl-far";

    /// A user whose home is `home` in `folder`; the list of users is written beside it. `None`, and said, where that cannot be.
    ///
    /// What is installed later, and runs as a user of its own, is not known in the namespace.
    pub fn new(folder: &Path) -> Option<Self> {
        if let Some(why) = missing() {
            skip(Requirement::Other, format!("a second user {why}"));
            return None;
        }
        let system = |file: &str| std::fs::read_to_string(Path::new("/etc").join(file)).unwrap();
        let (users, groups) = (system("passwd"), system("group"));
        let is_taken = |id: &u32| {
            let id = id.to_string();
            users.lines().chain(groups.lines()).any(|line| line.split(':').nth(2) == Some(id.as_str()))
        };
        let uid = (FIRST_UID..).find(|id| !is_taken(id)).unwrap();
        let (name, home) = (Self::NAME, folder.join("home"));
        // With `*` in the place of a password, nothing looks into /etc/shadow.
        let user = format!("{name}:*:{uid}:{uid}:the second user of a test:{}:/bin/sh", home.display());
        std::fs::write(folder.join("passwd"), format!("{}\n{user}\n", users.trim_end())).unwrap();
        std::fs::write(folder.join("group"), format!("{}\n{name}:x:{uid}:\n", groups.trim_end())).unwrap();
        std::fs::create_dir_all(&home).unwrap();
        chown(&home, Some(uid), Some(uid)).unwrap();
        std::fs::set_permissions(&home, Permissions::from_mode(0o700)).unwrap();
        std::fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
        let mut holder = Command::new("unshare");
        holder.args(NAMESPACE).args(["sh", "-c", HOLD]).arg(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut user = Self { uid, holder: Guard(holder.spawn().unwrap()) };
        let mut said = String::new();
        BufReader::new(user.holder.0.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "ready\n");
        let found = user.command("id").args(["-u", name]).output().unwrap();
        assert_eq!(text(&found.stdout).trim(), uid.to_string(), "{}", text(&found.stderr));
        Some(user)
    }

    /// Its number, and that of its group.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// A command of root's where the user is known. It runs in `/`.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.holder.0.id())).arg("--").arg(program);
        command
    }
}

impl Drop for SecondUser {
    /// End what still runs in the namespace: the jobs of a test that failed.
    fn drop(&mut self) {
        let Some(own) = mounts_of(&self.holder.0.id().to_string()) else { return };
        // Where there is no namespace yet, it is that of all other processes.
        if mounts_of("self").is_none_or(|ours| ours == own) {
            return;
        }
        // What is ended may have started more in the meantime, and takes a moment to go.
        for _ in 0..200 {
            let left = processes_in(&own);
            if left.is_empty() {
                return;
            }
            left.into_iter().for_each(|pid| _ = kill(pid, Signal::SIGKILL));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The processes in a mount namespace; one that has ended is in none.
fn processes_in(mounts: &Path) -> Vec<Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_in = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let pid = name.parse().ok()?;
        (mounts_of(&name)? == mounts).then_some(Pid::from_raw(pid))
    };
    entries.filter_map(is_in).collect()
}

/// The mount namespace of a process.
fn mounts_of(process: &str) -> Option<PathBuf> {
    std::fs::read_link(Path::new("/proc").join(process).join("ns/mnt")).ok()
}

/// What this machine lacks for a second user.
fn missing() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("needs root".to_owned());
    }
    let probe = ["mount", "--bind", "/etc/passwd", "/etc/passwd"];
    let why = match Command::new("unshare").args(NAMESPACE).args(probe).output() {
        Ok(output) if output.status.success() => return None,
        Ok(output) => text(&output.stderr).trim().to_owned(),
        Err(e) => e.to_string(),
    };
    Some(format!("needs a mount namespace, which root may not make here ({why})"))
}
