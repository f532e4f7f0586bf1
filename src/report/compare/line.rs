use serde::Serialize;

use super::confounds::{Confound, confounds};
use super::differences::unknown;
use super::{Row, baselines};
use crate::stats::{
    MIN_RUNS_FOR_VERDICT, Permutation, Ratio, Verdict, judge, minimum_detectable, minimum_detectable_paired,
    paired_ratio, permutation_test, ratio,
};

/// A row with what may be said of it against the row that its ratios refer to.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The row.
    #[serde(flatten)]
    pub row: Row,
    /// True for a row that ratios refer to.
    pub baseline: bool,
    /// Name of the row that its ratios refer to; none for the baseline of all, and where there is none at its point of the sweep.
    pub against: Option<String>,
    /// That row. A baseline has one where it stands for a class of its own.
    #[serde(skip)]
    pub base: Option<Box<Row>>,
    /// True for a row of the job that ratios refer to.
    #[serde(skip)]
    pub of_baseline_job: bool,
    /// Of another job's row: what the same variant came to at the same point in the job that ratios refer to, for gates.
    #[serde(skip)]
    pub before: Option<Box<Row>>,
    /// Ratio of it/s.
    pub ratio_it_per_s: Option<Ratio>,
    /// Ratio of samples/s; verdicts rest on it.
    pub ratio_samples_per_s: Option<Ratio>,
    /// How much more samples/s that is, in percent; below zero for less.
    pub percent: Option<f64>,
    /// True if runs were paired by repeat, because both rows are of one interleaved job.
    pub paired: bool,
    /// Runs on both sides that the ratio rests on; pairs, where they were paired.
    pub runs: Option<(usize, usize)>,
    /// Ratio of the storage.
    pub ratio_storage: Option<f64>,
    /// In what the two rows are of different classes; empty where the ratio stays within one.
    pub crosses: Vec<Confound>,
    /// What else differs besides the method.
    pub confounds: Vec<Confound>,
    /// What is known of one of the two rows only.
    pub unknown: Vec<String>,
    /// What may be said; none without a ratio.
    pub verdict: Option<Verdict>,
    /// p value of the ratio, corrected by Holm over the table; none without a verdict in words.
    pub p_holm: Option<f64>,
    /// True if the ratio would have had a verdict alone, but has none among those of the table.
    pub lone: bool,
    /// What a permutation test says; none of pairs, and below two runs on a side.
    pub permutation: Option<Permutation>,
    /// The smallest ratio above 1 that so many runs would have shown; where no difference was shown.
    pub detectable: Option<f64>,
    /// Of a row with a profiler: lowest and highest rate as a share of that of the same variant without one.
    pub with_profiler: Option<(f64, f64)>,
    /// The same as a ratio with its interval; none of an imported range.
    pub profiler_ratio: Option<Ratio>,
    /// Runs with and without the profiler that this ratio rests on; pairs, where they were paired.
    pub profiler_runs: Option<(usize, usize)>,
}

