//! [`OnceSubmission`]: a submission on the cluster that happens once, however often it is asked for. It has a token, which the other side chose.
//!
//! Invariant: under one token there is one job. The submission runs in a session of its own, so a connection that ends does not end it; whoever
//! asks again under the token waits for it and gets the same answer. If it was killed midway, what there is of it is finished or withdrawn first.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use expctl_ledger::{LedgerError, SourceState};
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::setsid;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::RemoteError;
use super::remote_folder::RemoteFolder;
use super::running_mark::RunningMark;
use crate::exit::Exit;
use crate::launch::recover;
use crate::project::SENT_SOURCE;

/// Mode of files that nobody but the user can read.
pub(crate) const PRIVATE: u32 = 0o600;

/// What is submitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmissionOrder {
    /// Names the submission: 32 hexadecimal digits.
    pub token: String,
    /// The code.
    pub root: SubmissionRoot,
    /// The profile of configs that name none.
    pub profile: Option<String>,
    /// The verb and its arguments.
    pub arguments: Vec<String>,
    /// The commit that the code comes from.
    pub source: Option<SourceState>,
}

/// The code that a submission is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubmissionRoot {
    /// The tree with this hash.
    Tree(String),
    /// The code that this job was submitted with.
    Job(u64),
}

/// How a submission ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmissionResult {
    /// Its exit code.
    pub exit: i32,
    /// The number of the job.
    pub stdout: String,
    /// Its messages.
    pub stderr: String,
}

impl SubmissionResult {
    /// The job that was submitted.
    pub fn job(&self) -> Option<u64> {
        self.stdout.trim().lines().last().and_then(|line| line.trim().parse().ok())
    }

    /// Whether there is nothing to try again: there is a job, or nothing to submit, or the user has to change something first.
    pub fn is_final(&self) -> bool {
        self.job().is_some() || matches!(Exit::from_code(self.exit), Some(Exit::Ok | Exit::Usage | Exit::Config))
    }
}

/// A submission under a token.
#[derive(Clone, Debug)]
pub struct OnceSubmission<'a> {
    folder: &'a RemoteFolder,
    token: String,
}

