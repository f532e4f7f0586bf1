//! Jobs side by side: rows in tables of comparable rows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use expctl_ledger::{LedgerJob, MeasuredJob, PublishedBreakdown, Run};
use serde::Serialize;

use super::decomposition::{Decomposed, decompositions};
use super::published::Published;
use crate::report::differences::{Difference, comparability_classes, confounds, differences, known_for_some};
use crate::report::line::{JobPoint, Line, PointIndex, baselines, job_point, judge_together, same_point};
use crate::report::variant_row::{RateClass, VariantRow, measured_row, measured_rows, published_row};

/// Jobs that cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// No two jobs have comparable rows.
    #[error("nothing in these jobs can be compared with each other")]
    NothingComparable {
        /// A sentence for each kind of steps with the jobs that ran it, and one on what is comparable.
        details: Vec<String>,
    },
    /// A variant of jobs to be pooled is not the same in all of them.
    #[error(
        "jobs {jobs} cannot be pooled: of `{variant}`, {property} is {} in job {} and {} in job {}",
        sides[0].1, sides[0].0, sides[1].1, sides[1].0
    )]
    NotPoolable {
        /// The jobs.
        jobs: String,
        /// The variant.
        variant: String,
        /// The property that differs.
        property: &'static str,
        /// Two jobs, with their values of it.
        sides: Box<[(String, String); 2]>,
    },
}

/// Rows of one table: the same mode, data set and class, all with a profiler or all without one.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// Their mode.
    pub mode: String,
    /// Whether a profiler ran along; such rows have no ratios.
    pub profiler: bool,
    /// Name of their class; empty if there is one class.
    pub class: String,
    /// Their data in words, if there are several data sets.
    pub data_set: String,
    /// The rows, in the order asked for.
    pub lines: Vec<Line>,
    /// Settings in which they differ besides the method.
    pub differences: Vec<Difference>,
    /// Settings that are known for some rows only.
    pub unknown: Vec<String>,
}

impl Group {
    /// Whether the ratios of it/s and samples/s differ in a row.
    pub fn mixed_batches(&self) -> bool {
        self.lines.iter().any(Line::mixed_batch)
    }

    /// Its name: `train, ranks 4, profiler on`.
    pub fn name(&self) -> String {
        let mut name = self.mode.clone();
        for part in [&self.data_set, &self.class] {
            if !part.is_empty() {
                name.push_str(&format!(", {part}"));
            }
        }
        if self.profiler {
            name.push_str(", profiler on");
        }
        name
    }
}

/// Jobs side by side.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Tables of comparable rows: the baseline's first, profiled ones last.
    pub groups: Vec<Group>,
    /// Differences between modes of the variants that ran in several.
    pub decompositions: Vec<Decomposed>,
    /// Published figures beside the measured ones that repeat them.
    pub published: Published,
}

impl Comparison {
    /// Compare jobs, given the rows of each and the breakdowns of published ones; ratios refer to the job at index `baseline`.
    ///
    /// # Errors
    /// [`CompareError::NothingComparable`] if there are several jobs, no two of them ran steps of one mode on one data set, and no measured
    /// row stands beside a breakdown.
    pub fn new(
        jobs: &[Vec<VariantRow>],
        breakdowns: &[PublishedBreakdown],
        baseline: usize,
    ) -> Result<Self, CompareError> {
        let rows: Vec<&VariantRow> = jobs.iter().flatten().collect();
        let published = Published::from_rows(&rows, breakdowns);
        let mut kinds: Vec<StepKind<'_>> = Vec::new();
        let order = std::iter::once(baseline).chain(0..jobs.len());
        for row in order.filter_map(|j| jobs.get(j)).flatten() {
            if !kinds.iter().any(|k| k.holds(row)) {
                kinds.push(StepKind {
                    mode: &row.mode,
                    set: data_set_of(row),
                    profiler: row.profiler,
                    rows: Vec::new(),
                });
            }
        }
        for (index, row) in jobs.iter().enumerate().flat_map(|(i, rows)| rows.iter().map(move |r| (i, r))) {
            if let Some(kind) = kinds.iter_mut().find(|k| k.holds(row)) {
                kind.rows.push((index, row));
            }
        }
        kinds.sort_by_key(|k| k.profiler);
        if !published.has_measured_breakdown() {
            refuse_if_nothing_compares(jobs, &kinds)?;
        }
        let several = kinds.iter().any(|kind| kind.set != kinds[0].set);
        let mut groups: Vec<Group> = kinds.iter().flat_map(|kind| kind.groups(baseline, several)).collect();
        add_profiler_costs(&kinds, &mut groups);
        let decompositions = decompositions(&groups);
        Ok(Self { groups, decompositions, published })
    }

