//! JUnit's XML, which CI systems show: a suite for a job, a test case for each trial.
//!
//! ```text
//! completed              passes
//! failed                 <failure> with cause and reason
//! interrupted, running   <error>: it is not known how it would have ended; likewise what cannot be read
//! not started, imported  <skipped>
//! ```

use std::fmt::Write as _;

use expctl_ledger::RunState;

use super::trial_facts::{TrialFacts, TrialOutcome};

/// Result of a test case.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CaseResult {
    Passed,
    /// The element that says so, with its message and type.
    Other {
        element: &'static str,
        message: String,
        kind: String,
    },
}

impl CaseResult {
    fn from_facts(facts: &TrialFacts) -> Self {
        let other = |element, message: String| {
            let kind = facts.cause.map_or_else(|| facts.outcome.name(), |cause| cause.name()).to_owned();
            Self::Other { element, message, kind }
        };
        let reason = |state: &RunState| {
            let reason = facts.outcome.reason();
            if reason.is_empty() { state.name().to_owned() } else { reason.to_owned() }
        };
        match &facts.outcome {
            TrialOutcome::Imported => other("skipped", "published by others: it never ran here".to_owned()),
            TrialOutcome::Run(RunState::Completed) => Self::Passed,
            TrialOutcome::Run(state @ RunState::Failed(_)) => other("failure", reason(state)),
            TrialOutcome::Run(state @ RunState::NotStarted) => other("skipped", state.name().to_owned()),
            TrialOutcome::Run(state) => other("error", reason(state)),
        }
    }

    fn is(&self, name: &str) -> bool {
        matches!(self, Self::Other { element, .. } if *element == name)
    }
}

/// The suite of a job. `name`: that of the suite. `submitted`: seconds since 1970; `None` for a published job.
pub fn suite(name: &str, submitted: Option<i64>, trials: &[TrialFacts]) -> String {
    let results: Vec<CaseResult> = trials.iter().map(CaseResult::from_facts).collect();
    let count = |element: &str| results.iter().filter(|result| result.is(element)).count();
    let seconds: i64 = trials.iter().filter_map(TrialFacts::took_s).sum();
    let (tests, failures, errors, skipped) = (trials.len(), count("failure"), count("error"), count("skipped"));
    let totals = format!(
        "tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\" time=\"{seconds}\""
    );
    let begun = submitted.and_then(|at| jiff::Timestamp::from_second(at).ok());
    let begun = begun.map(|at| format!(" timestamp=\"{}\"", at.strftime("%Y-%m-%dT%H:%M:%S"))).unwrap_or_default();
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {totals}>\n  <testsuite name=\"{}\" {totals}{begun}>\n",
        escaped(name)
    );
    for (facts, result) in trials.iter().zip(&results) {
        let class =
            if facts.variant.is_empty() { facts.config.clone() } else { format!("{}.{}", facts.config, facts.variant) };
        let time = facts.took_s().unwrap_or(0);
        // Writing into a text never fails.
        let _ = writeln!(
            xml,
            "    <testcase classname=\"{}\" name=\"{}\" time=\"{time}\">",
            escaped(&class),
            escaped(&facts.name())
        );
        properties(&mut xml, facts);
        if let CaseResult::Other { element, message, kind } = result {
            let (message, kind) = (escaped(message), escaped(kind));
            let _ = writeln!(xml, "      <{element} message=\"{message}\" type=\"{kind}\">{message}</{element}>");
        }
        xml.push_str("    </testcase>\n");
    }
    xml.push_str("  </testsuite>\n</testsuites>\n");
    xml
}

/// Class, node and figures of a trial, which some CI systems show.
fn properties(xml: &mut String, facts: &TrialFacts) {
    let mut all = vec![("class".to_owned(), facts.outcome.class().to_owned())];
    if !facts.nodes.is_empty() {
        all.push(("host".to_owned(), facts.nodes.join(", ")));
    }
    all.extend(facts.figures().into_iter().map(|(name, value)| (name, value.to_string())));
    xml.push_str("      <properties>\n");
    for (name, value) in all {
        let _ = writeln!(xml, "        <property name=\"{}\" value=\"{}\"/>", escaped(&name), escaped(&value));
    }
    xml.push_str("      </properties>\n");
}

/// A text in XML 1.0, which has no place for most control characters.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\n' => safe.push_str("&#10;"),
            '\t' => safe.push_str("&#9;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_never_markup() {
        assert_eq!(escaped("a <b> & \"c\"\n\u{1b}[2J"), "a &lt;b&gt; &amp; &quot;c&quot;&#10;\u{fffd}[2J");
    }
}
