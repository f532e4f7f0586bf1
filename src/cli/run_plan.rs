//! Submitting a plan, and staying with its job: what `submit`, `isolate`, `retry` and the verbs in the background share.

use std::collections::BTreeSet;

use clap::ValueEnum;
use expctl_config::{ArrayRefusal, Config, NotesSettings, Plan, ProjectFiles, SnapshotSettings, UserDefaults};
use expctl_ledger::{CodeSnapshot, JobRecord, MeasuredJob, SearchRound, SnapshotPath, VerifiedPredictions};
use expctl_settings::{Trial, to_json};
use expctl_text::format::count;
use serde_json::json;
use slurm_client::{Availability, Slurm};

use super::data::{self, folder_json, missing_data_line};
use super::on_end;
use super::report::note_options;
use crate::console::{out_json, say, try_out};
use crate::data::{DataSize, DataState, ProjectData, data_states};
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::launch::slurm::SlurmBackend;
use crate::launch::status::ExistingTrials;
use crate::launch::{Backend, SubmitOrder, backend_from_name, local, slurm};
use crate::plan;
use crate::program::needed_worker_of_this_version;
use crate::project::Project;
use crate::provenance::{CodeOf, ConfigOf, JobOrigin};
use crate::report::note::write_note;
use crate::snapshot::{SnapshotLimits, take};

/// Where a job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum BackendName {
    /// Slurm if there is one, else this machine
    Auto,
    /// A Slurm array, by Slurm's commands
    Slurm,
    /// A Slurm array, over HTTP (slurmrestd at SLURMRESTD_URL)
    Slurmrest,
    /// Processes of this machine
    Local,
}

/// Options of verbs that run a plan.
#[derive(Clone, Debug, clap::Args)]
pub struct RunOptions {
    /// Where to run [default: what ~/.config/expctl/config.toml says, else auto]
    #[arg(long, value_enum, env = "EXPCTL_BACKEND")]
    backend: Option<BackendName>,
    /// Leave out trials that have completed in a job of the ledger, or wait or run in one
    #[arg(long)]
    only_missing: bool,
    /// On Slurm: build the data and write the note as jobs of Slurm, too, before and after the trials
    #[arg(long, conflicts_with = "wait")]
    chain: bool,
    /// Wait for the job, then write its report
    #[arg(long)]
    wait: bool,
    /// Say what would be run, and do nothing
    #[arg(long, conflicts_with_all = ["test_only", "wait"])]
    dry_run: bool,
    /// Ask Slurm when it would start this, and submit nothing
    #[arg(long, conflicts_with = "wait")]
    test_only: bool,
    /// With --dry-run or --test-only: the answer as JSON
    #[arg(long)]
    json: bool,
    /// (from another machine) The token that the job is found again by
    #[arg(long, hide = true, value_name = "TOKEN")]
    submission: Option<String>,
}

impl RunOptions {
    /// Run all of it on `backend`, and wait for it.
    pub fn waiting(backend: Option<BackendName>) -> Self {
        Self {
            backend,
            only_missing: false,
            chain: false,
            wait: true,
            dry_run: false,
            test_only: false,
            json: false,
            submission: None,
        }
    }

    /// The same for another machine that gave the token of its submission: it waits for the job itself.
    pub fn for_submission(self, token: Option<&str>) -> Self {
        Self { wait: self.wait && token.is_none(), submission: token.map(str::to_owned), ..self }
    }

    /// The same on the backend of this name, unless one is named.
    pub fn or_backend(&self, name: &str) -> Self {
        let backend = self.backend.or_else(|| BackendName::from_str(name, false).ok());
        Self { backend, ..self.clone() }
    }

    /// Whether the job is waited for.
    pub fn waits(&self) -> bool {
        self.wait
    }

    /// Whether nothing is to be submitted.
    pub fn only_asks(&self) -> bool {
        self.dry_run || self.test_only
    }

