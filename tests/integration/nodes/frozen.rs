//! One thread of a process that is stopped while the others go on: what a dead network file system or a deadlock does to it.
//! A stop signal stops whole processes; a debugger's stop is the only one that leaves the others running.

use std::sync::mpsc;
use std::thread::JoinHandle;

use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

/// A stopped thread; goes on when this is dropped, unless its process has ended.
pub struct Frozen {
    release: Option<mpsc::Sender<()>>,
    tracer: Option<JoinHandle<()>>,
}

impl Frozen {
    /// Stop the thread of `pid` that is called `name`.
    pub fn new(pid: i32, name: &str) -> Self {
        let task = thread(pid, name);
        let (stopped, is_stopped) = mpsc::channel();
        let (release, released) = mpsc::channel();
        // Only the thread that seized another one may wait for it, and a traced thread that ends keeps its process from
        // ending until that was done.
        let tracer = std::thread::spawn(move || {
            ptrace::seize(task, ptrace::Options::empty()).unwrap();
            ptrace::interrupt(task).unwrap();
            waitpid(task, Some(WaitPidFlag::__WALL)).unwrap();
            stopped.send(()).unwrap();
            loop {
                match waitpid(task, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG)) {
                    Ok(nix::sys::wait::WaitStatus::StillAlive) => {}
                    // It was killed with its process.
                    Ok(_) | Err(_) => return,
                }
                if released.recv_timeout(std::time::Duration::from_millis(20)) != Err(mpsc::RecvTimeoutError::Timeout) {
                    let _ = ptrace::detach(task, None);
                    return;
                }
            }
        });
        is_stopped.recv().unwrap();
        Self { release: Some(release), tracer: Some(tracer) }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        drop(self.release.take());
        let _ = self.tracer.take().unwrap().join();
    }
}

fn thread(pid: i32, name: &str) -> Pid {
    // Threads without a name of their own have the first one's.
    if std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap().trim() == name {
        return Pid::from_raw(pid);
    }
    for entry in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
        let found = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if found.trim() == name {
            return Pid::from_raw(entry.file_name().to_str().unwrap().parse().unwrap());
        }
    }
    panic!("process {pid} has no thread {name}");
}
