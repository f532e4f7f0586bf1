//! JUnit's XML, which CI systems show as test results: gates and trials are the test cases.

use std::fmt::Write as _;

/// A test suite.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JunitSuite {
    /// Its name.
    pub name: String,
    /// When it began, seconds since 1970; `None` where that says nothing.
    pub begun: Option<i64>,
    /// Its cases.
    pub cases: Vec<JunitCase>,
}

/// A test case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JunitCase {
    /// What it is a case of: a config, or a gate.
    pub class: String,
    /// What was tested: a trial, or a row.
    pub name: String,
    /// How long it took, s; `None` where that says nothing.
    pub time_s: Option<i64>,
    /// Figures and facts, by name.
    pub properties: Vec<(String, String)>,
    /// What came of it.
    pub outcome: JunitOutcome,
}

/// What came of a test case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JunitOutcome {
    /// It passed; what it printed.
    Passed(String),
    /// It failed.
    Failed(JunitReason),
    /// It is not known whether it would have passed.
    Error(JunitReason),
    /// It did not take place, or nothing can be said.
    Skipped(JunitReason),
}

impl JunitOutcome {
    /// The element that says so, with the reason; `None` for a case that passed.
    fn element(&self) -> Option<(&'static str, &JunitReason)> {
        match self {
            Self::Passed(_) => None,
            Self::Failed(reason) => Some(("failure", reason)),
            Self::Error(reason) => Some(("error", reason)),
            Self::Skipped(reason) => Some(("skipped", reason)),
        }
    }
}

/// Why a test case did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JunitReason {
    /// The kind of reason, in a word or two.
    pub kind: String,
    /// The reason.
    pub message: String,
}

impl JunitSuite {
    /// The file.
    pub fn xml(&self) -> String {
        let count = |name: &str| {
            let is = |case: &&JunitCase| case.outcome.element().is_some_and(|(element, _)| element == name);
            self.cases.iter().filter(is).count()
        };
        let times: Vec<i64> = self.cases.iter().filter_map(|case| case.time_s).collect();
        let time = if times.is_empty() { String::new() } else { format!(" time=\"{}\"", times.iter().sum::<i64>()) };
        let totals = format!(
            "tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\"{time}",
            self.cases.len(),
            count("failure"),
            count("error"),
            count("skipped")
        );
        let begun = self.begun.and_then(|at| jiff::Timestamp::from_second(at).ok());
        let begun = begun.map(|at| format!(" timestamp=\"{}\"", at.strftime("%Y-%m-%dT%H:%M:%S"))).unwrap_or_default();
        let mut xml = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {totals}>\n  <testsuite name=\"{}\" {totals}{begun}>\n",
            escaped(&self.name)
        );
        self.cases.iter().for_each(|case| case.write(&mut xml));
        xml.push_str("  </testsuite>\n</testsuites>\n");
        xml
    }
}

impl JunitCase {
    fn write(&self, xml: &mut String) {
        let time = self.time_s.map(|time| format!(" time=\"{time}\"")).unwrap_or_default();
        let (class, name) = (escaped(&self.class), escaped(&self.name));
        // Writing into a text never fails.
        let _ = writeln!(xml, "    <testcase classname=\"{class}\" name=\"{name}\"{time}>");
        if !self.properties.is_empty() {
            xml.push_str("      <properties>\n");
            for (name, value) in &self.properties {
                let _ = writeln!(xml, "        <property name=\"{}\" value=\"{}\"/>", escaped(name), escaped(value));
            }
            xml.push_str("      </properties>\n");
        }
        if let Some((element, JunitReason { kind, message })) = self.outcome.element() {
            let (message, kind) = (escaped(message), escaped(kind));
            let _ = writeln!(xml, "      <{element} message=\"{message}\" type=\"{kind}\">{message}</{element}>");
        }
        if let JunitOutcome::Passed(said) = &self.outcome
            && !said.is_empty()
        {
            let _ = writeln!(xml, "      <system-out>{}</system-out>", escaped(said));
        }
        xml.push_str("    </testcase>\n");
    }
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

    #[test]
    fn what_says_nothing_is_left_out() {
        let case = |outcome| JunitCase {
            class: "gate".into(),
            name: "lazy".into(),
            time_s: None,
            properties: Vec::new(),
            outcome,
        };
        let reason = || JunitReason { kind: "gate".into(), message: "slower".into() };
        let outcomes = [
            JunitOutcome::Passed("as fast".into()),
            JunitOutcome::Failed(reason()),
            JunitOutcome::Error(reason()),
            JunitOutcome::Skipped(reason()),
        ];
        let suite = JunitSuite { name: "all".into(), begun: None, cases: outcomes.map(case).into() };
        let xml = suite.xml();
        let counts = "tests=\"4\" failures=\"1\" errors=\"1\" skipped=\"1\">";
        assert_eq!(xml.matches(counts).count(), 2, "{xml}");
        assert!(xml.contains("<testcase classname=\"gate\" name=\"lazy\">\n      <system-out>as fast</system-out>\n"));
        assert!(xml.contains("<failure message=\"slower\" type=\"gate\">slower</failure>"), "{xml}");
        assert!(!xml.contains("time") && !xml.contains("propert"), "{xml}");
    }
}
