//! `expctl rerun`: the code and the config of a past job, run again as a new job.

use std::collections::BTreeSet;
use std::path::Path;

use expctl_config::{Rerun, rerun_path};
use expctl_ledger::{CodeSnapshot, JobDir, JobRecord, Ledger};
use expctl_settings::{Array, Model, Train, is_url};

use super::run_plan::{JobPurpose, RunOptions, Submission, submit_plan};
use crate::data::ProjectData;
use crate::exit::{Exit, Failure};
use crate::plan;
use crate::project::Project;
use crate::provenance::{CodeOf, ConfigOf};
use crate::search::quoted;
use crate::snapshot::{code_folder, unpack};

/// Arguments of `expctl rerun`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  expctl rerun 12 --wait\n  expctl rerun 12 --set loader.workers=4")]
pub struct RerunArgs {
    /// The job: one of this ledger
    #[arg(value_name = "JOB")]
    job: u64,
    /// Set a key on top of the settings that the job had, for example loader.workers=4 (may be repeated)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    #[command(flatten)]
    run: RunOptions,
}

impl RerunArgs {
    /// The job.
    pub fn job(&self) -> u64 {
        self.job
    }

    /// How it is run.
    pub fn run_options(&self) -> &RunOptions {
        &self.run
    }
}

/// Submit the trials of a job once more, with its code; the job id goes to stdout, alone.
pub fn run(project: &Project, args: &RerunArgs) -> Result<(), Failure> {
    args.run.check()?;
    let folder = Ledger::open(project)?.measured(args.job)?;
    let record = folder.record()?;
    let runs_programs = record.trials.iter().any(|trial| trial.settings.runs_command());
    if runs_programs && CodeSnapshot::read(&folder)?.is_none() {
        let message = format!("job {} cannot be run again: it has no copy of the code of its programs", args.job);
        let on = project.on_machine();
        return Err(Failure::new(Exit::Refused, message)
            .hint("it ran in the project's folder (--live, or an expctl before snapshots)")
            .hint(format!("with the code as it is now: expctl submit {}{on}", record.config_path.display())));
    }
    let options = args.run.or_backend(&record.backend);
    if args.overrides.is_empty() {
        refuse_missing_files(&record)?;
        let plan = past_plan(project, &record);
        let submission = Submission {
            config: ConfigOf::Past(&folder),
            whole: &plan,
            plan: plan.clone(),
            purpose: JobPurpose::Rerun(args.job),
            code: CodeOf::Job(folder.clone()),
        };
        return submit_plan(project, submission, &options)?.map_or(Ok(()), |submitted| submitted.ended);
    }
    with_other_settings(project, args, &folder, &record, &options)
}

/// Refuse to run trials again whose files have gone: each would fail before its first step.
fn refuse_missing_files(record: &JobRecord) -> Result<(), Failure> {
    // Thousands of trials may read the same ones.
    let mut there = BTreeSet::new();
    for settings in record.trials.iter().map(|trial| &trial.settings) {
        let single = [
            (Model::PATH.name(), &settings.model.path, "FILE"),
            (Train::START_FROM.name(), &settings.train.start_from, "FILE"),
        ];
        let array = settings.array.files.iter().map(|path| (Array::FILES.name(), path, "[\"FILE\"]"));
        let named = single.into_iter().chain(array).filter(|(_, path, _)| !path.is_empty() && !is_url(path));
        for (key, path, other) in named {
            // An array in zarr, or of MDS shards, is a folder.
            if there.insert(path) && !Path::new(path).exists() {
                let message =
                    format!("job {} cannot be run again: there is no file {path} any more, its `{key}`", record.job);
                let set = quoted(&format!("{key}={other}"));
                return Err(
                    Failure::new(Exit::Refused, message).hint(format!("put it back, or name another one: --set {set}"))
                );
            }
        }
    }
    Ok(())
}

/// The trials of a job as they were, whose data may lie elsewhere now.
fn past_plan(project: &Project, record: &JobRecord) -> expctl_config::Plan {
    let mut trials = record.trials.clone();
    trials.iter_mut().for_each(|trial| trial.data_dir = project.data_dir(&trial.settings.data));
    expctl_config::Plan {
        config: record.config.clone(),
        path: record.config_path.clone(),
        overrides: record.overrides.clone(),
        study: record.study.clone(),
        baseline: record.baseline.clone(),
        estimators: record.estimators.clone(),
        trials,
    }
}

/// The same with settings on top, which every rule judges again.
fn with_other_settings(
    project: &Project,
    args: &RerunArgs,
    folder: &JobDir,
    record: &JobRecord,
    options: &RunOptions,
) -> Result<(), Failure> {
    // Programs are those of the job, also where the project no longer has them.
    let seen = match record.trials.iter().any(|trial| trial.settings.runs_command()) {
        true => {
            unpack(folder)?;
            project.clone().with_programs_of(code_folder(folder))
        }
        false => project.clone(),
    };
    let files = ProjectData(&seen);
    let again = Rerun::new(project.root(), plan::past_job(record));
    let shown = rerun_path(args.job);
    let mut config = expctl_config::load_text(&files, &record.config, &shown, &again.text, &args.overrides)
        .map_err(|errors| Failure::from(errors).hint("the settings are those of the job; --set changes them"))?;
    // Not every variant of the job has all points of its sweep.
    config.runs.retain(|run| again.ran.contains(&(run.variant.clone(), run.swept())));
    let whole = expctl_config::expand(&files, &config)?;
    let submission = Submission {
        config: ConfigOf::Read(&config),
        whole: &whole,
        plan: whole.clone(),
        purpose: JobPurpose::Rerun(args.job),
        code: CodeOf::Job(folder.clone()),
    };
    submit_plan(project, submission, options)?.map_or(Ok(()), |submitted| submitted.ended)
}
