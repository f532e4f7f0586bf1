//! [`Host`]: a cluster as the user names it, and the program `ssh` that gets there.

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use expctl_config::{SshSettings, UserDefaults, has_profile};

use super::error::RemoteError;
use super::host_address::HostAddress;
use crate::exit::{Exit, Failure};
use crate::project::Project;

/// Seconds between two questions whether the connection is alive, and how many may stay unanswered.
const ALIVE: [&str; 4] = ["-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4"];

/// A cluster that `ssh` gets to.
#[derive(Clone, Debug)]
pub struct Host {
    name: String,
    settings: SshSettings,
    folder: String,
    has_profile: bool,
    /// Whether a connection of ours would have to stay for others; asked for once.
    stays_for_others: OnceLock<bool>,
}

impl Host {
    /// The host of this name: `[ssh.NAME]` of the user's defaults, else `[ssh]` of the cluster profile NAME.
    ///
    /// # Errors
    /// Exit 2 if nothing says how to get there; exit 3 if a file is wrong.
    pub fn find(project: &Project, name: &str) -> Result<Self, Failure> {
        if !is_host_name(name) {
            return Err(Failure::new(Exit::Usage, format!("--on: {name:?} is no name of a cluster profile")));
        }
        let of_user = UserDefaults::load(project)?.ssh.remove(name);
        let has_profile = has_profile(project, name);
        let (settings, found) = match of_user {
            Some(settings) => (Some(settings), String::new()),
            None => {
                let profile = expctl_config::profile(project, name)?;
                (profile.ssh, profile.found)
            }
        };
        let folder = std::fs::canonicalize(project.root()).unwrap_or_else(|_| project.root().to_owned());
        let folder =
            folder.file_name().map_or_else(|| "project".to_owned(), |name| name.to_string_lossy().into_owned());
        let default = format!("expctl/{folder}");
        let Some(settings) = settings else {
            let file = expctl_config::user_path(project).map_or_else(String::new, |path| path.display().to_string());
            let message = format!("the profile {name} ({found}) has no [ssh]: nothing says how to get there");
            return Err(Failure::new(Exit::Usage, message)
                .hint(format!("write into {file}:"))
                .hint(format!("[ssh.{name}]"))
                .hint("host = \"USER@LOGIN_NODE\"")
                .hint(format!("folder = \"{default}\"")));
        };
        let folder = settings.folder.clone().unwrap_or(default);
        Ok(Self { name: name.to_owned(), settings, folder, has_profile, stays_for_others: OnceLock::new() })
    }

    /// Its name here.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Folder of the project there.
    pub fn folder(&self) -> &str {
        &self.folder
    }

    /// What `ssh` takes, and the folder there.
    pub fn address(&self) -> HostAddress {
        HostAddress { host: self.settings.host.clone(), folder: self.folder.clone() }
    }

    /// The profile of configs that name none, if there is one of this name.
    pub fn profile(&self) -> Option<&str> {
        self.has_profile.then_some(self.name.as_str())
    }

    /// The program `expctl` there.
    pub fn program(&self) -> &str {
        &self.settings.expctl
    }

    /// `ssh`, which runs `expctl` there with these arguments; with a terminal there, if `terminal`.
    ///
    /// # Errors
    /// A text holds a NUL character.
    pub fn command(&self, arguments: &[&str], terminal: bool) -> Result<Command, RemoteError> {
        let mut command = Command::new(ssh_program());
        command.arg(if terminal { "-t" } else { "-T" }).args(ALIVE);
        // Without a terminal nobody can type a password.
        if !std::io::stdin().is_terminal() {
            command.args(["-o", "BatchMode=yes"]);
        }
        if self.stays_for_others() {
            command.args(["-o", "ControlMaster=no"]);
        }
        command.arg("--").arg(&self.settings.host).arg(self.shell_line(arguments)?);
        Ok(command)
    }

    /// Whether `ssh` would make a connection of ours the one that others of the user's share, and wait for them at our end, as it does without
    /// `ControlPersist`. A connection that is shared already is used in any case.
    fn stays_for_others(&self) -> bool {
        *self.stays_for_others.get_or_init(|| {
            let mut command = Command::new(ssh_program());
            command.args(["-T", "-G", "--", &self.settings.host]).stdin(Stdio::null()).stderr(Stdio::null());
            let output = command.output().ok().filter(|output| output.status.success());
            output.is_some_and(|output| waits_for_others(&String::from_utf8_lossy(&output.stdout)))
        })
    }