    /// Refuse options that exclude each other, before anything is read.
    pub fn check(&self) -> Result<(), Failure> {
        if self.json && !self.dry_run && !self.test_only {
            return Err(Failure::new(Exit::Usage, "--json goes with --dry-run or --test-only")
                .hint("what is printed otherwise is the job's number, alone"));
        }
        Ok(())
    }
}

/// What a job is for, beside its trials.
#[derive(Debug)]
pub enum JobPurpose {
    /// Nothing else.
    Trials,
    /// Measures what was predicted.
    Verification(VerifiedPredictions),
    /// Runs a round of a search, which says what came of it: there is no note of the job by itself, and its number is no data.
    SearchRound(SearchRound),
    /// Runs the trials of a past job again.
    Rerun(u64),
}

/// What is to be submitted.
#[derive(Debug)]
pub struct Submission<'a> {
    /// The config that it comes from.
    pub config: ConfigOf<'a>,
    /// All trials of it.
    pub whole: &'a Plan,
    /// The trials that run.
    pub plan: Plan,
    /// What the job is for.
    pub purpose: JobPurpose,
    /// The code that its programs run.
    pub code: CodeOf,
}

/// A plan that was submitted.
pub struct Submitted {
    /// Its job.
    pub job: u64,
    /// How the job ended, if it was waited for.
    pub ended: Result<(), Failure>,
}

/// Submit `plan`, which is `whole` or a part of it, as `args` say; the job id goes to stdout, alone.
pub fn run_plan(
    project: &Project,
    config: &Config,
    (whole, plan): (&Plan, Plan),
    args: &RunOptions,
    code: CodeOf,
) -> Result<(), Failure> {
    let submission = Submission { config: ConfigOf::Read(config), whole, plan, purpose: JobPurpose::Trials, code };
    submit_plan(project, submission, args)?.map_or(Ok(()), |submitted| submitted.ended)
}

/// The same for a plan with any purpose. `None`: nothing was submitted, as `args` say.
pub fn submit_plan(
    project: &Project,
    submission: Submission<'_>,
    args: &RunOptions,
) -> Result<Option<Submitted>, Failure> {
    let Submission { config, whole, mut plan, purpose, code } = submission;
    let only_asks = args.only_asks();
    if args.only_missing {
        leave_out_existing(project, &mut plan)?;
        if plan.trials.is_empty() {
            if args.json {
                print_empty_answer()?;
            }
            return Ok(None);
        }
    }
    let backend = choose_backend(project, args, &plan)?;
    let slurm = backend != "local";
    if args.test_only && !slurm {
        return Err(Failure::new(Exit::Usage, "--test-only asks Slurm, and this job would run on this machine")
            .hint("--dry-run says what would be run here"));
    }
    if args.chain && !slurm {
        return Err(Failure::new(Exit::Usage, "--chain makes jobs of Slurm, and this job would run on this machine")
            .hint("on this machine a job builds its data and writes its note by itself"));
    }
    let planned = plan::job_record(&plan, backend);
    let job = match purpose {
        JobPurpose::Trials => planned,
        JobPurpose::Verification(verifies) => JobRecord { verifies: Some(verifies), ..planned },
        JobPurpose::SearchRound(search) => JobRecord { search: Some(search), ..planned },
        JobPurpose::Rerun(job) => JobRecord { reruns: Some(job), ..planned },
    };
    // What can be refused is refused before hours of data building, and before a number is taken.
    if slurm {
        slurm::scripts(project, &job)?;
    } else {
        local::check(&job)?;
    }
    if let Some(cost) = plan::cost(&plan) {
        say(if slurm { cost.to_string() } else { cost.on_this_machine() });
    }
    for warning in plan::pack_warnings(&plan) {
        say(format!("warning: {warning}"));
    }
    if only_asks {
        needed_worker_of_this_version(&job.trials)?;
        if args.test_only {
            test_only(project, &job, args.json)?;
        } else {
            dry_run(project, &plan, &job, args.json, args.chain)?;
        }
        return Ok(None);
    }
    let states = data_states(project, &plan.trials);
    data::refuse_damaged(&states)?;
    // A chain builds on a node, whose disk may be another one.
    if !args.chain {
        DataSize::of(project, &plan.trials, &states).refuse()?;
    }
    let snapshot = snapshot_of(project, &code)?;
    let code = if snapshot.is_some() { code } else { CodeOf::Live };
    let origin = JobOrigin::gather(project, config, whole, &code)?;
    let job = JobRecord { submitted: jiff::Timestamp::now().as_second(), commit: origin.commit(), ..job };
    let interrupt = Interrupt::listen()?;
    let builds = states.values().any(|state| !matches!(state, DataState::There(())));
    let order = SubmitOrder {
        chain: args.chain,
        builds_data: builds,
        code: snapshot.as_ref(),
        submission: args.submission.as_deref(),
    };
    if !order.chain {
        data::ensure_all(project, &plan.trials, &interrupt)?;
        if builds {
            refuse_of_built_arrays(project, &plan.trials)?;
        }
    }
    let backend = backend_from_name(&job.backend)?;
    let id = backend.submit(project, job, order)?;
    let record = project.job(id).record()?;
    let ended = match &record.search {
        Some(search) => {
            say(format!("round {}: job {id}", search.round));
            keep_origin(project, id, &origin);
            backend.wait(project, &record, &interrupt)
        }
        None => {
            print_id(id);
            keep_origin(project, id, &origin);
            wait_or_detach(project, backend.as_ref(), &record, args.wait, &interrupt)
        }
    };
    Ok(Some(Submitted { job: id, ended }))
}

