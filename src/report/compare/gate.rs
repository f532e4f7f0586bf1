//! Gates: conditions on figures that a comparison must meet.

use std::str::FromStr;

use expctl_stats::{Interval, RateOverRuns, Ratio, Scope};
use expctl_text::{closest, format};

use super::comparison::Comparison;
use crate::report::junit::{JunitCase, JunitOutcome, JunitReason};
use crate::report::line::{Line, too_short_words};
use crate::report::variant_row::VariantRow;

/// A figure that a gate can be put on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Samples per second over all ranks.
    SamplesPerS,
    /// Iterations per second.
    ItPerS,
    /// Mean step, ms.
    StepMs,
    /// Size of the store on disk, bytes.
    StorageBytes,
    /// A rank's collated batch, bytes.
    BatchBytes,
}

impl Metric {
    /// All of them, by name.
    pub const ALL: [(&'static str, Self); 5] = [
        ("samples_per_s", Self::SamplesPerS),
        ("it_per_s", Self::ItPerS),
        ("step_ms", Self::StepMs),
        ("storage_bytes", Self::StorageBytes),
        ("batch_bytes", Self::BatchBytes),
    ];
}

/// Relation of a figure to its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparator {
    /// `>=`
    AtLeast,
    /// `>`
    Above,
    /// `<=`
    AtMost,
    /// `<`
    Below,
}

impl Comparator {
    /// Whether the relation holds.
    pub fn holds(self, figure: f64, bound: f64) -> bool {
        match self {
            Self::AtLeast => figure >= bound,
            Self::Above => figure > bound,
            Self::AtMost => figure <= bound,
            Self::Below => figure < bound,
        }
    }
}

/// A condition on every row, as `--gate` takes it: `samples_per_s >= 0.95 * baseline`.
///
/// `METRIC OP NUMBER`, `METRIC OP NUMBER * baseline`, `METRIC OP baseline * NUMBER` or `METRIC OP baseline`; spaces do not matter.
#[derive(Clone, Debug, PartialEq)]
pub struct Gate {
    /// Its text.
    pub text: String,
    /// The figure.
    pub metric: Metric,
    /// Its relation to the bound.
    pub comparator: Comparator,
    /// The bound, as a number or as a factor of the baseline's figure.
    pub bound: f64,
    /// Whether the bound is a factor of the baseline's figure.
    pub of_baseline: bool,
}

/// A gate with a syntax error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}\n  {text}\n  {:>width$}", "^", width = at + 1)]
pub struct GateError {
    /// Its text.
    pub text: String,
    /// Number of characters before the error.
    pub at: usize,
    /// The expected text.
    pub reason: String,
}

impl FromStr for Gate {
    type Err = GateError;

    fn from_str(text: &str) -> Result<Self, GateError> {
        let mut rest = GateParser { text, at: 0 };
        let (at, name) = rest.word();
        let Some((_, metric)) = Metric::ALL.iter().find(|(known, _)| *known == name) else {
            let names = Metric::ALL.map(|(name, _)| name);
            let meant = closest(name, names).map(|name| format!("; did you mean {name}?")).unwrap_or_default();
            return Err(rest.error_at(at, format!("a gate begins with one of {}{meant}", names.join(", "))));
        };
        let comparator = rest.comparator()?;
        let (bound, of_baseline) = match rest.baseline() {
            true => (if rest.sign('*') { rest.number()? } else { 1.0 }, true),
            false => {
                let bound = rest.number()?;
                let of_baseline = rest.sign('*');
                if of_baseline && !rest.baseline() {
                    let at = rest.next_at();
                    return Err(rest.error_at(at, "`baseline` is expected after `*`".to_owned()));
                }
                (bound, of_baseline)
            }
        };
        let at = rest.next_at();
        if !text[at..].is_empty() {
            return Err(rest.error_at(at, "the gate should end here".to_owned()));
        }
        Ok(Self { text: text.trim().to_owned(), metric: *metric, comparator, bound, of_baseline })
    }
}

/// Parser of the text of a gate.
struct GateParser<'a> {
    text: &'a str,
    /// Number of bytes that were parsed.
    at: usize,
}

impl<'a> GateParser<'a> {
    fn error_at(&self, at: usize, reason: String) -> GateError {
        GateError { text: self.text.to_owned(), at: self.text[..at].chars().count(), reason }
    }

    /// Position of the next token.
    fn next_at(&self) -> usize {
        self.text.len() - self.text[self.at..].trim_start().len()
    }

