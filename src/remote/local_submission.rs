//! [`LocalSubmission`]: what was asked of a cluster, written here before anything is sent, so that it can be asked again after a lost
//! connection.
//!
//! Invariant: while a process is at it, it holds the lock of its file; a file without an end and without a lock is one to go on with.

use std::fs::{DirBuilder, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use expctl_ledger::SourceState;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use super::error::RemoteError;
use super::host_address::HostAddress;
use super::once_submission::{
    PRIVATE, SubmissionOrder, SubmissionResult, SubmissionRoot, read_json, write_private_json,
};

/// `submissions/<token>.json` of a host here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SubmissionFile {
    order: SubmissionOrder,
    /// The machine and the folder there that it was asked of.
    address: HostAddress,
    /// When it was asked for, seconds since the epoch.
    begun: i64,
    /// How it ended; none until that is known here.
    result: Option<SubmissionResult>,
    /// The user knows that the same was submitted with other code since.
    #[serde(default)]
    overtaken: bool,
}

/// A submission to a cluster, while this process is at it.
#[derive(Debug)]
pub struct LocalSubmission {
    path: PathBuf,
    file: SubmissionFile,
    /// Whether an earlier process began it.
    resumed: bool,
    /// When the last submission of the same with other code began whose end is not known; the user has not heard of it.
    overtakes: Option<i64>,
    _lock: Flock<File>,
}

impl LocalSubmission {
    /// Go on with an unfinished submission of the same, or begin a new one. `folder` is the one of the host here.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn begin(
        folder: &Path,
        address: HostAddress,
        root: SubmissionRoot,
        profile: Option<&str>,
        arguments: Vec<String>,
        source: Option<SourceState>,
    ) -> Result<Self, RemoteError> {
        std::fs::create_dir_all(folder).map_err(RemoteError::io("create", folder))?;
        let folder = folder.join("submissions");
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(RemoteError::io("create", &folder)(e)),
            _ => {}
        }
        let mut others = Vec::new();
        for path in unfinished(&folder)? {
            let Some(lock) = try_lock(&path)? else { continue };
            // Read under the lock: another process may just have ended it.
            let Ok(Some(file)) = read_json::<SubmissionFile>(&path) else { continue };
            if file.result.is_some() || file.address != address || file.order.arguments != arguments {
                continue;
            }
            if file.order.root == root {
                return Ok(Self { path, file, resumed: true, overtakes: None, _lock: lock });
            }
            if !file.overtaken {
                others.push((path, file, lock));
            }
        }
        let overtakes = others.last().map(|(_, file, _)| file.begun);
        for (path, file, _lock) in others {
            write_private_json(&path, &SubmissionFile { overtaken: true, ..file })?;
        }
        let token = new_token().map_err(RemoteError::io("read", Path::new("/dev/urandom")))?;
        let path = folder.join(format!("{token}.json"));
        let order = SubmissionOrder { token, root, profile: profile.map(str::to_owned), arguments, source };
        let file = SubmissionFile {
            order,
            address,
            begun: jiff::Timestamp::now().as_second(),
            result: None,
            overtaken: false,
        };
        let lock = try_lock(&path)?.ok_or_else(|| RemoteError::io("lock", &path)(ErrorKind::WouldBlock.into()))?;
        write_private_json(&path, &file)?;
        Ok(Self { path, file, resumed: false, overtakes, _lock: lock })
    }

    /// What to ask for.
    pub fn order(&self) -> &SubmissionOrder {
        &self.file.order
    }

    /// When an earlier process began it, seconds since the epoch; `None` if this one did.
    pub fn resumed_from(&self) -> Option<i64> {
        self.resumed.then_some(self.file.begun)
    }

    /// When the last submission of the same with other code began, whose end is not known here: once, and where this one is new.
    pub fn overtakes(&self) -> Option<i64> {
        self.overtakes
    }

    /// Write how it ended.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn end(mut self, result: &SubmissionResult) -> Result<(), RemoteError> {
        self.file.result = Some(result.clone());
        write_private_json(&self.path, &self.file)
    }
}

/// The files of submissions, newest last.
fn unfinished(folder: &Path) -> Result<Vec<PathBuf>, RemoteError> {
    let entries = std::fs::read_dir(folder).map_err(RemoteError::io("list", folder))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut found = Vec::new();
    for path in paths.filter(|path| path.extension().is_some_and(|end| end == "json")) {
        // One that cannot be read is nothing to go on with.
        if let Ok(Some(file)) = read_json::<SubmissionFile>(&path)
            && file.result.is_none()
        {
            found.push((file.begun, path));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// The lock of a submission; `None` if another process has it.
fn try_lock(path: &Path) -> Result<Option<Flock<File>>, RemoteError> {
    let path = path.with_extension("lock");
    let file = File::options().create(true).truncate(false).write(true).mode(PRIVATE).open(&path);
    let file = file.map_err(RemoteError::io("create", &path))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, e)) => Err(RemoteError::io("lock", &path)(e.into())),
    }
}

/// 128 random bits.
fn new_token() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_submission_is_gone_on_with_until_its_end_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let begin_on = |host: &str, argument: &str, tree: &str| {
            let address = HostAddress { host: host.to_owned(), folder: "expctl/p".to_owned() };
            let root = SubmissionRoot::Tree(tree.to_owned());
            let arguments = vec!["submit".to_owned(), argument.to_owned()];
            LocalSubmission::begin(folder.path(), address, root, Some("delta"), arguments, None).unwrap()
        };
        let begin = |argument: &str, tree: &str| begin_on("me@delta", argument, tree);
        let first = begin("a.toml", "t");
        let token = first.order().token.clone();
        assert!(first.resumed_from().is_none() && token.len() == 32);
        // While it is under way, another one is another one.
        let second = begin("a.toml", "t");
        assert!(second.resumed_from().is_none() && second.order().token != token);
        let result = SubmissionResult { exit: 0, stdout: "1\n".to_owned(), stderr: String::new() };
        second.end(&result).unwrap();
        drop(first);
        assert!(begin("b.toml", "t").resumed_from().is_none() && begin("a.toml", "u").resumed_from().is_none());
        assert!(begin_on("me@mmli", "a.toml", "t").resumed_from().is_none());
        let again = begin("a.toml", "t");
        assert!(again.resumed_from().is_some() && again.order().token == token);
        again.end(&result).unwrap();
        assert!(begin("a.toml", "t").resumed_from().is_none());
    }

    #[test]
    fn a_submission_with_other_code_is_spoken_of_once_and_gone_on_with() {
        let folder = tempfile::tempdir().unwrap();
        let begin = |argument: &str, tree: &str| {
            let address = HostAddress { host: "me@delta".to_owned(), folder: "expctl/p".to_owned() };
            let root = SubmissionRoot::Tree(tree.to_owned());
            let arguments = vec!["submit".to_owned(), argument.to_owned()];
            LocalSubmission::begin(folder.path(), address, root, None, arguments, None).unwrap()
        };
        // One that is under way is nobody's to speak of.
        let first = begin("a.toml", "t");
        assert_eq!((first.overtakes(), begin("a.toml", "u").overtakes()), (None, None));
        drop(first);
        assert_eq!(begin("b.toml", "u").overtakes(), None);
        let (next, later) = (begin("a.toml", "v"), begin("a.toml", "w"));
        assert!(next.overtakes().is_some() && later.overtakes().is_none());
        drop((next, later));
        assert!(begin("a.toml", "t").resumed_from().is_some());
    }
}
