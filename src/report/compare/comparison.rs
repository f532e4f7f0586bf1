use serde::Serialize;

use super::baseline::same_point;
use super::class::classes;
use super::confounds::confounds;
use super::decomposition::{Decomposed, decompositions};
use super::differences::unknown;
use super::line::{Line, judge_together};
use super::{Class, Difference, Published, Row, baselines, differences};
use crate::exit::{Exit, Failure};
use expctl_record::PublishedBreakdown;

/// Rows of one table: their steps do the same work on the same data, all with a profiler or all without one, and they are of one class.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// What a step does in all of them.
    pub mode: String,
    /// True for rows with a profiler, which have no ratios.
    pub profiler: bool,
    /// What sets their class apart from the others of this kind of step; empty where there is one class.
    pub class: String,
    /// The data set, where there are several; else empty.
    pub data_set: String,
    /// The rows, in the order asked for.
    pub lines: Vec<Line>,
    /// Settings that are not the same in all rows besides the method.
    pub differences: Vec<Difference>,
    /// Settings that are known for some rows only.
    pub unknown: Vec<String>,
}

impl Group {
    /// True if a ratio of it/s says something else than one of samples/s.
    pub fn mixed_batches(&self) -> bool {
        self.lines.iter().any(Line::mixed_batch)
    }

    /// How it is called: `train, ranks 4, profiler on`.
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
    /// Tables of comparable rows; the baseline's first, those with a profiler last.
    pub groups: Vec<Group>,
    /// What steps of one mode take more than those of another, where a variant was run in several.
    pub decompositions: Vec<Decomposed>,
    /// Published figures beside the measured ones that repeat them.
    pub published: Published,
}

impl Comparison {
    /// Put the rows of jobs side by side. `jobs` holds the rows of each job; ratios refer to the job at `baseline`.
    ///
    /// # Errors
    /// Exit 7 if several jobs were given and no two of them ran steps of one mode on one data set.
    pub fn new(jobs: &[Vec<Row>], baseline: usize) -> Result<Self, Failure> {
        Self::with_breakdowns(jobs, &[], baseline)
    }