impl<'a> OnceSubmission<'a> {
    /// The submission with this token.
    ///
    /// # Errors
    /// It is no token.
    pub fn new(folder: &'a RemoteFolder, token: &str) -> Result<Self, RemoteError> {
        if token.len() == 32 && token.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Ok(Self { folder, token: token.to_owned() });
        }
        Err(RemoteError::Tree { reason: format!("{token:?} is no token") })
    }

    /// Submit `order`, unless that was done; returns how it ended then or now. A failure that may pass, such as a Slurm that does not answer,
    /// is no end: the next one who asks submits again.
    ///
    /// # Errors
    /// The folder cannot be written, or the submission was killed.
    pub fn submit(&self, order: &SubmissionOrder) -> Result<SubmissionResult, RemoteError> {
        if let Some(result) = self.result()?.filter(SubmissionResult::is_final) {
            return Ok(self.with_warnings(result));
        }
        if !self.path("order.json").exists() {
            write_private_json(&self.path("order.json"), order)?;
        }
        let log_path = self.path("log");
        let log = File::options().create(true).append(true).mode(PRIVATE).open(&log_path);
        let log = log.map_err(RemoteError::io("write", &log_path))?;
        let mut command = self.folder.command(self.folder.path())?;
        command.args(["remote", "run-submission", "--folder"]).arg(self.folder.path()).args(["--token", &self.token]);
        command.stdin(Stdio::null()).stdout(log.try_clone().map_err(RemoteError::io("write", &log_path))?).stderr(log);
        let status = command.status().map_err(RemoteError::io("start", self.folder.path()))?;
        let result = self.result()?.map(|result| self.with_warnings(result));
        result.ok_or_else(|| RemoteError::SubmissionDied {
            status: status.to_string(),
            exit: status.code(),
            said: last_error(&self.log()),
            log: log_path,
        })
    }

    /// A result with what was said of the rests of an earlier submission, in whichever connection: arrays that nobody can look up, say.
    fn with_warnings(&self, result: SubmissionResult) -> SubmissionResult {
        let log = self.log();
        let warnings = log.lines().filter(|line| line.starts_with("warning: "));
        let warnings: String = warnings.map(|line| format!("{line}\n")).collect();
        SubmissionResult { stderr: warnings + &result.stderr, ..result }
    }

    /// What the processes that ran the submission printed.
    fn log(&self) -> String {
        std::fs::read(self.path("log"))
            .map_or_else(|_| String::new(), |text| String::from_utf8_lossy(&text).into_owned())
    }

    /// Run the submission in this process, which leaves the session of the connection.
    ///
    /// # Errors
    /// The folder cannot be written, what there is of an earlier one cannot be withdrawn, or the submission was killed.
    pub fn run(&self) -> Result<(), RemoteError> {
        // It fails where this process leads a session already.
        let _ = setsid();
        let lock = self.lock()?;
        // Of no other node, where the lock holds on this one alone.
        let _mark = RunningMark::take(&self.path("node"))?;
        match self.result()? {
            Some(result) if result.is_final() => return Ok(()),
            Some(_) => {
                let path = self.path("result.json");
                std::fs::remove_file(&path).map_err(RemoteError::io("remove", &path))?;
            }
            None => {}
        }
        let order = self.order()?;
        let root = self.folder.root(&order.root)?;
        if let Some(job) = recover(&self.folder.project(&root)?, &self.token)? {
            let stderr = format!("note: job {job} had been submitted before its submission could say so\n");
            return self.save(&SubmissionResult { exit: 0, stdout: format!("{job}\n"), stderr });
        }
        self.folder.link_shared(&root);
        let failed = || RemoteError::io("start", &root);
        let (mut stdout, mut stderr) =
            (tempfile::tempfile().map_err(failed())?, tempfile::tempfile().map_err(failed())?);
        let mut command = self.folder.command(&root)?;
        // Behind the verb: at the end it may be behind `--`.
        let (verb, arguments) = order.arguments.split_at(order.arguments.len().min(1));
        command.args(verb).args(["--submission", &self.token]).args(arguments);
        if let Some(profile) = &order.profile {
            command.env("EXPCTL_PROFILE", profile);
        }
        if let Ok(source) = serde_json::to_string(&order.source) {
            command.env(SENT_SOURCE, source);
        }
        // The lock lives as long as somebody has its file: if this process is killed, the submission, whose standard input it is, still holds
        // it. Processes that the submission starts have other inputs.
        let input = lock.try_clone().map_err(failed())?;
        command.stdin(Stdio::from(input));
        command.stdout(stdout.try_clone().map_err(failed())?).stderr(stderr.try_clone().map_err(failed())?);
        let status = command.status().map_err(failed())?;
        let Some(exit) = status.code() else {
            return Err(RemoteError::SubmissionKilled { status: status.to_string() });
        };
        let stdout = content(&mut stdout).map_err(failed())?;
        self.save(&SubmissionResult { exit, stdout, stderr: content(&mut stderr).map_err(failed())? })
    }

    /// What was asked for.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn order(&self) -> Result<SubmissionOrder, RemoteError> {
        let path = self.path("order.json");
        read_json(&path)?.ok_or_else(|| RemoteError::io("read", &path)(ErrorKind::NotFound.into()))
    }

    fn path(&self, end: &str) -> PathBuf {
        self.folder.submissions().join(format!("{}.{end}", self.token))
    }

    fn result(&self) -> Result<Option<SubmissionResult>, RemoteError> {
        read_json(&self.path("result.json"))
    }

    fn save(&self, result: &SubmissionResult) -> Result<(), RemoteError> {
        write_private_json(&self.path("result.json"), result)
    }

    /// Wait until no other process runs it.
    fn lock(&self) -> Result<Flock<File>, RemoteError> {
        let path = self.path("lock");
        let file = File::options().create(true).truncate(false).read(true).write(true).mode(PRIVATE).open(&path);
        let file = file.map_err(RemoteError::io("create", &path))?;
        Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, e)| RemoteError::io("lock", &path)(e.into()))
    }
}

