//! A row against the row that its ratios refer to: ratios, verdict, and what else differs; in numbers and in words.

use std::collections::{BTreeMap, BTreeSet};

use expctl_stats::{
    ALPHA, MIN_RUNS_FOR_VERDICT, MIN_SECONDS_FOR_VERDICT, POWER, Permutation, Ratio, Verdict, judge,
    minimum_detectable, minimum_detectable_paired, paired_ratio, permutation_test, ratio,
};
use expctl_text::format;
use serde::Serialize;

use super::differences::{Confound, confound_words, confounds, known_for_some};
use super::variant_row::{RateClass, VariantRow};

/// Index of the base of each row: the row that its ratios refer to, itself for a baseline. `None` if the baseline was not run at the point of
/// the row, and for profiled rows. `rows` come with the index of their job; the baseline is in `job`. `several_jobs`: jobs are compared, so rows
/// meet at the same point of a sweep.
pub fn baselines(rows: &[(usize, &VariantRow)], job: usize, several_jobs: bool) -> Vec<Option<usize>> {
    // A group without rows of the baseline's job refers to its first job.
    let job = if rows.iter().any(|(j, _)| *j == job) { job } else { rows.first().map_or(job, |(j, _)| *j) };
    let mut chosen = baseline_rows(rows, job);
    let first_point = !several_jobs && sweeps_one_variant(rows);
    if first_point {
        chosen.truncate(1);
    }
    // A job may have thousands of points, each with a baseline of its own.
    let of_point: BTreeMap<JobPoint<'_>, usize> = chosen.iter().map(|base| (job_point(rows[*base].1), *base)).collect();
    let with_settings = PointIndex::new(chosen.iter().map(|base| ("", *base, rows[*base].1)));
    let find = |index: usize| {
        let (of, row) = rows[index];
        let same = of_point.get(&job_point(row)).copied();
        if same == Some(index) || row.profiler {
            return same.filter(|base| *base == index);
        }
        match (first_point, of == job) {
            (true, _) => chosen.first().copied(),
            // In one job points are equal or they are not.
            (false, true) => same,
            (false, false) => same.or_else(|| {
                let bases = with_settings.at("", row);
                // Of a baseline that also ran alone, the row with as many trials side by side.
                let alike = bases.iter().find(|(_, base)| base.side_by_side() == row.side_by_side());
                alike.or_else(|| bases.first()).map(|(index, _)| *index)
            }),
        }
    };
    (0..rows.len()).map(find).collect()
}

/// Whether measured rows are a sweep of a single variant whose steps do the same at every point. Then nothing but the points can be compared.
fn sweeps_one_variant(rows: &[(usize, &VariantRow)]) -> bool {
    let Some((_, first)) = rows.first() else { return false };
    let set = |row: &VariantRow| row.settings.get("data.set").cloned();
    rows.iter().all(|(_, row)| {
        row.class == RateClass::Measured
            && row.variant == first.variant
            && row.mode == first.mode
            && set(row) == set(first)
    })
}

/// The baseline's rows, one for each point of a sweep.
fn baseline_rows(rows: &[(usize, &VariantRow)], job: usize) -> Vec<usize> {
    let of_job: Vec<usize> = (0..rows.len()).filter(|i| rows[*i].0 == job && !rows[*i].1.profiler).collect();
    let Some(first) = of_job.first().map(|i| rows[*i].1) else { return Vec::new() };
    let named = first.job_baseline.as_ref().filter(|name| of_job.iter().any(|i| rows[*i].1.variant == **name));
    let others = of_job.len() < rows.len();
    let one_variant = of_job.iter().all(|i| rows[*i].1.variant == first.variant);
    let variant = match (&first.job_baseline, named) {
        (None, _) => &first.variant,
        (Some(_), Some(name)) => name,
        // Several jobs, and this one has a single variant.
        (Some(_), None) if others && one_variant => &first.variant,
        // Another baseline than the named one would change the meaning of the ratios.
        (Some(_), None) => return Vec::new(),
    };
    let mut points: BTreeSet<JobPoint<'_>> = BTreeSet::new();
    of_job.into_iter().filter(|i| rows[*i].1.variant == *variant && points.insert(job_point(rows[*i].1))).collect()
}

/// The point of a row among those of its job: swept settings, and trials side by side.
pub type JobPoint<'a> = (&'a BTreeMap<String, String>, Option<&'a str>);

