use std::path::{Path, PathBuf};

use expctl_record::JobRecord;
use slurm_client::{Availability, Slurm};

use super::{data, rehearse, say};
use crate::conf;
use crate::console::try_out;
use crate::data_size::DataSize;
use crate::data_state::data_states;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::launch::status::ExistingTrials;
use crate::launch::{Backend, SubmitOrder, backend_from_name, local, needed_worker, slurm};
use crate::ledger::MeasuredJob;
use crate::plan::{self, Plan};
use crate::project::Project;
use crate::provenance::Origin;
use crate::report::{self, format::count};

/// Where a job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum BackendName {
    /// Slurm if there is one, else this machine
    Auto,
    /// A Slurm array, by Slurm's commands
    Slurm,
    /// A Slurm array, over HTTP (slurmrestd at SLURMRESTD_URL)
    Slurmrest,
    /// Processes of this machine
    Local,
}

/// Arguments of `expctl submit`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The config (TOML)
    conf: PathBuf,
    /// Run only these variants
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Override a setting, for example `measure.steps=10`
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    #[command(flatten)]
    how: How,
}

/// Where and how a plan is run, whatever it comes from.
#[derive(Debug, clap::Args)]
pub struct How {
    /// Where to run [default: what ~/.config/expctl/config.toml says, else auto]
    #[arg(long, value_enum, env = "EXPCTL_BACKEND")]
    backend: Option<BackendName>,
    /// Leave out trials that have completed in a job of the ledger, or wait or run in one
    #[arg(long)]
    only_missing: bool,
    /// On Slurm: build the data and write the note as jobs of Slurm, too, before and after the trials
    #[arg(long, conflicts_with = "wait")]
    chain: bool,
    /// Stay until the job has ended, then write its note
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
}

impl Args {
    pub(super) fn config(&self) -> &Path {
        &self.conf
    }
}

impl How {
    /// Refuse what does not go together, before anything is read.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.json && !self.dry_run && !self.test_only {
            return Err(Failure::new(Exit::Usage, "--json goes with --dry-run or --test-only")
                .hint("what is printed otherwise is the job's number, alone"));
        }
        Ok(())
    }
}

/// Submit a config; the job id goes to stdout, alone.
pub fn run(project: &Project, args: &Args) -> Result<(), Failure> {
    args.how.check()?;
    let config = conf::load(project, &args.conf, &args.overrides)?;
    let whole = plan::expand(project, &config)?;
    let plan = whole.clone().only(&args.only)?;
    submit(project, &config, &whole, plan, &args.how)
}

/// Submit `plan`, which is `whole` or a part of it, as `args` say; the job id goes to stdout, alone.
pub(super) fn submit(
    project: &Project,
    config: &conf::Config,
    whole: &Plan,
    mut plan: Plan,
    args: &How,
) -> Result<(), Failure> {
    let rehearsal = args.dry_run || args.test_only;
    if args.only_missing {
        leave_out_what_is_there(project, &mut plan)?;
        if plan.trials.is_empty() {
            return if args.json { rehearse::nothing() } else { Ok(()) };
        }
    }
    let backend = backend_name(project, args, &plan)?;
    let slurm = backend != "local";
    if args.test_only && !slurm {
        return Err(Failure::new(Exit::Usage, "--test-only asks Slurm, and this job would run on this machine")
            .hint("--dry-run says what would be run here"));
    }
    if args.chain && !slurm {
        return Err(Failure::new(Exit::Usage, "--chain makes jobs of Slurm, and this job would run on this machine")
            .hint("on this machine a job builds its data and writes its note by itself"));
    }
    let job = plan.job_record(backend);
    // What can be refused is refused before hours of data building, and before a number is taken.
    if slurm {
        slurm::scripts(project, &job)?;
    } else {
        local::check(&job)?;
    }
    if let Some(cost) = plan::cost(&plan) {
        say(if slurm { cost.to_string() } else { cost.on_this_machine() });
    }
    if rehearsal {
        needed_worker(&job.trials)?;
        return if args.test_only {
            rehearse::test_only(project, &job, args.json)
        } else {
            rehearse::dry_run(project, &plan, &job, args.json, args.chain)
        };
    }
    let states = data_states(project, &plan.trials);
    data::refuse_damaged(&states)?;
    // A chain builds on a node, whose disk may be another one.
    if !args.chain {
        DataSize::of(project, &plan.trials, &states).refuse()?;
    }
    let origin = Origin::gather(project, config, whole)?;
    let job = JobRecord { submitted: jiff::Timestamp::now().as_second(), commit: origin.commit(), ..job };
    let interrupt = Interrupt::listen()?;
    let order = SubmitOrder { chain: args.chain };
    if !order.chain {
        data::ensure_all(project, &plan.trials, &interrupt)?;
    }
    let backend = backend_from_name(&job.backend)?;
    let id = backend.submit(project, job, order)?;
    show_id(id);
    keep_origin(project, id, &origin);
    wait_or_detach(project, backend.as_ref(), &project.job(id).record()?, args.wait, &interrupt)
}

