//! The ranks of one attempt as processes of this machine: started, watched and stopped.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use expctl_ledger::{AttemptDir, JournalTail, Outcome, Rates, StepRecord, StepTotals};
use expctl_settings::Trial;
use expctl_text::format;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use nix::sys::signal::{SigHandler, Signal};
use signal_hook::consts::SIGUSR1;
use tokio::process::{Child, Command};

use crate::console::say;
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::launch::attempt::{ProcessEnd, conclude};
use crate::launch::command;

/// Time for ranks to stop on request.
const STOP_GRACE: Duration = Duration::from_secs(6);
/// Additional time where they first end a step together and write a checkpoint.
const CHECKPOINT_GRACE: Duration = Duration::from_secs(20);
/// Time beyond the heartbeat for a rank to write its exit record after another one was lost.
const LOSS_GRACE: Duration = Duration::from_secs(4);

/// The programs that run as ranks.
pub struct RankPrograms {
    /// `expctl-worker`; `None` where no trial needs it.
    pub worker: Option<PathBuf>,
    /// This program, which supervises programs of the user.
    pub expctl: PathBuf,
    /// Folder of the project, in which those run.
    pub root: PathBuf,
}

impl RankPrograms {
    /// The command that starts a rank of `trial`.
    fn command(&self, trial: &Trial) -> Result<Command, Failure> {
        if trial.settings.runs_command() {
            let mut command = Command::new(&self.expctl);
            command.arg("--root").arg(&self.root).arg("run-command");
            return Ok(command);
        }
        let worker = self.worker.as_ref().ok_or_else(|| Failure::internal("no worker was looked for"))?;
        Ok(Command::new(worker))
    }
}

/// Run the ranks of one attempt to their end and conclude it. `alone`: no other attempt runs, so any process that is left is one of it.
pub async fn run_attempt(
    programs: &RankPrograms,
    attempt: &AttemptDir,
    trial: &Trial,
    progress: &mut ProgressDisplay,
    interrupt: &Interrupt,
    checkpoint: &CheckpointRequest,
    alone: bool,
) -> Result<Outcome, Failure> {
    if trial.settings.runs_command() {
        command::adopt().map_err(|e| Failure::internal(format!("cannot watch over processes: {e}")))?;
    }
    let started = jiff::Timestamp::now().as_second();
    let mut ranks =
        Ranks { children: Vec::new(), ends: vec![None; trial.settings.launch.ranks as usize], forced: false };
    let run = ranks.run(programs, attempt, trial, progress, interrupt, checkpoint).await;
    if run.is_err() {
        // The launch itself failed: what runs must not go on, and the attempt is still concluded.
        ranks.signal(Signal::SIGKILL);
        ranks.wait_all().await;
    }
    if trial.settings.runs_command() && alone {
        // Processes of a supervisor that was killed.
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
    let mut command = programs.command(trial)?;
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
        // A token for a cluster is for nobody's program.
        .env_remove("SLURM_JWT")
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
            // Until the worker listens for it, a request for a checkpoint must not end it.
            nix::sys::signal::signal(Signal::SIGUSR1, SigHandler::SigIgn)?;
            Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGTERM)?)
        });
    }
    command.spawn().map_err(|e| {
        let program = command.as_std().get_program().to_string_lossy().into_owned();
        Failure::internal(format!("cannot start {program}: {e}"))
    })
}

/// The processes of an attempt, and how those that have ended did.
struct Ranks {
    children: Vec<Child>,
    ends: Vec<Option<ProcessEnd>>,
    /// The launcher has killed those that still ran.
    forced: bool,
}

impl Ranks {
    /// Start all ranks and stay until they have ended.
    async fn run(
        &mut self,
        programs: &RankPrograms,
        attempt: &AttemptDir,
        trial: &Trial,
        progress: &mut ProgressDisplay,
        interrupt: &Interrupt,
        checkpoint: &CheckpointRequest,
    ) -> Result<(), Failure> {
        // A request during the trial before is void.
        checkpoint.take();
        for rank in 0..trial.settings.launch.ranks {
            self.children.push(spawn(programs, attempt, trial, rank)?);
        }
        let heartbeat = Duration::from_secs(trial.settings.launch.heartbeat_timeout_s);
        let mut tick = tokio::time::interval(Duration::from_millis(100));
        let mut stopping = false;
        let mut deadline: Option<Instant> = None;
        while !self.collect()? {
            tick.tick().await;
            progress.tick();
            if checkpoint.take() {
                self.signal(Signal::SIGUSR1);
            }
            if interrupt.is_set() && !stopping {
                stopping = true;
                self.signal(Signal::SIGTERM);
                let checkpoints = trial.settings.keeps_state() && trial.settings.checkpoint.on_signal;
                let grace = if checkpoints { STOP_GRACE + CHECKPOINT_GRACE } else { STOP_GRACE };
                deadline = Some(Instant::now() + grace);
            }
            // The others notice the loss of a rank by themselves; this guards against one that cannot.
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

    /// Collect the ends of processes; true when all have ended.
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

/// A request for a checkpoint (signal USR1 to the launcher) that has yet to be passed on to the ranks.
#[derive(Clone, Debug)]
pub struct CheckpointRequest(Arc<AtomicBool>);

impl CheckpointRequest {
    /// Handle the signal, which would end the launcher otherwise.
    ///
    /// # Errors
    /// The system refuses to register a handler.
    pub fn listen() -> Result<Self, Failure> {
        let set = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGUSR1, Arc::clone(&set))
            .map_err(|e| Failure::internal(format!("cannot listen for signals: {e}")))?;
        Ok(Self(set))
    }

    /// Whether there was a request since the last call.
    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::SeqCst)
    }
}

