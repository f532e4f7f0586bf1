//! `expctl status` and `expctl watch`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use expctl_ledger::{
    Attempt, AttemptDir, AttemptState, JobDir, Ledger, Rates, read_attempts, read_learning, stopped_early,
};
use expctl_settings::{EMULATED, Mode};
use expctl_text::Table;
use expctl_text::format::{MISSING, moment, rate};
use serde::Serialize;

use crate::console::{out, out_json, out_table, say};
use crate::data::ProjectData;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::launch::status::{Follow, JobStatus, JobStatuses, ListedJobs, TrialStatus};
use crate::ledger::ListedJob;
use crate::project::Project;
use crate::provenance::changes_since_submit;
use crate::report::attempts::attempts_table;
use crate::watch::{JobMetrics, Lines, Screen, View, frame};

/// Arguments of `expctl status`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  expctl status\n  expctl status 12 --attempts")]
pub struct StatusArgs {
    /// Show each trial of these jobs [default: a line for each job of the ledger]
    #[arg(value_name = "JOB")]
    jobs: Vec<u64>,
    /// Show each attempt of the trials: its task, how far it came, what it was asked for and why it ended
    #[arg(long, requires = "jobs")]
    attempts: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl StatusArgs {
    /// The first job that is named.
    pub fn first_job(&self) -> Option<u64> {
        self.jobs.first().copied()
    }
}

#[derive(Serialize)]
struct JobRow {
    job: u64,
    config: String,
    backend: String,
    submitted: i64,
    age_s: i64,
    trials: Vec<StateCount>,
}

#[derive(Serialize)]
struct StateCount {
    state: AttemptState,
    trials: usize,
}

/// Steps that rates refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum RatesOf {
    /// All measured steps of a completed trial.
    MeasuredSteps,
    /// The last measured steps of rank 0 of a trial that runs.
    LastSteps,
}

#[derive(Serialize)]
struct TrialRow {
    job: u64,
    task: usize,
    trial: String,
    /// The swept settings of the trial; empty without a sweep.
    point: String,
    state: AttemptState,
    attempt: u32,
    steps: u64,
    steps_total: u64,
    /// Rate of the measured steps of a completed trial, as in its note, or of the last steps of one that runs.
    it_per_s: Option<f64>,
    samples_per_s: Option<f64>,
    /// The steps of the rates; `None` without rates.
    rates_of: Option<RatesOf>,
    /// Whether the steps wait in the place of an accelerator (`train.mode = "emulate"`): the rates are of no model.
    emulated: bool,
    /// Seconds from the start of the attempt to its end; `None` until then.
    took_s: Option<i64>,
    node: Option<String>,
    reason: String,
}

/// Print where jobs stand.
pub fn run(project: &Project, args: &StatusArgs) -> Result<(), Failure> {
    let ledger = Ledger::open(project)?;
    let ids: Vec<u64> =
        if args.jobs.is_empty() { ledger.measured_ids().into_iter().collect() } else { args.jobs.clone() };
    if let Some(folder) = args.jobs.iter().map(|id| project.job(*id)).find(is_private) {
        let message = format!("job {} is another user's, and only they may read it", folder.name());
        return Err(
            Failure::new(Exit::Incomplete, message).hint("they share later jobs with launch.readers = \"group\"")
        );
    }
    let folders: Vec<JobDir> = ids.iter().map(|id| ledger.measured(*id)).collect::<Result<_, _>>()?;
    let mut unreadable = match args.jobs.is_empty() {
        true => print_jobs(project, args, &folders)?,
        false => print_trials(project, args, &folders)?,
    };
    if args.jobs.is_empty() {
        if ids.is_empty() && !project.has_studies() {
            say(format!("note: {}", super::no_project(project)));
        }
        let private: Vec<String> = private_jobs(project).map(|folder| folder.name()).collect();
        if !private.is_empty() {
            let jobs = private.join(", ");
            say(format!(
                "note: not shown: jobs of other users that only they may read: {jobs} (they share later ones with launch.readers)"
            ));
        }
    }
    if unreadable.is_empty() {
        return Ok(());
    }
    if folders.len() == 1 {
        return Err(unreadable.swap_remove(0).1);
    }
    for (folder, failure) in &unreadable {
        say(format!("warning: left out: {}: {}", folder.path().display(), failure.message));
    }
    let (damaged, all) = (unreadable.len(), folders.len());
    Err(Failure::new(Exit::Incomplete, format!("{damaged} of {all} jobs cannot be read"))
        .hint("move the folder of a damaged job out of the ledger, or restore the file"))
}

