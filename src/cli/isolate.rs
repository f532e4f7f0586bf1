//! `expctl isolate`: the parts of a past job, each on one rank.

use std::collections::BTreeSet;

use expctl_config::{ConfErrors, Config, ISOLATED, Isolation, Modes, Plan, Point};
use expctl_ledger::{JobRecord, Ledger};
use expctl_settings::Mode;

use super::run_plan::{RunOptions, run_plan};
use crate::console::say;
use crate::data::{ProjectData, RecipeGenes};
use crate::exit::{Exit, Failure};
use crate::plan;
use crate::project::Project;
use crate::provenance::CodeOf;

/// Arguments of `expctl isolate`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  expctl isolate 12 --wait\n  expctl isolate 12 --only lazy --set train.precision=float32"
)]
pub struct IsolateArgs {
    /// The job: one of this ledger
    #[arg(value_name = "JOB")]
    job: u64,
    /// Only these variants
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Runs of each variant in each mode [default: as the job has]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeats: Option<u32>,
    /// Set a key on top of everything the config says, for example loader.workers=4 (may be repeated)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    #[command(flatten)]
    run: RunOptions,
}

impl IsolateArgs {
    /// The job.
    pub fn job(&self) -> u64 {
        self.job
    }

    /// How it is run.
    pub fn run_options(&self) -> &RunOptions {
        &self.run
    }
}

/// Make the variants of a job run alone, one mode after another, and submit that; the job id goes to stdout, alone.
pub fn run(project: &Project, args: &IsolateArgs) -> Result<(), Failure> {
    args.run.check()?;
    refuse_isolated(&args.overrides)?;
    let ledger = Ledger::open(project)?;
    let folder = ledger.measured(args.job).map_err(Failure::from).map_err(|failure| match failure.exit {
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
    let (isolation, mut config) = load(project, args, &record)?;
    // Not every variant of the past job has all points of its sweep.
    config.runs.retain(|run| {
        let point = run.point.iter().filter(|(key, _)| !ISOLATED.contains(*key));
        let point: Point = point.filter_map(|(key, s)| Some(((*key).to_owned(), s.value.clone()?))).collect();
        isolation.ran.contains(&(run.variant.clone(), point))
    });
    let whole = expctl_config::expand(&ProjectData(project), &config)?;
    if record.trials.iter().any(|trial| trial.settings.train.epochs > 0) {
        say("note: isolation times steps, not epochs: train.epochs is 0");
    }
    say_models(project, &whole, args.job);
    run_plan(project, &config, (&whole, whole.clone()), &args.run, CodeOf::Job(folder))
}

/// The config of the isolated job. A variant that cannot run in a mode (its batches do not have what its model reads, say) is left
/// out of that mode, which is said with the reason.
fn load(project: &Project, args: &IsolateArgs, record: &JobRecord) -> Result<(Isolation, Config), Failure> {
    let past = plan::past_job(record);
    let of = |only: &[String], modes: &Modes| Isolation::new(project.root(), past, only, args.repeats, modes);
    let shown = expctl_config::isolation_path(args.job);
    let read = |isolation: &Isolation, overrides: &[String]| {
        expctl_config::load_text(&ProjectData(project), &isolation.name, &shown, &isolation.text, overrides)
    };
    let whole = of(&args.only, &Modes::default())?;
    let whole_errors = match read(&whole, &args.overrides) {
        Ok(config) => return Ok((whole, config)),
        Err(errors) => errors,
    };
    let mut modes = Modes::default();
    let mut said: Vec<String> = Vec::new();
    for variant in whole.variants() {
        let overrides = overrides_of(&args.overrides, variant);
        let mut reasons: Vec<(String, Vec<&str>)> = Vec::new();
        for mode in Modes::ALL {
            let alone = of(&[variant.to_owned()], &Modes::one(mode))?;
            let Err(errors) = read(&alone, &overrides) else { continue };
            if mode == Mode::Data {
                // Every variant can load data, so the settings are wrong.
                return Err(settings_failure(whole_errors));
            }
            modes.leave_out(variant, mode);
            let first = first_problem(&errors);
            match reasons.iter_mut().find(|(reason, _)| *reason == first) {
                Some((_, names)) => names.push(mode.name()),
                None => reasons.push((first, vec![mode.name()])),
            }
        }
        let line =
            |(reason, names): &(String, Vec<&str>)| format!("left out: {variant} in {}: {reason}", names.join(", "));
        said.extend(reasons.iter().map(line));
    }
    if modes.whole() {
        return Err(settings_failure(whole_errors));
    }
    let isolation = of(&args.only, &modes)?;
    let config = read(&isolation, &args.overrides).map_err(settings_failure)?;
    for line in &said {
        say(line);
    }
    say("  hint: --set variant.NAME.KEY=VALUE, or --set KEY=VALUE for all variants, changes what a mode cannot run");
    Ok((isolation, config))
}

/// The `--set` arguments that apply to a config of this variant alone.
fn overrides_of(overrides: &[String], variant: &str) -> Vec<String> {
    let of_other = |set: &&String| {
        let key = key_of(set);
        let name = key.strip_prefix("variant.").and_then(|rest| rest.split('.').next());
        key.starts_with("compare.") || name.is_some_and(|name| name.trim_matches(['"', '\'']) != variant)
    };
    overrides.iter().filter(|set| !of_other(set)).cloned().collect()
}

/// The key of a `--set` argument.
fn key_of(set: &str) -> &str {
    set.split('=').next().unwrap_or_default().trim()
}

/// The first problem and its help, as one line.
fn first_problem(errors: &ConfErrors) -> String {
    let Some(first) = errors.problems().first() else { return String::new() };
    match &first.help {
        Some(help) => format!("{} ({help})", first.message),
        None => first.message.clone(),
    }
}

fn settings_failure(errors: ConfErrors) -> Failure {
    Failure::from(errors)
        .hint("the settings are those of the job; --only leaves a variant out, --set variant.NAME.KEY=VALUE changes it")
}

/// Say which model each variant computes, and for which variants it is the default.
fn say_models(project: &Project, plan: &Plan, job: u64) {
    let mut recipes = RecipeGenes::new(project);
    let models = plan::models(plan, &mut |settings| recipes.of(settings));
    for model in &models {
        let words = if model.words.is_empty() { "none: data alone" } else { model.words.as_str() };
        say(format!("model of {}: {words}", model.variant));
    }
    let by_default: Vec<&str> =
        models.iter().filter(|model| model.by_default).map(|model| model.variant.as_str()).collect();
    if !by_default.is_empty() {
        say(format!(
            "warning: nothing in the config of job {job} says which model belongs to {}: it is the default one\n  hint: --set \
             variant.{}.model.kind=… takes another",
            by_default.join(", "),
            by_default[0]
        ));
    }
}

/// Refuse `--set` of keys that isolation sets itself.
fn refuse_isolated(overrides: &[String]) -> Result<(), Failure> {
    for key in ISOLATED {
        if overrides.iter().any(|set| key_of(set).ends_with(key)) {
            let why = "isolation is on one rank, in the modes data, forward, forward_backward and train";
            return Err(Failure::new(Exit::Usage, format!("--set cannot change {key}: {why}"))
                .hint("expctl submit runs a config with any of them"));
        }
    }
    Ok(())
}