/// Interval between lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Shows how far a trial is, from the journal of rank 0: a bar on a terminal, lines elsewhere.
pub struct ProgressDisplay {
    bar: ProgressBar,
    terminal: bool,
    label: String,
    total: u64,
    tail: JournalTail,
    steps: Vec<StepRecord>,
    printed: Instant,
    started: Instant,
    ranks: u64,
}

impl ProgressDisplay {
    /// Follow rank 0 of `attempt`, trial `number` of `of`. Where others run at the same time (`beside`) it has no bar: they would write over
    /// each other.
    pub fn new(attempt: &AttemptDir, trial: &Trial, (number, of): (usize, usize), beside: bool) -> Self {
        let measure = &trial.settings.measure;
        let total = measure.warmup + measure.steps;
        let target = if beside { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(total), target);
        let terminal = !bar.is_hidden();
        let label = format!("[{number}/{of}] {}", trial.name());
        if let Ok(style) = ProgressStyle::with_template("{prefix} {bar:24} {pos}/{len} {msg} ETA {eta}") {
            bar.set_style(style);
        }
        bar.set_prefix(label.clone());
        if !terminal {
            say(format!("{label}: {total} steps on {} rank(s)", trial.settings.launch.ranks));
        }
        Self {
            bar,
            terminal,
            label,
            total,
            tail: JournalTail::new(&attempt.journal_path(0)),
            steps: Vec::new(),
            printed: Instant::now(),
            started: Instant::now(),
            ranks: u64::from(trial.settings.launch.ranks),
        }
    }

    /// Read new steps and show them.
    pub fn tick(&mut self) {
        // A journal that cannot be read is reported when the attempt is concluded.
        if self.tail.read_new(&mut self.steps).is_err() || self.steps.is_empty() {
            return;
        }
        let message = format!("{} (last {} steps)", self.recent_rates(), self.recent().len());
        self.bar.set_position(self.done());
        self.bar.set_message(message.clone());
        if !self.terminal && self.printed.elapsed() >= LINE_EVERY {
            self.printed = Instant::now();
            let (done, left) = (self.done(), self.total.saturating_sub(self.done()));
            let eta = Duration::from_secs(self.started.elapsed().as_secs() * left / self.steps.len() as u64);
            say(format!("{}: step {done}/{}, {message}, ETA {}", self.label, self.total, HumanDuration(eta)));
        }
    }

    /// Completed steps of the trial, including those before a checkpoint.
    fn done(&self) -> u64 {
        self.steps.last().map_or(0, |step| step.step + 1)
    }

    /// Print the state in which the trial ended, with its rates as in the note.
    pub fn finish(self, state: &str, rates: Option<Rates>) {
        let rates = rates.map(|rates| format!(", {}", rates_text(&rates))).unwrap_or_default();
        self.bar.finish_and_clear();
        say(format!("{}: {state}{rates}", self.label));
    }

    /// The last 20 steps.
    fn recent(&self) -> &[StepRecord] {
        &self.steps[self.steps.len().saturating_sub(20)..]
    }

    /// Rates over the last steps of rank 0, warm-up or not; all ranks have batches of the same size.
    fn recent_rates(&self) -> String {
        let steps: Vec<StepRecord> =
            self.recent().iter().map(|step| StepRecord { measured: true, ..step.clone() }).collect();
        let rates = StepTotals::from_steps(&steps).rates();
        let of_all = |rates: Rates| Rates { samples_per_s: rates.samples_per_s * self.ranks as f64, ..rates };
        rates.map_or_else(|| format::MISSING.to_owned(), |rates| rates_text(&of_all(rates)))
    }
}

/// `75.6 it/s, 2419.2 samples/s`, in the digits of the note.
fn rates_text(rates: &Rates) -> String {
    format!("{} it/s, {} samples/s", format::rate(rates.it_per_s), format::rate(rates.samples_per_s))
}