/// Jobs that other users keep to themselves. The ledger does not list them: it cannot see that they have a record.
fn private_jobs(project: &Project) -> impl Iterator<Item = JobDir> {
    let ids = std::fs::read_dir(project.runs()).into_iter().flatten().flatten();
    let ids: BTreeSet<u64> = ids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    ids.into_iter().map(|id| project.job(id)).filter(is_private)
}

/// Whether another user keeps the job to themselves. Its record is opened and not read: there may be thousands.
fn is_private(folder: &JobDir) -> bool {
    let is_denied = |e: std::io::Error| e.kind() == std::io::ErrorKind::PermissionDenied;
    folder.is_of_another_user() && std::fs::File::open(folder.record_path()).is_err_and(is_denied)
}

fn say_trouble(trouble: Option<&str>) {
    if let Some(trouble) = trouble {
        say(format!("note: Slurm cannot be asked: {trouble}"));
    }
}

/// Print a line for each job; gives those that cannot be read.
fn print_jobs(project: &Project, args: &StatusArgs, folders: &[JobDir]) -> Result<Vec<(JobDir, Failure)>, Failure> {
    let listed = ListedJobs::load(project, folders)?;
    say_trouble(listed.trouble.as_deref());
    let now = jiff::Timestamp::now().as_second();
    let rows: Vec<JobRow> = listed.jobs.iter().map(|job| job_row(job, now)).collect();
    print_rows(args.json, &rows, &job_table(&rows, &listed.jobs))?;
    Ok(listed.unreadable)
}

/// Print a line for each trial or attempt of some jobs; gives those that cannot be read.
fn print_trials(project: &Project, args: &StatusArgs, folders: &[JobDir]) -> Result<Vec<(JobDir, Failure)>, Failure> {
    let seen = JobStatuses::load(folders)?;
    say_trouble(seen.trouble.as_deref());
    for job in &seen.jobs {
        for line in changes_since_submit(project, &ProjectData(project), &job.folder, &job.record) {
            say(format!("note: changed since job {} was submitted: {line}", job.record.job));
        }
    }
    if args.attempts {
        let rows = seen.jobs.iter().map(|job| {
            let state = |task: usize| job.trials.get(task).map(|trial| (trial.state, trial.reason.clone()));
            read_attempts(&job.folder, &job.record, &state)
        });
        let rows: Vec<Attempt> = rows.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
        print_rows(args.json, &rows, &attempts_table(&rows, seen.jobs.len() > 1))?;
        return Ok(seen.unreadable);
    }
    let mut rows = Vec::new();
    for job in &seen.jobs {
        let trials: Vec<(usize, &TrialStatus)> = job.trials.iter().enumerate().collect();
        let computed = parallel_map::map(&trials, |(task, trial)| trial_row(&job.folder, job.record.job, *task, trial));
        rows.extend(computed.into_iter().collect::<Result<Vec<_>, _>>()?);
    }
    print_rows(args.json, &rows, &trial_table(&rows, seen.jobs.len() > 1))?;
    Ok(seen.unreadable)
}

/// Print rows as JSON, or as a table.
fn print_rows<T: Serialize>(json: bool, rows: &[T], table: &Table) -> Result<(), Failure> {
    if json {
        return out_json(rows);
    }
    out_table(table);
    Ok(())
}

fn job_row(job: &ListedJob, now: i64) -> JobRow {
    JobRow {
        job: job.job,
        config: job.config.clone(),
        backend: job.backend.clone(),
        submitted: job.submitted,
        age_s: (now - job.submitted).max(0),
        trials: job.states.iter().map(|(state, trials)| StateCount { state: *state, trials: *trials }).collect(),
    }
}

fn job_table(rows: &[JobRow], jobs: &[ListedJob]) -> Table {
    let mut table = Table::new(["job", "config", "backend", "submitted", "age", "trials"]).right([0, 4]);
    for (row, job) in rows.iter().zip(jobs) {
        let submitted = moment(row.submitted);
        let number = row.job.to_string();
        table.row([number, row.config.clone(), row.backend.clone(), submitted, age(row.age_s), job.summary()]);
    }
    table
}

