//! `expctl compare`: jobs and published results side by side, and `--gate`, which turns a comparison into an exit code.

use std::io::IsTerminal;
use std::path::PathBuf;

use expctl_ledger::{Ledger, PublishedBreakdown, write_atomic};

use crate::console::{out, say};
use crate::exit::{Exit, Failure};
use crate::project::Project;
use crate::report::compare::{CompareError, Comparison, Format, Gate, GateError, GateResult, rows_of};
use crate::report::junit::JunitSuite;

/// Arguments of `expctl compare`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  expctl compare 1 3\n  expctl compare 12 --gate \"samples_per_s >= 0.95 * baseline\""
)]
pub struct CompareArgs {
    /// Jobs: a number, 428/430 for several together, published:392 for the published one of two
    #[arg(required = true, value_name = "JOB")]
    jobs: Vec<String>,
    /// The job that ratios refer to [default: the first]
    #[arg(long, value_name = "JOB")]
    baseline: Option<String>,
    /// Form of the output [default: table on a terminal, else markdown]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Exit 1 unless it holds for every row: samples_per_s, it_per_s, step_ms, storage_bytes or batch_bytes;
    /// >=, >, <= or <; a number, or a number * baseline. May be given several times
    ///
    /// With several jobs, each row is compared with the same variant (and sweep point) in the baseline job; if there is
    /// none, with the baseline row.
    #[arg(long, value_name = "CONDITION")]
    gate: Vec<String>,
    /// With --gate: write what it says into this file as JUnit XML, a test case for each row
    #[arg(long, value_name = "FILE", requires = "gate")]
    junit: Option<PathBuf>,
    /// Same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

impl CompareArgs {
    /// The names of the jobs.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.jobs.iter().chain(&self.baseline).map(String::as_str)
    }
}

/// Put jobs side by side on stdout.
pub fn run(project: &Project, args: &CompareArgs) -> Result<(), Failure> {
    let gates: Vec<Gate> =
        args.gate.iter().map(|text| text.parse()).collect::<Result<_, GateError>>().map_err(|e| {
            Failure::new(Exit::Usage, format!("--gate: {e}"))
                .hint("example: --gate \"samples_per_s >= 0.95 * baseline\"")
        })?;
    let ledger = Ledger::open(project)?;
    ledger.notes().iter().for_each(|note| say(format!("note: {note}")));
    let mut names: Vec<&str> = Vec::new();
    for name in args.jobs.iter().map(String::as_str) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let baseline = match args.baseline.as_deref() {
        None => 0,
        Some(name) => names.iter().position(|n| *n == name).unwrap_or_else(|| {
            names.insert(0, name);
            0
        }),
    };
    let mut jobs = Vec::new();
    let mut breakdowns: Vec<PublishedBreakdown> = Vec::new();
    for name in names {
        let found = ledger.find(name)?;
        if let Some(note) = found.note {
            say(format!("note: {note}"));
        }
        jobs.push(rows_of(&found.job)?);
        for breakdown in found.breakdowns {
            // Two published jobs may share one breakdown.
            if !breakdowns.contains(&breakdown) {
                breakdowns.push(breakdown);
            }
        }
    }
    let comparison = Comparison::new(&jobs, &breakdowns, baseline)?;
    let form = match args.format {
        _ if args.json => Format::Json,
        Some(form) => form,
        None if std::io::stdout().is_terminal() => Format::Table,
        None => Format::Markdown,
    };
    out(comparison.render(form).map_err(Failure::internal)?);
    if form == Format::Csv {
        comparison.remarks().iter().for_each(|remark| say(format!("note: {remark}")));
    }
    let checked: Vec<GateResult> = gates.iter().flat_map(|gate| gate.check(&comparison)).collect();
    checked.iter().for_each(|one| say(&one.sentence));
    if let Some(path) = &args.junit {
        let cases = checked.iter().map(GateResult::junit_case).collect();
        let suite = JunitSuite { name: "expctl compare".to_owned(), begun: None, cases };
        write_atomic(path, suite.xml().as_bytes())?;
    }
    let failed = checked.iter().filter(|one| !one.passed).count();
    if failed > 0 {
        return Err(Failure::new(Exit::Gate, format!("{failed} of {} checks by --gate failed", checked.len())));
    }
    match comparison.incomplete() {
        0 => Ok(()),
        1 => Err(Failure::new(Exit::Incomplete, "1 trial did not complete, so the results are incomplete")),
        n => Err(Failure::new(Exit::Incomplete, format!("{n} trials did not complete, so the results are incomplete"))),
    }
}

impl From<CompareError> for Failure {
    fn from(error: CompareError) -> Self {
        let refused = Self::new(Exit::Refused, &error);
        match error {
            CompareError::NothingComparable { details } => details.into_iter().fold(refused, Self::hint),
            CompareError::NotPoolable { .. } => {
                refused.hint("name them apart to compare them, as 12 13 instead of 12/13")
            }
        }
    }
}
