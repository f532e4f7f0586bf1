//! A program of the user as a rank: its variables, its process, the processes below it, and the files that describe it
//! in the ledger.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use expctl_ledger::{
    AttemptDir, DataRead, Environment, FileSize, ProgramFacts, RankEnv, RankUsage, variables, write_json,
};
use expctl_settings::{NO_DATA_SET, Trial};
use host_metrics::drop_from_page_cache;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use serde_json::json;

use super::peers::Peers;
use super::program_folder::{ProgramFolder, SEARCHED};
use super::protocol::{ProgramSocket, RunRecord};
use crate::exit::Failure;

const PAUSE: Duration = Duration::from_millis(10);

/// A running program of the user, in a process group of its own.
pub struct ProgramProcess {
    child: Child,
    status: Option<ExitStatus>,
}

impl ProgramProcess {
    /// Start `command` in `folder`, without a shell. To be called on the main thread: the program ends with the thread
    /// that started it.
    ///
    /// # Errors
    /// The program and why it cannot be started.
    pub fn start(
        folder: &ProgramFolder,
        command: &[String],
        variables: &Variables,
        cpus: &[u32],
    ) -> Result<Self, String> {
        let (name, arguments) = command.split_first().ok_or("worker.command is empty")?;
        let path = folder.program(name)?;
        let mut process = Command::new(&path);
        let arguments = arguments.iter().map(|word| folder.argument(word));
        process.arg0(folder.argument(name)).args(arguments);
        process.current_dir(folder.path()).stdin(Stdio::null()).process_group(0);
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
                    // The supervisor ended before the signal was set.
                    return Err(std::io::Error::from_raw_os_error(nix::errno::Errno::ESRCH as i32));
                }
                if let Some(allowed) = &allowed {
                    // A failure leaves the program slower, which its records show.
                    let _ = nix::sched::sched_setaffinity(Pid::from_raw(0), allowed);
                }
                Ok(())
            });
        }
        let child = process.spawn().map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Self { child, status: None })
    }

    /// Its exit status; `None` while it runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            // An error would mean that it was reaped elsewhere.
            self.status = self.child.try_wait().unwrap_or_else(|_| Some(ExitStatus::from_raw(0xff00)));
        }
        self.status
    }

    /// Signal its whole group.
    pub fn signal(&self, signal: Signal) {
        // The group may be gone.
        let _ = killpg(Pid::from_raw(self.child.id() as i32), signal);
    }

    /// Ask it to end; kill it after `grace`.
    pub fn stop(&mut self, grace: Duration) {
        if self.ended().is_none() {
            self.signal(Signal::SIGTERM);
            // A stopped process gets no signal otherwise.
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

/// The CPUs as a set; `None` without any: the program then has those of the supervisor.
fn cpu_set(cpus: &[u32]) -> Option<nix::sched::CpuSet> {
    let mut set = nix::sched::CpuSet::new();
    for cpu in cpus {
        // CPUs beyond the size of the type are left out.
        let _ = set.set(*cpu as usize);
    }
    (!cpus.is_empty()).then_some(set)
}

/// `was killed by signal 9 SIGKILL`, `ended with exit code 3`.
pub fn status_text(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => {
            let name = Signal::try_from(signal).map_or("", Signal::as_str);
            format!("was killed by signal {signal} {name}").trim_end().to_owned()
        }
        (None, None) => "ended".to_owned(),
    }
}

/// Time for killed processes to end; one that waits for a dead file system may never do.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// Become the parent of all orphans below this process. Whatever a child starts is then found below this process,
/// however it was put into the background.
///
/// # Errors
/// The system refuses.
pub fn adopt() -> std::io::Result<()> {
    Ok(nix::sys::prctl::set_child_subreaper(true)?)
}

/// Processes below this one that have not ended: their ids and names.
fn descendants() -> Vec<(Pid, String)> {
    let mut children: BTreeMap<i32, Vec<(i32, String, bool)>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        // The name, in parentheses, may contain anything.
        let Some((head, tail)) = stat.rsplit_once(") ") else { continue };
        let name = head.split_once(" (").map_or("", |(_, name)| name).to_owned();
        let mut fields = tail.split(' ');
        let ended = matches!(fields.next(), Some("Z" | "X"));
        if let Some(parent) = fields.next().and_then(|parent| parent.parse().ok()) {
            children.entry(parent).or_default().push((pid, name, ended));
        }
    }
    let mut found = Vec::new();
    let mut open = vec![nix::unistd::getpid().as_raw()];
    while let Some(parent) = open.pop() {
        for (pid, name, ended) in children.remove(&parent).unwrap_or_default() {
            open.push(pid);
            if !ended {
                found.push((Pid::from_raw(pid), name));
            }
        }
    }
    found
}