    /// All lines.
    pub fn lines(&self) -> impl Iterator<Item = &Line> {
        self.groups.iter().flat_map(|g| &g.lines)
    }

    /// All rows.
    pub fn rows(&self) -> impl Iterator<Item = &VariantRow> {
        self.lines().map(|line| &line.row)
    }

    /// Trials that are missing from the figures.
    pub fn incomplete(&self) -> usize {
        self.rows().map(|r| r.incomplete).sum()
    }
}

/// The data set of a row: samples of different data sets are not compared.
pub(super) fn data_set_of(row: &VariantRow) -> &str {
    row.settings.get("data.set").map_or("", String::as_str)
}

/// Rows of the baseline's job.
struct BaselineRows<'a> {
    /// By variant and point; the first where several have the same.
    by_point: BTreeMap<(&'a str, JobPoint<'a>), &'a VariantRow>,
    /// By variant and settings.
    by_settings: PointIndex<'a>,
}

impl<'a> BaselineRows<'a> {
    fn new(rows: &[&'a VariantRow]) -> Self {
        let by_point = rows.iter().rev().map(|row| ((row.variant.as_str(), job_point(row)), *row)).collect();
        let indexed = rows.iter().enumerate().map(|(index, row)| (row.variant.as_str(), index, *row));
        Self { by_point, by_settings: PointIndex::new(indexed) }
    }

    /// The row of the same variant and point as `row`, which is of another job.
    fn counterpart(&self, row: &VariantRow) -> Option<&'a VariantRow> {
        let alike = || {
            let found = self.by_settings.at(&row.variant, row).into_iter();
            let found: Vec<&VariantRow> = found.map(|(_, of)| of).filter(|of| same_point(row, of)).collect();
            let alike = found.iter().copied().find(|of| of.side_by_side() == row.side_by_side());
            alike.or_else(|| found.first().copied())
        };
        self.by_point.get(&(row.variant.as_str(), job_point(row))).copied().or_else(alike)
    }
}

/// Rows of one mode on one data set, each with the index of its job.
struct StepKind<'a> {
    mode: &'a str,
    set: &'a str,
    profiler: bool,
    rows: Vec<(usize, &'a VariantRow)>,
}

impl StepKind<'_> {
    fn holds(&self, row: &VariantRow) -> bool {
        self.mode == row.mode && self.profiler == row.profiler && self.set == data_set_of(row)
    }

    /// Its data in words: the data set, `own files` where rows read those of the user in its place, or both.
    fn data_words(&self) -> String {
        let has_own_files = |row: &VariantRow| row.settings.get("array.files").is_some_and(|files| !files.is_empty());
        let words = self.rows.iter().map(|(_, row)| if has_own_files(row) { "own files" } else { self.set });
        words.collect::<BTreeSet<&str>>().into_iter().collect::<Vec<_>>().join(" and ")
    }

    /// True if it holds rows of two jobs.
    fn of_several_jobs(&self) -> bool {
        self.rows.iter().any(|(job, _)| *job != self.rows[0].0)
    }

    /// True if steps of the same mode on the same data set ran here without a profiler and in another job of `profiled` with one.
    fn is_unprofiled_side_of(&self, profiled: &Self) -> bool {
        let same_steps = self.mode == profiled.mode && self.set == profiled.set;
        // Both have rows, so there are two jobs if not all rows are of one.
        let two_jobs = || self.rows.iter().chain(&profiled.rows).any(|(job, _)| *job != self.rows[0].0);
        same_steps && !self.profiler && profiled.profiler && two_jobs()
    }

    /// The row without a profiler to compare `profiled` with: of the same variant, or among imported rows the one that differs in the fewest
    /// other settings. `None` if no such row has a rate.
    fn unprofiled(&self, profiled: &VariantRow) -> Option<&VariantRow> {
        let rated =
            self.rows.iter().map(|(_, row)| *row).filter(|row| row.median_samples_per_s().is_some_and(|r| r > 0.0));
        let with_differences = rated.filter_map(|row| {
            let (crosses, others) = confounds(profiled, row);
            let differing = crosses.len() + others.len();
            same_but_for_profiler(profiled, row, differing).then_some((differing, row))
        });
        with_differences.min_by_key(|(differing, row)| (row.job != profiled.job, *differing)).map(|(_, row)| row)
    }

    /// Its tables, one for each class.
    fn groups(&self, baseline: usize, name_set: bool) -> Vec<Group> {
        let classes = comparability_classes(&self.rows, baseline);
        let of_baseline: Vec<&VariantRow> =
            self.rows.iter().filter(|(job, _)| *job == baseline).map(|(_, row)| *row).collect();
        let of_baseline = BaselineRows::new(&of_baseline);
        let mut first: Option<PointIndex<'_>> = None;
        let mut groups = Vec::new();
        for class in &classes {
            let rows: Vec<(usize, &VariantRow)> = class.rows.iter().map(|at| self.rows[*at]).collect();
            let bases = baselines(&rows, baseline, self.of_several_jobs());
            let plain: Vec<&VariantRow> = rows.iter().map(|(_, row)| *row).collect();
            let line = |i: &usize| {
                let i = *i;
                let is_baseline = bases[i] == Some(i);
                let base = match bases[i] {
                    // The baseline of another class is compared with that of the first class; the ratio is marked as crossing classes.
                    Some(base) if is_baseline => {
                        first.as_ref().and_then(|first| first.at("", plain[base]).first().map(|(_, of)| *of))
                    }
                    base => base.map(|base| plain[base]),
                };
                let mut line = Line::new(plain[i], is_baseline, base);
                line.of_baseline_job = rows[i].0 == baseline;
                let before = Some(plain[i]).filter(|_| !line.of_baseline_job);
                line.before = before.and_then(|row| of_baseline.counterpart(row)).map(|row| Box::new(row.clone()));
                line
            };
            let mut lines = parallel_map::map(&(0..plain.len()).collect::<Vec<usize>>(), line);
            judge_together(&mut lines);
            if first.is_none() {
                let chosen = bases.iter().enumerate().filter(|(i, base)| **base == Some(*i));
                let chosen: Vec<_> = chosen.map(|(i, _)| ("", i, plain[i])).collect();
                first = (!chosen.is_empty()).then(|| PointIndex::new(chosen));
            }
            groups.push(Group {
                mode: self.mode.to_owned(),
                profiler: self.profiler,
                class: class.name(&classes),
                data_set: if name_set { self.data_words() } else { String::new() },
                lines,
                differences: differences(&plain),
                unknown: known_for_some(&plain),
            });
        }
        groups
    }
}

