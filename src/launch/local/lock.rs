use std::fs::File;
use std::io::{Read, Seek, Write};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, Flock, FlockArg, fcntl};

use crate::console::say;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::project::Project;

/// Held while a job's trials run. Invariant: on one ledger, one local job runs at a time, so that none disturbs the timing
/// of another; the system releases the lock when its holder and the ranks that it started have ended, however they ended.
pub(super) struct LocalLock {
    _file: Flock<File>,
}

impl LocalLock {
    /// Wait until no other local job runs.
    pub(super) fn wait(project: &Project, job: u64, interrupt: &Interrupt) -> Result<Self, Failure> {
        let path = project.runs().join(".local.lock");
        let refused = |e: &dyn std::fmt::Display| Failure::internal(format!("cannot lock {}: {e}", path.display()));
        let mut file =
            File::options().create(true).truncate(false).read(true).write(true).open(&path).map_err(|e| refused(&e))?;
        let mut said = false;
        loop {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(mut held) => {
                    // The ranks hold it, too: a launcher that is killed leaves them, and a training rank may take a while
                    // to end.
                    fcntl(&*held, FcntlArg::F_SETFD(FdFlag::empty())).map_err(|e| refused(&e))?;
                    // Only a courtesy for those who wait.
                    let _ = held.set_len(0).and_then(|()| held.rewind()).and_then(|()| write!(held, "{job}"));
                    return Ok(Self { _file: held });
                }
                Err((mut busy, Errno::EWOULDBLOCK)) => {
                    if !said {
                        let mut holder = String::new();
                        let _ = busy.rewind().and_then(|()| busy.read_to_string(&mut holder));
                        say(format!("job {job} waits until local job {holder} has ended"));
                        said = true;
                    }
                    file = busy;
                }
                Err((_, e)) => return Err(refused(&e)),
            }
            if interrupt.is_set() {
                return Err(Failure::new(Exit::Incomplete, format!("stopped before job {job} began")));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}
