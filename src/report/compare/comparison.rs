use serde::Serialize;

use super::differences::unknown;
use super::{Difference, Row, baselines, differences};
use crate::exit::{Exit, Failure};
use crate::stats::{Ratio, Verdict, ratio, verdict};

/// A row with what may be said of it against the baseline of its group.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The row.
    #[serde(flatten)]
    pub row: Row,
    /// True for a row that ratios refer to.
    pub baseline: bool,
    /// Name of the row that its ratios refer to; none for a baseline, and where there is none at its point of the sweep.
    pub against: Option<String>,
    /// Index of that row in the group.
    #[serde(skip)]
    pub base: Option<usize>,
    /// Ratio of it/s to the baseline.
    pub ratio_it_per_s: Option<Ratio>,
    /// Ratio of samples/s to the baseline; verdicts rest on it.
    pub ratio_samples_per_s: Option<Ratio>,
    /// Ratio of the storage to the baseline's.
    pub ratio_storage: Option<f64>,
    /// What may be said; none for the baseline and for rows without a ratio.
    pub verdict: Option<Verdict>,
}

/// Rows that may be compared: their steps do the same work, without a profiler.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// What a step does in all of them.
    pub mode: String,
    /// True for rows with a profiler, which have no ratios.
    pub profiler: bool,
    /// The rows, in the order asked for.
    pub lines: Vec<Line>,
    /// Settings that are not the same in all rows besides the method.
    pub differences: Vec<Difference>,
    /// Settings that are known for some rows only.
    pub unknown: Vec<String>,
}

impl Group {
    /// The row that a line's ratios refer to.
    pub fn base_of(&self, line: &Line) -> Option<&Row> {
        line.base.and_then(|index| self.lines.get(index)).map(|base| &base.row)
    }

    /// True if a ratio of it/s says something else than one of samples/s.
    pub fn mixed_batches(&self) -> bool {
        self.lines.iter().any(|l| self.base_of(l).is_some_and(|b| b.global_batch() != l.row.global_batch()))
    }
}

/// Jobs side by side.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Groups of comparable rows; the baseline's first, those with a profiler last.
    pub groups: Vec<Group>,
}

impl Comparison {
    /// Put the rows of jobs side by side. `jobs` holds the rows of each job; ratios refer to the job at `baseline`.
    ///
    /// # Errors
    /// Exit 7 if several jobs were given and no two of them can be compared.
    pub fn new(jobs: &[Vec<Row>], baseline: usize) -> Result<Self, Failure> {
        let mut kinds: Vec<Kind<'_>> = Vec::new();
        let order = std::iter::once(baseline).chain(0..jobs.len());
        for row in order.filter_map(|j| jobs.get(j)).flatten() {
            if !kinds.iter().any(|k| k.holds(row)) {
                kinds.push(Kind { mode: &row.mode, profiler: row.profiler, rows: Vec::new() });
            }
        }
        for (index, row) in jobs.iter().enumerate().flat_map(|(i, rows)| rows.iter().map(move |r| (i, r))) {
            if let Some(kind) = kinds.iter_mut().find(|k| k.holds(row)) {
                kind.rows.push((index, row));
            }
        }
        kinds.sort_by_key(|k| k.profiler);
        refuse_if_nothing_compares(jobs, &kinds)?;
        Ok(Self { groups: kinds.iter().map(|kind| group(kind, baseline)).collect() })
    }

    /// All rows.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.groups.iter().flat_map(|g| g.lines.iter().map(|l| &l.row))
    }

    /// Trials that are missing from the figures.
    pub fn incomplete(&self) -> usize {
        self.rows().map(|r| r.incomplete).sum()
    }
}

/// How a group is called.
pub(super) fn group_name(group: &Group) -> String {
    if group.profiler { format!("{}, profiler on", group.mode) } else { group.mode.clone() }
}

/// Rows of one kind of step, each with the index of its job.
struct Kind<'a> {
    mode: &'a str,
    profiler: bool,
    rows: Vec<(usize, &'a Row)>,
}

impl Kind<'_> {
    fn holds(&self, row: &Row) -> bool {
        self.mode == row.mode && self.profiler == row.profiler
    }

    /// True if rows of two jobs can be compared.
    fn compares(&self) -> bool {
        !self.profiler && self.rows.iter().any(|(job, _)| *job != self.rows[0].0)
    }
}

fn refuse_if_nothing_compares(jobs: &[Vec<Row>], kinds: &[Kind<'_>]) -> Result<(), Failure> {
    if jobs.len() < 2 || kinds.iter().any(Kind::compares) {
        return Ok(());
    }
    let mut failure = Failure::new(Exit::Refused, "nothing in these jobs can be compared with each other");
    for kind in kinds {
        let mut names: Vec<&str> = kind.rows.iter().map(|(_, r)| r.job.as_str()).collect();
        names.dedup();
        let with = if kind.profiler { " with a profiler" } else { "" };
        failure = failure.hint(format!("steps of kind {}{with}: {}", kind.mode, names.join(", ")));
    }
    Err(failure)
}

fn group(kind: &Kind<'_>, baseline: usize) -> Group {
    let Kind { mode, profiler, rows } = kind;
    let bases = if *profiler { vec![None; rows.len()] } else { baselines(rows, baseline) };
    let plain: Vec<&Row> = rows.iter().map(|(_, row)| *row).collect();
    let lines = (0..rows.len()).map(|i| line(&plain, i, bases[i])).collect();
    let (mode, profiler) = ((*mode).to_owned(), *profiler);
    Group { mode, profiler, lines, differences: differences(&plain), unknown: unknown(&plain) }
}

fn line(rows: &[&Row], index: usize, base: Option<usize>) -> Line {
    let row = rows[index];
    let baseline = base == Some(index);
    let base = base.filter(|_| !baseline);
    let against = base.map(|b| rows[b]);
    let samples = against.and_then(|b| ratio(&row.samples_per_s, &b.samples_per_s));
    Line {
        baseline,
        against: against.map(Row::name),
        base,
        ratio_it_per_s: against.and_then(|b| ratio(&row.it_per_s, &b.it_per_s)),
        ratio_samples_per_s: samples,
        ratio_storage: against.and_then(|b| row.storage_ratio(b)),
        verdict: against.zip(samples).map(|(b, r)| verdict(&r, (row.n, b.n))),
        row: row.clone(),
    }
}