fn trial_row(folder: &JobDir, job: u64, task: usize, status: &TrialStatus) -> Result<TrialRow, Failure> {
    let measure = &status.trial.settings.measure;
    let mut row = TrialRow {
        job,
        task,
        trial: status.trial.id.clone(),
        point: status.trial.point_words(),
        state: status.state,
        attempt: 0,
        steps: 0,
        steps_total: measure.warmup.saturating_add(measure.steps),
        it_per_s: None,
        samples_per_s: None,
        rates_of: None,
        emulated: status.trial.settings.train.mode == Mode::Emulate,
        took_s: status.outcome.as_ref().map(|outcome| (outcome.ended - outcome.started).max(0)),
        node: None,
        reason: status.reason.clone(),
    };
    let Some(attempt) = &status.attempt else { return Ok(row) };
    row.attempt = attempt.number();
    let totals = attempt.totals(0)?;
    row.steps = totals.done;
    if let Some(epochs) = stopped_after(attempt, status) {
        row.steps_total = row.steps;
        row.reason = format!("stopped early, after epoch {epochs}");
    }
    let world = status.trial.settings.launch.ranks;
    // Of the first attempt of a single rank these are the totals of the trial: its table need not be read twice.
    let is_whole = world == 1 && attempt.number() == 1 && attempt.steps_path(0).exists();
    let rates = match status.state {
        AttemptState::Completed if is_whole => Rates::from_ranks(&[totals]),
        AttemptState::Completed => Rates::from_attempts(&folder.attempts(&status.trial.id)?, &status.trial.settings)?,
        // The rate of rank 0 times the ranks: all have batches of the same size.
        AttemptState::Running => {
            totals.rates().map(|r| Rates { samples_per_s: r.samples_per_s * f64::from(world), ..r })
        }
        // The rate of a trial that did not complete means nothing.
        _ => None,
    };
    let of = if status.state == AttemptState::Completed { RatesOf::MeasuredSteps } else { RatesOf::LastSteps };
    (row.it_per_s, row.samples_per_s) = rates.map(|rates| (rates.it_per_s, rates.samples_per_s)).unzip();
    row.rates_of = rates.map(|_| of);
    let ranks = attempt.environment()?.map(|e| e.ranks).unwrap_or_default();
    let mut hosts: Vec<String> = ranks.into_iter().map(|rank| rank.host).collect();
    hosts.dedup();
    row.node = (!hosts.is_empty()).then(|| hosts.join(", "));
    Ok(row)
}

/// Epochs of a completed trial that stopped early because its figures no longer improved: it has fewer steps than its settings say, and
/// none is missing.
fn stopped_after(attempt: &AttemptDir, status: &TrialStatus) -> Option<u64> {
    if status.state != AttemptState::Completed || status.trial.settings.train.epochs == 0 {
        return None;
    }
    let records = read_learning(&attempt.learning_path()).unwrap_or_default();
    stopped_early(&records).then(|| records.last().map_or(0, |last| last.epoch + 1))
}

fn trial_table(rows: &[TrialRow], several: bool) -> Table {
    let swept = rows.iter().any(|row| !row.point.is_empty());
    let first = several.then_some("job").into_iter().chain(["trial"]).chain(swept.then_some("point"));
    let header = first.chain(["state", "attempt", "steps", "samples/s", "took", "node", "reason"]);
    let shift = usize::from(several) + usize::from(swept);
    let mut table = Table::new(header).right([2, 3, 4, 5].map(|column| column + shift));
    for row in rows {
        let shown = |number: u32| if number == 0 { MISSING.to_owned() } else { number.to_string() };
        let first = several.then(|| row.job.to_string()).into_iter().chain([row.trial.clone()]);
        let first = first.chain(swept.then(|| row.point.clone()));
        let cells = [
            row.state.name().to_owned(),
            shown(row.attempt),
            format!("{}/{}", row.steps, row.steps_total),
            shown_rate(row),
            row.took_s.map_or_else(|| MISSING.to_owned(), age),
            row.node.clone().unwrap_or_else(|| MISSING.to_owned()),
            row.reason.clone(),
        ];
        table.row(first.chain(cells));
    }
    table
}

/// Samples/s, marked as emulated, and as that of the last steps while the trial runs.
fn shown_rate(row: &TrialRow) -> String {
    let Some(samples) = row.samples_per_s else { return MISSING.to_owned() };
    let last_steps = (row.rates_of == Some(RatesOf::LastSteps)).then_some("last steps");
    let marks: Vec<&str> = row.emulated.then_some(EMULATED).into_iter().chain(last_steps).collect();
    if marks.is_empty() { rate(samples) } else { format!("{} ({})", rate(samples), marks.join(", ")) }
}

