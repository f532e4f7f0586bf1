use super::gate::{Gate, Metric};
use super::{Comparison, Line, Row};
use crate::report::format;
use crate::stats::Interval;

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
}

impl Gate {
    /// Check every row that it speaks of: all, or those with a baseline that are none themselves. Rows with a profiler are left
    /// out, as from all ratios. A row without the figure fails, and so does a gate that finds no row.
    ///
    /// It is the figure itself that decides; where its interval holds the bound, that is said.
    pub fn check(&self, comparison: &Comparison) -> Vec<Checked> {
        let lines = comparison.groups.iter().filter(|group| !group.profiler).flat_map(|group| &group.lines);
        let mut found: Vec<Checked> = lines
            .filter(|line| !self.of_baseline || !line.baseline || line.across())
            .map(|line| self.of(line))
            .collect();
        if found.is_empty() {
            let what = if self.of_baseline { "no row besides the baseline" } else { "no row without a profiler" };
            found.push(Checked { passed: false, sentence: format!("gate `{}` fails: {what}", self.text) });
        }
        found
    }

    fn of(&self, line: &Line) -> Checked {
        let name = line.row.name();
        let figure = if self.of_baseline { relative(self.metric, line) } else { absolute(self.metric, &line.row) };
        let Some(Figure { value, interval }) = figure else {
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
        match interval {
            Some(i) => {
                said[0].push_str(&format!(" [{}–{}]", shown(i.low), shown(i.high)));
                if i.low <= self.bound && self.bound <= i.high {
                    said.push("the interval holds the bound, so another run may well say otherwise".to_owned());
                }
            }
            None if matches!(self.metric, Metric::StorageBytes | Metric::BatchBytes) => {}
            None => said.push("without an interval: too few runs to say how much of it is chance".to_owned()),
        }
        if self.of_baseline && line.across() {
            said.push(format!("† of another class than {}", line.against.as_deref().unwrap_or_default()));
        }
        let word = if passed { "holds" } else { "fails" };
        Checked { passed, sentence: format!("gate `{}` {word} for {name}: {}", self.text, said.join("; ")) }
    }
}

/// The figure as a ratio to the baseline's.
fn relative(metric: Metric, line: &Line) -> Option<Figure> {
    let base = line.base.as_ref()?;
    let plain = |ratio: Option<f64>| ratio.map(|value| Figure { value, interval: None });
    match metric {
        Metric::SamplesPerS => line.ratio_samples_per_s.map(|r| Figure { value: r.value, interval: r.interval }),
        Metric::ItPerS => line.ratio_it_per_s.map(|r| Figure { value: r.value, interval: r.interval }),
        Metric::StepMs => line.ratio_it_per_s.map(|r| inverted(1.0, r.value, r.interval)),
        Metric::StorageBytes => plain(line.ratio_storage),
        Metric::BatchBytes => {
            plain(line.row.batch_bytes.zip(base.batch_bytes.filter(|b| *b > 0.0)).map(|(own, base)| own / base))
        }
    }
}

/// The figure itself: of several runs their median, as in the table.
fn absolute(metric: Metric, row: &Row) -> Option<Figure> {
    let plain = |value: Option<f64>| value.map(|value| Figure { value, interval: None });
    match metric {
        Metric::SamplesPerS => {
            let interval = row.samples_per_s_rate.and_then(|rate| rate.interval);
            row.median_samples_per_s().map(|value| Figure { value, interval })
        }
        Metric::ItPerS => {
            let interval = row.it_per_s_rate.and_then(|rate| rate.interval);
            row.median_it_per_s().map(|value| Figure { value, interval })
        }
        Metric::StepMs => {
            let interval = row.it_per_s_rate.and_then(|rate| rate.interval);
            row.median_it_per_s().map(|rate| inverted(1e3, rate, interval))
        }
        Metric::StorageBytes => plain(row.storage_bytes),
        Metric::BatchBytes => plain(row.batch_bytes),
    }
}

/// `over` divided by a rate.
fn inverted(over: f64, rate: f64, interval: Option<Interval>) -> Figure {
    let interval = interval.map(|i| Interval { low: over / i.high, high: over / i.low });
    Figure { value: over / rate, interval }
}
