//! Another machine, as `--on far` finds it: a home folder of its own on this machine, behind a real sshd or behind a script in the place of
//! `ssh`. Whoever logs in is the user of this process, or, where that is asked for, a second user who has nothing of this side.

use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use test_support::{Requirement, skip};

use super::second_user::SecondUser;
use super::{Guard, PATIENCE, TestProject, program, text, wait_until};

/// Variables of this side that a login there does not have.
const NOT_THERE: &str = "XDG_CONFIG_HOME XDG_CACHE_HOME EXPCTL_WORKER EXPCTL_ROOT EXPCTL_DATA EXPCTL_RUNS EXPCTL_BACKEND EXPCTL_SSH EXPCTL_ON_END \
                         EXPCTL_PROFILE EXPCTL_SOURCE";

/// Whether a server of ssh answers on a port of this machine, and not another program.
fn speaks_ssh(port: u16) -> bool {
    let mut banner = [0; 7];
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let limited = stream.set_read_timeout(Some(Duration::from_secs(5)));
    limited.and_then(|()| stream.read_exact(&mut banner)).is_ok() && &banner == b"SSH-2.0"
}

/// The program that starts sshd; `None`, and said, where there is none.
fn installed_sshd() -> Option<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/sshd.sh");
    let found = Command::new("bash").arg(script).stderr(Stdio::inherit()).output().unwrap();
    match found.status.code() {
        Some(0) => Some(text(&found.stdout).trim().to_owned()),
        Some(75) => {
            skip(Requirement::Ssh, "no sshd is there, and none can be installed here");
            None
        }
        other => panic!("scripts/sshd.sh failed ({other:?})"),
    }
}

/// A machine called `far`; it ends with the value.
pub struct FarSide {
    _sshd: Option<Guard>,
    /// A process in the network of its own, which lasts as long as it.
    _network: Option<Guard>,
    /// Who logs in there, if not the user of this process.
    user: Option<SecondUser>,
    setup: Vec<String>,
    /// Behind the others: what still writes into it ends with them.
    folder: tempfile::TempDir,
}

impl FarSide {
    /// One whose shell lines run on this machine, without a network. Its jobs run there.
    pub fn without_network() -> Self {
        let far = Self::with_home();
        let home = far.home();
        far.ssh_program(&format!(
            "while [ \"$1\" != -- ]; do shift; done\nunset {NOT_THERE}\nexport HOME='{}'\ncd \"$HOME\"\nexec sh -c \"$3\"",
            home.display()
        ));
        far
    }

    /// One behind a real sshd on a port of its own; `None`, and said, where there is none.
    pub fn behind_sshd() -> Option<Self> {
        Self::behind_sshd_with("")
    }

    /// The same, with these lines of `sshd_config`.
    pub fn behind_sshd_with(lines: &str) -> Option<Self> {
        let sshd = installed_sshd()?;
        let mut far = Self::with_home();
        far.serve(&sshd, lines);
        far.forget_this_side();
        Some(far)
    }

    /// One behind a real sshd in a network of its own, out of which no connection leads: `ssh` gets there by a pipe. `None`, and said, where that
    /// cannot be.
    pub fn with_own_network() -> Option<Self> {
        let sshd = installed_sshd()?;
        let mut holder = Command::new("unshare");
        holder.args(["--net", "sh", "-c", "ip link set lo up && echo ready && exec cat"]);
        holder.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut holder = Guard(holder.spawn().unwrap());
        let mut said = String::new();
        BufReader::new(holder.0.stdout.take().unwrap()).read_line(&mut said).unwrap();
        if said != "ready\n" {
            skip(Requirement::Other, "a network of its own needs root and ip");
            return None;
        }
        let mut far = Self::with_home();
        far.new_key("host");
        far.new_key("user");
        let path = |name: &str| far.folder.path().join(name).display().to_string();
        far.write_sshd_config("");
        let key = std::fs::read_to_string(path("host.pub")).unwrap();
        std::fs::write(path("known_hosts"), format!("far {key}")).unwrap();
        far.write_client_config(&format!(
            "  ProxyCommand nsenter --net=/proc/{}/ns/net -- {sshd} -i -f {} -E {}\n",
            holder.0.id(),
            path("sshd_config"),
            path("sshd.log")
        ));
        far._network = Some(holder);
        far.forget_this_side();
        Some(far)
    }

    /// A login there has the home folder there, and no variables of this side.
    fn forget_this_side(&mut self) {
        self.setup.push(format!("unset {NOT_THERE}"));
        self.setup.push(format!("export HOME='{}'", self.home().display()));
    }