    /// What the login shell there runs.
    fn shell_line(&self, arguments: &[&str]) -> Result<String, RemoteError> {
        let refused = |_| RemoteError::NotQuotable { host: self.name.clone() };
        let quoted = |text: &str| shlex::try_quote(text).map(Cow::into_owned).map_err(refused);
        let mut line = String::new();
        if !self.settings.setup.is_empty() {
            // What a module prints is no data, and what the connection sends is not for it to read.
            line = format!("{{ {}\n}} >&2 </dev/null\n", self.settings.setup.join("\n"));
        }
        line.push_str("exec ");
        match self.settings.expctl.strip_prefix("~/") {
            Some(rest) => line.push_str(&format!("\"$HOME\"/{}", quoted(rest)?)),
            None => line.push_str(&quoted(&self.settings.expctl)?),
        }
        for argument in arguments {
            line.push(' ');
            line.push_str(&quoted(argument)?);
        }
        Ok(line)
    }
}

/// Whether settings, as `ssh -G` prints them, make a connection that is shared and does not end before the others.
fn waits_for_others(settings: &str) -> bool {
    let is = |key: &str, values: &[&str]| {
        let mut lines = settings.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(name, _)| *name == key).is_some_and(|(_, value)| values.contains(&value.trim()))
    };
    is("controlmaster", &["true", "yes", "auto", "ask", "autoask"]) && is("controlpersist", &["false", "no"])
}

/// Whether a text may name a host: it is also the name of a folder and of a profile, and no number.
pub(crate) fn is_host_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

/// The program: `EXPCTL_SSH`, else the one in `PATH`.
pub(crate) fn ssh_program() -> OsString {
    std::env::var_os("EXPCTL_SSH").filter(|program| !program.is_empty()).unwrap_or_else(|| "ssh".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(expctl: &str, setup: &[&str]) -> Host {
        let setup = setup.iter().map(|line| (*line).to_owned()).collect();
        let settings = SshSettings { host: "me@delta".to_owned(), folder: None, expctl: expctl.to_owned(), setup };
        let (name, folder) = ("delta".to_owned(), "expctl/p".to_owned());
        Host { name, settings, folder, has_profile: true, stays_for_others: OnceLock::new() }
    }

    #[test]
    fn arguments_arrive_as_they_are() {
        let line = host("expctl", &[]).shell_line(&["status", "it's $HOME", "a\nb", ""]).unwrap();
        let output = std::process::Command::new("sh")
            .args(["-c", &line.replacen("exec expctl", "printf '<%s>'", 1)])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "<status><it's $HOME><a\nb><>");
        assert!(host("expctl", &[]).shell_line(&["a\0b"]).is_err());
    }

    #[test]
    fn setup_runs_before_and_prints_no_data() {
        let line = host("~/bin/my expctl", &["echo loaded", "X=1"]).shell_line(&["status"]).unwrap();
        assert_eq!(line, "{ echo loaded\nX=1\n} >&2 </dev/null\nexec \"$HOME\"/'bin/my expctl' status");
    }

    #[test]
    fn setup_reads_nothing_and_its_variables_last() {
        use std::io::Write;

        let line = host("cat", &["read taken", "X=1; export X"]).shell_line(&["-", "/dev/null"]).unwrap();
        let line = line.replacen("exec cat", "echo \"$X\"; exec cat", 1);
        let mut shell = Command::new("sh");
        let shell = shell.args(["-c", &line]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        shell.stdin.take().unwrap().write_all(b"sent\n").unwrap();
        assert_eq!(shell.wait_with_output().unwrap().stdout, b"1\nsent\n");
    }

    #[test]
    fn a_connection_without_controlpersist_would_wait_for_others() {
        // As OpenSSH 9.2 prints them.
        for (settings, waits) in [
            ("host a\ncontrolmaster auto\ncontrolpath /home/me/.ssh/a\ncontrolpersist no\n", true),
            ("controlmaster true\ncontrolpersist no\n", true),
            ("controlmaster auto\ncontrolpersist 14400\n", false),
            ("controlmaster auto\ncontrolpersist yes\n", false),
            ("controlmaster false\ncontrolpersist no\n", false),
            ("", false),
        ] {
            assert_eq!(waits_for_others(settings), waits, "{settings}");
        }
    }

    #[test]
    fn names_of_hosts_are_no_paths_and_no_numbers() {
        assert!(is_host_name("delta") && is_host_name("my-cluster_2"));
        for name in ["", "12", "../x", "a/b", "-o", "a b", "a.b"] {
            assert!(!is_host_name(name), "{name}");
        }
    }
}