impl Line {
    /// A row, its place, and the row that its ratios refer to.
    pub(super) fn new(row: &Row, baseline: bool, base: Option<&Row>) -> Self {
        let its = base.map(|base| compared(row, base, |row| &row.it_per_s));
        let samples = base.map(|base| compared(row, base, |row| &row.samples_per_s));
        let (ratio, paired, runs) = samples.unwrap_or((None, false, (0, 0)));
        let (crosses, confounds) = base.map(|base| confounds(row, base)).unwrap_or_default();
        let permutation = base.filter(|_| !paired).and_then(|b| permutation_test(&row.samples_per_s, &b.samples_per_s));
        Self {
            baseline,
            against: base.map(Row::name),
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
            unknown: base.map(|base| unknown(&[row, base])).unwrap_or_default(),
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

    /// Seconds of the shortest run of both rows, if that is too short for a verdict.
    pub fn too_short(&self) -> Option<f64> {
        [Some(&self.row), self.base.as_deref()].into_iter().flatten().filter_map(Row::too_short).reduce(f64::min)
    }

    /// True if a ratio of it/s says something else than one of samples/s.
    pub fn mixed_batch(&self) -> bool {
        self.base.as_ref().is_some_and(|base| base.global_batch() != self.row.global_batch())
    }

    /// True if the ratio is of rows of different classes.
    pub fn across(&self) -> bool {
        !self.crosses.is_empty()
    }
}

/// The rows of one job, each against its baseline, judged together.
pub fn lines_of_job(rows: &[Row]) -> Vec<Line> {
    let indexed: Vec<(usize, &Row)> = rows.iter().map(|row| (0, row)).collect();
    let bases = baselines(&indexed, 0);
    let line = |(i, row): (usize, &Row)| {
        let own = bases[i] == Some(i);
        Line::new(row, own, bases[i].filter(|_| !own).map(|base| &rows[base]))
    };
    let mut lines: Vec<Line> = rows.iter().enumerate().map(line).collect();
    judge_together(&mut lines);
    lines
}

/// Judge the ratios of a table together.
pub(super) fn judge_together(lines: &mut [Line]) {
    let with = |short: bool| {
        let judged = |i: &usize| lines[*i].ratio_samples_per_s.is_some() && lines[*i].too_short().is_some() == short;
        (0..lines.len()).filter(judged).collect::<Vec<usize>>()
    };
    let (short, with) = (with(true), with(false));
    for index in short {
        let few = lines[index].runs.is_none_or(|(own, base)| own.min(base) < MIN_RUNS_FOR_VERDICT);
        lines[index].verdict = Some(if few { Verdict::TooFewRuns } else { Verdict::TooShort });
    }
    let table: Vec<_> = with.iter().filter_map(|i| lines[*i].ratio_samples_per_s.zip(lines[*i].runs)).collect();
    for (index, judgement) in with.into_iter().zip(judge(&table)) {
        let line = &mut lines[index];
        line.verdict = Some(judgement.verdict);
        line.p_holm = judgement.p_holm;
        line.lone = judgement.lone;
        let Some(base) = line.base.as_ref().filter(|_| judgement.verdict == Verdict::NoDifferenceShown) else {
            continue;
        };
        line.detectable = match line.paired {
            true => minimum_detectable_paired(&pairs(&line.row, base, |row| &row.samples_per_s)),
            false => minimum_detectable(&line.row.samples_per_s, &base.samples_per_s),
        };
    }
}

/// The ratio of the samples/s of two rows of a job, whether it is of pairs, and the runs behind it.
pub fn samples_ratio(row: &Row, base: &Row) -> (Option<Ratio>, bool, (usize, usize)) {
    compared(row, base, |row| &row.samples_per_s)
}

/// The ratio of two rows, whether it is of pairs, and the runs behind it.
fn compared(row: &Row, base: &Row, of: fn(&Row) -> &Vec<f64>) -> (Option<Ratio>, bool, (usize, usize)) {
    let pairs = pairs(row, base, of);
    if pairs.len() >= 2 {
        return (paired_ratio(&pairs), true, (pairs.len(), pairs.len()));
    }
    (ratio(of(row), of(base)), false, (row.n, base.n))
}

/// Figures of both rows by repeat, where they took turns in one job; else none.
pub(super) fn pairs(row: &Row, base: &Row, of: fn(&Row) -> &Vec<f64>) -> Vec<(f64, f64)> {
    if !row.interleaved || !base.interleaved || row.job != base.job {
        return Vec::new();
    }
    by_repeat((&row.repeats, of(row)), (&base.repeats, of(base)))
}

/// Figures of two sides, each a list of repeats and one of their figures, by the repeats that both have.
pub fn by_repeat(side: (&[u32], &[f64]), base: (&[u32], &[f64])) -> Vec<(f64, f64)> {
    let same = |repeat: &u32| base.0.iter().position(|other| other == repeat).and_then(|at| base.1.get(at));
    side.0.iter().zip(side.1).filter_map(|(repeat, figure)| Some((*figure, *same(repeat)?))).collect()
}