/// The point of a row among those of its job.
pub fn job_point(row: &VariantRow) -> JobPoint<'_> {
    (&row.point, row.side_by_side())
}

/// Whether a row of another job is at the point of a baseline: it has the settings that the baseline's job swept.
pub fn same_point(base: &VariantRow, row: &VariantRow) -> bool {
    base.point.iter().all(|(key, value)| setting_at(row, key) == Some(value))
}

/// A setting of a row, swept or not.
fn setting_at<'a>(row: &'a VariantRow, key: &str) -> Option<&'a String> {
    row.point.get(key).or_else(|| row.settings.get(key))
}

/// Values of swept settings, in the order of their names, below a name of the caller's choice.
type PointValues<'a> = (&'a str, Vec<&'a str>);

/// Rows at points of the same settings, each with its position.
type RowsByValues<'a> = BTreeMap<PointValues<'a>, Vec<(usize, &'a VariantRow)>>;

/// Rows by the settings that their job swept. The rows of a job sweep few combinations of settings, but may be at thousands of points.
pub struct PointIndex<'a>(BTreeMap<Vec<&'a str>, RowsByValues<'a>>);

impl<'a> PointIndex<'a> {
    /// Index rows, each with a name below which it is found and with its position.
    pub fn new(rows: impl IntoIterator<Item = (&'a str, usize, &'a VariantRow)>) -> Self {
        let mut by_keys: BTreeMap<Vec<&str>, RowsByValues<'_>> = BTreeMap::new();
        for (name, position, row) in rows {
            let keys = row.point.keys().map(String::as_str).collect();
            let values = row.point.values().map(String::as_str).collect();
            by_keys.entry(keys).or_default().entry((name, values)).or_default().push((position, row));
        }
        Self(by_keys)
    }

    /// The rows below `name` at whose points `row` is ([`same_point`]), by position.
    pub fn at(&self, name: &str, row: &VariantRow) -> Vec<(usize, &'a VariantRow)> {
        let mut found = Vec::new();
        for (keys, rows) in &self.0 {
            let values: Option<Vec<&str>> = keys.iter().map(|key| Some(setting_at(row, key)?.as_str())).collect();
            found.extend(values.and_then(|values| rows.get(&(name, values))).into_iter().flatten().copied());
        }
        found.sort_by_key(|(position, _)| *position);
        found
    }
}

/// A row with its ratios and verdict against its base, the row that they refer to.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The row.
    #[serde(flatten)]
    pub row: VariantRow,
    /// Whether ratios refer to this row.
    pub baseline: bool,
    /// Name of its base; `None` for the baseline of all, and if there is none at its point of the sweep.
    pub against: Option<String>,
    /// Its base. A baseline has one if it is the baseline of another class.
    #[serde(skip)]
    pub base: Option<Box<VariantRow>>,
    /// Whether it is a row of the baseline's job.
    #[serde(skip)]
    pub of_baseline_job: bool,
    /// For gates: the row of the same variant and sweep point in the baseline's job, if this is a row of another job.
    #[serde(skip)]
    pub before: Option<Box<VariantRow>>,
    /// Ratio of it/s.
    pub ratio_it_per_s: Option<Ratio>,
    /// Ratio of samples/s; verdicts rest on it.
    pub ratio_samples_per_s: Option<Ratio>,
    /// The same ratio as a change in percent; below zero for slower.
    pub percent: Option<f64>,
    /// Whether runs were paired by repeat: both rows are of one interleaved job.
    pub paired: bool,
    /// Number of runs on both sides of the ratio, or of pairs.
    pub runs: Option<(usize, usize)>,
    /// Ratio of the storage.
    pub ratio_storage: Option<f64>,
    /// Class settings in which the two rows differ; empty if both are of one class.
    pub crosses: Vec<Confound>,
    /// Other settings in which they differ.
    pub confounds: Vec<Confound>,
    /// Settings known for one of the two rows only.
    pub unknown: Vec<String>,
    /// The verdict; `None` without a ratio.
    pub verdict: Option<Verdict>,
    /// p value of the ratio, corrected by Holm over the table; `None` without a test.
    pub p_holm: Option<f64>,
    /// Whether the ratio would have a verdict alone, but has none among those of the table.
    pub lone: bool,
    /// Permutation test; `None` for pairs, and below two runs on a side.
    pub permutation: Option<Permutation>,
    /// The smallest ratio above 1 that so many runs would have shown, if no difference was shown.
    pub detectable: Option<f64>,
    /// For a profiled row: lowest and highest rate as a share of the rate of the same variant without a profiler.
    pub with_profiler: Option<(f64, f64)>,
    /// The same as a ratio with its interval; `None` for an imported range.
    pub profiler_ratio: Option<Ratio>,
    /// Number of runs with and without the profiler in this ratio, or of pairs.
    pub profiler_runs: Option<(usize, usize)>,
}

