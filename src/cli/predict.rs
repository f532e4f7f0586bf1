use std::io::IsTerminal;

use expctl_ledger::{Ledger, MeasuredJob};

use crate::console::{out, say};
use crate::exit::{Exit, Failure};
use crate::predict::{DEFAULT_BOUND, PredictError, Predictions};
use crate::project::Project;
use crate::report::compare::Format;

/// Arguments of `expctl predict`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  expctl predict 12\n  expctl predict 12 --only lazy --top 0")]
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
    /// Form of the output [default: table on a terminal, else markdown]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

/// Predict what changes to a job would bring.
pub fn run(project: &Project, args: &PredictArgs) -> Result<(), Failure> {
    let job = MeasuredJob::load(&Ledger::open(project)?.measured(args.job)?)?;
    let predictions = Predictions::from_job(&job, args.only.as_deref(), args.max_error / 100.0)?;
    let form = match args.format {
        _ if args.json => Format::Json,
        Some(form) => form,
        None if std::io::stdout().is_terminal() => Format::Table,
        None => Format::Markdown,
    };
    out(predictions.render(form, args.top).map_err(Failure::internal)?);
    if form == Format::Csv {
        for one in &predictions.not_predicted {
            say(format!("note: `{}` is not predicted: {}", one.label, one.reason));
        }
    }
    Ok(())
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
