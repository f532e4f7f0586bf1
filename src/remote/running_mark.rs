//! [`RunningMark`]: a file that says on which login node a submission runs, and by its time that it still does.
//!
//! A lock says as much where all login nodes of a cluster see it. On some network file systems it holds on one node alone, and whoever connects
//! again may get to another one.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant, SystemTime};

use nix::unistd::gethostname;

use super::error::RemoteError;
use super::once_submission::PRIVATE;

/// Time between two signs of life.
const RENEW_EVERY: Duration = Duration::from_secs(5);
/// A mark of another node that was not renewed for so long is of a process that was killed.
const MAX_SILENCE: Duration = Duration::from_secs(30);

/// The mark of this process, which goes with the value.
#[derive(Debug)]
pub(crate) struct RunningMark {
    path: PathBuf,
    /// Ends the thread that renews the file.
    _renewing: Sender<()>,
}

impl RunningMark {
    /// Wait until the mark of no other node is left, or renewed any more; then write that of this one. A mark of this node is that of a process
    /// that was killed: the caller has the lock.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn take(path: &Path) -> Result<Self, RemoteError> {
        let node = node();
        wait_for_others(path, &node, MAX_SILENCE).map_err(RemoteError::io("read", path))?;
        let write = || -> std::io::Result<File> {
            let mut file = File::options().create(true).truncate(true).write(true).mode(PRIVATE).open(path)?;
            file.write_all(node.as_bytes())?;
            Ok(file)
        };
        let file = write().map_err(RemoteError::io("write", path))?;
        let (renewing, ended) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            while ended.recv_timeout(RENEW_EVERY) == Err(RecvTimeoutError::Timeout) {
                // The next time may do.
                let _ = file.set_modified(SystemTime::now());
            }
        });
        Ok(Self { path: path.to_owned(), _renewing: renewing })
    }
}

impl Drop for RunningMark {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_file(&self.path) {
            tracing::debug!("{}: {e}", self.path.display());
        }
    }
}

/// The name of this machine.
fn node() -> String {
    gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Wait until the mark is gone, of this node, or was not renewed for `silence`. Clocks of nodes differ: its time is only compared with itself.
fn wait_for_others(path: &Path, node: &str, silence: Duration) -> std::io::Result<()> {
    let mut last = None;
    let mut since = Instant::now();
    loop {
        let (of, renewed) = match read(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        if of == node {
            return Ok(());
        }
        if last != Some(renewed) {
            (last, since) = (Some(renewed), Instant::now());
        } else if since.elapsed() >= silence {
            return Ok(());
        }
        std::thread::sleep(silence / 30);
    }
}

/// The node of a mark, and when it was renewed. Opening it makes a network file system look again.
fn read(path: &Path) -> std::io::Result<(String, SystemTime)> {
    let mut file = File::open(path)?;
    let mut node = String::new();
    file.read_to_string(&mut node)?;
    Ok((node, file.metadata()?.modified()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_there_as_long_as_its_value() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token.node");
        let mark = RunningMark::take(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), node());
        drop(mark);
        assert!(!path.exists());
        // Of a process on this node that was killed.
        std::fs::write(&path, node()).unwrap();
        drop(RunningMark::take(&path).unwrap());
        assert!(!path.exists());
    }

    #[test]
    fn a_submission_on_another_node_is_waited_for_while_it_gives_signs_of_life() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token.node");
        std::fs::write(&path, "login2").unwrap();
        let begun = Instant::now();
        let silence = Duration::from_secs(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let file = File::options().write(true).open(&path).unwrap();
                for second in 1..=30 {
                    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(second)).unwrap();
                    std::thread::sleep(silence / 20);
                }
            });
            wait_for_others(&path, "login1", silence).unwrap();
        });
        // Thirty signs of life, and the silence behind them.
        assert!(begun.elapsed() >= silence * 2, "{:?}", begun.elapsed());
        std::fs::remove_file(&path).unwrap();
        wait_for_others(&path, "login1", Duration::from_secs(3600)).unwrap();
    }
}
