use std::str::FromStr;

use crate::conf::closest;

/// A figure that a gate can be put on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Samples per second over all ranks.
    SamplesPerS,
    /// Iterations per second.
    ItPerS,
    /// Mean step, ms.
    StepMs,
    /// What the store takes on disk, bytes.
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

/// How a figure must stand to its bound.
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
    /// Whether a figure stands so.
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
    /// As given.
    pub text: String,
    /// What is looked at.
    pub metric: Metric,
    /// How it must stand to the bound.
    pub comparator: Comparator,
    /// The bound, or by how much the baseline's figure is to be multiplied for it.
    pub bound: f64,
    /// True if the bound is relative to the baseline.
    pub of_baseline: bool,
}

/// A gate that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}\n  {text}\n  {:>width$}", "^", width = at + 1)]
pub struct GateError {
    /// As given.
    pub text: String,
    /// Characters in front of the mistake.
    pub at: usize,
    /// What was expected there.
    pub reason: String,
}

impl FromStr for Gate {
    type Err = GateError;

    fn from_str(text: &str) -> Result<Self, GateError> {
        let mut rest = Rest { text, at: 0 };
        let (at, name) = rest.word();
        let Some((_, metric)) = Metric::ALL.iter().find(|(known, _)| *known == name) else {
            let names = Metric::ALL.map(|(name, _)| name);
            let meant = closest(name, names).map(|name| format!("; did you mean {name}?")).unwrap_or_default();
            return Err(rest.wrong(at, format!("a gate begins with one of {}{meant}", names.join(", "))));
        };
        let comparator = rest.comparator()?;
        let (bound, of_baseline) = match rest.baseline() {
            true => (if rest.sign('*') { rest.number()? } else { 1.0 }, true),
            false => {
                let bound = rest.number()?;
                let of_baseline = rest.sign('*');
                if of_baseline && !rest.baseline() {
                    let at = rest.next_at();
                    return Err(rest.wrong(at, "`baseline` is expected after `*`".to_owned()));
                }
                (bound, of_baseline)
            }
        };
        let at = rest.next_at();
        if !text[at..].is_empty() {
            return Err(rest.wrong(at, "the gate should end here".to_owned()));
        }
        Ok(Self { text: text.trim().to_owned(), metric: *metric, comparator, bound, of_baseline })
    }
}

/// What of a gate has not been read yet.
struct Rest<'a> {
    text: &'a str,
    /// Bytes that were read.
    at: usize,
}

impl<'a> Rest<'a> {
    fn wrong(&self, at: usize, reason: String) -> GateError {
        GateError { text: self.text.to_owned(), at: self.text[..at].chars().count(), reason }
    }

    /// Where the next token begins.
    fn next_at(&self) -> usize {
        self.text.len() - self.text[self.at..].trim_start().len()
    }

    /// The next characters that `of` takes, and where they begin.
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
            _ => Err(self.wrong(at, "one of >=, >, <=, < is expected".to_owned())),
        }
    }

    fn number(&mut self) -> Result<f64, GateError> {
        let (at, found) = self.take(|c| c.is_ascii_alphanumeric() || "+-._".contains(c));
        let number = found.parse::<f64>().ok().filter(|number| number.is_finite());
        number.ok_or_else(|| self.wrong(at, "a number or `baseline` is expected".to_owned()))
    }

    /// Reads `baseline`, if that comes next.
    fn baseline(&mut self) -> bool {
        let before = self.at;
        let found = self.word().1 == "baseline";
        if !found {
            self.at = before;
        }
        found
    }

    /// Reads a sign, if that comes next.
    fn sign(&mut self, sign: char) -> bool {
        let at = self.next_at();
        let found = self.text[at..].starts_with(sign);
        if found {
            self.at = at + sign.len_utf8();
        }
        found
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
