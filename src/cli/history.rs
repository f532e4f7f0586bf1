//! `expctl history`: how the rates of a config or variant developed over all jobs of a ledger; `--gate` turns the newest job into an exit code.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use expctl_charts::{png, svg};
use expctl_ledger::{Ledger, write_atomic};
use expctl_text::closest;

use crate::console::{out, say};
use crate::exit::{Exit, Failure};
use crate::history::{
    DEFAULT_MARGIN, DEFAULT_ROWS, GateState, HistoryError, HistoryQuery, NewestCheck, RateHistory, newest_checks,
    rates_chart,
};
use crate::project::Project;
use crate::report::compare::Format;
use crate::report::junit::JunitSuite;

/// Arguments of `expctl history`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  expctl history conf/ci.toml\n  expctl history lazy --plot lazy.svg\n  \
                  expctl history conf/ci.toml --gate --margin 10 --junit results.xml")]
pub struct HistoryArgs {
    /// A config, by name or path, or a variant, as jobs of the ledger name it
    #[arg(value_name = "CONF|VARIANT", value_hint = clap::ValueHint::AnyPath)]
    name: String,
    /// This variant of the config alone
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Leave out the jobs before this one: accept its rates as the level that later jobs are compared with
    #[arg(long, value_name = "JOB")]
    since: Option<u64>,
    /// Newest jobs in each table; 0 shows all
    #[arg(long, value_name = "N", default_value_t = DEFAULT_ROWS)]
    last: usize,
    /// Draw the rates into this file, .svg or .png
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Exit 1 if the newest job is slower than the level of those before it by more than the margin and more than chance; 7 if there are too
    /// few jobs to say
    #[arg(long)]
    gate: bool,
    /// With --gate: the loss that passes
    #[arg(long, value_name = "PERCENT", default_value_t = DEFAULT_MARGIN, requires = "gate", value_parser = parse_margin)]
    margin: f64,
    /// With --gate: write what it says into this file as JUnit XML, a test case for each series
    #[arg(long, value_name = "FILE", requires = "gate")]
    junit: Option<PathBuf>,
    /// Form of the output [default: table on a terminal, else markdown]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

/// The text is no margin.
#[derive(Debug, thiserror::Error)]
#[error("a number of percent from 0 to below 100 is expected")]
struct MarginError;

fn parse_margin(text: &str) -> Result<f64, MarginError> {
    text.parse().ok().filter(|percent| (0.0..100.0).contains(percent)).ok_or(MarginError)
}

/// Show the history of a config or variant.
pub fn run(project: &Project, args: &HistoryArgs) -> Result<(), Failure> {
    if let Some(path) = &args.plot {
        PlotKind::of(path)?;
    }
    let ledger = Ledger::open(project)?;
    ledger.notes().iter().for_each(|note| say(format!("note: {note}")));
    let query = HistoryQuery { name: args.name.clone(), only: args.only.clone(), since: args.since };
    let history = RateHistory::load(project, &ledger, &query)?;
    let checks = if args.gate { newest_checks(&history, args.margin) } else { Vec::new() };
    let form = match args.format {
        _ if args.json => Format::Json,
        Some(form) => form,
        None if std::io::stdout().is_terminal() => Format::Table,
        None => Format::Markdown,
    };
    out(history.render(form, args.last, &checks).map_err(Failure::internal)?);
    if let Some(path) = &args.plot {
        plot(&history, path)?;
    }
    if let Some(path) = &args.junit {
        let cases = checks.iter().map(NewestCheck::junit_case).collect();
        let suite = JunitSuite { name: "expctl history".to_owned(), begun: None, cases };
        write_atomic(path, suite.xml().as_bytes())?;
    }
    if args.gate { judge(&history, &checks) } else { Ok(()) }
}

/// What the checks of a gate make of the exit code.
fn judge(history: &RateHistory, checks: &[NewestCheck]) -> Result<(), Failure> {
    checks.iter().for_each(|check| say(&check.sentence));
    let of = |state: GateState| checks.iter().filter(|check| check.state == state).count();
    let (failed, without) = (of(GateState::Fails), of(GateState::NoVerdict));
    if failed > 0 {
        return Err(Failure::new(Exit::Gate, format!("{failed} of {} checks by --gate failed", checks.len()))
            .hint("if the loss is meant: --since JOB takes the jobs from JOB on as the new rule"));
    }
    if checks.is_empty() {
        return Err(Failure::new(Exit::Refused, "no job here has rates: there is nothing to check"));
    }
    if without > 0 {
        return Err(Failure::new(
            Exit::Refused,
            format!("{without} of {} checks by --gate have no verdict", checks.len()),
        ));
    }
    match history.incomplete_of_newest() {
        0 => Ok(()),
        1 => Err(Failure::new(
            Exit::Incomplete,
            "1 trial of the newest job did not complete, so the results are incomplete",
        )),
        n => Err(Failure::new(
            Exit::Incomplete,
            format!("{n} trials of the newest job did not complete, so the results are incomplete"),
        )),
    }
}

/// The form of a picture, by the name of its file.
#[derive(Clone, Copy)]
enum PlotKind {
    Svg,
    Png,
}

impl PlotKind {
    fn of(path: &Path) -> Result<Self, Failure> {
        match path.extension().and_then(|end| end.to_str()) {
            Some("svg") => Ok(Self::Svg),
            Some("png") => Ok(Self::Png),
            _ => {
                let message = format!("--plot: {} is neither .svg nor .png", path.display());
                Err(Failure::new(Exit::Usage, message).hint("example: --plot history.svg"))
            }
        }
    }
}

fn plot(history: &RateHistory, path: &Path) -> Result<(), Failure> {
    let Some(chart) = rates_chart(history) else {
        say(format!("{} was not written: no series has two jobs with rates", path.display()));
        return Ok(());
    };
    let picture = match PlotKind::of(path)? {
        PlotKind::Svg => svg(&chart, None).map(String::into_bytes),
        PlotKind::Png => png(&chart, None),
    };
    Ok(write_atomic(path, &picture.map_err(Failure::internal)?)?)
}

impl From<HistoryError> for Failure {
    fn from(error: HistoryError) -> Self {
        let refused = Self::new(Exit::Refused, &error);
        match error {
            HistoryError::Since(error) => error.into(),
            HistoryError::NothingFound { name, configs, variants, .. } => {
                let list = |all: &std::collections::BTreeSet<String>| match all.len() {
                    0 => "none".to_owned(),
                    _ => all.iter().map(String::as_str).collect::<Vec<_>>().join(", "),
                };
                let meant = closest(&name, configs.iter().chain(&variants).map(String::as_str));
                let refused =
                    meant.into_iter().fold(refused, |refused, meant| refused.hint(format!("did you mean {meant}?")));
                refused.hint(format!("configs: {}", list(&configs))).hint(format!("variants: {}", list(&variants)))
            }
        }
    }
}
