use super::gate::{Gate, Metric};
use super::ratio_words::too_short;
use super::{Comparison, Line, Row};
use crate::report::format;
use crate::stats::{Interval, RateOverRuns, Ratio, Scope};

/// What a gate says of one row.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// Whether it holds.
    pub passed: bool,
    /// The gate, the row, and why.
    pub sentence: String,
}

/// A figure of a row, as a gate sees it.
struct Figure {
    value: f64,
    interval: Option<Interval>,
    /// What the interval covers; none of a ratio, whose interval is always over runs.
    scope: Option<Scope>,
}

impl Gate {
    /// Check every row that it speaks of: all; of a gate with a baseline, those of one job that are no baseline themselves, or of several
    /// jobs, those of all but the baseline's job. There a row is held against the same variant at the same point of that job, because
    /// a regression of one variant must not hide behind another; one that the job does not have, against the row that its ratio
    /// refers to. Rows with a profiler are left out, as from all ratios. A row without the figure fails, and so does a gate that finds
    /// no row.
    ///
    /// It is the figure itself that decides; where its interval holds the bound, that is said.
    pub fn check(&self, comparison: &Comparison) -> Vec<Checked> {
        let several = comparison.lines().any(|line| !line.of_baseline_job);
        let held = |line: &Line| match several {
            true => !line.of_baseline_job,
            false => !line.baseline || line.across(),
        };
        let lines = comparison.groups.iter().filter(|group| !group.profiler).flat_map(|group| &group.lines);
        let mut found: Vec<Checked> =
            lines.filter(|line| !self.of_baseline || held(line)).map(|line| self.of(line)).collect();
        if found.is_empty() {
            let what = match self.of_baseline {
                true if several => "no row of another job than the baseline's",
                true => "no row besides the baseline",
                false => "no row without a profiler",
            };
            found.push(Checked { passed: false, sentence: format!("gate `{}` fails: {what}", self.text) });
        }
        found
    }

    fn of(&self, line: &Line) -> Checked {
        let before = line.before.as_ref().filter(|_| self.of_baseline);
        let before = before.map(|base| Line::new(&line.row, false, Some(base)));
        let line = before.as_ref().unwrap_or(line);
        let name = line.row.name();
        let figure = if self.of_baseline { relative(self.metric, line) } else { absolute(self.metric, &line.row) };
        let Some(Figure { value, interval, scope }) = figure else {
            let why = match &line.against {
                None if self.of_baseline => "it has no baseline",
                _ => "there is no such figure",
            };
            return Checked { passed: false, sentence: format!("gate `{}` fails for {name}: {why}", self.text) };
        };
        let passed = self.comparator.holds(value, self.bound);
        let shown = |value: f64| match self.metric {
            _ if self.of_baseline => format::ratio(value),
            Metric::SamplesPerS | Metric::ItPerS => format::rate(value),
            Metric::StepMs => format!("{} ms", format::milliseconds(value * 1e6)),
            Metric::StorageBytes | Metric::BatchBytes => format::bytes(value),
        };
        let mut said = vec![shown(value)];
        let ends = interval.map(|i| format!("[{}–{}]", shown(i.low), shown(i.high))).unwrap_or_default();
        match interval {
            // Its own steps say nothing of another run, so this is no interval that a gate could lean on.
            Some(_) if scope == Some(Scope::WithinRun) => {
                said.push(format!("one run, whose own steps give {ends}: what another run would give is not known"))
            }
            Some(i) => {
                said[0].push_str(&match scope {
                    Some(_) => format!(" (median; 95 % of the mean over runs {ends})"),
                    None => format!(" {ends}"),
                });
                if i.low <= self.bound && self.bound <= i.high {
                    said.push("the interval holds the bound, so another run may well say otherwise".to_owned());
                }
            }
            None if matches!(self.metric, Metric::StorageBytes | Metric::BatchBytes) => {}
            None => said.push("without an interval: too few runs to say how much of it is chance".to_owned()),
        }
        let timed = !matches!(self.metric, Metric::StorageBytes | Metric::BatchBytes);
        let short = if self.of_baseline { line.too_short() } else { line.row.too_short() };
        said.extend(short.filter(|_| timed).map(|seconds| format!("{}, so there is no verdict", too_short(seconds))));
        if let Some(against) = line.against.as_ref().filter(|_| self.of_baseline) {
            // A gate on the step time is on times: above 1 is slower there.
            let what = if self.metric == Metric::StepMs { "the step time of " } else { "" };
            said[0].push_str(&format!(" of {what}{against}"));
            if line.across() {
                said.push("† of another class".to_owned());
            }
        }
        let word = if passed { "holds" } else { "fails" };
        Checked { passed, sentence: format!("gate `{}` {word} for {name}: {}", self.text, said.join("; ")) }
    }
}

/// The figure as a ratio to the baseline's.
fn relative(metric: Metric, line: &Line) -> Option<Figure> {
    let base = line.base.as_ref()?;
    let plain = |ratio: Option<f64>| ratio.map(|value| Figure { value, interval: None, scope: None });
    let of = |ratio: Ratio| Figure { value: ratio.value, interval: ratio.interval, scope: None };
    match metric {
        Metric::SamplesPerS => line.ratio_samples_per_s.map(of),
        Metric::ItPerS => line.ratio_it_per_s.map(of),
        Metric::StepMs => line.ratio_it_per_s.map(of).map(|figure| figure.inverted(1.0)),
        Metric::StorageBytes => plain(line.ratio_storage),
        Metric::BatchBytes => {
            plain(line.row.batch_bytes.zip(base.batch_bytes.filter(|b| *b > 0.0)).map(|(own, base)| own / base))
        }
    }
}

/// The figure itself: of several runs their median, as in the table, with the interval of their mean.
fn absolute(metric: Metric, row: &Row) -> Option<Figure> {
    let plain = |value: Option<f64>| value.map(|value| Figure { value, interval: None, scope: None });
    let of = |median: Option<f64>, rate: Option<RateOverRuns>| {
        let (interval, scope) = (rate.and_then(|rate| rate.interval), rate.map(|rate| rate.scope));
        median.map(|value| Figure { value, interval, scope })
    };
    let it_per_s = || of(row.median_it_per_s(), row.it_per_s_rate);
    match metric {
        Metric::SamplesPerS => of(row.median_samples_per_s(), row.samples_per_s_rate),
        Metric::ItPerS => it_per_s(),
        Metric::StepMs => it_per_s().map(|figure| figure.inverted(1e3)),
        Metric::StorageBytes => plain(row.storage_bytes),
        Metric::BatchBytes => plain(row.batch_bytes),
    }
}

impl Figure {
    /// `over` divided by this rate.
    fn inverted(self, over: f64) -> Self {
        let interval = self.interval.map(|i| Interval { low: over / i.high, high: over / i.low });
        Self { value: over / self.value, interval, scope: self.scope }
    }
}