/// The snapshot that a job gets; none where its programs run in the project's folder: as the user says, or as the past job did.
fn snapshot_of(project: &Project, code: &CodeOf) -> Result<Option<CodeSnapshot>, Failure> {
    let settings = match code {
        CodeOf::Live => return Ok(None),
        CodeOf::Job(past) => {
            // The project may have been moved since.
            let here =
                |snapshot: CodeSnapshot| CodeSnapshot { project: SnapshotPath(project.root().to_owned()), ..snapshot };
            return Ok(CodeSnapshot::read(past)?.map(here));
        }
        CodeOf::Now => SnapshotSettings::load(project)?,
    };
    if settings.is_live() {
        return Ok(None);
    }
    let limits =
        SnapshotLimits { max_file_bytes: settings.max_file_bytes(), max_total_bytes: settings.max_total_bytes() };
    let taken = take(project, limits)?;
    taken.warnings().into_iter().for_each(say);
    Ok(Some(taken.snapshot))
}

/// Refuse what ranks would refuse of arrays that have just been built. Of files that were there before, the config's rules have seen it.
fn refuse_of_built_arrays(project: &Project, trials: &[Trial]) -> Result<(), Failure> {
    let mut seen = BTreeSet::new();
    for Trial { variant, settings, .. } in trials {
        let is_read = settings.reads_array() && !settings.runs_command();
        if !is_read || !seen.insert(to_json(&(&settings.array, &settings.sampler, &settings.data)).to_string()) {
            continue;
        }
        let refusals = ProjectData(project).array_refusals(settings);
        let said: Vec<String> =
            refusals.iter().map(|ArrayRefusal { key, message }| format!("`{key}`: {message}")).collect();
        if !said.is_empty() {
            return Err(Failure::new(Exit::Config, format!("variant {variant}: {}", said.join("; "))));
        }
    }
    Ok(())
}

/// The backend: of the command line, else of the user's defaults, else of the profile, else the one that is available.
fn choose_backend(project: &Project, args: &RunOptions, plan: &Plan) -> Result<&'static str, Failure> {
    let backend = match args.backend {
        Some(backend) => backend,
        None => {
            let named = UserDefaults::load(project)?.backend.or(profile_backend(project, plan)?);
            named.and_then(|name| BackendName::from_str(&name, false).ok()).unwrap_or(BackendName::Auto)
        }
    };
    match backend {
        BackendName::Slurm => Ok("slurm"),
        BackendName::Slurmrest => Ok("slurmrest"),
        BackendName::Local => Ok("local"),
        BackendName::Auto => match Slurm::from_environment().availability() {
            Availability::Ready => Ok("slurm"),
            Availability::Absent => {
                say("no Slurm found: running on this machine (--backend local)");
                Ok("local")
            }
            Availability::Unreachable(reason) => {
                Err(Failure::new(Exit::Cluster, format!("this machine has a Slurm that does not answer: {reason}"))
                    .hint("try again later, or run on this machine: --backend local"))
            }
        },
    }
}

