//! [`Slurm`]: every question to a cluster, through Slurm's commands or through slurmrestd.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io::{Read, Seek};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use wait_timeout::ChildExt;

use crate::error::SlurmError;
use crate::queue;
use crate::rest::{Rest, RestOptions};
use crate::task::JobId;
use crate::task::{Queue, TasksByIndex};
use crate::task_run::{self, LastRun, TaskRuns};

/// Time limit of a command. Slurm's own clients give up after about 20 s.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit of a question whether a controller is there.
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// Usual files of Slurm's configuration; the third is one that the controller has sent to the node.
const CONFIGURATIONS: [&str; 4] =
    ["/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/run/slurm/conf/slurm.conf", "/usr/local/etc/slurm.conf"];

/// A Slurm cluster, as this process's environment (`PATH`, `SLURM_CONF`, …) leads to it.
#[derive(Clone, Debug, Default)]
pub struct Slurm {
    /// Variables set beside those of this process.
    variables: Vec<(OsString, OsString)>,
    /// Submits, cancels and lists jobs in place of the commands.
    rest: Option<Arc<Rest>>,
}

/// Whether there is a Slurm to submit to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Availability {
    /// A controller answers.
    Ready,
    /// This machine belongs to a cluster whose controller does not answer, for this reason.
    Unreachable(String),
    /// There is no `sbatch`, or an `sbatch` that nobody has configured.
    Absent,
}

/// Options of a submission.
#[derive(Clone, Debug, Default)]
pub struct SubmitOptions {
    /// The job stays in the queue until [`Slurm::release`].
    pub hold: bool,
    /// Jobs that have to end first, as `--dependency` takes them: `afterok:12`.
    pub dependency: Option<String>,
    /// The cluster to submit to, where there are several.
    pub cluster: Option<String>,
}

impl Slurm {
    /// The Slurm that this process's environment leads to.
    pub fn from_environment() -> Self {
        Self::default()
    }

