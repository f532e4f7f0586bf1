use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use expctl_record::{AttemptDir, Outcome, Trial};
use nix::sys::signal::{SigHandler, Signal};
use tokio::process::{Child, Command};

use super::checkpoint_request::CheckpointRequest;
use super::progress::Progress;
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::launch::{ProcessEnd, command, conclude};

/// How long ranks may take to stop after they were asked to.
const STOP_GRACE: Duration = Duration::from_secs(6);
/// How much longer where they first end a step together and keep a checkpoint.
const CHECKPOINT_GRACE: Duration = Duration::from_secs(20);
/// How long beyond the heartbeat a rank may take to leave its last words after another one was lost.
const LOSS_GRACE: Duration = Duration::from_secs(4);

/// What runs as a rank.
pub(super) struct RankPrograms {
    /// `expctl-worker`; none where no trial needs it.
    pub worker: Option<PathBuf>,
    /// This program, which watches over programs of the user's.
    pub expctl: PathBuf,
    /// Folder of the project, where those run.
    pub root: PathBuf,
}

impl RankPrograms {
    /// The words that start a rank of `trial`.
    fn of(&self, trial: &Trial) -> Result<Command, Failure> {
        if trial.settings.runs_command() {
            let mut command = Command::new(&self.expctl);
            command.arg("--root").arg(&self.root).arg("run-command");
            return Ok(command);
        }
        let worker = self.worker.as_ref().ok_or_else(|| Failure::internal("no worker was looked for"))?;
        Ok(Command::new(worker))
    }
}

/// Run the ranks of one attempt to their end and conclude it.
pub(super) async fn run_attempt(
    programs: &RankPrograms,
    attempt: &AttemptDir,
    trial: &Trial,
    progress: &mut Progress,
    interrupt: &Interrupt,
    checkpoint: &CheckpointRequest,
) -> Result<Outcome, Failure> {
    if trial.settings.runs_command() {
        command::adopt().map_err(|e| Failure::internal(format!("cannot watch over processes: {e}")))?;
    }
    let started = jiff::Timestamp::now().as_second();
    let mut ranks =
        Ranks { children: Vec::new(), ends: vec![None; trial.settings.launch.ranks as usize], forced: false };
    let run = ranks.run(programs, attempt, trial, progress, interrupt, checkpoint).await;
    if run.is_err() {
        // Something about the launch itself went wrong; whatever runs must not go on, and the attempt still concludes.
        ranks.signal(Signal::SIGKILL);
        ranks.wait_all().await;
    }
    if trial.settings.runs_command() {
        // What a supervisor that was killed itself left behind.
        command::end_all();
    }
    let outcome = conclude(attempt, trial, started, &ranks.ends, interrupt.is_set())?;
    run.map(|()| outcome)
}

fn spawn(programs: &RankPrograms, attempt: &AttemptDir, trial: &Trial, rank: u32) -> Result<Child, Failure> {
    let open = || -> std::io::Result<(std::fs::File, std::fs::File)> {
        let log = std::fs::File::create(attempt.log_path(rank))?;
        Ok((log.try_clone()?, log))
    };
    let (stdout, stderr) =
        open().map_err(|e| Failure::internal(format!("cannot write the log of rank {rank}: {e}")))?;
    let mut command = programs.of(trial)?;
    command
        .arg("--attempt")
        .arg(attempt.path())
        .env("RANK", rank.to_string())
        .env("LOCAL_RANK", rank.to_string())
        .env("WORLD_SIZE", trial.settings.launch.ranks.to_string())
        // All ranks are here. Rank 0 takes a port from the kernel and publishes it in the attempt folder.
        .env("EXPCTL_STORE_HOST", "127.0.0.1")
        .env_remove("MASTER_ADDR")
        .env_remove("MASTER_PORT")
        .stdin(Stdio::null())
        .stdout(Stdio::from(stdout))
        .stderr(Stdio::from(stderr))
        // Ctrl-C in a terminal reaches the whole group; the launcher passes it on itself.
        .process_group(0)
        .kill_on_drop(true);
    // If the launcher is killed, its ranks must not go on alone.
    #[expect(unsafe_code, reason = "both calls are async-signal-safe and touch only the child")]
    // SAFETY: the closure makes two system calls and allocates nothing.
    unsafe {
        command.pre_exec(|| {
            // Until the worker listens for it, a request for a checkpoint must not end it; there is nothing to keep yet.
            nix::sys::signal::signal(Signal::SIGUSR1, SigHandler::SigIgn)?;
            Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGTERM)?)
        });
    }
    command.spawn().map_err(|e| {
        let program = command.as_std().get_program().to_string_lossy().into_owned();
        Failure::internal(format!("cannot start {program}: {e}"))
    })
}