    /// Take the next characters for which `of` is true; gives their position, too.
    fn take(&mut self, of: impl Fn(char) -> bool) -> (usize, &'a str) {
        let start = self.next_at();
        let rest = &self.text[start..];
        let end = start + rest.find(|c: char| !of(c)).unwrap_or(rest.len());
        self.at = end;
        (start, &self.text[start..end])
    }

    fn word(&mut self) -> (usize, &'a str) {
        self.take(|c| c.is_ascii_alphanumeric() || c == '_')
    }

    fn comparator(&mut self) -> Result<Comparator, GateError> {
        let (at, found) = self.take(|c| "<>=!".contains(c));
        match found {
            ">=" => Ok(Comparator::AtLeast),
            ">" => Ok(Comparator::Above),
            "<=" => Ok(Comparator::AtMost),
            "<" => Ok(Comparator::Below),
            _ => Err(self.error_at(at, "one of >=, >, <=, < is expected".to_owned())),
        }
    }

    fn number(&mut self) -> Result<f64, GateError> {
        let (at, found) = self.take(|c| c.is_ascii_alphanumeric() || "+-._".contains(c));
        let number = found.parse::<f64>().ok().filter(|number| number.is_finite());
        number.ok_or_else(|| self.error_at(at, "a number or `baseline` is expected".to_owned()))
    }

    /// Take `baseline`, if that is next.
    fn baseline(&mut self) -> bool {
        let before = self.at;
        let found = self.word().1 == "baseline";
        if !found {
            self.at = before;
        }
        found
    }

    /// Take a sign, if that is next.
    fn sign(&mut self, sign: char) -> bool {
        let at = self.next_at();
        let found = self.text[at..].starts_with(sign);
        if found {
            self.at = at + sign.len_utf8();
        }
        found
    }
}

/// The result of a gate for one row.
#[derive(Clone, Debug, PartialEq)]
pub struct GateResult {
    /// Whether it holds.
    pub passed: bool,
    /// Text of the gate.
    pub gate: String,
    /// Name of the row; empty if there was none to check.
    pub row: String,
    /// The gate, the row, and why.
    pub sentence: String,
}

impl GateResult {
    /// As a test case for CI.
    pub fn junit_case(&self) -> JunitCase {
        let said = self.sentence.clone();
        let outcome = match self.passed {
            true => JunitOutcome::Passed(said),
            false => JunitOutcome::Failed(JunitReason { kind: "gate".to_owned(), message: said }),
        };
        let name = if self.row.is_empty() { "no row".to_owned() } else { self.row.clone() };
        JunitCase { class: self.gate.clone(), name, time_s: None, properties: Vec::new(), outcome }
    }
}

/// A figure of a row with its interval.
struct GateFigure {
    value: f64,
    interval: Option<Interval>,
    /// Scope of the interval; `None` for a ratio, whose interval is always over runs.
    scope: Option<Scope>,
}

impl Gate {
    /// Check all rows without a profiler.
    ///
    /// With a bound relative to the baseline these are, within one job, all rows but the baselines; with several jobs, all rows of the other
    /// jobs, each against the same variant at the same point of the baseline's job (so that a regression of one variant cannot hide behind
    /// another), or if there is none, against the base of its ratio. A row without the figure fails, and so does a gate without any row.
    ///
    /// The figure itself decides; if its interval contains the bound, the sentence says so.
    pub fn check(&self, comparison: &Comparison) -> Vec<GateResult> {
        let several = comparison.lines().any(|line| !line.of_baseline_job);
        let held = |line: &Line| match several {
            true => !line.of_baseline_job,
            false => !line.baseline || line.across(),
        };
        let lines = comparison.groups.iter().filter(|group| !group.profiler).flat_map(|group| &group.lines);
        let mut found: Vec<GateResult> =
            lines.filter(|line| !self.of_baseline || held(line)).map(|line| self.check_line(line)).collect();
        if found.is_empty() {
            let what = match self.of_baseline {
                true if several => "no row of another job than the baseline's",
                true => "no row besides the baseline",
                false => "no row without a profiler",
            };
            let sentence = format!("gate `{}` fails: {what}", self.text);
            found.push(self.result(false, String::new(), sentence));
        }
        found
    }

