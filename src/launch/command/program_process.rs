use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::surroundings::Variables;
use crate::program::find_program;

const PAUSE: Duration = Duration::from_millis(10);

/// A running program, in a process group of its own.
pub(super) struct ProgramProcess {
    child: Child,
    status: Option<ExitStatus>,
}

impl ProgramProcess {
    /// Start `command` in `folder` as it stands, without a shell. To be called on the main thread: the program ends with the
    /// thread that started it.
    ///
    /// # Errors
    /// Says which program cannot be started and why.
    pub fn start(folder: &Path, command: &[String], variables: &Variables, cpus: &[u32]) -> Result<Self, String> {
        let (name, arguments) = command.split_first().ok_or("worker.command is empty")?;
        let path = find_program(folder, name)?;
        let mut process = Command::new(&path);
        process.arg0(name).args(arguments).current_dir(folder).stdin(Stdio::null()).process_group(0);
        for (variable, value) in variables {
            match value {
                Some(value) => process.env(variable, value),
                None => process.env_remove(variable),
            };
        }
        let parent = nix::unistd::getpid();
        let allowed = cpu_set(cpus);
        #[expect(unsafe_code, reason = "the calls are async-signal-safe and touch only the child")]
        // SAFETY: the closure makes system calls and allocates nothing.
        unsafe {
            process.pre_exec(move || {
                nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
                if nix::unistd::getppid() != parent {
                    // The supervisor ended before that was set.
                    return Err(std::io::Error::from_raw_os_error(nix::errno::Errno::ESRCH as i32));
                }
                if let Some(allowed) = &allowed {
                    // As many processors as it may have: without them it is slower, and says so in its records.
                    let _ = nix::sched::sched_setaffinity(Pid::from_raw(0), allowed);
                }
                Ok(())
            });
        }
        let child = process.spawn().map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Self { child, status: None })
    }

    /// How it ended; none while it runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            // An error would mean that somebody else buried it.
            self.status = self.child.try_wait().unwrap_or_else(|_| Some(ExitStatus::from_raw(0xff00)));
        }
        self.status
    }

    /// Signal its whole group.
    pub fn signal(&self, signal: Signal) {
        // The group may be gone.
        let _ = killpg(Pid::from_raw(self.child.id() as i32), signal);
    }

    /// Ask it to end, and after `grace` do not ask any more.
    pub fn stop(&mut self, grace: Duration) {
        if self.ended().is_none() {
            self.signal(Signal::SIGTERM);
            // One that is stopped hears nothing otherwise.
            self.signal(Signal::SIGCONT);
        }
        let since = Instant::now();
        while self.ended().is_none() && since.elapsed() < grace {
            std::thread::sleep(PAUSE);
        }
        self.signal(Signal::SIGKILL);
        while self.ended().is_none() {
            std::thread::sleep(PAUSE);
        }
    }
}

/// None where the processors of the supervisor itself are all there are.
fn cpu_set(cpus: &[u32]) -> Option<nix::sched::CpuSet> {
    let mut set = nix::sched::CpuSet::new();
    for cpu in cpus {
        // Processors beyond what the type holds are left out.
        let _ = set.set(*cpu as usize);
    }
    (!cpus.is_empty()).then_some(set)
}

/// `was killed by signal 9 SIGKILL`, `ended with exit code 3`.
pub(super) fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => {
            let name = Signal::try_from(signal).map_or("", Signal::as_str);
            format!("was killed by signal {signal} {name}").trim_end().to_owned()
        }
        (None, None) => "ended".to_owned(),
    }
}