impl Line {
    /// A row with its ratios to `base`; not judged yet.
    pub fn new(row: &VariantRow, baseline: bool, base: Option<&VariantRow>) -> Self {
        let its = base.map(|base| compared(row, base, |row| &row.it_per_s));
        let samples = base.map(|base| compared(row, base, |row| &row.samples_per_s));
        let (ratio, paired, runs) = samples.unwrap_or((None, false, (0, 0)));
        let (crosses, confounds) = base.map(|base| confounds(row, base)).unwrap_or_default();
        let permutation = base.filter(|_| !paired).and_then(|b| permutation_test(&row.samples_per_s, &b.samples_per_s));
        Self {
            baseline,
            against: base.map(VariantRow::name),
            base: base.map(|base| Box::new(base.clone())),
            of_baseline_job: true,
            before: None,
            ratio_it_per_s: its.and_then(|its| its.0),
            ratio_samples_per_s: ratio,
            percent: ratio.map(|ratio| (ratio.value - 1.0) * 100.0),
            paired,
            runs: ratio.map(|_| runs),
            ratio_storage: base.and_then(|base| row.storage_ratio(base)),
            crosses,
            confounds,
            unknown: base.map(|base| known_for_some(&[row, base])).unwrap_or_default(),
            verdict: None,
            p_holm: None,
            lone: false,
            permutation,
            detectable: None,
            with_profiler: None,
            profiler_ratio: None,
            profiler_runs: None,
            row: row.clone(),
        }
    }

    /// Measured time of the shortest run of both rows, s, if that is too short for a verdict.
    pub fn too_short(&self) -> Option<f64> {
        [Some(&self.row), self.base.as_deref()].into_iter().flatten().filter_map(VariantRow::too_short).reduce(f64::min)
    }

    /// Whether the ratios of it/s and samples/s differ, because the batches do.
    pub fn mixed_batch(&self) -> bool {
        self.base.as_ref().is_some_and(|base| base.global_batch() != self.row.global_batch())
    }

    /// The smallest ratio above 1 that so many runs would have shown; `None` unless it was judged and no difference was shown.
    fn detectable_ratio(&self) -> Option<f64> {
        let base = self.base.as_ref().filter(|_| self.verdict == Some(Verdict::NoDifferenceShown))?;
        match self.paired {
            true => minimum_detectable_paired(&pairs(&self.row, base, |row| &row.samples_per_s)),
            false => minimum_detectable(&self.row.samples_per_s, &base.samples_per_s),
        }
    }

    /// Whether the ratio is of rows of different classes.
    pub fn across(&self) -> bool {
        !self.crosses.is_empty()
    }
}

/// The rows of one job, each against its baseline, judged together.
pub fn lines_of_job(rows: &[VariantRow]) -> Vec<Line> {
    let indexed: Vec<(usize, &VariantRow)> = rows.iter().map(|row| (0, row)).collect();
    let bases = baselines(&indexed, 0, false);
    let line = |i: &usize| {
        let is_baseline = bases[*i] == Some(*i);
        Line::new(&rows[*i], is_baseline, bases[*i].filter(|_| !is_baseline).map(|base| &rows[base]))
    };
    let mut lines = parallel_map::map(&(0..rows.len()).collect::<Vec<usize>>(), line);
    judge_together(&mut lines);
    lines
}