/// The processes of an attempt and how those that ended did so.
struct Ranks {
    children: Vec<Child>,
    ends: Vec<Option<ProcessEnd>>,
    /// What still runs has been killed by the launcher.
    forced: bool,
}

impl Ranks {
    /// Start all ranks and stay until they have ended.
    async fn run(
        &mut self,
        programs: &RankPrograms,
        attempt: &AttemptDir,
        trial: &Trial,
        progress: &mut Progress,
        interrupt: &Interrupt,
        checkpoint: &CheckpointRequest,
    ) -> Result<(), Failure> {
        // What was asked of the trial before is done with.
        checkpoint.take();
        for rank in 0..trial.settings.launch.ranks {
            self.children.push(spawn(programs, attempt, trial, rank)?);
        }
        let heartbeat = Duration::from_secs(trial.settings.launch.heartbeat_timeout_s);
        let mut tick = tokio::time::interval(Duration::from_millis(100));
        let mut asked = false;
        let mut deadline: Option<Instant> = None;
        while !self.collect()? {
            tick.tick().await;
            progress.tick();
            if checkpoint.take() {
                self.signal(Signal::SIGUSR1);
            }
            if interrupt.is_set() && !asked {
                asked = true;
                self.signal(Signal::SIGTERM);
                let keep = trial.settings.keeps_state() && trial.settings.checkpoint.on_signal;
                let grace = if keep { STOP_GRACE + CHECKPOINT_GRACE } else { STOP_GRACE };
                deadline = Some(Instant::now() + grace);
            }
            // The others notice the loss of a rank by themselves and say so; this only guards against one that cannot.
            if deadline.is_none() && self.any_failed() {
                deadline = Some(Instant::now() + heartbeat + LOSS_GRACE);
            }
            if !self.forced && deadline.is_some_and(|d| Instant::now() >= d) {
                self.forced = true;
                self.signal(Signal::SIGKILL);
            }
        }
        Ok(())
    }

    /// Take in what has ended; true when all have.
    fn collect(&mut self) -> Result<bool, Failure> {
        for (child, end) in self.children.iter_mut().zip(&mut self.ends) {
            if end.is_none()
                && let Some(status) = child.try_wait().map_err(Failure::internal)?
            {
                *end = Some(ProcessEnd { code: status.code(), signal: status.signal(), forced: self.forced });
            }
        }
        Ok(self.ends.iter().all(Option::is_some))
    }

    async fn wait_all(&mut self) {
        for child in &mut self.children {
            // Only used after SIGKILL: there is nothing left to learn from the status.
            let _ = child.wait().await;
        }
    }

    fn any_failed(&self) -> bool {
        self.ends.iter().flatten().any(|e| e.code != Some(0))
    }

    /// Signal the ranks that still run.
    fn signal(&self, signal: Signal) {
        for (child, end) in self.children.iter().zip(&self.ends) {
            if end.is_none()
                && let Some(pid) = child.id()
            {
                // It may have ended meanwhile.
                let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid as i32), signal);
            }
        }
    }
}
