//! [`HostSession`]: a connection to `expctl remote serve` on a cluster.
//!
//! Invariant: whatever ends the connection, the error says so, with the last words of `ssh`.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use wait_timeout::ChildExt;

use super::error::RemoteError;
use super::host::{Host, ssh_program};
use super::host_address::HostAddress;
use super::protocol::{
    GREETING, HostGreeting, HostReply, HostRequest, MessageError, PROTOCOL, read_message, write_message,
};
use crate::console::say;

/// Time for `ssh` to end once its output has.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// What a login may print before expctl answers, bytes.
const MAX_LOGIN_OUTPUT: usize = 1 << 20;
/// Exit codes of a shell for a program that is not there or may not be run.
const NO_PROGRAM: [i32; 2] = [126, 127];
/// Exit code of `ssh` for a connection that failed.
const SSH_FAILED: i32 = 255;
/// Exit code of expctl for a verb that it does not know.
const UNKNOWN_VERB: i32 = 2;

/// A connection to a cluster.
#[derive(Debug)]
pub struct HostSession {
    host: String,
    address: HostAddress,
    program: String,
    ssh: Child,
    input: Option<BufWriter<ChildStdin>>,
    output: BufReader<ChildStdout>,
    /// Passes on what `ssh` says.
    messages: Option<JoinHandle<SshWords>>,
    /// The far side has answered before.
    has_greeted: bool,
}

impl HostSession {
    /// Connect.
    ///
    /// # Errors
    /// The host cannot be reached, or has no expctl that speaks as this one does.
    pub fn open(host: &Host) -> Result<Self, RemoteError> {
        let mut command = host.command(&["remote", "serve", "--folder", host.folder()], false)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let no_ssh = |source| RemoteError::NoSsh { program: ssh_program().to_string_lossy().into_owned(), source };
        let mut ssh = command.spawn().map_err(no_ssh)?;
        let (Some(input), Some(output), Some(errors)) = (ssh.stdin.take(), ssh.stdout.take(), ssh.stderr.take()) else {
            return Err(no_ssh(std::io::ErrorKind::BrokenPipe.into()));
        };
        let mut session = Self {
            host: host.name().to_owned(),
            address: host.address(),
            program: host.program().to_owned(),
            ssh,
            input: Some(BufWriter::new(input)),
            output: BufReader::new(output),
            messages: Some(std::thread::spawn(move || pass_on(BufReader::new(errors)))),
            has_greeted: false,
        };
        session.greet()?;
        Ok(session)
    }

    /// Read the first line of expctl, behind what the login prints.
    fn greet(&mut self) -> Result<(), RemoteError> {
        let mut printed = 0;
        loop {
            let mut line = Vec::new();
            let limit = (MAX_LOGIN_OUTPUT - printed) as u64;
            let read = Read::by_ref(&mut self.output).take(limit).read_until(b'\n', &mut line);
            if read.unwrap_or(0) == 0 || line.last() != Some(&b'\n') {
                return Err(self.lost());
            }
            printed += line.len();
            let Some(text) = line.strip_prefix(GREETING.as_bytes()) else { continue };
            let host = self.host.clone();
            let greeting: HostGreeting = serde_json::from_slice(text)
                .map_err(|source| RemoteError::Answer { host, source: MessageError::Malformed { source } })?;
            self.has_greeted = true;
            if greeting.protocol == PROTOCOL {
                let ours = env!("CARGO_PKG_VERSION");
                if greeting.version != ours {
                    say(format!(
                        "warning: {} has expctl {}, and this is {ours}: what the newer one writes, the other may not read",
                        self.host, greeting.version
                    ));
                }
                return Ok(());
            }
            let (host, theirs) = (self.host.clone(), greeting.version);
            return Err(RemoteError::OtherProtocol { host, theirs, protocol: greeting.protocol });
        }
    }

    /// Name of the host.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Make a folder here the one of this host.
    ///
    /// # Errors
    /// It has records of another one, or cannot be written.
    pub fn claim(&self, folder: &Path) -> Result<(), RemoteError> {
        self.address.claim(&self.host, folder)
    }

    /// Ask, and wait for the answer.
    ///
    /// # Errors
    /// The connection was lost, or the far side refuses.
    pub fn ask(&mut self, request: &HostRequest) -> Result<HostReply, RemoteError> {
        self.send(request, &[])?;
        self.flush()?;
        self.receive()
    }