/// The backend of the profile, if it names one.
fn profile_backend(project: &Project, plan: &Plan) -> Result<Option<String>, Failure> {
    match plan.trials.first().map(|trial| trial.settings.slurm.profile.as_str()) {
        None | Some("") => Ok(None),
        Some(name) => Ok(expctl_config::profile(project, name)?.backend),
    }
}

/// Remove the trials that have completed, wait or run in a job of the ledger, and say in which.
fn leave_out_existing(project: &Project, plan: &mut Plan) -> Result<(), Failure> {
    let existing = ExistingTrials::find(project, &plan.trials.iter().map(|trial| trial.id.as_str()).collect())?;
    existing.trouble.iter().for_each(|line| say(format!("warning: {line}")));
    let all = plan.trials.len();
    plan.trials.retain(|trial| existing.lacks(&trial.id));
    let left_out = all - plan.trials.len();
    if left_out > 0 {
        say(format!("left out: {left_out} of {}, which {} has", count(all as u64, "trial"), existing.jobs()));
    }
    if plan.trials.is_empty() {
        say("nothing to submit");
    }
    Ok(())
}

/// Stay with a job and write its note, or leave it.
pub fn wait_or_detach(
    project: &Project,
    backend: &dyn Backend,
    job: &JobRecord,
    wait: bool,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    if wait { finish(project, job.job, backend.wait(project, job, interrupt)) } else { backend.detach(project, job) }
}

/// Record the provenance of a job. The job exists by now, and runs even if this fails.
fn keep_origin(project: &Project, id: u64, origin: &JobOrigin) {
    if let Err(e) = origin.write(&project.job(id)) {
        say(format!("warning: where job {id} comes from was not kept: {}", e.message));
    }
}

/// Print the id, alone on stdout. The job exists by now, and goes on even if stdout is closed.
fn print_id(id: u64) {
    if let Err(e) = try_out(id) {
        say(format!("job {id} was submitted, but its id cannot be written to stdout: {e}"));
    }
}

/// Write the note of a job; the states of its trials then decide the exit code.
pub fn finish(project: &Project, job: u64, launched: Result<(), Failure>) -> Result<(), Failure> {
    let note = note_options(project, NotesSettings::default()).and_then(|options| write_note(project, job, &options));
    let mut file = None;
    let note = match note {
        Ok((path, job)) => {
            say(format!("report: {}", path.display()));
            file = Some(path);
            Ok(job)
        }
        // A note that its author has to fix is no failure of the job.
        Err(failure) if matches!(failure.exit, Exit::Config | Exit::Usage) => {
            say(format!("the note was not written\n{failure}"));
            MeasuredJob::load(&project.job(job)).map_err(Failure::from)
        }
        Err(failure) => Err(failure),
    };
    let measured = note.as_ref().ok();
    let ended = match (&launched, measured) {
        (Err(failure), _) => Err(failure.message.clone()),
        (Ok(()), Some(job)) => job.verdict().map_err(|e| e.to_string()),
        (Ok(()), None) => Err("its records cannot be read".to_owned()),
    };
    on_end::run(project, job, measured, file.as_deref(), ended);
    launched?;
    Ok(note?.verdict()?)
}

/// Maximum number of trials that are named one by one.
const MAX_NAMED_TRIALS: usize = 12;