/// Kill and reap all processes below this one. Not to be called while a child is waited for elsewhere.
pub fn end_all() {
    let since = Instant::now();
    loop {
        let left = descendants();
        for (pid, _) in &left {
            // It may have ended meanwhile.
            let _ = kill(*pid, Signal::SIGKILL);
        }
        reap();
        if left.is_empty() || since.elapsed() > KILL_TIMEOUT {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Wait until no process is left below this one, for at most `limit`; returns those that are left.
pub fn wait_for_all(limit: Duration) -> Vec<(Pid, String)> {
    let since = Instant::now();
    loop {
        reap();
        let left = descendants();
        if left.is_empty() || since.elapsed() > limit {
            return left;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Reap children that have ended.
fn reap() {
    while waitpid(None, Some(WaitPidFlag::WNOHANG)).is_ok_and(|status| status.pid().is_some()) {}
}

/// Variables of a program: to set, or, without a value, to remove.
type Variables = Vec<(&'static str, Option<OsString>)>;

/// Variables about the supervisor's own rank. A program that starts its ranks itself is none of them.
const RANK_VARIABLES: [&str; 8] = [
    "RANK",
    "LOCAL_RANK",
    "NODE_RANK",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_STEP_NUM_TASKS",
];

/// The variables that a program gets.
///
/// # Errors
/// The list of data files cannot be written, or the data set is not there.
pub fn program_variables(
    folder: &ProgramFolder,
    files: &dyn TrialFiles,
    attempt: &AttemptDir,
    trial: &Trial,
    env: RankEnv,
    peers: &Peers,
    socket: &ProgramSocket,
) -> Result<Variables, Failure> {
    let mut all: Variables = Vec::new();
    let mut set = |name, value: OsString| all.push((name, Some(value)));
    let (host, port) = &peers.master;
    let per_node = peers.start.ranks.len().max(1) as u32;
    let node = env.rank / per_node;
    for name in SEARCHED {
        if let Some(value) = std::env::var_os(name).and_then(|value| folder.searched(&value)) {
            set(name, value);
        }
    }
    // Also for an expctl that the program calls.
    set("EXPCTL_ROOT", folder.project().into());
    if folder.is_copy() {
        set("EXPCTL_CODE", folder.path().into());
    }
    set("EXPCTL_SOCKET", socket.path().into());
    set("EXPCTL_TRIAL", attempt.trial_path().into());
    set("EXPCTL_ATTEMPT", attempt.path().into());
    set("WORLD_SIZE", env.world_size.to_string().into());
    set("LOCAL_WORLD_SIZE", per_node.to_string().into());
    set("MASTER_ADDR", host.into());
    set("MASTER_PORT", port.to_string().into());
    set("OMP_NUM_THREADS", trial.settings.launch.threads.to_string().into());
    if host == "127.0.0.1" && std::env::var_os("GLOO_SOCKET_IFNAME").is_none() {
        // All ranks are on this machine, whose name may not resolve.
        set("GLOO_SOCKET_IFNAME", "lo".into());
    }
    if trial.settings.data.set != NO_DATA_SET {
        let list = socket.folder().join("files.json");
        let listed = data_files(files, trial)?;
        let listed: Vec<_> = listed.iter().map(|file| file.to_string_lossy()).collect();
        write_json(&list, &json!({ "data_dir": trial.data_dir, "files": listed }))?;
        set("EXPCTL_DATA_DIR", trial.data_dir.clone().into());
        set("EXPCTL_FILES", list.into());
    }
    if trial.settings.worker.starts_ranks {
        // torchrun takes its options from these.
        set("PET_NNODES", (env.world_size / per_node).to_string().into());
        set("PET_NODE_RANK", node.to_string().into());
        set("PET_NPROC_PER_NODE", per_node.to_string().into());
        set("PET_MASTER_ADDR", host.into());
        set("PET_MASTER_PORT", port.to_string().into());
        all.extend(RANK_VARIABLES.map(|name| (name, None)));
    } else {
        set("RANK", env.rank.to_string().into());
        set("LOCAL_RANK", env.local_rank.to_string().into());
        set("NODE_RANK", node.to_string().into());
    }
    Ok(all)
}

/// The files of the data that trials read. Launching knows no formats of data: whoever starts a rank answers.
pub trait TrialFiles {
    /// The files of the data set of arrays that a trial reads.
    ///
    /// # Errors
    /// The data set is not there.
    fn array_files(&self, trial: &Trial) -> Result<Vec<PathBuf>, Failure>;

    /// The store of graphs that a trial reads.
    ///
    /// # Errors
    /// The data set is not there.
    fn graph_store(&self, trial: &Trial) -> Result<PathBuf, Failure>;
}

/// The files that the trial reads, if they are files of arrays; empty for graphs, which programs cannot read.
fn data_files(files: &dyn TrialFiles, trial: &Trial) -> Result<Vec<PathBuf>, Failure> {
    let settings = &trial.settings;
    if !settings.reads_array() {
        return Ok(Vec::new());
    }
    if !settings.array.files.is_empty() {
        return Ok(settings.array.files.iter().map(PathBuf::from).collect());
    }
    files.array_files(trial)
}

/// Drop the files that the program reads from the page cache; writes the result into the usage of `rank`.
///
/// # Errors
/// A file cannot be opened, or the ledger cannot be written to.
pub fn drop_cache(files: &dyn TrialFiles, attempt: &AttemptDir, trial: &Trial, rank: u32) -> Result<(), Failure> {
    let files = match trial.settings.reads_array() {
        true => data_files(files, trial)?,
        false => vec![files.graph_store(trial)?],
    };
    let dropped = drop_from_page_cache(files.iter().map(PathBuf::as_path)).map_err(expctl_ledger::LedgerError::from)?;
    let usage = RankUsage { dropped: Some(dropped), ..RankUsage::default() };
    Ok(write_json(&attempt.usage_path(rank), &usage)?)
}

/// Size of the files that the program was given, if any.
fn data_size(files: &dyn TrialFiles, trial: &Trial) -> Result<Option<FileSize>, Failure> {
    if trial.settings.data.set == NO_DATA_SET && trial.settings.array.files.is_empty() {
        return Ok(None);
    }
    let files = data_files(files, trial)?;
    Ok(if files.is_empty() { None } else { Some(FileSize::from_paths(files.iter().map(PathBuf::as_path))?) })
}

/// The facts about a program in its run record.
pub fn program_facts(run: &RunRecord) -> ProgramFacts {
    let mut facts = ProgramFacts {
        name: run.program.clone(),
        versions: run.versions.clone(),
        settings: run.settings.clone(),
        ..ProgramFacts::default()
    };
    run.counts.add_to(&mut facts);
    facts
}

/// Write `env.json`, and `data.json` where the size of the data is known; for rank 0.
///
/// # Errors
/// A file cannot be written.
pub fn write_environment(
    files: &dyn TrialFiles,
    attempt: &AttemptDir,
    trial: &Trial,
    peers: &Peers,
    run: Option<&RunRecord>,
    facts: Option<&ProgramFacts>,
) -> Result<(), Failure> {
    let device = run.and_then(|run| run.device.clone()).unwrap_or_else(|| "cpu".to_owned());
    let environment = Environment {
        worker_version: env!("CARGO_PKG_VERSION").to_owned(),
        libtorch_version: String::new(),
        libtorch_file: String::new(),
        device,
        backend: run.and_then(|run| run.backend.clone()).unwrap_or_default(),
        threads: trial.settings.launch.threads,
        ranks: peers.start.hardware.clone(),
        variables: variables(),
        program: facts.cloned(),
        cuda: None,
    };
    write_json(&attempt.environment_path(), &environment)?;
    let size = match facts.and_then(|facts| facts.stored_bytes) {
        Some(bytes) => Some(FileSize { apparent_bytes: bytes, allocated_bytes: bytes }),
        None => data_size(files, trial)?,
    };
    let Some(size) = size else { return Ok(()) };
    let records = facts.and_then(|facts| facts.samples_total).unwrap_or(trial.settings.data.samples);
    let data = DataRead {
        store: None,
        records,
        selected: records,
        asked: None,
        buffer_bytes: 0,
        size,
        base_size: None,
        array: None,
    };
    Ok(write_json(&attempt.data_path(), &data)?)
}