    /// One behind a real sshd where a second user logs in, whose home is empty; `None`, and said, where that cannot be.
    pub fn of_second_user() -> Option<Self> {
        // It comes with a user of its own, who has to be known there.
        let sshd = installed_sshd()?;
        let mut far = Self::with_home();
        far.user = Some(SecondUser::new(far.folder.path())?);
        far.serve(&sshd, "");
        Some(far)
    }

    /// Start `sshd` with these lines of its settings, and let `ssh` find it.
    fn serve(&mut self, sshd: &str, lines: &str) {
        self.new_key("host");
        self.new_key("user");
        let (port, server) = self.start_sshd(sshd, lines);
        self._sshd = Some(server);
        self.trust_host(port, "host");
        let user = self.user.as_ref().map_or_else(String::new, |_| format!("  User {}\n", SecondUser::NAME));
        self.write_client_config(&format!("  HostName 127.0.0.1\n  Port {port}\n{user}"));
    }

    /// End the server.
    pub fn stop(&mut self) {
        self._sshd = None;
    }

    /// Let `ssh` know the machine by these lines, and write the script in its place.
    fn write_client_config(&self, lines: &str) {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let client = format!(
            "Host far\n{lines}  IdentityFile {}\n  IdentitiesOnly yes\n  UserKnownHostsFile {}\n  \
             GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n  SendEnv EXPCTL_DIE_AT\n",
            path("user"),
            path("known_hosts")
        );
        let config = path("config");
        std::fs::write(&config, client).unwrap();
        self.ssh_program(&format!("exec ssh -F '{config}' \"$@\""));
    }

    /// A command of that machine's administrator there.
    fn command(&self, program: &str) -> Command {
        self.user.as_ref().map_or_else(|| Command::new(program), |user| user.command(program))
    }

