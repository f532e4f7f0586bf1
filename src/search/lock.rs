//! [`SearchLock`]: keeps a second process away from a search. Two at once would each submit the next round.

use std::fs::File;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::geteuid;

use crate::console::say;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::project::Project;

/// Pause between two looks at the lock.
const POLL: Duration = Duration::from_millis(200);

/// A search that no other process of the user runs, as long as the value lives.
#[derive(Debug)]
pub struct SearchLock {
    _file: Flock<File>,
}

impl SearchLock {
    /// Wait until no other process of the user runs the search `id` of this ledger.
    ///
    /// # Errors
    /// Exit 6 if the user stopped it, or the ledger cannot be written.
    pub fn wait(project: &Project, id: &str, interrupt: &Interrupt) -> Result<Self, Failure> {
        let runs = project.runs();
        // A user cannot open the file of another one, nor complete the rounds in it.
        let path = runs.join(format!(".search-{id}-{}.lock", geteuid()));
        let refused =
            |e: &dyn std::fmt::Display| Failure::new(Exit::Incomplete, format!("cannot lock {}: {e}", path.display()));
        std::fs::create_dir_all(runs).map_err(|e| refused(&e))?;
        let mut file = File::options().create(true).truncate(false).write(true).open(&path).map_err(|e| refused(&e))?;
        let mut said = false;
        loop {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => return Ok(Self { _file: lock }),
                Err((busy, Errno::EWOULDBLOCK)) => file = busy,
                Err((_, e)) => return Err(refused(&e)),
            }
            if !said {
                say("this search runs already, in another process; waiting until that one ends");
                said = true;
            }
            if interrupt.is_set() {
                return Err(Failure::new(Exit::Incomplete, "stopped before the search went on"));
            }
            std::thread::sleep(POLL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_process_waits() {
        let root = tempfile::tempdir().unwrap();
        let project = Project::find(Some(root.path()), None).unwrap();
        let interrupt = Interrupt::listen().unwrap();
        let first = SearchLock::wait(&project, "a", &interrupt).unwrap();
        SearchLock::wait(&project, "b", &interrupt).unwrap();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| SearchLock::wait(&project, "a", &interrupt).map(drop));
            std::thread::sleep(2 * POLL);
            assert!(!second.is_finished());
            drop(first);
            second.join().unwrap().unwrap();
        });
    }
}