/// Judge the ratios of a table together.
pub fn judge_together(lines: &mut [Line]) {
    let with = |short: bool| {
        let judged = |i: &usize| lines[*i].ratio_samples_per_s.is_some() && lines[*i].too_short().is_some() == short;
        (0..lines.len()).filter(judged).collect::<Vec<usize>>()
    };
    let (short, with) = (with(true), with(false));
    for index in short {
        let few = lines[index].runs.is_none_or(|(n, base_n)| n.min(base_n) < MIN_RUNS_FOR_VERDICT);
        lines[index].verdict = Some(if few { Verdict::TooFewRuns } else { Verdict::TooShort });
    }
    let table: Vec<_> = with.iter().filter_map(|i| lines[*i].ratio_samples_per_s.zip(lines[*i].runs)).collect();
    for (index, judgement) in with.iter().zip(judge(&table)) {
        let line = &mut lines[*index];
        line.verdict = Some(judgement.verdict);
        line.p_holm = judgement.p_holm;
        line.lone = judgement.lone;
    }
    let found = parallel_map::map(&with, |index| lines[*index].detectable_ratio());
    for (index, ratio) in with.into_iter().zip(found) {
        lines[index].detectable = ratio;
    }
}

/// The ratio of the samples/s of two rows of a job, whether it is of pairs, and the runs behind it.
pub fn samples_ratio(row: &VariantRow, base: &VariantRow) -> (Option<Ratio>, bool, (usize, usize)) {
    compared(row, base, |row| &row.samples_per_s)
}

/// The ratio of two rows, whether it is of pairs, and the runs behind it.
fn compared(
    row: &VariantRow,
    base: &VariantRow,
    of: fn(&VariantRow) -> &Vec<f64>,
) -> (Option<Ratio>, bool, (usize, usize)) {
    let pairs = pairs(row, base, of);
    if pairs.len() >= 2 {
        return (paired_ratio(&pairs), true, (pairs.len(), pairs.len()));
    }
    (ratio(of(row), of(base)), false, (row.n, base.n))
}

/// Pairs of figures of both rows by repeat; empty unless both are of one interleaved job.
pub fn pairs(row: &VariantRow, base: &VariantRow, of: fn(&VariantRow) -> &Vec<f64>) -> Vec<(f64, f64)> {
    if !row.interleaved || !base.interleaved || row.job != base.job {
        return Vec::new();
    }
    by_repeat((&row.repeats, of(row)), (&base.repeats, of(base)))
}

/// Pairs of figures of two sides by the repeats that both have; a side is a list of repeats and one of their figures.
pub fn by_repeat(side: (&[u32], &[f64]), base: (&[u32], &[f64])) -> Vec<(f64, f64)> {
    let same = |repeat: &u32| base.0.iter().position(|other| other == repeat).and_then(|at| base.1.get(at));
    side.0.iter().zip(side.1).filter_map(|(repeat, figure)| Some((*figure, *same(repeat)?))).collect()
}

/// The ratio of a line in samples/s, in words.
#[derive(Clone, Copy, Debug)]
pub struct RatioWords<'a> {
    /// The line.
    pub line: &'a Line,
    /// Name of the row.
    pub name: &'a str,
    /// Name of its base.
    pub base: &'a str,
    /// Number of ratios of the table that were tested together.
    pub tested: usize,
}