/// Whether `row` is of the same variant as `profiled`. `differing`: number of settings in which the two differ, without those of the profiler.
fn same_but_for_profiler(profiled: &VariantRow, row: &VariantRow, differing: usize) -> bool {
    if profiled.class == RateClass::Imported {
        // Published rows have no variants: the settings that differ are named beside the figure.
        return row.class == RateClass::Imported;
    }
    let point = |row: &VariantRow| -> Vec<(String, String)> {
        let swept = row.point.iter().filter(|(key, _)| !["profile.", "trace."].iter().any(|of| key.starts_with(of)));
        swept.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let same_variant = profiled.variant == row.variant && point(profiled) == point(row);
    profiled.same_processor(row) && (same_variant || differing == 0)
}

fn refuse_if_nothing_compares(jobs: &[Vec<VariantRow>], kinds: &[StepKind<'_>]) -> Result<(), CompareError> {
    let costs = kinds.iter().any(|kind| kinds.iter().any(|profiled| kind.is_unprofiled_side_of(profiled)));
    if jobs.len() < 2 || costs || kinds.iter().any(StepKind::of_several_jobs) {
        return Ok(());
    }
    let several = kinds.iter().any(|kind| kind.set != kinds[0].set);
    let words = |kind: &StepKind<'_>| {
        let mut names: Vec<&str> = kind.rows.iter().map(|(_, r)| r.job.as_str()).collect();
        names.dedup();
        let with = if kind.profiler { " with a profiler" } else { "" };
        let on = if several { format!(" on {}", kind.data_words()) } else { String::new() };
        format!("steps of kind {}{with}{on}: {}", kind.mode, names.join(", "))
    };
    let needed = "comparable are jobs with steps of one kind on one data set".to_owned();
    Err(CompareError::NothingComparable { details: kinds.iter().map(words).chain([needed]).collect() })
}

/// Add to each profiled row its rate as a share of the rate of the same variant without a profiler.
fn add_profiler_costs(kinds: &[StepKind<'_>], groups: &mut [Group]) {
    for line in groups.iter_mut().filter(|group| group.profiler).flat_map(|group| &mut group.lines) {
        let unprofiled = kinds.iter().filter(|kind| !kind.profiler && kind.mode == line.row.mode);
        let Some(base) =
            unprofiled.filter(|kind| kind.set == data_set_of(&line.row)).find_map(|kind| kind.unprofiled(&line.row))
        else {
            continue;
        };
        let rate = line.row.median_samples_per_s().map(|rate| (rate, rate)).or(line.row.samples_range);
        let (Some((low, high)), Some(other)) = (rate, base.median_samples_per_s()) else { continue };
        let compared = Line::new(&line.row, false, Some(base));
        line.with_profiler = Some((low / other, high / other));
        line.profiler_ratio = compared.ratio_samples_per_s;
        line.profiler_runs = compared.runs;
        line.against = compared.against;
        (line.crosses, line.confounds, line.unknown) = (compared.crosses, compared.confounds, compared.unknown);
    }
}

/// A job with its runs of one variant.
type JobRuns<'a> = (&'a MeasuredJob, Vec<&'a Run>);

/// Pool the runs of each variant over several jobs.
///
/// # Errors
/// [`CompareError::NotPoolable`] if a variant did not do the same work on the same data in all of them.
fn pooled_rows(jobs: &[MeasuredJob]) -> Result<Vec<VariantRow>, CompareError> {
    let name = jobs.iter().map(|job| job.record.job.to_string()).collect::<Vec<_>>().join("/");
    let mut found: Vec<(String, Vec<JobRuns<'_>>)> = Vec::new();
    let mut index_by_label: BTreeMap<String, usize> = BTreeMap::new();
    for job in jobs {
        for (label, runs) in job.by_label() {
            let index = *index_by_label.entry(label).or_insert_with_key(|label| {
                found.push((label.clone(), Vec::new()));
                found.len() - 1
            });
            found[index].1.push((job, runs));
        }
    }
    let rows = parallel_map::map(&found, |(label, of_jobs)| pooled(&name, label.clone(), of_jobs));
    rows.into_iter().collect()
}

fn pooled(name: &str, label: String, jobs: &[JobRuns<'_>]) -> Result<VariantRow, CompareError> {
    let parts: Vec<VariantRow> = jobs.iter().map(|(job, runs)| measured_row(job, label.clone(), runs)).collect();
    let first = &parts[0];
    for part in &parts[1..] {
        let other = must_be_equal(part).into_iter().zip(must_be_equal(first)).find(|(part, first)| part != first);
        if let Some(((key, of_part), (_, of_first))) = other {
            return Err(CompareError::NotPoolable {
                jobs: name.to_owned(),
                variant: label,
                property: key,
                sides: Box::new([(first.job.clone(), of_first), (part.job.clone(), of_part)]),
            });
        }
    }
    // Figures are of all runs together; notes are those of the single jobs.
    let runs: Vec<&Run> = jobs.iter().flat_map(|(_, runs)| runs.iter().copied()).collect();
    let all = measured_row(jobs[0].0, label, &runs);
    let mut notes: Vec<String> = parts.iter().flat_map(|part| part.notes.iter().cloned()).collect();
    let differs = differing(&parts);
    if !differs.is_empty() {
        notes.insert(0, format!("its jobs are not alike: {}", differs.join(", ")));
    }
    Ok(VariantRow {
        job: name.to_owned(),
        config: distinct(parts.iter().map(|part| part.config.clone()), "/"),
        settings: Arc::new(pooled_settings(&parts)),
        notes,
        estimator: format!("{} of all jobs", all.estimator),
        // Repeats count from 1 in every job.
        interleaved: false,
        parts,
        ..all
    })
}

/// Properties that must be equal in all pooled jobs.
fn must_be_equal(row: &VariantRow) -> [(&'static str, String); 5] {
    [
        ("train.mode", row.mode.clone()),
        ("loader.batch_size", row.batch_size.to_string()),
        ("launch.ranks", row.ranks.to_string()),
        ("the profiler", if row.profiler { "on" } else { "off" }.to_owned()),
        ("data.set", row.settings.get("data.set").cloned().unwrap_or_default()),
    ]
}

/// Distinct values in order.
fn distinct(values: impl Iterator<Item = String>, separator: &str) -> String {
    let mut once: Vec<String> = Vec::new();
    for value in values {
        if !once.contains(&value) {
            once.push(value);
        }
    }
    once.join(separator)
}

/// Settings of all jobs; all values of those that differ.
fn pooled_settings(parts: &[VariantRow]) -> BTreeMap<String, String> {
    let keys: BTreeSet<&String> = parts.iter().flat_map(|part| part.settings.keys()).collect();
    let of = |key: &String| distinct(parts.iter().filter_map(|part| part.settings.get(key).cloned()), " and ");
    keys.into_iter().map(|key| (key.clone(), of(key))).collect()
}

fn differing(parts: &[VariantRow]) -> Vec<String> {
    let rows: Vec<&VariantRow> = parts.iter().collect();
    differences(&rows).iter().map(Difference::words).collect()
}

/// The rows of a job.
///
/// # Errors
/// [`CompareError::NotPoolable`] for pooled jobs.
pub fn rows_of(job: &LedgerJob) -> Result<Vec<VariantRow>, CompareError> {
    match job {
        LedgerJob::Published(rows) => Ok(rows.iter().map(published_row).collect()),
        LedgerJob::Measured(job) => Ok(measured_rows(job)),
        LedgerJob::Pooled(jobs) => pooled_rows(jobs),
    }
}