/// The largest unit that gives at least one: `12 s`, `3 min`, `5 h`, `9 d`.
fn age(seconds: i64) -> String {
    match seconds {
        s if s < 60 => format!("{s} s"),
        s if s < 3600 => format!("{} min", s / 60),
        s if s < 86_400 => format!("{} h", s / 3600),
        s => format!("{} d", s / 86_400),
    }
}

/// How often a signal is looked for between two updates.
const SIGNAL_POLL: Duration = Duration::from_millis(100);

/// Arguments of `expctl watch`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  expctl watch 12\n  expctl watch 12 --metrics /var/lib/node_exporter/expctl_12.prom"
)]
pub struct WatchArgs {
    /// The job
    #[arg(value_name = "JOB")]
    job: u64,
    /// Seconds between two readings of the ledger; Slurm is asked less often
    #[arg(long, value_name = "S", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Print a JSON object for each reading, one per line
    #[arg(long)]
    json: bool,
    /// Write metrics for Prometheus into this file at each reading, as node_exporter's textfile collector reads them (FILE.prom)
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,
}

impl WatchArgs {
    /// The job.
    pub fn job(&self) -> u64 {
        self.job
    }

    /// Whether it writes a file.
    pub fn writes_metrics(&self) -> bool {
        self.metrics.is_some()
    }
}

/// Show a job until it has ended; the exit code then says what became of it.
pub fn watch(project: &Project, args: &WatchArgs) -> Result<(), Failure> {
    let mut job = Follow::new(&Ledger::open(project)?.measured(args.job)?)?;
    let interrupt = Interrupt::listen()?;
    let every = Duration::from_secs(args.interval);
    let mut lines = Lines::default();
    let mut metrics = args.metrics.as_deref().map(MetricsFile::new);
    let mut screen = if args.json { None } else { Screen::open() };
    loop {
        job.look()?;
        let view = View::new(&mut job)?;
        if let Some(file) = &mut metrics {
            file.write(&job, &view)?;
        }
        if view.ended {
            // Leave the alternate screen: the end is printed as lines that stay.
            screen = None;
        }
        match &screen {
            Some(screen) => {
                let (height, width) = screen.size();
                screen.draw(&frame(&view, height, width));
            }
            None if args.json => out(serde_json::to_string(&view).map_err(Failure::internal)?),
            None => lines.changes(&view).into_iter().for_each(out),
        }
        if view.ended {
            return job.status().verdict().map_err(|failure| with_hint(project, failure, job.status()));
        }
        let leave = match &screen {
            Some(screen) => screen.wait(every, &interrupt),
            None => wait(every, &interrupt),
        };
        if leave {
            drop(screen);
            let name = project.job_name(args.job);
            return Err(Failure::rendered(Exit::Incomplete, format!("job {name} goes on without me"))
                .hint(format!("watch it again with `expctl watch {name}`, stop it with `expctl cancel {name}`")));
        }
    }
}

/// The file of metrics of a job that is watched.
struct MetricsFile<'a> {
    path: &'a Path,
    metrics: JobMetrics,
    looks: usize,
    /// Looks that could not be written since the last one that was.
    missed: usize,
}

impl<'a> MetricsFile<'a> {
    fn new(path: &'a Path) -> Self {
        Self { path, metrics: JobMetrics::default(), looks: 0, missed: 0 }
    }

    /// Write the metrics of a look. That the file cannot be written is an error at the first look; later it is said once, because the watching
    /// is more than its metrics.
    fn write(&mut self, job: &Follow, view: &View) -> Result<(), Failure> {
        let written = self.metrics.write(self.path, job, view);
        self.looks += 1;
        match written {
            Ok(()) => self.missed = 0,
            Err(error) if self.looks == 1 => return Err(error.into()),
            Err(error) => {
                if self.missed == 0 {
                    say(format!("warning: metrics are not written: {error}"));
                }
                self.missed += 1;
            }
        }
        Ok(())
    }
}

fn with_hint(project: &Project, failure: Failure, job: &JobStatus) -> Failure {
    let name = project.job_name(job.record.job);
    let logs = format!("`expctl logs {name}` shows what the ranks printed");
    // A search runs again itself what it lost.
    let is_round = job.record.search.is_some();
    failure.hint(if is_round { logs } else { format!("{logs}, `expctl retry {name}` runs them again") })
}

/// Wait; true if the user interrupts.
fn wait(time: Duration, interrupt: &Interrupt) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < time && !interrupt.is_set() {
        std::thread::sleep(SIGNAL_POLL.min(time.saturating_sub(begun.elapsed())));
    }
    interrupt.is_set()
}
