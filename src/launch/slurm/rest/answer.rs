//! An answer of slurmrestd: its status, its JSON, and what Slurm says went wrong.

use serde_json::Value;

/// Slurm's numbers of errors.
pub(super) mod errno {
    /// All that Slurm 22.05 says when it does not accept a token, among other things.
    pub const UNSPECIFIED: i64 = -1;
    /// The token was not accepted.
    pub const AUTHENTICATION: i64 = 1007;
    /// No such job, or forgotten.
    pub const NO_SUCH_JOB: i64 = 2017;
    /// The job is over already.
    pub const ALREADY_DONE: i64 = 2021;
    /// The accounting has nothing.
    pub const NOTHING_FOUND: i64 = 9003;
}

/// An answer.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// What came with it; null if that was not JSON.
    pub body: Value,
    /// The beginning of what came, in one line.
    pub text: String,
}

/// An error in Slurm's own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SlurmError {
    pub number: Option<i64>,
    pub words: String,
}

impl Answer {
    pub fn new(status: u16, bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(80).collect();
        Self { status, body: serde_json::from_slice(bytes).unwrap_or_default(), text }
    }

    /// Whether the request was done.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status) && self.body.is_object()
    }

    /// The errors that Slurm lists.
    pub fn errors(&self) -> Vec<SlurmError> {
        list(&self.body, "errors").iter().map(error).collect()
    }

    pub fn has(&self, number: i64) -> bool {
        self.errors().iter().any(|e| e.number == Some(number))
    }

    /// Whether asking again may help: slurmrestd or slurmctld was away. What Slurm refuses, it refuses again.
    pub fn is_passing(&self) -> bool {
        let away = |e: &SlurmError| e.number.is_some_and(|n| (1000..=1006).contains(&n) || (1800..1900).contains(&n));
        let errors = self.errors();
        self.status >= 500 && self.status != 511 && (errors.is_empty() || errors.iter().any(away))
    }

    /// All errors in one line; the status and what came with it where Slurm itself said nothing.
    pub fn message(&self) -> String {
        let mut words: Vec<String> = self.errors().into_iter().map(|e| e.words).filter(|w| !w.is_empty()).collect();
        words.dedup();
        match words.is_empty() {
            false => words.join("; "),
            true => format!("HTTP {} {}", self.status, if self.body.is_object() { "" } else { &self.text })
                .trim()
                .to_owned(),
        }
    }
}

/// A list in an object; empty if there is none.
pub(super) fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn error(value: &Value) -> SlurmError {
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let number = ["error_number", "error_code"].iter().find_map(|name| value.get(*name)?.as_i64());
    let words = match (text("description"), text("error")) {
        ("", error) => error.to_owned(),
        (description, error) if error.is_empty() || description.contains(error) => description.to_owned(),
        (description, error) => format!("{description}: {error}"),
    };
    SlurmError { number, words }
}

/// A number, plain or as `{set, infinite, number}`.
pub(super) fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64(),
        Value::Object(fields) => {
            let is = |name: &str| fields.get(name).and_then(Value::as_bool);
            let bounded = is("set") != Some(false) && is("infinite") != Some(true);
            fields.get("number").filter(|_| bounded)?.as_i64()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_of_both_kinds() {
        assert_eq!(number(&json!(7)), Some(7));
        assert_eq!(number(&json!({"set": true, "infinite": false, "number": 7})), Some(7));
        for none in [
            json!(null),
            json!("7"),
            json!({"set": false, "number": 0}),
            json!({"set": true, "infinite": true, "number": 0}),
        ] {
            assert_eq!(number(&none), None, "{none}");
        }
    }

    #[test]
    fn errors_in_slurms_words() {
        let answer = |status, text: &str| Answer::new(status, text.as_bytes());
        let old = answer(
            500,
            r#"{"errors": [{"description": "Unable to find JobId=9", "error_number": 2017, "error": "Invalid job id specified"}]}"#,
        );
        assert_eq!(old.message(), "Unable to find JobId=9: Invalid job id specified");
        assert!(old.has(errno::NO_SUCH_JOB) && !old.is_passing());
        let held = answer(200, r#"{"errors": [{"error_code": 2042, "error": "Job is in held state"}], "job_id": 1}"#);
        assert_eq!(held.message(), "Job is in held state");
        assert_eq!(answer(502, "<html>\n Bad gateway").message(), "HTTP 502 <html> Bad gateway");
        assert_eq!(answer(500, "{}").message(), "HTTP 500");
    }

    #[test]
    fn only_what_passes_is_worth_another_try() {
        let away = r#"{"errors": [{"error_number": 1001, "error": "Communication connection failure"}]}"#;
        assert!(Answer::new(500, away.as_bytes()).is_passing());
        assert!(Answer::new(503, b"busy").is_passing());
        assert!(!Answer::new(404, b"no").is_passing());
        let token = r#"{"errors": [{"error_number": 1007, "error": "Protocol authentication error"}]}"#;
        assert!(!Answer::new(511, token.as_bytes()).is_passing());
    }
}
