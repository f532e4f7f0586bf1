//! `expctl predict`: the table of predicted changes; with `--verify`, a job that measures the best of them.

use std::io::IsTerminal;

use expctl_config::{ChangedSetting, Verification, VerifiedChange, VerifiedTrial, verification_path};
use expctl_ledger::{Ledger, MeasuredJob, Run, VerifiedPrediction, VerifiedPredictions};
use expctl_settings::Settings;

use super::run_plan::{BackendName, JobPurpose, RunOptions, Submission, submit_plan};
use crate::console::{out, say};
use crate::data::ProjectData;
use crate::exit::{Exit, Failure};
use crate::plan;
use crate::predict::{DEFAULT_BOUND, PredictError, Prediction, Predictions, TrackRecord, Verified, verified_text};
use crate::project::Project;
use crate::provenance::{CodeOf, ConfigOf};
use crate::report::compare::Format;

/// Arguments of `expctl predict`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  expctl predict 12\n  expctl predict 12 --only lazy --top 0\n  expctl predict 12 --step-ms 60\n  \
                  expctl predict 12 --verify 2"
)]
pub struct PredictArgs {
    /// The job
    #[arg(value_name = "JOB")]
    job: u64,
    /// Predict for this variant alone
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Changes in each table; 0 shows all
    #[arg(long, value_name = "N", default_value_t = 12)]
    top: usize,
    /// Predict nothing of a variant whose own rate the model misses by more than this, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = DEFAULT_BOUND * 100.0)]
    max_error: f64,
    /// Predict, too, how busy an accelerator of steps of so many ms would be, and the rate: 60, or 0,10,100; --verify runs them as well
    #[arg(long, value_name = "MS", value_delimiter = ',', value_parser = parse_step_ms)]
    step_ms: Vec<f64>,
    /// Run the N settings of each variant that are predicted to bring most, alternately with the variant itself, wait for them, and show
    /// predicted beside measured; 0 runs all that can be set, also other batch sizes [default N: 3]
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "3")]
    verify: Option<u32>,
    /// With --verify: runs of each [default: as the job has, but at least 3]
    #[arg(long, value_name = "N", requires = "verify", value_parser = clap::value_parser!(u32).range(1..))]
    repeats: Option<u32>,
    /// With --verify: where to run [default: as for submit]
    #[arg(long, value_enum, requires = "verify")]
    backend: Option<BackendName>,
    /// Form of the output [default: table on a terminal, else markdown]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// (from another machine) The token that the job of --verify is found again by
    #[arg(long, hide = true, requires = "verify", value_name = "TOKEN")]
    submission: Option<String>,
}

/// The text is no time of a step.
#[derive(Debug, thiserror::Error)]
#[error("a number of milliseconds from 0 to 600000 is expected")]
struct StepMsError;

fn parse_step_ms(text: &str) -> Result<f64, StepMsError> {
    text.parse().ok().filter(|ms| (0.0..=600_000.0).contains(ms)).ok_or(StepMsError)
}

impl PredictArgs {
    /// The job.
    pub fn job(&self) -> u64 {
        self.job
    }

    /// Whether the predictions are to be verified, by a job.
    pub fn verifies(&self) -> bool {
        self.verify.is_some()
    }

    /// How tables are printed.
    fn form(&self) -> Format {
        match self.format {
            _ if self.json => Format::Json,
            Some(form) => form,
            None if std::io::stdout().is_terminal() => Format::Table,
            None => Format::Markdown,
        }
    }
}

/// Predict what changes to a job would bring; with `--verify` run the best and compare.
pub fn run(project: &Project, args: &PredictArgs) -> Result<(), Failure> {
    let ledger = Ledger::open(project)?;
    let job = MeasuredJob::load(&ledger.measured(args.job)?)?;
    let mut predictions = Predictions::from_job(&job, args.only.as_deref(), args.max_error / 100.0, &args.step_ms)?;
    if let Some(n) = args.verify {
        return verify(project, &job, &predictions, args, n as usize);
    }
    let form = args.form();
    predictions.track_record = TrackRecord::of_ledger(&ledger);
    out(predictions.render(form, args.top).map_err(Failure::internal)?);
    if form == Format::Csv {
        for one in &predictions.not_predicted {
            say(format!("note: `{}` is not predicted: {}", one.label, one.reason));
        }
    }
    Ok(())
}