    /// Send a request with its bytes, as far as there is room: [`HostSession::ask`] sends the rest.
    ///
    /// # Errors
    /// As [`HostSession::ask`].
    pub fn send(&mut self, request: &HostRequest, content: &[u8]) -> Result<(), RemoteError> {
        let written = match &mut self.input {
            Some(input) => write_message(input, request).and_then(|()| input.write_all(content)),
            None => Err(std::io::ErrorKind::BrokenPipe.into()),
        };
        written.map_err(|_| self.why_not_taken())
    }

    fn flush(&mut self) -> Result<(), RemoteError> {
        let flushed = self.input.as_mut().map_or(Ok(()), Write::flush);
        flushed.map_err(|_| self.why_not_taken())
    }

    /// The next answer.
    ///
    /// # Errors
    /// As [`HostSession::ask`].
    pub fn receive(&mut self) -> Result<HostReply, RemoteError> {
        match read_message(&mut self.output) {
            Ok(HostReply::Failed(refused)) => Err(RemoteError::Refused { host: self.host.clone(), refused }),
            Ok(reply) => Ok(reply),
            Err(MessageError::Closed | MessageError::CutOff | MessageError::Io { .. }) => Err(self.lost()),
            Err(source) => Err(RemoteError::Answer { host: self.host.clone(), source }),
        }
    }

    /// Write the bytes of the last answer into a file; `arrived` hears how many there are each time that some come.
    ///
    /// # Errors
    /// The connection was lost. Second: the file cannot be written.
    pub fn receive_content(
        &mut self,
        size: u64,
        file: &mut File,
        mut arrived: impl FnMut(u64),
    ) -> Result<std::io::Result<()>, RemoteError> {
        let mut remaining = size;
        while remaining > 0 {
            let read = match self.output.fill_buf() {
                Ok(bytes) => {
                    let length = bytes.len().min(usize::try_from(remaining).unwrap_or(usize::MAX));
                    if let Err(e) = file.write_all(&bytes[..length]) {
                        return Ok(Err(e));
                    }
                    length
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(_) => 0,
            };
            if read == 0 {
                return Err(self.lost());
            }
            self.output.consume(read);
            remaining -= read as u64;
            arrived(read as u64);
        }
        Ok(Ok(()))
    }

    /// What is wrong with an answer of another kind than the question's.
    pub fn other_answer(&self) -> RemoteError {
        RemoteError::OtherAnswer { host: self.host.clone() }
    }

    /// Why the far side takes no more: it says so before it closes.
    fn why_not_taken(&mut self) -> RemoteError {
        match read_message(&mut self.output) {
            Ok(HostReply::Failed(refused)) => RemoteError::Refused { host: self.host.clone(), refused },
            _ => self.lost(),
        }
    }

    /// Why there is no answer.
    fn lost(&mut self) -> RemoteError {
        let status = self.end();
        let SshWords { last: said, names_remote } = self.messages.take().map_or_else(SshWords::default, words_of);
        let host = self.host.clone();
        match status.and_then(|status| status.code()) {
            Some(code) if !self.has_greeted && NO_PROGRAM.contains(&code) => {
                RemoteError::NotInstalled { host, program: self.program.clone() }
            }
            Some(UNKNOWN_VERB) if !self.has_greeted && names_remote => RemoteError::TooOld { host },
            _ if !said.is_empty() => RemoteError::Unreachable { host, said },
            _ => {
                let how = status.map_or_else(|| "it does not end".to_owned(), |status| status.to_string());
                RemoteError::Unreachable { host, said: format!("the connection was lost (ssh: {how})") }
            }
        }
    }

    /// End the connection, once the other side has done what it does behind its last answer, and what it says of that is printed. Whether it
    /// ended in time.
    pub fn close(mut self) -> bool {
        let is_ended = self.end().is_some();
        drop(self.messages.take().map(words_of));
        is_ended
    }

    /// End `ssh`; `None` if it has to be killed.
    fn end(&mut self) -> Option<ExitStatus> {
        if let Some(input) = self.input.take() {
            // What is not sent yet is of no use any more.
            let (pipe, _) = input.into_parts();
            drop(pipe);
        }
        let status = self.ssh.wait_timeout(END_TIMEOUT).ok().flatten();
        if status.is_none() {
            let _ = self.ssh.kill();
            let _ = self.ssh.wait();
        }
        status
    }
}

impl Drop for HostSession {
    fn drop(&mut self) {
        self.end();
    }
}

/// The streams of `expctl` there, while it runs a verb.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThereStreams {
    /// What it prints is printed here; it has nothing to read.
    #[default]
    Printed,
    /// A terminal.
    Terminal,
    /// As [`ThereStreams::Printed`], and its input stays open for as long as this process and the connection live: `remote run --tied` sees
    /// their end by it.
    Tied,
    /// As [`ThereStreams::Tied`], and its standard output is the answer.
    Answered,
}