    /// Set an environment variable for the commands, for example `SLURM_CONF`.
    #[must_use]
    pub fn with_variable(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// A copy whose commands print times as seconds since 1970.
    #[must_use]
    pub fn with_time_in_seconds(&self) -> Self {
        self.clone().with_variable("SLURM_TIME_FORMAT", "%s")
    }

    /// Use HTTP: jobs are submitted, cancelled and listed through slurmrestd. See [`Rest::new`].
    ///
    /// # Errors
    /// [`SetupError`](crate::SetupError) if the address, the user or the token is missing or malformed.
    pub fn with_rest(mut self, options: RestOptions) -> Result<Self, SlurmError> {
        self.rest = Some(Arc::new(Rest::new(&self, options)?));
        Ok(self)
    }

    /// Whether it speaks through slurmrestd.
    pub const fn uses_rest(&self) -> bool {
        self.rest.is_some()
    }

    /// Whether `sbatch` is on the path and a controller answers within seconds.
    ///
    /// Invariant: a cluster that is merely down is never [`Availability::Absent`], or its users would compute on the
    /// login node.
    pub fn availability(&self) -> Availability {
        let environment = self.environment();
        let set = |name: &str| environment.get(OsStr::new(name)).filter(|value| !value.is_empty());
        let on_path = set("PATH")
            .is_some_and(|path| std::env::split_paths(path).any(|folder| is_executable(&folder.join("sbatch"))));
        if !on_path && self.rest.is_none() {
            return Availability::Absent;
        }
        let reason = match self.ping() {
            // The configuration may also come over the network: an answer is what counts.
            Ok(answer) if answer.contains(" UP") => return Availability::Ready,
            Ok(answer) => answer.trim().replace('\n', "; "),
            Err(e) => e.to_string(),
        };
        let configured = set("SLURM_CONF").is_some() || CONFIGURATIONS.iter().any(|path| Path::new(path).exists());
        if configured || self.rest.is_some() {
            Availability::Unreachable(reason)
        } else {
            tracing::debug!("sbatch is installed but not configured: {reason}");
            Availability::Absent
        }
    }

    /// Submit a batch script.
    ///
    /// # Errors
    /// [`SlurmError`], with Slurm's own words where it refuses the script.
    pub fn submit(&self, script: &Path, options: &SubmitOptions) -> Result<JobId, SlurmError> {
        if let Some(rest) = &self.rest {
            let text = std::fs::read_to_string(script).map_err(SlurmError::Script)?;
            let folder = std::env::current_dir().map_err(SlurmError::Script)?;
            return rest.submit(&text, options.hold, options.dependency.as_deref(), &folder);
        }
        let mut arguments: Vec<OsString> = vec!["--parsable".into()];
        arguments.extend(options.cluster.iter().map(|cluster| format!("--clusters={cluster}").into()));
        arguments.extend(options.hold.then(|| "--hold".into()));
        arguments.extend(options.dependency.iter().map(|after| format!("--dependency={after}").into()));
        arguments.push(script.into());
        let answer = self.run("sbatch", arguments)?;
        JobId::parse(&answer).ok_or_else(|| SlurmError::NotAJobId { answer: answer.trim().to_owned() })
    }

    /// Ask `sbatch --test-only` when and where a script would start. Some versions of Slurm use up a
    /// job id for the answer. slurmrestd has no such request.
    ///
    /// # Errors
    /// [`SlurmError`], with Slurm's own words where it refuses the script.
    pub fn test_only(&self, script: &Path) -> Result<String, SlurmError> {
        let (stdout, stderr) =
            self.output("sbatch", [OsStr::new("--test-only"), script.as_os_str()], ANSWER_TIMEOUT)?;
        // Slurm prints it on stderr.
        let lines = stderr.lines().chain(stdout.lines()).map(|line| line.trim().trim_start_matches("sbatch: "));
        Ok(lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; "))
    }

    /// Let a job that was submitted on hold run.
    ///
    /// # Errors
    /// [`SlurmError`].
    pub fn release(&self, job: &JobId) -> Result<(), SlurmError> {
        match &self.rest {
            Some(rest) => rest.release(job),
            None => self.run("scontrol", job.arguments(Some("release"))).map(drop),
        }
    }

    /// Let a held job also wait for other jobs, named as `--dependency` takes them.
    ///
    /// # Errors
    /// [`SlurmError`].
    pub fn set_dependency(&self, job: &JobId, dependency: &str) -> Result<(), SlurmError> {
        if let Some(rest) = &self.rest {
            return rest.set_dependency(job, dependency);
        }
        let arguments = ["update".to_owned(), format!("JobId={}", job.id), format!("Dependency={dependency}")];
        self.run("scontrol", job.cluster_option().into_iter().chain(arguments)).map(drop)
    }

    /// Cancel a job with all its tasks.
    ///
    /// # Errors
    /// [`SlurmError`].
    pub fn cancel(&self, job: &JobId) -> Result<(), SlurmError> {
        match &self.rest {
            Some(rest) => rest.cancel(&[(job.clone(), None)], None),
            None => self.run("scancel", job.arguments(None)).map(drop),
        }
    }

    /// Cancel some tasks of an array. A task that has ended meanwhile is no error.
    ///
    /// # Errors
    /// [`SlurmError`].
    pub fn cancel_tasks(&self, array: &JobId, tasks: &[u32]) -> Result<(), SlurmError> {
        if let Some(rest) = &self.rest {
            let tasks: Vec<_> = tasks.iter().map(|task| (array.clone(), Some(*task))).collect();
            return rest.cancel(&tasks, None);
        }
        let names = tasks.iter().map(|task| format!("{}_{task}", array.id));
        let quiet = ["--quiet".to_owned()];
        self.run("scancel", array.cluster_option().into_iter().chain(quiet).chain(names)).map(drop)
    }

    /// The tasks of `arrays` that the controller remembers, by `squeue`; those that it has forgotten are missing. One
    /// question for all arrays of a cluster.
    ///
    /// # Errors
    /// [`SlurmError`].
    pub fn queued(&self, arrays: &[JobId]) -> Result<Queue, SlurmError> {
        if let Some(rest) = &self.rest {
            return rest.queued(arrays);
        }
        let fixed = ["--array", "--states=all", "--format=%i|%T|%r"];
        self.ask_about("squeue", &fixed, arrays, queue::parse_squeue)
    }

    /// The tasks of `arrays` that the accounting remembers, by `sacct`.
    ///
    /// # Errors
    /// [`SlurmError`], also where the cluster has no accounting.
    pub fn accounted(&self, arrays: &[JobId]) -> Result<Queue, SlurmError> {
        if let Some(rest) = &self.rest {
            return rest.accounted(arrays);
        }
        let fixed = ["--parsable2", "--allocations", "--format=JobID,State,ExitCode,JobName"];
        self.ask_about("sacct", &fixed, arrays, queue::parse_sacct)
    }

    /// All runs of the tasks of `arrays` with their steps, from the accounting, less those that ended before `since`
    /// (seconds since the epoch): a cluster may have used its ids before. One question for all arrays of a cluster.
    /// Always through
    /// `sacct`.
    ///
    /// # Errors
    /// [`SlurmError`], also where the cluster has no accounting.
    pub fn accounted_runs<'a>(
        &self,
        arrays: impl IntoIterator<Item = &'a JobId>,
        since: i64,
    ) -> Result<TaskRuns, SlurmError> {
        let slurm = self.with_time_in_seconds();
        let mut runs = TaskRuns::new();
        for (cluster, ids) in by_cluster(arrays) {
            let fixed = ["--duplicates", "--parsable2", "--noconvert"].map(str::to_owned);
            let format = format!("--format={}", task_run::COLUMNS.join(","));
            let table = slurm.run("sacct", cluster.into_iter().chain(fixed).chain([format, jobs_option(&ids)]))?;
            let read = task_run::parse_sacct(&table).ok_or_else(|| not_a_table("sacct", &table))?;
            runs.extend(read.into_iter().filter(|((array, _), _)| ids.contains(array)));
        }
        for all in runs.values_mut() {
            all.retain(|run| run.ended.is_none_or(|ended| ended >= since));
            // Stable, so that a run without a start stays where sacct listed it.
            all.sort_by_key(|run| run.started.or(run.submitted));
        }
        Ok(runs)
    }

    /// The last run of each task of an array that the controller remembers, by task. Always through `scontrol`.
    ///
    /// # Errors
    /// [`SlurmError`].
    pub fn remembered_runs(&self, array: &JobId) -> Result<BTreeMap<u32, LastRun>, SlurmError> {
        // Not --oneliner: with line ends, nothing that a user wrote can be taken for a key.
        let question = ["show".to_owned(), "job".to_owned(), array.id.to_string()];
        let answer = self.with_time_in_seconds().run("scontrol", array.cluster_option().into_iter().chain(question))?;
        Ok(task_run::parse_scontrol(&answer, array.id))
    }

    /// MaxArraySize of the cluster; `None` if it does not say. slurmrestd never does.
    pub fn max_array_size(&self) -> Option<u64> {
        let config = self.run("scontrol", ["show", "config"]).ok()?;
        let value = config.lines().find_map(|line| line.strip_prefix("MaxArraySize")?.split_once('='))?.1;
        value.trim().parse().ok()
    }

    /// Answer of `scontrol ping`: a line for each controller, with `UP` in it if it answers.
    ///
    /// # Errors
    /// [`SlurmError`].
    pub fn ping(&self) -> Result<String, SlurmError> {
        match &self.rest {
            Some(rest) => rest.ping(),
            None => Ok(self.output("scontrol", ["ping"], PING_TIMEOUT)?.0),
        }
    }

    /// Run one of Slurm's commands; returns its stdout.
    ///
    /// # Errors
    /// [`SlurmError`] if the command cannot be started, takes longer than 30 s, or fails.
    pub fn run<A: AsRef<OsStr>>(
        &self,
        program: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<String, SlurmError> {
        Ok(self.output(program, arguments, ANSWER_TIMEOUT)?.0)
    }

    /// A variable of [`Slurm::environment`], trimmed; `None` if it is empty, unset or not UTF-8.
    pub fn variable(&self, name: &str) -> Option<String> {
        let environment = self.environment();
        let value = environment.get(OsStr::new(name))?.to_str()?.trim();
        (!value.is_empty()).then(|| value.to_owned())
    }

    /// The environment of the commands: that of this process, less what would change what they do or print.
    pub fn environment(&self) -> BTreeMap<OsString, OsString> {
        let all = std::env::vars_os().chain(self.variables.iter().cloned());
        let mut environment: BTreeMap<_, _> = all.filter(|(name, _)| !name.to_str().is_some_and(overrides)).collect();
        // Slurm's commands take an empty token for a token, and then find no other way to authenticate.
        if environment.get(OsStr::new("SLURM_JWT")).is_some_and(|token| token.is_empty()) {
            environment.remove(OsStr::new("SLURM_JWT"));
        }
        environment
    }

    /// The tasks of `arrays` by `program`; `parse` reads its table for one array.
    fn ask_about(
        &self,
        program: &str,
        fixed: &[&str],
        arrays: &[JobId],
        parse: fn(&str, u64) -> Option<TasksByIndex>,
    ) -> Result<Queue, SlurmError> {
        let mut queue = Queue::new();
        for (cluster, ids) in by_cluster(arrays) {
            let fixed = fixed.iter().map(|argument| (*argument).to_owned());
            let arguments = cluster.into_iter().chain(fixed).chain([jobs_option(&ids)]);
            let table = match self.run(program, arguments) {
                Ok(table) => table,
                // squeue says so of a single job that the controller has forgotten.
                Err(SlurmError::Refused { message, .. }) if message.contains("Invalid job id") => continue,
                Err(e) => return Err(e),
            };
            for id in ids {
                let tasks = parse(&table, id).ok_or_else(|| not_a_table(program, &table))?;
                queue.extend(tasks.into_iter().map(|(index, task)| ((id, index), task)));
            }
        }
        Ok(queue)
    }

    /// Run a command that has to succeed within `limit`; returns its stdout and its stderr.
    fn output<A: AsRef<OsStr>>(
        &self,
        program: &str,
        arguments: impl IntoIterator<Item = A>,
        limit: Duration,
    ) -> Result<(String, String), SlurmError> {
        let start = |source| SlurmError::Start { program: program.to_owned(), source };
        // Files, not pipes: nobody has to read while the command runs, and a full pipe cannot block it.
        let mut stdout = tempfile::tempfile().map_err(start)?;
        let mut stderr = tempfile::tempfile().map_err(start)?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .envs(self.environment())
            // English messages and plain columns, whatever the user's settings.
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(stdout.try_clone().map_err(start)?)
            .stderr(stderr.try_clone().map_err(start)?);
        let mut child = command.spawn().map_err(start)?;
        let Some(status) = child.wait_timeout(limit).map_err(start)? else {
            child.kill().map_err(start)?;
            child.wait().map_err(start)?;
            return Err(SlurmError::Timeout { program: program.to_owned(), limit });
        };
        if status.success() {
            return Ok((content(&mut stdout).map_err(start)?, content(&mut stderr).map_err(start)?));
        }
        let message = message(program, &content(&mut stderr).map_err(start)?);
        let message = if message.is_empty() { status.to_string() } else { message };
        Err(SlurmError::Refused { program: program.to_owned(), message })
    }
}

/// Slurm's variables that are about the cluster and its user.
const CLUSTER_VARIABLES: [&str; 7] = [
    "SLURM_CONF",
    "SLURM_CONF_SERVER",
    "SLURM_CLUSTERS",
    "SLURM_JWT",
    "SLURM_USER",
    "SLURM_TIME_FORMAT",
    "SLURM_BITSTR_LEN",
];

/// Whether a variable would override what a command is told: columns, filters, the script's own directives. All other
/// variables of Slurm's are about a job that this process may be in, and srun in the new job would take them for its
/// own.
fn overrides(name: &str) -> bool {
    if name.starts_with("SLURM_") {
        return !CLUSTER_VARIABLES.contains(&name);
    }
    ["SBATCH_", "SQUEUE_", "SACCT_", "SCANCEL_", "SCONTROL_"].iter().any(|prefix| name.starts_with(prefix))
}

/// Names of the `SBATCH_*` variables of this process. They would override a script's directives; `sbatch` does not get
/// them.
pub fn sbatch_variables() -> Vec<String> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    names.filter(|name| name.starts_with("SBATCH_")).collect()
}

/// Ids of arrays, by the option that leads a command to their cluster.
fn by_cluster<'a>(arrays: impl IntoIterator<Item = &'a JobId>) -> BTreeMap<Option<String>, BTreeSet<u64>> {
    let mut clusters: BTreeMap<Option<String>, BTreeSet<u64>> = BTreeMap::new();
    for array in arrays {
        clusters.entry(array.cluster_option()).or_default().insert(array.id);
    }
    clusters
}

