use serde::Serialize;

use super::differences::unknown;
use super::{Class, Difference, Row, differences};
use crate::exit::{Exit, Failure};
use crate::report::format;
use crate::stats::{Ratio, Verdict, ratio, verdict};

/// A row with what may be said of it against the baseline of its group.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The row.
    #[serde(flatten)]
    pub row: Row,
    /// True for the row that the ratios refer to.
    pub baseline: bool,
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
    /// The row that the ratios refer to.
    pub fn baseline(&self) -> Option<&Line> {
        self.lines.iter().find(|l| l.baseline)
    }

    /// True if a ratio of it/s says something else than one of samples/s.
    pub fn mixed_batches(&self) -> bool {
        self.lines.iter().any(|l| l.row.global_batch() != self.lines[0].row.global_batch())
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

    /// What a reader must know, one sentence each.
    pub fn remarks(&self) -> Vec<String> {
        let mut all = Vec::new();
        let many = self.groups.len() > 1;
        for group in &self.groups {
            let of = if many { format!(" ({})", group_name(group)) } else { String::new() };
            remarks_on(group, &of, &mut all);
        }
        if self.rows().any(|r| r.class == Class::Imported) {
            let text = "imported: published by others, not measured here; samples/s derived as it/s × batch × ranks";
            all.push(text.to_owned());
        }
        if self.rows().any(|r| r.class == Class::Measured) {
            let text = "measured: it/s of the slowest rank, samples/s summed over ranks, median over the n runs";
            all.push(text.to_owned());
        }
        for row in self.rows() {
            all.extend(row.notes.iter().map(|note| format!("{}: {note}", row.name())));
        }
        all
    }
}

/// How a group is called.
pub(super) fn group_name(group: &Group) -> String {
    if group.profiler { format!("{}, profiler on", group.mode) } else { group.mode.clone() }
}

fn remarks_on(group: &Group, of: &str, all: &mut Vec<String>) {
    if group.profiler {
        all.push(format!("set apart{of}: a profiler ran along, so these rows are not ranked against the others"));
        return;
    }
    let Some(base) = group.baseline() else { return };
    for line in group.lines.iter().filter(|l| !l.baseline) {
        let (Some(it), Some(samples), Some(word)) = (line.ratio_it_per_s, line.ratio_samples_per_s, line.verdict)
        else {
            continue;
        };
        let name = line.row.name();
        if line.row.global_batch() != base.row.global_batch() {
            let (per_it, per_sample) = (format::ratio_with_interval(&it), format::ratio_with_interval(&samples));
            all.push(format!(
                "{name}: {per_it} per iteration, {per_sample} per sample (batch {} × {} against {} × {}); samples/s is what compares",
                line.row.batch_size, line.row.ranks, base.row.batch_size, base.row.ranks
            ));
        }
        if word != Verdict::TooFewRuns {
            let ratio = format::ratio_with_interval(&samples);
            let runs = format!("n = {} and {}", line.row.n(), base.row.n());
            all.push(format!("{name}: {} {}, {ratio} in samples/s ({runs})", word.against(), base.row.name()));
        }
    }
    if group.lines.len() > 1 {
        if group.lines.iter().all(|l| l.row.n() <= 1) {
            all.push(format!("n = 1 in every row{of}: no verdict, the ratios have no interval"));
        } else if group.lines.iter().any(|l| l.verdict == Some(Verdict::TooFewRuns)) {
            let least = crate::stats::MIN_RUNS_FOR_VERDICT;
            all.push(format!("too few runs for a verdict in some rows{of}: {least} are needed on both sides"));
        }
    }
    if !group.differences.is_empty() {
        let words: Vec<String> = group.differences.iter().map(Difference::words).collect();
        all.push(format!("not the same in all rows{of} besides the method: {}", words.join(", ")));
    }
    if !group.unknown.is_empty() {
        all.push(format!("not known for all rows{of}, so they may differ: {}", group.unknown.join(", ")));
    }
    let differs = |setting: &str| group.differences.iter().any(|d| d.setting == setting);
    let flags: Vec<&str> =
        [("ranks", "world size"), ("samples", "number of samples"), ("data.set", "data set"), ("device", "device")]
            .into_iter()
            .filter_map(|(setting, words)| differs(setting).then_some(words))
            .collect();
    if !flags.is_empty() {
        all.push(format!("ratios{of} cross a different {}: they are no effect of the method alone", flags.join(", ")));
    }
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
    let of_baseline = |index: usize| rows[index].0 == baseline;
    let chosen = (0..rows.len())
        .find(|i| of_baseline(*i) && rows[*i].1.is_job_baseline)
        .or_else(|| (0..rows.len()).find(|i| of_baseline(*i)))
        .unwrap_or(0);
    let base = rows.get(chosen).map(|(_, row)| *row).filter(|_| !profiler);
    let lines = rows.iter().enumerate().map(|(i, (_, row))| line(row, base, !profiler && i == chosen)).collect();
    let plain: Vec<&Row> = rows.iter().map(|(_, row)| *row).collect();
    let (mode, profiler) = ((*mode).to_owned(), *profiler);
    Group { mode, profiler, lines, differences: differences(&plain), unknown: unknown(&plain) }
}

fn line(row: &Row, base: Option<&Row>, baseline: bool) -> Line {
    let base = base.filter(|_| !baseline);
    let samples = base.and_then(|b| ratio(&row.samples_per_s, &b.samples_per_s));
    Line {
        baseline,
        ratio_it_per_s: base.and_then(|b| ratio(&row.it_per_s, &b.it_per_s)),
        ratio_samples_per_s: samples,
        ratio_storage: base.and_then(|b| Some(row.storage_bytes? / b.storage_bytes.filter(|s| *s > 0.0)?)),
        verdict: base.zip(samples).map(|(b, r)| verdict(&r, (row.n(), b.n()))),
        row: row.clone(),
    }
}