/// Submit the `n` best settings of each variant beside the variant itself, wait, and show what was predicted and what was measured.
fn verify(
    project: &Project,
    job: &MeasuredJob,
    predictions: &Predictions,
    args: &PredictArgs,
    n: usize,
) -> Result<(), Failure> {
    for one in &predictions.not_predicted {
        say(format!("left out: `{}`: {}", one.label, one.reason));
    }
    let mut chosen: Vec<(&Run, Vec<&Prediction>)> = Vec::new();
    for variant in &predictions.variants {
        let best = variant.best_settings(n);
        if best.is_empty() {
            say(format!("left out: `{}`: no setting of the loader is predicted to bring anything", variant.label));
        } else if let Some(run) = job.runs.iter().find(|run| run.trial.label() == variant.label) {
            chosen.push((run, best));
        }
    }
    if chosen.is_empty() {
        return Err(Failure::new(Exit::Refused, format!("job {} leaves nothing to verify", args.job))
            .hint("a setting is verified if it is predicted to bring 5 % or more"));
    }
    let trials: Vec<VerifiedTrial<'_>> = chosen
        .iter()
        .map(|(run, best)| {
            let changes = best.iter().map(|one| verified_change(one, &run.trial.settings)).collect();
            VerifiedTrial { trial: &run.trial, changes }
        })
        .collect();
    let record = &job.record;
    let past = plan::past_job(record);
    let config = Verification::new(project.root(), past, &trials, args.repeats);
    let verifies = VerifiedPredictions { job: record.job, predictions: predictions_to_verify(&chosen, &config) };
    let shown = verification_path(record.job);
    let config = expctl_config::load_text(&ProjectData(project), &config.name, &shown, &config.text, &[])
        .map_err(|errors| Failure::from(errors).hint("the settings are those of the job, with one of them changed"))?;
    let whole = expctl_config::expand(&ProjectData(project), &config)?;
    let run = RunOptions::waiting(args.backend).for_submission(args.submission.as_deref());
    let submission = Submission {
        config: ConfigOf::Read(&config),
        whole: &whole,
        plan: whole.clone(),
        purpose: JobPurpose::Verification(verifies),
        code: CodeOf::Job(project.job(record.job)),
    };
    let Some(submitted) = submit_plan(project, submission, &run)? else { return Ok(()) };
    if args.submission.is_none() {
        show_verified(project, submitted.job, args)?;
    }
    submitted.ended
}

/// The settings that make a change to a run, and how long it runs.
fn verified_change(one: &Prediction, settings: &Settings) -> VerifiedChange {
    let assignments = one.change.assignments().into_iter();
    VerifiedChange {
        settings: assignments.map(|(key, value)| ChangedSetting { key, value }).collect(),
        steps: one.run_steps(settings),
    }
}

/// Show what was predicted and what was measured by a job that has ended.
pub fn show_verified(project: &Project, job: u64, args: &PredictArgs) -> Result<(), Failure> {
    let measured = MeasuredJob::load(&Ledger::open(project)?.measured(job)?)?;
    let verified = Verified::of_job(&measured);
    out(verified_text(&verified, args.form()).map_err(Failure::internal)?);
    Ok(())
}

/// What was predicted of each variant of the verification.
fn predictions_to_verify(chosen: &[(&Run, Vec<&Prediction>)], config: &Verification) -> Vec<VerifiedPrediction> {
    let mut all = Vec::new();
    for ((run, best), (own, changed)) in chosen.iter().zip(&config.variants) {
        for (one, variant) in best.iter().zip(changed) {
            all.push(VerifiedPrediction {
                label: run.trial.label(),
                baseline: own.clone(),
                variant: variant.clone(),
                setting: one.setting.clone().unwrap_or_default(),
                samples_per_s: one.samples_per_s,
                gain: one.gain,
                gain_interval: one.gain_interval.map(|interval| (interval.low, interval.high)),
            });
        }
    }
    all
}

impl From<PredictError> for Failure {
    fn from(error: PredictError) -> Self {
        match &error {
            PredictError::NoVariant { labels, .. } => {
                Self::new(Exit::Usage, &error).hint(format!("it has {}", labels.join(", ")))
            }
            PredictError::Nothing { others, .. } => {
                others.iter().fold(Self::new(Exit::Refused, &error), |failure, one| {
                    failure.hint(format!("nor of `{}`: {}", one.label, one.reason))
                })
            }
        }
    }
}