    /// The same with the breakdowns that the sources of published jobs give.
    ///
    /// # Errors
    /// As [`Self::new`], unless a measured row stands beside a breakdown.
    pub fn with_breakdowns(
        jobs: &[Vec<Row>],
        breakdowns: &[PublishedBreakdown],
        baseline: usize,
    ) -> Result<Self, Failure> {
        let rows: Vec<&Row> = jobs.iter().flatten().collect();
        let published = Published::of(&rows, breakdowns);
        let mut kinds: Vec<Kind<'_>> = Vec::new();
        let order = std::iter::once(baseline).chain(0..jobs.len());
        for row in order.filter_map(|j| jobs.get(j)).flatten() {
            if !kinds.iter().any(|k| k.holds(row)) {
                kinds.push(Kind { mode: &row.mode, set: set_of(row), profiler: row.profiler, rows: Vec::new() });
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
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.lines().map(|line| &line.row)
    }

    /// Trials that are missing from the figures.
    pub fn incomplete(&self) -> usize {
        self.rows().map(|r| r.incomplete).sum()
    }
}

/// The data set of a row; a sample of another one is another thing.
pub(super) fn set_of(row: &Row) -> &str {
    row.settings.get("data.set").map_or("", String::as_str)
}

/// Rows of one kind of step on one data set, each with the index of its job.
struct Kind<'a> {
    mode: &'a str,
    set: &'a str,
    profiler: bool,
    rows: Vec<(usize, &'a Row)>,
}

impl Kind<'_> {
    fn holds(&self, row: &Row) -> bool {
        self.mode == row.mode && self.profiler == row.profiler && self.set == set_of(row)
    }

    /// True if it holds rows of two jobs.
    fn of_several_jobs(&self) -> bool {
        self.rows.iter().any(|(job, _)| *job != self.rows[0].0)
    }

    /// True if steps of the same mode on the same data set ran here without a profiler and in another job of `profiled` with one.
    fn is_unprofiled_side_of(&self, profiled: &Self) -> bool {
        let same_steps = self.mode == profiled.mode && self.set == profiled.set;
        let two_jobs = || self.rows.iter().any(|(job, _)| profiled.rows.iter().any(|(of, _)| of != job));
        same_steps && !self.profiler && profiled.profiler && two_jobs()
    }

    /// The row without a profiler that tells what the profiler cost in `profiled`: of the same variant, or, among imported rows, the
    /// one with the fewest other settings that differ. None where no row of these has a rate.
    fn unprofiled(&self, profiled: &Row) -> Option<&Row> {
        let rated =
            self.rows.iter().map(|(_, row)| *row).filter(|row| row.median_samples_per_s().is_some_and(|r| r > 0.0));
        let with_differences = rated.filter_map(|row| {
            let (crosses, others) = confounds(profiled, row);
            let differing = crosses.len() + others.len();
            same_but_for_profiler(profiled, row, differing).then_some((differing, row))
        });
        with_differences.min_by_key(|(differing, row)| (row.job != profiled.job, *differing)).map(|(_, row)| row)
    }

    /// The same variant at the same point in the job at `baseline`; none of rows of that job.
    fn before(&self, (job, row): (usize, &Row), baseline: usize) -> Option<&Row> {
        let same = |of: &Row| of.variant == row.variant && same_point(of, row, false) && same_point(row, of, false);
        let theirs = self.rows.iter().filter(|(of, _)| *of == baseline && job != baseline);
        theirs.map(|(_, of)| *of).find(|of| same(of))
    }

    /// Its tables, one for each class.
    fn groups(&self, baseline: usize, name_set: bool) -> Vec<Group> {
        let classes = classes(&self.rows, baseline);
        let mut first: Vec<&Row> = Vec::new();
        let mut groups = Vec::new();
        for class in &classes {
            let rows: Vec<(usize, &Row)> = class.rows.iter().map(|at| self.rows[*at]).collect();
            let bases = baselines(&rows, baseline);
            let plain: Vec<&Row> = rows.iter().map(|(_, row)| *row).collect();
            let line = |i: usize| {
                let own = bases[i] == Some(i);
                let base = match bases[i] {
                    // What a class is measured by is itself seen against the first class: marked, for it crosses.
                    Some(base) if own => first.iter().copied().find(|of| same_point(of, plain[base], false)),
                    base => base.map(|base| plain[base]),
                };
                let mut line = Line::new(plain[i], own, base);
                line.of_baseline_job = rows[i].0 == baseline;
                line.before = self.before(rows[i], baseline).map(|row| Box::new(row.clone()));
                line
            };
            let mut lines: Vec<Line> = (0..plain.len()).map(line).collect();
            judge_together(&mut lines);
            if first.is_empty() {
                first = bases.iter().enumerate().filter(|(i, b)| **b == Some(*i)).map(|(i, _)| plain[i]).collect();
            }
            groups.push(Group {
                mode: self.mode.to_owned(),
                profiler: self.profiler,
                class: class.name(&classes),
                data_set: if name_set { self.set.to_owned() } else { String::new() },
                lines,
                differences: differences(&plain),
                unknown: unknown(&plain),
            });
        }
        groups
    }
}

/// True if `row` ran the same variant as the row `profiled`, which had a profiler along. `differing` counts the settings in which the two
/// differ. Keys of the profiler are no such setting: a row without one has none of them.
fn same_but_for_profiler(profiled: &Row, row: &Row, differing: usize) -> bool {
    if profiled.class == Class::Imported {
        // Published rows have no variants: what else differs is said beside the figure.
        return row.class == Class::Imported;
    }
    let point = |row: &Row| -> Vec<(String, String)> {
        let swept = row.point.iter().filter(|(key, _)| !["profile.", "trace."].iter().any(|of| key.starts_with(of)));
        swept.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let same_variant = profiled.variant == row.variant && point(profiled) == point(row);
    profiled.same_processor(row) && (same_variant || differing == 0)
}

fn refuse_if_nothing_compares(jobs: &[Vec<Row>], kinds: &[Kind<'_>]) -> Result<(), Failure> {
    let costs = kinds.iter().any(|kind| kinds.iter().any(|profiled| kind.is_unprofiled_side_of(profiled)));
    if jobs.len() < 2 || costs || kinds.iter().any(Kind::of_several_jobs) {
        return Ok(());
    }
    let mut failure = Failure::new(Exit::Refused, "nothing in these jobs can be compared with each other");
    let several = kinds.iter().any(|kind| kind.set != kinds[0].set);
    for kind in kinds {
        let mut names: Vec<&str> = kind.rows.iter().map(|(_, r)| r.job.as_str()).collect();
        names.dedup();
        let with = if kind.profiler { " with a profiler" } else { "" };
        let on = if several { format!(" on {}", kind.set) } else { String::new() };
        failure = failure.hint(format!("steps of kind {}{with}{on}: {}", kind.mode, names.join(", ")));
    }
    Err(failure.hint("comparable are jobs with steps of one kind on one data set"))
}

/// Say of each row with a profiler what that cost: its rate as a share of the same variant's without one.
fn add_profiler_costs(kinds: &[Kind<'_>], groups: &mut [Group]) {
    for line in groups.iter_mut().filter(|group| group.profiler).flat_map(|group| &mut group.lines) {
        let unprofiled = kinds.iter().filter(|kind| !kind.profiler && kind.mode == line.row.mode);
        let Some(base) =
            unprofiled.filter(|kind| kind.set == set_of(&line.row)).find_map(|kind| kind.unprofiled(&line.row))
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