/// Say what would run; writes no file. In a `chain` the data are built by a job, maybe on another disk.
fn dry_run(project: &Project, plan: &Plan, job: &JobRecord, json: bool, chain: bool) -> Result<(), Failure> {
    let data = data_states(project, &plan.trials);
    let size = DataSize::of(project, &plan.trials, &data);
    let on_slurm = job.on_slurm();
    let scripts = if on_slurm { slurm::scripts(project, job)? } else { Vec::new() };
    let path = project.runs().join("<job>").join("batch.sh").display().to_string();
    let template = slurm::batch_template(project)?.0;

    say(format!("dry run: {} on {}", count(plan.trials.len() as u64, "trial"), backend_words(job)));
    for trial in plan.trials.iter().take(MAX_NAMED_TRIALS) {
        say(format!("  {}", trial.name()));
    }
    if plan.trials.len() > MAX_NAMED_TRIALS {
        say(format!("  and {} more", plan.trials.len() - MAX_NAMED_TRIALS));
    }
    for (folder, state) in &data {
        match state {
            DataState::There(()) => say(format!("data: {} is there", folder.display())),
            DataState::Missing => say(missing_data_line(folder, &size)),
            // The error names the folder.
            DataState::Refused(e) => say(format!("data: {e}")),
        }
    }
    size.summary().into_iter().for_each(|summary| say(format!("data: {summary}")));
    for script in &scripts {
        say(format!("script: {path}, from {template}, asks for\n  {}", sbatch_options(script).join("\n  ")));
    }
    say("nothing was written, built or submitted");
    if json {
        let asked: Vec<_> =
            scripts.iter().map(|script| json!({ "path": path, "options": sbatch_options(script) })).collect();
        let ids: Vec<&str> = plan.trials.iter().map(|trial| trial.id.as_str()).collect();
        let states: Vec<_> = data.iter().map(|(folder, state)| folder_json(folder, state, &size)).collect();
        let answer = json!({
            "backend": job.backend,
            "trials": ids,
            "cost": on_slurm.then(|| plan::cost(plan)).flatten(),
            "data": states,
            "free_bytes": size.free(),
            "template": on_slurm.then_some(template),
            "scripts": asked,
        });
        out_json(&answer)?;
    }
    // Refuse what submitting would refuse, after everything is said.
    data::refuse_damaged(&data)?;
    if chain { Ok(()) } else { size.refuse() }
}

/// Ask Slurm when it would start the job, or why it would refuse it.
fn test_only(project: &Project, job: &JobRecord, json: bool) -> Result<(), Failure> {
    if job.backend == "slurmrest" {
        return Err(Failure::new(Exit::Usage, "slurmrestd has nothing like `sbatch --test-only`")
            .hint("--dry-run says what would be submitted; --backend slurm asks the commands"));
    }
    let cluster = SlurmBackend::default();
    let mut answers = Vec::new();
    for script in cluster.scripts(project, job)? {
        let file = tempfile::Builder::new().prefix("expctl-").suffix(".sh").tempfile().map_err(Failure::internal)?;
        std::fs::write(file.path(), &script).map_err(Failure::internal)?;
        let answer = cluster.client().test_only(file.path())?;
        say(format!("Slurm would take it: {answer}"));
        answers.push(json!({ "answer": answer, "options": sbatch_options(&script) }));
    }
    say("nothing was submitted");
    if json {
        let ids: Vec<&str> = job.trials.iter().map(|trial| trial.id.as_str()).collect();
        let answer = json!({ "backend": job.backend, "trials": ids, "scripts": answers });
        out_json(&answer)?;
    }
    Ok(())
}

/// Print the answer where `--only-missing` left no trial.
fn print_empty_answer() -> Result<(), Failure> {
    out_json(&json!({ "trials": [], "scripts": [] }))?;
    Ok(())
}

/// Options of the `#SBATCH` lines of a script. As in Slurm, they end where its commands begin.
fn sbatch_options(script: &str) -> Vec<&str> {
    let head = script.lines().take_while(|line| line.trim().is_empty() || line.starts_with('#'));
    head.filter_map(|line| line.strip_prefix("#SBATCH ")).collect()
}

fn backend_words(job: &JobRecord) -> &'static str {
    if job.on_slurm() { "Slurm" } else { "this machine" }
}