/// A file of JSON; `None` if it is not there.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, RemoteError> {
    match std::fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|e| RemoteError::io("read", path)(e.into())),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(RemoteError::io("read", path)(e)),
    }
}

/// Write a file of JSON that nobody but the user can read: arguments may hold what is not for others.
pub(crate) fn write_private_json<T: Serialize>(path: &Path, value: &T) -> Result<(), RemoteError> {
    let mut text = serde_json::to_vec_pretty(value).map_err(|e| RemoteError::io("write", path)(e.into()))?;
    text.push(b'\n');
    Ok(atomic_file::write_private(path, &text).map_err(LedgerError::from)?)
}

/// The last error in a log, else its last line.
fn last_error(log: &str) -> String {
    let mut lines = log.lines().rev().map(str::trim).filter(|line| !line.is_empty());
    let error = lines.clone().find_map(|line| line.strip_prefix("error: "));
    error.or_else(|| lines.next()).unwrap_or_default().to_owned()
}

fn content(file: &mut File) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order_of(once: &OnceSubmission<'_>) -> SubmissionOrder {
        SubmissionOrder {
            token: once.token.clone(),
            root: SubmissionRoot::Job(1),
            profile: None,
            arguments: vec!["submit".to_owned()],
            source: None,
        }
    }

    #[test]
    fn a_token_is_no_path() {
        let home = tempfile::tempdir().unwrap();
        let folder = RemoteFolder::open(home.path().to_str().unwrap()).unwrap();
        assert!(OnceSubmission::new(&folder, "0123456789abcdef0123456789abcdef").is_ok());
        for token in ["", "../../../../../../../../etc/passw", "0123456789abcdef0123456789abcde", "x"] {
            assert!(OnceSubmission::new(&folder, token).is_err(), "{token}");
        }
    }

    #[test]
    fn a_submission_that_ended_is_not_run_again() {
        let home = tempfile::tempdir().unwrap();
        let folder = RemoteFolder::open(home.path().to_str().unwrap()).unwrap();
        let once = OnceSubmission::new(&folder, "0123456789abcdef0123456789abcdef").unwrap();
        let result = SubmissionResult { exit: 3, stdout: String::new(), stderr: "error: no\n".to_owned() };
        once.save(&result).unwrap();
        let order = order_of(&once);
        assert_eq!(once.submit(&order).unwrap(), result);
        assert!(!once.path("order.json").exists());
    }

    #[test]
    fn warnings_about_an_earlier_submission_come_with_the_result() {
        let home = tempfile::tempdir().unwrap();
        let folder = RemoteFolder::open(home.path().to_str().unwrap()).unwrap();
        let once = OnceSubmission::new(&folder, "0123456789abcdef0123456789abcdef").unwrap();
        std::fs::write(once.path("log"), "error: no disk\nwarning: an array may be on hold\n").unwrap();
        let result = SubmissionResult { exit: 0, stdout: "7\n".to_owned(), stderr: "note: a\n".to_owned() };
        once.save(&result).unwrap();
        let order = order_of(&once);
        let told = once.submit(&order).unwrap();
        assert_eq!((told.job(), told.stderr.as_str()), (Some(7), "warning: an array may be on hold\nnote: a\n"));
    }

    #[test]
    fn a_failure_that_may_pass_is_no_end() {
        let ended = |exit, stdout: &str| SubmissionResult { exit, stdout: stdout.to_owned(), stderr: String::new() };
        assert!([0, 2, 3].into_iter().all(|exit| ended(exit, "").is_final()));
        assert!([4, 6, 7, 70, 137].into_iter().all(|exit| !ended(exit, "").is_final()));
        assert!(ended(5, "12\n").is_final() && ended(5, "12\n").job() == Some(12));
    }

    #[test]
    fn the_last_error_of_a_log_is_found_before_its_hints() {
        assert_eq!(last_error("note: a\nerror: no disk\n  hint: buy one\n"), "no disk");
        assert_eq!((last_error("a\nb\n\n"), last_error("")), ("b".to_owned(), String::new()));
    }

    #[test]
    fn files_of_submissions_are_private() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        write_private_json(&path, &1).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, PRIVATE);
    }
}