    fn check_line(&self, line: &Line) -> GateResult {
        let before = line.before.as_ref().filter(|_| self.of_baseline);
        let before = before.map(|base| Line::new(&line.row, false, Some(base)));
        let line = before.as_ref().unwrap_or(line);
        let name = line.row.name();
        let figure = if self.of_baseline { relative(self.metric, line) } else { absolute(self.metric, &line.row) };
        let Some(GateFigure { value, interval, scope }) = figure else {
            let why = match &line.against {
                None if self.of_baseline => "it has no baseline",
                _ => "there is no such figure",
            };
            let sentence = format!("gate `{}` fails for {name}: {why}", self.text);
            return self.result(false, name, sentence);
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
            // The interval within a run does not cover other runs.
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
        said.extend(
            short.filter(|_| timed).map(|seconds| format!("{}, so there is no verdict", too_short_words(seconds))),
        );
        if let Some(against) = line.against.as_ref().filter(|_| self.of_baseline) {
            // A ratio of step times: above 1 is slower.
            let what = if self.metric == Metric::StepMs { "the step time of " } else { "" };
            said[0].push_str(&format!(" of {what}{against}"));
            if line.across() {
                said.push("† of another class".to_owned());
            }
        }
        let word = if passed { "holds" } else { "fails" };
        let sentence = format!("gate `{}` {word} for {name}: {}", self.text, said.join("; "));
        self.result(passed, name, sentence)
    }

    fn result(&self, passed: bool, row: String, sentence: String) -> GateResult {
        GateResult { passed, gate: self.text.clone(), row, sentence }
    }
}

/// The figure as a ratio to the baseline's.
fn relative(metric: Metric, line: &Line) -> Option<GateFigure> {
    let base = line.base.as_ref()?;
    let plain = |ratio: Option<f64>| ratio.map(|value| GateFigure { value, interval: None, scope: None });
    let of = |ratio: Ratio| GateFigure { value: ratio.value, interval: ratio.interval, scope: None };
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

/// The figure itself: the median of the runs, as in the table, with the interval of their mean.
fn absolute(metric: Metric, row: &VariantRow) -> Option<GateFigure> {
    let plain = |value: Option<f64>| value.map(|value| GateFigure { value, interval: None, scope: None });
    let of = |median: Option<f64>, rate: Option<RateOverRuns>| {
        let (interval, scope) = (rate.and_then(|rate| rate.interval), rate.map(|rate| rate.scope));
        median.map(|value| GateFigure { value, interval, scope })
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

impl GateFigure {
    /// `over` divided by this rate.
    fn inverted(self, over: f64) -> Self {
        let interval = self.interval.map(|i| Interval { low: over / i.high, high: over / i.low });
        Self { value: over / self.value, interval, scope: self.scope }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read() {
        for (text, metric, comparator, bound, of_baseline) in [
            ("samples_per_s >= 0.95 * baseline", Metric::SamplesPerS, Comparator::AtLeast, 0.95, true),
            ("samples_per_s>=baseline*0.95", Metric::SamplesPerS, Comparator::AtLeast, 0.95, true),
            (" it_per_s > baseline ", Metric::ItPerS, Comparator::Above, 1.0, true),
            ("step_ms < 12.5", Metric::StepMs, Comparator::Below, 12.5, false),
            ("storage_bytes <= 4e9", Metric::StorageBytes, Comparator::AtMost, 4e9, false),
        ] {
            let gate: Gate = text.parse().unwrap();
            assert_eq!((gate.metric, gate.comparator), (metric, comparator), "{text}");
            assert_eq!((gate.bound, gate.of_baseline, gate.text.as_str()), (bound, of_baseline, text.trim()));
        }
    }

    #[test]
    fn a_mistake_is_pointed_at() {
        for (text, at, reason) in [
            ("sample_per_s > 1", 0, "did you mean samples_per_s?"),
            ("", 0, "a gate begins with one of"),
            ("it_per_s => 1", 9, "one of >=, >, <=, < is expected"),
            ("it_per_s", 8, "one of >=, >, <=, < is expected"),
            ("it_per_s > fast", 11, "a number or `baseline` is expected"),
            ("it_per_s > nan", 11, "a number or `baseline` is expected"),
            ("it_per_s > 1 * base", 15, "`baseline` is expected"),
            ("it_per_s > 1 %", 13, "should end here"),
        ] {
            let error = text.parse::<Gate>().unwrap_err();
            assert_eq!(error.at, at, "{text}");
            assert!(error.reason.contains(reason), "{text}: {error}");
        }
        let shown = "it_per_s => 1".parse::<Gate>().unwrap_err().to_string();
        assert_eq!(shown, "one of >=, >, <=, < is expected\n  it_per_s => 1\n           ^");
    }
}