/// Where the job goes: as told on the command line or by the user's defaults or by the profile, else as found.
fn backend_name(project: &Project, args: &How, plan: &Plan) -> Result<&'static str, Failure> {
    let backend = match args.backend {
        Some(backend) => backend,
        None => match conf::UserDefaults::load(project)?.backend.or(profile_backend(project, plan)?).as_deref() {
            Some("slurm") => BackendName::Slurm,
            Some("slurmrest") => BackendName::Slurmrest,
            Some("local") => BackendName::Local,
            _ => BackendName::Auto,
        },
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

/// Where the profile sends its jobs, if it says so.
fn profile_backend(project: &Project, plan: &Plan) -> Result<Option<String>, Failure> {
    match plan.trials.first().map(|trial| trial.settings.slurm.profile.as_str()) {
        None | Some("") => Ok(None),
        Some(name) => Ok(conf::profile(project, name)?.backend),
    }
}

/// Keep the trials that the ledger neither has nor is about to have, and say where the others are.
fn leave_out_what_is_there(project: &Project, plan: &mut Plan) -> Result<(), Failure> {
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
pub(super) fn wait_or_detach(
    project: &Project,
    backend: &dyn Backend,
    job: &JobRecord,
    wait: bool,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    if wait { finish(project, job.job, backend.wait(project, job, interrupt)) } else { backend.detach(project, job) }
}

/// Write down where the job comes from. It exists by now: it runs even if this cannot be kept.
fn keep_origin(project: &Project, id: u64, origin: &Origin) {
    if let Err(e) = origin.write(&project.job(id)) {
        say(format!("warning: where job {id} comes from was not kept: {}", e.message));
    }
}

/// The id, alone on stdout. The job exists by now: it goes on even if nobody can read its number here.
fn show_id(id: u64) {
    if let Err(e) = try_out(id) {
        say(format!("job {id} was submitted, but its id cannot be written to stdout: {e}"));
    }
}

/// Write the note of what there is; then what became of the trials decides the exit code.
pub(super) fn finish(project: &Project, job: u64, launched: Result<(), Failure>) -> Result<(), Failure> {
    let note = report::write_note(project, job, &report::NoteOptions::default());
    let note = match note {
        Ok((path, job)) => {
            say(format!("report: {}", path.display()));
            Ok(job)
        }
        // A note that its writer has to look at says nothing of the job.
        Err(failure) if matches!(failure.exit, Exit::Config | Exit::Usage) => {
            say(format!("the note was not written\n{failure}"));
            MeasuredJob::load(&project.job(job)).map_err(Failure::from)
        }
        Err(failure) => Err(failure),
    };
    launched?;
    note?.verdict()
}
