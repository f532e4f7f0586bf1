//! `expctl isolate`: the parts of a past job, each on one rank.

use std::collections::BTreeSet;

use super::say;
use super::submit::{self, How};
use crate::conf;
use crate::exit::{Exit, Failure};
use crate::ledger::Ledger;
use crate::plan::{self, ISOLATED, Isolation, Point};
use crate::project::Project;

/// Arguments of `expctl isolate`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The job: one of this ledger
    #[arg(value_name = "JOB")]
    job: u64,
    /// Only these variants
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Runs of each variant in each mode [default: as the job has]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeats: Option<u32>,
    /// Override a setting, for example `measure.steps=10`
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    #[command(flatten)]
    how: How,
}

/// Make the variants of a job run alone, one mode after another, and submit that; the job id goes to stdout, alone.
pub fn run(project: &Project, args: &Args) -> Result<(), Failure> {
    args.how.check()?;
    refuse_isolated(&args.overrides)?;
    let ledger = Ledger::open(project)?;
    let folder = ledger.measured(args.job).map_err(|failure| match failure.exit {
        Exit::Refused => {
            failure.hint("what ran elsewhere can be run here from its config: expctl submit conf/NAME.toml")
        }
        _ => failure,
    })?;
    let mut record = folder.record()?;
    let programs = record.trials.iter().filter(|trial| trial.settings.runs_command());
    let programs: BTreeSet<String> = programs.map(|trial| trial.variant.clone()).collect();
    let only_programs = !args.only.is_empty() && args.only.iter().all(|name| programs.contains(name));
    record.trials.retain(|trial| {
        let named = args.only.is_empty() || args.only.contains(&trial.variant);
        let command = trial.settings.runs_command();
        if command && named && trial.repeat == 1 {
            say(format!("left out: {} is a program of yours, which cannot be taken apart from here", trial.label()));
        }
        !command
    });
    if record.trials.is_empty() || only_programs {
        return Err(Failure::new(Exit::Refused, format!("job {} has nothing to isolate", args.job))
            .hint("its trials run programs (worker.command); their stages are in `expctl report`"));
    }
    let isolation = Isolation::of(project.root(), &record, &args.only, args.repeats)?;
    let shown = plan::isolation_path(args.job);
    let loaded = conf::load_text(project, &isolation.name, &shown, &isolation.text, &args.overrides);
    let mut config = loaded.map_err(|errors| {
        Failure::from(errors)
            .hint("the settings are those of the job; what a mode cannot run, --only leaves out or --set variant.NAME.KEY=VALUE changes")
    })?;
    // Variants of the past job need not all have stood at the same points of its sweep.
    config.runs.retain(|run| {
        let point = run.point.iter().filter(|(key, _)| !ISOLATED.contains(*key));
        let point: Point = point.filter_map(|(key, s)| Some(((*key).to_owned(), s.value.clone()?))).collect();
        isolation.ran.contains(&(run.variant.clone(), point))
    });
    let whole = plan::expand(project, &config)?;
    if record.trials.iter().any(|trial| trial.settings.train.epochs > 0) {
        say("note: isolation times steps, not epochs: train.epochs is 0");
    }
    submit::submit(project, &config, &whole, whole.clone(), &args.how)
}

/// What isolation is about is not for `--set` to change.
fn refuse_isolated(overrides: &[String]) -> Result<(), Failure> {
    for key in ISOLATED {
        if overrides.iter().any(|set| set.split('=').next().is_some_and(|name| name.trim().ends_with(key))) {
            let why = "isolation is on one rank, in the modes data, forward, forward_backward and train";
            return Err(Failure::new(Exit::Usage, format!("--set cannot change {key}: {why}"))
                .hint("expctl submit runs a config with any of them"));
        }
    }
    Ok(())
}
