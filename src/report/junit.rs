//! JUnit XML, which CI systems show as test results: gates are the tests.

use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesEnd, BytesStart, BytesText, Event};

/// A test case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JunitCase {
    /// What it is a case of: a config, or a gate.
    pub class: String,
    /// What was tested: a variant.
    pub name: String,
    /// What came of it, and why.
    pub outcome: JunitOutcome,
}

/// What came of a test case, with the reason in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JunitOutcome {
    /// It passed.
    Passed(String),
    /// It failed.
    Failed(String),
    /// Nothing could be said.
    Skipped(String),
}

/// One test suite with these cases.
///
/// # Errors
/// None in practice: the text is written to memory.
pub fn junit_xml(suite: &str, cases: &[JunitCase]) -> std::io::Result<Vec<u8>> {
    let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
    let count = |is: fn(&JunitOutcome) -> bool| cases.iter().filter(|case| is(&case.outcome)).count().to_string();
    let (tests, failures) = (cases.len().to_string(), count(|of| matches!(of, JunitOutcome::Failed(_))));
    let skipped = count(|of| matches!(of, JunitOutcome::Skipped(_)));
    let suite = allowed(suite);
    let counts =
        [("tests", tests.as_str()), ("failures", failures.as_str()), ("errors", "0"), ("skipped", skipped.as_str())];
    writer.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
    let named =
        |tag: &'static str| BytesStart::new(tag).with_attributes([("name", suite.as_str())]).with_attributes(counts);
    writer.write_event(Event::Start(named("testsuites")))?;
    writer.write_event(Event::Start(named("testsuite")))?;
    for case in cases {
        let (class, name) = (allowed(&case.class), allowed(&case.name));
        let start =
            BytesStart::new("testcase").with_attributes([("classname", class.as_str()), ("name", name.as_str())]);
        writer.write_event(Event::Start(start))?;
        let (tag, message, text) = match &case.outcome {
            JunitOutcome::Passed(text) => ("system-out", None, text),
            JunitOutcome::Failed(text) => ("failure", Some("gate"), text),
            JunitOutcome::Skipped(text) => ("skipped", None, text),
        };
        let text = allowed(text);
        let mut inside = BytesStart::new(tag);
        if tag != "system-out" {
            inside.push_attribute(("message", text.as_str()));
        }
        inside.extend_attributes(message.map(|kind| ("type", kind)));
        writer.write_event(Event::Start(inside))?;
        writer.write_event(Event::Text(BytesText::new(&text)))?;
        writer.write_event(Event::End(BytesEnd::new(tag)))?;
        writer.write_event(Event::End(BytesEnd::new("testcase")))?;
    }
    writer.write_event(Event::End(BytesEnd::new("testsuite")))?;
    writer.write_event(Event::End(BytesEnd::new("testsuites")))?;
    let mut text = writer.into_inner();
    text.push(b'\n');
    Ok(text)
}

/// The text without characters that XML 1.0 cannot hold, not even escaped: a name of a variant may have them.
fn allowed(text: &str) -> String {
    let is_allowed = |c: char| matches!(c, '\t' | '\n' | '\r') || (c >= ' ' && !matches!(c, '\u{fffe}' | '\u{ffff}'));
    text.chars().map(|c| if is_allowed(c) { c } else { '\u{fffd}' }).collect()
}

#[cfg(test)]
mod tests {
    use quick_xml::{Reader, XmlVersion};

    use super::*;

    #[test]
    fn names_cannot_break_the_file() {
        let name = "a<b> & \"c\" 'd' ]]> \u{1b}[31m";
        let case = |outcome| JunitCase { class: name.to_owned(), name: name.to_owned(), outcome };
        let said = || "1 < 2 & more".to_owned();
        let cases =
            [JunitOutcome::Passed(said()), JunitOutcome::Failed(said()), JunitOutcome::Skipped(said())].map(case);
        let text = String::from_utf8(junit_xml("expctl", &cases).unwrap()).unwrap();
        let mut reader = Reader::from_str(&text);
        let (mut names, mut counts) = (Vec::new(), Vec::new());
        loop {
            match reader.read_event().unwrap() {
                Event::Eof => break,
                Event::Start(start) => {
                    for attribute in start.attributes() {
                        let attribute = attribute.unwrap();
                        let value = attribute.normalized_value(XmlVersion::Explicit1_0).unwrap().into_owned();
                        match (start.name().as_ref(), attribute.key.as_ref()) {
                            (b"testcase", b"name") => names.push(value),
                            (b"testsuite", b"tests" | b"failures" | b"skipped") => counts.push(value),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        assert_eq!(names, vec![name.replace('\u{1b}', "\u{fffd}"); 3]);
        assert_eq!(counts, ["3", "1", "1"]);
    }
}