    /// Start the server; returns its port once it speaks there. Another process may take a port that was free a moment ago.
    fn start_sshd(&self, program: &str, lines: &str) -> (u16, Guard) {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        for _ in 0..5 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            self.write_sshd_config(&format!("Port {port}\nListenAddress 127.0.0.1\n{lines}"));
            let mut command = self.command(program);
            command.args(["-D", "-e", "-f", &path("sshd_config")]).stdin(Stdio::null()).stdout(Stdio::null());
            let log = std::fs::File::create(path("sshd.log")).unwrap();
            let mut server = Guard(command.stderr(log).spawn().unwrap());
            let speaks = wait_until("sshd", PATIENCE, || match server.0.try_wait().unwrap() {
                Some(_) => Some(false),
                None => speaks_ssh(port).then_some(true),
            });
            if speaks {
                return (port, server);
            }
        }
        panic!("sshd does not start: {}", std::fs::read_to_string(path("sshd.log")).unwrap_or_default());
    }

    /// Write the settings of sshd, with these lines first.
    fn write_sshd_config(&self, lines: &str) {
        // Of the system's unit; sshd separates its privileges there.
        let _ = std::fs::create_dir_all("/run/sshd");
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let config = format!(
            "{lines}HostKey {}\nAuthorizedKeysFile {}\nPidFile none\nUsePAM no\nStrictModes no\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\nLogLevel ERROR\nMaxStartups 100\n\
             AcceptEnv EXPCTL_DIE_AT\n",
            path("host"),
            path("user.pub")
        );
        std::fs::write(path("sshd_config"), config).unwrap();
    }

    fn with_home() -> Self {
        let folder = tempfile::Builder::new().prefix("expctl-far-").tempdir().unwrap();
        std::fs::create_dir(folder.path().join("home")).unwrap();
        // Jobs there are processes of this machine, unless a test has a Slurm.
        let setup = vec!["export EXPCTL_BACKEND=local".to_owned()];
        Self { _sshd: None, _network: None, user: None, setup, folder }
    }

    /// The second user who logs in there.
    pub fn user(&self) -> &SecondUser {
        self.user.as_ref().expect("a machine of a second user")
    }

    /// Run a line of the shell there, as a login does.
    pub fn shell(&self, line: &str) -> Output {
        Command::new(self.ssh()).args(["-T", "--", "far", line]).stdin(Stdio::null()).output().unwrap()
    }

    /// Another shell line there, before expctl.
    pub fn setup(&mut self, line: impl Into<String>) {
        self.setup.push(line.into());
    }

    /// A script in the place of `ssh`.
    pub fn ssh_program(&self, line: &str) {
        self.script("ssh", line);
    }

    /// A shell script; returns its path.
    pub fn script(&self, name: &str, line: &str) -> PathBuf {
        self.program(name, &format!("#!/bin/sh\n{line}\n"))
    }

    /// A program with this text; one of that name is replaced at once, for it may be running.
    fn program(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        let beside = path.with_extension("new");
        std::fs::write(&beside, text).unwrap();
        std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::rename(&beside, &path).unwrap();
        path
    }

    /// Put this text in the place of the script `ssh`.
    pub fn replace_ssh(&self, text: &str) {
        self.program("ssh", text);
    }

    /// The script in the place of `ssh`.
    pub fn ssh(&self) -> PathBuf {
        self.folder.path().join("ssh")
    }

    fn new_key(&self, name: &str) {
        let output = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(self.folder.path().join(name))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }

    /// Take the key of this name for that of the host.
    fn trust_host(&self, port: u16, key: &str) {
        let key = std::fs::read_to_string(self.folder.path().join(format!("{key}.pub"))).unwrap();
        std::fs::write(self.folder.path().join("known_hosts"), format!("[127.0.0.1]:{port} {key}")).unwrap();
    }

    /// Log in with a key that it does not know.
    pub fn use_unknown_key(&self) {
        self.new_key("stranger");
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let config = std::fs::read_to_string(path("config")).unwrap();
        let known = format!("IdentityFile {}\n", path("user"));
        assert!(config.contains(&known), "{config}");
        std::fs::write(path("config"), config.replace(&known, &format!("IdentityFile {}\n", path("stranger"))))
            .unwrap();
    }

    /// Expect another key of the host than it has.
    pub fn expect_another_key(&self) {
        self.new_key("other");
        let config = std::fs::read_to_string(self.folder.path().join("config")).unwrap();
        let port = config.lines().find_map(|line| line.trim().strip_prefix("Port ")).unwrap().parse().unwrap();
        self.trust_host(port, "other");
    }

    /// Let connections be shared, with this `ControlPersist`; returns the socket of the shared one.
    pub fn share_connections(&self, persist: &str) -> PathBuf {
        let (config, socket) = (self.folder.path().join("config"), self.folder.path().join("shared"));
        let before = std::fs::read_to_string(&config).unwrap();
        let shared = format!("  ControlMaster auto\n  ControlPath {}\n  ControlPersist {persist}\n", socket.display());
        let mut lines: Vec<&str> = before.lines().filter(|line| !line.contains("Control")).collect();
        lines.push(&shared);
        std::fs::write(config, lines.join("\n")).unwrap();
        socket
    }

    /// The home folder there.
    pub fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// The folder of the project there.
    pub fn project(&self) -> PathBuf {
        self.home().join("expctl/p")
    }

    /// Its jobs.
    pub fn jobs(&self) -> Vec<u64> {
        let entries = std::fs::read_dir(self.project().join("results/runs")).into_iter().flatten().flatten();
        let mut jobs: Vec<u64> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        jobs.sort_unstable();
        jobs
    }

    /// Tell a project how to get there, with `program` as expctl there.
    pub fn connect_as(&self, project: &TestProject, program: &str) {
        let lines: Vec<String> = self.setup.iter().map(|line| format!("{line:?}")).collect();
        let settings = format!(
            "[ssh.far]\nhost = \"far\"\nfolder = \"expctl/p\"\nexpctl = {program:?}\nsetup = [{}]\n",
            lines.join(", ")
        );
        let folder = project.path().join("config/expctl");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("config.toml"), settings).unwrap();
    }

    /// Tell a project how to get there.
    pub fn connect(&self, project: &TestProject) {
        self.connect_as(project, program().to_str().unwrap());
    }

    /// `expctl` in a project that knows this machine.
    pub fn expctl(&self, project: &TestProject, args: &[&str]) -> Command {
        let mut command = project.expctl(args);
        command.env("EXPCTL_SSH", self.ssh()).stdin(Stdio::null());
        command
    }

    /// Run to the end with an exit code; returns stdout and stderr.
    pub fn expect(&self, project: &TestProject, args: &[&str], code: i32) -> (String, String) {
        let output = self.expctl(project, args).output().unwrap();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "expctl {args:?}\n{stdout}{stderr}");
        (stdout, stderr)
    }

    /// `expctl` there, as if logged in.
    pub fn there(&self, args: &[&str]) -> Output {
        let folder = self.project();
        let mut command = Command::new(program());
        NOT_THERE.split(' ').for_each(|name| _ = command.env_remove(name));
        command.env("HOME", self.home()).env("EXPCTL_RUNS", folder.join("results/runs")).env("NO_COLOR", "1");
        command.arg("--root").arg(&folder).args(args).current_dir(&folder).stdin(Stdio::null()).output().unwrap()
    }

    /// Wait until no job runs there.
    pub fn wait_for_jobs(&self) {
        wait_until("the jobs there", PATIENCE, || {
            let status = self.there(&["status"]);
            assert!(status.status.success(), "{}", text(&status.stderr));
            let shown = text(&status.stdout);
            (!shown.contains("running") && !shown.contains("waiting")).then_some(())
        });
    }
}