/// How `expctl` there ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedThere {
    /// Its exit code.
    pub code: i32,
    /// What it printed on standard output, with [`ThereStreams::Answered`].
    pub answer: Vec<u8>,
}

/// Run `expctl` there with these arguments, until it ends.
///
/// # Errors
/// The host cannot be reached, or has no expctl.
pub fn run_there(host: &Host, arguments: &[&str], streams: ThereStreams) -> Result<EndedThere, RemoteError> {
    let terminal = streams == ThereStreams::Terminal;
    let mut command = host.command(arguments, terminal)?;
    command.stdin(match streams {
        ThereStreams::Terminal => Stdio::inherit(),
        // ssh would read what is meant for others: the lines of a loop in a script.
        ThereStreams::Printed => Stdio::null(),
        ThereStreams::Tied | ThereStreams::Answered => Stdio::piped(),
    });
    if streams == ThereStreams::Answered {
        command.stdout(Stdio::piped());
    }
    // A terminal there has one stream for both.
    command.stderr(if terminal { Stdio::inherit() } else { Stdio::piped() });
    let no_ssh = |source| RemoteError::NoSsh { program: ssh_program().to_string_lossy().into_owned(), source };
    let mut ssh = command.spawn().map_err(no_ssh)?;
    let messages = ssh.stderr.take().map(|errors| std::thread::spawn(move || pass_on(BufReader::new(errors))));
    // Waiting would close it.
    let _open = ssh.stdin.take();
    let mut answer = Vec::new();
    if let Some(mut output) = ssh.stdout.take() {
        // One that is cut off is no answer: the exit code says so.
        let _ = output.read_to_end(&mut answer);
    }
    let status = ssh.wait().map_err(no_ssh)?;
    let SshWords { last: said, names_remote } = messages.map_or_else(SshWords::default, words_of);
    let name = host.name().to_owned();
    match status.code() {
        Some(UNKNOWN_VERB) if names_remote => Err(RemoteError::TooOld { host: name }),
        Some(code) if NO_PROGRAM.contains(&code) => {
            Err(RemoteError::NotInstalled { host: name, program: host.program().to_owned() })
        }
        Some(code) if code != SSH_FAILED => Ok(EndedThere { code, answer }),
        _ if said.is_empty() => Err(RemoteError::Unreachable { host: name, said: format!("ssh ended with {status}") }),
        _ => Err(RemoteError::Unreachable { host: name, said }),
    }
}

/// What `ssh` and the far side said, as far as it tells why they ended.
#[derive(Debug, Default, PartialEq, Eq)]
struct SshWords {
    /// The last line that is not empty.
    last: String,
    /// A line names the verb `remote`, which an older expctl does not know.
    names_remote: bool,
}

/// What a thread has read. It may go on after `ssh`: a shared connection of the user's may keep the pipe.
fn words_of(messages: JoinHandle<SshWords>) -> SshWords {
    for _ in 0..100 {
        if messages.is_finished() {
            return messages.join().unwrap_or_default();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    SshWords::default()
}

/// Print what `ssh` and the far side say.
fn pass_on(mut messages: impl BufRead) -> SshWords {
    let mut words = SshWords::default();
    let mut line = Vec::new();
    while messages.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        say(&text);
        if !text.trim().is_empty() {
            text.trim().clone_into(&mut words.last);
        }
        words.names_remote |= text.contains("subcommand 'remote'");
        line.clear();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_of_ssh_are_known() {
        let said = &b"Warning: new key\r\nssh: connect to host delta: Connection refused\r\n\r\n"[..];
        let last = "ssh: connect to host delta: Connection refused".to_owned();
        assert_eq!(pass_on(said), SshWords { last, names_remote: false });
        assert_eq!(pass_on(&b""[..]), SshWords::default());
        let old = &b"error: unrecognized subcommand 'remote'\n\nFor more information, try '--help'.\n"[..];
        assert!(pass_on(old).names_remote);
    }
}