/// The option `--jobs` of squeue and sacct.
fn jobs_option(ids: &BTreeSet<u64>) -> String {
    let list: Vec<String> = ids.iter().map(u64::to_string).collect();
    format!("--jobs={}", list.join(","))
}

fn not_a_table(program: &str, answer: &str) -> SlurmError {
    SlurmError::NotATable { program: program.to_owned(), answer: answer.trim().chars().take(80).collect() }
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

fn content(file: &mut std::fs::File) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Slurm's own words in one line, without the prefixes that it puts before each.
fn message(program: &str, stderr: &str) -> String {
    let lines = stderr.lines().map(str::trim).filter(|l| !l.is_empty());
    let bare = lines.map(|line| {
        let line = line.strip_prefix(program).and_then(|l| l.strip_prefix(": ")).unwrap_or(line);
        line.strip_prefix("error: ").unwrap_or(line)
    });
    bare.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_carries_slurms_own_message() {
        let stderr = "sbatch: error: invalid partition specified: nowhere\nsbatch: error: Batch job submission failed: \
                      Invalid partition name specified\n";
        assert_eq!(
            message("sbatch", stderr),
            "invalid partition specified: nowhere; Batch job submission failed: Invalid partition name specified"
        );
    }

    #[test]
    fn a_command_that_hangs_is_given_up() {
        let answer = Slurm::from_environment().output("sleep", ["30"], Duration::from_millis(50));
        assert!(matches!(answer, Err(SlurmError::Timeout { .. })), "{answer:?}");
    }

    #[test]
    fn variables_that_override_what_a_command_is_told_do_not_reach_it() {
        let mut slurm = Slurm::from_environment().with_variable("SLURM_CONF", "kept");
        let others =
            ["SQUEUE_FORMAT2", "SQUEUE_STATES", "SACCT_FORMAT", "SCANCEL_INTERACTIVE", "SCONTROL_ALL", "SBATCH_HOLD"];
        for name in others {
            slurm = slurm.with_variable(name, "x");
        }
        let seen = slurm.run("env", [""; 0]).unwrap();
        assert!(others.iter().all(|name| !seen.contains(&format!("{name}="))), "{seen}");
        assert!(seen.contains("SLURM_CONF=kept") && seen.contains("LC_ALL=C"), "{seen}");
    }

    #[test]
    fn a_missing_command_is_named() {
        let answer = Slurm::from_environment().run("no-such-slurm-command", ["x"]);
        assert!(answer.unwrap_err().to_string().starts_with("cannot run no-such-slurm-command: "));
    }
}