impl RatioWords<'_> {
    /// One sentence: ratio, verdict and tests; with the settings that differ if `confounds`. `None` without a ratio.
    pub fn sentence(&self, confounds: bool) -> Option<String> {
        let line = self.line;
        let (ratio, verdict, (n, base_n)) = (line.ratio_samples_per_s?, line.verdict?, line.runs?);
        let other_ways = [line.percent.and_then(percent_words), format::slower(ratio.value)];
        let other_ways: Vec<String> = other_ways.into_iter().flatten().collect();
        let shown = match other_ways.as_slice() {
            [] => format::ratio_with_interval(&ratio),
            _ => format!("{} ({})", format::ratio_with_interval(&ratio), other_ways.join(", ")),
        };
        let runs = if line.paired { format!("{n} pairs, by repeat") } else { format!("n = {n} and {base_n}") };
        let (name, base) = (self.name, self.base);
        let mut said = vec![match verdict {
            Verdict::TooFewRuns => format!("{name}: {shown} of {base} in samples/s ({runs}): no verdict"),
            Verdict::TooShort => {
                let why = line.too_short().map(too_short_words).unwrap_or_default();
                format!("{name}: {shown} of {base} in samples/s ({runs}): no verdict, {why}")
            }
            Verdict::NoSpread => format!(
                "{name}: {shown} of {base} in samples/s ({runs}): no test is possible, because no run differs from another (rounded or \
                 imported figures?)"
            ),
            _ => format!("{name}: {} {base}, {shown} in samples/s ({runs})", verdict.against()),
        }];
        said.extend(self.tests());
        if let Some(detectable) = line.detectable {
            said.push(format!(
                "with so many runs only a ratio of ≥ {} (or ≤ {}) would have been detected ({:.0} % power)",
                format::ratio(detectable),
                format::ratio(1.0 / detectable),
                POWER * 100.0
            ));
        }
        if confounds {
            said.extend(self.differing());
        }
        Some(said.join("; "))
    }

    /// p values and their corrections.
    fn tests(&self) -> Option<String> {
        let line = self.line;
        let p = line.ratio_samples_per_s?.p.filter(|_| line.p_holm.is_some())?;
        let mut said = vec![format!("{} ({})", p_value(p), test_name(line.paired))];
        if let Some(holm) = line.p_holm.filter(|_| self.tested > 1) {
            said.push(format!("{} among the {} ratios of the table (Holm)", p_value(holm), self.tested));
        }
        if let Some(test) = line.permutation {
            let few = line.runs.filter(|_| test.smallest > ALPHA);
            let least = few
                .map(|(n, base_n)| format!(" (at least {} with {n} and {base_n} runs)", format::figure(test.smallest)));
            let least = least.unwrap_or_default();
            said.push(format!("permutation test {}{least}", p_value(test.p)));
        }
        let lone = if line.lone { "; alone it would have had a verdict, among so many ratios it has none" } else { "" };
        Some(format!("{}{lone}", said.join(", ")))
    }

    /// Classes that the ratio crosses, other settings that differ, and settings known for one side only.
    pub fn differing(&self) -> Vec<String> {
        let line = self.line;
        let mut said = Vec::new();
        if line.across() {
            said.push(format!("† not a like-for-like comparison: {}", confound_words(&line.crosses)));
        }
        if !line.confounds.is_empty() {
            let same = line.base.as_ref().is_some_and(|base| line.row.same_processor(base));
            let lead = if same { "they differ in" } else { "other settings differ" };
            said.push(format!("{lead}: {}", confound_words(&line.confounds)));
        }
        if !line.unknown.is_empty() {
            said.push(format!("recorded for only one of the two: {}", line.unknown.join(", ")));
        }
        said
    }
}

/// `measured for 3.6 ms per run, which is less than 1 s`.
pub fn too_short_words(seconds: f64) -> String {
    let needed = format::seconds(MIN_SECONDS_FOR_VERDICT);
    format!("measured for {} per run, which is less than {needed}", format::seconds(seconds))
}

/// Number of runs that a verdict needs.
pub fn needed() -> String {
    format!("{MIN_RUNS_FOR_VERDICT} are needed on both sides")
}

/// `−43 %`; `None` for changes that are easier to read as a ratio.
pub fn percent_words(percent: f64) -> Option<String> {
    (percent > -99.5 && percent < 100.0 && percent.abs() >= 0.05).then(|| {
        let decimals = usize::from(percent.abs() < 9.95);
        let sign = if percent < 0.0 { "−" } else { "+" };
        format!("{sign}{} %", format::round(percent.abs(), decimals))
    })
}

/// Name of the test of a ratio.
pub const fn test_name(paired: bool) -> &'static str {
    if paired { "paired t" } else { "Welch" }
}

/// `p = 0.0123`, `p < 0.0001`.
pub fn p_value(p: f64) -> String {
    if p < 0.0001 { "p < 0.0001".to_owned() } else { format!("p = {}", format::figure(p)) }
}

#[cfg(test)]
mod tests {
    use super::percent_words;

    #[test]
    fn the_published_percentages() {
        let shown = [0.24 / 0.42, 0.22 / 0.42, 1.19, 1.004, 0.9951].map(|r| percent_words((r - 1.0) * 100.0).unwrap());
        assert_eq!(shown, ["−43 %", "−48 %", "+19 %", "+0.4 %", "−0.5 %"]);
        assert_eq!((percent_words((128.8 - 1.0) * 100.0), percent_words(0.0)), (None, None));
        // Nothing is 100 % slower.
        assert_eq!((percent_words(-99.8), percent_words(-99.4).as_deref()), (None, Some("−99 %")));
    }
}
